/* A lane's rings: sending, the thread that receives, and how long the child takes. */
#include "pipeline/children_impl.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    IDLE_MS = 1000,
    PENDING_MS = 1,      /* until it is looked again whether there is room */
    EXPECTED_TIMES = 20, /* so much slower than before a micro-batch may be */
};

/* ---- how long it takes ------------------------------------------------------------------- */

void work_begins(struct lane *lane, uint32_t rows)
{
    struct child_work *work = &lane->child->work;
    children_measure_stop(lane->child->children);
    pthread_mutex_lock(&work->lock);
    if (!work->n_under_way++) {
        work->progress_ns = clock_now_ns();
        work->rows = 0;
    }
    if (rows > work->rows)
        work->rows = rows;
    lane->n_under_way++;
    pthread_mutex_unlock(&work->lock);
}

void work_ends(struct lane *lane, uint32_t rows)
{
    struct child_work *work = &lane->child->work;
    const uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&work->lock);
    const uint64_t row_ns = rows ? (now_ns - work->progress_ns) / rows : work->row_ns;
    if (row_ns > work->row_ns)
        work->row_ns = row_ns;
    else
        work->row_ns -= (work->row_ns - row_ns) / 8;
    if (lane->n_under_way) {
        lane->n_under_way--;
        work->n_under_way--;
    }
    work->progress_ns = now_ns;
    pthread_mutex_unlock(&work->lock);
}

/* It has not come about. */
void work_is_undone(struct lane *lane)
{
    pthread_mutex_lock(&lane->child->work.lock);
    if (lane->n_under_way) {
        lane->n_under_way--;
        lane->child->work.n_under_way--;
    }
    pthread_mutex_unlock(&lane->child->work.lock);
}

/* What it had under way will not come back. */
static void work_is_over(struct lane *lane)
{
    pthread_mutex_lock(&lane->child->work.lock);
    assert(lane->child->work.n_under_way >= lane->n_under_way);
    lane->child->work.n_under_way -= lane->n_under_way;
    lane->n_under_way = 0;
    pthread_mutex_unlock(&lane->child->work.lock);
}

uint64_t child_work_hangs_ms(struct child *child, uint64_t now_ns, bool rests, uint32_t *rows)
{
    const double duty = child->local ? device_duty(child->local) : 1;
    const struct children_options *options = &child->children->options;
    struct child_work *work = &child->work;
    uint64_t hangs_ms = 0;
    pthread_mutex_lock(&work->lock);
    if (duty == 0 || rests)
        work->progress_ns = now_ns; /* it is told to rest, or does not compute now */
    if (work->n_under_way && now_ns > work->progress_ns && duty > 0) {
        const uint64_t row_ms =
            work->row_ns ? EXPECTED_TIMES * work->row_ns / 1000000 : options->row_ms;
        const double limit_ms = (double)(options->work_ms + work->rows * row_ms) / duty;
        const uint64_t took_ms = (now_ns - work->progress_ns) / 1000000;
        hangs_ms = (double)took_ms > limit_ms ? took_ms : 0;
        *rows = work->rows;
    }
    pthread_mutex_unlock(&work->lock);
    return hangs_ms;
}

/* ---- sending ----------------------------------------------------------------------------- */

struct lane_record { /* a record for which there was no room yet */
    struct lane_record *next;
    uint32_t kind;
    size_t size;
    unsigned char bytes[];
};

static void lane_write_now(struct lane *lane, uint32_t kind, const void *bytes, size_t size)
{
    struct error err = {0};
    if (ring_write(&lane->out, kind, bytes, size, &err)) {
        error_wrap(&err, "the ring to it");
        child_suspect(lane->child, &err);
    }
}

