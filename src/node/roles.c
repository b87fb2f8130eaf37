#include "node/roles.h"

#include "agreement/agreement.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "node/daemon_state.h"
#include "node/rotation.h"
#include "node/sign.h"
#include "trust/credentials.h"
#include "trust/identity_files.h"

#include <string.h>

enum { ROLES_AGAIN_MS = 5000, DROP_KEY_MS = 10000 };

/* ---- who may ------------------------------------------------------------------------------- */

void roles_name_admins(const struct daemon *daemon, struct buffer *out)
{
    const struct state *state = daemon_state(daemon);
    for (size_t i = 0; state->root && i < state->root->n_nodes; i++) {
        const Cluster__Node *node = state->root->nodes[i]->node;
        if (state_is_admin(state, node->id))
            buffer_printf(out, "%s%.63s", out->size ? ", " : "", node->name);
    }
}

enum error_code roles_require_admin(const struct daemon *daemon, struct error *err)
{
    struct buffer names = {0};
    const struct state *state = daemon_state(daemon);
    if (state_is_admin(state, daemon->id) ||
        (!state_has_roles(state) && daemon->membership.authority.key))
        return ERROR_NONE; /* the founder, as soon as it is asked */
    roles_name_admins(daemon, &names);
    error_set(err, ERROR_UNSUPPORTED,
              "this machine is a plain member of the cluster: ask an admin (%.400s)",
              names.size ? names.data : "none is known yet");
    buffer_deinit(&names);
    return ERROR_UNSUPPORTED;
}

/* ---- giving roles ---- */

enum error_code roles_change(struct daemon *daemon, const char *id, Cluster__Role role,
                             struct role_change *out, struct error *err)
{
    struct authority *authority = &daemon->membership.authority;
    cluster__event__init(&out->event);
    cluster__node_role__init(&out->to);
    out->to.id = (char *)(uintptr_t)id;
    out->to.has_role = out->to.has_cluster = out->to.has_authority = true;
    out->to.role = role;
    out->to.cluster = (ProtobufCBinaryData){CLUSTER_ID_BYTES, authority->cluster_id};
    out->to.authority = (ProtobufCBinaryData){sizeof out->public_key, out->public_key};
    out->event.kind_case = CLUSTER__EVENT__KIND_NODE_ROLE;
    out->event.node_role = &out->to;
    return authority_public_key(authority, out->public_key, err);
}

/* The founder is the cluster's one node still. A cluster of before becomes one with roles when
 * somebody gives the first. */
bool roles_are_beginning(const struct daemon *daemon)
{
    const struct state *state = daemon_state(daemon);
    return !state_has_roles(state) && state_n_admins(state) == 1 &&
           state_is_admin(state, daemon->id) && daemon->membership.authority.key &&
           state_level(state) >= CLUSTER__EVENT__KIND_NODE_ROLE;
}

/* The state knows which log it follows. A proof signed before it does is for another log, and the
 * record of the cluster would begin with a refusal. */
static bool roles_know_lineage(const struct daemon *daemon)
{
    const struct replica_status status = agreement_status(daemon->agreement);
    return lineage_compare(state_lineage(daemon_state(daemon)), status.lineage) == 0;
}

