/* The engine on the CPU: a row's logits have the same bits however its sequence was cut into
 * batches, whatever else was in them, and on any number of threads. A replayed reply relies on it.
 * All golden models, and of those in more/ one for each other type that has parts or a grid, and
 * one whose latents have quantised up-projections; every type of cache. */
#include "engine/stage.h"
#include "gpu/device_ggml.h"
#include "gpu/gpu.h"
#include "gpu/product_ggml.h"
#include "model/model.h"

#include <dirent.h>
#include <ggml.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MODELS_MAX = 64, LENGTH = 540, CROWD_ROWS = 3, POOL_STEPS = 5, STEP_BACK_TO = 250 };

static struct gpu *gpu;
static struct device *cpu;
static char *names[MODELS_MAX];
static uint32_t n_models;

static const char *const of_parts[] = {
    "llama-q4_1.gguf",    "llama-q5_0.gguf",    "llama-q5_1.gguf",       "llama-iq4_nl.gguf",
    "llama-iq4_xs.gguf",  "gemma4.gguf",        "deepseek2-q4_k_m.gguf", "llama-iq1_s.gguf",
    "llama-iq1_m.gguf",   "llama-iq2_xxs.gguf", "llama-iq2_xs.gguf",     "llama-iq2_s.gguf",
    "llama-iq3_xxs.gguf", "llama-iq3_s.gguf"};

static const char *folder(void)
{
    return getenv("MEDLEY_GOLDEN");
}

static int open_all(void **state)
{
    (void)state;
    struct error err = {0};
    char path[512];
    assert_non_null(folder());
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 2, .skip_other = true}, &gpu, &err))
        fail_msg("%s", err.text);
    cpu = gpu_find(gpu, "cpu");
    snprintf(path, sizeof path, "%s/models", folder());
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir)) && n_models < MODELS_MAX;) {
        const char *end = strrchr(entry->d_name, '.');
        if (end && strcmp(end, ".gguf") == 0)
            names[n_models++] = strdup(entry->d_name);
    }
    closedir(dir);
    assert_true(n_models >= 30);
    for (size_t i = 0; i < sizeof of_parts / sizeof of_parts[0]; i++) {
        assert_true(n_models < MODELS_MAX);
        snprintf(path, sizeof path, "../more/models/%s", of_parts[i]);
        names[n_models++] = strdup(path);
    }
    return 0;
}

static int close_all(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_models; i++)
        free(names[i]);
    gpu_close(gpu);
    return 0;
}

/* How a sequence is fed: steps of so many rows in turn, the last again and again. */
struct way {
    uint32_t n_threads;
    bool crowd; /* other sequences' rows before and behind, a row and CROWD_ROWS rows in each batch
                 */
    uint32_t steps[8];
    uint32_t
        rows_max; /* of a batch; 0: all. Few of them leave windowed layers less than all cells */
    bool pool;    /* the slots share cells, and other sequences have been there before */
};

static struct stage *open_stage(const struct model *model, enum kv_type kv, const struct way *way)
{
    const struct stage_options options = {.n_layers = model_hyperparameters(model)->n_layers,
                                          .n_slots = 3,
                                          .context = LENGTH,
                                          .cells = way->pool ? 3 * LENGTH : 0,
                                          .rows_max = way->rows_max ? way->rows_max
                                                                    : LENGTH + 1 + CROWD_ROWS,
                                          .kv_type = kv};
    struct stage *stage;
    struct error err = {0};
    device_set_threads(cpu, way->n_threads);
    const enum error_code code = stage_open(cpu, model, &options, &stage, &err);
    if (code == ERROR_UNSUPPORTED && (kv == KV_Q8_0 || kv == KV_Q4_0))
        return NULL; /* heads that are no whole blocks */
    if (code)
        fail_msg("%s", err.text);
    return stage;
}

static uint32_t add_rows(struct batch_row *rows, const struct stage *stage, uint32_t slot,
                         uint32_t n, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t position = stage_kv_length(stage, slot) + i;
        rows[i] = (struct batch_row){.slot = slot,
                                     .position = position,
                                     .token = (int32_t)((position * 31 + 7 * slot) % n_vocab),
                                     .output = slot == 1};
    }
    return n;
}

static void forward(struct stage *stage, const struct batch_row *rows, uint32_t n, float *out)
{
    struct error err = {0};
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = n}, NULL, out, &err))
        fail_msg("%s", err.text);
}

/* So that what the sequence gets of a pool is in no order. */
static void use_pool(struct stage *stage, struct batch_row *rows, uint32_t n_vocab)
{
    for (uint32_t i = 0; i < POOL_STEPS; i++)
        forward(stage, rows, add_rows(rows, stage, 2, 60, n_vocab), NULL);
    forward(stage, rows, add_rows(rows, stage, 0, 2, n_vocab), NULL);
    stage_kv_truncate(stage, 2, 0);
    stage_kv_give_back(stage); /* and some of it from the system, anew */
}

/* What the sequence has is shared with slot 2, and then it goes on from before the end of what is
 * shared: slot 2 must not see that. */
static uint32_t share_and_step_back(struct stage *stage, uint32_t at)
{
    struct error err = {0};
    if (stage_kv_copy(stage, 1, 2, at, &err))
        fail_msg("%s", err.text);
    stage_kv_truncate(stage, 1, STEP_BACK_TO);
    return STEP_BACK_TO;
}

