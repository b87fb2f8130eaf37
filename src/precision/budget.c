#include "precision/budget.h"

#include "base/size_text.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

uint64_t budget_bytes(const struct budget_group *groups, uint32_t n_groups)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n_groups; i++)
        bytes += groups[i].options[groups[i].chosen].bytes;
    return bytes;
}

double budget_loss(const struct budget_group *groups, uint32_t n_groups)
{
    double loss = 0;
    for (uint32_t i = 0; i < n_groups; i++)
        loss += groups[i].options[groups[i].chosen].loss;
    return loss;
}

/* The least loss, and of those the fewest bytes. */
static uint32_t budget_best(const struct budget_group *group)
{
    uint32_t best = 0;
    assert(group->n_options > 0 && group->n_options <= BUDGET_OPTIONS);
    for (uint32_t i = 1; i < group->n_options; i++) {
        const struct budget_option *option = &group->options[i], *old = &group->options[best];
        assert(option->loss >= 0);
        if (option->loss < old->loss || (!(option->loss > old->loss) && option->bytes < old->bytes))
            best = i;
    }
    return best;
}

/* What a byte less costs, from one option to a smaller one. */
static double budget_slope(const struct budget_option *from, const struct budget_option *to)
{
    assert(to->bytes < from->bytes);
    return (to->loss - from->loss) / (double)(from->bytes - to->bytes);
}

/* The next option on the hull: the smaller one with the least loss per byte. False: it is the
 * smallest. */
static bool budget_next(const struct budget_group *group, uint32_t *next, double *slope)
{
    const struct budget_option *now = &group->options[group->chosen];
    bool found = false;
    for (uint32_t i = 0; i < group->n_options; i++) {
        const struct budget_option *option = &group->options[i];
        if (option->bytes >= now->bytes)
            continue;
        const double cost = budget_slope(now, option);
        if (!found || cost < *slope) {
            *next = i;
            *slope = cost;
            found = true;
        }
    }
    return found;
}

static bool budget_step_down(struct budget_group *groups, uint32_t n_groups)
{
    struct budget_group *cheapest = NULL;
    uint32_t option = 0;
    double least = INFINITY;
    for (uint32_t i = 0; i < n_groups; i++) {
        uint32_t next;
        double slope;
        if (budget_next(&groups[i], &next, &slope) && slope < least) {
            cheapest = &groups[i];
            option = next;
            least = slope;
        }
    }
    if (cheapest)
        cheapest->chosen = option;
    return cheapest != NULL;
}

/* The change of one group that loses less and fits into what is left: the one that gains most. */
static bool budget_step_back(struct budget_group *groups, uint32_t n_groups, uint64_t bytes_left)
{
    struct budget_group *best = NULL;
    uint32_t option = 0;
    double most = 0;
    for (uint32_t i = 0; i < n_groups; i++) {
        const struct budget_option *now = &groups[i].options[groups[i].chosen];
        for (uint32_t j = 0; j < groups[i].n_options; j++) {
            const struct budget_option *other = &groups[i].options[j];
            if (other->bytes <= now->bytes + bytes_left && now->loss - other->loss > most) {
                best = &groups[i];
                option = j;
                most = now->loss - other->loss;
            }
        }
    }
    if (best)
        best->chosen = option;
    return best != NULL;
}

enum error_code budget_choose(struct budget_group *groups, uint32_t n_groups, uint64_t bytes_max,
                              struct error *err)
{
    for (uint32_t i = 0; i < n_groups; i++)
        groups[i].chosen = budget_best(&groups[i]);
    while (budget_bytes(groups, n_groups) > bytes_max) {
        if (!budget_step_down(groups, n_groups))
            return error_set(err, ERROR_INVALID,
                             "the smallest that can be made of it is %s: give that or more",
                             size_text(budget_bytes(groups, n_groups)).text);
    }
    while (budget_step_back(groups, n_groups, bytes_max - budget_bytes(groups, n_groups)))
        ;
    assert(budget_bytes(groups, n_groups) <= bytes_max);
    return ERROR_NONE;
}
