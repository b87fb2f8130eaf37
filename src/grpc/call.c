#include "grpc/call.h"

#include "base/mem.h"
#include "grpc/reflection.h"
#include "grpc/session_impl.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- memory ---------------------------------------------------------------------------------- */

/* False: there is no room, and the call has ended. */
static bool grpc_call_count(struct grpc_call *call)
{
    struct grpc_memory *memory = call->session->memory;
    const uint64_t now = call->headers.size + call->reader.message.size + call->asked_bytes +
                         call->reply.in.size + call->reply.data.size + call->out.size;
    assert(memory->used >= call->counted);
    memory->used += now - call->counted;
    call->counted = now;
    if (memory->used <= memory->max || call->has_ended)
        return true;
    grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED,
                  "other calls take all memory of this node (limit bodies): try again later");
    return false;
}

static void grpc_call_close_way(struct grpc_call *call)
{
    void *way = call->way;
    call->way = NULL;
    if (way)
        call->session->door.close(way);
}

void grpc_call_free(struct grpc_call *call)
{
    grpc_call_close_way(call);
    call->session->memory->used -= call->counted;
    buffer_deinit(&call->headers);
    grpc_frame_deinit(&call->reader);
    grpc_reply_deinit(&call->reply);
    buffer_deinit(&call->out);
    mem_free(call);
}

/* ---- ending ---------------------------------------------------------------------------------- */

void grpc_call_end(struct grpc_call *call, enum grpc_code code, const char *format, ...)
{
    va_list args;
    if (call->has_ended)
        return;
    call->has_ended = true;
    call->status.code = code;
    va_start(args, format);
    vsnprintf(call->status.message, sizeof call->status.message, format, args);
    va_end(args);
    grpc_call_close_way(call);
    grpc_frame_deinit(&call->reader);
    grpc_reply_deinit(&call->reply);
    buffer_deinit(&call->headers);
    call->headers = (struct buffer){0};
    call->asked_bytes = 0;
    grpc_call_count(call);
    session_call_ended(call);
}

static void grpc_call_end_as(struct grpc_call *call, const struct grpc_status *status)
{
    grpc_call_end(call, status->code, "%s", status->message);
}

/* ---- the head -------------------------------------------------------------------------------- */

static bool grpc_call_is_named(const char *wanted, const char *name, size_t size)
{
    return strlen(wanted) == size && memcmp(wanted, name, size) == 0;
}

/* What the API is told of it. HTTP/2 allows no line feeds in values (RFC 9113, section 8.2.1), and
 * nghttp2 passes none. */
static void grpc_call_pass_on(struct grpc_call *call, const char *name, const char *value,
                              size_t size)
{
    if (memchr(value, '\r', size) || memchr(value, '\n', size) || memchr(value, '\0', size))
        return;
    if (call->headers.size + size > GRPC_HEADERS_MAX) {
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the metadata has more than %d bytes",
                      GRPC_HEADERS_MAX);
        return;
    }
    buffer_printf(&call->headers, "%s: ", name);
    buffer_append(&call->headers, value, size);
    buffer_text(&call->headers, "\r\n");
}

static void grpc_call_read_timeout(struct grpc_call *call, const char *value, size_t size,
                                   uint64_t now_ns)
{
    uint64_t ns;
    if (!grpc_timeout_parse(value, size, &ns)) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT,
                      "grpc-timeout is at most 8 digits and one of HMSmun");
        return;
    }
    call->deadline_ns = ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + ns;
}

void grpc_call_header(struct grpc_call *call, const char *name, size_t name_size, const char *value,
                      size_t size, uint64_t now_ns)
{
    static const char *const passed[][2] = {
        {":authority", "Host"},         {"authorization", "Authorization"},
        {"x-api-key", "X-Api-Key"},     {"x-request-id", "X-Request-Id"},
        {"traceparent", "Traceparent"},
    };
    if (call->has_begun || call->has_ended) /* trailers */
        return;
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++) {
        if (grpc_call_is_named(passed[i][0], name, name_size))
            grpc_call_pass_on(call, passed[i][1], value, size);
    }
    if (grpc_call_is_named(":path", name, name_size)) {
        call->is_path_long = size >= sizeof call->path;
        snprintf(call->path, sizeof call->path, "%.*s", (int)size, value);
    } else if (grpc_call_is_named(":method", name, name_size)) {
        call->is_post = grpc_call_is_named("POST", value, size);
    } else if (grpc_call_is_named("content-type", name, name_size)) {
        call->is_grpc = grpc_call_is_named("application/grpc", value, size) ||
                        grpc_call_is_named("application/grpc+proto", value, size);
    } else if (grpc_call_is_named("grpc-encoding", name, name_size)) {
        call->is_encoded = !grpc_call_is_named("identity", value, size);
    } else if (grpc_call_is_named("grpc-timeout", name, name_size)) {
        grpc_call_read_timeout(call, value, size, now_ns);
    }
}

void grpc_call_begin(struct grpc_call *call)
{
    call->has_begun = true;
    if (call->has_ended)
        return;
    call->asked.method = call->is_path_long ? NULL : grpc_method_find(call->path);
    if (call->is_encoded)
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "messages must not be compressed");
    else if (!call->asked.method && !grpc_reflection_is(call->path))
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "no method %s: see medley.proto, or ask reflection",
                      call->path);
    else
        grpc_call_count(call);
}

/* ---- messages of the caller ------------------------------------------------------------------ */

