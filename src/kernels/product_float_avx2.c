/* Products of floats on x86 processors with AVX2, FMA and F16C: vectors of 32 bytes. Compiled for
 * these alone. */
#include <immintrin.h>

enum { FLOAT_LANES = 8, FLOAT_ROWS = 2, FLOAT_SIDE = 3 };

typedef __m256 float_lanes;

static inline float_lanes float_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void float_store(float *to, float_lanes x)
{
    _mm256_storeu_ps(to, x);
}

static inline float_lanes float_from_f16(const unsigned char *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)from));
}

static inline float_lanes float_from_bf16(const unsigned char *from)
{
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)from)), 16));
}

static inline float_lanes float_add(float_lanes y, float_lanes a, float_lanes b)
{
    return _mm256_fmadd_ps(a, b, y);
}

#include "kernels/product_float_body.h"

void product_float_avx2(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                        uint32_t n_columns, const float *const *x, uint32_t n,
                        float (*y)[PRODUCT_SHEAF_MAX])
{
    float_rows(type, rows, n_rows, n_columns, x, n, y);
}
