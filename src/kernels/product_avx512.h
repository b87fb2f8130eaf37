/* What the kernels for x86 processors with AVX-512 (F, BW and VL) share: vectors of 64 bytes. */
#pragma once

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "kernels/product_part_lanes_x86.h"

#define PART_TURN(name) NULL /* rows are sixteen */

enum { STEP = 64, ROWS = 16, WIDE_IS_SIGNED = 1 };

typedef __m512i ints;
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

/* Of products of pairs of 7 bits by 7 one fits 16 bits, of 6 bits by 7 two, of 5 by 7 four. */
ALWAYS_INLINE void rows_add_group(const uint8_t w[4][16][4], const int8_t *q,
                                  const int16_t scale[16][2], uint32_t bits, row_ints *to)
{
    const __m512i scales = _mm512_loadu_si512(scale);
    const uint32_t n = bits == 7 ? 4 : bits == 6 ? 2 : 1; /* sums of 16 bits */
    __m512i dots[4];
    UNROLL for (uint32_t i = 0; i < 4; i++) dots[i] = dot_quad(w[i], q + 4 * i);
    if (n <= 2) {
        dots[0] = _mm512_add_epi16(dots[0], dots[1]);
        dots[1] = _mm512_add_epi16(dots[2], dots[3]);
    }
    if (n == 1)
        dots[0] = _mm512_add_epi16(dots[0], dots[1]);
    UNROLL for (uint32_t i = 0; i < n; i++) dots[i] = _mm512_madd_epi16(dots[i], scales);
    if (n == 4) {
        dots[0] = _mm512_add_epi32(dots[0], dots[1]);
        dots[1] = _mm512_add_epi32(dots[2], dots[3]);
    }
    *to += (row_ints)(n == 1 ? dots[0] : _mm512_add_epi32(dots[0], dots[1]));
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

/* ---- parts ---- */

/* No vpsignb has 64 bytes: what the weights are negative for is taken from zero. */
ALWAYS_INLINE __m512i dot_signed(__m512i weights, __m512i values)
{
    return _mm512_maddubs_epi16(
        _mm512_abs_epi8(weights),
        _mm512_mask_sub_epi8(values, _mm512_movepi8_mask(weights), _mm512_setzero_si512(), values));
}

ALWAYS_INLINE void part_rows_dot(const uint8_t w[8][16][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    const __m512i ones = _mm512_set1_epi16(1), bias = _mm512_set1_epi8((char)0x80);
    UNROLL for (uint32_t i = 0; i < 8; i += 4)
    {
        __m512i pairs[4];
        UNROLL for (uint32_t j = 0; j < 4; j++)
        {
            const __m512i weights = _mm512_loadu_si512(w[i + j]);
            UNROLL for (uint32_t k = 0; k < n; k++)
            {
                int32_t four;
                memcpy(&four, q[k] + 4 * (i + j), sizeof four);
                const __m512i values = _mm512_set1_epi32(four);
                if (is_wide) {
                    const __m512i dot = dot_signed(_mm512_xor_si512(weights, bias), values);
                    sums[k] += (row_ints)_mm512_madd_epi16(dot, ones);
                } else {
                    const __m512i dot = _mm512_maddubs_epi16(weights, values);
                    pairs[k] = j ? _mm512_add_epi16(pairs[k], dot) : dot;
                }
            }
        }
        UNROLL for (uint32_t k = 0; !is_wide && k < n; k++) sums[k] +=
            (row_ints)_mm512_madd_epi16(pairs[k], ones);
    }
}

#include "kernels/product_kernel_body.h"

#include "kernels/product_part_body.h"
