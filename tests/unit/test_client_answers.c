/* client: what becomes of each answer that a node may give, whole, wrong or cut off. A thread is
 * the node: it takes one connection at a time and answers with the bytes that the case has. */
#include "base/buffer.h"

#include <medley/client.h>

#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum question { MODELS, FORECAST, GENERATION };

static struct {
    int listening;
    char url[64];
    pthread_t thread;
    const char *answer;
    size_t endless; /* so many bytes after it */
    char heard[4096];
} node;

static uv_loop_t loop;
static struct medley_client *client;

/* ---- the node -------------------------------------------------------------------------------- */

/* Head and body, so that nothing of it is unread when the connection is closed. */
static void node_read_request(int fd)
{
    size_t n = 0, wanted = sizeof node.heard - 1;
    for (ssize_t got; n < wanted && (got = recv(fd, node.heard + n, wanted - n, 0)) > 0;) {
        n += (size_t)got;
        node.heard[n] = '\0';
        const char *body = strstr(node.heard, "\r\n\r\n");
        const char *length = strstr(node.heard, "Content-Length: ");
        if (body)
            wanted =
                (size_t)(body + 4 - node.heard) + (length ? strtoul(length + 16, NULL, 10) : 0);
    }
}

static void node_write(int fd, const char *bytes, size_t size)
{
    for (ssize_t sent; size && (sent = send(fd, bytes, size, MSG_NOSIGNAL)) > 0;)
        bytes += sent, size -= (size_t)sent;
}

static void *node_run(void *unused)
{
    static char many[64 * 1024];
    memset(many, 'x', sizeof many);
    for (int fd; (fd = accept(node.listening, NULL, NULL)) >= 0; close(fd)) {
        node_read_request(fd);
        node_write(fd, node.answer, strlen(node.answer));
        for (size_t left = node.endless; left >= sizeof many; left -= sizeof many)
            node_write(fd, many, sizeof many);
    }
    return NULL;
}

static int node_open(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    node.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(node.listening, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(node.listening, 8), 0);
    assert_int_equal(getsockname(node.listening, (struct sockaddr *)&address, &size), 0);
    snprintf(node.url, sizeof node.url, "http://127.0.0.1:%u", ntohs(address.sin_port));
    return pthread_create(&node.thread, NULL, node_run, NULL);
}

static int node_close(void **state)
{
    shutdown(node.listening, SHUT_RDWR); /* accept() ends */
    pthread_join(node.thread, NULL);
    return close(node.listening);
}

static int open_client(void **state)
{
    const struct medley_client_options options = {.url = node.url, .token = "secret"};
    struct medley_error err;
    node.endless = 0;
    assert_int_equal(uv_loop_init(&loop), 0);
    return (int)medley_client_open(&loop, &options, &client, &err);
}

static int close_client(void **state)
{
    medley_client_close(client, NULL, NULL);
    medley_client_close(client, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    return uv_loop_close(&loop);
}

/* ---- one question ---------------------------------------------------------------------------- */

static struct buffer seen;

static void take_piece(struct medley_client_request *request, const struct medley_piece *piece)
{
    struct medley_client_request inner = {0};
    buffer_printf(&seen, "%.*s|", (int)piece->size, piece->text);
    assert_int_equal(medley_client_models(client, &inner, NULL), MEDLEY_ERROR_BUSY);
    assert_non_null(strstr(inner.error.text, "from within the callback"));
}

static void take_end(struct medley_client_request *request)
{
    ++*(int *)request->data;
    for (uint32_t i = 0; i < request->n_models; i++)
        buffer_printf(&seen, "%s %llu|", request->models[i].id,
                      (unsigned long long)request->models[i].created_s);
    for (uint32_t i = 0; request->forecast && i < request->forecast->n_stages; i++) {
        const struct medley_forecast_stage *stage = &request->forecast->stages[i];
        buffer_printf(&seen, "%s/%s %u+%u|", stage->node, stage->device, stage->first_layer,
                      stage->n_layers);
    }
}

static struct medley_client_request ask(enum question question, const char *answer)
{
    const struct medley_generation generation = {.model = "m", .prompt = "Once"};
    const struct medley_forecast_question forecast = {
        .model = "m", .context_tokens = 64, .streams = 2};
    int n_ended = 0;
    struct medley_client_request request = {.data = &n_ended};
    enum medley_error_code code = MEDLEY_ERROR_NONE;
    node.answer = answer;
    buffer_clear(&seen);
    buffer_append(&seen, "", 0);
    switch (question) {
    case MODELS:
        code = medley_client_models(client, &request, take_end);
        break;
    case FORECAST:
        code = medley_client_forecast(client, &forecast, &request, take_end);
        break;
    case GENERATION:
        code = medley_client_generate(client, &generation, &request, take_piece, take_end);
    }
    assert_int_equal(code, MEDLEY_ERROR_NONE);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_ended, 1);
    assert_non_null(strstr(node.heard, "Authorization: Bearer secret"));
    return request;
}

