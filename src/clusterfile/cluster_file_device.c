/* One device of the cluster file: written by hand, or as `medley devices --json` prints it. */
#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_file_parts.h"

#include "placement/problem.h"

#include <string.h>

struct device_reading {
    struct cluster_device device;
    double bandwidth, flops, launch_s, copy_bytes_per_s; /* by hand */
    uint64_t memory, memory_free, memory_total, reserve;
    uint64_t bandwidth_mb_per_s, peak_mflops; /* of a report */
    double hint_gb_per_s, hint_tflops;        /* of a report: published of a device of that name */
    bool is_simulated, is_other;              /* a backend that is none of a CPU's own */
    bool is_given;                            /* bandwidth and flops are what it will do */
    yyjson_val *calibration;
};

/* ---- fields ---------------------------------------------------------------------------------- */

#define READER(name)                                                                               \
    static enum error_code read_##name(void *into, yyjson_val *value,                              \
                                       const struct json_place *place, struct error *err)

READER(id)
{
    struct device_reading *r = into;
    return cluster_read_name(value, r->device.id, sizeof r->device.id, place, err);
}

READER(name)
{
    struct device_reading *r = into;
    return json_read_text(value, r->device.name, sizeof r->device.name, place, err);
}

READER(note)
{
    char note[1024];
    (void)into;
    return json_read_text(value, note, sizeof note, place, err);
}

READER(kind)
{
    struct device_reading *r = into;
    for (int kind = CLUSTER_GPU; kind <= CLUSTER_CPU; kind++) {
        if (yyjson_equals_str(value, cluster_kind_name((enum cluster_kind)kind))) {
            r->device.kind = (enum cluster_kind)kind;
            return ERROR_NONE;
        }
    }
    return json_wrong(place, err, "'%s' is none of gpu, integrated gpu and cpu",
                      json_show(value).text);
}

READER(backend)
{
    char backend[32];
    const enum error_code code = json_read_text(value, backend, sizeof backend, place, err);
    struct device_reading *r = into;
    r->is_simulated = !code && !strcmp(backend, "sim");
    r->is_other = !code && !r->is_simulated && strcmp(backend, "cpu") != 0;
    return code;
}

READER(pci)
{
    struct device_reading *r = into;
    return json_read_text(value, r->device.pci, sizeof r->device.pci, place, err);
}

READER(memory)
{
    return cluster_read_bytes(value, &((struct device_reading *)into)->memory, place, err);
}

READER(reserve)
{
    struct device_reading *r = into;
    double bytes;
    const enum error_code code = cluster_read_amount(
        value, SIM_BYTES, (struct sim_range){0, PLACEMENT_BYTES_MAX, "0B to 1024TiB"}, &bytes,
        place, err);
    if (!code)
        r->reserve = (uint64_t)bytes;
    return code;
}

READER(memory_free)
{
    return json_read_whole(value, PLACEMENT_BYTES_MAX,
                           &((struct device_reading *)into)->memory_free, place, err);
}

READER(memory_total)
{
    return json_read_whole(value, PLACEMENT_BYTES_MAX,
                           &((struct device_reading *)into)->memory_total, place, err);
}

READER(bandwidth)
{
    return cluster_read_amount(value, SIM_BYTES_PER_S, cluster_bandwidth_range,
                               &((struct device_reading *)into)->bandwidth, place, err);
}

READER(flops)
{
    return cluster_read_amount(value, SIM_FLOPS, cluster_flops_range,
                               &((struct device_reading *)into)->flops, place, err);
}

READER(launch)
{
    return cluster_read_amount(value, SIM_SECONDS, cluster_launch_range,
                               &((struct device_reading *)into)->launch_s, place, err);
}

READER(copy)
{
    return cluster_read_amount(value, SIM_BYTES_PER_S, cluster_bandwidth_range,
                               &((struct device_reading *)into)->copy_bytes_per_s, place, err);
}

READER(share)
{
    return json_read_number(value, 0, 1, &((struct device_reading *)into)->device.share, place,
                            err);
}

READER(given)
{
    return json_read_bool(value, &((struct device_reading *)into)->is_given, place, err);
}

READER(spare)
{
    return json_read_bool(value, &((struct device_reading *)into)->device.spare, place, err);
}

READER(bandwidth_mb)
{
    return json_read_whole(value, 1000000000, &((struct device_reading *)into)->bandwidth_mb_per_s,
                           place, err);
}

READER(mflops)
{
    return json_read_whole(value, 1000000000000, &((struct device_reading *)into)->peak_mflops,
                           place, err);
}

READER(calibration)
{
    struct device_reading *r = into;
    r->calibration = value;
    return cluster_read_calibration(&r->device, value, place, err);
}

