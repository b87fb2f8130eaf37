/* A part of sixteen rows of the matrix, unpacked in vectors: a strip. For kernels with AVX-512
 * VNNI, which keep strips in registers (product_strip_vnni.h) or in a panel (product_panel_vnni.h),
 * and make squares of parts of fewer rows by the same (product_square_vnni.h). */
#pragma once

#include "kernels/product_lanes_avx512.h"

enum { STRIP_ROWS = 16 };

struct strip {                         /* element c is row c's */
    __m512i weights[PRODUCT_PART / 4]; /* four in each; with the type's bias */
    __m512 d, m;                       /* m for types with one */
};

/* The part that begins at `at` in each row; of IQ4_XS part i of the block that does. */
typedef void strip_unpack(const uint8_t *const *rows, size_t at, uint32_t i, struct strip *out);

/* Where it takes that part from: a block that is more than its parts has a head of its own. */
ALWAYS_INLINE size_t strip_at(const struct part_form *form, uint32_t part)
{
    return form->step * PRODUCT_PARTS == form->block_bytes
               ? (size_t)part * form->step
               : (size_t)(part / PRODUCT_PARTS) * form->block_bytes;
}

/* 16 bytes of rows 0, step, 2 step and 3 step in lanes, by loads that a mask confines to one. Of
 * insertions compilers make loads and then insertions from registers, for which Intel's processors
 * have one unit, not two. */
ALWAYS_INLINE __m512i strip_lanes(const uint8_t *const *rows, uint32_t step, size_t at)
{
    __m512i x = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows[0] + at)));
    UNROLL for (uint32_t lane = 1; lane < 4; lane++) x = _mm512_mask_broadcast_i32x4(
        x, (__mmask16)(15u << 4 * lane), _mm_loadu_si128((const void *)(rows[step * lane] + at)));
    return x;
}

/* As lanes_turn(). */
ALWAYS_INLINE void strip_turn(const uint8_t *const *rows, size_t at, __m512i out[4])
{
    __m512i x[4];
    UNROLL for (uint32_t i = 0; i < 4; i++) x[i] = strip_lanes(rows + i, 4, at);
    lanes_turn_four(x, out);
}

ALWAYS_INLINE void strip_put_fours(const uint8_t *const *rows, size_t at, const __m512i *table,
                                   struct strip *out)
{
    __m512i x[4];
    strip_turn(rows, at, x);
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        const __m512i low = lanes_moved(x[i], 15, 0), high = lanes_moved(x[i], 0xf0, -4);
        out->weights[i] = table ? _mm512_shuffle_epi8(*table, low) : low;
        out->weights[i + 4] = table ? _mm512_shuffle_epi8(*table, high) : high;
    }
}

/* Bit i of each row's 32 is the fifth of weight i. */
ALWAYS_INLINE void strip_put_fives(const uint8_t *const *rows, size_t at, __m512i fifth,
                                   struct strip *out)
{
    const __m512i bits[2] = {_mm512_set1_epi32(0x08040201), _mm512_set1_epi32((int)0x80402010)};
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0));
    __m512i x[4];
    strip_turn(rows, at, x);
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        const __m512i byte =
            _mm512_shuffle_epi8(fifth, _mm512_add_epi8(order, _mm512_set1_epi8((char)(i / 2))));
        const __m512i low = i < 4 ? lanes_moved(x[i], 15, 0) : lanes_moved(x[i - 4], 0xf0, -4);
        out->weights[i] = _mm512_mask_add_epi8(low, _mm512_test_epi8_mask(byte, bits[i % 2]), low,
                                               _mm512_set1_epi8(16));
    }
}

ALWAYS_INLINE void strip_put_eights(const uint8_t *const *rows, size_t at, struct strip *out)
{
    __m512i x[8];
    strip_turn(rows, at, x);
    strip_turn(rows, at + 16, x + 4);
    UNROLL for (uint32_t i = 0; i < 8; i++) out->weights[i] =
        _mm512_xor_si512(x[i], _mm512_set1_epi8((char)0x80));
}

/* Parts that begin with d and m. */
ALWAYS_INLINE void strip_take_head(const uint8_t *const *rows, size_t at, __m512i head[4],
                                   struct strip *out)
{
    strip_turn(rows, at, head);
    out->d = lanes_low_half(head[0]);
    out->m = lanes_high_half(head[0]);
}

