/* A session of gRPC against nghttp2's client: whole calls, callers that do not read, memory,
 * deadlines. */
#include "grpc/frame.h"
#include "grpc/session.h"

#include <nghttp2/nghttp2.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* nghttp2's client, a session, and what stands for the API. */
struct grpc_world {
    struct grpc_memory memory;
    struct grpc_session *session;
    nghttp2_session *client;
    struct grpc_call *call;
    struct buffer request, data, sent;
    size_t sent_read;
    char status[8], message[256];
    unsigned n_open, n_opened, n_paused;
    bool closed, is_reading;
    uint64_t now_ns;
};

static void *world_open(void *self, struct grpc_call *call, struct buffer *request,
                        struct error *err)
{
    struct grpc_world *world = self;
    buffer_deinit(&world->request);
    world->request = *request;
    *request = (struct buffer){0};
    world->call = call;
    world->n_open++;
    world->n_opened++;
    world->is_reading = true;
    return world;
}

static void world_set_reading(void *way, bool on)
{
    struct grpc_world *world = way;
    world->is_reading = on;
    world->n_paused += !on;
}

static void world_close(void *way)
{
    ((struct grpc_world *)way)->n_open--;
}

static int world_on_header(nghttp2_session *client, const nghttp2_frame *frame, const uint8_t *name,
                           size_t name_size, const uint8_t *value, size_t size, uint8_t flags,
                           void *self)
{
    struct grpc_world *world = self;
    if (strcmp((const char *)name, "grpc-status") == 0)
        snprintf(world->status, sizeof world->status, "%s", (const char *)value);
    if (strcmp((const char *)name, "grpc-message") == 0)
        snprintf(world->message, sizeof world->message, "%s", (const char *)value);
    return 0;
}

static int world_on_data(nghttp2_session *client, uint8_t flags, int32_t stream,
                         const uint8_t *bytes, size_t size, void *self)
{
    buffer_append(&((struct grpc_world *)self)->data, bytes, size);
    return 0;
}

static int world_on_close(nghttp2_session *client, int32_t stream, uint32_t code, void *self)
{
    ((struct grpc_world *)self)->closed = true;
    return 0;
}

static nghttp2_ssize world_on_take(nghttp2_session *client, int32_t stream, uint8_t *bytes,
                                   size_t size, uint32_t *flags, nghttp2_data_source *source,
                                   void *self)
{
    struct grpc_world *world = self;
    const size_t left = world->sent.size - world->sent_read;
    const size_t n = size < left ? size : left;
    memcpy(bytes, world->sent.data + world->sent_read, n);
    world->sent_read += n;
    if (world->sent_read == world->sent.size)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (nghttp2_ssize)n;
}

static void world_init(struct grpc_world *world)
{
    const struct grpc_door door = {world_open, world_set_reading, world_close, world};
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    *world = (struct grpc_world){.memory.max = 64 << 20, .now_ns = 1};
    world->session = grpc_session_new(&door, &world->memory, world->now_ns);
    assert_non_null(world->session);
    assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, world_on_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, world_on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, world_on_close);
    assert_int_equal(nghttp2_option_new(&option), 0);
    nghttp2_option_set_no_auto_window_update(option, 1); /* a client that does not read */
    assert_int_equal(nghttp2_session_client_new2(&world->client, callbacks, world, option), 0);
    nghttp2_option_del(option);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(world->client, NGHTTP2_FLAG_NONE, NULL, 0);
}

static void world_deinit(struct grpc_world *world)
{
    nghttp2_session_del(world->client);
    grpc_session_free(world->session);
    assert_int_equal(world->n_open, 0);
    assert_int_equal(world->memory.used, 0);
    buffer_deinit(&world->request);
    buffer_deinit(&world->data);
    buffer_deinit(&world->sent);
}

