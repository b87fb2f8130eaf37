/* From a machine with keys to a member: founding a cluster, opening a member's parts, leaving. */
#include "node/daemon_state.h"
#include "node/gathering.h"

#include "agreement/agreement.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/version.h"
#include "cluster/event.h"
#include "hosting/carrier.h"
#include "hosting/hosting.h"
#include "join/admission.h"
#include "join/book.h"
#include "node/catalogue.h"
#include "node/finder.h"
#include "node/lend.h"
#include "node/peers.h"
#include "node/roles.h"
#include "placing/placing.h"
#include "trust/credentials.h"
#include "trust/identity_files.h"
#include "weights/version_file.h"
#include "weights/weights.h"

#include <stdio.h>
#include <string.h>

static enum error_code identity_folder(const struct daemon *daemon, char path[PATH_MAX],
                                       struct error *err)
{
    return durable_path(daemon->folder, "identity", "", path, err);
}

/* ---- own addresses ------------------------------------------------------------------------- */

static void add_address(struct daemon *daemon, const char *host)
{
    if (daemon->n_addresses == ADDRESSES_MAX)
        return;
    bool v6 = strchr(host, ':');
    snprintf(daemon->addresses[daemon->n_addresses++], sizeof daemon->addresses[0],
             v6 ? "[%s]:%u" : "%s:%u", host, daemon->port);
}

/* A link-local IPv6 address means nothing without the interface, which has another name on every
 * machine. */
static bool can_be_told(const uv_interface_address_t *interface)
{
    if (interface->is_internal)
        return false;
    return interface->address.address4.sin_family == AF_INET ||
           !IN6_IS_ADDR_LINKLOCAL(&interface->address.address6.sin6_addr);
}

static void find_addresses(struct daemon *daemon)
{
    uv_interface_address_t *interfaces = NULL;
    int n = 0;
    daemon->n_addresses = 0;
    if (daemon->options.host) {
        add_address(daemon, daemon->options.host);
        return;
    }
    if (uv_interface_addresses(&interfaces, &n))
        return;
    for (int i = 0; i < n; i++) {
        char host[64];
        if (can_be_told(&interfaces[i]) &&
            uv_ip_name((const struct sockaddr *)&interfaces[i].address, host, sizeof host) == 0)
            add_address(daemon, host);
    }
    uv_free_interface_addresses(interfaces, n);
}

/* ---- what is told of this node --------------------------------------------------------------- */

/* A message that owns its memory, by way of its bytes. */
static enum error_code keep_self(struct daemon *daemon, const Cluster__Node *node,
                                 struct error *err)
{
    ProtobufCMessage *message = NULL;
    buffer_clear(&daemon->self_bytes);
    message_encode(&node->base, &daemon->self_bytes);
    if (daemon->self_bytes.failed)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for this node's description");
    enum error_code code =
        message_decode(&cluster__node__descriptor, (const uint8_t *)daemon->self_bytes.data,
                       daemon->self_bytes.size, &message, err);
    if (code)
        return code;
    message_free(daemon->self ? &daemon->self->base : NULL);
    daemon->self = (Cluster__Node *)message;
    return ERROR_NONE;
}

static enum error_code describe_self(struct daemon *daemon, struct error *err)
{
    Cluster__Node node = CLUSTER__NODE__INIT;
    char *addresses[ADDRESSES_MAX];
    enum error_code code =
        placing_describe(daemon->options.gpu, lend_devices(daemon->lend), &node, err);
    if (code)
        return code;
    find_addresses(daemon);
    for (uint32_t i = 0; i < daemon->n_addresses; i++)
        addresses[i] = daemon->addresses[i];
    node.id = daemon->id;
    node.name = daemon->name;
    node.has_member = node.has_level = true;
    node.member = agreement_member(daemon->agreement);
    node.level = event_level_known();
    node.version = (char *)(uintptr_t)MEDLEY_VERSION;
    node.addresses = addresses;
    node.n_addresses = daemon->n_addresses;
    code = keep_self(daemon, &node, err);
    node.addresses = NULL;
    node.n_addresses = 0;
    placing_describe_clear(&node);
    return code;
}

/* ---- links ----------------------------------------------------------------------------------- */

static bool is_admitted(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    return book_admits(((struct daemon *)self)->book, node_id);
}

static enum error_code listen_everywhere(struct daemon *daemon, struct error *err)
{
    struct error second;
    enum error_code code =
        mesh_listen(daemon->mesh, "0.0.0.0", daemon->options.port, &daemon->port, err);
    if (!code && mesh_listen(daemon->mesh, "::", daemon->port, NULL, &second))
        log_line(LOG_INFO, "node", "IPv4 alone: %s", second.text);
    return code;
}

static void on_joiner(void *self, struct stream *stream)
{
    struct daemon *daemon = self;
    if (daemon->admission)
        admission_stream(daemon->admission, stream);
    else
        stream_close(stream, NULL, NULL); /* the node is stopping */
}

