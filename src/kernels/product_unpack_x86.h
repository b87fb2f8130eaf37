/* Blocks of weights, unpacked by vectors; where what is, product_unpack.h says. Compiled for AVX2
 * and F16C at least. What is stored is stored as the kernels load it, and their loops are unrolled,
 * so that a block that is used once does not go through memory. */
#pragma once

#include "kernels/product_kernel.h"

#include <immintrin.h>
#include <string.h>

ALWAYS_INLINE float half(const uint8_t *from)
{
    uint16_t bits;
    memcpy(&bits, from, sizeof bits);
    return _cvtsh_ss(bits);
}

ALWAYS_INLINE __m256i load32(const uint8_t *from)
{
    return _mm256_loadu_si256((const void *)from);
}

ALWAYS_INLINE void store32(void *to, __m256i x)
{
    _mm256_storeu_si256(to, x);
}

ALWAYS_INLINE void store64(uint8_t *to, __m256i first, __m256i second)
{
#if defined(__AVX512BW__)
    _mm512_storeu_si512(to, _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1));
#else
    store32(to, first);
    store32(to + 32, second);
#endif
}

/* The bits of `mask` of each byte, moved to the left or, for n < 0, to the right within it. n is a
 * constant. */
ALWAYS_INLINE __m256i moved_bits(__m256i x, int mask, int n)
{
    const __m256i bits = _mm256_and_si256(x, _mm256_set1_epi8((char)mask));
    return n >= 0 ? _mm256_slli_epi16(bits, n) : _mm256_srli_epi16(bits, -n);
}

/* Of 16 scales those of even groups stand in the lower half, those of odd groups in the upper
 * one. */
ALWAYS_INLINE void spread_scales(__m256i scales, int16_t *to)
{
#if defined(__AVX512BW__)
    const __m512i order =
        _mm512_set_epi64(0x0009000900090009, 0x0009000900090009, 0x0001000100010001,
                         0x0001000100010001, 0x0008000800080008, 0x0008000800080008, 0, 0);
    UNROLL for (int i = 0; i < 4; i++) _mm512_storeu_si512(
        to + 32 * i,
        _mm512_permutexvar_epi16(_mm512_add_epi16(order, _mm512_set1_epi16((short)(2 * i))),
                                 _mm512_castsi256_si512(scales)));
#else
    UNROLL for (int i = 0; i < 8; i++) store32(
        to + 16 * i, _mm256_shuffle_epi8(scales, _mm256_set1_epi16((short)(0x0100 + 0x0202 * i))));
#endif
}

/* Of 16 bytes. */
ALWAYS_INLINE __m128i even_then_odd(__m128i x)
{
    return _mm_shuffle_epi8(x, _mm_set_epi8(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0));
}

ALWAYS_INLINE void unpack_six_bits(const uint8_t *from, struct unpacked *out)
{
    uint32_t a, b, c;
    memcpy(&a, from, 4), memcpy(&b, from + 4, 4), memcpy(&c, from + 8, 4);
    const uint32_t ones = 0x01010101;
    const uint64_t scales = (a & 63 * ones) | (uint64_t)((c & 15 * ones) | (a >> 2 & 48 * ones))
                                                  << 32;
    const uint64_t offsets =
        (b & 63 * ones) | (uint64_t)((c >> 4 & 15 * ones) | (b >> 2 & 48 * ones)) << 32;
    const __m128i m = _mm_cvtsi64_si128((long long)offsets);
    spread_scales(_mm256_cvtepu8_epi16(_mm_set1_epi64x((long long)scales)), out->scales);
    store32(out->offsets, _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(m, m)));
}

ALWAYS_INLINE void unpack_q4(const uint8_t *block, struct unpacked *out)
{
    unpack_six_bits(block + 4, out);
    UNROLL for (int j = 0; j < 4; j++)
    {
        const __m256i low = load32(block + 16 + 32 * j);
        store64(out->weights + 64 * j, moved_bits(low, 15, 0), moved_bits(low, 0xf0, -4));
    }
}

ALWAYS_INLINE void unpack_q5(const uint8_t *block, struct unpacked *out)
{
    unpack_six_bits(block + 4, out);
    __m256i high = load32(block + 16);
    UNROLL for (int j = 0; j < 4; j++)
    {
        const __m256i low = load32(block + 48 + 32 * j);
        store64(out->weights + 64 * j,
                _mm256_or_si256(moved_bits(low, 15, 0), moved_bits(high, 1, 4)),
                _mm256_or_si256(moved_bits(low, 0xf0, -4), moved_bits(high, 2, 3)));
        high = _mm256_srli_epi16(high, 2);
    }
}

