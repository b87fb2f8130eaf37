/* Others take memory of a device, and give it back, while 8 streams run on it: a seed draws how
 * much and when. The driver here, the stages of the bundled model in their devices' own processes,
 * the memory simulated (`others`, docs/simulated-devices.md). Every reply is compared, token by
 * token, with what it is without others, unless a stage had smaller weights meanwhile, or caches of
 * another type: that may change its words, and it has to be whole. When all is as placed again, one
 * reply to each prompt is compared.
 *
 * Of the bundled model half of the weights are streamed, with the same bits. A trace of four has
 * two devices, whose stages are too small for that; of those every other one allows weights as
 * q4_k. With a model whose heads are multiples of 32, such as
 * tests/golden/models/llama-headdim.gguf, caches become q8_0 and q4_0 first.
 *
 *     memory-traces MODEL [FIRST-SEED [TRACES [AT-ONCE]]]
 *
 * Prints, over all traces, crashes, replies with other tokens, replies lost, and how long after the
 * last of the others had gone all was as placed again. Exit status 1: a crash, a wrong or a lost
 * reply, or not as placed after 30 s. A trace takes some 20 s, most of it waiting. */
#include "child_world.h"

#include "base/clock.h"
#include "base/random.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    STREAMS = 8,
    PROMPTS = 4,
    PROMPT = 30,
    TOKENS = 30,
    DEVICES = 2,
    Q4_K = 12,
    TRACES_MAX = 10000,
    AT_ONCE_MAX = 64,
    LIMIT_S = 90,
};
#define MIB 1048576.0
#define MEMORY_BYTES (1024 * MIB)

struct trace {
    bool is_over;  /* else it crashed */
    bool is_taken; /* memory, by others */
    uint32_t n_replies, n_wrong, n_lost, n_refused, n_deaths, furthest, n_changed, n_lower, n_small;
    bool is_back;
    double back_s;
};

static struct shared { /* by all processes of this program */
    bool is_known;
    double used[DEVICES][DEVICES]; /* by the number of stages less one, and the device */
    int32_t tokens[PROMPTS][PROMPT + TOKENS];
    struct trace traces[TRACES_MAX];
} *shared;

static struct model *model;

/* ---- a world ------------------------------------------------------------------------------- */

struct place {
    struct child_world world;
    struct gpu *gpu;
    char path[64];
};

static _Noreturn void trace_stop(const char *what)
{
    fprintf(stderr, "memory-traces: %s\n", what);
    exit(1);
}

static void place_drop(struct place *place)
{
    children_close(place->world.children);
    gpu_close(place->gpu);
    remove(place->path);
}

/* `others`: a line for each device. False: there was no memory for it. */
static bool place_open(struct place *place, uint32_t n_stages, int allowed,
                       char others[DEVICES][256])
{
    struct error err = {0};
    *place = (struct place){
        .world = {.model = model, .n_stages = n_stages, .devices = {"sim:a", "sim:b"}},
        .path = "/tmp/medley-traces-XXXXXX"};
    const int descriptor = mkstemp(place->path);
    FILE *file = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (!file)
        trace_stop("no temporary file");
    for (int i = 0; i < DEVICES; i++)
        fprintf(file,
                "[%c]\nmemory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\nlaunch = 15ms\n"
                "copy = 1TB/s\n%s\n",
                'a' + i, others[i]);
    fclose(file);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .sim_file = place->path}, &place->gpu,
                 &err))
        trace_stop(err.text);
    const struct children_options options = {
        .gpu = place->gpu, .sim_file = place->path, .n_cpu_threads = 1};
    if (children_open(&options, &place->world.children, &err))
        trace_stop(err.text);
    place->world.options =
        (struct driver_options){.n_slots = STREAMS, .context = 128, .precision_allowed = allowed};
    const enum error_code code = child_world_try(&place->world, &err);
    if (code && code != ERROR_NO_MEMORY)
        trace_stop(err.text);
    if (code)
        place_drop(place);
    return !code;
}

static void place_close(struct place *place)
{
    child_world_close(&place->world);
    place_drop(place);
}

/* ---- streams ------------------------------------------------------------------------------- */

struct stream {
    uint32_t prompt;
    struct reply reply;
    bool is_open;
    bool may_differ; /* a stage had a form of other bits since it began */
};

static bool stream_token(void *arg, const struct token_event *event)
{
    struct reply *reply = &((struct stream *)arg)->reply;
    reply->tokens[reply->n_tokens++] = event->token;
    return true;
}

static void stream_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                        const struct error *err)
{
    struct stream *stream = arg;
    (void)usage;
    if (err)
        stream->reply.error = *err;
    atomic_store(&stream->reply.ended, 1 + (int)reason);
}

