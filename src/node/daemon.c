#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "base/clock.h"
#include "base/durable_file.h"
#include "base/log.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "hosting/carrier.h"
#include "hosting/hosting.h"
#include "join/admission.h"
#include "join/book.h"
#include "join/join_message.h"
#include "mesh/host_port.h"
#include "node/alert_hook.h"
#include "node/catalogue.h"
#include "node/daemon_alerts.h"
#include "node/daemon_audit.h"
#include "node/daemon_measure.h"
#include "node/disk_speed.h"
#include "node/finder.h"
#include "node/gathering.h"
#include "node/knocks.h"
#include "node/lead.h"
#include "node/lend.h"
#include "node/live.h"
#include "node/peers.h"
#include "node/roles.h"
#include "node/spreading.h"
#include "node/telling.h"
#include "relay/relay.h"
#include "trust/credentials.h"
#include "trust/identity_files.h"
#include "weights/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

/* ---- small ----------------------------------------------------------------------------------- */

uint64_t daemon_now_ms(const struct daemon *daemon)
{
    return clock_now_ns() / 1000000;
}

uint64_t daemon_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void daemon_say(struct daemon *daemon, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (daemon->options.say)
        daemon->options.say(daemon->options.self, line);
    else
        log_line(LOG_INFO, "node", "%s", line);
}

const struct state *daemon_state(const struct daemon *daemon)
{
    static const struct state empty;
    return daemon->agreement ? agreement_state(daemon->agreement) : &empty;
}

const char *daemon_name_of(const struct daemon *daemon, const char *id)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), id);
    return record ? record->node->name : id;
}

void daemon_propose_bytes(void *self, const void *bytes, size_t size)
{
    struct daemon *daemon = self;
    Cluster__Event *event = NULL;
    if (event_decode(bytes, size, &event, NULL))
        return;
    agreement_propose(daemon->agreement, event, NULL, NULL);
    event_free(event);
}

struct live_feed daemon_live_feed(struct daemon *daemon)
{
    return live_feed_of(daemon->live);
}

void daemon_set_api(struct daemon *daemon, const char *url)
{
    snprintf(daemon->api, sizeof daemon->api, "%s", url);
}

/* ---- what has changed ------------------------------------------------------------------------ */

void daemon_changed(struct daemon *daemon)
{
    if (!daemon->is_member || daemon->stopping)
        return;
    hosting_step(daemon->hosting, daemon_state(daemon), daemon_now_ms(daemon), daemon_wall_ms());
    daemon_lead(daemon);
    daemon_alerts_step(daemon);
    daemon_watch(daemon);
    relay_changed(daemon->relay);
    daemon_tell_held(daemon);
    control_changed(daemon);
}

void daemon_over(struct daemon *daemon, const struct error *why)
{
    if (daemon->is_over || daemon->stopping)
        return;
    daemon->is_over = true;
    if (daemon->options.over)
        daemon->options.over(daemon->options.self, why);
    else
        log_line(LOG_ERROR, "node", "%s", why ? why->text : "the node must end");
}

static void on_state_changed(void *self)
{
    struct daemon *daemon = self;
    daemon_audit_changed(daemon);
    if (!daemon->is_member || daemon->stopping)
        return;
    const struct replica_status status = agreement_status(daemon->agreement);
    if (book_follow(daemon->book, daemon_state(daemon), status.lineage, status.applied)) {
        finder_sync(daemon->finder);
        daemon_drop_strangers(daemon);
    }
    daemon_note_tokens(daemon);
    live_touch(daemon->live);
    catalogue_changed(daemon->catalogue);
    daemon_changed(daemon);
}

