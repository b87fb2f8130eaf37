/* The solver's view of a problem: sums that make any stage's time and memory one subtraction.
 * Private to this room.
 *
 * Embedding and head are part of the first and the last layer. With prefix sums over layers,
 *
 *     stage(d, a, b) = launch[d] + time[d][b] - time[d][a]          layers a … b-1
 *     memory(a, b)   = bytes[b] - bytes[a]  <=  room[d]             room: without the compute
 *                    buffers
 *
 * What a device can hold up to b is a window: low[d][b] is the least a so that [a, b) is allowed,
 * fits, and takes no longer than a limit; it never falls as b rises. low[d][b] = b: nothing. */
#pragma once

#include "placement/problem.h"

struct placement_tables {
    const struct placement_problem *problem;
    uint32_t n_devices;
    uint32_t n_layers;
    uint32_t rows;
    double micro_batches;
    double busy;
    uint32_t stages_min, stages_max; /* of a placement that counts; the caller may narrow them */
    double *time;                    /* [device * (n_layers + 1) + layers] */
    double *launch;                  /* [device] */
    uint64_t *bytes;                 /* [layers], without … */
    bool has_copies;                 /* … copies of caches (placement_copy_bytes()) */
    uint64_t *weights;               /* [layers], of those bytes */
    int64_t *room;                   /* [device]; negative: not even its compute buffers */
    uint16_t *allowed_from; /* [device * (n_layers + 1) + layers] as `low`, by types alone */
    void *memory;
};

/* ERROR_NO_MEMORY alone. The problem must have been checked, and outlive the tables. */
enum error_code tables_init(struct placement_tables *tables,
                            const struct placement_problem *problem, struct error *err);
void tables_deinit(struct placement_tables *tables);

/* cost.h's objective. */
static inline double tables_objective_s(const struct placement_tables *tables, double round_s,
                                        double longest_s)
{
    const double alone_s = round_s / tables->micro_batches;
    return alone_s >= longest_s ? alone_s : tables->busy * longest_s + (1 - tables->busy) * alone_s;
}

/* A stage or link of that length or longer, or such a round, has no objective below target_s. */
double tables_stage_limit_s(const struct placement_tables *tables,
                            double target_s); /* INFINITY for one micro-batch */
double tables_round_limit_s(const struct placement_tables *tables, double target_s);

/* With such a round or a longer one, and a stage of that length or longer, no objective is below
 * target_s. */
double tables_longest_limit_s(const struct placement_tables *tables, double target_s,
                              double round_s);

static inline const double *tables_time(const struct placement_tables *tables, uint32_t device)
{
    return tables->time + (uint64_t)device * (tables->n_layers + 1);
}

/* Writes low[0 … n_layers] of a device for stages shorter than limit_s (INFINITY: memory alone). */
void tables_windows(const struct placement_tables *tables, uint32_t device, double limit_s,
                    uint16_t *low);

/* One stage with the whole model, which stores tied weights once. */
bool tables_holds_all(const struct placement_tables *tables, uint32_t device);

double tables_hop_s(const struct placement_tables *tables, uint32_t from, uint32_t to);
double tables_back_s(const struct placement_tables *tables, uint32_t from, uint32_t to);

/* The least round that ends with b layers on `device`, for every b, given the same of the stages
 * before:
 *
 *     out[b] = min over a in low[b] … b-1 of  before[a] + hop_s + stage(device, a, b)
 *
 * by a sliding-window minimum (a monotone queue), in O(n_layers). before = NULL: it is the first
 * stage. `from`, where not NULL, gets the a that was chosen. INFINITY: not possible. */
void tables_extend(const struct placement_tables *tables, uint32_t device, const double *before,
                   double hop_s, const uint16_t *low, double *out, uint16_t *from);
