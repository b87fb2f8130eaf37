/* mesh: links between nodes of one process over loopback. Run with "quic" the same over QUIC. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "link_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static enum mesh_transport transport;

enum { USER = FRAME_USER + 7 };

static void post(struct link *link, uint32_t channel, uint64_t word)
{
    const struct frame_header header = {.type = USER, .length = sizeof word, .tag = (uint32_t)word};
    assert_int_equal(link_post(link, channel, &header, &word, NULL), ERROR_NONE);
}

struct wanted {
    const struct link_world_node *node;
    uint32_t n_frames, n_up, n_down, n_drained;
};

static bool has_come(void *arg)
{
    const struct wanted *wanted = arg;
    return wanted->node->n_frames >= wanted->n_frames && wanted->node->n_up >= wanted->n_up &&
           wanted->node->n_down >= wanted->n_down && wanted->node->n_drained >= wanted->n_drained;
}

#define WAIT_FOR(world, ms, ...)                                                                   \
    assert_true(link_world_run(world, has_come, &(struct wanted){__VA_ARGS__}, ms))

/* ---- up, frames, down ---------------------------------------------------------------------- */

static void test_two_nodes_know_each_other(void **state)
{
    struct link_world *world = link_world_init(transport);
    const uint64_t begin_ns = clock_now_ns();
    link_world_link_two(world);
    assert_true(clock_now_ns() - begin_ns < 1000000000u); /* "start to joined, known peer: < 1 s" */
    for (int i = 0; i < 2; i++) {
        const struct link_world_node *node = &world->nodes[i], *other = &world->nodes[1 - i];
        assert_memory_equal(link_peer(node->link), other->identity.node_id, NODE_ID_BYTES);
        assert_int_equal(link_version(node->link).major, LINK_MAJOR);
        assert_int_equal(link_channels(node->link), 2);
        assert_int_equal(link_was_dialled(node->link), i == 0);
        assert_int_equal(link_hello(node->link)->n_greeting, 12);
        assert_memory_equal(link_hello(node->link)->greeting, "good morning", 12);
        assert_ptr_equal(mesh_find(node->mesh, other->identity.node_id), node->link);
        assert_ptr_equal(mesh_next(node->mesh, NULL), node->link);
        assert_null(mesh_next(node->mesh, node->link));
    }
    link_world_deinit(world);
}

static void test_small_messages_keep_their_order(void **state)
{
    enum { MESSAGES = 1000 };
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    for (uint64_t i = 0; i < MESSAGES; i++) {
        post(a->link, LINK_CONTROL, i);
        post(a->link, LINK_DATA, i);
        post(b->link, LINK_DATA, i);
    }
    WAIT_FOR(world, 5000, .node = b, .n_frames = 2 * MESSAGES);
    WAIT_FOR(world, 5000, .node = a, .n_frames = MESSAGES);
    uint64_t next[2] = {0};
    for (uint32_t i = 0; i < b->n_frames; i++) {
        const struct link_world_frame *frame = &b->frames[i];
        assert_int_equal(frame->first_word, next[frame->channel]++);
        assert_int_equal(frame->header.tag, frame->first_word);
        assert_int_equal(frame->header.type, USER);
    }
    assert_int_equal(next[0], MESSAGES);
    assert_int_equal(next[1], MESSAGES);
    link_world_deinit(world);
}

static void test_empty_and_unknown_frames_arrive(void **state)
{
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    const struct frame_header empty = {.type = 65535, .flags = 0xffff, .tag = 0xffffffff};
    assert_int_equal(link_post(a->link, LINK_CONTROL, &empty, NULL, NULL), ERROR_NONE);
    post(a->link, LINK_CONTROL, 42);
    WAIT_FOR(world, 5000, .node = b, .n_frames = 2);
    assert_int_equal(b->frames[0].header.type, 65535);
    assert_int_equal(b->frames[0].header.flags, 0xffff);
    assert_int_equal(b->frames[0].header.length, 0);
    assert_int_equal(b->frames[1].first_word, 42);
    link_world_deinit(world);
}

struct sent {
    struct link_send send;
    bool done;
    enum error_code code;
};

static void on_sent(struct link_send *send, enum error_code code)
{
    struct sent *sent = send->data;
    assert_false(sent->done);
    sent->done = true;
    sent->code = code;
}

static bool is_sent(void *arg)
{
    return ((struct sent *)arg)->done;
}

