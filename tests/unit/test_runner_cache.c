/* What one lane leaves for the next in devices' processes: rows of caches, which are read and
 * written there, and weights, which are loaded once. This program is its own child. */
#include "child_world.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "pipeline/child_cache.h"
#include "pipeline/children_impl.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

enum { LIMIT_MS = 20000, MS = 1000000, N_SOME = 7 };

#define SIM "memory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\nlaunch = 0s\ncopy = 1TB/s\n"

static char golden[1024];
static char sim_path[64];
static struct model *model;
static int32_t expected[64]; /* prompt, then the reference's greedy tokens */
static uint32_t n_prompt, n_greedy;

static uint32_t read_ids(yyjson_val *array, int32_t *out)
{
    size_t i, max;
    yyjson_val *value;
    yyjson_arr_foreach(array, i, max, value) out[i] = (int32_t)yyjson_get_int(value);
    return (uint32_t)max;
}

static struct model *open_model(void)
{
    struct model *one = NULL;
    struct error err = {0};
    snprintf(golden, sizeof golden, "%s/models/llama.gguf", getenv("MEDLEY_GOLDEN"));
    if (model_open(golden, &one, &err))
        fail_msg("%s", err.text);
    return one;
}

static int set_up(void **state)
{
    (void)state;
    model = open_model();
    snprintf(golden, sizeof golden, "%s/models/llama.json", getenv("MEDLEY_GOLDEN"));
    yyjson_doc *doc = yyjson_read_file(golden, 0, NULL, NULL);
    assert_non_null(doc);
    n_prompt = read_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "prompt"), expected);
    n_greedy = read_ids(yyjson_obj_get(yyjson_doc_get_root(doc), "greedy"), expected + n_prompt);
    yyjson_doc_free(doc);
    snprintf(sim_path, sizeof sim_path, "/tmp/medley-cache-XXXXXX");
    const int descriptor = mkstemp(sim_path);
    assert_true(descriptor >= 0 &&
                write(descriptor, "[a]\n" SIM "[b]\n" SIM, strlen("[a]\n" SIM "[b]\n" SIM)) > 0);
    close(descriptor);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    model_close(model);
    remove(sim_path);
    return 0;
}

static struct children *open_children(struct gpu *gpu)
{
    const struct children_options options = {
        .gpu = gpu, .sim_file = sim_path, .n_cpu_threads = 1, .pause_ms = 5, .silence_ms = 1000};
    struct children *children = NULL;
    assert_int_equal(children_open(&options, &children, NULL), ERROR_NONE);
    return children;
}

/* As the reference was computed, with a stage on each of these devices. */
static void open_world(struct child_world *world, struct children *children, const char *devices)
{
    static const char *const names[] = {"sim:a", "sim:b"};
    *world = (struct child_world){.model = model, .children = children};
    for (; devices[world->n_stages]; world->n_stages++)
        world->devices[world->n_stages] = names[devices[world->n_stages] - 'a'];
    world->options = (struct driver_options){
        .n_slots = 2, .context = 64, .kv_type = KV_F32, .flash = FLASH_OFF, .no_repack = true};
    child_world_open(world);
}

/* ---- what is asked of a lane -------------------------------------------------------------- */

struct asked {
    struct lane_job job;
    _Atomic bool done;
    struct error why;
    struct buffer rows;
};

static void on_done(void *arg, const void *rows, size_t size, const struct error *why)
{
    struct asked *asked = arg;
    if (why)
        asked->why = *why;
    else if (size)
        buffer_append(&asked->rows, rows, size);
    atomic_store(&asked->done, true);
}

static void begin(struct asked *asked)
{
    *asked = (struct asked){.job = {.done = on_done, .arg = asked}};
}

static enum error_code end(struct asked *asked)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    while (!atomic_load(&asked->done) && clock_now_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    assert_true(atomic_load(&asked->done));
    return asked->why.code;
}

static enum error_code read_some(struct lane *lane, uint32_t stage, struct kv_run run)
{
    struct asked asked;
    begin(&asked);
    lane_read(lane, &asked.job, stage, &run);
    const enum error_code code = end(&asked);
    buffer_deinit(&asked.rows);
    return code;
}

static enum error_code write_some(struct lane *lane, uint32_t stage, struct kv_run run,
                                  uint64_t row_bytes, const void *rows)
{
    struct asked asked;
    struct buffer message = {0};
    begin(&asked);
    cache_write_rows(&(struct cache_route){0}, &run, row_bytes, &message);
    buffer_append(&message, rows, run.n_rows * row_bytes);
    lane_write(lane, &asked.job, stage, &message);
    buffer_deinit(&message);
    return end(&asked);
}

