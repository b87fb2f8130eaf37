/* A lane's rings: sending, the thread that receives, and how long the child takes. */
#include "pipeline/children_impl.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    IDLE_MS = 1000,
    EXPECTED_TIMES = 20, /* so much slower than before a micro-batch may be */
};

/* ---- how long it takes ------------------------------------------------------------------- */

void work_begins(struct child *child, uint32_t rows)
{
    struct child_work *work = &child->work;
    pthread_mutex_lock(&work->lock);
    if (!work->n_under_way++) {
        work->progress_ns = clock_now_ns();
        work->rows = 0;
    }
    if (rows > work->rows)
        work->rows = rows;
    pthread_mutex_unlock(&work->lock);
}

void work_ends(struct child *child, uint32_t rows)
{
    struct child_work *work = &child->work;
    const uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&work->lock);
    const uint64_t row_ns = rows ? (now_ns - work->progress_ns) / rows : work->row_ns;
    if (row_ns > work->row_ns)
        work->row_ns = row_ns;
    else
        work->row_ns -= (work->row_ns - row_ns) / 8;
    if (work->n_under_way)
        work->n_under_way--;
    work->progress_ns = now_ns;
    pthread_mutex_unlock(&work->lock);
}

void child_work_clear(struct child *child)
{
    pthread_mutex_lock(&child->work.lock);
    child->work.n_under_way = 0;
    pthread_mutex_unlock(&child->work.lock);
}

uint64_t child_work_hangs_ms(struct child *child, uint64_t now_ns, uint32_t *rows)
{
    const uint32_t duty = child->local ? device_duty(child->local) : 1000;
    const struct children_options *options = &child->children->options;
    struct child_work *work = &child->work;
    uint64_t hangs_ms = 0;
    pthread_mutex_lock(&work->lock);
    if (!duty)
        work->progress_ns = now_ns; /* it is told to rest */
    if (work->n_under_way && now_ns > work->progress_ns && duty) {
        const uint64_t row_ms = work->row_ns ? EXPECTED_TIMES * work->row_ns / 1000000 : options->row_ms;
        const uint64_t limit_ms = (options->work_ms + work->rows * row_ms) * 1000 / duty;
        const uint64_t took_ms = (now_ns - work->progress_ns) / 1000000;
        hangs_ms = took_ms > limit_ms ? took_ms : 0;
        *rows = work->rows;
    }
    pthread_mutex_unlock(&work->lock);
    return hangs_ms;
}

/* ---- sending ----------------------------------------------------------------------------- */

void lane_send(struct lane *lane, const void *bytes, size_t size)
{
    struct error err = {0};
    struct wire_route route;
    uint32_t at, rows = 0;
    if (wire_read_address(bytes, size, &route, &at, &rows, NULL))
        return; /* it would be refused */
    pthread_mutex_lock(&lane->write_lock);
    if (lane->is_up) { /* else what it carries was lost with the child, and is said to be */
        work_begins(lane->child, rows);
        if (ring_write(&lane->out, RECORD_MESSAGE, bytes, size, &err)) {
            error_wrap(&err, "the ring to it");
            child_suspect(lane->child, &err);
        }
    }
    pthread_mutex_unlock(&lane->write_lock);
}

/* ---- receiving --------------------------------------------------------------------------- */

static enum error_code take_message(struct lane *lane, struct error *err)
{
    struct buffer *message = &lane->message;
    struct wire_route route;
    uint32_t at, rows;
    enum error_code code = wire_read_address(message->data, message->size, &route, &at, &rows, err);
    if (code)
        return code;
    if (route.instance != lane->options.instance || route.epoch != lane->options.epoch || at > lane->options.n_stages ||
        wire_is_notice(&route) || (at < lane->options.n_stages && lane->stages[at].here))
        return error_set(err, ERROR_INVALID, "a micro-batch for stage %u of another pipeline", at);
    work_ends(lane->child, rows);
    return lane->options.receive(lane->options.arg, at, message, err);
}

