/* Loss of packets over QUIC: what acknowledgements say, and a link through a relay that drops. */
#include "link_world.h"
#include "mesh/quic_loss.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <cmocka.h>
#include <sys/socket.h>

/* ---- acknowledgements ------------------------------------------------------------------------ */

static uint8_t *put(uint8_t *at, uint64_t number)
{
    for (int i = 7; i >= 0; i--)
        *at++ = (uint8_t)((i == 7 ? number >> 56 | 0xc0 : number >> 8 * i) & 0xff);
    return at;
}

/* All from `first` to `last` but for one; lacks 0: all. */
static void hear(struct quic_loss *loss, uint64_t first, uint64_t last, uint64_t lacks)
{
    uint8_t frame[80] = {2}, *at = put(frame + 1, last);
    at = put(put(at, 7), lacks != 0);
    if (lacks)
        at = put(put(put(at, last - lacks - 1), 0), lacks - 1 - first);
    else
        at = put(at, last - first);
    quic_loss_hear(loss, frame, (size_t)(at - frame));
}

static void test_lost_packets_are_counted_once(void **state)
{
    struct quic_loss loss = {0};
    hear(&loss, 0, 9, 0);
    assert_true(loss.begun);
    assert_int_equal(loss.judged, 0);
    hear(&loss, 0, 50, 20);
    assert_int_equal(loss.judged, 0); /* none is far enough behind */
    hear(&loss, 0, 83, 20);
    assert_int_equal(loss.judged, 20);
    assert_int_equal(loss.lost, 0);
    hear(&loss, 0, 84, 20);
    assert_int_equal(loss.judged, 21);
    assert_int_equal(loss.lost, 1);
    hear(&loss, 0, 84, 20);
    hear(&loss, 0, 60, 20); /* an older one that comes late */
    assert_int_equal(loss.judged, 21);
    hear(&loss, 0, 300, 110); /* many at once */
    assert_int_equal(loss.judged, 300 - 64 + 1);
    assert_int_equal(loss.lost, 2);
}

static void test_a_late_packet_is_not_lost(void **state)
{
    struct quic_loss loss = {0};
    hear(&loss, 0, 9, 0);
    hear(&loss, 0, 70, 30);
    hear(&loss, 0, 93, 0); /* 30 came after all, 63 packets later */
    hear(&loss, 0, 200, 0);
    assert_int_equal(loss.lost, 0);
    assert_int_equal(loss.judged, 200 - 64 + 1);
}

static void test_what_makes_no_sense_is_left_alone(void **state)
{
    struct quic_loss loss = {0};
    uint8_t frame[80];
    for (size_t size = 0; size < sizeof frame; size++) {
        memset(frame, 0xff, size);
        quic_loss_hear(&loss, frame, size);
        if (size)
            frame[0] = 2;
        quic_loss_hear(&loss, frame, size);
    }
    assert_int_equal(loss.judged, 0);
    loss = (struct quic_loss){0};
    const uint8_t beyond[] = {2, 5, 0, 0, 6}; /* a range of seven that ends at 5 */
    quic_loss_hear(&loss, beyond, sizeof beyond);
    const uint8_t padding[] = {0, 5, 0, 0, 5};
    quic_loss_hear(&loss, padding, sizeof padding);
    assert_false(loss.begun);
    hear(&loss, 0, 9, 0);
    hear(&loss, 0, UINT64_C(1) << 61, 0); /* passes over more than is kept */
    assert_int_equal(loss.judged, 0);
    assert_int_equal(loss.lost, 0);
    hear(&loss, 0, (UINT64_C(1) << 61) + 100, 0);
    assert_int_equal(loss.judged, 100);
}

/* ---- a relay --------------------------------------------------------------------------------- */

enum { DROPS_ONE_OF = 10, DATAGRAM_BYTES = 2048 };

struct relay {
    int near, far; /* sockets: the dialling node's side, and that of the other */
    uv_poll_t near_poll, far_poll;
    struct sockaddr_in client, server;
    uint32_t n_there, n_dropped, n_back, n_full;
};

static int relay_socket(struct sockaddr_in *own)
{
    const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof *own;
    *own = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)own, sizeof *own), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)own, &size), 0);
    return fd;
}

