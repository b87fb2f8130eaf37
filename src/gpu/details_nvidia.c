/* NVIDIA's own interfaces: NVML, and CUDA's driver API. Both libraries come with the driver and are
 * opened at run time.
 *
 * Sources: the NVML API Reference Guide (docs.nvidia.com/deploy/nvml-api); CUDA Driver API,
 * "Device Management" (docs.nvidia.com/cuda/cuda-driver-api). The functions and numbers below are
 * the stable part of their binary interfaces. Every function may be missing: its fact is unknown
 * then. */
#include "gpu/details.h"
#include "sensors/library.h"
#include "sensors/pci.h"

#include <stdio.h>
#include <string.h>

enum { NVML_CLOCK_SM = 1 };                                /* nvmlClockType_t */
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1 };            /* nvmlGpuP2PCapsIndex_t */
enum { NVML_P2P_OK = 0 };                                  /* nvmlGpuP2PStatus_t */
enum { CUDA_THREADS_PER_BLOCK = 1, CUDA_PROCESSORS = 16 }; /* CUdevice_attribute */
enum { NVIDIA_PEERS_MAX = 64 };

typedef void *nvml_handle; /* nvmlDevice_t */

struct nvidia {
    void *nvml, *cuda;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver)(char *text, unsigned size);
    int (*count)(unsigned *out);
    int (*at)(unsigned index, nvml_handle *out);
    int (*find)(const char *pci, nvml_handle *out);
    int (*capability)(nvml_handle device, int *major, int *minor);
    int (*clock_max)(nvml_handle device, unsigned which, unsigned *out_mhz);
    int (*p2p)(nvml_handle device, nvml_handle other, unsigned what, unsigned *out_status);
    int (*cuda_init)(unsigned flags);
    int (*cuda_find)(int *out, const char *pci);
    int (*cuda_attribute)(int *out, int attribute, int device);
};

static void nvidia_open_nvml(const char *path, struct nvidia *nvidia)
{
    char unused[256];
    nvidia->nvml = library_open(path, unused, sizeof unused);
    if (!nvidia->nvml)
        return;
    const struct library_symbol symbols[] = {
        {&nvidia->init, "nvmlInit_v2", "nvmlInit"},
        {&nvidia->shutdown, "nvmlShutdown", NULL},
        {&nvidia->driver, "nvmlSystemGetDriverVersion", NULL},
        {&nvidia->count, "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"},
        {&nvidia->at, "nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex"},
        {&nvidia->find, "nvmlDeviceGetHandleByPciBusId_v2", "nvmlDeviceGetHandleByPciBusId"},
        {&nvidia->capability, "nvmlDeviceGetCudaComputeCapability", NULL},
        {&nvidia->clock_max, "nvmlDeviceGetMaxClockInfo", NULL},
        {&nvidia->p2p, "nvmlDeviceGetP2PStatus", NULL},
    };
    library_bind(nvidia->nvml, symbols, sizeof symbols / sizeof *symbols);
    if (nvidia->init && nvidia->shutdown && nvidia->find && nvidia->init() == 0)
        return;
    library_close(nvidia->nvml);
    nvidia->nvml = NULL;
}

static void nvidia_open_cuda(const char *path, struct nvidia *nvidia)
{
    char unused[256];
    nvidia->cuda = library_open(path, unused, sizeof unused);
    if (!nvidia->cuda)
        return;
    const struct library_symbol symbols[] = {
        {&nvidia->cuda_init, "cuInit", NULL},
        {&nvidia->cuda_find, "cuDeviceGetByPCIBusId", NULL},
        {&nvidia->cuda_attribute, "cuDeviceGetAttribute", NULL},
    };
    library_bind(nvidia->cuda, symbols, sizeof symbols / sizeof *symbols);
    if (nvidia->cuda_init && nvidia->cuda_find && nvidia->cuda_attribute &&
        nvidia->cuda_init(0) == 0)
        return;
    library_close(nvidia->cuda);
    nvidia->cuda = NULL;
}

