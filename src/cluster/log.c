#include "cluster/log.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

/* A copy of bytes that is never NULL for want of bytes. */
static uint8_t *copy_bytes(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = mem_new(size + 1);
    if (copy && size)
        memcpy(copy, bytes, size);
    return copy;
}

enum error_code log_append(struct log *log, const struct log_entry *entry, struct error *err)
{
    assert(log->n <= log->capacity && (entry->bytes || !entry->size));
    if (log->first == 0)
        log->first = 1;
    if (log->n == log->capacity) {
        const uint32_t capacity = log->capacity ? 2 * log->capacity : 16;
        struct log_entry *entries = mem_resize(log->entries, capacity, sizeof *entries);
        if (!entries)
            return error_set(err, ERROR_NO_MEMORY, "log: not enough memory for %u entries",
                             capacity);
        log->entries = entries;
        log->capacity = capacity;
    }
    uint8_t *bytes = copy_bytes(entry->bytes, entry->size);
    if (!bytes)
        return error_set(err, ERROR_NO_MEMORY, "log: not enough memory for an entry of %zu bytes",
                         entry->size);
    log->entries[log->n] = *entry;
    log->entries[log->n++].bytes = bytes;
    return ERROR_NONE;
}

const struct log_entry *log_at(const struct log *log, uint64_t index)
{
    if (index < log->first || index - log->first >= log->n)
        return NULL;
    return &log->entries[index - log->first];
}

uint64_t log_last(const struct log *log)
{
    return log->first ? log->first + log->n - 1 : 0;
}

void log_truncate(struct log *log, uint64_t from)
{
    assert(log->first || !log->n);
    while (log->n && log->first + log->n > from)
        mem_free(log->entries[--log->n].bytes);
}

void log_drop_before(struct log *log, uint64_t keep)
{
    assert(log->first || !log->n);
    if (keep <= log->first)
        return;
    const uint64_t wanted = keep - log->first;
    const uint32_t n = wanted < log->n ? (uint32_t)wanted : log->n;
    for (uint32_t i = 0; i < n; i++)
        mem_free(log->entries[i].bytes);
    if (log->n > n)
        memmove(log->entries, log->entries + n, (log->n - n) * sizeof *log->entries);
    log->n -= n;
    log->first = keep;
    assert(!log_at(log, keep - 1));
}

void log_clear(struct log *log, uint64_t first)
{
    assert(first);
    log_truncate(log, 0);
    log->first = first;
}

void log_deinit(struct log *log)
{
    if (!log)
        return;
    log_truncate(log, 0);
    mem_free(log->entries);
    *log = (struct log){0};
}

enum error_code log_snapshot_copy(struct log_snapshot *to, const struct log_snapshot *from,
                                  struct error *err)
{
    assert(to != from);
    struct log_snapshot copy = *from;
    copy.members = copy_bytes(from->members, from->members_size);
    copy.state = copy_bytes(from->state, from->state_size);
    if (!copy.members || !copy.state) {
        log_snapshot_clear(&copy);
        return error_set(err, ERROR_NO_MEMORY, "log: not enough memory for a snapshot of %zu bytes",
                         from->state_size);
    }
    *to = copy;
    return ERROR_NONE;
}

void log_snapshot_clear(struct log_snapshot *snapshot)
{
    mem_free(snapshot->members);
    mem_free(snapshot->state);
    *snapshot = (struct log_snapshot){0};
}

void log_write_clear(struct log_write *write)
{
    log_snapshot_clear(&write->snapshot);
    log_deinit(&write->log);
    *write = (struct log_write){0};
}

void log_saved_clear(struct log_saved *saved)
{
    log_snapshot_clear(&saved->snapshot);
    log_deinit(&saved->log);
    *saved = (struct log_saved){0};
}

