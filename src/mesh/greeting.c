#include "mesh/greeting.h"

#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { LINGER_MS = 1000 };

/* ---- life ---------------------------------------------------------------------------------- */

static void greeting_release(void *owner)
{
    struct greeting *greeting = owner;
    if (--greeting->n_open > 0)
        return;
    struct mesh *mesh = greeting->mesh;
    if (greeting->previous)
        greeting->previous->next = greeting->next;
    else
        mesh->greetings = greeting->next;
    if (greeting->next)
        greeting->next->previous = greeting->previous;
    mesh->n_greetings--;
    mem_free(greeting);
    mesh_wake(mesh);
}

static void greeting_on_timer_closed(uv_handle_t *timer)
{
    greeting_release(timer->data);
}

static void greeting_end(struct greeting *greeting)
{
    assert(greeting->phase != GREETING_OVER);
    greeting->phase = GREETING_OVER;
    uv_close((uv_handle_t *)&greeting->timer, greeting_on_timer_closed);
    if (greeting->stream) {
        greeting->n_open++;
        stream_close(greeting->stream, greeting_release, greeting);
        greeting->stream = NULL;
    }
}

struct stream *greeting_take(struct greeting *greeting)
{
    struct stream *stream = greeting->stream;
    stream->on_ready = NULL;
    greeting->stream = NULL;
    greeting_end(greeting);
    return stream;
}

void greeting_abandon(struct greeting *greeting)
{
    if (greeting->phase != GREETING_OVER)
        greeting_end(greeting);
}

void greetings_abandon(struct mesh *mesh, const void *owner)
{
    for (struct greeting *greeting = mesh->greetings; greeting; greeting = greeting->next) {
        if (greeting->owner == owner)
            greeting_abandon(greeting);
    }
}

static void greeting_fail(struct greeting *greeting, enum refusal_reason reason,
                          const struct error *err)
{
    log_line(LOG_INFO, "mesh", "%s connection: %s",
             greeting->is_server ? "an incoming" : "a dialled", err->text);
    greeting_end(greeting);
    if (greeting->failed)
        greeting->failed(greeting->owner, reason, err);
}

static void greeting_failf(struct greeting *greeting, enum error_code code, const char *text)
{
    struct error err;
    error_set(&err, code, "%s", text);
    greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
}

/* ---- saying -------------------------------------------------------------------------------- */

static enum error_code greeting_say(struct greeting *greeting, uint16_t type,
                                    const uint8_t *payload, size_t size, struct error *err)
{
    uint8_t bytes[FRAME_HEADER_BYTES + LIMIT_HELLO_BYTES];
    frame_header_write(&(struct frame_header){.type = type, .length = (uint32_t)size}, bytes);
    memcpy(bytes + FRAME_HEADER_BYTES, payload, size);
    size_t n = 0;
    enum stream_result result =
        stream_write(greeting->stream, bytes, FRAME_HEADER_BYTES + size, &n, err);
    if (result == STREAM_DONE && n == FRAME_HEADER_BYTES + size)
        result = stream_flush(greeting->stream, err);
    else if (result != STREAM_FAILED)
        return error_set(err, ERROR_IO, "the connection does not accept a hello");
    return result == STREAM_FAILED ? err->code : ERROR_NONE;
}

static enum error_code say_hello(struct greeting *greeting, const struct hello *hello,
                                 struct error *err)
{
    uint8_t bytes[LIMIT_HELLO_BYTES];
    return greeting_say(greeting, FRAME_HELLO, bytes, hello_write(hello, bytes), err);
}

enum error_code greeting_accept(struct greeting *greeting, const struct hello *answer,
                                struct stream **stream, struct error *err)
{
    enum error_code code = say_hello(greeting, answer, err);
    *stream = NULL;
    if (code)
        greeting_abandon(greeting);
    else
        *stream = greeting_take(greeting);
    return code;
}

