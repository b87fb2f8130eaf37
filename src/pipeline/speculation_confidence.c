#include "pipeline/speculation_confidence.h"

#include <assert.h>

/* The second class begins here, and so on. */
static const double CONFIDENCE_FROM[SPECULATION_CONFIDENCES - 1] = {.3, .5, .7, .85, .95};

static const float CONFIDENCE_FADE = .99f; /* about the last 100 guesses count */
/* Before anything is known of a class it is as any guess, as if so many had been tried; and as
 * frequent as the others, by this. */
static const double CONFIDENCE_PRIOR = 3, CONFIDENCE_SHARE_PRIOR = .5;
/* What ends early gives about so many times as many tokens a second as drafts of a fixed length:
 * time is worth those. */
static const double CONFIDENCE_GAIN = 1.05;

uint32_t speculation_confidence(double probability)
{
    uint32_t confidence = 0;
    while (confidence + 1 < SPECULATION_CONFIDENCES && probability >= CONFIDENCE_FROM[confidence])
        confidence++;
    return confidence;
}

void speculation_note_confidence(struct speculation *speculation, uint32_t confidence,
                                 bool is_right)
{
    assert(confidence < SPECULATION_CONFIDENCES);
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++) {
        speculation->n_sure_right[i] *= CONFIDENCE_FADE;
        speculation->n_sure_tried[i] *= CONFIDENCE_FADE;
    }
    speculation->n_sure_right[confidence] += is_right;
    speculation->n_sure_tried[confidence] += 1;
}

double speculation_confidence_right(const struct speculation *speculation, uint32_t confidence)
{
    const double any = speculation_acceptance(speculation, SPECULATION_OF_MODEL);
    assert(confidence < SPECULATION_CONFIDENCES);
    return ((double)speculation->n_sure_right[confidence] + CONFIDENCE_PRIOR * any) /
           ((double)speculation->n_sure_tried[confidence] + CONFIDENCE_PRIOR);
}

static void end_fill_classes(struct speculation_end *end, const struct speculation *speculation)
{
    double sum = 0;
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++) {
        end->right[i] = speculation_confidence_right(speculation, i);
        end->share[i] = (double)speculation->n_sure_tried[i] + CONFIDENCE_SHARE_PRIOR;
        sum += end->share[i];
    }
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++)
        end->share[i] /= sum;
}

void speculation_end_fill(struct speculation_end *end, const struct speculation *speculation,
                          const struct speculation_costs *costs,
                          const struct speculation_pass *pass, uint32_t n, uint32_t most)
{
    const double fixed = speculation_rate(speculation, costs, pass, SPECULATION_OF_MODEL, n),
                 rate = CONFIDENCE_GAIN * fixed, without = speculation_cost(costs, pass->n_rows),
                 credit = speculation_credit(speculation);
    assert(n && n <= most && most <= SPECULATION_DRAFT_MAX &&
           pass->n_rows + most <= SPECULATION_ROWS_MAX);
    end_fill_classes(end, speculation);
    end->guess = rate * pass->each_ns;
    end->passes[0] = rate * without;
    end->most = 0;
    for (uint32_t i = 1; i <= most; i++) {
        const double cost = speculation_cost(costs, pass->n_rows + i);
        const double price = (cost + pass->all_ns + i * pass->each_ns) / without - 1;
        if (i > n && price * pass->n_tokens > credit)
            break;
        end->passes[i] = rate * cost;
        end->most = i;
    }
}

/* Behind n guesses: what they give if checked, the best of that for the first of them, and the
 * chance that all are right. */
struct end_state {
    uint32_t n, best_n;
    double value, best, all_right;
};

static struct end_state end_begin(const struct speculation_end *end)
{
    return (struct end_state){.value = -end->passes[0], .best = -end->passes[0], .all_right = 1};
}

static struct end_state end_add(const struct speculation_end *end, struct end_state state,
                                double right)
{
    assert(state.n < end->most);
    state.all_right *= right;
    state.value += state.all_right - (end->passes[state.n + 1] - end->passes[state.n]);
    state.n++;
    if (state.value > state.best) {
        state.best = state.value;
        state.best_n = state.n;
    }
    return state;
}

/* What another guess is expected to add, checked or not. */
static double end_gain_of_one(const struct speculation_end *end, const struct end_state *state)
{
    double gain = -end->guess;
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++)
        gain += end->share[i] * (end_add(end, *state, end->right[i]).best - state->best);
    return gain;
}

/* The same of so many more that the first of them alone would not pay: the first row more may be
 * the dearest. Each is of any class, and all are checked. */
static double end_gain_of_many(const struct speculation_end *end, const struct end_state *state)
{
    struct end_state next = *state;
    double any = 0, gain = 0;
    for (uint32_t i = 0; i < SPECULATION_CONFIDENCES; i++)
        any += end->share[i] * end->right[i];
    while (next.n < end->most) {
        next = end_add(end, next, any);
        const double more = next.value - state->best - end->guess * (next.n - state->n);
        gain = more > gain ? more : gain;
    }
    return gain;
}

static struct end_state end_after(const struct speculation_end *end, const uint8_t *confidences,
                                  uint32_t n)
{
    struct end_state state = end_begin(end);
    for (uint32_t i = 0; i < n && i < end->most; i++)
        state = end_add(end, state, end->right[confidences[i]]);
    return state;
}

bool speculation_goes_on(const struct speculation_end *end, const uint8_t *confidences, uint32_t n)
{
    const struct end_state state = end_after(end, confidences, n);
    return state.n < end->most &&
           (end_gain_of_one(end, &state) > 0 || end_gain_of_many(end, &state) > 0);
}

uint32_t speculation_worth(const struct speculation_end *end, const uint8_t *confidences,
                           uint32_t n)
{
    return end_after(end, confidences, n).best_n;
}
