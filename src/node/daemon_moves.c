/* Placements that somebody asks for by hand: checked with what this node knows now, and proposed. */
#include "node/daemon_state.h"

#include "base/mem.h"
#include "cluster/placed.h"

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
    struct placed_event event;
    placed_event_init(&event, instance, placement, epoch, replaces, "by hand");
    event.placement.has_by_hand = event.placement.by_hand = true;
    agreement_propose(daemon->agreement, &event.event, NULL, NULL);
}
