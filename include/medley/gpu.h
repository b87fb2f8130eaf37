/* Every processor of this machine that can compute, behind one asynchronous interface.
 *
 * medley_gpu_open() loads the compute backends that are installed (CUDA, HIP, Vulkan, Metal,
 * OpenCL, SYCL, CPU), finds their devices, verifies each (write, read back, compute, compare)
 * and keeps those that pass. The CPU is a device too and always there. Each device has a
 * queue and a thread of its own; an operation is a request that is queued there and completes
 * by a callback on your libuv loop. No function of this header blocks that loop.
 *
 * TWO NOUNS
 *   Handles live. A `struct medley_gpu` is the devices as one loop sees them. It is made by
 *     medley_gpu_open() or medley_gpu_attach() and lives until the callback of
 *     medley_gpu_close(). Its `struct medley_device`s live and die with it.
 *   Requests die with their callback. A `struct medley_device_request` is your memory. Zero it
 *     before its first use. From a successful submit until its callback it belongs to Medley:
 *     do not move, read, reuse or free it. In the callback and after it is yours again, with
 *     the results in it; the callback may free it or submit it anew.
 *
 * SUBMITTING
 *   A submit answers at once. MEDLEY_ERROR_NONE: the callback will be called, exactly once, and
 *   never from within the submit itself. Anything else: nothing was queued, there will be no
 *   callback, and request->error says why (only a request that is still in flight is left
 *   untouched). A callback may be NULL.
 *   Host memory that a request reads or writes must stay as it is until the callback.
 *   Back-pressure: a loop has at most MEDLEY_DEVICE_REQUESTS_MAX requests in flight on one
 *   device; one more is MEDLEY_ERROR_BUSY. A request counts until its callback is entered, so
 *   there is room again in any callback of that device.
 *
 * ORDER
 *   The requests of one loop to one device run, and call back, in the order of submission. What
 *   is submitted to different devices, or from different loops, has no order.
 *   A copy between two devices is a request of the device that it reads from. With the other
 *   device's queue it has no order: wait for its callback, or submit it from a callback there.
 *
 * CANCELLING
 *   medley_device_cancel() on a request that has not started: it will not run, and its callback
 *   comes in its turn with MEDLEY_ERROR_CANCELLED. A write, read or copy of more than 16 MiB goes
 * in pieces of that size, and stops after the piece under way, until the last has begun: it calls
 *   back with MEDLEY_ERROR_CANCELLED too, with the pieces before copied. What has started and has
 *   no such pieces cannot be stopped: the answer is MEDLEY_ERROR_BUSY, and it completes as if
 *   nobody had asked.
 *
 * CLOSING
 *   medley_gpu_close() takes no more requests, lets those in flight complete (cancel them first to
 *   be quick) and calls back after the last of their callbacks. The devices shut down when the last
 *   handle that shares them closes; buffers that nobody has freed are freed then. A handle does not
 *   keep uv_run() going; requests in flight and a close under way do. A driver that hangs in an
 *   operation holds up its device and the close; a simulated device that hangs, or is slow on
 *   purpose, ends its waits when the last handle closes.
 *
 * THREADS
 *   A handle, its devices and its requests belong to the thread of its loop: call every
 *   function there, medley_gpu_attach() excepted, which is called on the new loop's thread.
 *   Any number of loops may use the same devices at once, each with a handle of its own.
 *   Buffers belong to the device, not to a handle: they may be passed between loops that share it.
 *   Opening and closing use libuv's thread pool. The first open in a process sets the
 *   environment variable GOMP_SPINCOUNT unless it is set (how long ggml's CPU threads spin).
 *   Do not use a handle in a process that was forked from the one that opened it.
 *
 * WHAT GOES WRONG is in the request's error. What goes wrong beside it (a backend that was asked
 * for and is not there, a registry that is not used) is a line on stderr; the environment variable
 * MEDLEY_LOG (error, warn, info, debug; warn) says how much. MEDLEY_BACKEND stands in for
 * options.backend.
 *
 * DRIVERS CRASH. Verification runs a driver for the first time. Without options.verifier it does so
 * in your process: a driver that hangs is given up (its thread stays), one that crashes takes the
 * process along. With it each device is verified in a child process first.
 *
 * WITHOUT A LOOP
 *   Give NULL for the loop: the handle then has a hidden one of its own, which runs inside
 *   medley_device_wait() and medley_gpu_close() only. That is the blocking interface; callbacks
 *   are called from within these two. A submit whose answer you drop is found by the wait.
 *
 *     struct medley_gpu *gpu;
 *     struct medley_device_request request = {0};
 *     if (!medley_gpu_open(NULL, NULL, &gpu, &request, NULL)) {
 *         if (medley_device_wait(&request))
 *             puts(request.error.text);
 *         for (uint32_t i = 0; i < medley_gpu_device_count(gpu); i++)
 *             puts(medley_device_info(medley_gpu_device(gpu, i))->name);
 *         medley_gpu_close(gpu, NULL, NULL);
 *     }
 *
 * With a loop: examples/device_copy.c. Blocking: examples/device_blocking.c.
 *
 * UNITS stand last in names. Sizes and offsets are bytes. A number that may be unknown is a
 * struct medley_reading with a validity bit: unknown is never zero.
 *
 * LINKING: `cc program.c $(pkg-config --cflags --libs medley)`. */
