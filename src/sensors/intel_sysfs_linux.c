/* Intel GPUs without Level Zero: what the kernel's drivers i915 and xe show in the PCI device's
 * folder.
 *
 * Sources: Documentation/ABI/testing/sysfs-driver-intel-{i915,xe}-hwmon of the kernel:
 * energyN_input in µJ (a counter of 64 bits), powerN_max in µW, tempN_input; of the inputs with a
 * label the one of the package counts. The clock is i915's gt_act_freq_mhz beside the card, or xe's
 * tile0/gt0/freq0/act_freq, both in MHz, 0 while the GPU sleeps. */
#include "base/clock.h"
#include "base/mem.h"
#include "sensors/hwmon_files.h"
#include "sensors/pci.h"
#include "sensors/rate.h"
#include "sensors/sensor_impl.h"

#include <stdio.h>

struct intel_card {
    char hwmon[HWMON_FOLDER_BYTES]; /* "": to be looked up */
    uint32_t temperature_input, energy_input;
    struct energy_meter meter;
};

struct intel {
    const struct sysfs *fs;
    struct intel_card cards[LIMIT_DEVICES];
};

static enum error_code intel_open(const struct sensor_context *context, void **self,
                                  struct error *err)
{
    char name[PCI_NAME_BYTES];
    if (!pci_count_displays(&context->fs, PCI_VENDOR_INTEL, name))
        return error_set(err, ERROR_NOT_FOUND, "no Intel GPU on the PCI bus");
    if (!pci_driver_runs(&context->fs, "i915") && !pci_driver_runs(&context->fs, "xe"))
        return error_set(err, ERROR_NOT_FOUND,
                         "neither i915 nor xe runs the Intel GPU %s: `sudo modprobe i915` (Arc "
                         "from 2024 on: xe)",
                         name);
    struct intel *intel = mem_new(sizeof *intel);
    if (!intel)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    intel->fs = &context->fs;
    *self = intel;
    return ERROR_NONE;
}

/* The input labelled "pkg", else the first that is there; 0: none. */
static uint32_t find_input(const struct sysfs *fs, const char *folder, const char *kind)
{
    uint32_t input = hwmon_find_label(fs, folder, kind, "pkg");
    for (uint32_t n = 1; !input && n <= 3; n++)
        input = sysfs_exists(fs, "%s/%s%u_input", folder, kind, n) ? n : 0;
    return input;
}

static void intel_sysfs_find_hwmon(const struct intel *intel, const char *pci,
                                   struct intel_card *card)
{
    energy_meter_reset(&card->meter);
    hwmon_of_pci(intel->fs, pci, card->hwmon);
    if (!card->hwmon[0])
        return;
    card->temperature_input = find_input(intel->fs, card->hwmon, "temp");
    card->energy_input = find_input(intel->fs, card->hwmon, "energy");
}

/* False when the card is not where it was. */
static bool intel_sysfs_read_hwmon(const struct intel *intel, struct intel_card *card,
                                   struct sensor_device *out)
{
    const char *folder = card->hwmon;
    if (card->temperature_input)
        out->temperature_mc =
            hwmon_temperature_mc(intel->fs, folder, card->temperature_input, "input");
    if (!card->energy_input)
        return sysfs_exists(intel->fs, "%s", folder);
    out->power_limit_mw = hwmon_power_mw(intel->fs, folder, card->energy_input, "max");
    out->power_mw = reading_failed();
    uint64_t energy_uj;
    if (sysfs_u64(intel->fs, &energy_uj, UINT64_MAX, "%s/energy%u_input", folder,
                  card->energy_input))
        return false;
    out->power_mw = energy_meter_update(&card->meter, energy_uj, 0, clock_now_ns());
    return true;
}

static struct reading intel_sysfs_read_clock(const struct intel *intel, const char *pci)
{
    char drm[HWMON_FOLDER_BYTES], names[1][SYSFS_NAME_BYTES];
    uint64_t mhz;
    if (!sysfs_u64(intel->fs, &mhz, UINT64_MAX, "sys/bus/pci/devices/%s/tile0/gt0/freq0/act_freq",
                   pci))
        return reading_now_u64(UNIT_MHZ, mhz);
    snprintf(drm, sizeof drm, "sys/bus/pci/devices/%s/drm", pci);
    if (sysfs_list(intel->fs, drm, "card", names, 1) &&
        !sysfs_u64(intel->fs, &mhz, UINT64_MAX, "%s/%s/gt_act_freq_mhz", drm, names[0]))
        return reading_now_u64(UNIT_MHZ, mhz);
    return reading_failed();
}

static void intel_read_device(void *self, uint32_t index, const struct device_info *info,
                              struct sensor_device *out)
{
    struct intel *intel = self;
    struct intel_card *card = &intel->cards[index];
    char pci[PCI_NAME_BYTES];
    if (!pci_find(intel->fs, info->pci, PCI_VENDOR_INTEL, pci)) {
        card->hwmon[0] = 0; /* unplugged, or never ours */
        return;
    }
    out->clock_mhz = intel_sysfs_read_clock(intel, pci);
    if (!card->hwmon[0])
        intel_sysfs_find_hwmon(intel, pci, card);
    if (card->hwmon[0] && !intel_sysfs_read_hwmon(intel, card, out))
        card->hwmon[0] = 0;
}

const struct sensor_impl sensor_impl_intel_sysfs = {.name = "intel_sysfs",
                                                    .may_block = true,
                                                    .open = intel_open,
                                                    .close = mem_free,
                                                    .read_device = intel_read_device};
