#include "cluster/state_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/members.h"
#include "cluster/proof.h"

#include <assert.h>
#include <string.h>

const char no_memory[] = "not enough memory";

/* ---- lists and texts ---- */

bool list_reserve(void *list, size_t n)
{
    assert(list);
    void **old, **grown;
    memcpy(&old, list, sizeof old);
    grown = mem_resize(old, n + 1, sizeof *grown);
    if (!grown)
        return false;
    memcpy(list, &grown, sizeof grown);
    return true;
}

void list_remove(void *list, size_t *n, size_t i)
{
    assert(list && i < *n);
    void **items;
    memcpy(&items, list, sizeof items);
    message_free(items[i]);
    memmove(items + i, items + i + 1, (*n - i - 1) * sizeof *items);
    --*n;
}

bool good_text(const char *text)
{
    return text && text[0] &&
           strnlen(text, LIMIT_CLUSTER_TEXT_BYTES + 1) <= LIMIT_CLUSTER_TEXT_BYTES;
}

bool same_text(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* ---- events ---- */

/* The lost voters' epochs are below. */
static const char *apply_refounded(Cluster__State *s, Cluster__Event *e)
{
    const Cluster__Refounded *refounded = e->refounded;
    if (refounded->generation <= s->generation || refounded->generation >> 31)
        return "the generation is not a new one";
    s->has_generation = s->has_founder = s->has_last_epoch = true;
    s->generation = refounded->generation;
    s->founder = refounded->founder;
    const uint64_t epoch = refounded->generation << 32;
    if (s->last_epoch < epoch)
        s->last_epoch = epoch;
    return NULL;
}

static const char *apply_kind(Cluster__State *s, Cluster__Event *e)
{
    switch (e->kind_case) {
    case CLUSTER__EVENT__KIND_NODE_JOINED:
        return apply_node_joined(s, e);
    case CLUSTER__EVENT__KIND_NODE_ADMITTED:
        return apply_node_admitted(s, e);
    case CLUSTER__EVENT__KIND_NODE_REMOVED:
        return apply_node_removed(s, e);
    case CLUSTER__EVENT__KIND_NODE_UPDATED:
        return apply_node_updated(s, e);
    case CLUSTER__EVENT__KIND_NODE_ROLE:
        return apply_node_role(s, e);
    case CLUSTER__EVENT__KIND_AUTHORITY_ROTATED:
        return apply_authority_rotated(s, e);
    case CLUSTER__EVENT__KIND_AUTHORITY_RETIRED:
        return apply_authority_retired(s, e);
    case CLUSTER__EVENT__KIND_LINKS_MEASURED:
        return apply_links(s, e);
    case CLUSTER__EVENT__KIND_MODEL_REGISTERED:
        return apply_model_registered(s, e);
    case CLUSTER__EVENT__KIND_MODEL_FORGOTTEN:
        return apply_model_forgotten(s, e);
    case CLUSTER__EVENT__KIND_INSTANCE_DESIRED:
        return apply_instance_desired(s, e);
    case CLUSTER__EVENT__KIND_INSTANCE_TARGET:
        return apply_instance_target(s, e);
    case CLUSTER__EVENT__KIND_INSTANCE_PLACED:
        return apply_instance_placed(s, e);
    case CLUSTER__EVENT__KIND_INSTANCE_ABANDONED:
        return apply_instance_abandoned(s, e);
    case CLUSTER__EVENT__KIND_STAGE_REPORTED:
        return apply_stage_reported(s, e);
    case CLUSTER__EVENT__KIND_INSTANCE_STOPPED:
        return apply_instance_stopped(s, e);
    case CLUSTER__EVENT__KIND_SETTING_CHANGED:
        return apply_setting(s, e);
    case CLUSTER__EVENT__KIND_REFOUNDED:
        return apply_refounded(s, e);
    case CLUSTER__EVENT__KIND_TOKEN_CREATED:
        return apply_token_created(s, e);
    case CLUSTER__EVENT__KIND_TOKEN_REVOKED:
        return apply_token_revoked(s, e);
    case CLUSTER__EVENT__KIND_AUDITED:
        return apply_audited(s, e);
    case CLUSTER__EVENT__KIND_ALERT_RAISED:
        return apply_alert_raised(s, e);
    case CLUSTER__EVENT__KIND_ALERT_CLEARED:
        return apply_alert_cleared(s, e);
    case CLUSTER__EVENT__KIND_MEMORY_STEPPED:
        return apply_memory_stepped(s, e);
    case CLUSTER__EVENT__KIND__NOT_SET:
    case _CLUSTER__EVENT__KIND__CASE_IS_INT_SIZE:
        break;
    }
    return "this version does not know its kind";
}

static enum error_code need_root(struct state *state, struct error *err)
{
    if (state->root)
        return ERROR_NONE;
    ProtobufCMessage *empty = NULL;
    const enum error_code code =
        message_decode(&cluster__state__descriptor, (const uint8_t *)"", 0, &empty, err);
    state->root = (Cluster__State *)empty;
    return code;
}

/* An event without sense leaves only its trace. */
static void conclude(Cluster__State *s, uint64_t index, const char *reason,
                     struct state_outcome *outcome)
{
    assert(index && outcome);
    *outcome = (struct state_outcome){.applied = !reason, .reason = reason};
    if (!reason)
        return;
    s->has_ignored = s->has_last_ignored = true;
    s->ignored++;
    s->last_ignored = index;
}

enum error_code state_apply(struct state *state, uint64_t index, const uint8_t *bytes, size_t size,
                            struct state_outcome *outcome, struct error *err)
{
    assert(bytes || !size);
    Cluster__Event *event;
    *outcome = (struct state_outcome){0};
    const enum error_code code = event_decode(bytes, size, &event, err);
    if (code == ERROR_NO_MEMORY || need_root(state, err)) {
        event_free(event);
        return ERROR_NO_MEMORY;
    }
    bool proven = false;
    struct recording recording = {0};
    const char *reason =
        code ? "it is no event" : proof_check(state->root, event, bytes, size, &proven);
    if (!code && recording_prepare(state->root, event, &recording, err))
        reason = no_memory;
    if (!reason)
        reason = apply_kind(state->root, event);
    event_free(event);
    if (reason == no_memory) {
        recording_clear(&recording);
        return error_set(err, ERROR_NO_MEMORY, "state: not enough memory for an event");
    }
    /* Its number is used up even where it makes no sense now: nobody can bring it again later. */
    if (proven) {
        state->root->has_admin_changes = true;
        state->root->admin_changes++;
    }
    conclude(state->root, index, reason, outcome);
    recording_finish(state->root, &recording, outcome);
    recording_clear(&recording);
    return ERROR_NONE;
}

/* ---- members ---- */

static Cluster__Member *new_member(const struct member *from)
{
    /* As if it had been decoded, so that it is freed like all others. */
    ProtobufCMessage *message = NULL;
    if (message_decode(&cluster__member__descriptor, (const uint8_t *)"", 0, &message, NULL))
        return NULL;
    Cluster__Member *member = (Cluster__Member *)message;
    member->has_id = member->has_votes = true;
    member->id = from->id;
    member->votes = from->votes;
    return member;
}

static enum error_code replace_members(Cluster__State *s, const struct members *members,
                                       struct error *err)
{
    assert(members->n <= LIMIT_CLUSTER_NODES);
    Cluster__Member **list = mem_new_array(members->n, sizeof *list);
    size_t n = 0;
    while (list && n < members->n && (list[n] = new_member(&members->list[n])) != NULL)
        n++;
    if (!list || n < members->n) {
        while (n)
            message_free(&list[--n]->base);
        mem_free(list);
        return error_set(err, ERROR_NO_MEMORY, "state: not enough memory for the members");
    }
    while (s->n_members)
        message_free(&s->members[--s->n_members]->base);
    mem_free(s->members);
    s->members = list;
    s->n_members = n;
    return ERROR_NONE;
}

enum error_code state_apply_members(struct state *state, uint64_t index, const uint8_t *bytes,
                                    size_t size, struct state_outcome *outcome, struct error *err)
{
    struct members *members = mem_new(sizeof *members);
    *outcome = (struct state_outcome){0};
    enum error_code code = ERROR_NO_MEMORY;
    if (!members || need_root(state, err)) {
        mem_free(members);
        return members ? code : error_set(err, code, "state: not enough memory for the members");
    }
    code = ERROR_NONE;
    const bool good = members_decode(bytes, size, members, NULL) == ERROR_NONE;
    if (good)
        code = replace_members(state->root, members, err);
    mem_free(members);
    if (!code)
        conclude(state->root, index, good ? NULL : "it is no list of members", outcome);
    return code;
}

/* ---- snapshots ---- */

void state_encode(const struct state *state, struct buffer *out)
{
    if (state->root)
        message_encode(&state->root->base, out);
}

static bool good_snapshot(const Cluster__State *s)
{
    bool good = s->n_nodes <= LIMIT_CLUSTER_NODES && s->n_models <= LIMIT_CLUSTER_MODELS &&
                s->n_instances <= LIMIT_CLUSTER_INSTANCES &&
                s->n_settings <= LIMIT_CLUSTER_SETTINGS && s->n_removed <= LIMIT_CLUSTER_REMOVED &&
                (!s->has_cluster ||
                 (s->cluster.len == CLUSTER_ID_BYTES && s->authority.len == PUBLIC_KEY_BYTES)) &&
                (!s->has_former_authority || s->former_authority.len == PUBLIC_KEY_BYTES);
    for (size_t i = 0; i < s->n_nodes && good; i++)
        good = s->nodes[i]->node && good_text(s->nodes[i]->node->id);
    for (size_t i = 0; i < s->n_links && good; i++)
        good = good_text(s->links[i]->from) && good_text(s->links[i]->to);
    for (size_t i = 0; i < s->n_models && good; i++)
        good = good_text(s->models[i]->name);
    for (size_t i = 0; i < s->n_instances && good; i++)
        good = good_text(s->instances[i]->id) &&
               strlen(s->instances[i]->id) <= LIMIT_CLUSTER_ID_BYTES &&
               good_text(s->instances[i]->model) && s->instances[i]->demand;
    for (size_t i = 0; i < s->n_settings && good; i++)
        good = good_text(s->settings[i]->key);
    return good && good_tokens(s) && good_alerts(s) && good_audit_end(s->audit);
}

/* Every live epoch is there once, and none is above the last. */
static bool good_epochs(const Cluster__State *s)
{
    for (size_t i = 0; i < s->n_instances; i++) {
        const Cluster__Placement *const own[] = {s->instances[i]->current, s->instances[i]->next};
        for (int k = 0; k < 2; k++) {
            if (!own[k])
                continue;
            if (own[k]->epoch == 0 || own[k]->epoch > s->last_epoch ||
                (k && own[0] && own[0]->epoch >= own[1]->epoch))
                return false;
            for (size_t j = 0; j < i; j++) {
                const Cluster__Instance *other = s->instances[j];
                if ((other->current && other->current->epoch == own[k]->epoch) ||
                    (other->next && other->next->epoch == own[k]->epoch))
                    return false;
            }
        }
    }
    return true;
}

enum error_code state_decode(struct state *state, const uint8_t *bytes, size_t size,
                             struct error *err)
{
    ProtobufCMessage *message = NULL;
    if (size > LIMIT_CLUSTER_SNAPSHOT_BYTES)
        return error_set(err, ERROR_INVALID,
                         "state: a snapshot of %zu bytes; at most %d are possible", size,
                         LIMIT_CLUSTER_SNAPSHOT_BYTES);
    if (message_decode(&cluster__state__descriptor, bytes, size, &message, err))
        return error_wrap(err, "state");
    Cluster__State *root = (Cluster__State *)message;
    if (!good_snapshot(root) || !good_epochs(root)) {
        message_free(message);
        return error_set(err, ERROR_INVALID, "state: impossible snapshot: no events lead to it");
    }
    state_deinit(state);
    state->root = root;
    return ERROR_NONE;
}

void state_deinit(struct state *state)
{
    if (state->root)
        message_free(&state->root->base);
    state->root = NULL;
}

/* ---- questions ---- */

const Cluster__NodeRecord *state_node(const struct state *state, const char *id)
{
    for (size_t i = 0; state->root && i < state->root->n_nodes; i++) {
        if (same_text(state->root->nodes[i]->node->id, id))
            return state->root->nodes[i];
    }
    return NULL;
}

const Cluster__NodeRecord *state_node_of_member(const struct state *state, uint64_t member)
{
    for (size_t i = 0; member && state->root && i < state->root->n_nodes; i++) {
        if (state->root->nodes[i]->node->member == member)
            return state->root->nodes[i];
    }
    return NULL;
}

bool state_is_ready(const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (placement->stages[i]->state != CLUSTER__STAGE_STATE__READY)
            return false;
    }
    return placement && placement->n_stages;
}

