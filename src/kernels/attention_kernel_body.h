/* The arithmetic of attention.h, for vectors of LANES floats. A kernel's file defines first:
 *
 *     LANES, COLUMNS                 4, 8 or 16; vectors beside each other that a loop keeps in
 *                                    registers for 4 queries
 *     vec, ivec                      LANES floats or int32_t
 *     vec vec_load_halves(const void *)  LANES F16 values
 *     vec vec_larger(vec, vec), float vec_largest(vec)
 *
 * Every product is added by `sum += a * b`, which compilers fuse where the processor can and
 * nowhere else. */
#include "kernels/attention_kernel.h"
#include "kernels/exponential.h"

#include <math.h>
#include <string.h>

enum {
    TILE_VECTORS = ATTENTION_TILE / LANES,
    LANE_VECTORS = ATTENTION_LANES / LANES,
    Q8_BLOCK = 32,
    Q8_BYTES = 34,
    Q4_BLOCK = 32,
    Q4_BYTES = 18,
    FETCH_LINE = 64, /* bytes */
    FETCH_NEAR = 2,  /* to the second cache: a tile's lines share few places of the first */
};

/* In memory, aligned as its floats are. Values have the vector's own alignment: gcc 14 cannot pass
 * less to functions on ARM. */
typedef vec vec_anywhere __attribute__((aligned(4)));

ALWAYS_INLINE vec load(const float *from)
{
    return *(const vec_anywhere *)from;
}

ALWAYS_INLINE void store(float *to, vec x)
{
    *(vec_anywhere *)to = x;
}

ALWAYS_INLINE float exponential_one(float x)
{
    return exponential(splat(x))[0];
}

/* tanh(x) = 1 - 2 / (exp(2x) + 1), by the exponential of what is negative */
ALWAYS_INLINE vec tangent(vec x)
{
    const ivec sign = (ivec)x & INT32_MIN;
    const vec e = exponential(-2.0f * (vec)((ivec)x & INT32_MAX));
    return (vec)((ivec)((1.0f - e) / (1.0f + e)) | sign);
}

/* ---- a tile of K or V --------------------------------------------------------------------- */

ALWAYS_INLINE float half(const void *from)
{
    uint16_t halves[LANES] = {0};
    memcpy(halves, from, sizeof halves[0]);
    return vec_load_halves(halves)[0];
}

ALWAYS_INLINE void convert_f16(const char *from, uint32_t dim, float *to)
{
    uint32_t i = 0;
    for (; i + LANES <= dim; i += LANES)
        store(to + i, vec_load_halves(from + 2 * i));
    if (i < dim) {
        uint16_t rest[LANES] = {0};
        memcpy(rest, from + 2 * i, 2 * (dim - i));
        store(to + i, vec_load_halves(rest));
    }
}

ALWAYS_INLINE void convert_q8(const char *from, uint32_t dim, float *to)
{
    for (uint32_t i = 0; i < dim; i += Q8_BLOCK, from += Q8_BYTES) {
        const float scale = half(from);
        const int8_t *values = (const int8_t *)from + 2;
        for (uint32_t j = 0; j < Q8_BLOCK; j++)
            to[i + j] = (float)values[j] * scale;
    }
}

/* The first half of a block is in the low four bits, the second in the high ones. */
ALWAYS_INLINE void convert_q4(const char *from, uint32_t dim, float *to)
{
    for (uint32_t i = 0; i < dim; i += Q4_BLOCK, from += Q4_BYTES) {
        const float scale = half(from);
        const uint8_t *values = (const uint8_t *)from + 2;
        for (uint32_t j = 0; j < Q4_BLOCK / 2; j++) {
            to[i + j] = (float)((values[j] & 15) - 8) * scale;
            to[i + Q4_BLOCK / 2 + j] = (float)((values[j] >> 4) - 8) * scale;
        }
    }
}

/* Cells of a head lie far apart, which processors do not see: each line is fetched by hand. */
ALWAYS_INLINE void fetch_cell(const struct attention_tile *tile, uint32_t i)
{
    const char *cell = tile->cells + i * tile->step;
    if (i >= tile->n)
        return;
    for (uint32_t at = 0; at < tile->bytes; at += FETCH_LINE)
        __builtin_prefetch(cell + at, 0, FETCH_NEAR);
    if (tile->bytes % FETCH_LINE)
        __builtin_prefetch(cell + tile->bytes - 1, 0, FETCH_NEAR);
}

