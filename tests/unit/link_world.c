#include "link_world.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trust/identity.h"

#include <arpa/inet.h>
#include <math.h>
#include <openssl/evp.h>
#include <openssl/x509.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static struct link_world the_world;

uint64_t link_world_hash(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    size_t i = 0;
    for (; i + 8 <= size; i += 8) {
        uint64_t word;
        memcpy(&word, at + i, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    for (; i < size; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* ---- events -------------------------------------------------------------------------------- */

static void on_up(void *self, struct link *link)
{
    struct link_world_node *node = self;
    node->link = link;
    node->n_up++;
    link_set_data(link, node);
}

static void on_down(void *self, struct link *link, const struct error *why)
{
    struct link_world_node *node = self;
    assert_ptr_equal(link_data(link), node);
    if (node->link == link)
        node->link = NULL;
    node->why = *why;
    node->n_down++;
}

static void *on_memory(void *self, struct link *link, uint32_t channel,
                       const struct frame_header *header)
{
    struct link_world_node *node = self;
    return header->length > 1024 && header->length <= node->memory_bytes ? node->memory : NULL;
}

static void on_frame(void *self, struct link *link, uint32_t channel,
                     const struct frame_header *header, const uint8_t *payload)
{
    struct link_world_node *node = self;
    assert_true(node->n_frames < WORLD_FRAMES);
    struct link_world_frame *frame = &node->frames[node->n_frames++];
    *frame = (struct link_world_frame){link, channel, *header, 0,
                                       link_world_hash(payload, header->length)};
    if (header->length >= 8)
        memcpy(&frame->first_word, payload, 8);
    if (node->echoes)
        assert_int_equal(link_post(link, channel, header, payload, NULL), ERROR_NONE);
    if (node->closes_on_frame)
        link_close(link);
    if (node->aborts_on_frame)
        link_abort(link, &(struct error){.code = ERROR_INVALID, .text = "the test says so"});
}

static void on_drained(void *self, struct link *link, uint32_t channel)
{
    ((struct link_world_node *)self)->n_drained++;
}

static void on_silent(void *self, struct link *link)
{
    ((struct link_world_node *)self)->n_silent++;
}

/* ---- nodes --------------------------------------------------------------------------------- */

bool link_world_is_member(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    return true;
}

static void make_node(struct link_world *world, struct link_world_node *node)
{
    struct error err = {0};
    const uint64_t now_s = (uint64_t)time(NULL);
    node->world = world;
    assert_int_equal(identity_make(&node->identity, &err), ERROR_NONE);
    if (!world->authority.certificate)
        assert_int_equal(authority_make(&world->authority, &err), ERROR_NONE);
    node->membership.authority = world->authority;
    X509_up_ref(world->authority.certificate);
    EVP_PKEY_up_ref(world->authority.key);
    assert_int_equal(authority_sign(&world->authority, node->identity.public_key, now_s,
                                    &node->membership.certificate, &err),
                     ERROR_NONE);
}

static void sort_nodes(struct link_world *world)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        for (int j = i + 1; j < WORLD_NODES; j++) {
            struct link_world_node *a = &world->nodes[i], *b = &world->nodes[j];
            if (memcmp(a->identity.node_id, b->identity.node_id, NODE_ID_BYTES) > 0) {
                const struct identity identity = a->identity;
                const struct membership membership = a->membership;
                a->identity = b->identity;
                a->membership = b->membership;
                b->identity = identity;
                b->membership = membership;
            }
        }
    }
}

static void make_credentials(struct link_world_node *node)
{
    static const struct credentials_members members = {.admitted = link_world_is_member};
    struct error err = {0};
    if (credentials_new(&node->identity, &node->membership, &members, &node->credentials, &err))
        fail_msg("%s", err.text);
}

static void set_options(struct link_world *world, struct link_world_node *node)
{
    node->options = (struct mesh_options){
        .loop = &world->loop,
        .security = security_of(node->credentials),
        .events = {on_up, on_down, on_memory, on_frame, on_drained, on_silent, node},
        .transport = world->transport,
        .ping_ms = 50,
        .silence_ms = 500,
        .dead_ms = 2000,
        .greeting_ms = 1000,
        .dial_wait_ms = 50,
        .greeting = (const uint8_t *)"good morning",
        .n_greeting = 12,
    };
    memcpy(node->options.node_id, node->identity.node_id, NODE_ID_BYTES);
}

static void on_time(uv_timer_t *timer)
{
    ((struct link_world *)timer->data)->timed_out = true;
}

struct link_world *link_world_init(enum mesh_transport transport)
{
    struct link_world *world = &the_world;
    memset(world, 0, sizeof *world);
    world->transport = transport;
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(uv_loop_init(&world->loop), 0);
    assert_int_equal(uv_timer_init(&world->loop, &world->timer), 0);
    world->timer.data = world;
    for (int i = 0; i < WORLD_NODES; i++)
        make_node(world, &world->nodes[i]);
    sort_nodes(world);
    for (int i = 0; i < WORLD_NODES; i++) {
        make_credentials(&world->nodes[i]);
        set_options(world, &world->nodes[i]);
    }
    return world;
}

static void on_closed(void *self)
{
    ((struct link_world_node *)self)->is_closed = true;
}

static bool is_closed(void *arg)
{
    return ((struct link_world_node *)arg)->is_closed;
}

void link_world_close(struct link_world *world, int index)
{
    struct link_world_node *node = &world->nodes[index];
    if (!node->mesh)
        return;
    node->is_closed = false;
    mesh_close(node->mesh, on_closed, node);
    assert_true(link_world_run(world, is_closed, node, 10000));
    assert_null(node->link);
    assert_int_equal(node->n_up, node->n_down);
    node->mesh = NULL;
}

void link_world_deinit(struct link_world *world)
{
    for (int i = 0; i < WORLD_NODES; i++)
        link_world_close(world, i);
    uv_close((uv_handle_t *)&world->timer, NULL);
    uv_run(&world->loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&world->loop), 0); /* nothing was left behind */
    for (int i = 0; i < WORLD_NODES; i++) {
        struct link_world_node *node = &world->nodes[i];
        credentials_free(node->credentials);
        membership_deinit(&node->membership);
        identity_deinit(&node->identity);
    }
    authority_deinit(&world->authority);
}

void link_world_open(struct link_world *world, int index)
{
    struct link_world_node *node = &world->nodes[index];
    struct error err = {0};
    if (mesh_open(&node->options, &node->mesh, &err) ||
        mesh_listen(node->mesh, "127.0.0.1", node->port, &node->port, &err))
        fail_msg("%s", err.text);
}

struct dial *link_world_dial(struct link_world *world, int from, int to)
{
    struct dial *dial;
    struct error err = {0};
    const struct mesh_target target = {.host = "127.0.0.1", .port = world->nodes[to].port};
    if (mesh_dial(world->nodes[from].mesh, &target, &dial, &err))
        fail_msg("%s", err.text);
    return dial;
}

static bool never(void *arg)
{
    return false;
}

bool link_world_run(struct link_world *world, bool (*holds)(void *arg), void *arg, uint64_t ms)
{
    const char *slowness = getenv("MEDLEY_SLOWNESS"); /* of the machine: ./dev test looks */
    world->timed_out = false;
    if (slowness && holds != never)
        ms = (uint64_t)((double)ms * fmax(1, atof(slowness)));
    uv_timer_start(&world->timer, on_time, ms, 0);
    while (!world->timed_out && !holds(arg))
        uv_run(&world->loop, UV_RUN_ONCE);
    uv_timer_stop(&world->timer);
    return holds(arg);
}

void link_world_pass(struct link_world *world, uint64_t ms)
{
    link_world_run(world, never, NULL, ms);
}

static bool both_up(void *arg)
{
    struct link_world *world = arg;
    return world->nodes[0].link && world->nodes[1].link;
}

void link_world_link_two(struct link_world *world)
{
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *dial = link_world_dial(world, 0, 1);
    if (!link_world_run(world, both_up, world, 5000))
        fail_msg("no link: %s", dial_status(dial).last.text);
}

int link_world_raw_connect(uint16_t port)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}
