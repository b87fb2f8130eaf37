/* Our products of quantised matrices against their formula in double precision, and their
 * promise: a row's bits depend on nothing beside it. */
#include "base/random.h"
#include "gpu/device_ggml.h"
#include "gpu/product_ggml.h"
#include "tested_kernels.h"

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

/* Blocks: more than a kernel adds up together. */
enum { BLOCKS = 9, COLUMNS = BLOCKS * PRODUCT_BLOCK, ROWS = 21, X = PRODUCT_TILE };

/* Where the F16 numbers of each block stand, which must not be drawn as bytes: they could be no
 * numbers. */
enum { NONE = 999 };
static const struct {
    enum ggml_type type;
    uint32_t d, m;
} types[] = {
    {GGML_TYPE_Q2_K, 80, 82},      {GGML_TYPE_Q3_K, 108, NONE}, {GGML_TYPE_Q4_K, 0, 2},
    {GGML_TYPE_Q5_K, 0, 2},        {GGML_TYPE_Q6_K, 208, NONE}, {GGML_TYPE_Q4_0, 0, NONE},
    {GGML_TYPE_Q4_1, 0, 2},        {GGML_TYPE_Q5_0, 0, NONE},   {GGML_TYPE_Q5_1, 0, 2},
    {GGML_TYPE_Q8_0, 0, NONE},     {GGML_TYPE_IQ4_NL, 0, NONE}, {GGML_TYPE_IQ4_XS, 0, NONE},
    {GGML_TYPE_MXFP4, NONE, NONE}, {GGML_TYPE_IQ1_S, 0, NONE},  {GGML_TYPE_IQ1_M, NONE, NONE},
    {GGML_TYPE_IQ2_XXS, 0, NONE},  {GGML_TYPE_IQ2_XS, 0, NONE}, {GGML_TYPE_IQ2_S, 0, NONE},
    {GGML_TYPE_IQ3_XXS, 0, NONE},  {GGML_TYPE_IQ3_S, 0, NONE}};
enum { TYPES = sizeof types / sizeof types[0] };

struct world {
    struct product_matrix matrix;
    enum ggml_type type;
    uint32_t n_columns; /* of the matrix; n_blocks of x */
    uint32_t n_blocks;
    uint8_t *bytes;
    float weights[ROWS][COLUMNS]; /* by ggml */
    float x[X][COLUMNS];
};

static float drawn(uint64_t *draws)
{
    return (float)(random_at(3, (*draws)++) % 20001) / 10000 - 1;
}

static void draw_half(uint8_t *to, uint64_t *draws)
{
    const ggml_fp16_t h = ggml_fp32_to_fp16(drawn(draws) * 0.01f);
    memcpy(to, &h, sizeof h);
}

/* A matrix ends where its pages do, and the next page cannot be read: vectors must not reach behind
 * the last row. */
static size_t pages_of(size_t size)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

static uint8_t *matrix_alloc(size_t size)
{
    const size_t readable = pages_of(size), all = readable + pages_of(1);
    uint8_t *pages = mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + readable, pages_of(1), PROT_NONE), 0);
    return pages + readable - size;
}

static void matrix_free(const struct world *w)
{
    const size_t size = ROWS * w->matrix.row_bytes, readable = pages_of(size);
    munmap(w->bytes + size - readable, readable + pages_of(1));
}

/* Four bits of it stand above each four scales. */
static void draw_iq1m_d(uint8_t *block, uint64_t *draws)
{
    uint8_t d[2];
    draw_half(d, draws);
    const uint8_t fours[4] = {d[0] & 15, d[0] >> 4, d[1] & 15, d[1] >> 4};
    for (uint32_t i = 0; i < 4; i++)
        block[49 + 2 * i] = (uint8_t)((block[49 + 2 * i] & 15) | fours[i] << 4);
}

/* Every bit of the blocks is drawn, so that all scales and offsets occur, the largest too. */
static void draw_blocks(uint32_t t, uint8_t *to, size_t size, uint64_t *draws)
{
    for (size_t i = 0; i < size; i++)
        to[i] = (uint8_t)random_at(4, (*draws)++);
    for (size_t at = 0; at < size; at += ggml_type_size(types[t].type)) {
        if (types[t].d != NONE)
            draw_half(to + at + types[t].d, draws);
        else if (types[t].type == GGML_TYPE_IQ1_M)
            draw_iq1m_d(to + at, draws);
        else
            to[at] = (uint8_t)(to[at] % 64 + 70); /* a power of two, 2^-58 to 2^5 */
        if (types[t].m != NONE)
            draw_half(to + at + types[t].m, draws);
    }
}

