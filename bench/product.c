/* product: our products of quantised matrices on the CPU (kernels/product.h) beside ggml's, all
 * on ggml's threads.
 *
 *   product [--threads 2] [--rounds 7] [--width 2048] [--mib 256] [--rows N] [--type q4_K]
 *           [--kernel avx2]
 *
 * Matrices of width x width, so many MiB of them that they come from memory, times 1, 8 and 512
 * rows. The best and the median of rounds in which they take turns, in milliseconds of processor
 * time of all threads, so that a busy neighbour counts for little: ours, ggml's as stored and
 * ggml's repacked (or "-": it has no repacked form); the ratio of the bests to ggml's faster one;
 * and what ours does in a second of one processor. With AVX-512 VNNI also its share of the peak:
 * vpdpbusd alone, on registers, measured in every round. Threads that wait for each other spin: use
 * one beside other work. */
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"

#include <ggml-alloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS_MAX = 100, MATRICES_MAX = 512 };

struct bench {
    uint32_t n_threads, n_rounds, width, mib, n_rows; /* n_rows 0: several */
    const char *type, *kernel;                        /* NULL: all */
    struct device *cpu;
    ggml_backend_t backend;
};

struct set { /* one way to compute all products */
    struct ggml_context *weights_ctx, *ctx;
    ggml_backend_buffer_t weights, buffer;
    struct ggml_tensor *x;
    struct ggml_cgraph *graph;
};

static float drawn(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) / (float)(1 << 23) - 1;
}

static bool is_of_grids(enum ggml_type type)
{
    enum product_type ours;
    return product_type_of(type, &ours) && ours >= PRODUCT_IQ1_S && ours <= PRODUCT_IQ3_S;
}

/* ggml takes minutes for these, and wants to know which weights matter. Bytes that are smaller than
 * 60 make no d that is no number. */
static void draw_bytes(enum ggml_type type, char *to, size_t size, uint32_t *state)
{
    const size_t block = ggml_type_size(type);
    for (size_t i = 0; i < size; i++) {
        *state = *state * 1664525u + 1013904223u;
        to[i] =
            (char)(i % block < 2 || type == GGML_TYPE_IQ1_M ? (*state >> 16) % 60 : *state >> 16);
    }
}

static void fill(struct set *set, enum ggml_type type, uint32_t width)
{
    uint32_t state = 1;
    float *values = malloc(sizeof(float) * width * width);
    char *matrix = malloc(ggml_row_size(type, width) * width);
    if (!values || !matrix)
        abort();
    for (size_t i = 0; i < (size_t)width * width; i++)
        values[i] = drawn(&state);
    if (is_of_grids(type))
        draw_bytes(type, matrix, ggml_row_size(type, width) * width, &state);
    else
        ggml_quantize_chunk(type, values, matrix, 0, width, width, NULL);
    for (struct ggml_tensor *w = ggml_get_first_tensor(set->weights_ctx); w;
         w = ggml_get_next_tensor(set->weights_ctx, w))
        ggml_backend_tensor_set(w, matrix, 0, ggml_nbytes(w));
    for (int64_t i = 0; i < ggml_nelements(set->x); i++)
        ((float *)set->x->data)[i] = drawn(&state);
    free(values);
    free(matrix);
}

static bool can_repack(const struct bench *b, enum ggml_type type, ggml_backend_buffer_type_t where)
{
    struct ggml_context *ctx = ggml_init(
        (struct ggml_init_params){.mem_size = 4 * ggml_tensor_overhead(), .no_alloc = true});
    struct ggml_tensor *weight = ggml_new_tensor_2d(ctx, type, b->width, b->width);
    struct ggml_tensor *y =
        ggml_mul_mat(ctx, weight, ggml_new_tensor_2d(ctx, GGML_TYPE_F32, b->width, 1));
    weight->buffer = ggml_backend_buft_alloc_buffer(where, 0);
    const bool yes = ggml_backend_dev_supports_op(device_ggml_dev(b->cpu), y);
    ggml_backend_buffer_free(weight->buffer);
    ggml_free(ctx);
    return yes;
}

