/* The kernel for x86 processors with AVX2, FMA and F16C: vectors of 8. Compiled for these alone. */
#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 8, COLUMNS = 2 };
#define INTERLEAVE_LOW 0, 8, 1, 9, 2, 10, 3, 11
#define INTERLEAVE_HIGH 4, 12, 5, 13, 6, 14, 7, 15
#define LANE_NUMBERS 0, 1, 2, 3, 4, 5, 6, 7

/* gcc's vector types need typedefs */
typedef float vec __attribute__((vector_size(32), may_alias));
typedef int32_t ivec __attribute__((vector_size(32), may_alias));

static inline vec vec_load_halves(const void *from)
{
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128(from));
}

static inline vec vec_larger(vec a, vec b)
{
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
}

static inline float vec_largest(vec x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128((__m256)x), _mm256_extractf128_ps((__m256)x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

#include "kernels/attention_kernel_body.h"

static int attention_avx2_works(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("f16c");
}

const struct attention_kernel attention_kernel_avx2 = {"avx2", attention_avx2_works,
                                                       attention_kernel_chunk, attention_kernel_add,
                                                       attention_kernel_finish};