static void on_applied(void *self, uint64_t index, const Cluster__Event *event,
                       const struct state_outcome *outcome)
{
    struct daemon *daemon = self;
    if (outcome->applied && event->kind_case == CLUSTER__EVENT__KIND_NODE_REMOVED) {
        const char *id = event->node_removed->id;
        if (strcmp(id, daemon->id) == 0) {
            if (!daemon->is_leaving)
                daemon_say(daemon,
                           "this machine was removed from the cluster; `medley leave` forgets it");
        } else {
            book_remove(daemon->book, id);
            finder_sync(daemon->finder);
            daemon_drop_strangers(daemon);
        }
    }
    if (outcome->applied && event->kind_case == CLUSTER__EVENT__KIND_INSTANCE_STOPPED)
        lead_anew(daemon->lead, event->instance_stopped->id);
    if (event->kind_case == CLUSTER__EVENT__KIND_REFOUNDED)
        roles_begin(daemon); /* at once: until there is an admin nobody is let in */
    daemon_audit_applied(daemon, event, outcome);
    if (outcome->applied)
        daemon_alerts_applied(daemon, event);
    control_event(daemon, index, event, outcome->applied);
}

static void on_agreement_failed(void *self, const struct error *why)
{
    log_line(LOG_ERROR, "node", "the cluster's log: %s", why->text);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* No cluster was found in time: this machine begins one. */
static void found_own_cluster(struct daemon *daemon)
{
    struct error err;
    const bool wants_others = daemon->options.n_peers || daemon->options.join_code ||
                              daemon->knocks || finder_sees_a_cluster(daemon->finder);
    if (wants_others || daemon_now_ms(daemon) - daemon->opened_ms < LISTEN_FIRST_MS)
        return;
    if (daemon_found_cluster(daemon, &err))
        daemon_over(daemon, &err);
}

static void wait_for_others(struct daemon *daemon)
{
    struct error err;
    if (!daemon->knocks) {
        const char *peer = daemon->options.n_peers ? daemon->options.peers[0] : NULL;
        const bool some =
            peer || daemon->options.join_code || finder_sees_a_cluster(daemon->finder);
        if (some && knocks_join(daemon, daemon->options.join_code, peer, NULL, &err))
            daemon_say(daemon, "%s", err.text);
        else if (!some)
            found_own_cluster(daemon);
        return;
    }
    knocks_step(daemon->knocks);
}

static void renew_certificate(struct daemon *daemon)
{
    char folder[PATH_MAX];
    struct error err;
    const uint64_t now_s = daemon_wall_ms() / 1000;
    if (!daemon->membership.authority.key || !membership_is_due(&daemon->membership, now_s))
        return; /* roles_step() asks an admin */
    enum error_code code = membership_renew(&daemon->membership, &daemon->identity, now_s, &err);
    if (!code)
        code = credentials_renew(daemon->credentials, &daemon->membership, &err);
    if (!code)
        code = durable_path(daemon->folder, "identity", "", folder, &err);
    if (!code)
        code = membership_store(folder, &daemon->membership, &err);
    log_line(code ? LOG_WARN : LOG_INFO, "node", "%s",
             code ? err.text : "this node's certificate was renewed");
}

static void daemon_on_tick(uv_timer_t *timer);

void daemon_tick_within(struct daemon *daemon, uint64_t ms)
{
    if (!daemon->stopping && uv_timer_get_due_in(&daemon->tick) > ms)
        uv_timer_start(&daemon->tick, daemon_on_tick, ms, TICK_MS);
}

static void daemon_on_tick(uv_timer_t *timer)
{
    struct daemon *daemon = timer->data;
    const uint64_t now = daemon_now_ms(daemon);
    if (daemon->stopping || daemon->is_over)
        return;
    if (!daemon->is_member) {
        wait_for_others(daemon);
        return;
    }
    if (now - daemon->told_ms >= NOW_MS) {
        daemon_tell_now(daemon);
        telling_tick(daemon); /* in the same packet */
        finder_look_at_network(daemon->finder);
        if (daemon->disk_speed)
            disk_speed_step(daemon->disk_speed);
        renew_certificate(daemon);
    }
    daemon_audit_tick(daemon);
    catalogue_changed(daemon->catalogue);
    history_tick(daemon);
    daemon_note_term(daemon);
    finder_dial(daemon->finder);
    roles_step(daemon);
    daemon_look_left(daemon);
    daemon_measure_links(daemon);
    spreading_step(daemon);
    lend_tick(daemon);
    daemon_measure_tick(daemon);
    daemon_changed(daemon);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum error_code runs_already(const char *path, struct error *err)
{
    return error_set(err, ERROR_BUSY,
                     "a node already runs here (%s is locked); `medley status` tells more", path);
}

static enum error_code lock_folder(struct daemon *daemon, struct error *err)
{
    char path[PATH_MAX];
    enum error_code code = durable_make_folder(daemon->folder, err);
    if (!code)
        code = durable_path(daemon->folder, "lock", "", path, err);
    if (code)
        return code;
    daemon->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (daemon->lock < 0)
        return error_set(err, ERROR_IO, "%s: %s", path, strerror(errno));
    return flock(daemon->lock, LOCK_EX | LOCK_NB) ? runs_already(path, err) : ERROR_NONE;
}

enum error_code daemon_check_folder(const char *folder, struct error *err)
{
    char path[PATH_MAX];
    enum error_code code = durable_path(folder, "lock", "", path, err);
    int lock = code ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB))
        code = runs_already(path, err);
    if (lock >= 0)
        close(lock);
    return code;
}

