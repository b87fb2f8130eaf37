/* What this node says of its devices, once and all the time. */
#include "placing/placing.h"

#include "base/mem.h"
#include "engine/stage.h"
#include "gpu/host.h"
#include "heat/heat.h"
#include "plan/plan_devices.h"
#include "plan/selection.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- describing ------------------------------------------------------------------------------ */

static char *describe_copy(const char *text)
{
    return mem_copy_text(text, strlen(text));
}

static uint64_t describe_whole(double value)
{
    return value > 0 ? (uint64_t)llround(value) : 0;
}

static bool add_rate(Cluster__Device *out, const struct cluster_type *type)
{
    Cluster__Rate *rate = mem_new(sizeof *rate);
    if (!rate)
        return false;
    cluster__rate__init(rate);
    out->rates[out->n_rates++] = rate;
    rate->type = describe_copy(type->name);
    rate->has_decode_bytes_per_s = type->decode_bytes_per_s > 0;
    rate->decode_bytes_per_s = describe_whole(type->decode_bytes_per_s);
    rate->has_prefill_flops = type->prefill_flops > 0;
    rate->prefill_flops = describe_whole(type->prefill_flops);
    rate->has_decode_spread_ppm = type->decode_spread > 0;
    rate->decode_spread_ppm = (uint32_t)describe_whole(fmin(type->decode_spread, 1) * 1e6);
    return rate->type;
}

#define SAY(field, number)                                                                         \
    do {                                                                                           \
        out->field = (number);                                                                     \
        out->has_##field = out->field != 0;                                                        \
    } while (0)

static bool say_numbers(const struct cluster_device *device, Cluster__Device *out)
{
    SAY(launch_ns, describe_whole(device->launch_s * 1e9));
    SAY(shares_host_memory, !device->own_memory);
    SAY(is_software, device->is_software);
    SAY(speed, (uint32_t)device->speed);
    SAY(decode_bytes_per_s, describe_whole(device->decode_bytes_per_s));
    SAY(prefill_flops, describe_whole(device->prefill_flops));
    SAY(read_bytes_per_s, describe_whole(device->read_bytes_per_s));
    SAY(write_bytes_per_s, describe_whole(device->write_bytes_per_s));
    SAY(spare, device->spare);
    out->rates = device->n_types ? mem_new_array(device->n_types, sizeof(Cluster__Rate *)) : NULL;
    bool done = !device->n_types || out->rates;
    for (uint32_t i = 0; done && i < device->n_types; i++)
        done = add_rate(out, &device->types[i]);
    return done;
}

/* A simulated device keeps nothing free; of the others the rule is placement's, and goes by what is
 * free then. */
static void say_memory(const struct device *device, const struct cluster_device *described,
                       Cluster__Device *out)
{
    const struct device_memory memory = device_memory(device);
    SAY(memory_bytes, memory.total_bytes);
    out->has_free_bytes = true;
    out->free_bytes = described->memory_bytes;
    out->has_reserve_bytes = described->speed == CLUSTER_GIVEN;
    out->reserve_bytes = described->reserve_bytes;
}

/* False: no memory. */
static bool say_text(const char *text, char **out)
{
    *out = text[0] ? describe_copy(text) : NULL;
    return *out || !text[0];
}

static bool say_record(const struct device_info *info, Cluster__Device *out)
{
    SAY(compute_units, (uint32_t)describe_whole(info->compute_units.value));
    SAY(threads_per_block_max, (uint32_t)describe_whole(info->threads_per_block_max.value));
    SAY(clock_mhz, (uint32_t)describe_whole(info->clock_mhz.value));
    out->has_peer_to_peer = info->peer_to_peer.valid;
    out->peer_to_peer = info->peer_to_peer.valid && info->peer_to_peer.value > 0;
    return say_text(info->vendor, &out->vendor) &&
           say_text(info->architecture, &out->architecture) &&
           say_text(info->driver_name, &out->driver_name) && say_text(info->driver, &out->driver) &&
           say_text(info->driver_fault, &out->driver_fault);
}

static Cluster__Device *describe_cluster(struct device *device, bool spare)
{
    struct cluster_device described;
    Cluster__Device *out = mem_new(sizeof *out);
    if (!out)
        return NULL;
    plan_device_ask(device, &described);
    described.spare = spare;
    cluster__device__init(out);
    out->id = describe_copy(described.id);
    out->name = describe_copy(described.name);
    out->kind = describe_copy(cluster_kind_name(described.kind));
    out->backend = describe_copy(device_info(device)->backend);
    out->pci = describe_copy(described.pci);
    say_memory(device, &described, out);
    out->has_shares_cells = true; /* said even if not: an older version says nothing */
    out->shares_cells = stage_has_pool(device, FLASH_AUTO);
    const bool done = say_numbers(&described, out) && say_record(device_info(device), out);
    if (done && out->id && out->name && out->kind && out->backend && out->pci)
        return out;
    message_free(&out->base);
    return NULL;
}

