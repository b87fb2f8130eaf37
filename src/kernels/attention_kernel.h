/* Between attention.c, which divides the work, and the kernels, which are attention_kernel_body.h
 * compiled for one kind of processor each. */
#pragma once

#include "kernels/attention.h"

enum {
    ATTENTION_TILE = 64,    /* cells whose scores are made at once */
    ATTENTION_CHUNK = 512,  /* cells that are summed on their own */
    ATTENTION_QUERIES = 64, /* that share a converted tile, at most */
    ATTENTION_LANES =
        16, /* partial sums of the weights; row widths in scratch are multiples of it */
};

/* What softmax has summed up so far, for each query. */
struct attention_sums {
    float *max;    /* [queries] */
    float *weight; /* [queries] */
    float *value;  /* [queries][width_v] */
};

/* Cells of one KV head, which are fetched while others are computed with. */
struct attention_tile {
    const char *cells;
    size_t step;    /* bytes from cell to cell */
    uint32_t n;     /* cells; 0: there is nothing to fetch */
    uint32_t bytes; /* of a cell */
};

/* Some rows of one sequence, of some query heads that share a KV head. Query i is row i / n_heads,
 * head i % n_heads. */
struct attention_block {
    const struct attention_form *form;
    uint32_t n_rows, n_heads;
    uint32_t position; /* of the first row */
    uint32_t end;      /* that all rows see to; 0: each as far as its own cell */
    const char *k, *v; /* of the KV head: the sequence's cell 0, or with `extents` … */
    const uint32_t
        *extents;          /* … that of the cache: the sequence's. NULL: its cells stand together */
    size_t k_cell, v_cell; /* bytes from cell to cell */
    uint32_t bytes_k, bytes_v;  /* of a cell */
    struct attention_tile next; /* the first tile of K of the block after this */
    uint32_t width_k, width_v;  /* dim_k and dim_v, rounded up to ATTENTION_LANES */
    float *q;                   /* [queries][width_k], scaled */
    float *columns;             /* [width_k][TILE]: a tile of K, turned */
    float *tile;                /* [TILE][width_k or width_v] */
    float *scores;              /* [queries][TILE] */
    float *lanes;               /* [queries][LANES] */
    struct attention_sums chunk;
};

/* Where the tile that begins at the sequence's cell `cell` begins. */
static inline size_t attention_place(const struct attention_form *form, const uint32_t *extents,
                                     uint32_t cell)
{
    if (extents)
        return (size_t)extents[cell / ATTENTION_EXTENT] * ATTENTION_EXTENT +
               cell % ATTENTION_EXTENT;
    return form->ring ? cell % form->ring : cell;
}

/* Behind the last cell that any row of the block sees. */
static inline uint32_t attention_end(const struct attention_block *block)
{
    return block->end ? block->end : block->position + block->n_rows;
}

struct attention_kernel {
    const char *name;
    int (*works)(void); /* on this processor */
    /* Cells `first` (where a chunk begins) to `end` - 1, into block->chunk. */
    void (*chunk)(const struct attention_block *block, uint32_t first, uint32_t end);
    /* Adds the sums `from` to the sums `to`, for `n` queries. */
    void (*add)(const struct attention_sums *to, const struct attention_sums *from, uint32_t n,
                uint32_t width_v);
    /* One query's result; `sink` may be NULL. */
    void (*finish)(const struct attention_sums *sums, uint32_t query, uint32_t width_v,
                   uint32_t dim_v, const float *sink, float *out);
};

extern const struct attention_kernel attention_kernel_plain;
#if defined(__x86_64__)
extern const struct attention_kernel attention_kernel_avx2, attention_kernel_avx512;
#endif
