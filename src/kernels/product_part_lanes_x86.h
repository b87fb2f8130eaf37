/* One row: eight parts whose weights have four or five bits, times a row x. In the file 16 bytes
 * have the lower and the upper half of a part. With AVX-VNNI a vector has a part. Without, a lane
 * of 16 bytes is kept for one, and its products are added up within it, two parts beside each
 * other. */
#pragma once

#include "kernels/product_part_unpack_x86.h"

#if defined(__AVXVNNI__)
/* A part's 16 bytes twice, shifted by different counts: its weights in order. */
ALWAYS_INLINE __m256i part_lanes_in_order(const uint8_t *from)
{
    const __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)from));
    return _mm256_and_si256(_mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4)),
                            _mm256_set1_epi8(15));
}

/* Sums of four products of five bits by 7 fit 16 bits, and so do sums of eight. */
ALWAYS_INLINE __m256i part_lanes_pairs(__m256i a, __m256i b)
{
    return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
}

ALWAYS_INLINE void part_lanes_add_up(const part_ints sums[8], bool is_wide, eight_ints *all)
{
    if (is_wide) {
        part_add_up(sums, all);
        return;
    }
    const __m256i low = part_lanes_pairs(part_lanes_pairs(sums[0], sums[1]),
                                         part_lanes_pairs(sums[2], sums[3])),
                  high = part_lanes_pairs(part_lanes_pairs(sums[4], sums[5]),
                                          part_lanes_pairs(sums[6], sums[7]));
    *all = (eight_ints)_mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                        _mm256_permute2x128_si256(low, high, 0x31));
}

/* Weights of eight parts that begin at `from`, times q. With a table weights are looked up, with
 * `fifth_at` bytes from there are their fifth bits. */
ALWAYS_INLINE void part_lanes_products(const uint8_t *from, size_t step, const __m128i *table,
                                       int fifth_at, const int8_t *q, bool is_wide, eight_ints *all)
{
    part_ints sums[PRODUCT_PARTS];
    UNROLL for (size_t i = 0; i < PRODUCT_PARTS; i++)
    {
        const uint8_t *at = from + i * step;
        __m256i weights = part_lanes_in_order(at);
        if (table)
            weights = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(*table), weights);
        if (fifth_at)
            weights = _mm256_or_si256(weights, part_fifths(at + fifth_at));
        sums[i] = _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), weights,
                                          load32((const uint8_t *)q + i * PRODUCT_PART));
    }
    part_lanes_add_up(sums, is_wide, all);
}
#else
enum { LANES = 2 };
typedef __m256i part_lanes;

ALWAYS_INLINE part_lanes part_lanes_load(const uint8_t *from, size_t step)
{
    const __m128i one = _mm_loadu_si128((const void *)from);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(one),
                                   _mm_loadu_si128((const void *)(from + step)), 1);
}

ALWAYS_INLINE part_lanes part_lanes_low(part_lanes x)
{
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}

ALWAYS_INLINE part_lanes part_lanes_high(part_lanes x)
{
    return part_lanes_low(_mm256_srli_epi16(x, 4));
}

ALWAYS_INLINE part_lanes part_lanes_look_up(__m128i table, part_lanes x)
{
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), x);
}

/* 16 where a weight's bit is set: bits 0 to 15 of a part's 32 for its lower half, else the rest. */
ALWAYS_INLINE part_lanes part_lanes_fifth(const uint8_t *from, size_t step, bool is_high)
{
#if defined(__AVX512BW__)
    uint16_t one, two;
    memcpy(&one, from + (is_high ? 2 : 0), sizeof one);
    memcpy(&two, from + step + (is_high ? 2 : 0), sizeof two);
    return _mm256_maskz_mov_epi8(one | (uint32_t)two << 16, _mm256_set1_epi8(16));
#else
    const __m256i order =
        _mm256_add_epi8(_mm256_setr_epi64x(0, 0x0101010101010101, 0, 0x0101010101010101),
                        _mm256_set1_epi8(is_high ? 2 : 0));
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread =
        _mm256_shuffle_epi8(_mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si32(from)),
                                                    _mm_loadu_si32(from + step), 1),
                            order);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits),
                            _mm256_set1_epi8(16));
