#include "node/lead.h"

#include "agreement/agreement.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "node/catalogue.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "node/solving.h"
#include "node/spreading.h"
#include "placing/placing.h"
#include "relay/relay.h"

#include <string.h>

enum { REPROPOSE_MS = 2000, STEADY_MS = 10000, PLAN_NODES_MAX = 20000, MOVE_NODES_MAX = 2000 };
enum { MOST_TOKENS = 1000 * 1000 * 1000 }; /* that a node is believed to have taken of late */

struct lead {
    struct master master;
    struct master_mover mover;
    struct solving *solving; /* NULL: the node stops */
    struct placing placing;  /* its view is brought up to date before it is used */
    struct master_planner planner;
    bool leads;
    uint64_t leads_since_ms, self_proposed_ms;
};

/* ---- the nodes' records ------------------------------------------------------------------- */

static bool lead_is_recorded(const struct daemon *daemon, const Cluster__Node *about)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), about->id);
    struct buffer one = {0}, other = {0};
    if (!record || !daemon_member_of(daemon, about->id, about->member))
        return true; /* not let in, or with another's member id: the state would not take it */
    message_encode(&about->base, &one);
    message_encode(&record->node->base, &other);
    bool same = one.size == other.size && memcmp(one.data, other.data, one.size) == 0;
    buffer_deinit(&one);
    buffer_deinit(&other);
    return same;
}

static void lead_record(struct daemon *daemon, Cluster__Node *about, uint64_t *proposed_ms)
{
    const uint64_t now = daemon_now_ms(daemon);
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (!about || (*proposed_ms && now - *proposed_ms < REPROPOSE_MS) ||
        lead_is_recorded(daemon, about))
        return;
    *proposed_ms = now;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_UPDATED;
    event.node_updated = about;
    agreement_propose(daemon->agreement, &event, NULL, NULL);
}

static void record_all(struct daemon *daemon)
{
    lead_record(daemon, daemon->self, &daemon->lead->self_proposed_ms);
    for (struct peer *peer = daemon->peers; peer; peer = peer->next)
        lead_record(daemon, peer->link ? peer->about : NULL, &peer->proposed_ms);
}

/* ---- who replicates ------------------------------------------------------------------------ */

static void lead_list_members(struct daemon *daemon)
{
    static struct member_view views[LIMIT_CLUSTER_NODES];
    const Cluster__State *root = daemon_state(daemon)->root;
    const uint64_t now = daemon_now_ms(daemon);
    uint32_t n = 0;
    for (size_t i = 0; root && i < root->n_nodes; i++) {
        const Cluster__Node *node = root->nodes[i]->node;
        if (!root->nodes[i]->admitted || !node->member)
            continue;
        const bool self = strcmp(node->id, daemon->id) == 0;
        const struct peer *peer = self ? NULL : daemon_peer(daemon, node->id);
        const bool alive = self || (peer && peer->link && !peer->is_silent);
        views[n++] = (struct member_view){
            .id = node->member,
            .alive = alive,
            .steady = self || (alive && now - peer->up_ms >= STEADY_MS),
        };
    }
    agreement_set_members(daemon->agreement, views, n);
}

/* ---- the master ----------------------------------------------------------------------------- */

/* While the link is there and not silent, a node is heard: a broken connection ends it at once. */
static uint64_t heard_ms(const struct daemon *daemon, const struct peer *peer)
{
    return peer->link && !peer->is_silent ? daemon_now_ms(daemon) : peer->heard_ms;
}

static uint32_t lead_gather_nodes(struct daemon *daemon, struct master_node *nodes)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    uint32_t n = 0;
    for (size_t i = 0; root && i < root->n_nodes && n < LIMIT_CLUSTER_NODES; i++) {
        const char *id = root->nodes[i]->node->id;
        const struct peer *peer = daemon_peer(daemon, id);
        const Node__Now *now = peer ? peer->now : strcmp(id, daemon->id) == 0 ? daemon->now : NULL;
        if (!root->nodes[i]->admitted)
            continue;
        nodes[n].id = id;
        nodes[n].missed = now ? now->unreached : NULL;
        nodes[n].n_missed = now ? now->n_unreached : 0;
        nodes[n].lends_nothing = now && now->lends_nothing;
        nodes[n].suspected =
            (peer && (peer->link ? peer->is_silent : daemon_is_gone(daemon, peer))) ||
            (now && now->takes_no_part);
        nodes[n].heard_ms = strcmp(id, daemon->id) == 0 ? daemon_now_ms(daemon)
                            : peer                      ? heard_ms(daemon, peer)
                                                        : 0;
        n++;
    }
    return n;
}