/* ---- good answers ---------------------------------------------------------------------------- */

#define HEAD(status) "HTTP/1.1 " status "\r\nConnection: close\r\n\r\n"

static void whole_answers_are_read(void **state)
{
    struct medley_client_request request =
        ask(MODELS, HEAD("200 OK") "{\"data\":[{\"id\":\"a\",\"created\":7},{},{\"id\":\"b\"}]}");
    assert_int_equal(request.error.code, MEDLEY_ERROR_NONE);
    assert_string_equal(seen.data, "a 7|b 0|");
    ask(FORECAST, HEAD("200 OK") "{\"possible\":true,\"best\":{\"stages\":[{\"node\":\"n\","
                                 "\"device\":\"gpu0\",\"first_layer\":3,\"layers\":5000000000},"
                                 "{}]}}");
    assert_string_equal(seen.data, "n/gpu0 3+4294967295|/ 0+0|");
    assert_non_null(strstr(node.heard, "{\"model\":\"m\",\"context\":64,\"streams\":2}"));
}

static void pieces_come_one_by_one(void **state)
{
    const struct medley_client_request request = ask(
        GENERATION, HEAD("200 OK") "data: {\"choices\":[{\"text\":\"One \"}]}\n\n"
                                   "data: {\"choices\":[{\"text\":\"day\","
                                   "\"finish_reason\":\"length\"}],"
                                   "\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n"
                                   "data: [DONE]\n\n");
    assert_int_equal(request.error.code, MEDLEY_ERROR_NONE);
    assert_string_equal(seen.data, "One |day|");
    assert_string_equal(request.finish_reason, "length");
    assert_true(request.prompt_tokens == 1 && request.completion_tokens == 2);
}

/* ---- others ---------------------------------------------------------------------------------- */

