/* The thread that watches a device's child: starts it, asks it, kills it, starts it again. */
#include "pipeline/children_impl.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/wakeup.h"
#include "model/model.h"

#include <assert.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BEAT_MS = 250, LATE_MS = 4 * BEAT_MS, MS = 1000000, WORDS_A_TURN = 64 };

void child_wake(struct child *child)
{
    wakeup_ring(child->wake_fd);
}

void child_suspect(struct child *child, const struct error *why)
{
    pthread_mutex_lock(&child->lock);
    if (!child->suspicion.code)
        child->suspicion = *why;
    pthread_mutex_unlock(&child->lock);
    child_wake(child);
}

/* ---- its life ---------------------------------------------------------------------------- */

static void child_start(struct child *child)
{
    assert(!child->pid && child->socket < 0);
    struct error err = {0};
    pid_t pid;
    if (child_spawn(child, &pid, &child->socket, &err)) {
        log_line(LOG_WARN, "children", "%s", err.text);
        child_died(child, &err, false);
        return;
    }
    child->said_hello = false;
    child->started_ns = child->heard_ns = child->stepped_ns = clock_now_ns();
    child->beat_ns = 0;
    pthread_mutex_lock(&child->lock);
    child->pid = pid;
    child->suspicion = (struct error){0};
    pthread_mutex_unlock(&child->lock);
    log_line(LOG_INFO, "children", "device %s: process %ld", child->device, (long)pid);
}

static const char *lane_path(const struct lane *lane)
{
    return gguf_file_path(model_file(lane->options.model));
}

static void word_fill_open(const struct lane *lane, struct child_word *word)
{
    word->kind = CHILD_OPEN;
    word->lane = lane->id;
    word->ring_bytes = lane->ring_bytes;
    word->again = lane->was_ready;
    word->instance = lane->options.instance;
    word->epoch = lane->options.epoch;
    word->type = lane->options.type;
    word->options = lane->driver_options;
    snprintf(word->path, sizeof word->path, "%s", lane_path(lane));
    word->model = (uintptr_t)model_origin(lane->options.model);
    word->n_stages = lane->options.n_stages;
    memcpy(word->stages, lane->stages, word->n_stages * sizeof *word->stages);
}

static void lane_set_state(struct lane *lane, enum lane_state from, enum lane_state to,
                           const struct error *err)
{
    struct child *child = lane->child;
    pthread_mutex_lock(&child->lock);
    if (lane->state == from)
        lane->state = to;
    if (err)
        lane->problem = *err;
    pthread_cond_broadcast(&child->moved);
    pthread_mutex_unlock(&child->lock);
}

/* What the stages there may take to load, by the file's size and their part of its layers. */
static uint64_t lane_load_limit_ms(const struct lane *lane)
{
    const uint64_t size = gguf_file_size(model_file(lane->options.model));
    uint64_t n_here = 0, n_all = 0;
    for (uint32_t i = 0; i < lane->options.n_stages; i++) {
        n_all += lane->stages[i].n_layers;
        n_here += lane->stages[i].here ? lane->stages[i].n_layers : 0;
    }
    if (!n_all)
        return lane->child->children->options.load_ms; /* opening it says why */
    const double bytes = (double)size * (double)n_here / (double)n_all;
    return lane->child->children->options.load_ms +
           (uint64_t)(bytes * 1000 / (double)LIMIT_CHILD_LOAD_BYTES_PER_S);
}

