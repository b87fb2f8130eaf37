#include "sensors/guard.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/timed_wait.h"

#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { NS_PER_MS = 1000000, PATH_BYTES = 512 };

struct guard_shared {
    struct sensor_context context;
    uint64_t retry_ns;
    atomic_uint references;
    char nvml_path[PATH_BYTES], level_zero_path[PATH_BYTES];
    struct device_info devices[];
};

struct guard_report {
    struct sensor_node node;
    struct sensor_device devices[];
};

struct guard {
    const struct sensor_impl *impl;
    struct guard_shared *shared;

    pthread_t thread;
    bool late; /* the owner's: the last question found the one before unanswered */

    /* of the thread that does the work */
    void *self;
    uint64_t next_open_ns;
    struct guard_report *working;

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t wake, answered;
    struct guard_report *report;
    struct sensor_source source;
    /* Freed by guard_close_end(), or by the thread when that has abandoned it. */
    bool has_thread;
    bool thread_ended;
    bool abandoned;
    bool asked, closing;
    uint64_t busy_since_ns; /* 0: the thread waits to be asked */
};

/* ---- the surroundings ------------------------------------------------------------------ */

struct guard_shared *guard_shared_new(const struct sensors_options *options,
                                      const struct device_info *devices, uint32_t n_devices)
{
    struct guard_shared *shared = mem_new(sizeof *shared + n_devices * sizeof *devices);
    if (!shared)
        return NULL;
    atomic_init(&shared->references, 1);
    const char *root = options->root ? options->root : "";
    size_t length = strlen(root);
    while (length && root[length - 1] == '/')
        length--;
    snprintf(shared->context.fs.root, sizeof shared->context.fs.root, "%.*s", (int)length, root);
    snprintf(shared->nvml_path, PATH_BYTES, "%s", options->nvml_path ? options->nvml_path : "");
    snprintf(shared->level_zero_path, PATH_BYTES, "%s",
             options->level_zero_path ? options->level_zero_path : "");
    shared->context.nvml_path = options->nvml_path ? shared->nvml_path : NULL;
    shared->context.level_zero_path = options->level_zero_path ? shared->level_zero_path : NULL;
    shared->retry_ns =
        (uint64_t)(options->retry_ms ? options->retry_ms : LIMIT_SENSOR_RETRY_MS) * NS_PER_MS;
    if (n_devices)
        memcpy(shared->devices, devices, n_devices * sizeof *devices);
    shared->context.devices = shared->devices;
    shared->context.n_devices = n_devices;
    return shared;
}

void guard_shared_release(struct guard_shared *shared)
{
    if (shared && atomic_fetch_sub(&shared->references, 1) == 1)
        mem_free(shared);
}

/* ---- the work ---------------------------------------------------------------------------- */

/* Reasons come from drivers too; they go on to terminals. */
static void set_source(struct guard *guard, bool available, const char *reason)
{
    pthread_mutex_lock(&guard->lock);
    guard->source.available = available;
    snprintf(guard->source.reason, sizeof guard->source.reason, "%s", reason);
    for (char *c = guard->source.reason; *c; c++) {
        if ((unsigned char)*c < ' ' || (unsigned char)*c == 0x7f)
            *c = '?';
    }
    pthread_mutex_unlock(&guard->lock);
}

static void open_source(struct guard *guard)
{
    uint64_t now_ns = clock_now_ns();
    if (guard->self || now_ns < guard->next_open_ns)
        return;
    guard->next_open_ns = now_ns + guard->shared->retry_ns;
    struct error err = {0};
    if (guard->impl->open(&guard->shared->context, &guard->self, &err)) {
        guard->self = NULL;
        set_source(guard, false, err.text);
    } else {
        assert(guard->self);
        set_source(guard, true, "");
    }
}

static void guard_work(struct guard *guard)
{
    const struct sensor_impl *impl = guard->impl;
    const struct sensor_context *context = &guard->shared->context;
    struct guard_report *report = guard->working;
    open_source(guard);
    memset(report, 0, sizeof *report + context->n_devices * sizeof *report->devices);
    for (uint32_t i = 0; guard->self && impl->read_device && i < context->n_devices; i++)
        impl->read_device(guard->self, i, &context->devices[i], &report->devices[i]);
    if (guard->self && impl->read_node)
        impl->read_node(guard->self, &report->node);
    pthread_mutex_lock(&guard->lock);
    guard->working = guard->report;
    guard->report = report;
    pthread_mutex_unlock(&guard->lock);
}

static void guard_free(struct guard *guard)
{
    if (guard->self)
        guard->impl->close(guard->self);
    mem_free(guard->working);
    mem_free(guard->report);
    pthread_cond_destroy(&guard->answered);
    pthread_cond_destroy(&guard->wake);
    pthread_mutex_destroy(&guard->lock);
    guard_shared_release(guard->shared);
    mem_free(guard);
}

static void *guard_run(void *argument)
{
    struct guard *guard = argument;
    pthread_mutex_lock(&guard->lock);
    while (!guard->closing) {
        if (!guard->asked) {
            pthread_cond_wait(&guard->wake, &guard->lock);
            continue;
        }
        guard->asked = false;
        pthread_mutex_unlock(&guard->lock);
        guard_work(guard);
        pthread_mutex_lock(&guard->lock);
        guard->busy_since_ns = 0;
        pthread_cond_signal(&guard->answered);
    }
    /* Closing a driver may take its time as well, so it happens before the end is told. */
    pthread_mutex_unlock(&guard->lock);
    if (guard->self)
        guard->impl->close(guard->self);
    guard->self = NULL;
    pthread_mutex_lock(&guard->lock);
    guard->thread_ended = true;
    bool mine = guard->abandoned;
    pthread_cond_signal(&guard->answered);
    pthread_mutex_unlock(&guard->lock);
    if (mine)
        guard_free(guard);
    return NULL;
}

