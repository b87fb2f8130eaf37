#include "kernels/attention.h"

#include "kernels/attention_kernel.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- kernels ---- */

static const struct attention_kernel *const kernels[] = {
#if defined(__x86_64__)
    &attention_kernel_avx512,
    &attention_kernel_avx2,
#endif
    &attention_kernel_plain,
};

const struct attention_kernel *attention_kernel_at(uint32_t index)
{
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++) {
        if (kernels[i]->works() && index-- == 0)
            return kernels[i];
    }
    return NULL;
}

const struct attention_kernel *attention_kernel_best(void)
{
    return attention_kernel_at(0);
}

const char *attention_kernel_name(const struct attention_kernel *kernel)
{
    return kernel->name;
}

static size_t head_bytes(enum attention_type type, uint32_t dim)
{
    switch (type) {
    case ATTENTION_F16:
        return dim * sizeof(uint16_t);
    case ATTENTION_F32:
        return dim * sizeof(float);
    case ATTENTION_Q8_0:
        return dim / 32 * 34;
    case ATTENTION_Q4_0:
        return dim / 32 * 18;
    }
    return 0;
}

/* ---- scratch ---- */

static uint32_t attention_width_of(uint32_t dim)
{
    return (dim + ATTENTION_LANES - 1) / ATTENTION_LANES * ATTENTION_LANES;
}

static uint32_t attention_larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* Places in a thread's scratch, from `base` on; with none they are counted only. */
struct arena {
    float *base;
    size_t n;
};

static float *attention_take(struct arena *arena, size_t n)
{
    float *taken = arena->base ? arena->base + arena->n : NULL;
    arena->n += n;
    return taken;
}

struct places {
    struct attention_block block;
    struct attention_sums total;
};

/* The floats that it takes. */
static size_t attention_lay_out(const struct attention_form *form, float *scratch,
                                struct places *out)
{
    struct attention_block *b = &out->block;
    struct arena arena = {.base = scratch};
    const size_t n = ATTENTION_QUERIES;
    *b = (struct attention_block){.form = form,
                                  .width_k = attention_width_of(form->dim_k),
                                  .width_v = attention_width_of(form->dim_v),
                                  .bytes_k = (uint32_t)head_bytes(form->type, form->dim_k),
                                  .bytes_v = (uint32_t)head_bytes(form->type, form->dim_v)};
    b->q = attention_take(&arena, n * b->width_k);
    b->columns = attention_take(&arena, (size_t)b->width_k * ATTENTION_TILE);
    b->tile =
        attention_take(&arena, (size_t)attention_larger(b->width_k, b->width_v) * ATTENTION_TILE);
    b->scores = attention_take(&arena, n * ATTENTION_TILE);
    b->lanes = attention_take(&arena, n * ATTENTION_LANES);
    b->chunk.value = attention_take(&arena, n * b->width_v);
    b->chunk.max = attention_take(&arena, n);
    b->chunk.weight = attention_take(&arena, n);
    out->total.value = attention_take(&arena, n * b->width_v);
    out->total.max = attention_take(&arena, n);
    out->total.weight = attention_take(&arena, n);
    return arena.n;
}

enum { ALIGNMENT = 64 };

size_t attention_scratch_bytes(const struct attention_form *form)
{
    struct places places;
    return attention_lay_out(form, NULL, &places) * sizeof(float) + ALIGNMENT;
}

/* ---- a block ---- */

/* A lot is some query heads that share a KV head; a block is a lot's heads for some rows. */
struct lots {
    uint32_t n_shared; /* query heads of one KV head */
    uint32_t n_heads;  /* of a lot, at most */
    uint32_t n_parts;  /* lots of one KV head */
    uint32_t n_rows;   /* of a block, at most */
};

/* Where the cells of the row's sequence begin; where that is in extents, which sequence it is. */
static int64_t first_cell(const struct attention_form *form, const struct attention_batch *batch,
                          uint32_t row)
{
    if (batch->extents)
        return batch->extents->sequences[row];
    const uint32_t position = (uint32_t)batch->positions[row];
    return batch->cells[row] - (form->ring ? position % form->ring : position);
}

/* Behind the last cell that the row sees, where that is not its own; else 0. */
static uint32_t row_end(const struct attention_batch *batch, uint32_t row)
{
    const int32_t ahead = batch->ahead ? batch->ahead[row] : 0;
    return ahead ? (uint32_t)(batch->positions[row] + ahead + 1) : 0;
}

/* The rows from `row` on that are one block. */
static uint32_t block_rows(const struct attention_form *form, const struct attention_batch *batch,
                           uint32_t row, uint32_t n_max)
{
    const int64_t cell = first_cell(form, batch, row);
    const uint32_t end = row_end(batch, row);
    uint32_t n = 1;
    while (n < n_max && row + n < batch->n_rows && first_cell(form, batch, row + n) == cell &&
           batch->positions[row + n] == batch->positions[row] + (int32_t)n &&
           row_end(batch, row + n) == end)
        n++;
    return n;
}