static void send_refusal(struct greeting *greeting, enum refusal_reason reason, const char *text)
{
    struct refusal refusal = {.reason = reason, .version = greeting->mesh->options.version};
    snprintf(refusal.text, sizeof refusal.text, "%s", text);
    uint8_t bytes[LIMIT_HELLO_BYTES];
    struct error err = {0};
    if (greeting_say(greeting, FRAME_REFUSAL, bytes, refusal_write(&refusal, bytes), &err)) {
        greeting_end(greeting);
        return;
    }
    /* A connection that is closed with bytes unread is reset, and the refusal with it: the peer
     * closes first. */
    stream_finish(greeting->stream);
    greeting->phase = GREETING_LINGERING;
    uv_timer_start(&greeting->timer, greeting->timer.timer_cb, LINGER_MS, 0);
}

void greeting_refuse(struct greeting *greeting, enum refusal_reason reason, const char *text)
{
    log_line(LOG_INFO, "mesh", "refused a connection: %s", text);
    send_refusal(greeting, reason, text);
}

/* ---- hearing ------------------------------------------------------------------------------- */

static void hear_refusal(struct greeting *greeting)
{
    struct refusal refusal;
    struct error err;
    if (refusal_read(greeting->reader.payload, greeting->reader.header.length, &refusal, &err)) {
        greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
        return;
    }
    enum error_code code = ERROR_BUSY;
    if (refusal.reason == REFUSAL_VERSION)
        code = ERROR_UNSUPPORTED;
    else if (refusal.reason == REFUSAL_NOT_MEMBER)
        code = ERROR_INVALID;
    error_set(&err, code, "refused by the other end: %s", refusal.text);
    greeting_fail(greeting, refusal.reason, &err);
}

static void hear_hello(struct greeting *greeting)
{
    struct hello hello;
    struct error err;
    struct link_version agreed;
    enum error_code code =
        hello_read(greeting->reader.payload, greeting->reader.header.length, &hello, &err);
    if (!code)
        code = version_agree(greeting->mesh->options.version, hello.version, &agreed, &err);
    if (code && greeting->is_server && code == ERROR_UNSUPPORTED) {
        struct error theirs; /* what is "there" here is "here" there */
        version_agree(hello.version, greeting->mesh->options.version, &agreed, &theirs);
        log_line(LOG_INFO, "mesh", "refused a connection: %s", err.text);
        send_refusal(greeting, REFUSAL_VERSION, theirs.text);
        return;
    }
    if (code) {
        greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
        return;
    }
    greeting->phase = GREETING_DECIDING;
    if (greeting->is_server)
        incoming_hello(greeting, &hello);
    else
        greeting->answered(greeting->owner, greeting, &hello);
}

static void greeting_hear(struct greeting *greeting)
{
    switch (greeting->reader.header.type) {
    case FRAME_HELLO:
        hear_hello(greeting);
        return;
    case FRAME_REFUSAL:
        if (!greeting->is_server) {
            hear_refusal(greeting);
            return;
        }
        break;
    default:
        break;
    }
    greeting_failf(greeting, ERROR_INVALID, "it did not begin with a hello");
}

/* Reads up to the end of the one message, and not a byte more: what follows is the channel's. */
static void hear_out(struct greeting *greeting)
{
    while (greeting->phase == GREETING_WAITING) {
        struct error err = {0};
        void *into;
        size_t size, n;
        frame_reader_want(&greeting->reader, &into, &size);
        const enum stream_result result = stream_read(greeting->stream, into, size, &n, &err);
        if (result == STREAM_AGAIN)
            return;
        if (result == STREAM_END)
            error_set(&err, ERROR_IO, "the other end closed the connection before its hello");
        if (result != STREAM_DONE) {
            greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
            return;
        }
        switch (frame_reader_took(&greeting->reader, n, &err)) {
        case FRAME_MORE:
            break;
        case FRAME_BEGUN:
            frame_reader_payload(&greeting->reader, greeting->bytes);
            break;
        case FRAME_COMPLETE:
            greeting_hear(greeting);
            break;
        case FRAME_BROKEN:
            greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
            break;
        }
    }
}

