#include "cluster/master.h"

#include "base/mem.h"
#include "cluster/placed.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct master_options master_options_default(void)
{
    return (struct master_options){.lost_ms = 1000,
                                   .retry_ms = 1000,
                                   .repropose_ms = 2000,
                                   .consider_ms = 5000,
                                   .failed_ms = 10000};
}

void master_proposals_clear(struct master_proposals *proposals)
{
    for (uint32_t i = 0; i < proposals->n; i++)
        buffer_deinit(&proposals->events[i]);
    proposals->n = 0;
}

enum { CUT_TRIES = 8 }; /* nodes that are left out since another does not hear them */

/* ---- one step ---- */

struct master_round {
    struct master *master;
    const struct master_options *options;
    const struct master_view *view;
    struct master_proposals *out;
    bool *allowed; /* [n_nodes]: alive, as far as is known */
    uint64_t last_epoch;
    bool failed;
};

static bool full(const struct master_round *s)
{
    return s->out->n == MASTER_PROPOSALS || s->failed;
}

static void propose(struct master_round *s, Cluster__Event *event)
{
    assert(s->out->n < MASTER_PROPOSALS && !event->has_nonce);
    struct buffer *bytes = &s->out->events[s->out->n];
    *bytes = (struct buffer){0};
    event->by = (char *)(uintptr_t)s->view->self;
    event->has_time_ms = true;
    event->time_ms = s->view->wall_ms;
    event_encode(event, bytes);
    if (bytes->failed) {
        buffer_deinit(bytes);
        s->failed = true;
    } else {
        s->out->n++;
    }
}

static bool master_texts_equal(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

static struct master_memory *master_recall(struct master *master, const char *instance)
{
    for (uint32_t i = 0; i < master->n; i++) {
        if (master_texts_equal(master->memory[i].instance, instance))
            return &master->memory[i];
    }
    if (master->n == LIMIT_CLUSTER_INSTANCES ||
        strlen(instance) >= sizeof master->memory[0].instance)
        return NULL;
    struct master_memory *memory = &master->memory[master->n++];
    *memory = (struct master_memory){0};
    snprintf(memory->instance, sizeof memory->instance, "%s", instance);
    return memory;
}

static void forget_gone(struct master_round *s)
{
    struct master *master = s->master;
    for (uint32_t i = master->n; i-- > 0;) {
        if (!state_instance(s->view->state, master->memory[i].instance))
            master->memory[i] = master->memory[--master->n];
    }
}

/* ---- who is there ---- */

static bool alive(const struct master_round *s, const struct master_node *node)
{
    const struct master_view *view = s->view;
    if (node->suspected)
        return false;
    const uint64_t since =
        node->heard_ms > view->leads_since_ms ? node->heard_ms : view->leads_since_ms;
    return view->now_ms - since <= s->options->lost_ms;
}

/* A node that has not been heard of yet keeps what it has, but gets nothing new. */
static bool may_be_used(const struct master_round *s, const struct master_node *node)
{
    return node->heard_ms && !node->suspected &&
           s->view->now_ms - node->heard_ms <= s->options->lost_ms;
}

static const struct master_node *node_of(const struct master_round *s, const char *id)
{
    for (uint32_t i = 0; i < s->view->n_nodes; i++) {
        if (master_texts_equal(s->view->nodes[i].id, id))
            return &s->view->nodes[i];
    }
    return NULL;
}

static bool misses(const struct master_node *node, const char *other)
{
    for (size_t i = 0; node && i < node->n_missed; i++) {
        if (master_texts_equal(node->missed[i], other))
            return true;
    }
    return false;
}

static bool are_cut(const struct master_round *s, const char *node, const char *other)
{
    return misses(node_of(s, node), other) || misses(node_of(s, other), node);
}

/* The stage before it, in the ring of stages and driver, is on a node that it is cut off from; or
 * the driver is, which hears from each stage what is lost there (hosting/hosting.h). */
static bool is_cut_off(const struct master_round *s, const Cluster__Placement *placement, size_t i)
{
    const char *node = placement->stages[i]->node;
    return are_cut(s, node, placement->stages[(i ? i : placement->n_stages) - 1]->node) ||
           are_cut(s, node, placement->stages[0]->node);
}

static bool broken(const struct master_round *s, const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        const struct master_node *node = node_of(s, stage->node);
        const struct master_node never = {.id = stage->node};
        if (stage->state == CLUSTER__STAGE_STATE__FAILED || !alive(s, node ? node : &never) ||
            is_cut_off(s, placement, i))
            return true;
    }
    return false;
}