static void lane_ask_open(struct lane *lane)
{
    assert(lane->child->said_hello && !lane->is_up);
    static _Thread_local struct child_word word;
    struct error err = {0};
    memset(&word, 0, sizeof word);
    word_fill_open(lane, &word);
    lane->end_ns = clock_now_ns() + lane_load_limit_ms(lane) * MS;
    lane_set_state(lane, LANE_WANTED, LANE_OPENING, NULL);
    if (lane_up(lane, &err)) {
        error_wrap(&err, "device %s", lane->child->device);
        lane_set_state(lane, LANE_OPENING, LANE_FAILED, &err);
    } else {
        /* The file as it is open here: a process that is started again weeks later does not load
         * what has the same name by then, and may open no file by itself. */
        const struct gguf_file *file = model_file(lane->options.model);
        struct child_handed handed = {.rings = lane->memory_fd,
                                      .n_files = gguf_file_part_count(file)};
        for (uint32_t i = 0; i < handed.n_files; i++)
            handed.files[i] = gguf_file_part_descriptor(file, i);
        if (child_say(lane->child->socket, &word, &handed, &err))
            child_suspect(lane->child, &err);
    }
}

static void lane_ask_close(struct lane *lane)
{
    static _Thread_local struct child_word word;
    struct error err = {0};
    memset(&word, 0, sizeof word);
    word.kind = CHILD_CLOSE;
    word.lane = lane->id;
    const uint64_t end_ns = clock_now_ns() + (uint64_t)lane->child->children->options.work_ms * MS;
    if (!lane->hurries || lane->end_ns < end_ns)
        lane->end_ns = end_ns;
    if (child_say(lane->child->socket, &word, NULL, &err))
        child_suspect(lane->child, &err);
}

enum todo { TODO_NOTHING, TODO_SAY, TODO_OPEN, TODO_CLOSE };

/* With the lock: of weights that stay. */
static bool word_fill_pin(struct child *child, struct child_word *word)
{
    struct lane_pin *pin = child->pid && child->said_hello ? pin_next(child) : NULL;
    if (!pin)
        return false;
    memset(word, 0, sizeof *word);
    word->kind = pin->dropped ? CHILD_DROP : CHILD_PIN;
    word->lane = pin->lane;
    word->pin = pin->id;
    word->n_ranges = pin->n_ranges;
    memcpy(word->ranges, pin->ranges, pin->n_ranges * sizeof *pin->ranges);
    pin->state = PIN_SAID;
    if (pin->dropped)
        pin_forget(pin);
    return true;
}

/* With the lock: the next lane that something has to be done for; the list may only grow at its
 * head meanwhile. */
static enum todo child_look_at_lanes(struct child *child, struct lane **out)
{
    for (struct lane *lane = child->lanes; lane; lane = lane->next) {
        const bool is_closing = lane->state == LANE_CLOSING;
        *out = lane;
        if (is_closing && (!child->pid || !lane->is_up)) {
            lane->state = LANE_CLOSED; /* nothing of it is there */
            pthread_cond_broadcast(&child->moved);
        } else if (child->pid && child->said_hello && lane->state == LANE_WANTED) {
            return TODO_OPEN;
        } else if (is_closing && child->said_hello && !lane->close_sent) {
            lane->close_sent = true;
            return TODO_CLOSE;
        }
    }
    return TODO_NOTHING;
}

/* What stays first: then its lane may be closed. */
static enum todo child_next_to_do(struct child *child, struct lane **lane, struct child_word *word)
{
    pthread_mutex_lock(&child->lock);
    const enum todo todo = word_fill_pin(child, word) ? TODO_SAY : child_look_at_lanes(child, lane);
    pthread_mutex_unlock(&child->lock);
    return todo;
}

static void child_do_all(struct child *child)
{
    static _Thread_local struct child_word word;
    struct error err = {0};
    struct lane *lane;
    enum todo todo;
    while ((todo = child_next_to_do(child, &lane, &word)) != TODO_NOTHING) {
        if (todo == TODO_OPEN)
            lane_ask_open(lane);
        else if (todo == TODO_CLOSE)
            lane_ask_close(lane);
        else if (child_say(child->socket, &word, NULL, &err))
            child_suspect(child, &err);
    }
}

/* What closes before it was loaded is not waited for. */
static bool lane_is_there(const struct lane *lane)
{
    return lane->state != LANE_FAILED && lane->state != LANE_CLOSED &&
           !(lane->state == LANE_CLOSING && lane->hurries);
}