static enum error_code take_name(struct daemon *daemon, struct error *err)
{
    char host[256] = "";
    const char *name = daemon->options.name ? daemon->options.name : host;
    if (gethostname(host, sizeof host - 1))
        host[0] = 0;
    if (!daemon->options.name && !*name)
        name = "node";
    snprintf(daemon->name, sizeof daemon->name, "%s", name);
    if (!join_name_is_valid(daemon->name, strlen(daemon->name)) ||
        strlen(name) >= sizeof daemon->name)
        return error_set(err, ERROR_INVALID,
                         "'%s' is not a valid machine name; choose another with --name", name);
    return ERROR_NONE;
}

static enum error_code daemon_open_identity(struct daemon *daemon, struct error *err)
{
    char path[PATH_MAX];
    bool made = false;
    enum error_code code = durable_path(daemon->folder, "identity", "", path, err);
    if (!code)
        code = identity_open(path, &daemon->identity, &made, err);
    if (!code)
        code = membership_load(path, &daemon->identity, &daemon->membership, err);
    if (!code)
        code = durable_path(daemon->folder, "nodes", "", path, err);
    if (!code)
        code = book_open(path, &daemon->book, err);
    if (!code)
        id_text(daemon->identity.node_id, NODE_ID_BYTES, daemon->id);
    return code;
}

static enum error_code open_agreement(struct daemon *daemon, struct error *err)
{
    char path[PATH_MAX];
    const struct agreement_events events = {.changed = on_state_changed,
                                            .applied = on_applied,
                                            .send = daemon_send_raft,
                                            .forward = daemon_forward,
                                            .failed = on_agreement_failed,
                                            .self = daemon};
    enum error_code code = durable_path(daemon->folder, "cluster", ".db", path, err);
    if (code)
        return code;
    return agreement_open(
        &(struct agreement_options){.loop = daemon->loop,
                                    .path = path,
                                    .node = daemon->id,
                                    .signer = &daemon->identity,
                                    .before_snapshot = daemon_audit_before_snapshot,
                                    .events = events},
        &daemon->agreement, err);
}

/* A member goes on; who is none looks for a cluster, or begins one. */
static enum error_code daemon_begin(struct daemon *daemon, struct error *err)
{
    const bool alone =
        daemon->options.no_discovery && !daemon->options.n_peers && !daemon->options.join_code;
    enum error_code code = ERROR_NONE;
    if (daemon->membership.certificate)
        return daemon_begin_membership(daemon, err);
    if (agreement_status(daemon->agreement).last)
        code = agreement_forget(daemon->agreement, NULL, NULL, err); /* founding was interrupted */
    else if (daemon->options.founds || alone)
        return daemon_found_cluster(daemon, err);
    return code;
}

