/* The stage beyond its arithmetic: shapes, KV operations, replay, memory, refusals. */
#include "base/mem.h"
#include "engine/batch_shape.h"
#include "engine/stage.h"
#include "engine/weight_unit.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "model/tokenizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { VOCAB = 320, ROWS_MAX = 256 };

static struct gpu *gpu;
static struct device *cpu;
static struct model *model;

static int open_all(void **state)
{
    (void)state;
    struct error err = {0};
    struct gpu_options options = {.n_cpu_threads = 2, .skip_other = true};
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
    return (struct stage_options){
        .n_layers = 2, .n_slots = 4, .context = 300, .rows_max = 64, .kv_type = KV_F32};
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
        rows[i] = (struct batch_row){.slot = slot,
                                     .position = first + i,
                                     .token = (int32_t)((first + i) * 31 % VOCAB),
                                     .output = i + 1 == n};
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, NULL, out, &err))
        fail_msg("%s", err.text);
}

/* ---- its file ---- */

static void copy_file(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "cp '%s' '%s'", from, to);
    assert_int_equal(system(command), 0);
}

/* Weights lie in the mapped file. Reading them was the end of the process. */
static void test_a_file_that_is_cut_fails_what_reads_it(void **state)
{
    (void)state;
    char path[] = "/tmp/medley-cut-XXXXXX";
    struct error err = {0};
    struct model *cut;
    struct stage *stage, *other = open_stage(&(struct stage_options){
                             .n_layers = 2, .n_slots = 1, .context = 64, .rows_max = 8});
    struct stage_options options = whole();
    float logits[VOCAB];
    close(mkstemp(path));
    copy_file(gguf_file_path(model_file(model)), path);
    assert_int_equal(model_open(path, &cut, &err), ERROR_NONE);
    options.no_repack = true; /* as stored: in place */
    assert_int_equal(stage_open(cpu, cut, &options, &stage, &err), ERROR_NONE);
    feed(stage, 0, 0, 1, logits);
    assert_int_equal(truncate(path, 4096), 0);
    struct batch_row row = {.position = 1, .token = 31, .output = true};
    const struct batch batch = {.rows = &row, .n_rows = 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(stage_forward(stage, &batch, NULL, logits, &err), ERROR_IO);
        assert_non_null(strstr(err.text, path));
        assert_non_null(strstr(err.text, "was cut"));
    }
    assert_int_equal(stage_kv_length(stage, 0), 1);
    feed(other, 0, 0, 1, logits); /* another file is not concerned */
    stage_close(stage);
    /* and what is opened now meets it at once */
    struct tokenizer *tokenizer = NULL;
    assert_int_equal(tokenizer_open(model_file(cut), &tokenizer, &err), ERROR_IO);
    assert_int_equal(stage_open(cpu, cut, &options, &stage, &err), ERROR_IO);
    model_close(cut);
    stage_close(other);
    remove(path);
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
    assert_int_equal(batch_shape_read(&(struct batch){.rows = rows, .n_rows = 4}, &options, lengths,
                                      &shape, NULL),
                     0);
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
    assert_int_equal(batch_shape_read(&(struct batch){.rows = rows, .n_rows = n}, &options, lengths,
                                      &shape, &err),
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
    struct batch_row apart[] = {
        {.slot = 0, .position = 5}, {.slot = 1}, {.slot = 0, .position = 6}};
    expect_refused(gap, 1, "continues at position 5, not 6");
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

static void test_copied_slots_go_on_the_same(void **state)
{
    (void)state;
    struct stage_options options = whole();
    struct stage *stage = open_stage(&options);
    struct error err = {0};
    float want[VOCAB], got[VOCAB];
    feed(stage, 0, 0, 40, want);
    assert_int_equal(stage_kv_copy(stage, 0, 3, 40, &err), 0);
    feed(stage, 0, 40, 3, want);
    feed(stage, 3, 40, 3, got);
    assert_memory_equal(want, got, sizeof want);

    assert_int_equal(stage_kv_copy(stage, 1, 2, 1, &err), ERROR_INVALID);
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

/* What a replay relies on, and a single sequence beside others: ggml has ways of its own for 64
 * rows and more, and for one row that looks back on 512. */
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
    assert_true(measured.kv ==
                2u * 2 * 4 * 512 * 2 * 32 * 4); /* layers, K+V, slots, cells, heads, width, bytes */
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
    assert_int_equal(
        stage_forward(stage, &(struct batch){.rows = &row, .n_rows = 1}, NULL, out, NULL),
        ERROR_INVALID);
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

/* Row by row and layer by layer, into another slot of another stage. */
static void test_rows_of_a_cache_go_over(void **state)
{
    (void)state;
    const struct stage_options options = whole();
    struct stage *from = open_stage(&options), *to = open_stage(&options);
    float here[VOCAB], there[VOCAB];
    feed(from, 1, 0, 50, here);
    uint8_t *rows = malloc(30 * stage_kv_row_bytes(from));
    assert_non_null(rows);
    for (uint32_t layer = 0; layer < options.n_layers; layer++) {
        for (uint32_t first = 0; first < 50; first += 30) {
            const struct kv_run run = {layer, 1, first, first ? 20 : 30},
                                into = {layer, 3, first, first ? 20 : 30};
            assert_int_equal(stage_kv_read(from, &run, rows, NULL), ERROR_NONE);
            assert_int_equal(stage_kv_write(to, &into, rows, NULL), ERROR_NONE);
        }
    }
    assert_int_equal(stage_kv_set_length(to, 3, 50, NULL), ERROR_NONE);
    feed(from, 1, 50, 1, here);
    feed(to, 3, 50, 1, there);
    assert_memory_equal(here, there, sizeof here);
    const struct kv_run wrong[] = {
        {2, 1, 0, 1}, {0, 4, 0, 1}, {0, 1, 51, 1}, {0, 1, 0, 52}, {0, 1, UINT32_MAX, 2}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(stage_kv_read(from, &wrong[i], rows, NULL), ERROR_INVALID);
    assert_int_equal(stage_kv_write(to, &(struct kv_run){0, 1, 290, 20}, rows, NULL),
                     ERROR_INVALID);
    free(rows);
    stage_close(from);
    stage_close(to);
}

/* ---- windowed layers ---- */

enum { LONG = 1000, STEP = 50, RING = 256 };

static struct model *open_windowed(void)
{
    struct error err = {0};
    struct model *windowed;
    char path[512];
    snprintf(path, sizeof path, "%s/models/gemma3.gguf", getenv("MEDLEY_GOLDEN"));
    if (model_open(path, &windowed, &err))
        fail_msg("%s", err.text);
    return windowed;
}

static struct stage *open_long(struct model *windowed, uint32_t rows_max, enum flash_mode flash)
{
    const struct stage_options options = {.n_layers = model_hyperparameters(windowed)->n_layers,
                                          .n_slots = 4,
                                          .context = LONG,
                                          .rows_max = rows_max,
                                          .kv_type = KV_F32,
                                          .flash = flash};
    struct error err = {0};
    struct stage *stage;
    if (stage_open(cpu, windowed, &options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

static void feed_long(struct stage *stage, uint32_t slot, uint32_t from, uint32_t to, float *out)
{
    for (uint32_t at = from, n; at < to; at += n) {
        n = to - at < STEP ? to - at : STEP;
        feed(stage, slot, at, n, out);
    }
}

/* Micro-batches of all rows leave no room for less than the whole context. */
static void test_a_window_gives_the_logits_of_the_whole_context(void **state)
{
    (void)state;
    struct model *windowed = open_windowed();
    for (enum flash_mode flash = FLASH_ON; flash <= FLASH_OFF; flash++) {
        struct stage *all = open_long(windowed, LONG, flash),
                     *ring = open_long(windowed, STEP, flash);
        float want[VOCAB], got[VOCAB];
        const uint64_t kv = stage_memory(all).kv; /* a sixth layer sees everything */
        assert_int_equal(stage_memory(ring).kv, kv / 7 + kv / 7 * 6 / 1024 * RING);
        for (uint32_t at = 0; at < LONG; at += STEP) {
            feed(all, 1, at, STEP, want);
            feed(ring, 1, at, STEP, got);
            if (at < LONG / 2) { /* another sequence beside it */
                feed(ring, 2, 2 * at, STEP, got);
                feed(ring, 2, 2 * at + STEP, STEP, got);
                continue;
            }
            for (uint32_t i = 0; i < VOCAB; i++)
                assert_true(flash == FLASH_ON ? got[i] == want[i]
                                              : fabsf(got[i] - want[i]) < 1e-4f);
        }
        stage_close(all);
        stage_close(ring);
    }
    model_close(windowed);
}

static void test_a_window_that_is_gone_is_refused(void **state)
{
    (void)state;
    struct model *windowed = open_windowed();
    struct stage *stage = open_long(windowed, STEP, FLASH_ON);
    float want[VOCAB], got[VOCAB];
    struct error err = {0};
    feed_long(stage, 0, 0, 450, want);
    feed_long(stage, 1, 0, 600, want);
    feed_long(stage, 1, 600, 605, want);
    stage_kv_truncate(stage, 1, 450); /* its window is still there */
    feed(stage, 1, 450, 1, got);
    feed(stage, 0, 450, 1, want);
    assert_memory_equal(got, want, sizeof got);
    assert_int_equal(stage_kv_copy(stage, 1, 3, 451, &err), ERROR_NONE);
    feed(stage, 3, 451, 1, got);
    feed(stage, 0, 451, 1, want);
    assert_memory_equal(got, want, sizeof got);
    stage_kv_truncate(stage, 1, 300); /* and here no more */
    const struct batch_row row = {.slot = 1, .position = 300, .token = 1, .output = true};
    assert_int_equal(
        stage_forward(stage, &(struct batch){.rows = &row, .n_rows = 1}, NULL, got, &err),
        ERROR_INVALID);
    assert_non_null(strstr(err.text, "begin at 349"));
    stage_kv_truncate(stage, 1, 0);
    feed_long(stage, 1, 0, 453, got);
    feed(stage, 0, 452, 1, want);
    assert_memory_equal(got, want, sizeof got);
    stage_close(stage);
    model_close(windowed);
}

/* A ring's rows stand in another order in a slot of another ring. */
static void test_a_window_goes_over(void **state)
{
    (void)state;
    struct model *windowed = open_windowed();
    const struct hyperparameters *h = model_hyperparameters(windowed);
    struct stage *from = open_long(windowed, STEP, FLASH_ON),
                 *to = open_long(windowed, 4 * STEP, FLASH_ON);
    float here[VOCAB], there[VOCAB];
    const uint32_t n = 515; /* the window lies across the end of a ring */
    feed_long(from, 1, 0, n, here);
    uint8_t *rows = malloc(n * stage_kv_row_bytes(from));
    assert_non_null(rows);
    for (uint32_t layer = 0; layer < h->n_layers; layer++) {
        const uint32_t first = h->layers[layer].is_windowed ? n - h->window : 0;
        const struct kv_run run = {layer, 1, first, n - first}, into = {layer, 3, first, n - first};
        assert_int_equal(stage_kv_read(from, &run, rows, NULL), ERROR_NONE);
        assert_int_equal(stage_kv_write(to, &into, rows, NULL), ERROR_NONE);
        assert_int_equal(stage_kv_read(from, &(struct kv_run){layer, 1, 0, n}, rows, NULL),
                         first ? ERROR_INVALID : ERROR_NONE);
    }
    assert_int_equal(stage_kv_set_length(to, 3, n, NULL), ERROR_NONE);
    for (uint32_t i = 0; i < 300; i++) {
        feed(from, 1, n + i, 1, here);
        feed(to, 3, n + i, 1, there);
        assert_memory_equal(here, there, sizeof here);
    }
    free(rows);
    stage_close(from);
    stage_close(to);
    model_close(windowed);
}

/* What one stage has loaded serves the next one, whichever of them goes first. */
static void test_stages_share_what_is_loaded(void **state)
{
    (void)state;
    const struct stage_options both = whole();
    struct stage_options half = whole();
    half.n_layers = 1;
    float alone[VOCAB], beside[VOCAB], after[VOCAB];
    struct stage *first = open_stage(&both);
    feed(first, 0, 0, 20, alone);
    struct weight_unit *unit = weight_unit_take(cpu, model, 1, true);
    assert_non_null(unit);
    assert_true(unit->is_loaded && unit->n_users == 2);
    struct stage *second = open_stage(&both);
    struct stage *third = open_stage(&half);
    assert_int_equal(unit->n_users, 3);
    feed(second, 0, 0, 20, beside);
    stage_close(first);
    feed(second, 1, 0, 20, after);
    assert_memory_equal(alone, beside, sizeof alone);
    assert_memory_equal(alone, after, sizeof alone);
    struct stage_pin *pin = stage_pin(second, 1, 1);
    stage_close(second);
    assert_int_equal(unit->n_users, 2);
    stage_unpin(pin);
    assert_int_equal(unit->n_users, 1);
    weight_unit_drop(unit);
    unit = weight_unit_take(cpu, model, 1, true);
    assert_true(unit && !unit->is_loaded); /* gone with its last user */
    weight_unit_drop(unit);
    stage_close(third);
}

static uint64_t resident_bytes(void)
{
    unsigned long long all, resident;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &all, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* What no slot has of a pool goes back to the system, once, and comes again as slots grow; what a
 * slot has stays as it is. */
static void test_unused_cells_go_back_to_the_system(void **state)
{
    (void)state;
    struct stage_options options = whole();
    float before[VOCAB], after[VOCAB];
    options.cells = 128 * KV_PADDING;
    options.context = 16 * KV_PADDING;
    struct stage *stage = open_stage(&options);
    const uint64_t kv_bytes = stage_memory(stage).kv;
    feed(stage, 0, 0, 60, NULL);
    feed(stage, 1, 0, 60, NULL);
    feed(stage, 1, 60, 1, before);
    feed_long(stage, 2, 0, options.context, NULL); /* pages come as tokens are written */
    stage_kv_truncate(stage, 2, 0);
    const uint64_t resident = resident_bytes(), given = stage_kv_give_back(stage);
    const uint64_t left = resident_bytes();
    assert_true(given <= kv_bytes && given >= kv_bytes / 128 * 110 /* whole pages */);
    assert_true(left < resident && resident - left >= kv_bytes / 128 * 16 / 2);
    assert_int_equal(stage_kv_give_back(stage), 0);
    stage_kv_truncate(stage, 1, 0);
    assert_true(stage_kv_give_back(stage) > 0);
    feed(stage, 1, 0, 60, NULL);
    feed(stage, 1, 60, 1, after);
    assert_memory_equal(before, after, sizeof before);
    feed(stage, 0, 60, 1, after);
    assert_memory_equal(before, after, sizeof before);
    stage_close(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file_that_is_cut_fails_what_reads_it),
        cmocka_unit_test(test_neighbouring_decodes_are_one_group),
        cmocka_unit_test(test_senseless_batches_are_refused),
        cmocka_unit_test(test_truncated_slot_replays_the_same),
        cmocka_unit_test(test_copied_slots_go_on_the_same),
        cmocka_unit_test(test_cells_beyond_the_padding_are_seen),
        cmocka_unit_test(test_unused_cells_go_back_to_the_system),
        cmocka_unit_test(test_a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(test_measured_memory_is_what_it_takes),
        cmocka_unit_test(test_stages_share_what_is_loaded),
        cmocka_unit_test(test_rows_of_a_cache_go_over),
        cmocka_unit_test(test_a_window_gives_the_logits_of_the_whole_context),
        cmocka_unit_test(test_a_window_that_is_gone_is_refused),
        cmocka_unit_test(test_a_window_goes_over),
        cmocka_unit_test(test_too_much_is_refused_with_numbers),
        cmocka_unit_test(test_wrong_options_are_refused),
        cmocka_unit_test(test_foreign_token_is_refused_and_the_slot_stays),
        cmocka_unit_test(test_failing_allocations_leak_nothing),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
