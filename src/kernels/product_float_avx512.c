/* Products of floats on x86 processors with AVX-512: vectors of 64 bytes. Compiled for these
 * alone. */
#include <immintrin.h>

enum { FLOAT_LANES = 16, FLOAT_ROWS = 4, FLOAT_SIDE = 6 };

typedef __m512 float_lanes;

static inline float_lanes float_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void float_store(float *to, float_lanes x)
{
    _mm512_storeu_ps(to, x);
}

static inline float_lanes float_from_f16(const unsigned char *from)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)from));
}

static inline float_lanes float_from_bf16(const unsigned char *from)
{
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)from)), 16));
}

static inline float_lanes float_add(float_lanes y, float_lanes a, float_lanes b)
{
    return _mm512_fmadd_ps(a, b, y);
}

#include "kernels/product_float_body.h"

void product_float_avx512(enum product_type type, const uint8_t *const *rows, uint32_t n_rows,
                          uint32_t n_columns, const float *const *x, uint32_t n,
                          float (*y)[PRODUCT_SHEAF_MAX])
{
    float_rows(type, rows, n_rows, n_columns, x, n, y);
}