static void build(struct set *set, const struct bench *b, enum ggml_type type, uint32_t n_rows,
                  ggml_backend_buffer_type_t where, const struct product_kernel *kernel)
{
    uint32_t n = (uint32_t)(((uint64_t)b->mib << 20) / (ggml_row_size(type, b->width) * b->width));
    n = n < 1 ? 1 : n > MATRICES_MAX ? MATRICES_MAX : n;
    n = n_rows > 64 && n > 4 ? 4 : n;
    set->weights_ctx = ggml_init(
        (struct ggml_init_params){.mem_size = (n + 1) * ggml_tensor_overhead(), .no_alloc = true});
    set->ctx = ggml_init((struct ggml_init_params){.mem_size = 1 << 22, .no_alloc = true});
    set->graph = ggml_new_graph_custom(set->ctx, 2 * MATRICES_MAX + 2, false);
    set->x = ggml_new_tensor_2d(set->ctx, GGML_TYPE_F32, b->width, n_rows);
    for (uint32_t i = 0; i < n; i++) {
        struct ggml_tensor *weight = ggml_new_tensor_2d(set->weights_ctx, type, b->width, b->width);
        struct ggml_tensor *y =
            kernel ? product_mul_mat(set->ctx, kernel, weight,
                                     product_rounded(set->ctx, kernel, type, set->x))
                   : ggml_mul_mat(set->ctx, weight, set->x);
        ggml_build_forward_expand(set->graph, y);
    }
    set->weights = ggml_backend_alloc_ctx_tensors_from_buft(set->weights_ctx, where);
    set->buffer = ggml_backend_alloc_ctx_tensors(set->ctx, b->backend);
    if (!set->weights || !set->buffer)
        abort();
    fill(set, type, b->width);
}

static void destroy(struct set *set)
{
    ggml_backend_buffer_free(set->weights);
    ggml_backend_buffer_free(set->buffer);
    ggml_free(set->weights_ctx);
    ggml_free(set->ctx);
}

/* ---- the peak ---- */

#if defined(__x86_64__)
#include <immintrin.h>

enum { PEAK_SUMS = 12, PEAK_TURNS = 50000 }; /* enough sums to hide that one takes four cycles */

__attribute__((target("avx512f,avx512vnni"))) static void peak_turns(void)
{
    __m512i sums[PEAK_SUMS], w = _mm512_set1_epi8(3);
    for (int i = 0; i < PEAK_SUMS; i++)
        sums[i] = _mm512_set1_epi32(i);
    for (int turn = 0; turn < PEAK_TURNS; turn++) {
        __asm__ volatile("" : "+v"(w)); /* no turn may be left out */
#pragma GCC unroll 16
        for (int i = 0; i < PEAK_SUMS; i++)
            sums[i] = _mm512_dpbusd_epi32(sums[i], w, w);
    }
    for (int i = 0; i < PEAK_SUMS; i++)
        __asm__ volatile("" ::"v"(sums[i]));
}

/* 10^9 operations a second; 0: the processor has no VNNI. */
static double peak_gops(void)
{
    struct timespec start, end;
    if (!__builtin_cpu_supports("avx512vnni"))
        return 0;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    peak_turns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    const double ns =
        (double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec);
    return 128.0 * PEAK_SUMS * PEAK_TURNS / ns;
}
#else
static double peak_gops(void)
{
    return 0;
}
#endif

