/* The API server over real sockets, with a fake driver that writes the prompt again. */
#include "api_world.h"

#include "api/exchange.h"
#include "base/limits.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static const struct fake_driver_options usual = {.n_slots = 4, .queue_max = 8, .context = 64, .token_us = 1000};

static int start(void **state)
{
    (void)state;
    api_world_start(usual);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

/* The value at a JSON pointer of a body, as text: strings without quotes. */
static const char *at(const struct buffer *body, const char *pointer)
{
    static char text[4096];
    yyjson_doc *doc = yyjson_read(body->data ? body->data : "", body->size, 0);
    if (!doc)
        fail_msg("not JSON: %s", body->data);
    yyjson_val *value = yyjson_ptr_get(yyjson_doc_get_root(doc), pointer);
    char *json = value ? yyjson_val_write(value, 0, NULL) : NULL;
    snprintf(text, sizeof text, "%s", !value ? "(none)" : yyjson_is_str(value) ? yyjson_get_str(value) : json);
    free(json);
    yyjson_doc_free(doc);
    return text;
}

static void expect_error(const char *path, const char *json, int status, const char *code, const char *param)
{
    struct api_reply reply = api_once(path, json);
    assert_int_equal(reply.status, status);
    assert_string_equal(at(&reply.body, "/error/code"), code);
    assert_string_equal(at(&reply.body, "/error/param"), param);
    api_reply_clear(&reply);
}

static void test_plain_completion(void **state)
{
    (void)state;
    struct api_reply reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"h\xc3\xa9llo\"}");
    assert_int_equal(reply.status, 200);
    assert_string_equal(at(&reply.body, "/object"), "text_completion");
    assert_string_equal(at(&reply.body, "/model"), "fake-model");
    assert_string_equal(at(&reply.body, "/choices/0/text"), "h\xc3\xa9llo");
    assert_string_equal(at(&reply.body, "/choices/0/finish_reason"), "stop");
    assert_string_equal(at(&reply.body, "/usage/prompt_tokens"), "7");
    assert_string_equal(at(&reply.body, "/usage/completion_tokens"), "6");
    assert_string_equal(at(&reply.body, "/usage/total_tokens"), "13");
    assert_string_equal(at(&reply.body, "/usage/prompt_tokens_details/cached_tokens"), "1");
    api_reply_clear(&reply);
}

#define CHAT(content, more)                                                                                            \
    "{\"model\":\"fake-model\",\"messages\":[{\"role\":\"user\",\"content\":\"" content "\"}]" more "}"

static void test_chat_with_everything(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/chat/completions", CHAT("ab.cd", ",\"n\":2,\"stop\":[\".\",\"zz\"],\"logprobs\":true,"
                                                       "\"top_logprobs\":2"));
    assert_int_equal(reply.status, 200);
    assert_string_equal(at(&reply.body, "/object"), "chat.completion");
    assert_string_equal(at(&reply.body, "/choices/1/index"), "1");
    assert_string_equal(at(&reply.body, "/choices/1/message/role"), "assistant");
    assert_string_equal(at(&reply.body, "/choices/1/message/content"), "ab");
    assert_string_equal(at(&reply.body, "/choices/1/finish_reason"), "stop");
    /* the token of the stop string is not shown, its rivals neither */
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/1/token"), "b");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/1/bytes"), "[98]");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/1/logprob"), "-0.25");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/1/top_logprobs/1/token"), "x");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/1/top_logprobs/2"), "(none)");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/content/2"), "(none)");
    assert_string_equal(at(&reply.body, "/usage/prompt_tokens"), "6"); /* once, not for each choice */
    assert_string_equal(at(&reply.body, "/usage/completion_tokens"), "6");
    api_reply_clear(&reply);
}

