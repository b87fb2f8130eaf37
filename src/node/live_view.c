/* The view of the cluster: what this node knows, as JSON. What is not known is left out. */
#include "node/live.h"

#include "agreement/agreement.h"
#include "base/json_memory.h"
#include "base/version.h"
#include "join/admission.h"
#include "mesh/probe.h"
#include "node/catalogue.h"
#include "node/daemon_alerts.h"
#include "node/daemon_state.h"
#include "node/finder.h"
#include "node/live_view.h"
#include "node/peers.h"
#include "node/telling.h"
#include "placing/placing.h"
#include "relay/relay.h"
#include "topology/link.h"
#include "vitals/vitals_sample.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- small ----------------------------------------------------------------------------------- */

void view_text(struct live_view *view, yyjson_mut_val *object, const char *key, const char *text)
{
    if (text && *text)
        yyjson_mut_obj_add_strcpy(view->doc, object, key, text);
}

void view_whole(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                uint64_t value)
{
    if (known)
        yyjson_mut_obj_add_uint(view->doc, object, key, value);
}

void view_number(struct live_view *view, yyjson_mut_val *object, const char *key, bool known,
                 double value)
{
    if (known && isfinite(value))
        yyjson_mut_obj_add_real(view->doc, object, key, value);
}

void view_flag(struct live_view *view, yyjson_mut_val *object, const char *key, bool value)
{
    yyjson_mut_obj_add_bool(view->doc, object, key, value);
}

/* A member that is an object; its key is copied. */
yyjson_mut_val *view_object(struct live_view *view, yyjson_mut_val *object, const char *key)
{
    yyjson_mut_val *name = yyjson_mut_strcpy(view->doc, key), *made = yyjson_mut_obj(view->doc);
    return name && made && yyjson_mut_obj_put(object, name, made) ? made : NULL;
}

/* A rate to three digits: more are noise that would be told again and again. */
double view_round(double value)
{
    if (!(value > 0) || !isfinite(value))
        return 0;
    const double step = pow(10, floor(log10(value)) - 2);
    return step >= 1 ? round(value / step) * step
                     : round(value * round(1 / step)) / round(1 / step);
}

/* ---- the cluster ----------------------------------------------------------------------------- */

