#include "node/rotation.h"

#include "agreement/agreement.h"
#include "base/log.h"
#include "base/mem.h"
#include "mesh/frames.h"
#include "node/daemon_state.h"
#include "node/peers.h"
#include "node/roles.h"
#include "trust/credentials.h"

#include <assert.h>
#include <string.h>

enum { ROTATION_AGAIN_MS = 5000 };

/* ---- what the state says ---- */

static const Cluster__State *rotation_state(const struct daemon *daemon)
{
    return daemon_state(daemon)->root;
}

static bool rotation_is_under_way(const struct daemon *daemon)
{
    const Cluster__State *root = rotation_state(daemon);
    return root && root->has_former_authority;
}

/* Every member has a certificate of the new authority, as it says. */
static bool all_have_certificates(const Cluster__State *root)
{
    for (size_t i = 0; i < root->n_nodes; i++) {
        const ProtobufCBinaryData *has = &root->nodes[i]->node->authority;
        if (root->nodes[i]->admitted &&
            (has->len != PUBLIC_KEY_BYTES ||
             memcmp(has->data, root->authority.data, PUBLIC_KEY_BYTES) != 0))
            return false;
    }
    return true;
}

/* ---- beginning and end ---- */

void rotation_change_deinit(struct rotation_change *change)
{
    buffer_deinit(&change->certificate);
}

/* Its own certificate comes with it: who proposes must not have to ask. */
static enum error_code make_next(struct daemon *daemon, struct error *err)
{
    struct membership *membership = &daemon->membership;
    struct authority next;
    X509 *own = NULL;
    enum error_code code = authority_make_next(&membership->authority, &next, err);
    if (!code)
        code = membership_expect(membership, &next, err);
    if (!code)
        code = authority_sign(&membership->next, daemon->identity.public_key,
                              daemon_wall_ms() / 1000, &own, err);
    if (!code)
        code = membership_set_next_certificate(membership, &daemon->identity, own, err);
    certificate_free(own);
    return code ? code : roles_keep_membership(daemon, err);
}

enum error_code rotation_begin(struct daemon *daemon, uint64_t grace_ms,
                               struct rotation_change *out, struct error *err)
{
    *out = (struct rotation_change){.event = CLUSTER__EVENT__INIT,
                                    .rotated = CLUSTER__AUTHORITY_ROTATED__INIT};
    if (!daemon->membership.authority.key)
        return error_set(err, ERROR_BUSY,
                         "this admin does not have the authority's key yet: try again soon");
    if (rotation_is_under_way(daemon))
        return error_set(err, ERROR_BUSY,
                         "the last rotation is not over: `medley authority retire` ends it");
    enum error_code code = make_next(daemon, err);
    if (!code)
        code = authority_public_key(&daemon->membership.next, out->public_key, err);
    if (!code)
        code =
            authority_endorse(&daemon->membership.authority, out->public_key, out->signature, err);
    if (!code)
        code = certificate_encode(daemon->membership.next.certificate, &out->certificate, err);
    out->event.kind_case = CLUSTER__EVENT__KIND_AUTHORITY_ROTATED;
    out->event.authority_rotated = &out->rotated;
    out->rotated.has_certificate = out->rotated.has_public_key = true;
    out->rotated.has_signature = out->rotated.has_grace_ms = true;
    out->rotated.certificate =
        (ProtobufCBinaryData){out->certificate.size, (uint8_t *)out->certificate.data};
    out->rotated.public_key = (ProtobufCBinaryData){sizeof out->public_key, out->public_key};
    out->rotated.signature = (ProtobufCBinaryData){sizeof out->signature, out->signature};
    out->rotated.grace_ms = grace_ms;
    return code;
}

enum error_code rotation_retire(struct daemon *daemon, struct rotation_change *out,
                                struct error *err)
{
    const Cluster__State *root = rotation_state(daemon);
    *out = (struct rotation_change){.event = CLUSTER__EVENT__INIT,
                                    .retired = CLUSTER__AUTHORITY_RETIRED__INIT};
    if (!rotation_is_under_way(daemon))
        return error_set(err, ERROR_INVALID, "there is no old authority: no rotation is under way");
    memcpy(out->public_key, root->former_authority.data, sizeof out->public_key);
    out->event.kind_case = CLUSTER__EVENT__KIND_AUTHORITY_RETIRED;
    out->event.authority_retired = &out->retired;
    out->retired.has_public_key = true;
    out->retired.public_key = (ProtobufCBinaryData){sizeof out->public_key, out->public_key};
    return ERROR_NONE;
}

static void propose_end(struct daemon *daemon)
{
    struct rotation_change change;
    struct error err;
    if (!rotation_retire(daemon, &change, &err))
        agreement_propose(daemon->agreement, &change.event, NULL, NULL);
    rotation_change_deinit(&change);
}

/* ---- what this node holds ---- */

