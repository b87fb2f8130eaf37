/* Work on requests' behalf: bounded in memory, time and number, fair, and given up when the client
 * goes. */
#include "api_world.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

static void start(struct api_limits limits)
{
    api_world_limit(limits);
    api_world_start((struct fake_driver_options){.n_slots = 2, .queue_max = 64, .context = 64});
}

static int stop(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

static long metric(const char *name)
{
    char line[128];
    struct api_reply reply = api_once("/metrics", NULL);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(reply.body.data, line);
    assert_non_null(at);
    const long value = strtol(at + strlen(line), NULL, 10);
    api_reply_clear(&reply);
    return value;
}

static void wait_for_metric(const char *name, long value)
{
    for (int i = 0; i < 500; i++) {
        if (metric(name) == value)
            return;
        usleep(10000);
    }
    fail_msg("%s is %ld, not %ld", name, metric(name), value);
}

static void expect_limit(struct api_reply *reply, int status, const char *limit)
{
    assert_int_equal(reply->status, status);
    if (!strstr(api_json_at(&reply->body, "/error/message"), limit))
        fail_msg("the limit '%s' is not in: %s", limit, reply->body.data);
    if (status == 429 || status == 503)
        assert_non_null(strcasestr(reply->head.data, "\r\nretry-after:"));
    api_reply_clear(reply);
}

static void expect_alive(void)
{
    struct api_reply reply = api_once("/v1/chat/completions", CHAT("hello", ""));
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
}

static char *large_text(const char *before, size_t size, const char *after)
{
    char *text = malloc(size + 1);
    memset(text, 'a', size);
    memcpy(text, before, strlen(before));
    memcpy(text + size - strlen(after), after, strlen(after) + 1);
    return text;
}

/* A body of 3 MiB needs the same again parsed, and four times that as tokens. */
static void test_memory_of_a_request(void **state)
{
    (void)state;
    start((struct api_limits){.memory = 64 * MIB, .request_memory = 8 * MIB});
    char *json = large_text("{\"content\":\"", 3 * MIB, "\"}");
    for (int i = 0; i < 3; i++) {
        struct api_reply reply = api_once("/tokenize", json);
        expect_limit(&reply, 413, "limit request-memory: 8 MiB");
    }
    free(json);
    wait_for_metric("medley_api_memory_bytes", 0);
    assert_true(metric("medley_api_memory_peak_bytes") <= 12 * MIB);
    expect_alive();
}

/* What a parsed body takes is counted, however many times its bytes that is. */
static void test_memory_of_what_is_parsed(void **state)
{
    enum { BYTES = 2 * MIB };
    (void)state;
    start((struct api_limits){.memory = 64 * MIB, .request_memory = 8 * MIB});
    char *json = large_text("{\"tokens\":[1 ", BYTES, " 1]}");
    for (size_t i = 12; i < BYTES - 6; i++)
        json[i] = i % 2 ? '1' : ',';
    json[BYTES - 5] = ',';
    json[BYTES - 4] = '1';
    struct api_reply reply = api_once("/detokenize", json);
    expect_limit(&reply, 413, "limit request-memory: 8 MiB");
    free(json);
    wait_for_metric("medley_api_memory_bytes", 0);
    expect_alive();
}

static void test_memory_of_all(void **state)
{
    int fds[6];
    (void)state;
    start((struct api_limits){.memory = 16 * MIB, .bodies = 64 * MIB});
    char *part = large_text("{\"content\":\"", 4 * MIB, "a");
    for (int i = 0; i < 6; i++) { /* bodies that do not end */
        fds[i] = api_connect();
        char head[128];
        snprintf(head, sizeof head,
                 "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n",
                 5 * MIB);
        api_send_text(fds[i], head);
        api_send(fds[i], part, 4 * MIB);
    }
    struct api_reply reply = api_receive(fds[5]);
    expect_limit(&reply, 503, "limit memory: 16 MiB");
    assert_true(metric("medley_api_memory_peak_bytes") <= 17 * MIB);
    for (int i = 0; i < 6; i++)
        close(fds[i]);
    free(part);
    wait_for_metric("medley_api_memory_bytes", 0);
    expect_alive();
}

/* A template that does not end, for a client that has gone, ends. */
static void test_gone_in_the_middle(void **state)
{
    (void)state;
    start((struct api_limits){0});
    int fd = api_connect();
    api_post(fd, "/v1/chat/completions", CHAT("hold", ""));
    wait_for_metric("medley_requests_active", 2); /* and that of the question */
    close(fd);
    wait_for_metric("medley_requests_active", 1);
    expect_alive();
    wait_for_metric("medley_api_memory_bytes", 0);
}

/* What waits is bounded, of each client and of all; other work goes on beside; who leaves the
 * queue makes room. */
static void test_waiting(void **state)
{
    int fds[3];
    (void)state;
    start((struct api_limits){.client_waiting = 2});
    for (int i = 0; i < 3; i++) {
        fds[i] = api_connect();
        api_post(fds[i], "/v1/chat/completions", CHAT("hold", ""));
        wait_for_metric("medley_requests_active", i + 2);
        wait_for_metric("medley_prepare_waiting", i); /* the first has begun */
    }
    struct api_reply reply = api_once("/v1/chat/completions", CHAT("hello", ""));
    expect_limit(&reply, 429, "limit client-waiting: 2");
    close(fds[2]);
    wait_for_metric("medley_prepare_waiting", 1);
    reply = api_once("/tokenize", "{\"content\":\"abc\"}");
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
    close(fds[0]);
    close(fds[1]);
    wait_for_metric("medley_prepare_waiting", 0);
    expect_alive();
}

/* A request that waits. Where the one before it was not yet begun, the first is refused. */
static int hold_in_queue(void)
{
    for (;;) {
        struct pollfd answer = {.fd = api_connect(), .events = POLLIN};
        api_post(answer.fd, "/v1/chat/completions", CHAT("hold", ""));
        for (int i = 0; i < 500 && poll(&answer, 1, 0) == 0; i++) {
            if (metric("medley_prepare_waiting") == 1)
                return answer.fd;
            usleep(10000);
        }
        assert_int_equal(poll(&answer, 1, 0), 1);
        close(answer.fd);
    }
}

static void test_waiting_of_all(void **state)
{
    int fds[2];
    (void)state;
    start((struct api_limits){.waiting = 1});
    fds[0] = api_connect();
    api_post(fds[0], "/v1/chat/completions", CHAT("hold", ""));
    wait_for_metric("medley_requests_active", 2);
    wait_for_metric("medley_prepare_waiting", 0);
    fds[1] = hold_in_queue();
    struct api_reply reply = api_once("/v1/chat/completions", CHAT("hello", ""));
    expect_limit(&reply, 503, "limit waiting: 1");
    close(fds[0]);
    close(fds[1]);
    wait_for_metric("medley_requests_active", 1);
}

static void test_time(void **state)
{
    (void)state;
    start((struct api_limits){.prepare_time = 50});
    struct api_reply reply = api_once("/v1/chat/completions", CHAT("spin", ""));
    expect_limit(&reply, 413, "limit prepare-time: 50 ms");
    expect_alive();
}

/* Stopping does not wait for work that nobody will have. */
static void test_stop_in_the_middle(void **state)
{
    (void)state;
    start((struct api_limits){0});
    int fd = api_connect();
    api_post(fd, "/v1/chat/completions", CHAT("hold", ""));
    wait_for_metric("medley_requests_active", 2);
    close(fd);
    api_world_stop();
}

#define WORK_TEST(test) cmocka_unit_test_teardown(test, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORK_TEST(test_memory_of_a_request),
        WORK_TEST(test_memory_of_what_is_parsed),
        WORK_TEST(test_memory_of_all),
        WORK_TEST(test_gone_in_the_middle),
        WORK_TEST(test_waiting),
        WORK_TEST(test_waiting_of_all),
        WORK_TEST(test_time),
        WORK_TEST(test_stop_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
