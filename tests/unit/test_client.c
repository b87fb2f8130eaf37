/* client: events however they are cut, requests and answers as JSON; and, on a loop, what becomes
 * of requests to nobody, of those that are cancelled, and of a close with some in flight. */
#include "client/client_events.h"
#include "client/client_json.h"

#include "base/mem.h"

#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- events ---------------------------------------------------------------------------------- */

static bool events_tell(void *self, const char *data, size_t size)
{
    buffer_printf(self, "%.*s|", (int)size, data);
    return true;
}

static void test_events(void **state)
{
    static const char stream[] = ": wait\n\nid: 1\ndata: {\"a\":1}\n\ndata: [DONE]\n\n";
    for (size_t step = 1; step <= sizeof stream; step++) {
        struct client_events events = {0};
        struct buffer seen = {0};
        for (size_t at = 0; at < sizeof stream - 1; at += step) {
            const size_t left = sizeof stream - 1 - at;
            assert_true(client_events_read(&events, stream + at, left < step ? left : step, 100,
                                           events_tell, &seen));
        }
        assert_string_equal(seen.data, "{\"a\":1}|[DONE]|");
        client_events_deinit(&events);
        buffer_deinit(&seen);
    }
    struct client_events events = {0};
    assert_false(client_events_read(&events, stream, sizeof stream - 1, 10, events_tell, NULL));
    client_events_deinit(&events);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void test_asking(void **state)
{
    const struct medley_message message = {"user", "a \"b\""};
    struct medley_generation ask = {.model = "m",
                                    .messages = &message,
                                    .n_messages = 1,
                                    .max_tokens = 5,
                                    .more_json = "{\"temperature\":0,\"stream\":false}"};
    struct medley_error err = {0};
    struct buffer body = {0};
    assert_true(client_json_ask_generation(&ask, &body, &err));
    assert_string_equal(body.data,
                        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
                        "\"a \\\"b\\\"\"}],\"max_tokens\":5,\"temperature\":0,\"stream\":true,"
                        "\"stream_options\":{\"include_usage\":true}}");
    ask.more_json = "[1]";
    assert_false(client_json_ask_generation(&ask, &body, &err));
    assert_int_equal(err.code, MEDLEY_ERROR_INVALID);
    ask = (struct medley_generation){.model = "m", .prompt = "\xff"};
    assert_false(client_json_ask_generation(&ask, &body, &err));
    assert_int_equal(err.code, MEDLEY_ERROR_INVALID);
    ask.prompt = NULL;
    assert_false(client_json_ask_generation(&ask, &body, &err));
    buffer_deinit(&body);
}

static void answer_tell(void *self, const struct medley_piece *piece)
{
    buffer_printf(self, "%u%s%.*s|", piece->choice, piece->is_reasoning ? "?" : "=",
                  (int)piece->size, piece->text);
}

static void test_answers(void **state)
{
    static const char chunk[] =
        "{\"choices\":[{\"index\":2,\"delta\":{\"reasoning_content\":\"hm\",\"content\":\"x\"},"
        "\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}";
    struct medley_client_request request = {0};
    struct buffer seen = {0};
    struct medley_error err = {0};
    yyjson_doc *doc = yyjson_read(chunk, sizeof chunk - 1, 0);
    client_json_read_event(yyjson_doc_get_root(doc), &request, answer_tell, &seen);
    assert_string_equal(seen.data, "2?hm|2=x|");
    assert_string_equal(request.finish_reason, "stop");
    assert_int_equal(request.completion_tokens, 4);
    yyjson_doc_free(doc);
    client_json_read_error(429, NULL, &err);
    assert_int_equal(err.code, MEDLEY_ERROR_BUSY);
    assert_true(err.text[0]);
    buffer_deinit(&seen);
}

/* ---- on a loop ------------------------------------------------------------------------------- */

struct client_world {
    uv_loop_t loop;
    struct medley_client *client;
    int listening;
    char url[64];
    unsigned n_ended;
    enum medley_error_code last;
    bool closed;
};

/* A port that takes connections and never answers, or that nobody listens on. */
static void world_open(struct client_world *world, bool listens)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    struct medley_error err;
    *world = (struct client_world){.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_int_equal(bind(world->listening, (struct sockaddr *)&address, size), 0);
    assert_int_equal(getsockname(world->listening, (struct sockaddr *)&address, &size), 0);
    if (listens)
        assert_int_equal(listen(world->listening, 8), 0);
    snprintf(world->url, sizeof world->url, "http://127.0.0.1:%u/", ntohs(address.sin_port));
    assert_int_equal(uv_loop_init(&world->loop), 0);
    const struct medley_client_options options = {.url = world->url};
    assert_int_equal(medley_client_open(&world->loop, &options, &world->client, &err), 0);
}

static void world_on_closed(void *data)
{
    ((struct client_world *)data)->closed = true;
}

static void world_on_end(struct medley_client_request *request)
{
    struct client_world *world = request->data;
    world->n_ended++;
    world->last = request->error.code;
    assert_true(request->error.text[0]);
}

static void world_close(struct client_world *world)
{
    medley_client_close(world->client, world_on_closed, world);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_true(world->closed);
    assert_int_equal(uv_loop_close(&world->loop), 0);
    close(world->listening);
}

static void test_nobody_listens(void **state)
{
    struct client_world world;
    world_open(&world, false);
    struct medley_client_request request = {.data = &world};
    assert_int_equal(medley_client_models(world.client, &request, world_on_end), 0);
    assert_int_equal(world.n_ended, 0); /* never from within the submit */
    assert_int_equal(medley_client_models(world.client, &request, world_on_end),
                     MEDLEY_ERROR_BUSY); /* it is in flight */
    uv_run(&world.loop, UV_RUN_DEFAULT);
    assert_int_equal(world.n_ended, 1);
    assert_int_equal(world.last, MEDLEY_ERROR_IO);
    world_close(&world);
}

static void test_cancelling(void **state)
{
    struct client_world world;
    const struct medley_generation ask = {.model = "m", .prompt = "x"};
    world_open(&world, true);
    struct medley_client_request request = {.data = &world}, never = {0};
    medley_client_cancel(&never);
    assert_int_equal(medley_client_generate(world.client, &ask, &request, NULL, world_on_end), 0);
    for (int i = 0; i < 10; i++)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    assert_int_equal(world.n_ended, 0);
    medley_client_cancel(&request);
    medley_client_cancel(&request);
    assert_int_equal(world.n_ended, 0);
    uv_run(&world.loop, UV_RUN_DEFAULT);
    assert_int_equal(world.n_ended, 1);
    assert_int_equal(world.last, MEDLEY_ERROR_CANCELLED);
    world_close(&world);
}

static void test_closing_with_requests_in_flight(void **state)
{
    struct client_world world;
    struct medley_client_request requests[5] = {0};
    world_open(&world, true);
    for (int i = 0; i < 5; i++) {
        requests[i].data = &world;
        assert_int_equal(medley_client_models(world.client, &requests[i], world_on_end), 0);
    }
    for (int i = 0; i < 10; i++)
        uv_run(&world.loop, UV_RUN_NOWAIT);
    world_close(&world);
    assert_int_equal(world.n_ended, 5);
    assert_int_equal(world.last, MEDLEY_ERROR_CANCELLED);
}

static void test_as_many_as_may_be(void **state)
{
    static struct medley_client_request requests[MEDLEY_CLIENT_REQUESTS_MAX + 1];
    struct client_world world;
    world_open(&world, false);
    for (int i = 0; i < MEDLEY_CLIENT_REQUESTS_MAX + 1; i++) {
        requests[i].data = &world;
        assert_int_equal(medley_client_models(world.client, &requests[i], world_on_end),
                         i < MEDLEY_CLIENT_REQUESTS_MAX ? MEDLEY_ERROR_NONE : MEDLEY_ERROR_BUSY);
    }
    world_close(&world);
    assert_int_equal(world.n_ended, MEDLEY_CLIENT_REQUESTS_MAX);
}

static void test_options(void **state)
{
    static const char *const bad[] = {"127.0.0.1:8080", "ftp://x", "http://x/?a", "", NULL};
    struct medley_client *client;
    struct medley_error err;
    uv_loop_t loop;
    uv_loop_init(&loop);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct medley_client_options options = {.url = bad[i]};
        assert_int_equal(medley_client_open(&loop, &options, &client, &err), MEDLEY_ERROR_INVALID);
    }
    const struct medley_client_options token = {.url = "http://x", .token = "a\r\nb: c"};
    assert_int_equal(medley_client_open(&loop, &token, &client, &err), MEDLEY_ERROR_INVALID);
    const struct medley_client_options good = {.url = "http://x"};
    assert_int_equal(medley_client_open(NULL, &good, &client, &err), MEDLEY_ERROR_INVALID);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_asking),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_nobody_listens),
        cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_closing_with_requests_in_flight),
        cmocka_unit_test(test_as_many_as_may_be),
        cmocka_unit_test(test_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
