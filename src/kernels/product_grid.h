/* Blocks of grid types (IQ1, IQ2, IQ3), unpacked by any processor: an index for every four or eight
 * weights says which entry of the type's grid they are, and their signs stand apart.
 *
 * The grids are ggml's, and are not written down here: product_grids_fill() finds them by letting
 * ggml unpack blocks that hold every index. */
#pragma once

#include "kernels/product_kernel.h"

#include <string.h>

enum { GRID_IQ1_BIAS = 9, GRID_IQ2_BIAS = 43, GRID_IQ3XXS_BIAS = 62, GRID_IQ3S_BIAS = 15 };

struct product_grids { /* bytes; sizes without signs, but for IQ1 eight times the value, and 8 */
    uint64_t iq1[2048], iq2xxs[256], iq2xs[512], iq2s[1024];
    uint32_t iq3xxs[256], iq3s[512];
    uint64_t signs[256];     /* byte i is 255 where bit i is set */
    uint8_t even_signs[128]; /* of seven signs: the eighth makes the number of them even */
    bool is_filled;
};

extern struct product_grids product_grids;

struct grid_scales { /* a byte for each group of 16 weights */
    uint64_t of[2];
};

#define GRID_ONES UINT64_C(0x0101010101010101)

static inline uint32_t grid_read16(const uint8_t *from)
{
    uint16_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline uint32_t grid_read32(const uint8_t *from)
{
    uint32_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

static inline uint64_t grid_read64(const uint8_t *from)
{
    uint64_t x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* ---- indices: entry i of a block's, of eight weights each, and their signs ---- */

ALWAYS_INLINE uint64_t grid_entry_iq2xxs(const uint8_t *block, uint32_t i)
{
    return product_grids.iq2xxs[block[2 + i / 4 * 8 + i % 4]];
}

ALWAYS_INLINE uint8_t grid_signs_iq2xxs(const uint8_t *block, uint32_t i)
{
    return product_grids.even_signs[grid_read32(block + 6 + i / 4 * 8) >> 7 * (i % 4) & 127];
}

ALWAYS_INLINE uint64_t grid_entry_iq2xs(const uint8_t *block, uint32_t i)
{
    return product_grids.iq2xs[grid_read16(block + 2 + 2 * i) & 511];
}

ALWAYS_INLINE uint8_t grid_signs_iq2xs(const uint8_t *block, uint32_t i)
{
    return product_grids.even_signs[block[3 + 2 * i] >> 1];
}

ALWAYS_INLINE uint64_t grid_entry_iq2s(const uint8_t *block, uint32_t i)
{
    return product_grids.iq2s[block[2 + i] | (block[66 + i / 4] >> 2 * (i % 4) & 3) << 8];
}

ALWAYS_INLINE uint8_t grid_signs_iq2s(const uint8_t *block, uint32_t i)
{
    return block[34 + i];
}

ALWAYS_INLINE uint64_t grid_entry_iq3xxs(const uint8_t *block, uint32_t i)
{
    return product_grids.iq3xxs[block[2 + 2 * i]] | (uint64_t)product_grids.iq3xxs[block[3 + 2 * i]]
                                                        << 32;
}

ALWAYS_INLINE uint8_t grid_signs_iq3xxs(const uint8_t *block, uint32_t i)
{
    return product_grids.even_signs[grid_read32(block + 66 + i / 4 * 4) >> 7 * (i % 4) & 127];
}

ALWAYS_INLINE uint64_t grid_entry_iq3s(const uint8_t *block, uint32_t i)
{
    const uint32_t high = (uint32_t)block[66 + i / 4] >> 2 * (i % 4);
    return product_grids.iq3s[block[2 + 2 * i] | (high & 1) << 8] |
           (uint64_t)product_grids.iq3s[block[3 + 2 * i] | (high & 2) << 7] << 32;
}

ALWAYS_INLINE uint8_t grid_signs_iq3s(const uint8_t *block, uint32_t i)
{
    return block[74 + i];
}

/* No branch: which it is cannot be foreseen. */
ALWAYS_INLINE uint64_t grid_delta(uint32_t is_less)
{
    return ((uint64_t)is_less - 1) & 2 * GRID_ONES;
}

/* Eight times the weights, and GRID_IQ1_BIAS: an eighth is added to them or taken off. */
ALWAYS_INLINE uint64_t grid_entry_iq1s(const uint8_t *block, uint32_t i)
{
    const uint32_t high = grid_read16(block + 34 + i / 4 * 2);
    return product_grids.iq1[block[2 + i] | (high >> 3 * (i % 4) & 7) << 8] +
           grid_delta(high >> 15);
}

ALWAYS_INLINE uint64_t grid_entry_iq1m(const uint8_t *block, uint32_t i)
{
    const uint32_t high = (uint32_t)block[32 + i / 2] >> 4 * (i % 2);
    return product_grids.iq1[block[i] | (high & 7) << 8] + grid_delta(high >> 3 & 1);
}

/* ---- scales: twice a number of the block and one ---- */

/* Byte i of 32 bits as byte 2 i of 64. */
ALWAYS_INLINE uint64_t grid_spread(uint32_t x)
{
    const uint64_t two = (x | (uint64_t)x << 16) & UINT64_C(0x0000ffff0000ffff);
    return (two | two << 8) & UINT64_C(0x00ff00ff00ff00ff);
}

ALWAYS_INLINE struct grid_scales grid_scales_odd(uint64_t low, uint64_t high)
{
    return (struct grid_scales){{2 * low + GRID_ONES, 2 * high + GRID_ONES}};
}

/* Four bits for each group. */
ALWAYS_INLINE struct grid_scales grid_scales_fours(const uint8_t *from)
{
    const uint32_t a = grid_read32(from), b = grid_read32(from + 4), four = 0x0f0f0f0f;
    return grid_scales_odd(grid_spread(a & four) | grid_spread(a >> 4 & four) << 8,
                           grid_spread(b & four) | grid_spread(b >> 4 & four) << 8);
}

/* A number for each two groups, `shift` up in 16 bits every `step` bytes. */
ALWAYS_INLINE struct grid_scales grid_scales_apart(const uint8_t *from, uint32_t step,
                                                   uint32_t shift, uint32_t mask)
{
    uint64_t all[2] = {0};
    UNROLL for (uint32_t i = 0; i < 8; i++)
    {
        const uint64_t scale = (grid_read16(from + i * step) >> shift) & mask;
        all[i / 4] |= (scale | scale << 8) << 16 * (i % 4);
    }
    return grid_scales_odd(all[0], all[1]);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq2xxs(const uint8_t *block)
{
    return grid_scales_apart(block + 8, 8, 12, 15);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq2xs(const uint8_t *block)
{
    return grid_scales_fours(block + 66);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq2s(const uint8_t *block)
{
    return grid_scales_fours(block + 74);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq3xxs(const uint8_t *block)
{
    return grid_scales_apart(block + 68, 4, 12, 15);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq3s(const uint8_t *block)
{
    const uint32_t x = grid_read32(block + 106), four = 0x0f0f0f0f;
    const uint64_t all = grid_spread(x & four) | grid_spread(x >> 4 & four) << 8;
    const uint64_t low = grid_spread((uint32_t)all), high = grid_spread((uint32_t)(all >> 32));
    return grid_scales_odd(low | low << 8, high | high << 8);
}

ALWAYS_INLINE struct grid_scales grid_scales_iq1s(const uint8_t *block)
{
    return grid_scales_apart(block + 34, 2, 12, 7);
}

/* Three bits for each group, four of them in 16 bits. */
ALWAYS_INLINE struct grid_scales grid_scales_iq1m(const uint8_t *block)
{
    uint64_t all[2] = {0};
    UNROLL for (uint32_t i = 0; i < PRODUCT_GROUPS; i++)
    {
        const uint64_t scale = grid_read16(block + 48 + i / 4 * 2) >> 3 * (i % 4) & 7;
        all[i / 8] |= scale << 8 * (i % 8);
    }
    return grid_scales_odd(all[0], all[1]);
}
