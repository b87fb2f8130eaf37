/* What this machine can compute with.
 *
 * gpu_open() loads every compute backend that is installed, finds its devices, verifies
 * each one (allocate, write, read back, compare, free, synchronise) and keeps those that
 * pass. A device that fails is listed with the reason and never used. When no other
 * device is left there is always the CPU.
 *
 * Every device but the CPU is verified in a child process where gpu_options.prober names a program
 * for it. With a registry (a file) a device that has passed is not verified anew while nothing
 * about it has changed: a short write and read must do; a driver that crashed or hung is not tried
 * again until something changes or `verify` is set. gpu_open() never calibrates: that takes
 * seconds, and only gpu_calibrate() does it.
 *
 * Threading: gpu_open(), gpu_close() and gpu_select() belong to one thread. A device may
 * be used from any thread through its queue (device_submit); info is constant after open.
 *
 * Lifetime: devices live until gpu_close(), which waits for their queues to drain. */
#pragma once

#include "base/device_info.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gpu;
struct device;

struct gpu_options {
    const char *backend;    /* --backend / MEDLEY_BACKEND: only this backend (the CPU always stays);
                               NULL: all */
    uint32_t n_cpu_threads; /* threads of the CPU device; 0: one for each core that this process may
                               use, and a core's second where that is measured to be faster */
    bool skip_other;        /* load the CPU backend alone: the fastest start */
    const char *only;       /* the id of the one device to open, beside the CPU; NULL: all */
    bool skip_empty; /* do not load a backend that listed no device last time, while drivers and
                        device files are as they were: a library of drivers takes 0.05 s */

    const char
        *registry; /* the file that remembers devices, see gpu_registry_path(); NULL or "": none */
    bool registry_is_others; /* it is read, and not written */
    const char *
        prober; /* a program whose main() begins with gpu_prober_main(): this_program() where that
                   is this program. NULL: verified in this process, where a crash is not survived */
    bool prober_is_free; /* it runs in no sandbox; so does MEDLEY_NO_SANDBOX in the environment */
    bool verify;         /* verify every device anew, whatever the registry says */
    uint32_t verify_limit_ms; /* for one device; 0: LIMIT_VERIFY_MS */

    const char *sim_file; /* --sim: simulated devices (simdevices/sim_file.h), after the real ones;
                             NULL: none */
};

enum error_code gpu_open(const struct gpu_options *options, struct gpu **out, struct error *err);
void gpu_close(struct gpu *gpu);

/* The registry's usual place: devices.json in $MEDLEY_STATE_DIR, else in $XDG_STATE_HOME/medley,
 * else in ~/.local/state/medley. "" where there is none, or where MEDLEY_STATE_DIR is set and
 * empty: no registry. */
void gpu_registry_path(char *path, size_t size);

/* Why what was found out cannot be written down there; "" when it was, or nothing was new. Lives
 * until gpu_close(). */
const char *gpu_registry_problem(const struct gpu *gpu);

/* For the first line of a main(): when this process was started to verify a device, does that and
 * never returns. */
void gpu_prober_main(int argc, char **argv);

/* Usable devices, in order of preference (the platform's chain; the CPU last), then the simulated
 * ones. */
uint32_t gpu_device_count(const struct gpu *gpu);
struct device *gpu_device(const struct gpu *gpu, uint32_t index);
struct device *gpu_find(const struct gpu *gpu,
                        const char *id); /* NULL when there is none of that id */

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

/* Measures devices (NULL: all) and writes what it found into the registry; device_info() then has
 * the measured speeds. Takes `budget_ms` of measuring for each device (0: 4000), and before that
 * whatever its driver needs to compile; a device that has not answered within LIMIT_CALIBRATION_MS
 * is lost, and must not be used again. Runs in this process: a driver that crashes takes it along,
 * and what was measured of the devices before it is kept. Blocks; nobody else may use these devices
 * meanwhile. `progress` is called on the calling thread. Fails with the first device's error, after
 * it has gone on with the others. */
struct calibration_options {
    uint64_t budget_ms;
    uint64_t limit_ms;        /* 0: LIMIT_CALIBRATION_MS */
    const _Atomic bool *stop; /* optional: once it is set, ERROR_CANCELLED within a run */
    void (*progress)(void *user, const char *device_id, const char *what, uint32_t done,
                     uint32_t total);
    void *user;
};
enum error_code gpu_calibrate(struct gpu *gpu, struct device *const *devices, uint32_t count,
                              const struct calibration_options *options, struct error *err);

struct device_calibration;

/* What was measured of it elsewhere, in its own process: from now on this one's, too. Whoever else
 * looks at its calibration and speeds must be on this thread. */
void gpu_use_calibration(struct device *device, const struct device_calibration *calibration);
/* The same into the registry, for later runs; does nothing for a simulated device. Blocks. Any
 * thread. */
enum error_code gpu_remember_calibration(const struct gpu *gpu, const struct device *device,
                                         const struct device_calibration *calibration,
                                         struct error *err);

const char *gpu_ggml_version(void); /* "0.27.0" */