static void view_put_cluster(struct live_view *view, yyjson_mut_val *root)
{
    struct daemon *daemon = view->daemon;
    const Cluster__State *state = daemon_state(daemon)->root;
    const struct replica_status *status = &view->status;
    yyjson_mut_val *object = view_object(view, root, "cluster");
    view_flag(view, object, "waiting", !daemon->is_member);
    if (!daemon->is_member)
        return;
    const struct error *failure = agreement_failure(daemon->agreement);
    const Cluster__NodeRecord *leader = state_node_of_member(daemon_state(daemon), status->leader);
    char id[CLUSTER_ID_TEXT];
    uint64_t voters = 0;
    for (size_t i = 0; state && i < state->n_members; i++)
        voters += state->members[i]->votes ? 1 : 0;
    id_text(daemon->membership.authority.cluster_id, CLUSTER_ID_BYTES, id);
    view_text(view, object, "id", id);
    view_text(view, object, "leader", leader ? leader->node->id : NULL);
    view_whole(view, object, "generation", true, status->lineage.generation);
    view_whole(view, object, "term", true, status->term);
    view_whole(view, object, "voters", true, voters);
    view_text(view, object, "problem", failure ? failure->text : NULL);
    view_text(view, object, "role",
              state_is_admin(daemon_state(daemon), daemon->id) ? "admin" : "member");
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool view_votes(const struct live_view *view, uint64_t member)
{
    const Cluster__State *root = daemon_state(view->daemon)->root;
    for (size_t i = 0; root && member && i < root->n_members; i++) {
        if (root->members[i]->id == member)
            return root->members[i]->votes;
    }
    return false;
}

static uint64_t view_count_stages(const struct live_view *view, const char *node,
                                  const char *device)
{
    const Cluster__State *root = daemon_state(view->daemon)->root;
    uint64_t n = 0;
    for (size_t i = 0; root && i < root->n_instances; i++) {
        const Cluster__Placement *placement = root->instances[i]->current;
        for (size_t j = 0; placement && j < placement->n_stages; j++)
            n += strcmp(placement->stages[j]->node, node) == 0 &&
                 strcmp(placement->stages[j]->device, device) == 0;
    }
    return n;
}

double view_decode_rate(const struct cluster_device *device)
{
    double best = device->decode_bytes_per_s;
    for (uint32_t i = 0; i < device->n_types; i++)
        best = fmax(best, device->types[i].decode_bytes_per_s);
    return best;
}

/* Tenths and the like, as people read them. */
static void view_scaled(struct live_view *view, yyjson_mut_val *object, const char *key,
                        int32_t steps, double per_unit)
{
    view_number(view, object, key, steps != VITALS_UNKNOWN, steps / per_unit);
}

static void view_steps(struct live_view *view, yyjson_mut_val *object, const char *key,
                       int32_t steps, uint64_t unit)
{
    view_whole(view, object, key, steps != VITALS_UNKNOWN, (uint64_t)(uint32_t)steps * unit);
}

static void view_put_readings(struct live_view *view, yyjson_mut_val *item,
                              const struct vitals_device *now)
{
    view_scaled(view, item, "temperature_c", now->temperature_dc, 10);
    view_scaled(view, item, "use_share", now->use_permille, 1000);
    view_scaled(view, item, "power_w", now->power_dw, 10);
    view_steps(view, item, "clock_mhz", now->clock_mhz, 1);
    view_scaled(view, item, "limit_c", now->limit_dc, 10);
    view_scaled(view, item, "predicted_c", now->predicted_dc, 10);
    view_steps(view, item, "seconds_to_limit", now->limit_in_s, 1);
    view_text(view, item, "governor", vitals_governor_text(now->governor));
}

/* Of its process, lately; "": none is known. */
static const char *view_device_problem(const struct live_view *view, const char *node,
                                       const char *device)
{
    const Node__Work *work = telling_work(view->daemon, node);
    for (size_t i = 0; work && i < work->n_ailing; i++) {
        if (strcmp(work->ailing[i]->device, device) == 0)
            return work->ailing[i]->why;
    }
    return "";
}

/* What the device is; what is not known is left out. */
static void view_put_record(struct live_view *view, yyjson_mut_val *item,
                            const Cluster__Device *device)
{
    view_text(view, item, "architecture", device->architecture);
    view_text(view, item, "driver_name", device->driver_name);
    view_text(view, item, "driver", device->driver);
    view_text(view, item, "driver_fault", device->driver_fault);
    view_whole(view, item, "compute_units", device->has_compute_units, device->compute_units);
    view_whole(view, item, "threads_per_block_max", device->has_threads_per_block_max,
               device->threads_per_block_max);
    view_whole(view, item, "clock_mhz_max", device->has_clock_mhz, device->clock_mhz);
    if (device->has_peer_to_peer)
        view_flag(view, item, "peer_to_peer", device->peer_to_peer);
}

static void view_put_device(struct live_view *view, yyjson_mut_val *list, const Cluster__Node *node,
                            const Cluster__Device *device, const Node__DeviceNow *now,
                            const struct vitals_device *vitals)
{
    struct cluster_device described;
    if (!placing_device_of(device, &described))
        return;
    yyjson_mut_val *item = view_object(view, list, device->id);
    const double rate = view_decode_rate(&described);
    view_text(view, item, "name", device->name);
    view_text(view, item, "kind", device->kind);
    view_text(view, item, "backend", device->backend);
    view_text(view, item, "vendor", device->vendor);
    view_put_record(view, item, device);
    view_whole(view, item, "memory_bytes", device->has_memory_bytes, device->memory_bytes);
    if (vitals && vitals->free_mib != VITALS_UNKNOWN)
        view_steps(view, item, "free_bytes", vitals->free_mib, UINT64_C(1) << 20);
    else
        view_whole(view, item, "free_bytes", now && now->has_free_bytes, now ? now->free_bytes : 0);
    if (vitals && vitals->duty_permille != VITALS_UNKNOWN)
        view_scaled(view, item, "duty_share", vitals->duty_permille, 1000);
    else
        view_number(view, item, "duty_share", now && now->has_share_ppm,
                    now ? now->share_ppm / 1e6 : 0);
    if (vitals)
        view_put_readings(view, item, vitals);
    view_whole(view, item, "decode_bytes_per_s", rate > 0, (uint64_t)llround(rate));
    view_flag(view, item, "calibrated", described.speed == CLUSTER_MEASURED);
    view_whole(view, item, "stages", true, view_count_stages(view, node->id, device->id));
    view_text(view, item, "problem", view_device_problem(view, node->id, device->id));
}

static const Node__DeviceNow *view_device_now(const Node__Now *now, const char *id)
{
    for (size_t i = 0; now && i < now->n_devices; i++) {
        if (now->devices[i]->id && strcmp(now->devices[i]->id, id) == 0)
            return now->devices[i];
    }
    return NULL;
}

const Node__Now *view_now_of(const struct live_view *view, const char *node)
{
    const struct peer *peer = daemon_peer(view->daemon, node);
    return strcmp(node, view->daemon->id) == 0 ? view->daemon->now : peer ? peer->now : NULL;
}

/* What a node told last is no reading of now once it is gone. */
static void view_put_devices(struct live_view *view, yyjson_mut_val *item,
                             const Cluster__Node *node, bool is_up)
{
    yyjson_mut_val *list = view_object(view, item, "devices");
    const Node__Now *now = is_up ? view_now_of(view, node->id) : NULL;
    const struct vitals *vitals = is_up ? telling_vitals(view->daemon, node->id) : NULL;
    for (size_t i = 0; i < node->n_devices; i++)
        view_put_device(view, list, node, node->devices[i],
                        view_device_now(now, node->devices[i]->id),
                        vitals_device_of(vitals, node->devices[i]->id));
}

static void view_put_load(struct live_view *view, yyjson_mut_val *item, const char *node)
{
    const struct vitals *now = telling_vitals(view->daemon, node);
    yyjson_mut_val *load = view_object(view, item, "load");
    if (!now)
        return;
    view_scaled(view, load, "cpu_share", now->cpu_permille, 1000);
    view_steps(view, load, "memory_bytes", now->memory_mib, UINT64_C(1) << 20);
    view_steps(view, load, "memory_free_bytes", now->memory_free_mib, UINT64_C(1) << 20);
    view_scaled(view, load, "memory_pressure_share", now->pressure_permille, 1000);
    view_steps(view, load, "battery_percent", now->battery_percent, 1);
    if (now->charging != VITALS_UNKNOWN)
        view_flag(view, load, "charging", now->charging);
    view_steps(view, load, "uptime_s", now->uptime_s, 1);
}

static void view_put_state(struct live_view *view, yyjson_mut_val *item, const Cluster__Node *node,
                           const struct peer *peer, bool is_up)
{
    struct daemon *daemon = view->daemon;
    const bool is_silent = is_up && peer && peer->is_silent;
    view_text(view, item, "state", !is_up ? "down" : is_silent ? "silent" : "up");
    if (!is_up) {
        const struct error problem = finder_version_problem(daemon->finder, node->id);
        view_text(view, item, "problem", problem.code ? problem.text : NULL);
        if (daemon_was_stopped(peer))
            view_flag(view, item, "stopped", true);
    }
    if (is_up && !is_silent)
        view_whole(view, item, "heard_ms", true, 0);
    else if (peer && peer->heard_ms) {
        const uint64_t since_ms = daemon_now_ms(daemon) - peer->heard_ms;
        view_whole(view, item, "heard_ms", true, since_ms - since_ms % VIEW_SECOND_MS);
    }
}

static void view_put_node(struct live_view *view, yyjson_mut_val *list, const Cluster__Node *node)
{
    struct daemon *daemon = view->daemon;
    const bool self = strcmp(node->id, daemon->id) == 0;
    const struct peer *peer = self ? NULL : daemon_peer(daemon, node->id);
    const bool is_up = self || (peer && peer->link);
    yyjson_mut_val *item = view_object(view, list, node->id);
    view_text(view, item, "name", node->name);
    view_put_state(view, item, node, peer, is_up);
    view_text(view, item, "role",
              state_is_admin(daemon_state(daemon), node->id) ? "admin" : "member");
    view_flag(view, item, "leads", node->member && node->member == view->status.leader);
    view_flag(view, item, "votes", view_votes(view, node->member));
    view_flag(view, item, "draining", state_is_drained(daemon_state(daemon), node->id));
    const Node__Now *now = self ? daemon->now : peer ? peer->now : NULL;
    view_text(view, item, "lends_nothing", now ? now->lends_nothing : NULL);
    view_text(view, item, "version", node->version);
    yyjson_mut_val *addresses = yyjson_mut_obj_add_arr(view->doc, item, "addresses");
    for (size_t i = 0; i < node->n_addresses; i++)
        yyjson_mut_arr_add_strcpy(view->doc, addresses, node->addresses[i]);
    view_put_load(view, item, node->id);
    view_put_devices(view, item, node, is_up);
}

static void view_put_waiting(struct live_view *view, yyjson_mut_val *list)
{
    struct admission_waiting waiting[16];
    const struct daemon *daemon = view->daemon;
    const uint32_t n = daemon->admission ? admission_list(daemon->admission, waiting, 16) : 0;
    for (uint32_t i = 0; i < n && i < 16; i++) {
        char id[NODE_ID_TEXT];
        id_text(waiting[i].node_id, NODE_ID_BYTES, id);
        yyjson_mut_val *item = view_object(view, list, id);
        view_text(view, item, "name", waiting[i].name);
        view_text(view, item, "state", "waiting");
        view_text(view, item, "words", waiting[i].words);
        view_flag(view, item, "leads", false);
        view_flag(view, item, "votes", false);
        view_object(view, item, "devices");
    }
}

static void view_put_nodes(struct live_view *view, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    yyjson_mut_val *list = view_object(view, root, "nodes");
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_nodes; i++) {
        if (state->nodes[i]->admitted)
            view_put_node(view, list, state->nodes[i]->node);
    }
    view_put_waiting(view, list);
}

