/* Which device would stream a model that none holds, and how fast. */
#include "plan/plan_stream.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 32, MIB = 1 << 20 };

static struct placement_layer layers[LAYERS];
static struct placement_device devices[2];
static struct placement_link links[4];

/* 32 layers of 100 MiB, 100 MiB at the ends; device 0 reads 10 GB/s, device 1 100 GB/s. */
static struct placement_problem pose(uint64_t memory_0, uint64_t memory_1)
{
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (struct placement_layer){.bytes = {100 * MIB}, .bytes_per_token = {100 * MIB}};
    devices[0] = (struct placement_device){.id = "cpu",
                                           .memory_free_bytes = memory_0,
                                           .share = 1,
                                           .decode_bytes_per_s = {10e9},
                                           .kv_bytes_per_s = 10e9};
    devices[1] = (struct placement_device){.id = "gpu",
                                           .memory_free_bytes = memory_1,
                                           .share = 1,
                                           .decode_bytes_per_s = {100e9},
                                           .kv_bytes_per_s = 100e9};
    return (struct placement_problem){
        .n_devices = 2,
        .devices = devices,
        .links = links,
        .model = {.n_types = 1,
                  .type_names = {"Q4_K"},
                  .n_layers = LAYERS,
                  .layers = layers,
                  .output = {.bytes = {100 * MIB}, .bytes_per_token = {100 * MIB}},
                  .activation_bytes_per_token = 4096},
        .demand = {.goal = PLACEMENT_LATENCY, .context_tokens = 256, .streams = 1},
    };
}

static void test_the_disk_is_what_a_token_waits_for(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)1700 * MIB, 0);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    assert_int_equal(stream.device, 0);
    /* 16 of 32 would fit; two slots, a few pages larger than a layer, take the place of three */
    assert_int_equal(stream.n_streamed, 20);
    assert_int_equal(stream.streamed_bytes, (uint64_t)20 * 100 * MIB);
    assert_true(stream.decode_tokens_per_s > 0.999 * 1e9 / (20 * 100 * 0x1p20));
    assert_true(stream.decode_tokens_per_s < 1.001 * 1e9 / (20 * 100 * 0x1p20));
    assert_true(stream.resident_tokens_per_s > 2.5 && stream.resident_tokens_per_s < 3);
    assert_int_equal(stream.missing_bytes, (uint64_t)1600 * MIB);
}

static void test_more_memory_beats_a_faster_device(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)3000 * MIB, (uint64_t)500 * MIB);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    assert_int_equal(stream.device, 0);
    /* a disk that keeps up with anything: then the faster one */
    assert_true(plan_stream_choose(&problem, 0, UINT64_C(1000000000000), &stream));
    assert_int_equal(stream.device, 1);
}

static void test_the_users_limit_holds(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)8000 * MIB, 0);
    struct plan_stream stream;
    assert_true(plan_stream_choose(&problem, (uint64_t)1000 * MIB, 1000000000, &stream));
    assert_int_equal(stream.weights_max, (uint64_t)1000 * MIB);
    assert_true(stream.n_streamed >= 24);
}

static void test_too_little_for_a_window(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)150 * MIB, (uint64_t)100 * MIB);
    struct plan_stream stream;
    assert_false(plan_stream_choose(&problem, 0, 1000000000, &stream));
}

static void test_its_words(void **state)
{
    (void)state;
    const struct placement_problem problem = pose((uint64_t)1700 * MIB, 0);
    struct plan_stream stream;
    struct buffer text = {0};
    assert_true(plan_stream_choose(&problem, 0, 1000000000, &stream));
    plan_stream_text(&stream, "cpu", &text);
    assert_string_equal(text.data, "0.48 tok/s with 20 of 32 layers streamed from this disk (1.0 "
                                   "GB/s); 2.9 with 1.6 GiB more on cpu");
    buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_disk_is_what_a_token_waits_for),
        cmocka_unit_test(test_more_memory_beats_a_faster_device),
        cmocka_unit_test(test_the_users_limit_holds),
        cmocka_unit_test(test_too_little_for_a_window),
        cmocka_unit_test(test_its_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