static void test_length_and_echo_and_many_prompts(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/completions",
                 "{\"model\":\"fake\",\"prompt\":[\"abc\",[100,101,102]],\"max_tokens\":2,\"echo\":true,\"n\":2}");
    assert_int_equal(reply.status, 200);
    assert_string_equal(at(&reply.body, "/choices/1/text"), "abcab");
    assert_string_equal(at(&reply.body, "/choices/2/text"), "defde");
    assert_string_equal(at(&reply.body, "/choices/3/finish_reason"), "length");
    assert_string_equal(at(&reply.body, "/usage/prompt_tokens"), "7");
    api_reply_clear(&reply);
    reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\",\"max_tokens\":2,\"logprobs\":1}");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/tokens"), "[\"a\",\"b\"]");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/text_offset"), "[0,1]");
    assert_string_equal(at(&reply.body, "/choices/0/logprobs/top_logprobs/1"), "{\"b\":-0.25}");
    api_reply_clear(&reply);
}

/* The events of a stream put together: all must be JSON but the last. */
struct stream {
    char text[1024];
    char roles[64], reasons[64], usage[64];
    unsigned n_events, n_logprobs;
    bool done;
};

static void take_event(struct stream *stream, const char *data, size_t size)
{
    yyjson_doc *doc = yyjson_read(data, size, 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc), *choice = yyjson_ptr_get(root, "/choices/0");
    yyjson_val *text = yyjson_ptr_get(choice, "/delta/content"), *role = yyjson_ptr_get(choice, "/delta/role");
    yyjson_val *reason = yyjson_ptr_get(choice, "/finish_reason"), *n = yyjson_ptr_get(root, "/usage/total_tokens");
    text = text ? text : yyjson_ptr_get(choice, "/text");
    strcat(stream->text, text ? yyjson_get_str(text) : "");
    strcat(stream->roles, role ? yyjson_get_str(role) : "");
    strcat(stream->reasons, yyjson_is_str(reason) ? yyjson_get_str(reason) : "");
    if (n)
        snprintf(stream->usage, sizeof stream->usage, "%d", yyjson_get_int(n));
    stream->n_logprobs += (unsigned)yyjson_arr_size(yyjson_ptr_get(choice, "/logprobs/content"));
    stream->n_events++;
    yyjson_doc_free(doc);
}

static struct stream read_stream(const struct buffer *body)
{
    struct stream stream = {0};
    const char *from = body->data, *end;
    while (from && (end = strstr(from, "\n\n"))) {
        assert_false(stream.done);
        assert_memory_equal(from, "data: ", 6);
        if (strncmp(from + 6, "[DONE]", 6) == 0)
            stream.done = true;
        else
            take_event(&stream, from + 6, (size_t)(end - from - 6));
        from = end + 2;
    }
    assert_true(from && !*from);
    return stream;
}

static void test_stream(void **state)
{
    (void)state;
    struct api_reply reply =
        api_once("/v1/chat/completions",
                 CHAT("\xf0\x9f\x98\x80 ab\xe2\x82\xac.x",
                      ",\"stream\":true,\"stream_options\":{\"include_usage\":true},\"stop\":\".\",\"logprobs\":true"));
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.head.data, "text/event-stream"));
    struct stream stream = read_stream(&reply.body);
    assert_true(stream.done);
    assert_string_equal(stream.roles, "assistant");
    assert_string_equal(stream.text, "\xf0\x9f\x98\x80 ab\xe2\x82\xac");
    assert_string_equal(stream.reasons, "stop");
    assert_string_equal(stream.usage, "24"); /* 13 of the prompt, 10 of the text, and the stop string's */
    assert_int_equal(stream.n_logprobs, 10);
    api_reply_clear(&reply);
    reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\",\"stream\":true,\"echo\":true}");
    stream = read_stream(&reply.body);
    assert_true(stream.done);
    assert_string_equal(stream.text, "abcabc");
    api_reply_clear(&reply);
}

