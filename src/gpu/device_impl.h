/* How a kind of device is made: one table of operations per file that implements one
 * (ggml devices, simulated devices, the tests' fakes). Users of devices read gpu.h instead.
 *
 * The fourteen operations of a device interface, and `multiply`, with which verification
 * sees that the device also computes. An optional operation may be NULL: the wrapper in
 * device.c or verify.c then supplies the default that stands beside it.
 *
 * Threading: list() and get() belong to the thread of gpu_open(). initialize() runs on the device's
 * own thread, shutdown() after that thread has ended; transfers run under the device's buffer lock,
 * one at a time. The readings (memory, temperature, power, clock) may be called from any thread.
 *
 * Sizes and offsets have been checked against the allocation, and size > 0, before an
 * operation is called. Transfers are complete when they return. */
#pragma once

#include "gpu/gpu.h"

struct device_impl {
    const char *name;

    /* A family is what the devices of one backend have in common; it outlives them. */
    uint32_t (*list)(const void *family);
    void (*get)(const void *family, uint32_t index, struct device_info *info);

    enum error_code (*initialize)(const void *family, uint32_t index,
                                  const struct gpu_options *options, void **self,
                                  struct error *err);
    void (*shutdown)(void *self);

    enum error_code (*allocate)(void *self, uint64_t size, void **memory, struct error *err);
    void (*deallocate)(void *self, void *memory);
    enum error_code (*copy_to)(void *self, void *to, uint64_t offset, const void *from,
                               uint64_t size, struct error *err);
    enum error_code (*copy_from)(void *self, void *from, uint64_t offset, void *to, uint64_t size,
                                 struct error *err);

    /* Both devices are of this table. NULL, or ERROR_UNSUPPORTED as the answer: staged through host
     * memory. */
    enum error_code (*copy_between)(void *self, void *from, uint64_t offset_from, void *other,
                                    void *to, uint64_t offset_to, uint64_t size, struct error *err);

    /* Which way copy_between takes between two allocations of different devices. NULL:
     * COPY_SAME_BACKEND. */
    enum copy_path (*path_between)(const void *from, const void *to);

    enum error_code (*synchronize)(void *self,
                                   struct error *err); /* NULL: nothing is ever pending */

    struct device_memory (*memory)(const void *self);
    struct reading (*temperature_mc)(const void *self); /* NULL: what the machine's sensors say */
    struct reading (*power_mw)(const void *self);       /* NULL: likewise */
    struct reading (*clock_mhz)(const void *self);      /* NULL: likewise */
    struct reading (*temperature_limit_mc)(const void *self); /* NULL: unknown */

    /* out[n,n] = a[n,n] b[n,n] in f32, row-major. NULL or ERROR_UNSUPPORTED: verification does not
     * compute. */
    enum error_code (*multiply)(void *self, uint32_t n, const float *a, const float *b, float *out,
                                struct error *err);

    /* For a table that stands around a ggml device (gpu/device_ggml.h): what
     * device_impl_ggml.initialize() made. NULL: it is one itself, or has none. */
    void *(*ggml)(void *self);

    /* Speeds that are known without measuring. NULL, or false: none are. */
    bool (*speed)(const void *self, struct device_speed *out);

    /* Whether it refuses weights of ggml's type of that name. NULL: ggml says. */
    bool (*lacks)(const void *self, const char *what);

    /* See gpu.h. NULL: real devices, where memory, time and failure happen by themselves. */
    void (*interrupt)(void *self); /* any thread */
    enum error_code (*reserve)(void *self, uint64_t bytes, struct error *err);
    void (*release)(void *self, uint64_t bytes);
    enum error_code (*worked)(void *self, const struct device_work *work, struct error *err);
};

/* Makes device `index` of the family and its queue; the device's own thread initialises and
 * verifies it. ERROR_DEVICE etc. when it fails, with *info filled as far as it is known.
 * A device that has not answered within `limit_ms` is given up: its thread and memory stay
 * behind, for nobody may free what a hung driver may still touch. */
enum error_code device_open(const struct device_impl *impl, const void *family, uint32_t index,
                            const struct gpu_options *options, uint64_t limit_ms,
                            struct device_info *info, struct device **out, struct error *err);

/* The same with more to say. */
struct device_opening {
    uint64_t limit_ms;
    bool quick; /* verify_device_quickly(): it has passed before, here or in a child */
    bool hung;  /* found: it did not answer within the limit */
};
enum error_code device_open_checked(const struct device_impl *impl, const void *family,
                                    uint32_t index, const struct gpu_options *options,
                                    struct device_opening *opening, struct device_info *info,
                                    struct device **out, struct error *err);

/* What discovery and calibration found out. A calibration fills the measured speeds of
 * device_info. */
void device_set_verification(struct device *device, struct device_verification verification);
struct registry_key;
void device_set_key(struct device *device,
                    const struct registry_key *key); /* its name in the registry */
const struct registry_key *device_key(const struct device *device);
void device_set_calibration(struct device *device, const struct device_calibration *calibration);

/* Its thread hangs in the driver: device_close() will neither wait for it nor free what it may
 * touch. */
void device_give_up(struct device *device);
bool device_is_lost(const struct device *device);

/* Runs every queued job, frees what is left of its buffers, shuts the device down. NULL is fine. */
void device_close(struct device *device);

/* Where to look for readings that the table does not have: device `index` of `sensors`, which
 * outlives it. Before the device is given to anybody. */
struct on_demand;
void device_set_sensors(struct device *device, struct on_demand *sensors, uint32_t index);

const struct device_impl *device_implementation(const struct device *device);
void *device_self(struct device *device); /* what initialize() made */
