/* What this node knows, for /metrics. metrics/table.h says what is shown by which node. */
#include "node/daemon_state.h"

#include "agreement/agreement.h"
#include "base/mem.h"
#include "heat/heat.h"
#include "hosting/hosting.h"
#include "metrics/page.h"
#include "node/daemon_run.h"
#include "node/peers.h"
#include "node/served.h"
#include "pipeline/driver.h"
#include "request/driver_metrics.h"
#include "weights/weights.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- this machine ---------------------------------------------------------------------------- */

static void metrics_write_node(const struct daemon *daemon, const struct heat_snapshot *heat,
                               struct metrics_page *page)
{
    const struct sensor_node *node = &heat->node;
    metrics_put(page, METRIC_NODE_INFO, METRICS_LABELS(daemon->id, daemon->name), 1);
    if (!heat->time_ns)
        return;
    metrics_put_reading(page, METRIC_NODE_CPU, NULL, node->cpu_utilisation_pct, 0.01);
    metrics_put_reading(page, METRIC_NODE_MEMORY, NULL, node->memory_total_bytes, 1);
    metrics_put_reading(page, METRIC_NODE_MEMORY_FREE, NULL, node->memory_available_bytes, 1);
    metrics_put_reading(page, METRIC_NODE_PRESSURE, NULL, node->memory_stall_some_share, 1);
    metrics_put_reading(page, METRIC_NODE_BATTERY, NULL, node->battery_pct, 0.01);
    metrics_put_reading(page, METRIC_NODE_ON_AC, NULL, node->on_ac, 1);
    const uint64_t ago_ms = daemon_now_ms(daemon) - heat->time_ns / 1000000;
    metrics_put(page, METRIC_NODE_SAMPLED, NULL, (double)(daemon_wall_ms() - ago_ms) / 1000);
}

static const char *metrics_kind_name(enum device_kind kind)
{
    static const char *const names[] = {"cpu", "gpu", "integrated gpu"};
    return names[kind];
}

/* A machine may have devices that it does not offer: with --sim, its own processor. */
static bool metrics_offers(const struct daemon *daemon, const struct device *device)
{
    const Cluster__Node *self = daemon->self;
    for (size_t i = 0; self && i < self->n_devices; i++) {
        if (strcmp(self->devices[i]->id, device_info(device)->id) == 0)
            return true;
    }
    return !self;
}

static uint32_t metrics_list_devices(const struct daemon *daemon, const struct device **out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < gpu_device_count(daemon->options.gpu) && n < LIMIT_DEVICES; i++) {
        const struct device *device = gpu_device(daemon->options.gpu, i);
        if (metrics_offers(daemon, device))
            out[n++] = device;
    }
    return n;
}

/* Those of the snapshot that are offered come first, and the others go. */
static void metrics_keep_offered(const struct daemon *daemon, struct heat_snapshot *heat)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < heat->n_devices; i++) {
        if (metrics_offers(daemon, heat->devices[i].device))
            heat->devices[n++] = heat->devices[i];
    }
    heat->n_devices = n;
}

static void metrics_write_steps(const struct daemon *daemon, struct metrics_page *page)
{
    const struct device *devices[LIMIT_DEVICES];
    const uint32_t n = metrics_list_devices(daemon, devices);
    for (uint32_t i = 0; i < n; i++) {
        const char *id = device_info(devices[i])->id;
        metrics_put(page, METRIC_DEVICE_MEMORY_STEP, METRICS_LABELS(id),
                    hosting_memory_step(daemon->hosting, id));
    }
}

static void metrics_write_memory(const struct daemon *daemon, struct metrics_page *page)
{
    const struct device *devices[LIMIT_DEVICES];
    const uint32_t n = metrics_list_devices(daemon, devices);
    for (uint32_t i = 0; i < n; i++) {
        const struct device_info *info = device_info(devices[i]);
        metrics_put(page, METRIC_DEVICE_INFO,
                    METRICS_LABELS(info->id, info->name, metrics_kind_name(info->kind),
                                   info->backend, info->vendor, info->architecture,
                                   info->driver_name, info->driver),
                    1);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct device *device = devices[i];
        const uint64_t bytes = device_memory(device).total_bytes;
        metrics_put(page, METRIC_DEVICE_MEMORY, METRICS_LABELS(device_info(device)->id),
                    bytes ? (double)bytes : NAN);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct device *device = devices[i];
        const struct device_memory memory = device_memory(device);
        metrics_put(page, METRIC_DEVICE_MEMORY_FREE, METRICS_LABELS(device_info(device)->id),
                    memory.total_bytes ? (double)memory.free_bytes : NAN);
    }
    metrics_write_steps(daemon, page);
    for (uint32_t i = 0; i < n; i++) {
        const struct device_info *info = device_info(devices[i]);
        metrics_put_reading(page, METRIC_DEVICE_BANDWIDTH, METRICS_LABELS(info->id),
                            info->bandwidth_mb_per_s, 1e6);
    }
}