static void test_other_routes(void **state)
{
    (void)state;
    struct api_reply reply = api_once("/v1/models", NULL);
    assert_string_equal(at(&reply.body, "/data/0/id"), "fake-model");
    api_reply_clear(&reply);
    reply = api_once("/v1/models/fake-model", NULL);
    assert_string_equal(at(&reply.body, "/object"), "model");
    api_reply_clear(&reply);
    reply = api_once("/tokenize", "{\"content\":\"a\xc3\xa9\",\"add_special\":true}");
    assert_string_equal(at(&reply.body, "/tokens"), "[257,97,195,169]");
    api_reply_clear(&reply);
    reply = api_once("/detokenize", "{\"tokens\":[97,195,169,255]}");
    assert_string_equal(at(&reply.body, "/content"), "a\xc3\xa9\xef\xbf\xbd");
    api_reply_clear(&reply);
    reply = api_once("/metrics", NULL);
    assert_non_null(strstr(reply.body.data, "\nmedley_slots 4\n"));
    assert_non_null(strstr(reply.body.data, "route=\"/v1/models\",status=\"200\"} "));
    api_reply_clear(&reply);
}

/* Rows are (token, 1, 0, -1): tokens 257 and 2 add up to (259, 2, 0, -2). */
static void test_embeddings(void **state)
{
    (void)state;
    struct api_reply reply = api_once("/v1/embeddings", "{\"model\":\"fake\",\"input\":[[257,2],[1]]}");
    assert_int_equal(reply.status, 200);
    float v[4];
    assert_int_equal(sscanf(at(&reply.body, "/data/0/embedding"), "[%f,%f,%f,%f]", &v[0], &v[1], &v[2], &v[3]), 4);
    assert_true(v[0] > 0.9999f && v[0] < 1 && v[2] == 0 && v[1] == -v[3]);
    float norm = v[0] * v[0] + v[1] * v[1] + v[3] * v[3];
    assert_true(norm > 0.999999f && norm < 1.000001f);
    assert_string_equal(at(&reply.body, "/usage/prompt_tokens"), "3");
    api_reply_clear(&reply);
    reply = api_once("/v1/embeddings", "{\"model\":\"fake\",\"input\":\"a\",\"encoding_format\":\"base64\"}");
    assert_int_equal(strlen(at(&reply.body, "/data/0/embedding")), 24); /* 16 bytes */
    api_reply_clear(&reply);
}

static void test_errors(void **state)
{
    (void)state;
    expect_error("/v1/chat/completions", CHAT("a", ",\"colour\":1"), 400, "null", "colour");
    expect_error("/v1/chat/completions", CHAT("refuse", ""), 400, "null", "messages");
    expect_error("/v1/completions", "{\"model\":\"other\",\"prompt\":\"a\"}", 404, "model_not_found", "model");
    expect_error("/v1/completions", "{\"model\":", 400, "invalid_json", "null");
    expect_error("/v1/completions", "{\"model\":\"\xff\"}", 400, "invalid_json", "null");
    expect_error(
        "/v1/completions",
        "{\"model\":\"fake\",\"prompt\":\"a prompt that is longer than the sixty-four tokens of the context\"}", 400,
        "context_length_exceeded", "null");
    expect_error("/v1/completions", NULL, 405, "method_not_allowed", "null");
    expect_error("/v1/nothing", "{}", 404, "unknown_url", "null");
    expect_error("/v1/models/other", NULL, 404, "model_not_found", "model");
}

static void test_pipelined_requests(void **state)
{
    (void)state;
    int fd = api_connect();
    for (int i = 0; i < 3; i++)
        api_send_text(fd, "GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\nGET /nothing HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        struct api_reply reply = api_receive(fd);
        assert_int_equal(reply.status, i % 2 ? 404 : 200);
        api_reply_clear(&reply);
    }
    /* a request right behind a body: answered, or refused by closing after the first answer */
    struct buffer both = {0};
    const char *json = "{\"model\":\"fake\",\"prompt\":\"abc\"}";
    buffer_printf(
        &both, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%sGET /health HTTP/1.1\r\n\r\n",
        strlen(json), json);
    api_send(fd, both.data, both.size);
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    assert_string_equal(at(&reply.body, "/choices/0/text"), "abc");
    assert_non_null(strcasestr(reply.head.data, "connection: close"));
    api_reply_clear(&reply);
    reply = api_receive(fd);
    assert_true(reply.closed && !reply.status);
    buffer_deinit(&both);
    close(fd);
}

