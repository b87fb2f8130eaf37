#include "agreement/claims.h"

#include "base/limits.h"
#include "join/join_message.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    ABOUT_BYTES_MAX = LIMIT_CLUSTER_ENTRY_BYTES / 2,
    ADDRESSES_MAX = 64,
    HELD_MAX = 4096,
    TELL_WHAT_MAX = 160
};

static bool is_sender(const char *id, const char *sender)
{
    return id && strcmp(id, sender) == 0;
}

static bool are_own(const Cluster__Links *links, const char *sender)
{
    for (size_t i = 0; i < links->n_links; i++) {
        if (!is_sender(links->links[i]->from, sender))
            return false;
    }
    return true;
}

bool claims_event(const Cluster__Event *event, const char *sender)
{
    assert(sender && *sender);
    if (!is_sender(event->by, sender))
        return false;
    switch (event->kind_case) {
    case CLUSTER__EVENT__KIND_NODE_UPDATED:
        return is_sender(event->node_updated->id, sender);
    case CLUSTER__EVENT__KIND_LINKS_MEASURED:
        return are_own(event->links_measured, sender);
    case CLUSTER__EVENT__KIND_STAGE_REPORTED:
        return is_sender(event->stage_reported->node, sender);
    case CLUSTER__EVENT__KIND_MEMORY_STEPPED:
        return is_sender(event->memory_stepped->node, sender);
    case CLUSTER__EVENT__KIND_INSTANCE_PLACED:
        return event->instance_placed->placement && event->instance_placed->placement->by_hand;
    case CLUSTER__EVENT__KIND_INSTANCE_ABANDONED:
    case CLUSTER__EVENT__KIND_REFOUNDED:
    case CLUSTER__EVENT__KIND_ALERT_RAISED:
    case CLUSTER__EVENT__KIND_ALERT_CLEARED:
        return false;
    case CLUSTER__EVENT__KIND_NODE_JOINED:
    case CLUSTER__EVENT__KIND_NODE_ADMITTED:
    case CLUSTER__EVENT__KIND_NODE_REMOVED:
    case CLUSTER__EVENT__KIND_AUTHORITY_ROTATED:
    case CLUSTER__EVENT__KIND_AUTHORITY_RETIRED:
    case CLUSTER__EVENT__KIND_NODE_ROLE: /* its proof says who may: cluster/proof.h */
    case CLUSTER__EVENT__KIND_MODEL_REGISTERED:
    case CLUSTER__EVENT__KIND_MODEL_FORGOTTEN:
    case CLUSTER__EVENT__KIND_INSTANCE_DESIRED:
    case CLUSTER__EVENT__KIND_INSTANCE_TARGET:
    case CLUSTER__EVENT__KIND_INSTANCE_STOPPED:
    case CLUSTER__EVENT__KIND_SETTING_CHANGED:
    case CLUSTER__EVENT__KIND_TOKEN_CREATED:
    case CLUSTER__EVENT__KIND_TOKEN_REVOKED:
    case CLUSTER__EVENT__KIND_AUDITED:  /* every entry of it says who told it */
    case CLUSTER__EVENT__KIND__NOT_SET: /* of a newer version */
    case _CLUSTER__EVENT__KIND__CASE_IS_INT_SIZE:
        break;
    }
    return true;
}

uint64_t claims_member(const struct state *state, const char *sender, uint64_t member, bool agreed)
{
    assert(sender && *sender);
    const Cluster__NodeRecord *owner = state_node_of_member(state, member);
    if (owner)
        return is_sender(owner->node->id, sender) ? member : 0;
    return agreed && state_node(state, sender) ? 0 : member;
}

static bool are_devices(const Cluster__Node *about)
{
    if (about->n_devices > LIMIT_DEVICES)
        return false;
    for (size_t i = 0; i < about->n_devices; i++) {
        const char *id = about->devices[i]->id;
        if (!id || !*id || strlen(id) > LIMIT_CLUSTER_TEXT_BYTES)
            return false;
        for (size_t j = 0; j < i; j++) {
            if (strcmp(id, about->devices[j]->id) == 0)
                return false;
        }
    }
    return true;
}

enum error_code claims_about(const Cluster__Node *about, size_t size, const char *sender,
                             struct error *err)
{
    assert(sender && *sender);
    if (!is_sender(about->id, sender))
        return error_set(err, ERROR_INVALID, "a node claims to be another one");
    if (!about->name || !join_name_is_valid(about->name, strlen(about->name)) || !about->member)
        return error_set(err, ERROR_INVALID, "a node has no valid name or member id");
    if (size > ABOUT_BYTES_MAX || about->n_addresses > ADDRESSES_MAX || !are_devices(about))
        return error_set(err, ERROR_INVALID,
                         "a node describes more than a node can have, or two devices with one id");
    return ERROR_NONE;
}

static bool are_problems(const Node__Now *now)
{
    for (size_t i = 0; i < now->n_problems; i++) {
        const char *text = now->problems[i]->text;
        if (text && strlen(text) > LIMIT_CLUSTER_TEXT_BYTES)
            return false;
    }
    return now->n_problems <= LIMIT_CLUSTER_INSTANCES;
}

static bool are_tells(const Node__Now *now)
{
    for (size_t i = 0; i < now->n_tells; i++) {
        const Node__AlertTell *tell = now->tells[i];
        if (!tell->kind || strlen(tell->kind) > LIMIT_CLUSTER_ID_BYTES ||
            (tell->what && strlen(tell->what) > TELL_WHAT_MAX) ||
            (tell->has_value && !isfinite(tell->value)))
            return false;
    }
    return true;
}

static bool are_copies_and_loans(const Node__Now *now)
{
    for (size_t i = 0; i < now->n_survivals; i++) {
        const char *limit = now->survivals[i]->limit;
        if (limit && strlen(limit) > LIMIT_CLUSTER_ID_BYTES)
            return false;
    }
    if (now->lends_nothing && strlen(now->lends_nothing) > LIMIT_CLUSTER_TEXT_BYTES)
        return false;
    return now->n_on_disk <= LIMIT_SPREAD_RANGES && now->n_spare_copies <= LIMIT_SPREAD_RANGES &&
           now->n_survivals <= LIMIT_CLUSTER_INSTANCES;
}

enum error_code claims_now(const Node__Now *now, struct error *err)
{
    if (are_copies_and_loans(now) && now->n_tells <= LIMIT_ALERT_TELLS && are_tells(now) &&
        now->n_devices <= LIMIT_DEVICES && now->n_uses <= LIMIT_CLUSTER_INSTANCES &&
        now->n_held <= HELD_MAX && now->n_unreached <= LIMIT_CLUSTER_NODES && are_problems(now))
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "a node reports more than a node can have");
}
