/* A view that changes while somebody watches it: what its owner (the node) and those who pass it on
 * (the API, the control socket) agree on, so that neither knows the other.
 *
 * The view is one JSON object; unknown is missing, never null and never zero. A watcher is told of
 * each change as a JSON Merge Patch (base/merge_patch.h) against the view as it was before, at most
 * twice a second, and of each event as a JSON object. It takes view() once, after watch(), and then
 * follows; one that has missed a change takes view() anew.
 *
 * All on the loop's thread; watch() and unwatch() also from within a watcher's functions. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

struct live_watcher { /* the watcher's memory, from watch() to unwatch() */
    void (*changed)(struct live_watcher *watcher, const char *patch, size_t size);
    void (*event)(struct live_watcher *watcher, const char *event, size_t size);
    struct live_watcher *next; /* the feed's */
};

/* The last minute of one device; NULL with an error. The text is good during the call. */
typedef void live_history_fn(void *arg, const char *text, size_t size, const struct error *err);

struct live_feed { /* zeroed: there is none */
    void (*watch)(void *self, struct live_watcher *watcher);
    void (*unwatch)(void *self, struct live_watcher *watcher);
    void (*view)(void *self, struct buffer *out);
    /* The last `n` events, oldest first. */
    void (*events)(void *self, uint32_t n, void (*each)(void *arg, const char *event, size_t size),
                   void *arg);
    /* `done` comes once, at once or later, unless it is cancelled. ERROR_NOT_FOUND: no such node or
     * device; ERROR_IO: it does not answer. NULL: nobody knows. */
    void (*history)(void *self, const char *node, const char *device, live_history_fn *done,
                    void *arg);
    void (*cancel_history)(void *self, void *arg);
    void *self;
};
