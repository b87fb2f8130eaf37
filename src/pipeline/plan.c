/* driver_plan(): which layers go on which device. The exact solver over measured links comes with
 * the placement room; this is the split that needs no more than what the devices say of themselves. */
#include "pipeline/driver.h"

#include "base/limits.h"
#include "gpu/gpu.h"
#include "model/model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void list_ids(struct device *const *devices, uint32_t n_devices, char *out, size_t size)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < n_devices && used + 40 < size; i++) {
        const char *id = device_info(devices[i])->id;
        size_t length = strlen(id);
        if (i) {
            memcpy(out + used, ", ", 3);
            used += 2;
        }
        memcpy(out + used, id, length + 1);
        used += length;
    }
}

/* ---- a split that was given ----------------------------------------------------------- */

static enum error_code parse_split(const char *split, uint32_t *counts, uint32_t *n_counts, struct error *err)
{
    const char *at = split;
    for (*n_counts = 0;; at++) {
        char *end = NULL;
        errno = 0;
        unsigned long value = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        if (!end || errno || value == 0 || value > LIMIT_LAYERS || (*end && *end != ','))
            return error_set(err, ERROR_INVALID, "split '%s': part %u is not a number of layers from 1 to %d", split,
                             *n_counts + 1, LIMIT_LAYERS);
        if (*n_counts == LIMIT_STAGES)
            return error_set(err, ERROR_INVALID, "split '%s': more than %d parts", split, LIMIT_STAGES);
        counts[(*n_counts)++] = (uint32_t)value;
        if (!*end)
            return ERROR_NONE;
        at = end;
    }
}

static enum error_code plan_given(const char *split, struct device *const *devices, uint32_t n_devices,
                                  uint32_t n_layers, uint32_t *counts, struct error *err)
{
    uint32_t parts[LIMIT_STAGES], n_parts = 0;
    enum error_code code = parse_split(split, parts, &n_parts, err);
    if (code)
        return code;
    if (n_parts != n_devices) {
        char ids[256];
        list_ids(devices, n_devices, ids, sizeof ids);
        return error_set(err, ERROR_INVALID, "split '%s' has %u part%s for %u device%s (%s)", split, n_parts,
                         n_parts == 1 ? "" : "s", n_devices, n_devices == 1 ? "" : "s", ids);
    }
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n_parts; i++)
        sum += counts[i] = parts[i];
    if (sum != n_layers)
        return error_set(err, ERROR_INVALID, "split '%s' adds up to %u layers; the model has %u", split, sum, n_layers);
    return ERROR_NONE;
}

/* ---- a split of our own --------------------------------------------------------------- */

struct candidate {
    double weight;     /* its claim to layers: bandwidth, or free memory */
    uint32_t capacity; /* layers that fit; at least 1 */
};

static void weigh(const struct model *model, struct device *const *devices, uint32_t n_devices, uint32_t n_layers,
                  struct candidate *candidates)
{
    uint64_t layer_bytes = 0;
    for (uint32_t i = 0; i < n_layers; i++)
        layer_bytes += model_layer_cost(model, i).bytes;
    layer_bytes = layer_bytes / n_layers + 1;
    bool all_measured = true;
    for (uint32_t i = 0; i < n_devices; i++)
        all_measured = all_measured && device_info(devices[i])->bandwidth_mb_per_s.valid &&
                       device_info(devices[i])->bandwidth_mb_per_s.value;
    for (uint32_t i = 0; i < n_devices; i++) {
        uint64_t free_bytes = device_memory(devices[i]).free_bytes;
        uint64_t fits = free_bytes / layer_bytes;
        uint64_t bandwidth = device_info(devices[i])->bandwidth_mb_per_s.value;
        candidates[i].weight = all_measured ? (double)bandwidth : (double)free_bytes + 1;
        candidates[i].capacity = fits >= n_layers ? n_layers : fits ? (uint32_t)fits : 1;
    }
}

/* One layer each, then every further layer to the device that has the least for its weight and still has
 * room: the highest-averages method of D'Hondt, which never gives a layer back. Where the devices are too small
 * together it goes on as if they had room; opening the stages then says what is missing. */
static void share_out(const struct candidate *candidates, uint32_t n_devices, uint32_t n_layers, uint32_t *counts)
{
    for (uint32_t i = 0; i < n_devices; i++)
        counts[i] = 1;
    for (uint32_t given = n_devices; given < n_layers; given++) {
        uint32_t best = 0;
        bool best_fits = false;
        double best_claim = -1;
        for (uint32_t i = 0; i < n_devices; i++) {
            double claim = candidates[i].weight / (counts[i] + 1);
            bool fits = counts[i] < candidates[i].capacity;
            if (fits > best_fits || (fits == best_fits && claim > best_claim)) {
                best = i;
                best_fits = fits;
                best_claim = claim;
            }
        }
        counts[best]++;
    }
}

enum error_code driver_plan(const struct model *model, struct device *const *devices, uint32_t n_devices,
                            const char *split, struct stage_plan *out, struct error *err)
{
    uint32_t n_layers = model_hyperparameters(model)->n_layers;
    if (!n_devices || n_devices > LIMIT_STAGES)
        return error_set(err, ERROR_INVALID, "%u devices; there can be 1 to %d", n_devices, LIMIT_STAGES);
    uint32_t counts[LIMIT_STAGES];
    if (split) {
        enum error_code code = plan_given(split, devices, n_devices, n_layers, counts, err);
        if (code)
            return code;
    } else {
        if (n_devices > n_layers)
            return error_set(err, ERROR_INVALID, "%u devices for a model of %u layers: each needs at least one",
                             n_devices, n_layers);
        struct candidate candidates[LIMIT_STAGES];
        weigh(model, devices, n_devices, n_layers, candidates);
        share_out(candidates, n_devices, n_layers, counts);
    }
    for (uint32_t i = 0; i < n_devices; i++)
        out[i] = (struct stage_plan){devices[i], counts[i]};
    return ERROR_NONE;
}
