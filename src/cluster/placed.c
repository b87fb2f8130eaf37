#include "cluster/placed.h"

#include "base/random.h"

#include <assert.h>

static char *text(const char *of)
{
    return (char *)(uintptr_t)of;
}

/* Where each of its devices can. */
static bool placed_shares_cells(const struct state *state, const struct master_placement *placement)
{
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct master_stage *stage = &placement->stages[i];
        const Cluster__NodeRecord *node = state_node(state, stage->node);
        const Cluster__Device *device = node ? state_device(node, stage->device) : NULL;
        if (!device || !device->shares_cells)
            return false;
    }
    return true;
}

void placed_event_init(struct placed_event *out, const struct state *state,
                       const Cluster__Instance *instance, const struct master_placement *placement,
                       uint64_t epoch, bool replaces, const char *why)
{
    assert(epoch > state_epoch(instance) && placement->n_stages);
    cluster__event__init(&out->event);
    cluster__instance_placed__init(&out->placed);
    cluster__placement__init(&out->placement);
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct master_stage *from = &placement->stages[i];
        Cluster__Stage *stage = out->list[i] = &out->stages[i];
        cluster__stage__init(stage);
        stage->node = text(from->node);
        stage->device = text(from->device);
        stage->has_first_layer = stage->has_n_layers = true;
        stage->first_layer = from->first_layer;
        stage->n_layers = from->n_layers;
        stage->has_weights_max = stage->has_n_streamed = from->weights_max != 0;
        stage->weights_max = from->weights_max;
        stage->n_streamed = from->n_streamed;
    }
    out->placement.has_epoch = out->placement.has_replaces = out->placed.has_after_epoch = true;
    out->placement.epoch = epoch;
    out->placement.replaces = replaces;
    out->placement.n_stages = placement->n_stages;
    out->placement.stages = out->list;
    out->placement.why = text(why);
    out->placement.shares_cells = instance->demand->cells && placed_shares_cells(state, placement);
    out->placement.has_shares_cells = out->placement.shares_cells;
    out->placement.has_by_hand = out->placement.by_hand = placement->by_hand;
    out->placement.has_precision = placement->precision != 0;
    out->placement.precision = placement->precision;
    out->placed.id = instance->id;
    out->placed.after_epoch = state_epoch(instance);
    out->placed.placement = &out->placement;
    out->event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED;
    out->event.instance_placed = &out->placed;
}

void placed_again(const Cluster__Placement *placement, struct master_placement *out)
{
    *out = (struct master_placement){.by_hand = placement->by_hand};
    for (size_t i = 0; i < placement->n_stages && i < LIMIT_STAGES; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        out->stages[out->n_stages++] =
            (struct master_stage){stage->node,     stage->device,      stage->first_layer,
                                  stage->n_layers, stage->weights_max, stage->n_streamed};
    }
}

bool placed_streams(const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i]->weights_max)
            return true;
    }
    return false;
}

static uint64_t hash_text(uint64_t hash, const char *of)
{
    do
        hash = random_mix(hash ^ (uint8_t)*of);
    while (*of++);
    return hash;
}

uint64_t placed_epoch(uint64_t last_epoch, struct lineage lineage, uint64_t term, const char *by,
                      const struct master_placement *placement)
{
    uint64_t hash = random_mix(lineage.generation ^ random_mix(lineage.founder ^ random_mix(term)));
    hash = hash_text(hash, by);
    if (placement->precision)
        hash = random_mix(hash ^ placement->precision);
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct master_stage *stage = &placement->stages[i];
        hash = hash_text(hash_text(hash, stage->node), stage->device);
        hash = random_mix(hash ^ ((uint64_t)stage->first_layer << 32 | stage->n_layers));
    }
    return ((last_epoch >> PLACED_TAG_BITS) + 1) << PLACED_TAG_BITS |
           (hash & ((1 << PLACED_TAG_BITS) - 1));
}
