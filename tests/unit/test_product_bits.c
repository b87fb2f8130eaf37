/* Products have one value on all processors with fused multiply-add: a digest of their bits, the
 * same here and on a machine of another kind. */
#include "tested_kernels.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 9, ROWS = 21, X = 13, BYTES_MAX = 272, NONE = 999 };

/* For eight parts or a block: where F16 numbers stand, which must not be drawn as bytes. */
static const struct {
    enum product_type type;
    uint32_t bytes, d, m, step; /* another d and m each `step` bytes; 0: one of each */
    uint64_t digest;
} types[] = {
    {PRODUCT_Q2_K, 84, 80, 82, 0, 0x51d45c2883d52cf4},
    {PRODUCT_Q3_K, 110, 108, NONE, 0, 0xb98c260260d202bc},
    {PRODUCT_Q4_K, 144, 0, 2, 0, 0x9c199b1f599ef104},
    {PRODUCT_Q5_K, 176, 0, 2, 0, 0x45efcf806f71c846},
    {PRODUCT_Q6_K, 210, 208, NONE, 0, 0x311fc4b22a515df1},
    {PRODUCT_Q4_0, 144, 0, NONE, 18, 0x5a82fd4d9989a897},
    {PRODUCT_Q4_1, 160, 0, 2, 20, 0x62e0f386f9886edc},
    {PRODUCT_Q5_0, 176, 0, NONE, 22, 0x1dcbc05dbb10d7ed},
    {PRODUCT_Q5_1, 192, 0, 2, 24, 0xd5e72fbb1966a41},
    {PRODUCT_Q8_0, 272, 0, NONE, 34, 0x2de12b0c85fa335d},
    {PRODUCT_IQ4_NL, 144, 0, NONE, 18, 0xd11eacec594a8716},
    {PRODUCT_IQ4_XS, 136, 0, NONE, 0, 0x1beb4cbf2ef6591e},
    {PRODUCT_MXFP4, 136, NONE, NONE, 17, 0x8e09a6ae98b3ec57},
};
enum { TYPES = sizeof types / sizeof types[0] };

static uint32_t drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* An F16 number of 2^-9 to 2^-6, of either sign. */
static void draw_half(uint8_t *to, uint32_t *state)
{
    const uint32_t bits = drawn(state);
    const uint16_t h = (uint16_t)((bits & 0x8000) | (6 + (bits >> 10 & 3)) << 10 | (bits & 0x3ff));
    memcpy(to, &h, sizeof h);
}

static void draw_row(uint32_t t, uint8_t *row, uint32_t *state)
{
    for (uint32_t i = 0; i < BLOCKS * types[t].bytes; i++)
        row[i] = (uint8_t)drawn(state);
    const uint32_t step = types[t].step ? types[t].step : types[t].bytes;
    for (uint32_t at = 0; at < BLOCKS * types[t].bytes; at += step) {
        if (types[t].d != NONE)
            draw_half(row + at + types[t].d, state);
        else
            row[at] = row[at] % 16 + 112; /* a power of two */
        if (types[t].m != NONE)
            draw_half(row + at + types[t].m, state);
    }
}

static uint64_t digest(uint64_t hash, const float *values, size_t n)
{
    for (size_t i = 0; i < n * sizeof *values; i++) /* FNV-1a */
        hash = (hash ^ ((const unsigned char *)values)[i]) * 1099511628211u;
    return hash;
}

/* Rows x alone, in fives and all. */
static uint64_t multiplied(const struct product_kernel *kernel, uint32_t t)
{
    static uint8_t bytes[ROWS][BLOCKS * BYTES_MAX];
    static float values[BLOCKS * PRODUCT_BLOCK], out[X][ROWS];
    static struct product_block blocks[X][BLOCKS];
    const struct product_matrix matrix = {.rows = bytes,
                                          .row_bytes = sizeof bytes[0],
                                          .n_columns = BLOCKS * PRODUCT_BLOCK,
                                          .type = types[t].type};
    const struct product_block *x[X];
    float *y[X];
    uint32_t state = 1;
    uint64_t hash = 14695981039346656037u;
    for (uint32_t row = 0; row < ROWS; row++)
        draw_row(t, bytes[row], &state);
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t k = 0; k < BLOCKS * PRODUCT_BLOCK; k++)
            values[k] = ((float)drawn(&state) - 32768) / 128;
        product_round(kernel, product_rounding_of(types[t].type), values, BLOCKS * PRODUCT_BLOCK,
                      blocks[i]);
        x[i] = blocks[i], y[i] = out[i];
    }
    for (uint32_t n = 1; n <= X; n += n == 1 ? 4 : 8) {
        memset(out, 0, sizeof out);
        product_compute(kernel, &matrix, x, y, n, 0, ROWS);
        hash = digest(hash, out[0], (size_t)n * ROWS);
    }
    return hash;
}

/* Sums of floats are fused on ARM, and on x86 with AVX2. */
static bool is_fused(const struct product_kernel *kernel)
{
#if defined(__aarch64__)
    (void)kernel;
    return true;
#else
    return strcmp(product_kernel_name(kernel), "plain") != 0;
#endif
}

static void test_the_bits_of_every_fused_processor(void **state)
{
    (void)state;
    const struct product_kernel *kernel;
    uint32_t n = 0;
    for (uint32_t i = 0; (kernel = tested_kernel_at(i)); i++) {
        if (!is_fused(kernel))
            continue;
        for (uint32_t t = 0; t < TYPES; t++) {
            const uint64_t got = multiplied(kernel, t);
            if (got != types[t].digest)
                fail_msg("%s, type %u: %#" PRIx64, product_kernel_name(kernel), t, got);
        }
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
    return cmocka_run_group_tests_name("product bits", tests, NULL, NULL);
}
