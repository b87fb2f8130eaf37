#include "audit/record_impl.h"

#include "audit/lines.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t record_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* ---- the queue: with the lock ---- */

static bool record_is_at(const struct audit_end *a, const struct audit_end *b)
{
    return a->number == b->number && digest_equal(&a->hash, &b->hash);
}

static struct record_item *record_queue(struct audit_record *r, enum record_item_type type,
                                        const char *line, size_t size)
{
    struct record_item *item =
        r->queued_bytes > LIMIT_AUDIT_QUEUE_BYTES ? NULL : mem_new(sizeof *item + size);
    if (!item) {
        r->lost = true; /* a gap says so, when there is room again */
        return NULL;
    }
    item->type = type;
    item->size = size;
    if (size)
        memcpy(item->line, line, size);
    *r->last_item = item;
    r->last_item = &item->next;
    r->queued_bytes += sizeof *item + size;
    return item;
}

static void record_reach(struct audit_record *r, const struct audit_end *end)
{
    r->end = *end;
    r->recent[end->number % RECORD_RECENT] = *end;
}

/* What comes next begins behind `at`: nothing of what is here is a part of it. */
static void record_begin_anew(struct audit_record *r, const struct audit_end *at)
{
    struct record_item *item = record_queue(r, RECORD_ANEW, NULL, 0);
    if (!item)
        return;
    item->before = item->end = *at;
    memset(r->recent, 0, sizeof r->recent);
    record_reach(r, at);
}

/* Entries up to `to` are not here. A record without any begins behind them. */
static void record_skip(struct audit_record *r, const struct audit_end *to)
{
    if (!r->end.number) {
        record_begin_anew(r, to);
        return;
    }
    struct record_item *item = record_queue(r, RECORD_GAP, NULL, 0);
    if (!item)
        return;
    item->before = r->end;
    item->end = *to;
    r->lost = false;
    record_reach(r, to);
}

static void record_add(struct audit_record *r, const struct audit_entry *entry)
{
    const struct audit_end before = {entry->number - 1, entry->before};
    const struct audit_end after = {entry->number, entry->hash};
    const struct audit_end *had = &r->recent[entry->number % RECORD_RECENT];
    struct buffer line = {0};
    if (entry->number <= r->end.number &&
        (had->number != entry->number || record_is_at(had, &after)))
        return; /* it is here */
    if (entry->number > r->end.number + 1 && (r->lost || !r->end.number))
        record_skip(r, &before);
    if (!record_is_at(&r->end, &before))
        record_begin_anew(r, &before); /* another record than this */
    if (!record_is_at(&r->end, &before))
        return; /* no room */
    audit_write_entry(entry, &line);
    struct record_item *item =
        line.failed ? NULL : record_queue(r, RECORD_LINE, line.data, line.size);
    if (item) {
        item->before = before;
        item->end = after;
        record_reach(r, &after);
    }
    r->lost |= line.failed;
    buffer_deinit(&line);
}

void record_append(struct audit_record *r, const struct audit_entry *entries, uint32_t n)
{
    pthread_mutex_lock(&r->lock);
    for (uint32_t i = 0; i < n; i++)
        record_add(r, &entries[i]);
    pthread_mutex_unlock(&r->lock);
}

void record_follow(struct audit_record *r, const struct audit_end *agreed, bool anew)
{
    pthread_mutex_lock(&r->lock);
    const struct audit_end *had = &r->recent[agreed->number % RECORD_RECENT];
    if (agreed->number > r->end.number) {
        if (anew && r->end.number)
            record_begin_anew(r, agreed);
        else
            record_skip(r, agreed);
    } else if (agreed->number && had->number == agreed->number && !record_is_at(had, agreed)) {
        record_begin_anew(r, agreed);
    }
    pthread_mutex_unlock(&r->lock);
}

/* ---- writing: with the disk ---- */

struct record_batch { /* lines of one file, on their way */
    struct buffer text;
    uint64_t first;
    struct audit_end end;
};

