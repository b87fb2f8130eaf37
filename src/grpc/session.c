#include "grpc/session_impl.h"

#include "base/mem.h"

#include <nghttp2/nghttp2.h>

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { SESSION_TICK_NS = 1000 * 1000 * 1000 };

static struct grpc_call *session_call(struct grpc_session *session, int32_t stream)
{
    return nghttp2_session_get_stream_user_data(session->h2, stream);
}

static struct grpc_session *session_self(void *self)
{
    return self;
}

/* ---- answering ------------------------------------------------------------------------------- */

static nghttp2_nv session_header(const char *name, const char *value)
{
    return (nghttp2_nv){.name = (uint8_t *)(uintptr_t)name,
                        .value = (uint8_t *)(uintptr_t)value,
                        .namelen = strlen(name),
                        .valuelen = strlen(value)};
}

/* grpc-status, and grpc-message where there is one. Copied by nghttp2. */
static size_t session_write_status(const struct grpc_call *call, char *code, size_t code_size,
                                   struct buffer *message, nghttp2_nv *out)
{
    size_t n = 0;
    snprintf(code, code_size, "%d", (int)call->status.code);
    out[n++] = session_header("grpc-status", code);
    grpc_status_escape(call->status.message, message);
    if (message->size && !message->failed)
        out[n++] = session_header("grpc-message", message->data);
    return n;
}

static void session_reset(struct grpc_call *call, uint32_t code)
{
    if (!call->is_reset)
        nghttp2_submit_rst_stream(call->session->h2, NGHTTP2_FLAG_NONE, call->stream, code);
    call->is_reset = true;
}

static void session_send_trailers(struct grpc_call *call)
{
    char code[12];
    struct buffer message = {0};
    nghttp2_nv headers[2];
    const size_t n = session_write_status(call, code, sizeof code, &message, headers);
    call->has_trailers = true;
    if (nghttp2_submit_trailer(call->session->h2, call->stream, headers, n))
        session_reset(call, NGHTTP2_INTERNAL_ERROR);
    buffer_deinit(&message);
}

/* nghttp2_data_source_read_callback2 */
static nghttp2_ssize session_on_take(nghttp2_session *h2, int32_t stream, uint8_t *bytes,
                                     size_t size, uint32_t *flags, nghttp2_data_source *source,
                                     void *self)
{
    struct grpc_call *call = source->ptr;
    const size_t n = grpc_call_take(call, bytes, size, session_self(self)->now_ns);
    if (call->out.size == call->out_sent && call->has_ended) {
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (!call->has_trailers)
            session_send_trailers(call);
        return (nghttp2_ssize)n;
    }
    return n ? (nghttp2_ssize)n : NGHTTP2_ERR_DEFERRED;
}

static void session_send_head(struct grpc_call *call)
{
    const nghttp2_nv headers[] = {
        session_header(":status", "200"),
        session_header("content-type", "application/grpc"),
        session_header("grpc-accept-encoding", "identity"),
    };
    const nghttp2_data_provider2 body = {.source.ptr = call, .read_callback = session_on_take};
    call->has_head = true;
    if (nghttp2_submit_response2(call->session->h2, call->stream, headers,
                                 sizeof headers / sizeof *headers, &body))
        session_reset(call, NGHTTP2_INTERNAL_ERROR);
}

/* "Trailers-Only" of the protocol: one block of headers is the whole answer. */
static void session_send_status(struct grpc_call *call)
{
    char code[12];
    struct buffer message = {0};
    nghttp2_nv headers[4] = {
        session_header(":status", "200"),
        session_header("content-type", "application/grpc"),
    };
    const size_t n = session_write_status(call, code, sizeof code, &message, headers + 2);
    call->has_head = call->has_trailers = true;
    if (nghttp2_submit_response2(call->session->h2, call->stream, headers, n + 2, NULL))
        session_reset(call, NGHTTP2_INTERNAL_ERROR);
    buffer_deinit(&message);
}