ALWAYS_INLINE void unpack_q6(const uint8_t *block, struct unpacked *out)
{
    UNROLL for (int j = 0; j < 2; j++)
    {
        const __m256i first = load32(block + 64 * j), second = load32(block + 64 * j + 32);
        const __m256i high = load32(block + 128 + 32 * j);
        uint8_t *to = out->weights + 128 * j;
        store64(to, _mm256_or_si256(moved_bits(first, 15, 0), moved_bits(high, 3, 4)),
                _mm256_or_si256(moved_bits(second, 15, 0), moved_bits(high, 12, 2)));
        store64(to + 64, _mm256_or_si256(moved_bits(first, 0xf0, -4), moved_bits(high, 48, 0)),
                _mm256_or_si256(moved_bits(second, 0xf0, -4), moved_bits(high, 0xc0, -2)));
    }
    const __m128i scales = _mm_loadu_si128((const void *)(block + 192));
    spread_scales(_mm256_cvtepi8_epi16(even_then_odd(scales)), out->scales);
    store32(out->offsets, _mm256_slli_epi16(_mm256_cvtepi8_epi16(scales), 5));
}

ALWAYS_INLINE void unpack_q2(const uint8_t *block, struct unpacked *out)
{
    const __m128i both = _mm_loadu_si128((const void *)block);
    spread_scales(_mm256_cvtepu8_epi16(_mm_and_si128(even_then_odd(both), _mm_set1_epi8(15))),
                  out->scales);
    store32(out->offsets, _mm256_srli_epi16(_mm256_cvtepu8_epi16(both), 4));
    UNROLL for (int j = 0; j < 8; j += 2)
    {
        const __m256i bits = _mm256_srli_epi16(load32(block + 16 + j / 4 * 32), 2 * (j % 4));
        store64(out->weights + 32 * j, moved_bits(bits, 3, 0), moved_bits(bits, 12, -2));
    }
}

ALWAYS_INLINE void unpack_q3(const uint8_t *block, struct unpacked *out)
{
    const __m256i third = load32(block);
    UNROLL for (int j = 0; j < 8; j += 2)
    {
        const __m256i two = _mm256_srli_epi16(load32(block + 32 + j / 4 * 32), 2 * (j % 4));
        store64(out->weights + 32 * j,
                _mm256_or_si256(moved_bits(two, 3, 0), moved_bits(third, 1 << j, 2 - j)),
                _mm256_or_si256(moved_bits(two, 12, -2), moved_bits(third, 2 << j, 1 - j)));
    }
    uint32_t a, b, c;
    memcpy(&a, block + 96, 4), memcpy(&b, block + 100, 4), memcpy(&c, block + 104, 4);
    const uint32_t ones = 0x01010101, low = 15 * ones, high = 48 * ones;
    const __m128i packed =
        _mm_set_epi32((int)((b >> 4 & low) | (c >> 2 & high)), (int)((a >> 4 & low) | (c & high)),
                      (int)((b & low) | (c << 2 & high)), (int)((a & low) | (c << 4 & high)));
    const __m128i scales = _mm_sub_epi8(packed, _mm_set1_epi8(32));
    spread_scales(_mm256_cvtepi8_epi16(even_then_odd(scales)), out->scales);
    store32(out->offsets, _mm256_slli_epi16(_mm256_cvtepi8_epi16(scales), 2));
}

/* Eight rows and eight times four bytes change places. */
ALWAYS_INLINE void turn_column(const uint8_t *rows, size_t row_step, uint8_t *to, size_t step)
{
    __m256i x[8], pairs[8], fours[8];
    UNROLL for (int c = 0; c < 8; c++) x[c] = load32(rows + (size_t)c * row_step);
    UNROLL for (int c = 0; c < 4; c++)
    {
        pairs[c] = _mm256_unpacklo_epi32(x[2 * c], x[2 * c + 1]);
        pairs[c + 4] = _mm256_unpackhi_epi32(x[2 * c], x[2 * c + 1]);
    }
    UNROLL for (int h = 0; h < 8; h += 4)
    {
        UNROLL for (int c = 0; c < 2; c++)
        {
            fours[h + c] = _mm256_unpacklo_epi64(pairs[h + 2 * c], pairs[h + 2 * c + 1]);
            fours[h + c + 2] = _mm256_unpackhi_epi64(pairs[h + 2 * c], pairs[h + 2 * c + 1]);
        }
    }
    UNROLL for (size_t i = 0; i < 4; i++)
    {
        store32(to + i * step, _mm256_permute2x128_si256(fours[2 * i], fours[2 * i + 1], 0x20));
        store32(to + (i + 4) * step,
                _mm256_permute2x128_si256(fours[2 * i], fours[2 * i + 1], 0x31));
    }
}
