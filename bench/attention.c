/* attention: our attention on the CPU (kernels/attention.h) beside ggml's flash attention, both on
 * ggml's threads.
 *
 *   attention [--threads 2] [--rounds 7] [--heads 32] [--kv-heads 8] [--dim 64] [--layers 16]
 *
 * Both compute the same rows of the same caches (F16), a cache for each layer, as a model has them,
 * so that what decoding reads comes from memory. Medians of rounds in which they take turns;
 * milliseconds for all layers, the ratio, and how much further ours is from the limits that the
 * rows set: bytes of K and V, and floating-point operations. */
#include "kernels/attention.h"
#include "base/clock.h"
#include "gpu/device_ggml.h"

#include <ggml-alloc.h>
#include <ggml.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS_MAX = 100, LAYERS_MAX = 64 };

struct bench {
    uint32_t n_threads, n_rounds, n_head, n_head_kv, dim, n_layers;
    ggml_backend_t backend;
    const struct attention_kernel *kernel;
    struct attention_form form;
};

struct load {
    const char *name;
    uint32_t n_streams, n_rows, context; /* rows of each stream, which end at cell context - 1 */
};

struct world {
    struct ggml_context *ctx;
    struct ggml_tensor *q, *k[LAYERS_MAX], *v[LAYERS_MAX], *mask, *positions, *cells, *scratch;
    struct ggml_cgraph *ours, *in_extents, *theirs;
    const struct bench *bench;
    struct attention_extents extents;
    uint32_t *order;
    int32_t *sequences;
    ggml_backend_buffer_t buffer;
};

static void share_of(struct ggml_tensor *out, int ith, int nth, const struct bench *bench,
                     const struct attention_extents *extents)
{
    struct ggml_tensor *const *src = out->src;
    const struct attention_batch batch = {.q = src[0]->data,
                                          .q_row = src[0]->nb[2] / sizeof(float),
                                          .q_head = src[0]->nb[1] / sizeof(float),
                                          .k = src[1]->data,
                                          .v = src[2]->data,
                                          .k_cell = src[1]->nb[1],
                                          .v_cell = src[2]->nb[1],
                                          .positions = src[3]->data,
                                          .cells = src[4]->data,
                                          .extents = extents,
                                          .out = out->data,
                                          .n_rows = (uint32_t)out->ne[1]};
    attention_compute(bench->kernel, &bench->form, &batch,
                      (char *)src[5]->data + src[5]->nb[1] * (size_t)ith, (uint32_t)ith,
                      (uint32_t)nth);
}

static void share(struct ggml_tensor *out, int ith, int nth, void *pointer)
{
    share_of(out, ith, nth, pointer, NULL);
}

static void share_in_extents(struct ggml_tensor *out, int ith, int nth, void *pointer)
{
    const struct world *w = pointer;
    share_of(out, ith, nth, w->bench, &w->extents);
}

static struct ggml_tensor *our_node(struct world *w, uint32_t layer, ggml_custom_op_t op, void *arg)
{
    struct ggml_tensor *sources[] = {w->q,         w->k[layer], w->v[layer],
                                     w->positions, w->cells,    w->scratch};
    const struct bench *b = w->bench;
    return ggml_custom_4d(w->ctx, GGML_TYPE_F32, (int64_t)b->dim * b->n_head, w->q->ne[2], 1, 1,
                          sources, 6, op, GGML_N_TASKS_MAX, arg);
}

static struct ggml_tensor *cached(struct world *w, struct ggml_tensor *cache, const struct bench *b,
                                  const struct load *load, uint32_t n_kv)
{
    const size_t head = ggml_row_size(cache->type, b->dim);
    struct ggml_tensor *view =
        ggml_view_4d(w->ctx, cache, b->dim, b->n_head_kv, n_kv, load->n_streams, head, cache->nb[1],
                     cache->nb[1] * n_kv, 0);
    return ggml_permute(w->ctx, view, 0, 2, 1, 3);
}

