/* Blocks of weights, unpacked by any processor. product_unpack_x86.h does the same, and the tests
 * compare them. */
#pragma once

#include "kernels/product_half.h"
#include "kernels/product_kernel.h"

#include <string.h>

/* ---- blocks of weights -------------------------------------------------------------------- */

static inline void spread_scales(const int16_t scales[PRODUCT_GROUPS], struct unpacked *out)
{
    for (uint32_t i = 0; i < PRODUCT_BLOCK / 2; i++)
        out->scales[i] = scales[i * 2 / PRODUCT_GROUP];
}

/* Q4_K and Q5_K: a scale and an offset of 6 bits for each 32 weights, of the last four each in two
 * places. */
static void unpack_six_bits(const uint8_t *from, struct unpacked *out)
{
    int16_t scales[PRODUCT_GROUPS];
    for (uint32_t i = 0; i < 4; i++) {
        const uint8_t a = from[i], b = from[i + 4], c = from[i + 8];
        scales[2 * i] = scales[2 * i + 1] = a & 63;
        out->offsets[2 * i] = out->offsets[2 * i + 1] = b & 63;
        scales[2 * i + 8] = scales[2 * i + 9] = (int16_t)((c & 15) | (a >> 6) << 4);
        out->offsets[2 * i + 8] = out->offsets[2 * i + 9] = (int16_t)((c >> 4) | (b >> 6) << 4);
    }
    spread_scales(scales, out);
}

/* d, dmin, 12 bytes of scales and offsets, 128 bytes of two weights each: 32 low halves, then 32
 * high ones. */
static void unpack_q4(const uint8_t *block, struct unpacked *out)
{
    unpack_six_bits(block + 4, out);
    const uint8_t *low = block + 16;
    for (uint32_t j = 0; j < 4; j++, low += 32) {
        for (uint32_t i = 0; i < 32; i++) {
            out->weights[64 * j + i] = low[i] & 15;
            out->weights[64 * j + 32 + i] = low[i] >> 4;
        }
    }
}

/* As Q4_K; between scales and low halves 32 bytes whose bit j is the fifth bit of weights 32 j to
 * 32 j + 31. */
static void unpack_q5(const uint8_t *block, struct unpacked *out)
{
    unpack_six_bits(block + 4, out);
    const uint8_t *high = block + 16, *low = block + 48;
    for (uint32_t j = 0; j < 4; j++, low += 32) {
        for (uint32_t i = 0; i < 32; i++) {
            out->weights[64 * j + i] = (uint8_t)((low[i] & 15) | (high[i] >> (2 * j) & 1) << 4);
            out->weights[64 * j + 32 + i] =
                (uint8_t)(low[i] >> 4 | (high[i] >> (2 * j + 1) & 1) << 4);
        }
    }
}

/* For each half of the block 64 bytes of low halves, then for each 32 bytes of upper two bits, 16
 * scales, d. 32 is taken off each weight. */
static void unpack_q6(const uint8_t *block, struct unpacked *out)
{
    const uint8_t *low = block, *high = block + 128;
    const int8_t *packed = (const int8_t *)block + 192;
    for (uint32_t half_block = 0; half_block < 2; half_block++, low += 64, high += 32) {
        uint8_t *to = out->weights + 128 * half_block;
        for (uint32_t i = 0; i < 32; i++) {
            to[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            to[i + 32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            to[i + 64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            to[i + 96] = (uint8_t)(low[i + 32] >> 4 | (high[i] >> 6) << 4);
        }
    }
    int16_t scales[PRODUCT_GROUPS];
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        scales[g] = packed[g];
        out->offsets[g] = (int16_t)(32 * packed[g]);
    }
    spread_scales(scales, out);
}

/* Two bits of each weight, four weights a byte: 32 bytes for 128 weights. */
static void unpack_two_bits(const uint8_t *from, struct unpacked *out)
{
    for (uint32_t j = 0; j < 8; j++) {
        for (uint32_t i = 0; i < 32; i++)
            out->weights[32 * j + i] = from[j / 4 * 32 + i] >> (2 * (j % 4)) & 3;
    }
}

/* 16 bytes of scale and offset, 64 of weights, d, dmin. */
static void unpack_q2(const uint8_t *block, struct unpacked *out)
{
    int16_t scales[PRODUCT_GROUPS];
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        scales[g] = block[g] & 15;
        out->offsets[g] = block[g] >> 4;
    }
    spread_scales(scales, out);
    unpack_two_bits(block + 16, out);
}

/* 32 bytes whose bit j is the third bit of weights 32 j to 32 j + 31, 64 of the lower two, 12 of
 * scales of 6 bits, d. 4 is taken off each weight, 32 off each scale. */
static void unpack_q3(const uint8_t *block, struct unpacked *out)
{
    const uint8_t *packed = block + 96;
    int16_t scales[PRODUCT_GROUPS];
    unpack_two_bits(block + 32, out);
    for (uint32_t j = 0; j < 8; j++) {
        for (uint32_t i = 0; i < 32; i++)
            out->weights[32 * j + i] |= (uint8_t)((block[i] >> j & 1) << 2);
    }
    for (uint32_t g = 0; g < PRODUCT_GROUPS; g++) {
        const uint8_t low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4,
                      high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
        scales[g] = (int16_t)((low | high << 4) - 32);
        out->offsets[g] = (int16_t)(4 * scales[g]);
    }
    spread_scales(scales, out);
}
