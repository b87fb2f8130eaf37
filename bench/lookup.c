/* lookup: what guessing tokens gains where a text repeats, and costs where it does not.
 *
 *   lookup MODEL.gguf [--tokens 200] [--turns 9] [--threads 1]
 *
 * The same requests with `--speculate off` and with `lookup`, in turn, on two drivers of one
 * process. Four kinds of text:
 *   loop    greedy, from a prompt that says the same again and again
 *   quote   greedy, from a text that the model wrote itself, given twice, and its beginning again
 *   story   sampled at temperature 1 from an opening, each turn with a seed of its own
 *   noise   the same at temperature 8, of all tokens: hardly anything comes twice
 * The answers of both ways must be the same, token by token. Printed: medians of decoded tokens a
 * second, by the clock and by the processor's time (beside other work the clock tells of that), the
 * medians of the turns' ratios, and the share of guesses that were right. */
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CONTEXT = 2048, TURNS_MAX = 99, KINDS = 4, PASSAGE = 160, OPENING = 24 };

struct reply {
    int32_t tokens[CONTEXT];
    uint32_t n_tokens;
    struct request_usage usage;
    double decode_s, processor_s; /* from the first token on */
    double processor_at_first_s;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

struct figures {
    double by_clock[2][TURNS_MAX], by_processor[2][TURNS_MAX], ratio[TURNS_MAX],
        processor_ratio[TURNS_MAX];
    uint64_t n_drafted, n_accepted;
};

static uint32_t n_tokens = 200, n_turns = 9, n_threads = 1;
static struct model *model;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "lookup: %s: %s\n", what, why);
    exit(1);
}

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static bool on_token(void *arg, const struct token_event *event)
{
    struct reply *reply = arg;
    if (!reply->n_tokens)
        reply->processor_at_first_s = processor_s();
    reply->tokens[reply->n_tokens++] = event->token;
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct reply *reply = arg;
    if (reason == FINISH_ERROR)
        fail("a request", err->text);
    reply->processor_s = processor_s() - reply->processor_at_first_s;
    reply->decode_s = (double)usage->decode_ns * 1e-9;
    reply->usage = *usage;
    pthread_mutex_lock(&reply->lock);
    reply->done = true;
    pthread_cond_signal(&reply->ended);
    pthread_mutex_unlock(&reply->lock);
}

static void answer(struct driver *driver, const int32_t *prompt, uint32_t n_prompt,
                   uint32_t n_predict, float temperature, uint64_t seed, struct reply *reply)
{
    struct error err = {0};
    *reply = (struct reply){.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    struct request request = {.prompt = prompt,
                              .n_prompt = n_prompt,
                              .n_predict = n_predict,
                              .sampler = sampler_defaults(),
                              .handlers = {.token = on_token, .done = on_done},
                              .arg = reply};
    request.sampler.temperature = temperature;
    request.sampler.seed = seed;
    if (temperature > 1) { /* of all tokens */
        request.sampler.top_k = 0;
        request.sampler.top_p = 1;
        request.sampler.min_p = 0;
    }
    if (driver_submit(driver, &request, NULL, &err))
        fail("submit", err.text);
    pthread_mutex_lock(&reply->lock);
    while (!reply->done)
        pthread_cond_wait(&reply->ended, &reply->lock);
    pthread_mutex_unlock(&reply->lock);
}

static struct driver *open_driver(struct device *cpu, enum speculate speculate)
{
    const struct stage_plan plan = {.device = cpu,
                                    .n_layers = model_hyperparameters(model)->n_layers};
    const struct driver_options options = {
        .n_slots = 1, .context = CONTEXT, .speculate = speculate};
    struct driver *driver = NULL;
    struct error err = {0};
    if (driver_open(model, &plan, 1, &options, &driver, &err))
        fail("open", err.text);
    return driver;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, n_turns, sizeof *values, by_value);
    return values[n_turns / 2];
}

static void measure(struct driver *const drivers[2], uint32_t kind, const int32_t *prompt,
                    uint32_t n_prompt, struct figures *out)
{
    static struct reply replies[2];
    static const float temperatures[KINDS] = {0, 0, 1, 8};
    for (uint32_t turn = 0; turn < n_turns; turn++) {
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t way = (i + turn) % 2;
            answer(drivers[way], prompt, n_prompt, n_tokens, temperatures[kind], 100 + turn,
                   &replies[way]);
            const double n = replies[way].n_tokens - 1;
            out->by_clock[way][turn] = n / replies[way].decode_s;
            out->by_processor[way][turn] = n / replies[way].processor_s;
        }
        if (replies[0].n_tokens != replies[1].n_tokens ||
            memcmp(replies[0].tokens, replies[1].tokens, replies[0].n_tokens * sizeof(int32_t)) !=
                0)
            fail("a reply", "it is another with guesses");
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
    answer(driver, opening, OPENING, PASSAGE, 0.8f, 5, &passage);
    for (uint32_t i = 0; i < 2; i++) {
        memcpy(prompt + n, passage.tokens, passage.n_tokens * sizeof *prompt);
        n += passage.n_tokens;
    }
    memcpy(prompt + n, passage.tokens, OPENING * sizeof *prompt);
    return n + OPENING;
}

static void show(const char *kind, struct figures *f)
{
    const double right = f->n_drafted ? 100 * (double)f->n_accepted / (double)f->n_drafted : 0;
    printf("%-6s off %8.1f tok/s, lookup %8.1f: ratio %.3f; by processor %8.1f, %8.1f: ratio %.3f; "
           "%.0f %% of %llu guesses right\n",
           kind, median(f->by_clock[0]), median(f->by_clock[1]), median(f->ratio),
           median(f->by_processor[0]), median(f->by_processor[1]), median(f->processor_ratio),
           right, (unsigned long long)f->n_drafted);
}

static void read_options(int argc, char **argv)
{
    if (argc < 2 || argc % 2)
        fail("usage", "lookup MODEL.gguf [--tokens N] [--turns N] [--threads N]");
    for (int i = 2; i < argc; i += 2) {
        const uint32_t n = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--tokens") == 0 && n > 1 && n < CONTEXT / 2)
            n_tokens = n;
        else if (strcmp(argv[i], "--turns") == 0 && n && n <= TURNS_MAX)
            n_turns = n;
        else if (strcmp(argv[i], "--threads") == 0 && n)
            n_threads = n;
        else
            fail(argv[i], "no such option, or its value is out of range");
    }
}

int main(int argc, char **argv)
{
    static const char *const kinds[KINDS] = {"loop", "quote", "story", "noise"};
    static struct figures figures[KINDS];
    static int32_t prompt[CONTEXT];
    struct error err = {0};
    struct gpu *gpu = NULL;
    read_options(argc, argv);
    if (model_open(argv[1], &model, &err))
        fail(argv[1], err.text);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = n_threads, .skip_other = true}, &gpu, &err))
        fail("devices", err.text);
    struct device *cpu = gpu_find(gpu, "cpu");
    struct driver *drivers[2] = {open_driver(cpu, SPECULATE_OFF),
                                 open_driver(cpu, SPECULATE_LOOKUP)};
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        const uint32_t n_prompt = write_prompt(drivers[0], kind, prompt);
        measure(drivers, kind, prompt, n_prompt, &figures[kind]);
        show(kinds[kind], &figures[kind]);
    }
    driver_close(drivers[0]);
    driver_close(drivers[1]);
    gpu_close(gpu);
    model_close(model);
    return 0;
}
