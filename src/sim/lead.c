/* What a leader does: lets nodes in and keeps their records, says who replicates, and runs the
 * master with the planner and moves for gain; as node/lead.c. */
#include "sim/world.h"

#include "base/mem.h"
#include "placing/spread.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { STEADY_MS = 10000, MOVE_NODES_MAX = 2000 };

/* What a leader works with; nobody needs it afterwards. */
struct leading {
    struct member_view views[LIMIT_CLUSTER_NODES];
    struct master_node nodes[LIMIT_CLUSTER_NODES];
    struct master_proposals proposals;
    struct said own; /* whom it misses itself */
    struct spread_node spread[LIMIT_CLUSTER_NODES];
};

bool leading_init(struct world *w)
{
    return (w->leading = mem_new(sizeof *w->leading)) != NULL;
}

/* ---- the leader's memory ---- */

bool lead_open(struct world *w, struct node *node)
{
    assert(!node->leads);
    lead_lost(node);
    node->master = mem_new(sizeof *node->master);
    node->mover = mem_new(sizeof *node->mover);
    node->heard_ms = mem_new_array(w->n, sizeof *node->heard_ms);
    node->steady_ms = mem_new_array(w->n, sizeof *node->steady_ms);
    node->recorded_ms = mem_new_array(w->n, sizeof *node->recorded_ms);
    node->said = mem_new_array(w->n, sizeof *node->said);
    node->leads = true;
    node->leads_since_ms = w->now_ms;
    node->members_ms = node->lead_ms = 0;
    memset(node->moves, 0, sizeof node->moves);
    for (uint32_t i = 0; node->said && i < w->n; i++) {
        for (uint32_t k = 0; k < SCENARIO_DEVICES; k++)
            node->said[i].share[k] = 1, node->said[i].headroom[k] = 1;
    }
    return node->master && node->mover && node->heard_ms && node->steady_ms && node->recorded_ms &&
           node->said;
}

void lead_lost(struct node *node)
{
    if (node->mover)
        master_mover_clear(node->mover);
    mem_free(node->master);
    mem_free(node->mover);
    mem_free(node->heard_ms);
    mem_free(node->steady_ms);
    mem_free(node->recorded_ms);
    mem_free(node->said);
    node->master = NULL;
    node->mover = NULL;
    node->heard_ms = node->steady_ms = node->recorded_ms = NULL;
    node->said = NULL;
    node->leads = false;
}

/* ---- who replicates ---- */

static bool is_heard(const struct world *w, const struct node *node, uint32_t other)
{
    return net_link(w, node->index, other) && !net_silent(w, node->index, other);
}

/* As node/lead.c; who has caught up, and what follows, the party finds out. */
static void lead_set_members(struct world *w, struct node *node)
{
    assert(node->leads && node->steady_ms);
    struct leading *p = w->leading;
    uint32_t n = 0;
    if (w->now_ms < node->members_ms)
        return;
    node->members_ms = w->now_ms + 1000;
    const Cluster__State *root = node_state(node)->root;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const Cluster__Node *is = root->nodes[i]->node;
        const uint32_t k = world_node(w, is->id)->index;
        if (!root->nodes[i]->admitted || !is->member)
            continue;
        const bool self = k == node->index, votes = !w->nodes[k].hostile;
        const bool alive = self || (votes && is_heard(w, node, k)); /* who is not gets no vote */
        if (!alive)
            node->steady_ms[k] = w->now_ms;
        p->views[n++] = (struct member_view){
            .id = is->member,
            .alive = alive,
            .steady = self || (alive && w->now_ms - node->steady_ms[k] >= STEADY_MS)};
    }
    party_set_members(node->party, p->views, n);
}

/* ---- the master ---- */

/* A placement of what works, for gain or since it is not valid any more. There are few of them,
 * whatever happens (placement/replan.h: F1; cluster/master.h: MASTER_FORCED_MAX_MS). */
static void note_move(struct world *w, struct node *node, const Cluster__Event *event)
{
    assert(node->leads);
    enum { MOVES_PER_HOUR = 16, HOUR_MS = 3600 * 1000 };
    if (event->kind_case != CLUSTER__EVENT__KIND_INSTANCE_PLACED)
        return;
    const char *id = event->instance_placed->id;
    const Cluster__Instance *is = state_instance(node_state(node), id);
    if (!is || !is->current || is->next || !state_is_ready(is->current) ||
        strcmp(event->instance_placed->placement->why, "a node is drained") == 0)
        return;
    for (size_t i = 0; i < is->current->n_stages; i++) {
        const uint32_t k = world_node(w, is->current->stages[i]->node)->index;
        if (k != node->index && !is_heard(w, node, k))
            return;
    }
    const uint64_t hours = 1 + (w->now_ms - node->leads_since_ms) / HOUR_MS;
    world_say(w, "%s moves %s: %s", node->name, id, event->instance_placed->placement->why);
    w->result->moves++;
    if (++node->moves[instance_index(id)] > MOVES_PER_HOUR * hours)
        world_violated(w, "%s moves %s for the %uth time in %llu h", node->name, id,
                       node->moves[instance_index(id)], (unsigned long long)hours);
}