static uint32_t block_count(const struct attention_form *form, const struct attention_batch *batch,
                            uint32_t n_rows_max)
{
    uint32_t n = 0;
    for (uint32_t row = 0; row < batch->n_rows; row += block_rows(form, batch, row, n_rows_max))
        n++;
    return n;
}

/* With few blocks and many threads, heads that share K and V are divided, though each part then
 * converts them. */
static struct lots lots_of(const struct attention_form *form, const struct attention_batch *batch,
                           uint32_t nth)
{
    struct lots lots = {.n_shared = form->n_head / form->n_head_kv};
    uint32_t n_heads = lots.n_shared < ATTENTION_QUERIES ? lots.n_shared : ATTENTION_QUERIES;
    for (;; n_heads = (n_heads + 1) / 2) {
        lots.n_heads = n_heads;
        lots.n_parts = (lots.n_shared + n_heads - 1) / n_heads;
        lots.n_rows = ATTENTION_QUERIES / n_heads;
        if (n_heads == 1 ||
            block_count(form, batch, lots.n_rows) * lots.n_parts * form->n_head_kv >= nth)
            return lots;
    }
}

static void gather_queries(const struct attention_batch *batch, uint32_t row, uint32_t head,
                           struct attention_block *b)
{
    const struct attention_form *form = b->form;
    const float scale = form->softcap != 0 ? form->scale / form->softcap : form->scale;
    float *to = b->q;
    for (uint32_t r = 0; r < b->n_rows; r++) {
        for (uint32_t h = 0; h < b->n_heads; h++, to += b->width_k) {
            const float *from = batch->q + (row + r) * batch->q_row + (head + h) * batch->q_head;
            for (uint32_t d = 0; d < form->dim_k; d++)
                to[d] = from[d] * scale;
        }
    }
}

static uint32_t first_seen(const struct attention_form *form, uint32_t position)
{
    return form->window && position + 1 > form->window ? position + 1 - form->window : 0;
}

static void find_cells(const struct attention_batch *batch, uint32_t row, uint32_t kv_head,
                       struct attention_block *b)
{
    const struct attention_form *form = b->form;
    const struct attention_extents *extents = batch->extents;
    const int64_t first = first_cell(form, batch, row);
    const size_t cell = extents ? 0 : (size_t)first;
    b->extents = extents ? extents->extents + (size_t)first * extents->n_each : NULL;
    b->k = (const char *)batch->k + cell * batch->k_cell +
           kv_head * head_bytes(form->type, form->dim_k);
    b->v = (const char *)batch->v + cell * batch->v_cell +
           kv_head * head_bytes(form->type, form->dim_v);
}

/* The first tile of K that the row sees, and those after it. */
static struct attention_tile first_tile(const struct attention_form *form,
                                        const struct attention_batch *batch, uint32_t row,
                                        uint32_t kv_head)
{
    struct attention_block b = {.form = form, .k_cell = batch->k_cell, .v_cell = batch->v_cell};
    const uint32_t position = (uint32_t)batch->positions[row],
                   cell = first_seen(form, position) / ATTENTION_TILE * ATTENTION_TILE,
                   n = position + 1 - cell;
    find_cells(batch, row, kv_head, &b);
    return (struct attention_tile){b.k + attention_place(form, b.extents, cell) * b.k_cell,
                                   b.k_cell, n < ATTENTION_TILE ? n : ATTENTION_TILE,
                                   (uint32_t)head_bytes(form->type, form->dim_k)};
}

/* b->n_rows rows from `row` on, of lot `lot`. */
static void compute_block(const struct attention_kernel *kernel,
                          const struct attention_batch *batch, const struct lots *lots,
                          uint32_t lot, uint32_t row, struct places *places)
{
    struct attention_block *b = &places->block;
    const struct attention_form *form = b->form;
    const uint32_t kv_head = lot / lots->n_parts, part = lot % lots->n_parts * lots->n_heads;
    const uint32_t head = kv_head * lots->n_shared + part;
    b->n_heads = lots->n_shared - part < lots->n_heads ? lots->n_shared - part : lots->n_heads;
    b->position = (uint32_t)batch->positions[row];
    find_cells(batch, row, kv_head, b);
    gather_queries(batch, row, head, b);

    b->end = row_end(batch, row);
    const uint32_t n_queries = b->n_rows * b->n_heads, end = attention_end(b);
    for (uint32_t i = 0; i < n_queries; i++)
        places->total.max[i] = -INFINITY, places->total.weight[i] = 0;
    memset(places->total.value, 0, (size_t)n_queries * b->width_v * sizeof(float));
    uint32_t first = first_seen(form, b->position) / ATTENTION_CHUNK * ATTENTION_CHUNK;
    for (; first < end; first += ATTENTION_CHUNK) {
        kernel->chunk(b, first, end - first < ATTENTION_CHUNK ? end : first + ATTENTION_CHUNK);
        kernel->add(&places->total, &b->chunk, n_queries, b->width_v);
    }
    for (uint32_t i = 0; i < n_queries; i++) {
        const uint32_t h = head + i % b->n_heads;
        kernel->finish(
            &places->total, i, b->width_v, form->dim_v, batch->sinks ? batch->sinks + h : NULL,
            batch->out + ((size_t)(row + i / b->n_heads) * form->n_head + h) * form->dim_v);
    }
}

