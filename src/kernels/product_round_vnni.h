/* Rounding rows x to 8 bits, a block of 256 values at a time, by vectors of 64 bytes: the bits of
 * round_row() and part_kernel_round(). For kernels with AVX-512 VNNI. */
#pragma once

#include "kernels/product_kernel.h"

#include <immintrin.h>
#include <string.h>

/* The largest |x| of n values, n a multiple of 16. */
ALWAYS_INLINE float round_top(const float *x, uint32_t n)
{
    __m512 top = _mm512_setzero_ps();
    UNROLL for (uint32_t i = 0; i < n; i += 16) top =
        _mm512_max_ps(_mm512_abs_ps(_mm512_loadu_ps(x + i)), top); /* what is no number is less */
    return _mm512_reduce_max_ps(top);
}

/* 1 / scale of eight parts, 0 where that is too small. */
ALWAYS_INLINE __m256 round_inverse(__m256 scales)
{
    const __mmask8 is_some = _mm256_cmp_ps_mask(scales, _mm256_set1_ps(0x1p-100f), _CMP_GT_OQ);
    return _mm256_maskz_div_ps(is_some, _mm256_set1_ps(1), scales);
}

/* n values, a multiple of 16, to the nearest integers: they are in the low bits of the sum. */
ALWAYS_INLINE void round_values(const float *x, uint32_t n, float inverse, int8_t *to)
{
    UNROLL for (uint32_t i = 0; i < n; i += 16)
    {
        const __m512 shifted = _mm512_fmadd_ps(_mm512_loadu_ps(x + i), _mm512_set1_ps(inverse),
                                               _mm512_set1_ps(0x1.8p23f));
        _mm_storeu_si128((void *)(to + i), _mm512_cvtepi32_epi8(_mm512_castps_si512(shifted)));
    }
}

/* The sums of the 16 groups of a block. */
ALWAYS_INLINE __m512i round_sums(const int8_t values[PRODUCT_BLOCK])
{
    __m512i all = _mm512_setzero_si512();
    UNROLL for (uint32_t j = 0; j < 4; j++)
    {
        const __m512i fours = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1),
                                                  _mm512_loadu_si512(values + 64 * j));
        const __m512i twos = _mm512_add_epi32(fours, _mm512_shuffle_epi32(fours, 0xb1));
        /* number j of each lane is group 4 j + lane */
        all = _mm512_mask_add_epi32(all, (__mmask16)(0x1111 << j), twos,
                                    _mm512_shuffle_epi32(twos, 0x4e));
    }
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), all);
}

static void round_vnni_row(const float *x, uint32_t n_blocks, struct product_block *out)
{
    for (; n_blocks; n_blocks--, x += PRODUCT_BLOCK, out++) {
        out->scale = round_top(x, PRODUCT_BLOCK) / 127;
        round_values(x, PRODUCT_BLOCK, out->scale > 0x1p-100f ? 1 / out->scale : 0, out->values);
        _mm256_storeu_si256((void *)out->sums, _mm512_cvtepi32_epi16(round_sums(out->values)));
    }
}

/* To eleven bits: part_shortened() of eight. */
ALWAYS_INLINE __m256 round_shortened(__m256 x)
{
    const __m256i bits = _mm256_castps_si256(x), one = _mm256_set1_epi32(1),
                  odd = _mm256_and_si256(_mm256_srli_epi32(bits, 13), one),
                  up = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0xfff)), odd);
    return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32((int)0xffffe000)));
}

/* A block's parts, of which n are there; the others are zero. */
ALWAYS_INLINE void round_parts(const float *x, uint32_t n, enum product_rounding rounding,
                               struct product_block *out)
{
    const bool by_block = rounding == PRODUCT_ROUND_PARTS_ALIKE;
    float scales[PRODUCT_PARTS] = {0}, inverse[PRODUCT_PARTS];
    const float top = by_block ? round_top(x, PRODUCT_BLOCK) : 0;
    UNROLL for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
    {
        if (i < n)
            scales[i] = by_block ? top : round_top(x + i * PRODUCT_PART, PRODUCT_PART);
    }
    const __m256 e = _mm256_div_ps(_mm256_loadu_ps(scales), _mm256_set1_ps(127));
    _mm256_storeu_ps(out->scales, by_block ? e : round_shortened(e));
    _mm256_storeu_ps(inverse, round_inverse(e));
    UNROLL for (uint32_t i = 0; i < PRODUCT_PARTS; i++)
    {
        if (i < n)
            round_values(x + i * PRODUCT_PART, PRODUCT_PART, inverse[i],
                         out->values + i * PRODUCT_PART);
        else
            memset(out->values + i * PRODUCT_PART, 0, PRODUCT_PART);
    }
    const __m512i groups = round_sums(out->values);
    const __m256i sums =
        _mm512_cvtepi64_epi32(_mm512_add_epi32(groups, _mm512_shuffle_epi32(groups, 0xb1)));
    if (rounding == PRODUCT_ROUND_PARTS_SUMMED)
        _mm256_storeu_ps(out->x_sums, round_shortened(_mm256_mul_ps(e, _mm256_cvtepi32_ps(sums))));
    else
        _mm256_storeu_si256((void *)out->part_sums, sums);
}

static void round_vnni_parts(const float *x, uint32_t n_parts, enum product_rounding rounding,
                             struct product_block *out)
{
    for (; n_parts >= PRODUCT_PARTS; n_parts -= PRODUCT_PARTS, x += PRODUCT_BLOCK, out++)
        round_parts(x, PRODUCT_PARTS, rounding, out);
    if (n_parts)
        round_parts(x, n_parts, rounding, out);
}
