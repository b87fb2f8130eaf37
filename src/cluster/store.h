/* A replica's log, term, vote, snapshot and lineage on disk: one SQLite file that holds nothing
 * else.
 *
 * Durability. store_write() returns when everything of the write, or, after an error, nothing of
 * it, will be there again whatever happens to process, kernel or power. It is one transaction in
 * WAL mode with synchronous=FULL: the log file's fsync is what COMMIT waits for, once a write. (A
 * rollback journal needs three of them for the same promise. WAL with synchronous=NORMAL would not
 * sync at COMMIT at all: a vote could be forgotten.) A sector that is being written when the power
 * goes may be lost as a whole, with what was acknowledged in it: SQLite, which by default trusts
 * disks not to do that, is told to begin each commit in a sector of its own. The file is held
 * exclusively: a second process is refused, and no shared memory is needed beside it.
 *
 * After a write has failed (disk full, I/O error) the store refuses all further ones, since nobody
 * can say what a failed fsync left in the kernel's cache. What was acknowledged before is there;
 * close it and open it again. The write that failed is then there as a whole or not at all, and may
 * still come or go with a loss of power until the next is acknowledged. (One hole is left, of three
 * failures in a row: a failed fsync, a kill before the file was closed, and, while the next process
 * opens it, a loss of power. The seal finds that, and the file is refused.)
 *
 * It is never silently empty. store_create() makes a complete file beside the path and renames it;
 * so a file that is there but is empty, cut off or not a store is an error of store_open(), and so
 * is one that is missing. Every row has a checksum, every index must follow the last: what bit rot
 * does to a page is an error of store_load(). (Not seen is bit rot in the last committed pages
 * before they are moved out of the WAL: SQLite ends the WAL there. It is moved at every open and
 * every 1,000 pages.) The row with term and vote seals them all (store_sums.h): pages of different
 * moments, as a disk leaves them that lies about its syncs, are an error, too. What such a disk
 * cannot be caught at is a file that is as a whole what it once was.
 *
 * The member id is made with the file and never changes: a node whose file was lost is another
 * member.
 *
 * Blocking: for a worker thread. One thread at a time. */
#pragma once

#include "cluster/log.h"

struct store;

/* A new file; ERROR_INVALID: the path is taken. `member` is random and not 0. */
enum error_code store_create(const char *path, uint64_t member, struct error *err);

/* ERROR_NOT_FOUND: no such file. ERROR_INVALID: it is not a store, is damaged, or is of a later
 * version. ERROR_BUSY: another process has it open. ERROR_IO. */
enum error_code store_open(const char *path, struct store **out, struct error *err);
void store_close(struct store *store); /* NULL is fine */

uint64_t store_member(const struct store *store);

/* All that is there; the caller clears it. ERROR_INVALID: damaged. ERROR_NO_MEMORY, ERROR_IO. */
enum error_code store_load(struct store *store, struct log_saved *out, struct error *err);

/* A log that a higher lineage took the place of (log_write.aside): the last one (`back` 0), or the
 * one before it (1); older ones are gone. ERROR_NOT_FOUND: there is none. Else as store_load(). */
enum error_code store_load_aside(struct store *store, uint32_t back, struct log_saved *out,
                                 struct error *err);

/* See struct log_write. ERROR_IO: nothing of it was written. ERROR_INVALID: its entries do not
 * follow. */
enum error_code store_write(struct store *store, const struct log_write *write, struct error *err);
