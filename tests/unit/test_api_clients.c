/* The API server and clients that behave otherwise than they should, over real sockets. */
#include "api_world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

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

#include <cmocka.h>

static const struct fake_driver_options usual = {
    .n_slots = 4, .queue_max = 8, .context = 64, .token_us = 1000};

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

static void test_pipelined_requests(void **state)
{
    (void)state;
    int fd = api_connect();
    for (int i = 0; i < 3; i++)
        api_send_text(fd, "GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\nGET /nothing "
                          "HTTP/1.1\r\nHost: localhost\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        struct api_reply reply = api_receive(fd);
        assert_int_equal(reply.status, i % 2 ? 404 : 200);
        api_reply_clear(&reply);
    }
    /* a request right behind a body: answered, or refused by closing after the first answer */
    struct buffer both = {0};
    const char *json = "{\"model\":\"fake\",\"prompt\":\"abc\"}";
    buffer_printf(
        &both,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%sGET "
        "/health HTTP/1.1\r\n\r\n",
        strlen(json), json);
    api_send(fd, both.data, both.size);
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "abc");
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
        api_post(fd, "/v1/chat/completions",
                 streamed ? CHAT("abc", ",\"stream\":true") : CHAT("abc", ""));
        if (i % 4 == 0)
            usleep(2000); /* sent while the first is being answered */
        api_send_text(fd, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
    const char *request =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 31\r\n\r\n"
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
        {"OPTIONS /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 204},
        {"PUT /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405},
        {"DELETE /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n", 405},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5x\r\n\r\n", 400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
         "chunked\r\n\r\n0\r\n\r\n",
         400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
         "chunked\r\n\r\nx\r\n\r\n",
         400},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
         "gzip\r\n\r\nx\r\n\r\n",
         411},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
         "chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
         411},
        {"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
         "999999999999999\r\n\r\n",
         413},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://b\r\nContent-Length: "
         "14\r\n\r\n{\"content\":\"\"}",
         403},
        {"POST /tokenize HTTP/1.1\r\nHost: a:1\r\nOrigin: http://a:1\r\nContent-Length: "
         "14\r\n\r\n{\"content\":\"\"}",
         403},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost:1\r\nOrigin: "
         "http://localhost:1\r\nContent-Length: 14\r\n\r\n{\"content\":\"\"}",
         200},
        {"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
         "14\r\n\r\n{\"content\":\"\"}",
         200},
        {"GET /health HTTP/1.1\r\n\r\n", 400},
        {"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400},
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
    api_send_text(fd, "HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_true(api_wait_for(fd, "\r\n\r\n"));
    close(fd);
}

static void test_body_too_large_is_refused_early(void **state)
{
    (void)state;
    int fd = api_connect();
    char *piece = calloc(1, 1 << 20);
    api_send_text(
        fd,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 104857600\r\n\r\n");
    struct api_reply reply = api_receive(fd); /* before any of the body is sent */
    assert_int_equal(reply.status, 413);
    assert_string_equal(api_json_at(&reply.body, "/error/code"), "body_too_large");
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
    api_send_text(fd, "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: "
                      "100-continue\r\nContent-Length: 31\r\n\r\n");
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 100);
    api_reply_clear(&reply);
    api_send_text(fd, "{\"model\":\"fake\",\"prompt\":\"abc\"}");
    reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
    close(fd);
}

/* In every cut of the bytes in two. */
static void test_chunked_body(void **state)
{
    (void)state;
    static const char head[] =
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    static const char body[] =
        "a;x=1\r\n{\"model\":\"\r\n15\r\nfake\",\"prompt\":\"abc\"}\r\n0\r\nTrailer: x\r\n\r\n";
    for (size_t cut = 0; cut < sizeof body - 1; cut++) {
        int fd = api_connect();
        api_send_text(fd, head);
        api_send(fd, body, cut);
        if (cut % 8 == 0)
            usleep(1000);
        api_send(fd, body + cut, sizeof body - 1 - cut);
        struct api_reply reply = api_receive(fd);
        assert_int_equal(reply.status, 200);
        assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "abc");
        api_reply_clear(&reply);
        close(fd);
    }
    int fd = api_connect();
    char *large = malloc(LIMIT_BODY_BYTES + 1);
    memset(large, ' ', LIMIT_BODY_BYTES + 1);
    api_send_text(fd, head);
    api_send_text(fd, "2000001\r\n");
    api_send(fd, large, LIMIT_BODY_BYTES + 1);
    free(large);
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 413);
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
    assert_string_equal(api_json_at(&reply.body, "/error/code"), "queue_full");
    api_reply_clear(&reply);
    for (int i = 0; i < 12; i++)
        close(fds[i]);
    api_wait_busy(0);
    reply = api_once("/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\",\"n\":9}");
    assert_true(reply.status == 200 ||
                reply.status == 429); /* nine do not always fit in eight places */
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
    buffer_text(&json, "{\"model\":\"fake\",\"prompt\":\"!x\",\"max_tokens\":1000000,\"n\":4,"
                       "\"stream\":true,\"stop\":[\"END\"]}");
    api_post(fd, "/v1/completions", json.data);
    api_wait_busy(4);
    for (int i = 0; i < 100; i++) { /* 4 tokens a millisecond, 180 bytes each: some seconds to fill
                                       what the kernel takes */
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

/* Fails the nth allocation of the server while it answers: 200 or 503, an error in the stream, or a
 * closed connection; and then it goes on. The client's side allocates nothing. */
static void without_memory(unsigned nth, const char *path, const char *json, bool *ok)
{
    static char request[1024], answer[65536];
    snprintf(
        request, sizeof request,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
        path, strlen(json), json);
    int fd = api_connect();
    mem_fail_nth(nth);
    api_send_text(fd, request);
    size_t size = 0;
    ssize_t n;
    while ((n = recv(fd, answer + size, sizeof answer - 1 - size, 0)) > 0)
        size += (size_t)n;
    mem_fail_nth(0);
    close(fd);
    answer[size] = '\0';
    *ok = strncmp(answer, "HTTP/1.1 200", 12) == 0 && !strstr(answer, "\"error\"") &&
          (!strstr(answer, "chunked") || strstr(answer, "[DONE]"));
    assert_true(*ok || !size || strstr(answer, "not enough memory") ||
                strncmp(answer, "HTTP/1.1 200", 12) == 0);
}

static void test_no_memory_at_any_point(void **state)
{
    (void)state;
    static const char *const requests[][2] = {
        {"/v1/completions", "{\"model\":\"fake\",\"prompt\":\"abc\",\"n\":2,\"logprobs\":2,"
                            "\"echo\":true,\"stop\":\"x\"}"},
        {"/v1/chat/completions",
         CHAT("abc",
              ",\"stream\":true,\"logprobs\":true,\"stream_options\":{\"include_usage\":true}")},
        {"/v1/embeddings", "{\"model\":\"fake\",\"input\":[\"a\",\"b\"]}"},
        {"/tokenize", "{\"content\":\"a\"}"},
        {"/detokenize", "{\"tokens\":[97]}"},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        unsigned n_failed = 0;
        bool ok = false;
        for (unsigned nth = 1; nth < 200; nth++) {
            without_memory(nth, requests[i][0], requests[i][1], &ok);
            n_failed += !ok;
        }
        assert_true(ok &&
                    n_failed >= 3); /* it has failed, and beyond the last allocation it has not */
        api_wait_busy(0);
    }
}

static void test_garbage_does_not_stop_the_server(void **state)
{
    (void)state;
    static const char *const garbage[] = {
        "\x16\x03\x01\x02",
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

/* Clients that leave at any moment, of any kind of request, some in the middle of sending it. */
static void test_departures_at_any_moment(void **state)
{
    (void)state;
    static const char *const requests[][2] = {
        {"/v1/completions",
         "{\"model\":\"fake\",\"prompt\":\"abc\",\"n\":3,\"stream\":true,\"echo\":true}"},
        {"/v1/completions", "{\"model\":\"fake\",\"prompt\":\"!bc\",\"n\":2,\"stop\":\"!\"}"},
        {"/v1/chat/completions", CHAT("!bc", ",\"stream\":true,\"logprobs\":true")},
        {"/v1/embeddings", "{\"model\":\"fake\",\"input\":[\"a\",\"b\",\"c\"]}"},
        {"/tokenize", "{\"content\":\"a\"}"},
    };
    for (uint64_t i = 0; i < 400; i++) {
        static char request[1024];
        const char *const *chosen =
            requests[random_at(1, i) % (sizeof requests / sizeof *requests)];
        int size = snprintf(request, sizeof request,
                            "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                            chosen[0], strlen(chosen[1]), chosen[1]);
        bool whole = random_at(2, i) % 4;
        int fd = api_connect();
        api_send(fd, request, whole ? (size_t)size : random_at(3, i) % (size_t)size);
        usleep((useconds_t)(random_at(4, i) % 5000));
        close(fd);
    }
    api_wait_busy(0);
}

/* The last test: the group's teardown only waits for the end. */
static void test_a_stop_waits_for_what_runs_and_a_second_does_not(void **state)
{
    (void)state;
    int fd = api_connect();
    api_post(fd, "/v1/completions",
             "{\"model\":\"fake\",\"prompt\":\"!x\",\"max_tokens\":1000000,\"stream\":true}");
    api_wait_busy(1);
    kill(getpid(), SIGTERM);
    struct api_reply reply = {0};
    for (int i = 0; i < 500 && reply.status != 503; i++) {
        api_reply_clear(&reply);
        usleep(10000);
        reply = api_once("/health", NULL);
    }
    assert_int_equal(reply.status, 503);
    assert_string_equal(api_json_at(&reply.body, "/error/code"), "stopping");
    api_reply_clear(&reply);
    assert_true(api_wait_for(fd, "data: ")); /* still being answered */
    api_world_stop();                        /* the second signal, and joins the thread */
    assert_false(api_wait_for(fd, "never sent"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipelined_requests),
        cmocka_unit_test(test_keep_alive_and_waiting_pipeline),
        cmocka_unit_test(test_body_in_small_pieces),
        cmocka_unit_test(test_head_options_and_bad_lengths),
        cmocka_unit_test(test_body_too_large_is_refused_early),
        cmocka_unit_test(test_expect_continue),
        cmocka_unit_test(test_chunked_body),
        cmocka_unit_test(test_slots_are_freed_when_clients_leave),
        cmocka_unit_test(test_full_queue),
        cmocka_unit_test(test_slow_reader_is_cut_off),
        cmocka_unit_test(test_no_memory_at_any_point),
        cmocka_unit_test(test_departures_at_any_moment),
        cmocka_unit_test(test_garbage_does_not_stop_the_server),
        cmocka_unit_test(test_a_stop_waits_for_what_runs_and_a_second_does_not),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
