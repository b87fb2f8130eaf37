/* What this machine can compute with.
 *
 * gpu_open() loads every compute backend that is installed, finds its devices, verifies
 * each one (allocate, write, read back, compare, free, synchronise) and keeps those that
 * pass. A device that fails is listed with the reason and never used. When no other
 * device is left there is always the CPU.
 *
 * Threading: gpu_open(), gpu_close() and gpu_select() belong to one thread. A device may
 * be used from any thread through its queue (device_submit); info is constant after open.
 *
 * Lifetime: devices live until gpu_close(), which waits for their queues to drain. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;
struct device;

/* What computes in the end: a software Vulkan driver is DEVICE_CPU too (its backend says "vulkan"). */
enum device_kind { DEVICE_CPU, DEVICE_GPU, DEVICE_INTEGRATED_GPU };

enum precision { PRECISION_F32 = 1, PRECISION_F16 = 2, PRECISION_BF16 = 4, PRECISION_INT8 = 8, PRECISION_INT4 = 16 };

enum support_level { SUPPORT_TESTED, SUPPORT_EXPECTED, SUPPORT_EXPERIMENTAL };

/* A number that may be unknown. */
struct reading_u64 {
    uint64_t value;
    bool valid;
};

/* The fifteen facts of a device. Text that is not known is "". */
struct device_info {
    char id[32];           /* what --devices takes: "cpu", "vulkan0", "cuda1" */
    char name[128];        /* as the driver says it */
    char vendor[32];       /* "Intel", "NVIDIA", "AMD", "Apple", "Mesa" … */
    char backend[16];      /* "cpu", "vulkan", "cuda", "hip", "metal", "opencl", "sycl" */
    char architecture[64]; /* instruction set or compute capability */
    char driver[64];       /* driver version */
    char pci[24];          /* "0000:c1:00.0", else "" */
    enum device_kind kind;
    uint64_t memory_total_bytes;
    uint64_t memory_free_bytes; /* when it was opened; device_memory() reads it now */
    struct reading_u64 compute_units;
    struct reading_u64 clock_mhz;
    struct reading_u64 bandwidth_mb_per_s; /* measured, never a datasheet */
    struct reading_u64 peak_mflops;        /* measured, never a datasheet */
    struct reading_u64 threads_per_block_max;
    uint32_t precisions; /* bits of enum precision */
    bool peer_to_peer;
    enum support_level support;
};

struct gpu_options {
    const char *backend;    /* --backend / MEDLEY_BACKEND: only this backend (the CPU always stays); NULL: all */
    uint32_t n_cpu_threads; /* threads of the CPU device; 0: one per core that this process may use */
    bool skip_other;        /* load the CPU backend alone: the fastest start */
};

enum error_code gpu_open(const struct gpu_options *options, struct gpu **out, struct error *err);
void gpu_close(struct gpu *gpu);

/* Usable devices, in order of preference (the platform's chain; the CPU last). */
uint32_t gpu_device_count(const struct gpu *gpu);
struct device *gpu_device(const struct gpu *gpu, uint32_t index);
struct device *gpu_find(const struct gpu *gpu, const char *id); /* NULL when there is none of that id */

/* Devices that were found and refused, with the reason. */
struct device_rejected {
    struct device_info info;
    char reason[256];
};
uint32_t gpu_rejected_count(const struct gpu *gpu);
const struct device_rejected *gpu_rejected(const struct gpu *gpu, uint32_t index);

/* Every backend that Medley knows, in the platform's order, and why one is not available. */
struct backend_status {
    char name[16];
    bool available;
    char reason[256]; /* when not available: what is missing and how to mend it */
};
uint32_t gpu_backend_count(const struct gpu *gpu);
const struct backend_status *gpu_backend(const struct gpu *gpu, uint32_t index);

/* Reads a device list such as "cpu,vulkan0". NULL picks the default: every GPU that has
 * passed, or the CPU where there is none. At most `max` devices are written to `out`.
 * An unknown, rejected or repeated id is ERROR_NOT_FOUND / ERROR_INVALID with the ids that exist. */
enum error_code gpu_select(const struct gpu *gpu, const char *list, struct device **out, uint32_t max, uint32_t *n_out,
                           struct error *err);

/* ---- one device ---------------------------------------------------------------------- */

const struct device_info *device_info(const struct device *device);

/* A job for the device's own thread. The memory is the caller's and must live until
 * `run` has been entered; `run` may free it. Jobs run one at a time, in order. */
struct device_job {
    void (*run)(struct device_job *job);
    struct device_job *next; /* the queue's */
};

/* Queues a job; never blocks on the device. Any thread. */
void device_submit(struct device *device, struct device_job *job);

/* Readings of now; validity says whether the device can tell. Any thread. */
struct device_memory {
    uint64_t free_bytes;
    uint64_t total_bytes;
};
struct device_memory device_memory(const struct device *device);
/* From the implementation, else from the sensors (sensors/sensors.h), which the first question opens. Power that is
 * measured by an energy counter is the mean since the last question, and unknown at the first. */
struct reading_u64 device_temperature_mc(const struct device *device); /* millidegrees Celsius */
struct reading_u64 device_power_mw(const struct device *device);
struct reading_u64 device_clock_mhz(const struct device *device);

/* Buffers on the device. A handle carries its device and a generation: a stale, foreign or
 * double-freed one is ERROR_INVALID. Zero is no buffer. These block; call them from a job. */
struct device_buffer {
    uint64_t handle;
};
enum error_code device_alloc(struct device *device, uint64_t size, struct device_buffer *out, struct error *err);
enum error_code device_free(struct device *device, struct device_buffer buffer, struct error *err);
enum error_code device_write(struct device *device, struct device_buffer to, uint64_t offset, const void *from,
                             uint64_t size, struct error *err);
enum error_code device_read(struct device *device, struct device_buffer from, uint64_t offset, void *to, uint64_t size,
                            struct error *err);
/* Within one buffer the two ranges must not overlap. */
enum error_code device_copy(struct device *device_from, struct device_buffer from, uint64_t offset_from,
                            struct device *device_to, struct device_buffer to, uint64_t offset_to, uint64_t size,
                            struct error *err);
enum error_code device_synchronize(struct device *device, struct error *err);