static bool is_simulated(const struct gpu *gpu)
{
    struct device_speed speed;
    for (uint32_t i = 0; i < gpu_device_count(gpu); i++) {
        if (device_given_speed(gpu_device(gpu, i), &speed))
            return true;
    }
    return false;
}

static bool select_is_software(struct device *device)
{
    struct cluster_device described;
    plan_device_ask(device, &described);
    return described.is_software;
}

/* Before those that stand by. */
static void select_also(const struct gpu *gpu, const char *id, struct selection *selection)
{
    struct device *device = gpu_find(gpu, id);
    for (uint32_t i = 0; i < selection->n_devices; i++) {
        if (selection->devices[i] == device)
            return;
    }
    if (!device || !select_is_software(device) || selection->n_devices == LIMIT_STAGES)
        return;
    const uint32_t at = selection->n_devices - selection->n_spare;
    memmove(&selection->devices[at + 1], &selection->devices[at],
            selection->n_spare * sizeof *selection->devices);
    selection->devices[at] = device;
    selection->n_devices++;
}

/* A software GPU is nobody's choice but its owner's. */
static void select_lent(const struct gpu *gpu, const char *list, struct selection *selection)
{
    char id[sizeof((struct device_info *)0)->id];
    for (const char *at = list; *at; at += strspn(at, ",")) {
        const size_t length = strcspn(at, ",");
        snprintf(id, sizeof id, "%.*s", (int)(length < sizeof id ? length : 0), at);
        select_also(gpu, id, selection);
        at += length;
    }
}

enum error_code placing_describe(struct gpu *gpu, const char *lent, Cluster__Node *node,
                                 struct error *err)
{
    struct selection selection;
    assert(!node->devices);
    enum error_code code = selection_make(gpu, NULL, is_simulated(gpu), &selection, err);
    if (code)
        return code;
    select_lent(gpu, lent, &selection);
    node->memory_bytes = host_memory_read().total_bytes;
    node->has_memory_bytes = node->memory_bytes != 0;
    node->devices = mem_new_array(selection.n_devices, sizeof(Cluster__Device *));
    for (uint32_t i = 0; node->devices && i < selection.n_devices; i++) {
        Cluster__Device *device =
            describe_cluster(selection.devices[i], i >= selection.n_devices - selection.n_spare);
        if (!device)
            break;
        node->devices[node->n_devices++] = device;
    }
    if (node->n_devices == selection.n_devices)
        return ERROR_NONE;
    placing_describe_clear(node);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory to describe %u devices",
                     selection.n_devices);
}

static void clear_rates(Cluster__Device *out)
{
    for (size_t i = 0; i < out->n_rates; i++)
        message_free(&out->rates[i]->base);
    mem_free(out->rates);
    out->rates = NULL;
    out->n_rates = 0;
}

enum error_code placing_describe_speeds(struct gpu *gpu, Cluster__Node *node, struct error *err)
{
    for (size_t i = 0; i < node->n_devices; i++) {
        Cluster__Device *out = node->devices[i];
        const struct device *device = gpu_find(gpu, out->id);
        struct cluster_device described;
        if (!device)
            continue;
        plan_device_ask(device, &described);
        described.spare = out->spare;
        clear_rates(out);
        if (!say_numbers(&described, out))
            return error_set(err, ERROR_NO_MEMORY, "not enough memory to describe device %s",
                             out->id);
    }
    return ERROR_NONE;
}

void placing_describe_clear(Cluster__Node *node)
{
    for (size_t i = 0; i < node->n_devices; i++)
        message_free(&node->devices[i]->base);
    mem_free(node->devices);
    node->devices = NULL;
    node->n_devices = 0;
}

/* ---- now ------------------------------------------------------------------------------------- */

/* 1: as cold as what is around it; 0: at the line where it stops. */
static void say_headroom(const struct thermal_state *thermal, Node__DeviceNow *out)
{
    const double around_c = thermal->ambient_c.valid ? thermal->ambient_c.value : 25;
    if (!thermal->temperature_mc.valid || !(thermal->stop_c > around_c))
        return;
    const double left = (thermal->stop_c - (double)thermal->temperature_mc.value / 1000) /
                        (thermal->stop_c - around_c);
    out->has_headroom_ppm = true;
    out->headroom_ppm = (uint32_t)describe_whole(fmin(fmax(left, 0), 1) * 1e6);
}