static uint8_t *random_bytes(size_t size)
{
    uint8_t *bytes = mem_new(size);
    assert_non_null(bytes);
    for (size_t i = 0; i + 8 <= size; i += 8) {
        const uint64_t word = random_at(7, i);
        memcpy(bytes + i, &word, 8);
    }
    return bytes;
}

/* Pieces of odd sizes, straight into the receiver's memory. */
static void test_a_large_tensor_arrives_whole(void **state)
{
    const size_t size =
        transport == MESH_TCP ? 64u << 20 : 24u << 20; /* OpenSSL's QUIC takes its time */
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    uint8_t *bytes = random_bytes(size);
    b->memory = mem_new(size);
    b->memory_bytes = size;
    struct sent sent = {
        .send = {.type = USER, .tag = 9, .n_pieces = 4, .done = on_sent, .data = &sent}};
    const size_t cuts[] = {0, 13, 13 + 70001, 13 + 70001 + (20u << 20), size};
    for (int i = 0; i < 4; i++)
        sent.send.pieces[i] = (struct link_piece){bytes + cuts[i], cuts[i + 1] - cuts[i]};
    struct error err = {0};
    assert_int_equal(link_send(a->link, LINK_DATA, &sent.send, &err), ERROR_NONE);
    assert_false(sent.done); /* never from within the call */
    post(a->link, LINK_CONTROL, 1);
    WAIT_FOR(world, 5000, .node = b, .n_frames = 1);
    assert_int_equal(b->frames[0].channel,
                     LINK_CONTROL); /* control does not wait behind the tensor */
    assert_true(link_world_run(world, is_sent, &sent, 30000));
    WAIT_FOR(world, 30000, .node = b, .n_frames = 2);
    assert_int_equal(sent.code, ERROR_NONE);
    assert_int_equal(b->frames[1].header.length, size);
    assert_int_equal(b->frames[1].hash, link_world_hash(bytes, size));
    assert_memory_equal(b->memory, bytes, size);
    assert_int_equal(link_queued_bytes(a->link, LINK_DATA), 0);
    mem_free(bytes);
    mem_free(b->memory);
    link_world_deinit(world);
}

static void test_what_is_too_long_is_not_sent(void **state)
{
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link *link = world->nodes[0].link;
    struct error err = {0};
    const struct frame_header header = {.type = USER, .length = LIMIT_FRAME_CONTROL_BYTES + 1};
    assert_int_equal(link_post(link, LINK_CONTROL, &header, NULL, &err), ERROR_INVALID);
    struct sent sent = {.send = {.type = USER, .n_pieces = 1, .done = on_sent, .data = &sent}};
    sent.send.pieces[0] = (struct link_piece){"", (size_t)LIMIT_FRAME_DATA_BYTES + 1};
    assert_int_equal(link_send(link, LINK_DATA, &sent.send, &err), ERROR_INVALID);
    link_world_pass(world, 20);
    assert_false(sent.done);
    assert_ptr_equal(world->nodes[0].link, link);
    link_world_deinit(world);
}

/* ---- back-pressure ------------------------------------------------------------------------- */

static void test_a_stopped_reader_stops_the_sender(void **state)
{
    enum { BYTES = 64 * 1024 };
    struct link_world *world = link_world_init(transport);
    world->nodes[0].options.queue_bytes = 1 << 20;
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    uint8_t *bytes = random_bytes(BYTES);
    link_pause(b->link, LINK_DATA);
    uint32_t n = 0, n_busy = 0;
    struct error err = {0};
    while (n < WORLD_FRAMES - 2 &&
           n_busy < 3) { /* busy for 150 ms: the kernel's buffers are full, too */
        const struct frame_header header = {.type = USER, .length = BYTES, .tag = n};
        const enum error_code code = link_post(a->link, LINK_DATA, &header, bytes, &err);
        assert_true(code == ERROR_NONE || code == ERROR_BUSY);
        n += code == ERROR_NONE;
        n_busy = code ? n_busy + 1 : 0;
        if (code)
            link_world_pass(world, 50);
    }
    a->n_drained = 0;
    assert_int_equal(n_busy, 3); /* neither endless memory here … */
    link_world_pass(world, 300);
    assert_int_equal(b->n_frames, 0);
    assert_int_equal(a->n_drained, 0);
    post(a->link, LINK_CONTROL, 5); /* … nor a stop of everything */
    WAIT_FOR(world, 5000, .node = b, .n_frames = 1);
    assert_int_equal(b->frames[0].first_word, 5);
    link_resume(b->link, LINK_DATA);
    WAIT_FOR(world, 10000, .node = a, .n_drained = 1);
    WAIT_FOR(world, 10000, .node = b, .n_frames = n + 1);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(b->frames[i + 1].header.tag, i);
    link_world_pass(world, 20);
    assert_int_equal(a->n_drained, 1);
    assert_int_equal(a->n_down + b->n_down, 0);
    mem_free(bytes);
    link_world_deinit(world);
}

