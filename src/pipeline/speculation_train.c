#include "pipeline/speculation_train.h"

#include <assert.h>

enum { CROWDED_MAX = 64 }; /* passes: then one is alone, to be compared with */

static const double TRAIN_GAIN_MIN = 1.05;
/* For each guess that is waited for: who waits ends where it is unsure, which the formula does not
 * say. Chosen so that the quicker way is taken in most of the cases that were measured
 * (bench/README.md, "A draft model on another machine"). */
static const double WAITING_BONUS = .03;
static const double TRAIN_ACCEPTANCE_MAX = .98; /* no text goes on for ever as before */
static const double CROWDING_MAX = 4, CROWDING_SHARE = .125, CROWDING_DOUBT = .02;

enum { N_TRAIN_LENGTHS = 10 };
static const uint32_t TRAIN_LENGTHS[N_TRAIN_LENGTHS] = {0, 1,  2,  3,  5,
                                                        7, 11, 15, 23, SPECULATION_DRAFT_MAX};

static double train_larger(double a, double b)
{
    return a > b ? a : b;
}

static double train_crowding(const struct speculation_pipe *pipe)
{
    return train_larger(pipe->crowding, 1);
}

static double train_power(double base, uint32_t exponent)
{
    double product = 1;
    for (uint32_t i = 0; i < exponent; i++)
        product *= base;
    return product;
}

/* Rows make the stages compute for longer, and not the links. */
static double train_pass_ns(const struct speculation_costs *costs,
                            const struct speculation_pipe *pipe, uint32_t n_rows, bool is_crowded)
{
    const double one = speculation_cost(&pipe->slowest, 1),
                 more = speculation_cost(&pipe->slowest, n_rows) - one;
    const double pass = one > 0
                            ? speculation_cost(costs, 1) + pipe->n_devices * train_larger(more, 0)
                            : speculation_cost(costs, n_rows);
    return is_crowded ? pass * train_crowding(pipe) : pass;
}

static double train_slowest_ns(const struct speculation_pipe *pipe, uint32_t n_rows, double pass_ns)
{
    const double slowest = speculation_cost(&pipe->slowest, n_rows);
    return slowest > 0 ? slowest : pass_ns / pipe->n_devices;
}

static double train_gap_ns(const struct speculation_pipe *pipe, uint32_t n_rows, double pass_ns,
                           double each_ns)
{
    const double gap =
        train_larger(train_slowest_ns(pipe, n_rows, pass_ns), pass_ns / pipe->n_under_way);
    return train_larger(gap, n_rows * each_ns);
}

/* As many as are on stages and links while the slowest stage has one after the other. */
static uint32_t train_under_way(const struct speculation_costs *costs,
                                const struct speculation_pipe *pipe, uint32_t n_rows)
{
    const double pass_ns = train_pass_ns(costs, pipe, n_rows, false);
    const double n = pass_ns / train_slowest_ns(pipe, n_rows, pass_ns);
    return n < pipe->n_under_way ? (uint32_t)(n + .5) : pipe->n_under_way;
}

/* Tokens in a nanosecond. */
static double train_rate(const struct speculation_costs *costs, const struct speculation_pipe *pipe,
                         double acceptance, uint32_t n_rows, bool is_followed)
{
    const double pass_ns = train_pass_ns(costs, pipe, n_rows, is_followed),
                 all_right = train_power(acceptance, n_rows);
    if (!is_followed)
        return (1 - all_right) / (1 - acceptance) / pass_ns;
    return 1 / (1 - acceptance) /
           (pass_ns + train_gap_ns(pipe, n_rows, pass_ns, 0) * all_right / (1 - all_right));
}

/* The same behind a known token alone, while a model guesses. */
static double train_rate_of_model(const struct speculation_costs *costs,
                                  const struct speculation_pipe *pipe, double acceptance,
                                  uint32_t n_rows, double each_ns)
{
    const double one_ns = train_pass_ns(costs, pipe, 1, true),
                 pass_ns = train_pass_ns(costs, pipe, n_rows, true),
                 gap_ns = train_gap_ns(pipe, n_rows, pass_ns, each_ns);
    return 1 / (1 - acceptance) /
           (one_ns +
            acceptance * (pass_ns - one_ns + gap_ns / (1 - train_power(acceptance, n_rows))));
}

/* What a train is chosen by. */
struct train_terms {
    const struct speculation_costs *costs;
    const struct speculation_pipe *pipe;
    double acceptance, each_ns, credit, rate; /* tokens in a nanosecond that it has to beat */
};

static bool train_is_affordable(const struct train_terms *terms, uint32_t n_rows, bool is_followed)
{
    const double pass_ns = train_pass_ns(terms->costs, terms->pipe, n_rows, is_followed);
    return pass_ns / speculation_cost(terms->costs, 1) - 1 <= terms->credit;
}

