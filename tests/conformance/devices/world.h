/* What the device conformance tests share: the devices of this machine, opened once without a loop,
 * and each operation as a call that returns when it is done.
 *
 * The tests know nothing of which devices there are: every one that medley_gpu_open() gives is
 * tested. */
#pragma once

#include <medley/gpu.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

extern struct medley_gpu *all_devices;

int open_devices(void **state); /* cmocka set-up and tear-down of a group */
int close_devices(void **state);

/* for (each device) */
uint32_t device_count(void);
struct medley_device *device_at(uint32_t index);
const char *device_id(uint32_t index);

/* Submit and wait. Those without a code assert that it works. */
struct medley_device_buffer alloc(struct medley_device *device, uint64_t size);
enum medley_error_code try_alloc(struct medley_device *device, uint64_t size,
                                 struct medley_device_buffer *out);
enum medley_error_code try_free(struct medley_device *device, struct medley_device_buffer buffer);
enum medley_error_code try_write(struct medley_device *device, struct medley_device_buffer to,
                                 uint64_t offset, const void *from, uint64_t size);
enum medley_error_code try_read(struct medley_device *device, struct medley_device_buffer from,
                                uint64_t offset, void *to, uint64_t size);
enum medley_error_code try_copy(struct medley_device *device_from, struct medley_device_buffer from,
                                uint64_t offset_from, struct medley_device *device_to,
                                struct medley_device_buffer to, uint64_t offset_to, uint64_t size,
                                enum medley_copy_path *path);
extern struct medley_error last_error; /* of the last of these */

void fill(void *bytes, size_t size, uint64_t seed); /* the same bytes for the same seed */

/* Makes the device's thread wait until hold_end(): what is submitted meanwhile has certainly not
 * started. */
struct hold;
struct hold *hold_begin(struct medley_device *device);
void hold_end(struct hold *hold);
