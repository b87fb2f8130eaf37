/* What the kernels for 64-bit ARM processors share: vectors of 16 bytes, and products of 8 bits
 * that are summed up by four (FEAT_DotProd). With products of two by two rows (FEAT_I8MM) many rows
 * are multiplied by these, and stand beside each other in another order; the integers are the same.
 * Weights are unpacked as for any processor, by what compilers make of it. */
#pragma once

#include "kernels/product_kernel.h"

#include <arm_neon.h>
#include <stdbool.h>
#include <string.h>

enum { STEP = 16, ROWS = 8, WIDE_IS_SIGNED = 1 };

typedef int32x4_t ints;
typedef eight_ints row_ints;
typedef float row_floats __attribute__((vector_size(32), aligned(4), may_alias));

static inline ints ints_zero(void)
{
    return vdupq_n_s32(0);
}

/* Weights have no sign, but less than eight bits. */
static inline ints ints_dot(ints sum, const uint8_t *w, const int8_t *q, const int16_t *scale)
{
    const int8x16_t weights = vreinterpretq_s8_u8(vld1q_u8(w));
    return vmlaq_n_s32(sum, vdotq_s32(ints_zero(), weights, vld1q_s8(q)), scale[0]);
}

static inline ints ints_dot_sums(const int16_t *m, const int16_t *sums)
{
    ints all = ints_zero();
    UNROLL for (uint32_t i = 0; i < PRODUCT_GROUPS; i += 4) all =
        vmlal_s16(all, vld1_s16(m + i), vld1_s16(sums + i));
    return all;
}

static inline void ints_add_up(const ints sums[8], eight_ints *all)
{
    UNROLL for (uint32_t i = 0; i < 2; i++)
    {
        const ints *from = sums + 4 * i;
        const ints four = vpaddq_s32(vpaddq_s32(from[0], from[1]), vpaddq_s32(from[2], from[3]));
        memcpy((char *)all + 16 * i, &four, sizeof four);
    }
}

/* ---- eight rows ---- */

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* 64 bytes for each eight of a row: eight of row 0, eight of row 1, and so on, two rows a vector.
 */
static inline void turn_column(const uint8_t *rows, size_t row_step, uint8_t *to, size_t step)
{
    (void)step;                             /* a column's bytes, which follow each other */
    UNROLL for (uint32_t i = 0; i < 8; i++) /* two rows, 16 bytes */
    {
        const uint8_t *from = rows + i / 2 * 2 * row_step + i % 2 * 16;
        const uint64x2_t a = vreinterpretq_u64_u8(vld1q_u8(from)),
                         b = vreinterpretq_u64_u8(vld1q_u8(from + row_step));
        uint8_t *out = to + i % 2 * 128 + i / 2 * 16;
        vst1q_u8(out, vreinterpretq_u8_u64(vzip1q_u64(a, b)));
        vst1q_u8(out + 64, vreinterpretq_u8_u64(vzip2q_u64(a, b)));
    }
}

#else
static inline void turn_column(const uint8_t *rows, size_t row_step, uint8_t *to, size_t step)
{
    UNROLL for (uint32_t part = 0; part < 4; part++) /* four rows, 16 bytes */
    {
        const uint8_t *from = rows + part / 2 * 4 * row_step + part % 2 * 16;
        uint32x4_t x[4], pairs[4];
        UNROLL for (uint32_t c = 0; c < 4; c++) x[c] =
            vreinterpretq_u32_u8(vld1q_u8(from + c * row_step));
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            pairs[i] = vzip1q_u32(x[i], x[i + 2]);
            pairs[i + 2] = vzip2q_u32(x[i], x[i + 2]);
        }
        uint8_t *out = to + part % 2 * 4 * step + part / 2 * 16;
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            const uint32x4_t a = vzip1q_u32(pairs[2 * i], pairs[2 * i + 1]),
                             b = vzip2q_u32(pairs[2 * i], pairs[2 * i + 1]);
            vst1q_u8(out + 2 * i * step, vreinterpretq_u8_u32(a));
            vst1q_u8(out + (2 * i + 1) * step, vreinterpretq_u8_u32(b));
        }
    }
}

/* sums + w q for four rows and four weights of 16. */
static inline ints ints_dot_four(ints sums, int8x16_t w, int8x16_t q, uint32_t i)
{
    return i == 0   ? vdotq_laneq_s32(sums, w, q, 0)
           : i == 1 ? vdotq_laneq_s32(sums, w, q, 1)
           : i == 2 ? vdotq_laneq_s32(sums, w, q, 2)
                    : vdotq_laneq_s32(sums, w, q, 3);
}