static bool lane_put_off(struct lane *lane, uint32_t kind, const void *bytes, size_t size)
{
    struct lane_record *record =
        lane->n_pending < LIMIT_LANE_PENDING ? mem_new(sizeof *record + size) : NULL;
    if (!record)
        return false;
    record->kind = kind;
    record->size = size;
    memcpy(record->bytes, bytes, size);
    *lane->pending_end = record;
    lane->pending_end = &record->next;
    if (!lane->n_pending++)
        lane->stuck_ns = clock_now_ns();
    ring_wake(&lane->in); /* the reader looks after it */
    return true;
}

bool lane_put(struct lane *lane, uint32_t kind, const void *bytes, size_t size)
{
    assert(lane->is_up);
    if (lane->pending || !ring_has_room(&lane->out, size))
        return lane_put_off(lane, kind, bytes, size);
    lane_write_now(lane, kind, bytes, size);
    return true;
}

static void lane_drop_first(struct lane *lane)
{
    assert(lane->pending && lane->n_pending);
    struct lane_record *record = lane->pending;
    lane->pending = record->next;
    if (!lane->pending)
        lane->pending_end = &lane->pending;
    lane->n_pending--;
    mem_free(record);
}

/* The reader's. Returns for how long it may sleep. */
static uint32_t lane_put_pending(struct lane *lane)
{
    const uint64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&lane->write_lock);
    while (lane->pending && ring_has_room(&lane->out, lane->pending->size)) {
        lane_write_now(lane, lane->pending->kind, lane->pending->bytes, lane->pending->size);
        lane_drop_first(lane);
        lane->stuck_ns = now_ns;
    }
    if (atomic_load(&lane->is_changing))
        lane->stuck_ns = now_ns; /* it reads again when that is over */
    const bool waits = lane->pending,
               is_stuck = waits && now_ns - lane->stuck_ns > LIMIT_RING_WAIT_MS * UINT64_C(1000000);
    pthread_mutex_unlock(&lane->write_lock);
    if (is_stuck) {
        struct error err = {0};
        error_set(&err, ERROR_BUSY, "it does not read its ring");
        child_suspect(lane->child, &err);
    }
    return waits ? PENDING_MS : IDLE_MS;
}

/* The child lives, but something that was to come to it, or from it, will not. */
static void lane_lose(struct lane *lane, const char *why)
{
    pthread_mutex_lock(&lane->child->lock);
    lane->is_lost = true;
    error_set(&lane->loss, ERROR_IO, "device %s: %s", lane->child->device, why);
    pthread_mutex_unlock(&lane->child->lock);
    lane->options.changed(lane->options.changed_arg);
}

enum error_code lane_send(struct lane *lane, const void *bytes, size_t size)
{
    struct microbatch_message message;
    if (wire_read_message(bytes, size, &message, NULL) ||
        size > lane->ring_bytes / 2 - RING_RECORD_BYTES)
        return ERROR_INVALID;
    pthread_mutex_lock(&lane->write_lock);
    const bool is_up =
        lane->is_up; /* else what it carries was lost with the child, and is said to be */
    if (is_up)
        work_begins(lane, message.n_rows); /* before: its answer may be here at once */
    const bool is_put = is_up && lane_put(lane, RECORD_MESSAGE, bytes, size);
    if (is_up && !is_put)
        work_is_undone(lane);
    pthread_mutex_unlock(&lane->write_lock);
    if (is_up && !is_put)
        lane_lose(lane, "more messages than it takes");
    return is_put ? ERROR_NONE : ERROR_BUSY;
}

void lane_halt(struct lane *lane, uint64_t number)
{
    unsigned char bytes[RECORD_HALT_BYTES];
    bytes_store(bytes, sizeof bytes, number);
    pthread_mutex_lock(&lane->write_lock);
    if (lane->is_up) /* where there is no room for it, the micro-batch goes to its end */
        lane_put(lane, RECORD_HALT, bytes, sizeof bytes);
    pthread_mutex_unlock(&lane->write_lock);
}

/* ---- receiving --------------------------------------------------------------------------- */

