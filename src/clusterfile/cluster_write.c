#include "clusterfile/cluster_write.h"

#include "clusterfile/cluster_file_parts.h"
#include "placement/problem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adding to a NULL or full document is a no-op; writing it then fails, which is where it is
 * noticed. */
struct writing {
    yyjson_mut_doc *doc;
    yyjson_mut_val *object; /* where fields go */
};

/* ---- values ---------------------------------------------------------------------------------- */

static void add_whole(const struct writing *w, const char *key, uint64_t value, const char *unit)
{
    char text[32];
    snprintf(text, sizeof text, "%llu%s", (unsigned long long)value, unit);
    yyjson_mut_obj_add_strcpy(w->doc, w->object, key, text);
}

/* With 17 digits, in the reader's way: without an exponent, and with a point whatever the locale
 * says. False: it is beyond the range. */
static bool add_amount(const struct writing *w, const char *key, double value,
                       struct sim_range range, const char *unit)
{
    char digits[48], text[64];
    int decimals = 17;
    if (!(value > 0) || value < range.min || value > range.max)
        return false;
    for (double left = value; left >= 1 && decimals; left /= 10)
        decimals--;
    for (double left = value; left < 0.1 && decimals < 27; left *= 10)
        decimals++;
    snprintf(digits, sizeof digits, "%.*f", decimals, value);
    digits[strcspn(digits, ",")] = digits[strcspn(digits, ",")] ? '.' : '\0';
    if (strchr(digits, '.')) {
        size_t size = strlen(digits);
        while (digits[size - 1] == '0')
            digits[--size] = '\0';
        digits[size - (digits[size - 1] == '.')] = '\0';
    }
    snprintf(text, sizeof text, "%s%s", digits, unit);
    return yyjson_mut_obj_add_strcpy(w->doc, w->object, key, text);
}

/* For people: what is no plain character is a "?". */
static void cluster_write_add_text(const struct writing *w, const char *key, const char *text,
                                   size_t size_max)
{
    char safe[256];
    size_t size = 0;
    for (; text[size] && size + 1 < size_max && size + 1 < sizeof safe; size++)
        safe[size] = text[size] >= ' ' && text[size] <= '~' ? text[size] : '?';
    safe[size] = '\0';
    if (size)
        yyjson_mut_obj_add_strcpy(w->doc, w->object, key, safe);
}

static struct writing add_object(const struct writing *w, const char *key)
{
    return (struct writing){w->doc, yyjson_mut_obj_add_obj(w->doc, w->object, key)};
}

/* ---- devices --------------------------------------------------------------------------------- */

static void add_measured(const struct writing *w, const char *key, double median, double spread)
{
    if (!(median > 0))
        return;
    const struct writing measured = add_object(w, key);
    yyjson_mut_obj_add_real(w->doc, measured.object, "median", median);
    if (spread > 0)
        yyjson_mut_obj_add_real(w->doc, measured.object, "spread", spread);
}

/* Also where no type's decoding was measured: the ways to and from the host may have been. */
static void add_calibration(const struct writing *w, const struct cluster_device *device)
{
    const struct writing calibration = add_object(w, "calibration");
    yyjson_mut_val *types = yyjson_mut_obj_add_arr(w->doc, calibration.object, "types");
    for (uint32_t i = 0; i < device->n_types; i++) {
        const struct cluster_type *type = &device->types[i];
        const struct writing item = {w->doc, yyjson_mut_arr_add_obj(w->doc, types)};
        cluster_write_add_text(&item, "name", type->name, sizeof type->name);
        add_measured(&item, "decode_bytes_per_s", type->decode_bytes_per_s, type->decode_spread);
        add_measured(&item, "prefill_flops", type->prefill_flops, 0);
    }
    add_measured(&calibration, "write_bytes_per_s", device->write_bytes_per_s, 0);
    add_measured(&calibration, "read_bytes_per_s", device->read_bytes_per_s, 0);
}

/* Beside a calibration the format takes a datasheet as what is published of a device of its name,
 * and what is given as a report of `medley devices --json` has it. */
static void add_beside_calibration(const struct writing *w, const struct cluster_device *device)
{
    if (device->speed == CLUSTER_GIVEN) {
        yyjson_mut_obj_add_uint(w->doc, w->object, "bandwidth_mb_per_s",
                                (uint64_t)llround(device->decode_bytes_per_s / 1e6));
        yyjson_mut_obj_add_uint(w->doc, w->object, "peak_mflops",
                                (uint64_t)llround(device->prefill_flops / 1e6));
    } else if (device->speed == CLUSTER_DATASHEET) {
        const struct writing hint = add_object(w, "published_hint");
        yyjson_mut_obj_add_real(w->doc, hint.object, "bandwidth_gb_per_s",
                                device->decode_bytes_per_s / 1e9);
        yyjson_mut_obj_add_real(w->doc, hint.object, "tflops_f32", device->prefill_flops / 1e12);
    }
}

static void add_speed(const struct writing *w, const struct cluster_device *device)
{
    if (device->speed == CLUSTER_MEASURED || device->n_types ||
        device->read_bytes_per_s != device->write_bytes_per_s) {
        add_beside_calibration(w, device);
        add_calibration(w, device);
    } else {
        const bool said = device->speed == CLUSTER_GIVEN || device->speed == CLUSTER_DATASHEET;
        if (said && add_amount(w, "bandwidth", device->decode_bytes_per_s, cluster_bandwidth_range,
                               "B/s")) {
            add_amount(w, "flops", device->prefill_flops, cluster_flops_range, "FLOP/s");
            yyjson_mut_obj_add_bool(w->doc, w->object, "given", device->speed == CLUSTER_GIVEN);
        }
        add_amount(w, "copy", device->read_bytes_per_s, cluster_bandwidth_range, "B/s");
    }
    add_amount(w, "launch", device->launch_s, cluster_launch_range, "s");
}

