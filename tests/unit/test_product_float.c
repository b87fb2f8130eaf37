/* Our products with matrices of F16 and BF16: every kernel to the bit as the plain one, which is
 * compared with the formula in double precision; and a row's bits depend on nothing beside it. */
#include "base/random.h"
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"

#include <ggml-alloc.h>
#include <ggml.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { COLUMNS = 1200, ROWS = 21, X = PRODUCT_TILE, PATTERNS = 1 << 16 };

static const enum ggml_type types[] = {GGML_TYPE_F16, GGML_TYPE_BF16};
enum { TYPES = sizeof types / sizeof types[0] };

static float x[X][COLUMNS];
static struct gpu *gpu;

static float drawn(uint64_t *draws)
{
    return (float)(random_at(3, (*draws)++) % 20001) / 10000 - 1;
}

/* A matrix ends where its page does, and the next one cannot be read. */
struct matrix {
    struct product_matrix of;
    uint8_t *pages, *bytes;
    size_t readable;
};

static void matrix_init(struct matrix *m, enum ggml_type type, uint32_t n_columns)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), row_bytes = ggml_row_size(type, n_columns);
    uint64_t draws = n_columns;
    m->readable = (ROWS * row_bytes + page - 1) / page * page;
    m->pages =
        mmap(NULL, m->readable + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(m->pages != MAP_FAILED);
    assert_int_equal(mprotect(m->pages + m->readable, page, PROT_NONE), 0);
    m->bytes = m->pages + m->readable - ROWS * row_bytes;
    float *values = malloc(sizeof(float) * n_columns);
    assert_non_null(values);
    for (uint32_t row = 0; row < ROWS; row++) {
        for (uint32_t k = 0; k < n_columns; k++)
            values[k] = drawn(&draws);
        ggml_quantize_chunk(type, values, m->bytes + row * row_bytes, 0, 1, n_columns, NULL);
    }
    free(values);
    m->of =
        (struct product_matrix){.rows = m->bytes, .row_bytes = row_bytes, .n_columns = n_columns};
    assert_true(product_type_of(type, &m->of.type));
}

static void matrix_deinit(const struct matrix *m)
{
    munmap(m->pages, m->readable + (size_t)sysconf(_SC_PAGESIZE));
}

static void compute(const struct product_kernel *kernel, const struct matrix *m, uint32_t first,
                    uint32_t n, float (*out)[ROWS])
{
    const float *from[X];
    float *to[X];
    for (uint32_t i = 0; i < n; i++)
        from[i] = x[first + i], to[i] = out[i];
    product_compute_floats(kernel, &m->of, from, to, n, 0, ROWS);
}

static const struct product_kernel *plain(void)
{
    const struct product_kernel *kernel = NULL;
    for (uint32_t k = 0; product_kernel_at(k); k++)
        kernel = product_kernel_at(k);
    assert_string_equal(product_kernel_name(kernel), "plain");
    return kernel;
}

static void check_formula(enum ggml_type type, const struct matrix *m, float (*y)[ROWS])
{
    static float weights[COLUMNS];
    for (uint32_t row = 0; row < ROWS; row++) {
        ggml_get_type_traits(type)->to_float(m->bytes + row * m->of.row_bytes, weights,
                                             m->of.n_columns);
        for (uint32_t i = 0; i < X; i++) {
            double want = 0, size = 0;
            for (uint32_t k = 0; k < m->of.n_columns; k++) {
                const double part = (double)weights[k] * (double)x[i][k];
                want += part;
                size += fabs(part);
            }
            assert_true(fabs(want - (double)y[i][row]) <= 5e-6 * size);
        }
    }
}

/* Of each length of what is behind the last whole step, and of several pieces. */
static void test_all_shapes(void **state)
{
    (void)state;
    static float want[X][ROWS], got[X][ROWS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        for (uint32_t n_columns = 1; n_columns <= COLUMNS; n_columns += n_columns < 40 ? 1 : 145) {
            struct matrix m;
            matrix_init(&m, types[t], n_columns);
            compute(plain(), &m, 0, X, want);
            check_formula(types[t], &m, want);
            for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
                compute(kernel, &m, 0, X, got);
                assert_memory_equal(got, want, sizeof want);
                for (uint32_t n = 1; n <= 15; n++) {
                    compute(kernel, &m, 5 * n, n, got);
                    assert_memory_equal(got, want[5 * n], n * sizeof want[0]);
                }
            }
            matrix_deinit(&m);
        }
    }
}

