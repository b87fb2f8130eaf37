/* The CPU's load and the machine's memory, from /proc/stat and /proc/meminfo (man 5 proc), and the memory that
 * this process's control group leaves it. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/sensors/rate.h"
#include "gpu/sensors/sensor_impl.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t memory_max_bytes = (uint64_t)1 << 60;

struct load {
    const struct sysfs *fs;
    struct load_meter meter;
};

static enum error_code load_open(const struct sensor_context *context, void **self, struct error *err)
{
    if (!sysfs_exists(&context->fs, "proc/stat"))
        return error_set(err, ERROR_NOT_FOUND, "/proc is not there: `sudo mount -t proc proc /proc`");
    struct load *load = mem_new(sizeof *load);
    if (!load)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    load->fs = &context->fs;
    *self = load;
    return ERROR_NONE;
}

/* "cpu user nice system idle iowait irq softirq steal …" in ticks; what others stole is no idle time. */
static struct sensor_reading read_load(struct load *load)
{
    char text[256];
    if (sysfs_text(load->fs, text, sizeof text, "proc/stat"))
        return reading_failed();
    uint64_t ticks[8] = {0}, all = 0;
    int n =
        sscanf(text, "cpu %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64 " %" SCNu64,
               &ticks[0], &ticks[1], &ticks[2], &ticks[3], &ticks[4], &ticks[5], &ticks[6], &ticks[7]);
    if (n < 4)
        return reading_failed();
    for (int i = 0; i < 8; i++) {
        if (ticks[i] > UINT64_MAX / 16) /* a minus sign, or nonsense */
            return reading_failed();
        all += ticks[i];
    }
    return load_meter_update(&load->meter, all - ticks[3] - ticks[4], all, clock_now_ns());
}

/* A line "MemTotal:  16384 kB". */
static bool find_kb(const char *text, const char *key, uint64_t *bytes)
{
    const char *line = strstr(text, key);
    if (!line || (line != text && line[-1] != '\n'))
        return false;
    char *end;
    line += strlen(key);
    line += strspn(line, " \t");
    if (*line < '0' || *line > '9')
        return false;
    uint64_t kb = strtoull(line, &end, 10);
    *bytes = kb * 1024;
    return kb <= memory_max_bytes / 1024 && strncmp(end, " kB", 3) == 0;
}

struct memory {
    struct sensor_reading total_bytes, available_bytes;
};

static struct memory read_memory(const struct load *load)
{
    struct memory memory = {reading_failed(), reading_failed()};
    char text[LIMIT_SENSOR_FILE_BYTES];
    uint64_t total, available, limit, used;
    if (sysfs_text(load->fs, text, sizeof text, "proc/meminfo") || !find_kb(text, "MemTotal:", &total) || !total)
        return memory;
    bool has_available = find_kb(text, "MemAvailable:", &available);
    if (!sysfs_u64(load->fs, &limit, memory_max_bytes, "sys/fs/cgroup/memory.max") &&
        !sysfs_u64(load->fs, &used, memory_max_bytes, "sys/fs/cgroup/memory.current") && limit < total) {
        uint64_t left = used < limit ? limit - used : 0;
        total = limit;
        available = has_available && available < left ? available : left;
        has_available = true;
    }
    memory.total_bytes = reading_make(total, memory_max_bytes);
    if (has_available)
        memory.available_bytes = reading_make(available, total);
    return memory;
}

static void load_read_device(void *self, uint32_t index, const struct device_info *info, struct sensor_device *out)
{
    (void)index;
    struct load *load = self;
    if (info->kind != DEVICE_CPU)
        return;
    struct memory memory = read_memory(load);
    out->utilisation_pct = read_load(load);
    out->memory_free_bytes = memory.available_bytes;
    out->memory_used_bytes = reading_failed();
    if (memory.available_bytes.valid)
        out->memory_used_bytes =
            reading_make(memory.total_bytes.value - memory.available_bytes.value, memory_max_bytes);
}

static void load_read_node(void *self, struct sensor_node *out)
{
    struct load *load = self;
    struct memory memory = read_memory(load);
    out->cpu_utilisation_pct = read_load(load);
    out->memory_total_bytes = memory.total_bytes;
    out->memory_available_bytes = memory.available_bytes;
}

const struct sensor_impl sensor_impl_load = {
    .name = "load", .open = load_open, .close = mem_free, .read_device = load_read_device, .read_node = load_read_node};
