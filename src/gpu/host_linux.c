#include "gpu/host.h"

#include "sensors/host_memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* "key   : value\n" → value when the line's key is `key`. */
static bool line_value(char *line, const char *key, const char **value)
{
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0)
        return false;
    char *colon = strchr(line, ':');
    if (!colon || strspn(line + length, " \t") != (size_t)(colon - line) - length)
        return false;
    char *start = colon + 1 + strspn(colon + 1, " \t");
    start[strcspn(start, "\n")] = 0;
    *value = start;
    return true;
}

static const char *vendor_name(const char *text)
{
    static const struct {
        const char *said, *name;
    } known[] = {
        {"GenuineIntel", "Intel"}, {"AuthenticAMD", "AMD"}, {"HygonGenuine", "Hygon"},
        {"CentaurHauls", "VIA"},   {"0x41", "ARM"},         {"0x51", "Qualcomm"},
        {"0x61", "Apple"},         {"0xc0", "Ampere"},      {"0x48", "HiSilicon"},
        {"0x4e", "NVIDIA"},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(text, known[i].said) == 0)
            return known[i].name;
    }
    return "";
}

static void host_read_cpuinfo(struct host_cpu *cpu)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return;
    char line[512];
    const char *value;
    /* The first core's paragraph is enough. */
    while (fgets(line, sizeof line, file) && line[0] != '\n') {
        if (line_value(line, "model name", &value))
            snprintf(cpu->name, sizeof cpu->name, "%s", value);
        else if (line_value(line, "vendor_id", &value) ||
                 line_value(line, "CPU implementer", &value))
            snprintf(cpu->vendor, sizeof cpu->vendor, "%s", vendor_name(value));
        else if (line_value(line, "cpu MHz", &value))
            cpu->clock_mhz = reading_of(UNIT_MHZ, (double)strtoull(value, NULL, 10));
    }
    fclose(file);
}

struct host_cpu host_cpu_read(void)
{
    struct host_cpu cpu = {0};
    host_read_cpuinfo(&cpu);
    struct utsname system;
    if (!cpu.name[0] && uname(&system) == 0)
        snprintf(cpu.name, sizeof cpu.name, "%s CPU", system.machine);
    return cpu;
}

uint32_t host_clock_limit_khz(void)
{
    static const struct sysfs machine;
    uint64_t khz;
    return sysfs_u64(&machine, &khz, UINT32_MAX,
                     "sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq")
               ? 0
               : (uint32_t)khz;
}

void host_nvidia_driver(char *text, size_t size)
{
    static const struct sysfs machine;
    char version[64];
    if (sysfs_text(&machine, version, sizeof version, "sys/module/nvidia/version") == SYSFS_OK)
        snprintf(text, size, "%s", version);
}

struct device_memory host_memory_read(void)
{
    static const struct sysfs machine;
    struct host_memory memory;
    if (host_memory_of(&machine, &memory))
        return (struct device_memory){.free_bytes = memory.available_bytes,
                                      .total_bytes = memory.total_bytes};
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    const uint64_t bytes = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : 0;
    return (struct device_memory){.free_bytes = bytes, .total_bytes = bytes};
}
