/* The death of a device's process, or its end: its lanes lose what was there, and are loaded again,
 * or given up. */
#include "pipeline/children_impl.h"

#include "base/clock.h"
#include "base/log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MS = 1000000 };

/* Channels may be enlisted meanwhile, and none leaves the list before its owner has seen CLOSED, or
 * has not closed it: who is told may look at the lane, not close it. */
void child_tell_lanes(struct child *child)
{
    struct {
        void (*changed)(void *arg);
        void *arg;
    } told[LIMIT_CHILD_LANES];
    uint32_t n = 0;
    pthread_mutex_lock(&child->lock);
    for (struct lane *lane = child->lanes; lane && n < LIMIT_CHILD_LANES; lane = lane->next) {
        if (!lane->was_ready || lane->state == LANE_CLOSING || lane->state == LANE_CLOSED)
            continue;
        told[n].changed = lane->options.changed;
        told[n++].arg = lane->options.changed_arg;
    }
    pthread_cond_broadcast(&child->moved);
    pthread_mutex_unlock(&child->lock);
    for (uint32_t i = 0; i < n; i++)
        told[i].changed(told[i].arg);
}

void child_mirror(struct child *child, const struct device_readings *readings)
{
    if (child->local)
        device_mirror(child->local, readings);
}

static void child_remember_death(uint64_t *list_ns, uint32_t n, uint64_t now_ns)
{
    memmove(list_ns + 1, list_ns, (n - 1) * sizeof *list_ns);
    list_ns[0] = now_ns;
}

uint32_t deaths_count_recent(const uint64_t *list_ns, uint32_t n_max, uint64_t now_ns, uint64_t ms)
{
    uint32_t n = 0;
    while (n < n_max && list_ns[n] && now_ns - list_ns[n] < ms * MS)
        n++;
    return n;
}

struct death {
    const struct error *why;
    bool hung;
    uint32_t n_deaths, n_hangs; /* lately, this one included */
};

/* With the lock: whether the lane is to be given up, and what is said of that. */
static bool lane_is_given_up(struct lane *lane, const struct death *death, struct error *out)
{
    assert(death->n_deaths); /* this one */
    const bool was_ready = lane->state == LANE_READY;
    lane->n_deaths = was_ready ? 1 : lane->n_deaths + 1;
    lane->n_hangs = was_ready ? death->hung : lane->n_hangs + death->hung;
    if (death->n_deaths >= LIMIT_CHILD_DEATHS)
        error_set(out, ERROR_DEVICE,
                  "its process ended %u times within a minute; the last time: %s", death->n_deaths,
                  death->why->text);
    else if (lane->n_deaths >= LIMIT_CHILD_DEATHS)
        error_set(out, ERROR_DEVICE,
                  "its process ended %u times before it was loaded; the last time: %s",
                  lane->n_deaths, death->why->text);
    else if (death->n_hangs >= LIMIT_CHILD_HANGS || lane->n_hangs >= 2)
        error_set(out, ERROR_DEVICE, "its process keeps hanging; the last time: %s",
                  death->why->text);
    return out->code;
}

/* With the lock. */
static void lane_note_death(struct lane *lane, const struct death *death)
{
    assert(!lane->is_up); /* child_take_down() */
    struct error given_up = {0};
    switch (lane->state) {
    case LANE_CLOSING:
        lane->state = LANE_CLOSED;
        return;
    case LANE_FAILED:
    case LANE_CLOSED:
        return;
    case LANE_WANTED:
    case LANE_OPENING:
    case LANE_READY:
        break;
    }
    if (lane->was_ready) {
        lane->is_lost = true;
        lane->loss = *death->why;
    }
    lane->memory_step = (struct memory_step){0}; /* it is loaded as it was placed */
    atomic_store(&lane->is_changing, false);
    const bool is_over = lane_is_given_up(lane, death, &given_up);
    lane->state = is_over ? LANE_FAILED : LANE_WANTED;
    if (is_over)
        lane->problem = given_up;
}

/* The rings first: nobody reads or writes them while the states change. Only this thread takes
 * lanes up or down, and a lane that is not closed yet stays in the list. */
void child_take_down(struct child *child)
{
    pthread_mutex_lock(&child->lock);
    struct lane *lane = child->lanes;
    while (lane) {
        if (lane->state != LANE_CLOSED) {
            pthread_mutex_unlock(&child->lock);
            lane_down(lane);
            pthread_mutex_lock(&child->lock);
        }
        lane = lane->next;
    }
    pthread_mutex_unlock(&child->lock);
}

static void child_note_death(struct child *child, struct death *death, uint64_t now_ns)
{
    child_remember_death(child->deaths_ns, LIMIT_CHILD_DEATHS, now_ns);
    if (death->hung)
        child_remember_death(child->hangs_ns, LIMIT_CHILD_HANGS, now_ns);
    death->n_deaths =
        deaths_count_recent(child->deaths_ns, LIMIT_CHILD_DEATHS, now_ns, LIMIT_CHILD_DEATHS_MS);
    death->n_hangs =
        deaths_count_recent(child->hangs_ns, LIMIT_CHILD_HANGS, now_ns, LIMIT_CHILD_HANGS_MS);
    assert(death->n_deaths && death->n_deaths <= LIMIT_CHILD_DEATHS); /* this one is among them */
    uint64_t pause_ms = (uint64_t)child->children->options.pause_ms << (death->n_deaths - 1);
    if (pause_ms > LIMIT_CHILD_PAUSE_MS)
        pause_ms = LIMIT_CHILD_PAUSE_MS;
    child->start_at_ns = now_ns + pause_ms * MS;
}

void child_died(struct child *child, const struct error *why, bool hung)
{
    struct death death = {.why = why, .hung = hung};
    pthread_mutex_lock(&child->lock);
    child_note_death(child, &death, clock_now_ns());
    pthread_mutex_unlock(&child->lock);
    child_take_down(child);
    child_mirror(child, NULL);
    pthread_mutex_lock(&child->lock);
    child->pid = 0;
    child->suspicion = (struct error){0};
    child->last_death = *why;
    for (struct lane *lane = child->lanes; lane; lane = lane->next)
        lane_note_death(lane, &death);
    pins_end(child);
    pthread_mutex_unlock(&child->lock);
    child_measure_ended(child, NULL, why);
    child_tell_lanes(child);
}

void child_bury(struct child *child, const char *what, bool hung)
{
    struct error why = {0};
    char end[128];
    const bool reaped = child_reap(child->pid, end, sizeof end);
    close(child->socket);
    child->socket = -1;
    error_set(&why, ERROR_IO, "device %s: its process %s", child->device, what ? what : end);
    if (!reaped)
        error_set(&why, ERROR_IO, "device %s: its process hangs in the kernel: %s", child->device,
                  what ? what : "");
    log_line(LOG_WARN, "children", "%s", why.text);
    child_died(child, &why, hung);
}
