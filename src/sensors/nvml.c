/* NVIDIA GPUs, through the driver's library NVML, which is opened at run time.
 *
 * Source: the NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api): the functions, structures
 * and numbers below are the stable part of its binary interface, declared here so that no header is
 * needed. Every function but nvmlInit and nvmlDeviceGetHandleByPciBusId may be missing: its reading
 * then is. */
#include "base/mem.h"
#include "sensors/library.h"
#include "sensors/pci.h"
#include "sensors/sensor_impl.h"

#include <stdio.h>
#include <string.h>

enum nvml_result { /* nvmlReturn_t */
                   NVML_SUCCESS = 0,
                   NVML_UNINITIALIZED = 1,
                   NVML_INVALID_ARGUMENT = 2,
                   NVML_NOT_SUPPORTED = 3,
                   NVML_NO_PERMISSION = 4,
                   NVML_DRIVER_NOT_LOADED = 9,
                   NVML_GPU_IS_LOST = 15,
                   NVML_LIBRARY_IS_NOT_THE_DRIVERS = 18,
};
enum { NVML_TEMPERATURE_GPU = 0 };                                 /* nvmlTemperatureSensors_t */
enum { NVML_THRESHOLD_SHUTDOWN = 0, NVML_THRESHOLD_SLOWDOWN = 1 }; /* nvmlTemperatureThresholds_t */
enum { NVML_CLOCK_SM = 1 };                                        /* nvmlClockType_t */

typedef void *nvml_device; /* nvmlDevice_t */
struct nvml_memory {       /* nvmlMemory_t, in bytes */
    unsigned long long total, free, used;
};
struct nvml_utilization { /* nvmlUtilization_t, in percent of the last sample period */
    unsigned gpu, memory;
};
struct nvml_temperature { /* nvmlTemperature_v1_t, in degrees Celsius; `version` says which
                             structure it is */
    unsigned version, sensor;
    int celsius;
};
enum { NVML_TEMPERATURE_VERSION = (int)sizeof(struct nvml_temperature) | 1 << 24 };

struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int result);
    int (*handle)(const char *pci, nvml_device *out);
    int (*memory)(nvml_device device, struct nvml_memory *out);
    int (*utilization)(nvml_device device, struct nvml_utilization *out);
    int (*temperature)(nvml_device device, unsigned sensor, unsigned *out_celsius);
    int (*temperature_v)(nvml_device device,
                         struct nvml_temperature *out); /* where the older one was dropped */
    int (*threshold)(nvml_device device, unsigned which, unsigned *out_celsius);
    int (*power)(nvml_device device, unsigned *out_mw);
    int (*power_limit)(nvml_device device, unsigned *out_mw);
    int (*clock)(nvml_device device, unsigned which, unsigned *out_mhz);
    nvml_device devices[LIMIT_DEVICES]; /* NULL: to be looked up */
};