static enum error_code append_all(struct log *to, const struct log *from, struct error *err)
{
    assert(to != from && (!to->n || log_last(to) + 1 == from->first || !from->n));
    for (uint32_t i = 0; i < from->n; i++) {
        if (log_append(to, &from->entries[i], err))
            return err ? err->code : ERROR_NO_MEMORY;
    }
    return ERROR_NONE;
}

enum error_code log_saved_copy(struct log_saved *to, const struct log_saved *from,
                               struct error *err)
{
    assert(to != from);
    struct log_saved copy = {.lineage = from->lineage, .term = from->term, .vote = from->vote};
    copy.log.first = from->log.first;
    if ((from->snapshot.index && log_snapshot_copy(&copy.snapshot, &from->snapshot, err)) ||
        append_all(&copy.log, &from->log, err)) {
        log_saved_clear(&copy);
        return ERROR_NO_MEMORY;
    }
    *to = copy;
    return ERROR_NONE;
}

static enum error_code save_snapshot(struct log_saved *saved, const struct log_write *write,
                                     struct error *err)
{
    assert(write->has_snapshot);
    struct log_snapshot snapshot;
    if (log_snapshot_copy(&snapshot, &write->snapshot, err))
        return ERROR_NO_MEMORY;
    log_snapshot_clear(&saved->snapshot);
    saved->snapshot = snapshot;
    if (write->clear_log)
        log_clear(&saved->log, snapshot.index + 1);
    else
        log_drop_before(&saved->log, write->keep_from);
    return ERROR_NONE;
}

enum error_code log_saved_write(struct log_saved *saved, const struct log_write *write,
                                struct error *err)
{
    if (write->reset) {
        log_saved_clear(saved);
        saved->lineage = write->lineage;
    }
    if (write->has_term)
        saved->term = write->term, saved->vote = write->vote;
    if (write->has_snapshot && save_snapshot(saved, write, err))
        return ERROR_NO_MEMORY;
    if (!write->log.n)
        return ERROR_NONE;
    if (!saved->log.n)
        log_clear(&saved->log, saved->snapshot.index && !saved->log.first
                                   ? saved->snapshot.index + 1
                               : saved->log.first ? saved->log.first
                                                  : 1);
    if (write->log.first < saved->log.first || write->log.first > log_last(&saved->log) + 1)
        return error_set(err, ERROR_INVALID,
                         "log: entries from %llu on do not follow those from %llu to %llu",
                         (unsigned long long)write->log.first, (unsigned long long)saved->log.first,
                         (unsigned long long)log_last(&saved->log));
    log_truncate(&saved->log, write->log.first);
    return append_all(&saved->log, &write->log, err);
}

enum error_code log_saved_check(const struct log_saved *saved, struct error *err)
{
    const uint64_t behind = saved->snapshot.index + 1;
    const uint64_t first = saved->log.n ? saved->log.first : behind;
    if (first > behind || first == 0 || (saved->log.n && log_last(&saved->log) + 1 < behind))
        return error_set(err, ERROR_INVALID,
                         "log: entries %llu to %llu leave a gap to the snapshot of entry %llu",
                         (unsigned long long)first, (unsigned long long)log_last(&saved->log),
                         (unsigned long long)saved->snapshot.index);
    uint64_t term = 0;
    for (uint32_t i = 0; i < saved->log.n; i++) {
        if (saved->log.entries[i].term < term || saved->log.entries[i].term > saved->term)
            return error_set(err, ERROR_INVALID, "log: the term of entry %llu is out of order",
                             (unsigned long long)(first + i));
        term = saved->log.entries[i].term;
    }
    if ((saved->log.n || saved->snapshot.index) && !saved->term)
        return error_set(err, ERROR_INVALID, "log: entries without a term");
    if (!saved->snapshot.index && saved->log.n && saved->log.entries[0].type != LOG_MEMBERS)
        return error_set(err, ERROR_INVALID,
                         "log: the first entry does not say who the members are");
    return ERROR_NONE;
}