static enum error_code settle_some(struct lane *lane, uint32_t stage, uint32_t slot, uint32_t n,
                                   const int32_t *tokens)
{
    struct asked asked;
    struct buffer message = {0};
    struct cache_offer *offer = mem_new(sizeof *offer);
    begin(&asked);
    offer->n_slots = 1;
    offer->slots[0].slot = slot;
    offer->slots[0].n_tokens = n;
    offer->slots[0].tokens = (const unsigned char *)tokens;
    cache_write_offer(&(struct cache_route){0}, offer, &message);
    mem_free(offer);
    lane_settle(lane, &asked.job, stage, &message);
    buffer_deinit(&message);
    return end(&asked);
}

static uint32_t layers_before(const struct child_world *world, uint32_t stage)
{
    return stage * (model_hyperparameters(model)->n_layers / world->n_stages);
}

static uint32_t stage_of(const struct child_world *world, uint32_t layer)
{
    uint32_t stage = world->n_stages - 1;
    while (layers_before(world, stage) > layer)
        stage--;
    return stage;
}

/* The first tokens of slot 0, in pieces of N_SOME rows. */
static void copy_slot(struct child_world *from, struct child_world *to, uint32_t n_tokens)
{
    for (uint32_t layer = 0; layer < model_hyperparameters(model)->n_layers; layer++) {
        const uint32_t source = stage_of(from, layer), target = stage_of(to, layer);
        for (uint32_t row = 0; row < n_tokens; row += N_SOME) {
            const uint32_t left = n_tokens - row;
            const struct kv_run run = {layer, 0, row, left < N_SOME ? left : N_SOME};
            struct asked asked;
            begin(&asked);
            lane_read(from->lanes[source], &asked.job, source, &run);
            assert_int_equal(end(&asked), ERROR_NONE);
            assert_int_equal(asked.rows.size,
                             run.n_rows * lane_row_bytes(from->lanes[source], source));
            assert_int_equal(write_some(to->lanes[target], target, run,
                                        lane_row_bytes(to->lanes[target], target), asked.rows.data),
                             ERROR_NONE);
            buffer_deinit(&asked.rows);
        }
    }
    for (uint32_t i = 0; i < to->n_stages; i++)
        assert_int_equal(settle_some(to->lanes[i], i, 0, n_tokens, expected), ERROR_NONE);
    const struct cached_slot slot = {0, n_tokens, expected};
    assert_int_equal(driver_seed(to->driver, &slot, 1, NULL), ERROR_NONE);
}

/* Up to token `from` it is the prompt. */
static uint32_t go_on(struct child_world *world, uint32_t from, uint32_t to)
{
    struct reply reply = {.n_prompt = from, .n_predict = to - from};
    memcpy(reply.tokens, expected, from * sizeof *expected);
    if (!child_world_reply(world, &reply, LIMIT_MS))
        fail_msg("no reply: %s", reply.error.text);
    assert_int_equal(reply.n_tokens, to);
    assert_memory_equal(reply.tokens, expected, to * sizeof *expected);
    return reply.n_cached;
}

/* ---- caches ------------------------------------------------------------------------------- */

static void caches_go_along(void **state)
{
    (void)state;
    static const char *const places[][2] = {
        {"a", "a"}, {"a", "b"}, {"ab", "ba"}, {"aa", "b"}, {"b", "ab"}};
    const uint32_t n = n_prompt + n_greedy / 2, n_all = n_prompt + n_greedy;
    struct children *children = open_children(NULL);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        struct child_world from, to;
        open_world(&from, children, places[i][0]);
        open_world(&to, children, places[i][1]);
        go_on(&from, n_prompt, n);
        copy_slot(&from, &to, n - 1);
        child_world_close(&from);
        assert_int_equal(go_on(&to, n, n_all), n - 1); /* the last token's row alone is computed */
        child_world_close(&to);
    }
    children_close(children);
}