static void build(struct world *w, const struct bench *b, const struct load *load, uint32_t n_kv)
{
    const int64_t t = (int64_t)load->n_streams * load->n_rows;
    w->bench = b;
    w->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 20, .no_alloc = true});
    w->q = ggml_new_tensor_3d(w->ctx, GGML_TYPE_F32, b->dim, b->n_head, t);
    w->mask = ggml_new_tensor_4d(w->ctx, GGML_TYPE_F16, n_kv, load->n_rows, 1, load->n_streams);
    w->positions = ggml_new_tensor_1d(w->ctx, GGML_TYPE_I32, t);
    w->cells = ggml_new_tensor_1d(w->ctx, GGML_TYPE_I64, t);
    w->scratch = ggml_new_tensor_2d(w->ctx, GGML_TYPE_I8,
                                    (int64_t)attention_scratch_bytes(&b->form), b->n_threads);
    w->ours = ggml_new_graph_custom(w->ctx, 1024, false);
    w->in_extents = ggml_new_graph_custom(w->ctx, 1024, false);
    w->theirs = ggml_new_graph_custom(w->ctx, 1024, false);
    struct ggml_tensor *q =
        ggml_permute(w->ctx,
                     ggml_view_4d(w->ctx, w->q, b->dim, b->n_head, load->n_rows, load->n_streams,
                                  w->q->nb[1], w->q->nb[2], w->q->nb[2] * load->n_rows, 0),
                     0, 2, 1, 3);
    for (uint32_t i = 0; i < b->n_layers; i++) {
        w->k[i] = ggml_new_tensor_2d(w->ctx, GGML_TYPE_F16, (int64_t)b->dim * b->n_head_kv,
                                     n_kv * load->n_streams);
        w->v[i] = ggml_new_tensor_2d(w->ctx, GGML_TYPE_F16, (int64_t)b->dim * b->n_head_kv,
                                     n_kv * load->n_streams);
        ggml_build_forward_expand(w->ours, our_node(w, i, share, (void *)(uintptr_t)b));
        ggml_build_forward_expand(w->in_extents, our_node(w, i, share_in_extents, w));
        struct ggml_tensor *o =
            ggml_flash_attn_ext(w->ctx, q, cached(w, w->k[i], b, load, n_kv),
                                cached(w, w->v[i], b, load, n_kv), w->mask, b->form.scale, 0, 0);
        ggml_build_forward_expand(w->theirs, o);
    }
    w->buffer = ggml_backend_alloc_ctx_tensors(w->ctx, b->backend);
}

static float drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static void fill(struct world *w, const struct bench *b, const struct load *load, uint32_t n_kv)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < ggml_nelements(w->q); i++)
        ((float *)w->q->data)[i] = drawn(&state);
    for (uint32_t layer = 0; layer < b->n_layers; layer++) {
        for (int64_t i = 0; i < ggml_nelements(w->k[layer]); i++) {
            ((ggml_fp16_t *)w->k[layer]->data)[i] = ggml_fp32_to_fp16(drawn(&state));
            ((ggml_fp16_t *)w->v[layer]->data)[i] = ggml_fp32_to_fp16(drawn(&state));
        }
    }
    const uint32_t n_each = n_kv / ATTENTION_EXTENT, n_extents = n_each * load->n_streams;
    for (uint32_t i = 0; i < n_extents; i++) /* 7919 is prime: a permutation */
        w->order[i] = n_extents % 7919 ? (uint32_t)(i * UINT64_C(7919) % n_extents) : i;
    w->extents = (struct attention_extents){w->order, n_each, w->sequences};
    for (uint32_t i = 0; i < load->n_streams * load->n_rows; i++) {
        w->sequences[i] = (int32_t)(i / load->n_rows);
        const uint32_t position = load->context - load->n_rows + i % load->n_rows;
        ((int32_t *)w->positions->data)[i] = (int32_t)position;
        ((int64_t *)w->cells->data)[i] = (int64_t)(i / load->n_rows) * n_kv + position;
        ggml_fp16_t *mask = (ggml_fp16_t *)w->mask->data + (size_t)i * n_kv;
        for (uint32_t c = 0; c < n_kv; c++)
            mask[c] = ggml_fp32_to_fp16(c <= position ? 0 : -INFINITY);
    }
}

