/* What is computed as it is rounded: norms and gates, as product.h says. A part of
 * product_kernel_body.h. */
#pragma once

#if defined(__AVX512F__)
enum { INPUT_LANES = 16 };
#elif defined(__AVX2__)
enum { INPUT_LANES = 8 };
#else
enum { INPUT_LANES = 4 };
#endif

typedef float vec __attribute__((vector_size(4 * INPUT_LANES), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * INPUT_LANES), may_alias));
typedef vec vec_anywhere __attribute__((aligned(4)));

static inline vec vec_larger(vec a, vec b)
{
    const ivec is = a > b;
    return (vec)((is & (ivec)a) | (~is & (ivec)b));
}

#include "kernels/exponential.h"

static float input_norm_factor(const float *x, uint32_t n, float epsilon)
{
    enum { SUMS = 16, AT_ONCE = INPUT_LANES / 2 };
    typedef float some __attribute__((vector_size(4 * AT_ONCE), aligned(4), may_alias));
    typedef double doubles __attribute__((vector_size(8 * AT_ONCE)));
    doubles sums[SUMS / AT_ONCE] = {{0}};
    double sum[SUMS];
    for (uint32_t i = 0; i < n; i += SUMS) {
        UNROLL for (uint32_t k = 0; k < SUMS / AT_ONCE; k++)
        {
            const some values = *(const some *)(x + i + k * AT_ONCE);
            sums[k] += __builtin_convertvector(values * values, doubles);
        }
    }
    memcpy(sum, sums, sizeof sum);
    for (uint32_t half = SUMS / 2; half; half /= 2) {
        for (uint32_t k = 0; k < half; k++)
            sum[k] += sum[k + half];
    }
    return 1 / sqrtf((float)(sum[0] / n) + epsilon);
}

static void input_norm(const float *x, const float *weight, float factor, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i += INPUT_LANES)
        *(vec_anywhere *)(y + i) =
            *(const vec_anywhere *)(x + i) * factor * *(const vec_anywhere *)(weight + i);
}

/* By the exponential of what is negative: gate / (1 + exp(-gate)), or the same times
 * exp(gate) / exp(gate). */
static void input_gate(const float *gate, const float *up, uint32_t n, float *y)
{
    for (uint32_t i = 0; i < n; i += INPUT_LANES) {
        const vec g = *(const vec_anywhere *)(gate + i);
        const vec e = exponential((vec)((ivec)g | INT32_MIN));
        const vec top = choose(g < 0, e, splat(1));
        *(vec_anywhere *)(y + i) = g * top / (1 + e) * *(const vec_anywhere *)(up + i);
    }
}