static struct speculation_train train_of_text(struct train_terms *terms, uint32_t most)
{
    struct speculation_train best = {0};
    for (uint32_t i = 0; i < N_TRAIN_LENGTHS && TRAIN_LENGTHS[i] <= most; i++) {
        const uint32_t n_rows = TRAIN_LENGTHS[i] + 1;
        for (int follows = n_rows == 1 || most < n_rows; follows < 2; follows++) {
            const double rate =
                train_rate(terms->costs, terms->pipe, terms->acceptance, n_rows, follows);
            if (rate <= terms->rate || !train_is_affordable(terms, n_rows, follows))
                continue;
            terms->rate = rate;
            best = (struct speculation_train){n_rows - 1, follows ? n_rows : 0};
        }
    }
    return best;
}

static struct speculation_train train_of_model(struct train_terms *terms, uint32_t most)
{
    struct speculation_train best = {0};
    for (uint32_t i = 1; i < N_TRAIN_LENGTHS && TRAIN_LENGTHS[i] <= most; i++) {
        const uint32_t n_rows = TRAIN_LENGTHS[i];
        const double rate = train_rate_of_model(terms->costs, terms->pipe, terms->acceptance,
                                                n_rows, terms->each_ns);
        if (rate <= terms->rate || !train_is_affordable(terms, n_rows, true))
            continue;
        terms->rate = rate;
        best = (struct speculation_train){.n_ahead = n_rows};
    }
    return best;
}

struct speculation_train speculation_train(const struct speculation *speculation,
                                           const struct speculation_costs *costs,
                                           const struct speculation_pipe *pipe, uint32_t n_match,
                                           uint32_t most, double each_ns)
{
    struct speculation_train best = {0};
    assert(pipe->n_devices && pipe->n_under_way);
    const double without = speculation_cost(costs, 1), credit = speculation_credit(speculation);
    if (without <= 0 || credit <= 0 || speculation_cost_is_old(costs, 1) ||
        pipe->n_crowded >= CROWDED_MAX)
        return best;
    struct train_terms terms = {.costs = costs,
                                .pipe = pipe,
                                .acceptance = speculation_acceptance(speculation, n_match),
                                .each_ns = each_ns,
                                .credit = credit,
                                .rate = TRAIN_GAIN_MIN / without};
    if (terms.acceptance > TRAIN_ACCEPTANCE_MAX)
        terms.acceptance = TRAIN_ACCEPTANCE_MAX;
    best = n_match == SPECULATION_OF_MODEL ? train_of_model(&terms, most)
                                           : train_of_text(&terms, most);
    if (best.n_ahead)
        best.n_under_way = train_under_way(costs, pipe, best.n_ahead);
    return best;
}

bool speculation_asks_beside(const struct speculation *speculation,
                             const struct speculation_costs *costs, uint32_t most, double each_ns)
{
    const struct speculation_pass waiting = {.n_rows = 1, .n_tokens = 1, .each_ns = each_ns};
    const double one_ns = speculation_cost(costs, 1);
    double a = speculation_acceptance(speculation, SPECULATION_OF_MODEL), rate = 0;
    if (one_ns <= 0 || each_ns <= 0)
        return false;
    if (a > TRAIN_ACCEPTANCE_MAX)
        a = TRAIN_ACCEPTANCE_MAX;
    for (uint32_t n = 1; n <= most && n * each_ns <= one_ns; n++) {
        const double some_ns = speculation_cost(costs, n) / (1 - train_power(a, n));
        rate = train_larger(rate, 1 / (1 - a) / (one_ns + a * some_ns));
    }
    const uint32_t n_waits =
        speculation_length(speculation, costs, &waiting, SPECULATION_OF_MODEL, most);
    const double waiting_rate =
        speculation_rate(speculation, costs, &waiting, SPECULATION_OF_MODEL, n_waits);
    return rate > TRAIN_GAIN_MIN / one_ns && rate > waiting_rate * (1 + WAITING_BONUS * n_waits);
}

void speculation_pipe_note(struct speculation_pipe *pipe, struct speculation_costs *costs,
                           uint32_t n_rows, uint64_t ns, bool is_crowded)
{
    if (!is_crowded) {
        speculation_costs_note(costs, n_rows, ns);
        pipe->n_crowded = n_rows == 1 ? 0 : pipe->n_crowded;
        pipe->crowding += (1 - train_crowding(pipe)) * CROWDING_DOUBT;
        return;
    }
    pipe->n_crowded++;
    const double usual =
        n_rows <= SPECULATION_ROWS_MAX ? train_pass_ns(costs, pipe, n_rows, false) : 0;
    double times = usual > 0 ? (double)ns / usual : 1;
    if (times > CROWDING_MAX)
        times = CROWDING_MAX;
    pipe->crowding = train_crowding(pipe) + (times - train_crowding(pipe)) * CROWDING_SHARE;
}

void speculation_pay_train(struct speculation *speculation, const struct speculation_costs *costs,
                           const struct speculation_pipe *pipe, uint32_t n_rows, bool is_ahead,
                           uint32_t n_tokens, double each_ns)
{
    const double without = speculation_cost(costs, 1);
    assert(n_rows && n_rows <= SPECULATION_ROWS_MAX);
    if (without <= 0)
        return;
    const double pass_ns = train_pass_ns(costs, pipe, n_rows, true);
    const double took_ns = is_ahead ? train_gap_ns(pipe, n_rows, pass_ns, each_ns) : pass_ns;
    speculation_earn(speculation, n_tokens - took_ns / without);
}
