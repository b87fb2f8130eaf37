/* The stage beyond its arithmetic: shapes, KV operations, replay, memory, refusals. */
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { VOCAB = 320, ROWS_MAX = 256 };

static struct gpu *gpu;
static struct device *cpu;
static struct model *model;

static int open_all(void **state)
{
    (void)state;
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2, .skip_other = true, .steady = true};
    char path[512];
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/models/qwen3.gguf", getenv("MEDLEY_GOLDEN"));
    if (gpu_open(&options, &gpu, &err) || model_open(path, &model, &err))
        fail_msg("%s", err.text);
    cpu = gpu_find(gpu, "cpu");
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    model_close(model);
    gpu_close(gpu);
    return 0;
}

static struct stage_options whole(void)
{
    return (struct stage_options){.n_layers = 2, .n_slots = 4, .context = 300, .rows_max = 64, .kv_type = KV_F32};
}

static struct stage *open_stage(const struct stage_options *options)
{
    struct stage *stage;
    struct error err = {0};
    if (stage_open(cpu, model, options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

/* Feeds n tokens (a fixed sequence by position) to a slot; the last one's logits to `out`. */
static void feed(struct stage *stage, uint32_t slot, uint32_t first, uint32_t n, float *out)
{
    struct batch_row rows[ROWS_MAX];
    struct error err = {0};
    for (uint32_t i = 0; i < n; i++)
        rows[i] = (struct batch_row){
            .slot = slot, .position = first + i, .token = (int32_t)((first + i) * 31 % VOCAB), .output = i + 1 == n};
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, NULL, out, &err))
        fail_msg("%s", err.text);
}

/* ---- shapes ---- */

static void test_neighbouring_decodes_are_one_group(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct batch_row rows[] = {{.slot = 0, .position = 5, .output = true},
                               {.slot = 1, .position = 9, .output = true},
                               {.slot = 3, .position = 0},
                               {.slot = 3, .position = 1, .output = true}};
    uint32_t lengths[] = {5, 9, 0, 0};
    struct batch_shape shape;
    assert_int_equal(batch_shape_read(&(struct batch){.rows = rows, .n_rows = 4}, &options, lengths, &shape, NULL), 0);
    assert_int_equal(shape.n_groups, 2);
    assert_int_equal(shape.groups[0].n_slots, 2);
    assert_int_equal(shape.groups[0].rows_per_slot, 1);
    assert_int_equal(shape.groups[1].first_slot, 3);
    assert_int_equal(shape.groups[1].rows_per_slot, 2);
    assert_int_equal(shape.n_outputs, 3);
    assert_int_equal(shape.n_kv, KV_PADDING);
}

static void expect_refused(const struct batch_row *rows, uint32_t n, const char *words)
{
    struct stage_options options = whole();
    uint32_t lengths[] = {5, 0, 299, 0};
    struct batch_shape shape;
    struct error err = {0};
    assert_int_equal(batch_shape_read(&(struct batch){.rows = rows, .n_rows = n}, &options, lengths, &shape, &err),
                     ERROR_INVALID);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

static void test_senseless_batches_are_refused(void **state)
{
    (void)state;
    struct batch_row gap[] = {{.slot = 0, .position = 6}};
    struct batch_row no_slot[] = {{.slot = 4}};
    struct batch_row too_long[] = {{.slot = 2, .position = 299}, {.slot = 2, .position = 300}};
    struct batch_row apart[] = {{.slot = 0, .position = 5}, {.slot = 1}, {.slot = 0, .position = 6}};
    expect_refused(gap, 1, "goes on at position 5, not 6");
    expect_refused(no_slot, 1, "slot 4");
    expect_refused(too_long, 2, "context of 300");
    expect_refused(apart, 3, "position");
    expect_refused(gap, 0, "0 rows");
}

/* ---- KV ---- */

static void test_truncated_slot_replays_the_same(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = open_stage(&options);
    float first[VOCAB], again[VOCAB];
    feed(stage, 2, 0, 20, first);
    feed(stage, 2, 20, 30, again);
    stage_kv_truncate(stage, 2, 12);
    assert_int_equal(stage_kv_length(stage, 2), 12);
    feed(stage, 2, 12, 8, again);
    assert_memory_equal(first, again, sizeof first);
    stage_close(stage);
}

static void test_copied_and_imported_slots_go_on_the_same(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = open_stage(&options);
    struct error err = {0};
    float want[VOCAB], got[VOCAB];
    feed(stage, 0, 0, 40, want);
    uint64_t size = stage_kv_export_size(stage, 40);
    void *bytes = malloc(size);
    assert_int_equal(stage_kv_export(stage, 0, 40, bytes, &err), 0);
    assert_int_equal(stage_kv_copy(stage, 0, 3, 40, &err), 0);
    feed(stage, 0, 40, 3, want);
    feed(stage, 3, 40, 3, got);
    assert_memory_equal(want, got, sizeof want);

    struct stage *other = open_stage(&options);
    assert_int_equal(stage_kv_import(other, 1, 40, bytes, size, &err), 0);
    feed(other, 1, 40, 3, got);
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(stage_kv_import(other, 1, 40, bytes, size - 1, &err), ERROR_INVALID);
    assert_int_equal(stage_kv_copy(other, 0, 1, 1, &err), ERROR_INVALID);
    free(bytes);
    stage_close(other);
    stage_close(stage);
}

static void test_cells_beyond_the_padding_are_seen(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = open_stage(&options);
    float chunked[VOCAB], single[VOCAB];
    for (uint32_t at = 0; at < 290; at += 58)
        feed(stage, 0, at, 58, chunked);
    for (uint32_t at = 0; at < 290; at++)
        feed(stage, 1, at, 1, single);
    for (int i = 0; i < VOCAB; i++)
        assert_true(chunked[i] - single[i] < 1e-3f && single[i] - chunked[i] < 1e-3f);
    stage_close(stage);
}

/* What a replay relies on, and a single sequence beside others: ggml has ways of its own for 64 rows and more, and for
 * one row that looks back on 512. */
static void test_a_row_has_the_same_bits_in_any_batch(void **state)
{
    (void)state;
    struct stage_options options = whole();
    options.context = 600, options.rows_max = ROWS_MAX, options.kv_type = KV_F16;
    struct stage *stage = open_stage(&options);
    float whole_prompt[VOCAB], chunked[VOCAB], single[VOCAB];
    feed(stage, 0, 0, 256, whole_prompt);
    feed(stage, 0, 256, 256, whole_prompt);
    feed(stage, 0, 512, 70, whole_prompt);
    for (uint32_t at = 0; at < 582; at += 6)
        feed(stage, 1, at, 6, chunked);
    for (uint32_t at = 0; at < 582; at++)
        feed(stage, 2, at, 1, single);
    assert_memory_equal(chunked, single, sizeof single);
    assert_memory_equal(whole_prompt, single, sizeof single);
    stage_close(stage);
}

/* ---- memory and refusals ---- */

static void test_measured_memory_is_what_it_takes(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage_memory measured;
    struct error err = {0};
    assert_int_equal(stage_measure(cpu, model, &options, &measured, &err), 0);
    struct stage *stage = open_stage(&options);
    struct stage_memory taken = stage_memory(stage);
    assert_memory_equal(&measured, &taken, sizeof taken);
    assert_true(measured.kv == 2u * 2 * 4 * 512 * 2 * 32 * 4); /* layers, K+V, slots, cells, heads, width, bytes */
    assert_true(measured.weights >= model_weight_bytes(model) && measured.compute > 0);
    stage_close(stage);
}

static void test_too_much_is_refused_with_numbers(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage;
    struct error err = {0};
    options.context = LIMIT_CONTEXT;
    options.n_slots = LIMIT_SEQUENCES;
    assert_int_equal(stage_open(cpu, model, &options, &stage, &err), ERROR_NO_MEMORY);
    assert_non_null(strstr(err.text, "GiB is free"));
    assert_non_null(strstr(err.text, "would fit"));
}

static void test_wrong_options_are_refused(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage;
    options.n_layers = 3;
    assert_int_equal(stage_open(cpu, model, &options, &stage, NULL), ERROR_INVALID);
    options = whole();
    options.n_slots = 0;
    assert_int_equal(stage_open(cpu, model, &options, &stage, NULL), ERROR_INVALID);
    options = whole();
    options.first_layer = UINT32_MAX;
    assert_int_equal(stage_open(cpu, model, &options, &stage, NULL), ERROR_INVALID);
}

static void test_foreign_token_is_refused_and_the_slot_stays(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = open_stage(&options);
    struct batch_row row = {.token = VOCAB, .output = true};
    float out[VOCAB];
    assert_int_equal(stage_forward(stage, &(struct batch){.rows = &row, .n_rows = 1}, NULL, out, NULL), ERROR_INVALID);
    assert_int_equal(stage_kv_length(stage, 0), 0);
    feed(stage, 0, 0, 1, out);
    stage_close(stage);
}

static void test_failing_allocations_leak_nothing(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = NULL;
    struct error err = {0};
    unsigned nth = 1;
    enum error_code code;
    do {
        mem_fail_nth(nth++);
        code = stage_open(cpu, model, &options, &stage, &err);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
    } while (code && nth < 100);
    mem_fail_nth(0);
    assert_int_equal(code, ERROR_NONE);
    assert_true(nth > 4);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_neighbouring_decodes_are_one_group),
        cmocka_unit_test(test_senseless_batches_are_refused),
        cmocka_unit_test(test_truncated_slot_replays_the_same),
        cmocka_unit_test(test_copied_and_imported_slots_go_on_the_same),
        cmocka_unit_test(test_cells_beyond_the_padding_are_seen),
        cmocka_unit_test(test_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(test_measured_memory_is_what_it_takes),
        cmocka_unit_test(test_too_much_is_refused_with_numbers),
        cmocka_unit_test(test_wrong_options_are_refused),
        cmocka_unit_test(test_foreign_token_is_refused_and_the_slot_stays),
        cmocka_unit_test(test_failing_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