static int32_t prompt_token(uint32_t prompt, uint32_t at)
{
    return (int32_t)((300 + 7 * at + 131 * prompt) % model_hyperparameters(model)->n_vocab);
}

static enum error_code stream_begin(struct stream *stream, struct driver *driver, uint32_t prompt)
{
    struct error err = {0};
    stream->prompt = prompt;
    stream->reply.n_tokens = PROMPT;
    for (uint32_t i = 0; i < PROMPT; i++)
        stream->reply.tokens[i] = prompt_token(prompt, i);
    atomic_store(&stream->reply.ended, 0);
    struct request request = {.prompt = stream->reply.tokens,
                              .n_prompt = PROMPT,
                              .n_predict = TOKENS,
                              .sampler = sampler_defaults(),
                              .handlers = {.token = stream_token, .done = stream_done},
                              .arg = stream};
    request.sampler.temperature = 0;
    const enum error_code code = driver_submit(driver, &request, NULL, &err);
    stream->is_open = !code;
    stream->may_differ = false;
    return code;
}

/* True: it is over. */
static bool stream_look(struct stream *stream, struct trace *trace)
{
    const int ended = stream->is_open ? atomic_load(&stream->reply.ended) : 0;
    if (!ended)
        return false;
    stream->is_open = false;
    trace->n_replies++;
    if (ended != 1 + FINISH_LENGTH) {
        fprintf(stderr, "lost: %s\n", stream->reply.error.text);
        trace->n_lost++;
    } else if (stream->may_differ) {
        trace->n_changed++;
    } else if (shared->is_known && memcmp(stream->reply.tokens, shared->tokens[stream->prompt],
                                          sizeof shared->tokens[0]) != 0) {
        trace->n_wrong++;
    }
    return true;
}

/* ---- one trace ----------------------------------------------------------------------------- */

/* From `at_s` on; ends with nothing taken, and the second of that. */
static double draw_others(uint64_t seed, double used, double at_s, char out[256])
{
    const double amounts[] = {0, MEMORY_BYTES - used - 8 * MIB, MEMORY_BYTES - used + 0.3 * MIB,
                              MEMORY_BYTES - used / 2};
    int n = snprintf(out, 256, "others = ");
    for (uint32_t i = 0; i < 5; i++) {
        at_s += 0.2 + 1.3 * random_unit_at(seed, 2 * i);
        const double bytes = i == 4 ? 0 : amounts[random_at(seed, 2 * i + 1) % 4];
        n += snprintf(out + n, 256 - (size_t)n, "%s%.3fMiB at %.2fs", i ? ", " : "", bytes / MIB,
                      at_s);
    }
    return at_s;
}

/* The furthest that any device's ladder is down. */
static uint32_t trace_step(struct place *place, struct trace *trace)
{
    uint32_t furthest = 0;
    for (uint32_t i = 0; i < place->world.n_stages; i++) {
        const struct memory_step step = lane_memory_step(place->world.lanes[i]);
        const uint32_t at = step.step + step.is_changing;
        furthest = at > furthest ? at : furthest;
    }
    trace->furthest = furthest > trace->furthest ? furthest : trace->furthest;
    return furthest;
}

/* Whether stages have a form now that computes other bits than as placed; streamed layers do not,
 * but caches of the types before do. */
static bool trace_differs(const struct place *place, struct trace *trace)
{
    const bool has_small = hyperparameters_heads_fit(model_hyperparameters(model), 32);
    bool differs = false;
    for (uint32_t i = 0; i < place->world.n_stages; i++) {
        const enum memory_form form = lane_memory_step(place->world.lanes[i]).form;
        const bool is_small = has_small && form >= MEMORY_SMALL_CACHES;
        trace->n_small += is_small;
        trace->n_lower += form == MEMORY_LOWER;
        differs = differs || is_small || form == MEMORY_LOWER;
    }
    return differs;
}

static double seconds_since(uint64_t ns)
{
    return (double)(clock_now_ns() - ns) / 1e9;
}

/* A busy machine may have loaded the stages only when others have taken memory: then these come
 * later. So many seconds after it was opened they have gone. */
static double trace_open(struct place *place, uint64_t seed, uint32_t n_stages)
{
    const int allowed = seed % 8 ? 0 : Q4_K;
    for (double begins_s = 3; begins_s < 100; begins_s *= 4) {
        char others[DEVICES][256] = {""};
        double gone_s = 0;
        for (uint32_t i = 0; i < n_stages; i++) {
            const double end_s =
                draw_others(seed * DEVICES + i, shared->used[n_stages - 1][i], begins_s, others[i]);
            gone_s = end_s > gone_s ? end_s : gone_s;
        }
        const uint64_t begun_ns = clock_now_ns();
        const bool is_open = place_open(place, n_stages, allowed, others);
        if (is_open && seconds_since(begun_ns) < begins_s)
            return gone_s;
        if (is_open)
            place_close(place);
    }
    trace_stop("the stages are not loaded");
}

