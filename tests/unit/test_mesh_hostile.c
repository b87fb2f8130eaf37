/* mesh: peers that are up to no good, with a member's certificate and without. Nothing crashes or
 * hangs, and a good peer is served meanwhile. */
#include "base/clock.h"
#include "base/mem.h"
#include "link_world.h"
#include "mesh/ping.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static enum error_code ignored; /* of calls whose failure is not what is tested */

static bool good_peers_up(void *arg)
{
    struct link_world *world = arg;
    return world->nodes[0].link && world->nodes[1].link;
}

/* Node 0 dials node 1: works whatever the others are doing. */
static void expect_service(struct link_world *world)
{
    link_world_open(world, 0);
    link_world_dial(world, 0, 1);
    assert_true(link_world_run(world, good_peers_up, world, 5000));
    link_world_close(world, 0);
}

/* Until the other end closes, or not. */
static bool is_cut(void *arg)
{
    const int fd = *(int *)arg;
    char waste[512];
    ssize_t n;
    do {
        n = recv(fd, waste, sizeof waste, MSG_DONTWAIT);
    } while (n > 0);
    return n == 0 || errno != EAGAIN;
}

/* ---- without a certificate ------------------------------------------------------------------- */

static void test_garbage_instead_of_tls(void **state)
{
    static const char *const words[] = {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\xff\xff",
                                        "Md\1\0\3", "\x15\x03\x03\x00\x02\x02\x28"};
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        int fd = link_world_raw_connect(world->nodes[1].port);
        assert_true(write(fd, words[i], strlen(words[i])) > 0);
        if (i % 2)
            shutdown(fd, SHUT_WR);
        assert_true(link_world_run(world, is_cut, &fd, 3000)); /* at the latest after greeting_ms */
        close(fd);
    }
    expect_service(world);
    link_world_deinit(world);
}

static void test_silence_and_dripping_before_tls(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    int silent = link_world_raw_connect(world->nodes[1].port),
        drips = link_world_raw_connect(world->nodes[1].port);
    const uint64_t begin_ns = clock_now_ns();
    for (int i = 0; i < 20 && !is_cut(&drips); i++) {
        static const uint8_t record[] = {0x16, 3, 1, 1, 0};
        ignored = send(drips, &record[i < 5 ? i : 4], 1, MSG_NOSIGNAL) < 0;
        link_world_pass(world, 100);
    }
    assert_true(link_world_run(world, is_cut, &silent, 2000));
    assert_true(is_cut(&drips));
    assert_true(clock_now_ns() - begin_ns < 4000000000u);
    close(silent);
    close(drips);
    link_world_deinit(world);
}

static void test_a_crowd_that_never_greets(void **state)
{
    enum { CROWD = 100 };
    int fds[CROWD];
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    for (int i = 0; i < CROWD; i++) {
        fds[i] = link_world_raw_connect(world->nodes[1].port);
        link_world_pass(world, 1);
    }
    int n_cut = 0;
    for (int i = 0; i < CROWD; i++)
        n_cut += is_cut(&fds[i]);
    assert_true(n_cut >= CROWD - LIMIT_GREETINGS_OF_HOST); /* the others are waited for */
    link_world_pass(world, 1200);
    for (int i = 0; i < CROWD; i++) {
        assert_true(is_cut(&fds[i]));
        close(fds[i]);
    }
    expect_service(world);
    link_world_deinit(world);
}

/* Silent connections of several addresses, each opened anew as soon as it is cut. */
struct silent_crowd {
    struct link_world *world;
    int fds[2 * LIMIT_GREETINGS];
};

static int silent_connect(const struct link_world *world, int i)
{
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in from = {.sin_family = AF_INET}, to = from;
    from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 10 + (uint32_t)i / LIMIT_GREETINGS_OF_HOST);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(world->nodes[1].port);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&from, sizeof from), 0);
    assert_true(connect(fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS);
    return fd;
}

static bool silent_crowd_and_peers_up(void *arg)
{
    struct silent_crowd *crowd = arg;
    for (int i = 0; i < 2 * LIMIT_GREETINGS; i++) {
        if (!is_cut(&crowd->fds[i]))
            continue;
        close(crowd->fds[i]);
        crowd->fds[i] = silent_connect(crowd->world, i);
    }
    return good_peers_up(crowd->world);
}

