#include "gpu/product_ggml.h"

#include "gpu/custom_op.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

static const struct {
    enum ggml_type ggml;
    enum product_type type;
} types[] = {
    {GGML_TYPE_Q2_K, PRODUCT_Q2_K},       {GGML_TYPE_Q3_K, PRODUCT_Q3_K},
    {GGML_TYPE_Q4_K, PRODUCT_Q4_K},       {GGML_TYPE_Q5_K, PRODUCT_Q5_K},
    {GGML_TYPE_Q6_K, PRODUCT_Q6_K},       {GGML_TYPE_Q4_0, PRODUCT_Q4_0},
    {GGML_TYPE_Q4_1, PRODUCT_Q4_1},       {GGML_TYPE_Q5_0, PRODUCT_Q5_0},
    {GGML_TYPE_Q5_1, PRODUCT_Q5_1},       {GGML_TYPE_Q8_0, PRODUCT_Q8_0},
    {GGML_TYPE_IQ4_NL, PRODUCT_IQ4_NL},   {GGML_TYPE_IQ4_XS, PRODUCT_IQ4_XS},
    {GGML_TYPE_MXFP4, PRODUCT_MXFP4},     {GGML_TYPE_F16, PRODUCT_F16},
    {GGML_TYPE_BF16, PRODUCT_BF16},       {GGML_TYPE_IQ1_S, PRODUCT_IQ1_S},
    {GGML_TYPE_IQ1_M, PRODUCT_IQ1_M},     {GGML_TYPE_IQ2_XXS, PRODUCT_IQ2_XXS},
    {GGML_TYPE_IQ2_XS, PRODUCT_IQ2_XS},   {GGML_TYPE_IQ2_S, PRODUCT_IQ2_S},
    {GGML_TYPE_IQ3_XXS, PRODUCT_IQ3_XXS}, {GGML_TYPE_IQ3_S, PRODUCT_IQ3_S},
};

static void unpack_grid(enum product_type type, const uint8_t *block, float *weights)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].type == type)
            ggml_get_type_traits(types[i].ggml)->to_float(block, weights, PRODUCT_BLOCK);
    }
}

static void fill_grids(void)
{
    product_grids_fill(unpack_grid);
}

bool product_type_of(enum ggml_type ggml, enum product_type *type)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_grids);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (types[i].ggml == ggml) {
            *type = types[i].type;
            return true;
        }
    }
    return false;
}

static bool product_ggml_is_of_grids(enum ggml_type type)
{
    enum product_type ours;
    return product_type_of(type, &ours) && ours >= PRODUCT_IQ1_S && ours <= PRODUCT_IQ3_S;
}

static enum product_type type_of_product(enum ggml_type ggml)
{
    enum product_type type = PRODUCT_Q4_K;
    const bool is_ours = product_type_of(ggml, &type);
    assert(is_ours);
    (void)is_ours;
    return type;
}

bool product_is_of(const struct product_kernel *kernel, enum ggml_type type)
{
    if (!kernel)
        return false;
    if (type == GGML_TYPE_Q4_0 || type == GGML_TYPE_IQ4_NL || type == GGML_TYPE_MXFP4)
        return product_kernel_beats_repacked(kernel, type_of_product(type));
    if (product_ggml_is_of_grids(type))
        return product_kernel_multiplies_grids(kernel);
    if (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16)
        return product_kernel_multiplies_floats(kernel);
    return (type >= GGML_TYPE_Q2_K && type <= GGML_TYPE_Q6_K) || type == GGML_TYPE_Q8_0 ||
           type == GGML_TYPE_Q4_1 || type == GGML_TYPE_Q5_0 || type == GGML_TYPE_Q5_1 ||
           type == GGML_TYPE_IQ4_XS;
}

bool product_shares_rounding(enum ggml_type a, enum ggml_type b)
{
    return product_rounding_of(type_of_product(a)) == product_rounding_of(type_of_product(b));
}

