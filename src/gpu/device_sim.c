/* The table of operations of simulated devices: each is ggml's on the CPU, and then paced, counted
 * and failed. */
#include "gpu/device_sim.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"
#include "gpu/device_ggml_impl.h"
#include "gpu/device_sim_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct sim_block {
    void *inner;
    uint64_t size;
};

bool device_info_is_simulated(const struct device_info *info)
{
    return strcmp(info->backend, "sim") == 0;
}

/* ---- the family: a file ---------------------------------------------------------------------- */

static uint32_t device_sim_list(const void *family)
{
    return ((const struct sim_file *)family)->n_devices;
}

static void device_sim_get(const void *family, uint32_t index, struct device_info *info)
{
    const struct sim_spec *spec = &((const struct sim_file *)family)->devices[index];
    struct device_info cpu;
    device_impl_ggml.get(backend_find("cpu"), 0, &cpu);
    *info = (struct device_info){
        .kind = DEVICE_GPU,
        .vendor = "Medley",
        .backend = "sim",
        .memory_total_bytes = (uint64_t)spec->memory_bytes,
        .memory_free_bytes = (uint64_t)spec->memory_bytes,
        .precisions = cpu.precisions,
        .support = SUPPORT_TESTED,
    };
    if (!spec->is_measured) {
        info->bandwidth_mb_per_s =
            reading_of(UNIT_MB_PER_S, round(spec->decode_bytes_per_s * 1e-6));
        info->peak_mflops = reading_of(UNIT_MFLOPS, round(spec->flops_per_s * 1e-6));
    }
    snprintf(info->id, sizeof info->id, "sim:%s", spec->name);
    snprintf(info->name, sizeof info->name, "%s", spec->title);
    if (spec->clock_mhz > 0)
        info->clock_mhz = reading_of(UNIT_MHZ, round(spec->clock_mhz));
}

static void device_sim_shutdown(void *device)
{
    struct sim_device *self = device;
    sim_tell_if_late(self);
    if (self->inner)
        device_impl_ggml.shutdown(self->inner);
    pthread_cond_destroy(&self->wake);
    pthread_mutex_destroy(&self->lock);
    mem_free(self);
}

static enum error_code device_sim_initialize(const void *family, uint32_t index,
                                             const struct gpu_options *options, void **out,
                                             struct error *err)
{
    struct sim_device *self = mem_new(sizeof *self);
    if (!self)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    self->spec = ((const struct sim_file *)family)->devices[index];
    pthread_mutex_init(&self->lock, NULL);
    timed_wait_init(&self->wake);
    enum error_code code =
        device_impl_ggml.initialize(backend_find("cpu"), 0, options, &self->inner, err);
    if (code) {
        device_sim_shutdown(self);
        return code;
    }
    sim_time_start(self);
    *out = self;
    return ERROR_NONE;
}

static void impl_interrupt(void *device)
{
    struct sim_device *self = device;
    pthread_mutex_lock(&self->lock);
    self->interrupted = true;
    pthread_cond_broadcast(&self->wake);
    pthread_mutex_unlock(&self->lock);
}

static void *impl_ggml(void *device)
{
    return ((struct sim_device *)device)->inner;
}

/* ---- memory ---------------------------------------------------------------------------------- */

static struct sim_device *device_sim_writable(const void *self)
{
    return (struct sim_device *)(uintptr_t)self; /* the lock in it */
}

static struct device_memory device_sim_memory(const void *device)
{
    return sim_memory(device_sim_writable(device));
}

static enum error_code impl_reserve(void *device, uint64_t bytes, struct error *err)
{
    return sim_take(device, bytes, err);
}

static void impl_release(void *device, uint64_t bytes)
{
    sim_give_back(device, bytes);
}

static enum error_code device_sim_allocate(void *device, uint64_t size, void **out,
                                           struct error *err)
{
    struct sim_device *self = device;
    struct sim_block *memory = mem_new(sizeof *memory);
    if (!memory)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    enum error_code code = sim_take(self, size, err);
    if (!code) {
        code = device_impl_ggml.allocate(self->inner, size, &memory->inner, err);
        if (code)
            sim_give_back(self, size);
    }
    if (code) {
        mem_free(memory);
        return code;
    }
    memory->size = size;
    *out = memory;
    return ERROR_NONE;
}

static void device_sim_deallocate(void *device, void *what)
{
    struct sim_device *self = device;
    struct sim_block *memory = what;
    device_impl_ggml.deallocate(self->inner, memory->inner);
    sim_give_back(self, memory->size);
    mem_free(memory);
}

/* ---- transfers ------------------------------------------------------------------------------- */

static enum error_code device_sim_copy_to(void *device, void *to, uint64_t offset, const void *from,
                                          uint64_t size, struct error *err)
{
    struct sim_device *self = device;
    enum error_code code = sim_check_alive(self, err);
    uint64_t start_ns = clock_now_ns();
    if (!code)
        code = device_impl_ggml.copy_to(self->inner, ((struct sim_block *)to)->inner, offset, from,
                                        size, err);
    if (!code)
        sim_copied(self, size, clock_now_ns() - start_ns);
    return code;
}

static enum error_code device_sim_copy_from(void *device, void *from, uint64_t offset, void *to,
                                            uint64_t size, struct error *err)
{
    struct sim_device *self = device;
    enum error_code code = sim_check_alive(self, err);
    uint64_t start_ns = clock_now_ns();
    if (!code)
        code = device_impl_ggml.copy_from(self->inner, ((struct sim_block *)from)->inner, offset,
                                          to, size, err);
    if (!code)
        sim_copied(self, size, clock_now_ns() - start_ns);
    if (!code && sim_lies(self)) {
        for (uint64_t i = 0; i < size; i++)
            ((uint8_t *)to)[i] ^= 0xff;
    }
    return code;
}