/* Some of it is on a node that is drained. */
static bool leaves(const struct master_round *s, const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        if (state_is_drained(s->view->state, placement->stages[i]->node))
            return true;
    }
    return false;
}

/* Some of it is where its owner lends nothing now. */
static bool overstays(const struct master_round *s, const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        const struct master_node *node = node_of(s, placement->stages[i]->node);
        if (node && node->lends_nothing)
            return true;
    }
    return false;
}

/* What has to go whether it has a place elsewhere or not. One instance at a time is moved because
 * of memory: with it gone, others may be within the limit. */
static bool exceeds_loan(const struct master_round *s, const Cluster__Instance *instance)
{
    const Cluster__State *root = s->view->state->root;
    if (overstays(s, instance->current))
        return true;
    for (size_t i = 0; i < root->n_instances; i++) {
        if (root->instances[i]->next)
            return false;
    }
    return !s->out->n && s->options->exceeds && s->options->exceeds(s->options->self, instance);
}

static bool loading(const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (placement->stages[i]->state == CLUSTER__STAGE_STATE__LOADING)
            return true;
    }
    return false;
}

/* ---- asked for, idle ---- */

static const struct master_use *master_use_of(const struct master_round *s, const char *instance)
{
    for (uint32_t i = 0; i < s->view->n_uses; i++) {
        if (master_texts_equal(s->view->uses[i].instance, instance))
            return &s->view->uses[i];
    }
    return NULL;
}

static void target(struct master_round *s, const Cluster__Instance *instance, bool active)
{
    Cluster__InstanceTarget target = CLUSTER__INSTANCE_TARGET__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    target.id = instance->id;
    target.has_active = true;
    target.active = active;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_TARGET;
    event.instance_target = &target;
    propose(s, &event);
}

/* A new leader does not know of requests before it: for it nobody has used anything before it
 * led. */
static bool idle(const struct master_round *s, const Cluster__Instance *instance,
                 const struct master_use *use)
{
    const uint64_t used =
        use && use->used_ms > s->view->leads_since_ms ? use->used_ms : s->view->leads_since_ms;
    return instance->idle_ms && !(use && use->wanted) && !loading(instance->current) &&
           !instance->next && s->view->now_ms - used >= instance->idle_ms;
}

/* ---- placing ---- */

static bool same_stages(const struct master_placement *new, const Cluster__Placement *old)
{
    if (!old || old->n_stages != new->n_stages)
        return false;
    for (uint32_t i = 0; i < new->n_stages; i++) {
        if (!master_texts_equal(new->stages[i].node, old->stages[i]->node) ||
            !master_texts_equal(new->stages[i].device, old->stages[i]->device) ||
            new->stages[i].n_layers != old->stages[i]->n_layers)
            return false;
    }
    return true;
}

static void propose_placement(struct master_round *s, const Cluster__Instance *instance,
                              const struct master_placement *placement, bool replaces,
                              const char *why)
{
    assert(placement->n_stages && why);
    struct placed_event event;
    s->last_epoch =
        placed_epoch(s->last_epoch, s->view->lineage, s->view->term, s->view->self, placement);
    placed_event_init(&event, s->view->state, instance, placement, s->last_epoch, replaces, why);
    propose(s, &event.event);
}

static void note_proposal(struct master_round *s, const Cluster__Instance *instance,
                          struct master_memory *memory)
{
    assert(s->view->now_ms);
    memory->problem[0] = 0;
    memory->epoch = state_epoch(instance);
    memory->proposed_ms = s->view->now_ms;
}

/* A proposal is under way. */
static bool has_proposed(const struct master_round *s, const Cluster__Instance *instance,
                         const struct master_memory *memory)
{
    return memory->proposed_ms && memory->epoch == state_epoch(instance) &&
           s->view->now_ms - memory->proposed_ms < s->options->repropose_ms;
}

