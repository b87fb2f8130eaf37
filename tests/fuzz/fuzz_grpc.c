/* What gRPC's callers send, and what becomes of the API's answers. The first byte says what the
 * rest is: messages in a stream, an answer of HTTP, a connection's first bytes, a connection's
 * frames, a message of each method, or an answer's JSON. */
#include "fuzz.h"

#include "api/greeting.h"
#include "grpc/frame.h"
#include "grpc/method.h"
#include "grpc/reflection.h"
#include "grpc/reply.h"
#include "grpc/session.h"
#include "grpc/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FUZZ_MAX = 1000 };

static void fuzz_frames(const uint8_t *bytes, size_t size)
{
    struct grpc_frame_reader reader = {0};
    enum grpc_frame_state state = GRPC_FRAME_MORE;
    while (size && (state == GRPC_FRAME_MORE || state == GRPC_FRAME_WHOLE)) {
        size_t used;
        state = grpc_frame_read(&reader, bytes, size, FUZZ_MAX, &used);
        FUZZ_CHECK(used <= size && reader.message.size <= FUZZ_MAX);
        FUZZ_CHECK(state != GRPC_FRAME_MORE || used == size);
        bytes += used;
        size -= used;
    }
    grpc_frame_deinit(&reader);
}

/* In two pieces. */
static void fuzz_reply(const char *bytes, size_t size)
{
    const size_t cuts[] = {size / 3, size - size / 3};
    struct grpc_reply reply = {0};
    struct grpc_reply_piece piece;
    for (size_t i = 0; i < 2; i++) {
        grpc_reply_add(&reply, bytes, cuts[i], FUZZ_MAX);
        bytes += cuts[i];
        while (grpc_reply_next(&reply, i == 1, &piece))
            FUZZ_CHECK(piece.size && piece.size <= FUZZ_MAX + GRPC_REPLY_HEAD_MAX);
    }
    FUZZ_CHECK(reply.in.size <= FUZZ_MAX + GRPC_REPLY_HEAD_MAX);
    grpc_reply_deinit(&reply);
}

static void fuzz_greeting(const uint8_t *bytes, size_t size)
{
    for (int is_tls = 0; is_tls < 2; is_tls++) {
        size_t wanted = 0;
        const enum greeting_kind greeting = greeting_read(bytes, size, is_tls, &wanted);
        FUZZ_CHECK(greeting != GREETING_MORE || (wanted > size && wanted <= GREETING_MAX));
    }
}

static struct grpc_call *fuzz_opened;

static void *fuzz_open(void *self, struct grpc_call *call, struct buffer *request,
                       struct error *err)
{
    FUZZ_CHECK(request->size && !request->failed);
    fuzz_opened = call;
    return self;
}

static void fuzz_set_reading(void *way, bool on)
{
}

static void fuzz_close(void *way)
{
    fuzz_opened = NULL;
}

static void fuzz_drain(struct grpc_session *session)
{
    const uint8_t *bytes;
    for (int i = 0; i < 1000 && grpc_session_send(session, &bytes, 1); i++) {
    }
}

/* After the preface and the client's empty settings. One call at a time has an answer. */
static void fuzz_session(const uint8_t *bytes, size_t size)
{
    static const char begin[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0";
    static const char answer[] = "HTTP/1.1 200 OK\r\n\r\n{\"data\":[{\"id\":\"m\"}]}";
    struct grpc_memory memory = {.max = 1 << 20};
    int self;
    const struct grpc_door door = {fuzz_open, fuzz_set_reading, fuzz_close, &self};
    struct grpc_session *session = grpc_session_new(&door, &memory, 1);
    FUZZ_CHECK(session);
    fuzz_opened = NULL;
    FUZZ_CHECK(grpc_session_receive(session, (const uint8_t *)begin, sizeof begin, 1));
    grpc_session_receive(session, bytes, size, 1);
    if (fuzz_opened)
        grpc_call_receive(fuzz_opened, answer, sizeof answer - 1);
    if (fuzz_opened)
        grpc_call_on_end(fuzz_opened);
    fuzz_drain(session);
    grpc_session_tick(session, UINT64_MAX / 2);
    fuzz_drain(session);
    grpc_session_free(session);
    FUZZ_CHECK(!memory.used && !fuzz_opened);
}

static const char *const fuzz_paths[] = {
    "/medley.v1.Medley/ListModels", "/medley.v1.Medley/ListNodes", "/medley.v1.Medley/Watch",
    "/medley.v1.Medley/Forecast",   "/medley.v1.Medley/Place",     "/medley.v1.Medley/Unload",
    "/medley.v1.Medley/Generate",
};

static void fuzz_message(const uint8_t *bytes, size_t size)
{
    const struct buffer headers = {0};
    struct buffer out = {0};
    struct grpc_status status;
    for (size_t i = 0; i < sizeof fuzz_paths / sizeof *fuzz_paths; i++) {
        struct grpc_asked asked = {.method = grpc_method_find(fuzz_paths[i])};
        FUZZ_CHECK(asked.method);
        buffer_clear(&out);
        if (!grpc_method_ask(&asked, bytes, size, &headers, &out, &status))
            FUZZ_CHECK(status.code != GRPC_OK && status.message[0]);
    }
    grpc_reflection_answer(bytes, size, &out, &status);
    buffer_deinit(&out);
}

static void fuzz_answer(const char *bytes, size_t size)
{
    const struct grpc_reply_piece piece = {"event", bytes, size};
    struct buffer out = {0};
    struct grpc_status status;
    uint64_t ns;
    for (size_t i = 0; i < sizeof fuzz_paths / sizeof *fuzz_paths; i++) {
        struct grpc_asked asked = {.method = grpc_method_find(fuzz_paths[i])};
        if (!grpc_method_answer(&asked, &piece, &out, &status)) {
            FUZZ_CHECK(status.code != GRPC_OK);
            buffer_clear(&out);
            grpc_status_escape(status.message, &out);
            for (size_t at = 0; at < out.size; at++)
                FUZZ_CHECK(out.data[at] >= ' ' && out.data[at] <= '~');
        }
        buffer_clear(&out);
    }
    grpc_method_fail(400, &piece, &status);
    grpc_timeout_parse(bytes, size, &ns);
    buffer_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!size)
        return 0;
    char *bytes = malloc(size); /* of its own size, so that a read beyond it is seen */
    if (!bytes)
        return 0;
    memcpy(bytes, data + 1, --size);
    const uint8_t *octets = (const uint8_t *)bytes;
    switch (data[0] % 6) {
    case 0:
        fuzz_frames(octets, size);
        break;
    case 1:
        fuzz_reply(bytes, size);
        break;
    case 2:
        fuzz_greeting(octets, size);
        break;
    case 3:
        fuzz_session(octets, size);
        break;
    case 4:
        fuzz_message(octets, size);
        break;
    case 5:
        fuzz_answer(bytes, size);
        break;
    }
    free(bytes);
    return 0;
}
