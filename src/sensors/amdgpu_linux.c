/* AMD GPUs, from the files of the kernel's driver amdgpu in the PCI device's folder.
 *
 * Sources: Documentation/gpu/amdgpu/thermal.rst and driver-misc.rst of the kernel:
 * gpu_busy_percent, mem_info_vram_{total,used} in bytes; hwmon: tempN_input (edge, junction, mem),
 * tempN_crit where the card throttles, tempN_emergency where it stops, power1_average or (newer
 * cards) power1_input and power1_cap in µW, freq1_input (shader clock) in Hz. The junction is the
 * hottest place of the chip, and what throttling goes by; cards before Vega have the edge alone. A
 * driver that resets a hung GPU answers late. */
#include "base/mem.h"
#include "sensors/hwmon_files.h"
#include "sensors/pci.h"
#include "sensors/sensor_impl.h"

#include <string.h>

static const uint64_t memory_max_bytes = (uint64_t)1 << 50;

struct amdgpu_card {
    char hwmon[HWMON_FOLDER_BYTES]; /* "": to be looked up */
    uint32_t temperature_input;
};

struct amdgpu {
    const struct sysfs *fs;
    struct amdgpu_card cards[LIMIT_DEVICES];
};

static enum error_code amdgpu_open(const struct sensor_context *context, void **self,
                                   struct error *err)
{
    char name[PCI_NAME_BYTES];
    if (!pci_count_displays(&context->fs, PCI_VENDOR_AMD, name))
        return error_set(err, ERROR_NOT_FOUND, "no AMD GPU on the PCI bus");
    if (!pci_driver_runs(&context->fs, "amdgpu"))
        return error_set(
            err, ERROR_NOT_FOUND,
            "the kernel's driver amdgpu does not run the AMD GPU %s: `sudo modprobe amdgpu`", name);
    struct amdgpu *amdgpu = mem_new(sizeof *amdgpu);
    if (!amdgpu)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    amdgpu->fs = &context->fs;
    *self = amdgpu;
    return ERROR_NONE;
}

static void amdgpu_find_hwmon(const struct amdgpu *amdgpu, const char *pci,
                              struct amdgpu_card *card)
{
    hwmon_of_pci(amdgpu->fs, pci, card->hwmon);
    if (!card->hwmon[0])
        return;
    card->temperature_input = hwmon_find_label(amdgpu->fs, card->hwmon, "temp", "junction");
    if (!card->temperature_input)
        card->temperature_input = 1;
}

static void amdgpu_read_hwmon(const struct amdgpu *amdgpu, const struct amdgpu_card *card,
                              struct sensor_device *out)
{
    const struct sysfs *fs = amdgpu->fs;
    const char *folder = card->hwmon;
    uint64_t hz;
    out->temperature_mc = hwmon_temperature_mc(fs, folder, card->temperature_input, "input");
    out->temperature_slowdown_mc =
        hwmon_temperature_mc(fs, folder, card->temperature_input, "crit");
    out->temperature_critical_mc =
        hwmon_temperature_mc(fs, folder, card->temperature_input, "emergency");
    out->power_mw = hwmon_power_mw(fs, folder, 1, "average");
    if (!out->power_mw.valid)
        out->power_mw = hwmon_power_mw(fs, folder, 1, "input");
    out->power_limit_mw = hwmon_power_mw(fs, folder, 1, "cap");
    out->clock_mhz = reading_failed();
    if (!sysfs_u64(fs, &hz, UINT64_MAX, "%s/freq1_input", folder))
        out->clock_mhz = reading_now_u64(UNIT_MHZ, hz / 1000000);
}

static void amdgpu_read_memory(const struct sysfs *fs, const char *pci, struct sensor_device *out)
{
    uint64_t total, used;
    out->memory_used_bytes = out->memory_free_bytes = reading_failed();
    if (sysfs_u64(fs, &total, memory_max_bytes, "sys/bus/pci/devices/%s/mem_info_vram_total",
                  pci) ||
        sysfs_u64(fs, &used, total, "sys/bus/pci/devices/%s/mem_info_vram_used", pci) || !total)
        return;
    out->memory_used_bytes = reading_now_u64(UNIT_BYTES, used);
    out->memory_free_bytes = reading_now_u64(UNIT_BYTES, total - used);
}

static void amdgpu_read_device(void *self, uint32_t index, const struct device_info *info,
                               struct sensor_device *out)
{
    struct amdgpu *amdgpu = self;
    struct amdgpu_card *card = &amdgpu->cards[index];
    char pci[PCI_NAME_BYTES];
    uint64_t pct;
    if (!pci_find(amdgpu->fs, info->pci, PCI_VENDOR_AMD, pci)) {
        card->hwmon[0] = 0; /* unplugged, or never ours */
        return;
    }
    out->utilisation_pct = reading_failed();
    if (!sysfs_u64(amdgpu->fs, &pct, 100, "sys/bus/pci/devices/%s/gpu_busy_percent", pci))
        out->utilisation_pct = reading_now_u64(UNIT_PCT, pct);
    amdgpu_read_memory(amdgpu->fs, pci, out);
    if (!card->hwmon[0])
        amdgpu_find_hwmon(amdgpu, pci, card);
    if (card->hwmon[0])
        amdgpu_read_hwmon(amdgpu, card, out);
    if (!out->temperature_mc.valid)
        card->hwmon[0] = 0; /* the driver may come back under another number */
}

const struct sensor_impl sensor_impl_amdgpu = {.name = "amdgpu",
                                               .may_block = true,
                                               .open = amdgpu_open,
                                               .close = mem_free,
                                               .read_device = amdgpu_read_device};
