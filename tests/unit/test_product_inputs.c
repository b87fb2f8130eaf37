/* Norms and gates that are computed as they are rounded: what they are, with the same bits on all
 * kernels, and in ggml's graphs. */
#include "base/random.h"
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"
#include "kernels/product_kernel.h"

#include <ggml-alloc.h>
#include <ggml.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 2304, BLOCKS = COLUMNS / PRODUCT_BLOCK, ROWS = 5, MATRIX_ROWS = 64 };

static const float epsilon = 1e-5f;

static struct gpu *gpu;

static float drawn(uint64_t *draws)
{
    return (float)(random_at(11, (*draws)++) % 20001) / 10000 - 1;
}

/* Of each kernel the one that has norms and gates. */
static const struct product_kernel *kernel_at(uint32_t index)
{
    const struct product_kernel *kernel = product_kernel_at(index);
    return kernel && kernel->fewer ? kernel->fewer : kernel;
}

static bool is_plain(const struct product_kernel *kernel)
{
    return kernel == &product_kernel_plain;
}

static void draw(float *x, uint32_t n, float size, uint64_t *draws)
{
    for (uint32_t i = 0; i < n; i++)
        x[i] = drawn(draws) * size;
}

/* ---- what they are ---- */

static void test_a_norm_is_the_formula(void **state)
{
    (void)state;
    float x[COLUMNS], weight[COLUMNS], y[COLUMNS];
    uint64_t draws = 0;
    const struct product_kernel *kernel;
    for (uint32_t k = 0; (kernel = kernel_at(k)); k++) {
        double squares = 0;
        draw(x, COLUMNS, 3, &draws);
        draw(weight, COLUMNS, 1, &draws);
        for (uint32_t i = 0; i < COLUMNS; i++)
            squares += (double)x[i] * x[i];
        const double want = 1 / sqrt(squares / COLUMNS + (double)epsilon);
        const float factor = product_norm_factor(kernel, x, COLUMNS, epsilon);
        assert_true(fabs((double)factor / want - 1) < 3e-7);
        kernel->norm(x, weight, factor, COLUMNS, y);
        for (uint32_t i = 0; i < COLUMNS; i++)
            assert_true(y[i] == x[i] * factor * weight[i]);
    }
}

static void test_a_gate_is_the_formula(void **state)
{
    (void)state;
    float gate[COLUMNS], up[COLUMNS], y[COLUMNS];
    uint64_t draws = 0;
    const struct product_kernel *kernel;
    for (uint32_t k = 0; (kernel = kernel_at(k)); k++) {
        for (float size = 0.001f; size < 80; size *= 10) {
            draw(gate, COLUMNS, size, &draws);
            draw(up, COLUMNS, 2, &draws);
            kernel->gate(gate, up, COLUMNS, y);
            for (uint32_t i = 0; i < COLUMNS; i++) {
                const double want = (double)gate[i] / (1 + exp(-(double)gate[i])) * (double)up[i];
                assert_true(fabs((double)y[i] - want) <= 4e-7 * fabs(want));
            }
        }
    }
}

static void test_gates_at_their_ends(void **state)
{
    (void)state;
    const float gates[16] = {0,   -0.0f,     200,   -200,   3e38f, -3e38f, INFINITY, -86,
                             -87, 0x1p-140f, 1e-8f, -1e-8f, 88,    -0.5f,  1,        NAN};
    float up[16], y[16];
    const struct product_kernel *kernel;
    for (uint32_t i = 0; i < 16; i++)
        up[i] = 1;
    for (uint32_t k = 0; (kernel = kernel_at(k)); k++) {
        kernel->gate(gates, up, 16, y);
        for (uint32_t i = 0; i < 15; i++) {
            const double g = (double)gates[i], want = g / (1 + exp(-g));
            assert_true((double)y[i] == want ||
                        fabs((double)y[i] - want) <= 4e-7 * fabs(want) + 5e-36);
        }
        assert_true(isnan(y[15]));
    }
}

/* ---- rounded ---- */

