/* Products in ggml's graphs, cut into pieces that threads draw: of a matrix, and of the matrices of
 * routed experts. Every element is computed, with the same bits, by however many threads, by one of
 * them alone when the others come late, and again when the graph is computed again. */
#include "base/random.h"
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"

#include <ggml-alloc.h>
#include <ggml.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 512, ROWS_MAX = 300, X_MAX = 2 * 200, THREADS_MAX = 40 };

static struct gpu *gpu;

struct shape { /* of a product of experts */
    enum ggml_type type;
    int64_t n_rows, n_experts, n_used, n_tokens;
};

static const struct shape shapes[] = {
    {GGML_TYPE_Q4_0, 1, 3, 2, 5},     /* more threads than rows */
    {GGML_TYPE_Q8_0, 21, 5, 1, 1},    /* one row x: most experts have none */
    {GGML_TYPE_Q4_K, 131, 6, 2, 200}, /* more rows x than are computed at once */
    {GGML_TYPE_F16, 64, 40, 4, 7},    /* more experts than pieces are wanted */
    {GGML_TYPE_Q5_1, 300, 4, 2, 40},
};

struct world {
    const struct shape *shape;
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *matrices, *x, *chosen;
    struct ggml_tensor *plain, *routed; /* the first expert's matrix times all x; each x's own */
    struct ggml_cgraph *graph;
    float *want_plain, *want_routed;
};

static float drawn(uint64_t *draws)
{
    return (float)(random_at(9, (*draws)++) % 20001) / 10000 - 1;
}

static ggml_backend_t backend(void)
{
    return device_ggml_backend(gpu_find(gpu, "cpu"));
}

static void world_draw(struct world *w)
{
    const struct shape *s = w->shape;
    uint64_t draws = 0;
    float row[COLUMNS];
    for (int64_t i = 0; i < s->n_rows * s->n_experts; i++) {
        for (uint32_t k = 0; k < COLUMNS; k++)
            row[k] = drawn(&draws);
        ggml_quantize_chunk(s->type, row,
                            (char *)w->matrices->data + (size_t)i * w->matrices->nb[1], 0, 1,
                            COLUMNS, NULL);
    }
    for (int64_t i = 0; i < ggml_nelements(w->x); i++)
        ((float *)w->x->data)[i] = drawn(&draws);
    /* The last expert is never chosen, the first by three tokens of four. */
    for (int64_t t = 0; t < s->n_tokens; t++) {
        for (int64_t u = 0; u < s->n_used; u++)
            ((int32_t *)w->chosen->data)[t * s->n_used + u] =
                (int32_t)(t % 4 && u == 0 ? 0 : (t + u) % (s->n_experts - 1));
    }
}

/* Elements one by one. */
static void world_expect(struct world *w)
{
    const struct product_kernel *kernel = product_kernel_at(0);
    const struct shape *s = w->shape;
    struct product_block blocks[COLUMNS / PRODUCT_BLOCK];
    const struct product_block *rounded = blocks;
    struct product_matrix matrix = {.row_bytes = w->matrices->nb[1], .n_columns = COLUMNS};
    assert_true(product_type_of(s->type, &matrix.type));
    const enum product_rounding rounding = product_rounding_of(matrix.type);
    for (int64_t i = 0; i < s->n_used * s->n_tokens; i++) {
        const float *x = (const float *)w->x->data + i * COLUMNS;
        if (rounding != PRODUCT_ROUND_NOTHING)
            product_round(kernel, rounding, x, COLUMNS, blocks);
        for (uint32_t k = 0; k < 2; k++) {
            const int32_t expert = k ? ((int32_t *)w->chosen->data)[i] : 0;
            float *y = (k ? w->want_routed : w->want_plain) + i * s->n_rows;
            matrix.rows = (char *)w->matrices->data + (size_t)expert * w->matrices->nb[2];
            if (rounding == PRODUCT_ROUND_NOTHING)
                product_compute_floats(kernel, &matrix, &x, &y, 1, 0, (uint32_t)s->n_rows);
            else
                product_compute(kernel, &matrix, &rounded, &y, 1, 0, (uint32_t)s->n_rows);
        }
    }
}

