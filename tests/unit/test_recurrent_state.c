/* The state of recurrent layers over its life: slots that are used again, cut, copied; chunks of
 * any size; what the driver may reuse of it. */
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/model.h"
#include "pipeline/slots.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_VOCAB_MAX = 512, N_ROWS_MAX = 64, N_SLOTS = 4 };

static const char *const names[] = {"lfm2",   "granitehybrid", "nemotron_h_moe", "qwen3next",
                                    "qwen35", "kimi-linear",   "minimax-01"};
static struct gpu *gpu;

static int open_gpu(void **state)
{
    struct gpu_options options = {.n_cpu_threads = 2, .skip_other = true};
    struct error err = {0};
    (void)state;
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    return 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static struct model *open_model(const char *name)
{
    char path[512];
    struct model *model;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/tests/golden/more/models/%s.gguf", getenv("MEDLEY_ROOT"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

static struct stage *open_stage(const struct model *model)
{
    const struct stage_options options = {.n_layers = model_hyperparameters(model)->n_layers,
                                          .n_slots = N_SLOTS,
                                          .context = 256,
                                          .rows_max = N_ROWS_MAX};
    struct stage_memory measured;
    struct stage *stage;
    struct error err = {0};
    if (stage_measure(gpu_find(gpu, "cpu"), model, &options, &measured, &err) ||
        stage_open(gpu_find(gpu, "cpu"), model, &options, &stage, &err))
        fail_msg("%s", err.text);
    uint64_t states = 0;
    for (uint32_t i = 0; i < options.n_layers; i++)
        states += model_layer_cost(model, i).state_bytes;
    assert_true(states > 0);
    assert_true(stage_memory(stage).kv == measured.kv);
    assert_true(measured.kv >= N_SLOTS * states);
    return stage;
}

/* Positions first … first + n - 1 of a slot, in chunks; the last one's logits. */
static enum error_code feed(struct stage *stage, uint32_t slot, uint32_t first, uint32_t n,
                            uint32_t chunk, float *out)
{
    struct batch_row rows[N_ROWS_MAX];
    struct error err = {0};
    memset(out, 0, N_VOCAB_MAX * sizeof *out);
    for (uint32_t at = 0, more; at < n; at += more) {
        more = n - at < chunk ? n - at : chunk;
        for (uint32_t i = 0; i < more; i++)
            rows[i] = (struct batch_row){.slot = slot,
                                         .position = first + at + i,
                                         .token = (int32_t)(7 + 13 * (first + at + i) % 200),
                                         .output = at + i + 1 == n};
        const struct batch batch = {.rows = rows, .n_rows = more};
        const enum error_code code = stage_forward(stage, &batch, NULL, out, &err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

static void check_model(const struct model *model)
{
    struct stage *stage = open_stage(model);
    struct error err = {0};
    float want[N_VOCAB_MAX], more[N_VOCAB_MAX], got[N_VOCAB_MAX];
    assert_true(stage_output_width(stage) <= N_VOCAB_MAX);
    assert_int_equal(feed(stage, 1, 0, 40, 40, want), ERROR_NONE);

    /* in another slot, in chunks of any size */
    for (uint32_t chunk = 1; chunk <= 17; chunk += 8) {
        stage_kv_truncate(stage, 3, 0);
        assert_int_equal(feed(stage, 3, 0, 40, chunk, got), ERROR_NONE);
        assert_memory_equal(want, got, sizeof want);
    }
    /* a copy goes on as what it was copied from; of a part there is none */
    assert_int_equal(stage_kv_copy(stage, 1, 0, 39, &err), ERROR_INVALID);
    assert_int_equal(stage_kv_copy(stage, 1, 0, 40, &err), ERROR_NONE);
    assert_int_equal(feed(stage, 1, 40, 5, 5, more), ERROR_NONE);
    assert_int_equal(feed(stage, 0, 40, 5, 1, got), ERROR_NONE);
    assert_memory_equal(more, got, sizeof more);
    assert_memory_not_equal(more, want, sizeof more);
    /* what cannot be cut is emptied, and whoever goes on with it is told */
    stage_kv_truncate(stage, 1, 40);
    assert_int_equal(stage_kv_length(stage, 1), 0);
    assert_int_equal(feed(stage, 1, 40, 1, 1, got), ERROR_INVALID);
    /* nothing of the sequence before is left */
    assert_int_equal(feed(stage, 1, 0, 40, 7, got), ERROR_NONE);
    assert_memory_equal(want, got, sizeof want);

    uint8_t rows[4096];
    assert_true(stage_kv_row_bytes(stage) <= sizeof rows);
    assert_int_equal(stage_kv_read(stage, &(struct kv_run){.slot = 1, .n_rows = 1}, rows, &err),
                     ERROR_UNSUPPORTED);
    stage_close(stage);
}

static void test_states_over_their_life(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct model *model = open_model(names[i]);
        check_model(model);
        model_close(model);
    }
}

/* A prompt may begin with all that a slot has, and with nothing less. */
static void test_only_whole_slots_are_reused(void **state)
{
    (void)state;
    struct slot_table table;
    struct slot_choice choice;
    int32_t prompt[64];
    for (int32_t i = 0; i < 64; i++)
        prompt[i] = i;
    assert_int_equal(slot_table_init(&table, 2, 64, 0, NULL), ERROR_NONE);
    memcpy(table.slots[0].tokens, prompt, sizeof prompt);
    table.slots[0].n_known = table.slots[0].n_placed = 40;
    for (int whole = 0; whole < 2; whole++) {
        table.whole_only = whole;
        assert_true(slot_table_choose(&table, prompt, 60, 0, &choice));
        assert_int_equal(choice.slot, 0);
        assert_int_equal(choice.keep, 40);
        prompt[39] = -1;
        assert_true(slot_table_choose(&table, prompt, 60, 0, &choice));
        assert_int_equal(choice.keep + choice.copy, whole ? 0 : 39);
        prompt[39] = 39;
        assert_true(slot_table_choose(&table, prompt, 30, 0, &choice));
        assert_int_equal(choice.keep + choice.copy, whole ? 0 : 30);
    }
    slot_table_deinit(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_states_over_their_life),
        cmocka_unit_test(test_only_whole_slots_are_reused),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
