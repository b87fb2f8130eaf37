/* Runs of custom operations compute what the operations by themselves do: graphs drawn by chance,
 * whose tensors share memory as ggml's allocator has it, on threads that come late by chance. */
#include "base/random.h"
#include "gpu/custom_op.h"
#include "gpu/custom_runs.h"
#include "gpu/device_ggml.h"

#include <ggml-alloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { N = 96, INPUTS = 3, OPS = 60, THREADS = 4 };

static struct gpu *gpu;
static _Atomic uint64_t n_late;

static ggml_backend_t backend(void)
{
    return device_ggml_backend(gpu_find(gpu, "cpu"));
}

/* Mostly not at all, at times for longer than threads spin. */
static void come_late(int ith)
{
    const uint64_t draw = random_at(7, 64 * atomic_fetch_add(&n_late, 1) + (uint64_t)ith) % 64;
    if (draw < 8)
        nanosleep(&(struct timespec){.tv_nsec = draw ? 20000 : 1500000}, NULL);
}

/* Each number of all of both sources: who begins before the others have ended sees it. */
static void mix_share(struct ggml_tensor *out, int ith, int nth, void *arg)
{
    const float *a = out->src[0]->data, *b = out->src[1]->data;
    (void)arg;
    come_late(ith);
    for (int i = N * ith / nth; i < N * (ith + 1) / nth; i++) {
        float sum = 0;
        for (int k = 0; k < N; k++)
            sum += a[(i + k) % N] * 0.25f - b[k] * 0.125f;
        ((float *)out->data)[i] = sum * 0.25f;
    }
}

struct way {
    float factor;
    bool is_backwards; /* the first thread has the last share */
};

/* By way of a scratch, in which each thread has a part of its own. */
static void through_scratch_share(struct ggml_tensor *out, int ith, int nth, void *arg)
{
    const struct way *way = arg;
    const float *from = out->src[0]->data;
    float *scratch = out->src[1]->data;
    const int part = way->is_backwards ? nth - 1 - ith : ith;
    for (int i = N * part / nth; i < N * (part + 1) / nth; i++)
        scratch[i] = from[i] * way->factor;
    come_late(ith);
    for (int i = N * part / nth; i < N * (part + 1) / nth; i++)
        ((float *)out->data)[i] = scratch[i];
}

struct world {
    struct ggml_context *ctx;
    struct ggml_tensor *inputs[INPUTS];
    struct ggml_cgraph *graph;
    ggml_gallocr_t memory;
};