/* Behind a stage that is there; or it is over. */
static bool lane_comes_next(const struct lane *lane, uint32_t at)
{
    const uint32_t n_stages = lane->options.n_stages;
    return at == n_stages ||
           (at > 0 && at < n_stages && lane->stages[at - 1].here && !lane->stages[at].here);
}

static enum error_code lane_take_message(struct lane *lane, struct error *err)
{
    struct microbatch_message message;
    enum error_code code = wire_read_message(lane->message.data, lane->message.size, &message, err);
    if (code)
        return code;
    if (message.route.instance != lane->options.instance ||
        message.route.epoch != lane->options.epoch || wire_is_notice(&message.route) ||
        !lane_comes_next(lane, message.at))
        return error_set(err, ERROR_INVALID, "a micro-batch for stage %u of another pipeline",
                         message.at);
    work_ends(lane, message.n_rows);
    message.own = &lane->message;
    return lane->options.receive(lane->options.arg, &message, err);
}

static enum error_code lane_take_refusal(struct lane *lane)
{
    struct bytes_reader reader = {(const unsigned char *)lane->message.data, lane->message.size,
                                  false};
    char text[ERROR_TEXT_MAX / 2] = "";
    work_ends(lane, 0);
    bytes_get(&reader, 2);
    snprintf(text, sizeof text, "a micro-batch was refused: %.*s",
             (int)(reader.left < sizeof text ? reader.left : sizeof text - 1),
             (const char *)reader.at);
    lane_lose(lane, text);
    return ERROR_NONE;
}

static enum error_code lane_receive_one(struct lane *lane, bool *is_empty, struct error *err)
{
    uint32_t kind;
    enum error_code code = ring_read(&lane->in, &kind, &lane->message, err);
    *is_empty = !code && !kind;
    if (code || !kind)
        return code;
    if (kind == RECORD_MESSAGE)
        return lane_take_message(lane, err);
    if (kind == RECORD_REFUSED)
        return lane_take_refusal(lane);
    if (kind == RECORD_ANSWER)
        return lane_take_answer(lane, err);
    return error_set(err, ERROR_INVALID, "a record of unknown kind %u", kind);
}

static void *lane_read_on(void *arg)
{
    struct lane *lane = arg;
    for (;;) {
        const uint32_t bell = ring_bell(&lane->in), idle_ms = lane_put_pending(lane);
        struct error err = {0};
        bool is_empty;
        if (atomic_load(&lane->stops))
            return NULL;
        if (lane_receive_one(lane, &is_empty, &err)) {
            error_wrap(&err, "what its process writes");
            child_suspect(lane->child, &err);
            return NULL;
        }
        if (is_empty)
            ring_wait(&lane->in, bell, lane->child->children->options.spin_ns, idle_ms);
    }
}

/* ---- up and down -------------------------------------------------------------------------- */

static enum error_code lane_make_memory(struct lane *lane, struct error *err)
{
    const uint64_t bytes = lane->ring_bytes + RING_HEAD_BYTES;
    lane->memory_fd = memfd_create("medley-rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (lane->memory_fd < 0 || ftruncate(lane->memory_fd, (off_t)(2 * bytes)))
        return error_set(err, ERROR_IO, "cannot make shared memory: %s", strerror(errno));
    /* Who could make it shorter could make the other end crash. */
    if (fcntl(lane->memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
        return error_set(err, ERROR_IO, "cannot seal the shared memory: %s", strerror(errno));
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

static void lane_drop_memory(struct lane *lane)
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
    assert(!lane->is_up && !lane->memory && !lane->n_pending);
    enum error_code code = lane_make_memory(lane, err);
    atomic_store(&lane->stops, false);
    if (!code && pthread_create(&lane->reader, NULL, lane_read_on, lane))
        code = error_set(err, ERROR_IO, "cannot start a thread");
    if (code) {
        lane_drop_memory(lane);
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
    while (lane->pending)
        lane_drop_first(lane);
    assert(!lane->n_pending);
    lane_fail_jobs(lane);
    work_is_over(lane);
    lane_drop_memory(lane);
}
