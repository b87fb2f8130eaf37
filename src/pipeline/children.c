#include "pipeline/children_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/this_process.h"
#include "base/timed_wait.h"
#include "base/wakeup.h"
#include "sandbox/sandbox.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { UNWANTED_NS = 50 * 1000 * 1000 }; /* how often it is asked whether a lane is still wanted */

/* ---- the devices' children --------------------------------------------------------------- */

static void child_free(struct child *child)
{
    assert(!child->lanes); /* all are closed first */
    while (child->pins)
        pin_forget(child->pins);
    if (child->wake_fd >= 0)
        close(child->wake_fd);
    pthread_cond_destroy(&child->moved);
    pthread_mutex_destroy(&child->work.lock);
    pthread_mutex_destroy(&child->lock);
    mem_free(child);
}

static struct child *child_new(struct children *children, const char *device, struct error *err)
{
    struct child *child = strlen(device) < sizeof child->device ? mem_new(sizeof *child) : NULL;
    if (!child) {
        error_set(err, ERROR_NO_MEMORY, "not enough memory for the process of device %.40s",
                  device);
        return NULL;
    }
    child->children = children;
    child->socket = -1;
    snprintf(child->device, sizeof child->device, "%s", device);
    child->local = children->options.gpu ? gpu_find(children->options.gpu, device) : NULL;
    pthread_mutex_init(&child->lock, NULL);
    pthread_mutex_init(&child->work.lock, NULL);
    timed_wait_init(&child->moved);
    child->wake_fd = wakeup_open();
    if (child->wake_fd >= 0 && !pthread_create(&child->watcher, NULL, child_watch, child))
        return child;
    error_set(err, ERROR_IO, "cannot watch the process of device %s", device);
    child_free(child);
    return NULL;
}

struct child *child_of(struct children *children, const char *device, bool makes, struct error *err)
{
    pthread_mutex_lock(&children->lock);
    struct child *child = children->list;
    while (child && strcmp(child->device, device) != 0)
        child = child->next;
    if (!child && makes && (child = child_new(children, device, err)) != NULL) {
        child->next = children->list;
        children->list = child;
    }
    pthread_mutex_unlock(&children->lock);
    return child;
}

static void children_set_defaults(struct children_options *options)
{
    if (!options->program)
        options->program = this_program();
    if (!options->start_ms)
        options->start_ms = LIMIT_CHILD_START_MS;
    if (!options->silence_ms)
        options->silence_ms = LIMIT_CHILD_SILENCE_MS;
    if (!options->load_ms)
        options->load_ms = LIMIT_CHILD_LOAD_MS;
    if (!options->work_ms)
        options->work_ms = LIMIT_CHILD_WORK_MS;
    if (!options->row_ms)
        options->row_ms = LIMIT_CHILD_ROW_MS;
    if (!options->pause_ms)
        options->pause_ms = 100;
}

static bool children_copy_text(const char **text)
{
    if (*text)
        *text = mem_copy_text(*text, strlen(*text));
    return *text;
}

static void children_free(struct children *children)
{
    const struct children_options *options = &children->options;
    mem_free((char *)(uintptr_t)options->program);
    mem_free((char *)(uintptr_t)options->backend);
    mem_free((char *)(uintptr_t)options->sim_file);
    mem_free((char *)(uintptr_t)options->registry);
    mem_free((char *)(uintptr_t)options->folder);
    pthread_mutex_destroy(&children->lock);
    mem_free(children);
}

/* Once, and not with each process that is started. */
static void children_say_lacks(const struct children_options *options)
{
    char lacks[512];
    if (options->no_sandbox)
        log_line(LOG_WARN, "sandbox",
                 "devices' processes run without a sandbox: a driver that somebody has taken over "
                 "can do what this user can");
    else if (sandbox_lacks(sandbox_support(), lacks, sizeof lacks))
        log_line(LOG_WARN, "sandbox",
                 "this kernel lacks parts of the sandbox for devices' processes; one that somebody "
                 "has taken over could %s",
                 lacks);
}

