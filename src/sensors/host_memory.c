#include "sensors/host_memory.h"

#include "base/limits.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t max_bytes = (uint64_t)1 << 60;

/* The number in the line that begins with `key`, times `unit`; false when there is none. */
static bool find_number(const char *text, const char *key, const char *after, uint64_t unit,
                        uint64_t *out)
{
    const size_t length = strlen(key);
    const char *line = text;
    while (strncmp(line, key, length) != 0) {
        line = strchr(line, '\n');
        if (!line)
            return false;
        line++;
    }
    const char *number = line + length + strspn(line + length, " \t");
    if (*number < '0' || *number > '9')
        return false;
    char *end;
    const uint64_t value = strtoull(number, &end, 10);
    *out = value * unit;
    return value <= max_bytes / unit && strncmp(end, after, strlen(after)) == 0;
}

/* What the group's use would shrink by if somebody needed memory. */
static uint64_t pages_of_files(const struct sysfs *fs, uint64_t used_bytes)
{
    char text[LIMIT_SENSOR_FILE_BYTES];
    uint64_t inactive, active;
    if (sysfs_text(fs, text, sizeof text, "sys/fs/cgroup/memory.stat") ||
        !find_number(text, "inactive_file ", "", 1, &inactive) ||
        !find_number(text, "active_file ", "", 1, &active))
        return 0;
    return inactive + active < used_bytes ? inactive + active : used_bytes;
}

static void apply_group(const struct sysfs *fs, struct host_memory *memory)
{
    uint64_t limit, used;
    if (sysfs_u64(fs, &limit, max_bytes, "sys/fs/cgroup/memory.max") ||
        sysfs_u64(fs, &used, max_bytes, "sys/fs/cgroup/memory.current") ||
        limit >= memory->total_bytes)
        return;
    used -= pages_of_files(fs, used);
    const uint64_t left = used < limit ? limit - used : 0;
    memory->total_bytes = limit;
    memory->available_bytes =
        memory->has_available && memory->available_bytes < left ? memory->available_bytes : left;
    memory->has_available = true;
}

bool host_memory_of(const struct sysfs *fs, struct host_memory *out)
{
    char text[LIMIT_SENSOR_FILE_BYTES];
    *out = (struct host_memory){0};
    if (sysfs_text(fs, text, sizeof text, "proc/meminfo") ||
        !find_number(text, "MemTotal:", " kB", 1024, &out->total_bytes) || !out->total_bytes) {
        *out = (struct host_memory){0};
        return false;
    }
    out->has_available = find_number(text, "MemAvailable:", " kB", 1024, &out->available_bytes) &&
                         out->available_bytes <= out->total_bytes;
    apply_group(fs, out);
    return true;
}
