/* One node's record of who did what, on its disk: a folder of lines (entry.h, seal.h).
 *
 *     audit/head                          the head, signed by this node; replaced with each write
 *     audit/00000000000000000001.jsonl    entries and gaps; named by the first of them
 *     audit/00000000000000004711.jsonl    … a new file each LIMIT_AUDIT_SEGMENT_BYTES
 *
 * Durability. record_flush() returns when what was appended before is there whatever happens to
 * process, kernel or power: lines synced, then the head that covers them. What lies behind the head
 * after a crash is kept as far as it is whole, else cut off: the log gives it again, since no
 * snapshot takes the log's place before record_flush() has returned (agreement.h: before_snapshot).
 *
 * It never mends what it had signed. A head that is not there, is not signed by this node or does
 * not fit its lines, and entries that the cluster no longer agrees on (a log that was given up) are
 * set aside: the folder becomes audit.aside-N, and a new one begins where the cluster is. What is
 * kept too long, or is more than LIMIT_AUDIT_BYTES, goes from the old end, a file at a time; the
 * head says with which entry it begins.
 *
 * Threads: record_flush() on any one, at most one at a time waits for the disk; all else on the
 * owner's thread, which never waits. */
#pragma once

#include "audit/seal.h"
#include "base/error.h"

struct audit_record;

/* `identity` signs, and must outlive it. ERROR_INVALID: a file that is not this user's, or that
 * others can read. ERROR_IO, ERROR_NO_MEMORY. */
enum error_code record_open(const char *folder, const struct identity *identity,
                            struct audit_record **out, struct error *err);
/* Flushes first, as well as it can. NULL is fine. */
void record_close(struct audit_record *record);

/* The next entries that the cluster has agreed on. Those that it has already are passed over, since
 * the log is applied again after a start. */
void record_append(struct audit_record *record, const struct audit_entry *entries, uint32_t n);
/* The state was learned as a whole, and says that the record ends there: what lacks becomes a gap.
 * `anew`: in another lineage of the log, so nobody knows whether this record is a part of it. */
void record_follow(struct audit_record *record, const struct audit_end *agreed, bool anew);
void record_keep_days(struct audit_record *record, uint32_t days);

struct audit_end record_end(const struct audit_record *record); /* with what is not written yet */
bool record_is_due(const struct audit_record *record);          /* something is to be flushed */
/* Where the record was that was set aside since this was asked last; "": none was. */
void record_take_aside(struct audit_record *record, char *path, size_t size);

/* ERROR_IO: it is tried again with the next call. */
enum error_code record_flush(struct audit_record *record, struct error *err);

/* ---- reading one, of any node, running or not ---- */

/* Calls `line` for the head and then for each line, without its line feed, from the entry `from` on
 * (0: from the first; a few before it may come). A last line that is not whole yet is left out
 * where `running`. False from `line` ends it. A file instead of a folder: an export, all of it.
 * ERROR_NOT_FOUND: no record there. ERROR_INVALID: a line longer than AUDIT_LINE_BYTES is given as
 * its first bytes, so that it is found. */
enum error_code record_read(const char *path, uint64_t from, bool running,
                            bool (*line)(void *arg, const char *line, size_t size), void *arg,
                            struct error *err);