/* Whether the child has something to do, or would have. */
static bool child_is_needed(struct child *child)
{
    pthread_mutex_lock(&child->lock);
    bool needed = (child->pid && pins_needed(child)) || child->measure.state != MEASURE_NONE;
    for (const struct lane *lane = child->lanes; lane; lane = lane->next)
        needed |= child->pid ? lane_is_there(lane) : lane->state == LANE_WANTED;
    pthread_mutex_unlock(&child->lock);
    return needed;
}

static void child_beat(struct child *child, uint64_t now_ns)
{
    assert(child->pid);
    static _Thread_local struct child_word word;
    struct error err = {0};
    memset(&word, 0, sizeof word);
    word.kind = CHILD_BEAT;
    word.duty = child->local ? device_duty(child->local) : 1;
    child->beat_ns = now_ns;
    child_say(child->socket, &word, NULL, &err); /* a full socket: the silence says it */
}

static bool child_loads_too_long(struct child *child, uint64_t now_ns)
{
    bool too_long = false;
    pthread_mutex_lock(&child->lock);
    for (const struct lane *lane = child->lanes; lane; lane = lane->next)
        too_long |=
            (lane->state == LANE_OPENING || (lane->state == LANE_CLOSING && lane->close_sent) ||
             (lane->state == LANE_READY && atomic_load(&lane->is_changing))) &&
            now_ns > lane->end_ns;
    pthread_mutex_unlock(&child->lock);
    return too_long;
}

static bool child_changes_form(struct child *child)
{
    bool changes = false;
    pthread_mutex_lock(&child->lock);
    for (const struct lane *lane = child->lanes; lane; lane = lane->next)
        changes |= lane->state == LANE_READY && atomic_load(&lane->is_changing);
    pthread_mutex_unlock(&child->lock);
    return changes;
}

/* Why it has to be killed; NULL: it has not. */
static const char *child_fault(struct child *child, uint64_t now_ns, char *text, size_t size,
                               bool *hung)
{
    const struct children_options *options = &child->children->options;
    uint32_t rows = 0;
    const uint64_t hangs_ms = child_work_hangs_ms(child, now_ns, child_changes_form(child), &rows);
    pthread_mutex_lock(&child->lock);
    const struct error suspicion = child->suspicion;
    pthread_mutex_unlock(&child->lock);
    *hung = !suspicion.code || suspicion.code == ERROR_BUSY;
    if (suspicion.code)
        snprintf(text, size, "cannot be trusted: %.300s", suspicion.text);
    else if (!child->said_hello && now_ns - child->started_ns > (uint64_t)options->start_ms * MS)
        snprintf(text, size, "did not open it within %.1f s", (double)options->start_ms / 1000);
    else if (child->said_hello && now_ns - child->heard_ns > (uint64_t)options->silence_ms * MS)
        snprintf(text, size, "hangs: it has not answered for %.1f s",
                 (double)options->silence_ms / 1000);
    else if (child_loads_too_long(child, now_ns))
        snprintf(
            text, size,
            "hangs: its part of a model is not loaded after %.1f s and more, or not given back "
            "after %.1f s",
            (double)options->load_ms / 1000, (double)options->work_ms / 1000);
    else if (hangs_ms)
        snprintf(text, size,
                 "hangs: a micro-batch (at most %u rows) has made no progress for %.1f s", rows,
                 (double)hangs_ms / 1000);
    else
        return NULL;
    return text;
}

/* ---- what it says ------------------------------------------------------------------------ */

/* False: it cannot be. */
static bool lane_note_stages(struct lane *lane, const struct child_word *word)
{
    if (word->n_stages != lane->options.n_stages)
        return false;
    for (uint32_t i = 0; i < word->n_stages; i++) {
        if (lane->stages[i].here &&
            (!word->stages[i].row_bytes || word->stages[i].row_bytes > LIMIT_FRAME_DATA_BYTES))
            return false;
        lane->stages[i].bytes = word->stages[i].bytes;
        lane->stages[i].row_bytes = word->stages[i].row_bytes;
    }
    return true;
}

