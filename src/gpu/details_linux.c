/* What the kernel's drivers tell of AMD's and Intel's GPUs.
 *
 * Sources, in the kernel: drivers/gpu/drm/amd/amdkfd/kfd_topology.c (nodes/N/properties:
 * simd_count, simd_per_cu, gfx_target_version as major * 10000 + minor * 100 + stepping,
 * location_id as bus << 8 | device << 3 | function, domain, max_engine_clk_fcompute in MHz;
 * nodes/N/p2p_links: GPUs that it reaches over PCIe, since Linux 6.0; io_links of type 11 are
 * xGMI); drivers/gpu/drm/i915/i915_sysfs.c and drivers/gpu/drm/xe/xe_gt_freq.c: gt_RP0_freq_mhz and
 * freq0/rp0_freq, the highest frequency of the hardware in MHz. */
#include "gpu/details.h"
#include "sensors/pci.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KFD_NODES "sys/class/kfd/kfd/topology/nodes"
enum { KFD_NODES_MAX = 64, KFD_LINKS_MAX = 64, KFD_TEXT_BYTES = 4096, KFD_LINK_XGMI = 11 };

struct kfd_node {
    uint64_t simds, simds_per_unit, target, place, domain, clock_mhz;
};

/* "NAME NUMBER" in a line of its own; `otherwise` where it is missing. */
static uint64_t kfd_number(const char *text, const char *name, uint64_t otherwise)
{
    const size_t length = strlen(name);
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, name, length) != 0 || line[length] != ' ')
            continue;
        char digits[24];
        snprintf(digits, sizeof digits, "%.*s", (int)strcspn(line + length + 1, "\n"),
                 line + length + 1);
        uint64_t number;
        return sysfs_parse_u64(digits, UINT64_MAX, &number) ? number : otherwise;
    }
    return otherwise;
}

static bool kfd_read(const struct sysfs *fs, const char *name, struct kfd_node *out)
{
    char text[KFD_TEXT_BYTES];
    if (sysfs_text(fs, text, sizeof text, KFD_NODES "/%s/properties", name) != SYSFS_OK)
        return false;
    *out = (struct kfd_node){
        .simds = kfd_number(text, "simd_count", 0),
        .simds_per_unit = kfd_number(text, "simd_per_cu", 0),
        .target = kfd_number(text, "gfx_target_version", 0),
        .place = kfd_number(text, "location_id", UINT64_MAX),
        .domain = kfd_number(text, "domain", 0),
        .clock_mhz = kfd_number(text, "max_engine_clk_fcompute", 0),
    };
    return out->simds > 0; /* the CPUs are nodes, too */
}

static bool kfd_is(const struct kfd_node *node, const struct pci_address *pci)
{
    return node->domain == pci->domain &&
           node->place == (pci->bus << 8 | pci->device << 3 | pci->function);
}

/* A way to another GPU that does not pass through the host's memory. */
static bool kfd_reaches(const struct sysfs *fs, const char *name)
{
    char folder[128], links[KFD_LINKS_MAX][SYSFS_NAME_BYTES], text[KFD_TEXT_BYTES];
    snprintf(folder, sizeof folder, KFD_NODES "/%s/p2p_links", name);
    if (sysfs_list(fs, folder, "", links, KFD_LINKS_MAX))
        return true;
    snprintf(folder, sizeof folder, KFD_NODES "/%s/io_links", name);
    const uint32_t n = sysfs_list(fs, folder, "", links, KFD_LINKS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (sysfs_text(fs, text, sizeof text, "%s/%s/properties", folder, links[i]) == SYSFS_OK &&
            kfd_number(text, "type", 0) == KFD_LINK_XGMI)
            return true;
    }
    return false;
}

