#include "pipeline/memory_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/size_text.h"
#include "gpu/gpu.h"
#include "sensors/host_memory.h"

#include <stdio.h>

static const uint64_t look_ns = 250 * 1000 * 1000;
static const uint64_t low_bytes_max = 128 << 20;

void memory_watch_init(struct memory_watch *watch)
{
    *watch = (struct memory_watch){0};
    pthread_mutex_init(&watch->lock, NULL);
}

void memory_watch_deinit(struct memory_watch *watch)
{
    pthread_mutex_destroy(&watch->lock);
}

/* A device that the model itself has filled is not short of memory for that: what counts is what
 * goes from then on. */
void memory_watch_add(struct memory_watch *watch, const struct device *device)
{
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        if (watch->devices[i] == device)
            return;
    }
    if (watch->n_devices == MEMORY_WATCH_DEVICES)
        return;
    const struct device_memory memory = device_memory(device);
    uint64_t low = memory.total_bytes / 64;
    low = low < low_bytes_max ? low : low_bytes_max;
    watch->low_bytes[watch->n_devices] = low < memory.free_bytes / 4 ? low : memory.free_bytes / 4;
    watch->devices[watch->n_devices++] = device;
}

void memory_watch_failed(struct memory_watch *watch)
{
    atomic_store(&watch->failed, true);
}

void memory_watch_in_parts(struct memory_watch *watch)
{
    atomic_store(&watch->in_parts, true);
}

/* Of the device that is nearest to its mark. */
static void watch_read_devices(const struct memory_watch *watch, struct memory_sign *sign)
{
    for (uint32_t i = 0; i < watch->n_devices; i++) {
        const uint64_t free_bytes = device_memory(watch->devices[i]).free_bytes;
        const uint64_t low = watch->low_bytes[i];
        if (!sign->low_bytes ||
            (double)free_bytes * (double)sign->low_bytes < (double)sign->free_bytes * (double)low) {
            sign->free_bytes = free_bytes;
            sign->low_bytes = low;
        }
    }
}

/* Of this machine, or of this process's share of it; what is not known is not short. */
static bool watch_host_is_short(const struct sysfs *fs)
{
    struct host_memory host;
    if (!host_memory_of(fs, &host) || !host.has_available)
        return false;
    const uint64_t low = host.total_bytes / 64;
    return host.available_bytes < (low < low_bytes_max ? low : low_bytes_max);
}

void memory_watch_formed(struct memory_watch *watch, enum memory_form form, uint64_t bytes)
{
    pthread_mutex_lock(&watch->lock);
    watch->form = form;
    if (bytes)
        watch->form_bytes[form] = bytes;
    pthread_mutex_unlock(&watch->lock);
}

void memory_watch_lacks(struct memory_watch *watch, enum memory_form form)
{
    pthread_mutex_lock(&watch->lock);
    watch->ladder.lacks[form] = true;
    pthread_mutex_unlock(&watch->lock);
}

void memory_watch_can_grow(struct memory_watch *watch, const struct device *device, uint64_t bytes)
{
    pthread_mutex_lock(&watch->lock);
    for (uint32_t i = 0; i < watch->n_devices; i++)
        watch->grow_bytes[i] += watch->devices[i] == device ? bytes : 0;
    watch->ladder.can_grow = true;
    pthread_mutex_unlock(&watch->lock);
}

void memory_watch_grown(struct memory_watch *watch, bool is_grown)
{
    pthread_mutex_lock(&watch->lock);
    watch->is_grown = is_grown;
    pthread_mutex_unlock(&watch->lock);
}

void memory_watch_cannot_grow(struct memory_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->ladder.is_grown = false;
    watch->ladder.shrunk_ns = clock_now_ns();
    pthread_mutex_unlock(&watch->lock);
}

void memory_watch_lacks_caches(struct memory_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    watch->ladder.lacks_caches = true;
    pthread_mutex_unlock(&watch->lock);
}

