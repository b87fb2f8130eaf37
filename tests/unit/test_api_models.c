/* The API server over models that come and go, and that open late or not at all. */
#include "api_world.h"
#include "base/mem.h"
#include "base/random.h"
#include "models_world.h"

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

enum { WAITING_MS = 20 };

static int start(void **state)
{
    (void)state;
    models_world_start(WAITING_MS);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    models_world_stop();
    return 0;
}

/* The value at `pointer` of the answer, which must have this status. */
static void expect(const char *path, const char *json, int status, const char *pointer,
                   const char *value)
{
    struct api_reply reply = api_once(path, json);
    assert_int_equal(reply.status, status);
    assert_string_equal(api_json_at(&reply.body, pointer), value);
    api_reply_clear(&reply);
}

#define ASK(model, more) "{\"model\":\"" model "\",\"prompt\":\"abc\"" more "}"

/* One request for each endpoint that opens a model; each is answered 200. */
static const char *const requests[][2] = {
    {"/v1/completions", ASK("first", "")},
    {"/v1/completions", ASK("two", ",\"stream\":true,\"n\":2")},
    {"/v1/chat/completions",
     "{\"model\":\"second\",\"messages\":[{\"role\":\"user\",\"content\":\"abc\"}]}"},
    {"/v1/embeddings", "{\"model\":\"first\",\"input\":[\"a\",\"b\"]}"},
    {"/tokenize", "{\"content\":\"a\",\"model\":\"second\"}"},
    {"/detokenize", "{\"tokens\":[97],\"model\":\"one\"}"},
};
enum { REQUESTS = sizeof requests / sizeof *requests };

/* ---- two models ---- */

static void test_each_request_gets_its_model(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"first", "first"}, {"one", "first"}, {"second", "second"}, {"two", "second"}};
    for (int i = 0; i < 4; i++) {
        char json[128];
        snprintf(json, sizeof json, "{\"model\":\"%s\",\"prompt\":\"abc\"}", names[i][0]);
        expect("/v1/completions", json, 200, "/model", names[i][1]);
        expect("/v1/completions", json, 200, "/choices/0/text", "abc");
    }
    expect("/v1/embeddings", "{\"model\":\"two\",\"input\":\"a\"}", 200, "/model", "second");
    models_world_wait(0, 0);
    struct api_reply reply =
        api_once("/health", NULL); /* it is the second's driver that had five of them */
    assert_string_equal(
        reply.body.data,
        "{\"status\":\"ok\",\"models\":[{\"model\":\"first\",\"slots\":{\"total\":4,\"busy\":0},"
        "\"queued\":0},{\"model\":\"second\",\"slots\":{\"total\":2,\"busy\":0},\"queued\":0}],"
        "\"slots\":{\"total\":6,\"busy\":0},\"queued\":0}");
    api_reply_clear(&reply);
    reply = api_once("/metrics", NULL);
    assert_non_null(strstr(reply.body.data, "\nmedley_slots{model=\"first\"} 4\n"));
    assert_non_null(
        strstr(reply.body.data, "\nmedley_driver_requests_total{model=\"second\"} 5\n"));
    api_reply_clear(&reply);
}

/* Two streams at once, one of each model. */
static void test_models_work_at_once(void **state)
{
    (void)state;
    int first = api_connect(), second = api_connect();
    api_post(first, "/v1/completions",
             "{\"model\":\"first\",\"prompt\":\"!a\",\"max_tokens\":1000000,\"stream\":true}");
    api_post(second, "/v1/completions",
             "{\"model\":\"second\",\"prompt\":\"!b\",\"max_tokens\":1000000,\"stream\":true}");
    assert_true(api_wait_for(first, "\"model\":\"first\""));
    assert_true(api_wait_for(second, "\"model\":\"second\""));
    models_world_wait(0, 2);
    expect("/health", NULL, 200, "/models/0/slots/busy", "1");
    expect("/health", NULL, 200, "/models/1/slots/busy", "1");
    expect("/health", NULL, 200, "/slots/busy", "2");
    close(first);
    models_world_wait(0, 1);
    close(second);
    models_world_wait(0, 0);
}