/* Those who say nothing keep nobody out who speaks. */
static void test_a_crowd_that_comes_again(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    struct silent_crowd crowd = {.world = world};
    link_world_open(world, 1);
    for (int i = 0; i < 2 * LIMIT_GREETINGS; i++)
        crowd.fds[i] = silent_connect(world, i);
    link_world_pass(world, 20);
    link_world_open(world, 0);
    link_world_dial(world, 0, 1);
    assert_true(link_world_run(world, silent_crowd_and_peers_up, &crowd, 5000));
    for (int i = 0; i < 2 * LIMIT_GREETINGS; i++)
        close(crowd.fds[i]);
    link_world_pass(world, 20);
    link_world_deinit(world);
}

/* A reset in each phase of a connection. */
static void test_resets(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    for (int i = 0; i < 10; i++) {
        const int fd = link_world_raw_connect(world->nodes[1].port);
        const struct linger linger = {.l_onoff = 1, .l_linger = 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        if (i % 2)
            ignored = write(fd, "\x16\x03\x01\x02", 4) < 0;
        if (i % 3)
            link_world_pass(world, 5);
        close(fd);
    }
    expect_service(world);
    link_world_deinit(world);
}

/* ---- with a certificate ---------------------------------------------------------------------- */

/* A member that speaks TLS as it should, and then what it likes. Its socket does not block. */
struct member {
    struct link_world *world;
    int fd;
    SSL *ssl;
};

static bool shakes(void *arg)
{
    struct member *member = arg;
    return SSL_do_handshake(member->ssl) == 1;
}

static struct member member_connect(struct link_world *world)
{
    struct member member = {.world = world, .fd = link_world_raw_connect(world->nodes[1].port)};
    const struct link_security security = security_of(world->nodes[2].credentials);
    const int on = 1;
    setsockopt(member.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(member.fd, F_SETFL, O_NONBLOCK);
    member.ssl = SSL_new(security.context(security.self, false, false));
    SSL_set_fd(member.ssl, member.fd);
    SSL_set_connect_state(member.ssl);
    assert_true(link_world_run(world, shakes, &member, 2000));
    return member;
}

static void member_close(struct member *member)
{
    SSL_free(member->ssl);
    close(member->fd);
}

static void member_write(struct member *member, const void *bytes, size_t size)
{
    ignored = SSL_write(member->ssl, bytes, (int)size) <= 0;
    link_world_pass(member->world, 2);
}

static void member_frame(struct member *member, uint16_t type, const void *payload, uint32_t length)
{
    uint8_t bytes[FRAME_HEADER_BYTES + LIMIT_HELLO_BYTES] = {0};
    frame_header_write(&(struct frame_header){.type = type, .length = length}, bytes);
    if (length)
        memcpy(bytes + FRAME_HEADER_BYTES, payload, length);
    member_write(member, bytes, FRAME_HEADER_BYTES + length);
}

static void member_hello(struct member *member, uint32_t channel, uint32_t n_channels,
                         uint64_t session)
{
    const struct hello hello = {.version = {LINK_MAJOR, LINK_MINOR},
                                .channel = channel,
                                .n_channels = n_channels,
                                .session = session,
                                .boot = 5};
    uint8_t bytes[LIMIT_HELLO_BYTES];
    member_frame(member, FRAME_HELLO, bytes, (uint32_t)hello_write(&hello, bytes));
}

/* The next frame that came; returns its type, 0 when the other end has closed. */
static uint16_t member_read(struct member *member, uint8_t *payload, uint32_t *length)
{
    uint8_t bytes[FRAME_HEADER_BYTES];
    size_t have = 0, n;
    struct frame_header header = {0};
    for (int i = 0; i < 2000 && have < FRAME_HEADER_BYTES + header.length; i++) {
        uint8_t *into =
            have < FRAME_HEADER_BYTES ? bytes + have : payload + have - FRAME_HEADER_BYTES;
        const size_t left = have < FRAME_HEADER_BYTES ? FRAME_HEADER_BYTES - have
                                                      : FRAME_HEADER_BYTES + header.length - have;
        if (SSL_read_ex(member->ssl, into, left, &n)) {
            have += n;
            if (have == FRAME_HEADER_BYTES)
                assert_int_equal(frame_header_read(bytes, LIMIT_HELLO_BYTES, &header, NULL),
                                 ERROR_NONE);
        } else if (SSL_get_error(member->ssl, 0) != SSL_ERROR_WANT_READ) {
            return 0;
        } else {
            link_world_pass(member->world, 1);
        }
    }
    *length = header.length;
    return header.type;
}

static uint16_t member_answer(struct member *member)
{
    uint8_t payload[LIMIT_HELLO_BYTES];
    uint32_t length;
    return member_read(member, payload, &length);
}

static void expect_refusal(struct member *member, enum refusal_reason reason)
{
    uint8_t payload[LIMIT_HELLO_BYTES];
    uint32_t length;
    struct refusal refusal;
    assert_int_equal(member_read(member, payload, &length), FRAME_REFUSAL);
    assert_int_equal(refusal_read(payload, length, &refusal, NULL), ERROR_NONE);
    assert_int_equal(refusal.reason, reason);
}

static bool node_1_is_up(void *arg)
{
    return ((struct link_world *)arg)->nodes[1].link != NULL;
}

/* A whole link of a control and a data channel, made by hand. */
static void member_link(struct link_world *world, struct member channels[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        channels[i] = member_connect(world);
        member_hello(&channels[i], i, 2, 99);
        assert_int_equal(member_answer(&channels[i]), FRAME_HELLO);
    }
    assert_true(link_world_run(world, node_1_is_up, world, 2000));
}

static void test_a_link_by_hand(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    struct member channels[2];
    member_link(world, channels);
    member_frame(&channels[1], 1000, "hi there", 8);
    member_frame(&channels[0], 29, "a newer node's own frame", 24);
    member_frame(&channels[0], 1001, NULL, 0);
    link_world_pass(world, 20);
    const struct link_world_node *node = &world->nodes[1];
    assert_int_equal(node->n_frames, 2);
    assert_int_equal(link_counts(node->link).unknown_frames, 1);
    assert_int_equal(member_answer(&channels[0]), FRAME_PING);
    for (int i = 0; i < 2; i++)
        member_close(&channels[i]);
    link_world_deinit(world);
}

struct bad_case {
    const char *name;
    uint32_t channel;
    size_t size;
    uint8_t bytes[64];
};

static bool node_1_is_down(void *arg)
{
    return ((struct link_world *)arg)->nodes[1].link == NULL;
}

static void test_bad_frames_of_a_member(void **state)
{
    static const struct bad_case cases[] = {
        {"not a frame", 0, 16, "this is no frame"},
        {"another format", 1, 16, {'M', 'd', 9}},
        {"too long for control", 0, 16, {'M', 'd', 1, 0, 200, 0, 0, 0, 1, 0, 0x40, 0}},
        {"too long for data", 1, 16, {'M', 'd', 1, 0, 200, 0, 0, 0, 1, 0, 0, 0x10}},
        {"a short ping", 0, 20, {'M', 'd', 1, 0, FRAME_PING, 0, 0, 0, 4}},
        {"a short pong", 0, 20, {'M', 'd', 1, 0, FRAME_PONG, 0, 0, 0, 4}},
        {"an empty report", 0, 16, {'M', 'd', 1, 0, FRAME_BURST_REPORT}},
        {"a burst outside itself", 1, 32, {'M', 'd', 1, 0, FRAME_BURST, 0, 0, 0, 16}},
        {"a second hello", 0, 16, {'M', 'd', 1, 0, FRAME_HELLO}},
    };
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct member channels[2];
        member_link(world, channels);
        member_write(&channels[cases[i].channel], cases[i].bytes, cases[i].size);
        if (!link_world_run(world, node_1_is_down, world, 1000))
            fail_msg("%s was taken", cases[i].name);
        assert_int_equal(world->nodes[1].why.code, ERROR_INVALID);
        for (int c = 0; c < 2; c++)
            member_close(&channels[c]);
    }
    expect_service(world);
    link_world_deinit(world);
}

static void test_bad_hellos_of_a_member(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    struct member member = member_connect(world);
    member_hello(&member, 1, 2, 99); /* a data channel of nothing */
    expect_refusal(&member, REFUSAL_NO_SUCH_LINK);
    member_close(&member);
    member = member_connect(world);
    member_frame(&member, FRAME_HELLO, "nonsense", 8);
    assert_int_equal(member_answer(&member), 0);
    member_close(&member);
    member = member_connect(world);
    member_frame(&member, FRAME_PING, "0123456789abcdef", 16);
    assert_int_equal(member_answer(&member), 0);
    member_close(&member);
    member = member_connect(world);
    uint8_t header[FRAME_HEADER_BYTES];
    frame_header_write(&(struct frame_header){.type = FRAME_HELLO, .length = LIMIT_HELLO_BYTES + 1},
                       header);
    member_write(&member, header, sizeof header);
    assert_int_equal(member_answer(&member), 0);
    member_close(&member);
    /* A control channel whose data channel never comes. */
    member = member_connect(world);
    member_hello(&member, 0, 2, 99);
    assert_int_equal(member_answer(&member), FRAME_HELLO);
    assert_int_equal(member_answer(&member), 0);
    member_close(&member);
    assert_int_equal(world->nodes[1].n_up, 0);
    expect_service(world);
    link_world_deinit(world);
}

/* One byte of a frame at a time on control: no ping is ever answered, so it is dead after
 * dead_ms. */
static void test_a_member_that_drips(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    world->nodes[1].options.silence_ms = 200;
    world->nodes[1].options.dead_ms = 600;
    link_world_open(world, 1);
    struct member channels[2];
    member_link(world, channels);
    uint8_t header[FRAME_HEADER_BYTES];
    frame_header_write(&(struct frame_header){.type = 40, .length = 1000000}, header);
    member_write(&channels[0], header, sizeof header);
    for (int i = 0; i < 100 && world->nodes[1].link; i++) {
        member_write(&channels[0], "x", 1);
        link_world_pass(world, 20);
    }
    assert_null(world->nodes[1].link);
    assert_int_equal(world->nodes[1].n_silent, 1);
    assert_non_null(strstr(world->nodes[1].why.text, "nothing was heard"));
    for (int c = 0; c < 2; c++)
        member_close(&channels[c]);
    link_world_deinit(world);
}

/* A peer whose machine has lost power says nothing at all; one that breaks off within a frame says
 * that. */
static void test_half_open_and_cut_off(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    world->nodes[1].options.silence_ms = 200;
    world->nodes[1].options.dead_ms = 600;
    link_world_open(world, 1);
    struct member channels[2];
    member_link(world, channels);
    assert_true(link_world_run(world, node_1_is_down, world, 2000));
    assert_int_equal(world->nodes[1].n_silent, 1);
    for (int c = 0; c < 2; c++)
        member_close(&channels[c]);
    member_link(world, channels);
    uint8_t header[FRAME_HEADER_BYTES];
    frame_header_write(&(struct frame_header){.type = 40, .length = 1000000}, header);
    member_write(&channels[1], header, sizeof header);
    SSL_shutdown(channels[1].ssl);
    shutdown(channels[1].fd, SHUT_WR);
    assert_true(link_world_run(world, node_1_is_down, world, 500));
    assert_non_null(strstr(world->nodes[1].why.text, "within a frame"));
    for (int c = 0; c < 2; c++)
        member_close(&channels[c]);
    link_world_deinit(world);
}

static void test_a_reset_of_a_link(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    struct member channels[2];
    member_link(world, channels);
    const struct linger linger = {.l_onoff = 1, .l_linger = 0};
    setsockopt(channels[1].fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    member_close(&channels[1]);
    assert_true(link_world_run(world, node_1_is_down, world, 1000));
    assert_int_equal(world->nodes[1].why.code, ERROR_IO);
    member_close(&channels[0]);
    link_world_deinit(world);
}

/* The peer's process was restarted: the new connection takes the place of the old one at once. */
static void test_a_restarted_peer_replaces_its_link(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    link_world_open(world, 1);
    struct member old[2], new[2];
    member_link(world, old);
    struct link *first = world->nodes[1].link;
    for (uint32_t i = 0; i < 2; i++) {
        new[i] = member_connect(world);
        member_hello(&new[i], i, 2, 100);
        assert_int_equal(member_answer(&new[i]), FRAME_HELLO);
    }
    link_world_pass(world, 50);
    assert_int_equal(world->nodes[1].n_up, 2);
    assert_int_equal(world->nodes[1].n_down, 1);
    assert_non_null(world->nodes[1].link);
    assert_true(world->nodes[1].link != first);
    for (int i = 0; i < 2; i++) {
        member_close(&old[i]);
        member_close(&new[i]);
    }
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

/* A node of another cluster: a certificate like ours, signed by somebody else. */
static void test_another_clusters_node(void **state)
{
    struct link_world *world = link_world_init(MESH_TCP);
    struct link_world_node *stranger = &world->nodes[0];
    struct error err = {0};
    credentials_free(stranger->credentials);
    membership_deinit(&stranger->membership);
    assert_int_equal(
        membership_found(&stranger->identity, (uint64_t)time(NULL), &stranger->membership, &err),
        ERROR_NONE);
    assert_int_equal(
        credentials_new(&stranger->identity, &stranger->membership,
                        &(struct credentials_members){.admitted = link_world_is_member},
                        &stranger->credentials, &err),
        ERROR_NONE);
    stranger->options.security = security_of(stranger->credentials);
    link_world_open(world, 0);
    link_world_open(world, 1);
    struct dial *there = link_world_dial(world, 0, 1), *back = link_world_dial(world, 1, 0);
    struct two_dials dials = {there, back};
    assert_true(link_world_run(world, both_have_failed, &dials, 10000));
    link_world_pass(world, 300);
    assert_int_equal(world->nodes[0].n_up + world->nodes[1].n_up, 0);
    assert_int_not_equal(dial_status(there).last.text[0], '\0');
    link_world_deinit(world);
}

/* ---- who wants to join ----------------------------------------------------------------------- */

static struct stream *joining;

static void on_joiner(void *self, struct stream *stream)
{
    ((struct link_world_node *)self)->n_joiners++;
    joining = stream;
}

static bool has_joiner(void *arg)
{
    return ((struct link_world *)arg)->nodes[1].n_joiners > 0;
}

/* A stranger may only join, on a stream that is handed over; where nobody takes it, it is turned
 * away. */
static void test_a_stranger_may_only_join(void **state)
{
    for (int taken = 0; taken < 2; taken++) {
        struct link_world *world = link_world_init(MESH_TCP);
        if (taken)
            world->nodes[1].options.joiner = on_joiner;
        link_world_open(world, 1);
        SSL_CTX *context = credentials_join_context(CREDENTIALS_TCP, NULL);
        assert_non_null(context);
        struct member stranger = {.world = world,
                                  .fd = link_world_raw_connect(world->nodes[1].port)};
        fcntl(stranger.fd, F_SETFL, O_NONBLOCK);
        stranger.ssl = SSL_new(context);
        SSL_set_fd(stranger.ssl, stranger.fd);
        SSL_set_connect_state(stranger.ssl);
        assert_true(link_world_run(world, shakes, &stranger, 2000));
        assert_int_equal(link_world_run(world, has_joiner, world, 300), taken);
        if (taken) {
            size_t n = 0;
            assert_int_equal(stream_write(joining, "welcome", 7, &n, NULL), STREAM_DONE);
            assert_int_equal(stream_flush(joining, NULL), STREAM_DONE);
            char words[8] = "";
            for (int i = 0; i < 1000 && !SSL_read_ex(stranger.ssl, words, 7, &n); i++)
                link_world_pass(world, 1);
            assert_string_equal(words, "welcome");
            stream_close(joining, NULL, NULL);
        } else {
            member_hello(&stranger, 0, 2, 1);
            assert_int_equal(member_answer(&stranger), 0);
        }
        assert_int_equal(world->nodes[1].n_up, 0);
        member_close(&stranger);
        SSL_CTX_free(context);
        link_world_deinit(world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage_instead_of_tls),
        cmocka_unit_test(test_silence_and_dripping_before_tls),
        cmocka_unit_test(test_a_crowd_that_never_greets),
        cmocka_unit_test(test_a_crowd_that_comes_again),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_a_link_by_hand),
        cmocka_unit_test(test_bad_frames_of_a_member),
        cmocka_unit_test(test_bad_hellos_of_a_member),
        cmocka_unit_test(test_a_member_that_drips),
        cmocka_unit_test(test_half_open_and_cut_off),
        cmocka_unit_test(test_a_reset_of_a_link),
        cmocka_unit_test(test_a_restarted_peer_replaces_its_link),
        cmocka_unit_test(test_another_clusters_node),
        cmocka_unit_test(test_a_stranger_may_only_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