/* Whether others have memory of some device: then hardly any is free. Its process tells four times
 * a second. */
static bool trace_is_taken(const struct place *place)
{
    bool is_taken = false;
    for (uint32_t i = 0; i < place->world.n_stages; i++) {
        const struct device *device = gpu_find(place->gpu, place->world.devices[i]);
        is_taken |= (double)device_memory(device).free_bytes < MEMORY_BYTES / 2;
    }
    return is_taken;
}

static void trace_mind(struct place *place, struct stream *streams, uint64_t seed, bool begins,
                       struct trace *trace)
{
    static uint64_t n_begun;
    struct error err = {0};
    if (!child_world_mind(&place->world, &err))
        trace_stop(err.text);
    const bool differs = trace_differs(place, trace);
    for (uint32_t i = 0; i < STREAMS; i++) {
        streams[i].may_differ = streams[i].may_differ || differs;
        stream_look(&streams[i], trace);
        if (begins && !streams[i].is_open)
            trace->n_refused += stream_begin(&streams[i], place->world.driver,
                                             random_at(seed, ++n_begun) % PROMPTS) != ERROR_NONE;
    }
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

static bool streams_are_open(const struct stream *streams)
{
    bool is_open = false;
    for (uint32_t i = 0; i < STREAMS; i++)
        is_open |= streams[i].is_open;
    return is_open;
}

/* As placed again: each prompt once more, and none may differ. */
static void trace_compare(struct place *place, struct stream *streams, uint64_t seed,
                          struct trace *trace)
{
    const uint64_t begun_ns = clock_now_ns();
    for (uint32_t i = 0; i < PROMPTS; i++)
        trace->n_refused += stream_begin(&streams[i], place->world.driver, i) != ERROR_NONE;
    while (seconds_since(begun_ns) < LIMIT_S && streams_are_open(streams))
        trace_mind(place, streams, seed, false, trace);
}

/* Its devices' processes count the seconds from when they open them, before this does. */
static void trace_run(uint64_t seed, struct trace *trace)
{
    static struct stream streams[STREAMS];
    struct place place;
    const uint32_t n_stages = seed % 4 ? 1 : 2;
    const double gone_s = trace_open(&place, seed, n_stages);
    const uint64_t begun_ns = clock_now_ns();
    uint64_t taken_ns = 0, stepped_ns = 0;
    while (seconds_since(begun_ns) < LIMIT_S &&
           (seconds_since(begun_ns) < gone_s || trace_step(&place, trace))) {
        if (trace_is_taken(&place))
            taken_ns = clock_now_ns();
        if (trace_step(&place, trace))
            stepped_ns = clock_now_ns();
        trace_mind(&place, streams, seed, true, trace);
    }
    trace->is_taken = taken_ns;
    trace->back_s = stepped_ns > taken_ns ? (double)(stepped_ns - taken_ns) / 1e9 : 0;
    trace->is_back = !trace_step(&place, trace);
    while (seconds_since(begun_ns) < 2 * LIMIT_S && streams_are_open(streams))
        trace_mind(&place, streams, seed, false, trace);
    for (uint32_t i = 0; i < STREAMS; i++)
        trace->n_lost += streams[i].is_open;
    if (trace->is_back && !streams_are_open(streams))
        trace_compare(&place, streams, seed, trace);
    trace->n_deaths = place.world.n_losses;
    if (!streams_are_open(streams))
        place_close(&place);
    trace->is_over = true;
}

/* ---- without others ------------------------------------------------------------------------ */

static void learn(void)
{
    static struct stream streams[STREAMS];
    char others[DEVICES][256] = {""};
    struct trace trace = {0};
    for (uint32_t n_stages = DEVICES; n_stages > 0; n_stages--) {
        struct place place;
        if (!place_open(&place, n_stages, 0, others))
            trace_stop("no memory, though nobody took any");
        for (uint32_t i = 0; i < n_stages; i++) {
            const struct device_memory memory =
                device_memory(gpu_find(place.gpu, place.world.devices[i]));
            shared->used[n_stages - 1][i] = (double)(memory.total_bytes - memory.free_bytes);
        }
        for (uint32_t i = 0; i < PROMPTS && n_stages == 1; i++) {
            if (stream_begin(&streams[0], place.world.driver, i))
                trace_stop("no reply");
            while (!stream_look(&streams[0], &trace))
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            memcpy(shared->tokens[i], streams[0].reply.tokens, sizeof shared->tokens[i]);
        }
        place_close(&place);
    }
    shared->is_known = !trace.n_lost;
}

/* ---- all of them --------------------------------------------------------------------------- */

static pid_t begin_process(void (*run)(uint64_t seed, struct trace *trace), uint64_t seed,
                           struct trace *trace)
{
    const pid_t pid = fork();
    if (pid < 0)
        trace_stop(strerror(errno));
    if (pid)
        return pid;
    if (run)
        run(seed, trace);
    else
        learn();
    _exit(0);
}

static void run_all(uint64_t first, uint32_t n, uint32_t at_once)
{
    uint32_t n_begun = 0, n_running = 0;
    while (n_begun < n || n_running) {
        if (n_begun < n && n_running < at_once) {
            begin_process(trace_run, first + n_begun, &shared->traces[n_begun]);
            n_begun++;
            n_running++;
            continue;
        }
        if (waitpid(-1, NULL, 0) > 0)
            n_running--;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool report(uint64_t first, uint32_t n)
{
    static double back[TRACES_MAX];
    struct trace sum = {0};
    uint32_t n_crashed = 0, n_late = 0, n_back = 0, n_down[MEMORY_STEPS + 1] = {0};
    for (uint32_t i = 0; i < n; i++) {
        const struct trace *trace = &shared->traces[i];
        const bool is_late = trace->is_over && (!trace->is_back || trace->back_s > 30);
        n_crashed += !trace->is_over || trace->n_deaths;
        n_late += is_late;
        sum.n_replies += trace->n_replies, sum.n_refused += trace->n_refused;
        sum.n_wrong += trace->n_wrong, sum.n_lost += trace->n_lost;
        sum.n_changed += trace->n_changed;
        sum.n_lower += trace->n_lower > 0, sum.n_small += trace->n_small > 0;
        n_down[trace->furthest]++;
        if (trace->is_taken)
            back[n_back++] = trace->back_s;
        if (!trace->is_over || trace->n_deaths || trace->n_wrong || trace->n_lost || is_late)
            printf("seed %llu: %s, %u deaths, %u wrong, %u lost, back after %.1f s\n",
                   (unsigned long long)(first + i), trace->is_over ? "over" : "CRASHED",
                   trace->n_deaths, trace->n_wrong, trace->n_lost, trace->back_s);
    }
    if (!n_back)
        return false;
    qsort(back, n_back, sizeof *back, compare_doubles);
    printf("%u traces, in %u of them memory was taken, %u replies (%u asked again, for memory was "
           "short): %u crashes, %u wrong, "
           "%u lost; as placed again after the others had gone, s: median %.1f, 99 %% %.1f, max "
           "%.1f; %u later than 30 s\nfurthest step:",
           n, n_back, sum.n_replies, sum.n_refused, n_crashed, sum.n_wrong, sum.n_lost,
           back[n_back / 2], back[n_back * 99 / 100], back[n_back - 1], n_late);
    for (uint32_t i = 0; i <= MEMORY_STEPS; i++)
        printf(" %u:%u", i, n_down[i]);
    printf("\n%u replies while bits may differ; %u traces had smaller weights, %u smaller caches\n",
           sum.n_changed, sum.n_lower, sum.n_small);
    return !n_crashed && !sum.n_wrong && !sum.n_lost && !n_late;
}

static uint32_t number(int argc, char **argv, int at, uint32_t usual, uint32_t max)
{
    char *end = NULL;
    const unsigned long value = argc > at ? strtoul(argv[at], &end, 10) : usual;
    if ((end && *end) || value > max)
        trace_stop("usage: memory-traces MODEL [FIRST-SEED [TRACES [AT-ONCE]]]");
    return (uint32_t)value;
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    struct error err = {0};
    const uint32_t first = number(argc, argv, 2, 1, UINT32_MAX),
                   n = number(argc, argv, 3, 20, TRACES_MAX),
                   at_once = number(argc, argv, 4, 8, AT_ONCE_MAX);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || argc < 2 || !n || !at_once)
        trace_stop("usage: memory-traces MODEL [FIRST-SEED [TRACES [AT-ONCE]]]");
    if (model_open(argv[1], &model, &err))
        trace_stop(err.text);
    waitpid(begin_process(NULL, 0, NULL), NULL, 0);
    if (!shared->is_known)
        trace_stop("no replies to compare with");
    run_all(first, n, at_once);
    const bool is_well = report(first, n);
    model_close(model);
    return !is_well;
}
