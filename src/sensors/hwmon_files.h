/* The files of one hwmon folder, as the kernel's Documentation/hwmon/sysfs-interface.rst names
 * them. `folder` is a path below the root: "sys/class/hwmon/hwmon2". */
#pragma once

#include "base/reading.h"
#include "sensors/sysfs.h"

enum { HWMON_FOLDER_BYTES = 128, HWMON_INPUTS_MAX = 32 };

/* The number n of the first input kindn_label ("temp3_label") whose text begins with `label`; 0:
 * none. */
uint32_t hwmon_find_label(const struct sysfs *fs, const char *folder, const char *kind,
                          const char *label);

/* tempN_input, tempN_crit … in millidegrees. */
struct reading hwmon_temperature_mc(const struct sysfs *fs, const char *folder, uint32_t input,
                                    const char *what);
/* powerN_average, powerN_cap … which the kernel has in microwatts. */
struct reading hwmon_power_mw(const struct sysfs *fs, const char *folder, uint32_t input,
                              const char *what);

/* The folder of the hwmon device that belongs to a PCI device, "" when there is none. */
void hwmon_of_pci(const struct sysfs *fs, const char *pci, char folder[HWMON_FOLDER_BYTES]);
