/* Parts of 32 weights, unpacked by vectors; where what is, product_part_unpack.h says. Compiled for
 * AVX2 and F16C at least. */
#pragma once

#include "kernels/product_unpack_x86.h"

/* The lower halves of 16 bytes, then their upper ones. */
ALWAYS_INLINE __m256i part_fours(const uint8_t *from)
{
    const __m128i both = _mm_loadu_si128((const void *)from);
    return _mm256_and_si256(
        _mm256_inserti128_si256(_mm256_castsi128_si256(both), _mm_srli_epi16(both, 4), 1),
        _mm256_set1_epi8(15));
}

ALWAYS_INLINE void part_unpack_q4(const uint8_t *from, uint8_t *to)
{
    store32(to, part_fours(from));
}

/* 16 where a weight's bit of 32 is set. */
ALWAYS_INLINE __m256i part_fifths(const uint8_t *from)
{
    int32_t fifth;
    memcpy(&fifth, from, sizeof fifth);
    const __m256i order =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(fifth), order);
    const __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
    return _mm256_and_si256(is_set, _mm256_set1_epi8(16));
}

ALWAYS_INLINE void part_unpack_q5(const uint8_t *from, uint8_t *to)
{
    store32(to, _mm256_or_si256(part_fours(from), part_fifths(from - 4)));
}

ALWAYS_INLINE void part_unpack_q8(const uint8_t *from, uint8_t *to)
{
    store32(to, _mm256_xor_si256(load32(from), _mm256_set1_epi8((char)0x80)));
}

ALWAYS_INLINE __m128i part_table_iq4(void)
{
    return _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129, (char)141, (char)153,
                         (char)166, (char)181, (char)197, (char)217, (char)241);
}

ALWAYS_INLINE __m128i part_table_mx4(void)
{
    return _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
}

ALWAYS_INLINE void part_unpack_iq4(const uint8_t *from, uint8_t *to)
{
    store32(to,
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part_table_iq4()), part_fours(from)));
}

ALWAYS_INLINE void part_unpack_mx4(const uint8_t *from, uint8_t *to)
{
    store32(to,
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part_table_mx4()), part_fours(from)));
}

/* ---- scales of eight parts ---- */

ALWAYS_INLINE void halves_of(const uint8_t *at, size_t step, float out[8])
{
    uint16_t bits[8];
    UNROLL for (size_t i = 0; i < 8; i++) memcpy(&bits[i], at + i * step, sizeof bits[i]);
    _mm256_storeu_ps(out, _mm256_cvtph_ps(_mm_set_epi16(
                              (short)bits[7], (short)bits[6], (short)bits[5], (short)bits[4],
                              (short)bits[3], (short)bits[2], (short)bits[1], (short)bits[0])));
}

ALWAYS_INLINE void part_scales_iq4(const uint8_t *block, float out[8])
{
    int32_t low;
    memcpy(&low, block + 4, sizeof low);
    const __m256i fours = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
                  twos = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    const int32_t high = block[2] | block[3] << 8;
    const __m256i lower =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(low), fours), _mm256_set1_epi32(15));
    const __m256i upper =
        _mm256_and_si256(_mm256_srlv_epi32(_mm256_set1_epi32(high), twos), _mm256_set1_epi32(3));
    const __m256i scale = _mm256_sub_epi32(_mm256_or_si256(lower, _mm256_slli_epi32(upper, 4)),
                                           _mm256_set1_epi32(32));
    _mm256_storeu_ps(out, _mm256_mul_ps(_mm256_set1_ps(half(block)), _mm256_cvtepi32_ps(scale)));
}

ALWAYS_INLINE void part_scales_mx4(const uint8_t *at, float out[8])
{
    const __m256i e = _mm256_cvtepu8_epi32(
        _mm_setr_epi8((char)at[0], (char)at[17], (char)at[34], (char)at[51], (char)at[68],
                      (char)at[85], (char)at[102], (char)at[119], 0, 0, 0, 0, 0, 0, 0, 0));
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    const __m256i usual = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i is_usual = _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1));
    _mm256_storeu_ps(out, _mm256_castsi256_ps(_mm256_blendv_epi8(tiny, usual, is_usual)));
}

/* ---- one row: vectors of 32 bytes, for all kernels ---- */

typedef __m256i part_ints;

ALWAYS_INLINE part_ints part_zero(void)
{
    return _mm256_setzero_si256();
}

/* 16 bits hold two products of 8 bits by 7 if one of them has no sign of its own. */
ALWAYS_INLINE part_ints part_dot(const uint8_t *w, const int8_t *q, bool is_wide)
{
    const __m256i weights = load32(w), values = load32((const uint8_t *)q);
#if defined(__AVXVNNI__)
    (void)is_wide;
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), weights, values);
#else
    __m256i pairs;
    if (is_wide) {
        const __m256i own = _mm256_xor_si256(weights, _mm256_set1_epi8((char)0x80));
        pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(own), _mm256_sign_epi8(values, own));
    } else {
        pairs = _mm256_maddubs_epi16(weights, values);
    }
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#endif
}

ALWAYS_INLINE void part_add_up(const part_ints sums[8], eight_ints *all)
{
    const __m256i a = _mm256_hadd_epi32(sums[0], sums[1]), b = _mm256_hadd_epi32(sums[2], sums[3]);
    const __m256i c = _mm256_hadd_epi32(sums[4], sums[5]), d = _mm256_hadd_epi32(sums[6], sums[7]);
    const __m256i low = _mm256_hadd_epi32(a, b), high = _mm256_hadd_epi32(c, d);
    *all = (eight_ints)_mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20),
                                        _mm256_permute2x128_si256(low, high, 0x31));
}

ALWAYS_INLINE __m256i part_quad(const int8_t *q)
{
    int32_t four;
    memcpy(&four, q, sizeof four);
    return _mm256_set1_epi32(four);
}
