/* exp() of a vector, for kernels. The file that includes this defines first:
 *
 *     vec, ivec                   floats, and as many of int32_t
 *     vec vec_larger(vec, vec)
 *
 * Every product is added by `sum + a * b`, which compilers fuse where the processor can and nowhere
 * else. */
#pragma once

#include "kernels/unroll.h"

ALWAYS_INLINE vec splat(float x)
{
    return (vec){0} + x;
}

/* `yes` where `mask` is all ones, `no` where it is 0 */
ALWAYS_INLINE vec choose(ivec mask, vec yes, vec no)
{
    return (vec)((mask & (ivec)yes) | (~mask & (ivec)no));
}

/* exp(x) for x <= 0, and 0 below -86: 2^n times Taylor's series of the rest, |rest| <= ln(2) / 2.
 * exp(0) is 1. */
ALWAYS_INLINE vec exponential(vec x)
{
    const vec magic = splat(0x1.8p23f), low = splat(-86.0f);
    const vec bounded = vec_larger(x, low);
    const vec shifted = bounded * 0x1.715476p0f + magic; /* x / ln 2, rounded, in the low bits */
    const vec n = shifted - magic;
    vec r = bounded - n * 0x1.62ep-1f; /* ln 2 in two parts; the first has few bits, so that the
                                          product is exact */
    r = r - n * 0x1.0bfbe8p-15f;
    vec y = splat(1.0f / 5040);
    y = y * r + 1.0f / 720;
    y = y * r + 1.0f / 120;
    y = y * r + 1.0f / 24;
    y = y * r + 1.0f / 6;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    y = (vec)((ivec)y + (((ivec)shifted - (ivec)magic) << 23));
    return choose(x < low, splat(0), y);
}
