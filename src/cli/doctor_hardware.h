/* `medley doctor --hardware`: devices compared with the CPU, measured, and watched under load, as a
 * report that can be sent with an issue. */
#pragma once

#include "cli/command.h"

#include <stdint.h>

/* Writes the report to stdout, or to `path`; an exit status. `seconds` of load for each device. The
 * report names devices, drivers and versions, and nothing of who owns them: no host, user, address,
 * path, serial number or place on a bus. */
int doctor_hardware_run(const struct command *command, uint32_t seconds, const char *path);
