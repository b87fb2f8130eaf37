/* Counter-based randomness: the value depends on (seed, counter) alone, so any point of a
 * sequence can be replayed without its history.
 *
 * The mixer is SplitMix64's finaliser (Steele, Lea, Flood: "Fast splittable pseudorandom
 * number generators", OOPSLA 2014) applied twice, once to each word. */
#pragma once

#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t random_at(uint64_t seed, uint64_t counter)
{
    return random_mix(random_mix(seed) ^ random_mix(~counter));
}

/* Uniform in [0, 1), 53 bits. */
static inline double random_unit_at(uint64_t seed, uint64_t counter)
{
    return (double)(random_at(seed, counter) >> 11) * 0x1.0p-53;
}