static void propose_bytes(struct world *w, struct node *node, const struct buffer *bytes)
{
    Cluster__Event *event = NULL;
    if (event_decode((const uint8_t *)bytes->data, bytes->size, &event, NULL)) {
        w->out_of_memory = true;
        return;
    }
    note_move(w, node, event);
    char *by = event->by;
    log_propose(w, node, event, 0, false);
    event->by = by;
    event_free(event);
}

/* While the link is there and not silent, a node is heard: a broken connection ends it at once. */
static uint32_t gather_nodes(struct world *w, struct node *node)
{
    assert(node->heard_ms && node->said);
    const Cluster__State *root = node_state(node)->root;
    uint32_t n = 0;
    w->leading->own.n_missed = 0;
    net_say(w, node, &w->leading->own);
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const uint32_t k = world_node(w, root->nodes[i]->node->id)->index;
        if (!root->nodes[i]->admitted)
            continue;
        const struct said *said = k == node->index ? &w->leading->own : &node->said[k];
        if (k == node->index || is_heard(w, node, k))
            node->heard_ms[k] = w->now_ms;
        w->leading->nodes[n++] = (struct master_node){.id = root->nodes[i]->node->id,
                                                      .heard_ms = node->heard_ms[k],
                                                      .suspected = net_misses(w, node->index, k),
                                                      .missed = said->missed,
                                                      .n_missed = said->n_missed};
    }
    return n;
}

static void add_use(struct master_use *use, const struct said *said, uint32_t instance)
{
    assert(instance < SCENARIO_INSTANCES);
    use->used_ms = said->used_ms[instance] > use->used_ms ? said->used_ms[instance] : use->used_ms;
    use->wanted |= said->wanted >> instance & 1;
    use->live += said->live[instance];
    use->tokens += said->tokens[instance];
}

static uint32_t gather_uses(struct world *w, struct node *node, struct master_use *uses)
{
    assert(node->said);
    const Cluster__State *root = node_state(node)->root;
    struct said own = {0};
    uint32_t n = 0;
    seat_say(w, node, &own);
    for (size_t i = 0; root && i < root->n_instances; i++) {
        struct master_use *use = &uses[n++];
        *use = (struct master_use){.instance = root->instances[i]->id};
        add_use(use, &own, instance_index(use->instance));
        for (uint32_t k = 0; k < w->n; k++) {
            if (k != node->index && net_link(w, node->index, k))
                add_use(use, &node->said[k], instance_index(use->instance));
        }
    }
    return n;
}

static void lead_run_master(struct world *w, struct node *node, const struct replica_status *status)
{
    assert(node->master && node->mover);
    struct leading *p = w->leading;
    struct master_use uses[SCENARIO_INSTANCES];
    struct master_planner planner = planner_of(w, node);
    struct master_options options = master_options_default();
    options.place = master_plan;
    options.self = &planner;
    options.consider = master_replan;
    options.considers = node->mover;
    node->mover->planner = &planner;
    node->mover->has_weights = planner_has_weights;
    node->mover->self = w;
    node->mover->max_nodes = MOVE_NODES_MAX;
    const struct master_view view = {.state = node_state(node),
                                     .lineage = status->lineage,
                                     .term = status->term,
                                     .now_ms = w->now_ms,
                                     .wall_ms = world_wall_ms(w, node),
                                     .leads_since_ms = node->leads_since_ms,
                                     .nodes = p->nodes,
                                     .n_nodes = gather_nodes(w, node),
                                     .uses = uses,
                                     .n_uses = gather_uses(w, node, uses),
                                     .self = node->id};
    w->out_of_memory |=
        master_step(node->master, &options, &view, &p->proposals, NULL) != ERROR_NONE;
    for (uint32_t i = 0; i < p->proposals.n; i++)
        propose_bytes(w, node, &p->proposals.events[i]);
    master_proposals_clear(&p->proposals);
}

static double all_alike(void *self, uint32_t from, uint32_t to)
{
    (void)self, (void)from, (void)to;
    return 1;
}

/* As node/spreading.c, of whole models; who is to keep a copy hears it at once. */
static void lead_spread(struct world *w, struct node *node, uint32_t instance)
{
    struct leading *p = w->leading;
    struct spread_copy copy;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct node *other = &w->nodes[i];
        const bool up = i == node->index || is_heard(w, node, i);
        p->spread[i] = (struct spread_node){.up = up, .room_bytes = up && !other->hostile};
        if (other->has_weights[instance])
            spread_add(&p->spread[i], 0, 1);
    }
    const struct spread_question question = {.n_layers = 1,
                                             .layer_bytes = 1,
                                             .nodes = p->spread,
                                             .n_nodes = w->n,
                                             .bytes_per_s = all_alike};
    if (spread_choose(&question, &copy, 1))
        host_fetch(w, &w->nodes[copy.node], instance);
}

void lead_turn(struct world *w, struct node *node)
{
    if (!node->leads || (node->lead_ms && w->now_ms - node->lead_ms < LEAD_MS))
        return;
    const struct replica_status status = party_status(node->party);
    if (!status.leads)
        return;
    node->lead_ms = w->now_ms;
    record_all(w, node);
    for (uint32_t i = 0; i < w->scenario->n_instances; i++)
        record_model(w, node, i);
    lead_set_members(w, node);
    for (uint32_t i = 0; i < w->scenario->n_instances && w->scenario->copies == 2; i++)
        lead_spread(w, node, i);
    lead_run_master(w, node, &status);
}