static struct product_matrix matrix_of(const struct ggml_tensor *tensor)
{
    return (struct product_matrix){.rows = tensor->data,
                                   .row_bytes = tensor->nb[1],
                                   .n_columns = (uint32_t)tensor->ne[0],
                                   .type = type_of_product(tensor->type)};
}

/* Share `ith` of `nth` of n. */
static void product_ggml_share_of(int64_t n, int ith, int nth, int64_t *first, int64_t *end)
{
    *first = n * ith / nth;
    *end = n * (ith + 1) / nth;
}

static void *row_of(const struct ggml_tensor *tensor, int64_t i1, int64_t i2)
{
    return (char *)tensor->data + (size_t)i1 * tensor->nb[1] + (size_t)i2 * tensor->nb[2];
}

/* ---- rounding ---- */

static int64_t blocks_of(int64_t n)
{
    return (n + PRODUCT_BLOCK - 1) / PRODUCT_BLOCK;
}

/* What the rounded values are. */
enum rounded_of { ROUNDED_X, ROUNDED_NORM, ROUNDED_GATE };

struct rounded { /* what the operation keeps for itself */
    int32_t rounding, of;
    float epsilon; /* of a norm */
};

static struct rounded *rounded_in(struct ggml_tensor *out)
{
    static_assert(sizeof(int32_t[CUSTOM_OWN]) >= sizeof(struct rounded), "it has room");
    return (struct rounded *)custom_op_of(out)->own;
}

/* n values of a row, from `first` on. */
static void round_some(struct ggml_tensor *out, const struct product_kernel *kernel, int64_t row,
                       int64_t first, uint32_t n, struct product_block *to)
{
    const struct ggml_tensor *x = out->src[0], *other = out->src[1];
    const struct rounded *rounded = rounded_in(out);
    const enum product_rounding rounding = (enum product_rounding)rounded->rounding;
    const float *from = row_of(x, row % x->ne[1], row / x->ne[1]);
    switch ((enum rounded_of)rounded->of) {
    case ROUNDED_X:
        product_round(kernel, rounding, from + first, n, to);
        return;
    case ROUNDED_NORM: /* of the whole row: each thread finds its factor for itself */
        product_round_norm(kernel, rounding, from + first, (const float *)other->data + first,
                           product_norm_factor(kernel, from, (uint32_t)x->ne[0], rounded->epsilon),
                           n, to);
        return;
    case ROUNDED_GATE:
        product_round_gate(kernel, rounding, from + first,
                           (const float *)row_of(other, row % x->ne[1], row / x->ne[1]) + first, n,
                           to);
        return;
    }
}

static void round_share(struct ggml_tensor *out, int ith, int nth, void *kernel)
{
    const struct ggml_tensor *x = out->src[0];
    const int64_t n_blocks = blocks_of(x->ne[0]);
    int64_t at, end;
    for (product_ggml_share_of(n_blocks * x->ne[1] * x->ne[2], ith, nth, &at, &end); at < end;) {
        const int64_t row = at / n_blocks, block = at % n_blocks;
        const int64_t n = n_blocks - block < end - at ? n_blocks - block : end - at;
        const int64_t first = block * PRODUCT_BLOCK, behind = (block + n) * PRODUCT_BLOCK;
        round_some(out, kernel, row, first,
                   (uint32_t)((behind < x->ne[0] ? behind : x->ne[0]) - first),
                   (struct product_block *)out->data + at);
        at += n;
    }
}

static bool has_float_rows(const struct ggml_tensor *x)
{
    return x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && x->ne[3] == 1;
}

/* An RMS norm of rows, times a weight for each of their values. */
static bool is_norm(const struct ggml_tensor *x)
{
    const struct ggml_tensor *norm = x->src[0], *weight = x->src[1];
    return x->op == GGML_OP_MUL && norm->op == GGML_OP_RMS_NORM && has_float_rows(norm->src[0]) &&
           has_float_rows(weight) && ggml_nelements(weight) == x->ne[0] &&
           weight->ne[0] == x->ne[0];
}

