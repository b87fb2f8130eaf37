/* Our products of K-quantised matrices against their formula in double precision, and their
 * promise: a row's bits depend on nothing beside it. */
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

#include <cmocka.h>

enum { BLOCKS = 3, COLUMNS = BLOCKS * PRODUCT_BLOCK, ROWS = 21, X = PRODUCT_TILE };

static const enum ggml_type types[] = {GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K,
                                       GGML_TYPE_Q5_K, GGML_TYPE_Q6_K};
enum { TYPES = sizeof types / sizeof types[0] };

/* Where the F16 numbers of a block stand, which must not be drawn as bytes: they could be no
 * numbers. */
static const struct {
    uint32_t d, dmin;
} halves[TYPES] = {{80, 82}, {108, 108}, {0, 2}, {0, 2}, {208, 208}};

struct world {
    struct product_matrix matrix;
    enum ggml_type type;
    uint8_t *bytes;
    float weights[ROWS][COLUMNS]; /* by ggml */
    float x[X][COLUMNS];
};

static float drawn(uint64_t *draws)
{
    return (float)(random_at(3, (*draws)++) % 20001) / 10000 - 1;
}

/* Every bit of the blocks is drawn, so that all scales and offsets occur, the largest too. */
static void world_init(struct world *w, uint32_t t)
{
    uint64_t draws = t;
    w->type = types[t];
    const size_t row_bytes = ggml_row_size(w->type, COLUMNS), block_bytes = row_bytes / BLOCKS;
    w->bytes = malloc(ROWS * row_bytes);
    assert_non_null(w->bytes);
    for (size_t i = 0; i < ROWS * row_bytes; i++)
        w->bytes[i] = (uint8_t)random_at(4, draws++);
    for (size_t at = 0; at < ROWS * row_bytes; at += block_bytes) {
        const ggml_fp16_t d = ggml_fp32_to_fp16(drawn(&draws) * 0.01f),
                          dmin = ggml_fp32_to_fp16(drawn(&draws) * 0.01f);
        memcpy(w->bytes + at + halves[t].d, &d, sizeof d);
        if (halves[t].dmin != halves[t].d)
            memcpy(w->bytes + at + halves[t].dmin, &dmin, sizeof dmin);
    }
    for (uint32_t row = 0; row < ROWS; row++)
        ggml_get_type_traits(w->type)->to_float(w->bytes + row * row_bytes, w->weights[row],
                                                COLUMNS);
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t k = 0; k < COLUMNS; k++)
            w->x[i][k] = drawn(&draws) * (float)(1 + i * 10);
    }
    memset(w->x[1], 0, PRODUCT_BLOCK * sizeof(float)); /* a block of nothing */
    w->x[2][7] = 1e30f;                                /* one value that hides the others */
    w->matrix = (struct product_matrix){
        .rows = w->bytes, .row_bytes = row_bytes, .n_blocks = BLOCKS, .type = t + PRODUCT_Q2_K};
}

static void round_x(const struct product_kernel *kernel, const struct world *w, uint32_t i,
                    struct product_block *out)
{
    memset(out, 0xff, BLOCKS * sizeof *out);
    product_round(kernel, w->x[i], BLOCKS, out);
}

/* Rows `first` to first + n - 1 of x, all at once. */
static void compute(const struct product_kernel *kernel, const struct world *w, uint32_t first,
                    uint32_t n, float (*out)[ROWS])
{
    static struct product_block blocks[X][BLOCKS];
    const struct product_block *x[X];
    float *y[X];
    for (uint32_t i = 0; i < n; i++) {
        round_x(kernel, w, first + i, blocks[i]);
        x[i] = blocks[i];
        y[i] = out[i];
    }
    product_compute(kernel, &w->matrix, x, y, n, 0, ROWS);
}