const Cluster__Device *state_device(const Cluster__NodeRecord *node, const char *id)
{
    for (size_t i = 0; node && i < node->node->n_devices; i++) {
        if (same_text(node->node->devices[i]->id, id))
            return node->node->devices[i];
    }
    return NULL;
}

const Cluster__Model *state_model(const struct state *state, const char *name)
{
    for (size_t i = 0; state->root && i < state->root->n_models; i++) {
        if (same_text(state->root->models[i]->name, name))
            return state->root->models[i];
    }
    return NULL;
}

const Cluster__Instance *state_instance(const struct state *state, const char *id)
{
    for (size_t i = 0; state->root && i < state->root->n_instances; i++) {
        if (same_text(state->root->instances[i]->id, id))
            return state->root->instances[i];
    }
    return NULL;
}

const Cluster__Instance *state_draft_instance(const struct state *state,
                                              const Cluster__Instance *instance)
{
    const Cluster__Demand *demand = instance->demand;
    const bool is_wanted_here = demand->draft_device && demand->draft_device[0];
    for (size_t i = 0; demand->draft && !is_wanted_here && i < state->root->n_instances; i++) {
        const Cluster__Instance *one = state->root->instances[i];
        if (one != instance && one->active && same_text(one->model, demand->draft) &&
            !one->demand->draft)
            return one;
    }
    return NULL;
}

