/* Parts of 32 weights, unpacked by any processor; product_part_unpack_x86.h does the same, and the
 * tests compare them. Each byte of four bits has weight i in its lower half and weight i + 16 in
 * its upper one. The form's bias is added to what may be negative. */
#pragma once

#include "kernels/product_unpack.h"

#include <string.h>

static inline void part_unpack_q4(const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 0; i < 16; i++) {
        to[i] = from[i] & 15;
        to[i + 16] = from[i] >> 4;
    }
}

/* Before them 32 bits, the fifth of each weight. */
static inline void part_unpack_q5(const uint8_t *from, uint8_t *to)
{
    uint32_t fifth;
    memcpy(&fifth, from - 4, sizeof fifth);
    part_unpack_q4(from, to);
    for (uint32_t i = 0; i < 32; i++)
        to[i] |= (uint8_t)((fifth >> i & 1) << 4);
}

static inline void part_unpack_q8(const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 0; i < 32; i++)
        to[i] = from[i] ^ 0x80;
}

static inline void part_look_up(const uint8_t table[16], const uint8_t *from, uint8_t *to)
{
    for (uint32_t i = 0; i < 16; i++) {
        to[i] = table[from[i] & 15];
        to[i + 16] = table[from[i] >> 4];
    }
}

/* -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113, and 128. */
static inline void part_unpack_iq4(const uint8_t *from, uint8_t *to)
{
    static const uint8_t table[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                      129, 141, 153, 166, 181, 197, 217, 241};
    part_look_up(table, from, to);
}

/* Twice E2M1, 0 1 2 3 4 6 8 12 and the same below zero, and 12. */
static inline void part_unpack_mx4(const uint8_t *from, uint8_t *to)
{
    static const uint8_t table[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    part_look_up(table, from, to);
}

/* ---- scales of eight parts ---- */

/* A scale of 6 bits for each part, less 32: the lower four of two parts in a byte, the upper two of
 * eight in 16 bits. */
static inline void part_scales_iq4(const uint8_t *block, float out[8])
{
    const uint32_t high = block[2] | (uint32_t)block[3] << 8;
    for (uint32_t i = 0; i < PRODUCT_PARTS; i++) {
        const uint32_t low = block[4 + i / 2] >> (4 * (i % 2)) & 15;
        out[i] = half(block) * (float)((int32_t)(low | (high >> (2 * i) & 3) << 4) - 32);
    }
}

/* A power of two: its exponent. Weights are doubled so that they are integers, hence 2^-128. */
static inline void part_scales_mx4(const uint8_t *block, float out[8])
{
    for (uint32_t i = 0; i < PRODUCT_PARTS; i++) {
        const uint32_t e = block[i * 17];
        const uint32_t bits = e < 2 ? UINT32_C(0x00200000) << e : (e - 1) << 23;
        memcpy(&out[i], &bits, sizeof out[i]);
    }
}

/* No parts side by side: each for itself. */
#define PART_LANES(name) NULL
#define PART_TURN(name) NULL