static void metrics_write_readings(const struct heat_snapshot *heat, struct metrics_page *page)
{
    static const struct {
        enum metric metric;
        size_t offset; /* of a reading in struct heat_device */
        double scale;
    } rows[] = {
        {METRIC_DEVICE_TEMPERATURE, offsetof(struct heat_device, readings.temperature_mc), 0.001},
        {METRIC_DEVICE_PREDICTED, offsetof(struct heat_device, thermal.action.predicted_c), 1},
        {METRIC_DEVICE_TO_LIMIT, offsetof(struct heat_device, thermal.action.headroom_s), 1},
        {METRIC_DEVICE_USE, offsetof(struct heat_device, readings.utilisation_pct), 0.01},
        {METRIC_DEVICE_POWER, offsetof(struct heat_device, readings.power_mw), 0.001},
        {METRIC_DEVICE_CLOCK, offsetof(struct heat_device, readings.clock_mhz), 1e6},
    };
    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        for (uint32_t i = 0; i < heat->n_devices; i++) {
            const struct heat_device *device = &heat->devices[i];
            const struct reading *reading =
                (const struct reading *)(const void *)((const char *)device + rows[row].offset);
            metrics_put_reading(page, rows[row].metric,
                                METRICS_LABELS(device_info(device->device)->id), *reading,
                                rows[row].scale);
        }
    }
}

static const char *metrics_governor(const struct thermal_action *action)
{
    return action->paused            ? "paused"
           : action->duty < 1        ? "slowed"
           : action->lower_precision ? "lower precision"
                                     : "free";
}

static void metrics_write_governors(const struct heat_snapshot *heat, struct metrics_page *page)
{
    static const char *const states[] = {"free", "lower precision", "slowed", "paused"};
    for (uint32_t i = 0; i < heat->n_devices; i++)
        metrics_put(page, METRIC_DEVICE_LIMIT,
                    METRICS_LABELS(device_info(heat->devices[i].device)->id),
                    heat->devices[i].thermal.limit_c);
    for (uint32_t i = 0; i < heat->n_devices; i++)
        metrics_put(page, METRIC_DEVICE_DUTY,
                    METRICS_LABELS(device_info(heat->devices[i].device)->id),
                    heat->devices[i].thermal.action.duty);
    for (uint32_t i = 0; i < heat->n_devices; i++) {
        const char *is = metrics_governor(&heat->devices[i].thermal.action);
        for (size_t s = 0; s < sizeof states / sizeof *states; s++)
            metrics_put(page, METRIC_DEVICE_GOVERNOR,
                        METRICS_LABELS(device_info(heat->devices[i].device)->id, states[s]),
                        strcmp(states[s], is) == 0);
    }
}

static void metrics_write_machine(const struct daemon *daemon, struct metrics_page *page)
{
    struct heat_snapshot *heat = mem_new(sizeof *heat);
    if (!heat)
        return;
    if (daemon->options.heat)
        heat_latest(daemon->options.heat, heat);
    metrics_write_node(daemon, heat, page);
    if (daemon->options.gpu)
        metrics_write_memory(daemon, page);
    if (heat->time_ns) {
        metrics_keep_offered(daemon, heat);
        metrics_write_readings(heat, page);
        metrics_write_governors(heat, page);
    }
    mem_free(heat);
}

/* ---- links ----------------------------------------------------------------------------------- */

struct metrics_link {
    char id[17]; /* 64 bits of a node's id tell it from others */
    const char *name;
    double values[8];
};

static const enum metric metrics_link_rows[] = {
    METRIC_LINK_UP,        METRIC_LINK_LATENCY, METRIC_LINK_JITTER,   METRIC_LINK_LOSS,
    METRIC_LINK_BANDWIDTH, METRIC_LINK_SENT,    METRIC_LINK_RECEIVED,
};
enum { METRICS_LINK_ROWS = sizeof metrics_link_rows / sizeof *metrics_link_rows };

static double metrics_value(struct reading reading, double scale)
{
    return reading.valid ? reading.value * scale : NAN;
}

static struct metrics_link metrics_link_of(const struct daemon *daemon, const struct peer *peer)
{
    struct metrics_link out = {.name = daemon_name_of(daemon, peer->id),
                               .values = {peer->link ? 1 : 0, NAN, NAN, NAN, NAN, NAN, NAN}};
    memcpy(out.id, peer->id, sizeof out.id - 1);
    if (!peer->link)
        return out;
    const struct topology_link measured = link_measured(peer->link);
    const struct link_counts counts = link_counts(peer->link);
    out.values[1] = metrics_value(measured.latency_ns, 1e-9);
    out.values[2] = metrics_value(measured.jitter_ns, 1e-9);
    out.values[3] = metrics_value(measured.loss_share, 1);
    out.values[4] = metrics_value(measured.bandwidth_bytes_per_s, 1);
    out.values[5] = (double)counts.bytes_sent;
    out.values[6] = (double)counts.bytes_received;
    return out;
}