static inline void rows_add_group(const uint8_t w[4][8][4], const int8_t *q,
                                  const int16_t scale[8][2], uint32_t bits, row_ints *to)
{
    (void)bits;
    const int8x16_t values = vld1q_s8(q);
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        ints dot = ints_zero(), all;
        UNROLL for (uint32_t i = 0; i < 4; i++) dot =
            ints_dot_four(dot, vreinterpretq_s8_u8(vld1q_u8(w[i][4 * h])), values, i);
        const int16x4_t scales = vld2_s16(scale[4 * h]).val[0];
        memcpy(&all, (char *)to + 16 * h, sizeof all);
        all = vmlaq_s32(all, dot, vmovl_s16(scales));
        memcpy((char *)to + 16 * h, &all, sizeof all);
    }
}

static inline void rows_add_pairs(const int16_t m[8][2], const int16_t sums[2], row_ints *to)
{
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const int16x4x2_t both = vld2_s16(m[4 * h]);
        ints all;
        memcpy(&all, (char *)to + 16 * h, sizeof all);
        all = vmlal_n_s16(vmlal_n_s16(all, both.val[0], sums[0]), both.val[1], sums[1]);
        memcpy((char *)to + 16 * h, &all, sizeof all);
    }
}
#endif

/* ---- two rows by two ---- */

#if defined(__ARM_FEATURE_MATMUL_INT8)
enum { MATMUL_PAIRS = 2 }; /* of rows x, at most, that are multiplied together */

/* Eight values of each of two rows x. */
static inline int8x16_t matmul_pair(const int8_t *a, const int8_t *b, uint32_t at)
{
    return vcombine_s8(vld1_s8(a + at), vld1_s8(b + at));
}

/* Products of eight rows with pair k of rows x, two by two, to the sums of each row x. */
static inline void matmul_add(const ints products[4][MATMUL_PAIRS], uint32_t k, row_ints sums[2])
{
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        const ints a = products[2 * h][k], b = products[2 * h + 1][k];
        const ints both[2] = {vuzp1q_s32(a, b), vuzp2q_s32(a, b)};
        UNROLL for (uint32_t i = 0; i < 2; i++)
        {
            ints *to = (ints *)&sums[i] + h;
            *to = vaddq_s32(*to, both[i]);
        }
    }
}
#endif

/* ---- parts ---- */

typedef ints part_ints;

static inline part_ints part_zero(void)
{
    return ints_zero();
}

/* What is wide has all eight bits, and 128 too much. */
static inline int8x16_t part_weights(const uint8_t *w, bool is_wide)
{
    return vreinterpretq_s8_u8(veorq_u8(vld1q_u8(w), vdupq_n_u8(is_wide ? 0x80 : 0)));
}

static inline part_ints part_dot(const uint8_t *w, const int8_t *q, bool is_wide)
{
    const ints first = vdotq_s32(ints_zero(), part_weights(w, is_wide), vld1q_s8(q));
    return vdotq_s32(first, part_weights(w + 16, is_wide), vld1q_s8(q + 16));
}

static inline void part_add_up(const part_ints sums[8], eight_ints *all)
{
    ints_add_up(sums, all);
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
/* Two rows of the matrix by two rows x at a time. */
static inline void part_rows_dot(const uint8_t w[8][8][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    ints all[4][MATMUL_PAIRS] = {0};
    UNROLL for (uint32_t i = 0; i < 4; i++) /* eight weights of each row */
    {
        UNROLL for (uint32_t p = 0; p < 4; p++)
        {
            const int8x16_t weights = part_weights(w[2 * i][0] + 16 * p, is_wide);
            UNROLL for (uint32_t k = 0; k < n / 2; k++) all[p][k] =
                vmmlaq_s32(all[p][k], weights, matmul_pair(q[2 * k], q[2 * k + 1], 8 * i));
        }
    }
    UNROLL for (uint32_t k = 0; k < n / 2; k++) matmul_add(all, k, &sums[2 * k]);
}
#else
static inline void part_rows_dot(const uint8_t w[8][8][4], const int8_t *const *q, bool is_wide,
                                 uint32_t n, row_ints *sums)
{
    UNROLL for (uint32_t h = 0; h < 2; h++)
    {
        ints all[4];
        UNROLL for (uint32_t k = 0; k < n; k++)
            memcpy(&all[k], (char *)&sums[k] + 16 * h, sizeof all[k]);
        UNROLL for (uint32_t i = 0; i < 8; i++)
        {
            const int8x16_t weights = part_weights(w[i][4 * h], is_wide);
            UNROLL for (uint32_t k = 0; k < n; k++) all[k] =
                ints_dot_four(all[k], weights, vld1q_s8(q[k] + i / 4 * 16), i % 4);
        }
        UNROLL for (uint32_t k = 0; k < n; k++)
            memcpy((char *)&sums[k] + 16 * h, &all[k], sizeof all[k]);
    }
}
#endif

#include "kernels/product_part_unpack.h"
#include "kernels/product_unpack.h"

static inline void halves_of(const uint8_t *at, size_t step, float out[8])
{
    for (uint32_t i = 0; i < 8; i++)
        out[i] = half(at + i * step);
}

#include "kernels/product_kernel_body.h"

#include "kernels/product_part_body.h"