READER(hint_bandwidth)
{
    return json_read_number(value, 0, 1e9, &((struct device_reading *)into)->hint_gb_per_s, place,
                            err);
}

READER(hint_flops)
{
    return json_read_number(value, 0, 1e6, &((struct device_reading *)into)->hint_tflops, place,
                            err);
}

READER(hint)
{
    static const struct json_member hint[] = {{"bandwidth_gb_per_s", read_hint_bandwidth},
                                              {"tflops_f32", read_hint_flops}};
    return json_read_object(value, hint, 2, into, place, NULL, err);
}

/* ---- what belongs together ------------------------------------------------------------------- */

enum {
    ID,
    MEMORY = 4,
    RESERVE,
    BANDWIDTH,
    FLOPS,
    LAUNCH,
    COPY,
    SHARE,
    CALIBRATION,
    KIND,
    MEMORY_FREE = 15,
    MEMORY_TOTAL,
    BANDWIDTH_MB,
    MFLOPS
};

static const struct json_member members[] = {
    {"id", read_id},
    {"name", read_name},
    {"note", read_note},
    {"pci", read_pci},
    [MEMORY] = {"memory", read_memory},
    [RESERVE] = {"reserve", read_reserve},
    [BANDWIDTH] = {"bandwidth", read_bandwidth},
    [FLOPS] = {"flops", read_flops},
    [LAUNCH] = {"launch", read_launch},
    [COPY] = {"copy", read_copy},
    [SHARE] = {"share", read_share},
    [CALIBRATION] = {"calibration", read_calibration},
    [KIND] = {"kind", read_kind},
    {"backend", read_backend},
    {"readings", NULL}, /* of the moment */
    [MEMORY_FREE] = {"memory_free_bytes", read_memory_free},
    [MEMORY_TOTAL] = {"memory_total_bytes", read_memory_total},
    [BANDWIDTH_MB] = {"bandwidth_mb_per_s", read_bandwidth_mb},
    [MFLOPS] = {"peak_mflops", read_mflops},
    {"published_hint", read_hint},
    {"given", read_given},
    {"spare", read_spare},
    /* the rest of a report says nothing that a plan needs */
    {"vendor", NULL},
    {"architecture", NULL},
    {"driver", NULL},
    {"driver_name", NULL},
    {"driver_fault", NULL},
    {"compute_units", NULL},
    {"clock_mhz", NULL},
    {"precisions", NULL},
    {"threads_per_block_max", NULL},
    {"peer_to_peer", NULL},
    {"support", NULL},
    {"temperature_mc", NULL},
    {"power_mw", NULL},
    {"verified", NULL},
};
enum { MEMBERS = sizeof members / sizeof *members };

static bool cluster_device_has(uint64_t seen, int member)
{
    return seen >> member & 1;
}

static enum error_code cluster_device_check_pairs(uint64_t seen, const struct json_place *place,
                                                  struct error *err)
{
    static const int pairs[][2] = {
        {MEMORY, MEMORY_FREE}, {MEMORY, MEMORY_TOTAL},    {BANDWIDTH, CALIBRATION},
        {FLOPS, CALIBRATION},  {BANDWIDTH, BANDWIDTH_MB}, {FLOPS, MFLOPS},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (cluster_device_has(seen, pairs[i][0]) && cluster_device_has(seen, pairs[i][1]))
            return json_wrong(place, err, "%s and %s say the same: leave one out",
                              members[pairs[i][0]].name, members[pairs[i][1]].name);
    }
    if (cluster_device_has(seen, FLOPS) && !cluster_device_has(seen, BANDWIDTH))
        return json_wrong(place, err, "flops without bandwidth: decoding goes by the bandwidth");
    return ERROR_NONE;
}

static enum error_code check_given(const struct device_reading *r, uint64_t seen,
                                   const struct json_place *place, struct error *err)
{
    if (r->is_given && !cluster_device_has(seen, BANDWIDTH))
        return json_wrong(place, err, "given without bandwidth: what is given is the bandwidth");
    return ERROR_NONE;
}

static enum error_code cluster_device_settle_memory(struct device_reading *r, uint64_t seen,
                                                    const struct json_place *place,
                                                    struct error *err)
{
    struct cluster_device *device = &r->device;
    if (cluster_device_has(seen, MEMORY_FREE) && cluster_device_has(seen, MEMORY_TOTAL) &&
        r->memory_free > r->memory_total)
        return json_wrong(place, err, "memory_free_bytes is more than memory_total_bytes");
    device->memory_bytes = cluster_device_has(seen, MEMORY)         ? r->memory
                           : cluster_device_has(seen, MEMORY_FREE)  ? r->memory_free
                           : cluster_device_has(seen, MEMORY_TOTAL) ? r->memory_total
                                                                    : CLUSTER_MEMORY_UNSAID;
    device->reserve_bytes = cluster_device_has(seen, RESERVE) ? r->reserve : CLUSTER_MEMORY_UNSAID;
    return ERROR_NONE;
}

