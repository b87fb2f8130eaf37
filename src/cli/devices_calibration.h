/* What `medley devices` says of measured speeds, and the calibration that it runs. */
#pragma once

#include "gpu/gpu.h"

#include <yyjson.h>

/* Calibrates every device, with a progress bar where stderr is a terminal. */
enum error_code devices_calibrate(struct gpu *gpu, struct error *err);

/* The section "Measured speed" of the text. */
void devices_print_calibrations(const struct gpu *gpu);

/* "calibration": an object or null; "verified": how and when. */
void devices_json_measured(yyjson_mut_doc *doc, yyjson_mut_val *object,
                           const struct device *device);
