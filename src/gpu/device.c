/* One device: its queue and thread, how it comes up and goes down, and its readings. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "gpu/calibration_statistics.h"
#include "gpu/device_state.h"
#include "gpu/verify.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

/* ---- opening and closing ------------------------------------------------------------- */

/* What the opener and the device's thread share. */
struct bring_up {
    struct device_job job;
    struct device *device;
    const void *family;
    uint32_t index;
    struct gpu_options options;
    bool quick;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    bool done;
    enum error_code code;
    struct error err;
};

static void bring_up_run(struct device_job *job)
{
    struct bring_up *up = (struct bring_up *)job;
    struct device *device = up->device;
    const struct device_impl *impl = device->impl;
    struct error err;
    enum error_code code =
        impl->initialize(up->family, up->index, &up->options, &device->self, &err);
    if (!code) {
        code = up->quick ? verify_device_quickly(impl, device->self, &err)
                         : verify_device(impl, device->self, &err);
        if (code) {
            impl->shutdown(device->self);
            device->self = NULL;
        }
    }
    pthread_mutex_lock(&up->lock);
    up->code = code;
    if (code)
        up->err = err;
    up->done = true;
    pthread_cond_signal(&up->finished);
    pthread_mutex_unlock(&up->lock);
}

/* False when the device did not answer in time. */
static bool bring_up_wait(struct bring_up *up, uint64_t limit_ms)
{
    const uint64_t until_ns = clock_now_ns() + limit_ms * 1000000;
    pthread_mutex_lock(&up->lock);
    while (!up->done && timed_wait(&up->finished, &up->lock, until_ns)) {
    }
    bool done = up->done;
    pthread_mutex_unlock(&up->lock);
    return done;
}

static struct bring_up *bring_up_new(struct device *device, const void *family, uint32_t index,
                                     const struct gpu_options *options)
{
    struct bring_up *up = mem_new(sizeof *up);
    if (!up)
        return NULL;
    up->job.run = bring_up_run;
    up->device = device;
    up->family = family;
    up->index = index;
    up->options.n_cpu_threads = options->n_cpu_threads;
    pthread_mutex_init(&up->lock, NULL);
    timed_wait_init(&up->finished);
    return up;
}

static void bring_up_free(struct bring_up *up)
{
    pthread_cond_destroy(&up->finished);
    pthread_mutex_destroy(&up->lock);
    mem_free(up);
}

static enum error_code device_new(const struct device_impl *impl, const struct device_info *info,
                                  struct device **out, struct error *err)
{
    struct device *device = mem_new(sizeof *device);
    if (!device)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    device->impl = impl;
    device->info = *info;
    device->buffers.owner = handle_owner_next();
    enum error_code code = queue_open(&device->queue, info->id, err);
    if (code) {
        mem_free(device);
        return code;
    }
    pthread_mutex_init(&device->buffers_lock, NULL);
    pthread_mutex_init(&device->mirror_lock, NULL);
    *out = device;
    return ERROR_NONE;
}

/* Of a device that never came up. */
static void device_delete(struct device *device)
{
    queue_close(&device->queue);
    pthread_mutex_destroy(&device->buffers_lock);
    pthread_mutex_destroy(&device->mirror_lock);
    mem_free(device);
}

enum error_code device_open(const struct device_impl *impl, const void *family, uint32_t index,
                            const struct gpu_options *options, uint64_t limit_ms,
                            struct device_info *info, struct device **out, struct error *err)
{
    struct device_opening opening = {.limit_ms = limit_ms};
    return device_open_checked(impl, family, index, options, &opening, info, out, err);
}

