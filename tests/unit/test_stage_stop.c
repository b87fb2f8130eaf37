/* A batch that is stopped at any of its safe points: what it left behind is never seen, and what
 * follows has the bits of a stage on which nothing was stopped. */
#include "base/mem.h"
#include "base/random.h"
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

enum { VOCAB_MAX = 512, ROWS_MAX = 40, CONTEXT = 500, ROUNDS = 8, BEHIND = 9 };

static struct gpu *gpu;
static struct device *cpu;

static int open_device(void **state)
{
    (void)state;
    struct error err = {0};
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = 2, .skip_other = true}, &gpu, &err))
        fail_msg("%s", err.text);
    cpu = gpu_find(gpu, "cpu");
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
    assert_true(model_hyperparameters(model)->n_vocab <= VOCAB_MAX);
    return model;
}

static struct stage *open_stage(const struct model *model, const struct stage_options *given)
{
    struct stage_options options = *given;
    struct stage *stage;
    struct error err = {0};
    options.n_layers = model_hyperparameters(model)->n_layers;
    options.n_slots = 3;
    options.context = CONTEXT;
    options.rows_max = ROWS_MAX;
    if (stage_open(cpu, model, &options, &stage, &err))
        fail_msg("%s", err.text);
    return stage;
}

/* Says stop when it is asked for the `at`th time; 0: never. */
struct stopper {
    uint32_t at, n_asked;
};

static bool stopper_asked(void *arg)
{
    struct stopper *stopper = arg;
    return ++stopper->n_asked == stopper->at;
}

/* So many more tokens of slots 0 and 2, drawn from `seed`; the logits of the last of each. */
static enum error_code forward(struct stage *stage, uint64_t seed, const uint32_t n[2],
                               struct stopper *stopper, float *out, struct error *err)
{
    struct batch_row rows[2 * ROWS_MAX];
    uint32_t n_rows = 0;
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t slot = 2 * i, first = stage_kv_length(stage, slot);
        for (uint32_t k = 0; k < n[i]; k++)
            rows[n_rows++] =
                (struct batch_row){.slot = slot,
                                   .position = first + k,
                                   .token = (int32_t)(random_at(seed + slot, first + k) % 200),
                                   .output = k + 1 == n[i]};
    }
    memset(out, 0, 2 * VOCAB_MAX * sizeof *out);
    return stage_forward(stage,
                         &(struct batch){.rows = rows,
                                         .n_rows = n_rows,
                                         .stops = stopper ? stopper_asked : NULL,
                                         .stops_arg = stopper},
                         NULL, out, err);
}

/* What a stopped batch may have emptied is computed anew, with what stood there. */
static void heal(struct stage *stage, const struct stage *calm, uint64_t seed)
{
    float out[2 * VOCAB_MAX];
    struct error err = {0};
    const uint32_t wanted[] = {stage_kv_length(calm, 0), stage_kv_length(calm, 2)};
    for (;;) {
        uint32_t n[2];
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t left = wanted[i] - stage_kv_length(stage, 2 * i);
            n[i] = left < ROWS_MAX / 2 ? left : ROWS_MAX / 2;
        }
        if (!n[0] && !n[1])
            return;
        if (forward(stage, seed, n, NULL, out, &err))
            fail_msg("%s", err.text);
    }
}

static void check_round(struct stage *stage, struct stage *calm, uint64_t seed, uint32_t round,
                        bool has_states)
{
    float want[2 * VOCAB_MAX], got[2 * VOCAB_MAX];
    struct error err = {0};
    struct stopper stopper = {0};
    const uint32_t more[] = {1 + (uint32_t)random_at(seed, round) % (ROWS_MAX / 2), 3};
    const uint32_t lengths[] = {stage_kv_length(stage, 0), stage_kv_length(stage, 2)};
    if (forward(calm, seed, more, &stopper, want, &err)) /* which counts its safe points */
        fail_msg("%s", err.text);
    const uint32_t n_points = stopper.n_asked;
    assert_true(n_points > 10);
    const uint32_t at = 1 + (uint32_t)(random_at(seed + 1, round) % n_points);
    stopper = (struct stopper){.at = at};
    /* of other tokens: the next request's */
    const enum error_code code = forward(stage, seed + BEHIND, more, &stopper, got, &err);
    assert_int_equal(code, ERROR_CANCELLED);
    assert_int_equal(stopper.n_asked, at); /* and nothing was computed behind that */
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(stage_kv_length(stage, 2 * i), has_states && at > 1 ? 0 : lengths[i]);
    heal(stage, calm, seed);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(stage_kv_length(stage, 2 * i), stage_kv_length(calm, 2 * i));
    if (forward(calm, seed, more, NULL, want, &err) || forward(stage, seed, more, NULL, got, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(want, got, sizeof want);
}

static void check_model(const char *name, const struct stage_options *options)
{
    struct model *model = open_model(name);
    struct stage *stage = open_stage(model, options), *calm = open_stage(model, options);
    const bool has_states = hyperparameters_has_states(model_hyperparameters(model));
    for (uint32_t round = 0; round < ROUNDS; round++)
        check_round(stage, calm, 1000, round, has_states);
    stage_close(stage);
    stage_close(calm);
    model_close(model);
}

static void test_what_follows_has_the_same_bits(void **state)
{
    (void)state;
    static const char *const names[] = {"models/qwen3",
                                        "models/qwen3-q4k",
                                        "models/gemma3",
                                        "models/llama-moe",
                                        "models/gpt-oss",
                                        "more/models/gemma4",
                                        "more/models/deepseek2-lite",
                                        "more/models/deepseek4",
                                        "more/models/lfm2",
                                        "more/models/granitehybrid",
                                        "more/models/qwen3next"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        check_model(names[i], &(struct stage_options){.kv_type = KV_F16});
}

static void test_in_a_pool_too(void **state)
{
    (void)state;
    check_model("models/qwen3", &(struct stage_options){.cells = 1024});
    check_model("models/gemma3", &(struct stage_options){.cells = 1024, .flash = FLASH_OFF});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_follows_has_the_same_bits),
        cmocka_unit_test(test_in_a_pool_too),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