static void settle_speed(struct device_reading *r)
{
    struct cluster_device *device = &r->device;
    bool decodes = false;
    for (uint32_t i = 0; i < device->n_types; i++)
        decodes = decodes || device->types[i].decode_bytes_per_s > 0;
    if (decodes) {
        device->speed = CLUSTER_MEASURED;
    } else if (r->bandwidth > 0) {
        device->speed = r->is_given ? CLUSTER_GIVEN : CLUSTER_DATASHEET;
        device->decode_bytes_per_s = r->bandwidth;
        device->prefill_flops = r->flops;
    } else if (r->bandwidth_mb_per_s > 0) {
        device->speed = CLUSTER_GIVEN;
        device->decode_bytes_per_s = (double)r->bandwidth_mb_per_s * 1e6;
        device->prefill_flops = (double)r->peak_mflops * 1e6;
    } else if (r->hint_gb_per_s > 0) {
        device->speed = CLUSTER_DATASHEET;
        device->decode_bytes_per_s = r->hint_gb_per_s * 1e9;
        device->prefill_flops = r->hint_tflops * 1e12;
    }
    if (r->launch_s > 0)
        device->launch_s = r->launch_s;
    if (r->copy_bytes_per_s > 0)
        device->read_bytes_per_s = device->write_bytes_per_s = r->copy_bytes_per_s;
}

static enum error_code cluster_device_settle(struct device_reading *r, uint64_t seen,
                                             const struct json_place *place, struct error *err)
{
    struct cluster_device *device = &r->device;
    if (!cluster_device_has(seen, ID))
        return json_wrong(place, err, "the id is missing");
    enum error_code code = cluster_device_check_pairs(seen, place, err);
    if (!code)
        code = check_given(r, seen, place, err);
    if (!code)
        code = cluster_device_settle_memory(r, seen, place, err);
    if (code)
        return code;
    if (!cluster_device_has(seen, KIND))
        device->kind = strncmp(device->id, "cpu", 3) ? CLUSTER_GPU : CLUSTER_CPU;
    device->is_software = device->kind == CLUSTER_CPU && r->is_other;
    device->own_memory = device->kind == CLUSTER_GPU || r->is_simulated;
    if (!cluster_device_has(seen, SHARE))
        device->share = 1;
    settle_speed(r);
    return ERROR_NONE;
}

/* ---- the list -------------------------------------------------------------------------------- */

static enum error_code read_device(void *into, yyjson_val *value, const struct json_place *place,
                                   struct error *err)
{
    struct cluster *cluster = into;
    struct device_reading reading = {0};
    uint64_t seen;
    if (cluster->n_devices == LIMIT_PLACEMENT_DEVICES)
        return json_wrong(place, err, "more than %d devices", LIMIT_PLACEMENT_DEVICES);
    enum error_code code = json_read_object(value, members, MEMBERS, &reading, place, &seen, err);
    if (!code)
        code = cluster_device_settle(&reading, seen, place, err);
    if (code)
        return code;
    const uint32_t node = cluster->n_nodes - 1;
    if (cluster_find_device(cluster, node, reading.device.id) != UINT32_MAX)
        return json_wrong(place, err, "the node has the device '%s' already", reading.device.id);
    struct cluster_device *device = cluster_add_device(cluster);
    if (!device)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster");
    *device = reading.device;
    device->node = node;
    return ERROR_NONE;
}

static enum error_code cluster_device_read_list(void *into, yyjson_val *value,
                                                const struct json_place *place, struct error *err)
{
    return json_read_array(value, read_device, into, place, err);
}

enum error_code cluster_read_devices(struct cluster *cluster, yyjson_val *value,
                                     const struct json_place *place, struct error *err)
{
    static const struct json_member report[] = {{"devices", cluster_device_read_list},
                                                {"rejected", NULL},
                                                {"backends", NULL},
                                                {"sensors", NULL},
                                                {"machine", NULL},
                                                {"summary", NULL},
                                                {"registry_problem", NULL}};
    uint64_t seen;
    if (!yyjson_is_obj(value))
        return cluster_device_read_list(cluster, value, place, err);
    const enum error_code code =
        json_read_object(value, report, sizeof report / sizeof *report, cluster, place, &seen, err);
    if (!code && !(seen & 1))
        return json_wrong(place, err,
                          "no devices are in it: is it what `medley devices --json` prints?");
    return code;
}
