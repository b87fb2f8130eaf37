#include "pipeline/ring.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/spin.h"
#include "pipeline/futex.h"

#include <assert.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Each on a cache line of its own: they are written by different processes. */
struct ring_shared {
    _Alignas(128) _Atomic uint64_t written;
    _Alignas(128) _Atomic uint64_t read;
    _Alignas(128) _Atomic uint32_t
        bell;                /* the futex: rises with everything that may interest the reader */
    _Atomic uint32_t sleeps; /* the reader does, or is about to */
};
static_assert(sizeof(struct ring_shared) <= RING_HEAD_BYTES, "the positions have a page");

struct record {
    uint32_t magic, kind;
    uint64_t size; /* without this head, and without what fills it up to RECORD_UNIT */
};

enum {
    RECORD_MAGIC = 0x474e4952,
    RECORD_SKIP = UINT32_MAX, /* the rest up to the ring's end is not used */
    RECORD_UNIT = sizeof(struct record),
    FAR_BYTES = 256 * 1024, /* an empty ring is begun anew beyond this */
};

void ring_init(struct ring *ring, void *memory, uint64_t bytes)
{
    assert(bytes >= RING_BYTES_MIN && (bytes & (bytes - 1)) == 0);
    *ring = (struct ring){
        .shared = memory, .data = (unsigned char *)memory + RING_HEAD_BYTES, .bytes = bytes};
}

uint64_t ring_bytes_for(uint64_t record)
{
    uint64_t bytes = RING_BYTES_MIN;
    if (record > LIMIT_RING_BYTES / 2 - RECORD_UNIT)
        return 0;
    while (bytes / 2 < record + 2 * RECORD_UNIT)
        bytes *= 2;
    return bytes <= LIMIT_RING_BYTES ? bytes : 0;
}

static uint64_t record_bytes(uint64_t size)
{
    return RECORD_UNIT + ((size + RECORD_UNIT - 1) & ~(uint64_t)(RECORD_UNIT - 1));
}

/* ---- writing ---------------------------------------------------------------------------- */

static void ring_copy_in(struct ring *ring, uint64_t position, const void *bytes, size_t size)
{
    assert(size <= ring->bytes);
    const uint64_t at = position & (ring->bytes - 1);
    const size_t first = size < ring->bytes - at ? size : (size_t)(ring->bytes - at);
    if (first)
        memcpy(ring->data + at, bytes, first);
    if (size > first)
        memcpy(ring->data, (const char *)bytes + first, size - first);
}

static enum error_code ring_used(const struct ring *ring, uint64_t *used, struct error *err)
{
    const uint64_t read = atomic_load_explicit(&ring->shared->read, memory_order_acquire);
    *used = ring->position - read;
    if (*used > ring->bytes)
        return error_set(err, ERROR_INVALID, "its reader is at a place that was never written");
    return ERROR_NONE;
}

