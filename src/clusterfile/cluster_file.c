#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_file_parts.h"

#include "base/buffer.h"
#include "base/json_memory.h"
#include "base/limits.h"
#include "simdevices/sim_presets.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { VERSION = 1 };

uint64_t cluster_default_reserve(uint64_t memory_bytes)
{
    const uint64_t most = UINT64_C(512) << 20;
    return memory_bytes / 16 < most ? memory_bytes / 16 : most;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

#define READER(name)                                                                               \
    static enum error_code read_##name(void *into, yyjson_val *value,                              \
                                       const struct json_place *place, struct error *err)

static struct cluster_node *last_node(struct cluster *cluster)
{
    return &cluster->nodes[cluster->n_nodes - 1];
}

READER(node_name)
{
    struct cluster_node *node = last_node(into);
    return cluster_read_name(value, node->name, sizeof node->name, place, err);
}

READER(node_memory)
{
    return cluster_read_bytes(value, &last_node(into)->memory_bytes, place, err);
}

READER(node_disk)
{
    double rate = 0;
    const enum error_code code =
        cluster_read_amount(value, SIM_BYTES_PER_S, cluster_bandwidth_range, &rate, place, err);
    last_node(into)->disk_bytes_per_s = (uint64_t)rate;
    return code;
}

READER(node_devices)
{
    return cluster_read_devices(into, value, place, err);
}

READER(note)
{
    char note[1024];
    (void)into;
    return json_read_text(value, note, sizeof note, place, err);
}

/* Memory that a device did not say is its node's. */
static enum error_code cluster_file_settle_memory(struct cluster *cluster,
                                                  const struct json_place *place, struct error *err)
{
    const struct cluster_node *node = last_node(cluster);
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++) {
        struct cluster_device *device = &cluster->devices[i];
        if (device->memory_bytes == CLUSTER_MEMORY_UNSAID) {
            if (device->own_memory || !node->memory_bytes)
                return json_wrong(place, err,
                                  "the memory of device '%s' is missing: \"memory\": \"24GiB\"",
                                  device->id);
            device->memory_bytes = node->memory_bytes;
        }
        if (device->reserve_bytes == CLUSTER_MEMORY_UNSAID)
            device->reserve_bytes = cluster_default_reserve(device->memory_bytes);
        else if (device->reserve_bytes > device->memory_bytes)
            return json_wrong(place, err, "device '%s': its reserve is more than its memory",
                              device->id);
    }
    return ERROR_NONE;
}

static enum error_code read_node(void *into, yyjson_val *value, const struct json_place *place,
                                 struct error *err)
{
    static const struct json_member members[] = {{"name", read_node_name},
                                                 {"devices", read_node_devices},
                                                 {"memory", read_node_memory},
                                                 {"disk", read_node_disk},
                                                 {"note", read_note}};
    struct cluster *cluster = into;
    uint64_t seen;
    if (cluster->n_nodes == LIMIT_TOPOLOGY_NODES)
        return json_wrong(place, err, "more than %d nodes", LIMIT_TOPOLOGY_NODES);
    if (!cluster_add_node(cluster))
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster");
    const enum error_code code = json_read_object(value, members, 5, cluster, place, &seen, err);
    if (code)
        return code;
    if (!(seen & 1))
        return json_wrong(place, err, "the name is missing");
    if (!(seen & 2))
        return json_wrong(place, err, "the devices are missing (an empty list is possible)");
    if (cluster_find_node(cluster, last_node(cluster)->name) != cluster->n_nodes - 1)
        return json_wrong(place, err, "there is a node '%s' already", last_node(cluster)->name);
    return cluster_file_settle_memory(cluster, place, err);
}

/* ---- the root -------------------------------------------------------------------------------- */

struct cluster_root {
    struct cluster *cluster;
    yyjson_val *links; /* read last: they name nodes, which may come after them */
};

READER(version)
{
    uint64_t version;
    (void)into;
    const enum error_code code = json_read_whole(value, UINT32_MAX, &version, place, err);
    if (!code && version != VERSION)
        return json_wrong(place, err, "version %llu is not known, only %d",
                          (unsigned long long)version, VERSION);
    return code;
}

READER(nodes)
{
    return json_read_array(value, read_node, ((struct cluster_root *)into)->cluster, place, err);
}

READER(links)
{
    (void)place, (void)err;
    ((struct cluster_root *)into)->links = value;
    return ERROR_NONE;
}

static enum error_code read_root(yyjson_val *value, struct cluster *cluster, struct error *err)
{
    static const struct json_member members[] = {{"nodes", read_nodes},
                                                 {"links", read_links},
                                                 {"medley_cluster", read_version},
                                                 {"note", read_note},
                                                 {"$schema", read_note}};
    const struct json_place top = {0}, links = {.above = &top, .key = "links"};
    struct cluster_root root = {.cluster = cluster};
    uint64_t seen;
    enum error_code code = json_read_object(value, members, 5, &root, &top, &seen, err);
    if (code)
        return code;
    if (!(seen & 1))
        return json_wrong(&top, err, "nodes are missing");
    if (!cluster->n_devices)
        return json_wrong(&top, err, "no node has a device");
    return root.links ? cluster_read_links(cluster, root.links, &links, err) : ERROR_NONE;
}