/* ---- closing -------------------------------------------------------------------------------- */

static void test_closing_sends_what_is_queued(void **state)
{
    enum { BYTES = 100 * 1000 };
    const uint32_t n_messages = transport == MESH_TCP ? 100 : 30;
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    uint8_t *bytes = random_bytes(BYTES);
    for (uint32_t i = 0; i < n_messages; i++) {
        const struct frame_header header = {.type = USER, .length = BYTES, .tag = i};
        assert_int_equal(link_post(a->link, LINK_DATA, &header, bytes, NULL), ERROR_NONE);
        assert_int_equal(link_post(b->link, LINK_DATA, &header, bytes, NULL), ERROR_NONE);
    }
    struct link *link = a->link;
    link_close(link);
    struct error err = {0};
    const struct frame_header late = {.type = USER};
    assert_int_equal(link_post(link, LINK_CONTROL, &late, NULL, &err), ERROR_CANCELLED);
    WAIT_FOR(world, 30000, .node = a, .n_down = 1);
    WAIT_FOR(world, 30000, .node = b, .n_down = 1);
    assert_int_equal(a->n_frames, n_messages);
    assert_int_equal(b->n_frames, n_messages);
    assert_int_equal(a->why.code, ERROR_CANCELLED);
    assert_int_equal(b->why.code, ERROR_CANCELLED);
    mem_free(bytes);
    link_world_deinit(world);
}

static void test_an_event_may_end_its_link(void **state)
{
    for (int abort = 0; abort < 2; abort++) {
        struct link_world *world = link_world_init(transport);
        link_world_link_two(world);
        struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
        b->closes_on_frame = !abort;
        b->aborts_on_frame = abort;
        for (uint64_t i = 0; i < 10; i++)
            post(a->link, LINK_DATA, i);
        WAIT_FOR(world, 5000, .node = b, .n_down = 1);
        WAIT_FOR(world, 5000, .node = a, .n_down = 1);
        assert_int_equal(b->n_frames, abort ? 1 : 10);
        assert_int_equal(b->why.code, abort ? ERROR_INVALID : ERROR_CANCELLED);
        b->closes_on_frame = b->aborts_on_frame = false;
        WAIT_FOR(world, 5000, .node = a, .n_up = 2); /* the dial is still there */
        link_world_deinit(world);
    }
}

static void test_requests_are_given_back_when_the_link_goes(void **state)
{
    const size_t size = 32u << 20;
    struct link_world *world = link_world_init(transport);
    link_world_link_two(world);
    struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
    uint8_t *bytes = mem_new(size);
    link_pause(b->link, LINK_DATA);
    struct sent sent = {.send = {.type = USER,
                                 .n_pieces = 1,
                                 .pieces = {{bytes, size}},
                                 .done = on_sent,
                                 .data = &sent}};
    assert_int_equal(link_send(a->link, LINK_DATA, &sent.send, NULL), ERROR_NONE);
    link_world_pass(world, 100);
    assert_false(sent.done);
    link_abort(b->link, &(struct error){.code = ERROR_IO, .text = "the test says so"});
    assert_true(link_world_run(world, is_sent, &sent, 5000));
    assert_int_equal(sent.code, ERROR_CANCELLED);
    mem_free(bytes);
    link_world_deinit(world);
}

/* ---- dialling ------------------------------------------------------------------------------- */