static void test_what_a_model_can_is_its_own(void **state)
{
    (void)state;
    static const char ids[] = "/detokenize";
    expect(ids, "{\"model\":\"two\",\"tokens\":[259]}", 200, "/content", "<s>");
    expect(ids, "{\"model\":\"one\",\"tokens\":[259]}", 400, "/error/message",
           "'tokens': element 0 is not a token id from 0 to 257");
    static const char biased[] = "{\"model\":\"%s\",\"prompt\":[97],\"logit_bias\":{\"259\":1}}";
    char json[128];
    snprintf(json, sizeof json, biased, "second");
    expect("/v1/completions", json, 200, "/choices/0/text", "a");
    snprintf(json, sizeof json, biased, "first");
    expect("/v1/completions", json, 400, "/error/param", "logit_bias.259");
    expect("/v1/embeddings", "{\"model\":\"first\",\"input\":[[258]]}", 400, "/error/param",
           "input");
    /* forty tokens: the second has a context of 32 */
    static const char prompt[] =
        "{\"model\":\"%s\",\"prompt\":\"0123456789012345678901234567890123456789\"}";
    snprintf(json, sizeof json, prompt, "first");
    expect("/v1/completions", json, 200, "/usage/prompt_tokens", "41");
    snprintf(json, sizeof json, prompt, "second");
    expect("/v1/completions", json, 400, "/error/code", "context_length_exceeded");
}

static void test_listing(void **state)
{
    (void)state;
    struct api_reply reply = api_once("/v1/models", NULL);
    assert_string_equal(api_json_at(&reply.body, "/data/0/id"), "first");
    assert_string_equal(api_json_at(&reply.body, "/data/1/id"), "second");
    assert_string_equal(api_json_at(&reply.body, "/data/1/created"), "1001");
    assert_string_equal(api_json_at(&reply.body, "/data/2"), "(none)");
    api_reply_clear(&reply);
    expect("/v1/models/second", NULL, 200, "/id", "second");
    expect("/v1/models/one", NULL, 200, "/id", "first");
    expect("/v1/models/three", NULL, 404, "/error/message",
           "The model 'three' does not exist; there are 'first', 'second'");
}

static void test_names_that_are_wrong_or_missing(void **state)
{
    (void)state;
    expect("/v1/completions", ASK("three", ""), 404, "/error/code", "model_not_found");
    expect("/v1/completions", ASK("three", ""), 404, "/error/param", "model");
    expect("/v1/completions", ASK("first\\u0000", ""), 404, "/error/code", "model_not_found");
    expect("/v1/completions", ASK("", ""), 404, "/error/code", "model_not_found");
    expect("/tokenize", "{\"content\":\"a\"}", 400, "/error/param", "model");
    expect("/detokenize", "{\"tokens\":[97]}", 400, "/error/message",
           "you must provide 'model', one of 'first', 'second'");
    expect("/tokenize", "{\"content\":\"a\",\"model\":\"three\"}", 404, "/error/param", "model");
    models_world_wait(0, 0);
}

/* ---- models that come and go ---- */

static void test_a_model_goes_and_comes_between_requests(void **state)
{
    (void)state;
    models_world_list("first", false);
    expect("/v1/completions", ASK("first", ""), 404, "/error/message",
           "The model 'first' does not exist; the loaded one is 'second'");
    expect("/v1/completions", ASK("second", ""), 200, "/model", "second");
    expect("/v1/models/first", NULL, 404, "/error/code", "model_not_found");
    struct api_reply reply = api_once("/health", NULL);
    assert_string_equal(
        reply.body.data,
        "{\"status\":\"ok\",\"model\":\"second\",\"slots\":{\"total\":2,\"busy\":0},\"queued\":0}");
    api_reply_clear(&reply);
    expect("/detokenize", "{\"tokens\":[97]}", 200, "/content",
           "a"); /* the only one needs no name */
    models_world_list("second", false);
    expect("/v1/models", NULL, 200, "/data", "[]");
    expect("/v1/completions", ASK("second", ""), 404, "/error/message",
           "The model 'second' does not exist; there is none");
    expect("/tokenize", "{\"content\":\"a\"}", 404, "/error/message", "there is no model");
    expect("/health", NULL, 200, "/models", "[]");
    models_world_list("first", true);
    models_world_list("second", true);
    expect("/v1/completions", ASK("first", ""), 200, "/model", "first");
}

/* Who has the model open goes on with it to the end. */
static void test_a_model_that_goes_is_held_to_the_end(void **state)
{
    (void)state;
    uint32_t before = models_world_forgotten();
    int fd = api_connect();
    api_post(fd, "/v1/completions",
             "{\"model\":\"two\",\"prompt\":\"!x\",\"max_tokens\":25,\"stream\":true}");
    assert_true(api_wait_for(fd, "data: "));
    models_world_list("second", false);
    assert_int_equal(models_world_forgotten(), before);
    expect("/v1/completions", ASK("second", ""), 404, "/error/code", "model_not_found");
    assert_true(api_wait_for(fd, "[DONE]"));
    models_world_wait(0, 0);
    assert_int_equal(models_world_forgotten(), before + 1);
    close(fd);
    models_world_list("second", true);
}