static bool is_gate(const struct ggml_tensor *x)
{
    return x->op == GGML_OP_GLU && ggml_get_glu_op(x) == GGML_GLU_OP_SWIGLU && x->src[1] &&
           has_float_rows(x->src[0]) && has_float_rows(x->src[1]);
}

struct ggml_tensor *product_rounded(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    enum ggml_type type, struct ggml_tensor *x)
{
    assert(has_float_rows(x));
    assert(x->ne[0] % product_columns_of(type_of_product(type)) == 0);
    struct rounded rounded = {.rounding = (int32_t)product_rounding_of(type_of_product(type))};
    if (rounded.rounding == PRODUCT_ROUND_NOTHING)
        return x;
    struct ggml_tensor *sources[2] = {x};
    if (is_norm(x)) {
        rounded.of = ROUNDED_NORM;
        memcpy(&rounded.epsilon, x->src[0]->op_params, sizeof rounded.epsilon);
        sources[0] = x->src[0]->src[0];
        sources[1] = x->src[1];
    } else if (is_gate(x)) {
        rounded.of = ROUNDED_GATE;
        sources[0] = x->src[0];
        sources[1] = x->src[1];
    }
    const int64_t ne[] = {blocks_of(x->ne[0]) * (int64_t)sizeof(struct product_block), x->ne[1],
                          x->ne[2]};
    struct ggml_tensor *out =
        custom_op_new(ctx, GGML_TYPE_I8, ne, sources, sources[1] ? 2 : 1, round_share, kernel);
    *rounded_in(out) = rounded;
    return out;
}

/* ---- products ---- */

struct tile { /* rows that are multiplied with the same matrix */
    union {
        const struct product_block *x[PRODUCT_TILE];
        const float *floats[PRODUCT_TILE]; /* for types of floats */
    };
    float *y[PRODUCT_TILE];
    uint32_t n;
};

static void add_to_tile(struct tile *tile, const struct product_matrix *matrix, const void *x,
                        float *y)
{
    if (product_rounding_of(matrix->type) == PRODUCT_ROUND_NOTHING)
        tile->floats[tile->n] = x;
    else
        tile->x[tile->n] = x;
    tile->y[tile->n++] = y;
}

static void compute_tile(const struct product_kernel *kernel, const struct product_matrix *matrix,
                         uint32_t first, uint32_t end, struct tile *tile)
{
    if (product_rounding_of(matrix->type) == PRODUCT_ROUND_NOTHING)
        product_compute_floats(kernel, matrix, tile->floats, tile->y, tile->n, first, end);
    else
        product_compute(kernel, matrix, tile->x, tile->y, tile->n, first, end);
    tile->n = 0;
}

/* A matrix is cut into ranges, in which threads begin, and these into pieces: a thread that the
 * system runs late leaves pieces to the others, which so wait for one piece of it at most, not for
 * all of its rows. The pieces that a thread takes mostly follow each other, so that what it fetches
 * early, behind their end, is what it needs next. */
enum { PIECES_PER_THREAD = 8, RANGES_MAX = 4 };

/* The next piece of a range that no thread has; the operation keeps each range's count of them.
 * Each of nth threads draws one beyond the last: the last of all draws begins the count anew, for
 * the next time that the graph is computed. */
static int32_t draw_piece(struct ggml_tensor *out, int range, int32_t n_pieces, int nth)
{
    static_assert(sizeof(int32_t[CUSTOM_OWN]) >= sizeof(int32_t[RANGES_MAX]), "it has room");
    int32_t *count = &custom_op_of(out)->own[range];
    const int32_t piece = __atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
    if (piece + 1 == n_pieces + nth)
        __atomic_store_n(count, 0, __ATOMIC_RELAXED);
    return piece;
}

static int64_t sheaves_of(int64_t n_rows)
{
    return (n_rows + PRODUCT_SHEAF_MAX - 1) / PRODUCT_SHEAF_MAX;
}

