/* Slots that share cells on a device whose attention wants a slot's cells side by side: the same
 * bits as slots with a context each, whatever comes and goes. On the CPU with --flash off, and with
 * the argument "vulkan" on software Vulkan. */
#include "base/random.h"
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

enum { SLOTS = 4, CONTEXT = 760, ROWS_MAX = 300, SHARED = 300 };

/* The software GPU asks for its scratch memory at each dispatch, and a sanitizer has that mapped
 * anew each time, which takes five times as long. So there only the moves to host memory run, which
 * no CPU makes. */
#ifdef __SANITIZE_ADDRESS__
enum { IS_SANITIZED = 1 };
#else
enum { IS_SANITIZED = 0 };
#endif

static struct gpu *gpu;
static struct device *device;
static bool is_vulkan;
static uint64_t n_drawn;

static uint32_t drawn(uint32_t below)
{
    return (uint32_t)(random_at(16, n_drawn++) % below);
}

static int open_device(void **state)
{
    (void)state;
    struct error err = {0};
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 2, .skip_other = !is_vulkan}, &gpu, &err))
        fail_msg("%s", err.text);
    device = gpu_find(gpu, is_vulkan ? "vulkan0" : "cpu");
    assert_non_null(device);
    assert_true(stage_has_pool(device, FLASH_OFF));
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static struct model *open_model(const char *name)
{
    struct model *model;
    struct error err = {0};
    char path[512];
    assert_non_null(getenv("MEDLEY_GOLDEN"));
    snprintf(path, sizeof path, "%s/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

/* Two stages that are told the same. */
struct pair {
    const struct model *model;
    struct stage *apart, *pool;
    uint32_t n_vocab;
    float *want, *got; /* [ROWS_MAX][n_vocab] */
};

static struct stage *open_stage(const struct model *model, enum kv_type kv, uint32_t cells)
{
    const struct stage_options options = {.n_layers = model_hyperparameters(model)->n_layers,
                                          .n_slots = SLOTS,
                                          .context = CONTEXT,
                                          .cells = cells,
                                          .rows_max = ROWS_MAX,
                                          .kv_type = kv,
                                          .flash = is_vulkan ? FLASH_ON : FLASH_OFF};
    struct stage *stage;
    struct stage_memory measured;
    struct error err = {0};
    if (stage_measure(device, model, &options, &measured, &err) ||
        stage_open(device, model, &options, &stage, &err))
        fail_msg("%s", err.text);
    const struct stage_memory taken = stage_memory(stage);
    assert_memory_equal(&measured, &taken, sizeof taken);
    return stage;
}

static void pair_open(struct pair *pair, const struct model *model, enum kv_type kv)
{
    pair->model = model;
    pair->n_vocab = model_hyperparameters(model)->n_vocab;
    pair->apart = open_stage(model, kv, 0);
    /* where a group gathers more than the pool has it is divided, and a GPU may round otherwise */
    pair->pool = open_stage(model, kv, (is_vulkan ? 12 : 9) * KV_PADDING);
    pair->want = malloc(sizeof(float) * ROWS_MAX * pair->n_vocab);
    pair->got = malloc(sizeof(float) * ROWS_MAX * pair->n_vocab);
    assert_true(pair->want && pair->got);
}

static void pair_close(struct pair *pair)
{
    stage_close(pair->apart);
    stage_close(pair->pool);
    free(pair->want);
    free(pair->got);
}

static uint32_t pair_length(const struct pair *pair, uint32_t slot)
{
    assert_int_equal(stage_kv_length(pair->apart, slot), stage_kv_length(pair->pool, slot));
    return stage_kv_length(pair->pool, slot);
}

static void pair_cut(const struct pair *pair, uint32_t slot, uint32_t length)
{
    stage_kv_truncate(pair->apart, slot, length);
    stage_kv_truncate(pair->pool, slot, length);
}

/* So many rows more in each slot of `counts`. False: the pool has no cells left. */
static bool pair_forward(const struct pair *pair, const uint32_t counts[SLOTS])
{
    struct batch_row rows[ROWS_MAX];
    struct batch batch = {.rows = rows};
    struct error err = {0};
    uint32_t n_outputs = 0;
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        for (uint32_t i = 0; i < counts[slot]; i++) {
            const uint32_t position = pair_length(pair, slot) + i;
            /* all begin alike */
            const uint32_t token = position * 31 + (position < SHARED ? 0 : 7 * slot);
            rows[batch.n_rows++] = (struct batch_row){.slot = slot,
                                                      .position = position,
                                                      .token = (int32_t)(token % pair->n_vocab),
                                                      .output = i + 1 == counts[slot]};
            n_outputs += i + 1 == counts[slot];
        }
    }
    const enum error_code code = stage_forward(pair->pool, &batch, NULL, pair->got, &err);
    if (code == ERROR_NO_MEMORY)
        return false;
    if (code || stage_forward(pair->apart, &batch, NULL, pair->want, &err))
        fail_msg("%s", err.text);
    if (memcmp(pair->want, pair->got, sizeof(float) * n_outputs * pair->n_vocab) != 0)
        fail_msg("slots that share cells have other bits, after %llu draws",
                 (unsigned long long)n_drawn);
    return true;
}

static bool pair_may_go_on(const struct pair *pair, uint32_t slot, uint32_t length)
{
    /* rings and states do not reach back */
    const struct hyperparameters *h = model_hyperparameters(pair->model);
    return (!h->window && !hyperparameters_has_states(h)) || length == pair_length(pair, slot);
}

/* What comes and goes: prompts, decoding side by side, copied prefixes, slots that are cut. */
static void pair_step(const struct pair *pair)
{
    struct error err = {0};
    const uint32_t what = drawn(is_vulkan ? 10 : 8), slot = drawn(SLOTS), other = drawn(SLOTS);
    uint32_t counts[SLOTS] = {0}, length = pair_length(pair, slot);
    if (what < 2) { /* a prompt */
        counts[slot] = 1 + drawn(ROWS_MAX - 10);
        for (uint32_t i = 0; i < SLOTS; i++)
            counts[i] += i != slot && pair_length(pair, i) > 0; /* and who decodes beside it */
    } else if (what == 8) {
        stage_kv_give_back(pair->pool);
        return;
    } else if (what == 9) {
        assert_true(stage_kv_take_back(pair->pool));
        return;
    } else if (what < 6) {
        for (uint32_t i = 0; i < SLOTS; i++)
            counts[i] = pair_length(pair, i) > 0;
    } else if (what == 6 && slot != other && length) {
        const uint32_t copied = drawn(2) && length > SHARED ? SHARED : length;
        if (!pair_may_go_on(pair, slot, copied))
            return;
        const enum error_code code = stage_kv_copy(pair->pool, slot, other, copied, &err);
        if (code)
            pair_cut(pair, other, 0);
        else if (stage_kv_copy(pair->apart, slot, other, copied, &err))
            fail_msg("%s", err.text);
        return;
    } else {
        length = drawn(2) ? 0 : length;
        pair_cut(pair, slot, length);
        return;
    }
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        if (pair_length(pair, i) + counts[i] > CONTEXT)
            counts[i] = 0, pair_cut(pair, i, 0);
        n_rows += counts[i];
    }
    if (n_rows && !pair_forward(pair, counts))
        pair_cut(pair, slot, 0); /* a cut slot gives back what a failed batch took */
}

