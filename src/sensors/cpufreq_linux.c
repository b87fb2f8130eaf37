/* The CPU's clock: the mean of what its cores run at now.
 *
 * Source: Documentation/admin-guide/pm/cpufreq.rst (scaling_cur_freq, in kHz). A virtual machine
 * has no cpufreq; there /proc/cpuinfo says what the processor was sold as. */
#include "base/mem.h"
#include "sensors/sensor_impl.h"

#include <math.h>
#include <string.h>

/* Reading one core's clock interrupts that core, so of many only some are asked. */
enum { ASKED_MAX = 16 };

struct cpufreq {
    const struct sysfs *fs;
    char policies[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    uint32_t n_policies;
};

static struct reading read_policies(const struct cpufreq *cpufreq)
{
    uint32_t step = (cpufreq->n_policies + ASKED_MAX - 1) / ASKED_MAX, count = 0;
    uint64_t sum_khz = 0;
    for (uint32_t i = 0; i < cpufreq->n_policies; i += step) {
        uint64_t khz;
        if (sysfs_u64(cpufreq->fs, &khz, UINT64_MAX,
                      "sys/devices/system/cpu/cpufreq/%s/scaling_cur_freq", cpufreq->policies[i]) ||
            !unit_is_plausible(UNIT_MHZ, (double)khz * 1e-3))
            continue; /* an offline core has none */
        sum_khz += khz;
        count++;
    }
    return count ? reading_now_u64(UNIT_MHZ, sum_khz / count / 1000) : reading_failed();
}

/* "cpu MHz : 2499.998", as often as it stands in the first bytes. */
static struct reading cpufreq_read_cpuinfo(const struct cpufreq *cpufreq)
{
    char text[LIMIT_SENSOR_FILE_BYTES];
    if (sysfs_text(cpufreq->fs, text, sizeof text, "proc/cpuinfo"))
        return reading_failed();
    double sum_mhz = 0;
    uint32_t count = 0;
    for (const char *line = strstr(text, "cpu MHz"); line; line = strstr(line + 1, "cpu MHz")) {
        const char *colon = line + strcspn(line, ":\n");
        double mhz;
        if (*colon != ':' || !sysfs_parse_decimal(colon + 1 + strspn(colon + 1, " \t"), &mhz) ||
            mhz < 1 || !unit_is_plausible(UNIT_MHZ, mhz))
            continue;
        sum_mhz += mhz;
        count++;
    }
    return count ? reading_now(UNIT_MHZ, trunc(sum_mhz / count)) : reading_failed();
}

static struct reading cpufreq_read_clock(const struct cpufreq *cpufreq)
{
    return cpufreq->n_policies ? read_policies(cpufreq) : cpufreq_read_cpuinfo(cpufreq);
}

static enum error_code cpufreq_open(const struct sensor_context *context, void **self,
                                    struct error *err)
{
    struct cpufreq *cpufreq = mem_new(sizeof *cpufreq);
    if (!cpufreq)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    cpufreq->fs = &context->fs;
    cpufreq->n_policies = sysfs_list(&context->fs, "sys/devices/system/cpu/cpufreq", "policy",
                                     cpufreq->policies, LIMIT_SENSOR_ENTRIES);
    if (!cpufreq_read_clock(cpufreq).valid) {
        mem_free(cpufreq);
        return error_set(err, ERROR_NOT_FOUND,
                         "the kernel does not show the CPU's clock; nothing to fix");
    }
    *self = cpufreq;
    return ERROR_NONE;
}

static void cpufreq_read_device(void *self, uint32_t index, const struct device_info *info,
                                struct sensor_device *out)
{
    (void)index;
    if (info->kind == DEVICE_CPU)
        out->clock_mhz = cpufreq_read_clock(self);
}

const struct sensor_impl sensor_impl_cpufreq = {
    .name = "cpufreq", .open = cpufreq_open, .close = mem_free, .read_device = cpufreq_read_device};