/* HTTP/2 that is no gRPC. */
static void session_refuse_http(struct grpc_call *call)
{
    const nghttp2_nv headers[] = {session_header(":status", "415")};
    call->has_head = call->has_trailers = call->has_ended = true;
    if (nghttp2_submit_response2(call->session->h2, call->stream, headers, 1, NULL))
        session_reset(call, NGHTTP2_INTERNAL_ERROR);
}

void session_call_wakes(struct grpc_call *call)
{
    if (!call->has_head) {
        session_send_head(call);
    } else if (!call->has_trailers) {
        nghttp2_session_resume_data(call->session->h2, call->stream);
    }
}

/* Of a call that has not begun, nghttp2 has not seen the whole head: session_on_frame() does it. */
void session_call_ended(struct grpc_call *call)
{
    if (!call->has_begun)
        return;
    if (!call->has_head && call->out.size == call->out_sent)
        session_send_status(call);
    else
        session_call_wakes(call);
}

/* ---- what arrives ---------------------------------------------------------------------------- */

static int session_on_begin(nghttp2_session *h2, const nghttp2_frame *frame, void *self)
{
    struct grpc_session *session = self;
    if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    struct grpc_call *call = mem_new(sizeof *call);
    if (!call)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    call->session = session;
    call->stream = frame->hd.stream_id;
    call->deadline_ns = UINT64_MAX;
    call->moved_ns = session->now_ns;
    call->next = session->calls;
    if (call->next)
        call->next->before = call;
    session->calls = call;
    session->n_calls++;
    nghttp2_session_set_stream_user_data(h2, call->stream, call);
    return 0;
}

static int session_on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name,
                             size_t name_size, const uint8_t *value, size_t size, uint8_t flags,
                             void *self)
{
    struct grpc_session *session = self;
    struct grpc_call *call = session_call(session, frame->hd.stream_id);
    if (call)
        grpc_call_header(call, (const char *)name, name_size, (const char *)value, size,
                         session->now_ns);
    return 0;
}

static void session_begin_call(struct grpc_session *session, struct grpc_call *call)
{
    session->has_called = true;
    if (!call->is_post || !call->is_grpc) {
        call->has_begun = true;
        session_refuse_http(call);
        return;
    }
    grpc_call_begin(call);
    if (call->has_ended && !call->has_head) /* a header was wrong */
        session_send_status(call);
}

static int session_on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *self)
{
    struct grpc_session *session = self;
    const bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_headers && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct grpc_call *call = session_call(session, frame->hd.stream_id);
    if (!call)
        return 0;
    if (is_headers && !call->has_begun)
        session_begin_call(session, call);
    if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
        grpc_call_request_over(call);
    return 0;
}

static int session_on_data(nghttp2_session *h2, uint8_t flags, int32_t stream, const uint8_t *bytes,
                           size_t size, void *self)
{
    struct grpc_call *call = session_call(self, stream);
    if (call)
        grpc_call_data(call, bytes, size);
    return 0;
}

/* The answer is whole; a caller that still sends is told that it need not (RFC 9113, section
 * 8.1). */
static int session_on_sent(nghttp2_session *h2, const nghttp2_frame *frame, void *self)
{
    const bool ends = (frame->hd.type == NGHTTP2_HEADERS || frame->hd.type == NGHTTP2_DATA) &&
                      frame->hd.flags & NGHTTP2_FLAG_END_STREAM;
    struct grpc_call *call = ends ? session_call(self, frame->hd.stream_id) : NULL;
    if (call && !call->is_request_over)
        session_reset(call, NGHTTP2_NO_ERROR);
    return 0;
}

static void session_forget(struct grpc_session *session, struct grpc_call *call)
{
    *(call->before ? &call->before->next : &session->calls) = call->next;
    if (call->next)
        call->next->before = call->before;
    assert(session->n_calls > 0);
    session->n_calls--;
    grpc_call_free(call);
}