enum error_code cluster_parse(const char *text, size_t size, struct cluster *out, struct error *err)
{
    struct error own;
    yyjson_read_err problem;
    size_t line = 0, column = 0, character = 0;
    *out = (struct cluster){0};
    err = err ? err : &own;
    if (size > LIMIT_CLUSTER_FILE_BYTES)
        return error_set(err, ERROR_INVALID, "more than %d MiB", LIMIT_CLUSTER_FILE_BYTES >> 20);
    yyjson_doc *doc = yyjson_read_opts((char *)(uintptr_t)text, size, 0, &json_memory, &problem);
    if (!doc && problem.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster file");
    if (!doc) {
        yyjson_locate_pos(text, size, problem.pos, &line, &column, &character);
        return error_set(err, ERROR_INVALID, "line %zu, column %zu: %s", line, column, problem.msg);
    }
    const enum error_code code = read_root(yyjson_doc_get_root(doc), out, err);
    yyjson_doc_free(doc);
    if (code)
        cluster_deinit(out);
    return code;
}

/* ---- files ----------------------------------------------------------------------------------- */

enum error_code cluster_read(const char *path, struct cluster *out, struct error *err)
{
    struct error own;
    struct buffer text = {0};
    char chunk[4096];
    size_t n;
    err = err ? err : &own;
    *out = (struct cluster){0};
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "%s: %s", path,
                         strerror(errno));
    while (text.size <= LIMIT_CLUSTER_FILE_BYTES && (n = fread(chunk, 1, sizeof chunk, file)) > 0)
        buffer_append(&text, chunk, n);
    enum error_code code = ERROR_NONE;
    if (ferror(file))
        code = error_set(err, ERROR_IO, "cannot read it");
    else if (text.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the cluster file");
    fclose(file);
    if (!code)
        code = cluster_parse(text.data ? text.data : "", text.size, out, err);
    buffer_deinit(&text);
    return code ? error_wrap(err, "%s", path) : ERROR_NONE;
}

/* ---- one device as text ---------------------------------------------------------------------- */

static bool parse_part(struct sim_text part, enum sim_unit unit, double *out)
{
    const struct sim_range range = unit == SIM_BYTES   ? (struct sim_range){0x1p20, 0x1p50, ""}
                                   : unit == SIM_FLOPS ? cluster_flops_range
                                                       : cluster_bandwidth_range;
    double value;
    if (*out > 0 || sim_value_parse("", part, unit, range, &value, &(struct error){0}))
        return false;
    *out = value;
    return true;
}

static bool fill_preset(const char *text, struct cluster_device *out)
{
    struct sim_spec spec = {0};
    if (!sim_preset_fill(text, &spec))
        return false;
    *out = (struct cluster_device){.own_memory = true,
                                   .memory_bytes = (uint64_t)spec.memory_bytes,
                                   .speed = CLUSTER_DATASHEET,
                                   .decode_bytes_per_s = spec.decode_bytes_per_s / SIM_DECODE_SHARE,
                                   .prefill_flops = spec.flops_per_s / SIM_FLOPS_SHARE};
    snprintf(out->name, sizeof out->name, "%s", text);
    return true;
}

enum error_code cluster_device_parse(const char *text, struct cluster_device *out,
                                     struct error *err)
{
    double bytes = 0, bytes_per_s = 0, flops = 0;
    char presets[160];
    *out = (struct cluster_device){0};
    if (!fill_preset(text, out)) {
        for (const char *at = text, *end; *at; at = *end ? end + 1 : end) {
            end = at + strcspn(at, ",");
            const struct sim_text part = {at, (size_t)(end - at)};
            if (!parse_part(part, SIM_BYTES, &bytes) &&
                !parse_part(part, SIM_BYTES_PER_S, &bytes_per_s) &&
                !parse_part(part, SIM_FLOPS, &flops)) {
                sim_preset_names(presets, sizeof presets);
                return error_set(err, ERROR_INVALID,
                                 "'%s': a device is MEMORY,BANDWIDTH[,FLOPS] such as "
                                 "24GiB,900GB/s,80TFLOP/s, or one of "
                                 "%s",
                                 sim_text_show(part).text, presets);
            }
        }
        if (!(bytes > 0) || !(bytes_per_s > 0))
            return error_set(err, ERROR_INVALID,
                             "'%s': %s is missing; such as 24GiB,900GB/s,80TFLOP/s",
                             sim_text_show((struct sim_text){text, strlen(text)}).text,
                             bytes > 0 ? "the bandwidth" : "the memory");
        *out = (struct cluster_device){.own_memory = true,
                                       .memory_bytes = (uint64_t)bytes,
                                       .speed = CLUSTER_DATASHEET,
                                       .decode_bytes_per_s = bytes_per_s,
                                       .prefill_flops = flops};
    }
    out->reserve_bytes = cluster_default_reserve(out->memory_bytes);
    out->share = 1;
    return ERROR_NONE;
}