/* n cells as [n][width]; what is beyond `dim` is 0. `next` is fetched. */
static void convert_tile(enum attention_type type, const char *cells, size_t step, uint32_t n,
                         uint32_t dim, uint32_t width, const struct attention_tile *next, float *to)
{
    for (uint32_t i = n; i < next->n; i++)
        fetch_cell(next, i);
    for (uint32_t i = 0; i < n; i++, cells += step, to += width) {
        fetch_cell(next, i);
        switch (type) {
        case ATTENTION_F16:
            convert_f16(cells, dim, to);
            break;
        case ATTENTION_F32:
            memcpy(to, cells, dim * sizeof *to);
            break;
        case ATTENTION_Q8_0:
            convert_q8(cells, dim, to);
            break;
        case ATTENTION_Q4_0:
            convert_q4(cells, dim, to);
            break;
        }
        if (dim < width)
            memset(to + dim, 0, (width - dim) * sizeof *to);
    }
}

/* rows[i][j] becomes rows[j][i]: each round deals the upper and the lower half of the rows
 * alternately. */
ALWAYS_INLINE void turn_square(vec rows[LANES])
{
    UNROLL for (uint32_t round = 1; round < LANES; round *= 2)
    {
        vec dealt[LANES];
        UNROLL for (uint32_t i = 0; i < LANES / 2; i++)
        {
            dealt[2 * i] = __builtin_shufflevector(rows[i], rows[i + LANES / 2], INTERLEAVE_LOW);
            dealt[2 * i + 1] =
                __builtin_shufflevector(rows[i], rows[i + LANES / 2], INTERLEAVE_HIGH);
        }
        UNROLL for (uint32_t i = 0; i < LANES; i++) rows[i] = dealt[i];
    }
}

/* The tile's first `n` cells as columns: [width][TILE]. What stands in columns from n on is never
 * used. */
static void turn_tile(const float *tile, uint32_t n, uint32_t width, float *columns)
{
    for (uint32_t c = 0; c < n; c += LANES) {
        for (uint32_t d = 0; d < width; d += LANES) {
            vec rows[LANES];
            UNROLL for (uint32_t i = 0; i < LANES; i++) rows[i] = load(tile + (c + i) * width + d);
            turn_square(rows);
            UNROLL for (uint32_t i = 0; i < LANES; i++)
                store(columns + (d + i) * ATTENTION_TILE + c, rows[i]);
        }
    }
}

/* ---- products ----------------------------------------------------------------------------- */

/* scores[i][c] = sum of q[i][d] * columns[d][c] over d in order, for `n` queries (a constant) and
 * columns from `c` on.
 */
ALWAYS_INLINE void score_some(uint32_t n, uint32_t dim, uint32_t width, const float *q,
                              const float *columns, float *scores)
{
    vec sum[4][COLUMNS];
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t j = 0; j < COLUMNS; j++) sum[i][j] = splat(0);
    }
    for (uint32_t d = 0; d < dim; d++) {
        vec column[COLUMNS];
        UNROLL for (uint32_t j = 0; j < COLUMNS; j++) column[j] =
            load(columns + d * ATTENTION_TILE + j * LANES);
        UNROLL for (uint32_t i = 0; i < n; i++)
        {
            const vec a = splat(q[i * width + d]);
            UNROLL for (uint32_t j = 0; j < COLUMNS; j++) sum[i][j] += a * column[j];
        }
    }
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t j = 0; j < COLUMNS; j++)
            store(scores + i * ATTENTION_TILE + j * LANES, sum[i][j]);
    }
}

static void attention_kernel_score(const struct attention_block *block, uint32_t n_queries,
                                   uint32_t n_cells)
{
    const uint32_t dim = block->form->dim_k, width = block->width_k;
    for (uint32_t c = 0; c < n_cells; c += COLUMNS * LANES) {
        const float *q = block->q, *columns = block->columns + c;
        float *scores = block->scores + c;
        uint32_t i = 0;
        for (; i + 4 <= n_queries; i += 4)
            score_some(4, dim, width, q + i * width, columns, scores + i * ATTENTION_TILE);
        for (; i < n_queries; i++)
            score_some(1, dim, width, q + i * width, columns, scores + i * ATTENTION_TILE);
    }
}

/* value[i][d] += sum of p[i][c] * tile[c][d] over c in order, for `n` queries and `m` vectors
 * (constants) of dimensions. */