static void metrics_write_links(const struct daemon *daemon, struct metrics_page *page)
{
    struct metrics_link *links = mem_new_array(METRICS_PEERS, sizeof *links);
    uint32_t n = 0, n_left_out = 0;
    for (const struct peer *peer = daemon->peers; links && peer; peer = peer->next) {
        const Cluster__NodeRecord *record = state_node(daemon_state(daemon), peer->id);
        if (!record || !record->admitted)
            continue;
        if (n < METRICS_PEERS)
            links[n++] = metrics_link_of(daemon, peer);
        else
            n_left_out++;
    }
    for (size_t row = 0; row < METRICS_LINK_ROWS; row++) {
        for (uint32_t i = 0; i < n; i++)
            metrics_put(page, metrics_link_rows[row], METRICS_LABELS(links[i].id, links[i].name),
                        links[i].values[row]);
    }
    metrics_put_count(page, METRIC_LINKS_LEFT_OUT, NULL, n_left_out);
    mem_free(links);
}

/* ---- instances ------------------------------------------------------------------------------- */

struct metrics_instance {
    const char *model;
    struct driver_stats stats;
    double stages, nodes, decode, prefill, decode_error, first_token_error; /* NAN: unknown */
};

static double metrics_count_nodes(const Cluster__Placement *placement)
{
    uint32_t n = 0;
    for (size_t i = 0; i < placement->n_stages; i++) {
        size_t first = 0;
        while (strcmp(placement->stages[first]->node, placement->stages[i]->node) != 0)
            first++;
        n += first == i;
    }
    return n;
}

static bool metrics_instance_of(struct daemon *daemon, const Cluster__Instance *instance,
                                struct metrics_instance *out)
{
    struct driver *driver = hosting_driver(daemon->hosting, instance->id, NULL);
    if (!driver || !instance->current)
        return false;
    const struct run_forecast *forecast = daemon_run_forecast(daemon, instance);
    const struct served_error served = served_of(daemon, instance);
    *out = (struct metrics_instance){
        .model = instance->id,
        .stats = driver_stats(driver),
        .stages = (double)instance->current->n_stages,
        .nodes = metrics_count_nodes(instance->current),
        .decode = forecast->decode_tokens_per_s > 0 ? forecast->decode_tokens_per_s : NAN,
        .prefill = forecast->prefill_tokens_per_s > 0 ? forecast->prefill_tokens_per_s : NAN,
    };
    if (!served_decode_error(&served, &out->decode_error))
        out->decode_error = NAN;
    if (!served_first_token_error(&served, &out->first_token_error))
        out->first_token_error = NAN;
    return true;
}

static void metrics_put_instances(const struct metrics_instance *list, uint32_t n,
                                  struct metrics_page *page)
{
    struct driver_figures drivers[METRICS_MODELS];
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_READY, METRICS_LABELS(list[i].model), 1);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_STAGES, METRICS_LABELS(list[i].model), list[i].stages);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_NODES, METRICS_LABELS(list[i].model), list[i].nodes);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_DECODE, METRICS_LABELS(list[i].model), list[i].decode);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_PREFILL, METRICS_LABELS(list[i].model), list[i].prefill);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_DECODE_ERROR, METRICS_LABELS(list[i].model),
                    list[i].decode_error);
    for (uint32_t i = 0; i < n; i++)
        metrics_put(page, METRIC_INSTANCE_FIRST_ERROR, METRICS_LABELS(list[i].model),
                    list[i].first_token_error);
    for (uint32_t i = 0; i < n; i++)
        drivers[i] = (struct driver_figures){list[i].model, list[i].stats};
    driver_metrics_write(drivers, n, page);
}

/* A device may have several stages of one model: their layers are added. */
static void metrics_write_layers(const struct daemon *daemon, const Cluster__Instance *instance,
                                 struct metrics_page *page)
{
    const Cluster__Placement *placement = instance->current;
    for (size_t i = 0; placement && i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        uint32_t layers = 0;
        bool is_first = strcmp(stage->node, daemon->id) == 0;
        for (size_t j = 0; j < placement->n_stages; j++) {
            const Cluster__Stage *other = placement->stages[j];
            const bool same =
                strcmp(other->node, stage->node) == 0 && strcmp(other->device, stage->device) == 0;
            is_first &= !(same && j < i);
            layers += same ? other->n_layers : 0;
        }
        if (is_first)
            metrics_put_count(page, METRIC_STAGE_LAYERS,
                              METRICS_LABELS(instance->id, stage->device), layers);
    }
}

