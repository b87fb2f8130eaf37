/* Who may change who belongs to the cluster, and who never comes back. */
#include "cluster/state_impl.h"

#include "base/limits.h"
#include "base/mem.h"
#include "trust/authority.h"
#include "trust/signature.h"

#include <assert.h>
#include <string.h>

static Cluster__NodeRecord *roles_find(const Cluster__State *s, const char *id)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (same_text(s->nodes[i]->node->id, id))
            return s->nodes[i];
    }
    return NULL;
}

static bool record_is_admin(const Cluster__State *s, const Cluster__NodeRecord *record)
{
    return record->admitted && (!s->has_cluster || record->role == CLUSTER__ROLE__ADMIN);
}

bool roles_is_member(const Cluster__State *s, const char *id)
{
    const Cluster__NodeRecord *record = roles_find(s, id);
    return record && record->admitted;
}

bool roles_is_admin(const Cluster__State *s, const char *id)
{
    const Cluster__NodeRecord *record = roles_find(s, id);
    return record && record_is_admin(s, record);
}

uint32_t roles_n_admins(const Cluster__State *s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s->n_nodes; i++)
        n += record_is_admin(s, s->nodes[i]);
    return n;
}

/* ---- roles ---- */

static void give_role(Cluster__NodeRecord *record, Cluster__Role role)
{
    record->has_role = true;
    record->role = role;
}

/* The cluster is one with roles from now on. */
static const char *begin_roles(Cluster__State *s, Cluster__NodeRole *first)
{
    if (first->cluster.len != CLUSTER_ID_BYTES || first->authority.len != PUBLIC_KEY_BYTES)
        return "it begins the roles, without the cluster's id or its authority's key";
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (s->nodes[i]->admitted)
            give_role(s->nodes[i], CLUSTER__ROLE__ADMIN);
    }
    s->cluster = first->cluster;
    s->authority = first->authority;
    s->has_cluster = s->has_authority = true;
    first->cluster = first->authority = (ProtobufCBinaryData){0};
    return NULL;
}

const char *apply_node_role(Cluster__State *s, Cluster__Event *e)
{
    Cluster__NodeRole *to = e->node_role;
    Cluster__NodeRecord *record = roles_find(s, to->id);
    const bool is_admin = record && record_is_admin(s, record), begins = !s->has_cluster;
    if (!record || !record->admitted)
        return "there is no such node, or it was not let in";
    if (to->role != CLUSTER__ROLE__ADMIN && to->role != CLUSTER__ROLE__MEMBER)
        return "this version does not know the role";
    if (!begins && is_admin == (to->role == CLUSTER__ROLE__ADMIN))
        return "the node has this role already";
    if (to->role == CLUSTER__ROLE__MEMBER && roles_n_admins(s) == 1)
        return "it is the last admin: make another node one first";
    const char *reason = begins ? begin_roles(s, to) : NULL;
    if (!reason)
        give_role(record, to->role);
    return reason;
}

/* ---- the authority ---- */

const char *apply_authority_rotated(Cluster__State *s, Cluster__Event *e)
{
    Cluster__AuthorityRotated *to = e->authority_rotated;
    if (!s->has_cluster)
        return "the cluster has no roles yet";
    if (s->has_former_authority)
        return "the last rotation is not over: `medley authority retire` ends it";
    if (to->public_key.len != PUBLIC_KEY_BYTES || to->signature.len != SIGNATURE_BYTES ||
        !to->certificate.len || to->certificate.len > LIMIT_CLUSTER_CERTIFICATE_BYTES)
        return "it names no authority";
    if (!authority_endorsed(s->authority.data, s->cluster.data, to->public_key.data,
                            to->signature.data))
        return "the old authority has not signed for the new one";
    const ProtobufCBinaryData before = s->authority_certificate;
    s->former_authority = s->authority;
    s->authority = to->public_key;
    s->authority_certificate = to->certificate;
    s->has_former_authority = s->has_authority_certificate = s->has_former_until_ms = true;
    s->former_until_ms = e->time_ms + to->grace_ms;
    to->public_key = (ProtobufCBinaryData){0};
    to->certificate = before; /* is freed with the event */
    return NULL;
}

const char *apply_authority_retired(Cluster__State *s, Cluster__Event *e)
{
    const ProtobufCBinaryData *old = &e->authority_retired->public_key;
    if (!s->has_former_authority || old->len != PUBLIC_KEY_BYTES ||
        memcmp(old->data, s->former_authority.data, PUBLIC_KEY_BYTES) != 0)
        return "there is no old authority to retire, or it is another one";
    mem_free(s->former_authority.data);
    s->former_authority = (ProtobufCBinaryData){0};
    s->has_former_authority = s->has_former_until_ms = false;
    s->former_until_ms = 0;
    return NULL;
}

/* ---- who was removed ---- */

bool roles_was_removed(const Cluster__State *s, const char *id)
{
    for (size_t i = 0; i < s->n_removed; i++) {
        if (same_text(s->removed[i], id))
            return true;
    }
    return false;
}

bool roles_note_removed(Cluster__State *s, const char *id)
{
    assert(s->n_removed <= LIMIT_CLUSTER_REMOVED && id);
    char *copy = mem_copy_text(id, strlen(id));
    if (!copy || !list_reserve(&s->removed, s->n_removed)) {
        mem_free(copy);
        return false;
    }
    if (s->n_removed == LIMIT_CLUSTER_REMOVED) {
        mem_free(s->removed[0]);
        memmove(s->removed, s->removed + 1, --s->n_removed * sizeof *s->removed);
    }
    LIST_ADD(s->removed, s->n_removed, copy);
    return true;
}

/* ---- questions ---- */

bool state_has_roles(const struct state *state)
{
    return state->root && state->root->has_cluster;
}

bool state_is_admin(const struct state *state, const char *id)
{
    return state->root && roles_is_admin(state->root, id);
}

uint32_t state_n_admins(const struct state *state)
{
    return state->root ? roles_n_admins(state->root) : 0;
}

bool state_was_removed(const struct state *state, const char *id)
{
    return state->root && roles_was_removed(state->root, id);
}
