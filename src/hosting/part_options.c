#include "hosting/part_options.h"

#include "engine/batch_shape.h"

uint32_t part_whole_streams(const Cluster__Demand *demand)
{
    const uint32_t each = kv_cells(demand->context_tokens);
    const uint32_t n = demand->cells && each ? demand->cells / each : demand->streams;
    return n < 1 ? 1 : n < demand->streams ? n : demand->streams;
}

struct driver_options part_options(const Cluster__Demand *demand, bool shares_cells)
{
    struct driver_options options = {.n_slots = demand->streams,
                                     .context = demand->context_tokens,
                                     .kv_type = (enum kv_type)demand->kv_type,
                                     .kv_is_chosen = demand->has_kv_type,
                                     .precision = (int)demand->precision,
                                     .precision_allowed = (int)demand->precision_allowed};
    if (demand->speculate == SPECULATE_OFF) /* what a later version may say is as usual */
        options.speculate = SPECULATE_OFF;
    if (demand->cells && shares_cells)
        options.cells = demand->cells;
    else
        options.n_slots = part_whole_streams(demand);
    return options;
}