/* To another GPU of this machine, both ways. Unknown where there is no other. */
static void nvidia_tell_peers(const struct nvidia *nvidia, nvml_handle device,
                              struct device_info *info)
{
    unsigned n = 0;
    bool asked = false, reaches = false;
    if (!nvidia->p2p || !nvidia->count || !nvidia->at || nvidia->count(&n) != 0)
        return;
    for (unsigned i = 0; i < n && i < NVIDIA_PEERS_MAX; i++) {
        nvml_handle other = NULL;
        unsigned reads = 0, writes = 0;
        if (nvidia->at(i, &other) != 0 || !other || other == device ||
            nvidia->p2p(device, other, NVML_P2P_READ, &reads) != 0 ||
            nvidia->p2p(device, other, NVML_P2P_WRITE, &writes) != 0)
            continue;
        asked = true;
        reaches |= reads == NVML_P2P_OK && writes == NVML_P2P_OK;
    }
    if (asked)
        details_set_number(&info->peer_to_peer, UNIT_COUNT, reaches);
}

static void nvidia_tell_nvml(const struct nvidia *nvidia, const char *pci, struct device_info *info)
{
    nvml_handle device = NULL;
    char text[80] = "";
    int major = 0, minor = 0;
    unsigned mhz = 0;
    if (nvidia->find(pci, &device) != 0 || !device)
        return;
    if (nvidia->driver && nvidia->driver(text, sizeof text) == 0) {
        text[sizeof text - 1] = 0;
        details_set_text(info->driver, sizeof info->driver, text);
    }
    if (nvidia->capability && nvidia->capability(device, &major, &minor) == 0 && major > 0) {
        snprintf(text, sizeof text, "compute capability %d.%d", major, minor);
        details_set_text(info->architecture, sizeof info->architecture, text);
    }
    if (nvidia->clock_max && nvidia->clock_max(device, NVML_CLOCK_SM, &mhz) == 0 && mhz)
        details_set_number(&info->clock_mhz, UNIT_MHZ, mhz);
    nvidia_tell_peers(nvidia, device, info);
}

static void nvidia_tell_cuda(const struct nvidia *nvidia, const char *pci, struct device_info *info)
{
    int device = 0, value = 0;
    if (nvidia->cuda_find(&device, pci) != 0)
        return;
    if (nvidia->cuda_attribute(&value, CUDA_PROCESSORS, device) == 0 && value > 0)
        details_set_number(&info->compute_units, UNIT_COUNT, (uint64_t)value);
    if (nvidia->cuda_attribute(&value, CUDA_THREADS_PER_BLOCK, device) == 0 && value > 0)
        details_set_number(&info->threads_per_block_max, UNIT_COUNT, (uint64_t)value);
}

/* Its name for these libraries; false: not NVIDIA's, or nobody told where it is. */
static bool nvidia_place(const struct device_info *info, char pci[PCI_NAME_BYTES])
{
    struct pci_address address;
    if (strcmp(info->vendor, "NVIDIA") != 0 || !pci_parse(info->pci, &address))
        return false;
    pci_name(&address, pci);
    return true;
}

void details_fill_nvidia(const struct details_places *places, struct device_info *const *infos,
                         uint32_t count)
{
    char pci[PCI_NAME_BYTES];
    bool any = false, any_cuda = false;
    for (uint32_t i = 0; i < count; i++) {
        const bool is = nvidia_place(infos[i], pci);
        any |= is;
        any_cuda |= is && strcmp(infos[i]->backend, "cuda") == 0;
    }
    if (!any)
        return;
    struct nvidia nvidia = {0};
    nvidia_open_nvml(places->nvml_path ? places->nvml_path : "libnvidia-ml.so.1", &nvidia);
    if (any_cuda)
        nvidia_open_cuda(places->cuda_path ? places->cuda_path : "libcuda.so.1", &nvidia);
    for (uint32_t i = 0; i < count; i++) {
        if (!nvidia_place(infos[i], pci))
            continue;
        details_set_text(infos[i]->driver_name, sizeof infos[i]->driver_name, "NVIDIA");
        if (nvidia.nvml)
            nvidia_tell_nvml(&nvidia, pci, infos[i]);
        if (nvidia.cuda && strcmp(infos[i]->backend, "cuda") == 0)
            nvidia_tell_cuda(&nvidia, pci, infos[i]);
    }
    if (nvidia.nvml)
        nvidia.shutdown();
    library_close(nvidia.nvml);
    library_close(nvidia.cuda);
}
