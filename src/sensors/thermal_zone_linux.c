/* The CPU's temperature from the kernel's thermal zones: ARM boards, and ACPI where there is
 * nothing better.
 *
 * Source: Documentation/driver-api/thermal/sysfs-api.rst. "temp" and the trip points are in
 * millidegrees; the kernel shuts down at a "critical" trip point and throttles from a "passive"
 * one. ACPI asks the firmware, which may take long. */
#include "base/mem.h"
#include "sensors/sensor_impl.h"

#include <stdio.h>
#include <string.h>

/* What a zone's type begins with, in order of preference. */
static const char *const types[] = {"x86_pkg_temp", "cpu",         "CPU",
                                    "soc-thermal",  "soc_thermal", "acpitz"};

enum { TYPES = sizeof types / sizeof *types, ZONES_MAX = 32, TRIPS_MAX = 12 };

struct thermal {
    const struct sysfs *fs;
    char zones[ZONES_MAX][SYSFS_NAME_BYTES];
    uint32_t n_zones;
};

static void thermal_zone_scan(struct thermal *thermal)
{
    char names[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    uint32_t n =
        sysfs_list(thermal->fs, "sys/class/thermal", "thermal_zone", names, LIMIT_SENSOR_ENTRIES);
    size_t best = TYPES;
    thermal->n_zones = 0;
    for (uint32_t i = 0; i < n; i++) {
        char type[64];
        if (sysfs_text(thermal->fs, type, sizeof type, "sys/class/thermal/%s/type", names[i]))
            continue;
        size_t rank = 0;
        while (rank < TYPES && strncmp(type, types[rank], strlen(types[rank])) != 0)
            rank++;
        if (rank == TYPES || rank > best)
            continue;
        if (rank < best)
            thermal->n_zones = 0;
        best = rank;
        if (thermal->n_zones < ZONES_MAX)
            memcpy(thermal->zones[thermal->n_zones++], names[i], SYSFS_NAME_BYTES);
    }
}

static enum error_code thermal_open(const struct sensor_context *context, void **self,
                                    struct error *err)
{
    struct thermal *thermal = mem_new(sizeof *thermal);
    if (!thermal)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    thermal->fs = &context->fs;
    thermal_zone_scan(thermal);
    if (!thermal->n_zones) {
        mem_free(thermal);
        return error_set(err, ERROR_NOT_FOUND,
                         "the kernel has no thermal zone of the CPU (see "
                         "/sys/class/thermal/*/type); nothing to fix");
    }
    *self = thermal;
    return ERROR_NONE;
}

static struct reading read_mc(const struct thermal *thermal, const char *zone, const char *file)
{
    uint64_t mc;
    if (sysfs_u64(thermal->fs, &mc, UINT64_MAX, "sys/class/thermal/%s/%s", zone, file))
        return reading_failed();
    return reading_now_u64(UNIT_MC, mc);
}

static void read_trips(const struct thermal *thermal, const char *zone, struct sensor_device *out)
{
    for (int i = 0; i < TRIPS_MAX; i++) {
        char type[32], file[32];
        if (sysfs_text(thermal->fs, type, sizeof type, "sys/class/thermal/%s/trip_point_%d_type",
                       zone, i))
            return;
        snprintf(file, sizeof file, "trip_point_%d_temp", i);
        if (strcmp(type, "critical") == 0)
            reading_keep_lower(&out->temperature_critical_mc, read_mc(thermal, zone, file));
        else if (strcmp(type, "passive") == 0)
            reading_keep_lower(&out->temperature_slowdown_mc, read_mc(thermal, zone, file));
    }
}

static void thermal_read_device(void *self, uint32_t index, const struct device_info *info,
                                struct sensor_device *out)
{
    (void)index;
    struct thermal *thermal = self;
    if (info->kind != DEVICE_CPU)
        return;
    if (!thermal->n_zones)
        thermal_zone_scan(thermal);
    out->temperature_mc = reading_failed();
    for (uint32_t i = 0; i < thermal->n_zones; i++) {
        struct reading now = read_mc(thermal, thermal->zones[i], "temp");
        if (now.valid && (!out->temperature_mc.valid || now.value > out->temperature_mc.value))
            out->temperature_mc = now;
        read_trips(thermal, thermal->zones[i], out);
    }
    if (!out->temperature_mc.valid)
        thermal->n_zones = 0;
}

const struct sensor_impl sensor_impl_thermal_zone = {.name = "thermal_zone",
                                                     .may_block = true,
                                                     .open = thermal_open,
                                                     .close = mem_free,
                                                     .read_device = thermal_read_device};
