/* What the kernels for x86 processors with AVX2 and FMA share: vectors of 32 bytes. With AVX-VNNI
 * four products of 8 bits are summed up in one instruction; the integers are the same. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/product_part_lanes_x86.h"
#include "kernels/product_part_turn_x86.h"

#if defined(__AVXVNNI__)
enum { STEP = 32, ROWS = 8, WIDE_IS_SIGNED = 0 };
#else
enum { STEP = 32, ROWS = 8, WIDE_IS_SIGNED = 1 };
#endif

typedef __m256i ints;
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

/* Of products of pairs of 7 bits by 7 one fits 16 bits, of 6 bits by 7 two, of 5 by 7 four. */
ALWAYS_INLINE void rows_add_group(const uint8_t w[4][8][4], const int8_t *q,
                                  const int16_t scale[8][2], uint32_t bits, row_ints *to)
{
    const __m256i scales = _mm256_loadu_si256((const void *)scale);
    const uint32_t n = bits == 7 ? 4 : bits == 6 ? 2 : 1; /* sums of 16 bits */
    __m256i dots[4];
    UNROLL for (uint32_t i = 0; i < 4; i++) dots[i] = dot_quad(w[i], q + 4 * i);
    if (n <= 2) {
        dots[0] = _mm256_add_epi16(dots[0], dots[1]);
        dots[1] = _mm256_add_epi16(dots[2], dots[3]);
    }
    if (n == 1)
        dots[0] = _mm256_add_epi16(dots[0], dots[1]);
    UNROLL for (uint32_t i = 0; i < n; i++) dots[i] = _mm256_madd_epi16(dots[i], scales);
    if (n == 4) {
        dots[0] = _mm256_add_epi32(dots[0], dots[1]);
        dots[1] = _mm256_add_epi32(dots[2], dots[3]);
    }
    *to += (row_ints)(n == 1 ? dots[0] : _mm256_add_epi32(dots[0], dots[1]));
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
    part_add_up(sums, all);
}

/* ---- parts ---- */

#if defined(__AVXVNNI__)
ALWAYS_INLINE void part_rows_dot(const uint8_t w[8][8][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    (void)is_wide;
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        const __m256i weights = load32(w[i][0]);
        UNROLL for (uint32_t k = 0; k < n; k++) sums[k] =
            (row_ints)_mm256_dpbusd_avx_epi32((__m256i)sums[k], weights, part_quad(q[k] + 4 * i));
    }
}
#else
ALWAYS_INLINE void part_rows_dot(const uint8_t w[8][8][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    const __m256i ones = _mm256_set1_epi16(1);
    UNROLL for (uint32_t i = 0; i < 8; i += 4)
    {
        __m256i pairs[4];
        UNROLL for (uint32_t j = 0; j < 4; j++)
        {
            const __m256i weights = load32(w[i + j][0]);
            const __m256i own = _mm256_xor_si256(weights, _mm256_set1_epi8((char)0x80));
            UNROLL for (uint32_t k = 0; k < n; k++)
            {
                const __m256i values = part_quad(q[k] + 4 * (i + j));
                const __m256i dot = is_wide ? _mm256_maddubs_epi16(_mm256_abs_epi8(own),
                                                                   _mm256_sign_epi8(values, own))
                                            : _mm256_maddubs_epi16(weights, values);
                if (is_wide)
                    sums[k] += (row_ints)_mm256_madd_epi16(dot, ones);
                else
                    pairs[k] = j ? _mm256_add_epi16(pairs[k], dot) : dot;
            }
        }
        UNROLL for (uint32_t k = 0; !is_wide && k < n; k++) sums[k] +=
            (row_ints)_mm256_madd_epi16(pairs[k], ones);
    }
}
#endif

#include "kernels/product_kernel_body.h"

#include "kernels/product_part_body.h"
