/* Requests that move stages: a node is emptied, an instance is placed by hand. */
#include "node/control.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "cluster/placed.h"
#include "node/catalogue.h"
#include "node/lead.h"
#include "placing/placing.h"

#include <stdio.h>
#include <string.h>

/* ---- drain ----------------------------------------------------------------------------------- */

void control_drain(struct conversation *conversation, yyjson_val *request)
{
    struct daemon *daemon = conversation->daemon;
    const bool undo = yyjson_get_bool(yyjson_obj_get(request, "undo"));
    char key[sizeof STATE_DRAIN + NODE_ID_TEXT];
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct error err;
    if (!control_require_member(conversation))
        return;
    const Cluster__Node *node = control_find_node(daemon, control_text(request, "node"), &err);
    if (node && state_is_drained(daemon_state(daemon), node->id) != undo) {
        error_set(&err, ERROR_INVALID, undo ? "%s is not drained" : "%s is drained already",
                  node->name);
        node = NULL;
    }
    if (!node) {
        control_fail(conversation, &err);
        return;
    }
    snprintf(key, sizeof key, STATE_DRAIN "%s", node->id);
    setting.key = key;
    setting.value = (char *)(uintptr_t)(undo ? "" : "yes");
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    control_propose(conversation, &event, undo ? "undrained" : "drained", node->name);
}

/* ---- moves, on or off ------------------------------------------------------------------------ */

void control_moves(struct conversation *conversation, yyjson_val *request)
{
    const bool on = yyjson_get_bool(yyjson_obj_get(request, "on"));
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct error err;
    if (!control_require_member(conversation))
        return;
    if (!yyjson_obj_get(request, "on")) {
        control_answer_text(conversation, "moves",
                            state_moves(daemon_state(conversation->daemon)) ? "on" : "off");
        return;
    }
    if (!yyjson_is_bool(yyjson_obj_get(request, "on")) ||
        state_moves(daemon_state(conversation->daemon)) == on) {
        error_set(&err, ERROR_INVALID, "`on` is true or false, and not what it is already");
        control_fail(conversation, &err);
        return;
    }
    setting.key = (char *)(uintptr_t)"moves";
    setting.value = (char *)(uintptr_t)(on ? "" : "off");
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    control_propose(conversation, &event, "moves", on ? "on" : "off");
}

/* ---- placements by hand -------------------------------------------------------------------- */

static enum error_code move_check_placement(struct daemon *daemon,
                                            const struct master_planner *planner,
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

static bool tells_of(const Node__Now *now, const char *instance, uint64_t epoch, size_t stage)
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
            !tells_of(seen->now, instance->id, of->epoch, i))
            return false;
    }
    return true;
}

static bool is_still_wanted(const struct state *state, const Node__Held *held)
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
        if (!is_still_wanted(state, seen->now->held[i]))
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

static const char *unsettled_node(struct daemon *daemon)
{
    const struct placing_view *view = daemon_placing_view(daemon);
    for (uint32_t i = 0; i < view->n_seen; i++) {
        const struct placing_seen *seen = &view->seen[i];
        if (seen->alive && seen->now && seen->now->tells_held && !is_settled(view->state, seen))
            return daemon_name_of(daemon, seen->node);
    }
    return NULL;
}

static void move_propose_placement(struct daemon *daemon, const Cluster__Instance *instance,
                                   const struct master_placement *placement, uint64_t epoch,
                                   bool replaces, char *actor)
{
    struct placed_event event;
    placed_event_init(&event, daemon_state(daemon), instance, placement, epoch, replaces,
                      "by hand");
    event.placement.has_by_hand = event.placement.by_hand = true;
    event.event.actor = actor;
    agreement_propose(daemon->agreement, &event.event, NULL, NULL);
}

/* ---- move ------------------------------------------------------------------------------------ */

struct moving {
    char instance[LIMIT_CLUSTER_TEXT_BYTES + 1];
    char actor[AUDIT_WHO_TEXT];
    bool loads; /* `place`: it is wanted first, with this demand */
    struct place_demand wanted;
    yyjson_doc *to; /* the wanted stages, until it is proposed */
    uint64_t asked_ms, unsettled_ms;
    uint64_t epoch, from; /* of the new placement, and of the one before; 0: none */
    bool is_seen;
    uint64_t proposed_ms; /* 0: it is not yet */
};

enum {
    MOVE_PROPOSAL_MS = 11000, /* agreement gives a proposal up after 10 s */
    MOVE_SETTLE_MS = 10000,   /* for memory that stages of before still hold */
    MOVE_SETTLED_MS = 1000,   /* and after that, for figures to be of one moment */
};

static void move_gone(struct conversation *conversation)
{
    struct moving *moving = conversation->data;
    if (moving)
        yyjson_doc_free(moving->to);
    mem_free(moving);
    conversation->data = NULL;
}

static void fail_move(struct conversation *conversation, const char *why)
{
    struct error err;
    error_set(&err, ERROR_BUSY, "%s", why);
    control_fail(conversation, &err);
}