static void nvml_bind(struct nvml *nvml)
{
    const struct library_symbol symbols[] = {
        {&nvml->init, "nvmlInit_v2", "nvmlInit"},
        {&nvml->shutdown, "nvmlShutdown", NULL},
        {&nvml->error_string, "nvmlErrorString", NULL},
        {&nvml->handle, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"},
        {&nvml->memory, "nvmlDeviceGetMemoryInfo", NULL},
        {&nvml->utilization, "nvmlDeviceGetUtilizationRates", NULL},
        {&nvml->temperature, "nvmlDeviceGetTemperature", NULL},
        {&nvml->temperature_v, "nvmlDeviceGetTemperatureV", NULL},
        {&nvml->threshold, "nvmlDeviceGetTemperatureThreshold", NULL},
        {&nvml->power, "nvmlDeviceGetPowerUsage", NULL},
        {&nvml->power_limit, "nvmlDeviceGetEnforcedPowerLimit",
         "nvmlDeviceGetPowerManagementLimit"},
        {&nvml->clock, "nvmlDeviceGetClockInfo", NULL},
    };
    library_bind(nvml->library, symbols, sizeof symbols / sizeof *symbols);
}

/* ---- opening ----------------------------------------------------------------------------- */

static enum error_code explain_missing(const struct sensor_context *context, const char *path,
                                       const char *reason, struct error *err)
{
    char name[PCI_NAME_BYTES];
    if (context->nvml_path)
        return error_set(err, ERROR_NOT_FOUND, "cannot open %s: %.200s", path, reason);
    if (!pci_count_displays(&context->fs, PCI_VENDOR_NVIDIA, name))
        return error_set(err, ERROR_NOT_FOUND, "no NVIDIA GPU on the PCI bus, and no %s", path);
    return error_set(err, ERROR_NOT_FOUND,
                     "the NVIDIA GPU %s is there, but not the driver's library %s: `sudo apt "
                     "install libnvidia-ml1` "
                     "(it comes with the driver)",
                     name, path);
}

static enum error_code explain_init(const struct nvml *nvml, int result, struct error *err)
{
    switch (result) {
    case NVML_DRIVER_NOT_LOADED:
        return error_set(err, ERROR_DEVICE,
                         "the NVIDIA driver is not loaded: `sudo modprobe nvidia`");
    case NVML_NO_PERMISSION:
        return error_set(err, ERROR_IO,
                         "no permission on /dev/nvidia*: `sudo usermod -aG video $USER` and a new "
                         "login, or see `ls -l "
                         "/dev/nvidia*`");
    case NVML_LIBRARY_IS_NOT_THE_DRIVERS:
        return error_set(err, ERROR_DEVICE,
                         "the NVIDIA library and the loaded driver are of different versions: "
                         "restart the machine");
    default:
        break;
    }
    const char *text = nvml->error_string ? nvml->error_string(result) : NULL;
    return error_set(err, ERROR_DEVICE, "cannot start NVML: %.120s (error %d): try `nvidia-smi`",
                     text ? text : "unknown error", result);
}

static void nvml_close(void *self)
{
    struct nvml *nvml = self;
    if (nvml->shutdown)
        nvml->shutdown();
    library_close(nvml->library);
    mem_free(nvml);
}

static enum error_code nvml_open(const struct sensor_context *context, void **self,
                                 struct error *err)
{
    const char *path = context->nvml_path ? context->nvml_path : "libnvidia-ml.so.1";
    struct nvml *nvml = mem_new(sizeof *nvml);
    if (!nvml)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    char reason[256];
    enum error_code code = ERROR_NONE;
    nvml->library = library_open(path, reason, sizeof reason);
    if (!nvml->library) {
        code = explain_missing(context, path, reason, err);
        mem_free(nvml);
        return code;
    }
    nvml_bind(nvml);
    if (!nvml->init || !nvml->handle) {
        code = error_set(err, ERROR_UNSUPPORTED, "%s lacks %s: update the NVIDIA driver", path,
                         nvml->init ? "nvmlDeviceGetHandleByPciBusId" : "nvmlInit");
    } else {
        int result = nvml->init();
        if (result)
            code = explain_init(nvml, result, err);
    }
    if (code) {
        library_close(nvml->library);
        mem_free(nvml);
        return code;
    }
    *self = nvml;
    return ERROR_NONE;
}

/* ---- reading ----------------------------------------------------------------------------- */

static bool is_lost(int result)
{
    return result == NVML_GPU_IS_LOST || result == NVML_UNINITIALIZED ||
           result == NVML_INVALID_ARGUMENT;
}

static struct reading nvml_celsius(int result, unsigned celsius)
{
    return result ? reading_failed() : reading_now_u64(UNIT_MC, UINT64_C(1000) * celsius);
}

/* What NVML answers, so that a lost GPU is seen. */
static int read_temperature(const struct nvml *nvml, nvml_device device, struct reading *out)
{
    unsigned value = 0;
    int result = NVML_NOT_SUPPORTED;
    if (nvml->temperature) {
        result = nvml->temperature(device, NVML_TEMPERATURE_GPU, &value);
    } else if (nvml->temperature_v) {
        struct nvml_temperature now = {.version = NVML_TEMPERATURE_VERSION,
                                       .sensor = NVML_TEMPERATURE_GPU};
        result = nvml->temperature_v(device, &now);
        value = now.celsius > 0 ? (unsigned)now.celsius : 0;
    }
    *out = nvml_celsius(result, value);
    return result;
}

static struct reading read_threshold(const struct nvml *nvml, nvml_device device, unsigned which)
{
    unsigned value = 0;
    int result = nvml->threshold ? nvml->threshold(device, which, &value) : NVML_NOT_SUPPORTED;
    return nvml_celsius(result, value);
}

static void nvml_read_memory(const struct nvml *nvml, nvml_device device, struct sensor_device *out)
{
    struct nvml_memory memory = {0};
    int result = nvml->memory ? nvml->memory(device, &memory) : NVML_NOT_SUPPORTED;
    bool sane =
        !result && memory.total && memory.used <= memory.total && memory.free <= memory.total;
    out->memory_used_bytes = sane ? reading_now_u64(UNIT_BYTES, memory.used) : reading_failed();
    out->memory_free_bytes = sane ? reading_now_u64(UNIT_BYTES, memory.free) : reading_failed();
}

static void nvml_read_device(void *self, uint32_t index, const struct device_info *info,
                             struct sensor_device *out)
{
    struct nvml *nvml = self;
    struct pci_address address;
    char pci[PCI_NAME_BYTES];
    if ((info->vendor[0] && strcmp(info->vendor, "NVIDIA") != 0) || !pci_parse(info->pci, &address))
        return;
    nvml_device *device = &nvml->devices[index];
    pci_name(&address, pci);
    if (!*device && (nvml->handle(pci, device) || !*device)) {
        *device = NULL;
        return;
    }
    unsigned value = 0;
    int result = read_temperature(nvml, *device, &out->temperature_mc);
    bool lost = is_lost(result);
    out->temperature_slowdown_mc = read_threshold(nvml, *device, NVML_THRESHOLD_SLOWDOWN);
    out->temperature_critical_mc = read_threshold(nvml, *device, NVML_THRESHOLD_SHUTDOWN);
    nvml_read_memory(nvml, *device, out);
    struct nvml_utilization used = {0};
    result = nvml->utilization ? nvml->utilization(*device, &used) : NVML_NOT_SUPPORTED;
    out->utilisation_pct = result ? reading_failed() : reading_now_u64(UNIT_PCT, used.gpu);
    result = nvml->power ? nvml->power(*device, &value) : NVML_NOT_SUPPORTED;
    out->power_mw = result ? reading_failed() : reading_now_u64(UNIT_MW, value);
    result = nvml->power_limit ? nvml->power_limit(*device, &value) : NVML_NOT_SUPPORTED;
    out->power_limit_mw = result ? reading_failed() : reading_now_u64(UNIT_MW, value);
    result = nvml->clock ? nvml->clock(*device, NVML_CLOCK_SM, &value) : NVML_NOT_SUPPORTED;
    out->clock_mhz = result ? reading_failed() : reading_now_u64(UNIT_MHZ, value);
    if (lost || is_lost(result))
        *device = NULL; /* a GPU that was reset or plugged in again has a new handle */
}

const struct sensor_impl sensor_impl_nvml = {.name = "nvml",
                                             .may_block = true,
                                             .open = nvml_open,
                                             .close = nvml_close,
                                             .read_device = nvml_read_device};
