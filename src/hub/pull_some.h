/* Pulls some pieces of a file, those that another thread wishes for, into the same FILE.gguf.part
 * as pull_file(): what is here of it counts for either. Nothing gets the file's name.
 *
 *     pull_some(&order, &wish, &err)              on a thread of its own, until wish.stop
 *     pull_some_release(path, part, &err)         the bytes are somebody else's from here on
 *     pull_some_drop(path)                        or nobody's
 *
 * The server has to answer ranges. Which bytes are right is for the caller to find out. */
#pragma once

#include "hub/pull.h"

#include <limits.h>
#include <stdatomic.h>

#define PULL_WISH_SPAN_BYTES (UINT64_C(8) << 20)

struct pull_wish {
    _Atomic(uint8_t) wanted[PULL_PIECES]; /* any thread */
    atomic_bool stop;                     /* any thread */
    /* What is here, four times a second and at the end, on the thread that pulls. The first call
     * comes before anything is asked for, and says how the file is cut. */
    void (*each)(void *arg, const struct pull_state *state, double bytes_per_s);
    void *arg;
};

/* Until it is to stop, or cannot go on. Errors of pull_file(); ERROR_UNSUPPORTED: the server knows
 * no ranges. */
enum error_code pull_some(const struct pull_order *order, struct pull_wish *wish,
                          struct error *err);
/* What lies beside the file's bytes goes, and they are no pull's any more; part: where they are. */
enum error_code pull_some_release(const char *path, char part[PATH_MAX], struct error *err);
void pull_some_drop(const char *path);
