/* Attention has one value on all processors with fused multiply-add: a digest of its bits, the same
 * here and on a machine of another kind. */
#include "kernels/attention.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 150, HEADS = 2, DIM = 32 };

/* A multiple of 1/128 between -1 and 1: exact as F16 and F32. */
static float drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(int8_t)(*state >> 24) / 128;
}

/* The value as F16. */
static uint16_t halved(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    return (uint16_t)(x == 0 ? sign : sign | (((bits & 0x7fffffff) >> 13) - (112u << 10)));
}

static uint64_t digest(const float *values, size_t n)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n * sizeof *values; i++)
        hash = (hash ^ ((const unsigned char *)values)[i]) * 1099511628211u;
    return hash;
}

static uint64_t attended(const struct attention_kernel *kernel, float softcap)
{
    const struct attention_form form = {.n_head = HEADS,
                                        .n_head_kv = 1,
                                        .dim_k = DIM,
                                        .dim_v = DIM,
                                        .scale = 2,
                                        .softcap = softcap,
                                        .type = ATTENTION_F16};
    static float q[ROWS * HEADS * DIM], out[ROWS * HEADS * DIM];
    static uint16_t k[ROWS * DIM], v[ROWS * DIM];
    static int64_t cells[ROWS];
    static int32_t positions[ROWS];
    uint32_t state = 1;
    for (size_t i = 0; i < ROWS * HEADS * DIM; i++)
        q[i] = drawn(&state);
    for (size_t i = 0; i < ROWS * DIM; i++)
        k[i] = halved(drawn(&state)), v[i] = halved(drawn(&state));
    for (int32_t i = 0; i < ROWS; i++)
        cells[i] = positions[i] = i;
    const struct attention_batch batch = {.q = q,
                                          .q_row = HEADS * DIM,
                                          .q_head = DIM,
                                          .k = k,
                                          .v = v,
                                          .k_cell = sizeof *k * DIM,
                                          .v_cell = sizeof *v * DIM,
                                          .cells = cells,
                                          .positions = positions,
                                          .out = out,
                                          .n_rows = ROWS};
    void *scratch = malloc(attention_scratch_bytes(&form));
    assert_non_null(scratch);
    attention_compute(kernel, &form, &batch, scratch, 0, 1);
    free(scratch);
    return digest(out, ROWS * HEADS * DIM);
}

/* Vectors of 4 are fused on ARM, and on x86 never. */
static bool is_fused(const struct attention_kernel *kernel)
{
#if defined(__aarch64__)
    (void)kernel;
    return true;
#else
    return strncmp(attention_kernel_name(kernel), "avx", 3) == 0;
#endif
}

static void test_the_bits_of_every_fused_processor(void **state)
{
    (void)state;
    const struct attention_kernel *kernel;
    uint32_t n = 0;
    for (uint32_t i = 0; (kernel = attention_kernel_at(i)); i++) {
        if (!is_fused(kernel))
            continue;
        assert_int_equal(attended(kernel, 0), 0xc9855ad59abb4bb6);
        assert_int_equal(attended(kernel, 3), 0x907265c316327bf5);
        n++;
    }
    if (n == 0)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_bits_of_every_fused_processor),
    };
    return cmocka_run_group_tests_name("attention bits", tests, NULL, NULL);
}
