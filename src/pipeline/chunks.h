/* How many rows of a prompt go into one micro-batch of a pipeline. Pure: no clock, no memory, no
 * other state.
 *
 * A micro-batch of r rows takes the slowest stage f + r, counted in rows: f is what it takes beside
 * them (weights are read and unpacked, threads meet). A prompt of P rows in n equal chunks has left
 * the last of d devices after
 *
 *     (n + d - 1) (f + P / n)
 *
 * since the last begins d - 1 chunks later than the first. That is least for
 * n = sqrt((d - 1) P / f). Chunks are equal because of two unequal ones in a row one device waits
 * for the difference: with chunks of any lengths c it is
 *
 *     sum (f + c) + (d - 1) max (f + c)
 *
 * in any order (a proportionate flow shop: Pinedo, Scheduling, chapter 6), so shorter ones at the
 * beginning and the end make nothing faster as long as the longest stays. */
#pragma once

#include <stdint.h>

enum {
    CHUNK_ROWS_MIN = 32, /* fewer cost more a row than the line below says, and measure nothing */
    CHUNK_COST_MAX = 64, /* of f: measurements of a busy machine are not believed beyond */
    CHUNK_COST_FIRST = 8 /* f while nothing is measured */
};

/* Sums over the micro-batches of late, the last weighing most; zeroed: none yet. */
struct chunk_costs {
    double weight, rows, ns, rows_rows, rows_ns;
    double fixed_rows; /* f; 0: not yet known */
};

/* What a micro-batch of prompts took the slowest stage. */
void chunk_costs_note(struct chunk_costs *costs, uint32_t n_rows, uint64_t ns);

/* Rows of one micro-batch for prompts of n_rows together, of which n_left are not yet under way, on
 * so many devices; at least 1. With one device all of them. While f is not known, the second half
 * goes in shorter chunks, to learn it: that leaves no device waiting. */
uint32_t chunk_rows(const struct chunk_costs *costs, uint64_t n_rows, uint64_t n_left,
                    uint32_t n_devices);