/* ---- links ----------------------------------------------------------------------------------- */

/* What is measured now, times `scale`; else what was told. */
static void view_put_measured(struct live_view *view, yyjson_mut_val *item, const char *key,
                              struct reading now, double scale, bool told, uint64_t value)
{
    const double found = now.valid ? now.value * scale : (double)value;
    view_whole(view, item, key, now.valid || told, (uint64_t)llround(view_round(found)));
}

/* Both ends are there, as far as this node knows. */
static bool view_is_up(const struct live_view *view, const char *node)
{
    const struct peer *peer = daemon_peer(view->daemon, node);
    return strcmp(node, view->daemon->id) == 0 || (peer && peer->link);
}

static void view_put_link(struct live_view *view, yyjson_mut_val *list, const Cluster__Link *link)
{
    char key[2 * NODE_ID_TEXT + 2];
    const struct daemon *daemon = view->daemon;
    const bool own = strcmp(link->from, daemon->id) == 0;
    const struct peer *peer = own ? daemon_peer(daemon, link->to) : NULL;
    const struct topology_link now =
        peer && peer->link ? link_measured(peer->link) : (struct topology_link){0};
    snprintf(key, sizeof key, "%s>%s", link->from, link->to);
    yyjson_mut_val *item = view_object(view, list, key);
    view_text(view, item, "from", link->from);
    view_text(view, item, "to", link->to);
    view_text(view, item, "class", topology_class_name(own && now.up ? now.class : link->class_));
    view_flag(view, item, "up", view_is_up(view, link->from) && view_is_up(view, link->to));
    view_put_measured(view, item, "latency_ns", now.latency_ns, 1, link->has_latency_ns,
                      link->latency_ns);
    view_put_measured(view, item, "jitter_ns", now.jitter_ns, 1, link->has_jitter_ns,
                      link->jitter_ns);
    view_put_measured(view, item, "loss_ppm", now.loss_share, 1e6, link->has_loss_ppm,
                      link->loss_ppm);
    view_put_measured(view, item, "bytes_per_s", now.bandwidth_bytes_per_s, 1,
                      link->has_bytes_per_s, link->bytes_per_s);
}

