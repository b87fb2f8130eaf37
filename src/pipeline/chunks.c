#include "pipeline/chunks.h"

#include <assert.h>
#include <math.h>

/* The line through the measurements, by least squares; only where they are of different lengths. */
static void chunk_costs_fit(struct chunk_costs *costs)
{
    const double mean = costs->rows / costs->weight;
    const double spread = costs->rows_rows / costs->weight - mean * mean;
    if (spread < mean * mean / 64)
        return;
    const double row_ns =
        (costs->rows_ns / costs->weight - mean * costs->ns / costs->weight) / spread;
    if (row_ns <= 0)
        return;
    const double fixed = (costs->ns / costs->weight - mean * row_ns) / row_ns;
    costs->fixed_rows = fmin(fmax(fixed, 1), CHUNK_COST_MAX);
}

void chunk_costs_note(struct chunk_costs *costs, uint32_t n_rows, uint64_t ns)
{
    static const double kept = 0.95; /* of what was measured before: 20 micro-batches count */
    const double rows = n_rows, took = (double)ns;
    costs->weight = kept * costs->weight + 1;
    costs->rows = kept * costs->rows + rows;
    costs->ns = kept * costs->ns + took;
    costs->rows_rows = kept * costs->rows_rows + rows * rows;
    costs->rows_ns = kept * costs->rows_ns + rows * took;
    chunk_costs_fit(costs);
}

uint32_t chunk_rows(const struct chunk_costs *costs, uint64_t n_rows, uint64_t n_left,
                    uint32_t n_devices)
{
    assert(n_devices);
    const double all = n_rows > UINT32_MAX ? UINT32_MAX : (double)n_rows;
    if (n_devices == 1)
        return all < 1 ? 1 : (uint32_t)all;
    const double fixed = costs->fixed_rows > 0 ? costs->fixed_rows : CHUNK_COST_FIRST;
    double n_chunks = fmax(round(sqrt((n_devices - 1) * all / fixed)), 1);
    if (costs->fixed_rows <= 0 && n_left <= n_rows / 2)
        n_chunks *= 2;
    return (uint32_t)fmax(ceil(all / n_chunks), CHUNK_ROWS_MIN);
}