static void metrics_write_instances(struct daemon *daemon, struct metrics_page *page)
{
    const Cluster__State *root = daemon_state(daemon)->root;
    struct metrics_instance list[METRICS_MODELS];
    uint32_t n = 0;
    for (size_t i = 0; root && i < root->n_instances && n < METRICS_MODELS; i++)
        n += metrics_instance_of(daemon, root->instances[i], &list[n]);
    metrics_put_instances(list, n, page);
    for (size_t i = 0; root && i < root->n_instances && i < METRICS_MODELS; i++)
        metrics_write_layers(daemon, root->instances[i], page);
}

/* ---- the cluster ----------------------------------------------------------------------------- */

/* A term that is lower than the last is of another log, and its elections are not ours. */
void daemon_note_term(struct daemon *daemon)
{
    const uint64_t term = daemon->agreement ? agreement_status(daemon->agreement).term : 0;
    if (daemon->term_seen && term > daemon->term_seen)
        daemon->n_elections += term - daemon->term_seen;
    daemon->term_seen = term;
}

static void metrics_write_consensus(struct daemon *daemon, const struct replica_status *status,
                                    struct metrics_page *page)
{
    daemon_note_term(daemon);
    metrics_put_count(page, METRIC_TERM, NULL, status->term);
    metrics_put_count(page, METRIC_LEADS, NULL, status->leads);
    metrics_put_count(page, METRIC_HAS_LEADER, NULL, status->leader != 0);
    metrics_put_count(page, METRIC_COMMIT, NULL, status->commit);
    metrics_put_count(page, METRIC_COMMIT_LAG, NULL,
                      status->last > status->commit ? status->last - status->commit : 0);
    metrics_put_count(page, METRIC_ELECTIONS, NULL, daemon->n_elections);
}

static void metrics_write_members(const struct daemon *daemon, const Cluster__State *root,
                                  struct metrics_page *page)
{
    uint32_t n_up = 0, n = 0, n_voters = 0;
    for (size_t i = 0; i < root->n_nodes; i++) {
        const char *id = root->nodes[i]->node->id;
        const struct peer *peer = daemon_peer(daemon, id);
        n += root->nodes[i]->admitted ? 1 : 0;
        n_up += root->nodes[i]->admitted &&
                (strcmp(id, daemon->id) == 0 || (peer && peer->link && !peer->is_silent));
    }
    for (size_t i = 0; i < root->n_members; i++)
        n_voters += root->members[i]->votes ? 1 : 0;
    metrics_put_count(page, METRIC_CLUSTER_NODES, METRICS_LABELS("up"), n_up);
    metrics_put_count(page, METRIC_CLUSTER_NODES, METRICS_LABELS("down"), n - n_up);
    metrics_put_count(page, METRIC_CLUSTER_VOTERS, NULL, n_voters);
}

static bool metrics_is_alike(const Cluster__Alert *a, const Cluster__Alert *b)
{
    return strcmp(a->kind ? a->kind : "", b->kind ? b->kind : "") == 0 &&
           !a->critical == !b->critical;
}

static void metrics_write_alerts(const Cluster__State *root, struct metrics_page *page)
{
    uint32_t n_pairs = 0;
    for (size_t i = 0; i < root->n_alerts && n_pairs < METRICS_ALERTS; i++) {
        const Cluster__Alert *alert = root->alerts[i];
        size_t first = 0;
        uint32_t n = 0;
        while (!metrics_is_alike(root->alerts[first], alert))
            first++;
        for (size_t j = i; j < root->n_alerts; j++)
            n += metrics_is_alike(root->alerts[j], alert);
        if (first != i)
            continue;
        n_pairs++;
        metrics_put_count(page, METRIC_ALERTS,
                          METRICS_LABELS(alert->kind ? alert->kind : "",
                                         alert->critical ? "critical" : "warning"),
                          n);
    }
}

void daemon_write_metrics(struct daemon *daemon, struct metrics_page *page)
{
    metrics_write_machine(daemon, page);
    if (!daemon->is_member || daemon->stopping)
        return;
    const struct weights_counts weights = weights_counts(daemon->weights);
    const struct replica_status status = agreement_status(daemon->agreement);
    const Cluster__State *root = daemon_state(daemon)->root;
    metrics_write_links(daemon, page);
    metrics_write_instances(daemon, page);
    metrics_put_count(page, METRIC_WEIGHTS_SENT, NULL, weights.sent_bytes);
    metrics_put_count(page, METRIC_WEIGHTS_RECEIVED, NULL, weights.received_bytes);
    metrics_write_consensus(daemon, &status, page);
    if (root && status.leads) {
        metrics_write_members(daemon, root, page);
        metrics_write_alerts(root, page);
    }
}