static void draw_matrix(struct world *w, uint32_t t, uint64_t *draws)
{
    const size_t row_bytes = ggml_row_size(w->type, w->n_columns);
    w->bytes = matrix_alloc(ROWS * row_bytes);
    draw_blocks(t, w->bytes, ROWS * row_bytes, draws);
    for (uint32_t row = 0; row < ROWS; row++)
        ggml_get_type_traits(w->type)->to_float(w->bytes + row * row_bytes, w->weights[row],
                                                w->n_columns);
    w->matrix = (struct product_matrix){
        .rows = w->bytes, .row_bytes = row_bytes, .n_columns = w->n_columns};
    assert_true(product_type_of(w->type, &w->matrix.type));
}

/* Rows that end within a block, where the type has such. */
static void world_init(struct world *w, uint32_t t)
{
    uint64_t draws = t;
    w->type = types[t].type;
    w->n_columns = COLUMNS - (ggml_blck_size(w->type) == PRODUCT_PART ? 3 * PRODUCT_PART : 0);
    w->n_blocks = BLOCKS;
    draw_matrix(w, t, &draws);
    assert_int_equal(product_columns_of(w->matrix.type), ggml_blck_size(w->type));
    for (uint32_t i = 0; i < X; i++) {
        for (uint32_t k = 0; k < COLUMNS; k++)
            w->x[i][k] = drawn(&draws) * (float)(1 + i * 10);
    }
    memset(w->x[1], 0, PRODUCT_BLOCK * sizeof(float)); /* a block of nothing */
    w->x[2][7] = 1e30f;                                /* one value that hides the others */
    for (uint32_t k = 0; k < COLUMNS; k++)             /* the largest sums */
        w->x[3][k] = k % 2 ? -1 : 1, w->x[4][k] = 1;
}

static void round_x(const struct product_kernel *kernel, const struct world *w, uint32_t i,
                    struct product_block *out)
{
    memset(out, 0xff, w->n_blocks * sizeof *out);
    product_round(kernel, product_rounding_of(w->matrix.type), w->x[i], w->n_columns, out);
}

static bool is_of_parts(const struct world *w)
{
    return product_rounding_of(w->matrix.type) != PRODUCT_ROUND_BLOCKS;
}

static bool multiplies(const struct product_kernel *kernel, enum product_type type)
{
    const bool is_grid = type >= PRODUCT_IQ1_S && type <= PRODUCT_IQ3_S;
    return !is_grid || product_kernel_multiplies_grids(kernel);
}

/* The best may have no grids (AVX-VNNI, ARM); the plain one has. */
static const struct product_kernel *best_for(enum product_type type)
{
    uint32_t i = 0;
    while (!multiplies(product_kernel_at(i), type))
        i++;
    return product_kernel_at(i);
}

static double scale_at(const struct world *w, const struct product_block *blocks, uint32_t at)
{
    const struct product_block *b = &blocks[at / PRODUCT_BLOCK];
    return (double)(is_of_parts(w) ? b->scales[at % PRODUCT_BLOCK / PRODUCT_PART] : b->scale);
}

static int value_at(const struct product_block *blocks, uint32_t at)
{
    return blocks[at / PRODUCT_BLOCK].values[at % PRODUCT_BLOCK];
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

static bool is_summed(const struct world *w)
{
    return product_rounding_of(w->matrix.type) == PRODUCT_ROUND_PARTS_SUMMED;
}

/* Has it no more than eleven bits? */
static bool is_short(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits % 8192 == 0;
}

/* The sums of a block that are kept with it. */
static void check_sums(const struct world *w, const struct product_block *blocks)
{
    const uint32_t n = is_of_parts(w) ? PRODUCT_PART : PRODUCT_GROUP;
    for (uint32_t at = 0; at < COLUMNS; at += n) {
        const struct product_block *b = &blocks[at / PRODUCT_BLOCK];
        int sum = 0;
        for (uint32_t i = 0; i < n; i++)
            sum += value_at(blocks, at + i);
        const uint32_t k = at % PRODUCT_BLOCK / n;
        if (is_summed(w)) {
            const double want = (double)b->scales[k] * sum;
            assert_true(is_short(b->x_sums[k]));
            assert_true(fabs((double)b->x_sums[k] - want) <= fabs(want) * 0x1.01p-10);
            continue;
        }
        assert_int_equal(is_of_parts(w) ? b->part_sums[k] : b->sums[k], sum);
    }
}

/* Not by more than e has been rounded, to eleven bits. */
static void check_value(const struct world *w, const struct product_block *blocks, uint32_t i,
                        uint32_t at)
{
    const double e = scale_at(w, blocks, at), value = e * value_at(blocks, at),
                 want = at < w->n_columns ? (double)w->x[i][at] : 0;
    const bool is_shortened =
        is_of_parts(w) && product_rounding_of(w->matrix.type) != PRODUCT_ROUND_PARTS_ALIKE;
    assert_true(fabs(value - want) <=
                0.50001 * e + (is_shortened ? (fabs(value) + e) * 0x1.01p-11 : 0));
    assert_true(!is_shortened || is_short((float)e));
}

static void test_rounds_to_the_nearest(void **state)
{
    (void)state;
    static struct world w;
    struct product_block blocks[BLOCKS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(&w, t);
        for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
            for (uint32_t i = 0; i < X; i++) {
                round_x(kernel, &w, i, blocks);
                for (uint32_t at = 0; at < COLUMNS; at++)
                    check_value(&w, blocks, i, at);
                check_sums(&w, blocks);
            }
        }
        matrix_free(&w);
    }
}