/* ---- the owner's side -------------------------------------------------------------------- */

static void start_thread(struct guard *guard)
{
    int failure = pthread_create(&guard->thread, NULL, guard_run, guard);
    guard->has_thread = failure == 0;
    if (failure)
        set_source(guard, false, "no thread could be started for it");
    else
        set_source(guard, false, "its driver has not answered yet");
}

struct guard *guard_new(const struct sensor_impl *impl, struct guard_shared *shared)
{
    size_t size =
        sizeof(struct guard_report) + shared->context.n_devices * sizeof(struct sensor_device);
    struct guard *guard = mem_new(sizeof *guard);
    struct guard_report *working = mem_new(size), *report = mem_new(size);
    if (!guard || !working || !report) {
        mem_free(guard);
        mem_free(working);
        mem_free(report);
        return NULL;
    }
    guard->impl = impl;
    guard->shared = shared;
    atomic_fetch_add(&shared->references, 1);
    guard->working = working;
    guard->report = report;
    snprintf(guard->source.name, sizeof guard->source.name, "%s", impl->name);
    pthread_mutex_init(&guard->lock, NULL);
    timed_wait_init(&guard->wake);
    timed_wait_init(&guard->answered);
    if (impl->may_block)
        start_thread(guard);
    return guard;
}

void guard_ask(struct guard *guard)
{
    if (!guard->has_thread)
        return;
    pthread_mutex_lock(&guard->lock);
    guard->late = guard->busy_since_ns != 0;
    if (!guard->late) {
        guard->asked = true;
        guard->busy_since_ns = clock_now_ns();
        pthread_cond_signal(&guard->wake);
    }
    pthread_mutex_unlock(&guard->lock);
}

void guard_wait(struct guard *guard, uint64_t until_ns)
{
    if (!guard->has_thread) {
        if (!guard->impl->may_block) /* without its thread such a source is not used at all */
            guard_work(guard);
        return;
    }
    if (guard->late) /* it has had its time: a driver that hangs must not slow down every sample */
        return;
    pthread_mutex_lock(&guard->lock);
    while (guard->busy_since_ns && timed_wait(&guard->answered, &guard->lock, until_ns)) {
    }
    pthread_mutex_unlock(&guard->lock);
}

/* Both are structs of readings and of nothing else. */
static void guard_merge_readings(const void *from, void *to, size_t size, uint64_t now_ns)
{
    const struct reading *told = from;
    struct reading *out = to;
    for (size_t i = 0; i < size / sizeof *out; i++) {
        bool stale = now_ns > told[i].time_ns &&
                     now_ns - told[i].time_ns > (uint64_t)LIMIT_SENSOR_STALE_MS * NS_PER_MS;
        if (out[i].valid)
            continue;
        if (told[i].valid && !stale)
            out[i] = told[i];
        else if (told[i].time_ns > out[i].time_ns)
            out[i].time_ns = told[i].time_ns;
    }
}

_Static_assert(sizeof(struct sensor_node) % sizeof(struct reading) == 0, "readings only");
_Static_assert(sizeof(struct sensor_device) % sizeof(struct reading) == 0, "readings only");

void guard_merge(struct guard *guard, uint64_t now_ns, struct sensor_sample *sample)
{
    pthread_mutex_lock(&guard->lock);
    guard_merge_readings(&guard->report->node, &sample->node, sizeof sample->node, now_ns);
    for (uint32_t i = 0; i < sample->n_devices; i++)
        guard_merge_readings(&guard->report->devices[i], &sample->devices[i],
                             sizeof sample->devices[i], now_ns);
    pthread_mutex_unlock(&guard->lock);
}

void guard_source(struct guard *guard, struct sensor_source *out)
{
    pthread_mutex_lock(&guard->lock);
    *out = guard->source;
    uint64_t since_ns = guard->busy_since_ns, now_ns = clock_now_ns();
    pthread_mutex_unlock(&guard->lock);
    if (!since_ns || now_ns - since_ns < (uint64_t)LIMIT_SENSOR_STALE_MS * NS_PER_MS)
        return;
    out->available = false;
    snprintf(out->reason, sizeof out->reason,
             "its driver has not answered for %" PRIu64
             " s: look for its errors with `sudo dmesg`, then restart the machine",
             (now_ns - since_ns) / 1000000000u);
}

void guard_close_begin(struct guard *guard)
{
    pthread_mutex_lock(&guard->lock);
    guard->closing = true;
    pthread_cond_signal(&guard->wake);
    pthread_mutex_unlock(&guard->lock);
}

void guard_close_end(struct guard *guard, uint64_t until_ns)
{
    pthread_mutex_lock(&guard->lock);
    while (guard->has_thread && !guard->thread_ended &&
           timed_wait(&guard->answered, &guard->lock, until_ns)) {
    }
    bool has_thread = guard->has_thread, ended = guard->thread_ended;
    guard->abandoned = has_thread && !ended;
    pthread_t thread =
        guard->thread; /* an abandoned guard is not ours any more once the lock is free */
    pthread_mutex_unlock(&guard->lock);
    if (has_thread && ended)
        pthread_join(thread, NULL);
    else if (has_thread)
        pthread_detach(thread);
    if (!has_thread || ended)
        guard_free(guard);
}