static void check_model(const char *name, enum kv_type kv, uint32_t n_steps)
{
    struct model *model = open_model(name);
    struct pair pair;
    pair_open(&pair, model, kv);
    for (uint32_t i = 0; i < n_steps; i++)
        pair_step(&pair);
    pair_close(&pair);
    model_close(model);
}

static void test_same_bits(void **state)
{
    (void)state;
    const uint32_t n_steps = is_vulkan ? 30 : 40;
    check_model("models/qwen3", KV_F16, n_steps);
    check_model("models/qwen3", KV_Q8_0, n_steps);
    check_model("models/gpt-oss", KV_F16, n_steps); /* rings and sinks */
    if (is_vulkan)
        return;
    check_model("models/llama", KV_F32, n_steps);
    check_model("more/models/deepseek2-lite", KV_F16,
                n_steps);                                /* a value is the beginning of its key */
    check_model("more/models/lfm2", KV_F16, n_steps);    /* states beside */
    check_model("more/models/glm-dsa", KV_F16, n_steps); /* an indexer's keys beside */
    check_model("more/models/minimax-m3", KV_F16, n_steps);
    check_model("more/models/deepseek4", KV_F16, n_steps); /* summaries beside rings */
    check_model("more/models/gemma4", KV_F16, n_steps); /* layers that see the caches of others */
}

/* ---- caches in host memory ---- */

static void decode(const struct pair *pair, uint32_t first_slot, uint32_t n_slots)
{
    uint32_t counts[SLOTS] = {0};
    for (uint32_t i = 0; i < n_slots; i++)
        counts[first_slot + i] = 1;
    assert_true(pair_forward(pair, counts));
}

static void fill(const struct pair *pair, uint32_t slot, uint32_t n_rows)
{
    uint32_t counts[SLOTS] = {0};
    counts[slot] = n_rows;
    assert_true(pair_forward(pair, counts));
}

/* The device lacks memory: what rests goes to host memory, and is back when it is needed, alone,
 * with others, as the beginning of another, or with all the rest. */