/* Rows of one number each: all of them, times one and times a small one. */
static void test_all_patterns(void **state)
{
    (void)state;
    static uint16_t patterns[PATTERNS];
    static float want[2][PATTERNS], got[2][PATTERNS];
    static const float factors[2] = {1, 0x1.8p-120f};
    const float *from[2] = {&factors[0], &factors[1]};
    const struct product_kernel *kernel;
    for (uint32_t i = 0; i < PATTERNS; i++)
        patterns[i] = (uint16_t)i;
    for (uint32_t t = 0; t < TYPES; t++) {
        struct product_matrix matrix = {.rows = patterns, .row_bytes = 2, .n_columns = 1};
        float *to[2] = {got[0], got[1]};
        assert_true(product_type_of(types[t], &matrix.type));
        ggml_get_type_traits(types[t])->to_float(patterns, want[0], PATTERNS);
        for (uint32_t i = 0; i < PATTERNS; i++)
            want[1][i] = want[0][i] * factors[1];
        for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
            product_compute_floats(kernel, &matrix, from, to, 2, 0, PATTERNS);
            for (uint32_t i = 0; i < 2 * PATTERNS; i++) {
                const float a = got[i / PATTERNS][i % PATTERNS],
                            b = want[i / PATTERNS][i % PATTERNS];
                assert_true(a == b || (isnan(a) && isnan(b)));
            }
        }
    }
}

/* ---- in ggml's graphs ---- */

enum { EXPERTS = 4, USED = 2, TOKENS = 40 };

static void check_element(const struct ggml_tensor *matrices, uint32_t expert, const float *values,
                          const float *got)
{
    float want[ROWS], *to = want;
    struct product_matrix one = {.rows = (const char *)matrices->data + expert * matrices->nb[2],
                                 .row_bytes = matrices->nb[1],
                                 .n_columns = COLUMNS};
    assert_true(product_type_of(matrices->type, &one.type));
    product_compute_floats(product_kernel_at(0), &one, &values, &to, 1, 0, ROWS);
    assert_memory_equal(got, want, sizeof want);
}

static void check_in_a_graph(enum ggml_type type)
{
    const struct product_kernel *kernel = product_kernel_at(0);
    ggml_backend_t backend = device_ggml_backend(gpu_find(gpu, "cpu"));
    uint64_t draws = 0;
    float values[COLUMNS];
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    struct ggml_tensor *matrices = ggml_new_tensor_3d(ctx, type, COLUMNS, ROWS, EXPERTS);
    struct ggml_tensor *matrix = ggml_view_2d(ctx, matrices, COLUMNS, ROWS, matrices->nb[1], 0);
    struct ggml_tensor *in = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, COLUMNS, USED, TOKENS);
    struct ggml_tensor *chosen = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, USED, TOKENS);
    struct ggml_tensor *flat = ggml_reshape_2d(ctx, in, COLUMNS, (int64_t)USED * TOKENS);
    struct ggml_tensor *one =
        product_mul_mat(ctx, kernel, matrix, product_rounded(ctx, kernel, type, flat));
    struct ggml_tensor *each =
        product_mul_mat_id(ctx, kernel, matrices, product_rounded(ctx, kernel, type, in), chosen);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, one);
    ggml_build_forward_expand(graph, each);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, backend);
    assert_non_null(buffer);
    for (uint32_t row = 0; row < ROWS * EXPERTS; row++) {
        for (uint32_t i = 0; i < COLUMNS; i++)
            values[i] = drawn(&draws);
        ggml_quantize_chunk(type, values, (char *)matrices->data + row * matrices->nb[1], 0, 1,
                            COLUMNS, NULL);
    }
    for (int64_t i = 0; i < ggml_nelements(in); i++)
        ((float *)in->data)[i] = drawn(&draws);
    for (int32_t i = 0; i < USED * TOKENS; i++) /* the last expert is never chosen */
        ((int32_t *)chosen->data)[i] = (i / USED + i % USED) % (EXPERTS - 1);
    assert_int_equal(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    for (uint32_t i = 0; i < USED * TOKENS; i++) {
        const float *row = (const float *)in->data + (size_t)i * COLUMNS;
        check_element(matrices, 0, row, (const float *)one->data + (size_t)i * ROWS);
        check_element(matrices, (uint32_t)((const int32_t *)chosen->data)[i], row,
                      (const float *)each->data + (size_t)i * ROWS);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

static void test_in_a_graph(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TYPES; t++)
        check_in_a_graph(types[t]);
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    uint64_t draws = 1;
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t k = 0; k < COLUMNS; k++)
            x[i][k] = drawn(&draws) * (float)(1 + i * 10);
    }
    return gpu_open(&(struct gpu_options){.n_cpu_threads = 3, .skip_other = true}, &gpu, &err) ? -1
                                                                                               : 0;
}

static int teardown(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_shapes),
        cmocka_unit_test(test_all_patterns),
        cmocka_unit_test(test_in_a_graph),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