static bool placement_has_node(const Cluster__Placement *placement, const char *node)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        if (same_text(placement->stages[i]->node, node))
            return true;
    }
    return false;
}

static bool instance_avoids(const Cluster__Instance *instance, const Cluster__Placement *placement)
{
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const char *node = placement->stages[i]->node;
        if (placement_has_node(instance->current, node) || placement_has_node(instance->next, node))
            return false;
    }
    return true;
}

bool state_are_apart(const Cluster__Instance *a, const Cluster__Instance *b)
{
    return instance_avoids(a, b->current) && instance_avoids(a, b->next);
}

const char *state_setting(const struct state *state, const char *key)
{
    for (size_t i = 0; state->root && i < state->root->n_settings; i++) {
        if (same_text(state->root->settings[i]->key, key))
            return state->root->settings[i]->value;
    }
    return NULL;
}

bool state_is_drained(const struct state *state, const char *node)
{
    const size_t n = strlen(STATE_DRAIN);
    for (size_t i = 0; state->root && i < state->root->n_settings; i++) {
        const char *key = state->root->settings[i]->key;
        if (strncmp(key, STATE_DRAIN, n) == 0 && strcmp(key + n, node) == 0)
            return true;
    }
    return false;
}

bool state_moves(const struct state *state)
{
    const char *moves = state_setting(state, "moves");
    return !moves || strcmp(moves, "off") != 0;
}

uint32_t state_level(const struct state *state)
{
    uint32_t level = UINT32_MAX;
    for (size_t i = 0; state->root && i < state->root->n_nodes; i++) {
        if (state->root->nodes[i]->admitted && state->root->nodes[i]->node->level < level)
            level = state->root->nodes[i]->node->level;
    }
    return level == UINT32_MAX ? 0 : level;
}

struct lineage state_lineage(const struct state *state)
{
    return state->root ? (struct lineage){state->root->generation, state->root->founder}
                       : (struct lineage){0};
}

uint64_t state_epoch(const Cluster__Instance *instance)
{
    return instance->next      ? instance->next->epoch
           : instance->current ? instance->current->epoch
                               : 0;
}
