/* grpc: messages in a stream, HTTP's answers as they come, methods as requests, statuses; and how
 * its connections are told from HTTP's. */
#include "api/greeting.h"
#include "grpc/frame.h"
#include "grpc/method.h"
#include "grpc/reply.h"
#include "grpc/status.h"

#include "medley.pb-c.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* ---- messages -------------------------------------------------------------------------------- */

static void test_frames_are_the_same_however_they_are_cut(void **state)
{
    struct buffer stream = {0};
    grpc_frame_write("hello", 5, &stream);
    grpc_frame_write("", 0, &stream);
    grpc_frame_write("world", 5, &stream);
    for (size_t step = 1; step <= stream.size; step++) {
        struct grpc_frame_reader reader = {0};
        struct buffer seen = {0};
        for (size_t at = 0; at < stream.size;) {
            const size_t size = stream.size - at < step ? stream.size - at : step;
            size_t used;
            const enum grpc_frame_state frame =
                grpc_frame_read(&reader, (const uint8_t *)stream.data + at, size, 5, &used);
            at += used;
            assert_true(frame == GRPC_FRAME_WHOLE || frame == GRPC_FRAME_MORE);
            if (frame == GRPC_FRAME_WHOLE)
                buffer_printf(&seen, "%.*s,", (int)reader.message.size,
                              reader.message.size ? reader.message.data : "");
            assert_int_equal(grpc_frame_may_end(&reader), frame == GRPC_FRAME_WHOLE);
        }
        assert_string_equal(seen.data, "hello,,world,");
        buffer_deinit(&seen);
        grpc_frame_deinit(&reader);
    }
    buffer_deinit(&stream);
}

static void test_frames_that_are_refused(void **state)
{
    static const uint8_t large[] = {0, 0, 0, 0, 6}, compressed[] = {1, 0, 0, 0, 1, 'x'};
    struct grpc_frame_reader reader = {0};
    size_t used;
    assert_int_equal(grpc_frame_read(&reader, large, sizeof large, 5, &used), GRPC_FRAME_TOO_LARGE);
    assert_int_equal(reader.message.capacity, 0); /* what is announced takes nothing */
    grpc_frame_deinit(&reader);
    assert_int_equal(grpc_frame_read(&reader, compressed, sizeof compressed, 5, &used),
                     GRPC_FRAME_COMPRESSED);
    grpc_frame_deinit(&reader);
}

/* ---- statuses -------------------------------------------------------------------------------- */