/* The sums are of integers up to 2^28, which F32 holds to one part in 2^24; scales and offsets may
 * cancel for the most part. */
/* An offset may cancel all but the last digits of a weight. */
static double offset_at(const struct world *w, uint32_t row, uint32_t at)
{
    if (!is_summed(w))
        return 0;
    ggml_fp16_t m;
    memcpy(&m,
           w->bytes + row * w->matrix.row_bytes + at / PRODUCT_PART * ggml_type_size(w->type) + 2,
           sizeof m);
    return (double)ggml_fp16_to_fp32(m);
}

static void check_formula(const struct product_kernel *kernel, const struct world *w,
                          const struct product_block *blocks, uint32_t row, float got)
{
    double want = 0, size = 0;
    for (uint32_t at = 0; at < w->n_columns; at++) {
        const double x = scale_at(w, blocks, at) * value_at(blocks, at);
        const double m = offset_at(w, row, at), part = ((double)w->weights[row][at] - m) * x;
        want += part;
        size += fabs(part) + fabs(m * x);
        if (is_summed(w) && at % PRODUCT_PART == 0)
            want +=
                m * (double)blocks[at / PRODUCT_BLOCK].x_sums[at % PRODUCT_BLOCK / PRODUCT_PART];
    }
    if (!(fabs(want - (double)got) <= 2e-6 * size))
        fail_msg("%s, %s: row %u: %.9g, not %.9g", product_kernel_name(kernel),
                 ggml_type_name(w->type), row, (double)got, want);
}

static void test_is_the_formula(void **state)
{
    (void)state;
    static struct world w;
    static float y[X][ROWS];
    struct product_block blocks[BLOCKS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(&w, t);
        for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
            if (!multiplies(kernel, w.matrix.type))
                continue;
            compute(kernel, &w, 0, X, y);
            /* Every place of a tile comes up: its sides are powers of two. */
            for (uint32_t i = 0; i < X; i += 5) {
                round_x(kernel, &w, i, blocks);
                for (uint32_t row = 0; row < ROWS; row++)
                    check_formula(kernel, &w, blocks, row, y[i][row]);
            }
        }
        matrix_free(&w);
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
        for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
            if (!multiplies(kernel, w.matrix.type))
                continue;
            compute(kernel, &w, 0, X, all);
            /* Single rows, few, two passes of few, many; each row once at least. */
            for (uint32_t n = 1, end = 0; n <= 17; n++) {
                end = end + n < X ? end + n : X;
                compute(kernel, &w, end - n, n, some);
                assert_memory_equal(some, all[end - n], n * sizeof all[0]);
            }
        }
        matrix_free(&w);
    }
}

/* A matrix may begin where the memory does that can be read. */
static void test_what_is_before_a_matrix_is_not_read(void **state)
{
    (void)state;
    static struct world w;
    static float want[X][ROWS], got[X][ROWS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; t < TYPES; t++) {
        world_init(&w, t);
        const size_t size = ROWS * w.matrix.row_bytes, all = pages_of(1) + pages_of(size);
        uint8_t *pages =
            mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(pages != MAP_FAILED);
        assert_int_equal(mprotect(pages, pages_of(1), PROT_NONE), 0);
        memcpy(pages + pages_of(1), w.bytes, size);
        for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
            for (uint32_t n = 1; multiplies(kernel, w.matrix.type) && n <= 16; n *= 4) {
                w.matrix.rows = w.bytes;
                compute(kernel, &w, 0, n, want);
                w.matrix.rows = pages + pages_of(1);
                compute(kernel, &w, 0, n, got);
                assert_memory_equal(got, want, n * sizeof want[0]);
            }
        }
        munmap(pages, all);
        matrix_free(&w);
    }
}

