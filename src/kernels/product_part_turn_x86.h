/* Parts of eight rows side by side, in vectors of 32 bytes: rows change places with bytes before
 * those are unpacked, so that bytes of two weights are moved once. What is where, and the tables,
 * product_part_unpack.h says. Compiled for AVX2 at least. */
#pragma once

#include "kernels/product_part_unpack_x86.h"

/* out[i] is bytes 4 i to 4 i + 3 of the 16 that begin at `at` in each row. */
ALWAYS_INLINE void part_turn_16(const uint8_t *const *rows, size_t at, __m256i out[4])
{
    __m256i x[4], pairs[4];
    UNROLL for (uint32_t c = 0; c < 4; c++) x[c] =
        _mm256_loadu2_m128i((const void *)(rows[c + 4] + at), (const void *)(rows[c] + at));
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        pairs[i] = _mm256_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        pairs[i + 2] = _mm256_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        out[2 * i] = _mm256_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]);
        out[2 * i + 1] = _mm256_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]);
    }
}

/* Weights of four bits; with a table they are looked up. */
ALWAYS_INLINE void part_turn_fours(const uint8_t *const *rows, size_t at, const __m128i *table,
                                   uint8_t to[8][8][4])
{
    __m256i x[4];
    part_turn_16(rows, at, x);
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        const __m256i four = i < 4 ? x[i] : _mm256_srli_epi16(x[i - 4], 4);
        const __m256i weights = _mm256_and_si256(four, _mm256_set1_epi8(15));
        store32(to[i], table ? _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(*table), weights)
                             : weights);
    }
}

ALWAYS_INLINE void part_turn_q4(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4])
{
    part_turn_fours(rows, at, NULL, to);
}

ALWAYS_INLINE void part_turn_iq4(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4])
{
    const __m128i table = part_table_iq4();
    part_turn_fours(rows, at, &table, to);
}

ALWAYS_INLINE void part_turn_mx4(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4])
{
    const __m128i table = part_table_mx4();
    part_turn_fours(rows, at, &table, to);
}

/* 16 where bits 4 i to 4 i + 3 of each row's 32 are set. */
ALWAYS_INLINE __m256i part_turn_fifths(__m256i fifths, uint32_t i)
{
    const __m256i order =
        _mm256_add_epi8(_mm256_setr_epi64x(0x0404040400000000, 0x0c0c0c0c08080808,
                                           0x0404040400000000, 0x0c0c0c0c08080808),
                        _mm256_set1_epi8((char)(i / 2)));
    const __m256i bits = _mm256_set1_epi32(i % 2 ? (int32_t)0x80402010 : 0x08040201);
    const __m256i spread = _mm256_shuffle_epi8(fifths, order);
    return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits),
                            _mm256_set1_epi8(16));
}

ALWAYS_INLINE void part_turn_q5(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4])
{
    int32_t fifths[8];
    part_turn_fours(rows, at, NULL, to);
    UNROLL for (uint32_t c = 0; c < 8; c++) memcpy(&fifths[c], rows[c] + at - 4, 4);
    const __m256i all = load32((const void *)fifths);
    UNROLL for (uint32_t i = 0; i < 8; i++)
        store32(to[i], _mm256_or_si256(load32(to[i][0]), part_turn_fifths(all, i)));
}

ALWAYS_INLINE void part_turn_q8(const uint8_t *const *rows, size_t at, uint8_t to[8][8][4])
{
    __m256i x[8];
    part_turn_16(rows, at, x);
    part_turn_16(rows, at + 16, x + 4);
    UNROLL for (uint32_t i = 0; i < 8; i++)
        store32(to[i], _mm256_xor_si256(x[i], _mm256_set1_epi8((char)0x80)));
}

#define PART_TURN(name) part_turn_##name
