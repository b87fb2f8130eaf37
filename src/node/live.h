/* The cluster as people see it live: one JSON view (docs/monitoring.md says what is in it), and
 * whoever watches it (base/live_feed.h).
 *
 * The view is built about twice a second, soon after something was heard, and only while somebody
 * watches. It has objects keyed by
 * id; what is not known is missing. Others' readings are what they told last. Arrays are replaced
 * whole.
 *
 * On the loop's thread. */
#pragma once

#include "base/limits.h"
#include "base/live_feed.h"

#include <yyjson.h>

struct daemon;
struct live;

enum {
    LIVE_LOOK_MS = 50,   /* while somebody watches */
    LIVE_SOON_MS = 450,  /* between two views where something was heard … */
    LIVE_LATE_MS = 1000, /* … and where nothing was */
    LIVE_FORECAST_MS = 5000,
};

enum error_code live_open(struct daemon *daemon, struct live **out, struct error *err);
/* Nobody may watch any more. */
void live_close(struct live *live, void (*closed)(struct daemon *daemon));

struct live_feed live_feed_of(struct live *live);
bool live_is_watched(const struct live *live); /* NULL: no */
/* Something that it shows is another. NULL: nothing. */
void live_touch(struct live *live);
/* An event was noted (control_events.c): its watchers are told. */
void live_note_event(struct live *live, const char *event, size_t size);

/* What an instance's placement was last forecast to do, asked anew now and then. */
struct live_forecast {
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    uint64_t epoch, asked_ms;
    double decode_tokens_per_s, prefill_tokens_per_s; /* 0: not known */
};
struct live_forecast live_forecast_of(struct live *live, const char *instance);

/* ---- live_view.c ---- */
/* A new document; NULL: no memory. */
yyjson_mut_doc *live_view_make(struct live *live, struct daemon *daemon);
/* Adds "totals" as the view has them. */
void live_put_totals(struct daemon *daemon, yyjson_mut_doc *doc, yyjson_mut_val *root);