/* The handshake passes. */
static void relay_there(uv_poll_t *poll, int status, int events)
{
    struct relay *relay = poll->data;
    char bytes[DATAGRAM_BYTES];
    socklen_t size = sizeof relay->client;
    ssize_t n;
    while ((n = recvfrom(relay->near, bytes, sizeof bytes, 0, (struct sockaddr *)&relay->client,
                         &size)) > 0) {
        if (++relay->n_there > 40 && relay->n_there % DROPS_ONE_OF == 0)
            relay->n_dropped++;
        else
            sendto(relay->far, bytes, (size_t)n, 0, (struct sockaddr *)&relay->server,
                   sizeof relay->server);
    }
}

static void relay_back(uv_poll_t *poll, int status, int events)
{
    struct relay *relay = poll->data;
    char bytes[DATAGRAM_BYTES];
    ssize_t n;
    while ((n = recv(relay->far, bytes, sizeof bytes, 0)) > 0) {
        relay->n_back++;
        relay->n_full += sendto(relay->near, bytes, (size_t)n, 0, (struct sockaddr *)&relay->client,
                                sizeof relay->client) != n;
    }
}

static uint16_t relay_open(struct relay *relay, struct link_world *world, uint16_t port)
{
    struct sockaddr_in own, unused;
    *relay = (struct relay){.near = relay_socket(&own), .far = relay_socket(&unused)};
    relay->server = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uv_poll_init(&world->loop, &relay->near_poll, relay->near);
    uv_poll_init(&world->loop, &relay->far_poll, relay->far);
    relay->near_poll.data = relay->far_poll.data = relay;
    uv_poll_start(&relay->near_poll, UV_READABLE, relay_there);
    uv_poll_start(&relay->far_poll, UV_READABLE, relay_back);
    return ntohs(own.sin_port);
}

static void relay_close(struct relay *relay, struct link_world *world)
{
    uv_close((uv_handle_t *)&relay->near_poll, NULL);
    uv_close((uv_handle_t *)&relay->far_poll, NULL);
    link_world_pass(world, 1);
    close(relay->near);
    close(relay->far);
}

static bool are_up(void *arg)
{
    const struct link_world *world = arg;
    return world->nodes[0].link && world->nodes[1].link;
}

static bool losses_are_known(void *arg)
{
    const struct link_world *world = arg;
    return are_up(arg) && link_measured(world->nodes[0].link).loss_share.valid &&
           link_measured(world->nodes[1].link).loss_share.valid;
}

static void test_a_lossy_direction_is_told(void **state)
{
    struct link_world *world = link_world_init(MESH_QUIC);
    struct relay relay;
    struct dial *dial;
    struct error err = {0};
    for (int i = 0; i < 2; i++) {
        world->nodes[i].options.ping_ms = 5; /* no bursts, of which sockets drop some themselves */
        link_world_open(world, i);
    }
    const uint16_t port = relay_open(&relay, world, world->nodes[1].port);
    const struct mesh_target target = {.host = "127.0.0.1", .port = port};
    assert_int_equal(mesh_dial(world->nodes[0].mesh, &target, &dial, &err), 0);
    assert_true(link_world_run(world, are_up, world, 10000));
    assert_false(link_measured(world->nodes[0].link).loss_share.valid);
    assert_true(link_world_run(world, losses_are_known, world, 30000));
    link_world_pass(world, 2000);
    assert_true(losses_are_known(world));
    const double there = link_measured(world->nodes[0].link).loss_share.value;
    const double back = link_measured(world->nodes[1].link).loss_share.value;
    print_message("# dropped %u of %u there: %.3f measured; %u of %u back: %.3f\n", relay.n_dropped,
                  relay.n_there, there, relay.n_full, relay.n_back, back);
    assert_true(there > 0.04 && there < 0.16); /* 1 of 10 */
    assert_true(back < 0.02);
    relay_close(&relay, world);
    link_world_deinit(world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lost_packets_are_counted_once),
        cmocka_unit_test(test_a_late_packet_is_not_lost),
        cmocka_unit_test(test_what_makes_no_sense_is_left_alone),
        cmocka_unit_test(test_a_lossy_direction_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