#pragma once

#include <medley/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MEDLEY_DEVICE_REQUESTS_MAX = 1024 };

struct medley_gpu;
struct medley_device;
struct medley_device_request;

struct medley_reading {
    uint64_t value;
    bool valid;
};

/* ---- what a device is ------------------------------------------------------------------ */

/* What computes in the end: a software Vulkan driver is MEDLEY_DEVICE_CPU too (its backend says
 * "vulkan"). */
enum medley_device_kind { MEDLEY_DEVICE_CPU, MEDLEY_DEVICE_GPU, MEDLEY_DEVICE_INTEGRATED_GPU };

enum medley_precision {
    MEDLEY_PRECISION_F32 = 1,
    MEDLEY_PRECISION_F16 = 2,
    MEDLEY_PRECISION_BF16 = 4,
    MEDLEY_PRECISION_INT8 = 8,
    MEDLEY_PRECISION_INT4 = 16,
};

enum medley_support_level {
    MEDLEY_SUPPORT_TESTED,
    MEDLEY_SUPPORT_EXPECTED,
    MEDLEY_SUPPORT_EXPERIMENTAL
};

/* The fifteen facts. They do not change while the handle is open. Text that is not known is "". */
struct medley_device_info {
    char id[32];           /* 1  "cpu", "vulkan0", "cuda1": unique on this machine */
    char name[128];        /* 2  as the driver says it, printable ASCII */
    char vendor[32];       /* 3  "Intel", "NVIDIA", "AMD", "Apple", "Mesa" … */
    char backend[16];      /* 4  "cpu", "vulkan", "cuda", "hip", "metal", "opencl", "sycl" */
    char architecture[64]; /* 5  instruction set or compute capability */
    char driver[64];       /* 6  driver version */
    struct medley_reading
        total_bytes;                  /* 7  memory; medley_device_memory() reads what is free now */
    struct medley_reading free_bytes; /*    … when the device was opened */
    struct medley_reading compute_units; /* 8  */
    struct medley_reading
        clock_mhz; /* 9  the highest that is known; medley_device_clock_mhz() reads it now */
    struct medley_reading
        bandwidth_mb_per_s; /* 10 10^6 bytes a second, measured, never a datasheet's */
    struct medley_reading
        peak_mflops;     /* 11 10^6 operations a second, measured, never a datasheet's */
    uint32_t precisions; /* 12 bits of enum medley_precision it multiplies matrices of */
    struct medley_reading threads_per_block_max; /* 13 */
    struct medley_reading
        peer_to_peer; /* 14 1: reaches another device's memory without the host; 0: not */
    enum medley_support_level support; /* 15 */
    enum medley_device_kind kind;
    char pci[24];         /* "0000:c1:00.0", else "" */
    char driver_name[64]; /* "radv", "NVIDIA", "amdgpu" … */
    char
        driver_fault[192]; /* a known fault of that driver's version, and what mends it; "": none */
};

