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

enum { LIMIT_MS = 60000, PROMPT = 40, TOKENS = 120, MS = 1000000 };
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
    char ini[256];
    snprintf(path, size, "/tmp/medley-memory-XXXXXX");
    const int descriptor = mkstemp(path), n = snprintf(ini, sizeof ini,
                                                       "[a]\nmemory = 1GiB\ndecode = 100GB/s\n"
                                                       "flops = 100TFLOP/s\nlaunch = 2ms\n"
                                                       "copy = 1TB/s\n%s",
                                                       others);
    assert_true(descriptor >= 0 && write(descriptor, ini, (size_t)n) == n);
    close(descriptor);
    return path;
}

struct place {
    struct child_world world;
    struct gpu *gpu;
    char path[64];
};

static void place_open(struct place *place, const char *others)
{
    struct error err = {0};
    *place = (struct place){.world = {.model = model, .n_stages = 1, .devices = {"sim:a"}}};
    sim_file(others, place->path, sizeof place->path);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 1, .sim_file = place->path}, &place->gpu,
                 &err))
        fail_msg("%s", err.text);
    const struct children_options options = {
        .gpu = place->gpu, .sim_file = place->path, .n_cpu_threads = 1, .pause_ms = 5};
    if (children_open(&options, &place->world.children, &err))
        fail_msg("%s", err.text);
    place->world.options = (struct driver_options){.n_slots = 2, .context = 512};
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
        reply.tokens[i] = 300 + 7 * i;
    if (!child_world_reply(&place->world, &reply, LIMIT_MS))
        fail_msg("no reply: %s", reply.error.text);
    return reply;
}

/* Half of the weights streamed gives the same bits, so every reply is as without others. */
static void weights_go_to_the_disk_and_come_back(void **state)
{
    (void)state;
    struct place place;
    place_open(&place, "");
    const uint64_t used = place_used(&place);
    const struct reply expected = place_reply(&place);
    assert_int_equal(expected.n_tokens, PROMPT + TOKENS);
    assert_int_equal(lane_memory_step(place.world.lanes[0]).step, 0);
    place_close(&place);

    char others[128];
    snprintf(others, sizeof others, "others = %.3fMiB at 1s, 0B at 6s\n",
             (double)(memory_bytes - used) / (1 << 20) + 0.4);
    place_open(&place, others);
    const uint64_t begun_ns = clock_now_ns(), end_ns = begun_ns + UINT64_C(36000) * MS;
    uint32_t n_replies = 0, n_streamed = 0;
    struct memory_step step = {0};
    do {
        const struct reply reply = place_reply(&place);
        assert_memory_equal(reply.tokens, expected.tokens, sizeof(int32_t) * (PROMPT + TOKENS));
        step = lane_memory_step(place.world.lanes[0]);
        n_streamed += step.form == MEMORY_STREAMED;
        n_replies++;
    } while (clock_now_ns() - begun_ns < UINT64_C(3000) * MS ||
             ((step.step || step.is_changing) && clock_now_ns() < end_ns));
    print_message("# %u replies, %u with streamed weights; as placed after %.1f s\n", n_replies,
                  n_streamed, (double)(clock_now_ns() - begun_ns) / 1e9);
    assert_true(n_streamed > 0);
    assert_int_equal(step.form, MEMORY_AS_PLACED);
    assert_int_equal(step.step, 0);
    assert_int_equal(place.world.n_losses, 0); /* its process has lived on */
    place_close(&place);
}

int main(int argc, char **argv)
{
    child_main(argc, argv);
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_go_to_the_disk_and_come_back)};
    return cmocka_run_group_tests_name("child_memory", tests, open_demo, close_demo);
}