/* The matrix's rows in piece `piece` of n: whole sheaves. */
static void rows_of_piece(int64_t n_rows, int piece, int n, uint32_t *first, uint32_t *end)
{
    int64_t begin, behind;
    product_ggml_share_of(sheaves_of(n_rows), piece, n, &begin, &behind);
    behind = behind * PRODUCT_SHEAF_MAX < n_rows ? behind * PRODUCT_SHEAF_MAX : n_rows;
    *first = (uint32_t)begin * PRODUCT_SHEAF_MAX;
    *end = (uint32_t)behind;
}

static void multiply_rows(struct ggml_tensor *out, const struct product_kernel *kernel,
                          uint32_t first, uint32_t end)
{
    struct product_matrix matrix = matrix_of(out->src[0]);
    struct tile tile = {.n = 0};
    for (int64_t at = 0; at < out->ne[1] * out->ne[2]; at++) {
        const int64_t t = at % out->ne[1], of = at / out->ne[1];
        matrix.rows = row_of(out->src[0], 0, of);
        add_to_tile(&tile, &matrix, row_of(out->src[1], t, of), row_of(out, t, of));
        if (tile.n < PRODUCT_TILE && t + 1 < out->ne[1])
            continue;
        compute_tile(kernel, &matrix, first, end, &tile);
    }
}

/* What is left of a range. */
static void multiply_range(struct ggml_tensor *out, const struct product_kernel *kernel, int range,
                           int n_ranges, int nth)
{
    const int64_t n_sheaves = sheaves_of(out->ne[0]);
    const int64_t n = n_sheaves < nth * PIECES_PER_THREAD ? n_sheaves : nth * PIECES_PER_THREAD;
    int64_t begin, behind;
    product_ggml_share_of(n, range, n_ranges, &begin, &behind);
    const int32_t n_pieces = (int32_t)(behind - begin);
    for (int32_t piece; (piece = draw_piece(out, range, n_pieces, nth)) < n_pieces;) {
        uint32_t first, end;
        rows_of_piece(out->ne[0], (int)begin + piece, (int)n, &first, &end);
        multiply_rows(out, kernel, first, end);
    }
}

static void multiply_share(struct ggml_tensor *out, int ith, int nth, void *kernel)
{
    const int n_ranges = nth < RANGES_MAX ? nth : RANGES_MAX;
    for (int i = 0; i < n_ranges; i++)
        multiply_range(out, kernel, (ith + i) % n_ranges, n_ranges, nth);
}

struct ggml_tensor *product_mul_mat(struct ggml_context *ctx, const struct product_kernel *kernel,
                                    struct ggml_tensor *matrix, struct ggml_tensor *rounded)
{
    struct ggml_tensor *sources[] = {matrix, rounded};
    assert(rounded->ne[2] == matrix->ne[2]);
    const int64_t ne[] = {matrix->ne[1], rounded->ne[1], rounded->ne[2]};
    return custom_op_new(ctx, GGML_TYPE_F32, ne, sources, 2, multiply_share, kernel);
}

/* ---- routed experts ---- */

/* Experts are cut into pieces, too, the more the more rows x they were chosen for, and all their
 * pieces stand in one row, which is cut into ranges. Every thread finds the same, for itself: so
 * none waits for another, and nothing is allocated. */
struct experts_cut {
    int64_t n_rows, n_chosen;             /* of a matrix; rows x of all experts */
    int64_t n_pieces, n_wanted;           /* of all experts; about so many */
    uint32_t n_x_of[PRODUCT_EXPERTS_MAX]; /* rows x of each expert */
};

static int64_t pieces_of_expert(const struct experts_cut *cut, int64_t expert)
{
    const int64_t n_x = cut->n_x_of[expert], n_sheaves = sheaves_of(cut->n_rows);
    const int64_t n = n_x ? (n_x * cut->n_wanted + cut->n_chosen - 1) / cut->n_chosen : 0;
    return n < n_sheaves ? n : n_sheaves;
}

