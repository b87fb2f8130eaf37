/* streams: how many sequences run at once in the memory of some full contexts, where each slot has
 * a context to itself and where slots share their cells; and what sharing costs a decoded token.
 *
 *   streams MODEL.gguf [--contexts 8] [--context 8192] [--slots 80] [--requests 160]
 *           [--shared 1500] [--median 600] [--sigma 100] [--rounds 9] [--threads 1]
 *
 * Every request has the shared prompt and 20 tokens of its own; its answer's length is drawn
 * log-normal (sigma in hundredths), the same for both ways. All are submitted at once, so some
 * always wait. Streams are those that have a slot and cells, sampled every millisecond and averaged
 * until no request waits for a slot any more. The texts of both ways must be the same. Then as many
 * streams as there are contexts decode from 500 tokens on, the ways in turn; the ratio is that of
 * the medians, of tokens per second of the processor's time: beside other work the clock's would
 * tell of that. */
#include "base/random.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/driver.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    REQUESTS_MAX = 4096,
    OWN_TOKENS = 20,
    ROUNDS_MAX = 99,
    EQUAL_PROMPT = 500,
    EQUAL_TOKENS = 512
};

struct bench {
    uint32_t n_contexts, context, n_slots, n_requests, n_shared, median, sigma, n_rounds, n_threads;
    struct model *model;
    struct device *cpu;
};

struct ask {
    int32_t *prompt;
    uint32_t n_prompt, n_predict;
    uint64_t hash; /* of its tokens */
    uint32_t n_tokens;
};

struct run { /* of one way */
    struct driver *driver;
    struct ask asks[REQUESTS_MAX];
    pthread_mutex_t lock;
    uint32_t n_done, n_failed;
};

struct result {
    double streams, seconds;
    uint32_t most;
    uint64_t n_parked, n_tokens, n_cached;
};

static struct run run;

static void fail(const char *what, const struct error *err)
{
    fprintf(stderr, "streams: %s: %s\n", what, err->text);
    exit(1);
}

static bool on_token(void *arg, const struct token_event *event)
{
    struct ask *ask = arg;
    ask->hash = random_mix(ask->hash + (uint64_t)(uint32_t)event->token);
    ask->n_tokens++;
    return true;
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    (void)arg, (void)usage, (void)err;
    pthread_mutex_lock(&run.lock);
    run.n_failed += reason != FINISH_LENGTH;
    run.n_done++;
    pthread_mutex_unlock(&run.lock);
}

static uint32_t n_done(void)
{
    pthread_mutex_lock(&run.lock);
    const uint32_t n = run.n_done;
    pthread_mutex_unlock(&run.lock);
    return n;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

/* Box and Muller 1958 */
static double normal(uint64_t at)
{
    return sqrt(-2 * log(1 - random_unit_at(11, 2 * at))) *
           cos(6.283185307179586 * random_unit_at(11, 2 * at + 1));
}

static int32_t drawn_token(const struct bench *b, uint64_t seed, uint64_t at)
{
    return (int32_t)(random_at(seed, at) % model_hyperparameters(b->model)->n_vocab);
}

static void draw(const struct bench *b, uint32_t i, struct ask *ask)
{
    const uint32_t room = b->context - b->n_shared - OWN_TOKENS;
    const double length = b->median * exp(b->sigma / 100.0 * normal(i));
    free(ask->prompt);
    *ask = (struct ask){.n_prompt = b->n_shared + OWN_TOKENS};
    ask->n_predict = length < 1 ? 1 : length > room ? room : (uint32_t)length;
    ask->prompt = malloc(ask->n_prompt * sizeof *ask->prompt);
    if (!ask->prompt)
        exit(1);
    for (uint32_t k = 0; k < ask->n_prompt; k++)
        ask->prompt[k] = drawn_token(b, k < b->n_shared ? 1 : 100 + i, k);
}

static void submit(struct ask *ask)
{
    struct request request = {.prompt = ask->prompt,
                              .n_prompt = ask->n_prompt,
                              .n_predict = ask->n_predict,
                              .sampler = sampler_defaults(),
                              .handlers = {.token = on_token, .done = on_done},
                              .arg = ask};
    struct error err;
    request.sampler.temperature = 0;
    if (driver_submit(run.driver, &request, NULL, &err))
        fail("submit", &err);
}

static void open_run(const struct bench *b, uint32_t n_slots, uint32_t cells)
{
    const struct driver_options options = {
        .n_slots = n_slots, .context = b->context, .cells = cells, .queue_max = REQUESTS_MAX};
    const struct stage_plan plan = {.device = b->cpu,
                                    .n_layers = model_hyperparameters(b->model)->n_layers};
    struct error err;
    run.n_done = run.n_failed = 0;
    if (driver_open(b->model, &plan, 1, &options, &run.driver, &err))
        fail("open", &err);
}

static double processor_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static struct result measure(const struct bench *b, uint32_t n_slots, uint32_t cells)
{
    struct result result = {0};
    uint64_t n_samples = 0, sum = 0;
    open_run(b, n_slots, cells);
    const double start_s = processor_s();
    for (uint32_t i = 0; i < b->n_requests; i++)
        draw(b, i, &run.asks[i]);
    for (uint32_t i = 0; i < b->n_requests; i++)
        submit(&run.asks[i]);
    struct driver_stats stats = driver_stats(run.driver);
    for (; n_done() < b->n_requests; nap()) {
        stats = driver_stats(run.driver);
        const uint32_t n = stats.slots_busy - stats.parked;
        result.most = n > result.most ? n : result.most;
        if (stats.queued) {
            sum += n;
            n_samples++;
        }
    }
    stats = driver_stats(run.driver);
    result.seconds = processor_s() - start_s;
    result.streams = n_samples ? (double)sum / (double)n_samples : 0;
    result.n_parked = stats.parked_total;
    result.n_tokens = stats.generated_tokens_total;
    result.n_cached = stats.cached_tokens_total;
    driver_close(run.driver);
    if (run.n_failed) {
        fprintf(stderr, "streams: %u requests failed\n", run.n_failed);
        exit(1);
    }
    return result;
}

static void say(const char *name, const struct result *r)
{
    printf("%-8s %5.1f streams at once (%u at most), %llu parked, %llu tokens of prompts not "
           "computed, %.0f tokens a "
           "processor's second\n",
           name, r->streams, r->most, (unsigned long long)r->n_parked,
           (unsigned long long)r->n_cached, (double)r->n_tokens / r->seconds);
    fflush(stdout);
}

/* Tokens a second of streams that decode side by side. */
static double equal_rows(const struct bench *b, uint32_t cells)
{
    struct bench equal = *b;
    equal.n_shared = EQUAL_PROMPT - OWN_TOKENS;
    open_run(b, b->n_contexts, cells);
    for (uint32_t i = 0; i < b->n_contexts; i++) {
        draw(&equal, i, &run.asks[i]);
        run.asks[i].n_predict = 1; /* first the prompts, which the slots keep */
        submit(&run.asks[i]);
    }
    while (n_done() < b->n_contexts)
        nap();
    const double start_s = processor_s();
    for (uint32_t i = 0; i < b->n_contexts; i++) {
        run.asks[i].n_predict = EQUAL_TOKENS;
        submit(&run.asks[i]);
    }
    while (n_done() < 2 * b->n_contexts)
        nap();
    const double seconds = processor_s() - start_s;
    driver_close(run.driver);
    return b->n_contexts * EQUAL_TOKENS / seconds;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure_equal(const struct bench *b)
{
    double apart[ROUNDS_MAX], shared[ROUNDS_MAX];
    for (uint32_t i = 0; i < b->n_rounds; i++) {
        apart[i] = equal_rows(b, 0);
        shared[i] = equal_rows(b, b->n_contexts * b->context);
    }
    qsort(apart, b->n_rounds, sizeof *apart, compare);
    qsort(shared, b->n_rounds, sizeof *shared, compare);
    const double theirs = apart[b->n_rounds / 2], ours = shared[b->n_rounds / 2];
    printf("decode   %u streams: %.1f tokens a processor's second apart, %.1f shared, ratio %.3f\n",
           b->n_contexts, theirs, ours, ours / theirs);
}

static void read_options(struct bench *b, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } options[] = {
        {"--contexts", &b->n_contexts}, {"--context", &b->context}, {"--slots", &b->n_slots},
        {"--requests", &b->n_requests}, {"--shared", &b->n_shared}, {"--median", &b->median},
        {"--sigma", &b->sigma},         {"--rounds", &b->n_rounds}, {"--threads", &b->n_threads}};
    for (int i = 2; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
            if (strcmp(argv[i], options[k].name) == 0)
                *options[k].value = (uint32_t)atoi(argv[i + 1]);
        }
    }
}