/* ---- late ---- */

static int late_begin(void **state)
{
    (void)state;
    models_world_be_late(true);
    return 0;
}

static int late_end(void **state)
{
    (void)state;
    models_world_be_late(false);
    models_world_wait(0, 0);
    return 0;
}

static void test_a_model_that_opens_late(void **state)
{
    (void)state;
    int fds[REQUESTS];
    for (int i = 0; i < REQUESTS; i++) {
        fds[i] = api_connect();
        api_post(fds[i], requests[i][0], requests[i][1]);
    }
    models_world_wait(REQUESTS, 0);
    models_world_answer(ERROR_NONE);
    for (int i = 0; i < REQUESTS; i++) {
        struct api_reply reply = api_receive(fds[i]);
        assert_int_equal(reply.status, 200);
        assert_null(strstr(reply.body.data, "\"error\""));
        api_reply_clear(&reply);
        close(fds[i]);
    }
}

static void test_a_stream_says_that_it_waits(void **state)
{
    (void)state;
    static const char sign[] = ": loading model\n\n: loading model\n\n";
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", ",\"stream\":true"));
    models_world_wait(1, 0);
    usleep(5 * WAITING_MS * 1000);
    models_world_answer(ERROR_NONE);
    struct api_reply reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.head.data, "text/event-stream"));
    assert_memory_equal(reply.body.data, sign, sizeof sign - 1);
    const char *event = strstr(reply.body.data, "data: ");
    assert_true(event && strstr(event, "\"text\":\"a\"") && strstr(event, "\n\ndata: [DONE]\n\n"));
    assert_null(strstr(event, ": loading"));
    api_reply_clear(&reply);
    /* the connection goes on, once the server has seen that the answer is out, with nothing left of
     * the waiting */
    usleep(WAITING_MS * 1000);
    api_post(fd, "/v1/completions", ASK("first", ""));
    models_world_wait(1, 0);
    usleep(3 * WAITING_MS * 1000);
    models_world_answer(ERROR_NONE);
    reply = api_receive(fd);
    assert_int_equal(reply.status, 200);
    assert_string_equal(api_json_at(&reply.body, "/choices/0/text"), "abc");
    api_reply_clear(&reply);
    close(fd);
}

/* Nothing comes from its driver for a while: a long prompt, or a lost machine. */
static void test_a_stream_that_pauses_says_so(void **state)
{
    (void)state;
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", ",\"stream\":true"));
    models_world_wait(1, 0);
    models_world_slow(4 * WAITING_MS * 1000);
    models_world_answer(ERROR_NONE);
    struct api_reply reply = api_receive(fd);
    const char *sign = strstr(reply.body.data, ": the answer goes on\n\n");
    assert_true(sign && strstr(sign, "\"text\":\"c\"") && strstr(sign, "data: [DONE]"));
    models_world_slow(1000);
    api_reply_clear(&reply);
    close(fd);
}

static void test_a_model_that_cannot_be_opened(void **state)
{
    (void)state;
    static const struct {
        enum error_code code;
        int status;
        const char *shown;
    } rows[] = {{ERROR_NOT_FOUND, 404, "model_not_found"},
                {ERROR_BUSY, 503, "model_not_ready"},
                {ERROR_NO_MEMORY, 503, "no_memory"},
                {ERROR_IO, 500, "null"},
                {ERROR_INVALID, 500, "null"},
                {ERROR_UNSUPPORTED, 500, "null"}};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        for (int i = 0; i < REQUESTS; i++) {
            int fd = api_connect();
            api_post(fd, requests[i][0], requests[i][1]);
            models_world_wait(1, 0);
            models_world_answer(rows[r].code);
            struct api_reply reply = api_receive(fd);
            assert_true(reply.status == rows[r].status ||
                        strstr(requests[i][1], "stream")); /* it may have begun */
            if (reply.status == rows[r].status) {
                assert_string_equal(api_json_at(&reply.body, "/error/code"), rows[r].shown);
                assert_non_null(strstr(reply.body.data, "the model cannot be opened: "));
                assert_true(reply.status != 503 || strcasestr(reply.head.data, "retry-after: "));
            }
            api_reply_clear(&reply);
            close(fd);
        }
    }
}

static void test_a_stream_that_waits_in_vain(void **state)
{
    (void)state;
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", ",\"stream\":true"));
    assert_true(api_wait_for(fd, ": loading model\n\n"));
    models_world_answer(ERROR_BUSY);
    struct buffer rest = {0};
    char bytes[4096];
    ssize_t n;
    while (!rest.data || !strstr(rest.data, "[DONE]")) {
        assert_true((n = recv(fd, bytes, sizeof bytes, 0)) > 0);
        buffer_append(&rest, bytes, (size_t)n);
    }
    assert_non_null(
        strstr(rest.data, "data: {\"error\":{\"message\":\"the model cannot be opened: busy\""));
    buffer_deinit(&rest);
    close(fd);
}