static void test_timeouts(void **state)
{
    uint64_t ns;
    assert_true(grpc_timeout_parse("50m", 3, &ns));
    assert_int_equal(ns, 50 * 1000000);
    assert_true(grpc_timeout_parse("99999999H", 9, &ns));
    assert_true(ns == UINT64_MAX);
    static const char *const bad[] = {"", "5", "m", "5x", "-1S", "123456789S", "1.5S"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(grpc_timeout_parse(bad[i], strlen(bad[i]), &ns));
}

static void test_messages_of_statuses(void **state)
{
    struct buffer out = {0};
    grpc_status_escape("100 % für\n", &out);
    assert_string_equal(out.data, "100 %25 f%C3%BCr%0A");
    buffer_deinit(&out);
    assert_int_equal(grpc_code_of_http(401), GRPC_UNAUTHENTICATED);
    assert_int_equal(grpc_code_of_http(418), GRPC_UNKNOWN);
    assert_int_equal(grpc_code_of_http(599), GRPC_INTERNAL);
    assert_int_equal(grpc_code_of_name("queue_full", "rate_limit_error"), GRPC_RESOURCE_EXHAUSTED);
    assert_int_equal(grpc_code_of_name(NULL, NULL), GRPC_INTERNAL);
}

/* ---- answers of the API ---------------------------------------------------------------------- */

struct reply_case {
    const char *bytes, *expected; /* pieces as "name=data|" */
    unsigned status;
};

static const struct reply_case reply_cases[] = {
    {"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\":1}", "={\"a\":1}|", 200},
    {"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\n\r\n{1}\n\n{2}\n{3}",
     "={1}|={2}|={3}|", 200},
    {"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\r\n: wait\n\n"
     "event: change\nid: 1\ndata: {4}\n\ndata: [DONE]\n\n",
     "change={4}|=[DONE]|", 200},
    {"HTTP/1.1 404 Not Found\r\ncontent-type: application/x-ndjson\r\n\r\n{5}\n{6}\n",
     "={5}\n{6}\n|", 404}, /* an error is whole */
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n{7}", "={7}|", 200},
    {"HTTP/1.1 204 No Content\r\n\r\n", "", 204},
};

static void reply_take(struct grpc_reply *reply, bool ended, struct buffer *seen)
{
    struct grpc_reply_piece piece;
    while (grpc_reply_next(reply, ended, &piece))
        buffer_printf(seen, "%s=%.*s|", piece.name, (int)piece.size, piece.data);
}

static void test_replies_are_the_same_however_they_are_cut(void **state)
{
    for (size_t i = 0; i < sizeof reply_cases / sizeof *reply_cases; i++) {
        const struct reply_case *c = &reply_cases[i];
        const size_t size = strlen(c->bytes);
        for (size_t step = 1; step <= size; step++) {
            struct grpc_reply reply = {0};
            struct buffer seen = {0};
            buffer_text(&seen, "");
            for (size_t at = 0; at < size; at += step) {
                grpc_reply_add(&reply, c->bytes + at, size - at < step ? size - at : step, 1000);
                reply_take(&reply, false, &seen);
            }
            reply_take(&reply, true, &seen);
            assert_false(reply.is_bad);
            assert_int_equal(reply.status, c->status);
            assert_string_equal(seen.data ? seen.data : "", c->expected);
            grpc_reply_deinit(&reply);
            buffer_deinit(&seen);
        }
    }
}

static void test_replies_are_bounded(void **state)
{
    struct grpc_reply reply = {0};
    char bytes[1000];
    memset(bytes, 'x', sizeof bytes);
    for (int i = 0; i < 40; i++)
        grpc_reply_add(&reply, bytes, sizeof bytes, 1000);
    assert_true(reply.is_bad);
    assert_true(reply.in.size <= GRPC_REPLY_HEAD_MAX + 1000);
    grpc_reply_deinit(&reply);
}

/* ---- methods --------------------------------------------------------------------------------- */

static struct buffer method_ask(const char *path, const ProtobufCMessage *message,
                                struct grpc_asked *asked, struct grpc_status *status)
{
    struct buffer packed = {0}, request = {0}, headers = {0};
    *asked = (struct grpc_asked){.method = grpc_method_find(path)};
    assert_non_null(asked->method);
    const size_t size = protobuf_c_message_get_packed_size(message);
    protobuf_c_message_pack(message, buffer_extend(&packed, size));
    buffer_text(&headers, "Authorization: Bearer x\r\n");
    const bool good = grpc_method_ask(asked, packed.data, size, &headers, &request, status);
    buffer_deinit(&packed);
    buffer_deinit(&headers);
    if (!good)
        buffer_deinit(&request);
    return good ? request : (struct buffer){0};
}

static void test_a_request(void **state)
{
    Medley__V1__Message message = MEDLEY__V1__MESSAGE__INIT, *messages[] = {&message};
    Medley__V1__GenerateRequest generate = MEDLEY__V1__GENERATE_REQUEST__INIT;
    struct grpc_status status;
    struct grpc_asked asked;
    char *stop[] = {(char *)(uintptr_t)"a\"b"};
    message.role = (char *)(uintptr_t)"user";
    message.content = (char *)(uintptr_t)"hi";
    generate.n_messages = 1;
    generate.messages = messages;
    generate.has_temperature = 1; /* 0 is not the same as nothing */
    generate.n_stop = 1;
    generate.stop = stop;
    generate.tools_json = (char *)(uintptr_t)"[{}]";
    struct buffer request =
        method_ask("/medley.v1.Medley/Generate", &generate.base, &asked, &status);
    const char *body = strstr(request.data, "\r\n\r\n");
    assert_non_null(body);
    assert_true(strncmp(request.data, "POST /v1/chat/completions HTTP/1.0\r\n", 36) == 0);
    assert_non_null(strstr(request.data, "\r\nAuthorization: Bearer x\r\n"));
    assert_string_equal(
        body + 4, "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stop\":[\"a\\\"b\"]"
                  ",\"temperature\":0.0,\"tools\":[{}],"
                  "\"stream_options\":{\"include_usage\":true},\"stream\":true}");
    buffer_deinit(&request);
    generate.stop[0] = (char *)(uintptr_t)"\xff";
    request = method_ask("/medley.v1.Medley/Generate", &generate.base, &asked, &status);
    assert_null(request.data);
    assert_int_equal(status.code, GRPC_INVALID_ARGUMENT);
}

static struct grpc_reply_piece piece_of(const char *name, const char *text)
{
    return (struct grpc_reply_piece){name, text, strlen(text)};
}

static void test_answers_become_messages(void **state)
{
    static const char nodes[] =
        "{\"nodes\":[{\"id\":\"a\",\"self\":true,\"votes\":\"wrong type\",\"new\":{},"
        "\"heard_ms\":null,\"addresses\":[\"1\",\"2\"],\"devices\":[{\"id\":\"gpu0\","
        "\"memory_bytes\":8589934592}]}]}";
    struct grpc_asked asked = {.method = grpc_method_find("/medley.v1.Medley/ListNodes")};
    struct grpc_reply_piece piece = piece_of("", nodes);
    struct buffer out = {0};
    struct grpc_status status;
    assert_true(grpc_method_answer(&asked, &piece, &out, &status));
    assert_true(asked.is_complete);
    Medley__V1__ListNodesResponse *read = medley__v1__list_nodes_response__unpack(
        NULL, out.size - GRPC_FRAME_HEAD, (const uint8_t *)out.data + GRPC_FRAME_HEAD);
    assert_non_null(read);
    assert_int_equal(read->n_nodes, 1);
    assert_true(read->nodes[0]->self);
    assert_false(read->nodes[0]->has_votes);
    assert_false(read->nodes[0]->has_heard_ms);
    assert_string_equal(read->nodes[0]->addresses[1], "2");
    assert_true(read->nodes[0]->devices[0]->memory_bytes == UINT64_C(8589934592));
    medley__v1__list_nodes_response__free_unpacked(read, NULL);
    buffer_deinit(&out);
}

static void test_only_events(void **state)
{
    struct grpc_asked asked = {.method = grpc_method_find("/medley.v1.Medley/Watch"),
                               .events_only = true};
    struct grpc_reply_piece change = piece_of("change", "{\"a\":1}");
    struct grpc_reply_piece event = piece_of("event", "{\"index\":7,\"text\":\"x\"}");
    struct buffer out = {0};
    struct grpc_status status;
    assert_true(grpc_method_answer(&asked, &change, &out, &status));
    assert_int_equal(out.size, 0);
    assert_true(grpc_method_answer(&asked, &event, &out, &status));
    assert_true(out.size > GRPC_FRAME_HEAD);
    buffer_deinit(&out);
}

static void test_errors_of_answers(void **state)
{
    struct grpc_asked asked = {.method = grpc_method_find("/medley.v1.Medley/Place")};
    struct grpc_reply_piece piece =
        piece_of("", "{\"error\":{\"code\":\"not_found\",\"text\":\"no model\"}}");
    struct buffer out = {0};
    struct grpc_status status;
    assert_false(grpc_method_answer(&asked, &piece, &out, &status));
    assert_int_equal(status.code, GRPC_NOT_FOUND);
    assert_string_equal(status.message, "no model");
    piece = piece_of("", "[1]");
    assert_false(grpc_method_answer(&asked, &piece, &out, &status));
    assert_int_equal(status.code, GRPC_INTERNAL);
    assert_int_equal(out.size, 0);
}

/* ---- greetings ------------------------------------------------------------------------------- */

/* A ClientHello with this list of protocols, each with its length before it. */
static size_t hello_write(const char *protocols, size_t size, uint8_t *out)
{
    uint8_t body[256] = {3, 3};
    size_t n = 2 + 32;
    body[n++] = 0;                                                 /* session */
    body[n++] = 0, body[n++] = 2, body[n++] = 0x13, body[n++] = 1; /* suites */
    body[n++] = 1, body[n++] = 0;                                  /* compression */
    body[n++] = 0, body[n++] = (uint8_t)(size + 6 + 4); /* extensions: an empty one, and ALPN */
    body[n++] = 0, body[n++] = 23, body[n++] = 0, body[n++] = 0;
    body[n++] = 0, body[n++] = 16, body[n++] = 0, body[n++] = (uint8_t)(size + 2);
    body[n++] = 0, body[n++] = (uint8_t)size;
    memcpy(body + n, protocols, size);
    n += size;
    const uint8_t head[] = {22, 3, 1, 0, (uint8_t)(n + 4), 1, 0, 0, (uint8_t)n};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, body, n);
    return n + sizeof head;
}

