/* From the words of gpu/gpu.h to those of medley/gpu.h. Pure. */
#pragma once

#include "gpu/gpu.h"

#include <medley/gpu.h>

struct medley_reading public_reading(struct reading reading);
struct medley_device_info public_info(const struct device_info *info);
enum medley_copy_path public_path(enum copy_path path);

/* Fills *out and returns its code; *err is read only where `code` is not ERROR_NONE. */
enum medley_error_code public_error(enum error_code code, const struct error *err,
                                    struct medley_error *out);