enum error_code device_open_checked(const struct device_impl *impl, const void *family,
                                    uint32_t index, const struct gpu_options *options,
                                    struct device_opening *opening, struct device_info *info,
                                    struct device **out, struct error *err)
{
    *out = NULL;
    opening->hung = false;
    struct device *device = NULL;
    enum error_code code = device_new(impl, info, &device, err);
    if (code)
        return code;
    struct bring_up *up = bring_up_new(device, family, index, options);
    if (!up) {
        device_delete(device);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    up->quick = opening->quick;
    queue_submit(&device->queue, &up->job);
    if (!bring_up_wait(up, opening->limit_ms)) {
        pthread_detach(device->queue.thread); /* device and up stay behind, see device_impl.h */
        opening->hung = true;
        return error_set(err, ERROR_DEVICE, "it did not answer within %.4g s",
                         (double)opening->limit_ms / 1000);
    }
    code = up->code;
    if (code) {
        if (err)
            *err = up->err;
        device_delete(device);
    } else {
        struct device_memory memory = impl->memory(device->self);
        device->info.memory_total_bytes = memory.total_bytes;
        device->info.memory_free_bytes = memory.free_bytes;
        *info = device->info;
        *out = device;
    }
    bring_up_free(up);
    return code;
}

void device_close(struct device *device)
{
    if (!device)
        return;
    if (device->lost) {
        pthread_detach(device->queue.thread);
        return;
    }
    device_interrupt(device);
    queue_close(&device->queue);
    device_buffers_deinit(device);
    pthread_mutex_destroy(&device->mirror_lock);
    device->impl->shutdown(device->self);
    mem_free(device);
}

/* ---- what was found out ---------------------------------------------------------------- */

void device_set_verification(struct device *device, struct device_verification verification)
{
    device->verification = verification;
}

struct device_verification device_verification(const struct device *device)
{
    return device->verification;
}

void device_set_key(struct device *device, const struct registry_key *key)
{
    device->key = *key;
}

const struct registry_key *device_key(const struct device *device)
{
    return &device->key;
}

void device_set_calibration(struct device *device, const struct device_calibration *calibration)
{
    device->calibration = *calibration;
    device->calibrated = true;
    struct calibration_summary summary = calibration_summarize(calibration);
    device->info.bandwidth_mb_per_s = summary.bandwidth_mb_per_s;
    device->info.peak_mflops = summary.peak_mflops;
}

const struct device_calibration *device_calibration(const struct device *device)
{
    return device->calibrated ? &device->calibration : NULL;
}

bool device_speed_is_given(const struct device *device)
{
    return !device->calibrated && device->info.bandwidth_mb_per_s.valid;
}

bool device_given_speed(const struct device *device, struct device_speed *out)
{
    return device->impl->speed && device->impl->speed(device->self, out);
}

bool device_lacks(const struct device *device, const char *what)
{
    return device->impl->lacks && device->impl->lacks(device->self, what);
}

void device_give_up(struct device *device)
{
    device->lost = true;
}

bool device_is_lost(const struct device *device)
{
    return device->lost;
}

/* ---- what the engine tells a device ----------------------------------------------------- */

void device_interrupt(struct device *device)
{
    if (device->impl->interrupt)
        device->impl->interrupt(device->self);
}

enum error_code device_reserve(struct device *device, uint64_t bytes, struct error *err)
{
    enum error_code code =
        device->impl->reserve ? device->impl->reserve(device->self, bytes, err) : ERROR_NONE;
    if (code)
        error_wrap(err, "%s", device->info.id);
    return code;
}

void device_release(struct device *device, uint64_t bytes)
{
    if (device->impl->release)
        device->impl->release(device->self, bytes);
}

bool device_wants_work(const struct device *device)
{
    return device->impl->worked != NULL;
}

enum error_code device_worked(struct device *device, const struct device_work *work,
                              struct error *err)
{
    enum error_code code =
        device->impl->worked ? device->impl->worked(device->self, work, err) : ERROR_NONE;
    if (code)
        error_wrap(err, "%s", device->info.id);
    return code;
}

/* ---- small readings -------------------------------------------------------------------- */

const struct device_info *device_info(const struct device *device)
{
    return &device->info;
}

const struct device_impl *device_implementation(const struct device *device)
{
    return device->impl;
}

void *device_self(struct device *device)
{
    return device->self;
}

void device_submit(struct device *device, struct device_job *job)
{
    queue_submit(&device->queue, job);
}

void device_set_duty(struct device *device, double duty)
{
    queue_set_duty(&device->queue, duty);
}

double device_duty(const struct device *device)
{
    return 1 - atomic_load_explicit(&device->queue.rest, memory_order_relaxed);
}

void device_mirror(struct device *device, const struct device_readings *readings)
{
    if (!device_reads_itself(device))
        return;
    pthread_mutex_lock(&device->mirror_lock);
    device->is_mirror = readings;
    if (readings)
        device->readings = *readings;
    pthread_mutex_unlock(&device->mirror_lock);
}

/* What device_mirror() has given; false: nothing. */
static bool device_mirrored(const struct device *device, struct device_readings *out)
{
    pthread_mutex_t *lock = (pthread_mutex_t *)&device->mirror_lock; /* the lock alone changes */
    pthread_mutex_lock(lock);
    const bool is_mirror = device->is_mirror;
    *out = device->readings;
    pthread_mutex_unlock(lock);
    return is_mirror;
}

struct device_memory device_memory(const struct device *device)
{
    struct device_readings given;
    return device_mirrored(device, &given) ? given.memory : device->impl->memory(device->self);
}

void device_set_sensors(struct device *device, struct on_demand *sensors, uint32_t index)
{
    device->sensors = sensors;
    device->sensors_index = index;
}

/* What the machine's sensors say of the device: the field of struct sensor_device at `offset`. */
static struct reading ask_sensors(const struct device *device, size_t offset)
{
    if (!device->sensors)
        return (struct reading){0};
    struct sensor_device all = on_demand_read(device->sensors, device->sensors_index);
    struct reading reading;
    memcpy(&reading, (const char *)&all + offset, sizeof reading);
    return reading;
}

struct reading device_temperature_mc(const struct device *device)
{
    const struct device_impl *impl = device->impl;
    struct device_readings given;
    if (device_mirrored(device, &given))
        return given.temperature_mc;
    return impl->temperature_mc
               ? impl->temperature_mc(device->self)
               : ask_sensors(device, offsetof(struct sensor_device, temperature_mc));
}

struct reading device_power_mw(const struct device *device)
{
    const struct device_impl *impl = device->impl;
    struct device_readings given;
    if (device_mirrored(device, &given))
        return given.power_mw;
    return impl->power_mw ? impl->power_mw(device->self)
                          : ask_sensors(device, offsetof(struct sensor_device, power_mw));
}

struct reading device_clock_mhz(const struct device *device)
{
    const struct device_impl *impl = device->impl;
    struct device_readings given;
    if (device_mirrored(device, &given))
        return given.clock_mhz;
    return impl->clock_mhz ? impl->clock_mhz(device->self)
                           : ask_sensors(device, offsetof(struct sensor_device, clock_mhz));
}

struct reading device_temperature_limit_mc(const struct device *device)
{
    const struct device_impl *impl = device->impl;
    return impl->temperature_limit_mc ? impl->temperature_limit_mc(device->self)
                                      : (struct reading){0};
}

bool device_reads_itself(const struct device *device)
{
    return device->impl->temperature_mc != NULL;
}
