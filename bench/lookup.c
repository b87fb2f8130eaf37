/* lookup: what guessing tokens gains where a text repeats, and costs where it does not.
 *
 *   lookup MODEL.gguf [--tokens 200] [--turns 9] [--threads 1] [--seconds N]
 *
 * The same requests with `--speculate off` and with `lookup`, in turn, on two drivers of one
 * process. Four kinds of text:
 *   loop    greedy, from a prompt that says the same again and again
 *   quote   greedy, from a text that the model wrote itself, given twice, and its beginning again
 *   story   sampled at temperature 1 from an opening, each turn with a seed of its own
 *   noise   the same at temperature 8, of all tokens: hardly anything comes twice
 * The answers of both ways must be the same, token by token. Printed: medians of decoded tokens a
 * second, by the clock and by the processor's time (beside other work the clock tells of that), the
 * medians of the turns' ratios, and the share of guesses that were right. With --seconds a kind of
 * text has a quarter of those, and as many turns as fit, one at least: a model of a billion weights
 * takes seconds for a reply. */
#include "gpu/gpu.h"
#include "model/model.h"
#include "replies.h"

#include <stdio.h>
#include <string.h>

enum { KINDS = 4, PASSAGE = 160, OPENING = 24 };

struct figures {
    double by_clock[2][REPLIES_TURNS_MAX], by_processor[2][REPLIES_TURNS_MAX],
        ratio[REPLIES_TURNS_MAX], processor_ratio[REPLIES_TURNS_MAX];
    uint64_t n_drafted, n_accepted;
    uint32_t n_turns;
};

static uint32_t n_tokens = 200, n_turns = 9, n_threads = 1, seconds;
static struct model *model;

static void measure(struct driver *const drivers[2], uint32_t kind, const int32_t *prompt,
                    uint32_t n_prompt, struct figures *out)
{
    static struct reply replies[2];
    static const float temperatures[KINDS] = {0, 0, 1, 8};
    const double begun_s = replies_now_s();
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        const double took_s = replies_now_s() - begun_s;
        if (seconds && turn && took_s + took_s / turn > (double)seconds / KINDS)
            break;
        out->n_turns++;
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t way = (i + turn) % 2;
            replies_answer(drivers[way], prompt, n_prompt, n_tokens, temperatures[kind], 100 + turn,
                           &replies[way]);
            const double n = replies[way].n_tokens - 1;
            out->by_clock[way][turn] = n / replies[way].decode_s;
            out->by_processor[way][turn] = n / replies[way].processor_s;
        }
        replies_must_be_same(&replies[0], &replies[1]);
        out->ratio[turn] = out->by_clock[1][turn] / out->by_clock[0][turn];
        out->processor_ratio[turn] = out->by_processor[1][turn] / out->by_processor[0][turn];
        out->n_drafted += replies[1].usage.drafted_tokens;
        out->n_accepted += replies[1].usage.accepted_tokens;
    }
}

/* The prompt of a kind. */
static uint32_t write_prompt(struct driver *driver, uint32_t kind, int32_t *prompt)
{
    static struct reply passage;
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    int32_t opening[OPENING];
    uint32_t n = 0;
    for (uint32_t i = 0; i < OPENING; i++)
        opening[i] = (int32_t)((1000 + 37 * i * i) % n_vocab);
    if (kind == 0) {
        for (; n < 8 * OPENING; n++)
            prompt[n] = opening[n % OPENING];
        return n;
    }
    if (kind > 1) {
        memcpy(prompt, opening, sizeof opening);
        return OPENING;
    }
    replies_answer(driver, opening, OPENING, n_tokens < PASSAGE ? n_tokens : PASSAGE, 0.8f, 5,
                   &passage);
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(prompt + n, passage.tokens, passage.n_tokens * sizeof *prompt);
        n += passage.n_tokens;
    }
    memcpy(prompt + n, passage.tokens, OPENING * sizeof *prompt);
    return n + OPENING;
}

static void show(const char *kind, struct figures *f)
{
    const uint32_t n = f->n_turns;
    const double right = f->n_drafted ? 100 * (double)f->n_accepted / (double)f->n_drafted : 0;
    printf("%-6s off %8.1f tok/s, lookup %8.1f: ratio %.3f; by processor %8.1f, %8.1f: ratio %.3f; "
           "%.0f %% of %llu guesses right, %u turns\n",
           kind, replies_median(f->by_clock[0], n), replies_median(f->by_clock[1], n),
           replies_median(f->ratio, n), replies_median(f->by_processor[0], n),
           replies_median(f->by_processor[1], n), replies_median(f->processor_ratio, n), right,
           (unsigned long long)f->n_drafted, n);
}

static void read_options(int argc, char **argv)
{
    const struct replies_option options[] = {
        {"--tokens", 2, REPLY_CONTEXT / 2 - 1, &n_tokens},
        {"--turns", 1, REPLIES_TURNS_MAX, &n_turns},
        {"--threads", 1, UINT32_MAX, &n_threads},
        {"--seconds", 1, UINT32_MAX, &seconds},
    };
    replies_read_options(argc, argv, 2, options, sizeof options / sizeof *options,
                         "lookup MODEL.gguf [--tokens N] [--turns N] [--threads N] "
                         "[--seconds N]");
}

int main(int argc, char **argv)
{
    static const char *const kinds[KINDS] = {"loop", "quote", "story", "noise"};
    static struct figures figures[KINDS];
    static int32_t prompt[REPLY_CONTEXT];
    struct error err = {0};
    struct gpu *gpu = NULL;
    read_options(argc, argv);
    if (model_open(argv[1], &model, &err))
        replies_fail(argv[1], err.text);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = n_threads, .skip_other = true}, &gpu, &err))
        replies_fail("devices", err.text);
    struct device *cpu = gpu_find(gpu, "cpu");
    const struct driver_options plain = {.n_slots = 1,
                                         .context = REPLY_CONTEXT,
                                         .speculate = SPECULATE_OFF},
                                guessing = {.n_slots = 1, .context = REPLY_CONTEXT};
    struct driver *drivers[2] = {replies_open_driver(model, cpu, &plain),
                                 replies_open_driver(model, cpu, &guessing)};
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        const uint32_t n_prompt = write_prompt(drivers[0], kind, prompt);
        measure(drivers, kind, prompt, n_prompt, &figures[kind]);
        show(kinds[kind], &figures[kind]);
        fflush(stdout);
    }
    driver_close(drivers[0]);
    driver_close(drivers[1]);
    gpu_close(gpu);
    model_close(model);
    return 0;
}