ALWAYS_INLINE void gather_some(uint32_t n, uint32_t m, uint32_t n_cells, uint32_t width,
                               const float *p, const float *tile, float *value)
{
    vec sum[4][COLUMNS];
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t j = 0; j < m; j++) sum[i][j] = load(value + i * width + j * LANES);
    }
    for (uint32_t c = 0; c < n_cells; c++) {
        vec row[COLUMNS];
        UNROLL for (uint32_t j = 0; j < m; j++) row[j] = load(tile + c * width + j * LANES);
        UNROLL for (uint32_t i = 0; i < n; i++)
        {
            const vec a = splat(p[i * ATTENTION_TILE + c]);
            UNROLL for (uint32_t j = 0; j < m; j++) sum[i][j] += a * row[j];
        }
    }
    UNROLL for (uint32_t i = 0; i < n; i++)
    {
        UNROLL for (uint32_t j = 0; j < m; j++) store(value + i * width + j * LANES, sum[i][j]);
    }
}

ALWAYS_INLINE void gather_rows(uint32_t n, uint32_t n_cells, uint32_t width, const float *p,
                               const float *tile, float *value)
{
    uint32_t d = 0;
    for (; d + COLUMNS * LANES <= width; d += COLUMNS * LANES)
        gather_some(n, COLUMNS, n_cells, width, p, tile + d, value + d);
    for (; d < width; d += LANES)
        gather_some(n, 1, n_cells, width, p, tile + d, value + d);
}

static void attention_kernel_gather(const struct attention_block *block, uint32_t n_queries,
                                    uint32_t n_cells)
{
    const uint32_t width = block->width_v;
    uint32_t i = 0;
    for (; i + 4 <= n_queries; i += 4)
        gather_rows(4, n_cells, width, block->scores + i * ATTENTION_TILE, block->tile,
                    block->chunk.value + i * width);
    for (; i < n_queries; i++)
        gather_rows(1, n_cells, width, block->scores + i * ATTENTION_TILE, block->tile,
                    block->chunk.value + i * width);
}

/* ---- softmax ------------------------------------------------------------------------------ */

static void scale_row(float *row, uint32_t width, float by)
{
    for (uint32_t d = 0; d < width; d += LANES)
        store(row + d, load(row + d) * by);
}

/* The scores of one query become weights; it sees the tile's cells `first` to `end` - 1. */
static void attention_kernel_weigh(const struct attention_block *block, uint32_t query,
                                   uint32_t first, uint32_t end)
{
    float *scores = block->scores + query * ATTENTION_TILE,
          *lanes = block->lanes + query * ATTENTION_LANES;
    const float cap = block->form->softcap;
    vec s[TILE_VECTORS], top = splat(-INFINITY);
    UNROLL for (uint32_t j = 0; j < TILE_VECTORS; j++)
    {
        s[j] = load(scores + j * LANES);
        if (cap != 0)
            s[j] = cap * tangent(s[j]);
    }
    if (first > 0 || end < ATTENTION_TILE) {
        const ivec order = {LANE_NUMBERS};
        UNROLL for (uint32_t j = 0; j < TILE_VECTORS; j++)
        {
            const ivec cell = order + (int32_t)(j * LANES);
            s[j] = choose((cell >= (int32_t)first) & (cell < (int32_t)end), s[j], splat(-INFINITY));
        }
    }
    UNROLL for (uint32_t j = 0; j < TILE_VECTORS; j++) top = vec_larger(top, s[j]);
    const float old = block->chunk.max[query], tile_max = vec_largest(top),
                max = tile_max > old ? tile_max : old;
    if (max > old) {
        const float by = exponential_one(old - max);
        block->chunk.max[query] = max;
        scale_row(lanes, ATTENTION_LANES, by);
        scale_row(block->chunk.value + query * block->width_v, block->width_v, by);
    }
    UNROLL for (uint32_t j = 0; j < TILE_VECTORS; j++)
    {
        s[j] = exponential(s[j] - max);
        store(scores + j * LANES, s[j]);
    }
    UNROLL for (uint32_t j = 0; j < LANE_VECTORS; j++)
    {
        vec sum = s[j];
        UNROLL for (uint32_t k = j + LANE_VECTORS; k < TILE_VECTORS; k += LANE_VECTORS) sum += s[k];
        store(lanes + j * LANES, load(lanes + j * LANES) + sum);
    }
}