enum error_code children_open(const struct children_options *given, struct children **out,
                              struct error *err)
{
    struct children *children = mem_new(sizeof *children);
    if (!children)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the devices' processes");
    pthread_mutex_init(&children->lock, NULL);
    struct children_options *options = &children->options;
    *options = *given;
    children_set_defaults(options);
    const bool has_backend = options->backend, has_sim = options->sim_file,
               has_registry = options->registry, has_folder = options->folder;
    bool ok =
        children_copy_text(&options->program); /* all, for what is not copied is the caller's */
    ok &= children_copy_text(&options->backend) == has_backend;
    ok &= children_copy_text(&options->sim_file) == has_sim;
    ok &= children_copy_text(&options->registry) == has_registry;
    ok &= children_copy_text(&options->folder) == has_folder;
    if (!ok) {
        children_free(children);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the devices' processes");
    }
    children_say_lacks(options);
    *out = children;
    return ERROR_NONE;
}

void children_close(struct children *children)
{
    if (!children)
        return;
    while (children->list) {
        struct child *child = children->list;
        children->list = child->next;
        pthread_mutex_lock(&child->lock);
        assert(!child->lanes);
        child->leaving = true;
        pthread_mutex_unlock(&child->lock);
        child_wake(child);
        pthread_join(child->watcher, NULL);
        child_free(child);
    }
    children_free(children);
}

pid_t children_pid(struct children *children, const char *device)
{
    struct child *child = child_of(children, device, false, NULL);
    if (!child)
        return 0;
    pthread_mutex_lock(&child->lock);
    const pid_t pid = child->pid;
    pthread_mutex_unlock(&child->lock);
    return pid;
}

uint32_t children_deaths(struct children *children, const char *device, uint64_t ms)
{
    struct child *child = child_of(children, device, false, NULL);
    if (!child)
        return 0;
    pthread_mutex_lock(&child->lock);
    const uint32_t n =
        deaths_count_recent(child->deaths_ns, LIMIT_CHILD_DEATHS, clock_now_ns(), ms);
    pthread_mutex_unlock(&child->lock);
    return n;
}

bool children_last_death(struct children *children, const char *device, uint64_t ms,
                         struct error *why)
{
    struct child *child = child_of(children, device, false, NULL);
    if (!child)
        return false;
    pthread_mutex_lock(&child->lock);
    const bool died = deaths_count_recent(child->deaths_ns, 1, clock_now_ns(), ms) > 0;
    if (died)
        *why = child->last_death;
    pthread_mutex_unlock(&child->lock);
    return died && why->code;
}

/* ---- lanes ---------------------------------------------------------------------------- */

static void lane_free(struct lane *lane)
{
    assert(!lane->is_up && !lane->memory && !lane->pending && !lane->jobs);
    buffer_deinit(&lane->message);
    pthread_mutex_destroy(&lane->jobs_lock);
    pthread_mutex_destroy(&lane->write_lock);
    mem_free(lane);
}

static struct lane *lane_new(struct child *child, const struct lane_options *options,
                             struct error *err)
{
    const uint64_t batch = wire_bytes_max(options->shape),
                   cache = lane_cache_bytes_max(options->options);
    const uint64_t ring_bytes = ring_bytes_for(batch > cache ? batch : cache);
    if (!ring_bytes) {
        error_set(err, ERROR_INVALID, "micro-batches of %llu bytes are too large for shared memory",
                  (unsigned long long)batch);
        return NULL;
    }
    struct lane *lane = mem_new(sizeof *lane);
    if (!lane) {
        error_set(err, ERROR_NO_MEMORY, "not enough memory for stages on device %s", child->device);
        return NULL;
    }
    pthread_mutex_init(&lane->write_lock, NULL);
    pthread_mutex_init(&lane->jobs_lock, NULL);
    lane->child = child;
    lane->options = *options;
    lane->options.device = NULL; /* what is the caller's for this call alone */
    lane->options.options = NULL;
    lane->options.stages = NULL;
    lane->options.shape = NULL;
    lane->pending_end = &lane->pending;
    lane->driver_options = *options->options;
    lane->ring_bytes = ring_bytes;
    lane->memory_fd = -1;
    memcpy(lane->stages, options->stages, options->n_stages * sizeof *options->stages);
    return lane;
}

static enum error_code lane_enlist(struct lane *lane, struct error *err)
{
    struct child *child = lane->child;
    assert(lane->state == LANE_WANTED);
    uint32_t n = 0;
    pthread_mutex_lock(&child->lock);
    for (const struct lane *other = child->lanes; other; other = other->next)
        n++;
    if (n < LIMIT_CHILD_LANES) {
        lane->id = ++child->last_id;
        lane->next = child->lanes;
        child->lanes = lane;
    }
    pthread_mutex_unlock(&child->lock);
    if (n >= LIMIT_CHILD_LANES)
        return error_set(err, ERROR_BUSY, "device %s already has stages of %u pipelines",
                         child->device, n);
    child_wake(child);
    return ERROR_NONE;
}

