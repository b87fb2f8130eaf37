#include "engine/activation.h"

#include <assert.h>
#include <ggml.h>
#include <math.h>
#include <string.h>

static const char *const names[] = {
    [ACTIVATION_F32] = "f32", [ACTIVATION_F16] = "f16", [ACTIVATION_Q8] = "q8"};

static const float F16_MAX = 65504.0F;

bool activation_type_parse(const char *name, enum activation_type *out)
{
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum activation_type)i;
            return true;
        }
    }
    return false;
}

bool activation_type_fits(enum activation_type type, uint32_t width)
{
    return type != ACTIVATION_Q8 || width % (uint32_t)ggml_blck_size(GGML_TYPE_Q8_0) == 0;
}

static uint64_t row_bytes(enum activation_type type, uint32_t width)
{
    switch (type) {
    case ACTIVATION_F32:
        return sizeof(float) * (uint64_t)width;
    case ACTIVATION_F16:
        return sizeof(float) + sizeof(ggml_fp16_t) * (uint64_t)width;
    case ACTIVATION_Q8:
        return ggml_row_size(GGML_TYPE_Q8_0, width);
    }
    assert(false && "an activation type");
    return 0;
}

uint64_t activation_bytes(enum activation_type type, uint32_t width, uint32_t n_rows)
{
    return row_bytes(type, width) * n_rows;
}

static float largest(const float *row, uint32_t width)
{
    float most = 0;
    for (uint32_t i = 0; i < width; i++) {
        float value = fabsf(row[i]);
        most = value > most ? value : most;
    }
    return most;
}

static void encode_f16(const float *row, uint32_t width, float *scratch, char *out)
{
    float scale = 1;
    for (float most = largest(row, width); most * (1 / scale) > F16_MAX / 2 && isfinite(most);)
        scale *= 2;
    memcpy(out, &scale, sizeof scale);
    if (scale > 1) {
        for (uint32_t i = 0; i < width; i++)
            scratch[i] = row[i] / scale;
        row = scratch;
    }
    ggml_fp32_to_fp16_row(row, (ggml_fp16_t *)(void *)(out + sizeof scale), width);
}

void activation_encode(enum activation_type type, const float *rows, uint32_t width,
                       uint32_t n_rows, float *scratch, void *bytes)
{
    char *out = bytes;
    if (type == ACTIVATION_F32) {
        memcpy(out, rows, activation_bytes(type, width, n_rows));
    } else if (type == ACTIVATION_Q8) {
        ggml_quantize_chunk(GGML_TYPE_Q8_0, rows, out, 0, n_rows, width, NULL);
    } else {
        for (uint32_t i = 0; i < n_rows; i++)
            encode_f16(rows + (size_t)i * width, width, scratch, out + row_bytes(type, width) * i);
    }
}

static void decode_f16(const char *bytes, uint32_t width, float *row)
{
    float scale = 1;
    memcpy(&scale, bytes, sizeof scale);
    ggml_fp16_to_fp32_row((const ggml_fp16_t *)(const void *)(bytes + sizeof scale), row, width);
    if (scale != 1) {
        for (uint32_t i = 0; i < width; i++)
            row[i] *= scale;
    }
}

static bool all_finite(const float *values, size_t n)
{
    float sum = 0; /* 0 x a finite number is 0; x an infinity or NaN it is NaN */
    for (size_t i = 0; i < n; i++)
        sum += 0 * values[i];
    return sum == 0;
}

bool activation_decode(enum activation_type type, const void *bytes, uint32_t width,
                       uint32_t n_rows, float *rows)
{
    const char *in = bytes;
    for (uint32_t i = 0; i < n_rows; i++, in += row_bytes(type, width)) {
        float *row = rows + (size_t)i * width;
        if (type == ACTIVATION_F32)
            memcpy(row, in, sizeof(float) * (size_t)width);
        else if (type == ACTIVATION_F16)
            decode_f16(in, width, row);
        else
            ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float(in, row, width);
    }
    return all_finite(rows, (size_t)n_rows * width);
}