/* ---- requests -------------------------------------------------------------------------- */

/* Memory on a device. A value: copy it freely. It carries its device and a generation, so a stale,
 * foreign or twice freed one is MEDLEY_ERROR_INVALID. Zero is no buffer. */
struct medley_device_buffer {
    uint64_t handle;
};

/* How a copy between devices went. */
enum medley_copy_path {
    MEDLEY_COPY_NONE,         /* nothing was copied: zero bytes, or an error */
    MEDLEY_COPY_SAME_DEVICE,  /* within one device */
    MEDLEY_COPY_SAME_BACKEND, /* both are one backend's: it moves the bytes as it knows best */
    MEDLEY_COPY_HOST_VISIBLE, /* one of the two is host memory: a single transfer */
    MEDLEY_COPY_STAGED,       /* two transfers, through host memory */
};

struct medley_device_memory_reading {
    struct medley_reading free_bytes;
    struct medley_reading total_bytes;
};

typedef void (*medley_device_callback)(struct medley_device_request *request);
typedef void (*medley_gpu_close_callback)(void *data);

/* One operation. About 1 KiB; zero it before its first use. */
struct medley_device_request {
    void *data; /* yours */

    /* Results: valid in the callback and after. Only those of the operation at hand are set. */
    struct medley_error error;
    struct medley_device_buffer buffer;         /* medley_device_alloc */
    enum medley_copy_path path;                 /* medley_device_copy */
    struct medley_device_memory_reading memory; /* medley_device_memory */
    struct medley_reading reading;              /* temperature, power, clock */
    uint64_t run_ns; /* how long it ran on the device's thread; waiting not counted */

    uint64_t reserved[40]; /* Medley's */
};

/* Asks that the request be not run: see CANCELLING. MEDLEY_ERROR_BUSY: it has started.
 * MEDLEY_ERROR_NOT_FOUND: it is not in flight. Works on medley_gpu_open()'s request too. */
enum medley_error_code medley_device_cancel(struct medley_device_request *request);

/* For handles without a loop: returns when the request is not in flight, with its error's code.
 * MEDLEY_ERROR_INVALID where the handle has a loop (run that), or from within a callback. */
enum medley_error_code medley_device_wait(struct medley_device_request *request);

/* ---- 1 initialise, 2 shut down ---------------------------------------------------------- */

/* Zero is the default of each. */
struct medley_gpu_options {
    const char *backend; /* only this backend, and the CPU; NULL: what MEDLEY_BACKEND says, or all.
                            Copied */
    uint32_t
        n_cpu_threads;    /* threads of the CPU device; 0: one per core that this process may use */
    bool cpu_only;        /* load the CPU backend alone: the fastest start */
    const char *registry; /* a file that remembers verified devices and their speeds, such as the
                             ~/.local/state/medley/devices.json of the command `medley`; NULL: none,
                             and each device is verified in full at every opening. Copied */
    const char
        *sim_file; /* simulated devices too (docs/simulated-devices.md); NULL: none. Copied */
    const char *verifier; /* path of the program `medley` of the same version; NULL: none. Copied */
};

/* Starts to open the devices; tens of milliseconds as a rule, at most 20 s for each device that
 * hangs. *out is set when the submit succeeds and must be closed then, also where opening fails. It
 * has no devices before the request has completed, and none if that failed.
 * Errors of the request: INVALID (no such backend, a mistake in sim_file), NOT_FOUND (no CPU
 * backend installed), DEVICE, NO_MEMORY. */
enum medley_error_code medley_gpu_open(uv_loop_t *loop, const struct medley_gpu_options *options,
                                       struct medley_gpu **out,
                                       struct medley_device_request *request,
                                       medley_device_callback callback);

/* The devices of `other` for one more loop, at once. Call it on the new loop's thread (NULL: a
 * hidden loop). `other` must have been opened successfully, and must not be closed before this
 * returns; afterwards the two are independent. */
enum medley_error_code medley_gpu_attach(uv_loop_t *loop, struct medley_gpu *other,
                                         struct medley_gpu **out, struct medley_error *err);