static void take_use(struct daemon *daemon, struct master_use *use, const Node__Now *now)
{
    for (size_t i = 0; now && i < now->n_uses; i++) {
        const Node__Use *of = now->uses[i];
        if (!of->instance || strcmp(of->instance, use->instance) != 0)
            continue;
        const uint64_t now_ms = daemon_now_ms(daemon);
        const uint64_t used = of->idle_ms < now_ms ? now_ms - of->idle_ms : 0;
        use->used_ms = used > use->used_ms ? used : use->used_ms;
        use->wanted |= of->wanted;
        use->live += of->live < LIMIT_SEQUENCES ? of->live : LIMIT_SEQUENCES;
        use->tokens += of->tokens < MOST_TOKENS ? (double)of->tokens : (double)MOST_TOKENS;
    }
}

static uint32_t lead_gather_uses(struct daemon *daemon, struct master_use *uses)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    struct relay_uses own;
    uint32_t n = 0;
    relay_use_report(daemon->relay, &own);
    for (size_t i = 0; root && i < root->n_instances && n < LIMIT_CLUSTER_INSTANCES; i++) {
        struct master_use *use = &uses[n++];
        const struct relay_use of = relay_use_of(&own, root->instances[i]->id);
        *use = (struct master_use){.instance = root->instances[i]->id,
                                   .used_ms = of.used_ms,
                                   .wanted = of.waits,
                                   .live = of.live,
                                   .tokens = of.tokens};
        for (struct peer *peer = daemon->peers; peer; peer = peer->next)
            take_use(daemon, use, peer->link ? peer->now : NULL);
    }
    return n;
}

const struct placing_view *daemon_placing_view(struct daemon *daemon)
{
    static struct placing_seen seen[LIMIT_CLUSTER_NODES];
    uint32_t n = 0;
    seen[n++] = (struct placing_seen){daemon->id, true, daemon->now};
    for (struct peer *peer = daemon->peers; peer && n < LIMIT_CLUSTER_NODES; peer = peer->next)
        seen[n++] = (struct placing_seen){peer->id, peer->link && !peer->is_silent, peer->now};
    daemon->lead->placing.view = (struct placing_view){.state = daemon_state(daemon),
                                                       .seen = seen,
                                                       .n_seen = n,
                                                       .model = catalogue_model_here,
                                                       .self = daemon,
                                                       .wire = daemon->options.wire};
    return &daemon->lead->placing.view;
}

void daemon_master_view(struct daemon *daemon, struct master_view *out)
{
    static struct master_node nodes[LIMIT_CLUSTER_NODES];
    static struct master_use uses[LIMIT_CLUSTER_INSTANCES];
    *out = (struct master_view){
        .state = daemon_state(daemon),
        .lineage = agreement_status(daemon->agreement).lineage,
        .term = agreement_status(daemon->agreement).term,
        .now_ms = daemon_now_ms(daemon),
        .wall_ms = daemon_wall_ms(),
        .leads_since_ms = daemon->lead->leads_since_ms,
        .nodes = nodes,
        .n_nodes = lead_gather_nodes(daemon, nodes),
        .uses = uses,
        .n_uses = lead_gather_uses(daemon, uses),
        .self = daemon->id,
    };
    for (uint32_t i = 0; i < out->n_nodes; i++) { /* all of it is of one moment */
        if (nodes[i].heard_ms > out->now_ms)
            nodes[i].heard_ms = out->now_ms;
    }
    for (uint32_t i = 0; i < out->n_uses; i++) { /* else one in use counts as idle for ages */
        if (uses[i].used_ms > out->now_ms)
            uses[i].used_ms = out->now_ms;
    }
}

static const Node__Now *lead_now_of(const struct daemon *daemon, const char *node)
{
    const struct peer *peer = daemon_peer(daemon, node);
    return peer ? peer->now : strcmp(node, daemon->id) == 0 ? daemon->now : NULL;
}

static bool has_weights(void *self, const char *node, const char *model)
{
    struct daemon *daemon = self;
    const Node__Now *now = lead_now_of(daemon, node);
    for (size_t i = 0; now && i < now->n_models; i++) {
        if (strcmp(now->models[i], model) == 0)
            return true;
    }
    return false;
}

/* What has run and is placed anew needs its weights: without them nodes would load what none can
 * fetch. */
static enum error_code lead_place(void *self, const struct master_view *view,
                                  const Cluster__Instance *instance, const bool *allowed,
                                  bool beside, struct master_placement *out, struct error *err)
{
    struct daemon *daemon = self;
    if (spreading_lost(daemon, instance, err))
        return err->code;
    return master_plan(&daemon->lead->planner, view, instance, allowed, beside, out, err);
}

static bool lead_exceeds(void *self, const Cluster__Instance *instance)
{
    struct daemon *daemon = self;
    bool over = false;
    return !placing_over_lent(&daemon->lead->placing.view, instance->id, &over, NULL) && over;
}

static bool lead_is_hot(void *self, const Cluster__Instance *instance)
{
    const struct daemon *daemon = self;
    for (size_t i = 0; i < instance->current->n_stages; i++) {
        const Cluster__Stage *stage = instance->current->stages[i];
        const Node__Now *now = lead_now_of(daemon, stage->node);
        for (size_t k = 0; now && k < now->n_devices; k++) {
            if (now->devices[k]->asks_lower && strcmp(now->devices[k]->id, stage->device) == 0)
                return true;
        }
    }
    return false;
}