/* All queries, in the tile that begins at `cell`. */
static void attention_kernel_weigh_all(const struct attention_block *block, uint32_t cell)
{
    const uint32_t window = block->form->window;
    for (uint32_t row = 0; row < block->n_rows; row++) {
        const uint32_t own = block->position + row + 1, end = block->end ? block->end : own,
                       start = window && own > window ? own - window : 0;
        const uint32_t from = start > cell ? start - cell : 0;
        const uint32_t to = end <= cell                   ? 0
                            : end - cell < ATTENTION_TILE ? end - cell
                                                          : ATTENTION_TILE;
        for (uint32_t i = row * block->n_heads; i < (row + 1) * block->n_heads; i++) {
            if (from < to)
                attention_kernel_weigh(block, i, from, to);
            else
                memset(block->scores + i * ATTENTION_TILE, 0,
                       ATTENTION_TILE * sizeof *block->scores);
        }
    }
}

/* ---- the kernel's operations -------------------------------------------------------------- */

static void attention_kernel_begin(const struct attention_block *block, uint32_t n_queries)
{
    for (uint32_t i = 0; i < n_queries; i++)
        block->chunk.max[i] = -INFINITY;
    memset(block->lanes, 0, (size_t)n_queries * ATTENTION_LANES * sizeof *block->lanes);
    memset(block->chunk.value, 0, (size_t)n_queries * block->width_v * sizeof *block->chunk.value);
}

/* K of the tile that begins at `cell`; behind the last one, of the next block's first. */
static struct attention_tile attention_kernel_next(const struct attention_block *block,
                                                   uint32_t cell)
{
    const uint32_t end = attention_end(block);
    if (cell >= end)
        return block->next;
    return (struct attention_tile){
        block->k + attention_place(block->form, block->extents, cell) * block->k_cell,
        block->k_cell, end - cell < ATTENTION_TILE ? end - cell : ATTENTION_TILE, block->bytes_k};
}

static void attention_kernel_chunk(const struct attention_block *block, uint32_t first,
                                   uint32_t end)
{
    const struct attention_form *form = block->form;
    const uint32_t n_queries = block->n_rows * block->n_heads, window = form->window;
    const uint32_t seen = window && block->position + 1 > window ? block->position + 1 - window : 0;
    attention_kernel_begin(block, n_queries);
    for (uint32_t cell = first; cell < end; cell += ATTENTION_TILE) {
        const uint32_t n = end - cell < ATTENTION_TILE ? end - cell : ATTENTION_TILE;
        if (cell + n <= seen)
            continue;
        const size_t at = attention_place(form, block->extents, cell);
        const struct attention_tile v = {block->v + at * block->v_cell, block->v_cell, n,
                                         block->bytes_v},
                                    next = attention_kernel_next(block, cell + ATTENTION_TILE);
        convert_tile(form->type, block->k + at * block->k_cell, block->k_cell, n, form->dim_k,
                     block->width_k, &v, block->tile);
        turn_tile(block->tile, n, block->width_k, block->columns);
        attention_kernel_score(block, n_queries, n);
        attention_kernel_weigh_all(block, cell);
        convert_tile(form->type, v.cells, v.step, n, form->dim_v, block->width_v, &next,
                     block->tile);
        attention_kernel_gather(block, n_queries, n);
    }
    for (uint32_t i = 0; i < n_queries; i++) {
        float sum = 0;
        for (uint32_t j = 0; j < ATTENTION_LANES; j++)
            sum += block->lanes[i * ATTENTION_LANES + j];
        block->chunk.weight[i] = sum;
    }
}

static void attention_kernel_add(const struct attention_sums *to, const struct attention_sums *from,
                                 uint32_t n, uint32_t width_v)
{
    for (uint32_t i = 0; i < n; i++) {
        const float max = to->max[i] > from->max[i] ? to->max[i] : from->max[i];
        if (from->max[i] == -INFINITY)
            continue;
        const float by = exponential_one(to->max[i] - max),
                    by_from = exponential_one(from->max[i] - max);
        float *value = to->value + i * width_v, *more = from->value + i * width_v;
        scale_row(value, width_v, by);
        for (uint32_t d = 0; d < width_v; d += LANES)
            store(value + d, load(value + d) + load(more + d) * by_from);
        to->weight[i] = to->weight[i] * by + from->weight[i] * by_from;
        to->max[i] = max;
    }
}

static void attention_kernel_finish(const struct attention_sums *sums, uint32_t query,
                                    uint32_t width_v, uint32_t dim_v, const float *sink, float *out)
{
    float weight = sums->weight[query], by = 1;
    if (sink) {
        const float max = *sink > sums->max[query] ? *sink : sums->max[query];
        by = exponential_one(sums->max[query] - max);
        weight *= by;
        weight += exponential_one(*sink - max);
    }
    const float *value = sums->value + query * width_v;
    by /= weight;
    for (uint32_t d = 0; d < dim_v; d++)
        out[d] = value[d] * by;
}
