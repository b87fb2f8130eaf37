#include "node/daemon_measure.h"

#include "base/log.h"
#include "base/mem.h"
#include "gpu/device_sim.h"
#include "gpu/gpu.h"
#include "node/daemon_state.h"
#include "node/measuring.h"
#include "pipeline/children.h"
#include "placing/placing.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

struct daemon_measure {
    struct measuring_round measuring;
    uint64_t begun_ms;

    /* under the lock: from a device's watching thread */
    pthread_mutex_t lock;
    bool has_come;
    struct device_calibration found;
    struct error why; /* code 0: it was measured */
};

struct daemon_measure *daemon_measure_new(void)
{
    struct daemon_measure *measure = mem_new(sizeof *measure);
    if (measure)
        pthread_mutex_init(&measure->lock, NULL);
    return measure;
}

void daemon_measure_free(struct daemon_measure *measure)
{
    if (!measure)
        return;
    pthread_mutex_destroy(&measure->lock);
    mem_free(measure);
}

/* ---- keeping it: on the pool, for it waits for a disk, and for others' locks ------------ */

struct measure_keeping {
    uv_work_t work; /* first */
    struct gpu *gpu;
    struct device *device;
    struct device_calibration calibration;
};

static void measure_keep(uv_work_t *work)
{
    struct measure_keeping *keeping = (struct measure_keeping *)work;
    struct error err;
    if (gpu_remember_calibration(keeping->gpu, keeping->device, &keeping->calibration, &err))
        log_line(LOG_WARN, "node", "cannot keep the calibration: %s", err.text);
}

static void measure_kept(uv_work_t *work, int status)
{
    (void)status;
    mem_free(work);
}

static void measure_begin_keeping(struct daemon *daemon, struct device *device,
                                  const struct device_calibration *found)
{
    struct measure_keeping *keeping = mem_new(sizeof *keeping);
    if (!keeping)
        return; /* it is measured again after the next start */
    keeping->gpu = daemon->options.gpu;
    keeping->device = device;
    keeping->calibration = *found;
    if (uv_queue_work(daemon->loop, &keeping->work, measure_keep, measure_kept))
        mem_free(keeping);
}

/* ---- what has come ---------------------------------------------------------------------- */

static void on_measured(void *arg, const char *device, const struct device_calibration *found,
                        const struct error *why)
{
    struct daemon_measure *measure = arg;
    (void)device;
    assert(found || why->code);
    pthread_mutex_lock(&measure->lock);
    measure->has_come = true;
    measure->why = found ? (struct error){0} : *why;
    if (found)
        measure->found = *found;
    pthread_mutex_unlock(&measure->lock);
}

static struct device *measure_device(const struct daemon *daemon, uint32_t index)
{
    return gpu_find(daemon->options.gpu, daemon->self->devices[index]->id);
}

static void measure_use(struct daemon *daemon, struct device *device,
                        const struct device_calibration *found)
{
    struct error err;
    const double s = (double)(daemon_now_ms(daemon) - daemon->measure->begun_ms) / 1000;
    gpu_use_calibration(device, found);
    measure_begin_keeping(daemon, device, found);
    const struct reading bandwidth = device_info(device)->bandwidth_mb_per_s;
    log_line(LOG_INFO, "node", "device %s measured%s in %.1f s: %.1f GB/s", device_info(device)->id,
             found->is_short ? " in a hurry" : "", s,
             bandwidth.valid ? (double)bandwidth.value / 1000 : 0);
    if (placing_describe_speeds(daemon->options.gpu, daemon->self, &err))
        log_line(LOG_WARN, "node", "%s", err.text);
    else
        daemon_tell_about(daemon);
}

static void measure_take(struct daemon *daemon)
{
    struct daemon_measure *measure = daemon->measure;
    static struct device_calibration found;
    struct error why = {0};
    pthread_mutex_lock(&measure->lock);
    const bool has_come = measure->has_come;
    measure->has_come = false;
    found = measure->found;
    why = measure->why;
    pthread_mutex_unlock(&measure->lock);
    if (!has_come)
        return;
    struct device *device = measure_device(daemon, measure->measuring.device);
    measuring_ended(&measure->measuring, why.code, daemon_now_ms(daemon));
    if (!why.code)
        measure_use(daemon, device, &found);
    else if (why.code == ERROR_CANCELLED)
        log_line(LOG_INFO, "node", "device %s is not measured now: other work came first",
                 device_info(device)->id);
    else
        log_line(LOG_WARN, "node", "device %s could not be measured: %s", device_info(device)->id,
                 why.text);
}

/* ---- beginning -------------------------------------------------------------------------- */

/* Who tries out simulated devices wants to see these: the real ones that compute for them stand by,
 * and would be called in once they were measured, too. */
static bool measure_is_for(const struct daemon *daemon, const struct device *device)
{
    if (device_info_is_simulated(device_info(device)))
        return true;
    for (size_t i = 0; i < daemon->self->n_devices; i++) {
        const struct device *other = measure_device(daemon, (uint32_t)i);
        if (other && device_info_is_simulated(device_info(other)))
            return false;
    }
    return true;
}

/* What is slowed down, or paused, is not measured: it would be taken for slow. */
static enum measuring_need measure_need(const struct daemon *daemon, uint32_t index, bool *busy)
{
    const struct device *device = measure_device(daemon, index);
    if (!device || device_speed_is_given(device) || !measure_is_for(daemon, device))
        return MEASURING_NONE;
    const struct device_calibration *known = device_calibration(device);
    *busy |= device_duty(device) < 1;
    return measuring_need_of(known ? known->unix_s : 0, known && known->is_short,
                             daemon_wall_ms() / 1000);
}

static void measure_begin(struct daemon *daemon)
{
    struct daemon_measure *measure = daemon->measure;
    enum measuring_need needs[MEASURING_DEVICES_MAX];
    const size_t all = daemon->self->n_devices;
    const uint32_t n = all < MEASURING_DEVICES_MAX ? (uint32_t)all : MEASURING_DEVICES_MAX;
    bool busy = children_are_busy(daemon->options.children);
    for (uint32_t i = 0; i < n; i++)
        needs[i] = measure_need(daemon, i, &busy);
    uint32_t which, budget_ms;
    struct error err;
    if (!measuring_next(&measure->measuring, needs, n, busy, daemon_now_ms(daemon), &which,
                        &budget_ms))
        return;
    const char *id = daemon->self->devices[which]->id;
    measure->begun_ms = daemon_now_ms(daemon);
    log_line(LOG_INFO, "node", "device %s is being measured%s", id,
             budget_ms == MEASURING_SHORT_BUDGET_MS ? " in a hurry" : "");
    if (children_measure(daemon->options.children, id, budget_ms, on_measured, measure, &err)) {
        measuring_ended(&measure->measuring, err.code, daemon_now_ms(daemon));
        log_line(LOG_WARN, "node", "%s", err.text);
    }
}

void daemon_measure_tick(struct daemon *daemon)
{
    if (!daemon->options.children || daemon->options.no_calibrate || !daemon->self)
        return;
    measure_take(daemon);
    measure_begin(daemon);
}

void daemon_measure_forget(struct daemon *daemon)
{
    if (daemon->options.children)
        children_measure_forget(daemon->options.children);
}
