/* The kernel for any processor: vectors of 4, which SSE2 and NEON have. */
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 4, COLUMNS = 2 };
#define INTERLEAVE_LOW 0, 4, 1, 5
#define INTERLEAVE_HIGH 2, 6, 3, 7
#define LANE_NUMBERS 0, 1, 2, 3

/* gcc's vector types need typedefs */
typedef float vec __attribute__((vector_size(16), may_alias));
typedef int32_t ivec __attribute__((vector_size(16), may_alias));

#if defined(__aarch64__)
static inline vec vec_load_halves(const void *from)
{
    typedef _Float16 halves __attribute__((vector_size(8), aligned(1), may_alias));
    return __builtin_convertvector(*(const halves *)from, vec);
}
#else
/* An F16's bits below the sign, moved to where F32 has exponent and mantissa, are its value times
 * 2^-112. */
static inline vec vec_load_halves(const void *from)
{
    uint16_t bits[LANES];
    memcpy(bits, from, sizeof bits);
    const ivec h = {bits[0], bits[1], bits[2], bits[3]};
    const ivec size = (h & 0x7fff) << 13, endless = (size >= 0x7c00 << 13) & 0x7f800000;
    const vec value = (vec)size * 0x1p112f;
    return (vec)((ivec)value | endless | ((h & 0x8000) << 16));
}
#endif

static inline vec vec_larger(vec a, vec b)
{
    const ivec is = a > b;
    return (vec)((is & (ivec)a) | (~is & (ivec)b));
}

static inline float vec_largest(vec x)
{
    const float a = x[0] > x[1] ? x[0] : x[1], b = x[2] > x[3] ? x[2] : x[3];
    return a > b ? a : b;
}

#include "kernels/attention_kernel_body.h"

static int attention_plain_works(void)
{
    return 1;
}

const struct attention_kernel attention_kernel_plain = {
    "plain", attention_plain_works, attention_kernel_chunk, attention_kernel_add,
    attention_kernel_finish};