/* As the values that the kernel gives are, in pieces that begin at any block. */
static void test_rounded_as_their_values(void **state)
{
    (void)state;
    static const enum product_rounding roundings[] = {PRODUCT_ROUND_BLOCKS, PRODUCT_ROUND_PARTS,
                                                      PRODUCT_ROUND_PARTS_SUMMED,
                                                      PRODUCT_ROUND_PARTS_ALIKE};
    float a[COLUMNS], b[COLUMNS], y[COLUMNS];
    struct product_block want[BLOCKS], got[BLOCKS];
    uint64_t draws = 0;
    const struct product_kernel *kernel;
    for (uint32_t k = 0; (kernel = kernel_at(k)); k++) {
        draw(a, COLUMNS, 4, &draws);
        draw(b, COLUMNS, 1, &draws);
        const float factor = product_norm_factor(kernel, a, COLUMNS, epsilon);
        for (uint32_t i = 0; i < sizeof roundings / sizeof roundings[0]; i++) {
            const bool has_parts =
                roundings[i] == PRODUCT_ROUND_PARTS || roundings[i] == PRODUCT_ROUND_PARTS_SUMMED;
            for (uint32_t first = 0; first < BLOCKS; first++) {
                const uint32_t at = first * PRODUCT_BLOCK;
                const uint32_t n = COLUMNS - at - (has_parts ? PRODUCT_PART : 0);
                memset(want, 0, sizeof want);
                memset(got, 0, sizeof got);
                kernel->norm(a + at, b + at, factor, n, y);
                product_round(kernel, roundings[i], y, n, want);
                product_round_norm(kernel, roundings[i], a + at, b + at, factor, n, got);
                assert_memory_equal(got, want, sizeof got);
                kernel->gate(a + at, b + at, n, y);
                product_round(kernel, roundings[i], y, n, want);
                product_round_gate(kernel, roundings[i], a + at, b + at, n, got);
                assert_memory_equal(got, want, sizeof got);
            }
        }
    }
}

/* Gates have others without fused multiply-add. */
static void test_same_bits_on_all_kernels(void **state)
{
    (void)state;
    float a[COLUMNS], b[COLUMNS], want[2][COLUMNS], got[2][COLUMNS];
    uint64_t draws = 0;
    const struct product_kernel *kernel;
    draw(a, COLUMNS, 20, &draws);
    draw(b, COLUMNS, 1, &draws);
    const struct product_kernel *first = kernel_at(0);
    const float factor = product_norm_factor(first, a, COLUMNS, epsilon);
    first->norm(a, b, factor, COLUMNS, want[0]);
    first->gate(a, b, COLUMNS, want[1]);
    for (uint32_t k = 1; (kernel = kernel_at(k)); k++) {
        assert_true(product_norm_factor(kernel, a, COLUMNS, epsilon) == factor);
        kernel->norm(a, b, factor, COLUMNS, got[0]);
        assert_memory_equal(got[0], want[0], sizeof got[0]);
        kernel->gate(a, b, COLUMNS, got[1]);
        if (!is_plain(kernel))
            assert_memory_equal(got[1], want[1], sizeof got[1]);
    }
}

/* ---- in ggml's graphs ---- */

struct world {
    struct ggml_context *ctx;
    struct ggml_tensor *a, *b, *weight, *matrix;
    ggml_backend_buffer_t buffer;
};

static ggml_backend_t backend(void)
{
    return device_ggml_backend(gpu_find(gpu, "cpu"));
}

static void world_init(struct world *w)
{
    w->ctx = ggml_init((struct ggml_init_params){
        .mem_size = 32 * ggml_tensor_overhead() + 2 * ggml_graph_overhead(), .no_alloc = true});
    w->a = ggml_new_tensor_3d(w->ctx, GGML_TYPE_F32, COLUMNS, ROWS, 2);
    w->b = ggml_new_tensor_3d(w->ctx, GGML_TYPE_F32, COLUMNS, ROWS, 2);
    w->weight = ggml_new_tensor_1d(w->ctx, GGML_TYPE_F32, COLUMNS);
    w->matrix = ggml_new_tensor_3d(w->ctx, GGML_TYPE_Q8_0, COLUMNS, MATRIX_ROWS, 2);
}

static void world_draw(struct world *w)
{
    uint64_t draws = 0;
    float row[COLUMNS];
    w->buffer = ggml_backend_alloc_ctx_tensors(w->ctx, backend());
    assert_non_null(w->buffer);
    draw(w->a->data, (uint32_t)ggml_nelements(w->a), 4, &draws);
    draw(w->b->data, (uint32_t)ggml_nelements(w->b), 1, &draws);
    draw(w->weight->data, COLUMNS, 1, &draws);
    for (uint32_t i = 0; i < 2 * MATRIX_ROWS; i++) {
        draw(row, COLUMNS, 1, &draws);
        ggml_quantize_chunk(w->matrix->type, row, (char *)w->matrix->data + i * w->matrix->nb[1], 0,
                            1, COLUMNS, NULL);
    }
}

