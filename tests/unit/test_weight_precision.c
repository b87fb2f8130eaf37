/* A stage whose weights are converted while they load computes what a stage of the converted file
 * does, to the bit; and a model at another precision costs what that file would. */
#include "engine/stage.h"
#include "gpu/gpu.h"
#include "model/gguf_header.h"
#include "model/model_precision.h"
#include "model/weight_choice.h"
#include "model/weight_type.h"
#include "precision/convert.h"
#include "precision/output_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROMPT = 20 };

static struct gpu *gpu;
static struct device *device;

static int open_cpu(void **state)
{
    (void)state;
    struct error err = {0};
    const struct gpu_options options = {.n_cpu_threads = 2, .skip_other = true};
    if (gpu_open(&options, &gpu, &err))
        fail_msg("%s", err.text);
    device = gpu_find(gpu, "cpu");
    return device ? 0 : -1;
}

static int close_cpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

static struct model *open_golden(const char *name)
{
    char path[512];
    struct model *model;
    struct error err = {0};
    snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s: %s", name, err.text);
    return model;
}

static int type_named(const char *name)
{
    int type = -1;
    assert_int_equal(weight_type_find(name, &type, NULL), ERROR_NONE);
    return type;
}

static struct model *convert_golden(const struct model *model, int type)
{
    static const char path[] = "weight-precision.gguf";
    struct weight_choice choice;
    struct gguf_header header;
    struct output_file out;
    struct error err = {0};
    struct model *converted;
    unlink(path);
    assert_int_equal(weight_choice_init(&choice, model, &err), ERROR_NONE);
    weight_choice_all(&choice, model, type, false);
    assert_int_equal(gguf_header_make(model_file(model), choice.types, weight_type_file_type(type),
                                      &header, &err),
                     ERROR_NONE);
    assert_int_equal(output_file_begin(&out, path, header.end, &err), ERROR_NONE);
    assert_int_equal(convert_write(&(struct convert_job){.file = model_file(model),
                                                         .types = choice.types,
                                                         .header = &header,
                                                         .fd = out.fd},
                                   &err),
                     ERROR_NONE);
    assert_int_equal(output_file_finish(&out, &err), ERROR_NONE);
    gguf_header_deinit(&header);
    weight_choice_deinit(&choice);
    if (model_open(path, &converted, &err))
        fail_msg("%s", err.text);
    unlink(path);
    return converted;
}

static struct stage_options options_of(const struct model *model, int precision, bool no_repack)
{
    return (struct stage_options){.n_layers = model_hyperparameters(model)->n_layers,
                                  .n_slots = 1,
                                  .context = 64,
                                  .rows_max = 32,
                                  .no_repack = no_repack,
                                  .precision = precision};
}

/* Logits after a prompt; *weights: bytes of them on the device. */
static float *logits_of(const struct model *model, int precision, bool no_repack, uint64_t *weights)
{
    const struct stage_options options = options_of(model, precision, no_repack);
    float *logits = calloc(model_hyperparameters(model)->n_vocab, sizeof *logits);
    struct batch_row rows[PROMPT];
    struct stage *stage;
    struct error err = {0};
    if (stage_open(device, model, &options, &stage, &err))
        fail_msg("%s: %s", model_name(model), err.text);
    for (uint32_t i = 0; i < PROMPT; i++)
        rows[i] = (struct batch_row){
            .position = i, .token = (int32_t)(i * 7 % 200), .output = i + 1 == PROMPT};
    if (stage_forward(stage, &(struct batch){.rows = rows, .n_rows = PROMPT}, NULL, logits, &err))
        fail_msg("%s: %s", model_name(model), err.text);
    *weights = stage_memory(stage).weights;
    stage_close(stage);
    return logits;
}

