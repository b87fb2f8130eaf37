/* Answers that are gone on with: request ids, positions, and streams that another request goes on
 * with. */
#include "api/resume.h"
#include "api_world.h"
#include "models_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <yyjson.h>

#include <cmocka.h>

static int start(void **state)
{
    (void)state;
    models_world_start(20);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    models_world_stop();
    return 0;
}

/* ---- pure ------------------------------------------------------------------------------------ */

static void test_sane_ids(void **state)
{
    (void)state;
    char text[LIMIT_REQUEST_ID_BYTES + 2];
    memset(text, 'a', sizeof text);
    assert_true(request_id_is_sane("a", 1));
    assert_true(request_id_is_sane("req_7:x/y+z=~@-.", 16));
    assert_true(request_id_is_sane(text, LIMIT_REQUEST_ID_BYTES));
    assert_false(request_id_is_sane(text, LIMIT_REQUEST_ID_BYTES + 1));
    assert_false(request_id_is_sane("", 0));
    for (int byte = 0; byte < 256; byte++) {
        text[3] = (char)byte;
        bool is_word = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= '0' && byte <= '9');
        assert_int_equal(request_id_is_sane(text, 8),
                         is_word || (byte && strchr("-_.:+/=~@", byte)));
    }
}

static void test_ids_give_numbers(void **state)
{
    (void)state;
    char one[LIMIT_REQUEST_ID_BYTES + 1], two[LIMIT_REQUEST_ID_BYTES + 1];
    request_id_draw(one);
    request_id_draw(two);
    assert_string_not_equal(one, two);
    assert_true(request_id_is_sane(one, strlen(one)));
    /* Nodes of other versions must draw the same seed: the figure is part of the protocol. */
    assert_true(request_id_number("req-1", 0) == UINT64_C(7724203004084096536));
    assert_true(request_id_number("req-1", 0) != request_id_number("req-2", 0));
    assert_true(request_id_number("req-1", 0) != request_id_number("req-1", 1));
}

static bool reads(const char *text, uint32_t n)
{
    struct stream_position positions[4] = {0};
    struct api_error err = {0};
    bool ok = stream_positions_read(text, strlen(text), positions, n, &err);
    if (ok) {
        struct buffer out = {0};
        for (uint32_t i = 0; i < n; i++)
            stream_position_write(&positions[i], &out);
        assert_string_equal(out.data, text);
        buffer_deinit(&out);
    } else {
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, "Last-Event-ID");
    }
    return ok;
}

