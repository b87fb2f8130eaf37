/* The CPU's temperature from the drivers of its own sensors.
 *
 * Sources: Documentation/hwmon/{coretemp,k10temp,sysfs-interface}.rst of the kernel. coretemp's and
 * k10temp's "crit" is the temperature at which the processor throttles itself (Intel's TjMax, AMD's
 * HTC limit); that of a thermal zone behind hwmon is the one at which the kernel shuts down. */
#include "base/mem.h"
#include "sensors/hwmon_files.h"
#include "sensors/sensor_impl.h"

#include <stdio.h>
#include <string.h>

/* In order of preference; `labels` likewise. Without any of its labels all of a driver's inputs
 * count. */
static const struct hwmon_driver {
    const char *name;
    const char *labels[2];
    bool crit_is_slowdown;
} drivers[] = {
    {"coretemp", {"Package id "}, true},  {"k10temp", {"Tdie", "Tctl"}, true},
    {"zenpower", {"Tdie", "Tctl"}, true}, {"via_cputemp", {0}, false},
    {"apm_xgene", {"SoC"}, false},        {"cpu_thermal", {0}, false},
    {"cpu0_thermal", {0}, false},         {"soc_thermal", {0}, false},
};

enum { DRIVERS = sizeof drivers / sizeof *drivers, INPUTS_MAX = 64 };

struct input {
    char folder[HWMON_FOLDER_BYTES];
    uint32_t number;
};

struct hwmon {
    const struct sysfs *fs;
    const struct hwmon_driver *driver;
    struct input inputs[INPUTS_MAX]; /* one a socket, or one a core where there is no more */
    uint32_t n_inputs;
};

static void add_input(struct hwmon *hwmon, const char *folder, uint32_t number)
{
    if (hwmon->n_inputs == INPUTS_MAX)
        return;
    struct input *input = &hwmon->inputs[hwmon->n_inputs++];
    snprintf(input->folder, sizeof input->folder, "%s", folder);
    input->number = number;
}

static void add_folder(struct hwmon *hwmon, const char *folder)
{
    for (size_t i = 0; i < 2 && hwmon->driver->labels[i]; i++) {
        uint32_t number = hwmon_find_label(hwmon->fs, folder, "temp", hwmon->driver->labels[i]);
        if (number) {
            add_input(hwmon, folder, number);
            return;
        }
    }
    for (uint32_t n = 1; n <= HWMON_INPUTS_MAX; n++) {
        if (sysfs_exists(hwmon->fs, "%s/temp%u_input", folder, n))
            add_input(hwmon, folder, n);
    }
}

static void hwmon_scan(struct hwmon *hwmon)
{
    static const char class_folder[] = "sys/class/hwmon";
    char folders[LIMIT_SENSOR_ENTRIES][SYSFS_NAME_BYTES];
    uint32_t n = sysfs_list(hwmon->fs, class_folder, "hwmon", folders, LIMIT_SENSOR_ENTRIES);
    size_t best = DRIVERS;
    hwmon->n_inputs = 0;
    for (uint32_t i = 0; i < n; i++) {
        char folder[HWMON_FOLDER_BYTES], name[32];
        snprintf(folder, sizeof folder, "%s/%s", class_folder, folders[i]);
        if (sysfs_text(hwmon->fs, name, sizeof name, "%s/name", folder))
            continue;
        size_t driver = 0;
        while (driver < DRIVERS && strcmp(drivers[driver].name, name) != 0)
            driver++;
        if (driver == DRIVERS || driver > best)
            continue;
        if (driver < best)
            hwmon->n_inputs = 0;
        best = driver;
        hwmon->driver = &drivers[driver];
        add_folder(hwmon, folder);
    }
}

static enum error_code hwmon_open(const struct sensor_context *context, void **self,
                                  struct error *err)
{
    struct hwmon *hwmon = mem_new(sizeof *hwmon);
    if (!hwmon)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    hwmon->fs = &context->fs;
    hwmon_scan(hwmon);
    if (!hwmon->n_inputs) {
        mem_free(hwmon);
        return error_set(err, ERROR_NOT_FOUND,
                         "no driver shows the CPU's temperature (a virtual machine has none): "
                         "`sudo modprobe coretemp` (Intel) or `sudo modprobe k10temp` (AMD)");
    }
    *self = hwmon;
    return ERROR_NONE;
}

static void hwmon_read_device(void *self, uint32_t index, const struct device_info *info,
                              struct sensor_device *out)
{
    (void)index;
    struct hwmon *hwmon = self;
    if (info->kind != DEVICE_CPU)
        return;
    if (!hwmon->n_inputs)
        hwmon_scan(hwmon);
    struct reading hottest = reading_failed(), limit = reading_failed();
    for (uint32_t i = 0; i < hwmon->n_inputs; i++) {
        const struct input *input = &hwmon->inputs[i];
        struct reading now = hwmon_temperature_mc(hwmon->fs, input->folder, input->number, "input");
        if (now.valid && (!hottest.valid || now.value > hottest.value))
            hottest = now;
        reading_keep_lower(&limit,
                           hwmon_temperature_mc(hwmon->fs, input->folder, input->number, "crit"));
    }
    out->temperature_mc = hottest;
    if (hwmon->n_inputs && hwmon->driver->crit_is_slowdown)
        out->temperature_slowdown_mc = limit;
    else
        out->temperature_critical_mc = limit;
    if (!hottest.valid)
        hwmon->n_inputs = 0; /* the driver may have been loaded anew under another number */
}

const struct sensor_impl sensor_impl_hwmon = {
    .name = "hwmon", .open = hwmon_open, .close = mem_free, .read_device = hwmon_read_device};