static enum error_code daemon_check_options(const struct daemon_options *options, struct error *err)
{
    char host[HOST_TEXT], digits[JOIN_CODE_DIGITS];
    uint16_t port;
    for (uint32_t i = 0; i < options->n_peers; i++) {
        if (host_port_parse(options->peers[i], DAEMON_PORT, host, &port, err))
            return error_wrap(err, "--peer");
    }
    if (options->join_code && join_code_parse(options->join_code, digits, err))
        return error_wrap(err, "--join");
    return ERROR_NONE;
}

static enum error_code daemon_open_all(struct daemon *daemon, struct error *err)
{
    enum error_code code = daemon_check_options(&daemon->options, err);
    if (!code && (!(daemon->lead = lead_new(daemon)) || !(daemon->alerts = daemon_alerts_new()) ||
                  !(daemon->measure = daemon_measure_new())))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a node");
    if (!code)
        code = lock_folder(daemon, err);
    const struct alert_hook_options hook = {daemon->options.alert_webhook,
                                            daemon->options.alert_webhook_file,
                                            daemon->options.alert_secret_file};
    if (!code && alert_hook_is_wanted(&hook))
        code = alert_hook_open(&hook, &daemon->alert_hook, err);
    if (!code)
        code = take_name(daemon, err);
    if (!code)
        code = daemon_open_identity(daemon, err);
    if (!code)
        code = lend_open(daemon, &daemon->lend, err);
    if (!code)
        daemon->disk_speed = disk_speed_new(daemon);
    if (!code)
        code = daemon_audit_open(daemon, err);
    if (!code)
        code = open_agreement(daemon, err);
    if (!code)
        code = live_open(daemon, &daemon->live, err);
    if (!code)
        code = telling_open(daemon, &daemon->telling, err);
    if (!code)
        code = control_open(daemon, err);
    if (!code)
        code = finder_open(daemon, &daemon->finder, err);
    if (!code)
        code = daemon_begin(daemon, err);
    if (code)
        return code;
    uv_timer_init(daemon->loop, &daemon->tick);
    daemon->tick.data = daemon;
    daemon->has_tick = true;
    uv_timer_start(&daemon->tick, daemon_on_tick, TICK_MS, TICK_MS);
    return ERROR_NONE;
}

enum error_code daemon_open(uv_loop_t *loop, const struct daemon_options *options,
                            struct daemon **out, struct error *err)
{
    struct daemon *daemon = mem_new(sizeof *daemon);
    if (!daemon)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a node");
    daemon->options = *options;
    daemon->loop = loop;
    daemon->lock = -1;
    daemon->opened_ms = daemon_now_ms(daemon);
    snprintf(daemon->folder, sizeof daemon->folder, "%s", options->folder);
    daemon->has_had_tokens = daemon_folder_has_had_tokens(options->folder);
    enum error_code code = daemon_open_all(daemon, err);
    if (code) {
        daemon_close_now(daemon);
        daemon = NULL;
    }
    *out = daemon;
    return code;
}

/* ---- closing, a step after the other --------------------------------------------------------- */

/* A part stays at hand until it has closed: the mesh's events are passed on to it as long. */

static void close_next(struct daemon *daemon);

#define ON_CLOSED(part)                                                                            \
    static void on_##part##_closed(void *arg)                                                      \
    {                                                                                              \
        struct daemon *daemon = arg;                                                               \
        daemon->part = NULL;                                                                       \
        close_next(daemon);                                                                        \
    }

ON_CLOSED(relay)
ON_CLOSED(hosting)
ON_CLOSED(weights)
ON_CLOSED(admission)
ON_CLOSED(mesh)
ON_CLOSED(agreement)

static void on_tick_closed(uv_handle_t *handle)
{
    struct daemon *daemon = handle->data;
    daemon->has_tick = false;
    close_next(daemon);
}