static void move_answer(struct conversation *conversation, const Cluster__Instance *instance)
{
    const struct moving *moving = conversation->data;
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc), *object = root;
    if (moving->loads)
        object = yyjson_mut_obj_add_obj(doc, root, "ready");
    yyjson_mut_obj_add_strcpy(doc, object, moving->loads ? "instance" : "moved", instance->id);
    control_put_instance(conversation->daemon, doc, object, instance);
    control_answer(conversation, doc);
    control_end(conversation);
}

static void look_after(struct conversation *conversation)
{
    struct moving *moving = conversation->data;
    struct daemon *daemon = conversation->daemon;
    const Cluster__Instance *instance = state_instance(daemon_state(daemon), moving->instance);
    const Cluster__Placement *current = instance ? instance->current : NULL;
    const Cluster__Placement *next = instance ? instance->next : NULL;
    if (next && next->epoch == moving->epoch) {
        moving->is_seen = true;
    } else if (current && current->epoch == moving->epoch) {
        moving->is_seen = true;
        if (state_is_ready(current))
            move_answer(conversation, instance);
    } else if (moving->is_seen) {
        fail_move(conversation, "the placement was given up; `medley events` says why");
    } else if (moving->loads && current && current->epoch != moving->from) {
        moving->proposed_ms = 0; /* the leader placed it first: moved from there */
    } else if (daemon_now_ms(daemon) - moving->proposed_ms > MOVE_PROPOSAL_MS) {
        fail_move(
            conversation,
            "the cluster did not agree: it has no leader now, or something else was placed first");
    }
}

/* The stages of the request, on nodes and devices of the state. */
static bool control_moves_take_stages(const struct daemon *daemon, const char *key,
                                      yyjson_val *list, struct master_placement *out,
                                      struct error *err)
{
    size_t i, n_all;
    yyjson_val *item;
    uint32_t layer = 0;
    *out = (struct master_placement){0};
    if (!yyjson_is_arr(list) || yyjson_arr_size(list) == 0 || yyjson_arr_size(list) > LIMIT_STAGES)
        return !error_set(err, ERROR_INVALID, "`%s` lists 1 to %d stages", key, LIMIT_STAGES);
    yyjson_arr_foreach(list, i, n_all, item)
    {
        const Cluster__Node *node = control_find_node(daemon, control_text(item, "node"), err);
        const char *name = control_text(item, "device");
        const uint64_t n_layers = yyjson_get_uint(yyjson_obj_get(item, "n_layers")); /* 0: none */
        if (!node)
            return false;
        const Cluster__Device *device =
            state_device(state_node(daemon_state(daemon), node->id), name);
        if (!device)
            return !error_set(err, ERROR_NOT_FOUND,
                              "%s has no device '%s'; `medley nodes` lists them", node->name,
                              name ? name : "");
        if (n_layers == 0 || n_layers > LIMIT_LAYERS)
            return !error_set(err, ERROR_INVALID, "a stage has 1 to %d layers", LIMIT_LAYERS);
        out->stages[out->n_stages++] =
            (struct master_stage){node->id, device->id, layer, (uint32_t)n_layers};
        layer += (uint32_t)n_layers;
    }
    return true;
}

/* ERROR_NONE: it could be so, as far as this node knows. */
static enum error_code check_move(struct daemon *daemon, const Cluster__Instance *instance,
                                  const struct master_placement *placement, bool *beside,
                                  struct error *err)
{
    struct placing placing = {.view = *daemon_placing_view(daemon)};
    const struct master_planner planner = {
        .problem = placing_problem, .call_in = placing_call_in, .self = &placing};
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < placement->n_stages && !code; i++) {
        const char *node = placement->stages[i].node;
        if (state_is_drained(daemon_state(daemon), node))
            code = error_set(err, ERROR_INVALID, "%s is drained", daemon_name_of(daemon, node));
    }
    if (!code)
        code = move_check_placement(daemon, &planner, instance, placement, beside, err);
    placing_deinit(&placing);
    return code;
}

/* The instance as it is when its stages are placed. */
struct move_subject {
    Cluster__Instance instance; /* in the state, or below */
    Cluster__Demand demand;
    bool is_new; /* daemon_want() makes it anew */
};

static enum error_code move_find_subject(struct daemon *daemon, const struct moving *moving,
                                         struct move_subject *out, struct error *err)
{
    const Cluster__Instance *known = state_instance(daemon_state(daemon), moving->instance);
    const Cluster__Model *model = catalogue_find(daemon, moving->instance);
    if (moving->loads && !model)
        return error_set(err, ERROR_NOT_FOUND,
                         "the cluster has no model '%.64s'; `medley add FILE` adds it",
                         moving->instance);
    if (!moving->loads && !known)
        return error_set(err, ERROR_NOT_FOUND,
                         "the cluster has no instance '%.64s'; `medley status` lists them",
                         moving->instance);
    if (!moving->loads && !known->active)
        return error_set(err, ERROR_INVALID, "%.64s is not loaded; `medley place` loads it",
                         moving->instance);
    out->is_new = moving->loads && !(known && daemon_keeps(daemon, known, &moving->wanted));
    if (known)
        out->instance = *known;
    else
        cluster__instance__init(&out->instance);
    if (!out->is_new)
        return ERROR_NONE;
    daemon_demand(daemon, model->name, &moving->wanted, &out->demand);
    out->instance.id = out->instance.model = model->name;
    out->instance.demand = &out->demand;
    return ERROR_NONE;
}

