/* The inside of a record, for record*.c alone.
 *
 * Invariants
 *  1. `end` is where the record is when all of the queue is written; the queue's items follow one
 *     another.
 *  2. `files` are in order, and the last is the one that is appended to.
 *  3. What is before `end` of `head` is never written again. */
#pragma once

#include "audit/record.h"

#include <limits.h>
#include <pthread.h>

enum {
    RECORD_RECENT = 4096,   /* entries whose hashes are known */
    RECORD_FILES_MAX = 256, /* more than LIMIT_AUDIT_BYTES can need */
    RECORD_ASIDE_MAX = 8,
};

struct record_file {
    uint64_t first, bytes, changed_ms;
};

struct record_folder { /* what is on the disk; who holds `disk` has it */
    char path[PATH_MAX];
    const struct identity *identity;
    struct record_file files[RECORD_FILES_MAX];
    uint32_t n_files;
    int fd; /* of the last of them, to append; -1: not open */
    bool has_head;
    struct audit_seal head;   /* as it is on the disk */
    struct audit_end written; /* may be behind what the head covers */
};

enum record_item_type { RECORD_LINE, RECORD_GAP, RECORD_ANEW };

struct record_item {
    struct record_item *next;
    enum record_item_type type;
    struct audit_end before, end; /* GAP: what it is between; ANEW: where it begins, twice */
    size_t size;
    char line[];
};

struct audit_record {
    pthread_mutex_t lock; /* of what follows, for moments */
    struct audit_end end;
    bool lost; /* entries were dropped: a gap is due */
    uint32_t keep_days;
    struct record_item *first_item, **last_item;
    size_t queued_bytes;
    struct audit_end recent[RECORD_RECENT]; /* by number */
    char aside[PATH_MAX];

    pthread_mutex_t disk; /* of the folder, while it is written */
    struct record_folder folder;
    bool is_open; /* its files are known to be as `folder` says */
};

/* ---- record_files.c: the folder ---- */
/* What is there; what was torn behind the head is cut off. Sets `damaged` where it must be set
 * aside. `recent` may be NULL. */
enum error_code record_files_open(struct record_folder *folder, struct audit_end *recent,
                                  bool *damaged, struct error *err);
void record_files_close(struct record_folder *folder);
enum error_code record_files_aside(struct record_folder *folder, char *aside, size_t size,
                                   struct error *err);
/* Behind what is there; `first` is the first of its entries. */
enum error_code record_files_append(struct record_folder *folder, uint64_t first,
                                    const struct buffer *lines, struct error *err);
enum error_code record_files_sync(struct record_folder *folder, struct error *err);
enum error_code record_files_head(struct record_folder *folder, const struct audit_end *end,
                                  uint64_t now_ms, struct error *err);
/* Drops files from the old end, after the head says so. */
enum error_code record_files_drop(struct record_folder *folder, uint64_t now_ms, uint32_t days,
                                  struct error *err);
/* The folder's names of entries, in order. */
enum error_code record_files_list(const char *path, struct record_file *files, uint32_t *n,
                                  struct error *err);
void record_file_path(const char *folder, uint64_t first, char out[PATH_MAX]);
