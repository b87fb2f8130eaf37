/* Versions of drivers that are known to be too old or broken, and the version that mends.
 *
 * A fault is named, and nothing more: verification (verify.h) decides whether a device is used. */
#pragma once

#include "base/device_info.h"

#include <stddef.h>

/* "Mesa 25.0.7 …; Mesa 26.0.5 mends it" for the driver of this record; "" where none is known, or
 * its name or version is not. Pure. */
void driver_fault_find(const struct device_info *info, char *text, size_t size);
