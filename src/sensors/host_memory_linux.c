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

/* ---- control groups --------------------------------------------------------------------- */

enum { GROUP_PATH_BYTES = 512 };

struct group_files {  /* of one version of control groups */
    const char *line; /* how its line of /proc/self/cgroup is known */
    const char *root;
    const char *limit, *used, *inactive, *active;
};

static const struct group_files versions[] = {
    {"0::", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file ", "active_file "},
    {":memory:", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file ", "total_active_file "},
};

/* What the group's use would shrink by if somebody needed memory. */
static uint64_t pages_of_files(const struct sysfs *fs, const struct group_files *files,
                               const char *path, uint64_t used_bytes)
{
    char text[LIMIT_SENSOR_FILE_BYTES];
    uint64_t inactive, active;
    if (sysfs_text(fs, text, sizeof text, "%s%s/memory.stat", files->root, path) ||
        !find_number(text, files->inactive, "", 1, &inactive) ||
        !find_number(text, files->active, "", 1, &active))
        return 0;
    return inactive + active < used_bytes ? inactive + active : used_bytes;
}

/* `path` is "" for the root of what this process sees. */
static void apply_group(const struct sysfs *fs, const struct group_files *files, const char *path,
                        struct host_memory *memory)
{
    uint64_t limit, used;
    if (sysfs_u64(fs, &limit, max_bytes, "%s%s/%s", files->root, path, files->limit) ||
        sysfs_u64(fs, &used, max_bytes, "%s%s/%s", files->root, path, files->used) ||
        limit >= memory->machine_bytes)
        return;
    used -= pages_of_files(fs, files, path, used);
    const uint64_t left = used < limit ? limit - used : 0;
    if (limit < memory->total_bytes)
        memory->total_bytes = limit;
    memory->available_bytes =
        memory->has_available && memory->available_bytes < left ? memory->available_bytes : left;
    memory->has_available = true;
}

/* The group's path in the line of this version; "" where there is none, or it is the root. */
static void group_path(const char *text, const struct group_files *files,
                       char path[GROUP_PATH_BYTES])
{
    const char *found = strstr(text, files->line);
    const char *start = found ? found + strlen(files->line) : "";
    const size_t length = strcspn(start, "\n");
    path[0] = '\0';
    if (length < GROUP_PATH_BYTES && length > 1) {
        memcpy(path, start, length);
        path[length] = '\0';
    }
    if (path[0] != '/' || strstr(path, "/..")) /* ".." is outside of what is seen */
        path[0] = '\0';
}

/* Of the group and of those around it, each may have a limit. */
static void apply_groups(const struct sysfs *fs, struct host_memory *memory)
{
    char text[LIMIT_SENSOR_FILE_BYTES] = "";
    sysfs_text(fs, text, sizeof text, "proc/self/cgroup");
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        char path[GROUP_PATH_BYTES];
        group_path(text, &versions[i], path);
        for (char *end = path; path[0]; *end = '\0') {
            apply_group(fs, &versions[i], path, memory);
            end = strrchr(path, '/');
        }
        apply_group(fs, &versions[i], "", memory);
    }
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
    out->machine_bytes = out->total_bytes;
    apply_groups(fs, out);
    return true;
}

static bool read_stall(const char *text, double *part)
{
    static const char start[] = "some avg10=";
    double percent;
    if (strncmp(text, start, sizeof start - 1) != 0 ||
        !sysfs_parse_decimal(text + sizeof start - 1, &percent) || !(percent <= 100))
        return false;
    *part = percent / 100;
    return true;
}

bool host_memory_stall(const struct sysfs *fs, double *part)
{
    char text[LIMIT_SENSOR_FILE_BYTES] = "", path[GROUP_PATH_BYTES];
    *part = 0;
    sysfs_text(fs, text, sizeof text, "proc/self/cgroup");
    group_path(text, &versions[0], path);
    if (!sysfs_text(fs, text, sizeof text, "sys/fs/cgroup%s/memory.pressure", path) &&
        read_stall(text, part))
        return true;
    struct host_memory memory;
    if (!host_memory_of(fs, &memory) || !memory.has_available ||
        memory.available_bytes > memory.total_bytes / 8)
        return false;
    return !sysfs_text(fs, text, sizeof text, "proc/pressure/memory") && read_stall(text, part);
}