static void say_prospect(const struct thermal_prospect *prospect, Node__DeviceNow *out)
{
    if (!prospect->share.valid)
        return;
    out->has_sustained_ppm = out->has_sustained_error_ppm = true;
    out->sustained_ppm = (uint32_t)describe_whole(prospect->share.value * 1e6);
    out->sustained_error_ppm = (uint32_t)describe_whole(prospect->share_error * 1e6);
    out->has_throttles_in_ms = prospect->full_s < PLACEMENT_SECONDS_MAX;
    out->throttles_in_ms = out->has_throttles_in_ms ? (uint64_t)(prospect->full_s * 1000) : 0;
}

static Node__DeviceNow *describe_device_now(const struct device *device,
                                            const struct heat_snapshot *heat)
{
    const struct device_memory memory = device_memory(device);
    Node__DeviceNow *out = mem_new(sizeof *out);
    if (!out)
        return NULL;
    node__device_now__init(out);
    out->id = describe_copy(device_info(device)->id);
    out->has_free_bytes = memory.total_bytes && memory.free_bytes < PLACEMENT_BYTES_MAX;
    out->free_bytes = out->has_free_bytes ? memory.free_bytes : 0;
    out->has_share_ppm = true;
    out->share_ppm = 1000000;
    for (uint32_t i = 0; heat->time_ns && i < heat->n_devices; i++) {
        if (heat->devices[i].device != device || heat->watches_only)
            continue;
        out->share_ppm = (uint32_t)describe_whole(heat->devices[i].thermal.action.duty * 1e6);
        out->has_asks_lower = out->asks_lower = heat->devices[i].thermal.action.lower_precision;
        say_headroom(&heat->devices[i].thermal, out);
        say_prospect(&heat->devices[i].thermal.action.prospect, out);
    }
    if (out->id)
        return out;
    message_free(&out->base);
    return NULL;
}

static bool say_devices(const struct gpu *gpu, const struct heat_snapshot *heat, Node__Now *now)
{
    const uint32_t n = gpu_device_count(gpu);
    now->devices = mem_new_array(n + 1, sizeof(Node__DeviceNow *));
    for (uint32_t i = 0; now->devices && i < n; i++) {
        Node__DeviceNow *device = describe_device_now(gpu_device(gpu, i), heat);
        if (!device)
            return false;
        now->devices[now->n_devices++] = device;
    }
    return now->devices;
}

static bool describe_is_held(const struct worker_stage *stage)
{
    return stage->state == WORKER_READY || stage->state == WORKER_UNLOADING;
}

static bool say_held(const struct worker_stage *stages, uint32_t n_stages, Node__Now *now)
{
    now->has_tells_held = now->tells_held = true;
    now->held = mem_new_array(n_stages + 1, sizeof(Node__Held *));
    for (uint32_t i = 0; now->held && i < n_stages; i++) {
        if (!describe_is_held(&stages[i]))
            continue;
        Node__Held *held = mem_new(sizeof *held);
        if (!held)
            return false;
        node__held__init(held);
        now->held[now->n_held++] = held;
        held->instance = describe_copy(stages[i].instance);
        held->has_epoch = held->has_stage = true;
        held->epoch = stages[i].epoch;
        held->stage = stages[i].stage;
        if (!held->instance)
            return false;
    }
    return now->held;
}

enum error_code placing_now(struct gpu *gpu, struct heat *heat, const struct worker_stage *stages,
                            uint32_t n_stages, Node__Now *now, struct error *err)
{
    struct heat_snapshot *snapshot = mem_new(sizeof *snapshot);
    assert(!now->devices && !now->held);
    if (snapshot && heat)
        heat_latest(heat, snapshot);
    const bool done =
        snapshot && say_devices(gpu, snapshot, now) && (!stages || say_held(stages, n_stages, now));
    mem_free(snapshot);
    if (done)
        return ERROR_NONE;
    placing_now_clear(now);
    return error_set(err, ERROR_NO_MEMORY, "not enough memory to say what the devices do");
}

void placing_now_clear(Node__Now *now)
{
    for (size_t i = 0; i < now->n_devices; i++)
        message_free(&now->devices[i]->base);
    for (size_t i = 0; i < now->n_held; i++)
        message_free(&now->held[i]->base);
    mem_free(now->devices);
    mem_free(now->held);
    now->devices = NULL;
    now->held = NULL;
    now->n_devices = now->n_held = 0;
    now->has_tells_held = now->tells_held = false;
}