static void cut_experts(const struct ggml_tensor *out, int nth, struct experts_cut *cut)
{
    const int64_t n_experts = out->src[0]->ne[2];
    cut->n_rows = out->ne[0];
    cut->n_chosen = out->ne[1] * out->ne[2];
    cut->n_wanted = nth * PIECES_PER_THREAD;
    cut->n_pieces = 0;
    memset(cut->n_x_of, 0, (size_t)n_experts * sizeof cut->n_x_of[0]);
    for (int64_t t = 0; t < out->ne[2]; t++) {
        const int32_t *chosen = row_of(out->src[2], t, 0);
        for (int64_t u = 0; u < out->ne[1]; u++) {
            assert(chosen[u] >= 0 && chosen[u] < n_experts);
            cut->n_x_of[chosen[u]]++;
        }
    }
    for (int64_t expert = 0; expert < n_experts; expert++)
        cut->n_pieces += pieces_of_expert(cut, expert);
}

/* Some rows of the expert's matrix times all n_x rows x that it was chosen for. */
static void multiply_expert(struct ggml_tensor *out, const struct product_kernel *kernel,
                            int64_t expert, uint32_t n_x, uint32_t first, uint32_t end)
{
    const struct ggml_tensor *matrices = out->src[0], *rounded = out->src[1], *chosen = out->src[2];
    struct product_matrix matrix = matrix_of(matrices);
    struct tile tile = {.n = 0};
    matrix.rows = row_of(matrices, 0, expert);
    for (int64_t t = 0; n_x; t++) {
        const int32_t *row = row_of(chosen, t, 0);
        for (int64_t u = 0; n_x && u < out->ne[1]; u++) {
            if (row[u] != expert)
                continue;
            add_to_tile(&tile, &matrix, row_of(rounded, rounded->ne[1] == 1 ? 0 : u, t),
                        row_of(out, u, t));
            if (--n_x == 0 || tile.n == PRODUCT_TILE)
                compute_tile(kernel, &matrix, first, end, &tile);
        }
    }
}

/* What is left of a range of the experts' pieces. */
static void multiply_range_of_experts(struct ggml_tensor *out, const struct product_kernel *kernel,
                                      const struct experts_cut *cut, int range, int n_ranges,
                                      int nth)
{
    int64_t begin, behind, expert = 0, before = 0; /* pieces of the experts before */
    product_ggml_share_of(cut->n_pieces, range, n_ranges, &begin, &behind);
    const int32_t n_pieces = (int32_t)(behind - begin);
    for (int32_t piece; (piece = draw_piece(out, range, n_pieces, nth)) < n_pieces;) {
        uint32_t first, end;
        while (begin + piece >= before + pieces_of_expert(cut, expert))
            before += pieces_of_expert(cut, expert++);
        rows_of_piece(cut->n_rows, (int)(begin + piece - before),
                      (int)pieces_of_expert(cut, expert), &first, &end);
        multiply_expert(out, kernel, expert, cut->n_x_of[expert], first, end);
    }
}

static void multiply_chosen_share(struct ggml_tensor *out, int ith, int nth, void *kernel)
{
    const int n_ranges = nth < RANGES_MAX ? nth : RANGES_MAX;
    struct experts_cut cut;
    cut_experts(out, nth, &cut);
    for (int i = 0; i < n_ranges; i++)
        multiply_range_of_experts(out, kernel, &cut, (ith + i) % n_ranges, n_ranges, nth);
}

struct ggml_tensor *product_mul_mat_id(struct ggml_context *ctx,
                                       const struct product_kernel *kernel,
                                       struct ggml_tensor *matrices, struct ggml_tensor *rounded,
                                       struct ggml_tensor *chosen)
{
    struct ggml_tensor *sources[] = {matrices, rounded, chosen};
    assert(chosen->type == GGML_TYPE_I32 && matrices->ne[2] <= PRODUCT_EXPERTS_MAX);
    const int64_t ne[] = {matrices->ne[1], chosen->ne[0], chosen->ne[1]};
    return custom_op_new(ctx, GGML_TYPE_F32, ne, sources, 3, multiply_chosen_share, kernel);
}
