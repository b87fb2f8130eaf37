/* Products of floats on any processor, one number at a time: what the others are compared with, to
 * the bit. */
#include "kernels/product_half.h"

#include <math.h>
#include <stdint.h>

enum { FLOAT_LANES = 1, FLOAT_ROWS = 1, FLOAT_SIDE = 2 };

typedef float float_lanes;

static inline float_lanes float_load(const float *from)
{
    return *from;
}

static inline void float_store(float *to, float_lanes x)
{
    *to = x;
}

static inline float_lanes float_from_f16(const uint8_t *from)
{
    return half(from);
}

static inline float_lanes float_from_bf16(const uint8_t *from)
{
    const uint32_t bits = (uint32_t)from[0] << 16 | (uint32_t)from[1] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float_lanes float_add(float_lanes y, float_lanes a, float_lanes b)
{
    return fmaf(a, b, y);
}

#include "kernels/product_float_body.h"

void product_float_plain(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                         uint32_t n_columns, const float *const *x, uint32_t n,
                         float (*y)[PRODUCT_SHEAF_MAX])
{
    float_rows(type, rows, n_rows, n_columns, x, n, y);
}
