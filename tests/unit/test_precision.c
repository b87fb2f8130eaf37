/* Conversion of model files: what is written, against ggml's reader and the types' own formulas;
 * and how it ends when the file or the wish is wrong. */
#include "gguf_oracle.h"

#include "model/weight_choice.h"
#include "model/weight_type.h"
#include "precision/convert.h"
#include "precision/divergence.h"
#include "precision/output_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ggml.h>
#include <math.h>

#include <cmocka.h>

static char folder[] = "/tmp/medley-precision-XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", folder, name);
    return out;
}

static struct model *golden(const char *name)
{
    char path[1024];
    struct model *model;
    struct error err;
    snprintf(path, sizeof path, "%s/models/%s.gguf", getenv("MEDLEY_GOLDEN"), name);
    if (model_open(path, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

static int type_named(const char *name)
{
    int type = -1;
    assert_int_equal(weight_type_find(name, &type, NULL), ERROR_NONE);
    return type;
}

/* The whole way, as the command goes it. */
static enum error_code convert_to(const struct model *model, const char *type, uint32_t n_threads,
                                  const char *path, struct error *err)
{
    struct weight_choice choice;
    struct gguf_header header;
    struct output_file out;
    assert_int_equal(weight_choice_init(&choice, model, err), ERROR_NONE);
    weight_choice_all(&choice, model, type_named(type), false);
    assert_int_equal(gguf_header_make(model_file(model), choice.types,
                                      weight_type_file_type(type_named(type)), &header, err),
                     ERROR_NONE);
    enum error_code code = output_file_begin(&out, path, header.end, err);
    if (!code) {
        const struct convert_job job = {.file = model_file(model),
                                        .types = choice.types,
                                        .header = &header,
                                        .fd = out.fd,
                                        .n_threads = n_threads};
        code = convert_write(&job, err);
        if (code)
            output_file_abandon(&out);
        else
            code = output_file_finish(&out, err);
    }
    gguf_header_deinit(&header);
    weight_choice_deinit(&choice);
    return code;
}

static void test_ggml_reads_what_is_written(void **state)
{
    (void)state;
    static const char *const models[] = {"llama", "llama-f16", "gemma2", "gpt-oss"};
    static const char *const types[] = {"q4_0", "q8_0", "q4_k", "f16"};
    for (size_t i = 0; i < 4; i++) {
        for (size_t j = 0; j < 4; j++) {
            struct model *model = golden(models[i]), *converted;
            struct error err;
            const char *path = in_folder("read.gguf");
            unlink(path);
            if (convert_to(model, types[j], 2, path, &err) || model_open(path, &converted, &err))
                fail_msg("%s to %s: %s", models[i], types[j], err.text);
            assert_true(gguf_oracle_agrees(model_file(converted)));
            assert_int_equal(gguf_file_key_count(model_file(converted)),
                             gguf_file_key_count(model_file(model)));
            model_close(converted);
            model_close(model);
            unlink(path);
        }
    }
}

/* Q4_0: 32 weights share d, the largest one / -8; each is a whole number of d. So none is off by
 * more than d/2, but those at the other end, which are cut at 7 d: by d. And half a unit of F16 in
 * d itself. */
static void check_q4_0(const float *weights, const uint8_t *blocks, int64_t count)
{
    for (int64_t b = 0; b < count / 32; b++) {
        const uint8_t *block = blocks + b * 18;
        uint16_t half;
        memcpy(&half, block, sizeof half);
        const float d = ggml_fp16_to_fp32(half);
        for (int i = 0; i < 32; i++) {
            const int nibble = i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4;
            const float off = fabsf(weights[b * 32 + i] - (float)(nibble - 8) * d);
            assert_true(off <= fabsf(d) * 1.01f + 1e-7f);
        }
    }
}

static void test_weights_are_near_the_original(void **state)
{
    (void)state;
    struct model *model = golden("llama"), *converted;
    struct error err;
    const char *path = in_folder("near.gguf");
    if (convert_to(model, "q4_0", 1, path, &err) || model_open(path, &converted, &err))
        fail_msg("%s", err.text);
    const struct gguf_file *old = model_file(model), *new = model_file(converted);
    uint32_t n_q4 = 0;
    for (uint64_t i = 0; i < gguf_file_tensor_count(old); i++) {
        const struct gguf_tensor *from = gguf_file_tensor(old, i), *to = gguf_file_tensor(new, i);
        assert_string_equal(from->name, to->name);
        if (to->type == GGML_TYPE_Q4_0) {
            n_q4++;
            check_q4_0((const float *)(const void *)(gguf_file_bytes(old) + from->offset),
                       gguf_file_bytes(new) + to->offset, from->ne[0] * from->ne[1]);
        } else if (from->type == to->type) {
            assert_memory_equal(gguf_file_bytes(old) + from->offset,
                                gguf_file_bytes(new) + to->offset, from->size);
        }
    }
    assert_int_equal(n_q4, 15); /* 2 layers of 7, and the embedding */
    const struct gguf_tensor *head = gguf_file_find_tensor(new, "output.weight");
    assert_int_equal(head->type, GGML_TYPE_Q8_0); /* q6_k, where 256 divides its rows */
    assert_int_equal(gguf_file_find_tensor(new, "output_norm.weight")->type, GGML_TYPE_F32);
    model_close(converted);
    model_close(model);
    unlink(path);
}

static void test_threads_change_no_byte(void **state)
{
    (void)state;
    struct model *model = golden("gpt-oss"), *one, *many;
    struct error err;
    const char *a = in_folder("one.gguf"), *b = in_folder("many.gguf");
    assert_int_equal(convert_to(model, "q5_0", 1, a, &err), ERROR_NONE);
    assert_int_equal(convert_to(model, "q5_0", 7, b, &err), ERROR_NONE);
    assert_int_equal(model_open(a, &one, &err), ERROR_NONE);
    assert_int_equal(model_open(b, &many, &err), ERROR_NONE);
    const uint64_t size = gguf_file_size(model_file(one));
    assert_int_equal(size, gguf_file_size(model_file(many)));
    assert_memory_equal(gguf_file_bytes(model_file(one)), gguf_file_bytes(model_file(many)), size);
    model_close(one);
    model_close(many);
    model_close(model);
    unlink(a);
    unlink(b);
}

static void test_nothing_is_replaced_and_nothing_stays(void **state)
{
    (void)state;
    struct model *model = golden("llama");
    struct output_file out;
    struct error err;
    const char *path = in_folder("there.gguf");
    assert_int_equal(convert_to(model, "q8_0", 1, path, &err), ERROR_NONE);
    assert_int_equal(convert_to(model, "q8_0", 1, path, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "is there already"));
    unlink(path);
    /* the name is taken while the file is being written */
    assert_int_equal(output_file_begin(&out, path, 100, &err), ERROR_NONE);
    fclose(fopen(path, "w"));
    assert_int_equal(output_file_finish(&out, &err), ERROR_IO);
    struct stat there;
    assert_int_equal(stat(path, &there), 0);
    assert_int_equal(there.st_size, 0);
    unlink(path);
    assert_int_equal(output_file_begin(&out, path, 100, &err), ERROR_NONE);
    output_file_abandon(&out);
    assert_int_equal(output_file_begin(&out, path, UINT64_C(1) << 60, &err), ERROR_IO);
    assert_non_null(strstr(err.text, "free some"));
    assert_int_equal(rmdir(folder), 0); /* it is empty */
    assert_int_equal(mkdir(folder, 0700), 0);
    model_close(model);
}

static void test_a_weight_that_is_no_number(void **state)
{
    (void)state;
    float rows[64] = {[40] = NAN}, scratch[64];
    char out[256];
    struct error err;
    assert_int_equal(
        weight_type_convert(GGML_TYPE_F32, rows, GGML_TYPE_Q8_0, out, 2, 32, scratch, &err),
        ERROR_INVALID);
    rows[40] = -INFINITY;
    assert_int_equal(
        weight_type_convert(GGML_TYPE_F32, rows, GGML_TYPE_Q8_0, out, 2, 32, scratch, &err),
        ERROR_INVALID);
    rows[40] = 3e38f;
    rows[41] = 3e38f; /* whose sum is not finite */
    assert_int_equal(
        weight_type_convert(GGML_TYPE_F32, rows, GGML_TYPE_F32, out, 2, 32, scratch, &err),
        ERROR_NONE);
}

static void test_types_by_name(void **state)
{
    (void)state;
    struct error err;
    int type;
    assert_int_equal(type_named("Q4_K"), GGML_TYPE_Q4_K);
    assert_int_equal(weight_type_find("q9", &type, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "iq4_xs, mxfp4, q3_k, q2_k"));
    static const char *const need_importance[] = {"iq2_xxs", "iq2_xs", "iq3_s", "IQ1_M"};
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(weight_type_find(need_importance[i], &type, &err), ERROR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "importance matrix"));
    }
    assert_int_equal(weight_type_find("i32", &type, &err), ERROR_UNSUPPORTED);
    assert_int_equal(weight_type_for_rows(type_named("q4_k"), 512), GGML_TYPE_Q4_K);
    assert_int_equal(weight_type_for_rows(type_named("q4_k"), 192), GGML_TYPE_Q5_0);
    assert_int_equal(weight_type_for_rows(type_named("q4_k"), 100), GGML_TYPE_F16);
}

/* Each type, with rows that it divides and with others, is what ggml's own check of rows accepts.
 */
static void test_every_type_is_valid_rows(void **state)
{
    (void)state;
    static const char *const names[] = {"f32",  "bf16", "f16",    "q8_0", "q6_k", "q5_1",
                                        "q5_k", "q5_0", "q4_1",   "q4_k", "q4_0", "iq4_nl",
                                        "q3_k", "q2_k", "iq4_xs", "mxfp4"};
    enum { COLUMNS = 512, ROWS = 3 };
    static float rows[ROWS * COLUMNS], scratch[ROWS * COLUMNS];
    static char out[sizeof rows];
    for (int i = 0; i < ROWS * COLUMNS; i++)
        rows[i] = sinf((float)i * 0.37f);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int type = type_named(names[i]);
        struct error err;
        if (weight_type_convert(GGML_TYPE_F32, rows, type, out, ROWS, COLUMNS, scratch, &err))
            fail_msg("%s: %s", names[i], err.text);
        const size_t size = weight_type_row_bytes(type, COLUMNS) * ROWS;
        assert_true(ggml_validate_row_data((enum ggml_type)type, out, size));
    }
}

