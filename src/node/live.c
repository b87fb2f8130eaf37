#include "node/live.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "base/merge_patch.h"
#include "node/control.h"
#include "node/lead.h"
#include "node/telling.h"
#include "placing/placing.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

struct live {
    struct daemon *daemon;
    uv_timer_t timer;
    struct live_watcher *watchers, *told_next; /* the next to be told, while one is */
    yyjson_mut_doc *view;                      /* as watchers have it; NULL: nobody watches */
    uint64_t built_ms;
    bool is_touched;
    struct live_forecast forecasts[LIMIT_CLUSTER_INSTANCES];
    uint32_t n_forecasts;
    void (*closed)(struct daemon *daemon);
};

/* ---- forecasts ------------------------------------------------------------------------------- */

static struct live_forecast *live_find_forecast(struct live *live, const char *instance)
{
    for (uint32_t i = 0; i < live->n_forecasts; i++) {
        if (strcmp(live->forecasts[i].instance, instance) == 0)
            return &live->forecasts[i];
    }
    if (live->n_forecasts == LIMIT_CLUSTER_INSTANCES)
        live->n_forecasts = 0; /* of instances that went: all are asked anew */
    struct live_forecast *made = &live->forecasts[live->n_forecasts++];
    *made = (struct live_forecast){0};
    snprintf(made->instance, sizeof made->instance, "%s", instance);
    return made;
}

struct live_forecast live_forecast_of(struct live *live, const char *instance)
{
    struct daemon *daemon = live->daemon;
    struct live_forecast *known = live_find_forecast(live, instance);
    const Cluster__Instance *of = state_instance(daemon_state(daemon), instance);
    const uint64_t now_ms = daemon_now_ms(daemon);
    struct placement_forecast forecast;
    if (!of || !of->current)
        return (struct live_forecast){0};
    if (known->epoch == of->current->epoch && now_ms - known->asked_ms < LIVE_FORECAST_MS)
        return *known;
    known->epoch = of->current->epoch;
    known->asked_ms = now_ms;
    known->decode_tokens_per_s = known->prefill_tokens_per_s = 0;
    if (!placing_forecast(daemon_placing_view(daemon), of, of->current, &forecast, NULL)) {
        known->decode_tokens_per_s = forecast.decode_tokens_per_s;
        known->prefill_tokens_per_s = forecast.prefill_tokens_per_s;
    }
    return *known;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void live_tell_change(struct live *live, const char *patch, size_t size)
{
    for (struct live_watcher *at = live->watchers; at; at = live->told_next) {
        live->told_next = at->next;
        at->changed(at, patch, size);
    }
    live->told_next = NULL;
}

void live_note_event(struct live *live, const char *event, size_t size)
{
    if (!live)
        return;
    for (struct live_watcher *at = live->watchers; at; at = live->told_next) {
        live->told_next = at->next;
        at->event(at, event, size);
    }
    live->told_next = NULL;
}

/* Without memory the view stays as it was, and the next turn says all that changed. */
static void live_rebuild(struct live *live)
{
    yyjson_mut_doc *view = live_view_make(live, live->daemon);
    yyjson_mut_doc *patch = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = NULL;
    size_t size = 0;
    char *text = NULL;
    live->built_ms = daemon_now_ms(live->daemon);
    if (view && patch &&
        merge_patch_make(patch, yyjson_mut_doc_get_root(live->view), yyjson_mut_doc_get_root(view),
                         &root) &&
        root) {
        yyjson_mut_doc_set_root(patch, root);
        text = yyjson_mut_write_opts(patch, YYJSON_WRITE_ALLOW_INVALID_UNICODE, &json_memory, &size,
                                     NULL);
    }
    if (text) {
        yyjson_mut_doc_free(live->view);
        live->view = view;
        view = NULL;
        live_tell_change(live, text, size);
    }
    yyjson_mut_doc_free(view);
    yyjson_mut_doc_free(patch);
    mem_free(text);
}

void live_touch(struct live *live)
{
    if (live)
        live->is_touched = true;
}

static void live_on_time(uv_timer_t *timer)
{
    struct live *live = timer->data;
    const uint64_t since_ms = daemon_now_ms(live->daemon) - live->built_ms;
    telling_ask(live->daemon);
    if (since_ms < (live->is_touched ? LIVE_SOON_MS : LIVE_LATE_MS))
        return;
    live->is_touched = false;
    if (live->view)
        live_rebuild(live);
    else
        live->view = live_view_make(live, live->daemon);
}

/* ---- the feed -------------------------------------------------------------------------------- */

static void live_watch(void *self, struct live_watcher *watcher)
{
    struct live *live = self;
    const bool is_first = !live->watchers;
    watcher->next = live->watchers;
    live->watchers = watcher;
    if (!is_first)
        return;
    assert(!live->view);
    live->view = live_view_make(live, live->daemon);
    telling_begin(live->daemon);
    uv_timer_start(&live->timer, live_on_time, LIVE_LOOK_MS, LIVE_LOOK_MS);
}

static void live_unwatch(void *self, struct live_watcher *watcher)
{
    struct live *live = self;
    struct live_watcher **at = &live->watchers;
    while (*at && *at != watcher)
        at = &(*at)->next;
    if (!*at)
        return;
    *at = watcher->next;
    if (live->told_next == watcher)
        live->told_next = watcher->next;
    if (live->watchers)
        return;
    uv_timer_stop(&live->timer);
    telling_end(live->daemon);
    yyjson_mut_doc_free(live->view);
    live->view = NULL;
}

static void live_show(void *self, struct buffer *out)
{
    struct live *live = self;
    size_t size = 0;
    char *text = live->view ? yyjson_mut_write_opts(live->view, YYJSON_WRITE_ALLOW_INVALID_UNICODE,
                                                    &json_memory, &size, NULL)
                            : NULL;
    if (text)
        buffer_append(out, text, size);
    else
        out->failed = true;
    mem_free(text);
}

static void live_events(void *self, uint32_t n,
                        void (*each)(void *arg, const char *event, size_t size), void *arg)
{
    control_each_event(((struct live *)self)->daemon, n, each, arg);
}

static void live_history(void *self, const char *node, const char *device, live_history_fn *done,
                         void *arg)
{
    history_ask(((struct live *)self)->daemon, node, device, done, arg);
}

static void live_cancel_history(void *self, void *arg)
{
    history_cancel(((struct live *)self)->daemon, arg);
}

struct live_feed live_feed_of(struct live *live)
{
    return (struct live_feed){.watch = live_watch,
                              .unwatch = live_unwatch,
                              .view = live_show,
                              .events = live_events,
                              .history = live_history,
                              .cancel_history = live_cancel_history,
                              .self = live};
}

bool live_is_watched(const struct live *live)
{
    return live && live->watchers;
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code live_open(struct daemon *daemon, struct live **out, struct error *err)
{
    struct live *live = mem_new(sizeof *live);
    if (!live)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a node");
    live->daemon = daemon;
    uv_timer_init(daemon->loop, &live->timer);
    live->timer.data = live;
    *out = live;
    return ERROR_NONE;
}

static void live_on_closed(uv_handle_t *handle)
{
    struct live *live = handle->data;
    struct daemon *daemon = live->daemon;
    void (*closed)(struct daemon *) = live->closed;
    mem_free(live);
    closed(daemon);
}

void live_close(struct live *live, void (*closed)(struct daemon *daemon))
{
    assert(!live->watchers);
    live->closed = closed;
    yyjson_mut_doc_free(live->view);
    live->view = NULL;
    uv_close((uv_handle_t *)&live->timer, live_on_closed);
}