static void test_same_bits_on_all_vectors(void **state)
{
    (void)state;
    static struct world w;
    static float want[X][ROWS], got[X][ROWS];
    const struct product_kernel *kernel;
    for (uint32_t t = 0; product_kernel_best() && t < TYPES; t++) {
        world_init(&w, t);
        compute(best_for(w.matrix.type), &w, 0, X, want);
        for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
            if (strcmp(product_kernel_name(kernel), "plain") == 0 && is_of_parts(&w))
                continue; /* without fused multiply-add */
            if (!multiplies(kernel, w.matrix.type))
                continue;
            compute(kernel, &w, 0, X, got);
            assert_memory_equal(got, want, sizeof want);
        }
        matrix_free(&w);
    }
}

/* Matrices of more rows and columns than a kernel takes at once. */
enum { WIDE_ROWS = 131, WIDE_COLUMNS = 19 * PRODUCT_BLOCK - PRODUCT_PART, WIDE_X = 6 };

static void check_wide(enum ggml_type type)
{
    static float row[19 * PRODUCT_BLOCK], want[WIDE_X][WIDE_ROWS], got[WIDE_X][WIDE_ROWS];
    static struct product_block blocks[WIDE_X][19];
    const int64_t blck = ggml_blck_size(type), n_columns = WIDE_COLUMNS / blck * blck;
    const size_t row_bytes = ggml_row_size(type, n_columns);
    const struct product_block *x[WIDE_X];
    float *y[WIDE_X];
    uint64_t draws = 0;
    uint8_t *bytes = malloc(WIDE_ROWS * row_bytes);
    struct product_matrix matrix = {
        .rows = bytes, .row_bytes = row_bytes, .n_columns = (uint32_t)n_columns};
    const struct product_kernel *kernel;
    assert_non_null(bytes);
    assert_true(product_type_of(type, &matrix.type));
    for (uint32_t r = 0; r < WIDE_ROWS + WIDE_X; r++) {
        for (int64_t i = 0; i < n_columns; i++)
            row[i] = drawn(&draws);
        if (r < WIDE_ROWS)
            ggml_quantize_chunk(type, row, bytes + r * row_bytes, 0, 1, n_columns, NULL);
        else
            product_round(product_kernel_at(0), product_rounding_of(matrix.type), row,
                          matrix.n_columns, blocks[r - WIDE_ROWS]);
    }
    for (uint32_t k = 0; (kernel = tested_kernel_at(k)); k++) {
        for (uint32_t i = 0; i < WIDE_X; i++) {
            x[i] = blocks[i], y[i] = want[i];
            product_compute(kernel, &matrix, &x[i], &y[i], 1, 0, WIDE_ROWS);
        }
        for (uint32_t n = 2; n <= WIDE_X; n += 2) {
            for (uint32_t i = 0; i < n; i++)
                y[i] = got[i];
            product_compute(kernel, &matrix, x, y, n, 1, WIDE_ROWS - 1);
            for (uint32_t i = 0; i < n; i++)
                assert_memory_equal(&got[i][1], &want[i][1], (WIDE_ROWS - 2) * sizeof want[0][0]);
        }
    }
    free(bytes);
}

static void test_same_bits_in_wide_matrices(void **state)
{
    (void)state;
    check_wide(GGML_TYPE_Q4_0);
    check_wide(GGML_TYPE_Q8_0);
    check_wide(GGML_TYPE_Q5_1);
    check_wide(GGML_TYPE_Q4_K);
    check_wide(GGML_TYPE_Q6_K);
}

/* Types for which ggml repacks weights depend on the kernel; replies keep their words where models
 * use ours. */