/* Two tokens, of which one model thinks 3 : 1 and the other 1 : 1: D = 3/4 ln 3/2 + 1/4 ln 1/2. */
static void test_divergence_of_two_tokens(void **state)
{
    (void)state;
    const float a[] = {100 + 1.0986122887f, 100}, b[] = {-50, -50}, bad[] = {INFINITY, 0};
    struct divergence divergence = {0};
    struct divergence_summary summary;
    struct error err;
    divergence_summarise(&divergence, &summary);
    assert_int_equal(summary.n_positions, 0);
    assert_int_equal(divergence_add(&divergence, a, b, 2, 1, &err), ERROR_NONE);
    divergence_summarise(&divergence, &summary);
    assert_true(isinf(summary.kl_mean.high)); /* of one position nothing is known */
    assert_double_equal(summary.kl_mean.value, 0.75 * log(1.5) + 0.25 * log(0.5), 1e-6);
    assert_double_equal(summary.perplexity_a.value, 4, 1e-5);
    assert_double_equal(summary.perplexity_b.value, 2, 1e-6);
    assert_int_equal(divergence_add(&divergence, a, bad, 2, 0, &err), ERROR_INVALID);
    assert_int_equal(divergence_add(&divergence, a, a, 2, 0, &err), ERROR_NONE);
    divergence_summarise(&divergence, &summary);
    assert_int_equal(summary.n_positions, 2);
    assert_double_equal(summary.kl_median.value, 0, 1e-12);
    assert_double_equal(summary.same_top.value, 1, 0);
    divergence_deinit(&divergence);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ggml_reads_what_is_written),
        cmocka_unit_test(test_weights_are_near_the_original),
        cmocka_unit_test(test_threads_change_no_byte),
        cmocka_unit_test(test_nothing_is_replaced_and_nothing_stays),
        cmocka_unit_test(test_a_weight_that_is_no_number),
        cmocka_unit_test(test_types_by_name),
        cmocka_unit_test(test_every_type_is_valid_rows),
        cmocka_unit_test(test_divergence_of_two_tokens),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
