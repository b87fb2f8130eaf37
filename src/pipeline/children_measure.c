/* The node's side of measuring devices in their processes. */
#include "pipeline/children_impl.h"

#include "base/log.h"

#include <assert.h>

void children_measure_stop(struct children *children)
{
    if (!atomic_load(&children->n_measuring))
        return;
    pthread_mutex_lock(&children->lock);
    for (struct child *child = children->list; child; child = child->next) {
        atomic_store(&child->measure_stops, true);
        child_wake(child);
    }
    pthread_mutex_unlock(&children->lock);
}

void children_measure_forget(struct children *children)
{
    pthread_mutex_lock(&children->lock);
    for (struct child *child = children->list; child; child = child->next) {
        pthread_mutex_lock(&child->lock);
        child->measure.done = NULL;
        pthread_mutex_unlock(&child->lock);
    }
    pthread_mutex_unlock(&children->lock);
    children_measure_stop(children);
}

enum error_code children_measure(struct children *children, const char *device, uint32_t budget_ms,
                                 children_measured done, void *arg, struct error *err)
{
    struct child *child = child_of(children, device, true, err);
    if (!child)
        return ERROR_NO_MEMORY;
    pthread_mutex_lock(&child->lock);
    const bool is_free = child->measure.state == MEASURE_NONE;
    if (is_free) {
        child->measure = (struct child_measure){MEASURE_WANTED, budget_ms, done, arg};
        atomic_store(&child->measure_stops, false);
        atomic_fetch_add(&children->n_measuring, 1);
    }
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
    return is_free ? ERROR_NONE
                   : error_set(err, ERROR_BUSY, "device %s is being measured already", device);
}

static bool child_is_busy(struct child *child)
{
    pthread_mutex_lock(&child->work.lock);
    bool busy = child->work.n_under_way;
    pthread_mutex_unlock(&child->work.lock);
    pthread_mutex_lock(&child->lock);
    for (const struct lane *lane = child->lanes; lane; lane = lane->next)
        busy |= lane->state != LANE_READY && lane->state != LANE_FAILED;
    pthread_mutex_unlock(&child->lock);
    return busy;
}

bool children_are_busy(struct children *children)
{
    bool busy = false;
    pthread_mutex_lock(&children->lock);
    for (struct child *child = children->list; child; child = child->next)
        busy |= child_is_busy(child);
    pthread_mutex_unlock(&children->lock);
    return busy;
}

/* ---- on the watching thread ---------------------------------------------------------------- */

void child_measure_ended(struct child *child, const struct device_calibration *found,
                         const struct error *why)
{
    pthread_mutex_lock(&child->lock);
    const struct child_measure measure = child->measure;
    child->measure = (struct child_measure){0};
    if (measure.state != MEASURE_NONE) /* else a late answer */
        atomic_fetch_sub(&child->children->n_measuring, 1);
    if (measure.state != MEASURE_NONE && measure.done)
        measure.done(measure.arg, child->device, found, why);
    pthread_mutex_unlock(&child->lock);
}

static void child_measure_say(struct child *child, enum child_word_kind kind, uint32_t budget_ms)
{
    static _Thread_local struct child_word word;
    struct error err = {0};
    word = (struct child_word){.kind = kind, .budget_ms = budget_ms};
    if (child_say(child->socket, &word, NULL, &err))
        child_suspect(child, &err);
}

void child_measure_step(struct child *child)
{
    pthread_mutex_lock(&child->lock);
    struct child_measure *measure = &child->measure;
    const enum measure_state state = measure->state;
    const uint32_t budget_ms = measure->budget_ms;
    const bool begins = state == MEASURE_WANTED && child->pid && child->said_hello;
    const bool stops = state != MEASURE_NONE && atomic_exchange(&child->measure_stops, false);
    if (begins && !stops)
        measure->state = MEASURE_SAID;
    pthread_mutex_unlock(&child->lock);
    if (stops && state == MEASURE_WANTED) {
        struct error why = {0};
        error_set(&why, ERROR_CANCELLED, "other work came first");
        child_measure_ended(child, NULL, &why);
    } else if (stops) {
        child_measure_say(child, CHILD_MEASURE_STOP, 0);
    } else if (begins) {
        child_measure_say(child, CHILD_MEASURE, budget_ms);
    }
}
