/* Memory and the failure script of a simulated device. */
#include "base/clock.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/device_sim_impl.h"

#include <math.h>

static double device_sim_fail_mib(double bytes)
{
    return bytes / (1024.0 * 1024.0);
}

static const struct sim_failure *find_failure(const struct sim_device *self,
                                              enum sim_failure_kind kind)
{
    for (uint32_t i = 0; i < self->spec.n_failures; i++) {
        if (self->spec.failures[i].kind == kind)
            return &self->spec.failures[i];
    }
    return NULL;
}

static bool is_due(const struct sim_device *self, enum sim_failure_kind kind)
{
    const struct sim_failure *failure = find_failure(self, kind);
    return failure && (double)(clock_now_ns() - self->start_ns) * 1e-9 >= failure->at;
}

enum error_code sim_check_alive(struct sim_device *self, struct error *err)
{
    pthread_mutex_lock(&self->lock);
    enum error_code code = ERROR_NONE;
    self->dead = self->dead || is_due(self, SIM_DIES);
    if (self->dead) {
        code = error_set(err, ERROR_DEVICE, "the device has died (simulated: dies at %g s)",
                         find_failure(self, SIM_DIES)->at);
    } else if (is_due(self, SIM_HANGS)) {
        while (!self->interrupted)
            pthread_cond_wait(&self->wake, &self->lock);
        code = error_set(err, ERROR_CANCELLED,
                         "the device hung until it was closed (simulated: hangs at %g s)",
                         find_failure(self, SIM_HANGS)->at);
    }
    pthread_mutex_unlock(&self->lock);
    return code;
}

double sim_seconds_to_live(const struct sim_device *self)
{
    const struct sim_failure *failure = find_failure(self, SIM_DIES);
    return failure ? fmax(failure->at - (double)(clock_now_ns() - self->start_ns) * 1e-9, 0)
                   : INFINITY;
}

bool sim_lies(struct sim_device *self)
{
    const struct sim_failure *failure = find_failure(self, SIM_LIES);
    if (!failure)
        return false;
    pthread_mutex_lock(&self->lock);
    bool lies = (double)self->n_batches >= failure->at;
    pthread_mutex_unlock(&self->lock);
    return lies;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static uint64_t sim_others_bytes(const struct sim_device *self)
{
    const double now_s = (double)(clock_now_ns() - self->start_ns) * 1e-9;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < self->spec.n_others && self->spec.others[i].at_s <= now_s; i++)
        bytes = (uint64_t)self->spec.others[i].bytes;
    return bytes;
}

/* With the lock. */
static uint64_t sim_free_bytes(const struct sim_device *self)
{
    const uint64_t total = (uint64_t)self->spec.memory_bytes, others = sim_others_bytes(self);
    return total > self->used_bytes + others ? total - self->used_bytes - others : 0;
}

enum error_code sim_check_memory(struct sim_device *self, struct error *err)
{
    const uint64_t total = (uint64_t)self->spec.memory_bytes, others = sim_others_bytes(self);
    pthread_mutex_lock(&self->lock);
    const bool is_short = others && self->used_bytes + others > total;
    pthread_mutex_unlock(&self->lock);
    return is_short ? error_set(err, ERROR_NO_MEMORY,
                                "others have %.1f MiB of its memory (simulated: others)",
                                device_sim_fail_mib((double)others))
                    : ERROR_NONE;
}

enum error_code sim_take(struct sim_device *self, uint64_t bytes, struct error *err)
{
    enum error_code code = sim_check_alive(self, err);
    if (code)
        return code;
    /* What it has must really be there: the memory is the host's. */
    uint64_t host_bytes = device_impl_ggml.memory(self->inner).free_bytes;
    const struct sim_failure *refuses = find_failure(self, SIM_REFUSES);
    pthread_mutex_lock(&self->lock);
    uint64_t free_bytes = sim_free_bytes(self);
    if (bytes > free_bytes)
        code =
            error_set(err, ERROR_NO_MEMORY, "out of memory (needs %.1f MiB, %.1f free)",
                      device_sim_fail_mib((double)bytes), device_sim_fail_mib((double)free_bytes));
    else if (refuses && (double)(self->used_bytes + bytes) > refuses->at)
        code = error_set(err, ERROR_NO_MEMORY,
                         "an allocation of %.1f MiB failed with %.1f MiB in use (simulated: "
                         "allocation after %.1f MiB)",
                         device_sim_fail_mib((double)bytes),
                         device_sim_fail_mib((double)self->used_bytes),
                         device_sim_fail_mib(refuses->at));
    else if (bytes > host_bytes)
        code =
            error_set(err, ERROR_NO_MEMORY,
                      "needs %.1f MiB; the simulated device has them, but this machine has only "
                      "%.1f MiB free",
                      device_sim_fail_mib((double)bytes), device_sim_fail_mib((double)host_bytes));
    else
        self->used_bytes += bytes;
    pthread_mutex_unlock(&self->lock);
    return code;
}

void sim_give_back(struct sim_device *self, uint64_t bytes)
{
    pthread_mutex_lock(&self->lock);
    self->used_bytes -= bytes;
    pthread_mutex_unlock(&self->lock);
}

struct device_memory sim_memory(struct sim_device *self)
{
    pthread_mutex_lock(&self->lock);
    uint64_t total = (uint64_t)self->spec.memory_bytes;
    struct device_memory memory = {.total_bytes = total, .free_bytes = sim_free_bytes(self)};
    pthread_mutex_unlock(&self->lock);
    return memory;
}