#endif
}

ALWAYS_INLINE part_lanes part_lanes_or(part_lanes a, part_lanes b)
{
    return _mm256_or_si256(a, b);
}

/* 16 bits hold four products of five bits by 7, or two of 7 by 7 if the weights have a sign. */
ALWAYS_INLINE part_lanes part_lanes_dot(part_lanes low, part_lanes high, const int8_t *q,
                                        bool is_wide)
{
    const __m256i a = load32((const uint8_t *)q), b = load32((const uint8_t *)q + 32);
    const __m256i x = _mm256_permute2x128_si256(a, b, 0x20),
                  y = _mm256_permute2x128_si256(a, b, 0x31);
    const __m256i ones = _mm256_set1_epi16(1), bias = _mm256_set1_epi8((char)0x80);
    if (!is_wide)
        return _mm256_madd_epi16(
            _mm256_add_epi16(_mm256_maddubs_epi16(low, x), _mm256_maddubs_epi16(high, y)), ones);
    low = _mm256_xor_si256(low, bias);
    high = _mm256_xor_si256(high, bias);
    return _mm256_add_epi32(
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(low), _mm256_sign_epi8(x, low)),
                          ones),
        _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(high), _mm256_sign_epi8(y, high)),
                          ones));
}

ALWAYS_INLINE void part_lanes_add_up(const part_lanes sums[4], eight_ints *all)
{
    const __m256i low = _mm256_hadd_epi32(sums[0], sums[1]),
                  high = _mm256_hadd_epi32(sums[2], sums[3]);
    *all = (eight_ints)_mm256_permutevar8x32_epi32(_mm256_hadd_epi32(low, high),
                                                   _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
/* Weights of eight parts that begin at `from`, times q. With a table weights are looked up, with
 * `fifth_at` bytes from there are their fifth bits. */
ALWAYS_INLINE void part_lanes_products(const uint8_t *from, size_t step, const __m128i *table,
                                       int fifth_at, const int8_t *q, bool is_wide, eight_ints *all)
{
    part_lanes sums[PRODUCT_PARTS / LANES];
    UNROLL for (size_t i = 0; i < PRODUCT_PARTS; i += LANES)
    {
        const uint8_t *at = from + i * step;
        const part_lanes both = part_lanes_load(at, step);
        part_lanes low = part_lanes_low(both), high = part_lanes_high(both);
        if (table) {
            low = part_lanes_look_up(*table, low);
            high = part_lanes_look_up(*table, high);
        }
        if (fifth_at) {
            low = part_lanes_or(low, part_lanes_fifth(at + fifth_at, step, false));
            high = part_lanes_or(high, part_lanes_fifth(at + fifth_at, step, true));
        }
        sums[i / LANES] = part_lanes_dot(low, high, q + i * PRODUCT_PART, is_wide);
    }
    part_lanes_add_up(sums, all);
}

#endif

#define PART_LANES(name) part_lanes_##name

ALWAYS_INLINE void part_lanes_q40(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    part_lanes_products(block + 2, 18, NULL, 0, q, false, all);
}

ALWAYS_INLINE void part_lanes_q41(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    part_lanes_products(block + 4, 20, NULL, 0, q, false, all);
}

ALWAYS_INLINE void part_lanes_q50(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    part_lanes_products(block + 6, 22, NULL, -4, q, false, all);
}

ALWAYS_INLINE void part_lanes_q51(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    part_lanes_products(block + 8, 24, NULL, -4, q, false, all);
}

ALWAYS_INLINE void part_lanes_iq4nl(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    const __m128i table = part_table_iq4();
    part_lanes_products(block + 2, 18, &table, 0, q, true, all);
}

ALWAYS_INLINE void part_lanes_iq4xs(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    const __m128i table = part_table_iq4();
    part_lanes_products(block + 8, 16, &table, 0, q, true, all);
}

ALWAYS_INLINE void part_lanes_mxfp4(const uint8_t *block, const int8_t *q, eight_ints *all)
{
    const __m128i table = part_table_mx4();
    part_lanes_products(block + 1, 17, &table, 0, q, false, all);
}
