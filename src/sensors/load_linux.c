/* The CPU's load and the machine's memory, from /proc/stat and /proc/meminfo (man 5 proc), and the
 * memory that this process's control group leaves it. */
#include "base/clock.h"
#include "base/mem.h"
#include "sensors/host_memory.h"
#include "sensors/rate.h"
#include "sensors/sensor_impl.h"

#include <inttypes.h>
#include <stdio.h>

struct load {
    const struct sysfs *fs;
    struct load_meter meter;
};

static enum error_code load_open(const struct sensor_context *context, void **self,
                                 struct error *err)
{
    if (!sysfs_exists(&context->fs, "proc/stat"))
        return error_set(err, ERROR_NOT_FOUND,
                         "/proc is not there: `sudo mount -t proc proc /proc`");
    struct load *load = mem_new(sizeof *load);
    if (!load)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    load->fs = &context->fs;
    *self = load;
    return ERROR_NONE;
}

/* "cpu user nice system idle iowait irq softirq steal …" in ticks; what others stole is no idle
 * time. */
static struct reading load_sensor_read_load(struct load *load)
{
    char text[256];
    if (sysfs_text(load->fs, text, sizeof text, "proc/stat"))
        return reading_failed();
    uint64_t ticks[8] = {0}, all = 0;
    int n = sscanf(text,
                   "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64
                   " %" SCNu64 " %" SCNu64,
                   &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6],
                   &ticks[7]);
    if (n < 4)
        return reading_failed();
    for (int i = 0; i < 8; i++) {
        if (ticks[i] > UINT64_MAX / 16) /* a minus sign, or nonsense */
            return reading_failed();
        all += ticks[i];
    }
    return load_meter_update(&load->meter, all - ticks[3] - ticks[4], all, clock_now_ns());
}

struct memory {
    struct reading total_bytes, available_bytes;
};

static struct memory load_sensor_read_memory(const struct load *load)
{
    struct memory memory = {reading_failed(), reading_failed()};
    struct host_memory told;
    if (!host_memory_of(load->fs, &told))
        return memory;
    memory.total_bytes = reading_now_u64(UNIT_BYTES, told.total_bytes);
    if (told.has_available && told.available_bytes <= told.total_bytes)
        memory.available_bytes = reading_now_u64(UNIT_BYTES, told.available_bytes);
    return memory;
}

static void load_read_device(void *self, uint32_t index, const struct device_info *info,
                             struct sensor_device *out)
{
    (void)index;
    struct load *load = self;
    if (info->kind != DEVICE_CPU)
        return;
    struct memory memory = load_sensor_read_memory(load);
    out->utilisation_pct = load_sensor_read_load(load);
    out->memory_free_bytes = memory.available_bytes;
    out->memory_used_bytes = reading_failed();
    if (memory.total_bytes.valid && memory.available_bytes.valid)
        out->memory_used_bytes =
            reading_now(UNIT_BYTES, memory.total_bytes.value - memory.available_bytes.value);
}

static void load_read_node(void *self, struct sensor_node *out)
{
    struct load *load = self;
    struct memory memory = load_sensor_read_memory(load);
    out->cpu_utilisation_pct = load_sensor_read_load(load);
    out->memory_total_bytes = memory.total_bytes;
    out->memory_available_bytes = memory.available_bytes;
}

const struct sensor_impl sensor_impl_load = {.name = "load",
                                             .open = load_open,
                                             .close = mem_free,
                                             .read_device = load_read_device,
                                             .read_node = load_read_node};
