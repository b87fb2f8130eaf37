#include "model/weight_type.h"

#include <assert.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* From the largest to the smallest. `fallback`: for rows that blocks of 256 do not divide. */
static const struct weight_type_row {
    const char *name;
    enum ggml_type type, fallback;
    enum ggml_ftype file_type;
} weight_types[] = {
    {"f32", GGML_TYPE_F32, GGML_TYPE_F32, GGML_FTYPE_ALL_F32},
    {"bf16", GGML_TYPE_BF16, GGML_TYPE_BF16, GGML_FTYPE_MOSTLY_BF16},
    {"f16", GGML_TYPE_F16, GGML_TYPE_F16, GGML_FTYPE_MOSTLY_F16},
    {"q8_0", GGML_TYPE_Q8_0, GGML_TYPE_Q8_0, GGML_FTYPE_MOSTLY_Q8_0},
    {"q6_k", GGML_TYPE_Q6_K, GGML_TYPE_Q8_0, GGML_FTYPE_MOSTLY_Q6_K},
    {"q5_1", GGML_TYPE_Q5_1, GGML_TYPE_Q5_1, GGML_FTYPE_MOSTLY_Q5_1},
    {"q5_k", GGML_TYPE_Q5_K, GGML_TYPE_Q5_1, GGML_FTYPE_MOSTLY_Q5_K},
    {"q5_0", GGML_TYPE_Q5_0, GGML_TYPE_Q5_0, GGML_FTYPE_MOSTLY_Q5_0},
    {"q4_1", GGML_TYPE_Q4_1, GGML_TYPE_Q4_1, GGML_FTYPE_MOSTLY_Q4_1},
    {"q4_k", GGML_TYPE_Q4_K, GGML_TYPE_Q5_0, GGML_FTYPE_MOSTLY_Q4_K},
    {"q4_0", GGML_TYPE_Q4_0, GGML_TYPE_Q4_0, GGML_FTYPE_MOSTLY_Q4_0},
    {"iq4_nl", GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_NL, GGML_FTYPE_MOSTLY_IQ4_NL},
    {"iq4_xs", GGML_TYPE_IQ4_XS, GGML_TYPE_IQ4_NL, GGML_FTYPE_MOSTLY_IQ4_XS},
    {"mxfp4", GGML_TYPE_MXFP4, GGML_TYPE_MXFP4, GGML_FTYPE_MOSTLY_MXFP4},
    {"q3_k", GGML_TYPE_Q3_K, GGML_TYPE_IQ4_NL, GGML_FTYPE_MOSTLY_Q3_K},
    {"q2_k", GGML_TYPE_Q2_K, GGML_TYPE_IQ4_NL, GGML_FTYPE_MOSTLY_Q2_K},
};
enum { WEIGHT_TYPES = sizeof weight_types / sizeof *weight_types };

static const struct weight_type_row *weight_type_row(int type)
{
    for (int i = 0; i < WEIGHT_TYPES; i++) {
        if ((int)weight_types[i].type == type)
            return &weight_types[i];
    }
    return NULL;
}

/* Of ggml's other types, all that hold weights in three bits or less ask for an importance matrix:
 * some of them abort without one. */
static enum error_code weight_type_refuse(const char *name, struct error *err)
{
    for (int type = 0; type < GGML_TYPE_COUNT; type++) {
        const char *other = ggml_type_name((enum ggml_type)type);
        if (!other || strcasecmp(other, name) != 0)
            continue;
        if (strncasecmp(name, "iq", 2) == 0)
            return error_set(err, ERROR_UNSUPPORTED,
                             "%s needs an importance matrix, which Medley does not make: take "
                             "q3_k or q2_k",
                             name);
        return error_set(err, ERROR_UNSUPPORTED, "weights are not converted to %s: take q4_k",
                         name);
    }
    char known[160] = "";
    for (int i = 0; i < WEIGHT_TYPES; i++) {
        const size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", weight_types[i].name);
    }
    return error_set(err, ERROR_INVALID, "there is no type '%.40s': take one of %s", name, known);
}

enum error_code weight_type_find(const char *name, int *type, struct error *err)
{
    for (int i = 0; i < WEIGHT_TYPES; i++) {
        if (strcasecmp(weight_types[i].name, name) == 0) {
            *type = (int)weight_types[i].type;
            return ERROR_NONE;
        }
    }
    return weight_type_refuse(name, err);
}

const char *weight_type_name(int type)
{
    const struct weight_type_row *row = weight_type_row(type);
    return row ? row->name : ggml_type_name((enum ggml_type)type);
}

int weight_type_for_rows(int type, int64_t n_columns)
{
    const struct weight_type_row *row = weight_type_row(type);
    assert(row && n_columns > 0);
    if (n_columns % ggml_blck_size(row->type) == 0)
        return type;
    if (n_columns % ggml_blck_size(row->fallback) == 0)
        return (int)row->fallback;
    return GGML_TYPE_F16;
}

uint64_t weight_type_row_bytes(int type, int64_t n_columns)
{
    return ggml_row_size((enum ggml_type)type, n_columns);
}

bool weight_type_is_float(int type)
{
    return type == GGML_TYPE_F32 || type == GGML_TYPE_F16 || type == GGML_TYPE_BF16;
}

uint32_t weight_type_file_type(int type)
{
    const struct weight_type_row *row = weight_type_row(type);
    return row ? (uint32_t)row->file_type : UINT32_MAX;
}

static bool weights_are_finite(const float *values, int64_t count)
{
    float sum = 0; /* of x * 0, which is 0 or, for infinities and NaN, NaN */
    for (int64_t i = 0; i < count; i++)
        sum += values[i] * 0.0f;
    return sum == 0.0f;
}

enum error_code weight_type_convert(int from, const void *rows, int to, void *out, int64_t n_rows,
                                    int64_t n_columns, float *scratch, struct error *err)
{
    const int64_t count = n_rows * n_columns;
    const float *values = rows;
    assert(n_rows > 0 && n_columns > 0);
    if (from != GGML_TYPE_F32) {
        const struct ggml_type_traits *traits = ggml_get_type_traits((enum ggml_type)from);
        if (!traits->to_float)
            return error_set(err, ERROR_UNSUPPORTED, "weights of type %s cannot be read",
                             weight_type_name(from));
        traits->to_float(rows, scratch, count);
        values = scratch;
    }
    if (!weights_are_finite(values, count))
        return error_set(err, ERROR_INVALID,
                         "a weight is infinite or not a number: the file is damaged, get it again");
    const size_t size =
        ggml_quantize_chunk((enum ggml_type)to, values, out, 0, n_rows, n_columns, NULL);
    if (size != weight_type_row_bytes(to, n_columns) * (uint64_t)n_rows)
        return error_set(err, ERROR_INTERNAL, "ggml wrote %zu bytes of type %s", size,
                         weight_type_name(to));
    return ERROR_NONE;
}
