/* The order of a calibration: one step after the other on the device's thread, each waited for with
 * a deadline. */
#include "gpu/calibrate.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "gpu/calibration_statistics.h"
#include "gpu/registry.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { COPY_BYTES = 64 * 1024 * 1024, RUNS_MIN = 3, OVERTIME = 8 };

bool measure_is_over(const struct measure_budget *sampler)
{
    return clock_now_ns() >= sampler->end_ns || (sampler->stop && atomic_load(sampler->stop));
}

bool sampler_run(const struct measure_budget *sampler, bool (*run)(void *self), void *self,
                 double work, struct device_measurement *out)
{
    double times_ns[SAMPLES_MAX];
    uint32_t n = 0;
    *out = (struct device_measurement){0};
    if (measure_is_over(sampler) || !run(self)) /* the first one compiles, and warms up */
        return false;
    uint64_t start_ns = clock_now_ns(), now_ns = start_ns;
    while (n < SAMPLES_MAX && !measure_is_over(sampler) &&
           (now_ns - start_ns < sampler->budget_ns ||
            (n < RUNS_MIN && now_ns - start_ns < OVERTIME * sampler->budget_ns))) {
        if (!run(self))
            return false;
        uint64_t end_ns = clock_now_ns();
        times_ns[n++] = (double)(end_ns - now_ns);
        now_ns = end_ns;
    }
    *out = work > 0 ? measurement_rate(times_ns, n, work) : measurement_of(times_ns, n);
    return out->n_runs > 0;
}

/* ---- copies ---------------------------------------------------------------------------- */

struct copying {
    struct device *device, *other;
    struct device_buffer buffer, other_buffer;
    uint8_t *host;
    uint64_t size;
};

static bool write_once(void *self)
{
    const struct copying *copy = self;
    return !device_write(copy->device, copy->buffer, 0, copy->host, copy->size, NULL) &&
           !device_synchronize(copy->device, NULL);
}

static bool read_once(void *self)
{
    const struct copying *copy = self;
    return !device_read(copy->device, copy->buffer, 0, copy->host, copy->size, NULL);
}

static bool copy_once(void *self)
{
    const struct copying *copy = self;
    return !device_copy(copy->device, copy->buffer, 0, copy->other, copy->other_buffer, 0,
                        copy->size, NULL) &&
           !device_synchronize(copy->device, NULL) && !device_synchronize(copy->other, NULL);
}

static uint64_t calibrate_copy_bytes(const struct device *device)
{
    uint64_t share = device_memory(device).free_bytes / 8;
    return share < COPY_BYTES ? share : COPY_BYTES;
}

static void measure_host_copies(struct device *device, const struct measure_budget *sampler,
                                struct device_calibration *out)
{
    struct copying copy = {.device = device, .size = calibrate_copy_bytes(device)};
    copy.host = mem_new(copy.size ? copy.size : 1);
    if (copy.host && copy.size && !device_alloc(device, copy.size, &copy.buffer, NULL)) {
        memset(copy.host, 0x5a, copy.size); /* pages that are there */
        sampler_run(sampler, write_once, &copy, (double)copy.size, &out->write_bytes_per_s);
        sampler_run(sampler, read_once, &copy, (double)copy.size, &out->read_bytes_per_s);
        device_free(device, copy.buffer, NULL);
    }
    mem_free(copy.host);
}

static void measure_pair(struct device *device, struct device *other,
                         const struct measure_budget *sampler, struct device_measurement *out)
{
    struct copying copy = {.device = device, .other = other, .size = calibrate_copy_bytes(device)};
    uint64_t other_size = calibrate_copy_bytes(other);
    copy.size = other_size < copy.size ? other_size : copy.size;
    *out = (struct device_measurement){0};
    if (!copy.size || device_alloc(device, copy.size, &copy.buffer, NULL))
        return;
    if (!device_alloc(other, copy.size, &copy.other_buffer, NULL)) {
        sampler_run(sampler, copy_once, &copy, (double)copy.size, out);
        device_free(other, copy.other_buffer, NULL);
    }
    device_free(device, copy.buffer, NULL);
}

/* ---- steps on the device's thread ------------------------------------------------------ */