static void test_dialling_goes_on(void **state)
{
    const uint32_t n_rounds = transport == MESH_TCP ? 3 : 2;
    struct link_world *world = link_world_init(transport);
    if (transport == MESH_QUIC) /* where nobody listens nobody says so */
        world->nodes[0].options.greeting_ms = 300;
    link_world_open(world, 1); /* finds a free port */
    link_world_close(world, 1);
    link_world_open(world, 0);
    struct dial *dial = link_world_dial(world, 0, 1);
    link_world_pass(world, transport == MESH_TCP ? 400 : 800);
    assert_true(dial_status(dial).n_failures >= 1);
    assert_int_not_equal(dial_status(dial).last.code, ERROR_NONE);
    assert_null(dial_status(dial).link);
    for (uint32_t round = 1; round <= n_rounds; round++) {
        link_world_open(world, 1);
        WAIT_FOR(world, 10000, .node = &world->nodes[0], .n_up = round);
        assert_int_equal(dial_status(dial).last.code, ERROR_NONE);
        assert_ptr_equal(dial_status(dial).link, world->nodes[0].link);
        link_world_close(world, 1);
        WAIT_FOR(world, 5000, .node = &world->nodes[0], .n_down = round);
    }
    mesh_forget(world->nodes[0].mesh, dial);
    link_world_open(world, 1);
    link_world_pass(world, 500);
    assert_int_equal(world->nodes[0].n_up, n_rounds);
    link_world_deinit(world);
}

/* After a link that lasted, the other end is looked for often; after one that was never made, ever
 * more rarely. */
static void test_a_link_that_lasted_is_soon_back(void **state)
{
    struct link_world *world = link_world_init(transport);
    uint32_t n_failures[2];
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *dial = link_world_dial(world, 0, 1);
    for (int lasted = 0; lasted < 2; lasted++) {
        WAIT_FOR(world, 10000, .node = &world->nodes[0], .n_up = 1 + (uint32_t)lasted);
        link_world_pass(world, lasted ? 1100 : 100);
        link_world_close(world, 1);
        WAIT_FOR(world, 5000, .node = &world->nodes[0], .n_down = 1 + (uint32_t)lasted);
        const uint32_t before = dial_status(dial).n_failures;
        link_world_pass(world, 1000);
        n_failures[lasted] = dial_status(dial).n_failures - before;
        link_world_open(world, 1);
    }
    WAIT_FOR(world, transport == MESH_TCP ? 500 : 2000, .node = &world->nodes[0], .n_up = 3);
    if (transport == MESH_TCP) /* over QUIC each attempt takes its time */
        assert_true(n_failures[0] <= 5 && n_failures[1] > 2 * n_failures[0]);
    link_world_deinit(world);
}

static void test_hurried(void **state)
{
    struct link_world *world = link_world_init(transport);
    world->nodes[0].options.dial_wait_ms = 8000;
    if (transport == MESH_QUIC)
        world->nodes[0].options.greeting_ms = 300;
    link_world_open(world, 1); /* finds a free port */
    link_world_close(world, 1);
    link_world_open(world, 0);
    struct mesh *mesh = world->nodes[0].mesh;
    struct mesh_target target = {
        .host = "127.0.0.1", .port = world->nodes[1].port, .has_node_id = true};
    memcpy(target.node_id, world->nodes[1].identity.node_id, NODE_ID_BYTES);
    struct dial *dial;
    assert_int_equal(mesh_dial(mesh, &target, &dial, NULL), ERROR_NONE);
    link_world_pass(world, 500);
    assert_int_equal(dial_status(dial).n_failures, 1);
    mesh_hurry(mesh, world->nodes[2].identity.node_id); /* another's way */
    link_world_pass(world, 500);
    assert_int_equal(dial_status(dial).n_failures, 1);
    mesh_hurry(mesh, world->nodes[1].identity.node_id);
    link_world_pass(world, 400);
    assert_int_equal(dial_status(dial).n_failures, 2);
    for (int i = 0; i < 10; i++) /* at most once a second */
        mesh_hurry(mesh, NULL);
    link_world_pass(world, 400);
    assert_int_equal(dial_status(dial).n_failures, 2);
    link_world_pass(world, 300);
    link_world_open(world, 1);
    mesh_hurry(mesh, NULL);
    WAIT_FOR(world, 3000, .node = &world->nodes[0], .n_up = 1);
    link_world_deinit(world);
}

/* Whoever dials first, second, or both at once: one link, the same at both ends, and frames
 * pass. */