static int session_on_close(nghttp2_session *h2, int32_t stream, uint32_t code, void *self)
{
    struct grpc_call *call = session_call(self, stream);
    if (call)
        session_forget(self, call);
    return 0;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int session_open_h2(struct grpc_session *session)
{
    nghttp2_session_callbacks *callbacks = NULL;
    nghttp2_option *option = NULL;
    if (nghttp2_session_callbacks_new(&callbacks) || nghttp2_option_new(&option)) {
        nghttp2_session_callbacks_del(callbacks);
        return -1;
    }
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, session_on_begin);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, session_on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, session_on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, session_on_data);
    nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, session_on_sent);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, session_on_close);
    nghttp2_option_set_no_closed_streams(option, 1);
    nghttp2_option_set_max_send_header_block_length(option, GRPC_HEADER_LIST_MAX);
    const int failed = nghttp2_session_server_new2(&session->h2, callbacks, session, option);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    return failed;
}

struct grpc_session *grpc_session_new(const struct grpc_door *door, struct grpc_memory *memory,
                                      uint64_t now_ns)
{
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_CALLS_MAX},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADER_LIST_MAX},
    };
    struct grpc_session *session = mem_new(sizeof *session);
    if (!session)
        return NULL;
    session->door = *door;
    session->memory = memory;
    session->now_ns = now_ns;
    if (session_open_h2(session) == 0 &&
        nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings,
                                sizeof settings / sizeof *settings) == 0)
        return session;
    grpc_session_free(session);
    return NULL;
}

void grpc_session_free(struct grpc_session *session)
{
    if (!session)
        return;
    while (session->calls)
        session_forget(session, session->calls);
    nghttp2_session_del(session->h2);
    mem_free(session);
}

bool grpc_session_receive(struct grpc_session *session, const uint8_t *bytes, size_t size,
                          uint64_t now_ns)
{
    session->now_ns = now_ns;
    return nghttp2_session_mem_recv2(session->h2, bytes, size) == (nghttp2_ssize)size;
}

size_t grpc_session_send(struct grpc_session *session, const uint8_t **bytes, uint64_t now_ns)
{
    session->now_ns = now_ns;
    const nghttp2_ssize n = nghttp2_session_mem_send2(session->h2, bytes);
    return n > 0 ? (size_t)n : 0;
}

bool grpc_session_is_over(const struct grpc_session *session)
{
    return !nghttp2_session_want_read(session->h2) && !nghttp2_session_want_write(session->h2);
}

void grpc_session_stop(struct grpc_session *session)
{
    if (session->is_stopping)
        return;
    session->is_stopping = true;
    nghttp2_submit_goaway(session->h2, NGHTTP2_FLAG_NONE,
                          nghttp2_session_get_last_proc_stream_id(session->h2), NGHTTP2_NO_ERROR,
                          NULL, 0);
}

uint32_t grpc_session_n_calls(const struct grpc_session *session)
{
    return session->n_calls;
}

bool grpc_session_has_called(const struct grpc_session *session)
{
    return session->has_called;
}

/* ---- time ------------------------------------------------------------------------------------ */

static bool session_is_stalled(const struct grpc_call *call, uint64_t now_ns)
{
    return now_ns - call->moved_ns > GRPC_STALL_NS;
}

/* What it has not taken by its deadline it does not want any more. */
void grpc_session_tick(struct grpc_session *session, uint64_t now_ns)
{
    session->now_ns = now_ns;
    for (struct grpc_call *call = session->calls; call; call = call->next) {
        if (call->out.size == call->out_sent && !call->has_ended)
            call->moved_ns = now_ns; /* there is nothing to take */
        if (session_is_stalled(call, now_ns)) {
            session_reset(call, NGHTTP2_CANCEL);
        } else if (call->deadline_ns <= now_ns && !call->has_ended) {
            if (call->has_begun)
                grpc_call_end(call, GRPC_DEADLINE_EXCEEDED, "the call's deadline has passed");
            else
                session_reset(call, NGHTTP2_CANCEL);
        }
    }
}

uint64_t grpc_session_next_ns(const struct grpc_session *session, uint64_t now_ns)
{
    uint64_t next_ns = session->calls ? now_ns + SESSION_TICK_NS : UINT64_MAX;
    for (const struct grpc_call *call = session->calls; call; call = call->next) {
        if (!call->has_ended && call->deadline_ns < next_ns)
            next_ns = call->deadline_ns;
    }
    return next_ns;
}