/* ---- shares ---- */

/* What a block costs, in tiles of one row, about. */
static uint64_t block_cost(const struct attention_form *form, const struct attention_batch *batch,
                           uint32_t row, uint32_t n_rows)
{
    const uint32_t seen = row_end(batch, row),
                   end = seen ? seen : (uint32_t)batch->positions[row] + n_rows;
    const uint32_t first = first_seen(form, (uint32_t)batch->positions[row]);
    return (uint64_t)n_rows * ((end - first) / ATTENTION_TILE + 1);
}

/* Of one lot, rows `row` to `end` - 1. */
static uint64_t lot_cost(const struct attention_form *form, const struct attention_batch *batch,
                         uint32_t row, uint32_t end, uint32_t n_rows_max)
{
    uint64_t cost = 0;
    for (uint32_t n; row < end; row += n) {
        n = block_rows(form, batch, row, n_rows_max);
        cost += block_cost(form, batch, row, n);
    }
    return cost;
}

/* A thread's blocks: those that begin in its share of the cost, between `from` and `to`. */
struct attention_share {
    const struct attention_kernel *kernel;
    const struct attention_batch *batch;
    struct lots lots;
    uint32_t n_lots;
    uint64_t before, from, to; /* the cost of the blocks before this, and of the share */
    struct places places;
};

/* One lot, rows `row` to `end` - 1 of one sequence. */
static void compute_lot(struct attention_share *share, uint32_t lot, uint32_t row, uint32_t end)
{
    const struct attention_batch *batch = share->batch;
    struct attention_block *b = &share->places.block;
    const uint32_t first = row;
    for (; row < end && share->before < share->to; row += b->n_rows) {
        b->n_rows = block_rows(b->form, batch, row, share->lots.n_rows);
        const bool is_last = row + b->n_rows == end, goes_on = lot + is_last < share->n_lots;
        const uint32_t next = !is_last ? row + b->n_rows : goes_on ? first : end;
        b->next = (struct attention_tile){0};
        if (next < batch->n_rows)
            b->next = first_tile(b->form, batch, next,
                                 goes_on ? (lot + is_last) / share->lots.n_parts : 0);
        if (share->before >= share->from)
            compute_block(share->kernel, batch, &share->lots, lot, row, &share->places);
        share->before += block_cost(b->form, batch, row, b->n_rows);
    }
}

static uint32_t sequence_end(const struct attention_form *form, const struct attention_batch *batch,
                             uint32_t row)
{
    const int64_t cell = first_cell(form, batch, row);
    while (row < batch->n_rows && first_cell(form, batch, row) == cell)
        row++;
    return row;
}

/* Blocks stand in order of sequence, then of lot: what processors fetch beside a head's K and V is
 * other heads', and still in the cache when it is their turn. */
void attention_compute(const struct attention_kernel *kernel, const struct attention_form *form,
                       const struct attention_batch *batch, void *scratch, uint32_t ith,
                       uint32_t nth)
{
    struct attention_share share = {.kernel = kernel, .batch = batch};
    share.lots = lots_of(form, batch, nth);
    share.n_lots = form->n_head_kv * share.lots.n_parts;
    const uint64_t all = share.n_lots * lot_cost(form, batch, 0, batch->n_rows, share.lots.n_rows);
    const uintptr_t at = ((uintptr_t)scratch + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    share.from = all * ith / nth, share.to = all * (ith + 1) / nth;
    attention_lay_out(form, (float *)at, &share.places);
    share.places.block.k_cell = batch->k_cell, share.places.block.v_cell = batch->v_cell;
    for (uint32_t row = 0, end; row < batch->n_rows; row = end) {
        end = sequence_end(form, batch, row);
        const uint64_t each = lot_cost(form, batch, row, end, share.lots.n_rows);
        for (uint32_t lot = 0; lot < share.n_lots && share.before < share.to; lot++) {
            if (share.before + each <= share.from)
                share.before += each;
            else
                compute_lot(&share, lot, row, end);
        }
    }
}