/* The child lives, but what it was sent is lost. */
static enum error_code take_refusal(struct lane *lane)
{
    struct child *child = lane->child;
    struct bytes_reader reader = {(const unsigned char *)lane->message.data, lane->message.size, false};
    char text[ERROR_TEXT_MAX / 2] = "";
    work_ends(child, 0);
    bytes_get(&reader, 2);
    snprintf(text, sizeof text, "%.*s", (int)(reader.left < sizeof text ? reader.left : sizeof text - 1),
             (const char *)reader.at);
    pthread_mutex_lock(&child->lock);
    lane->is_lost = true;
    error_set(&lane->loss, ERROR_IO, "device %s: a micro-batch was refused: %s", child->device, text);
    pthread_mutex_unlock(&child->lock);
    lane->options.changed(lane->options.arg);
    return ERROR_NONE;
}

static enum error_code receive_one(struct lane *lane, bool *is_empty, struct error *err)
{
    uint32_t kind;
    enum error_code code = ring_read(&lane->in, &kind, &lane->message, err);
    *is_empty = !code && !kind;
    if (code || !kind)
        return code;
    if (kind == RECORD_MESSAGE)
        return take_message(lane, err);
    if (kind == RECORD_REFUSED)
        return take_refusal(lane);
    if (kind == RECORD_ANSWER)
        return lane_take_answer(lane, err);
    return error_set(err, ERROR_INVALID, "a record of kind %u", kind);
}

static void *read_on(void *arg)
{
    struct lane *lane = arg;
    for (;;) {
        const uint32_t bell = ring_bell(&lane->in);
        struct error err = {0};
        bool is_empty;
        if (atomic_load(&lane->stops))
            return NULL;
        if (receive_one(lane, &is_empty, &err)) {
            error_wrap(&err, "what its process writes");
            child_suspect(lane->child, &err);
            return NULL;
        }
        if (is_empty)
            ring_wait(&lane->in, bell, lane->child->children->options.spin_ns, IDLE_MS);
    }
}

/* ---- up and down -------------------------------------------------------------------------- */

static enum error_code make_memory(struct lane *lane, struct error *err)
{
    const uint64_t bytes = lane->ring_bytes + RING_HEAD_BYTES;
    lane->memory_fd = memfd_create("medley-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (lane->memory_fd < 0 || ftruncate(lane->memory_fd, (off_t)(2 * bytes)))
        return error_set(err, ERROR_IO, "no shared memory: %s", strerror(errno));
    /* Who could make it shorter could make the other end crash. */
    if (fcntl(lane->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return error_set(err, ERROR_IO, "the shared memory cannot be sealed: %s", strerror(errno));
    lane->memory = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_SHARED, lane->memory_fd, 0);
    if (lane->memory == MAP_FAILED) {
        lane->memory = NULL;
        return error_set(err, ERROR_NO_MEMORY, "no room for %llu bytes of shared memory",
                         (unsigned long long)(2 * bytes));
    }
    ring_init(&lane->out, lane->memory, lane->ring_bytes);
    ring_init(&lane->in, (char *)lane->memory + bytes, lane->ring_bytes);
    return ERROR_NONE;
}

static void drop_memory(struct lane *lane)
{
    if (lane->memory)
        munmap(lane->memory, 2 * (lane->ring_bytes + RING_HEAD_BYTES));
    if (lane->memory_fd >= 0)
        close(lane->memory_fd);
    lane->memory = NULL;
    lane->memory_fd = -1;
}

enum error_code lane_up(struct lane *lane, struct error *err)
{
    enum error_code code = make_memory(lane, err);
    atomic_store(&lane->stops, false);
    if (!code && pthread_create(&lane->reader, NULL, read_on, lane))
        code = error_set(err, ERROR_IO, "the system refused a thread");
    if (code) {
        drop_memory(lane);
        return code;
    }
    pthread_mutex_lock(&lane->write_lock);
    lane->is_up = true;
    pthread_mutex_unlock(&lane->write_lock);
    return ERROR_NONE;
}

void lane_down(struct lane *lane)
{
    pthread_mutex_lock(&lane->write_lock);
    const bool was_up = lane->is_up;
    lane->is_up = false;
    pthread_mutex_unlock(&lane->write_lock);
    if (!was_up)
        return;
    atomic_store(&lane->stops, true);
    ring_wake(&lane->in);
    pthread_join(lane->reader, NULL);
    lane_fail_jobs(lane);
    drop_memory(lane);
}
