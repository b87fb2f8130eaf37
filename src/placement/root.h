/* Before the search: how good a placement can be at best (relax.h), and a good one from the same
 * answer: its devices in a good order, then dropping, adding and swapping them. Often the two meet,
 * and nothing is left to search. Private to this room. */
#pragma once

#include "placement/exact.h"

/* *best and *best_s as exact_search(). *lower_bound_s: no placement has a shorter objective; 0
 * where it was stopped before it knew. out[n_devices] becomes true for devices that no better
 * placement uses; *longest_limit_s is a length that all its stages are shorter than. */
enum error_code root_search(const struct placement_tables *tables, struct sequence_work *work,
                            const struct exact_limits *limits, struct placement *best,
                            double *best_s, double *lower_bound_s, double *longest_limit_s,
                            bool *out, struct error *err);