static void say_problem_of_rotation(const struct error *err)
{
    log_line(LOG_WARN, "node", "the new authority: %s", err->text);
}

static void expect_next(struct daemon *daemon)
{
    const Cluster__State *root = rotation_state(daemon);
    struct authority next = {.certificate = certificate_decode(root->authority_certificate.data,
                                                               root->authority_certificate.len)};
    struct error err;
    memcpy(next.cluster_id, daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES);
    if (!next.certificate || !authority_is(&next, root->authority.data)) {
        authority_deinit(&next);
        error_set(&err, ERROR_INVALID, "its certificate is not one, or another's");
        say_problem_of_rotation(&err);
        return;
    }
    enum error_code code = membership_expect(&daemon->membership, &next, &err);
    if (!code)
        code = roles_keep_membership(daemon, &err);
    if (code)
        say_problem_of_rotation(&err);
}

/* ABOUT, to all: with that, others know that the old authority can go. */
static void tell_certificate(struct daemon *daemon)
{
    const Cluster__State *root = rotation_state(daemon);
    uint8_t *copy = mem_new(PUBLIC_KEY_BYTES);
    if (!copy)
        return;
    memcpy(copy, root->authority.data, PUBLIC_KEY_BYTES);
    mem_free(daemon->self->authority.data);
    daemon->self->has_authority = true;
    daemon->self->authority = (ProtobufCBinaryData){PUBLIC_KEY_BYTES, copy};
    daemon_tell_about(daemon);
}

static bool has_told(const struct daemon *daemon)
{
    const ProtobufCBinaryData *told = &daemon->self->authority;
    return told->len == PUBLIC_KEY_BYTES &&
           memcmp(told->data, rotation_state(daemon)->authority.data, PUBLIC_KEY_BYTES) == 0;
}

static void promote_next(struct daemon *daemon)
{
    struct error err;
    membership_promote(&daemon->membership);
    if (roles_keep_membership(daemon, &err))
        say_problem_of_rotation(&err);
    daemon_say(daemon, "the cluster's authority has a new key; the old one is not believed any "
                       "more");
}

bool rotation_take_certificate(struct daemon *daemon, X509 *certificate)
{
    struct error err;
    if (!daemon->membership.next.certificate ||
        membership_set_next_certificate(&daemon->membership, &daemon->identity, certificate, &err))
        return false;
    if (roles_keep_membership(daemon, &err))
        say_problem_of_rotation(&err);
    return true;
}

bool rotation_take_key(struct daemon *daemon, const uint8_t key[AUTHORITY_KEY_BYTES])
{
    struct error err;
    if (!daemon->membership.next.certificate ||
        authority_take_key(&daemon->membership.next, key, &err))
        return false;
    if (roles_keep_membership(daemon, &err))
        say_problem_of_rotation(&err);
    return true;
}

/* ---- the step ---- */

static void ask_for_what_lacks(struct daemon *daemon, bool is_admin)
{
    const struct membership *membership = &daemon->membership;
    const uint64_t now_ms = daemon_now_ms(daemon);
    const bool lacks_key = is_admin && !membership->next.key;
    if ((!lacks_key && membership->next_certificate) ||
        (daemon->rotation_ms && now_ms - daemon->rotation_ms < ROTATION_AGAIN_MS))
        return;
    daemon->rotation_ms = now_ms;
    roles_ask(daemon,
              membership->next_certificate ? NODE__SIGN_WHAT__SIGN_KEY : NODE__SIGN_WHAT__SIGN_NODE,
              rotation_state(daemon)->authority.data);
}

static void look_at_grace(struct daemon *daemon)
{
    const Cluster__State *root = rotation_state(daemon);
    const uint64_t now_ms = daemon_now_ms(daemon);
    if (!all_have_certificates(root) && daemon_wall_ms() < root->former_until_ms)
        return;
    if (daemon->retire_ms && now_ms - daemon->retire_ms < ROTATION_AGAIN_MS)
        return;
    daemon->retire_ms = now_ms;
    propose_end(daemon);
}

void rotation_step(struct daemon *daemon)
{
    const Cluster__State *root = rotation_state(daemon);
    const bool is_admin = state_is_admin(daemon_state(daemon), daemon->id);
    if (!root || !root->has_authority_certificate || !daemon->self)
        return;
    if (authority_is(&daemon->membership.authority, root->authority.data)) {
        if (!has_told(daemon))
            tell_certificate(daemon);
        return;
    }
    if (!authority_is(&daemon->membership.next, root->authority.data))
        expect_next(daemon);
    if (!authority_is(&daemon->membership.next, root->authority.data))
        return;
    ask_for_what_lacks(daemon, is_admin);
    if (!daemon->membership.next_certificate)
        return;
    if (!has_told(daemon))
        tell_certificate(daemon);
    if (!root->has_former_authority)
        promote_next(daemon);
    else if (is_admin && daemon->membership.next.key)
        look_at_grace(daemon);
}