static enum error_code open_links(struct daemon *daemon, struct error *err)
{
    const struct credentials_members members = {.admitted = is_admitted, .self = daemon};
    enum error_code code = credentials_new(&daemon->identity, &daemon->membership, &members,
                                           &daemon->credentials, err);
    if (code)
        return code;
    struct mesh_options options = {
        .loop = daemon->loop,
        .security = security_of(daemon->credentials),
        .events = daemon_link_events(daemon),
        .transport = daemon->options.transport,
        .n_data_channels = NODE_DATA_CHANNELS,
        .measures_bandwidth = true,
        .joiner = on_joiner,
    };
    memcpy(options.node_id, daemon->identity.node_id, NODE_ID_BYTES);
    code = mesh_open(&options, &daemon->mesh, err);
    if (code)
        return code;
    code = daemon->options.host ? mesh_listen(daemon->mesh, daemon->options.host,
                                              daemon->options.port, &daemon->port, err)
                                : listen_everywhere(daemon, err);
    if (code)
        error_wrap(err, code == ERROR_INVALID ? "--listen"
                                              : "choose another address or port with --listen");
    return code;
}

/* ---- the parts ------------------------------------------------------------------------------- */

static void on_weights_changed(void *self)
{
    catalogue_changed(((struct daemon *)self)->catalogue);
    daemon_changed(self);
}

static enum error_code open_weights(struct daemon *daemon, struct error *err)
{
    version_limit_tell(daemon->folder, daemon->options.models_max_bytes);
    return weights_open(&(struct weights_options){.loop = daemon->loop,
                                                  .mesh = daemon->mesh,
                                                  .folder = daemon->folder,
                                                  .limit_bytes = daemon->options.models_max_bytes,
                                                  .spare_bytes = UINT64_C(1) << 30,
                                                  .changed = on_weights_changed,
                                                  .self = daemon},
                        &daemon->weights, err);
}

static void on_carrier_lost(void *arg, const uint8_t node_id[NODE_ID_BYTES],
                            const struct error *why)
{
    struct daemon *daemon = arg;
    if (daemon->hosting && !daemon->stopping)
        hosting_lost(daemon->hosting, node_id, why);
}

static void on_carrier_stray(void *arg, const uint8_t node_id[NODE_ID_BYTES],
                             const struct wire_route *route)
{
    struct daemon *daemon = arg;
    if (daemon->hosting && !daemon->stopping)
        hosting_stray(daemon->hosting, node_id, route);
}

static enum error_code on_carrier_cache(void *arg, const uint8_t node_id[NODE_ID_BYTES],
                                        const void *bytes, size_t size, struct error *err)
{
    struct daemon *daemon = arg;
    return daemon->hosting && !daemon->stopping
               ? hosting_cache(daemon->hosting, node_id, bytes, size, err)
               : ERROR_NONE;
}

static void on_carrier_halt(void *arg, const uint8_t node_id[NODE_ID_BYTES],
                            const struct wire_route *route)
{
    struct daemon *daemon = arg;
    if (daemon->hosting && !daemon->stopping)
        hosting_halt(daemon->hosting, node_id, route);
}

static enum error_code open_parts(struct daemon *daemon, struct error *err)
{
    const struct admission_options admission = {.loop = daemon->loop,
                                                .identity = &daemon->identity,
                                                .authority = &daemon->membership.authority,
                                                .name = daemon->name,
                                                .events = daemon_admission_events(daemon)};
    const struct carrier_handlers carrier = {.lost = on_carrier_lost,
                                             .stray = on_carrier_stray,
                                             .cache = on_carrier_cache,
                                             .halt = on_carrier_halt,
                                             .arg = daemon};
    enum error_code code = admission_open(&admission, &daemon->admission, err);
    if (!code)
        code = carrier_open(daemon->loop, daemon->mesh, &carrier, &daemon->carrier, err);
    if (!code)
        code = open_weights(daemon, err);
    if (!code && !(daemon->gathering = gathering_new(daemon)))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a node");
    if (!code)
        code = daemon_models_open(daemon, err);
    return code;
}

enum error_code daemon_begin_membership(struct daemon *daemon, struct error *err)
{
    enum error_code code = open_links(daemon, err);
    if (!code)
        code = describe_self(daemon, err);
    if (!code)
        code = open_parts(daemon, err);
    if (code)
        return code;
    daemon->is_member = true;
    book_add(daemon->book, daemon->id, daemon->name);
    finder_announce(daemon->finder);
    finder_sync(daemon->finder);
    log_line(LOG_INFO, "node", "a member; listening on port %u", daemon->port);
    return ERROR_NONE;
}

/* ---- founding -------------------------------------------------------------------------------- */

static void on_self_admitted(void *arg, enum error_code code, const struct state_outcome *outcome,
                             const struct error *err)
{
    (void)outcome, (void)err;
    if (!code)
        roles_begin(arg);
}