/* False: it cannot be trusted. */
static bool child_take_opened(struct child *child, const struct child_word *word)
{
    bool can_be = true;
    pthread_mutex_lock(&child->lock);
    struct lane *lane = child->lanes;
    while (lane && lane->id != word->lane)
        lane = lane->next;
    if (lane && lane->state == LANE_OPENING && word->code) {
        error_set(&lane->problem, word->code, "%s", word->text);
        lane->state = LANE_FAILED;
    } else if (lane && lane->state == LANE_OPENING) {
        can_be = lane_note_stages(lane, word);
        lane->state = can_be ? LANE_READY : LANE_OPENING;
        lane->was_ready |= can_be;
    }
    pthread_mutex_unlock(&child->lock);
    child_tell_lanes(child);
    return can_be;
}

/* False: it cannot be trusted. */
static bool child_take_memory(struct child *child, const struct child_word *word)
{
    pthread_mutex_lock(&child->lock);
    struct lane *lane = child->lanes;
    while (lane && (lane->id != word->lane || lane->state != LANE_READY))
        lane = lane->next;
    const bool can_be = !lane || word->n_stages == lane->options.n_stages;
    for (uint32_t i = 0; lane && can_be && !word->memory.is_changing && i < word->n_stages; i++)
        lane->stages[i].bytes = word->stages[i].bytes;
    if (lane && can_be) {
        lane->memory_step = word->memory;
        lane->end_ns = clock_now_ns() + lane_load_limit_ms(lane) * MS;
        atomic_store(&lane->is_changing, word->memory.is_changing);
    }
    pthread_mutex_unlock(&child->lock);
    child_tell_lanes(child);
    return can_be;
}

static void child_take_closed(struct child *child, uint32_t id)
{
    pthread_mutex_lock(&child->lock);
    struct lane *lane = child->lanes;
    while (lane && (lane->id != id || lane->state != LANE_CLOSING))
        lane = lane->next;
    pthread_mutex_unlock(&child->lock);
    if (!lane)
        return;
    assert(lane->child == child);
    lane_down(lane);
    lane_set_state(lane, LANE_CLOSING, LANE_CLOSED, NULL);
}

/* False: it is to be buried for `text`. */
static bool child_take_word(struct child *child, const struct child_word *word, char *text,
                            size_t size)
{
    child->heard_ns = clock_now_ns();
    switch (word->kind) {
    case CHILD_HELLO:
        child->said_hello = !word->code;
        if (word->code)
            snprintf(text, size, "cannot open it: %.300s", word->text);
        return child->said_hello;
    case CHILD_OPENED:
        if (child_take_opened(child, word))
            return true;
        snprintf(text, size, "cannot be trusted: it has loaded what cannot be");
        return false;
    case CHILD_CLOSED:
        child_take_closed(child, word->lane);
        return true;
    case CHILD_MEMORY:
        if (child_take_memory(child, word))
            return true;
        snprintf(text, size, "cannot be trusted: it tells of stages that there are not");
        return false;
    case CHILD_ALIVE:
        child_mirror(child, &word->readings);
        return true;
    case CHILD_MEASURED: {
        struct error why = {0};
        error_set(&why, word->code, "%s", word->text);
        child_measure_ended(child, word->code ? NULL : &word->calibration, &why);
        return true;
    }
    case CHILD_OPEN:
    case CHILD_CLOSE:
    case CHILD_BEAT:
    case CHILD_PIN:
    case CHILD_DROP:
    case CHILD_MEASURE:
    case CHILD_MEASURE_STOP:
        break;
    }
    snprintf(text, size, "cannot be trusted: it says what only its node says");
    return false;
}

