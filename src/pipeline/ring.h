/* A ring of records in memory that two processes share: one writes, the other reads.
 *
 * Neither end trusts the other: each keeps its own position to itself, checks the other's against
 * the ring's size, and a record's length against what can be there. A record is copied out before
 * it is looked at, so it cannot change under its reader. ERROR_INVALID: the other end has broken
 * the ring, and nothing of it is to be believed any more.
 *
 * Each end belongs to one thread at a time. Its reader sleeps on a futex in the shared memory; a
 * writer wakes it only when it sleeps. A ring that is empty is begun from its start again once its
 * writer has come far, so that small records stay in the processor's cache, and a large ring costs
 * no more memory than its largest records.
 *
 * Memory: RING_HEAD_BYTES of positions, then `bytes`, a power of two; zeroed is an empty ring.
 * Linux alone. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

enum { RING_HEAD_BYTES = 4096, RING_BYTES_MIN = 1 << 20, RING_RECORD_BYTES = 32 };

struct ring_shared;
struct ring { /* one end */
    struct ring_shared *shared;
    unsigned char *data;
    uint64_t bytes;
    uint64_t position; /* written, or read, so far */
};

void ring_init(struct ring *ring, void *memory, uint64_t bytes);
/* A record of at most bytes / 2 - RING_RECORD_BYTES can be written. Room for two of `record` bytes
 * at a time; 0: that is more than LIMIT_RING_BYTES. */
uint64_t ring_bytes_for(uint64_t record);

/* ERROR_BUSY: no room, also after the reader has had LIMIT_RING_WAIT_MS. */
enum error_code ring_write(struct ring *ring, uint32_t kind, const void *bytes, size_t size,
                           struct error *err);
/* False: ring_write() would wait for its reader now. */
bool ring_has_room(const struct ring *ring, size_t size);

/* The next record into `out` (cleared first), if there is one: *kind is 0 when there is none. */
enum error_code ring_read(struct ring *ring, uint32_t *kind, struct buffer *out, struct error *err);

/* Until there is a record, ring_wake() has been called since ring_bell() gave `bell`, or the time
 * is over. Looks for `spin_ns` before it sleeps. */
uint32_t ring_bell(const struct ring *ring);
void ring_wait(struct ring *ring, uint32_t bell, uint64_t spin_ns, uint32_t limit_ms);
/* Wakes the reader for another reason. From any thread of either process. */
void ring_wake(struct ring *ring);