static void test_rounds_to_the_nearest(void **state)
{
    (void)state;
    static struct world w;
    struct product_block blocks[BLOCKS];
    const struct product_kernel *kernel;
    world_init(&w, 0);
    for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
        for (uint32_t i = 0; i < X; i++) {
            round_x(kernel, &w, i, blocks);
            for (uint32_t at = 0; at < COLUMNS; at++) {
                const struct product_block *b = &blocks[at / PRODUCT_BLOCK];
                const double value = (double)b->scale * b->values[at % PRODUCT_BLOCK];
                assert_true(fabs(value - (double)w.x[i][at]) <= 0.50001 * (double)b->scale);
            }
            for (uint32_t g = 0; g < BLOCKS * PRODUCT_GROUPS; g++) {
                const struct product_block *b = &blocks[g / PRODUCT_GROUPS];
                int sum = 0;
                for (uint32_t v = 0; v < PRODUCT_GROUP; v++)
                    sum += b->values[g % PRODUCT_GROUPS * PRODUCT_GROUP + v];
                assert_int_equal(b->sums[g % PRODUCT_GROUPS], sum);
            }
        }
    }
    free(w.bytes);
}

/* The sums are of integers up to 2^28, which F32 holds to one part in 2^24; scales and offsets may
 * cancel for the most part. */
static void test_is_the_formula(void **state)
{
    (void)state;
    static struct world w;
    static float y[X][ROWS];
    struct product_block blocks[BLOCKS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(&w, t);
        for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
            compute(kernel, &w, 0, X, y);
            for (uint32_t i = 0; i < X; i++) {
                round_x(kernel, &w, i, blocks);
                for (uint32_t row = 0; row < ROWS; row++) {
                    double want = 0, size = 0;
                    for (uint32_t at = 0; at < COLUMNS; at++) {
                        const struct product_block *b = &blocks[at / PRODUCT_BLOCK];
                        const double part = (double)w.weights[row][at] * (double)b->scale *
                                            b->values[at % PRODUCT_BLOCK];
                        want += part;
                        size += fabs(part);
                    }
                    if (!(fabs(want - (double)y[i][row]) <= 2e-6 * size))
                        fail_msg("%s, %s: row %u of x, row %u: %.9g, not %.9g",
                                 product_kernel_name(kernel), ggml_type_name(w.type), i, row,
                                 (double)y[i][row], want);
                }
            }
        }
        free(w.bytes);
    }
}

static void test_same_bits_beside_others(void **state)
{
    (void)state;
    static struct world w;
    static float all[X][ROWS], some[X][ROWS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(&w, t);
        for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
            compute(kernel, &w, 0, X, all);
            for (uint32_t n = 1; n <= 5; n++) {
                compute(kernel, &w, n * 3, n, some);
                assert_memory_equal(some, all[n * 3], n * sizeof all[0]);
            }
        }
        free(w.bytes);
    }
}

static void test_same_bits_on_all_vectors(void **state)
{
    (void)state;
    static struct world w;
    static float want[X][ROWS], got[X][ROWS];
    const struct product_kernel *best = product_kernel_best(), *kernel;
    for (uint32_t t = 0; best && t < TYPES; t++) {
        world_init(&w, t);
        compute(best, &w, 0, X, want);
        for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
            if (strcmp(product_kernel_name(kernel), "plain") == 0)
                continue; /* without fused multiply-add */
            compute(kernel, &w, 0, X, got);
            assert_memory_equal(got, want, sizeof want);
        }
        free(w.bytes);
    }
}

/* ---- in ggml's graphs ---- */

enum { EXPERTS = 4, USED = 2, TOKENS = 40 };

static struct gpu *gpu;

static int open_gpu(void **state)
{
    (void)state;
    struct error err;
    return gpu_open(&(struct gpu_options){.n_cpu_threads = 3, .skip_other = true}, &gpu, &err) ? -1
                                                                                               : 0;
}

static int close_gpu(void **state)
{
    (void)state;
    gpu_close(gpu);
    return 0;
}