static void what_cannot_be_asked(void **state)
{
    (void)state;
    struct children *children = open_children(NULL);
    struct child_world world;
    open_world(&world, children, "ab");
    struct lane *lane = world.lanes[1];
    const uint32_t n_layers = model_hyperparameters(model)->n_layers, last = n_layers - 1;
    const uint64_t row_bytes = lane_row_bytes(lane, 1);
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    static const char rows[1 << 16];
    assert_int_equal(lane_row_bytes(lane, 0), 0);
    assert_in_range(row_bytes, 1, sizeof rows / 4);
    go_on(&world, n_prompt, n_prompt + 2);
    assert_int_equal(read_some(lane, 1, (struct kv_run){last, 0, 0, n_prompt}), ERROR_NONE);
    assert_int_equal(read_some(lane, 0, (struct kv_run){0, 0, 0, 1}), ERROR_INVALID);
    assert_int_equal(read_some(lane, 1, (struct kv_run){0, 0, 0, 1}), ERROR_INVALID);
    assert_int_equal(read_some(lane, 1, (struct kv_run){last, 0, 0, n_prompt + 2}), ERROR_INVALID);
    assert_int_equal(read_some(lane, 1, (struct kv_run){last, 2, 0, 1}), ERROR_INVALID);
    assert_int_equal(read_some(lane, 1, (struct kv_run){last, 0, 0, LIMIT_CONTEXT}),
                     ERROR_UNSUPPORTED);
    assert_int_equal(write_some(lane, 1, (struct kv_run){last, 1, 63, 1}, row_bytes, rows),
                     ERROR_NONE);
    assert_int_equal(write_some(lane, 1, (struct kv_run){last, 1, 63, 2}, row_bytes, rows),
                     ERROR_INVALID);
    assert_int_equal(write_some(lane, 1, (struct kv_run){last, 2, 0, 1}, row_bytes, rows),
                     ERROR_INVALID);
    assert_int_equal(write_some(lane, 1, (struct kv_run){0, 0, 0, 1}, row_bytes, rows),
                     ERROR_INVALID);
    assert_int_equal(write_some(lane, 1, (struct kv_run){last, 0, 0, 1}, row_bytes + 8, rows),
                     ERROR_INVALID);
    int32_t tokens[65] = {0};
    assert_int_equal(settle_some(lane, 1, 2, 1, tokens), ERROR_INVALID);
    assert_int_equal(settle_some(lane, 1, 1, 65, tokens), ERROR_INVALID);
    assert_int_equal(settle_some(lane, 0, 1, 1, tokens), ERROR_INVALID);
    tokens[1] = (int32_t)n_vocab;
    assert_int_equal(settle_some(lane, 1, 1, 2, tokens), ERROR_INVALID);
    tokens[1] = -1;
    assert_int_equal(settle_some(lane, 1, 1, 2, tokens), ERROR_INVALID);
    go_on(&world, n_prompt, n_prompt + n_greedy);
    assert_int_equal(world.n_losses, 0);
    child_world_close(&world);
    children_close(children);
}

static void stop(pid_t pid)
{
    char path[64], line[256] = "", *end = NULL;
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
    kill(pid, SIGSTOP);
    while ((!end || end[2] != 'T') && clock_now_ns() < until_ns) {
        FILE *file = fopen(path, "r");
        assert_non_null(file);
        end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
        fclose(file);
    }
}

/* It stands still, so that nothing is answered, and is killed. */
static void the_process_dies_meanwhile(void **state)
{
    (void)state;
    enum { JOBS = 8 };
    static struct asked asked[JOBS];
    struct children *children = open_children(NULL);
    struct child_world world;
    open_world(&world, children, "a");
    go_on(&world, n_prompt, n_prompt + 2);
    stop(child_world_pid(&world, 0));
    for (uint32_t i = 0; i < JOBS; i++) {
        begin(&asked[i]);
        lane_read(world.lanes[0], &asked[i].job, 0, &(struct kv_run){0, 0, i, 1});
    }
    kill(child_world_pid(&world, 0), SIGKILL);
    for (uint32_t i = 0; i < JOBS; i++)
        assert_int_equal(end(&asked[i]), ERROR_IO);
    go_on(&world, n_prompt, n_prompt + n_greedy); /* all anew */
    assert_int_equal(world.n_losses, 1);
    child_world_close(&world);
    children_close(children);
}

