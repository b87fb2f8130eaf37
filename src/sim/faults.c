/* What goes wrong, and what ends it. */
#include "sim/world.h"

#include "base/random.h"

#include <assert.h>
#include <string.h>

/* ---- a process ---- */

void node_start(struct world *w, struct node *node)
{
    assert(node->up == (node->party != NULL));
    if (node->up || (node->hostile && w->healed))
        return;
    world_say(w, "%s starts", node->name);
    node->up = true;
    node->boots++;
    node->up_ms = w->now_ms;
    node->wake_ms = 0;
    node->tick_ms = w->now_ms + 1 + world_draw(w, TICK_MS);
    node->changed = true;
    host_start(node);
    if (!seat_start(w, node)) {
        w->out_of_memory = true;
        return;
    }
    if (!log_start(w, node)) {
        w->out_of_memory |= !w->over;
        return;
    }
    net_links_soon(w, node->index);
    world_turn(w, node);
}

void node_stop(struct world *w, struct node *node, bool told, bool lost)
{
    assert(node->up == (node->party != NULL));
    if (!node->up)
        return;
    log_stop(w, node, lost);
    node->up = false;
    node->paused_until_ms = 0;
    host_drop_all(node);
    serve_drop_all(node);
    seat_stop(node);
    client_drop_all(node);
    if (lost)
        memset(node->has_weights, 0, sizeof node->has_weights);
    net_node_gone(w, node->index, told);
    node->changed = false;
}

/* ---- faults ---- */

static bool splits(const struct scenario_fault *fault, uint32_t node)
{
    return random_at(fault->amount, node) & 1;
}

static void cut_as(struct world *w, const struct scenario_fault *fault, int by)
{
    assert(by == 1 || by == -1);
    const uint32_t node = (uint32_t)fault->node, other = (uint32_t)fault->other;
    if (fault->kind == FAULT_CUT || fault->kind == FAULT_CUT_ONE)
        net_cut(w, node, other, by);
    if (fault->kind == FAULT_CUT)
        net_cut(w, other, node, by);
    for (uint32_t i = 0; i < w->n && fault->kind == FAULT_ISOLATE; i++) {
        net_cut(w, node, i, by);
        net_cut(w, i, node, by);
    }
    for (uint32_t i = 0; i < w->n && fault->kind == FAULT_SPLIT; i++) {
        for (uint32_t k = 0; k < w->n; k++) {
            if (splits(fault, i) != splits(fault, k))
                net_cut(w, i, k, by);
        }
    }
}

static void pause_node(struct world *w, struct node *node, uint64_t until_ms)
{
    if (!node->up)
        return;
    if (node->paused_until_ms < until_ms)
        node->paused_until_ms = until_ms;
    for (uint32_t i = 0; i < w->n; i++)
        net_watch(w, i, node->index);
}

/* Only harm that a cluster can survive: the last copy of its log is not lost. */
static bool has_log_elsewhere(const struct world *w, const struct node *but)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const struct log_saved *disk = &w->nodes[i].disk;
        if (&w->nodes[i] != but && !w->nodes[i].hostile && (disk->log.n || disk->snapshot.index))
            return true;
    }
    return false;
}

uint64_t fault_end_ms(const struct world *w, const struct scenario_fault *fault)
{
    const uint64_t ms = fault->at_ms + fault->for_ms;
    return ms < w->scenario->chaos_ms ? ms : w->scenario->chaos_ms;
}

void fault_begin(struct world *w, uint32_t index)
{
    assert(index < w->scenario->n_faults);
    const struct scenario_fault *fault = &w->scenario->faults[index];
    struct node *node = &w->nodes[fault->node];
    const uint64_t until_ms = fault_end_ms(w, fault);
    const enum scenario_fault_type kind = (enum scenario_fault_type)fault->kind;
    world_say(w, "fault: %s, n%llu, n%llu, %llu, for %llu ms", scenario_fault_name(kind),
              (unsigned long long)fault->node, (unsigned long long)fault->other,
              (unsigned long long)fault->amount, (unsigned long long)fault->for_ms);
    switch (kind) {
    case FAULT_KILL:
    case FAULT_POWER:
    case FAULT_LOST_DISK:
        node_stop(w, node, kind == FAULT_KILL,
                  kind == FAULT_LOST_DISK && has_log_elsewhere(w, node));
        break;
    case FAULT_PAUSE:
        pause_node(w, node, until_ms);
        break;
    case FAULT_CUT:
    case FAULT_CUT_ONE:
    case FAULT_ISOLATE:
    case FAULT_SPLIT:
        cut_as(w, fault, 1);
        break;
    case FAULT_LOSS:
        w->loss_ppm = fault->amount;
        break;
    case FAULT_DOUBLE:
        w->double_ppm = fault->amount;
        break;
    case FAULT_SLOW:
        w->slow_ms = fault->amount;
        break;
    case FAULT_SLOW_DISK:
        node->slow_ms = fault->amount;
        node->slow_until_ms = until_ms;
        break;
    case FAULT_FULL_DISK:
        node->full_until_ms = until_ms;
        break;
    case FAULT_DEVICE:
    case FAULT_RUNNER:
        node->devices_gone[fault->amount] |= kind == FAULT_DEVICE;
        host_device_gone(w, node, (uint32_t)fault->amount,
                         kind == FAULT_DEVICE ? "the device is gone" : "its runner ended");
        break;
    case FAULT_HEAT:
        node->air_k += (double)fault->amount;
        break;
    case FAULT_MEMORY:
        node->others_bytes += fault->amount << 20;
        break;
    case FAULT_CLOCK:
        node->wall_ms += (int64_t)fault->amount;
        break;
    case FAULT_TYPES:
        break;
    }
    world_turn(w, node);
}

void fault_end(struct world *w, uint32_t index)
{
    assert(index < w->scenario->n_faults);
    const struct scenario_fault *fault = &w->scenario->faults[index];
    struct node *node = &w->nodes[fault->node];
    switch ((enum scenario_fault_type)fault->kind) {
    case FAULT_KILL:
    case FAULT_POWER:
    case FAULT_LOST_DISK:
        node_start(w, node);
        break;
    case FAULT_CUT:
    case FAULT_CUT_ONE:
    case FAULT_ISOLATE:
    case FAULT_SPLIT:
        cut_as(w, fault, -1);
        break;
    case FAULT_LOSS:
        w->loss_ppm = 0;
        break;
    case FAULT_DOUBLE:
        w->double_ppm = 0;
        break;
    case FAULT_SLOW:
        w->slow_ms = 0;
        break;
    case FAULT_DEVICE:
        node->devices_gone[fault->amount] = false;
        break;
    case FAULT_HEAT:
        node->air_k -= (double)fault->amount;
        break;
    case FAULT_MEMORY:
        node->others_bytes -= fault->amount << 20;
        break;
    case FAULT_CLOCK:
        node->wall_ms -= (int64_t)fault->amount;
        break;
    case FAULT_PAUSE:
    case FAULT_SLOW_DISK:
    case FAULT_FULL_DISK:
    case FAULT_RUNNER:
    case FAULT_TYPES:
        break;
    }
    world_turn(w, node);
}