static enum error_code record_write_batch(struct audit_record *r, struct record_batch *batch,
                                          struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (batch->text.failed)
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    else if (batch->text.size)
        code = record_files_append(&r->folder, batch->first, &batch->text, err);
    if (!code && batch->text.size)
        r->folder.written = batch->end;
    buffer_clear(&batch->text);
    return code;
}

static enum error_code record_set_aside(struct audit_record *r, struct error *err)
{
    char aside[PATH_MAX];
    const enum error_code code = record_files_aside(&r->folder, aside, sizeof aside, err);
    if (code)
        return code;
    pthread_mutex_lock(&r->lock);
    snprintf(r->aside, sizeof r->aside, "%s", aside);
    pthread_mutex_unlock(&r->lock);
    return ERROR_NONE;
}

/* The head that is written next says that the record begins there. */
static void record_begin_behind(struct audit_record *r, const struct audit_end *end)
{
    assert(!r->folder.n_files);
    r->folder.head =
        (struct audit_seal){.type = SEAL_HEAD, .first = end->number + 1, .before = end->hash};
    r->folder.has_head = true;
    r->folder.written = *end;
}

static enum error_code record_write_head(struct audit_record *r, uint64_t now_ms, struct error *err)
{
    const enum error_code code = record_files_sync(&r->folder, err);
    return code ? code : record_files_head(&r->folder, &r->folder.written, now_ms, err);
}

static enum error_code record_write_anew(struct audit_record *r, const struct record_item *item,
                                         struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (r->folder.n_files) { /* without entries it needs not be kept */
        code = record_write_head(r, record_wall_ms(), err);
        if (!code)
            code = record_set_aside(r, err);
    }
    if (!code)
        record_begin_behind(r, &item->end);
    return code;
}

static enum error_code record_write_gap(struct audit_record *r, const struct record_item *item,
                                        struct record_batch *batch, struct error *err)
{
    struct audit_seal gap = {.type = SEAL_GAP,
                             .first = item->before.number + 1,
                             .last = item->end.number,
                             .before = item->before.hash,
                             .hash = item->end.hash,
                             .time_ms = record_wall_ms()};
    const enum error_code code = seal_sign(&gap, r->folder.identity, err);
    if (!code)
        audit_write_seal(&gap, &batch->text);
    return code;
}

static enum error_code record_write_item(struct audit_record *r, const struct record_item *item,
                                         struct record_batch *batch, struct error *err)
{
    enum error_code code = ERROR_NONE;
    if (item->type != RECORD_ANEW && item->end.number <= r->folder.written.number)
        return ERROR_NONE; /* it was written before something failed */
    if (item->type == RECORD_ANEW) {
        code = record_write_batch(r, batch, err);
        return code ? code : record_write_anew(r, item, err);
    }
    if (!batch->text.size)
        batch->first = item->before.number + 1;
    if (item->type == RECORD_GAP)
        code = record_write_gap(r, item, batch, err);
    else
        buffer_append(&batch->text, item->line, item->size);
    batch->end = item->end;
    if (!code && batch->text.size >= LIMIT_AUDIT_SEGMENT_BYTES / 4)
        code = record_write_batch(r, batch, err);
    return code;
}

static enum error_code record_write(struct audit_record *r, struct record_item *items,
                                    struct error *err)
{
    struct record_batch batch = {0};
    enum error_code code = ERROR_NONE;
    bool damaged = false;
    if (!r->is_open)
        code = record_files_open(&r->folder, NULL, &damaged, err);
    if (!code && damaged)
        code = record_set_aside(r, err);
    if (!code && !r->folder.has_head)
        record_begin_behind(r, &items->before);
    for (struct record_item *item = items; item && !code; item = item->next)
        code = record_write_item(r, item, &batch, err);
    if (!code)
        code = record_write_batch(r, &batch, err);
    buffer_deinit(&batch.text);
    const uint64_t now_ms = record_wall_ms();
    pthread_mutex_lock(&r->lock);
    const uint32_t keep_days = r->keep_days;
    pthread_mutex_unlock(&r->lock);
    if (!code)
        code = record_write_head(r, now_ms, err);
    if (!code)
        code = record_files_drop(&r->folder, now_ms, keep_days, err);
    /* What a failed write or sync has left is not known: the files are looked at again. */
    r->is_open = !code;
    return code;
}

