/* Which group of tensors gets which type, so that a model fits into so many bytes and loses as
 * little as can be. Pure.
 *
 * The loss of a choice is taken to be the sum of the groups' losses, each measured by itself: true
 * of small changes, since the KL divergence is the first term that does not vanish. Choosing one
 * option a group within a budget is the multiple-choice knapsack problem. Steps along each group's
 * lower convex hull, those of least loss per byte first, solve its linear relaxation (Sinha and
 * Zoltners 1979), so the result is off by one group's step at most; what is left of the budget then
 * goes to the steps back that gain most. */
#pragma once

#include "base/error.h"

#include <stdint.h>

enum { BUDGET_OPTIONS = 16 };

struct budget_option {
    uint64_t bytes;
    double loss; /* 0 or more */
};

struct budget_group {
    uint32_t n_options; /* at least 1 */
    struct budget_option options[BUDGET_OPTIONS];
    uint32_t chosen;
};

/* Fills `chosen`. ERROR_INVALID: the smallest of all options are more than bytes_max; the text says
 * how much they are. */
enum error_code budget_choose(struct budget_group *groups, uint32_t n_groups, uint64_t bytes_max,
                              struct error *err);
uint64_t budget_bytes(const struct budget_group *groups, uint32_t n_groups);
double budget_loss(const struct budget_group *groups, uint32_t n_groups);
