/* Attention on the CPU whose every row has the same bits whatever is computed beside it: alone or
 * in a prompt, in chunks of any size, beside other sequences, on any number of threads. A reply
 * that is replayed after a machine was lost goes on with the same words because of this. (ggml's
 * has three ways for one row, which differ in the third digit of a logit.) Pure; ggml's graph calls
 * it through graph_attention.c.
 *
 * For one query of one head, cells in order of position:
 *
 *     in tiles of 64 cells        s[c] = scale * q . k[c], summed in order of dimension; softcapped
 *                                 m' = max(m, max s), p[c] = exp(s[c] - m')
 *                                 w = w exp(m - m') + sum p, o = o exp(m - m') + sum p[c] v[c], in
 *                                 order of c
 *     chunks of 512 cells         each begins with m = -inf, w = 0, o = 0; their results are added
 *                                 up in order, as the tiles are (Milakov and Gimelshein 2018,
 *                                 arXiv:1805.02867)
 *     out                         o / w; a sink adds exp(sink - m) to w
 *
 * Tiles and chunks begin at fixed positions, sums over dimensions and cells have one order, and
 * vectors of a processor run along cells or along dimensions of the result, never along a sum. So
 * neither the width of vectors nor the number of rows is part of the arithmetic. Processors with
 * fused multiply-add give the same bits as each other, those without it others. What no row of a
 * block sees is not read.
 *
 * K and V of a tile are converted to F32 once for all heads that share them and for the rows of a
 * block. exp is a polynomial, off by 1.2e-7 at most. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum attention_type { ATTENTION_F16, ATTENTION_F32, ATTENTION_Q8_0, ATTENTION_Q4_0 }; /* of K, V */

struct attention_form { /* what is the same for all batches */
    uint32_t n_head, n_head_kv, dim_k, dim_v;
    uint32_t window; /* a row sees so many cells, itself included; 0: all */
    uint32_t ring;   /* position p is in cell p % ring of its sequence, a multiple of 64; what rows
                        of a batch see must be there. 0: in cell p */
    float scale, softcap;
    enum attention_type type;
};

/* Where sequences' cells are when they do not stand together: in extents of ATTENTION_EXTENT, a
 * multiple of a tile. */
enum { ATTENTION_EXTENT = 256 };
struct attention_extents {
    const uint32_t *extents; /* [sequence][n_each]: of the cells 256 i to 256 i + 255 */
    uint32_t n_each;
    const int32_t *sequences; /* [row] */
};

struct attention_batch {
    const float *q;        /* [row][n_head][dim_k] */
    size_t q_row, q_head;  /* in floats */
    const void *k, *v;     /* [cell][n_head_kv][dim_k or dim_v] */
    size_t k_cell, v_cell; /* in bytes */
    const int64_t *cells; /* [row]: the row's own cell; a sequence's cells stand together, in order,
                             or as a ring. Not used with … */
    const struct attention_extents *extents; /* … which NULL says are not; then there is no ring */
    const int32_t *positions;                /* [row], in the row's sequence */
    const int32_t *ahead; /* [row]: cells behind its own that it sees, too, of rows that all see as
                             far as the last of them; NULL: none */
    const float *sinks;   /* [n_head]; NULL: none */
    float *out;           /* [row][n_head][dim_v] */
    uint32_t n_rows;
};

struct attention_kernel; /* compiled for a kind of processor */

/* For the processor at hand: the best, or each that works, fastest first, NULL behind the last. */
const struct attention_kernel *attention_kernel_best(void);
const struct attention_kernel *attention_kernel_at(uint32_t index);
const char *attention_kernel_name(const struct attention_kernel *kernel);

/* Bytes that one thread needs beside. */
size_t attention_scratch_bytes(const struct attention_form *form);

/* Share `ith` of `nth` of the work; each thread has its own `scratch`. */
void attention_compute(const struct attention_kernel *kernel, const struct attention_form *form,
                       const struct attention_batch *batch, void *scratch, uint32_t ith,
                       uint32_t nth);