static void propose_self(struct daemon *daemon)
{
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event joined = CLUSTER__EVENT__INIT, admitted = CLUSTER__EVENT__INIT;
    joined.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
    joined.node_joined = daemon->self;
    name.id = daemon->id;
    admitted.kind_case = CLUSTER__EVENT__KIND_NODE_ADMITTED;
    admitted.node_admitted = &name;
    agreement_propose(daemon->agreement, &joined, NULL, NULL);
    agreement_propose(daemon->agreement, &admitted, on_self_admitted, daemon);
}

/* What is said to a terminal is for who sits there. Anywhere else it is kept, in a journal that
 * others may read: a code has no place in it. */
static void say_how_to_join(struct daemon *daemon)
{
    char code[JOIN_CODE_TEXT];
    struct error err;
    if (!daemon->options.says_to_terminal)
        daemon_say(daemon, "this is the first node of a new cluster. `medley invite` here makes a "
                           "code for the next machine");
    else if (admission_invite(daemon->admission, 0, code, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
    else
        daemon_say(daemon,
                   "this is the first node of a new cluster. On the next machine: `medley up`, "
                   "then `medley join %s`\n"
                   "(good once, for ten minutes; `medley invite` here makes another code)",
                   code);
}

/* First the log, then the certificate: a log without a certificate is dropped at the next start, a
 * certificate without a log would wait for others for ever. */
enum error_code daemon_found_cluster(struct daemon *daemon, struct error *err)
{
    char folder[PATH_MAX];
    enum error_code code = identity_folder(daemon, folder, err);
    book_forget(daemon->book); /* nobody of another cluster */
    if (!code)
        code = agreement_found(daemon->agreement, err);
    if (!code)
        code =
            membership_found(&daemon->identity, daemon_wall_ms() / 1000, &daemon->membership, err);
    if (!code)
        code = membership_store(folder, &daemon->membership, err);
    if (!code)
        code = daemon_begin_membership(daemon, err);
    if (code)
        return code;
    propose_self(daemon);
    say_how_to_join(daemon);
    return ERROR_NONE;
}

/* ---- leaving --------------------------------------------------------------------------------- */

static void on_forgotten(void *arg, enum error_code code, const struct error *err)
{
    struct daemon *daemon = arg;
    char folder[PATH_MAX];
    struct error why;
    if (code)
        log_line(LOG_ERROR, "node", "%s", err->text);
    if (identity_folder(daemon, folder, &why) || identity_forget(folder, &why))
        log_line(LOG_ERROR, "node", "%s", why.text);
    book_forget(daemon->book);
    daemon_forget_tokens(daemon);
    daemon_tls_forget(daemon);
    daemon_say(daemon, "this machine has left its cluster; `medley up` starts it anew");
    daemon_over(daemon, NULL);
}

static void on_left(void *arg, enum error_code code, const struct state_outcome *outcome,
                    const struct error *err)
{
    struct daemon *daemon = arg;
    if (code == ERROR_CANCELLED ||
        daemon->has_left) /* the node stops, and is a member still; or it came twice */
        return;
    daemon->has_left = true;
    if (code)
        log_line(LOG_WARN, "node", "could not tell the others that this node leaves: %s",
                 err->text);
    struct error why;
    if (agreement_forget(daemon->agreement, on_forgotten, daemon, &why))
        on_forgotten(daemon, why.code, &why);
}

/* Where nobody else is left or reached, it may go. */
static bool is_needed_as_admin(const struct daemon *daemon)
{
    const struct state *state = daemon_state(daemon);
    return state_has_roles(state) && state_is_admin(state, daemon->id) &&
           state_n_admins(state) == 1 && book_size(daemon->book) > 1 &&
           !finder_is_alone(daemon->finder);
}

enum error_code daemon_leave(struct daemon *daemon, const char *actor, struct error *err)
{
    Cluster__NodeName name = CLUSTER__NODE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    if (!daemon->is_member)
        return error_set(err, ERROR_INVALID, "this machine is in no cluster");
    if (daemon->is_leaving)
        return error_set(err, ERROR_BUSY, "this machine is already leaving its cluster");
    if (is_needed_as_admin(daemon))
        return error_set(err, ERROR_INVALID,
                         "this machine is the cluster's only admin: without one nobody can be let "
                         "in or removed; `medley role NODE admin` makes another first");
    name.id = daemon->id;
    event.actor = (char *)(uintptr_t)actor;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_REMOVED;
    event.node_removed = &name;
    daemon->is_leaving = true;
    if (book_size(daemon->book) < 2 ||
        finder_is_alone(daemon->finder)) /* nobody is there to be told */
        on_left(daemon, ERROR_NONE, NULL, NULL);
    else
        agreement_propose(daemon->agreement, &event, on_left, daemon);
    return ERROR_NONE;
}

/* The others cut the links as soon as they have agreed, mostly before this node hears that they
 * have. */
void daemon_look_left(struct daemon *daemon)
{
    if (daemon->is_leaving && !daemon->has_left && !daemon_has_link(daemon))
        on_left(daemon, ERROR_NONE, NULL, NULL);
}
