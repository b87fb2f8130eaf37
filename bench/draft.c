/* draft: what a draft model gains where so many of its guesses are right, and costs where none is.
 *
 *   draft MODEL.gguf DRAFT.gguf [--right 70] [--tells 0] [--tokens 100] [--turns 5] [--threads 1]
 *
 * The same request with `--speculate off` and with the draft model, in turn, on two drivers of one
 * process. Models with random weights agree on nothing, so what is right is made: the draft model
 * computes all that it would, and of its guesses --right percent, drawn by chance, are replaced by
 * the token that comes (which a reply before the turns has told), the others by one that does not.
 * How probable each was to the draft model is made, too: u^((1 - r) / r) with u drawn evenly, whose
 * mean is r, --right's share. With --tells 0 that says nothing about who is right; with --tells 100
 * a guess is right with just that probability, and in between by a mean of both.
 * The text is sampled at temperature 8 of all tokens, so nothing repeats and lookup finds nothing.
 * Then the same with all guesses wrong. The answers of both ways must be the same, token by token.
 * Printed: medians of decoded tokens a second by the clock and by the processor's time, the medians
 * of the turns' ratios, the share of checked guesses that were right, and how many were made; then
 * what passes of 1 to 8 rows take, by the driver's own measure (with ? where it is on a line
 * between others), what a guess takes, and the best ratio that these allow. */
#include "base/random.h"
#include "gpu/gpu.h"
#include "model/draft_model.h"
#include "pipeline/driver_state.h"
#include "replies.h"

#include <math.h>
#include <stdio.h>

enum { OPENING = 24, SEED = 11, ROWS = 8 };

static uint32_t n_right = 70, tells = 0, n_tokens = 100, n_turns = 5, n_threads = 1;
static int32_t prompt[OPENING];

struct truth {
    struct reply reply;
    uint32_t n_right; /* of a hundred */
    uint64_t n_asked;
};

static int32_t guess_instead(void *arg, uint32_t position, int32_t guess, double *probability)
{
    struct truth *truth = arg;
    const double right = truth->n_right / 100., told = tells / 100.;
    const uint64_t draw = 2 * truth->n_asked++;
    *probability = right > 0 ? pow(random_unit_at(SEED, draw), (1 - right) / right) : 0;
    if (position < OPENING || position - OPENING >= truth->reply.n_tokens)
        return guess;
    const int32_t token = truth->reply.tokens[position - OPENING];
    if (random_unit_at(SEED, draw + 1) < told * *probability + (1 - told) * right)
        return token;
    return token ? token - 1 : 1;
}

static void measure(const char *name, struct driver *const drivers[2], struct truth *truth)
{
    static struct reply replies[2];
    double clock[2][REPLIES_TURNS_MAX], processor[2][REPLIES_TURNS_MAX], ratio[REPLIES_TURNS_MAX],
        by_processor[REPLIES_TURNS_MAX];
    const uint64_t n_before = truth->n_asked;
    uint64_t n_drafted = 0, n_accepted = 0;
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t way = (i + turn) % 2;
            replies_answer(drivers[way], prompt, OPENING, n_tokens, 8, SEED, &replies[way]);
            const double n = replies[way].n_tokens - 1;
            clock[way][turn] = n / replies[way].decode_s;
            processor[way][turn] = n / replies[way].processor_s;
        }
        replies_must_be_same(&replies[0], &replies[1]);
        ratio[turn] = clock[1][turn] / clock[0][turn];
        by_processor[turn] = processor[1][turn] / processor[0][turn];
        n_drafted += replies[1].usage.drafted_tokens;
        n_accepted += replies[1].usage.accepted_tokens;
    }
    printf("%-5s off %7.2f tok/s, draft %7.2f: ratio %.3f; by processor %7.2f, %7.2f: ratio %.3f; "
           "%.0f %% of %llu guesses right, %llu made\n",
           name, replies_median(clock[0], n_turns), replies_median(clock[1], n_turns),
           replies_median(ratio, n_turns), replies_median(processor[0], n_turns),
           replies_median(processor[1], n_turns), replies_median(by_processor, n_turns),
           n_drafted ? 100 * (double)n_accepted / (double)n_drafted : 0,
           (unsigned long long)n_drafted, (unsigned long long)(truth->n_asked - n_before));
    fflush(stdout);
}