static enum error_code lane_wait_loaded(struct lane *lane, struct error *err)
{
    struct child *child = lane->child;
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&child->lock);
    const _Atomic bool *unwanted = lane->options.unwanted;
    while (lane->state != LANE_READY && lane->state != LANE_FAILED &&
           !(unwanted && atomic_load(unwanted)))
        timed_wait(&child->moved, &child->lock, clock_now_ns() + UNWANTED_NS);
    lane->options.unwanted = NULL;
    if (lane->state == LANE_FAILED)
        code = error_set(err, lane->problem.code, "%s", lane->problem.text);
    else if (lane->state != LANE_READY)
        code = error_set(err, ERROR_CANCELLED, "device %s: it is no longer needed", child->device);
    pthread_mutex_unlock(&child->lock);
    return code;
}

enum error_code lane_open(struct children *children, const struct lane_options *options,
                          struct lane **out, struct error *err)
{
    struct error why = {0};
    struct child *child = child_of(children, options->device, true, &why);
    struct lane *lane = child ? lane_new(child, options, &why) : NULL;
    if (!lane)
        return error_set(err, why.code, "%s", why.text);
    children_measure_stop(children);
    enum error_code code = lane_enlist(lane, err);
    if (code) {
        lane_free(lane);
        return code;
    }
    code = lane_wait_loaded(lane, err);
    if (code)
        lane_close(lane);
    else
        *out = lane;
    return code;
}

/* The watching thread has joined the lane's own when the lane is CLOSED. */
void lane_disconnect(struct lane *lane)
{
    struct child *child = lane->child;
    pthread_mutex_lock(&child->lock);
    assert(lane->state != LANE_CLOSING); /* one thread opens, disconnects and closes it */
    if (lane->state != LANE_CLOSED) {
        lane->hurries = lane->state != LANE_READY;
        lane->state = LANE_CLOSING;
        child_wake(child);
    }
    while (lane->state != LANE_CLOSED)
        pthread_cond_wait(&child->moved, &child->lock);
    pthread_mutex_unlock(&child->lock);
}

void lane_close(struct lane *lane)
{
    if (!lane)
        return;
    struct child *child = lane->child;
    lane_disconnect(lane);
    pthread_mutex_lock(&child->lock);
    assert(lane->state == LANE_CLOSED);
    struct lane **at = &child->lanes;
    while (*at != lane)
        at = &(*at)->next;
    *at = lane->next;
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
    lane_free(lane);
}

bool lane_take_loss(struct lane *lane, struct error *why)
{
    pthread_mutex_lock(&lane->child->lock);
    const bool is_lost = lane->is_lost;
    if (is_lost)
        *why = lane->loss;
    lane->is_lost = false;
    pthread_mutex_unlock(&lane->child->lock);
    return is_lost;
}

enum pipeline_look lane_look(struct lane *lane, struct error *why)
{
    enum pipeline_look look = PIPELINE_RELOADING;
    pthread_mutex_lock(&lane->child->lock);
    if (lane->state == LANE_READY)
        look = PIPELINE_LOADED;
    else if (lane->state == LANE_FAILED)
        look = PIPELINE_GIVEN_UP;
    if (look == PIPELINE_GIVEN_UP)
        *why = lane->problem;
    else if (look == PIPELINE_RELOADING)
        *why = lane->child->last_death;
    pthread_mutex_unlock(&lane->child->lock);
    return look;
}

uint64_t lane_stage_bytes(struct lane *lane, uint32_t stage)
{
    pthread_mutex_lock(&lane->child->lock);
    const uint64_t bytes = stage < lane->options.n_stages ? lane->stages[stage].bytes : 0;
    pthread_mutex_unlock(&lane->child->lock);
    return bytes;
}

struct memory_step lane_memory_step(struct lane *lane)
{
    pthread_mutex_lock(&lane->child->lock);
    const struct memory_step step = lane->memory_step;
    pthread_mutex_unlock(&lane->child->lock);
    return step;
}
