/* The kernel for x86 processors with AVX-512: vectors of 16. Compiled for these alone. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16, COLUMNS = 4 };
#define INTERLEAVE_LOW 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define INTERLEAVE_HIGH 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15

/* gcc's vector types need typedefs */
typedef float vec __attribute__((vector_size(64), may_alias));
typedef int32_t ivec __attribute__((vector_size(64), may_alias));

static inline vec vec_load_halves(const void *from)
{
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256(from));
}

static inline vec vec_larger(vec a, vec b)
{
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
}

static inline float vec_largest(vec x)
{
    return _mm512_reduce_max_ps((__m512)x);
}

#include "kernels/attention_kernel_body.h"

static int attention_avx512_works(void)
{
    return __builtin_cpu_supports("avx512f");
}

const struct attention_kernel attention_kernel_avx512 = {
    "avx512", attention_avx512_works, attention_kernel_chunk, attention_kernel_add,
    attention_kernel_finish};