ALWAYS_INLINE void strip_unpack_q40(const uint8_t *const *rows, size_t at, uint32_t i,
                                    struct strip *out)
{
    out->d = lanes_halves(rows, at);
    strip_put_fours(rows, at + 2, NULL, out);
}

ALWAYS_INLINE void strip_unpack_q41(const uint8_t *const *rows, size_t at, uint32_t i,
                                    struct strip *out)
{
    __m512i head[4];
    strip_take_head(rows, at, head, out);
    strip_put_fours(rows, at + 4, NULL, out);
}

ALWAYS_INLINE void strip_unpack_q50(const uint8_t *const *rows, size_t at, uint32_t i,
                                    struct strip *out)
{
    __m512i head[4];
    strip_turn(rows, at, head);
    out->d = lanes_low_half(head[0]);
    strip_put_fives(rows, at + 6,
                    _mm512_or_si512(_mm512_srli_epi32(head[0], 16), _mm512_slli_epi32(head[1], 16)),
                    out);
}

ALWAYS_INLINE void strip_unpack_q51(const uint8_t *const *rows, size_t at, uint32_t i,
                                    struct strip *out)
{
    __m512i head[4];
    strip_take_head(rows, at, head, out);
    strip_put_fives(rows, at + 8, head[1], out);
}

ALWAYS_INLINE void strip_unpack_q80(const uint8_t *const *rows, size_t at, uint32_t i,
                                    struct strip *out)
{
    out->d = lanes_halves(rows, at);
    strip_put_eights(rows, at + 2, out);
}

ALWAYS_INLINE __m512i strip_table_iq4(void)
{
    return _mm512_broadcast_i32x4(_mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, (char)129,
                                                (char)141, (char)153, (char)166, (char)181,
                                                (char)197, (char)217, (char)241));
}

ALWAYS_INLINE void strip_unpack_iq4nl(const uint8_t *const *rows, size_t at, uint32_t i,
                                      struct strip *out)
{
    const __m512i table = strip_table_iq4();
    out->d = lanes_halves(rows, at);
    strip_put_fours(rows, at + 2, &table, out);
}

/* Part `part` of each row's block, which begins with these bytes. See scales_iq4xs(). */
ALWAYS_INLINE __m512 strip_scales_iq4xs(__m512i first_four, __m512i next_four, __m512i part)
{
    const __m512i twice = _mm512_add_epi32(part, part);
    const __m512i low = lanes_and(_mm512_srlv_epi32(next_four, _mm512_add_epi32(twice, twice)), 15);
    const __m512i high =
        lanes_and(_mm512_srlv_epi32(first_four, _mm512_add_epi32(twice, _mm512_set1_epi32(16))), 3);
    const __m512i scale =
        _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
    return _mm512_mul_ps(lanes_low_half(first_four), _mm512_cvtepi32_ps(scale));
}

ALWAYS_INLINE void strip_unpack_iq4xs(const uint8_t *const *rows, size_t at, uint32_t i,
                                      struct strip *out)
{
    const __m512i table = strip_table_iq4();
    __m512i head[4];
    strip_turn(rows, at, head);
    out->d = strip_scales_iq4xs(head[0], head[1], _mm512_set1_epi32((int)i));
    strip_put_fours(rows, at + 8 + 16 * i, &table, out);
}

ALWAYS_INLINE __m512i strip_table_mx4(void)
{
    return _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

/* A power of two less 128 by its exponent: see scales_mxfp4(). */
ALWAYS_INLINE __m512 strip_scales_mxfp4(const uint8_t *const *rows, size_t at)
{
    __m512i head[4];
    strip_turn(rows, at, head);
    const __m512i e = lanes_and(head[0], 255);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __m512i usual = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    return _mm512_castsi512_ps(
        _mm512_mask_mov_epi32(usual, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), tiny));
}

ALWAYS_INLINE void strip_unpack_mxfp4(const uint8_t *const *rows, size_t at, uint32_t i,
                                      struct strip *out)
{
    const __m512i table = strip_table_mx4();
    out->d = strip_scales_mxfp4(rows, at);
    strip_put_fours(rows, at + 1, &table, out);
}