/* What the caller and the device's thread share. On the heap: a device that hangs keeps it. */
struct calibrator {
    struct device_job job;
    struct device *device, *other;
    struct measure_budget sampler;
    uint64_t limit_ms;
    void (*step)(struct calibrator *self);
    uint32_t type; /* of the step that measures one */
    struct device_calibration found;
    struct device_measurement pair;
    pthread_mutex_t lock;
    pthread_cond_t finished;
    bool done;
};

static void step_copies(struct calibrator *self)
{
    measure_host_copies(self->device, &self->sampler, &self->found);
}

static void step_launch(struct calibrator *self)
{
    calibrate_launch(self->device, &self->sampler, &self->found.launch_ns);
}

static void step_type(struct calibrator *self)
{
    assert(self->found.n_types < CALIBRATION_TYPES_MAX);
    if (calibrate_type(self->device, self->type, &self->sampler,
                       &self->found.types[self->found.n_types]))
        self->found.n_types++;
}

static void step_pair(struct calibrator *self)
{
    measure_pair(self->device, self->other, &self->sampler, &self->pair);
}

static void run_step(struct device_job *job)
{
    struct calibrator *self = (struct calibrator *)job;
    self->step(self);
    pthread_mutex_lock(&self->lock);
    self->done = true;
    pthread_cond_signal(&self->finished);
    pthread_mutex_unlock(&self->lock);
}

static struct calibrator *
calibrator_new(struct device *device, const struct calibration_options *options, uint32_t n_figures)
{
    struct calibrator *self = mem_new(sizeof *self);
    if (!self)
        return NULL;
    uint64_t budget_ms = options && options->budget_ms ? options->budget_ms : CALIBRATION_BUDGET_MS;
    self->job.run = run_step;
    self->device = device;
    self->sampler.budget_ns = budget_ms * 1000000 / n_figures;
    self->limit_ms = options && options->limit_ms ? options->limit_ms : LIMIT_CALIBRATION_MS;
    self->sampler.end_ns = clock_now_ns() + self->limit_ms * 1000000;
    self->sampler.stop = options ? options->stop : NULL;
    pthread_mutex_init(&self->lock, NULL);
    timed_wait_init(&self->finished);
    return self;
}

static void calibrator_free(struct calibrator *self)
{
    pthread_cond_destroy(&self->finished);
    pthread_mutex_destroy(&self->lock);
    mem_free(self);
}

/* False when the device has not answered by the end of the time; then `self` is the device's for
 * ever. */
static bool calibrate_take_step(struct calibrator *self, void (*step)(struct calibrator *self))
{
    self->step = step;
    self->done = false;
    device_submit(self->device, &self->job);
    /* no run begins after the end of the time; one that is under way may still end */
    uint64_t now_ns = clock_now_ns(), grace_ns = self->limit_ms * 1000000 / 8;
    uint64_t until_ns = (self->sampler.end_ns > now_ns ? self->sampler.end_ns : now_ns) + grace_ns;
    pthread_mutex_lock(&self->lock);
    while (!self->done && timed_wait(&self->finished, &self->lock, until_ns)) {
    }
    bool done = self->done;
    pthread_mutex_unlock(&self->lock);
    if (!done)
        device_give_up(self->device);
    return done;
}

static void calibrate_report(const struct calibration_options *options, const struct device *device,
                             const char *what, uint32_t done, uint32_t total)
{
    if (options && options->progress)
        options->progress(options->user, device_info(device)->id, what, done, total);
}

static enum error_code calibrate_hung(const struct calibrator *self, struct error *err)
{
    return error_set(err, ERROR_DEVICE, "it did not answer within %.4g s of calibration",
                     (double)self->limit_ms / 1000);
}

enum error_code calibrate_device(struct device *device, const struct calibration_options *options,
                                 struct device_calibration *out, struct error *err)
{
    *out = (struct device_calibration){0};
    uint32_t n_types = calibrate_type_count(device), total = 2 + n_types;
    struct calibrator *self = calibrator_new(device, options, 3 + 2 * n_types);
    if (!self)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    calibrate_report(options, device, "copies", 0, total);
    if (!calibrate_take_step(self, step_copies))
        return calibrate_hung(self, err);
    calibrate_report(options, device, "launch", 1, total);
    if (!calibrate_take_step(self, step_launch))
        return calibrate_hung(self, err);
    for (self->type = 0; self->type < n_types && !measure_is_over(&self->sampler); self->type++) {
        calibrate_report(options, device, calibrate_type_name(device, self->type), 2 + self->type,
                         total);
        if (!calibrate_take_step(self, step_type))
            return calibrate_hung(self, err);
    }
    calibrate_report(options, device, "done", total, total);
    const bool stopped = self->sampler.stop && atomic_load(self->sampler.stop);
    *out = self->found;
    out->is_short = options && options->budget_ms && options->budget_ms <= CALIBRATION_SHORT_MS;
    time_t now = time(NULL);
    out->unix_s = now > 0 ? (uint64_t)now : 0;
    bool any = out->write_bytes_per_s.n_runs || out->n_types;
    calibrator_free(self);
    if (stopped)
        return error_set(err, ERROR_CANCELLED, "the measurement was interrupted");
    return any ? ERROR_NONE : error_set(err, ERROR_DEVICE, "nothing could be measured");
}

