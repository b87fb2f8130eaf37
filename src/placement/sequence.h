/* The best cuts for a given order of devices: which layers each gets, when all get some. Private to
 * this room.
 *
 * With the order fixed, the least round is dynamic programming over layers, one tables_extend() a
 * device. With several micro-batches the longest stage counts, too. The least round R of cuts whose
 * stages are all shorter than a limit says that none of those between a lower limit and this one
 * has an objective below that of (R, lower limit); halving what is left, and following what is
 * found until nothing better can be there, ends at the optimum, because the lengths of stages are
 * finitely many. */
#pragma once

#include "placement/tables.h"

/* Relative: a period is better only if it is smaller by more than this; what is "proved" is proved
 * up to it. */
#define PLACEMENT_EPSILON 1e-9

struct sequence_work {
    double *rounds;  /* [LIMIT_STAGES * (n_layers + 1)] */
    uint16_t *froms; /* the same */
    uint16_t *low;   /* [n_layers + 1] */
};
enum error_code sequence_work_init(struct sequence_work *work, uint32_t n_layers,
                                   struct error *err);
void sequence_work_deinit(struct sequence_work *work);

/* The best objective below target_s of devices[0 … n-1] in this order, INFINITY when there is none;
 * then *out is untouched. */
double sequence_best(const struct placement_tables *tables, struct sequence_work *work,
                     const uint32_t *devices, uint32_t n, double target_s, struct placement *out);

/* The least round of this order below round_limit_s with stages and links shorter than
 * stage_limit_s, INFINITY when there is none; *longest_s is that of the longest. Of two devices or
 * more. */
double sequence_round(const struct placement_tables *tables, struct sequence_work *work,
                      const uint32_t *devices, uint32_t n, double stage_limit_s,
                      double round_limit_s, double *longest_s, struct placement *out);