/* What the next larger form takes beyond the present one. */
static uint64_t watch_more_bytes(const struct memory_watch *watch)
{
    uint32_t larger = watch->form;
    while (larger && (larger == watch->form || watch->ladder.lacks[larger]))
        larger--;
    const uint64_t now = watch->form_bytes[watch->form], then = watch->form_bytes[larger];
    return now && then > now ? then - now : 0;
}

static bool watch_can_hold(const struct memory_watch *watch)
{
    bool can_hold = watch->ladder.can_grow;
    for (uint32_t i = 0; i < watch->n_devices && can_hold; i++)
        can_hold = device_memory(watch->devices[i]).free_bytes >=
                   watch->grow_bytes[i] + 2 * watch->low_bytes[i];
    return can_hold;
}

static bool watch_is_changing(const struct memory_watch *watch)
{
    const struct memory_terms terms = memory_ladder_terms(&watch->ladder);
    return watch->form != terms.form || watch->is_grown != terms.is_grown;
}

static void watch_look_locked(struct memory_watch *watch, uint64_t now_ns)
{
    const struct sysfs *machine = &watch->machine;
    struct memory_sign sign = {.now_ns = now_ns,
                               .failed = atomic_exchange(&watch->failed, false),
                               .in_parts = atomic_exchange(&watch->in_parts, false)};
    sign.has_stall = host_memory_stall(machine, &sign.stall);
    watch_read_devices(watch, &sign);
    sign.host_is_short = watch_host_is_short(machine);
    sign.is_changing = watch_is_changing(watch);
    sign.can_hold = watch_can_hold(watch);
    sign.more_bytes = watch_more_bytes(watch);
    watch->looked_ns = now_ns;
    const uint32_t before = watch->ladder.step;
    if (!memory_ladder_look(&watch->ladder, &sign))
        return;
    char stall[48] = "";
    if (sign.has_stall)
        snprintf(stall, sizeof stall, ", %.0f %% of the time stalled", 100 * sign.stall);
    log_line(LOG_WARN, "memory", "%s, step %u of %d: %s (%s free%s%s)",
             watch->ladder.step > before ? "short" : "free again", watch->ladder.step,
             MEMORY_STEPS - 1, memory_ladder_terms(&watch->ladder).words,
             size_text(sign.free_bytes).text, stall, sign.failed ? ", a batch failed" : "");
}

struct memory_terms memory_watch_terms(struct memory_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    const uint64_t now_ns = clock_now_ns(); /* with the lock: the ladder's time never goes back */
    if (atomic_load(&watch->failed) || atomic_load(&watch->in_parts) ||
        now_ns - watch->looked_ns >= look_ns)
        watch_look_locked(watch, now_ns);
    const struct memory_terms terms = memory_ladder_terms(&watch->ladder);
    pthread_mutex_unlock(&watch->lock);
    return terms;
}

bool memory_watch_can_shrink(struct memory_watch *watch)
{
    pthread_mutex_lock(&watch->lock);
    const bool can_shrink = watch_is_changing(watch) || memory_ladder_can_shrink(&watch->ladder);
    pthread_mutex_unlock(&watch->lock);
    return can_shrink;
}

void memory_watch_step(struct memory_watch *watch, struct memory_step *out)
{
    pthread_mutex_lock(&watch->lock);
    const struct memory_terms terms = memory_ladder_terms(&watch->ladder);
    *out = (struct memory_step){terms.step, terms.form, watch_is_changing(watch)};
    pthread_mutex_unlock(&watch->lock);
}

enum error_code memory_watch_refusal(struct error *err)
{
    return error_set(err, ERROR_BUSY,
                     "memory is short, so nothing new is begun until some is free: try again in a "
                     "few seconds, close other programs, or start with a shorter --context, fewer "
                     "--slots or less --weights-memory");
}