static void test_which_products_models_use(void **state)
{
    (void)state;
    const struct product_kernel *kernel;
    for (uint32_t k = 0; (kernel = product_kernel_at(k)); k++) {
        const char *name = product_kernel_name(kernel);
        const bool has_vnni = strstr(name, "vnni") || strstr(name, "amx"),
                   beats_fives = has_vnni || strcmp(name, "avx2") == 0;
        assert_true(product_is_of(kernel, GGML_TYPE_Q4_K));
        assert_int_equal(product_is_of(kernel, GGML_TYPE_Q4_0), beats_fives);
        assert_int_equal(product_is_of(kernel, GGML_TYPE_MXFP4), beats_fives);
        assert_int_equal(product_is_of(kernel, GGML_TYPE_IQ4_NL), has_vnni);
        for (uint32_t t = 0; t < TYPES; t++) {
            enum product_type ours;
            assert_true(product_type_of(types[t].type, &ours));
            if (ours >= PRODUCT_IQ1_S && ours <= PRODUCT_IQ3_S)
                assert_int_equal(product_is_of(kernel, types[t].type), multiplies(kernel, ours));
        }
        const bool has_floats = strstr(name, "avx") || strstr(name, "amx");
        assert_int_equal(product_is_of(kernel, GGML_TYPE_F16), has_floats);
        assert_int_equal(product_is_of(kernel, GGML_TYPE_BF16), has_floats);
    }
    assert_false(product_is_of(NULL, GGML_TYPE_Q4_K));
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
    enum product_type type;
    assert_true(product_type_of(matrix->type, &type));
    const struct product_matrix one = {.rows = (const char *)matrix->data + expert * matrix->nb[2],
                                       .row_bytes = matrix->nb[1],
                                       .n_columns = COLUMNS,
                                       .type = type};
    product_round(kernel, product_rounding_of(type), x, COLUMNS, blocks);
    product_compute(kernel, &one, &rounded, &y, 1, 0, ROWS);
    assert_memory_equal(got, want, sizeof want);
}

static void check_in_a_graph(uint32_t t)
{
    const enum ggml_type type = types[t].type;
    struct device *cpu = gpu_find(gpu, "cpu");
    enum product_type ours;
    assert_true(product_type_of(type, &ours));
    const struct product_kernel *kernel = best_for(ours);
    uint64_t draws = 0;
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = 16 * ggml_tensor_overhead() + ggml_graph_overhead(), .no_alloc = true});
    struct ggml_tensor *matrices = ggml_new_tensor_3d(ctx, type, COLUMNS, ROWS, EXPERTS);
    struct ggml_tensor *matrix = ggml_view_2d(ctx, matrices, COLUMNS, ROWS, matrices->nb[1], 0);
    struct ggml_tensor *x = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, COLUMNS, USED, TOKENS);
    struct ggml_tensor *chosen = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, USED, TOKENS);
    struct ggml_tensor *rounded = product_rounded(ctx, kernel, type, x);
    struct ggml_tensor *first = product_rounded(
        ctx, kernel, type,
        ggml_view_3d(ctx, x, COLUMNS, 1, TOKENS, x->nb[1], x->nb[2], 0)); /* of each token */
    struct ggml_tensor *flat = product_rounded(
        ctx, kernel, type, ggml_reshape_2d(ctx, x, COLUMNS, (int64_t)USED * TOKENS));
    struct ggml_tensor *plain = product_mul_mat(ctx, kernel, matrix, flat);
    struct ggml_tensor *each = product_mul_mat_id(ctx, kernel, matrices, rounded, chosen);
    struct ggml_tensor *shared = product_mul_mat_id(ctx, kernel, matrices, first, chosen);
    struct ggml_cgraph *graph = ggml_new_graph(ctx);
    ggml_build_forward_expand(graph, plain);
    ggml_build_forward_expand(graph, each);
    ggml_build_forward_expand(graph, shared);
    ggml_backend_buffer_t buffer = ggml_backend_alloc_ctx_tensors(ctx, device_ggml_backend(cpu));
    assert_non_null(buffer);
    draw_blocks(t, matrices->data, ggml_nbytes(matrices), &draws);
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

static void test_in_a_graph(void **state)
{
    (void)state;
    for (uint32_t t = 0; t < TYPES; t++)
        check_in_a_graph(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rounds_to_the_nearest),
        cmocka_unit_test(test_is_the_formula),
        cmocka_unit_test(test_same_bits_beside_others),
        cmocka_unit_test(test_what_is_before_a_matrix_is_not_read),
        cmocka_unit_test(test_same_bits_on_all_vectors),
        cmocka_unit_test(test_same_bits_in_wide_matrices),
        cmocka_unit_test(test_which_products_models_use),
        cmocka_unit_test(test_in_a_graph),
    };
    return cmocka_run_group_tests(tests, open_gpu, close_gpu);
}