static void grpc_call_ask(struct grpc_call *call, const struct buffer *message)
{
    struct buffer request = {0};
    struct grpc_status status;
    struct error err;
    if (grpc_method_ask(&call->asked, message->data, message->size, &call->headers, &request,
                        &status)) {
        call->asked_bytes = request.size;
        call->way = call->session->door.open(call->session->door.self, call, &request, &err);
        if (!call->way)
            grpc_status_set(&status, GRPC_RESOURCE_EXHAUSTED, "%s", err.text);
    }
    buffer_deinit(&request);
    buffer_deinit(&call->reader.message);
    call->reader.message = (struct buffer){0};
    if (!call->way)
        grpc_call_end_as(call, &status);
}

/* Reflection answers each; who does not read the answers is not answered for ever. */
static void grpc_call_reflect(struct grpc_call *call, const struct buffer *message)
{
    struct grpc_status status;
    if (call->out.size - call->out_sent > GRPC_ANSWER_MAX / 16)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "read the answers before asking more");
    else if (!grpc_reflection_answer(message->data, message->size, &call->out, &status))
        grpc_call_end_as(call, &status);
    else
        session_call_wakes(call);
}

static void grpc_call_message(struct grpc_call *call, const struct buffer *message)
{
    if (!call->asked.method) {
        grpc_call_reflect(call, message);
    } else if (call->has_message) {
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "%s takes one message", call->path);
    } else {
        call->has_message = true;
        grpc_call_ask(call, message);
    }
}

static void grpc_call_refuse_frame(struct grpc_call *call, enum grpc_frame_state state)
{
    if (state == GRPC_FRAME_TOO_LARGE)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "a message has at most %d bytes",
                      GRPC_REQUEST_MAX);
    else if (state == GRPC_FRAME_COMPRESSED)
        grpc_call_end(call, GRPC_UNIMPLEMENTED, "messages must not be compressed");
    else
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "not enough memory for the message");
}

void grpc_call_data(struct grpc_call *call, const uint8_t *bytes, size_t size)
{
    /* a message of no bytes is whole with its head, so the end is looked at last */
    while (size && !call->has_ended) {
        size_t used;
        const enum grpc_frame_state state =
            grpc_frame_read(&call->reader, bytes, size, GRPC_REQUEST_MAX, &used);
        bytes += used;
        size -= used;
        if (state == GRPC_FRAME_WHOLE)
            grpc_call_message(call, &call->reader.message);
        else if (state != GRPC_FRAME_MORE)
            grpc_call_refuse_frame(call, state);
    }
    grpc_call_count(call);
}

void grpc_call_request_over(struct grpc_call *call)
{
    call->is_request_over = true;
    if (call->has_ended)
        return;
    if (!grpc_frame_may_end(&call->reader))
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "the stream ended within a message");
    else if (!call->asked.method)
        grpc_call_end(call, GRPC_OK, "%s", "");
    else if (!call->has_message)
        grpc_call_end(call, GRPC_INVALID_ARGUMENT, "%s takes one message, and none came",
                      call->path);
}

/* ---- the API's answer ------------------------------------------------------------------------ */

static void grpc_call_read_pieces(struct grpc_call *call, bool ended)
{
    struct grpc_reply_piece piece;
    struct grpc_status status;
    while (!call->has_ended && grpc_reply_next(&call->reply, ended, &piece)) {
        if (call->reply.status != 200) {
            grpc_method_fail(call->reply.status, &piece, &status);
            grpc_call_end_as(call, &status);
        } else if (!grpc_method_answer(&call->asked, &piece, &call->out, &status)) {
            grpc_call_end_as(call, &status);
        }
    }
    if (call->has_ended)
        return;
    if (call->reply.is_bad)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "the answer has a piece of more than %d bytes",
                      GRPC_ANSWER_MAX);
    else if (call->out.failed)
        grpc_call_end(call, GRPC_RESOURCE_EXHAUSTED, "not enough memory for the answer");
}

/* The API is read as fast as the caller reads. */
static void grpc_call_pace(struct grpc_call *call)
{
    const bool hold = call->out.size - call->out_sent > GRPC_AHEAD_BYTES;
    if (!call->way || hold == call->is_held)
        return;
    call->is_held = hold;
    call->session->door.set_reading(call->way, !hold);
}

void grpc_call_receive(struct grpc_call *call, const char *bytes, size_t size)
{
    call->asked_bytes = 0;
    grpc_reply_add(&call->reply, bytes, size, GRPC_ANSWER_MAX);
    grpc_call_read_pieces(call, false);
    grpc_call_pace(call);
    if (grpc_call_count(call) && call->out.size > call->out_sent)
        session_call_wakes(call);
}

void grpc_call_on_end(struct grpc_call *call)
{
    grpc_call_read_pieces(call, true);
    if (!call->reply.has_head)
        grpc_call_end(call, GRPC_UNAVAILABLE, "the node gave no answer: try again");
    if (!call->asked.is_complete)
        grpc_call_end(call, GRPC_UNAVAILABLE, "the answer broke off: ask again");
    grpc_call_end(call, GRPC_OK, "%s", "");
}

/* ---- sending --------------------------------------------------------------------------------- */

size_t grpc_call_take(struct grpc_call *call, uint8_t *bytes, size_t size, uint64_t now_ns)
{
    const size_t left = call->out.size - call->out_sent;
    if (size > left)
        size = left;
    if (!size)
        return 0;
    memcpy(bytes, call->out.data + call->out_sent, size);
    call->out_sent += size;
    call->moved_ns = now_ns;
    if (call->out_sent == call->out.size || call->out_sent > GRPC_AHEAD_BYTES) {
        buffer_drop_front(&call->out, call->out_sent);
        call->out_sent = 0;
    }
    grpc_call_pace(call);
    grpc_call_count(call);
    return size;
}