static bool options_are_good(const struct bench *b)
{
    return b->n_contexts && b->n_slots && b->n_threads && b->n_requests &&
           b->n_requests <= REQUESTS_MAX && b->n_contexts <= b->n_requests &&
           b->n_rounds <= ROUNDS_MAX && b->context > b->n_shared + OWN_TOKENS + 1 &&
           b->context > EQUAL_PROMPT + EQUAL_TOKENS;
}

static void compare_ways(const struct bench *b)
{
    static uint64_t apart[REQUESTS_MAX];
    uint32_t n_different = 0;
    const struct result equal = measure(b, b->n_contexts, 0);
    say("apart", &equal);
    for (uint32_t i = 0; i < b->n_requests; i++)
        apart[i] = run.asks[i].hash;
    const struct result shared = measure(b, b->n_slots, b->n_contexts * b->context);
    say("shared", &shared);
    for (uint32_t i = 0; i < b->n_requests; i++)
        n_different += run.asks[i].hash != apart[i];
    printf("ratio    %.2fx the streams, %.2fx the tokens a processor's second, %u of %u texts "
           "differ\n",
           shared.streams / equal.streams, equal.seconds / shared.seconds, n_different,
           b->n_requests);
    fflush(stdout);
    if (n_different)
        exit(1);
}

int main(int argc, char **argv)
{
    struct bench b = {.n_contexts = 8,
                      .context = 8192,
                      .n_slots = 80,
                      .n_requests = 160,
                      .n_shared = 1500,
                      .median = 600,
                      .sigma = 100, /* hundredths */
                      .n_rounds = 9,
                      .n_threads = 1};
    struct gpu *gpu;
    struct error err = {0};
    read_options(&b, argc, argv);
    if (argc < 2 || !options_are_good(&b)) {
        fprintf(stderr, "usage: streams MODEL.gguf [--requests 160] … (see the file's head)\n");
        return 2;
    }
    pthread_mutex_init(&run.lock, NULL);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = b.n_threads, .skip_other = true}, &gpu,
                 &err))
        fail("devices", &err);
    b.cpu = gpu_find(gpu, "cpu");
    if (model_open(argv[1], &b.model, &err))
        fail(argv[1], &err);
    compare_ways(&b);
    if (b.n_rounds)
        measure_equal(&b);
    for (uint32_t i = 0; i < REQUESTS_MAX; i++)
        free(run.asks[i].prompt);
    model_close(b.model);
    gpu_close(gpu);
    return 0;
}
