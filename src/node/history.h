/* The last minute of a device, which its own node keeps (heat/recent.h): asked for here, or there
 * over the link. On the loop's thread. */
#pragma once

#include "base/live_feed.h"
#include "mesh/mesh.h"
#include "node.pb-c.h"

struct daemon;
struct peer;

enum { HISTORY_ASKED_MAX = 32, HISTORY_WAIT_MS = 5000, HISTORY_VALUES_MAX = 240 };

struct history_question {
    uint64_t id, until_ms; /* id 0: the row is free */
    const struct peer *peer;
    live_history_fn *done;
    void *arg;
};

struct history {
    uint64_t n_asked;
    struct history_question questions[HISTORY_ASKED_MAX];
};

/* As live_feed.history() and cancel_history(). */
void history_ask(struct daemon *daemon, const char *node, const char *device, live_history_fn *done,
                 void *arg);
void history_cancel(struct daemon *daemon, void *arg);

void history_tick(struct daemon *daemon); /* what was asked for too long ago has failed */
void history_lost(struct daemon *daemon, const struct peer *peer); /* its link is down */

/* FRAME_HISTORY_ASK, FRAME_HISTORY. */
enum error_code history_take(struct daemon *daemon, struct peer *peer,
                             const struct frame_header *header, const uint8_t *payload,
                             struct error *err);

/* ---- pure ---- */
/* ERROR_INVALID: no such minute. */
enum error_code history_check(const Node__HistoryAnswer *answer, struct error *err);
/* For people, as docs/monitoring.md says; `wall_ms` is when it was heard. */
void history_write(const Node__HistoryAnswer *answer, uint64_t wall_ms, struct buffer *out);
