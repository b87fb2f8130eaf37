/* Placements that somebody asks for by hand: checked with what this node knows now, and proposed. */
#include "node/daemon_state.h"

#include "base/mem.h"

enum error_code daemon_check_placement(struct daemon *daemon, const struct master_planner *planner,
                                       const Cluster__Instance *instance, const struct master_placement *placement,
                                       bool *beside, struct error *err)
{
    struct master_view view;
    daemon_master_view(daemon, &view);
    bool *allowed = mem_new_array((size_t)view.n_nodes + 1, sizeof *allowed);
    if (!allowed)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a cluster of %u nodes", view.n_nodes);
    for (uint32_t i = 0; i < view.n_nodes; i++)
        allowed[i] = view.nodes[i].heard_ms + 100 >= view.now_ms && !view.nodes[i].suspected;
    enum error_code code = master_check(planner, &view, instance, allowed, placement, beside, err);
    mem_free(allowed);
    return code;
}

void daemon_propose_placement(struct daemon *daemon, const Cluster__Instance *instance,
                              const struct master_placement *placement, uint64_t epoch, bool replaces)
{
    Cluster__Stage stages[LIMIT_STAGES], *list[LIMIT_STAGES];
    Cluster__Placement message = CLUSTER__PLACEMENT__INIT;
    Cluster__InstancePlaced placed = CLUSTER__INSTANCE_PLACED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct master_stage *from = &placement->stages[i];
        cluster__stage__init(&stages[i]);
        stages[i].node = (char *)(uintptr_t)from->node;
        stages[i].device = (char *)(uintptr_t)from->device;
        stages[i].has_first_layer = stages[i].has_n_layers = true;
        stages[i].first_layer = from->first_layer;
        stages[i].n_layers = from->n_layers;
        list[i] = &stages[i];
    }
    message.has_epoch = message.has_by_hand = message.has_replaces = placed.has_after_epoch = true;
    message.epoch = epoch;
    message.n_stages = placement->n_stages;
    message.stages = list;
    message.why = (char *)(uintptr_t)"by hand";
    message.by_hand = true;
    message.replaces = replaces;
    placed.id = instance->id;
    placed.after_epoch = state_epoch(instance);
    placed.placement = &message;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_PLACED;
    event.instance_placed = &placed;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}