static void record_free_items(struct record_item *items)
{
    for (struct record_item *next; items; items = next) {
        next = items->next;
        mem_free(items);
    }
}

enum error_code record_flush(struct audit_record *r, struct error *err)
{
    enum error_code code = ERROR_NONE;
    pthread_mutex_lock(&r->disk);
    pthread_mutex_lock(&r->lock);
    struct record_item *items = r->first_item, **last = r->last_item;
    r->first_item = NULL;
    r->last_item = &r->first_item;
    pthread_mutex_unlock(&r->lock);
    if (items)
        code = record_write(r, items, err);
    pthread_mutex_lock(&r->lock);
    if (code) { /* in front of what has come meanwhile */
        *last = r->first_item;
        if (!r->first_item)
            r->last_item = last;
        r->first_item = items;
        items = NULL;
    }
    r->queued_bytes = 0;
    for (const struct record_item *item = r->first_item; item; item = item->next)
        r->queued_bytes += sizeof *item + item->size;
    pthread_mutex_unlock(&r->lock);
    pthread_mutex_unlock(&r->disk);
    record_free_items(items);
    return code;
}

/* ---- questions ---- */

struct audit_end record_end(const struct audit_record *record)
{
    return record->end; /* the owner's thread alone changes it */
}

bool record_is_due(const struct audit_record *record)
{
    struct audit_record *r = (struct audit_record *)(uintptr_t)record;
    pthread_mutex_lock(&r->lock);
    const bool due = r->first_item != NULL;
    pthread_mutex_unlock(&r->lock);
    return due;
}

void record_take_aside(struct audit_record *r, char *path, size_t size)
{
    pthread_mutex_lock(&r->lock);
    snprintf(path, size, "%s", r->aside);
    r->aside[0] = 0;
    pthread_mutex_unlock(&r->lock);
}

void record_keep_days(struct audit_record *r, uint32_t days)
{
    assert(days);
    pthread_mutex_lock(&r->lock);
    r->keep_days = days;
    pthread_mutex_unlock(&r->lock);
}

/* ---- opening and closing ---- */

enum error_code record_open(const char *folder, const struct identity *identity,
                            struct audit_record **out, struct error *err)
{
    struct audit_record *r = mem_new(sizeof *r);
    bool damaged = false;
    *out = NULL;
    if (!r)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the audit record");
    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->disk, NULL);
    r->last_item = &r->first_item;
    r->keep_days = LIMIT_AUDIT_DAYS;
    r->folder.fd = -1;
    r->folder.identity = identity;
    snprintf(r->folder.path, sizeof r->folder.path, "%s", folder);
    enum error_code code = record_files_open(&r->folder, r->recent, &damaged, err);
    if (!code && damaged) {
        memset(r->recent, 0, sizeof r->recent);
        code = record_files_aside(&r->folder, r->aside, sizeof r->aside, err);
    }
    if (code) {
        record_close(r);
        return code;
    }
    r->end = r->folder.written;
    r->is_open = true;
    *out = r;
    return ERROR_NONE;
}

void record_close(struct audit_record *r)
{
    struct error err;
    if (!r)
        return;
    if (r->is_open && r->first_item && record_flush(r, &err))
        log_line(LOG_WARN, "audit", "%s", err.text);
    record_free_items(r->first_item);
    record_files_close(&r->folder);
    pthread_mutex_destroy(&r->lock);
    pthread_mutex_destroy(&r->disk);
    mem_free(r);
}