static void wait_longer(struct master_round *s, struct master_memory *memory)
{
    const uint64_t longest = 32 * s->options->retry_ms;
    memory->wait_ms = memory->wait_ms ? 2 * memory->wait_ms : s->options->retry_ms;
    if (memory->wait_ms > longest)
        memory->wait_ms = longest;
    memory->retry_ms = s->view->now_ms + memory->wait_ms;
}

/* The first stage that its driver is cut off from; n_stages: none. */
static uint32_t find_cut(const struct master_round *s, const struct master_placement *placement)
{
    assert(placement->n_stages);
    uint32_t i = 0;
    while (i < placement->n_stages &&
           !are_cut(s, placement->stages[i].node, placement->stages[0].node))
        i++;
    return i;
}

static void leave_out(const struct master_round *s, const char *node, bool *allowed)
{
    for (uint32_t i = 0; i < s->view->n_nodes; i++)
        allowed[i] = allowed[i] && !master_texts_equal(s->view->nodes[i].id, node);
}

/* The planner knows which neighbours have a way to each other, not that a driver has to have one to
 * all: where two do not, one of them is left out; first those that the driver does not hear, then,
 * if that is no placement, drivers. */
static enum error_code place_within_reach(struct master_round *s, const Cluster__Instance *instance,
                                          bool beside, struct master_placement *out,
                                          struct error *err)
{
    assert(s->allowed && s->options->place);
    const uint32_t n = s->view->n_nodes;
    bool *allowed = mem_new_array((size_t)n + 1, sizeof *allowed);
    enum error_code code =
        allowed ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "not enough memory for %u nodes", n);
    bool cuts = true;
    for (int drivers = 0; drivers < 2 && allowed && cuts; drivers++) {
        memcpy(allowed, s->allowed, n * sizeof *allowed);
        cuts = false;
        for (int tries = 0; tries < CUT_TRIES; tries++) {
            code =
                s->options->place(s->options->self, s->view, instance, allowed, beside, out, err);
            const uint32_t cut = code ? 0 : find_cut(s, out);
            if (code || cut == out->n_stages)
                break;
            cuts = true;
            leave_out(s, out->stages[drivers ? 0 : cut].node, allowed);
            *out = (struct master_placement){0};
            code = error_set(err, ERROR_NOT_FOUND, "too many nodes cannot reach each other");
        }
        if (code != ERROR_NOT_FOUND)
            break;
    }
    mem_free(allowed);
    return code;
}

static void master_place_instance(struct master_round *s, const Cluster__Instance *instance,
                                  struct master_memory *memory, const char *why)
{
    assert(instance->active && !s->failed);
    struct master_placement placement = {0};
    struct error err = {0};
    if (s->view->now_ms < memory->retry_ms || has_proposed(s, instance, memory))
        return;
    const enum error_code code = place_within_reach(s, instance, false, &placement, &err);
    /* What has just failed is not tried again at once, only after a while: the reason may have
     * gone. */
    const bool again = !code && (same_stages(&placement, instance->next) ||
                                 (!instance->next && same_stages(&placement, instance->current)));
    if (code || (again && memory->wait_ms == 0)) {
        snprintf(memory->problem, sizeof memory->problem, "%s",
                 code ? err.text : "the best placement is the one that has failed");
        wait_longer(s, memory);
        return;
    }
    propose_placement(s, instance, &placement, instance->current != NULL,
                      placement.unproved ? "nothing in memory was found in time: it streams" : why);
    note_proposal(s, instance, memory);
    if (again)
        wait_longer(s, memory);
}

static void abandon(struct master_round *s, const Cluster__Instance *instance)
{
    assert(instance->next);
    Cluster__InstanceAbandoned abandoned = CLUSTER__INSTANCE_ABANDONED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    abandoned.id = instance->id;
    abandoned.has_epoch = true;
    abandoned.epoch = instance->next->epoch;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_ABANDONED;
    event.instance_abandoned = &abandoned;
    propose(s, &event);
}

/* ---- moving what works ---- */

static void put_off_moves(struct master_round *s, struct master_memory *memory)
{
    const uint64_t longest = 32 * s->options->failed_ms;
    memory->failed_ms = memory->failed_ms ? 2 * memory->failed_ms : s->options->failed_ms;
    if (memory->failed_ms > longest)
        memory->failed_ms = longest;
    memory->move_ms = s->view->now_ms + memory->failed_ms;
}