static void check_shared(struct stage *stage, const float *logits, uint32_t n_vocab)
{
    const uint32_t at = stage_kv_length(stage, 2);
    const struct batch_row row = {
        .slot = 2, .position = at, .token = (int32_t)((at * 31 + 7) % n_vocab), .output = true};
    float *out = malloc(sizeof(float) * n_vocab);
    assert_non_null(out);
    forward(stage, &row, 1, out);
    if (memcmp(out, logits + (size_t)at * n_vocab, n_vocab * sizeof *out) != 0)
        fail_msg("a sequence that shares cells was written over at token %u", at);
    free(out);
}

/* All logits of the sequence; NULL where the model cannot have this cache. */
static float *run(const struct model *model, enum kv_type kv, const struct way *way)
{
    static struct batch_row rows[LENGTH + 1 + CROWD_ROWS];
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    struct stage *stage = open_stage(model, kv, way);
    bool shares = way->pool && !hyperparameters_has_states(model_hyperparameters(model));
    const bool shared = shares;
    if (!stage)
        return NULL;
    if (way->pool)
        use_pool(stage, rows, n_vocab);
    float *out = malloc(sizeof(float) * LENGTH * n_vocab);
    assert_non_null(out);
    for (uint32_t at = 0, step = 0, n; at < LENGTH; at += n) {
        const bool crowd = way->crowd && at + CROWD_ROWS < LENGTH / CROWD_ROWS;
        uint32_t n_rows = crowd ? add_rows(rows, stage, 0, 1, n_vocab) : 0;
        n = LENGTH - at < way->steps[step] ? LENGTH - at : way->steps[step];
        n_rows += add_rows(rows + n_rows, stage, 1, n, n_vocab);
        n_rows += crowd ? add_rows(rows + n_rows, stage, 2, CROWD_ROWS, n_vocab) : 0;
        forward(stage, rows, n_rows, out + (size_t)at * n_vocab);
        step += way->steps[step + 1] != 0;
        if (shares && at + n > 300) {
            at = share_and_step_back(stage, at + n) - n;
            shares = false;
        }
    }
    if (shared)
        check_shared(stage, out, n_vocab);
    stage_close(stage);
    return out;
}

static void check(const char *name, const struct model *model, enum kv_type kv)
{
    static const struct way whole = {.n_threads = 2, .steps = {LENGTH}};
    static const struct way ways[] = {
        {.n_threads = 3, .crowd = true, .steps = {7, 40, 1, 64}, .rows_max = 68},
        {.n_threads = 1, .steps = {1, 1, 100, 418, 1}, .rows_max = 418},
        {.n_threads = 2, .crowd = true, .steps = {7, 40, 1, 64}, .rows_max = 68, .pool = true},
    };
    const uint32_t n_vocab = model_hyperparameters(model)->n_vocab;
    float *want = run(model, kv, &whole);
    for (size_t i = 0; want && i < sizeof ways / sizeof ways[0]; i++) {
        float *got = run(model, kv, &ways[i]);
        for (uint32_t row = 0; row < LENGTH; row++)
            if (memcmp(got + (size_t)row * n_vocab, want + (size_t)row * n_vocab,
                       n_vocab * sizeof *got) != 0)
                fail_msg("%s, cache %d, way %zu: row %u has other bits than in one batch", name,
                         (int)kv, i, row);
        free(got);
    }
    free(want);
}

/* Where our own products are not used, ggml multiplies matrices of K-quants, grids and IQ4_XS in
 * one way for a single row and in another for many. */
static bool is_promised(const struct model *model)
{
    const struct gguf_file *file = model_file(model);
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++) {
        const enum ggml_type type = (enum ggml_type)gguf_file_tensor(file, i)->type;
        enum product_type ours;
#if !defined(                                                                                      \
    __x86_64__) /* ggml's, which have other bits there, or are not known to have the same */
        if ((type == GGML_TYPE_Q4_1 || type == GGML_TYPE_IQ4_NL) &&
            !product_is_of(device_ggml_products(cpu), type))
            return false;
#endif
        if (product_type_of(type, &ours) && ggml_blck_size(type) == PRODUCT_BLOCK &&
            !product_is_of(device_ggml_products(cpu), type))
            return false;
    }
    return true;
}

static void test_all_models(void **state)
{
    const enum kv_type *kv = *state;
    uint32_t n_checked = 0;
    for (uint32_t i = 0; i < n_models; i++) {
        char path[1024];
        struct model *model;
        struct error err = {0};
        snprintf(path, sizeof path, "%s/models/%s", folder(), names[i]);
        if (model_open(path, &model, &err))
            fail_msg("%s: %s", path, err.text);
        if (is_promised(model)) {
            check(names[i], model, *kv);
            n_checked++;
        }
        model_close(model);
    }
    assert_true(n_checked == n_models ||
                !product_is_of(device_ggml_products(cpu), GGML_TYPE_IQ2_XXS)); /* not on x86 */
    assert_true(n_checked >= 28);
}

int main(void)
{
    static enum kv_type types[] = {KV_F16, KV_F32, KV_Q8_0, KV_Q4_0};
    const struct CMUnitTest tests[] = {
        {.name = "f16 cache", .test_func = test_all_models, .initial_state = &types[0]},
        {.name = "f32 cache", .test_func = test_all_models, .initial_state = &types[1]},
        {.name = "q8_0 cache", .test_func = test_all_models, .initial_state = &types[2]},
        {.name = "q4_0 cache", .test_func = test_all_models, .initial_state = &types[3]},
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