static void test_both_dial_at_once(void **state)
{
    for (int round = 0; round < (transport == MESH_TCP ? 12 : 6); round++) {
        struct link_world *world = link_world_init(transport);
        link_world_open(world, 0);
        link_world_open(world, 1);
        const int first = round % 2;
        link_world_dial(world, first, 1 - first);
        if (round >= 2)
            link_world_pass(world, (uint64_t)(round - 2) / 2);
        link_world_dial(world, 1 - first, first);
        struct link_world_node *a = &world->nodes[0], *b = &world->nodes[1];
        WAIT_FOR(world, 5000, .node = a, .n_up = 1);
        WAIT_FOR(world, 5000, .node = b, .n_up = 1);
        link_world_pass(world, 300);
        assert_non_null(a->link);
        assert_non_null(b->link);
        assert_int_equal(a->n_up - a->n_down, 1);
        assert_int_equal(b->n_up - b->n_down, 1);
        assert_int_not_equal(link_was_dialled(a->link), link_was_dialled(b->link));
        a->n_frames = b->n_frames = 0;
        post(a->link, LINK_DATA, 1);
        post(b->link, LINK_DATA, 2);
        WAIT_FOR(world, 5000, .node = a, .n_frames = 1);
        WAIT_FOR(world, 5000, .node = b, .n_frames = 1);
        assert_null(mesh_next(a->mesh, mesh_next(a->mesh, NULL)));
        link_world_deinit(world);
    }
}

static void test_only_the_node_that_was_meant(void **state)
{
    struct link_world *world = link_world_init(transport);
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *dial;
    struct mesh_target target = {
        .host = "127.0.0.1", .port = world->nodes[1].port, .has_node_id = true};
    memcpy(target.node_id, world->nodes[2].identity.node_id, NODE_ID_BYTES);
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &target, &dial, NULL), ERROR_NONE);
    link_world_pass(world, 300);
    assert_int_equal(world->nodes[0].n_up, 0);
    assert_non_null(strstr(dial_status(dial).last.text, "another node"));
    /* Nor itself. */
    target = (struct mesh_target){.host = "127.0.0.1", .port = world->nodes[0].port};
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &target, &dial, NULL), ERROR_NONE);
    link_world_pass(world, 300);
    assert_int_equal(world->nodes[0].n_up, 0);
    assert_non_null(strstr(dial_status(dial).last.text, "itself"));
    link_world_deinit(world);
}

static void test_names_are_looked_up(void **state)
{
    struct link_world *world = link_world_init(transport);
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *dial, *wrong;
    const struct mesh_target target = {.host = "localhost", .port = world->nodes[1].port};
    const struct mesh_target nobody = {.host = "no-such-host.invalid", .port = 7};
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &nobody, &wrong, NULL), ERROR_NONE);
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &target, &dial, NULL), ERROR_NONE);
    WAIT_FOR(world, 10000, .node = &world->nodes[0], .n_up = 1);
    mesh_forget(world->nodes[0].mesh, wrong); /* perhaps still being looked up */
    const struct mesh_target bad = {.host = "", .port = 7};
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &bad, &wrong, NULL), ERROR_INVALID);
    link_world_deinit(world);
}

static void test_three_nodes_all_linked(void **state)
{
    struct link_world *world = link_world_init(transport);
    for (int i = 0; i < 3; i++)
        link_world_open(world, i);
    for (int i = 0; i < 3; i++)
        link_world_dial(world, i, (i + 1) % 3);
    for (int i = 0; i < 3; i++)
        WAIT_FOR(world, 5000, .node = &world->nodes[i], .n_up = 2);
    link_world_deinit(world);
}

/* ---- versions -------------------------------------------------------------------------------- */

static void test_a_newer_minor_version_joins(void **state)
{
    struct link_world *world = link_world_init(transport);
    world->nodes[1].options.version = (struct link_version){LINK_MAJOR, LINK_MINOR + 1};
    link_world_link_two(world);
    assert_int_equal(link_version(world->nodes[0].link).minor, LINK_MINOR);
    assert_int_equal(link_version(world->nodes[1].link).minor, LINK_MINOR);
    link_world_deinit(world);
}

struct two_dials {
    struct dial *there, *back;
};

static bool both_have_failed(void *arg)
{
    const struct two_dials *dials = arg;
    return dial_status(dials->there).n_failures && dial_status(dials->back).n_failures;
}