/* Requests end first, then stages, then what carries them, then what all of them speak through. */
static void close_next(struct daemon *daemon)
{
    if (daemon->control) {
        control_close(daemon, close_next);
    } else if (daemon->live) {
        struct live *live = daemon->live;
        daemon->live = NULL;
        live_close(live, close_next);
    } else if (daemon->telling) {
        struct telling *telling = daemon->telling;
        daemon->telling = NULL;
        telling_close(telling, close_next);
    } else if (daemon->catalogue) {
        struct catalogue *catalogue = daemon->catalogue;
        daemon->catalogue = NULL;
        catalogue_close(catalogue, close_next);
    } else if (daemon->relay) {
        relay_close(daemon->relay, on_relay_closed, daemon);
    } else if (daemon->hosting) {
        hosting_close(daemon->hosting, on_hosting_closed, daemon);
    } else if (daemon->gathering && !daemon->gathering_closed) {
        daemon->gathering_closed = true;
        gathering_close(daemon->gathering, close_next);
    } else if (daemon->weights) {
        weights_close(daemon->weights, on_weights_closed, daemon);
    } else if (daemon->admission) {
        admission_close(daemon->admission, on_admission_closed, daemon);
    } else if (daemon->knocks) {
        knocks_close(daemon->knocks, close_next);
    } else if (daemon->carrier) {
        carrier_close(daemon->carrier); /* gone when the mesh is */
        daemon->carrier = NULL;
        close_next(daemon);
    } else if (daemon->mesh) {
        mesh_close(daemon->mesh, on_mesh_closed, daemon);
    } else if (daemon->agreement) {
        agreement_close(daemon->agreement, on_agreement_closed, daemon);
    } else if (daemon->audit) {
        daemon_audit_close(daemon, close_next);
    } else if (daemon->finder) {
        finder_close(daemon->finder, close_next);
    } else if (daemon->has_tick) {
        uv_close((uv_handle_t *)&daemon->tick, on_tick_closed);
    } else {
        daemon->stopped(daemon->stopped_arg);
    }
}

void daemon_stop(struct daemon *daemon, void (*stopped)(void *arg), void *arg)
{
    if (daemon->stopping)
        return;
    daemon->stopping = true;
    daemon_measure_forget(daemon);
    lead_stop(daemon->lead);
    daemon->stopped = stopped;
    daemon->stopped_arg = arg;
    if (daemon->is_member && daemon->mesh && daemon->hosting && daemon->relay)
        daemon_tell_now(daemon); /* goes out before the links are closed */
    close_next(daemon);
}

void daemon_free(struct daemon *daemon)
{
    if (!daemon)
        return;
    gathering_free(daemon->gathering);
    daemon_free_peers(daemon);
    credentials_free(daemon->credentials);
    lead_free(daemon->lead);
    lend_free(daemon->lend);
    disk_speed_free(daemon->disk_speed);
    alert_hook_close(daemon->alert_hook);
    daemon_alerts_free(daemon->alerts);
    daemon_measure_free(daemon->measure);
    message_free(daemon->now ? &daemon->now->base : NULL);
    daemon_tls_deinit(&daemon->tls);
    membership_deinit(&daemon->membership);
    identity_deinit(&daemon->identity);
    book_close(daemon->book);
    message_free(daemon->self ? &daemon->self->base : NULL);
    buffer_deinit(&daemon->self_bytes);
    if (daemon->lock >= 0)
        close(daemon->lock);
    mem_free(daemon->events);
    mem_free(daemon);
}

static void on_closed_now(void *arg)
{
    *(bool *)arg = true;
}

void daemon_close_now(struct daemon *daemon)
{
    uv_loop_t *loop = daemon->loop;
    bool closed = false;
    daemon_stop(daemon, on_closed_now, &closed);
    while (!closed)
        uv_run(loop, UV_RUN_ONCE);
    daemon_free(daemon);
}