/* Milliseconds of processor time. */
static double once(const struct bench *b, const struct set *set)
{
    struct timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    ggml_backend_graph_compute(b->backend, set->graph);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    return (double)(end.tv_sec - start.tv_sec) * 1e3 + (double)(end.tv_nsec - start.tv_nsec) / 1e6;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const struct bench *b, enum ggml_type type, uint32_t n_rows,
                    const struct product_kernel *kernel)
{
    enum { OURS, STORED, REPACKED };
    struct set sets[3];
    double ms[3][ROUNDS_MAX], peak = 0;
    ggml_backend_buffer_type_t own = ggml_backend_get_default_buffer_type(b->backend),
                               repacked = NULL;
    ggml_backend_buffer_type_t *extra = device_ggml_extra_buffer_types(b->cpu);
    for (; extra && *extra && !repacked; extra++)
        repacked = can_repack(b, type, *extra) ? *extra : NULL;
    const int n_sets = repacked ? 3 : 2;
    build(&sets[OURS], b, type, n_rows, own, kernel);
    build(&sets[STORED], b, type, n_rows, own, NULL);
    if (repacked)
        build(&sets[REPACKED], b, type, n_rows, repacked, NULL);
    for (int i = 0; i < n_sets; i++)
        once(b, &sets[i]);
    for (uint32_t round = 0; round < b->n_rounds; round++) {
        for (int i = 0; i < n_sets; i++)
            ms[i][round] = once(b, &sets[i]);
        const double now = peak_gops();
        peak = now > peak ? now : peak;
    }
    for (int i = 0; i < n_sets; i++)
        qsort(ms[i], b->n_rounds, sizeof ms[i][0], compare);
    const uint32_t mid = b->n_rounds / 2;
    const double ours = ms[OURS][0], stored = ms[STORED][0],
                 other = repacked && ms[REPACKED][0] < stored ? ms[REPACKED][0] : stored;
    double bytes = 0;
    for (struct ggml_tensor *w = ggml_get_first_tensor(sets[OURS].weights_ctx); w;
         w = ggml_get_next_tensor(sets[OURS].weights_ctx, w))
        bytes += (double)ggml_nbytes(w);
    const double macs = bytes / (double)ggml_row_size(type, b->width) * b->width * n_rows;
    printf("%-11s %-6s %4u rows   ours %7.2f (%7.2f) ms   ggml %7.2f (%7.2f), repacked ",
           product_kernel_name(kernel), ggml_type_name(type), n_rows, ours, ms[OURS][mid], stored,
           ms[STORED][mid]);
    repacked ? printf("%7.2f (%7.2f)", ms[REPACKED][0], ms[REPACKED][mid]) : printf("%17s", "-");
    printf("   %.2fx   %5.1f GB/s, %6.1f GFLOP/s", ours / other, bytes / ours / 1e6,
           2 * macs / ours / 1e6);
    peak > 0 ? printf(", %.2f of %.0f\n", 2 * macs / ours / 1e6 / peak, peak) : printf("\n");
    fflush(stdout);
    for (int i = 0; i < n_sets; i++)
        destroy(&sets[i]);
}

static void read_options(struct bench *b, int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } options[] = {{"--threads", &b->n_threads},
                   {"--rounds", &b->n_rounds},
                   {"--width", &b->width},
                   {"--mib", &b->mib},
                   {"--rows", &b->n_rows}};
    for (int i = 1; i + 1 < argc; i += 2) {
        for (size_t k = 0; k < sizeof options / sizeof options[0]; k++) {
            if (strcmp(argv[i], options[k].name) == 0)
                *options[k].value = (uint32_t)atoi(argv[i + 1]);
        }
        b->type = strcmp(argv[i], "--type") == 0 ? argv[i + 1] : b->type;
        b->kernel = strcmp(argv[i], "--kernel") == 0 ? argv[i + 1] : b->kernel;
    }
    b->n_rounds = b->n_rounds < 1 || b->n_rounds > ROUNDS_MAX ? ROUNDS_MAX : b->n_rounds;
    b->width = b->width < 256 ? 256 : b->width / 256 * 256;
}

int main(int argc, char **argv)
{
    static const enum ggml_type types[] = {
        GGML_TYPE_Q4_0,    GGML_TYPE_Q8_0,   GGML_TYPE_Q4_K,  GGML_TYPE_Q6_K,    GGML_TYPE_Q5_K,
        GGML_TYPE_Q3_K,    GGML_TYPE_Q2_K,   GGML_TYPE_Q4_1,  GGML_TYPE_Q5_0,    GGML_TYPE_Q5_1,
        GGML_TYPE_IQ4_NL,  GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_IQ1_S,   GGML_TYPE_IQ1_M,
        GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S,
        GGML_TYPE_F16,     GGML_TYPE_BF16};
    static const uint32_t rows[] = {1, 8, 512};
    struct bench b = {.n_threads = 2, .n_rounds = 7, .width = 2048, .mib = 256};
    struct error err = {0};
    struct gpu *gpu;
    read_options(&b, argc, argv);
    if (gpu_open(&(struct gpu_options){.n_cpu_threads = b.n_threads, .skip_other = true}, &gpu,
                 &err)) {
        fprintf(stderr, "product: %s\n", err.text);
        return 1;
    }
    b.cpu = gpu_find(gpu, "cpu");
    b.backend = device_ggml_backend(b.cpu);
    const struct product_kernel *kernel;
    for (uint32_t i = 0; (kernel = product_kernel_at(i)); i++) {
        if (b.kernel && strcmp(b.kernel, product_kernel_name(kernel)) != 0)
            continue;
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            if (b.type && strcmp(b.type, ggml_type_name(types[k])) != 0)
                continue;
            for (size_t r = 0; r < (b.n_rows ? 1 : sizeof rows / sizeof rows[0]); r++)
                measure(&b, types[k], b.n_rows ? b.n_rows : rows[r], kernel);
        }
    }
    gpu_close(gpu);
    return 0;
}
