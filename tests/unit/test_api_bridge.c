/* What the node is asked over HTTP: whose page may ask, and how answers become HTTP's. */
#include "api/bridge.h"
#include "api/site.h"
#include "api_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- a node that answers at once ---- */

static struct {
    char name[32], body[256], actor[128];
    unsigned n_asked, n_cancelled;
} node;

static void node_say(const struct api_bridge_hearer *hearer, const char *line)
{
    hearer->line(hearer->self, line, strlen(line));
}

static enum error_code node_ask(void *self, const char *name, const char *body, size_t size,
                                const char *actor, const struct api_bridge_hearer *hearer,
                                void **out, struct error *err)
{
    node.n_asked++;
    snprintf(node.name, sizeof node.name, "%s", name);
    snprintf(node.body, sizeof node.body, "%.*s", (int)size, body);
    snprintf(node.actor, sizeof node.actor, "%s", actor);
    *out = NULL;
    if (strcmp(name, "forget") == 0)
        return error_set(err, ERROR_BUSY, "not now");
    if (strcmp(name, "unload") == 0) { /* goes on until the client leaves */
        *out = &node;
        node_say(hearer, "{\"begun\":true}\n");
        return ERROR_NONE;
    }
    if (strcmp(name, "add") == 0)
        node_say(hearer, "{\"error\":{\"code\":\"not_found\",\"text\":\"no \\\"file\\\"\"}}\n");
    else if (strcmp(name, "place") == 0)
        node_say(hearer, "{\"step\":1}\n"), node_say(hearer, "{\"ready\":{}}\n");
    else
        node_say(hearer, "{\"ok\":true}\n");
    hearer->ended(hearer->self);
    return ERROR_NONE;
}

static void node_cancel(void *self, void *asked)
{
    assert_ptr_equal(asked, &node);
    __atomic_fetch_add(&node.n_cancelled, 1, __ATOMIC_SEQ_CST);
}

static int set_up(void **state)
{
    memset(&node, 0, sizeof node);
    api_world_bridge((struct api_bridge){node_ask, node_cancel, NULL});
    api_world_start((struct fake_driver_options){.n_slots = 1});
    return 0;
}

static int tear_down(void **state)
{
    api_world_stop();
    return 0;
}

static struct api_reply ask(const char *method, const char *path, const char *headers,
                            const char *body)
{
    char request[1024];
    int fd = api_connect();
    snprintf(request, sizeof request,
             "%s %s HTTP/1.1\r\nHost: localhost:1\r\n%sContent-Length: %zu\r\n"
             "Connection: close\r\n\r\n%s",
             method, path, headers, strlen(body), body);
    api_send_text(fd, request);
    struct api_reply reply = api_receive(fd);
    close(fd);
    return reply;
}

static void check(const char *method, const char *path, const char *headers, const char *body,
                  int status, const char *has)
{
    struct api_reply reply = ask(method, path, headers, body);
    if (reply.status != status || !reply.body.data || !strstr(reply.body.data, has))
        fail_msg("%s %s %s: %d %s", method, path, headers, reply.status,
                 reply.body.data ? reply.body.data : "");
    api_reply_clear(&reply);
}

#define JSON_TYPE "Content-Type: application/json\r\n"

static void test_answers(void **state)
{
    check("GET", "/api/status", "", "", 200, "{\"ok\":true}\n");
    assert_string_equal(node.name, "status");
    assert_string_equal(node.actor, "the page at loopback");
    check("POST", "/api/place", JSON_TYPE, "{\"model\":\"m\"}", 200,
          "{\"step\":1}\n{\"ready\":{}}\n");
    assert_string_equal(node.body, "{\"model\":\"m\"}");
    check("POST", "/api/add", JSON_TYPE, "{}", 404,
          "{\"error\":{\"code\":\"not_found\",\"text\":\"no \\\"file\\\"\",\"message\":\"no "
          "\\\"file\\\"\"");
    check("POST", "/api/forget", JSON_TYPE, "{}", 429, "not now");
    check("GET", "/api/nothing", "", "", 404, "Unknown request URL");
    check("DELETE", "/api/status", "", "", 405, "GET, HEAD, OPTIONS");
    check("GET", "/api/moves", "", "", 200, "ok");
    check("DELETE", "/api/moves", "", "", 405, "GET, HEAD, POST, OPTIONS");
}