static void test_greetings(void **state)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", post[] = "POST / HTTP/1.1";
    uint8_t hello[300];
    size_t wanted, size = hello_write("\2h2", 3, hello);
    assert_int_equal(greeting_read((const uint8_t *)preface, 24, false, &wanted), GREETING_RPC);
    assert_int_equal(greeting_read((const uint8_t *)preface, 3, false, &wanted), GREETING_MORE);
    assert_int_equal(wanted, 16);
    assert_int_equal(greeting_read((const uint8_t *)post, 2, false, &wanted), GREETING_HTTP);
    assert_int_equal(greeting_read((const uint8_t *)preface, 24, true, &wanted), GREETING_HTTP);
    assert_int_equal(greeting_read(hello, size, true, &wanted), GREETING_RPC);
    for (size_t n = 0; n < size; n++) {
        assert_int_equal(greeting_read(hello, n, true, &wanted), GREETING_MORE);
        assert_int_equal(wanted, n < 5 ? 5 : size);
    }
    size = hello_write("\2h2\10http/1.1", 12, hello);
    assert_int_equal(greeting_read(hello, size, true, &wanted), GREETING_HTTP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frames_are_the_same_however_they_are_cut),
        cmocka_unit_test(test_frames_that_are_refused),
        cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_messages_of_statuses),
        cmocka_unit_test(test_replies_are_the_same_however_they_are_cut),
        cmocka_unit_test(test_replies_are_bounded),
        cmocka_unit_test(test_a_request),
        cmocka_unit_test(test_answers_become_messages),
        cmocka_unit_test(test_only_events),
        cmocka_unit_test(test_errors_of_answers),
        cmocka_unit_test(test_greetings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
