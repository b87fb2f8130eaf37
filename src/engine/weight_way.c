#include "engine/weight_way.h"

#include <assert.h>

static const double cached_advantage = 1.25;

void weight_way_init(struct weight_way *way, bool has_both, bool is_direct, uint64_t pass_bytes)
{
    assert(pass_bytes);
    *way =
        (struct weight_way){.has_both = has_both, .is_direct = is_direct, .pass_bytes = pass_bytes};
}

/* Nanoseconds for a byte. */
static double way_cost(const struct weight_way_sum *sum)
{
    return (double)sum->ns / (double)sum->bytes;
}

static bool way_direct_is_better(const struct weight_way *way)
{
    return way_cost(&way->last[true]) <= way_cost(&way->last[false]) * cached_advantage;
}

static bool way_is_trial_due(const struct weight_way *way)
{
    return !way->is_trial &&
           (!way->last[!way->is_direct].bytes || way->n_passes >= WEIGHT_WAY_PASSES);
}

/* A pass has ended. */
static void way_choose(struct weight_way *way)
{
    way->last[way->is_direct] = way->now;
    way->now = (struct weight_way_sum){0};
    way->n_passes++;
    if (way_is_trial_due(way)) {
        way->is_direct = !way->is_direct;
        way->is_trial = true;
        way->n_passes = 0;
        return;
    }
    way->is_trial = false;
    way->is_direct = way_direct_is_better(way);
}

void weight_way_count(struct weight_way *way, bool was_direct, uint64_t bytes, uint64_t ns)
{
    if (!way->has_both || was_direct != way->is_direct)
        return;
    way->now.bytes += bytes;
    way->now.ns += ns;
    if (way->now.bytes >= way->pass_bytes)
        way_choose(way);
}