/* Until nobody has anything to say. */
static void world_run(struct grpc_world *world)
{
    const uint8_t *bytes;
    for (bool moved = true; moved;) {
        const nghttp2_ssize sent = nghttp2_session_mem_send2(world->client, &bytes);
        moved = sent > 0;
        if (sent > 0)
            assert_true(grpc_session_receive(world->session, bytes, (size_t)sent, world->now_ns));
        const size_t n = grpc_session_send(world->session, &bytes, world->now_ns);
        moved |= n > 0;
        if (n)
            assert_int_equal(nghttp2_session_mem_recv2(world->client, bytes, n), n);
    }
}

#define WORLD_HEADER(name, value)                                                                  \
    {(uint8_t *)(uintptr_t)(name), (uint8_t *)(uintptr_t)(value), sizeof(name) - 1, strlen(value), \
     0}

/* A call with this message. */
static int32_t world_call(struct grpc_world *world, const char *path, const char *timeout,
                          const void *message, size_t size)
{
    const nghttp2_nv headers[] = {
        WORLD_HEADER(":method", "POST"),
        WORLD_HEADER(":scheme", "http"),
        WORLD_HEADER(":authority", "n"),
        WORLD_HEADER(":path", path),
        WORLD_HEADER("content-type", "application/grpc"),
        WORLD_HEADER("te", "trailers"),
        WORLD_HEADER("grpc-timeout", timeout),
    };
    const nghttp2_data_provider2 body = {.read_callback = world_on_take};
    buffer_clear(&world->sent);
    buffer_clear(&world->data);
    world->sent_read = 0;
    world->closed = false;
    world->status[0] = world->message[0] = '\0';
    grpc_frame_write(message, size, &world->sent);
    const int32_t stream = nghttp2_submit_request2(world->client, NULL, headers,
                                                   sizeof headers / sizeof *headers, &body, NULL);
    assert_true(stream > 0);
    world_run(world);
    return stream;
}

static void world_answer(struct grpc_world *world, const char *bytes)
{
    grpc_call_receive(world->call, bytes, strlen(bytes));
    world_run(world);
}

static const char reply_head[] = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

static void test_a_call(void **state)
{
    struct grpc_world world;
    world_init(&world);
    world_call(&world, "/medley.v1.Medley/ListModels", "10S", "", 0);
    assert_string_equal(world.request.data, "GET /v1/models HTTP/1.0\r\nHost: n\r\n\r\n");
    world_answer(&world, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n"
                         "{\"data\":[{\"id\":\"m\"}]}");
    grpc_call_on_end(world.call);
    world_run(&world);
    static const uint8_t expected[] = {0, 0, 0, 0, 5, 10, 3, 10, 1, 'm'};
    assert_int_equal(world.data.size, sizeof expected);
    assert_memory_equal(world.data.data, expected, sizeof expected);
    assert_string_equal(world.status, "0");
    assert_true(world.closed);
    assert_int_equal(grpc_session_n_calls(world.session), 0);
    world_deinit(&world);
}

/* The API is not read while 64 KiB wait to be taken; what is held stays bounded. */
static void test_a_caller_that_does_not_read(void **state)
{
    struct grpc_world world;
    char event[1100];
    world_init(&world);
    const int32_t stream = world_call(&world, "/medley.v1.Medley/Generate", "1H", "", 0);
    world_answer(&world, reply_head);
    snprintf(event, sizeof event, "data: {\"id\":\"%0*d\"}\n\n", 1000, 0);
    unsigned n = 0;
    while (world.is_reading && n++ < 1000)
        world_answer(&world, event);
    assert_false(world.is_reading);
    assert_true(n > 100 && n < 200); /* 64 KiB of HTTP/2's window, and 64 KiB here */
    assert_true(world.memory.used < 70 * 1024);
    /* it reads after all */
    nghttp2_session_consume(world.client, stream, world.data.size);
    world_run(&world);
    assert_true(world.is_reading);
    world_answer(&world, "data: [DONE]\n\n");
    grpc_call_on_end(world.call);
    while (!world.closed) {
        const size_t before = world.data.size;
        nghttp2_session_consume(world.client, stream, before / 2);
        world_run(&world);
        assert_true(world.closed || world.data.size > before);
    }
    assert_string_equal(world.status, "0");
    assert_int_equal(world.n_paused, 1);
    world_deinit(&world);
}