static void kfd_tell(const struct sysfs *fs, const char *name, const struct kfd_node *node,
                     uint32_t n_gpus, struct device_info *info)
{
    char text[32];
    if (node->target) {
        snprintf(text, sizeof text, "gfx%" PRIu64 "%" PRIx64 "%" PRIx64, node->target / 10000 % 100,
                 node->target / 100 % 100, node->target % 100);
        details_set_text(info->architecture, sizeof info->architecture, text);
    }
    if (node->simds_per_unit)
        details_set_number(&info->compute_units, UNIT_COUNT, node->simds / node->simds_per_unit);
    if (node->clock_mhz)
        details_set_number(&info->clock_mhz, UNIT_MHZ, node->clock_mhz);
    /* Kernels that do not list such links say nothing of them. */
    if (n_gpus > 1 && sysfs_exists(fs, KFD_NODES "/%s/p2p_links", name))
        details_set_number(&info->peer_to_peer, UNIT_COUNT, kfd_reaches(fs, name));
}

static void details_fill_kfd(const struct sysfs *fs, const struct pci_address *pci,
                             struct device_info *info)
{
    char names[KFD_NODES_MAX][SYSFS_NAME_BYTES];
    const char *own = NULL;
    struct kfd_node node, found = {0};
    uint32_t n_gpus = 0;
    const uint32_t n = sysfs_list(fs, KFD_NODES, "", names, KFD_NODES_MAX);
    for (uint32_t i = 0; i < n; i++) {
        if (!kfd_read(fs, names[i], &node))
            continue;
        n_gpus++;
        if (!kfd_is(&node, pci))
            continue;
        own = names[i];
        found = node;
    }
    if (own)
        kfd_tell(fs, own, &found, n_gpus, info);
}

static void details_fill_intel(const struct sysfs *fs, const char *pci, struct device_info *info)
{
    char folder[96], card[1][SYSFS_NAME_BYTES];
    uint64_t mhz = 0;
    snprintf(folder, sizeof folder, "sys/bus/pci/devices/%s/drm", pci);
    if (sysfs_list(fs, folder, "card", card, 1) != 1)
        return;
    if (sysfs_u64(fs, &mhz, 100000, "%s/%s/gt_RP0_freq_mhz", folder, card[0]) != SYSFS_OK &&
        sysfs_u64(fs, &mhz, 100000, "sys/bus/pci/devices/%s/tile0/gt0/freq0/rp0_freq", pci) !=
            SYSFS_OK)
        return;
    if (mhz)
        details_set_number(&info->clock_mhz, UNIT_MHZ, mhz);
}

/* Where the backend has a library of its own, Vulkan does not tell its driver: the kernel's. Its
 * version is that of its own package where it came as one, else the kernel's. */
static void details_fill_module(const struct sysfs *fs, const char *pci, struct device_info *info)
{
    static const char *const drivers[] = {"amdgpu", "i915", "xe"};
    if (strcmp(info->backend, "vulkan") == 0)
        return;
    for (size_t i = 0; i < sizeof drivers / sizeof *drivers; i++) {
        char text[64], version[64];
        if (!sysfs_exists(fs, "sys/bus/pci/drivers/%s/%s", drivers[i], pci))
            continue;
        details_set_text(info->driver_name, sizeof info->driver_name, drivers[i]);
        if (sysfs_text(fs, text, sizeof text, "sys/module/%s/version", drivers[i]) == SYSFS_OK) {
            details_set_text(info->driver, sizeof info->driver, text);
        } else if (sysfs_text(fs, text, 48, "proc/sys/kernel/osrelease") == SYSFS_OK) {
            snprintf(version, sizeof version, "Linux %s", text);
            details_set_text(info->driver, sizeof info->driver, version);
        }
    }
}

void details_fill_kernel(const struct details_places *places, struct device_info *info)
{
    struct pci_address address;
    char pci[PCI_NAME_BYTES];
    const bool amd = strcmp(info->vendor, "AMD") == 0, intel = strcmp(info->vendor, "Intel") == 0;
    if (info->kind == DEVICE_CPU || (!amd && !intel) || !pci_parse(info->pci, &address))
        return;
    pci_name(&address, pci);
    if (amd)
        details_fill_kfd(&places->fs, &address, info);
    else
        details_fill_intel(&places->fs, pci, info);
    details_fill_module(&places->fs, pci, info);
}
