/* The kernel for x86 processors with AVX2 and FMA: vectors of 32 bytes. Compiled for these
 * alone. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/product_unpack_x86.h"

enum { STEP = 32, ROWS = 8 };

typedef __m256i ints;
typedef int32_t eight_ints __attribute__((vector_size(32)));
typedef eight_ints row_ints;
typedef float row_floats __attribute__((vector_size(32), aligned(4), may_alias));

static inline ints ints_zero(void)
{
    return _mm256_setzero_si256();
}

static inline ints ints_dot(ints sum, const uint8_t *w, const int8_t *q, const int16_t *scale)
{
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_loadu_si256((const void *)w),
                                               _mm256_loadu_si256((const void *)q));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_loadu_si256((const void *)scale)));
}

static inline ints ints_dot_sums(const int16_t *m, const int16_t *sums)
{
    return _mm256_madd_epi16(_mm256_loadu_si256((const void *)m),
                             _mm256_loadu_si256((const void *)sums));
}

static inline __m256i dot_quad(const uint8_t w[8][4], const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_maddubs_epi16(_mm256_loadu_si256((const void *)w), _mm256_set1_epi32(four));
}

/* Four products of pairs of 5 bits by 7 fit 16 bits, two of 6 bits by 7. */
ALWAYS_INLINE void rows_add_group(const uint8_t w[4][8][4], const int8_t *q,
                                  const int16_t scale[8][2], bool is_wide, row_ints *to)
{
    const __m256i scales = _mm256_loadu_si256((const void *)scale);
    __m256i first = _mm256_add_epi16(dot_quad(w[0], q), dot_quad(w[1], q + 4));
    __m256i second = _mm256_add_epi16(dot_quad(w[2], q + 8), dot_quad(w[3], q + 12));
    if (is_wide)
        second = _mm256_madd_epi16(second, scales);
    else
        first = _mm256_add_epi16(first, second);
    first = _mm256_madd_epi16(first, scales);
    *to += (row_ints)(is_wide ? _mm256_add_epi32(first, second) : first);
}

static inline void rows_add_pairs(const int16_t m[8][2], const int16_t sums[2], row_ints *to)
{
    int32_t both;
    memcpy(&both, sums, sizeof both);
    *to +=
        (row_ints)_mm256_madd_epi16(_mm256_loadu_si256((const void *)m), _mm256_set1_epi32(both));
}

static inline void ints_add_up(const ints sums[8], eight_ints *all)
{
    const __m256i a = _mm256_hadd_epi32(sums[0], sums[1]), b = _mm256_hadd_epi32(sums[2], sums[3]);
    const __m256i c = _mm256_hadd_epi32(sums[4], sums[5]), d = _mm256_hadd_epi32(sums[6], sums[7]);
    const __m256i low = _mm256_hadd_epi32(a, b), high = _mm256_hadd_epi32(c, d);
    *all = (eight_ints)_mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                        _mm256_permute2x128_si256(low, high, 0x31));
}

#include "kernels/product_kernel_body.h"

static int product_avx2_works(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx2 = {
    "avx2", product_avx2_works, round_row, product_kernel_row, ROWS, product_kernel_sheaf};
