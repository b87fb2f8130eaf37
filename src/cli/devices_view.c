#include "cli/devices_view.h"

#include "base/clock.h"
#include "base/mem.h"
#include "gpu/device_sim.h"
#include "sensors/pci.h"

#include <string.h>
#include <time.h>

enum { BETWEEN_SAMPLES_MS = 100, NS_PER_MS = 1000000 };

const char *devices_kind_name(enum device_kind kind)
{
    switch (kind) {
    case DEVICE_CPU:
        return "cpu";
    case DEVICE_GPU:
        return "gpu";
    case DEVICE_INTEGRATED_GPU:
        return "integrated gpu";
    }
    return "";
}

/* A simulated device has no sensor; its simulation says. */
static void ask_simulated(struct devices_view *view)
{
    for (uint32_t i = 0; i < view->n_devices; i++) {
        if (!device_info_is_simulated(&view->infos[i]))
            continue;
        const struct device *device = gpu_device(view->gpu, i);
        struct sensor_device *readings = &view->sample.devices[i];
        readings->temperature_mc = device_temperature_mc(device);
        readings->power_mw = device_power_mw(device);
        readings->clock_mhz = device_clock_mhz(device);
    }
}

/* ---- sources --------------------------------------------------------------------------- */

static const struct vendor_source {
    const char *source;
    const char *vendor; /* as a device's info has it */
    enum pci_vendor pci;
} vendor_sources[] = {
    {"nvml", "NVIDIA", PCI_VENDOR_NVIDIA},
    {"amdgpu", "AMD", PCI_VENDOR_AMD},
    {"level_zero", "Intel", PCI_VENDOR_INTEL},
    {"intel_sysfs", "Intel", PCI_VENDOR_INTEL},
};

static bool has_gpu_of(const struct devices_view *view, const struct vendor_source *source)
{
    static const struct sysfs machine;
    char name[PCI_NAME_BYTES];
    if (pci_count_displays(&machine, source->pci, name))
        return true;
    for (uint32_t i = 0; i < view->n_devices; i++) { /* of a vendor's own bus, such as a Jetson's */
        const struct device_info *info = &view->infos[i];
        if (info->kind != DEVICE_CPU && !device_info_is_simulated(info) &&
            strcmp(info->vendor, source->vendor) == 0)
            return true;
    }
    return false;
}

static void add_source(struct devices_view *view, struct sensors *sensors, uint32_t index)
{
    struct devices_source *added = &view->sources[view->n_sources++];
    sensors_source(sensors, index, &added->source);
    added->is_of_here = true;
    for (size_t i = 0; i < sizeof vendor_sources / sizeof *vendor_sources; i++) {
        if (strcmp(added->source.name, vendor_sources[i].source) == 0)
            added->is_of_here = has_gpu_of(view, &vendor_sources[i]);
    }
}

/* ---- all of it ------------------------------------------------------------------------- */

static enum error_code read_sensors(struct devices_view *view, struct error *err)
{
    struct sensors *sensors;
    enum error_code code = sensors_open(NULL, view->infos, view->n_devices, &sensors, err);
    if (code)
        return code;
    sensors_sample(sensors, &view->sample);
    const struct timespec pause = {.tv_nsec = BETWEEN_SAMPLES_MS * NS_PER_MS};
    nanosleep(&pause, NULL); /* cut short by a signal: power stays unknown */
    sensors_sample(sensors, &view->sample);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    view->sample_unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / NS_PER_MS;
    for (uint32_t i = 0; i < sensors_source_count(sensors) && i < DEVICES_SOURCES_MAX; i++)
        add_source(view, sensors, i);
    sensors_close(sensors);
    return ERROR_NONE;
}

struct devices_view *devices_view_read(const struct gpu *gpu, struct error *err)
{
    struct devices_view *view = mem_new(sizeof *view);
    if (!view) {
        error_set(err, ERROR_NO_MEMORY, "out of memory");
        return NULL;
    }
    view->gpu = gpu;
    view->n_devices = gpu_device_count(gpu);
    for (uint32_t i = 0; i < view->n_devices; i++) {
        const struct device *device = gpu_device(gpu, i);
        struct device_memory memory = device_memory(device);
        view->infos[i] = *device_info(device);
        view->infos[i].memory_total_bytes = memory.total_bytes;
        view->infos[i].memory_free_bytes = memory.free_bytes;
    }
    if (read_sensors(view, err)) {
        mem_free(view);
        return NULL;
    }
    ask_simulated(view);
    view->aggregate = aggregate_of(view->infos, view->n_devices);
    return view;
}
