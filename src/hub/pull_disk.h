/* A file that is being pulled, on disk: FILE.part, FILE.pull and FILE.live (hub/shelf.h).
 *
 * What a power cut leaves: FILE.pull counts only bytes that were synced before it was replaced.
 * What kill -9 leaves: FILE.live is a mapped table of how much of each piece is here, written after
 * each write of bytes. The kernel keeps both, so nothing that arrived is fetched again; it counts
 * only in the boot in which it was written, since a power cut may keep it and lose the bytes.
 * What a bad disk leaves: pull_disk_find_damage() names the pieces that are not as they came.
 *
 *     pull_disk_open(&disk, "/…/FILE.gguf", &err)              flock() on FILE.part; makes folders
 *     pull_disk_begin(&disk, &state, &resumed, &err)           takes what an earlier pull left
 *     … pull_disk_write(); now and then pull_disk_sync() …
 *     pull_disk_finish(&disk, &err)                            FILE.gguf is there, the others gone
 *     pull_disk_close(&disk)                                   what is not finished stays
 *
 * One thread. */
#pragma once

#include "hub/pull_state.h"

#include <limits.h>

struct pull_live;

struct pull_disk {
    char path[PATH_MAX];    /* of FILE.gguf */
    int part;               /* its descriptor; locked */
    struct pull_live *live; /* NULL: this file system maps none; then kill -9 costs a sync's time */
    uint64_t unsynced;      /* bytes since the last sync */
    bool is_open;
};

/* ERROR_BUSY: another process pulls this file, and did not end in three seconds. */
enum error_code pull_disk_open(struct pull_disk *disk, const char *path, struct error *err);
void pull_disk_close(struct pull_disk *disk); /* a zeroed one is fine */

/* state: initialised, with url, etag and sha256 as the hub says now. What an earlier pull left of
 * the same file is added to it; what it left of another is dropped. */
enum error_code pull_disk_begin(struct pull_disk *disk, struct pull_state *state, bool *resumed,
                                struct error *err);

/* The next bytes of a piece; they have to fit. */
enum error_code pull_disk_write(struct pull_disk *disk, struct pull_state *state, uint32_t piece,
                                const void *bytes, size_t size, struct error *err);
/* Nothing of the piece counts any more. */
void pull_disk_forget(struct pull_disk *disk, struct pull_state *state, uint32_t piece);
enum error_code pull_disk_sync(struct pull_disk *disk, const struct pull_state *state,
                               struct error *err);

/* Bytes that came from the network for this file, earlier pulls included where it is known. */
uint64_t pull_disk_received(const struct pull_disk *disk);

/* Forgets pieces whose bytes are not as they came. *n: how many. */
enum error_code pull_disk_find_damage(struct pull_disk *disk, struct pull_state *state, uint32_t *n,
                                      struct error *err);

enum error_code pull_disk_finish(struct pull_disk *disk, struct error *err);
void pull_disk_discard(struct pull_disk *disk); /* all three files go */
/* The file is there: what a crash just after that left goes, unless it is pulled anew. */
void pull_disk_tidy(const char *path);