static void lead_step_master(struct daemon *daemon)
{
    static struct master_proposals proposals;
    struct master_view view;
    struct error err;
    struct lead *lead = daemon->lead;
    daemon_placing_view(daemon);
    lead->placing.search_streams = solving_streams;
    lead->placing.searcher = lead->solving;
    lead->planner = (struct master_planner){.problem = placing_problem,
                                            .call_in = placing_call_in,
                                            .stream = placing_stream,
                                            .self = &lead->placing,
                                            .max_nodes = PLAN_NODES_MAX,
                                            .solve = solving_solve,
                                            .solver = lead->solving};
    struct master_options options = master_options_default();
    options.place = lead_place;
    options.exceeds = lead_exceeds;
    options.is_hot = lead_is_hot;
    options.self = daemon;
    options.consider = daemon->options.no_moves ? NULL : master_replan;
    options.considers = &lead->mover;
    lead->mover.planner = &lead->planner;
    lead->mover.has_weights = has_weights;
    lead->mover.self = daemon;
    lead->mover.max_nodes = MOVE_NODES_MAX;
    lead->mover.replan = solving_replan;
    lead->mover.solver = lead->solving;
    daemon_master_view(daemon, &view);
    if (master_step(&lead->master, &options, &view, &proposals, &err))
        log_line(LOG_WARN, "master", "%s", err.text);
    for (uint32_t i = 0; i < proposals.n; i++)
        daemon_propose_bytes(daemon, proposals.events[i].data, proposals.events[i].size);
    master_proposals_clear(&proposals);
}

void lead_anew(struct lead *lead, const char *instance)
{
    for (uint32_t i = 0; i < lead->master.n; i++) {
        struct master_memory *memory = &lead->master.memory[i];
        if (strcmp(memory->instance, instance) != 0)
            continue;
        memory->wait_ms = memory->retry_ms = memory->proposed_ms = 0;
        memory->problem[0] = 0;
    }
}

void daemon_lead(struct daemon *daemon)
{
    struct lead *lead = daemon->lead;
    if (!daemon->is_member || daemon->stopping || !daemon->relay || !lead->solving)
        return;
    const struct replica_status status = agreement_status(daemon->agreement);
    if (status.leads && !lead->leads) {
        lead->master = (struct master){0};
        master_mover_clear(&lead->mover);
        lead->leads_since_ms = daemon_now_ms(daemon);
        log_line(LOG_INFO, "node", "this node leads the cluster");
    }
    lead->leads = status.leads;
    if (!lead->leads)
        return;
    record_all(daemon);
    lead_list_members(daemon);
    lead_step_master(daemon);
}

const char *lead_problem_of(const struct daemon *daemon, const char *instance)
{
    if (daemon->lead->leads)
        return master_problem(&daemon->lead->master, instance);
    const uint64_t leader = agreement_status(daemon->agreement).leader;
    const Cluster__NodeRecord *record = state_node_of_member(daemon_state(daemon), leader);
    const struct peer *peer = record ? daemon_peer(daemon, record->node->id) : NULL;
    for (size_t i = 0; peer && peer->link && peer->now && i < peer->now->n_problems; i++) {
        const Node__Problem *problem = peer->now->problems[i];
        if (problem->instance && problem->text && strcmp(problem->instance, instance) == 0)
            return problem->text;
    }
    return NULL;
}

bool lead_is(const struct lead *lead)
{
    return lead->leads;
}

uint32_t lead_problems(const struct lead *lead, struct lead_problem *out, uint32_t n)
{
    uint32_t count = 0;
    for (uint32_t i = 0; lead->leads && i < lead->master.n && count < n; i++) {
        const struct master_memory *memory = &lead->master.memory[i];
        if (memory->problem[0])
            out[count++] = (struct lead_problem){memory->instance, memory->problem};
    }
    return count;
}

/* It waited for its placement, or for whether it should move, and need not any longer. */
static void lead_on_solved(void *arg, const char *instance)
{
    struct daemon *daemon = arg;
    struct master *master = &daemon->lead->master;
    for (uint32_t i = 0; i < master->n; i++) {
        if (strcmp(master->memory[i].instance, instance) == 0)
            master->memory[i].retry_ms = master->memory[i].considered_ms = 0;
    }
    daemon_changed(daemon);
}

struct lead *lead_new(struct daemon *daemon)
{
    struct lead *lead = mem_new(sizeof *lead);
    if (lead && !(lead->solving = solving_new(daemon->loop, lead_on_solved, daemon))) {
        mem_free(lead);
        return NULL;
    }
    return lead;
}

void lead_stop(struct lead *lead)
{
    if (!lead)
        return;
    solving_free(lead->solving);
    lead->solving = NULL;
}

void lead_free(struct lead *lead)
{
    if (!lead)
        return;
    lead_stop(lead);
    placing_deinit(&lead->placing);
    master_mover_clear(&lead->mover);
    mem_free(lead);
}
