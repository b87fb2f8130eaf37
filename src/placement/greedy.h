/* The answer that is always there: chains of devices grown by score, with the best cuts of each,
 * then improved by dropping, adding and swapping devices while its budget lasts. It may find
 * nothing where links are missing or memory is tight; the search then has the word. Private to this
 * room. */
#pragma once

#include "placement/exact.h"

/* devices x layers steps of tables_extend() that it may take, about. */
enum { GREEDY_BUDGET = 4 * 1000 * 1000 };

/* scores[n_devices]. *best and *best_s as exact_search(). ERROR_NO_MEMORY alone. */
enum error_code greedy_search(const struct placement_tables *tables, struct sequence_work *work,
                              const double *scores, struct placement *best, double *best_s,
                              struct error *err);

/* Drops, adds, moves and swaps devices of *best while that helps, the budget (steps, as above)
 * lasts and limits->go_on agrees. */
enum error_code greedy_improve(const struct placement_tables *tables, struct sequence_work *work,
                               const struct exact_limits *limits, int64_t budget,
                               struct placement *best, double *best_s, struct error *err);