static void check_moves(const char *name)
{
    struct model *model = open_model(name);
    struct pair pair;
    struct error err = {0};
    pair_open(&pair, model, KV_F16);
    assert_true(stage_kv_moves(pair.pool) && !stage_kv_moves(pair.apart));
    for (uint32_t i = 0; i < SLOTS; i++)
        fill(&pair, i, 280 + i);
    assert_true(stage_kv_give_back(pair.pool) > 0); /* what nobody has */
    assert_int_equal(stage_kv_bytes_away(pair.pool), 0);
    assert_int_equal(stage_kv_give_back(pair.pool), 0); /* the rest was used of late */
    for (uint32_t i = 0; i < 16; i++)
        decode(&pair, 0, 1);
    const uint64_t given = stage_kv_give_back(pair.pool), away = stage_kv_bytes_away(pair.pool);
    assert_true(given > 0 && away > 0);
    decode(&pair, 0, 1);
    assert_int_equal(stage_kv_bytes_away(pair.pool), away); /* what decodes had stayed */
    fill(&pair, 2, 5);                                      /* in the others' place */
    decode(&pair, 1, 2);
    assert_true(stage_kv_bytes_away(pair.pool) > 0);
    pair_cut(&pair, 3, 0);
    assert_int_equal(stage_kv_copy(pair.pool, 0, 3, 290, &err), ERROR_NONE);
    assert_int_equal(stage_kv_copy(pair.apart, 0, 3, 290, &err), ERROR_NONE);
    decode(&pair, 3, 1);
    decode(&pair, 0, SLOTS); /* more than there is: the pool grows */
    fill(&pair, 1, 250);
    assert_true(stage_kv_take_back(pair.pool));
    assert_int_equal(stage_kv_bytes_away(pair.pool), 0);
    decode(&pair, 0, SLOTS);
    pair_close(&pair);
    model_close(model);
}

static void test_what_rests_goes_to_host_memory(void **state)
{
    (void)state;
    if (!is_vulkan) /* there the pool is in host memory */
        return;
    check_moves("models/qwen3");
}

/* ---- many at once ---- */

enum { STREAMS = 40, LONG = 1536, WHOLE = 8, PROMPT = 2 * KV_PADDING, ANSWER = 12 };

static uint32_t largest(const float *logits, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return best;
}

/* Each stream's answer to a prompt that all begin with and a token of its own. */
static void answer_all(const struct model *model, uint32_t cells, int32_t answers[ANSWER][STREAMS],
                       uint64_t *kv_bytes)
{
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    const struct stage_options options = {.n_layers = model_hyperparameters(model)->n_layers,
                                          .n_slots = STREAMS,
                                          .context = LONG,
                                          .cells = cells,
                                          .rows_max = PROMPT,
                                          .flash = is_vulkan ? FLASH_AUTO : FLASH_OFF};
    static struct batch_row rows[PROMPT];
    struct batch batch = {.rows = rows, .n_rows = PROMPT};
    struct stage *stage;
    struct error err = {0};
    float *out = malloc(sizeof(float) * STREAMS * n_vocab);
    assert_non_null(out);
    if (stage_open(device, model, &options, &stage, &err))
        fail_msg("%s", err.text);
    *kv_bytes = stage_memory(stage).kv;
    for (uint32_t i = 0; i < PROMPT; i++)
        rows[i] = (struct batch_row){.position = i, .token = (int32_t)(i * 31 % n_vocab)};
    if (stage_forward(stage, &batch, NULL, NULL, &err))
        fail_msg("%s", err.text);
    for (uint32_t slot = 1; slot < STREAMS; slot++)
        assert_int_equal(stage_kv_copy(stage, 0, slot, PROMPT, &err), ERROR_NONE);
    batch.n_rows = STREAMS;
    for (uint32_t at = 0; at < ANSWER; at++) {
        for (uint32_t slot = 0; slot < STREAMS; slot++)
            rows[slot] = (struct batch_row){.slot = slot,
                                            .position = PROMPT + at,
                                            .token = at ? answers[at - 1][slot]
                                                        : (int32_t)(slot * 7 % n_vocab),
                                            .output = true};
        if (stage_forward(stage, &batch, NULL, out, &err))
            fail_msg("%s", err.text);
        for (uint32_t slot = 0; slot < STREAMS; slot++)
            answers[at][slot] = (int32_t)largest(out + (size_t)slot * n_vocab, n_vocab);
    }
    stage_close(stage);
    free(out);
}

/* In the memory of 8 contexts, their prompt held once: 2 extents for it, and one for each. */
static void test_forty_streams_in_the_memory_of_eight(void **state)
{
    (void)state;
    static int32_t want[ANSWER][STREAMS], got[ANSWER][STREAMS];
    struct model *model = open_model("models/qwen3");
    uint64_t apart, shared;
    answer_all(model, 0, want, &apart);
    answer_all(model, WHOLE * LONG, got, &shared);
    assert_int_equal(apart / STREAMS, shared / WHOLE);
    assert_memory_equal(want, got, sizeof want);
    model_close(model);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_what_rests_goes_to_host_memory),
                                       cmocka_unit_test(test_forty_streams_in_the_memory_of_eight)};
    const struct CMUnitTest moves[] = {cmocka_unit_test(test_what_rests_goes_to_host_memory)};
    is_vulkan = argc > 1 && strcmp(argv[1], "vulkan") == 0;
    if (is_vulkan && IS_SANITIZED)
        return cmocka_run_group_tests(moves, open_device, close_device);
    return cmocka_run_group_tests(tests, open_device, close_device);
}
