/* A node's device as it is described, read by others: foreign. */
#include "placing/placing.h"

#include <stdio.h>
#include <string.h>

/* What no machine can do is not known. */
static double placing_device_rate(bool known, uint64_t value)
{
    return known && (double)value <= PLACEMENT_RATE_MAX ? (double)value : 0;
}

static bool placing_device_read_id(const char *id, char *out, size_t size)
{
    for (const char *at = id; at && *at; at++) {
        if (*at <= ' ' || *at > '~' || *at == '/' || *at == ',')
            return false;
    }
    return id && *id && (size_t)snprintf(out, size, "%s", id) < size;
}

static bool placing_device_is_there(const struct cluster_device *device, const char *name)
{
    for (uint32_t i = 0; i < device->n_types; i++) {
        if (!strcmp(device->types[i].name, name))
            return true;
    }
    return false;
}

static void read_rates(const Cluster__Device *said, struct cluster_device *out)
{
    for (size_t i = 0; i < said->n_rates && out->n_types < CLUSTER_TYPES_MAX; i++) {
        const Cluster__Rate *from = said->rates[i];
        struct cluster_type *type = &out->types[out->n_types];
        if (!placing_device_read_id(from->type, type->name, sizeof type->name) ||
            placing_device_is_there(out, type->name))
            continue;
        type->decode_bytes_per_s =
            placing_device_rate(from->has_decode_bytes_per_s, from->decode_bytes_per_s);
        type->prefill_flops = placing_device_rate(from->has_prefill_flops, from->prefill_flops);
        type->decode_spread = from->has_decode_spread_ppm ? from->decode_spread_ppm / 1e6 : 0;
        out->n_types++;
    }
}

static void placing_device_read_kind(const char *said, struct cluster_device *out)
{
    out->kind = CLUSTER_CPU;
    for (int kind = CLUSTER_GPU; said && kind <= CLUSTER_CPU; kind++) {
        if (!strcmp(said, cluster_kind_name((enum cluster_kind)kind)))
            out->kind = (enum cluster_kind)kind;
    }
}

/* Whether there is a speed for what it says of where that is from. */
static bool is_known(const struct cluster_device *device)
{
    bool measured = false;
    for (uint32_t i = 0; i < device->n_types; i++)
        measured = measured || device->types[i].decode_bytes_per_s > 0;
    return device->speed == CLUSTER_MEASURED ? measured : device->decode_bytes_per_s > 0;
}

bool placing_device_of(const Cluster__Device *said, struct cluster_device *out)
{
    const uint32_t speed =
        said->has_speed && said->speed <= CLUSTER_MEASURED ? said->speed : CLUSTER_ASSUMED;
    *out = (struct cluster_device){
        .share = 1,
        .speed = (enum cluster_speed)speed,
        .own_memory = !said->shares_host_memory,
        .is_software = said->is_software,
        .spare = said->spare,
        .decode_bytes_per_s =
            placing_device_rate(said->has_decode_bytes_per_s, said->decode_bytes_per_s),
        .prefill_flops = placing_device_rate(said->has_prefill_flops, said->prefill_flops),
        .read_bytes_per_s = placing_device_rate(said->has_read_bytes_per_s, said->read_bytes_per_s),
        .write_bytes_per_s =
            placing_device_rate(said->has_write_bytes_per_s, said->write_bytes_per_s)};
    placing_device_read_kind(said->kind, out);
    read_rates(said, out);
    snprintf(out->name, sizeof out->name, "%s", said->name ? said->name : "");
    snprintf(out->pci, sizeof out->pci, "%s", said->pci ? said->pci : "");
    if (said->has_launch_ns &&
        said->launch_ns <= UINT64_C(10000000000)) /* as in a cluster file: 10 s */
        out->launch_s = (double)said->launch_ns / 1e9;
    if (!is_known(out))
        out->speed = CLUSTER_ASSUMED;
    out->memory_bytes = said->has_free_bytes     ? said->free_bytes
                        : said->has_memory_bytes ? said->memory_bytes
                                                 : 0;
    if (out->memory_bytes > PLACEMENT_BYTES_MAX)
        out->memory_bytes = PLACEMENT_BYTES_MAX;
    return placing_device_read_id(said->id, out->id, sizeof out->id);
}
