#include "pipeline/speculation.h"

#include <assert.h>

enum {
    COST_AGE_MAX = 512, /* passes after which a cost is forgotten */
    PLAIN_AGE_MAX = 32, /* passes: then one without a draft is measured again */
    BUILT_MAX = 2,      /* tokens of a draft that pays only what is believed */
    COST_NOTES = 2,     /* as many are believed: one may have been held up by others */
};

/* A row more, as a share of a pass of one row, before anything was measured: between decoding that
 * waits for memory (0.1) and one that waits for products (0.5). */
static const double COST_ROW_FIRST = 0.3;

static const double GAIN_MIN = 1.05;        /* of a draft, to be worth it */
static const float ACCOUNT_FIRST = .015f;   /* of its time that a request may lose at first … */
static const float ACCOUNT_FIRST_MAX = 1;   /* … and passes … */
static const float ACCOUNT_INTEREST = .01f; /* … and with each without a draft … */
static const float ACCOUNT_MAX = 6;         /* … and never more at once than it has gained */

/* About the last 14 tokens count: texts begin and end to repeat themselves. Of a model the last 33:
 * fewer say too little where it pays barely. */
static const float NOTES_FADE[SPECULATION_CLASSES] = {.93f, .93f, .93f, .97f};
/* Before anything is known: as if so many tokens had been tried. */
static const float PRIOR_TRIED = 2;
static const float PRIOR_RIGHT[SPECULATION_CLASSES] = {.3f, .55f, .8f, .6f};
enum { CLASS_OF_MODEL = SPECULATION_CLASSES - 1 };
static const float MODEL_FADE = .99f;      /* of what is known of it, with each token without it */
static const float MODEL_TRIED_FIRST = 12; /* as much is taken over from other requests … */
static const float CONFIDENCE_TAKEN = .5f; /* … and of how sure means how right, this share */

/* ---- costs ---- */

void speculation_costs_note(struct speculation_costs *costs, uint32_t n_rows, uint64_t ns)
{
    if (!n_rows || n_rows > SPECULATION_ROWS_MAX || !ns)
        return;
    uint64_t *cost = &costs->pass_ns[n_rows];
    costs->n_passes++;
    if (costs->noted_at[n_rows] + COST_AGE_MAX < costs->n_passes)
        *cost = costs->n_noted[n_rows] = 0;
    /* one that was held up by others counts as little more than usual; the first, which built its
     * graph, not at all once the second was quicker */
    const bool begins = costs->n_noted[n_rows] < COST_NOTES;
    costs->n_noted[n_rows] += begins;
    if (*cost && ns > 2 * *cost)
        ns = 2 * *cost;
    *cost = !*cost || (begins && ns < *cost) ? ns
            : ns > *cost                     ? (15 * *cost + ns) / 16
                                             : (3 * *cost + ns) / 4;
    costs->noted_at[n_rows] = costs->n_passes;
}

bool speculation_cost_is_old(const struct speculation_costs *costs, uint32_t n_rows)
{
    return costs->pass_ns[n_rows] && costs->noted_at[n_rows] + PLAIN_AGE_MAX < costs->n_passes;
}

static bool cost_is_known(const struct speculation_costs *costs, uint32_t n_rows)
{
    return costs->pass_ns[n_rows] && costs->noted_at[n_rows] + COST_AGE_MAX >= costs->n_passes;
}

/* What a row more takes, by the nearest length below that is believed; else what is usual. */
static double cost_of_row(const struct speculation_costs *costs, uint32_t n_rows)
{
    const double one = (double)costs->pass_ns[1];
    for (uint32_t n = n_rows - 1; n > 1; n--) {
        if (cost_is_known(costs, n) && costs->n_noted[n] >= COST_NOTES) {
            const double more = ((double)costs->pass_ns[n] - one) / (n - 1);
            return more > 0 ? more : 0;
        }
    }
    return COST_ROW_FIRST * one;
}

/* More than is to be expected is believed when it has come again: else one pass that was held up
 * would keep its length from being tried once more. */
static double cost_believed(const struct speculation_costs *costs, uint32_t n_rows)
{
    const double cost = (double)costs->pass_ns[n_rows];
    if (costs->n_noted[n_rows] >= COST_NOTES || n_rows == 1 || !cost_is_known(costs, 1))
        return cost;
    const double expected = (double)costs->pass_ns[1] + cost_of_row(costs, n_rows) * (n_rows - 1);
    return cost < expected ? cost : expected;
}