static void world_init(struct world *w, const struct shape *s)
{
    const struct product_kernel *kernel = product_kernel_at(0);
    const int64_t n_x = s->n_used * s->n_tokens;
    assert_true(n_x <= X_MAX && s->n_rows <= ROWS_MAX);
    w->shape = s;
    w->ctx = ggml_init((struct ggml_init_params){
        .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    w->matrices = ggml_new_tensor_3d(w->ctx, s->type, COLUMNS, s->n_rows, s->n_experts);
    w->x = ggml_new_tensor_3d(w->ctx, GGML_TYPE_F32, COLUMNS, s->n_used, s->n_tokens);
    w->chosen = ggml_new_tensor_2d(w->ctx, GGML_TYPE_I32, s->n_used, s->n_tokens);
    struct ggml_tensor *matrix =
        ggml_view_2d(w->ctx, w->matrices, COLUMNS, s->n_rows, w->matrices->nb[1], 0);
    struct ggml_tensor *flat = ggml_reshape_2d(w->ctx, w->x, COLUMNS, n_x);
    w->plain =
        product_mul_mat(w->ctx, kernel, matrix, product_rounded(w->ctx, kernel, s->type, flat));
    w->routed = product_mul_mat_id(w->ctx, kernel, w->matrices,
                                   product_rounded(w->ctx, kernel, s->type, w->x), w->chosen);
    w->graph = ggml_new_graph(w->ctx);
    ggml_build_forward_expand(w->graph, w->plain);
    ggml_build_forward_expand(w->graph, w->routed);
    w->buffer = ggml_backend_alloc_ctx_tensors(w->ctx, backend());
    w->want_plain = malloc(ggml_nbytes(w->plain));
    w->want_routed = malloc(ggml_nbytes(w->routed));
    assert_true(w->buffer && w->want_plain && w->want_routed);
    world_draw(w);
    world_expect(w);
}

static void world_deinit(struct world *w)
{
    free(w->want_plain);
    free(w->want_routed);
    ggml_backend_buffer_free(w->buffer);
    ggml_free(w->ctx);
}

static void spoil(const struct world *w)
{
    memset(w->plain->data, 0xff, ggml_nbytes(w->plain));
    memset(w->routed->data, 0xff, ggml_nbytes(w->routed));
}

static void check(const struct world *w)
{
    assert_memory_equal(w->plain->data, w->want_plain, ggml_nbytes(w->plain));
    assert_memory_equal(w->routed->data, w->want_routed, ggml_nbytes(w->routed));
}

static void test_any_number_of_threads(void **state)
{
    (void)state;
    static const uint32_t n_threads[] = {1, 2, 3, 7};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world w;
        world_init(&w, &shapes[i]);
        for (size_t k = 0; k < sizeof n_threads / sizeof n_threads[0]; k++) {
            device_set_threads(gpu_find(gpu, "cpu"), n_threads[k]);
            for (uint32_t again = 0; again < 3; again++) {
                spoil(&w);
                assert_int_equal(ggml_backend_graph_compute(backend(), w.graph),
                                 GGML_STATUS_SUCCESS);
                check(&w);
            }
        }
        world_deinit(&w);
    }
}

/* As ggml calls it: the function stands first in the operation's parameters. */
static void compute_as(struct ggml_tensor *product, int ith, int nth)
{
    ggml_custom_op_t function;
    memcpy(&function, product->op_params, sizeof function);
    function(product, ith, nth, (void *)(uintptr_t)product_kernel_at(0));
}

/* The first of nth threads to come does all of the work, whichever it is; what the others then draw
 * leaves the counts as they were before. */
static void test_nothing_waits_for_a_late_thread(void **state)
{
    (void)state;
    static const int n_threads[] = {1, 2, 5, THREADS_MAX};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world w;
        world_init(&w, &shapes[i]);
        assert_int_equal(ggml_backend_graph_compute(backend(), w.graph), GGML_STATUS_SUCCESS);
        for (size_t k = 0; k < sizeof n_threads / sizeof n_threads[0]; k++) {
            const int nth = n_threads[k];
            for (int first = 0; first < nth; first++) {
                spoil(&w);
                compute_as(w.plain, first, nth);
                compute_as(w.routed, first, nth);
                check(&w);
                for (int late = 1; late < nth; late++) {
                    compute_as(w.plain, (first + late) % nth, nth);
                    compute_as(w.routed, (first + late) % nth, nth);
                }
                check(&w);
            }
        }
        world_deinit(&w);
    }
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
        cmocka_unit_test(test_any_number_of_threads),
        cmocka_unit_test(test_nothing_waits_for_a_late_thread),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
