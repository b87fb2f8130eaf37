/* The state of recurrent layers over its life: slots that are used again, cut, copied; chunks of
 * any size; what the driver may reuse of it. */
#include "engine/stage.h"
#include "engine/weights_load.h"
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

enum { N_VOCAB_MAX = 512, N_ROWS_MAX = 64, N_EMBD_MAX = 256, N_SLOTS = 4, N_SOME = 5 };

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

static struct stage *open_layers(const struct model *model, uint32_t first, uint32_t n)
{
    const struct stage_options options = {.first_layer = first,
                                          .n_layers = n,
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
    for (uint32_t i = 0; i < n; i++)
        states += model_layer_cost(model, first + i).state_bytes;
    assert_true(states > 0 || n < model_hyperparameters(model)->n_layers ||
                !hyperparameters_has_states(model_hyperparameters(model)));
    assert_true(stage_memory(stage).kv == measured.kv);
    assert_true(measured.kv >= N_SLOTS * states);
    return stage;
}

static struct stage *open_stage(const struct model *model)
{
    return open_layers(model, 0, model_hyperparameters(model)->n_layers);
}

/* Positions first … first + n - 1 of a slot, in chunks; the last one's logits. `second`: has the
 * layers that `stage` lacks, or is NULL. */
static enum error_code feed_both(struct stage *stage, struct stage *second, uint32_t slot,
                                 uint32_t first, uint32_t n, uint32_t chunk, float *out)
{
    static float hidden[N_ROWS_MAX * N_EMBD_MAX];
    struct batch_row rows[N_ROWS_MAX];
    assert_true(stage_width(stage) <= N_EMBD_MAX);
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
        enum error_code code = stage_forward(stage, &batch, NULL, second ? hidden : out, &err);
        if (!code && second)
            code = stage_forward(second, &batch, hidden, out, &err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

static enum error_code feed(struct stage *stage, uint32_t slot, uint32_t first, uint32_t n,
                            uint32_t chunk, float *out)
{
    return feed_both(stage, NULL, slot, first, n, chunk, out);
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
    stage_close(stage);
}

/* ---- states that travel ------------------------------------------------------------------- */

/* What the layer hands over of a slot of `n_tokens`. */
static uint32_t rows_of(const struct model *model, const struct stage *stage, uint32_t layer,
                        uint32_t n_tokens)
{
    const uint64_t state_bytes = model_layer_cost(model, layer).state_bytes;
    return state_bytes ? (uint32_t)kv_state_rows(state_bytes, stage_kv_row_bytes(stage)) : n_tokens;
}

/* In pieces of some rows, as over a link. */
static void move_layer(const struct model *model, struct stage *from, struct stage *to,
                       uint32_t layer, uint32_t n_tokens)
{
    static uint8_t rows[1 << 20];
    struct error err = {0};
    const uint32_t n_rows = rows_of(model, from, layer, n_tokens);
    assert_int_equal(stage_kv_row_bytes(from), stage_kv_row_bytes(to));
    for (uint32_t at = 0; at < n_rows; at += N_SOME) {
        const uint32_t n = n_rows - at < N_SOME ? n_rows - at : N_SOME;
        assert_true(n * stage_kv_row_bytes(from) <= sizeof rows);
        if (stage_kv_read(from, &(struct kv_run){layer, 1, at, n}, rows, &err) ||
            stage_kv_write(to, &(struct kv_run){layer, 3, at, n}, rows, &err))
            fail_msg("layer %u: %s", layer, err.text);
    }
}

static void check_travel(const struct model *model)
{
    enum { TOKENS = 40 };
    const uint32_t n_layers = model_hyperparameters(model)->n_layers, half = n_layers / 2;
    struct stage *from = open_stage(model),
                 *to[] = {open_layers(model, 0, half), open_layers(model, half, n_layers - half)};
    float want[N_VOCAB_MAX], got[N_VOCAB_MAX];
    struct error err = {0};
    assert_int_equal(feed(from, 1, 0, TOKENS, 13, want), ERROR_NONE);
    assert_int_equal(feed_both(to[0], to[1], 3, 0, 7, 7, got), ERROR_NONE); /* another text's */
    for (uint32_t i = 0; i < n_layers; i++)
        move_layer(model, from, to[i >= half], i, TOKENS);
    for (int i = 0; i < 2; i++)
        assert_int_equal(stage_kv_set_length(to[i], 3, TOKENS, &err), ERROR_NONE);
    assert_int_equal(feed(from, 1, TOKENS, 9, 4, want), ERROR_NONE);
    assert_int_equal(feed_both(to[0], to[1], 3, TOKENS, 9, 1, got), ERROR_NONE);
    assert_memory_equal(want, got, sizeof want);
    stage_close(from);
    stage_close(to[0]);
    stage_close(to[1]);
}

static void test_states_travel(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct model *model = open_model(names[i]);
        check_travel(model);
        model_close(model);
    }
}

/* Caches that layers share, of Gemma 4, where the second stage has copies; and states beside what
 * is carried from stage to stage. */
static void test_shared_caches_travel(void **state)
{
    (void)state;
    static const char *const others[] = {"gemma4", "kimi-k3", "deepseek4"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct model *model = open_model(others[i]);
        check_travel(model);
        model_close(model);
    }
}

static uint32_t first_recurrent(const struct model *model)
{
    uint32_t layer = 0;
    while (!model_layer_cost(model, layer).state_bytes)
        layer++;
    return layer;
}

/* Whatever a node sends: refused, with the slot as it was. */
static void test_states_that_cannot_be(void **state)
{
    (void)state;
    static uint8_t packed[1 << 20];
    struct model *model = open_model("qwen3next");
    struct stage *stage = open_stage(model);
    float want[N_VOCAB_MAX], got[N_VOCAB_MAX];
    struct error err = {0};
    const uint32_t layer = first_recurrent(model), n_rows = rows_of(model, stage, layer, 0);
    const struct kv_run all = {layer, 1, 0, n_rows}, into = {layer, 2, 0, n_rows};
    assert_true(n_rows > 1 && n_rows * stage_kv_row_bytes(stage) <= sizeof packed);
    assert_int_equal(stage_kv_read(stage, &all, packed, &err), ERROR_INVALID); /* of no text */
    assert_int_equal(feed(stage, 1, 0, 20, 20, want), ERROR_NONE);
    assert_int_equal(stage_kv_read(stage, &all, packed, &err), ERROR_NONE);

    const struct kv_run beyond[] = {
        {layer, 2, 0, n_rows + 1}, {layer, 2, n_rows, 1},     {layer, 2, UINT32_MAX, 1},
        {layer, N_SLOTS, 0, 1},    {layer, 2, 1, UINT32_MAX}, {layer, 2, 0, 0},
        {UINT32_MAX, 2, 0, 1},     {layer, UINT32_MAX, 0, 1},
    };
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        assert_int_equal(stage_kv_write(stage, &beyond[i], packed, &err), ERROR_INVALID);
        assert_int_equal(stage_kv_read(stage, &beyond[i], packed, &err), ERROR_INVALID);
    }
    /* the rest without its beginning; a beginning that is of another form, or of no token */
    const struct kv_run rest = {layer, 2, 1, n_rows - 1};
    assert_int_equal(stage_kv_write(stage, &rest, packed, &err), ERROR_INVALID);
    for (uint32_t i = 0; i < RECURRENT_HEAD_BYTES; i++) {
        const uint8_t as_it_was = packed[i];
        const bool is_length = i >= 4 && i < 8;
        packed[i] = is_length ? 0 : (uint8_t)~as_it_was;
        assert_int_equal(stage_kv_write(stage, &into, packed, &err),
                         is_length && as_it_was == 0 ? ERROR_NONE : ERROR_INVALID);
        packed[i] = as_it_was;
    }
    /* of a layer alone, or of another length, it is nobody's */
    assert_int_equal(stage_kv_write(stage, &into, packed, &err), ERROR_NONE);
    assert_int_equal(stage_kv_set_length(stage, 2, 20, &err), ERROR_INVALID);
    for (uint32_t i = 0; i < model_hyperparameters(model)->n_layers; i++)
        move_layer(model, stage, stage, i, 20); /* to slot 3 */
    assert_int_equal(stage_kv_set_length(stage, 3, 19, &err), ERROR_INVALID);
    assert_int_equal(stage_kv_length(stage, 3), 0);
    assert_int_equal(stage_kv_set_length(stage, 3, 20, &err), ERROR_INVALID); /* it is gone */
    assert_int_equal(stage_kv_set_length(stage, N_SLOTS, 1, &err), ERROR_INVALID);
    assert_int_equal(stage_kv_set_length(stage, 3, 257, &err), ERROR_INVALID);
    /* nothing of it is left, and the slot that was read is as before */
    assert_int_equal(feed(stage, 2, 0, 20, 20, got), ERROR_NONE);
    assert_memory_equal(want, got, sizeof want);
    assert_int_equal(feed(stage, 1, 20, 3, 3, want), ERROR_NONE);
    assert_int_equal(feed(stage, 2, 20, 3, 3, got), ERROR_NONE);
    assert_memory_equal(want, got, sizeof want);
    stage_close(stage);
    model_close(model);
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

/* Of any size, and as if pages had been used: the caches that stages begin with. */
static void test_buffers_are_cleared(void **state)
{
    (void)state;
    static const size_t sizes[] = {64, 5000, 300000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ggml_backend_buffer_t buffer =
            ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), sizes[i]);
        const uint8_t *bytes = ggml_backend_buffer_get_base(buffer);
        ggml_backend_buffer_clear(buffer, 0x5a);
        weights_clear(buffer);
        for (size_t k = 0; k < sizes[i]; k++)
            assert_int_equal(bytes[k], 0);
        ggml_backend_buffer_free(buffer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buffers_are_cleared),
        cmocka_unit_test(test_states_over_their_life),
        cmocka_unit_test(test_states_travel),
        cmocka_unit_test(test_shared_caches_travel),
        cmocka_unit_test(test_states_that_cannot_be),
        cmocka_unit_test(test_only_whole_slots_are_reused),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
