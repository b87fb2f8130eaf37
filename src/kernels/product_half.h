/* F16 numbers by integer operations, on any processor. */
#pragma once

#include <stdint.h>
#include <string.h>

/* F16's bits below the sign, moved to where F32 has exponent and mantissa, are its value times
 * 2^-112. */
static inline float half(const uint8_t *from)
{
    uint16_t h;
    memcpy(&h, from, sizeof h);
    const uint32_t size = (uint32_t)(h & 0x7fff) << 13,
                   endless = size >= 0x7c00u << 13 ? 0x7f800000u : 0;
    float value;
    memcpy(&value, &size, sizeof value);
    value *= 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits |= endless | (uint32_t)(h & 0x8000) << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}
