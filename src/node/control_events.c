/* What the cluster has agreed on lately, and what it agrees on now. */
#include "node/control.h"

#include "base/json_memory.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "node/live.h"

#include <stdio.h>
#include <string.h>

enum { EVENTS_KEPT = 512 };

struct event_line {
    uint64_t index, time_ms;
    char by[64], actor[AUDIT_WHO_TEXT], text[512];
    bool applied;
};

struct events {
    uint32_t n; /* ever */
    struct event_line lines[EVENTS_KEPT];
};

static void control_events_put(yyjson_mut_doc *doc, yyjson_mut_val *root,
                               const struct event_line *line)
{
    yyjson_mut_obj_add_uint(doc, root, "index", line->index);
    yyjson_mut_obj_add_uint(doc, root, "time_ms", line->time_ms);
    if (line->by[0])
        yyjson_mut_obj_add_strcpy(doc, root, "by", line->by);
    else
        yyjson_mut_obj_add_null(doc, root, "by");
    if (line->actor[0])
        yyjson_mut_obj_add_strcpy(doc, root, "actor", line->actor);
    yyjson_mut_obj_add_strcpy(doc, root, "text", line->text);
}

static void put_line(struct conversation *conversation, const struct event_line *line)
{
    yyjson_mut_doc *doc;
    yyjson_mut_val *root = control_object(&doc);
    control_events_put(doc, root, line);
    control_answer(conversation, doc);
}

/* As a text, to be freed with mem_free(); NULL: no memory. */
static char *control_events_text(const struct event_line *line, size_t *size)
{
    yyjson_mut_doc *doc = yyjson_mut_doc_new(&json_memory);
    yyjson_mut_val *root = doc ? yyjson_mut_obj(doc) : NULL;
    char *text = NULL;
    if (root) {
        yyjson_mut_doc_set_root(doc, root);
        control_events_put(doc, root, line);
        text = yyjson_mut_write_opts(doc, YYJSON_WRITE_ALLOW_INVALID_UNICODE, &json_memory, size,
                                     NULL);
    }
    yyjson_mut_doc_free(doc);
    return text;
}

/* Ids in a text become names where the state knows them. */
static void control_events_describe(const struct daemon *daemon, const Cluster__Event *event,
                                    struct event_line *line)
{
    struct buffer text = {0};
    event_describe(event, &text);
    const char *from = text.data ? text.data : "";
    size_t n = 0;
    while (*from && n + 1 < sizeof line->text) {
        char id[NODE_ID_TEXT];
        uint8_t node_id[NODE_ID_BYTES];
        snprintf(id, sizeof id, "%.*s", NODE_ID_TEXT - 1, from);
        const char *name =
            id_parse(id, node_id, sizeof node_id) ? daemon_name_of(daemon, id) : NULL;
        if (name) {
            n += (size_t)snprintf(line->text + n, sizeof line->text - n, "%.64s", name);
            from += NODE_ID_TEXT - 1;
        } else {
            line->text[n++] = *from++;
        }
    }
    line->text[n < sizeof line->text ? n : sizeof line->text - 1] = 0;
    buffer_deinit(&text);
}

void control_note_event(struct daemon *daemon, uint64_t index, const Cluster__Event *event,
                        bool applied)
{
    if (!daemon->events && !(daemon->events = mem_new(sizeof *daemon->events)))
        return;
    struct event_line *line = &daemon->events->lines[daemon->events->n++ % EVENTS_KEPT];
    *line = (struct event_line){.index = index, .time_ms = event->time_ms, .applied = applied};
    if (event->by)
        snprintf(line->by, sizeof line->by, "%s", daemon_name_of(daemon, event->by));
    audit_text(line->actor, sizeof line->actor, event->actor);
    control_events_describe(daemon, event, line);
    if (!applied)
        strncat(line->text, " (ignored)", sizeof line->text - strlen(line->text) - 1);
    if (!live_is_watched(daemon->live))
        return;
    size_t size;
    char *text = control_events_text(line, &size);
    if (text)
        live_note_event(daemon->live, text, size);
    mem_free(text);
}

void control_each_event(struct daemon *daemon, uint32_t n,
                        void (*each)(void *arg, const char *event, size_t size), void *arg)
{
    const struct events *events = daemon->events;
    const uint32_t noted = events ? events->n : 0;
    const uint32_t kept = noted < EVENTS_KEPT ? noted : EVENTS_KEPT;
    for (uint32_t i = noted - (n < kept ? n : kept); i < noted; i++) {
        size_t size;
        char *text = control_events_text(&events->lines[i % EVENTS_KEPT], &size);
        if (text)
            each(arg, text, size);
        mem_free(text);
    }
}

/* The newest line has just been noted. */
static void control_events_follow(struct conversation *conversation, uint64_t index,
                                  const Cluster__Event *event, bool applied)
{
    const struct events *events = conversation->daemon->events;
    put_line(conversation, &events->lines[(events->n - 1) % EVENTS_KEPT]);
}

void control_events(struct conversation *conversation, yyjson_val *request)
{
    const struct events *events = conversation->daemon->events;
    uint64_t last;
    if (!control_number(conversation, request, "last", UINT64_MAX, 50, &last))
        return;
    uint32_t n = events ? events->n : 0;
    uint32_t kept = n < EVENTS_KEPT ? n : EVENTS_KEPT;
    for (uint32_t i = n - (last < kept ? (uint32_t)last : kept); i < n; i++)
        put_line(conversation, &events->lines[i % EVENTS_KEPT]);
    if (yyjson_is_true(yyjson_obj_get(request, "follow")))
        conversation->calls = (struct conversation_calls){.event = control_events_follow};
    else
        control_end(conversation);
}