static double once(const struct bench *b, struct ggml_cgraph *graph)
{
    const uint64_t start = clock_now_ns();
    ggml_backend_graph_compute(b->backend, graph);
    return (double)(clock_now_ns() - start) / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double largest_difference(const struct world *w)
{
    double largest = 0;
    const struct ggml_tensor *ours = ggml_graph_node(w->ours, -1),
                             *theirs = ggml_graph_node(w->theirs, -1);
    for (int64_t i = 0; i < ggml_nelements(ours); i++)
        largest = fmax(largest,
                       fabs((double)((float *)ours->data)[i] - (double)((float *)theirs->data)[i]));
    return largest;
}

static void measure(const struct bench *b, const struct load *load)
{
    struct world w;
    const uint32_t n_kv = (load->context + 255) / 256 * 256;
    double ours[ROUNDS_MAX], paged[ROUNDS_MAX], theirs[ROUNDS_MAX], seen = 0;
    w.order = malloc(sizeof *w.order * n_kv / ATTENTION_EXTENT * load->n_streams);
    w.sequences = malloc(sizeof *w.sequences * load->n_streams * load->n_rows);
    if (!w.order || !w.sequences)
        abort();
    build(&w, b, load, n_kv);
    fill(&w, b, load, n_kv);
    once(b, w.ours), once(b, w.in_extents), once(b, w.theirs);
    for (uint32_t i = 0; i < b->n_rounds; i++)
        ours[i] = once(b, w.ours), paged[i] = once(b, w.in_extents), theirs[i] = once(b, w.theirs);
    qsort(ours, b->n_rounds, sizeof *ours, compare);
    qsort(paged, b->n_rounds, sizeof *paged, compare);
    qsort(theirs, b->n_rounds, sizeof *theirs, compare);
    for (uint32_t i = 0; i < load->n_rows; i++)
        seen += load->context - i;
    const double ms = ours[b->n_rounds / 2],
                 flops = seen * load->n_streams * 4 * b->dim * b->n_head * b->n_layers;
    const double bytes =
        4.0 * load->context * load->n_streams * b->dim * b->n_head_kv * b->n_layers;
    printf("%-22s ours %8.3f ms   ggml %8.3f ms   %.2fx   in extents %.2fx   %.1f GFLOP/s, %.1f "
           "GB/s   off by %.1e\n",
           load->name, ms, theirs[b->n_rounds / 2], ms / theirs[b->n_rounds / 2],
           paged[b->n_rounds / 2] / ms, flops / ms / 1e6, bytes / ms / 1e6, largest_difference(&w));
    fflush(stdout);
    ggml_backend_buffer_free(w.buffer);
    ggml_free(w.ctx);
    free(w.order), free(w.sequences);
}

static void read_options(struct bench *b, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } options[] = {{"--threads", &b->n_threads}, {"--rounds", &b->n_rounds},
                   {"--heads", &b->n_head},      {"--kv-heads", &b->n_head_kv},
                   {"--dim", &b->dim},           {"--layers", &b->n_layers}};
    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
            if (strcmp(argv[i], options[k].name) == 0)
                *options[k].value = (uint32_t)atoi(argv[i + 1]);
        }
    }
    b->n_rounds = b->n_rounds < 1 || b->n_rounds > ROUNDS_MAX ? ROUNDS_MAX : b->n_rounds;
    b->n_layers = b->n_layers < 1 || b->n_layers > LAYERS_MAX ? LAYERS_MAX : b->n_layers;
}

int main(int argc, char **argv)
{
    static const struct load loads[] = {
        {"prompt of 512", 1, 512, 512},  {"512 more, behind 859", 1, 512, 1371},
        {"decode at 64", 1, 1, 64},      {"decode at 500", 1, 1, 500},
        {"decode at 2,000", 1, 1, 2000}, {"decode at 8,000", 1, 1, 8000},
        {"8 streams at 200", 8, 1, 200}, {"8 streams at 2,000", 8, 1, 2000},
        {"8 rows at 1,000", 1, 8, 1000},
    };
    struct bench b = {
        .n_threads = 2, .n_rounds = 7, .n_head = 32, .n_head_kv = 8, .dim = 64, .n_layers = 16};
    struct error err = {0};
    struct gpu *gpu;
    read_options(&b, argc, argv);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = b.n_threads, .skip_other = true}, &gpu,
                 &err)) {
        fprintf(stderr, "attention: %s\n", err.text);
        return 1;
    }
    b.backend = device_ggml_backend(gpu_find(gpu, "cpu"));
    b.form = (struct attention_form){.n_head = b.n_head,
                                     .n_head_kv = b.n_head_kv,
                                     .dim_k = b.dim,
                                     .dim_v = b.dim,
                                     .scale = 1 / sqrtf((float)b.dim)};
    for (uint32_t i = 0; (b.kernel = attention_kernel_at(i)); i++) {
        printf("%s\n", attention_kernel_name(b.kernel));
        for (size_t k = 0; k < sizeof loads / sizeof loads[0]; k++)
            measure(&b, &loads[k]);
    }
    gpu_close(gpu);
    return 0;
}