/* The slower of the two sets the pace. */
static enum error_code device_sim_copy_between(void *device, void *from, uint64_t offset_from,
                                               void *other, void *to, uint64_t offset_to,
                                               uint64_t size, struct error *err)
{
    struct sim_device *self = device, *target = other;
    enum error_code code = sim_check_alive(self, err);
    if (!code && self != target)
        code = sim_check_alive(target, err);
    uint64_t start_ns = clock_now_ns();
    if (!code)
        code = device_impl_ggml.copy_between(self->inner, ((struct sim_block *)from)->inner,
                                             offset_from, target->inner,
                                             ((struct sim_block *)to)->inner, offset_to, size, err);
    bool target_is_slower = target->spec.copy_bytes_per_s < self->spec.copy_bytes_per_s;
    if (!code)
        sim_copied(target_is_slower ? target : self, size, clock_now_ns() - start_ns);
    return code;
}

static enum error_code device_sim_synchronize(void *device, struct error *err)
{
    return sim_check_alive(device, err);
}

/* ---- computing ------------------------------------------------------------------------------- */

static void flip_signs(float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        values[i] = -values[i];
}

static enum error_code device_sim_multiply(void *device, uint32_t n, const float *a, const float *b,
                                           float *out, struct error *err)
{
    struct sim_device *self = device;
    enum error_code code = sim_check_alive(self, err);
    if (!code)
        code = device_impl_ggml.multiply(self->inner, n, a, b, out, err);
    if (!code && sim_lies(self))
        flip_signs(out, (uint64_t)n * n);
    return code;
}

static enum error_code impl_worked(void *device, const struct device_work *work, struct error *err)
{
    struct sim_device *self = device;
    enum error_code code = sim_check_alive(self, err);
    if (code)
        return code;
    code = sim_check_memory(self, err);
    if (code)
        return code;
    bool lies = sim_lies(self);
    if (!sim_worked(self, work))
        return error_set(err, ERROR_CANCELLED, "the batch was stopped");
    if (lies)
        flip_signs(work->out, work->n_out);
    return sim_check_alive(self, err); /* it may have died meanwhile */
}

/* ---- readings -------------------------------------------------------------------------------- */

static bool impl_speed(const void *device, struct device_speed *out)
{
    const struct sim_spec *spec = &((const struct sim_device *)device)->spec;
    *out = (struct device_speed){spec->decode_bytes_per_s, spec->flops_per_s,
                                 spec->copy_bytes_per_s, spec->launch_s};
    return !spec->is_measured;
}

static bool impl_lacks(const void *device, const char *type)
{
    const struct sim_spec *spec = &((const struct sim_device *)device)->spec;
    const size_t length = strlen(type);
    for (const char *at = spec->cannot; *at;) {
        const size_t n = strcspn(at, ",");
        if (n == length && memcmp(at, type, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

static struct reading impl_temperature_mc(const void *device)
{
    struct sim_device *self = device_sim_writable(device);
    struct plant plant;
    bool busy;
    if (!sim_heat_now(self, &plant, &busy))
        return (struct reading){0};
    return reading_now(UNIT_MC, round(plant.temperature_c * 1e3));
}

static struct reading impl_power_mw(const void *device)
{
    struct sim_device *self = device_sim_writable(device);
    struct plant plant;
    bool busy;
    if (!sim_heat_now(self, &plant, &busy))
        return (struct reading){0};
    return reading_now(UNIT_MW, round(plant_power_w(&self->spec.heat, &plant, busy) * 1e3));
}

static struct reading impl_clock_mhz(const void *device)
{
    struct sim_device *self = device_sim_writable(device);
    struct plant plant;
    bool busy;
    if (self->spec.clock_mhz <= 0 || !sim_heat_now(self, &plant, &busy))
        return (struct reading){0};
    return reading_now(UNIT_MHZ,
                       round(self->spec.clock_mhz * plant_clock(&self->spec.heat, &plant)));
}

static struct reading impl_temperature_limit_mc(const void *device)
{
    const struct sim_device *self = device;
    return self->spec.has_heat ? reading_now(UNIT_MC, round(self->spec.heat.limit_c * 1e3))
                               : (struct reading){0};
}

const struct device_impl device_impl_sim = {
    .name = "sim",
    .list = device_sim_list,
    .get = device_sim_get,
    .initialize = device_sim_initialize,
    .shutdown = device_sim_shutdown,
    .interrupt = impl_interrupt,
    .allocate = device_sim_allocate,
    .deallocate = device_sim_deallocate,
    .copy_to = device_sim_copy_to,
    .copy_from = device_sim_copy_from,
    .copy_between = device_sim_copy_between,
    .synchronize = device_sim_synchronize,
    .memory = device_sim_memory,
    .temperature_mc = impl_temperature_mc,
    .power_mw = impl_power_mw,
    .clock_mhz = impl_clock_mhz,
    .temperature_limit_mc = impl_temperature_limit_mc,
    .multiply = device_sim_multiply,
    .speed = impl_speed,
    .lacks = impl_lacks,
    .ggml = impl_ggml,
    .reserve = impl_reserve,
    .release = impl_release,
    .worked = impl_worked,
};
