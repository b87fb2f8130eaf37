/* Well-known devices to simulate. Nothing here was measured by Medley. */
#pragma once

#include "simdevices/sim_file.h"

#include <stddef.h>

/* Fills `spec` but for its name; false when there is no preset of that name. */
bool sim_preset_fill(const char *name, struct sim_spec *spec);
void sim_preset_names(char *text, size_t size); /* "rtx-3060, rtx-4090, …" for messages */

/* What is published of a real device: what plans take (less the shares below) for one
 * that nobody measured. `device_name` is as its driver says it; false
 * when the table has none of exactly that name (what a driver adds in parentheses does not
 * count). */
struct sim_published {
    const char *name; /* constant */
    double bandwidth_gb_per_s;
    double tflops; /* f32 */
};
bool sim_preset_published(const char *device_name, struct sim_published *out);

/* What is assumed of a device between its published figures and what a program gets from it. */
#define SIM_DECODE_SHARE 0.7 /* of the published memory bandwidth */
#define SIM_FLOPS_SHARE 0.5  /* of the published f32 rate */
