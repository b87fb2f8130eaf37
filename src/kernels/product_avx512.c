/* The kernel for x86 processors with AVX-512 (F, BW and VL): vectors of 64 bytes. Compiled for
 * these alone. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/product_unpack_x86.h"

enum { STEP = 64, ROWS = 16 };

typedef __m512i ints;
typedef int32_t eight_ints __attribute__((vector_size(32)));
typedef int32_t row_ints __attribute__((vector_size(64)));
typedef float row_floats __attribute__((vector_size(64), aligned(4), may_alias));

static inline ints ints_zero(void)
{
    return _mm512_setzero_si512();
}

static inline ints ints_dot(ints sum, const uint8_t *w, const int8_t *q, const int16_t *scale)
{
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_loadu_si512(w), _mm512_loadu_si512(q));
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_loadu_si512(scale)));
}

static inline ints ints_dot_sums(const int16_t *m, const int16_t *sums)
{
    return _mm512_zextsi256_si512(_mm256_madd_epi16(_mm256_loadu_si256((const void *)m),
                                                    _mm256_loadu_si256((const void *)sums)));
}

static inline __m512i dot_quad(const uint8_t w[16][4], const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm512_maddubs_epi16(_mm512_loadu_si512(w), _mm512_set1_epi32(four));
}

/* Four products of pairs of 5 bits by 7 fit 16 bits, two of 6 bits by 7. */
ALWAYS_INLINE void rows_add_group(const uint8_t w[4][16][4], const int8_t *q,
                                  const int16_t scale[16][2], bool is_wide, row_ints *to)
{
    const __m512i scales = _mm512_loadu_si512(scale);
    __m512i first = _mm512_add_epi16(dot_quad(w[0], q), dot_quad(w[1], q + 4));
    __m512i second = _mm512_add_epi16(dot_quad(w[2], q + 8), dot_quad(w[3], q + 12));
    if (is_wide)
        second = _mm512_madd_epi16(second, scales);
    else
        first = _mm512_add_epi16(first, second);
    first = _mm512_madd_epi16(first, scales);
    *to += (row_ints)(is_wide ? _mm512_add_epi32(first, second) : first);
}

static inline void rows_add_pairs(const int16_t m[16][2], const int16_t sums[2], row_ints *to)
{
    int32_t both;
    memcpy(&both, sums, sizeof both);
    *to += (row_ints)_mm512_madd_epi16(_mm512_loadu_si512(m), _mm512_set1_epi32(both));
}

static inline void ints_add_up(const ints sums[8], eight_ints *all)
{
    __m512i pairs[4], fours[2];
    UNROLL for (int i = 0; i < 4; i++) pairs[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi32(sums[2 * i], sums[2 * i + 1]),
                         _mm512_unpackhi_epi32(sums[2 * i], sums[2 * i + 1]));
    UNROLL for (int i = 0; i < 2; i++) fours[i] =
        _mm512_add_epi32(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]),
                         _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
    const __m512i two = _mm512_add_epi32(_mm512_shuffle_i32x4(fours[0], fours[1], 0x88),
                                         _mm512_shuffle_i32x4(fours[0], fours[1], 0xdd));
    *all = (eight_ints)_mm512_castsi512_si256(_mm512_add_epi32(
        _mm512_shuffle_i32x4(two, two, 0x08), _mm512_shuffle_i32x4(two, two, 0x0d)));
}

#include "kernels/product_kernel_body.h"

static int product_avx512_works(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct product_kernel product_kernel_avx512 = {
    "avx512", product_avx512_works, round_row, product_kernel_row, ROWS, product_kernel_sheaf};
