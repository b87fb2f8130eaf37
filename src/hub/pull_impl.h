/* The inside of a pull: its rounds and its hash (pull.c), connections (pull_run.c), one answer
 * (pull_stream.c). */
#pragma once

#include "hub/pull.h"
#include "hub/pull_disk.h"
#include "hub/pull_hash.h"
#include "hub/pull_schedule.h"
#include "hub/pull_some.h"

enum pull_flaw {
    PULL_NO_FLAW,
    PULL_ODD,     /* an answer that is none to the question */
    PULL_CHANGED, /* another version of the file */
    PULL_DISK,    /* its text is in the pull */
};

struct pull_stream {
    struct pull *pull;
    CURL *easy;
    struct curl_slist *headers;
    struct http_head head;
    struct http_place place;
    char problem[CURL_ERROR_SIZE];
    struct pull_span span;
    uint64_t at;           /* the next byte */
    bool is_busy, is_open; /* asking; its head was looked at */
    bool is_direct;        /* asks where the first answer came from */
    enum pull_flaw flaw;
    uint64_t not_before_ns;
};

struct pull {
    const struct pull_order *order;
    const struct pull_watch *watch;
    struct pull_wish *wish; /* NULL: all of the file is wanted */
    struct pull_state state;
    struct pull_disk disk;
    bool asked[PULL_PIECES];
    bool skipped[PULL_PIECES]; /* with a wish: asked for, or not wanted */
    bool has_ranges;
    char direct[HTTP_URL]; /* where a redirect led, without token; "": nowhere else */
    CURLM *multi;
    struct pull_stream streams[PULL_CONNECTIONS_MAX];
    uint32_t n_streams;
    uint32_t failures; /* in a row */
    uint64_t received, received_at_failure;
    uint64_t reported_ns, synced_ns;
    uint64_t rate_ns, rate_bytes; /* where the speed was looked at last */
    double bytes_per_s;
    struct pull_hash *hash; /* of what is here; NULL: not now */
    uint32_t n_whole;       /* pieces from the start that are here */
    struct error err;       /* PULL_DISK */
};

/* pull_stream.c */
enum error_code pull_stream_start(struct pull_stream *stream, const struct pull_span *span,
                                  struct error *err);
void pull_stream_stop(struct pull_stream *stream); /* not busy: fine */

/* pull.c: what the server and the hub say of the file, into the state. */
enum error_code pull_learn(struct pull *pull, struct error *err);
void pull_free(struct pull *pull);

/* pull_run.c: until all pieces are here; with a wish, until it is to stop. */
enum error_code pull_run(struct pull *pull, struct error *err);
void pull_report(struct pull *pull, uint64_t done, bool is_checking);
