/* Fuzz target: the sensors that read the kernel's files. Holds: whatever the files say, a reading
 * is plausible or not valid, and a source that is not available says why in printable words.
 *
 * An input is a machine's files as text, which this program serves in the place of sysfs.c:
 *
 *     @sys/class/hwmon/hwmon0/name      a path; what follows up to the next '@' line is the file
 *     coretemp
 *     %                                 half a second later: what follows replaces what was there,
 * or is new
 *     @proc/stat
 *     ...
 */
#include "fuzz.h"

#include "base/clock.h"
#include "sensors/sensor_impl.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the clock: half a second between two samples, without waiting for it -------------------- */

static uint64_t ahead_ns;

uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + ahead_ns;
}

/* ---- the files ------------------------------------------------------------------------------- */

enum { FILES_MAX = 512, PATH_BYTES = 256 };

struct file {
    char path[PATH_BYTES];
    const char *text;
    size_t size;
};

static struct file files[FILES_MAX];
static uint32_t n_files;

static struct file *find_file(const char *path)
{
    for (uint32_t i = 0; i < n_files; i++) {
        if (strcmp(files[i].path, path) == 0)
            return &files[i];
    }
    return NULL;
}

/* The file of that name, new or emptied; NULL: no more fit. */
static struct file *begin_file(const char *path, size_t length, const char *text)
{
    char name[PATH_BYTES] = "";
    memcpy(name, path, length < PATH_BYTES ? length : PATH_BYTES - 1);
    struct file *file = find_file(name);
    if (!file && n_files < FILES_MAX)
        file = &files[n_files++];
    if (!file)
        return NULL;
    *file = (struct file){.text = text};
    memcpy(file->path, name, sizeof name);
    return file;
}

/* Takes files up to the end or a line "%"; what follows that. */
static const char *take_files(const char *at, const char *end)
{
    struct file *open = NULL;
    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        const char *line_end = newline ? newline : end, *next = newline ? newline + 1 : end;
        const bool is_path = *at == '@', is_break = *at == '%' && line_end == at + 1;
        if (open && (is_path || is_break))
            open->size = (size_t)(at - open->text);
        if (is_break)
            return next;
        if (is_path)
            open = begin_file(at + 1, (size_t)(line_end - at - 1), next);
        at = next;
    }
    if (open)
        open->size = (size_t)(end - open->text);
    return end;
}

static enum sysfs_result copy_text(const char *path, char *text, size_t size)
{
    text[0] = 0;
    const struct file *file = find_file(path);
    if (!file)
        return SYSFS_MISSING;
    size_t length = file->size < size - 1 ? file->size : size - 1;
    memcpy(text, file->text, length);
    text[length] = 0;
    length = strlen(text);
    while (length && isspace((unsigned char)text[length - 1]))
        text[--length] = 0;
    return SYSFS_OK;
}

#define MAKE_PATH(path, format)                                                                    \
    char path[PATH_BYTES];                                                                         \
    va_list args;                                                                                  \
    va_start(args, format);                                                                        \
    vsnprintf(path, sizeof path, format, args);                                                    \
    va_end(args)

enum sysfs_result sysfs_text(const struct sysfs *fs, char *text, size_t size, const char *format,
                             ...)
{
    (void)fs;
    MAKE_PATH(path, format);
    return copy_text(path, text, size > LIMIT_SENSOR_FILE_BYTES ? LIMIT_SENSOR_FILE_BYTES : size);
}

enum sysfs_result sysfs_u64(const struct sysfs *fs, uint64_t *number, uint64_t max,
                            const char *format, ...)
{
    (void)fs;
    char text[64];
    *number = 0;
    MAKE_PATH(path, format);
    enum sysfs_result result = copy_text(path, text, sizeof text);
    if (result)
        return result;
    return sysfs_parse_u64(text, max, number) ? SYSFS_OK : SYSFS_NONSENSE;
}

static bool is_below(const char *path, const char *folder)
{
    size_t length = strlen(folder);
    return strncmp(path, folder, length) == 0 && path[length] == '/';
}

bool sysfs_exists(const struct sysfs *fs, const char *format, ...)
{
    (void)fs;
    MAKE_PATH(path, format);
    bool found = find_file(path) != NULL;
    for (uint32_t i = 0; i < n_files; i++)
        found |= is_below(files[i].path, path);
    return found;
}

static int compare_names(const void *a, const void *b)
{
    size_t length_a = strlen(a), length_b = strlen(b);
    return length_a != length_b ? (length_a < length_b ? -1 : 1) : strcmp(a, b);
}