static void cluster_write_add_device(const struct writing *w, const struct cluster_device *device)
{
    const bool integrated = device->kind == CLUSTER_GPU && !device->own_memory;
    yyjson_mut_obj_add_strcpy(w->doc, w->object, "id", device->id);
    cluster_write_add_text(w, "name", device->name, sizeof device->name);
    yyjson_mut_obj_add_str(w->doc, w->object, "kind",
                           cluster_kind_name(integrated ? CLUSTER_INTEGRATED_GPU : device->kind));
    /* The reader goes by it for what lives where: "sim" has memory of its own, and another one than
     * the CPU's own is software. */
    if (device->own_memory && device->kind != CLUSTER_GPU)
        yyjson_mut_obj_add_str(w->doc, w->object, "backend", "sim");
    else if (device->is_software)
        yyjson_mut_obj_add_str(w->doc, w->object, "backend", "software");
    cluster_write_add_text(w, "pci", device->pci, sizeof device->pci);
    yyjson_mut_obj_add_uint(w->doc, w->object, "memory_free_bytes", device->memory_bytes);
    add_whole(w, "reserve", device->reserve_bytes, "B");
    add_speed(w, device);
    if (device->share < 1)
        yyjson_mut_obj_add_real(w->doc, w->object, "share", device->share);
    if (device->spare)
        yyjson_mut_obj_add_bool(w->doc, w->object, "spare", true);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void add_ms(const struct writing *w, const char *key, struct reading reading)
{
    if (reading.valid)
        yyjson_mut_obj_add_real(w->doc, w->object, key, reading.value / 1e6);
}

static void add_bytes_per_s(const struct writing *w, const char *key, struct reading reading)
{
    if (reading.valid)
        yyjson_mut_obj_add_uint(w->doc, w->object, key, reading_whole(reading));
}

static void add_link(const struct writing *w, const struct cluster *cluster, uint32_t index)
{
    const struct topology_link link = topology_link_clean(cluster->links[index]);
    yyjson_mut_obj_add_strcpy(w->doc, w->object, "from", cluster->nodes[link.from].name);
    yyjson_mut_obj_add_strcpy(w->doc, w->object, "to", cluster->nodes[link.to].name);
    yyjson_mut_obj_add_bool(w->doc, w->object, "one_way", true);
    if (!link.up)
        yyjson_mut_obj_add_bool(w->doc, w->object, "up", false);
    if (link.class != TOPOLOGY_UNKNOWN)
        yyjson_mut_obj_add_str(w->doc, w->object, "class", topology_class_name(link.class));
    add_ms(w, "latency_ms", link.latency_ns);
    add_ms(w, "jitter_ms", link.jitter_ns);
    add_ms(w, "overhead_ms", link.overhead_ns);
    if (link.loss_share.valid)
        yyjson_mut_obj_add_real(w->doc, w->object, "loss_pct",
                                round(link.loss_share.value * 1e6) / 1e4);
    add_bytes_per_s(w, "bandwidth_bytes_per_s", link.bandwidth_bytes_per_s);
    add_bytes_per_s(w, "peer_bandwidth_bytes_per_s", link.peer_bandwidth_bytes_per_s);
    if (cluster->link_assumed[index])
        yyjson_mut_obj_add_bool(w->doc, w->object, "assumed", true);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void add_node(const struct writing *w, const struct cluster *cluster,
                     const struct cluster_node *node)
{
    yyjson_mut_obj_add_strcpy(w->doc, w->object, "name", node->name);
    if (node->memory_bytes)
        add_whole(w, "memory", node->memory_bytes, "B");
    add_amount(w, "disk", (double)node->disk_bytes_per_s, cluster_bandwidth_range, "B/s");
    yyjson_mut_val *devices = yyjson_mut_obj_add_arr(w->doc, w->object, "devices");
    for (uint32_t i = node->first_device; i < node->first_device + node->n_devices; i++)
        cluster_write_add_device(&(struct writing){w->doc, yyjson_mut_arr_add_obj(w->doc, devices)},
                                 &cluster->devices[i]);
}

void cluster_write(const struct cluster *cluster, struct buffer *json)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(NULL);
    yyjson_mut_val *root = yyjson_mut_obj(doc);
    yyjson_mut_doc_set_root(doc, root);
    yyjson_mut_obj_add_uint(doc, root, "medley_cluster", 1);
    yyjson_mut_val *nodes = yyjson_mut_obj_add_arr(doc, root, "nodes");
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        add_node(&(struct writing){doc, yyjson_mut_arr_add_obj(doc, nodes)}, cluster,
                 &cluster->nodes[i]);
    yyjson_mut_val *links = yyjson_mut_obj_add_arr(doc, root, "links");
    for (uint32_t i = 0; i < cluster->n_links; i++)
        add_link(&(struct writing){doc, yyjson_mut_arr_add_obj(doc, links)}, cluster, i);
    size_t size = 0;
    char *text = yyjson_mut_write(doc, YYJSON_WRITE_NOFLAG, &size);
    if (text)
        buffer_append(json, text, size);
    else
        json->failed = true;
    free(text);
    yyjson_mut_doc_free(doc);
}
