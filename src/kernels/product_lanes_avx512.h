/* Sixteen rows of a quantised matrix side by side, in vectors of 64 bytes: element c is row c's.
 * For kernels with AVX-512 (F, BW and VL). */
#pragma once

#include "kernels/product_kernel.h"

#include <immintrin.h>

/* 16 bytes of a row in each lane, rows `first`, first + 4, first + 8 and first + 12. */
ALWAYS_INLINE __m512i lanes_of_four(const uint8_t *const *rows, uint32_t first, size_t at)
{
    const __m128i *from[4];
    UNROLL for (uint32_t i = 0; i < 4; i++) from[i] = (const void *)(rows[first + 4 * i] + at);
    const __m512i one = _mm512_castsi128_si512(_mm_loadu_si128(from[0]));
    const __m512i two = _mm512_inserti32x4(one, _mm_loadu_si128(from[1]), 1);
    const __m512i three = _mm512_inserti32x4(two, _mm_loadu_si128(from[2]), 2);
    return _mm512_inserti32x4(three, _mm_loadu_si128(from[3]), 3);
}

/* out[i] has number i of each lane of the four. */
ALWAYS_INLINE void lanes_turn_four(const __m512i x[4], __m512i out[4])
{
    __m512i pairs[4];
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        pairs[i] = _mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]);
        pairs[i + 2] = _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]);
    }
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        out[2 * i] = _mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]);
        out[2 * i + 1] = _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]);
    }
}

/* out[i] is bytes 4 i to 4 i + 3 of the 16 that begin at `at` in each row. */
ALWAYS_INLINE void lanes_turn(const uint8_t *const *rows, size_t at, __m512i out[4])
{
    __m512i x[4];
    UNROLL for (uint32_t i = 0; i < 4; i++) x[i] = lanes_of_four(rows, i, at);
    lanes_turn_four(x, out);
}

/* The same for 32 bytes. */
ALWAYS_INLINE void lanes_turn_32(const uint8_t *const *rows, size_t at, __m512i out[8])
{
    lanes_turn(rows, at, out);
    lanes_turn(rows, at + 16, out + 4);
}

ALWAYS_INLINE __m512i lanes_and(__m512i x, uint32_t mask)
{
    return _mm512_and_si512(x, _mm512_set1_epi32((int)mask));
}

/* What comes next of sixteen rows. Sixteen streams are too many for processors to see, so they are
 * fetched by hand, to the second cache, a few lines at a time while what is there is multiplied.
 * (All at once they waited for each other, and memory was idle while rows were multiplied; to the
 * first cache they waited too.) */
struct lanes_next {
    const uint8_t *rows[PRODUCT_SHEAF_MAX];
    uint32_t n_lines; /* of each; 0: nothing */
};

/* `size` bytes from `at` on in rows of row_size; behind their end, of the sixteen that follow. */
ALWAYS_INLINE void lanes_set_next(const uint8_t *const *rows, size_t row_size, size_t at,
                                  size_t size, struct lanes_next *out)
{
    const uintptr_t all = (uintptr_t)(rows[1] - rows[0]) * PRODUCT_SHEAF_MAX;
    const uintptr_t step = at < row_size ? at : all + at - row_size;
    for (uint32_t c = 0; c < PRODUCT_SHEAF_MAX; c++)
        out->rows[c] = (const uint8_t *)((uintptr_t)rows[c] + step);
    out->n_lines = (uint32_t)((size + 63) / 64);
}

/* Share i of n. */
ALWAYS_INLINE void lanes_fetch(const struct lanes_next *next, uint32_t i, uint32_t n)
{
    const uint32_t n_all = next->n_lines * PRODUCT_SHEAF_MAX, end = n_all * (i + 1) / n;
    for (uint32_t k = n_all * i / n; k < end; k++)
        __builtin_prefetch(next->rows[k % PRODUCT_SHEAF_MAX] + 64 * (k / PRODUCT_SHEAF_MAX), 0, 2);
}

/* The bits `mask` of each byte, moved by n to the left or, if n < 0, to the right within it. */
ALWAYS_INLINE __m512i lanes_moved(__m512i x, uint32_t mask, int n)
{
    const __m512i bits = lanes_and(x, mask * UINT32_C(0x01010101));
    return n >= 0 ? _mm512_slli_epi32(bits, (unsigned)n) : _mm512_srli_epi32(bits, (unsigned)-n);
}

/* Byte i of each row's four. */
ALWAYS_INLINE __m512i lanes_byte(__m512i x, uint32_t i)
{
    return lanes_and(_mm512_srli_epi32(x, 8 * i), 255);
}

/* The F16 numbers in the lower or the upper halves. */
ALWAYS_INLINE __m512 lanes_low_half(__m512i x)
{
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}

ALWAYS_INLINE __m512 lanes_high_half(__m512i x)
{
    return lanes_low_half(_mm512_srli_epi32(x, 16));
}

ALWAYS_INLINE int lanes_half_bits(const uint8_t *from)
{
    uint16_t bits;
    __builtin_memcpy(&bits, from, sizeof bits);
    return bits;
}

ALWAYS_INLINE __m128i lanes_eight_halves(const uint8_t *const *rows, size_t at)
{
    __m128i x = _mm_insert_epi16(_mm_setzero_si128(), lanes_half_bits(rows[0] + at), 0);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[1] + at), 1);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[2] + at), 2);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[3] + at), 3);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[4] + at), 4);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[5] + at), 5);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[6] + at), 6);
    x = _mm_insert_epi16(x, lanes_half_bits(rows[7] + at), 7);
    return x;
}

/* The F16 number at `at` in each row: for it alone, less work than to turn all. */
ALWAYS_INLINE __m512 lanes_halves(const uint8_t *const *rows, size_t at)
{
    return _mm512_cvtph_ps(
        _mm256_set_m128i(lanes_eight_halves(rows + 8, at), lanes_eight_halves(rows, at)));
}

/* Four values of a row x for all rows of the matrix. */
ALWAYS_INLINE __m512i lanes_spread(const int8_t *q)
{
    int32_t four;
    __builtin_memcpy(&four, q, sizeof four);
    return _mm512_set1_epi32(four);
}

/* The n rows x, then the last again up to a multiple of four; how many. A row alone leaves the
 * units waiting for its sums as long as four take. */
static inline uint32_t lanes_fill(const struct product_block *const *x, uint32_t n,
                                  const struct product_block **out)
{
    const uint32_t n_all = (n + 3) / 4 * 4;
    for (uint32_t i = 0; i < n_all; i++)
        out[i] = x[i < n ? i : n - 1];
    return n_all;
}