/* The nearest known length from `n_rows` on in steps of `step`; 0: none. */
static uint32_t cost_nearest(const struct speculation_costs *costs, uint32_t n_rows, int step)
{
    uint32_t n = n_rows;
    while (n && n <= SPECULATION_ROWS_MAX && !cost_is_known(costs, n))
        n = (uint32_t)((int)n + step);
    return n <= SPECULATION_ROWS_MAX ? n : 0;
}

static double cost_on_line(const struct speculation_costs *costs, uint32_t a, uint32_t b,
                           uint32_t n_rows)
{
    const double at_a = (double)costs->pass_ns[a], at_b = (double)costs->pass_ns[b];
    const double slope = (at_b - at_a) / ((double)b - (double)a);
    return at_a + (slope > 0 ? slope : 0) * ((double)n_rows - (double)a);
}

/* One length alone is known. */
static double cost_at_first(const struct speculation_costs *costs, uint32_t known, uint32_t n_rows)
{
    const double one = (double)costs->pass_ns[known] / (1 + COST_ROW_FIRST * (known - 1));
    return one * (1 + COST_ROW_FIRST * (n_rows - 1));
}

double speculation_cost(const struct speculation_costs *costs, uint32_t n_rows)
{
    assert(n_rows && n_rows <= SPECULATION_ROWS_MAX);
    if (cost_is_known(costs, n_rows))
        return cost_believed(costs, n_rows);
    const uint32_t below = cost_nearest(costs, n_rows - 1, -1),
                   above = cost_nearest(costs, n_rows + 1, 1);
    if (below && above)
        return cost_on_line(costs, below, above, n_rows);
    if (!below && !above)
        return 0;
    const uint32_t known = below ? below : above;
    const uint32_t second =
        below ? cost_nearest(costs, below - 1, -1) : cost_nearest(costs, above + 1, 1);
    const double cost =
        second ? cost_on_line(costs, second, known, n_rows) : cost_at_first(costs, known, n_rows);
    return cost > 1 ? cost : 1;
}

/* ---- acceptance ---- */

static uint32_t speculation_class(uint32_t n_match)
{
    if (n_match == SPECULATION_OF_MODEL)
        return CLASS_OF_MODEL;
    return n_match < 4 ? 0 : n_match < 8 ? 1 : 2;
}

double speculation_acceptance(const struct speculation *speculation, uint32_t n_match)
{
    const uint32_t i = speculation_class(n_match);
    return (speculation->n_right[i] + PRIOR_RIGHT[i] * PRIOR_TRIED) /
           (speculation->n_tried[i] + PRIOR_TRIED);
}

double speculation_expected(const struct speculation *speculation, uint32_t n_match, uint32_t n)
{
    const double acceptance = speculation_acceptance(speculation, n_match);
    double sum = 0, product = 1;
    for (uint32_t i = 0; i < n; i++)
        sum += product *= acceptance;
    return sum;
}

void speculation_begin(struct speculation *speculation, const struct speculation *of_late,
                       double n_passes)
{
    const float tried = of_late->n_tried[CLASS_OF_MODEL];
    const float share = tried > MODEL_TRIED_FIRST ? MODEL_TRIED_FIRST / tried : 1;
    *speculation = (struct speculation){0};
    speculation->n_tried[CLASS_OF_MODEL] = share * tried;
    speculation->n_right[CLASS_OF_MODEL] = share * of_late->n_right[CLASS_OF_MODEL];
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++) {
        speculation->n_sure_tried[i] = CONFIDENCE_TAKEN * of_late->n_sure_tried[i];
        speculation->n_sure_right[i] = CONFIDENCE_TAKEN * of_late->n_sure_right[i];
    }
    speculation->account = ACCOUNT_FIRST * (float)n_passes;
    if (speculation->account > ACCOUNT_FIRST_MAX)
        speculation->account = ACCOUNT_FIRST_MAX;
}

void speculation_note(struct speculation *speculation, uint32_t n_match, uint32_t n_drafted,
                      uint32_t n_accepted)
{
    const uint32_t i = speculation_class(n_match);
    uint32_t n_tried = n_drafted ? n_drafted : 1;
    assert(n_accepted <= n_tried);
    if (n_tried > n_accepted + 1) /* behind the first wrong one nothing was tried */
        n_tried = n_accepted + 1;
    for (uint32_t k = 0; k < n_tried; k++) {
        speculation->n_right[i] = speculation->n_right[i] * NOTES_FADE[i] + (k < n_accepted);
        speculation->n_tried[i] = speculation->n_tried[i] * NOTES_FADE[i] + 1;
    }
}

/* ---- lengths ---- */

