/* The shape of a batch: what a compute graph depends on. Two batches of equal shape run
 * on the same graph with other inputs. Pure.
 *
 * Rows are gathered into groups: neighbouring slots with the same number of rows, whose
 * attention is one operation over all of them. Eight sequences that decode side by side are
 * one group of 8 slots x 1 row; a prompt chunk is one group of 1 slot x many rows. */
#pragma once

#include "base/limits.h"
#include "engine/stage.h"

struct kv_map;

struct batch_group {
    uint32_t first_slot, n_slots; /* slots first_slot .. first_slot + n_slots - 1 */
    uint32_t first_row;           /* in the batch */
    uint32_t rows_per_slot;
    /* where its cells are in a pool, for attention that wants a slot's side by side: in their
     * place, each slot's so many extents after the one's before, or gathered for the batch */
    uint32_t first_extent, extent_step;
    uint32_t first_gathered, n_gathered; /* extents, of all that the batch gathers; 0: none */
};

struct batch_shape {
    uint32_t n_rows;
    uint32_t n_outputs;
    uint32_t n_kv; /* cache cells that attention looks at, in every slot; in those of windowed
                      layers no more than they have */
    bool embeddings;
    uint32_t n_given;    /* rows of pictures that the stage takes */
    bool sees_ahead;     /* some rows see others behind them */
    bool has_axes;       /* some are turned by other positions than their own */
    uint32_t n_gathered; /* extents of all groups */
    uint32_t n_groups;
    struct batch_group groups[LIMIT_SEQUENCES];
};

/* What places say of the shape. ERROR_INVALID: a row that sees or is turned further than there is.
 */
enum error_code batch_shape_read_places(const struct batch *batch, struct batch_shape *shape,
                                        struct error *err);

/* `lengths`: the slots' present lengths. Cells are rounded up to KV_PADDING, so that a graph
 * serves that many decode steps. */
enum { KV_PADDING = 256 };

enum error_code batch_shape_read(const struct batch *batch, const struct stage_options *options,
                                 const uint32_t *lengths, struct batch_shape *out,
                                 struct error *err);
bool batch_shape_equal(const struct batch_shape *a, const struct batch_shape *b);

/* For attention that wants a slot's cells side by side: a group's stand evenly in the pool, or are
 * gathered. One that would gather more than the pool's `n_pool` extents is divided; else groups
 * stay whole, for a GPU's bits may depend on what is one operation. The map has the batch's rows,
 * where they are on the device (kv_away.h). */
void batch_shape_lay_out(struct batch_shape *shape, const struct kv_map *map, uint32_t n_pool);

/* The largest shape that a stage can meet in so many groups, for sizing its buffers. `gathers`: of
 * a pool, and nothing stands side by side. */
void batch_shape_worst(const struct stage_options *options, uint32_t n_groups, bool gathers,
                       struct batch_shape *out);
/* … and that with the most slots in one group, each of them full. */
void batch_shape_widest(const struct stage_options *options, bool gathers, struct batch_shape *out);

static inline uint32_t kv_cells(uint32_t context) /* cells of one slot */
{
    return (context + KV_PADDING - 1) / KV_PADDING * KV_PADDING;
}

/* Cells of one slot in a windowed layer, over which positions go round: of a batch's rows the first
 * still finds its whole window when the last has been written. `window` 0: none. */
static inline uint32_t kv_window_cells(uint32_t window, uint32_t rows_max, uint32_t context)
{
    const uint32_t all = kv_cells(context);
    const uint32_t most = window < all ? kv_cells(window + rows_max) : all;
    return window && most < all ? most : all;
}

/* A sequence can go on from `length` tokens, and its last one be computed again, when windowed
 * layers still have the rows from this position on. */
static inline uint32_t kv_window_start(uint32_t window, uint32_t length)
{
    return window && length > window ? length - window : 0;
}
