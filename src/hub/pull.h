/* Pulls one file: several connections, each asking for ranges; resumed after anything; nothing is
 * there under its name before all of it is and, where its SHA-256 is known, has it.
 *
 * Bytes that arrived are not asked for again, also after kill -9; after a power cut those of the
 * last PULL_SYNC_MS may be. Where the hash does not fit, the pieces that the disk has changed are
 * found by their sums and fetched again. Where there are none, the server has sent wrong bytes, and
 * the file's one hash does not say which: ranges are then fetched again one after the other until
 * it fits. A file that is still wrong is removed.
 *
 * What a server may answer: 206 with the range that was asked for, of a file of that size, with the
 * same ETag; or, to the whole, 200. All else is a failure, which is tried again where that makes
 * sense, after growing pauses or as long as Retry-After says. The caller's thread, and one that
 * hashes. */
#pragma once

#include "hub/http.h"
#include "hub/pull_state.h"

enum {
    PULL_CONNECTIONS = 4,
    PULL_CONNECTIONS_MAX = 16,
    PULL_ATTEMPTS = 10, /* in a row, without a byte */
    PULL_SYNC_MS = 5000,
    PULL_REPORT_MS = 250,
    PULL_MARGIN_BYTES = 64 << 20, /* of the disk are left free */
};

struct pull_order {
    const char *url;
    const char *path; /* where to */
    const char *what; /* its name for people */
    struct http_place place;
    uint64_t size;                  /* 0: the server says */
    const char *sha256;             /* NULL or "": nobody knows it */
    uint32_t connections, attempts; /* 0: as above */
};

struct pull_progress {
    const char *what;
    uint64_t done, size; /* bytes that are here or, when checking, were checked */
    uint64_t received;   /* bytes that came by this call */
    double bytes_per_s;  /* of the last seconds; 0: not known */
    bool is_checking;
};
struct pull_watch {
    void (*each)(void *arg, const struct pull_progress *progress); /* NULL: nobody looks */
    void *arg;
};

struct pull_result {
    uint64_t size, received;  /* bytes; received also by earlier calls, where that is known */
    bool resumed, is_checked; /* is_checked: by a SHA-256 of the hub's or the user's */
};

/* ERROR_BUSY: another process pulls it, or the server turns everybody away. ERROR_IO: no network,
 * or no room. ERROR_INVALID: wrong bytes, or a URL that is refused. */
enum error_code pull_file(const struct pull_order *order, const struct pull_watch *watch,
                          struct pull_result *out, struct error *err);
/* Whether the disk of `path` has room for so many more bytes. */
enum error_code pull_check_room(const char *path, uint64_t bytes, struct error *err);