static void test_another_major_version_is_told_why(void **state)
{
    struct link_world *world = link_world_init(transport);
    world->nodes[1].options.version = (struct link_version){LINK_MAJOR + 1, 0};
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *there = link_world_dial(world, 0, 1), *back = link_world_dial(world, 1, 0);
    struct two_dials dials = {there, back};
    assert_true(link_world_run(world, both_have_failed, &dials, 10000));
    link_world_pass(world, 300);
    assert_int_equal(world->nodes[0].n_up + world->nodes[1].n_up, 0);
    assert_int_equal(dial_status(there).last.code, ERROR_UNSUPPORTED);
    assert_non_null(strstr(dial_status(there).last.text, "version 2.0"));
    assert_int_equal(dial_status(back).last.code, ERROR_UNSUPPORTED);
    assert_non_null(strstr(dial_status(back).last.text, "update"));
    link_world_deinit(world);
}

/* ---- measuring ------------------------------------------------------------------------------- */

static bool is_measured(void *arg)
{
    const struct link_world *world = arg;
    for (int i = 0; i < 2; i++) {
        const struct topology_link measured = link_measured(world->nodes[i].link);
        if (!measured.latency_ns.valid || !measured.jitter_ns.valid ||
            !measured.bandwidth_bytes_per_s.valid)
            return false;
    }
    return true;
}

static void test_a_link_is_measured(void **state)
{
    struct link_world *world = link_world_init(transport);
    for (int i = 0; i < 2; i++) {
        world->nodes[i].options.measures_bandwidth = true;
        world->nodes[i].options.ping_ms = 20;
    }
    link_world_link_two(world);
    assert_false(link_measured(world->nodes[0].link).bandwidth_bytes_per_s.valid);
    assert_true(link_world_run(world, is_measured, world, 10000));
    for (int i = 0; i < 2; i++) {
        const struct topology_link measured = link_measured(world->nodes[i].link);
        assert_true(measured.up);
        assert_int_equal(measured.class, TOPOLOGY_SAME_HOST);
        assert_true(measured.latency_ns.value > 0 && measured.latency_ns.value < 100000000);
        assert_true(measured.bandwidth_bytes_per_s.value > 1000000);
        assert_true(measured.overhead_ns.valid && measured.overhead_ns.value == 0);
    }
    link_world_deinit(world);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Whichever allocation fails: no crash, no leak, and the next attempt brings the link up. */
static void test_allocations_may_fail(void **state)
{
    const uint32_t n_failures = transport == MESH_TCP ? 24 : 12;
    uint32_t n_recovered = 0;
    for (unsigned nth = 1; nth <= n_failures; nth++) {
        struct link_world *world = link_world_init(transport);
        world->nodes[0].options.greeting_ms = world->nodes[1].options.greeting_ms = 300;
        link_world_open(world, 0);
        link_world_open(world, 1);
        link_world_dial(world, 0, 1);
        mem_fail_nth(nth);
        WAIT_FOR(world, 10000, .node = &world->nodes[0], .n_up = 1);
        WAIT_FOR(world, 10000, .node = &world->nodes[1], .n_up = 1);
        mem_fail_nth(0);
        link_world_pass(world, 30);
        n_recovered++;
        link_world_deinit(world);
    }
    assert_int_equal(n_recovered, n_failures);
}

int main(int argc, char **argv)
{
    transport = argc > 1 && strcmp(argv[1], "quic") == 0 ? MESH_QUIC : MESH_TCP;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes_know_each_other),
        cmocka_unit_test(test_small_messages_keep_their_order),
        cmocka_unit_test(test_empty_and_unknown_frames_arrive),
        cmocka_unit_test(test_a_large_tensor_arrives_whole),
        cmocka_unit_test(test_what_is_too_long_is_not_sent),
        cmocka_unit_test(test_a_stopped_reader_stops_the_sender),
        cmocka_unit_test(test_closing_sends_what_is_queued),
        cmocka_unit_test(test_an_event_may_end_its_link),
        cmocka_unit_test(test_requests_are_given_back_when_the_link_goes),
        cmocka_unit_test(test_dialling_goes_on),
        cmocka_unit_test(test_a_link_that_lasted_is_soon_back),
        cmocka_unit_test(test_hurried),
        cmocka_unit_test(test_both_dial_at_once),
        cmocka_unit_test(test_only_the_node_that_was_meant),
        cmocka_unit_test(test_names_are_looked_up),
        cmocka_unit_test(test_three_nodes_all_linked),
        cmocka_unit_test(test_a_newer_minor_version_joins),
        cmocka_unit_test(test_another_major_version_is_told_why),
        cmocka_unit_test(test_a_link_is_measured),
        cmocka_unit_test(test_allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