static enum error_code ring_wait_for_room(struct ring *ring, uint64_t needed, uint64_t *used,
                                          struct error *err)
{
    const uint64_t begin_ns = clock_now_ns();
    enum error_code code;
    while ((code = ring_used(ring, used, err)) == ERROR_NONE && ring->bytes - *used < needed) {
        if (clock_now_ns() - begin_ns > (uint64_t)LIMIT_RING_WAIT_MS * 1000000)
            return error_set(err, ERROR_BUSY, "its reader has stopped");
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
    return code;
}

static void ring_put_record(struct ring *ring, uint32_t kind, const void *bytes, uint64_t size,
                            uint64_t length)
{
    assert(length <= ring->bytes && length % RECORD_UNIT == 0 && size + RECORD_UNIT <= length);
    const struct record record = {RECORD_MAGIC, kind, size};
    ring_copy_in(ring, ring->position, &record, sizeof record);
    if (bytes)
        ring_copy_in(ring, ring->position + sizeof record, bytes, (size_t)size);
    ring->position += length;
    atomic_store_explicit(&ring->shared->written, ring->position, memory_order_seq_cst);
    if (atomic_load_explicit(&ring->shared->sleeps, memory_order_seq_cst))
        ring_wake(ring);
}

bool ring_has_room(const struct ring *ring, size_t size)
{
    const uint64_t used =
        ring->position - atomic_load_explicit(&ring->shared->read, memory_order_acquire);
    return used > ring->bytes || size > ring->bytes || ring->bytes - used >= record_bytes(size);
}

enum error_code ring_write(struct ring *ring, uint32_t kind, const void *bytes, size_t size,
                           struct error *err)
{
    assert(kind && kind != RECORD_SKIP);
    const uint64_t length = size <= ring->bytes ? record_bytes(size) : UINT64_MAX;
    uint64_t used;
    enum error_code code = ring_used(ring, &used, err);
    if (code)
        return code;
    if (length > ring->bytes / 2)
        return error_set(err, ERROR_INVALID, "a record of %zu bytes does not fit a ring of %llu",
                         size, (unsigned long long)ring->bytes);
    const uint64_t at = ring->position & (ring->bytes - 1);
    if (!used && at >= FAR_BYTES && at >= length) { /* it has room there at once */
        const uint64_t rest = ring->bytes - at;
        ring_put_record(ring, RECORD_SKIP, NULL, rest - RECORD_UNIT, rest);
    }
    code = ring_wait_for_room(ring, length, &used, err);
    if (code)
        return code;
    ring_put_record(ring, kind, bytes, size, length);
    return ERROR_NONE;
}

/* ---- reading ---------------------------------------------------------------------------- */

static void ring_copy_out(const struct ring *ring, uint64_t position, void *bytes, size_t size)
{
    assert(size <= ring->bytes);
    const uint64_t at = position & (ring->bytes - 1);
    const size_t first = size < ring->bytes - at ? size : (size_t)(ring->bytes - at);
    memcpy(bytes, ring->data + at, first);
    if (size > first)
        memcpy((char *)bytes + first, ring->data, size - first);
}

static uint64_t ring_unread(const struct ring *ring)
{
    return atomic_load_explicit(&ring->shared->written, memory_order_seq_cst) - ring->position;
}

static void ring_pass(struct ring *ring, uint64_t length)
{
    assert(length <= ring->bytes && length % RECORD_UNIT == 0);
    ring->position += length;
    atomic_store_explicit(&ring->shared->read, ring->position, memory_order_release);
}

enum error_code ring_read(struct ring *ring, uint32_t *kind, struct buffer *out, struct error *err)
{
    uint64_t there;
    struct record record;
    *kind = 0;
    buffer_clear(out);
    for (;;) {
        there = ring_unread(ring);
        if (!there)
            return ERROR_NONE;
        if (there > ring->bytes || there < RECORD_UNIT)
            return error_set(err, ERROR_INVALID, "its writer is at an impossible place");
        ring_copy_out(ring, ring->position, &record, sizeof record);
        if (record.magic != RECORD_MAGIC || !record.kind || record.size > ring->bytes ||
            record_bytes(record.size) > there)
            return error_set(err, ERROR_INVALID, "it contains no valid record");
        if (record.kind != RECORD_SKIP)
            break;
        ring_pass(ring, record_bytes(record.size));
    }
    void *room = buffer_extend(out, (size_t)record.size);
    if (!room)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a record of %llu bytes",
                         (unsigned long long)record.size);
    ring_copy_out(ring, ring->position + sizeof record, room, (size_t)record.size);
    ring_pass(ring, record_bytes(record.size));
    *kind = record.kind;
    return ERROR_NONE;
}

/* ---- sleeping --------------------------------------------------------------------------- */

void ring_wake(struct ring *ring)
{
    atomic_fetch_add_explicit(&ring->shared->bell, 1, memory_order_seq_cst);
    futex_wake(&ring->shared->bell);
}

static bool ring_spin(const struct ring *ring, uint64_t spin_ns)
{
    if (!spin_ns)
        return false;
    const uint64_t begin_ns = clock_now_ns();
    do {
        for (int i = 0; i < 64; i++) {
            if (ring_unread(ring))
                return true;
            spin_pause();
        }
    } while (clock_now_ns() - begin_ns < spin_ns);
    return false;
}

uint32_t ring_bell(const struct ring *ring)
{
    return atomic_load_explicit(&ring->shared->bell, memory_order_seq_cst);
}

void ring_wait(struct ring *ring, uint32_t bell, uint64_t spin_ns, uint32_t limit_ms)
{
    struct ring_shared *shared = ring->shared;
    if (ring_unread(ring) || ring_spin(ring, spin_ns))
        return;
    atomic_store_explicit(&shared->sleeps, 1, memory_order_seq_cst);
    if (!ring_unread(ring))
        futex_wait(&shared->bell, bell, limit_ms);
    atomic_store_explicit(&shared->sleeps, 0, memory_order_seq_cst);
}