/* See CLOSING. `callback` (may be NULL) is given `data`, on the loop, when the handle is gone. A
 * handle without a loop is gone when this returns; do not call it from a callback then. NULL is no
 * handle: a no-op. */
void medley_gpu_close(struct medley_gpu *gpu, medley_gpu_close_callback callback, void *data);

/* ---- 3 list devices, 4 get device ------------------------------------------------------- */

/* In order of preference: GPUs, then the CPU, then simulated ones. At once. */
uint32_t medley_gpu_device_count(const struct medley_gpu *gpu);
struct medley_device *medley_gpu_device(struct medley_gpu *gpu,
                                        uint32_t index); /* NULL beyond the last */
struct medley_device *medley_gpu_find(struct medley_gpu *gpu,
                                      const char *id); /* NULL: none of that id */
const struct medley_device_info *medley_device_info(const struct medley_device *device);

/* Devices that were found and are not used, and why. `reason` lives as long as the handle. */
uint32_t medley_gpu_rejected_count(const struct medley_gpu *gpu);
const struct medley_device_info *
medley_gpu_rejected(const struct medley_gpu *gpu, uint32_t index,
                    const char **reason); /* NULL beyond the last */

/* ---- 5 allocate, 6 deallocate ----------------------------------------------------------- */

/* request->buffer is the new buffer of `size` bytes, whose content is undefined. Zero bytes make a
 * buffer too. NO_MEMORY: the text says what was needed and what is free. */
enum medley_error_code medley_device_alloc(struct medley_device *device,
                                           struct medley_device_request *request, uint64_t size,
                                           medley_device_callback callback);

enum medley_error_code medley_device_free(struct medley_device *device,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer buffer,
                                          medley_device_callback callback);

/* ---- 7 copy to, 8 copy from, 9 copy between --------------------------------------------- */

/* Any offset and size that lie within the buffer; else INVALID. Zero bytes are fine, with `from`
 * NULL too. */
enum medley_error_code medley_device_write(struct medley_device *device,
                                           struct medley_device_request *request,
                                           struct medley_device_buffer to, uint64_t offset,
                                           const void *from, uint64_t size,
                                           medley_device_callback callback);
enum medley_error_code medley_device_read(struct medley_device *device,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer from, uint64_t offset,
                                          void *to, uint64_t size, medley_device_callback callback);

/* Both devices of one handle; they may be the same. Within one buffer the ranges must not overlap.
 * request->path says how it went. */
enum medley_error_code medley_device_copy(struct medley_device *device_from,
                                          struct medley_device_request *request,
                                          struct medley_device_buffer from, uint64_t offset_from,
                                          struct medley_device *device_to,
                                          struct medley_device_buffer to, uint64_t offset_to,
                                          uint64_t size, medley_device_callback callback);

/* ---- 10 synchronise --------------------------------------------------------------------- */

/* Completes when all that was submitted before it from this loop to this device is done, on the
 * device too. */
enum medley_error_code medley_device_synchronize(struct medley_device *device,
                                                 struct medley_device_request *request,
                                                 medley_device_callback callback);

/* ---- 11 memory, 12 temperature, 13 power, 14 clock rate: as they are when the request runs -- */

enum medley_error_code medley_device_memory(struct medley_device *device,
                                            struct medley_device_request *request,
                                            medley_device_callback callback); /* request->memory */

/* request->reading: millidegrees Celsius, milliwatts, megahertz. Not valid: this device or system
 * does not tell. The first of these questions opens the machine's sensors, for which the device's
 * queue may wait 2 s. Power that comes from an energy counter is the mean since the last question,
 * and not valid at the first. */
enum medley_error_code medley_device_temperature_mc(struct medley_device *device,
                                                    struct medley_device_request *request,
                                                    medley_device_callback callback);
enum medley_error_code medley_device_power_mw(struct medley_device *device,
                                              struct medley_device_request *request,
                                              medley_device_callback callback);
enum medley_error_code medley_device_clock_mhz(struct medley_device *device,
                                               struct medley_device_request *request,
                                               medley_device_callback callback);

#ifdef __cplusplus
}
#endif