uint32_t sysfs_list(const struct sysfs *fs, const char *folder, const char *prefix,
                    char names[][SYSFS_NAME_BYTES], uint32_t max)
{
    (void)fs;
    uint32_t count = 0;
    for (uint32_t i = 0; i < n_files && count < max; i++) {
        if (!is_below(files[i].path, folder))
            continue;
        const char *name = files[i].path + strlen(folder) + 1;
        size_t length = strcspn(name, "/");
        bool taken = length == 0 || length >= SYSFS_NAME_BYTES || name[0] == '.' ||
                     strncmp(name, prefix, strlen(prefix)) != 0;
        for (uint32_t k = 0; k < count && !taken; k++)
            taken = strlen(names[k]) == length && memcmp(names[k], name, length) == 0;
        if (taken)
            continue;
        memcpy(names[count], name, length);
        names[count++][length] = 0;
    }
    qsort(names, count, SYSFS_NAME_BYTES, compare_names);
    return count;
}

/* ---- what must hold -------------------------------------------------------------------------- */

static const struct sensor_impl *const sources[] = {
    &sensor_impl_amdgpu,       &sensor_impl_intel_sysfs, &sensor_impl_hwmon,
    &sensor_impl_thermal_zone, &sensor_impl_rapl,        &sensor_impl_cpufreq,
    &sensor_impl_load,         &sensor_impl_pressure,    &sensor_impl_power_supply,
};
enum { SOURCES = sizeof sources / sizeof *sources, DEVICES = 4 };

static const struct device_info devices[DEVICES] = {
    {.id = "cpu", .kind = DEVICE_CPU},
    {.id = "vulkan0", .kind = DEVICE_GPU, .vendor = "AMD", .pci = "0000:c1:00.0"},
    {.id = "vulkan1", .kind = DEVICE_GPU, .vendor = "Intel", .pci = "0000:03:00.0"},
    {.id = "vulkan2", .kind = DEVICE_CPU, .vendor = "Mesa"},
};

static void check(struct reading reading, double min, double max)
{
    if (reading.valid)
        FUZZ_CHECK(reading.value >= min && reading.value <= max && reading.time_ns);
    else
        FUZZ_CHECK(reading.value == 0);
}

static void check_device(const struct sensor_device *device)
{
    const double memory_max = 0x1p53;
    check(device->memory_used_bytes, 0, memory_max);
    check(device->memory_free_bytes, 0, memory_max);
    check(device->utilisation_pct, 0, 100);
    check(device->temperature_mc, 1, LIMIT_TEMPERATURE_MC);
    check(device->power_mw, 1, LIMIT_POWER_MW);
    check(device->clock_mhz, 0, LIMIT_CLOCK_MHZ);
    check(device->power_limit_mw, 1, LIMIT_POWER_MW);
    check(device->temperature_slowdown_mc, 1, LIMIT_TEMPERATURE_MC);
    check(device->temperature_critical_mc, 1, LIMIT_TEMPERATURE_MC);
}

static void check_node(const struct sensor_node *node)
{
    const double memory_max = 0x1p53;
    check(node->battery_pct, 0, 100);
    check(node->battery_state, 0, BATTERY_NOT_CHARGING);
    check(node->on_ac, 0, 1);
    check(node->cpu_utilisation_pct, 0, 100);
    check(node->memory_total_bytes, 1, memory_max);
    check(node->memory_available_bytes, 0, node->memory_total_bytes.value);
    check(node->memory_stall_some_share, 0, 1);
    check(node->memory_stall_full_share, 0, 1);
}

static void sample(void *const *selves)
{
    for (int s = 0; s < SOURCES; s++) {
        for (uint32_t i = 0; selves[s] && sources[s]->read_device && i < DEVICES; i++) {
            struct sensor_device device = {0};
            sources[s]->read_device(selves[s], i, &devices[i], &device);
            check_device(&device);
        }
        struct sensor_node node = {0};
        if (selves[s] && sources[s]->read_node)
            sources[s]->read_node(selves[s], &node);
        check_node(&node);
    }
    ahead_ns += 500000000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct sensor_context context = {.devices = devices, .n_devices = DEVICES};
    const char *at = (const char *)data, *end = at + size;
    void *selves[SOURCES] = {0};
    n_files = 0;
    at = take_files(at, end);
    for (int s = 0; s < SOURCES; s++) {
        struct error err = {0};
        bool failed = sources[s]->open(&context, &selves[s], &err) != ERROR_NONE;
        FUZZ_CHECK(failed == !selves[s] && failed == (err.text[0] != 0));
    }
    sample(selves);
    sample(selves);
    take_files(at, end);
    sample(selves);
    for (int s = 0; s < SOURCES; s++) {
        if (selves[s])
            sources[s]->close(selves[s]);
    }
    ahead_ns = 0; /* whoever runs this measures its time by the same clock */
    return 0;
}