static void compare_logits(const struct model *model, const struct model *converted, int type)
{
    const size_t size = model_hyperparameters(model)->n_vocab * sizeof(float);
    for (int no_repack = 0; no_repack < 2; no_repack++) {
        uint64_t stored_bytes, bytes, file_bytes;
        float *stored = logits_of(model, 0, no_repack, &stored_bytes),
              *got = logits_of(model, type, no_repack, &bytes),
              *want = logits_of(converted, 0, no_repack, &file_bytes);
        if (memcmp(got, want, size) != 0)
            fail_msg("%s as %s: other bits than its file's", model_name(model),
                     weight_type_name(type));
        assert_memory_not_equal(got, stored, size);
        assert_int_equal(bytes, file_bytes);
        assert_true(bytes < stored_bytes);
        free(stored);
        free(got);
        free(want);
    }
}

static void test_same_bits_as_the_converted_file(void **state)
{
    (void)state;
    static const char *const names[] = {"llama", "llama-f16", "gemma2", "gpt-oss", "llama-moe"};
    static const char *const types[] = {"q8_0", "q4_k", "q2_k"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model *model = open_golden(names[i]);
        for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
            struct model *converted = convert_golden(model, type_named(types[k]));
            compare_logits(model, converted, type_named(types[k]));
            model_close(converted);
        }
        model_close(model);
    }
}

static void test_costs_what_the_converted_file_does(void **state)
{
    (void)state;
    struct model *model = open_golden("llama-f16");
    struct model *converted = convert_golden(model, type_named("q4_k"));
    const struct model *lower, *again;
    assert_int_equal(model_at_precision(model, type_named("q4_k"), &lower, NULL), ERROR_NONE);
    assert_int_equal(model_at_precision(model, type_named("q4_k"), &again, NULL), ERROR_NONE);
    assert_ptr_equal(lower, again);
    assert_true(model_is_converted(lower) && !model_is_converted(model));
    assert_int_equal(model_weight_bytes(lower), model_weight_bytes(converted));
    assert_true(model_weight_bytes(lower) < model_weight_bytes(model));
    for (uint32_t i = 0; i < model_hyperparameters(model)->n_layers; i++) {
        const struct layer_cost cost = model_layer_cost(lower, i),
                                want = model_layer_cost(converted, i);
        assert_memory_equal(&cost, &want, sizeof cost);
    }
    assert_string_equal(model_type_name(lower), model_type_name(converted));
    assert_int_equal(model_at_precision(lower, type_named("q8_0"), &again, NULL), ERROR_NONE);
    assert_true(model_weight_bytes(again) > model_weight_bytes(lower));
    model_close(converted);
    model_close(model);
}

static void test_no_weight_becomes_larger(void **state)
{
    (void)state;
    struct model *model = open_golden("llama-q6k");
    static const char *const types[] = {"f32", "bf16", "f16", "q8_0"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const struct model *lower;
        assert_int_equal(model_at_precision(model, type_named(types[i]), &lower, NULL), ERROR_NONE);
        for (uint64_t k = 0; k < gguf_file_tensor_count(model_file(model)); k++)
            assert_true(model_tensor_at(lower, k)->size <=
                        gguf_file_tensor(model_file(model), k)->size);
    }
    model_close(model);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    struct model *model = open_golden("llama");
    const struct model *lower;
    struct stage_options options = options_of(model, type_named("q4_k"), false);
    struct stage_memory memory;
    struct error err = {0};
    assert_int_equal(model_at_precision(model, 200, &lower, &err), ERROR_UNSUPPORTED);
    assert_int_equal(model_at_precision(model, 16, &lower, &err), ERROR_UNSUPPORTED); /* iq2_xxs */
    assert_int_equal(stage_measure(device, model, &options, &memory, &err), ERROR_NONE);
    options.weights_max = memory.weights / 2;
    assert_int_equal(stage_measure(device, model, &options, &memory, &err), ERROR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--precision"));
    options.precision = 200;
    assert_int_equal(stage_measure(device, model, &options, &memory, &err), ERROR_UNSUPPORTED);
    model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits_as_the_converted_file),
        cmocka_unit_test(test_costs_what_the_converted_file_does),
        cmocka_unit_test(test_no_weight_becomes_larger),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, open_cpu, close_cpu);
}