static void each_failure_has_its_code_and_words(void **state)
{
    static const struct {
        enum question question;
        enum medley_error_code code;
        const char *answer, *words;
    } cases[] = {
        {MODELS, MEDLEY_ERROR_INTERNAL, HEAD("200 OK") "{}", "lists no models"},
        {MODELS, MEDLEY_ERROR_NOT_FOUND, HEAD("404 No") "{\"error\":{\"message\":\"gone\"}}",
         "gone"},
        {MODELS, MEDLEY_ERROR_INVALID, HEAD("401 No") "{}", "status 401 and no reason"},
        {MODELS, MEDLEY_ERROR_BUSY, HEAD("503 No"), "status 503"},
        {MODELS, MEDLEY_ERROR_BUSY, HEAD("409 No"), "status 409"},
        {MODELS, MEDLEY_ERROR_INTERNAL, HEAD("500 No") "oops", "status 500"},
        {MODELS, MEDLEY_ERROR_INTERNAL, HEAD("302 Go"), "status 302"},
        {MODELS, MEDLEY_ERROR_IO, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "127.0.0.1"},
        {MODELS, MEDLEY_ERROR_IO, "", "127.0.0.1"},
        {FORECAST, MEDLEY_ERROR_INTERNAL, HEAD("200 OK") "[]", "no forecast"},
        {GENERATION, MEDLEY_ERROR_IO, HEAD("200 OK") "data: {}\n\n", "broke off"},
        {GENERATION, MEDLEY_ERROR_INTERNAL, HEAD("200 OK") "data: 7\n\n", "no JSON"},
        {GENERATION, MEDLEY_ERROR_INVALID, HEAD("400 No") "{\"error\":{\"message\":\"why\"}}",
         "why"},
        {GENERATION, MEDLEY_ERROR_INTERNAL, HEAD("200 OK") "data: {\"error\":{}}\n\n", "no reason"},
        {GENERATION, MEDLEY_ERROR_INVALID,
         HEAD("200 OK") "data: {\"error\":{\"type\":\"permission_error\",\"message\":\"no\"}}\n\n",
         "no"},
        {GENERATION, MEDLEY_ERROR_BUSY,
         HEAD("200 OK") "data: {\"error\":{\"type\":\"server_error\",\"message\":\"stops\"}}\n\n",
         "stops"},
        {GENERATION, MEDLEY_ERROR_INTERNAL,
         HEAD("200 OK") "data: {\"error\":{\"type\":\"other\",\"message\":\"odd\"}}\n\n", "odd"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct medley_client_request request = ask(cases[i].question, cases[i].answer);
        if (request.error.code != cases[i].code || !strstr(request.error.text, cases[i].words))
            fail_msg("case %zu: %d %s", i, (int)request.error.code, request.error.text);
    }
}

static void an_answer_has_an_end(void **state)
{
    node.endless = MEDLEY_CLIENT_ANSWER_MAX + (1 << 20);
    struct medley_client_request request = ask(MODELS, HEAD("200 OK"));
    assert_int_equal(request.error.code, MEDLEY_ERROR_NO_MEMORY);
    assert_non_null(strstr(request.error.text, "the answer has more than"));
    request = ask(GENERATION, HEAD("200 OK") "data: ");
    assert_int_equal(request.error.code, MEDLEY_ERROR_NO_MEMORY);
    assert_non_null(strstr(request.error.text, "an event of the answer has more than"));
}

static void what_cannot_be_asked_is_not(void **state)
{
    struct medley_client_request request = {0};
    const struct medley_forecast_question nothing = {0};
    assert_int_equal(medley_client_forecast(client, &nothing, &request, NULL),
                     MEDLEY_ERROR_INVALID);
    assert_non_null(strstr(request.error.text, "name it"));
    const struct medley_generation empty = {.model = "m"};
    assert_int_equal(medley_client_generate(client, &empty, &request, NULL, NULL),
                     MEDLEY_ERROR_INVALID);
    medley_client_close(client, NULL, NULL);
    assert_int_equal(medley_client_models(client, &request, NULL), MEDLEY_ERROR_BUSY);
    assert_non_null(strstr(request.error.text, "being closed"));
}

static void an_authority_must_be_there(void **state)
{
    static char path[8192];
    struct medley_client *other;
    struct medley_error err;
    struct medley_client_options options = {.url = "https://127.0.0.1:1", .authority_path = path};
    memset(path, 'p', sizeof path - 1);
    assert_int_equal(medley_client_open(&loop, &options, &other, &err), MEDLEY_ERROR_INVALID);
    assert_non_null(strstr(err.text, "too long"));
    strcpy(path, "/nowhere/ca.pem");
    assert_int_equal(medley_client_open(&loop, &options, &other, &err), MEDLEY_ERROR_NONE);
    int n_ended = 0;
    struct medley_client_request request = {.data = &n_ended};
    assert_int_equal(medley_client_models(other, &request, take_end), MEDLEY_ERROR_NONE);
    medley_client_close(other, NULL, NULL);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_ended, 1);
    assert_true(request.error.code != MEDLEY_ERROR_NONE);
}

static int end(void **state)
{
    buffer_deinit(&seen);
    return node_close(state);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, open_client, close_client)
    const struct CMUnitTest tests[] = {
        TEST(whole_answers_are_read),
        TEST(pieces_come_one_by_one),
        TEST(each_failure_has_its_code_and_words),
        TEST(an_answer_has_an_end),
        TEST(what_cannot_be_asked_is_not),
        TEST(an_authority_must_be_there),
    };
    return cmocka_run_group_tests(tests, node_open, end);
}
