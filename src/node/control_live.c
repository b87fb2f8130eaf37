/* The cluster as it is now, and as it changes: for `medley top --cluster` and `medley heat`. */
#include "node/control.h"

#include "base/mem.h"
#include "node/live.h"

enum { LIVE_QUEUE_BYTES = 1 << 20 }; /* unread: it gets no changes, and a whole view later */

struct control_watch {
    struct live_watcher watcher; /* first */
    struct conversation *conversation;
    bool is_behind;
};

static void control_live_gone(struct conversation *conversation)
{
    struct control_watch *watch = conversation->data;
    const struct live_feed feed = live_feed_of(conversation->daemon->live);
    feed.unwatch(feed.self, &watch->watcher);
    mem_free(watch);
}

static void control_live_send(struct conversation *conversation, const char *key, const char *text,
                              size_t size)
{
    struct buffer line = {0};
    buffer_printf(&line, "{\"%s\":", key);
    buffer_append(&line, text, size);
    buffer_text(&line, "}\n");
    if (!line.failed)
        control_send(conversation, line.data, line.size);
    buffer_deinit(&line);
}

static void control_live_show(struct conversation *conversation)
{
    const struct live_feed feed = live_feed_of(conversation->daemon->live);
    struct buffer view = {0};
    feed.view(feed.self, &view);
    if (!view.failed)
        control_live_send(conversation, "snapshot", view.data, view.size);
    buffer_deinit(&view);
}

static void control_live_changed(struct live_watcher *watcher, const char *patch, size_t size)
{
    struct control_watch *watch = (struct control_watch *)watcher;
    struct conversation *conversation = watch->conversation;
    if (conversation->queued > LIVE_QUEUE_BYTES) {
        watch->is_behind = true;
    } else if (watch->is_behind) {
        watch->is_behind = false;
        control_live_show(conversation);
    } else {
        control_live_send(conversation, "change", patch, size);
    }
}

static void control_live_event(struct live_watcher *watcher, const char *event, size_t size)
{
    struct control_watch *watch = (struct control_watch *)watcher;
    if (watch->conversation->queued <= LIVE_QUEUE_BYTES)
        control_live_send(watch->conversation, "event", event, size);
}

void control_live(struct conversation *conversation, yyjson_val *request)
{
    const struct live_feed feed = live_feed_of(conversation->daemon->live);
    struct error err;
    struct control_watch *watch = mem_new(sizeof *watch);
    if (!watch) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for the view");
        control_fail(conversation, &err);
        return;
    }
    *watch = (struct control_watch){
        .watcher = {.changed = control_live_changed, .event = control_live_event},
        .conversation = conversation};
    conversation->data = watch;
    conversation->calls = (struct conversation_calls){.gone = control_live_gone};
    feed.watch(feed.self, &watch->watcher);
    control_live_show(conversation);
}