/* Lengths that are tried, so that each is measured often, and a graph serves the next pass. */
enum { N_LENGTHS = 9 };
static const uint32_t LENGTHS[N_LENGTHS] = {1, 2, 3, 5, 7, 11, 15, 23, SPECULATION_DRAFT_MAX};

/* A pass with a draft, and the wait for it. */
static double speculation_pass_ns(const struct speculation_costs *costs,
                                  const struct speculation_pass *pass, uint32_t n_drafted)
{
    return speculation_cost(costs, pass->n_rows + n_drafted) + pass->all_ns +
           pass->each_ns * n_drafted;
}

/* What a draft has cost all that is in the pass, in tokens that would have come in the time. The
 * first pass of so many rows builds its graph, which is nobody's fault; longer drafts pay for that,
 * believed or not, for a request cannot bear many. */
static double speculation_price(const struct speculation_costs *costs,
                                const struct speculation_pass *pass, uint32_t n_drafted)
{
    const uint32_t n_rows = pass->n_rows + n_drafted;
    const double without = speculation_cost(costs, pass->n_rows),
                 believed = speculation_cost(costs, n_rows),
                 measured = n_drafted > BUILT_MAX && cost_is_known(costs, n_rows)
                                ? (double)costs->pass_ns[n_rows]
                                : 0,
                 cost = measured > believed ? measured : believed;
    return ((cost + pass->all_ns) / without - 1) * pass->n_tokens;
}

double speculation_rate(const struct speculation *speculation,
                        const struct speculation_costs *costs, const struct speculation_pass *pass,
                        uint32_t n_match, uint32_t n)
{
    return (pass->n_tokens + speculation_expected(speculation, n_match, n)) /
           speculation_pass_ns(costs, pass, n);
}

double speculation_gain(const struct speculation *speculation,
                        const struct speculation_costs *costs, const struct speculation_pass *pass,
                        uint32_t n_match, uint32_t n)
{
    const double without = pass->n_tokens / speculation_cost(costs, pass->n_rows);
    return speculation_rate(speculation, costs, pass, n_match, n) / without;
}

/* Longer ones are not looked at when two in a row are no better: mostly that is so at once. */
uint32_t speculation_length(const struct speculation *speculation,
                            const struct speculation_costs *costs,
                            const struct speculation_pass *pass, uint32_t n_match, uint32_t most)
{
    assert(pass->n_rows && pass->n_tokens >= 1);
    const bool compares =
        pass->n_rows < SPECULATION_ROWS_MAX && !speculation_cost_is_old(costs, pass->n_rows);
    const double without = compares ? speculation_cost(costs, pass->n_rows) : 0;
    const double credit = speculation_credit(speculation);
    double best = GAIN_MIN * pass->n_tokens / without;
    uint32_t length = 0;
    for (uint32_t i = 0, n_worse = 0; i < N_LENGTHS && without > 0 && n_worse < 2; i++) {
        const uint32_t n = LENGTHS[i];
        if (n > most || n > SPECULATION_ROWS_MAX - pass->n_rows)
            break;
        const double cost = speculation_pass_ns(costs, pass, n);
        if ((cost / without - 1) * pass->n_tokens > credit)
            break;
        const double rate = (pass->n_tokens + speculation_expected(speculation, n_match, n)) / cost;
        n_worse = rate > best ? 0 : n_worse + 1;
        length = rate > best ? n : length;
        best = rate > best ? rate : best;
    }
    return length;
}

void speculation_fade_model(struct speculation *speculation)
{
    speculation->n_right[CLASS_OF_MODEL] *= MODEL_FADE;
    speculation->n_tried[CLASS_OF_MODEL] *= MODEL_FADE;
}

void speculation_pay(struct speculation *speculation, const struct speculation_costs *costs,
                     const struct speculation_pass *pass, uint32_t n_drafted, uint32_t n_accepted)
{
    double more = (double)ACCOUNT_INTEREST;
    assert(pass->n_rows && n_accepted <= n_drafted);
    if (!n_drafted)
        speculation_fade_model(speculation);
    if ((n_drafted || pass->all_ns > 0) && pass->n_rows + n_drafted <= SPECULATION_ROWS_MAX &&
        speculation_cost(costs, pass->n_rows) > 0)
        more = n_accepted - speculation_price(costs, pass, n_drafted);
    speculation_earn(speculation, more);
}

double speculation_credit(const struct speculation *speculation)
{
    return (double)speculation->account;
}

void speculation_earn(struct speculation *speculation, double passes)
{
    speculation->account += (float)passes;
    if (speculation->account > ACCOUNT_MAX)
        speculation->account = ACCOUNT_MAX;
}
