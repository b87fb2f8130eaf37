/* Log entries, snapshots, and what must be made durable: the words that replica.h, store.h and the
 * simulator share.
 *
 * Indices start at 1; 0 is before the first entry. Everything owns its bytes (base/mem.h); the
 * *_clear functions free them and leave a zeroed, empty value. Pure; a value belongs to one thread
 * at a time. */
#pragma once

#include "base/error.h"
#include "cluster/lineage.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The numbers are stored and travel. */
enum log_type {
    LOG_EVENT = 1,   /* event.h */
    LOG_BARRIER = 2, /* a leader's first entry; means nothing */
    LOG_MEMBERS = 3, /* who replicates, and who votes (members.h) */
};

struct log_entry {
    uint64_t term;
    enum log_type type;
    uint8_t *bytes;
    size_t size;
};

/* A run of entries, the first with the index `first` (at least 1). */
struct log {
    uint64_t first;
    uint32_t n, capacity;
    struct log_entry *entries;
};

enum error_code log_append(struct log *log, const struct log_entry *entry,
                           struct error *err);                         /* copies the bytes */
const struct log_entry *log_at(const struct log *log, uint64_t index); /* NULL: not there */
uint64_t log_last(const struct log *log);          /* first - 1 when it is empty */
void log_truncate(struct log *log, uint64_t from); /* drops `from` and all after it */
void log_drop_before(struct log *log,
                     uint64_t keep); /* drops all before `keep`; emptied by that, it begins there */
void log_clear(struct log *log, uint64_t first); /* empty, with the next entry at `first` */
void log_deinit(struct log *log);

/* The state as of an entry. Zeroed: none. */
struct log_snapshot {
    uint64_t index, term;
    uint64_t members_index; /* of the entry that made the members what they were */
    uint8_t *members;       /* as a LOG_MEMBERS entry has them */
    size_t members_size;
    uint8_t *state; /* state.h */
    size_t state_size;
};
enum error_code log_snapshot_copy(struct log_snapshot *to, const struct log_snapshot *from,
                                  struct error *err);
void log_snapshot_clear(struct log_snapshot *snapshot);

/* Something to make durable: all or nothing, in this order:
 *   1. `reset`: term, vote, snapshot and log are gone, the lineage is as given here;
 *   2. `has_term`: term and vote;
 *   3. `has_snapshot`: it takes the place of the older one; log entries before `keep_from` are
 *   gone; with
 *      `clear_log` all of them are;
 *   4. `log`: if it is not empty, stored entries from log.first on are gone and these take their
 *   place. */
struct log_write {
    uint64_t sequence; /* writes are made in this order, and acknowledged by it */
    bool reset, has_term, has_snapshot, clear_log;
    bool aside; /* with `reset`: what is there is kept aside (store.h) */
    struct lineage lineage;
    uint64_t term, vote;
    struct log_snapshot snapshot;
    uint64_t keep_from;
    struct log log;
};
void log_write_clear(struct log_write *write);

/* What is durable. Zeroed: nothing yet. If there is a snapshot the log begins no later than one
 * behind it. */
struct log_saved {
    struct lineage lineage;
    uint64_t term, vote;
    struct log_snapshot snapshot;
    struct log log; /* log.first may be 0 when it is empty */
};
void log_saved_clear(struct log_saved *saved);

/* What is durable after a write: the simulator's disk, and what the store is tested against.
 * ERROR_INVALID: a gap between what is there and the entries. */
enum error_code log_saved_write(struct log_saved *saved, const struct log_write *write,
                                struct error *err);
enum error_code log_saved_copy(struct log_saved *to, const struct log_saved *from,
                               struct error *err);
/* Where the log must begin and end for the snapshot it has; ERROR_INVALID says what is wrong. */
enum error_code log_saved_check(const struct log_saved *saved, struct error *err);