static enum error_code propose_move(struct moving *moving, struct daemon *daemon,
                                    struct move_subject *subject,
                                    const struct master_placement *placement, bool beside,
                                    struct error *err)
{
    const struct replica_status status = agreement_status(daemon->agreement);
    const enum error_code code =
        moving->loads ? daemon_want(daemon, moving->instance, &moving->wanted, err) : ERROR_NONE;
    if (code)
        return code;
    moving->from = state_epoch(&subject->instance);
    if (subject->is_new)
        subject->instance.current = subject->instance.next = NULL;
    moving->epoch = placed_epoch(daemon_state(daemon)->root->last_epoch, status.lineage,
                                 status.term, daemon->id, placement);
    moving->proposed_ms = daemon_now_ms(daemon);
    move_propose_placement(daemon, &subject->instance, placement, moving->epoch, !beside,
                           moving->actor);
    return ERROR_NONE;
}

/* A stage that was replaced a moment ago is closed soon, and then its memory is free: worth a
 * wait. */
static bool may_wait(struct moving *moving, struct daemon *daemon, struct error *err)
{
    const uint64_t now_ms = daemon_now_ms(daemon);
    const char *unsettled = unsettled_node(daemon);
    if (unsettled)
        moving->unsettled_ms = now_ms;
    if (!moving->unsettled_ms || now_ms - moving->unsettled_ms >= MOVE_SETTLED_MS)
        return false;
    if (now_ms - moving->asked_ms < MOVE_SETTLE_MS)
        return true;
    if (unsettled)
        error_wrap(err, "waited %d s for %s to free what it had before", MOVE_SETTLE_MS / 1000,
                   unsettled);
    return false;
}

static void try_move(struct conversation *conversation)
{
    struct moving *moving = conversation->data;
    struct daemon *daemon = conversation->daemon;
    struct move_subject subject;
    struct master_placement placement;
    struct error err;
    bool beside = false;
    const bool is_known =
        !move_find_subject(daemon, moving, &subject, &err) &&
        control_moves_take_stages(daemon, moving->loads ? "layers" : "to",
                                  yyjson_doc_get_root(moving->to), &placement, &err);
    const bool is_proposed = is_known &&
                             !check_move(daemon, &subject.instance, &placement, &beside, &err) &&
                             !propose_move(moving, daemon, &subject, &placement, beside, &err);
    if (!is_proposed && (!is_known || !may_wait(moving, daemon, &err)))
        control_fail(conversation, &err);
}

static void move_look(struct conversation *conversation)
{
    const struct moving *moving = conversation->data;
    if (moving->proposed_ms)
        look_after(conversation);
    else
        try_move(conversation);
}

/* NULL: of nothing, or no memory. */
static yyjson_doc *control_moves_copy_of(yyjson_val *value)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_doc_set_root(doc, yyjson_val_mut_copy(doc, value));
    yyjson_doc *copy = yyjson_mut_doc_imut_copy(doc, NULL);
    yyjson_mut_doc_free(doc);
    return copy;
}

static void move_begin(struct conversation *conversation, const char *instance, yyjson_val *to,
                       const struct place_demand *wanted)
{
    struct moving *moving = mem_new(sizeof *moving);
    if (!moving) {
        control_fail(conversation,
                     &(struct error){ERROR_NO_MEMORY, "not enough memory for a move"});
        return;
    }
    snprintf(moving->instance, sizeof moving->instance, "%s", instance ? instance : "");
    snprintf(moving->actor, sizeof moving->actor, "%s", conversation->actor);
    moving->loads = wanted != NULL;
    moving->wanted = wanted ? *wanted : (struct place_demand){0};
    moving->wanted.actor = moving->actor;
    moving->to = control_moves_copy_of(to);
    moving->asked_ms = daemon_now_ms(conversation->daemon);
    conversation->data = moving;
    conversation->calls = (struct conversation_calls){.look = move_look, .gone = move_gone};
    try_move(conversation);
}

void control_move(struct conversation *conversation, yyjson_val *request)
{
    if (control_require_member(conversation))
        move_begin(conversation, control_text(request, "instance"), yyjson_obj_get(request, "to"),
                   NULL);
}

void control_place_there(struct conversation *conversation, const char *model, yyjson_val *layers,
                         const struct place_demand *wanted)
{
    if (control_require_member(conversation))
        move_begin(conversation, model, layers, wanted);
}
