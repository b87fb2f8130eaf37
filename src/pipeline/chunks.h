/* How many rows of a prompt go into one micro-batch of a pipeline: planned (placement/chunk_plan.h)
 * from what micro-batches have taken each device. Pure: no clock, no memory, no other state.
 *
 * A device's line is that with the least squares, of late, and from two things that are
 * expected beforehand and weigh little: that the fixed cost is that of CHUNK_COST_FIRST rows, and
 * that attention costs nothing. */
#pragma once

#include "base/limits.h"
#include "placement/chunk_plan.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    CHUNK_COST_MAX = 64, /* rows, of the fixed cost: a busy machine is not believed beyond */
    CHUNK_COST_FIRST = 8 /* rows, while nothing is measured */
};

/* Sums over the micro-batches of late, the last weighing most; of a micro-batch's rows r, of the
 * tokens before all of its rows together b (in thousands), and of its time t in ms. Zeroed: none
 * yet. */
struct chunk_sums {
    double weight, r, b, t, rr, rb, bb, rt, bt;
};

struct chunk_costs {
    struct chunk_sums devices[LIMIT_STAGES];
};

/* What a micro-batch of prompts took the device. n_before: tokens before its rows, summed over
 * them. */
void chunk_costs_note(struct chunk_costs *costs, uint32_t device, uint32_t n_rows, double n_before,
                      uint64_t ns);

/* In ms. Of a device of which nothing is known, or less than nothing: a row takes 1. */
void chunk_costs_lines(const struct chunk_costs *costs, uint32_t n_devices,
                       struct chunk_line *lines);

struct chunk_prompts { /* that are being read, all together */
    uint64_t n_rows, n_left;
    uint64_t n_before; /* tokens in the cache */
};
/* Rows of the next micro-batch, 1 to rows_max. While the fixed cost of the devices is not measured,
 * the second half goes in shorter chunks, to learn it: that leaves no device waiting. */
uint32_t chunk_rows(const struct chunk_costs *costs, const struct chunk_prompts *prompts,
                    uint32_t n_devices, uint32_t rows_max);
