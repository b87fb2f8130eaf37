/* A model's file in a smaller type, whole, in this machine's own store (STATE/models), for a
 * process that is no node: made of the original once, and used again by whoever asks for the same
 * bytes in the same type, a node too, which calls it the same (converted.h).
 *
 * The original is hashed first, unless its manifest is cached; what is recorded of the smaller file
 * is whole, whatever happened to the process or the machine (shelf.h). Room is made as for fetched
 * models: within the limit that the machine's node was last started with, 1 GiB of the disk stays
 * free, and models that nobody uses go first.
 *
 * While it is open nobody removes it. On one thread. */
#pragma once

#include "weights/shelf.h"

struct model;

struct version_file { /* zeroed: none */
    struct shelf *shelf;
    struct shelf_model *kept;
    struct model *model; /* opened from it: as stored there */
    uint64_t bytes;      /* that were converted now; 0: all was here */
    double took_s;       /* for that, with hashing the original */
};

/* ERROR_UNSUPPORTED: that type makes nothing smaller. ERROR_BUSY: another process writes it, or
 * there is no room within the limit. ERROR_IO, ERROR_INVALID: as shelf.h and converting.h. */
enum error_code version_file_open(const struct model *original, int type, struct version_file *out,
                                  struct error *err);
void version_file_close(struct version_file *file); /* zeroed is fine */

/* The node's limit for all models of the store, told to those that come later; 0: none. Failure is
 * logged: they know of no limit then. */
void version_limit_tell(const char *state, uint64_t bytes);