static void test_keep_alive_and_waiting_pipeline(void **state)
{
    (void)state;
    int fd = api_connect();
    for (int i = 0; i < 20; i++) {
        bool streamed = i % 2;
        api_post(fd, "/v1/chat/completions", streamed ? CHAT("abc", ",\"stream\":true") : CHAT("abc", ""));
        if (i % 4 == 0)
            usleep(2000); /* sent while the first is being answered */
        api_send_text(fd, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        struct api_reply first = api_receive(fd);
        assert_int_equal(first.status, 200);
        assert_int_equal(first.body.data[first.body.size - 1], streamed ? '\n' : '}');
        api_reply_clear(&first);
        struct api_reply second = api_receive(fd);
        assert_true(second.closed || second.status == 200);
        if (second.closed) {
            close(fd);
            fd = api_connect();
        }
        api_reply_clear(&second);
    }
    close(fd);
}

static void test_body_in_small_pieces(void **state)
{
    (void)state;
    const char *request = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 31\r\n\r\n"
                          "{\"model\":\"fake\",\"prompt\":\"abc\"}";
    int fd = api_connect();
    for (const char *c = request; *c; c++)
        api_send(fd, c, 1);
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
    close(fd);
}

static void test_head_options_and_bad_lengths(void **state)
{
    (void)state;
    static const struct {
        const char *request;
        int status;
    } rows[] = {
        {"OPTIONS /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 204},
        {"PUT /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", 405},
        {"DELETE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", 405},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 5x\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 411},
        {"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999999\r\n\r\n", 413},
        {"GET /health?x=1 HTTP/1.0\r\n\r\n", 200},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int fd = api_connect();
        api_send_text(fd, rows[i].request);
        struct api_reply reply = api_receive(fd);
        if (reply.status != rows[i].status)
            fail_msg("%d, not %d, to: %s", reply.status, rows[i].status, rows[i].request);
        api_reply_clear(&reply);
        close(fd);
    }
    int fd = api_connect();
    api_send_text(fd, "HEAD /health HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_true(api_wait_for(fd, "\r\n\r\n"));
    close(fd);
}

static void test_body_too_large_is_refused_early(void **state)
{
    (void)state;
    int fd = api_connect();
    char *piece = calloc(1, 1 << 20);
    api_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 104857600\r\n\r\n");
    struct api_reply reply = api_receive(fd); /* before any of the body is sent */
    assert_int_equal(reply.status, 413);
    assert_string_equal(at(&reply.body, "/error/code"), "body_too_large");
    for (int i = 0; i < 100; i++)
        api_send(fd, piece, 1 << 20);
    free(piece);
    api_reply_clear(&reply);
    close(fd);
    reply = api_once("/health", NULL);
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
}

static void test_expect_continue(void **state)
{
    (void)state;
    int fd = api_connect();
    api_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 31\r\n\r\n");
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 100);
    api_reply_clear(&reply);
    api_send_text(fd, "{\"model\":\"fake\",\"prompt\":\"abc\"}");
    reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
    close(fd);
}

static void test_slots_are_freed_when_clients_leave(void **state)
{
    (void)state;
    static const char *const endless[] = {
        "{\"model\":\"fake\",\"prompt\":\"!x\",\"max_tokens\":1000000,\"stream\":true}",
        "{\"model\":\"fake\",\"prompt\":\"!x\",\"max_tokens\":1000000}",
    };
    for (int i = 0; i < 2; i++) {
        int fd = api_connect();
        api_post(fd, "/v1/completions", endless[i]);
        api_wait_busy(1);
        close(fd);
        api_wait_busy(0);
    }
}

static void test_full_queue(void **state)
{
    (void)state;
    int fds[12];
    for (int i = 0; i < 12; i++) { /* 4 slots and 8 places */
        fds[i] = api_connect();
        api_post(fds[i], "/v1/completions",
                 "{\"model\":\"fake\",\"prompt\":\"!\",\"max_tokens\":1000000,\"stream\":true}");
        assert_true(api_wait_for(fds[i], "\r\n\r\n"));
        if (i < 4)
            api_wait_busy((unsigned)i + 1);
    }
    struct api_reply reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\"}");
    assert_int_equal(reply.status, 429);
    assert_non_null(strcasestr(reply.head.data, "retry-after: "));
    assert_string_equal(at(&reply.body, "/error/code"), "queue_full");
    api_reply_clear(&reply);
    for (int i = 0; i < 12; i++)
        close(fds[i]);
    api_wait_busy(0);
    reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\",\"n\":9}");
    assert_true(reply.status == 200 || reply.status == 429); /* nine do not always fit in eight places */
    api_reply_clear(&reply);
    api_wait_busy(0);
}