static void test_a_client_that_leaves_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < REQUESTS; i++) {
        uint32_t before = models_world_cancelled();
        int fd = api_connect();
        api_post(fd, requests[i][0], requests[i][1]);
        models_world_wait(1, 0);
        if (i % 2)
            usleep(2 * WAITING_MS * 1000);
        close(fd);
        models_world_wait(0, 0);
        assert_int_equal(models_world_cancelled(), before + 1);
    }
    models_world_answer(ERROR_NONE); /* nobody is told anything */
    models_world_be_late(false);
    expect("/v1/completions", ASK("first", ""), 200, "/choices/0/text", "abc");
}

static void test_departures_at_any_moment(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++) {
        const char *const *chosen = requests[random_at(1, i) % REQUESTS];
        int fd = api_connect();
        api_post(fd, chosen[0], chosen[1]);
        models_world_be_late(random_at(2, i) % 3 != 0);
        usleep((useconds_t)(random_at(3, i) % 2000));
        if (random_at(4, i) % 2)
            models_world_answer(random_at(5, i) % 4 ? ERROR_NONE : ERROR_BUSY);
        usleep((useconds_t)(random_at(6, i) % 2000));
        close(fd);
    }
    models_world_be_late(true);
    usleep(10000);
    models_world_answer(ERROR_NONE);
    models_world_wait(0, 0);
}

/* The nth allocation fails while a model is opened, the notes that the server makes of it
 * included. */
static void without_memory(unsigned nth, const char *const *request, bool late, bool *ok)
{
    static char text[1024], answer[65536];
    snprintf(
        text, sizeof text,
        "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
        request[0], strlen(request[1]), request[1]);
    models_world_be_late(late);
    int fd = api_connect();
    mem_fail_nth(nth);
    api_send_text(fd, text);
    size_t size = 0;
    ssize_t n;
    while ((n = recv(fd, answer + size, sizeof answer - 1 - size, MSG_DONTWAIT)) != 0) {
        size += n > 0 ? (size_t)n : 0;
        usleep(n < 0 ? 200 : 0);
        models_world_answer(ERROR_NONE);
    }
    mem_fail_nth(0);
    close(fd);
    answer[size] = '\0';
    *ok = strncmp(answer, "HTTP/1.1 200", 12) == 0 && !strstr(answer, "\"error\"") &&
          (!strstr(answer, "chunked") || strstr(answer, "[DONE]"));
    assert_true(*ok || !size || strstr(answer, " memory") ||
                strncmp(answer, "HTTP/1.1 200", 12) == 0);
}

static void test_no_memory_at_any_point(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * REQUESTS; i++) {
        unsigned n_failed = 0;
        bool ok = false;
        for (unsigned nth = 1; nth < 60; nth++) {
            without_memory(nth, requests[i / 2], i % 2, &ok);
            n_failed += !ok;
        }
        assert_true(ok && n_failed >= 3);
    }
}

/* The last test: the group's teardown only waits for the end. */
static void test_a_second_stop_ends_the_wait(void **state)
{
    (void)state;
    uint32_t before = models_world_cancelled();
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", ",\"stream\":true"));
    models_world_wait(1, 0);
    kill(getpid(), SIGTERM);
    assert_true(api_wait_for(fd, ": loading model")); /* still waited for */
    models_world_stop();                              /* the second signal */
    assert_int_equal(models_world_cancelled(), before + 1);
    assert_false(api_wait_for(fd, "never sent"));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_request_gets_its_model),
        cmocka_unit_test(test_models_work_at_once),
        cmocka_unit_test(test_what_a_model_can_is_its_own),
        cmocka_unit_test(test_listing),
        cmocka_unit_test(test_names_that_are_wrong_or_missing),
        cmocka_unit_test(test_a_model_goes_and_comes_between_requests),
        cmocka_unit_test(test_a_model_that_goes_is_held_to_the_end),
        cmocka_unit_test_setup_teardown(test_a_model_that_opens_late, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_stream_says_that_it_waits, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_stream_that_pauses_says_so, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_model_that_cannot_be_opened, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_stream_that_waits_in_vain, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_client_that_leaves_meanwhile, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_departures_at_any_moment, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_no_memory_at_any_point, late_begin, late_end),
        cmocka_unit_test_setup_teardown(test_a_second_stop_ends_the_wait, late_begin, NULL),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