static void what_it_held_is_lost_with_it(void **state)
{
    (void)state;
    struct error why = {0};
    struct children *children = open_children(NULL);
    struct child_world world;
    open_world(&world, children, "a");
    go_on(&world, n_prompt, n_prompt + 2);
    kill(child_world_pid(&world, 0), SIGKILL);
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    while (!lane_take_loss(world.lanes[0], &why) && clock_now_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    while (lane_look(world.lanes[0], &why) != PIPELINE_LOADED && clock_now_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    assert_int_equal(read_some(world.lanes[0], 0, (struct kv_run){0, 0, 0, 1}), ERROR_INVALID);
    child_world_close(&world);
    children_close(children);
}

/* Answers that nobody waits for, or of another length: such a process is not to be trusted. */
static void answers_that_are_wrong(void **state)
{
    (void)state;
    struct children *children = open_children(NULL);
    struct child_world world;
    open_world(&world, children, "a");
    struct lane *lane = world.lanes[0];
    for (uint32_t kind = 0; kind < 2; kind++) {
        struct asked asked;
        struct buffer record = {0};
        go_on(&world, n_prompt, n_prompt + 2);
        begin(&asked);
        if (kind == 0) {
            lane->stages[0].row_bytes++;
            lane_read(lane, &asked.job, 0, &(struct kv_run){0, 0, 0, 1});
            assert_int_equal(end(&asked), ERROR_INVALID);
        } else { /* the other end of the ring, which the process does not use just now */
            struct ring writer;
            char *memory = (char *)lane->memory + lane->ring_bytes + RING_HEAD_BYTES;
            ring_init(&writer, memory, lane->ring_bytes);
            writer.position = *(_Atomic uint64_t *)(void *)memory;
            child_answer_write_head(77, ERROR_NONE, &record);
            assert_int_equal(ring_write(&writer, RECORD_ANSWER, record.data, record.size, NULL),
                             ERROR_NONE);
            buffer_deinit(&record);
        }
        const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
        struct error err = {0};
        while (world.n_losses == kind && child_world_mind(&world, &err) &&
               clock_now_ns() < until_ns)
            nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
        assert_int_equal(world.n_losses, kind + 1);
        go_on(&world, n_prompt, n_prompt + n_greedy);
    }
    child_world_close(&world);
    children_close(children);
}

/* ---- what is under way --------------------------------------------------------------------- */

/* Nobody waits for a process that takes nothing: there is room for so much, and what is beyond is
 * lost, and said. */
static void sending_does_not_wait(void **state)
{
    (void)state;
    struct children *children = open_children(NULL);
    struct child_world world;
    struct buffer message = {0};
    uint32_t n_taken = 0;
    open_world(&world, children, "a");
    struct lane *lane = world.lanes[0];
    wire_write_notice(&(struct wire_route){.instance = 7, .epoch = 1}, &message);
    assert_non_null(buffer_extend(&message, 1 << 16));
    memset(message.data + WIRE_HEADER_BYTES, 0, 1 << 16);
    stop(child_world_pid(&world, 0));
    while (lane_send(lane, message.data, message.size) == ERROR_NONE)
        n_taken++;
    assert_in_range(n_taken, LIMIT_LANE_PENDING,
                    LIMIT_LANE_PENDING + lane->ring_bytes / message.size);
    kill(child_world_pid(&world, 0), SIGKILL);
    go_on(&world, n_prompt, n_prompt + n_greedy);
    assert_true(world.n_losses > 0);
    assert_int_equal(lane_send(lane, "rubbish", 7), ERROR_INVALID);
    assert_non_null(buffer_extend(&message, lane->ring_bytes));
    assert_int_equal(lane_send(lane, message.data, message.size),
                     ERROR_INVALID); /* and its process stays */
    go_on(&world, n_prompt, n_prompt + n_greedy);
    buffer_deinit(&message);
    child_world_close(&world);
    children_close(children);
}

static void what_a_closed_lane_had_under_way(void **state)
{
    (void)state;
    struct children *children = NULL;
    const struct children_options options = {
        .sim_file = sim_path, .n_cpu_threads = 1, .work_ms = 50, .row_ms = 1};
    struct child_world first, second;
    assert_int_equal(children_open(&options, &children, NULL), ERROR_NONE);
    open_world(&first, children, "a");
    open_world(&second, children, "a");
    const pid_t pid = child_world_pid(&first, 0);
    work_begins(first.lanes[0], 1); /* its answer is not taken any more */
    child_world_close(&first);
    nanosleep(&(struct timespec){.tv_nsec = 600 * MS}, NULL);
    go_on(&second, n_prompt, n_prompt + n_greedy);
    assert_int_equal(child_world_pid(&second, 0), pid);
    child_world_close(&second);
    children_close(children);
}

/* ---- weights ------------------------------------------------------------------------------ */

static struct gpu *open_gpu(void)
{
    struct gpu *gpu = NULL;
    assert_int_equal(
        gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .sim_file = sim_path}, &gpu, NULL),
        ERROR_NONE);
    return gpu;
}

