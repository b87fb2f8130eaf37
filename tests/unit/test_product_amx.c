/* The AMX kernel with a stand-in of its tile instructions (amx_standin.h), to the bit as AVX-512
 * VNNI's: every number of rows x, rows x that do not lie evenly, blocks of extreme bits. A
 * processor with AMX runs the kernel itself here, too. */
#include "kernels/product.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#if defined(__x86_64__) && defined(__linux__)
#include "amx_standin.h"
#include "gpu/product_ggml.h"
#include "kernels/amx_permission.h"
#include "tested_kernels.h"

#include <ggml.h>

/* Numbers of rows x: a sanitizer makes the stand-in fifteen times as slow. */
#ifdef __SANITIZE_ADDRESS__
enum { N_STEP = 5 };
#else
enum { N_STEP = 1 };
#endif

/* More parts than a panel has, and not a multiple of what is multiplied at once. */
enum {
    BLOCKS = 5,
    COLUMNS = BLOCKS * PRODUCT_BLOCK,
    ROWS = 18,
    X = PRODUCT_TILE,
    BYTES_MAX = 1536
};

static const enum ggml_type types[] = {
    GGML_TYPE_Q2_K,    GGML_TYPE_Q3_K,  GGML_TYPE_Q4_K,    GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,
    GGML_TYPE_IQ1_S,   GGML_TYPE_IQ1_M, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S,
    GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S, GGML_TYPE_Q4_0,    GGML_TYPE_Q4_1,   GGML_TYPE_Q5_0,
    GGML_TYPE_Q5_1,    GGML_TYPE_Q8_0,  GGML_TYPE_IQ4_NL,  GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4,
};
enum { TYPES = sizeof types / sizeof types[0] };

struct world {
    struct product_matrix matrix;
    uint8_t bytes[ROWS * BYTES_MAX];
    struct product_block x[X][BLOCKS];
};

static struct world w;

static uint32_t drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* What kernels get: the stand-in, and the kernel itself where the processor has it. */
static const struct product_kernel *amx_kernel_at(uint32_t index)
{
    const struct product_kernel *const both[] = {&product_kernel_amx_standin, &product_kernel_amx,
                                                 NULL};
    return both[index] && both[index]->works() ? both[index] : NULL;
}

/* Bytes of weights are drawn, or all are `fill`, and so are F16 numbers: infinite ones and such
 * that are no numbers are among them. */
static void world_init(uint32_t t, uint32_t n_parts, int fill)
{
    uint32_t state = t + 1;
    float values[COLUMNS];
    w.matrix = (struct product_matrix){.rows = w.bytes,
                                       .row_bytes = ggml_row_size(types[t], n_parts * PRODUCT_PART),
                                       .n_columns = n_parts * PRODUCT_PART};
    assert_true(product_type_of(types[t], &w.matrix.type));
    assert_true(w.matrix.row_bytes <= BYTES_MAX);
    for (size_t i = 0; i < sizeof w.bytes; i++)
        w.bytes[i] = (uint8_t)(fill < 0 ? drawn(&state) : (uint32_t)fill);
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t k = 0; k < COLUMNS; k++) /* the largest values, and drawn ones */
            values[k] = i == 0   ? -1
                        : i == 1 ? (k / 2 % 2 ? -1.0f : 1.0f)
                                 : ((float)drawn(&state) - 32768) / 128;
        product_round(&product_kernel_avx512_vnni, product_rounding_of(w.matrix.type), values,
                      w.matrix.n_columns, w.x[i]);
    }
}

/* Row x i, of n, is number order[i]. */
static void multiply(const struct product_kernel *kernel, const uint32_t *order, uint32_t n,
                     uint32_t first, uint32_t end, float out[X][ROWS])
{
    const struct product_block *x[X];
    float *y[X];
    for (uint32_t i = 0; i < n; i++)
        x[i] = w.x[order[i]], y[i] = out[i];
    memset(out, 0, sizeof(float[X][ROWS]));
    product_compute(kernel, &w.matrix, x, y, n, first, end);
}

static void compute(const struct product_kernel *kernel, const uint32_t *order, uint32_t n,
                    uint32_t first, uint32_t end, float out[X][ROWS])
{
    multiply(kernel, order, n, first, end, out);
    assert_int_equal(amx_standin_tiles(), 0); /* given back */
}

/* Which bits say that a value is no number is not promised. */
static void numbers_clear(float out[X][ROWS])
{
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t row = 0; row < ROWS; row++)
            out[i][row] = out[i][row] == out[i][row] ? out[i][row] : 0;
    }
}

static void check(const uint32_t *order, uint32_t n, uint32_t first, uint32_t end)
{
    static float want[X][ROWS], got[X][ROWS];
    const struct product_kernel *kernel;
    compute(&product_kernel_avx512_vnni, order, n, first, end, want);
    numbers_clear(want);
    for (uint32_t k = 0; (kernel = amx_kernel_at(k)); k++) {
        compute(kernel, order, n, first, end, got);
        numbers_clear(got);
        if (memcmp(got, want, sizeof want) != 0)
            fail_msg("%s, type %u: %u rows x, rows %u to %u", product_kernel_name(kernel),
                     w.matrix.type, n, first, end);
    }
}

