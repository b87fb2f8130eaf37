/* The CPU's power from RAPL's energy counters (Intel, and AMD since Zen), and its sustained limit.
 *
 * Source: Documentation/power/powercap/powercap.rst of the kernel. A zone "intel-rapl:0" is a
 * package when its name says so; its parts (intel-rapl:0:0) and the second way to the same counter
 * (intel-rapl-mmio) would count twice. Since Linux 5.10 energy_uj is for root alone (CVE-2020-8694:
 * the counter tells secrets of other users' computations). */
#include "base/clock.h"
#include "base/mem.h"
#include "sensors/rate.h"
#include "sensors/sensor_impl.h"

#include <string.h>

enum { PACKAGES_MAX = 16 };
static const uint64_t range_max_uj = (uint64_t)1 << 62;

struct package {
    char zone[SYSFS_NAME_BYTES];
    struct energy_meter meter;
};

struct rapl {
    const struct sysfs *fs;
    struct package packages[PACKAGES_MAX];
    uint32_t n_packages;
};

static void rapl_scan(struct rapl *rapl)
{
    static const char prefix[] = "intel-rapl:";
    char names[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    uint32_t n = sysfs_list(rapl->fs, "sys/class/powercap", prefix, names, LIMIT_SENSOR_ENTRIES);
    for (uint32_t i = 0; i < n && rapl->n_packages < PACKAGES_MAX; i++) {
        char name[32];
        if (strchr(names[i] + strlen(prefix), ':') ||
            sysfs_text(rapl->fs, name, sizeof name, "sys/class/powercap/%s/name", names[i]) ||
            strncmp(name, "package", 7) != 0)
            continue;
        memcpy(rapl->packages[rapl->n_packages++].zone, names[i], SYSFS_NAME_BYTES);
    }
}

static enum sysfs_result read_zone(const struct rapl *rapl, const char *zone, const char *file,
                                   uint64_t *out)
{
    return sysfs_u64(rapl->fs, out, range_max_uj, "sys/class/powercap/%s/%s", zone, file);
}

static enum error_code rapl_check(const struct rapl *rapl, struct error *err)
{
    if (!rapl->n_packages)
        return error_set(
            err, ERROR_NOT_FOUND,
            "the kernel shows no energy counter of the CPU (a virtual machine has none): "
            "`sudo modprobe intel_rapl_msr`");
    for (uint32_t i = 0; i < rapl->n_packages; i++) {
        uint64_t energy_uj;
        enum sysfs_result result = read_zone(rapl, rapl->packages[i].zone, "energy_uj", &energy_uj);
        if (result == SYSFS_DENIED)
            return error_set(err, ERROR_IO,
                             "only root can read the CPU's energy counter: `sudo chmod a+r "
                             "/sys/class/powercap/intel-rapl:*/energy_uj` until the next start "
                             "(then every user of this machine can see its power)");
        if (result)
            return error_set(
                err, ERROR_IO,
                "the CPU's energy counter cannot read %s: see `sudo dmesg | grep -i rapl`",
                rapl->packages[i].zone);
    }
    return ERROR_NONE;
}

static enum error_code rapl_open(const struct sensor_context *context, void **self,
                                 struct error *err)
{
    struct rapl *rapl = mem_new(sizeof *rapl);
    if (!rapl)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    rapl->fs = &context->fs;
    rapl_scan(rapl);
    enum error_code code = rapl_check(rapl, err);
    if (code)
        mem_free(rapl);
    else
        *self = rapl;
    return code;
}

/* A sum says something only when every package has said its part. The first begins it. */
static void rapl_add(struct reading *sum, struct reading part, bool first)
{
    if (first || !part.valid)
        *sum = part;
    else if (sum->valid)
        *sum = reading_now(UNIT_MW, sum->value + part.value);
}

static void rapl_read_device(void *self, uint32_t index, const struct device_info *info,
                             struct sensor_device *out)
{
    struct rapl *rapl = self;
    /* A second device that computes on this CPU (software Vulkan) shares the first one's
     * reading. */
    (void)index;
    if (info->kind != DEVICE_CPU)
        return;
    struct reading power_mw = reading_failed(), limit_mw = reading_failed();
    for (uint32_t i = 0; i < rapl->n_packages; i++) {
        struct package *package = &rapl->packages[i];
        uint64_t energy_uj, range_uj, limit_uw;
        if (read_zone(rapl, package->zone, "energy_uj", &energy_uj)) {
            energy_meter_reset(&package->meter);
            rapl_add(&power_mw, reading_failed(), i == 0);
        } else {
            if (read_zone(rapl, package->zone, "max_energy_range_uj", &range_uj))
                range_uj = 0;
            rapl_add(&power_mw,
                     energy_meter_update(&package->meter, energy_uj, range_uj, clock_now_ns()),
                     i == 0);
        }
        bool known =
            !read_zone(rapl, package->zone, "constraint_0_power_limit_uw", &limit_uw) && limit_uw;
        rapl_add(&limit_mw, known ? reading_now_u64(UNIT_MW, limit_uw / 1000) : reading_failed(),
                 i == 0);
    }
    out->power_mw = power_mw;
    out->power_limit_mw = limit_mw;
}

const struct sensor_impl sensor_impl_rapl = {
    .name = "rapl", .open = rapl_open, .close = mem_free, .read_device = rapl_read_device};
