/* The same credentials over QUIC: members, who was removed, and the join channel. */
#include "base/mem.h"
#include "mesh_world.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/quic.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

struct quic_pair {
    SSL *listener, *client, *server;
    int sockets[2];
};

static int udp_socket(struct sockaddr_in *address)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    socklen_t size = sizeof *address;
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)address, size) == 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)address, &size), 0);
    return fd;
}

static void quic_open(SSL_CTX *client, SSL_CTX *server, struct quic_pair *pair)
{
    struct sockaddr_in there, here;
    *pair = (struct quic_pair){.listener = SSL_new_listener(server, 0), .client = SSL_new(client)};
    assert_true(pair->listener && pair->client);
    pair->sockets[0] = udp_socket(&there);
    pair->sockets[1] = udp_socket(&here);
    BIO_ADDR *address = BIO_ADDR_new();
    BIO_ADDR_rawmake(address, AF_INET, &there.sin_addr, sizeof there.sin_addr, there.sin_port);
    SSL_set_fd(pair->listener, pair->sockets[0]);
    SSL_set_fd(pair->client, pair->sockets[1]);
    SSL_set_blocking_mode(pair->listener, 0);
    SSL_set_blocking_mode(pair->client, 0);
    assert_int_equal(SSL_listen(pair->listener), 1);
    assert_int_equal(SSL_set1_initial_peer_addr(pair->client, address), 1);
    BIO_ADDR_free(address);
}

static void quic_close(struct quic_pair *pair)
{
    SSL_free(pair->client);
    SSL_free(pair->server);
    SSL_free(pair->listener);
    close(pair->sockets[0]);
    close(pair->sockets[1]);
}

static bool quic_failed(SSL *ssl, int result)
{
    int why = SSL_get_error(ssl, result);
    return result != 1 && why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE;
}

/* Until the client has read the server's first byte. False: it failed, and `why` is what
 * credentials_failure() says at the end that looked. */
static bool quic_connect(struct quic_pair *pair, char *why, size_t size)
{
    bool said = false;
    for (int i = 0; i < 2000; i++) {
        ERR_clear_error();
        int result = SSL_connect(pair->client);
        if (quic_failed(pair->client, result)) {
            credentials_failure(pair->client, ERR_peek_error(), why, size);
            ERR_clear_error();
            return false;
        }
        char byte = 'm';
        size_t n;
        if (result == 1 && SSL_read_ex(pair->client, &byte, 1, &n) == 1)
            return true;
        if (result == 1 && quic_failed(pair->client, 0)) {
            credentials_failure(pair->client, ERR_peek_error(), why, size);
            ERR_clear_error();
            return false;
        }
        SSL_handle_events(pair->listener);
        if (!pair->server)
            pair->server = SSL_accept_connection(pair->listener, SSL_ACCEPT_CONNECTION_NO_BLOCK);
        if (pair->server && !said)
            said =
                SSL_is_init_finished(pair->server) && SSL_write_ex(pair->server, &byte, 1, &n) == 1;
        if (pair->server)
            SSL_handle_events(pair->server);
        poll(&(struct pollfd){.fd = pair->sockets[i % 2], .events = POLLIN}, 1, 1);
    }
    snprintf(why, size, "nothing happened");
    ERR_clear_error();
    return false;
}

static SSL_CTX *quic(struct credentials *credentials, enum credentials_role role)
{
    return credentials_context(credentials, CREDENTIALS_QUIC, role);
}

static void test_quic_members(void **state)
{
    (void)state;
    struct world world;
    struct quic_pair pair;
    char why[200] = "";
    world_init(&world);
    quic_open(quic(world.nodes[0].credentials, CREDENTIALS_CLIENT),
              quic(world.nodes[1].credentials, CREDENTIALS_SERVER), &pair);
    if (!quic_connect(&pair, why, sizeof why))
        fail_msg("%s", why);
    assert_peer(pair.client, &world.nodes[1]);
    assert_peer(pair.server, &world.nodes[0]);
    uint8_t here[CHANNEL_BINDING_BYTES], there[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_channel_binding(pair.client, here, NULL), ERROR_NONE);
    assert_int_equal(credentials_channel_binding(pair.server, there, NULL), ERROR_NONE);
    assert_memory_equal(here, there, sizeof here);
    quic_close(&pair);
    world_deinit(&world);
}

static void test_quic_refuses(void **state)
{
    (void)state;
    struct world world;
    char why[200] = "";
    world_init(&world);
    world_remove(&world, 0, 1);
    for (int role = 0; role < 2; role++) {
        struct quic_pair pair;
        quic_open(quic(world.nodes[role].credentials, CREDENTIALS_CLIENT),
                  quic(world.nodes[1 - role].credentials, CREDENTIALS_SERVER), &pair);
        assert_false(quic_connect(&pair, why, sizeof why));
        assert_text_says(why, "or was removed");
        quic_close(&pair);
    }
    world_deinit(&world);
}

static void test_quic_join(void **state)
{
    (void)state;
    struct world world;
    struct quic_pair pair;
    char why[200] = "";
    world_init(&world);
    SSL_CTX *context = credentials_join_context(CREDENTIALS_QUIC, NULL);
    quic_open(context, quic(world.nodes[1].credentials, CREDENTIALS_SERVER), &pair);
    if (!quic_connect(&pair, why, sizeof why))
        fail_msg("%s", why);
    assert_int_equal(credentials_purpose(pair.client), CREDENTIALS_JOIN);
    assert_int_equal(credentials_purpose(pair.server), CREDENTIALS_JOIN);
    assert_int_equal(credentials_peer(pair.server, (uint8_t[NODE_ID_BYTES]){0}, NULL),
                     ERROR_INVALID);
    quic_close(&pair);
    SSL_CTX_free(context);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quic_members),
        cmocka_unit_test(test_quic_refuses),
        cmocka_unit_test(test_quic_join),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
