/* One row, as product_part_lanes_x86.h says: with AVX-512 VNNI a vector has two parts. */
#pragma once

#include "kernels/product_part_unpack_x86.h"

/* The 16 bytes of a part that begins at `at`, twice, then those of the part `step` bytes behind. At
 * one time where that can be, for a processor loads two vectors a cycle: up to 64 bytes are read;
 * `is_last`: none behind those of the second part. */
ALWAYS_INLINE __m512i part_lanes_load_two(const uint8_t *at, size_t step, bool is_last)
{
    if (step % 2) /* bytes cannot be moved as words */
        return _mm512_mask_broadcast_i32x4(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)at)), 0xff00,
            _mm_loadu_si128((const void *)(at + step)));
    const __m512i words = _mm512_add_epi16(
        _mm512_broadcast_i32x4(_mm_setr_epi16(0, 1, 2, 3, 4, 5, 6, 7)),
        _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16((short)(step / 2)), 1));
    return _mm512_permutexvar_epi16(
        words, is_last ? _mm512_maskz_loadu_epi8(((__mmask64)1 << (step + 16)) - 1, at)
                       : _mm512_loadu_si512(at));
}

/* Two parts' weights in order. */
ALWAYS_INLINE __m512i part_lanes_in_order(const uint8_t *at, size_t step, bool is_last)
{
    return _mm512_and_si512(_mm512_srlv_epi64(part_lanes_load_two(at, step, is_last),
                                              _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4)),
                            _mm512_set1_epi8(15));
}

/* The fifth bits of two parts' weights. */
ALWAYS_INLINE __mmask64 part_lanes_fifth(const uint8_t *at, size_t step)
{
    uint32_t one, two;
    memcpy(&one, at, sizeof one);
    memcpy(&two, at + step, sizeof two);
    return one | (uint64_t)two << 32;
}

ALWAYS_INLINE __m512i part_lanes_add_pairs(__m512i a, __m512i b, bool is_wide)
{
    if (is_wide) /* sums need 32 bits */
        return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}

/* sums[i]: of parts 2 i and 2 i + 1, a lane of 16 bytes for each half. */
ALWAYS_INLINE void part_lanes_add_up(const __m512i sums[4], bool is_wide, eight_ints *all)
{
    __m512i quarters;
    if (is_wide)
        quarters = part_lanes_add_pairs(part_lanes_add_pairs(sums[0], sums[2], true),
                                        part_lanes_add_pairs(sums[1], sums[3], true), true);
    else
        quarters = part_lanes_add_pairs(part_lanes_add_pairs(sums[0], sums[1], false),
                                        part_lanes_add_pairs(sums[2], sums[3], false), false);
    const __m512i halves =
        _mm512_add_epi32(quarters, _mm512_shuffle_i32x4(quarters, quarters, 0xb1));
    *all = (eight_ints)_mm512_castsi512_si256(_mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 0, 0, 0, 0, 0, 0, 0, 0), halves));
}

/* Weights of eight parts that begin at `from`, times q. With a table weights are looked up, with
 * `fifth_at` bytes from there are their fifth bits. */
ALWAYS_INLINE void part_lanes_products(const uint8_t *from, size_t step, const __m128i *table,
                                       int fifth_at, const int8_t *q, bool is_wide, eight_ints *all)
{
    __m512i sums[PRODUCT_PARTS / 2];
    UNROLL for (size_t i = 0; i < PRODUCT_PARTS / 2; i++)
    {
        const uint8_t *at = from + 2 * i * step;
        __m512i weights = part_lanes_in_order(at, step, i == 3);
        if (table)
            weights = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(*table), weights);
        if (fifth_at)
            weights = _mm512_mask_add_epi8(weights, part_lanes_fifth(at + fifth_at, step), weights,
                                           _mm512_set1_epi8(16));
        sums[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), weights,
                                      _mm512_loadu_si512(q + 2 * i * PRODUCT_PART));
    }
    part_lanes_add_up(sums, is_wide, all);
}