static void world_init(struct world *w)
{
    w->ctx = ggml_init((struct ggml_init_params){
        .mem_size = (OPS + 16) * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    assert_non_null(w->ctx);
    for (uint32_t i = 0; i < INPUTS; i++) {
        w->inputs[i] = ggml_new_tensor_1d(w->ctx, GGML_TYPE_F32, N);
        ggml_set_input(w->inputs[i]);
    }
    w->graph = ggml_new_graph(w->ctx);
    w->memory = ggml_gallocr_new(ggml_backend_get_default_buffer_type(backend()));
}

static void world_deinit(struct world *w)
{
    ggml_gallocr_free(w->memory);
    ggml_free(w->ctx);
}

static struct ggml_tensor *custom(struct world *w, custom_share *share, const void *arg,
                                  struct ggml_tensor *a, struct ggml_tensor *b)
{
    struct ggml_tensor *sources[] = {a, b};
    return custom_op_new(w->ctx, GGML_TYPE_F32, (int64_t[]){N, 1, 1}, sources, 2, share, arg);
}

static void compute(struct world *w, uint32_t n_threads, float out[N])
{
    struct ggml_tensor *result = ggml_graph_node(w->graph, -1);
    for (uint32_t i = 0; i < INPUTS; i++) {
        for (uint32_t k = 0; k < N && w->inputs[i]->data; k++) /* NULL: it is not used */
            ((float *)w->inputs[i]->data)[k] = (float)(random_at(i, k) % 1001) / 500 - 1;
    }
    device_set_threads(gpu_find(gpu, "cpu"), n_threads);
    assert_int_equal(ggml_backend_graph_compute(backend(), w->graph), GGML_STATUS_SUCCESS);
    memcpy(out, result->data, N * sizeof *out);
}

static uint32_t count(const struct world *w, enum ggml_op op)
{
    uint32_t n = 0;
    for (int i = 0; i < ggml_graph_n_nodes(w->graph); i++)
        n += ggml_graph_node(w->graph, i)->op == op;
    return n;
}

/* Before and with runs, on any number of threads, again and again. */
static void check_runs(struct world *w, uint32_t n_left)
{
    float want[N], got[N];
    assert_true(ggml_gallocr_alloc_graph(w->memory, w->graph));
    compute(w, 1, want);
    struct custom_runs *runs = custom_runs_make(w->graph);
    assert_non_null(runs);
    assert_int_equal(count(w, GGML_OP_CUSTOM) + count(w, GGML_OP_ADD) + count(w, GGML_OP_SCALE),
                     n_left);
    for (uint32_t i = 0; i < 3 * THREADS; i++) {
        compute(w, 1 + i % THREADS, got);
        assert_memory_equal(got, want, sizeof got);
    }
    custom_runs_free(runs);
}

/* Where a run ends, an operation of ggml's stands; how many are left is counted as they are made.
 */
static void test_drawn_graphs(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        struct world w;
        world_init(&w);
        struct ggml_tensor *made[INPUTS + OPS], *sum = NULL;
        uint32_t n_left = 0;
        bool goes_on = false; /* a run does, with the next operation of ours */
        memcpy(made, w.inputs, sizeof w.inputs);
        for (uint32_t i = INPUTS; i < INPUTS + OPS; i++) {
            const uint64_t draw = random_at(seed + 100, i);
            /* mostly the last few, so that memory is used again soon */
            struct ggml_tensor *a = made[i - 1 - draw / 8 % 4 % i],
                               *b = made[i - 1 - draw / 64 % 4 % i];
            const bool is_ours = draw % 8 < 7;
            made[i] = draw % 8 < 4   ? custom(&w, mix_share, NULL, a, b)
                      : draw % 8 < 7 ? ggml_add(w.ctx, a, b)
                                     : ggml_scale(w.ctx, a, 0.5f);
            ggml_build_forward_expand(w.graph, made[i]);
            n_left += !is_ours || !goes_on;
            goes_on = is_ours;
            sum = made[i];
        }
        assert_int_equal(ggml_graph_n_nodes(w.graph), OPS);
        assert_ptr_equal(ggml_graph_node(w.graph, -1), sum);
        check_runs(&w, n_left);
        world_deinit(&w);
    }
}

static void test_a_scratch_is_one_operations(void **state)
{
    (void)state;
    static const struct way ways[] = {{2, false}, {3, true}};
    for (uint32_t again = 0; again < 20; again++) {
        struct world w;
        struct ggml_tensor *out[2];
        world_init(&w);
        ggml_set_output(w.inputs[0]); /* whose memory the second would have, and so wait */
        for (uint32_t i = 0; i < 2; i++) {
            out[i] = custom(&w, through_scratch_share, &ways[i], w.inputs[i], w.inputs[2]);
            custom_op_of(out[i])->scratch = 2;
            ggml_build_forward_expand(w.graph, out[i]);
        }
        ggml_build_forward_expand(w.graph, ggml_add(w.ctx, out[0], out[1]));
        check_runs(&w, 1);
        world_deinit(&w);
    }
}

static void test_single_operations_stay(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct ggml_tensor *mixed = custom(&w, mix_share, NULL, w.inputs[0], w.inputs[1]);
    ggml_build_forward_expand(w.graph, ggml_scale(w.ctx, mixed, 2));
    assert_true(ggml_gallocr_alloc_graph(w.memory, w.graph));
    assert_null(custom_runs_make(w.graph));
    assert_int_equal(count(&w, GGML_OP_CUSTOM), 1);
    world_deinit(&w);
}

/* Of another shape, a row is added to each of several. */
static void test_other_additions_stay(void **state)
{
    (void)state;
    struct world w;
    world_init(&w);
    struct ggml_tensor *rows = ggml_new_tensor_2d(w.ctx, GGML_TYPE_F32, N, 3);
    ggml_set_input(rows);
    struct ggml_tensor *mixed = custom(&w, mix_share, NULL, w.inputs[0], w.inputs[1]);
    ggml_build_forward_expand(w.graph, ggml_add(w.ctx, rows, mixed));
    assert_true(ggml_gallocr_alloc_graph(w.memory, w.graph));
    assert_null(custom_runs_make(w.graph));
    assert_int_equal(count(&w, GGML_OP_ADD), 1);
    world_deinit(&w);
}

static int setup(void **state)
{
    (void)state;
    struct error err;
    return gpu_open(&(struct gpu_options){.n_cpu_threads = THREADS, .skip_other = true}, &gpu, &err)
               ? -1
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
        cmocka_unit_test(test_drawn_graphs),
        cmocka_unit_test(test_a_scratch_is_one_operations),
        cmocka_unit_test(test_single_operations_stay),
        cmocka_unit_test(test_other_additions_stay),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