void roles_begin(struct daemon *daemon)
{
    struct role_change change;
    struct error err;
    if (!roles_are_beginning(daemon) || !roles_know_lineage(daemon))
        return;
    if (roles_change(daemon, daemon->id, CLUSTER__ROLE__ADMIN, &change, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
    else
        agreement_propose(daemon->agreement, &change.event, NULL, NULL);
}

/* Who came with a code for an admin becomes one when it has said that its version knows roles. */
static void promote_newcomer(struct daemon *daemon)
{
    const struct state *state = daemon_state(daemon);
    const Cluster__NodeRecord *record = state_node(state, daemon->promotes);
    struct role_change change;
    struct error err;
    if (!daemon->promotes[0] || (record && record->node->level < CLUSTER__EVENT__KIND_NODE_ROLE))
        return;
    const bool wanted = record && !state_is_admin(state, daemon->promotes);
    if (wanted && roles_change(daemon, record->node->id, CLUSTER__ROLE__ADMIN, &change, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
    else if (wanted)
        agreement_propose(daemon->agreement, &change.event, NULL, NULL);
    daemon->promotes[0] = 0;
}

/* ---- what it must hold ---- */

enum error_code roles_keep_membership(struct daemon *daemon, struct error *err)
{
    char folder[PATH_MAX];
    enum error_code code = durable_path(daemon->folder, "identity", "", folder, err);
    if (!code)
        code = membership_store(folder, &daemon->membership, err);
    return code ? code : credentials_renew(daemon->credentials, &daemon->membership, err);
}

static void on_certificate(struct daemon *daemon, const Node__SignAnswer *answer,
                           const struct error *problem)
{
    struct error err;
    if (problem) {
        log_line(LOG_WARN, "node", "this node's certificate was not renewed: %s", problem->text);
        return;
    }
    X509 *made = certificate_decode(answer->certificate.data, answer->certificate.len);
    if (made && rotation_take_certificate(daemon, made)) {
        certificate_free(made);
        return;
    }
    enum error_code code =
        made ? membership_set_certificate(&daemon->membership, &daemon->identity, made, &err)
             : error_set(&err, ERROR_INVALID, "an admin sent something that is no certificate");
    certificate_free(made);
    if (!code)
        code = roles_keep_membership(daemon, &err);
    log_line(code ? LOG_WARN : LOG_INFO, "node", "%s",
             code ? err.text : "this node's certificate was renewed by an admin");
}

static void on_key(struct daemon *daemon, const Node__SignAnswer *answer,
                   const struct error *problem)
{
    struct error err;
    if (problem) {
        log_line(LOG_WARN, "node", "the authority's key was not handed over: %s", problem->text);
        return;
    }
    if (answer->key.len == AUTHORITY_KEY_BYTES && rotation_take_key(daemon, answer->key.data))
        return;
    enum error_code code =
        answer->key.len == AUTHORITY_KEY_BYTES
            ? authority_take_key(&daemon->membership.authority, answer->key.data, &err)
            : error_set(&err, ERROR_INVALID, "an admin sent something that is no key");
    if (!code)
        code = roles_keep_membership(daemon, &err);
    if (code)
        log_line(LOG_WARN, "node", "%s", err.text);
    else
        daemon_say(daemon, "this machine is an admin of its cluster now");
}

void roles_ask(struct daemon *daemon, Node__SignWhat what, const uint8_t *authority)
{
    const sign_done_fn done = what == NODE__SIGN_WHAT__SIGN_KEY ? on_key : on_certificate;
    Node__SignRequest request = NODE__SIGN_REQUEST__INIT;
    struct error err;
    request.has_what = request.has_public_key = true;
    request.what = what;
    request.public_key =
        (ProtobufCBinaryData){sizeof daemon->identity.public_key, daemon->identity.public_key};
    request.has_authority = authority != NULL;
    request.authority =
        (ProtobufCBinaryData){authority ? PUBLIC_KEY_BYTES : 0, (uint8_t *)(uintptr_t)authority};
    if (sign_ask(daemon, &request, done, &err) == ERROR_NOT_FOUND)
        log_line(LOG_WARN, "node", "%s", err.text);
}

/* A node that begins sees its log's past first: what it is not then, it may become a moment later.
 * So the key goes only when the node has known all of the log for a while. */
static bool is_plain_for_sure(struct daemon *daemon)
{
    const struct replica_status status = agreement_status(daemon->agreement);
    const uint64_t now_ms = daemon_now_ms(daemon);
    const struct state *state = daemon_state(daemon);
    const bool plain = state_has_roles(state) && state_node(state, daemon->id) &&
                       !state_is_admin(state, daemon->id) && status.leader && !status.leads &&
                       status.applied == status.last;
    if (!plain)
        daemon->plain_since_ms = 0;
    else if (!daemon->plain_since_ms)
        daemon->plain_since_ms = now_ms;
    return plain && now_ms - daemon->plain_since_ms >= DROP_KEY_MS;
}

static void drop_key(struct daemon *daemon)
{
    struct error err;
    authority_drop_key(&daemon->membership.authority);
    authority_drop_key(&daemon->membership.next);
    if (roles_keep_membership(daemon, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
    daemon_say(daemon, "this machine is a plain member now: it has given up the authority's key");
}

void roles_step(struct daemon *daemon)
{
    const uint64_t now_ms = daemon_now_ms(daemon);
    const bool has_key = daemon->membership.authority.key != NULL;
    const bool lacks_key = !has_key && state_is_admin(daemon_state(daemon), daemon->id);
    const bool is_due = !has_key && membership_is_due(&daemon->membership, daemon_wall_ms() / 1000);
    sign_step(daemon);
    promote_newcomer(daemon);
    rotation_step(daemon);
    if (has_key && is_plain_for_sure(daemon))
        drop_key(daemon);
    const bool begins = roles_are_beginning(daemon) && roles_know_lineage(daemon);
    if ((!lacks_key && !is_due && !begins) ||
        (daemon->roles_ms && now_ms - daemon->roles_ms < ROLES_AGAIN_MS))
        return;
    daemon->roles_ms = now_ms;
    roles_begin(daemon);
    if (lacks_key)
        roles_ask(daemon, NODE__SIGN_WHAT__SIGN_KEY, NULL);
    else if (is_due)
        roles_ask(daemon, NODE__SIGN_WHAT__SIGN_NODE, NULL);
}