static void test_a_caller_that_never_reads(void **state)
{
    struct grpc_world world;
    world_init(&world);
    world_call(&world, "/medley.v1.Medley/Generate", "1H", "", 0);
    world_answer(&world, reply_head);
    while (world.is_reading) {
        world_answer(&world, "data: {\"id\":\"0123456789012345678901234567890123456789\"}\n\n");
    }
    world.now_ns += GRPC_STALL_NS / 2;
    grpc_session_tick(world.session, world.now_ns);
    world_run(&world);
    assert_false(world.closed);
    world.now_ns += GRPC_STALL_NS;
    grpc_session_tick(world.session, world.now_ns);
    world_run(&world);
    assert_true(world.closed);
    assert_int_equal(world.n_open, 0);
    world_deinit(&world);
}

static void test_deadlines(void **state)
{
    struct grpc_world world;
    world_init(&world);
    world_call(&world, "/medley.v1.Medley/Generate", "1S", "", 0);
    assert_int_equal(world.n_open, 1);
    assert_true(grpc_session_next_ns(world.session, world.now_ns) == UINT64_C(1000000000) + 1);
    world.now_ns += UINT64_C(1000000000);
    grpc_session_tick(world.session, world.now_ns);
    world_run(&world);
    assert_string_equal(world.status, "4");
    assert_int_equal(world.n_open, 0);
    world_call(&world, "/medley.v1.Medley/Generate", "soon", "", 0);
    assert_string_equal(world.status, "3");
    assert_int_equal(world.n_opened, 1);
    world_deinit(&world);
}

static void test_cancelled(void **state)
{
    struct grpc_world world;
    world_init(&world);
    const int32_t stream = world_call(&world, "/medley.v1.Medley/Generate", "1H", "", 0);
    assert_int_equal(world.n_open, 1);
    nghttp2_submit_rst_stream(world.client, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL);
    world_run(&world);
    assert_int_equal(world.n_open, 0);
    assert_int_equal(grpc_session_n_calls(world.session), 0);
    world_deinit(&world);
}

static void test_answers_that_break_off(void **state)
{
    struct grpc_world world;
    world_init(&world);
    world_call(&world, "/medley.v1.Medley/Generate", "1H", "", 0);
    world_answer(&world, reply_head);
    world_answer(&world, "data: {\"id\":\"x\"}\n\n");
    grpc_call_on_end(world.call);
    world_run(&world);
    assert_string_equal(world.status, "14");
    assert_true(world.data.size > 0);
    world_call(&world, "/medley.v1.Medley/ListNodes", "1H", "", 0);
    world_answer(&world, "HTTP/1.1 404 Not Found\r\n\r\n{\"error\":{\"message\":\"none\"}}");
    grpc_call_on_end(world.call);
    world_run(&world);
    assert_string_equal(world.status, "5");
    assert_string_equal(world.message, "none");
    world_deinit(&world);
}

static void test_memory_of_all_is_bounded(void **state)
{
    static char large[100000];
    struct grpc_world world;
    world_init(&world);
    world.memory.max = 20000;
    world_call(&world, "/medley.v1.Medley/Generate", "1H", large, sizeof large);
    assert_string_equal(world.status, "8");
    assert_int_equal(world.n_opened, 0);
    assert_true(world.memory.used <= 20000);
    world_deinit(&world);
}

static void test_unknown_methods(void **state)
{
    struct grpc_world world;
    world_init(&world);
    world_call(&world, "/medley.v1.Medley/Nothing", "1H", "", 0);
    assert_string_equal(world.status, "12");
    world_call(&world, "/medley.v1.Medley/ListModels", "1H", "\xff", 1);
    assert_string_equal(world.status, "3");
    assert_int_equal(world.n_opened, 0);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_call),
        cmocka_unit_test(test_a_caller_that_does_not_read),
        cmocka_unit_test(test_a_caller_that_never_reads),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_cancelled),
        cmocka_unit_test(test_answers_that_break_off),
        cmocka_unit_test(test_memory_of_all_is_bounded),
        cmocka_unit_test(test_unknown_methods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