/* A product by an operation, whole, and its elements by product_compute(). */
static void check_element(const struct product_kernel *kernel, const struct ggml_tensor *matrix,
                          uint32_t expert, const float *x, const float *got)
{
    struct product_block blocks[BLOCKS];
    const struct product_block *rounded = blocks;
    float want[ROWS], *y = want;
    const struct product_matrix one = {.rows = (const char *)matrix->data + expert * matrix->nb[2],
                                       .row_bytes = matrix->nb[1],
                                       .n_blocks = BLOCKS,
                                       .type = PRODUCT_Q4_K};
    product_round(kernel, x, BLOCKS, blocks);
    product_compute(kernel, &one, &rounded, &y, 1, 0, ROWS);
    assert_memory_equal(got, want, sizeof want);
}

static void test_in_a_graph(void **state)
{
    (void)state;
    struct device *cpu = gpu_find(gpu, "cpu");
    const struct product_kernel *kernel = product_kernel_at(0);
    uint64_t draws = 0;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    struct ggml_tensor *matrices = ggml_new_tensor_3d(ctx, GGML_TYPE_Q4_K, COLUMNS, ROWS, EXPERTS);
    struct ggml_tensor *matrix = ggml_view_2d(ctx, matrices, COLUMNS, ROWS, matrices->nb[1], 0);
    struct ggml_tensor *x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, COLUMNS, USED, TOKENS);
    struct ggml_tensor *chosen = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, USED, TOKENS);
    struct ggml_tensor *rounded = product_rounded(ctx, kernel, x);
    struct ggml_tensor *first = product_rounded(
        ctx, kernel,
        ggml_view_3d(ctx, x, COLUMNS, 1, TOKENS, x->nb[1], x->nb[2], 0)); /* of each token */
    struct ggml_tensor *flat =
        product_rounded(ctx, kernel, ggml_reshape_2d(ctx, x, COLUMNS, (int64_t)USED * TOKENS));
    struct ggml_tensor *plain = product_mul_mat(ctx, kernel, matrix, flat);
    struct ggml_tensor *each = product_mul_mat_id(ctx, kernel, matrices, rounded, chosen);
    struct ggml_tensor *shared = product_mul_mat_id(ctx, kernel, matrices, first, chosen);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, plain);
    ggml_build_forward_expand(graph, each);
    ggml_build_forward_expand(graph, shared);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, device_ggml_backend(cpu));
    assert_non_null(buffer);
    float values[COLUMNS];
    for (uint32_t row = 0; row < ROWS * EXPERTS; row++) {
        for (uint32_t i = 0; i < COLUMNS; i++)
            values[i] = drawn(&draws);
        ggml_quantize_chunk(GGML_TYPE_Q4_K, values, (char *)matrices->data + row * matrices->nb[1],
                            0, 1, COLUMNS, NULL);
    }
    for (int64_t i = 0; i < ggml_nelements(x); i++)
        ((float *)x->data)[i] = drawn(&draws);
    for (int64_t i = 0; i < TOKENS; i++) { /* the last expert is never chosen */
        ((int32_t *)chosen->data)[i * USED] = (int32_t)(i % (EXPERTS - 1));
        ((int32_t *)chosen->data)[i * USED + 1] = (int32_t)((i + 1) % (EXPERTS - 1));
    }
    assert_int_equal(ggml_backend_graph_compute(device_ggml_backend(cpu), graph),
                     GGML_STATUS_SUCCESS);
    for (uint32_t i = 0; i < USED * TOKENS; i++) {
        const float *row = (const float *)x->data + (size_t)i * COLUMNS;
        const uint32_t expert = (uint32_t)((int32_t *)chosen->data)[i];
        check_element(kernel, matrices, 0, row, (float *)plain->data + (size_t)i * ROWS);
        check_element(kernel, matrices, expert, row, (float *)each->data + (size_t)i * ROWS);
        check_element(kernel, matrices, expert,
                      (const float *)x->data + (size_t)i / USED * USED * COLUMNS,
                      (float *)shared->data + (size_t)i * ROWS);
    }
    ggml_backend_buffer_free(buffer);
    ggml_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_to_the_nearest),
        cmocka_unit_test(test_is_the_formula),
        cmocka_unit_test(test_same_bits_beside_others),
        cmocka_unit_test(test_same_bits_on_all_vectors),
        cmocka_unit_test(test_in_a_graph),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
