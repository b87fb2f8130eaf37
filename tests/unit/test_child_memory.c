/* A device's process whose memory others take: it gives up some of what its stages have, the reply
 * goes on, and all of it comes back. On a simulated device, with a real model. */
#include "child_world.h"

#include "base/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { LIMIT_MS = 60000, Q4_0 = 2, PROMPT = 40, TOKENS = 120, MS = 1000000 };
static const uint64_t memory_bytes = 1 << 30;

static struct model *model;

static int open_demo(void **state)
{
    (void)state;
    char path[1024];
    struct error err = {0};
    assert_non_null(getenv("MEDLEY_ROOT"));
    snprintf(path, sizeof path, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_demo(void **state)
{
    (void)state;
    model_close(model);
    return 0;
}

static char *sim_file(const char *others, char *path, size_t size)
{
    static const char device[] = "memory = 1GiB\ndecode = 100GB/s\nflops = 100TFLOP/s\n"
                                 "launch = 2ms\ncopy = 1TB/s\n";
    char ini[512];
    snprintf(path, size, "/tmp/medley-memory-XXXXXX");
    const int descriptor = mkstemp(path),
              n = snprintf(ini, sizeof ini, "[a]\n%s%s\n[b]\n%s", device, others, device);
    assert_true(descriptor >= 0 && write(descriptor, ini, (size_t)n) == n);
    close(descriptor);
    return path;
}

struct place {
    struct child_world world;
    struct gpu *gpu;
    char path[64];
};

/* The model on one device, or on two of which others take memory of the first; `allowed`: the type
 * that weights may become. */
static void place_open(struct place *place, const char *others, uint32_t n_stages, int allowed)
{
    struct error err = {0};
    *place = (struct place){
        .world = {.model = model, .n_stages = n_stages, .devices = {"sim:a", "sim:b"}}};
    sim_file(others, place->path, sizeof place->path);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .sim_file = place->path}, &place->gpu,
                 &err))
        fail_msg("%s", err.text);
    const struct children_options options = {
        .gpu = place->gpu, .sim_file = place->path, .n_cpu_threads = 1, .pause_ms = 5};
    if (children_open(&options, &place->world.children, &err))
        fail_msg("%s", err.text);
    place->world.options =
        (struct driver_options){.n_slots = 2, .context = 512, .precision_allowed = allowed};
    child_world_open(&place->world);
}

static void place_close(struct place *place)
{
    child_world_close(&place->world);
    children_close(place->world.children);
    gpu_close(place->gpu);
    remove(place->path);
}

/* What the process has told with its stages. */
static uint64_t place_used(const struct place *place)
{
    const struct device_memory memory = device_memory(gpu_find(place->gpu, "sim:a"));
    assert_int_equal(memory.total_bytes, memory_bytes);
    return memory.total_bytes - memory.free_bytes;
}

static struct reply place_reply(struct place *place)
{
    struct reply reply = {.n_prompt = PROMPT, .n_predict = TOKENS};
    for (int32_t i = 0; i < PROMPT; i++)
        reply.tokens[i] = 300 + 11 * i;
    if (!child_world_reply(&place->world, &reply, LIMIT_MS))
        fail_msg("no reply: %s", reply.error.text);
    return reply;
}

/* What others leave of the first device, less than the stages take by so much. */
static void others_line(uint64_t used, double less_mib, char out[128])
{
    snprintf(out, 128, "others = %.3fMiB at 1s, 0B at 4s\n",
             (double)(memory_bytes - used) / (1 << 20) + less_mib);
}

struct season { /* replies while others have memory, until all is as placed */
    uint32_t n_replies, n_formed, n_wrong;
    struct memory_step step;
    struct reply last;
};

/* `form`: one that is to be taken; `expected`: the reply of stages that are as placed. */
static void season_pass(struct place *place, enum memory_form form, const struct reply *expected,
                        struct season *out)
{
    const uint64_t begun_ns = clock_now_ns(), end_ns = begun_ns + UINT64_C(36000) * MS;
    *out = (struct season){0};
    do {
        out->last = place_reply(place);
        assert_int_equal(out->last.n_tokens, PROMPT + TOKENS);
        out->step = lane_memory_step(place->world.lanes[0]);
        out->n_formed += out->step.form == form;
        out->n_wrong += memcmp(out->last.tokens, expected->tokens, sizeof expected->tokens) != 0;
        out->n_replies++;
    } while (clock_now_ns() - begun_ns < UINT64_C(3000) * MS ||
             ((out->step.step || out->step.is_changing) && clock_now_ns() < end_ns));
    print_message("# %u replies, %u in that form, %u with other tokens; as placed after %.1f s\n",
                  out->n_replies, out->n_formed, out->n_wrong,
                  (double)(clock_now_ns() - begun_ns) / 1e9);
    assert_true(out->n_formed > 0);
    assert_int_equal(out->step.form, MEMORY_AS_PLACED);
    assert_int_equal(out->step.step, 0);
    assert_int_equal(place->world.n_losses, 0); /* its process has lived on */
}

/* Half of the weights streamed gives the same bits, so every reply is as without others. */
static void weights_go_to_the_disk_and_come_back(void **state)
{
    (void)state;
    struct place place;
    struct season season;
    char others[128];
    place_open(&place, "", 1, 0);
    const uint64_t used = place_used(&place);
    const struct reply expected = place_reply(&place);
    assert_int_equal(expected.n_tokens, PROMPT + TOKENS);
    assert_int_equal(lane_memory_step(place.world.lanes[0]).step, 0);
    place_close(&place);

    others_line(used, 0.4, others);
    place_open(&place, others, 1, 0);
    season_pass(&place, MEMORY_STREAMED, &expected, &season);
    assert_int_equal(season.n_wrong, 0);
    place_close(&place);
}

/* Stages too small to be streamed: their weights become smaller where their owner allows it. */
static void weights_get_smaller_with_leave_and_are_as_stored_again(void **state)
{
    (void)state;
    struct place place;
    struct season season;
    char others[128];
    place_open(&place, "", 2, Q4_0);
    const uint64_t used = place_used(&place);
    const struct reply expected = place_reply(&place);
    place_close(&place);

    others_line(used, 0.1, others);
    place_open(&place, others, 2, Q4_0);
    season_pass(&place, MEMORY_LOWER, &expected, &season);
    assert_true(season.n_wrong > 0); /* what it costs is seen */
    const struct reply again = place_reply(&place);
    assert_memory_equal(again.tokens, expected.tokens, sizeof expected.tokens);
    place_close(&place);
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_go_to_the_disk_and_come_back),
        cmocka_unit_test(weights_get_smaller_with_leave_and_are_as_stored_again),
    };
    return cmocka_run_group_tests_name("child_memory", tests, open_demo, close_demo);
}
