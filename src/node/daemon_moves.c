/* Placements that somebody asks for by hand: checked with what this node knows now, and
 * proposed. */
#include "node/daemon_state.h"

#include "base/mem.h"
#include "cluster/placed.h"

#include <string.h>

enum error_code daemon_check_placement(struct daemon *daemon, const struct master_planner *planner,
                                       const Cluster__Instance *instance,
                                       const struct master_placement *placement, bool *beside,
                                       struct error *err)
{
    struct master_view view;
    daemon_master_view(daemon, &view);
    bool *allowed = mem_new_array((size_t)view.n_nodes + 1, sizeof *allowed);
    if (!allowed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a cluster of %u nodes",
                         view.n_nodes);
    for (uint32_t i = 0; i < view.n_nodes; i++)
        allowed[i] = view.nodes[i].heard_ms + 100 >= view.now_ms && !view.nodes[i].suspected;
    enum error_code code = master_check(planner, &view, instance, allowed, placement, beside, err);
    mem_free(allowed);
    return code;
}

static bool daemon_moves_tells(const Node__Now *now, const char *instance, uint64_t epoch,
                               size_t stage)
{
    for (size_t i = 0; i < now->n_held; i++) {
        const Node__Held *held = now->held[i];
        if (held->epoch == epoch && held->stage == stage && held->instance &&
            strcmp(held->instance, instance) == 0)
            return true;
    }
    return false;
}

/* Has it told of its stages that are ready? */
static bool tells_all(const struct placing_seen *seen, const Cluster__Instance *instance,
                      const Cluster__Placement *of)
{
    for (size_t i = 0; of && i < of->n_stages; i++) {
        const Cluster__Stage *stage = of->stages[i];
        if (strcmp(stage->node, seen->node) == 0 && stage->state == CLUSTER__STAGE_STATE__READY &&
            !daemon_moves_tells(seen->now, instance->id, of->epoch, i))
            return false;
    }
    return true;
}

static bool daemon_moves_is_wanted(const struct state *state, const Node__Held *held)
{
    const Cluster__Instance *instance =
        held->instance ? state_instance(state, held->instance) : NULL;
    const Cluster__Placement *current = instance ? instance->current : NULL,
                             *next = instance ? instance->next : NULL;
    return (current && current->epoch == held->epoch) || (next && next->epoch == held->epoch);
}

static bool is_settled(const struct state *state, const struct placing_seen *seen)
{
    const Cluster__State *root = state->root;
    for (size_t i = 0; i < seen->now->n_held; i++) {
        if (!daemon_moves_is_wanted(state, seen->now->held[i]))
            return false;
    }
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Instance *instance = root->instances[i];
        if (!tells_all(seen, instance, instance->current) ||
            !tells_all(seen, instance, instance->next))
            return false;
    }
    return true;
}

const char *daemon_unsettled(struct daemon *daemon)
{
    const struct placing_view *view = daemon_placing_view(daemon);
    for (uint32_t i = 0; i < view->n_seen; i++) {
        const struct placing_seen *seen = &view->seen[i];
        if (seen->alive && seen->now && seen->now->tells_held && !is_settled(view->state, seen))
            return daemon_name_of(daemon, seen->node);
    }
    return NULL;
}

void daemon_propose_placement(struct daemon *daemon, const Cluster__Instance *instance,
                              const struct master_placement *placement, uint64_t epoch,
                              bool replaces)
{
    struct placed_event event;
    placed_event_init(&event, instance, placement, epoch, replaces, "by hand");
    event.placement.has_by_hand = event.placement.by_hand = true;
    agreement_propose(daemon->agreement, &event.event, NULL, NULL);
}