static void test_positions(void **state)
{
    (void)state;
    assert_true(reads("0", 1));
    assert_true(reads("4294967295-ffffffff", 1));
    assert_true(reads("17-9f3a02c1", 1));
    assert_true(reads("17-9f3a02c1.3.0-00000000", 3));
    static const char *const bad[] = {
        "",         "-",           "x",          " 1",
        "1 ",       "-1",          "4294967296", "1-",
        "1-9f3a02", "1-9F3A02C1",  "1.",         ".1",
        "1.2",      "1-9f3a02c12", "1,2",        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(reads(bad[i], 1));
    assert_false(reads("1.2.3", 2));
    assert_false(reads("1", 2));
    struct stream_position a = {0}, b = {0};
    stream_position_count(&a, (struct text){"ab", 2});
    stream_position_count(&b, (struct text){"a", 1});
    assert_true(a.check != b.check);
    stream_position_count(&b, (struct text){"b", 1});
    assert_int_equal(a.check, b.check); /* over the text, wherever it is cut */
    assert_int_equal(b.n_events, 2);
}

/* ---- streams --------------------------------------------------------------------------------- */

enum { EVENTS_MAX = 128 };

struct event {
    char id[64], text[64], reason[16], role[16], error[32];
    char name[64];
    unsigned choice, n_logprobs;
    bool is_usage;
};

struct events {
    struct event list[EVENTS_MAX];
    unsigned n;
    bool done;
};

static void copy_at(yyjson_val *root, const char *pointer, char *out, size_t size)
{
    const char *text = yyjson_get_str(yyjson_ptr_get(root, pointer));
    snprintf(out, size, "%s", text ? text : "");
}

static void take_event(struct events *events, const char *from, const char *end)
{
    assert_true(events->n < EVENTS_MAX);
    struct event *event = &events->list[events->n++];
    if (strncmp(from, "id: ", 4) == 0) {
        snprintf(event->id, sizeof event->id, "%.*s", (int)strcspn(from + 4, "\n"), from + 4);
        from = strchr(from, '\n') + 1;
    }
    yyjson_doc *doc = yyjson_read(from + 6, (size_t)(end - from - 6), 0);
    assert_non_null(doc);
    yyjson_val *root = yyjson_doc_get_root(doc);
    copy_at(root, "/choices/0/delta/content", event->text, sizeof event->text);
    if (!event->text[0])
        copy_at(root, "/choices/0/text", event->text, sizeof event->text);
    copy_at(root, "/choices/0/finish_reason", event->reason, sizeof event->reason);
    copy_at(root, "/choices/0/delta/role", event->role, sizeof event->role);
    copy_at(root, "/error/code", event->error, sizeof event->error);
    copy_at(root, "/id", event->name, sizeof event->name);
    event->choice = (unsigned)yyjson_get_uint(yyjson_ptr_get(root, "/choices/0/index"));
    event->n_logprobs =
        (unsigned)yyjson_arr_size(yyjson_ptr_get(root, "/choices/0/logprobs/content"));
    event->is_usage = yyjson_is_obj(yyjson_ptr_get(root, "/usage"));
    yyjson_doc_free(doc);
}

static struct api_reply ask(const char *headers, const char *json)
{
    int fd = api_connect();
    api_post_with(fd, strstr(json, "messages") ? "/v1/chat/completions" : "/v1/completions",
                  headers, json);
    struct api_reply reply = api_receive(fd);
    close(fd);
    return reply;
}

static void ask_stream(const char *headers, const char *json, struct events *out)
{
    struct api_reply reply = ask(headers, json);
    *out = (struct events){0};
    assert_int_equal(reply.status, 200);
    const char *end;
    for (const char *from = reply.body.data; (end = strstr(from, "\n\n")); from = end + 2) {
        assert_false(out->done);
        out->done = strncmp(from, "data: [DONE]", 12) == 0;
        if (!out->done && from[0] != ':')
            take_event(out, from, end);
    }
    assert_true(out->done);
    api_reply_clear(&reply);
}

/* Goes on after every event of a stream that was undisturbed: the rest must be the same. */
static void go_on_everywhere(const char *json)
{
    static struct events all, rest;
    char headers[256];
    ask_stream("X-Request-ID: abc-1\r\n", json, &all);
    assert_true(all.n > 3);
    for (unsigned k = 0; k < all.n; k++) {
        snprintf(headers, sizeof headers, "x-request-id: abc-1\r\nLast-Event-ID: %s\r\n",
                 all.list[k].id);
        ask_stream(headers, json, &rest);
        assert_int_equal(rest.n, all.n - k - 1);
        assert_memory_equal(rest.list, all.list + k + 1, rest.n * sizeof *rest.list);
    }
}

#define STREAM_OF(prompt, more)                                                                    \
    "{\"model\":\"first\",\"prompt\":\"" prompt "\",\"stream\":true" more "}"
#define STREAMED_CHAT(content, more)                                                               \
    "{\"model\":\"first\",\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"" content \
    "\"}]" more "}"

static void test_go_on_after_each_event(void **state)
{
    (void)state;
    go_on_everywhere(STREAM_OF("a story", ""));
    go_on_everywhere(STREAM_OF("ab", ",\"echo\":true,\"stream_options\":{\"include_usage\":true}"));
    go_on_everywhere(
        STREAMED_CHAT("\xf0\x9f\x98\x80 ab\xe2\x82\xac.x",
                      ",\"stop\":[\".\",\"b\xe2\x82\xac!\"],\"logprobs\":true,\"top_logprobs\":2,"
                      "\"stream_options\":{\"include_usage\":true}"));
}

/* Events of several choices come in any order: the text of each must be the rest of its own. */
static void test_several_choices(void **state)
{
    (void)state;
    static struct events all, rest;
    static const char json[] =
        "{\"model\":\"first\",\"prompt\":[\"abcd\",\"efghij\"],\"stream\":true,\"n\":2}";
    ask_stream("x-request-id: n\r\n", json, &all);
    for (unsigned k = 0; k < all.n; k++) {
        char text[4][64] = {{0}}, headers[256];
        snprintf(headers, sizeof headers, "x-request-id: n\r\nlast-event-id: %s\r\n",
                 all.list[k].id);
        ask_stream(headers, json, &rest);
        assert_int_equal(rest.n, all.n - k - 1);
        for (unsigned i = 0; i <= k; i++)
            strcat(text[all.list[i].choice], all.list[i].text);
        for (unsigned i = 0; i < rest.n; i++)
            strcat(text[rest.list[i].choice], rest.list[i].text);
        for (unsigned i = 0; i < 4; i++)
            assert_string_equal(text[i], i < 2 ? "abcd" : "efghij");
    }
}

/* A stream that goes on breaks off again: its ids are good, too, and also before it has anything
 * new to say. */
static void test_ids_of_a_second_stream(void **state)
{
    (void)state;
    static struct events all, rest;
    ask_stream("x-request-id: n\r\n", STREAM_OF("abcd", ",\"n\":2"), &all);
    const char *last = all.list[all.n - 2].id;
    char headers[256];
    snprintf(headers, sizeof headers, "x-request-id: n\r\nlast-event-id: %s\r\n", last);
    ask_stream(headers, STREAM_OF("abcd", ",\"n\":2"), &rest);
    assert_int_equal(rest.n, 1);
    assert_string_equal(rest.list[0].id, all.list[all.n - 1].id);
    /* Choice 0 has begun anew and is behind: its part is what the client had. */
    ask_stream("x-request-id: n\r\nlast-event-id: 5.0\r\n", STREAM_OF("abcd", ",\"n\":2"), &rest);
    char text[64] = "";
    for (unsigned i = 0; i < rest.n; i++) {
        assert_int_equal(rest.list[i].choice, 1);
        strcat(text, rest.list[i].text);
    }
    assert_string_equal(text, "abcd");
    /* "5.1-"; a loaded machine may send several parts as one, up to "5-", where both are at 5. */
    assert_int_equal(rest.list[0].id[0], '5');
    assert_non_null(strchr(".-", rest.list[0].id[1]));
}

static void test_another_text_is_not_joined(void **state)
{
    (void)state;
    static struct events events;
    static const struct {
        const char *last, *text;
        bool refused;
    } rows[] = {
        {"2", "c", false},        /* no check asked for */
        {"2-00000000", "", true}, /* another text */
        {"4", "", false},         /* all but [DONE] */
        {"5", "", true},          /* beyond the end */
        {"4294967295", "", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char headers[128];
        snprintf(headers, sizeof headers, "x-request-id: n\r\nLast-Event-ID: %s\r\n", rows[i].last);
        ask_stream(headers, STREAM_OF("abc", ""), &events);
        assert_string_equal(events.n ? events.list[0].text : "", rows[i].text);
        assert_string_equal(events.n ? events.list[events.n - 1].error : "",
                            rows[i].refused ? "answer_differs" : "");
    }
}

/* ---- headers --------------------------------------------------------------------------------- */

static void expect_id(const char *headers, const char *json, const char *wanted)
{
    struct api_reply reply = ask(headers, json);
    const char *line = strcasestr(reply.head.data, "\r\nx-request-id: ");
    assert_non_null(line);
    line += strlen("\r\nx-request-id: ");
    const size_t size = strcspn(line, "\r");
    assert_true(request_id_is_sane(line, size));
    if (wanted)
        assert_true(size == strlen(wanted) && memcmp(line, wanted, size) == 0);
    else
        assert_memory_equal(line, "req-", 4);
    api_reply_clear(&reply);
}

static void test_every_answer_has_an_id(void **state)
{
    (void)state;
    char id[256], longest[256], longer[256];
    snprintf(id, sizeof id, "%0*d", LIMIT_REQUEST_ID_BYTES, 7);
    snprintf(longest, sizeof longest, "x-request-id: %s\r\n", id);
    snprintf(longer, sizeof longer, "x-request-id: 0%s\r\n", id);
    static const char plain[] = "{\"model\":\"first\",\"prompt\":\"a\"}", broken[] = "{\"model\":";
    expect_id("x-request-id: mine\r\n", plain, "mine");
    expect_id("x-request-id: mine\r\n", STREAM_OF("a", ""), "mine");
    expect_id("x-request-id: mine\r\n", broken, "mine");
    expect_id(longest, plain, id);
    expect_id(longer, plain, NULL);
    expect_id("", plain, NULL);
    expect_id("x-request-id: a b\r\n", plain, NULL);
    expect_id("x-request-id: a\"b\r\n", plain, NULL);
    expect_id("x-request-id: \xc3\xa9\r\n", plain, NULL);
    expect_id("x-request-id:\r\n", plain, NULL);
}

static void expect_refused(const char *headers, const char *json, int status, const char *pointer,
                           const char *value)
{
    struct api_reply reply = ask(headers, json);
    assert_int_equal(reply.status, status);
    assert_string_equal(api_json_at(&reply.body, pointer), value);
    api_reply_clear(&reply);
}

static void test_hostile_headers(void **state)
{
    (void)state;
    static const char *const bad[] = {"x",          "1-",  "1.2", "18446744073709551616",
                                      "1-zzzzzzzz", "%31", "1\t2"};
    char headers[LIMIT_LAST_EVENT_ID_BYTES + 256];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(headers, sizeof headers, "x-request-id: n\r\nLast-Event-ID: %s\r\n", bad[i]);
        expect_refused(headers, STREAM_OF("abc", ""), 400, "/error/param", "Last-Event-ID");
    }
    snprintf(headers, sizeof headers, "x-request-id: n\r\nLast-Event-ID: %0*d\r\n",
             LIMIT_LAST_EVENT_ID_BYTES + 1, 1);
    expect_refused(headers, STREAM_OF("abc", ""), 400, "/error/param", "Last-Event-ID");
    /* No id that fixes the text, or no stream. */
    expect_refused("Last-Event-ID: 1\r\n", STREAM_OF("abc", ""), 400, "/error/param",
                   "Last-Event-ID");
    expect_refused("x-request-id: a b\r\nLast-Event-ID: 1\r\n", STREAM_OF("abc", ""), 400,
                   "/error/param", "Last-Event-ID");
    expect_refused("x-request-id: n\r\nLast-Event-ID: 1\r\n",
                   "{\"model\":\"first\",\"prompt\":\"abc\"}", 400, "/error/param",
                   "Last-Event-ID");
    static struct events events;
    ask_stream("Last-Event-ID: 1\r\n", STREAM_OF("abc", ",\"seed\":7"), &events);
    assert_string_equal(events.list[0].text, "b");
    ask_stream("Last-Event-ID: \r\n", STREAM_OF("abc", ""), &events); /* as browsers: none */
    assert_string_equal(events.list[0].text, "a");
}

static void test_the_model_is_gone(void **state)
{
    (void)state;
    models_world_list("first", false);
    expect_refused("x-request-id: n\r\nLast-Event-ID: 1\r\n", STREAM_OF("abc", ""), 404,
                   "/error/code", "model_not_found");
    models_world_list("first", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sane_ids),
        cmocka_unit_test(test_ids_give_numbers),
        cmocka_unit_test(test_positions),
        cmocka_unit_test(test_go_on_after_each_event),
        cmocka_unit_test(test_several_choices),
        cmocka_unit_test(test_ids_of_a_second_stream),
        cmocka_unit_test(test_another_text_is_not_joined),
        cmocka_unit_test(test_every_answer_has_an_id),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_the_model_is_gone),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