/* Reads a device list such as "cpu,vulkan0". NULL picks the default: every GPU that has passed, or
 * the CPU where there is none; with a sim_file its devices alone. At most `max` devices are written
 * to `out`. An unknown, rejected or repeated id is ERROR_NOT_FOUND / ERROR_INVALID with the ids
 * that exist. */
enum error_code gpu_select(const struct gpu *gpu, const char *list, struct device **out,
                           uint32_t max, uint32_t *n_out, struct error *err);

/* ---- one device ---------------------------------------------------------------------- */

const struct device_info *device_info(const struct device *device);

/* How it is known that the device works, and since when. */
enum device_verified { VERIFIED_IN_PROCESS, VERIFIED_IN_CHILD, VERIFIED_BY_REGISTRY };
struct device_verification {
    enum device_verified how;
    uint64_t unix_s; /* when it was verified in full */
};
struct device_verification device_verification(const struct device *device);

/* A measurement: the median of `n_runs` runs and their spread relative to it
 * (calibration_statistics.h). n_runs 0: not measured. */
struct device_measurement {
    double median;
    double spread;
    uint32_t n_runs;
};

enum { CALIBRATION_TYPES_MAX = 12, CALIBRATION_PEERS_MAX = 16 };

/* What a device was measured to do, through the path that inference takes (calibrate.h says
 * how). */
struct device_calibration {
    uint64_t unix_s; /* when */
    bool is_short;   /* measured in a hurry: good to 15 %; to be measured finely */
    uint32_t n_types;
    struct calibration_type {
        char name[16]; /* ggml's: "f16", "q4_0", "q4_K" … One without any run was probed, and the
                          device cannot compute it. */
        struct device_measurement decode_bytes_per_s; /* bytes of weights, one column */
        struct device_measurement
            prefill_flops; /* FLOP/s, 512 columns; a multiply and an add are two */
    } types[CALIBRATION_TYPES_MAX];
    struct device_measurement write_bytes_per_s; /* host to device */
    struct device_measurement read_bytes_per_s;  /* device to host */
    struct device_measurement launch_ns;         /* the smallest graph, from call to return */
    uint32_t n_peers;
    struct calibration_peer {
        char id[32];                           /* its id when this was measured */
        char name[160];                        /* its PCI id, or its name: stays when ids change */
        struct device_measurement bytes_per_s; /* from this device to that one */
    } peers[CALIBRATION_PEERS_MAX];
};

/* NULL when it was never measured, or something about it has changed since. Lives until
 * gpu_calibrate() or gpu_close(). From it come device_info's bandwidth_mb_per_s (the faster of the
 * decode bandwidths of q4_0 and q8_0) and peak_mflops (the fastest prefill of all types). */
const struct device_calibration *device_calibration(const struct device *device);
/* Its speeds come with it (a simulated device's, from its file): gpu_calibrate() leaves it out. */
bool device_speed_is_given(const struct device *device);
/* All that its file says; false for a real device. */
struct device_speed {
    double decode_bytes_per_s; /* of weights of any type, and of the KV cache */
    double flops;              /* FLOP/s where a batch has several rows */
    double copy_bytes_per_s;   /* to and from the host */
    double launch_s;           /* for every batch */
};
bool device_given_speed(const struct device *device, struct device_speed *out);

/* Whether its file says that it cannot: a type of tensor, or "cells" that sequences share. Of a
 * real device nothing is said. */
bool device_lacks(const struct device *device, const char *what);

/* A job for the device's own thread. The memory is the caller's and must live until
 * `run` has been entered; `run` may free it. Jobs run one at a time, in order. */
struct device_job {
    void (*run)(struct device_job *job);
    struct device_job *next; /* the queue's */
};

/* Queues a job; never blocks on the device. Any thread. */
void device_submit(struct device *device, struct device_job *job);

/* The share of time that the device's jobs may take, 0 to 1; 1 from the start. After a job of t ns
 * its thread rests t (1 - duty) / duty before the next (queue.h); 0 pauses
 * it until another duty is set. Holds at once, also for a thread that rests. Whoever waits for a
 * job of a paused device waits until then, so set 1 before closing what still has jobs to run;
 * gpu_close() itself ignores duty. Any thread. */
void device_set_duty(struct device *device, double duty);
double device_duty(const struct device *device); /* as it was set last; any thread */

/* Readings of now; validity says whether the device can tell. Any thread. */
struct device_memory {
    uint64_t free_bytes;
    uint64_t total_bytes;
};
struct device_memory device_memory(const struct device *device);
/* From the implementation, else from the sensors (sensors/sensors.h), which the first question
 * opens. Power that is measured by an energy counter is the mean since the last question, and
 * unknown at the first. */
struct reading device_temperature_mc(const struct device *device); /* millidegrees Celsius */
struct reading device_power_mw(const struct device *device);
struct reading device_clock_mhz(const struct device *device);
/* Where the hardware begins to throttle, as far as it is known without the sensors. */
struct reading device_temperature_limit_mc(const struct device *device);
/* True: the device itself tells temperature, power and clock (simulated devices do), and asking
 * costs nothing. False: they come from the machine's sensors, and who samples steadily asks
 * sensors/telemetry.h. */