/* The first line goes out at once, and who leaves ends the work. */
static void test_stream(void **state)
{
    int fd = api_connect();
    api_send_text(fd, "POST /api/unload HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                      "Content-Length: 2\r\n\r\n{}");
    assert_true(api_wait_for(fd, "{\"begun\":true}\n"));
    close(fd);
    for (int i = 0; i < 500 && !__atomic_load_n(&node.n_cancelled, __ATOMIC_SEQ_CST); i++)
        usleep(10000);
    assert_int_equal(node.n_cancelled, 1);
}

/* A server that stops does not wait for what has no end. */
static void test_stop(void **state)
{
    int fd = api_connect();
    api_send_text(fd, "POST /api/unload HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
                      "Content-Length: 2\r\n\r\n{}");
    assert_true(api_wait_for(fd, "{\"begun\":true}\n"));
    api_world_stop();
    assert_int_equal(node.n_cancelled, 1);
    close(fd);
}

static void test_whose_page(void **state)
{
    static const char *const refused[] = {
        JSON_TYPE "Origin: http://evil.example\r\n",
        JSON_TYPE "Origin: http://localhost:2\r\n",
        JSON_TYPE "Origin: null\r\n",
        JSON_TYPE "Sec-Fetch-Site: cross-site\r\n",
        JSON_TYPE "Sec-Fetch-Site: same-site\r\n",
        JSON_TYPE "Sec-Fetch-Site: none\r\n",
        JSON_TYPE "Origin: http://localhost:1\r\nSec-Fetch-Site: cross-site\r\n",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        check("POST", "/api/place", refused[i], "{}", 403, "origin_not_allowed");
    check("POST", "/api/place", "Content-Type: text/plain\r\n", "{}", 415, "not_json");
    check("POST", "/api/place", "Content-Type: application/jsonp\r\n", "{}", 415, "not_json");
    check("POST", "/api/place", "", "{}", 415, "not_json");
    assert_int_equal(node.n_asked, 0);
    check("POST", "/api/place", JSON_TYPE "Origin: http://localhost:1\r\n", "{}", 200, "ready");
    check("POST", "/api/place", JSON_TYPE "Sec-Fetch-Site: same-origin\r\n", "{}", 200, "ready");
    check("GET", "/api/status", "Sec-Fetch-Site: none\r\n", "", 200, "ok");
}

static void test_large_body(void **state)
{
    char request[256];
    int fd = api_connect();
    snprintf(request, sizeof request,
             "POST /api/place HTTP/1.1\r\nHost: localhost\r\n" JSON_TYPE
             "Content-Length: %d\r\n\r\n",
             BRIDGE_BODY_BYTES + 1);
    api_send_text(fd, request);
    struct api_reply reply = api_receive(fd);
    close(fd);
    assert_int_equal(reply.status, 413);
    api_reply_clear(&reply);
    assert_int_equal(node.n_asked, 0);
}

static void test_site(void **state)
{
    assert_int_equal(site_of(&(struct site_head){.host = "h"}), SITE_PROGRAM);
    assert_int_equal(site_of(&(struct site_head){.host = "h:1", .origin = "https://H:1"}),
                     SITE_OWN);
    assert_int_equal(site_of(&(struct site_head){.host = "h:1", .origin = "https://h"}),
                     SITE_OTHER);
    assert_int_equal(site_of(&(struct site_head){.host = "", .origin = "http://"}), SITE_OTHER);
    assert_int_equal(site_of(&(struct site_head){.host = NULL, .origin = "http://h"}), SITE_OTHER);
    assert_true(site_takes_cookie(SITE_OWN, false));
    assert_true(site_takes_cookie(SITE_PROGRAM, true));
    assert_false(site_takes_cookie(SITE_PROGRAM, false));
    assert_false(site_takes_cookie(SITE_OTHER, true));
    assert_true(site_is_json("Application/JSON; charset=utf-8"));
    assert_false(site_is_json("text/plain, application/json"));
}

static void test_status(void **state)
{
    static const struct {
        const char *line;
        unsigned status;
    } rows[] = {
        {"{\"error\":{\"code\":\"invalid\",\"text\":\"t\"}}", 400},
        {"{\"error\":{\"code\":\"busy\",\"text\":\"t\"}}", 409},
        {"{\"error\":{\"code\":\"no_memory\",\"text\":\"t\"}}", 503},
        {"{\"error\":{\"code\":\"something new\",\"text\":\"t\"}}", 500},
        {"{\"error\":{\"code\":7,\"text\":\"t\"}}", 200},
        {"{\"error\":null}", 200},
        {"{", 200},
        {"", 200},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buffer out = {0};
        assert_int_equal(bridge_status(rows[i].line, strlen(rows[i].line), &out), rows[i].status);
        assert_int_equal(out.size != 0, rows[i].status != 200);
        buffer_deinit(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_site),
        cmocka_unit_test(test_status),
        cmocka_unit_test_setup_teardown(test_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stream, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_stop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_whose_page, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_large_body, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
