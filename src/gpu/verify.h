/* Verification: does a device do what it says? Nothing is used that has not passed.
 *
 * 1. The memory it claims is plausible (total not 0, free not above total).
 * 2. Two buffers of odd sizes take different patterns, written in odd pieces at odd
 *    offsets; both read back byte for byte, twice, so that a device which aliases,
 *    drops or reorders writes is found out.
 * 3. A copy from one to the other on the device, where it can.
 * 4. A large buffer keeps distinct stamps at its beginning, middle and end (memory that
 *    wraps around, or is not there).
 * 5. A 64 × 64 matrix product agrees with the host's (only where the table has multiply).
 * 6. synchronize answers; memory is given back.
 *
 * It needs only the table and what initialize() made, so that fakes can be verified and a
 * child process can do it. Runs on the calling thread and knows no time limit. */
#pragma once

#include "gpu/device_impl.h"

/* A small buffer keeps what was written: enough for a device that has passed before. */
enum error_code verify_device_quickly(const struct device_impl *impl, void *self,
                                      struct error *err);

/* ERROR_NONE: it passed. Else ERROR_DEVICE or what the device said, with the reason. */
enum error_code verify_device(const struct device_impl *impl, void *self, struct error *err);
