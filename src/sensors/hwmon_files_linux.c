#include "sensors/hwmon_files.h"

#include "base/limits.h"

#include <stdio.h>
#include <string.h>

uint32_t hwmon_find_label(const struct sysfs *fs, const char *folder, const char *kind,
                          const char *label)
{
    char text[64];
    for (uint32_t n = 1; n <= HWMON_INPUTS_MAX; n++) {
        if (sysfs_text(fs, text, sizeof text, "%s/%s%u_label", folder, kind, n) == SYSFS_OK &&
            strncmp(text, label, strlen(label)) == 0)
            return n;
    }
    return 0;
}

struct reading hwmon_temperature_mc(const struct sysfs *fs, const char *folder, uint32_t input,
                                    const char *what)
{
    uint64_t mc;
    if (sysfs_u64(fs, &mc, UINT64_MAX, "%s/temp%u_%s", folder, input, what))
        return reading_failed();
    return reading_now_u64(UNIT_MC, mc);
}

struct reading hwmon_power_mw(const struct sysfs *fs, const char *folder, uint32_t input,
                              const char *what)
{
    uint64_t uw;
    if (sysfs_u64(fs, &uw, UINT64_MAX, "%s/power%u_%s", folder, input, what))
        return reading_failed();
    return reading_now_u64(UNIT_MW, uw / 1000);
}

void hwmon_of_pci(const struct sysfs *fs, const char *pci, char folder[HWMON_FOLDER_BYTES])
{
    char parent[HWMON_FOLDER_BYTES], names[1][SYSFS_NAME_BYTES];
    folder[0] = 0;
    snprintf(parent, sizeof parent, "sys/bus/pci/devices/%s/hwmon", pci);
    if (sysfs_list(fs, parent, "hwmon", names, 1))
        snprintf(folder, HWMON_FOLDER_BYTES, "%s/%s", parent, names[0]);
}