static uint64_t used(struct gpu *gpu)
{
    const struct device_memory memory = device_memory(gpu_find(gpu, "sim:a"));
    return memory.total_bytes - memory.free_bytes;
}

static bool waits_for(struct gpu *gpu, uint64_t bytes)
{
    const uint64_t until_ns = clock_now_ns() + (uint64_t)LIMIT_MS * MS;
    while (used(gpu) != bytes && clock_now_ns() < until_ns)
        nanosleep(&(struct timespec){.tv_nsec = MS}, NULL);
    return used(gpu) == bytes;
}

/* The device's memory is known at once: who plans by what is loaded plans by what is free then. */
static void lanes_of_one_model_share_weights(void **state)
{
    (void)state;
    struct gpu *gpu = open_gpu();
    struct children *children = open_children(gpu);
    struct child_world first;
    open_world(&first, children, "a");
    const uint64_t alone = used(gpu);
    assert_true(alone > 0 && alone <= lane_stage_bytes(first.lanes[0], 0));
    struct child_world second;
    open_world(&second, children, "a");
    const uint64_t both = used(gpu);
    assert_true(both - alone < alone);
    struct model *own = model, *again = open_model();
    model = again; /* for the node another one, though it is the same file */
    struct child_world third;
    open_world(&third, children, "a");
    assert_int_equal(used(gpu) - both, alone);
    child_world_close(&third);
    assert_int_equal(used(gpu), both);
    model = own;
    model_close(again);
    child_world_close(&first);
    assert_int_equal(used(gpu), alone); /* the weights are the second's, too */
    go_on(&second, n_prompt, n_prompt + n_greedy);
    child_world_close(&second);
    assert_true(waits_for(gpu, 0));
    children_close(children);
    gpu_close(gpu);
}

static void weights_stay_from_one_lane_to_the_next(void **state)
{
    (void)state;
    struct gpu *gpu = open_gpu();
    struct children *children = open_children(gpu);
    struct child_world first;
    open_world(&first, children, "aa");
    const uint64_t all = used(gpu);
    const pid_t pid = child_world_pid(&first, 0);
    const uint32_t n_layers = model_hyperparameters(model)->n_layers;
    const struct child_range ranges[] = {{0, 0, n_layers}, {1, 0, n_layers}};
    struct lane_pin *pin = lane_pin(first.lanes[0], ranges, 2);
    assert_non_null(pin);
    child_world_close(&first);
    const uint64_t weights = used(gpu);
    assert_true(weights > 0 && weights < all);
    struct child_world second;
    open_world(&second, children, "aa");
    assert_int_equal(child_world_pid(&second, 0), pid);
    assert_int_equal(used(gpu), all);
    lane_unpin(pin);
    go_on(&second, n_prompt, n_prompt + n_greedy);
    assert_int_equal(used(gpu), all);
    child_world_close(&second);
    assert_true(waits_for(gpu, 0));
    children_close(children);
    gpu_close(gpu);
}

static void weights_that_nobody_takes(void **state)
{
    (void)state;
    struct gpu *gpu = open_gpu();
    struct children *children = open_children(gpu);
    const struct child_range range = {0, 0, 1};
    for (int i = 0; i < 2; i++) {
        struct child_world world;
        open_world(&world, children, "a");
        struct lane_pin *pin = lane_pin(world.lanes[0], &range, 1);
        child_world_close(&world);
        assert_true(used(gpu) > 0);
        if (i)
            kill(children_pid(children, "sim:a"), SIGKILL);
        else
            lane_unpin(pin);
        assert_true(waits_for(gpu, 0));
        assert_int_equal(children_pid(children, "sim:a"), 0);
        if (i)
            lane_unpin(pin);
    }
    children_close(children);
    gpu_close(gpu);
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_go_along),
        cmocka_unit_test(what_cannot_be_asked),
        cmocka_unit_test(the_process_dies_meanwhile),
        cmocka_unit_test(what_it_held_is_lost_with_it),
        cmocka_unit_test(answers_that_are_wrong),
        cmocka_unit_test(sending_does_not_wait),
        cmocka_unit_test(what_a_closed_lane_had_under_way),
        cmocka_unit_test(lanes_of_one_model_share_weights),
        cmocka_unit_test(weights_stay_from_one_lane_to_the_next),
        cmocka_unit_test(weights_that_nobody_takes),
    };
    return cmocka_run_group_tests_name("runner_cache", tests, set_up, tear_down);
}