bool device_reads_itself(const struct device *device);

/* A simulated device is a different one in every process that opens it. `readings`, which are
 * copied, are those of the process that works it: this one tells them from then on, as a real
 * device would tell what all processes do to it. NULL: it tells its own again. Nothing happens to a
 * device that does not read itself. Any thread. */
struct device_readings {
    struct device_memory memory;
    struct reading temperature_mc, power_mw, clock_mhz;
};
void device_mirror(struct device *device, const struct device_readings *readings);

/* Buffers on the device. A handle carries its device and a generation: a stale, foreign or
 * double-freed one is ERROR_INVALID. Zero is no buffer. These block; call them from a job. */
struct device_buffer {
    uint64_t handle;
};
enum error_code device_alloc(struct device *device, uint64_t size, struct device_buffer *out,
                             struct error *err);
enum error_code device_free(struct device *device, struct device_buffer buffer, struct error *err);
enum error_code device_write(struct device *device, struct device_buffer to, uint64_t offset,
                             const void *from, uint64_t size, struct error *err);
enum error_code device_read(struct device *device, struct device_buffer from, uint64_t offset,
                            void *to, uint64_t size, struct error *err);
/* Within one buffer the two ranges must not overlap. */
enum error_code device_copy(struct device *device_from, struct device_buffer from,
                            uint64_t offset_from, struct device *device_to, struct device_buffer to,
                            uint64_t offset_to, uint64_t size, struct error *err);
/* The same, and which way the bytes went (*path may not be NULL). */
enum copy_path {
    COPY_NONE,         /* nothing was copied: zero bytes, or an error */
    COPY_SAME_DEVICE,  /* within one device */
    COPY_SAME_BACKEND, /* both are one backend's: it moves the bytes as it knows best */
    COPY_HOST_VISIBLE, /* one of the two is host memory: a single transfer */
    COPY_STAGED,       /* two transfers, through host memory */
};
enum error_code device_copy_path(struct device *device_from, struct device_buffer from,
                                 uint64_t offset_from, struct device *device_to,
                                 struct device_buffer to, uint64_t offset_to, uint64_t size,
                                 enum copy_path *path, struct error *err);
enum error_code device_synchronize(struct device *device, struct error *err);

/* The same transfers for who may want to stop one: they go piece by piece, and between two pieces
 * goes_on() is asked; `is_last`: it is not asked again. False: ERROR_CANCELLED, with the pieces
 * before copied. What fits in one piece asks nobody. */
enum { DEVICE_PIECE_BYTES = 16 * 1024 * 1024 };
struct device_pieces {
    bool (*goes_on)(void *arg, bool is_last); /* on the calling thread */
    void *arg;
};
enum error_code device_write_pieces(struct device *device, struct device_buffer to, uint64_t offset,
                                    const void *from, uint64_t size,
                                    const struct device_pieces *pieces, struct error *err);
enum error_code device_read_pieces(struct device *device, struct device_buffer from,
                                   uint64_t offset, void *to, uint64_t size,
                                   const struct device_pieces *pieces, struct error *err);
enum error_code device_copy_pieces(struct device *device_from, struct device_buffer from,
                                   uint64_t offset_from, struct device *device_to,
                                   struct device_buffer to, uint64_t offset_to, uint64_t size,
                                   const struct device_pieces *pieces, enum copy_path *path,
                                   struct error *err);

/* ---- what who computes through device_ggml.h tells the device ------------------------------
 * Nothing of it does anything on a real device. A simulated one counts the memory, takes its time,
 * gets hot, and fails as it was told to. */

/* Memory that is about to be taken, and has been given back, past device_alloc(). ERROR_NO_MEMORY
 * with the numbers. */
enum error_code device_reserve(struct device *device, uint64_t bytes, struct error *err);
void device_release(struct device *device, uint64_t bytes);

struct device_work {     /* one batch */
    uint64_t bytes_read; /* weights and KV cache */
    uint64_t flops;
    uint64_t bytes_copied; /* inputs and results, between host and device */
    uint64_t elapsed_ns;   /* what it took, up to now */
    uint32_t n_rows;
    float *out; /* the results, n_out of them */
    uint64_t n_out;
    bool (*stops)(void *arg); /* optional: its time need not be waited for once this is true */
    void *arg;
};

/* A batch has been computed. Blocks for the rest of its time. ERROR_DEVICE: the device has died.
 * ERROR_CANCELLED: `stops` was true before that time was over. On the device's thread. */
bool device_wants_work(const struct device *device); /* false: device_worked() does nothing */
enum error_code device_worked(struct device *device, const struct device_work *work,
                              struct error *err);

/* Ends every wait in the device, now and from now on: for whoever is about to close what runs on
 * it. gpu_close() does it too. A simulated device is no longer paced then, and one that hangs
 * answers ERROR_CANCELLED. Any thread. */
void device_interrupt(struct device *device);
