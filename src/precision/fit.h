/* Chooses types by layer under a budget: measures what each smaller type of each group of tensors
 * costs, and gives the budget's bytes to those that would cost most.
 *
 * A group is one matrix; in a model of more than FIT_GROUPS_FINE matrices, a layer's attention or
 * its feed-forward. Who measures is the caller, who can run models. */
#pragma once

#include "model/weight_choice.h"
#include "precision/budget.h"

enum { FIT_GROUPS_FINE = 96, FIT_NO_GROUP = UINT32_MAX };

/* What it costs when the tensors i with groups[i] == group are of types[i], and all others as they
 * are: mean KL divergence. `done` of `total` measurements are made already. */
typedef enum error_code (*fit_measure_fn)(void *arg, const uint32_t *groups, uint32_t group,
                                          const int *types, uint32_t done, uint32_t total,
                                          double *loss, struct error *err);

struct fit {
    uint64_t bytes_max; /* of all tensors */
    fit_measure_fn measure;
    void *arg;
};

struct fit_result {
    double loss; /* the sum of what was measured for the groups */
    uint32_t n_groups, n_measured;
};

/* `choice` is as the file has it; it becomes what was chosen, losses[i] (of each tensor) what was
 * measured for its group. ERROR_INVALID: no choice is so small. */
enum error_code fit_choose(const struct fit *fit, const struct model *model,
                           struct weight_choice *choice, double *losses, struct fit_result *out,
                           struct error *err);
