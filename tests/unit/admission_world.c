#include "admission_world.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const char PAYLOAD[] = "what a new member should know";

static struct town the_town;
static enum error_code ignored; /* of calls whose failure is not what is tested */

static uint64_t town_now_ms(void *self)
{
    return clock_now_ns() / 1000000 + ((struct town *)self)->ahead_ms;
}

/* ---- the member ---------------------------------------------------------------------------- */

static void on_stream(void *self, struct stream *stream)
{
    struct town *town = ((struct link_world_node *)self)->data;
    town->n_streams++;
    if (town->holds && !town->held)
        town->held = stream;
    else if (town->admission)
        admission_stream(town->admission, stream);
    else
        stream_close(stream, NULL, NULL);
}

static void on_decide(void *self, uint64_t id, const uint8_t node_id[NODE_ID_BYTES],
                      const char *name)
{
    static const char much[LIMIT_JOIN_PAYLOAD_BYTES + 1];
    struct town *town = self;
    struct error err = {0};
    town->n_decide++;
    town->decide_id = id;
    assert_non_null(strstr(name, "newcomer"));
    switch (town->decision) {
    case DECIDE_GRANT:
        ignored = admission_grant(town->admission, id, true, PAYLOAD, sizeof PAYLOAD, &err);
        break;
    case DECIDE_REFUSE:
        assert_int_equal(admission_refuse(town->admission, id, "it was removed for good", &err),
                         ERROR_NONE);
        break;
    case DECIDE_NEVER:
        break;
    case DECIDE_TOO_MUCH:
        assert_int_equal(admission_grant(town->admission, id, true, much, sizeof much, &err),
                         ERROR_INVALID);
        break;
    }
}

static void on_changed(void *self)
{
    ((struct town *)self)->n_changed++;
}

static void on_ended(void *self, uint64_t id, const uint8_t node_id[NODE_ID_BYTES],
                     const char *name, const struct error *why)
{
    struct town *town = self;
    town->n_ended++;
    town->why = *why;
}

static struct town *make_town(enum mesh_transport transport, struct join_clock clock)
{
    struct town *town = &the_town;
    struct error err = {0};
    *town = (struct town){.links = link_world_init(transport), .clock = clock};
    struct link_world_node *member = &town->links->nodes[TOWN_MEMBER];
    const struct admission_options options = {
        .loop = &town->links->loop,
        .identity = &member->identity,
        .authority = &member->membership.authority,
        .name = "member",
        .events = {on_decide, on_changed, on_ended, town},
        .clock = town->clock,
    };
    if (admission_open(&options, &town->admission, &err))
        fail_msg("%s", err.text);
    member->data = town;
    member->options.joiner = on_stream;
    link_world_open(town->links, TOWN_MEMBER);
    for (int i = 0; i < TOWN_NEWCOMERS; i++) {
        town->newcomers[i].town = town;
        assert_int_equal(identity_make(&town->newcomers[i].identity, NULL), ERROR_NONE);
    }
    return town;
}

struct town *town_init(void)
{
    return make_town(MESH_TCP, (struct join_clock){town_now_ms, &the_town});
}