/* ---- the handshake ------------------------------------------------------------------------- */

static void take_joiner(struct greeting *greeting)
{
    const struct mesh_options *options = &greeting->mesh->options;
    if (!options->joiner) {
        greeting_failf(greeting, ERROR_INVALID, "nobody is let in here");
        return;
    }
    options->joiner(options->events.self, greeting_take(greeting));
}

static void greeting_meet(struct greeting *greeting)
{
    const struct link_security *security = &greeting->mesh->options.security;
    const SSL *ssl = stream_ssl(greeting->stream);
    struct error err = {0};
    if (greeting->is_server && security->is_joiner && security->is_joiner(security->self, ssl)) {
        take_joiner(greeting);
        return;
    }
    enum error_code code = security->peer(security->self, ssl, greeting->peer, &err);
    if (code && greeting->is_server) {
        greeting_refuse(greeting, REFUSAL_NOT_MEMBER, "not a member of this cluster");
        return;
    }
    if (!code && memcmp(greeting->peer, greeting->mesh->options.node_id, NODE_ID_BYTES) == 0)
        code = error_set(&err, ERROR_INVALID, "the other end is this node itself");
    if (!code && greeting->check)
        code = greeting->check(greeting->owner, greeting, &err);
    if (greeting->phase != GREETING_SHAKING) /* the check found that it is not needed */
        return;
    if (!code && !greeting->is_server)
        code = say_hello(greeting, &greeting->ours, &err);
    if (code) {
        greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
        return;
    }
    greeting->phase = GREETING_WAITING;
}

static void greeting_linger(struct greeting *greeting)
{
    uint8_t waste[1024];
    size_t n;
    enum stream_result result;
    do {
        result = stream_read(greeting->stream, waste, sizeof waste, &n, NULL);
    } while (result == STREAM_DONE);
    if (result != STREAM_AGAIN)
        greeting_end(greeting);
}

static void greeting_on_ready(struct stream *stream, void *owner)
{
    struct greeting *greeting = owner;
    struct error err = {0};
    if (greeting->phase == GREETING_SHAKING) {
        const enum stream_result result = stream_handshake(stream, &err);
        if (result == STREAM_DONE)
            greeting_meet(greeting);
        else if (result != STREAM_AGAIN)
            greeting_fail(greeting, REFUSAL_UNKNOWN, &err);
    }
    if (greeting->phase == GREETING_WAITING)
        hear_out(greeting);
    else if (greeting->phase == GREETING_LINGERING)
        greeting_linger(greeting);
}

void greeting_begin(struct greeting *greeting)
{
    greeting_on_ready(greeting->stream, greeting);
}

static void greeting_on_late(uv_timer_t *timer)
{
    struct greeting *greeting = timer->data;
    if (greeting->phase == GREETING_LINGERING)
        greeting_end(greeting);
    else if (greeting->phase != GREETING_OVER)
        greeting_failf(greeting, ERROR_IO,
                       greeting->phase == GREETING_SHAKING ? "no TLS handshake in time"
                                                           : "no hello in time");
}

struct greeting *greeting_new(struct mesh *mesh, struct stream *stream, bool is_server)
{
    struct greeting *greeting = mem_new(sizeof *greeting);
    if (!greeting) {
        stream_close(stream, NULL, NULL);
        return NULL;
    }
    greeting->mesh = mesh;
    greeting->stream = stream;
    greeting->is_server = is_server;
    greeting->n_open = 1;
    frame_reader_init(&greeting->reader, LIMIT_HELLO_BYTES);
    uv_timer_init(mesh->options.loop, &greeting->timer);
    greeting->timer.data = greeting;
    uv_timer_start(&greeting->timer, greeting_on_late, mesh->options.greeting_ms, 0);
    stream->on_ready = greeting_on_ready;
    stream->owner = greeting;
    greeting->next = mesh->greetings;
    if (greeting->next)
        greeting->next->previous = greeting;
    mesh->greetings = greeting;
    mesh->n_greetings++;
    return greeting;
}