enum error_code calibrate_pair(struct device *from, struct device *to,
                               const struct calibration_options *options,
                               struct device_measurement *out, struct error *err)
{
    enum { SHARES = 15 }; /* as long as one figure of a device's own */
    struct calibrator *self = calibrator_new(from, options, SHARES);
    if (!self)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    self->other = to;
    if (!calibrate_take_step(self, step_pair)) {
        device_give_up(to);
        return calibrate_hung(self, err);
    }
    *out = self->pair;
    calibrator_free(self);
    return ERROR_NONE;
}

/* ---- all devices ----------------------------------------------------------------------- */

static enum error_code calibrate_peers(struct gpu *gpu, struct device *device,
                                       const struct calibration_options *options,
                                       struct device_calibration *out, struct error *err)
{
    for (uint32_t i = 0; i < gpu_device_count(gpu) && out->n_peers < CALIBRATION_PEERS_MAX; i++) {
        struct device *other = gpu_device(gpu, i);
        if (other == device || device_is_lost(other) || device_speed_is_given(other))
            continue;
        struct calibration_peer peer = {0};
        enum error_code code = calibrate_pair(device, other, options, &peer.bytes_per_s, err);
        if (code)
            return code;
        snprintf(peer.id, sizeof peer.id, "%s", device_info(other)->id);
        snprintf(peer.name, sizeof peer.name, "%s", device_key(other)->device);
        if (peer.bytes_per_s.n_runs)
            out->peers[out->n_peers++] = peer;
    }
    return ERROR_NONE;
}

void gpu_use_calibration(struct device *device, const struct device_calibration *calibration)
{
    device_set_calibration(device, calibration);
}

enum error_code gpu_remember_calibration(const struct gpu *gpu, const struct device *device,
                                         const struct device_calibration *calibration,
                                         struct error *err)
{
    const struct registry_key *key = device_key(device);
    if (!gpu_registry_file(gpu)[0] || !key->backend[0]) /* a simulated device has no key */
        return ERROR_NONE;
    struct registry_entry *change = mem_new(sizeof *change);
    if (!change)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    change->key = *key;
    change->calibrated = true;
    change->calibration = *calibration;
    const enum error_code code = registry_update(gpu_registry_file(gpu), change, 1, err);
    mem_free(change);
    return code;
}

static enum error_code calibrate_one(struct gpu *gpu, struct device *device,
                                     const struct calibration_options *options, struct error *err)
{
    struct registry_entry *change = mem_new(sizeof *change);
    if (!change)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = calibrate_device(device, options, &change->calibration, err);
    if (!code)
        code = calibrate_peers(gpu, device, options, &change->calibration, err);
    if (!code) {
        struct error problem;
        device_set_calibration(device, &change->calibration);
        if (gpu_remember_calibration(gpu, device, &change->calibration, &problem))
            log_line(LOG_WARN, "gpu", "cannot keep the calibration: %s", problem.text);
    }
    mem_free(change);
    return code;
}

enum error_code gpu_calibrate(struct gpu *gpu, struct device *const *devices, uint32_t count,
                              const struct calibration_options *options, struct error *err)
{
    enum error_code first = ERROR_NONE;
    struct error local;
    uint32_t n = devices ? count : gpu_device_count(gpu);
    for (uint32_t i = 0; i < n; i++) {
        struct device *device = devices ? devices[i] : gpu_device(gpu, i);
        if (device_is_lost(device) || device_speed_is_given(device))
            continue;
        if (calibrate_one(gpu, device, options, &local) && !first) {
            first =
                error_set(err, local.code, "device %s: %s", device_info(device)->id, local.text);
        }
    }
    return first;
}