static const uint32_t *in_order(void)
{
    static uint32_t order[X];
    for (uint32_t i = 0; i < X; i++)
        order[i] = i;
    return order;
}

static uint32_t parts_of(uint32_t t)
{
    return BLOCKS * PRODUCT_PARTS - (ggml_blck_size(types[t]) == PRODUCT_PART ? 3 : 0);
}

static void test_any_number_of_rows(void **state)
{
    (void)state;
    if (!amx_kernel_at(0))
        skip();
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(t, parts_of(t), -1);
        for (uint32_t n = 1; n <= X; n += n < 36 ? N_STEP : 23)
            check(in_order(), n, n % 3, ROWS - n % 2);
    }
}

static void test_any_number_of_columns(void **state)
{
    (void)state;
    if (!amx_kernel_at(0))
        skip();
    for (uint32_t t = 0; t < TYPES; t++) {
        const uint32_t step = (uint32_t)ggml_blck_size(types[t]) / PRODUCT_PART;
        for (uint32_t n_parts = step; n_parts <= BLOCKS * PRODUCT_PARTS; n_parts += step) {
            world_init(t, n_parts, -1);
            check(in_order(), 20, 0, ROWS);
        }
    }
}

/* As those of an expert. */
static void test_rows_that_lie_anywhere(void **state)
{
    (void)state;
    uint32_t order[X];
    if (!amx_kernel_at(0))
        skip();
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(t, parts_of(t), -1);
        for (uint32_t i = 0; i < X; i++)
            order[i] = X - 1 - i;
        check(order, X, 0, ROWS); /* evenly, from end to begin */
        for (uint32_t i = 0; i < X; i++)
            order[i] = i * i * 37 % X; /* some of them twice */
        check(order, X, 0, ROWS);
        check(order, 50, 0, ROWS);
    }
}

/* The largest products and scales of either sign. */
static void test_extreme_bits(void **state)
{
    (void)state;
    static const int fills[] = {0, 0xff, 0x80, 0x7f, 0x0f, 0xf0, 0x55, 0xaa, 0x3b};
    if (!amx_kernel_at(0))
        skip();
    for (uint32_t t = 0; t < TYPES; t++) {
        for (size_t i = 0; i < sizeof fills / sizeof fills[0]; i++) {
            world_init(t, parts_of(t), fills[i]);
            check(in_order(), 20, 0, ROWS);
        }
    }
}

/* On the processor itself. */
static void processor_configure(const struct amx_shapes *shapes)
{
    __asm__ volatile("ldtilecfg %0" ::"m"(*shapes));
}

/* The thread has no tiles then. */
static void processor_shapes(struct amx_shapes *to)
{
    __asm__ volatile("sttilecfg %0\n\ttilerelease" : "=m"(*to));
}

/* ggml has tiles of its own on the same threads. */
static void test_others_keep_their_tiles(void **state)
{
    (void)state;
    static float got[X][ROWS];
    struct amx_shapes shapes = {.palette = 1, .row_bytes = {64, 8}, .rows = {16, 3}}, found;
    if (!amx_kernel_at(0))
        skip();
    world_init(0, parts_of(0), -1);
    amx_standin_configure(&shapes);
    multiply(&product_kernel_amx_standin, in_order(), 20, 0, ROWS, got);
    amx_standin_shapes(&found);
    amx_standin_release();
    assert_memory_equal(&found, &shapes, sizeof shapes);
    if (!product_kernel_amx.works())
        return;
    processor_configure(&shapes);
    multiply(&product_kernel_amx, in_order(), 20, 0, ROWS, got);
    processor_shapes(&found);
    assert_memory_equal(&found, &shapes, sizeof shapes);
}

/* On a processor without AMX nobody chooses it; where it is chosen it is the best. */
static void test_is_chosen_where_it_works(void **state)
{
    (void)state;
    assert_string_equal(product_kernel_name(&product_kernel_amx), "amx-int8");
    const bool is_best = product_kernel_best() == &product_kernel_amx;
    assert_int_equal(is_best, product_kernel_amx.works() != 0);
    const struct product_kernel *kernel;
    for (uint32_t k = 1; (kernel = product_kernel_at(k)); k++)
        assert_ptr_not_equal(kernel, &product_kernel_amx);
}

/* Linux gives the same answer again. Without its leave nobody chooses the kernel. */
static void test_linux_is_asked(void **state)
{
    (void)state;
    const bool may = amx_permission_ask();
    assert_int_equal(amx_permission_ask(), may);
    assert_true(may || !product_kernel_amx.works());
}
#else
static void test_nothing(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
#if defined(__x86_64__) && defined(__linux__)
        cmocka_unit_test(test_any_number_of_rows),
        cmocka_unit_test(test_any_number_of_columns),
        cmocka_unit_test(test_rows_that_lie_anywhere),
        cmocka_unit_test(test_extreme_bits),
        cmocka_unit_test(test_others_keep_their_tiles),
        cmocka_unit_test(test_is_chosen_where_it_works),
        cmocka_unit_test(test_linux_is_asked),
#else
        cmocka_unit_test(test_nothing),
#endif
    };
    return cmocka_run_group_tests_name("AMX products", tests, NULL, NULL);
}