static void child_hear_all(struct child *child)
{
    assert(child->pid);
    static _Thread_local struct child_word word;
    struct error err = {0};
    struct child_handed handed;
    int got = 0;
    char text[400];
    for (int n = 0;
         n < WORDS_A_TURN && (got = child_hear(child->socket, false, &word, &handed, &err)) > 0;
         n++) {
        child_drop_handed(&handed);
        if (!child_take_word(child, &word, text, sizeof text)) {
            child_bury(child, text, false);
            return;
        }
    }
    if (got < 0)
        child_bury(child, err.code == ERROR_IO ? NULL : err.text, false);
}

/* ---- the thread -------------------------------------------------------------------------- */

/* Done with it: no lane is left. */
static void child_dismiss(struct child *child)
{
    assert(child->pid && child->socket >= 0);
    char end[128];
    child_reap(child->pid, end, sizeof end);
    close(child->socket);
    child->socket = -1;
    child_take_down(child);
    child_mirror(child, NULL);
    pthread_mutex_lock(&child->lock);
    child->pid = 0;
    pins_end(child);
    pthread_mutex_unlock(&child->lock);
}

static uint64_t time_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* This process itself stood still (SIGSTOP, a machine without time for it): what its child did not
 * do meanwhile is not held against it. */
static void child_forgive(struct child *child, uint64_t now_ns)
{
    const uint64_t gap_ns = child->stepped_ns ? now_ns - child->stepped_ns : 0;
    child->stepped_ns = now_ns;
    if (gap_ns < (uint64_t)LATE_MS * MS)
        return;
    child->heard_ns =
        time_earlier(child->heard_ns + gap_ns, now_ns); /* it may have been heard meanwhile */
    child->started_ns = time_earlier(child->started_ns + gap_ns, now_ns);
    pthread_mutex_lock(&child->work.lock);
    child->work.progress_ns = time_earlier(child->work.progress_ns + gap_ns, now_ns);
    pthread_mutex_unlock(&child->work.lock);
    pthread_mutex_lock(&child->lock);
    for (struct lane *lane = child->lanes; lane; lane = lane->next)
        lane->end_ns += gap_ns;
    pthread_mutex_unlock(&child->lock);
}

static void child_step(struct child *child)
{
    uint64_t now_ns = clock_now_ns();
    if (child->pid)
        child_forgive(child, now_ns);
    const bool needed = child_is_needed(child);
    char text[400];
    if (child->pid && !needed)
        child_dismiss(child);
    if (!child->pid && needed && now_ns >= child->start_at_ns)
        child_start(child);
    child_measure_step(child);
    child_do_all(child);
    if (!child->pid)
        return;
    now_ns = clock_now_ns(); /* after what it is compared with */
    if (now_ns - child->beat_ns >= (uint64_t)BEAT_MS * MS)
        child_beat(child, now_ns);
    bool hung;
    if (child_fault(child, now_ns, text, sizeof text, &hung))
        child_bury(child, text, hung);
}

static void child_wait(struct child *child)
{
    struct pollfd fds[2] = {{.fd = child->wake_fd, .events = POLLIN},
                            {.fd = child->socket, .events = POLLIN}};
    const bool idle = !child->pid && !child_is_needed(child);
    poll(fds, child->pid ? 2 : 1, idle ? -1 : child->pid ? BEAT_MS : 10);
    if (fds[0].revents)
        wakeup_heed(child->wake_fd);
    if (child->pid && fds[1].revents)
        child_hear_all(child);
}

static bool child_leaves(struct child *child)
{
    pthread_mutex_lock(&child->lock);
    const bool leaving = child->leaving;
    pthread_mutex_unlock(&child->lock);
    return leaving;
}

void *child_watch(void *arg)
{
    struct child *child = arg;
    while (!child_leaves(child)) {
        child_step(child);
        child_wait(child);
    }
    if (child->pid)
        child_dismiss(child);
    return NULL;
}