struct town *town_init_over(enum mesh_transport transport)
{
    return make_town(transport, (struct join_clock){0});
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static bool holds(void *arg)
{
    return *(bool *)arg;
}

void town_close_member(struct town *town)
{
    if (!town->admission)
        return;
    town->is_closed = false;
    admission_close(town->admission, on_closed, &town->is_closed);
    town->admission = NULL;
    assert_true(town_run(town, holds, &town->is_closed));
}

void town_deinit(struct town *town)
{
    for (int i = 0; i < TOWN_NEWCOMERS; i++) {
        newcomer_close(&town->newcomers[i]);
        membership_deinit(&town->newcomers[i].membership);
        buffer_deinit(&town->newcomers[i].payload);
        identity_deinit(&town->newcomers[i].identity);
    }
    if (town->held)
        stream_close(town->held, NULL, NULL);
    town_close_member(town);
    link_world_deinit(town->links);
}

bool town_run(struct town *town, bool (*condition)(void *arg), void *arg)
{
    return link_world_run(town->links, condition, arg, 7000);
}

void town_skip(struct town *town, uint64_t ms)
{
    town->ahead_ms += ms;
    link_world_pass(town->links, 3 * JOIN_CLOCK_POLL_MS);
}

uint32_t town_waiting(struct town *town, struct admission_waiting *first)
{
    return admission_list(town->admission, first, first ? 1 : 0);
}

/* ---- newcomers ----------------------------------------------------------------------------- */

static void on_compare(void *self, const char *words, const char *peer_name)
{
    struct newcomer *newcomer = self;
    newcomer->n_compare++;
    strcpy(newcomer->words, words);
    strcpy(newcomer->peer_name, peer_name);
    if (newcomer->closes_on_compare) {
        joining_close(newcomer->joining, on_closed, &newcomer->is_closed);
        newcomer->joining = NULL;
    }
}

static bool on_joined(void *self, struct membership *membership, struct buffer *payload)
{
    struct newcomer *newcomer = self;
    newcomer->n_joined++;
    membership_deinit(&newcomer->membership);
    buffer_deinit(&newcomer->payload);
    newcomer->membership = *membership;
    newcomer->payload = *payload;
    if (newcomer->closes_on_joined) {
        joining_close(newcomer->joining, on_closed, &newcomer->is_closed);
        newcomer->joining = NULL;
    }
    if (newcomer->member_stops) {
        admission_close(newcomer->town->admission, NULL, NULL);
        newcomer->town->admission = NULL;
    }
    return !newcomer->declines_to_keep;
}

static void on_attempt_ended(void *self, const struct error *why)
{
    struct newcomer *newcomer = self;
    newcomer->n_ended++;
    newcomer->why = *why;
}

bool newcomer_ended(void *arg)
{
    return ((struct newcomer *)arg)->n_ended > 0;
}

bool newcomer_compares(void *arg)
{
    return ((struct newcomer *)arg)->n_compare > 0;
}

struct newcomer *town_join(struct town *town, int index, const char *host, const char *code)
{
    static const char *const names[TOWN_NEWCOMERS] = {"newcomer-0", "newcomer-1", "newcomer-2"};
    struct newcomer *newcomer = &town->newcomers[index];
    newcomer_close(newcomer);
    newcomer->n_compare = newcomer->n_joined = newcomer->n_ended = 0;
    const struct joining_options options = {
        .loop = &town->links->loop,
        .identity = &newcomer->identity,
        .name = names[index],
        .host = host ? host : "127.0.0.1",
        .port = town->links->nodes[TOWN_MEMBER].port,
        .mode = code ? JOIN_BY_CODE : JOIN_BY_HAND,
        .code = code,
        .pace = &newcomer->pace,
        .events = {on_compare, on_joined, on_attempt_ended, newcomer},
        .clock = town->clock,
    };
    struct error err = {0};
    if (joining_open(&options, &newcomer->joining, &err)) {
        assert_null(newcomer->joining);
        newcomer->n_ended++;
        newcomer->why = err;
    }
    return newcomer;
}

void newcomer_close(struct newcomer *newcomer)
{
    if (!newcomer->joining)
        return;
    newcomer->is_closed = false;
    joining_close(newcomer->joining, on_closed, &newcomer->is_closed);
    newcomer->joining = NULL;
    assert_true(town_run(newcomer->town, holds, &newcomer->is_closed));
}

static bool both_up(void *arg)
{
    struct link_world *links = arg;
    return links->nodes[0].link && links->nodes[TOWN_MEMBER].link;
}

void newcomer_check_member(struct newcomer *newcomer)
{
    struct link_world *links = newcomer->town->links;
    struct link_world_node *node = &links->nodes[0];
    static const struct credentials_members members = {.admitted = link_world_is_member};
    struct error err = {0};
    assert_int_equal(newcomer->n_joined, 1);
    assert_int_equal(membership_check(&newcomer->membership, &newcomer->identity, &err),
                     ERROR_NONE);
    assert_non_null(newcomer->membership.authority.key);
    assert_memory_equal(newcomer->membership.authority.cluster_id, links->authority.cluster_id,
                        CLUSTER_ID_BYTES);
    assert_int_equal(newcomer->payload.size, sizeof PAYLOAD);
    assert_memory_equal(newcomer->payload.data, PAYLOAD, sizeof PAYLOAD);
    credentials_free(node->credentials);
    node->credentials = NULL;
    if (credentials_new(&newcomer->identity, &newcomer->membership, &members, &node->credentials,
                        &err))
        fail_msg("%s", err.text);
    node->options.security = security_of(node->credentials);
    memcpy(node->options.node_id, newcomer->identity.node_id, NODE_ID_BYTES);
    link_world_open(links, 0);
    link_world_dial(links, 0, TOWN_MEMBER);
    assert_true(town_run(newcomer->town, both_up, links));
    assert_memory_equal(link_peer(links->nodes[TOWN_MEMBER].link), newcomer->identity.node_id,
                        NODE_ID_BYTES);
    link_world_close(links, 0);
}

/* ---- strangers ----------------------------------------------------------------------------- */

static bool shakes(void *arg)
{
    struct stranger *stranger = arg;
    if (!stranger->shook)
        stranger->shook = SSL_do_handshake(stranger->ssl) == 1;
    return stranger->shook;
}

void stranger_connect(struct stranger *stranger, struct town *town, int host)
{
    const int on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct link_security security;
    *stranger =
        (struct stranger){.town = town, .fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    assert_true(stranger->fd >= 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)host - 1);
    assert_int_equal(bind(stranger->fd, (struct sockaddr *)&address, sizeof address), 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(town->links->nodes[TOWN_MEMBER].port);
    assert_int_equal(connect(stranger->fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(stranger->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(stranger->fd, F_SETFL, O_NONBLOCK);
    assert_int_equal(security_of_stranger(&security, NULL), ERROR_NONE);
    stranger->ssl = SSL_new(security.context(security.self, false, false));
    security_free_stranger(&security);
    SSL_set_fd(stranger->ssl, stranger->fd);
    SSL_set_connect_state(stranger->ssl);
    const uint32_t n_before = town->n_streams;
    assert_true(town_run(town, shakes, stranger));
    for (int i = 0; i < 1000 && town->n_streams == n_before; i++)
        link_world_pass(town->links, 1);
    assert_int_equal(town->n_streams, n_before + 1);
    link_world_pass(town->links, 5);
}

void stranger_say(struct stranger *stranger, const void *bytes, size_t size)
{
    ignored = SSL_write(stranger->ssl, bytes, (int)size) <= 0;
    ERR_clear_error();
    link_world_pass(stranger->town->links, 2);
}

bool stranger_is_cut(void *arg)
{
    struct stranger *stranger = arg;
    char waste[512];
    int n;
    do {
        n = SSL_read(stranger->ssl, waste, sizeof waste);
    } while (n > 0);
    const bool cut = SSL_get_error(stranger->ssl, n) != SSL_ERROR_WANT_READ;
    ERR_clear_error();
    return cut;
}

void stranger_close(struct stranger *stranger)
{
    SSL_free(stranger->ssl);
    close(stranger->fd);
    stranger->ssl = NULL;
}

char *town_invite(struct town *town)
{
    static char code[JOIN_CODE_TEXT];
    struct error err = {0};
    if (admission_invite(town->admission, 0, code, &err))
        fail_msg("%s", err.text);
    return code;
}

bool town_is_told(void *arg)
{
    return ((struct town *)arg)->n_ended > 0;
}

void newcomer_expect_failure(struct newcomer *newcomer, enum error_code code, const char *words)
{
    assert_true(town_run(newcomer->town, newcomer_ended, newcomer));
    assert_int_equal(newcomer->n_joined, 0);
    assert_int_equal(newcomer->n_ended, 1);
    if (newcomer->why.code != code || !strstr(newcomer->why.text, words))
        fail_msg("ended with %s: %s", error_name(newcomer->why.code), newcomer->why.text);
}

void newcomer_expect_joined(struct newcomer *newcomer)
{
    struct town *town = newcomer->town;
    assert_true(town_run(town, newcomer_ended, newcomer));
    if (newcomer->why.code)
        fail_msg("%s", newcomer->why.text);
    assert_true(town_run(town, town_is_told, town));
    assert_int_equal(town->n_ended, 1);
    assert_int_equal(town->why.code, ERROR_NONE);
    assert_int_equal(town->n_decide, 1);
    assert_true(joining_again_ms(newcomer->joining) == UINT64_MAX);
    newcomer_check_member(newcomer);
}