/* Of drafts of n tokens by what they are measured to take, nothing else costing anything. */
static double gain_at_best(const struct speculation_costs *costs, double guess_ns, uint32_t n)
{
    const double right = n_right / 100.;
    double tokens = 1, all_right = 1;
    for (uint32_t i = 0; i < n; i++)
        tokens += all_right *= right;
    return tokens * speculation_cost(costs, 1) / (speculation_cost(costs, 1 + n) + n * guess_ns);
}

/* What the driver has learnt that passes take, and a guess. */
static void say_parts(const struct driver *driver)
{
    const struct speculation_costs *costs = &driver->costs;
    const double guess_ns = drafter_token_ns(driver->drafter, speculation_cost(costs, 1));
    uint32_t best = 1;
    printf("      ms of a pass of 1 row and more:");
    for (uint32_t n = 1; n <= ROWS; n++) {
        printf(" %.1f%s", speculation_cost(costs, n) * 1e-6, costs->pass_ns[n] ? "" : "?");
        if (n < ROWS && gain_at_best(costs, guess_ns, n) > gain_at_best(costs, guess_ns, best))
            best = n;
    }
    printf("; a guess %.2f; so at best %.2f, with %u guesses\n", guess_ns * 1e-6,
           gain_at_best(costs, guess_ns, best), best);
    fflush(stdout);
}

static void read_options(int argc, char **argv)
{
    const struct replies_option options[] = {
        {"--right", 0, 100, &n_right},
        {"--tells", 0, 100, &tells},
        {"--tokens", 2, REPLY_CONTEXT / 2 - 1, &n_tokens},
        {"--turns", 1, REPLIES_TURNS_MAX, &n_turns},
        {"--threads", 1, UINT32_MAX, &n_threads},
    };
    replies_read_options(argc, argv, 3, options, sizeof options / sizeof *options,
                         "draft MODEL.gguf DRAFT.gguf [--right PERCENT] [--tells PERCENT] "
                         "[--tokens N] [--turns N] [--threads N]");
}

int main(int argc, char **argv)
{
    static struct truth truth;
    struct model *model, *draft;
    struct error err = {0};
    struct gpu *gpu = NULL;
    read_options(argc, argv);
    if (model_open(argv[1], &model, &err) || model_open(argv[2], &draft, &err) ||
        model_check_draft(draft, model, &err))
        replies_fail("models", err.text);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = n_threads, .skip_other = true}, &gpu, &err))
        replies_fail("devices", err.text);
    struct device *cpu = gpu_find(gpu, "cpu");
    const struct stage_plan stage = {.device = cpu,
                                     .n_layers = model_hyperparameters(draft)->n_layers};
    const struct driver_draft drafting = {
        .model = draft,
        .stages = &stage,
        .n_stages = 1,
        .share = (double)model_weight_bytes(draft) / (double)model_weight_bytes(model),
        .instead = guess_instead,
        .arg = &truth,
    };
    const struct driver_options plain = {
        .n_slots = 1, .context = REPLY_CONTEXT, .speculate = SPECULATE_OFF};
    struct driver_options guessing = {.n_slots = 1, .context = REPLY_CONTEXT, .draft = &drafting};
    struct driver *drivers[2] = {replies_open_driver(model, cpu, &plain),
                                 replies_open_driver(model, cpu, &guessing)};
    for (uint32_t i = 0; i < OPENING; i++)
        prompt[i] = (int32_t)((1000 + 37 * i * i) % model_hyperparameters(model)->n_vocab);
    replies_answer(drivers[0], prompt, OPENING, n_tokens, 8, SEED, &truth.reply);
    printf("the draft has %.3f of the model's bytes\n", drafting.share);
    truth.n_right = n_right;
    measure("right", drivers, &truth);
    say_parts(drivers[1]);
    driver_close(drivers[1]); /* which has learnt how good its draft model is */
    drivers[1] = replies_open_driver(model, cpu, &guessing);
    truth.n_right = 0;
    measure("wrong", drivers, &truth);
    driver_close(drivers[0]);
    driver_close(drivers[1]);
    gpu_close(gpu);
    model_close(draft);
    model_close(model);
    return 0;
}
