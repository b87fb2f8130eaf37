/* The answer that is always there: chains of devices grown by score, with the best cuts of each, then improved by
 * dropping, adding and swapping devices while its budget lasts. It may find nothing where links are missing or memory
 * is tight; the search then has the word. Private to this room. */
#pragma once

#include "placement/sequence.h"

/* devices x layers steps of tables_extend() that it may take, about. */
enum { GREEDY_BUDGET = 4 * 1000 * 1000 };

/* scores[n_devices]. *best and *best_s as exact_search(). ERROR_NO_MEMORY alone. */
enum error_code greedy_search(const struct placement_tables *tables, struct sequence_work *work, const double *scores,
                              struct placement *best, double *best_s, struct error *err);

/* Drops, adds and swaps devices of *best while that helps and the budget lasts (steps, as above). */
enum error_code greedy_improve(const struct placement_tables *tables, struct sequence_work *work, int64_t budget,
                               struct placement *best, double *best_s, struct error *err);
