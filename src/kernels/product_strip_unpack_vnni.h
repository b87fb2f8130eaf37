/* A part of sixteen rows of the matrix, unpacked in vectors: a strip. For kernels with AVX-512
 * VNNI, which keep strips in registers (product_strip_vnni.h) or in a panel (product_panel_vnni.h).
 */
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

/* lanes_turn() by loads that a mask confines to a lane. Of insertions compilers make loads and then
 * insertions from registers, for which Intel's processors have one unit, not two. */
ALWAYS_INLINE void strip_turn(const uint8_t *const *rows, size_t at, __m512i out[4])
{
    __m512i x[4];
    UNROLL for (uint32_t i = 0; i < 4; i++)
    {
        x[i] = _mm512_castsi128_si512(_mm_loadu_si128((const void *)(rows[i] + at)));
        UNROLL for (uint32_t lane = 1; lane < 4; lane++) x[i] =
            _mm512_mask_broadcast_i32x4(x[i], (__mmask16)(15u << 4 * lane),
                                        _mm_loadu_si128((const void *)(rows[i + 4 * lane] + at)));
    }
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

/* See scales_iq4xs(). */
ALWAYS_INLINE void strip_unpack_iq4xs(const uint8_t *const *rows, size_t at, uint32_t i,
                                      struct strip *out)
{
    const __m512i table = strip_table_iq4();
    __m512i head[4];
    strip_turn(rows, at, head);
    const __m512i low = lanes_and(_mm512_srli_epi32(head[1], 4 * i), 15);
    const __m512i high = lanes_and(_mm512_srli_epi32(head[0], 16 + 2 * i), 3);
    const __m512i scale =
        _mm512_sub_epi32(_mm512_or_si512(low, _mm512_slli_epi32(high, 4)), _mm512_set1_epi32(32));
    out->d = _mm512_mul_ps(lanes_low_half(head[0]), _mm512_cvtepi32_ps(scale));
    strip_put_fours(rows, at + 8 + 16 * i, &table, out);
}

/* A power of two less 128 by its exponent: see scales_mxfp4(). */
ALWAYS_INLINE void strip_unpack_mxfp4(const uint8_t *const *rows, size_t at, uint32_t i,
                                      struct strip *out)
{
    const __m512i table = _mm512_broadcast_i32x4(
        _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
    __m512i head[4];
    strip_turn(rows, at, head);
    const __m512i e = lanes_and(head[0], 255);
    const __m512i tiny = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
    const __m512i usual = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    const __m512i bits =
        _mm512_mask_mov_epi32(usual, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)), tiny);
    out->d = _mm512_castsi512_ps(bits);
    strip_put_fours(rows, at + 1, &table, out);
}