static void world_deinit(struct world *w)
{
    ggml_backend_buffer_free(w->buffer);
    ggml_free(w->ctx);
}

static bool has_operation(struct ggml_cgraph *graph, enum ggml_op op)
{
    for (int i = 0; i < ggml_graph_n_nodes(graph); i++) {
        if (ggml_graph_node(graph, i)->op == op)
            return true;
    }
    return false;
}

/* x times the matrix, by ours and by ggml. */
static void check_product(struct world *w, struct ggml_tensor *x, enum ggml_op op, bool is_fused)
{
    const struct product_kernel *kernel = product_kernel_at(0);
    struct ggml_tensor *ours = product_mul_mat(w->ctx, kernel, w->matrix,
                                               product_rounded(w->ctx, kernel, w->matrix->type, x));
    struct ggml_cgraph *graph = ggml_new_graph(w->ctx), *other = ggml_new_graph(w->ctx);
    struct ggml_tensor *theirs = ggml_mul_mat(w->ctx, w->matrix, x);
    ggml_build_forward_expand(graph, ours);
    ggml_build_forward_expand(other, theirs);
    assert_int_equal(has_operation(graph, op), !is_fused);
    world_draw(w);
    assert_int_equal(ggml_backend_graph_compute(backend(), other), GGML_STATUS_SUCCESS);
    static float first[2 * ROWS * MATRIX_ROWS];
    for (uint32_t n_threads = 1; n_threads <= 3; n_threads++) {
        device_set_threads(gpu_find(gpu, "cpu"), n_threads);
        assert_int_equal(ggml_backend_graph_compute(backend(), graph), GGML_STATUS_SUCCESS);
        const float *got = ours->data, *want = theirs->data;
        assert_int_equal(ggml_nbytes(ours), sizeof first);
        for (uint32_t i = 0; i < sizeof first / sizeof first[0]; i++)
            assert_true(fabsf(got[i] - want[i]) < 0.2f); /* x is rounded, of about 2304 values */
        if (n_threads == 1)
            memcpy(first, got, sizeof first);
        assert_memory_equal(got, first, sizeof first);
    }
}

static void test_a_norm_in_a_graph(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    check_product(&w, ggml_mul(w.ctx, ggml_rms_norm(w.ctx, w.a, epsilon), w.weight),
                  GGML_OP_RMS_NORM, true);
    world_deinit(&w);
}

static void test_a_gate_in_a_graph(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    check_product(&w, ggml_swiglu_split(w.ctx, w.a, w.b), GGML_OP_GLU, true);
    world_deinit(&w);
}

/* What looks like them, and is another thing. */
static void test_others_stay(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    check_product(&w, ggml_mul(w.ctx, ggml_rms_norm(w.ctx, w.a, epsilon), w.b), GGML_OP_RMS_NORM,
                  false);
    world_deinit(&w);
    world_init(&w);
    check_product(&w, ggml_mul(w.ctx, ggml_norm(w.ctx, w.a, epsilon), w.weight), GGML_OP_NORM,
                  false);
    world_deinit(&w);
    world_init(&w);
    check_product(&w, ggml_mul(w.ctx, w.a, w.weight), GGML_OP_MUL, false);
    world_deinit(&w);
    world_init(&w);
    check_product(&w, ggml_geglu_split(w.ctx, w.a, w.b), GGML_OP_GLU, false);
    world_deinit(&w);
    world_init(&w);
    check_product(&w, ggml_swiglu(w.ctx, ggml_concat(w.ctx, w.a, w.b, 0)), GGML_OP_GLU, false);
    world_deinit(&w);
}

static int setup(void **state)
{
    (void)state;
    struct error err;
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
        cmocka_unit_test(test_a_norm_is_the_formula),
        cmocka_unit_test(test_a_gate_is_the_formula),
        cmocka_unit_test(test_gates_at_their_ends),
        cmocka_unit_test(test_rounded_as_their_values),
        cmocka_unit_test(test_same_bits_on_all_kernels),
        cmocka_unit_test(test_a_norm_in_a_graph),
        cmocka_unit_test(test_a_gate_in_a_graph),
        cmocka_unit_test(test_others_stay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