/* A client that never reads: its buffers fill, and the request is cancelled. */
static void test_slow_reader_is_cut_off(void **state)
{
    (void)state;
    int fd = api_connect(), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    struct buffer json = {0};
    buffer_text(
        &json,
        "{\"model\":\"fake\",\"prompt\":\"!x\",\"max_tokens\":1000000,\"n\":4,\"stream\":true,\"stop\":[\"END\"]}");
    api_post(fd, "/v1/completions", json.data);
    api_wait_busy(4);
    for (int i = 0; i < 100;
         i++) { /* 4 tokens a millisecond, 180 bytes each: some seconds to fill what the kernel takes */
        struct api_reply reply = api_once("/health", NULL);
        bool over = strstr(reply.body.data, "\"busy\":0") != NULL;
        api_reply_clear(&reply);
        if (over)
            break;
        usleep(200000);
    }
    api_wait_busy(0);
    buffer_deinit(&json);
    close(fd);
}

static void test_many_at_once(void **state)
{
    (void)state;
    int fds[8];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < 8; i++) {
            char json[128];
            fds[i] = api_connect();
            snprintf(json, sizeof json, "{\"model\":\"fake\",\"prompt\":\"number %d of them\",\"max_tokens\":50%s}", i,
                     i % 2 ? ",\"stream\":true" : "");
            api_post(fds[i], "/v1/completions", json);
        }
        for (int i = 0; i < 8; i++) {
            char expected[64];
            snprintf(expected, sizeof expected, "number %d of them", i);
            struct api_reply reply = api_receive(fds[i]);
            assert_int_equal(reply.status, 200);
            if (i % 2)
                assert_string_equal(read_stream(&reply.body).text, expected);
            else
                assert_string_equal(at(&reply.body, "/choices/0/text"), expected);
            api_reply_clear(&reply);
            close(fds[i]);
        }
    }
}

static void test_garbage_does_not_stop_the_server(void **state)
{
    (void)state;
    static const char *const garbage[] = {"\x16\x03\x01\x02",
                                          "GET\r\n\r\n",
                                          "\r\n\r\n\r\n",
                                          "FOO / HTTP/1.1\r\n\r\n",
                                          "GET / HTTP/9.9\r\nA\r\n\r\n",
                                          "POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{"};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        int fd = api_connect();
        api_send_text(fd, garbage[i]);
        usleep(5000);
        close(fd);
    }
    char *large = malloc(200000);
    memset(large, 'a', 200000);
    memcpy(large, "GET /", 5);
    int fd = api_connect();
    api_send(fd, large, 200000);
    close(fd);
    free(large);
    struct api_reply reply = api_once("/health", NULL);
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_completion),
        cmocka_unit_test(test_chat_with_everything),
        cmocka_unit_test(test_length_and_echo_and_many_prompts),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_other_routes),
        cmocka_unit_test(test_embeddings),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_pipelined_requests),
        cmocka_unit_test(test_keep_alive_and_waiting_pipeline),
        cmocka_unit_test(test_body_in_small_pieces),
        cmocka_unit_test(test_head_options_and_bad_lengths),
        cmocka_unit_test(test_body_too_large_is_refused_early),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_slots_are_freed_when_clients_leave),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_slow_reader_is_cut_off),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_garbage_does_not_stop_the_server),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
