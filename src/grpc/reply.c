#include "grpc/reply.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void grpc_reply_deinit(struct grpc_reply *reply)
{
    buffer_deinit(&reply->in);
    buffer_deinit(&reply->data);
    *reply = (struct grpc_reply){0};
}

/* ---- the head -------------------------------------------------------------------------------- */

/* Of an answer with status 200; an error is whole, whatever it is called. */
static enum grpc_reply_kind grpc_reply_kind_of(const char *head)
{
    static const char name[] = "\r\ncontent-type:";
    const char *at = strcasestr(head, name);
    if (!at)
        return GRPC_REPLY_WHOLE;
    at += sizeof name - 1;
    at += strspn(at, " ");
    if (strncasecmp(at, "application/x-ndjson", 20) == 0)
        return GRPC_REPLY_LINES;
    return strncasecmp(at, "text/event-stream", 17) == 0 ? GRPC_REPLY_EVENTS : GRPC_REPLY_WHOLE;
}

/* "HTTP/1.1 200 OK". A 100 Continue is passed over. */
static void grpc_reply_read_head(struct grpc_reply *reply)
{
    char *end = reply->in.data ? strstr(reply->in.data, "\r\n\r\n") : NULL;
    if (!end) {
        reply->is_bad |= reply->in.size > GRPC_REPLY_HEAD_MAX;
        return;
    }
    end[2] = '\0';
    const bool is_http = strncmp(reply->in.data, "HTTP/1.", 7) == 0 && strlen(reply->in.data) > 12;
    reply->status = is_http ? (unsigned)strtoul(reply->in.data + 8, NULL, 10) : 0;
    reply->is_bad |= reply->status < 100 || reply->status > 599;
    reply->has_head = reply->status >= 200;
    reply->kind = reply->status == 200 ? grpc_reply_kind_of(reply->in.data) : GRPC_REPLY_WHOLE;
    buffer_drop_front(&reply->in, (size_t)(end - reply->in.data) + 4);
}

void grpc_reply_add(struct grpc_reply *reply, const char *bytes, size_t size, size_t max)
{
    if (reply->is_bad || !size)
        return;
    if (reply->taken) {
        buffer_drop_front(&reply->in, reply->taken);
        reply->taken = 0;
    }
    const size_t most = max + GRPC_REPLY_HEAD_MAX;
    if (reply->in.size + reply->data.size + size > most) {
        reply->is_bad = true;
        return;
    }
    buffer_append(&reply->in, bytes, size);
    reply->is_bad |= reply->in.failed;
    while (!reply->has_head && !reply->is_bad && reply->in.size) {
        const size_t before = reply->in.size;
        grpc_reply_read_head(reply);
        if (reply->in.size == before)
            break;
    }
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* Up to the next line feed, which it takes, or to the end where there is one. */
static bool grpc_reply_line(struct grpc_reply *reply, bool ended, const char **line, size_t *size)
{
    const char *from = reply->in.data ? reply->in.data + reply->taken : "";
    const size_t left = reply->in.size - reply->taken;
    const char *end = left ? memchr(from, '\n', left) : NULL;
    if (!end && !(ended && left))
        return false;
    *line = from;
    *size = end ? (size_t)(end - from) : left;
    reply->taken += *size + (end ? 1 : 0);
    assert(reply->taken <= reply->in.size);
    return true;
}

/* "name: value" → value; NULL: another name. */
static const char *grpc_reply_field(const char *line, size_t size, const char *name, size_t *left)
{
    const size_t n = strlen(name);
    if (size < n || memcmp(line, name, n) != 0)
        return NULL;
    line += n;
    size -= n;
    const size_t space = size && *line == ' ';
    *left = size - space;
    return line + space;
}

/* The HTML standard, section 9.2.6, as far as the API writes it. True: an event is whole. */
static bool grpc_reply_event_line(struct grpc_reply *reply, const char *line, size_t size)
{
    size_t left;
    const char *value;
    if (!size)
        return reply->data.size > 0;
    if ((value = grpc_reply_field(line, size, "event:", &left))) {
        const size_t n = left < sizeof reply->name - 1 ? left : sizeof reply->name - 1;
        memcpy(reply->name, value, n);
        reply->name[n] = '\0';
    } else if ((value = grpc_reply_field(line, size, "data:", &left))) {
        buffer_append(&reply->data, value, left);
        reply->is_bad |= reply->data.failed;
    }
    return false;
}

static bool grpc_reply_next_event(struct grpc_reply *reply, bool ended,
                                  struct grpc_reply_piece *out)
{
    const char *line;
    size_t size;
    while (grpc_reply_line(reply, ended, &line, &size)) {
        if (!grpc_reply_event_line(reply, line, size))
            continue;
        *out = (struct grpc_reply_piece){reply->name, reply->data.data, reply->data.size};
        reply->is_given = true;
        return true;
    }
    return false;
}

bool grpc_reply_next(struct grpc_reply *reply, bool ended, struct grpc_reply_piece *out)
{
    *out = (struct grpc_reply_piece){.name = ""};
    if (!reply->has_head || reply->is_bad)
        return false;
    if (reply->kind == GRPC_REPLY_EVENTS) {
        if (reply->is_given) {
            buffer_clear(&reply->data);
            reply->name[0] = '\0';
            reply->is_given = false;
        }
        return grpc_reply_next_event(reply, ended, out);
    }
    if (reply->kind == GRPC_REPLY_LINES) {
        while (grpc_reply_line(reply, ended, &out->data, &out->size)) {
            if (out->size)
                return true;
        }
        return false;
    }
    if (!ended || reply->taken == reply->in.size)
        return false;
    out->data = reply->in.data + reply->taken;
    out->size = reply->in.size - reply->taken;
    reply->taken = reply->in.size;
    return true;
}