static void view_put_links(struct live_view *view, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    yyjson_mut_val *list = view_object(view, root, "links");
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_links; i++)
        view_put_link(view, list, state->links[i]);
}

static void view_put_alerts(struct live_view *view, yyjson_mut_val *root)
{
    const Cluster__State *state = daemon_state(view->daemon)->root;
    yyjson_mut_val *list = view_object(view, root, "alerts");
    for (size_t i = 0; view->daemon->is_member && state && i < state->n_alerts; i++) {
        char id[LIMIT_CLUSTER_TEXT_BYTES];
        alert_id_text(state->alerts[i], id, sizeof id);
        yyjson_mut_val *item = view_object(view, list, id);
        if (item)
            alert_put_json(view->daemon, view->doc, item, state->alerts[i]);
    }
}

/* ---- all of it ------------------------------------------------------------------------------- */

yyjson_mut_doc *live_view_make(struct live *live, struct daemon *daemon)
{
    static struct live_view view; /* large, and the loop's alone */
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    if (!root) {
        yyjson_mut_doc_free(doc);
        return NULL;
    }
    view = (struct live_view){.doc = doc, .daemon = daemon, .live = live};
    if (daemon->is_member)
        view.status = agreement_status(daemon->agreement);
    yyjson_mut_doc_set_root(doc, root);
    view_whole(&view, root, "time_ms", true, daemon_wall_ms());
    view_text(&view, root, "self", daemon->id);
    view_text(&view, root, "version", MEDLEY_VERSION);
    view_gather_totals(&view);
    view_put_cluster(&view, root);
    view_put_nodes(&view, root);
    view_put_links(&view, root);
    view_put_models(&view, root);
    view_put_instances(&view, root);
    view_put_alerts(&view, root);
    view_put_totals(&view, root);
    return doc;
}

void live_put_totals(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root)
{
    static struct live_view view;
    view = (struct live_view){.doc = doc, .daemon = daemon};
    view_gather_totals(&view);
    view_put_totals(&view, root);
}
