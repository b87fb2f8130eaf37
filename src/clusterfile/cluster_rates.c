#include "clusterfile/cluster_rates.h"

#include "simdevices/sim_presets.h"

#include <math.h>
#include <string.h>

static double guess_of(const struct cluster_device *device)
{
    static const double guesses[] = {
        [CLUSTER_GPU] = 80e9, [CLUSTER_INTEGRATED_GPU] = 15e9, [CLUSTER_CPU] = 15e9};
    return device->is_software ? 1e9 : guesses[device->kind];
}

/* The type, else the slowest, of those of which the rate is known; NULL: none is. A NULL name: the
 * slowest. */
static const struct cluster_type *cluster_rates_measured(const struct cluster_device *device,
                                                         const char *name, bool prefill)
{
    const struct cluster_type *slowest = NULL;
    double least = INFINITY;
    for (uint32_t i = 0; device->speed == CLUSTER_MEASURED && i < device->n_types; i++) {
        const struct cluster_type *type = &device->types[i];
        const double rate = prefill ? type->prefill_flops : type->decode_bytes_per_s;
        if (!(rate > 0))
            continue;
        if (name && !strcmp(type->name, name))
            return type;
        if (rate < least) {
            least = rate;
            slowest = type;
        }
    }
    return slowest;
}

bool cluster_type_is_lacking(const struct cluster_device *device, const char *type)
{
    for (uint32_t i = 0; device->speed == CLUSTER_MEASURED && i < device->n_types; i++) {
        const struct cluster_type *probed = &device->types[i];
        if (!strcmp(probed->name, type))
            return !(probed->decode_bytes_per_s > 0) && !(probed->prefill_flops > 0);
    }
    return false;
}

double cluster_decode_bytes_per_s(const struct cluster_device *device, const char *type)
{
    if (cluster_type_is_lacking(device, type))
        return 0;
    const struct cluster_type *found = cluster_rates_measured(device, type, false);
    switch (device->speed) {
    case CLUSTER_MEASURED:
        return found ? found->decode_bytes_per_s : guess_of(device);
    case CLUSTER_GIVEN:
        return device->decode_bytes_per_s;
    case CLUSTER_DATASHEET:
        return device->decode_bytes_per_s * SIM_DECODE_SHARE;
    case CLUSTER_ASSUMED:
        break;
    }
    return guess_of(device);
}

double cluster_prefill_flops(const struct cluster_device *device, const char *type)
{
    const struct cluster_type *found = cluster_rates_measured(device, type, true);
    switch (device->speed) {
    case CLUSTER_MEASURED:
        return found ? found->prefill_flops : 0;
    case CLUSTER_GIVEN:
        return device->prefill_flops;
    case CLUSTER_DATASHEET:
        return device->prefill_flops * SIM_FLOPS_SHARE;
    case CLUSTER_ASSUMED:
        break;
    }
    return 0;
}

double cluster_kv_bytes_per_s(const struct cluster_device *device)
{
    const struct cluster_type *slowest = cluster_rates_measured(device, NULL, false);
    return slowest ? slowest->decode_bytes_per_s : 0;
}

bool cluster_type_is_known(const struct cluster_device *device, const char *type)
{
    const struct cluster_type *found = cluster_rates_measured(device, type, false);
    return device->speed == CLUSTER_GIVEN || (found && !strcmp(found->name, type));
}

double cluster_decode_spread(const struct cluster_device *device, const char *type)
{
    const struct cluster_type *found = cluster_rates_measured(device, type, false);
    return found ? fmin(found->decode_spread, 1) : 0;
}

double cluster_copy_bytes_per_s(const struct cluster_device *device)
{
    const double reading = device->read_bytes_per_s, writing = device->write_bytes_per_s;
    if (!device->own_memory)
        return 0;
    if (reading > 0 && writing > 0)
        return fmin(reading, writing);
    return reading > 0 ? reading : writing > 0 ? writing : CLUSTER_COPY_ASSUMED_BYTES_PER_S;
}