/* A limit of the owner is kept at any price: requests wait until there is a place again. */
static void stop_over_loan(struct master_round *s, const Cluster__Instance *instance,
                           struct master_memory *memory, const struct error *why)
{
    snprintf(memory->problem, sizeof memory->problem, "stopped, since less is lent now: %.200s",
             why->text);
    target(s, instance, false);
    note_proposal(s, instance, memory);
}

/* Off a node that is drained or lends less now; beside what serves where that is possible. */
static void move_away(struct master_round *s, const Cluster__Instance *instance,
                      struct master_memory *memory, bool must)
{
    assert(instance->current && !instance->next);
    struct master_placement placement = {0};
    struct error err = {0};
    bool beside = true;
    enum error_code code = place_within_reach(s, instance, true, &placement, &err);
    if (code && code != ERROR_BUSY) {
        beside = false;
        placement = (struct master_placement){0};
        code = place_within_reach(s, instance, false, &placement, &err);
    }
    if (code && must && code != ERROR_BUSY) {
        stop_over_loan(s, instance, memory, &err);
        return;
    }
    if (code) {
        snprintf(memory->problem, sizeof memory->problem, "it cannot leave %s yet: %.200s",
                 must ? "a node that lends less" : "the drained node", err.text);
        if (code == ERROR_BUSY) /* the answer that is being computed does not keep for long */
            memory->move_ms = s->view->now_ms + s->options->retry_ms;
        else
            put_off_moves(s, memory);
        return;
    }
    propose_placement(s, instance, &placement, !beside,
                      must ? "less is lent" : "a node is drained");
    note_proposal(s, instance, memory);
}

/* ---- the precision of what works ---- */

/* Lower while a device is hot, where its owner allows it. What is hot, and for how long, is the
 * governor's to say: it takes its wish back after a quiet minute. */
static bool precision_is_due(const struct master_round *s, const Cluster__Instance *instance,
                             uint32_t *out)
{
    const Cluster__Demand *demand = instance->demand;
    const uint32_t now = instance->current->precision;
    if (!demand->precision_allowed || !s->options->is_hot || placed_streams(instance->current))
        return false;
    *out = s->options->is_hot(s->options->self, instance) ? demand->precision_allowed
                                                          : demand->precision;
    return *out != (now ? now : demand->precision);
}

/* The same stages anew; the old ones make room, since what is loaded is of the other type. */
static void master_change_precision(struct master_round *s, const Cluster__Instance *instance,
                                    struct master_memory *memory, uint32_t precision)
{
    const bool lower = precision != instance->demand->precision;
    struct master_placement placement;
    placed_again(instance->current, &placement);
    placement.precision = lower ? precision : 0;
    propose_placement(s, instance, &placement, true,
                      lower ? "a device is hot: lower precision"
                            : "no device is hot: precision as before");
    note_proposal(s, instance, memory);
}

static void master_consider_instance(struct master_round *s, const Cluster__Instance *instance,
                                     struct master_memory *memory)
{
    assert(instance->current && !instance->next);
    const struct master_options *options = s->options;
    const uint64_t now_ms = s->view->now_ms;
    struct master_placement placement = {0};
    struct error err = {0};
    char why[64] = "";
    if (!options->consider || instance->current->by_hand || !state_moves(s->view->state) ||
        now_ms - s->view->leads_since_ms < options->consider_ms ||
        (memory->considered_ms && now_ms - memory->considered_ms < options->consider_ms))
        return;
    memory->considered_ms = now_ms;
    if (options->consider(options->considers, s->view, instance, s->allowed, &placement, why,
                          &err) ||
        placement.n_stages == 0 || same_stages(&placement, instance->current) ||
        find_cut(s, &placement) < placement.n_stages)
        return;
    propose_placement(s, instance, &placement, placement.replaces, why);
    note_proposal(s, instance, memory);
}

static void look_at_working(struct master_round *s, const Cluster__Instance *instance,
                            struct master_memory *memory)
{
    assert(instance->current);
    if (instance->next) {
        memory->moved_to = instance->next->epoch;
        if ((broken(s, instance->next) || leaves(s, instance->next) ||
             overstays(s, instance->next)) &&
            !has_proposed(s, instance, memory)) {
            put_off_moves(s, memory);
            abandon(s, instance);
            note_proposal(s, instance, memory);
        }
        return;
    }
    if (loading(instance->current))
        return;
    memory->wait_ms = memory->retry_ms = 0;
    if (memory->moved_to == instance->current->epoch)
        memory->failed_ms = memory->move_ms = 0;
    uint32_t precision;
    const bool must = exceeds_loan(s, instance);
    if (!must && !leaves(s, instance->current))
        memory->problem[0] = 0;
    if (s->view->now_ms < memory->move_ms || has_proposed(s, instance, memory))
        return;
    if (must || leaves(s, instance->current))
        move_away(s, instance, memory, must);
    else if (precision_is_due(s, instance, &precision))
        master_change_precision(s, instance, memory, precision);
    else
        master_consider_instance(s, instance, memory);
}

static void look_at(struct master_round *s, const Cluster__Instance *instance)
{
    const struct master_use *use = master_use_of(s, instance->id);
    struct master_memory *memory = master_recall(s->master, instance->id);
    if (!memory)
        return;
    if (!instance->active) {
        if (use && use->wanted)
            target(s, instance, true);
        return;
    }
    const bool works = instance->current && !broken(s, instance->current);
    const bool moves = instance->next && !broken(s, instance->next);
    if (idle(s, instance, use))
        target(s, instance, false);
    else if (works)
        look_at_working(s, instance, memory);
    else if (!moves)
        master_place_instance(s, instance, memory,
                              instance->current ? "a device was lost" : "first");
}

static void found_again(struct master_round *s)
{
    Cluster__Refounded refounded = CLUSTER__REFOUNDED__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    refounded.has_generation = refounded.has_founder = true;
    refounded.generation = s->view->lineage.generation;
    refounded.founder = s->view->lineage.founder;
    event.kind_case = CLUSTER__EVENT__KIND_REFOUNDED;
    event.refounded = &refounded;
    propose(s, &event);
}

/* The view's nodes are mostly the state's, in its order. */
static const Cluster__NodeRecord *record_of(const struct master_view *view, uint32_t i)
{
    const Cluster__State *root = view->state->root;
    if (root && i < root->n_nodes &&
        master_texts_equal(root->nodes[i]->node->id, view->nodes[i].id))
        return root->nodes[i];
    return state_node(view->state, view->nodes[i].id);
}

/* The lineage is told to the state before anything is placed: epochs depend on it. */
enum error_code master_step(struct master *master, const struct master_options *options,
                            const struct master_view *view, struct master_proposals *out,
                            struct error *err)
{
    const Cluster__State *root = view->state->root;
    struct master_round s = {.master = master, .options = options, .view = view, .out = out};
    out->n = 0;
    s.allowed = mem_new_array(view->n_nodes + 1, sizeof *s.allowed);
    if (!s.allowed)
        return error_set(err, ERROR_NO_MEMORY, "master: not enough memory");
    for (uint32_t i = 0; i < view->n_nodes; i++) {
        const Cluster__NodeRecord *record = record_of(view, i);
        s.allowed[i] = record && record->admitted && may_be_used(&s, &view->nodes[i]) &&
                       !state_is_drained(view->state, view->nodes[i].id) &&
                       !view->nodes[i].lends_nothing;
    }
    forget_gone(&s);
    if (state_lineage(view->state).generation < view->lineage.generation) {
        if (!master->founded_ms || view->now_ms - master->founded_ms >= options->repropose_ms) {
            master->founded_ms = view->now_ms;
            found_again(&s);
        }
    } else if (root) {
        s.last_epoch = root->last_epoch;
        for (size_t i = 0; i < root->n_instances && !full(&s); i++)
            look_at(&s, root->instances[i]);
    }
    mem_free(s.allowed);
    return s.failed ? error_set(err, ERROR_NO_MEMORY, "master: not enough memory for a proposal")
                    : ERROR_NONE;
}

const char *master_problem(const struct master *master, const char *instance)
{
    for (uint32_t i = 0; i < master->n; i++) {
        if (master_texts_equal(master->memory[i].instance, instance))
            return master->memory[i].problem[0] ? master->memory[i].problem : NULL;
    }
    return NULL;
}
