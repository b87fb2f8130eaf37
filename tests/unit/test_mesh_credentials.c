/* mesh: whom a node believes, over TLS in memory. */
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

static SSL_CTX *tcp(struct credentials *credentials, enum credentials_role role)
{
    return credentials_context(credentials, CREDENTIALS_TCP, role);
}

static bool connect_nodes(struct world *world, int client, int server, struct world_link *link)
{
    return world_connect(tcp(world->nodes[client].credentials, CREDENTIALS_CLIENT),
                         tcp(world->nodes[server].credentials, CREDENTIALS_SERVER), link);
}

/* Node 0 as client and as server refuses what node 1 shows; both ends say so. */
static void assert_refused(struct world *world, const char *here, const char *there)
{
    struct world_link link;
    uint8_t id[NODE_ID_BYTES];
    assert_false(connect_nodes(world, 0, 1, &link));
    assert_text_says(link.client_why, here);
    assert_text_says(link.server_why, there);
    assert_int_equal(credentials_peer(link.client, id, NULL), ERROR_INVALID);
    assert_int_equal(credentials_purpose(link.client), CREDENTIALS_NOTHING);
    world_disconnect(&link);
    assert_false(connect_nodes(world, 1, 0, &link));
    assert_text_says(link.server_why, here);
    assert_text_says(link.client_why, there);
    assert_int_equal(credentials_peer(link.server, id, NULL), ERROR_INVALID);
    world_disconnect(&link);
}

static void show_forged(struct world *world, const struct world_forgery *what)
{
    const struct identity *identity = &world->nodes[1].identity;
    X509 *certificate = world_forge(identity, what);
    world_show(world->nodes[1].credentials, certificate, identity->key);
    X509_free(certificate);
}

static const struct authority *authority_of(const struct world *world)
{
    return &world->nodes[0].membership.authority;
}

/* ---- who is believed ------------------------------------------------------------------------- */

static void test_members_know_each_other(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    if (!connect_nodes(&world, 0, 1, &link))
        fail_msg("client: %s; server: %s", link.client_why, link.server_why);
    assert_peer(link.client, &world.nodes[1]);
    assert_peer(link.server, &world.nodes[0]);
    assert_int_equal(credentials_purpose(link.client), CREDENTIALS_LINK);
    assert_int_equal(credentials_purpose(link.server), CREDENTIALS_LINK);
    assert_string_equal(SSL_get_version(link.client), "TLSv1.3");
    assert_string_equal(SSL_get0_group_name(link.client), "X25519MLKEM768");
    assert_int_equal(world.nodes[0].view.n_asked, 1);
    assert_int_equal(world.nodes[1].view.n_asked, 1);
    uint8_t here[CHANNEL_BINDING_BYTES], there[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_channel_binding(link.client, here, NULL), ERROR_NONE);
    assert_int_equal(credentials_channel_binding(link.server, there, NULL), ERROR_NONE);
    assert_memory_equal(here, there, sizeof here);
    world_disconnect(&link);
    world_deinit(&world);
}

static void test_a_removed_node_is_refused_at_once(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    world_remove(&world, 0, 1);
    assert_refused(&world, "not a member of this cluster, or was removed",
                   "not a member of its cluster, or was removed");
    assert_true(connect_nodes(&world, 0, 2, &link)); /* the others go on */
    world_disconnect(&link);
    assert_true(connect_nodes(&world, 1, 2, &link)); /* node 2 has not heard of it */
    world_disconnect(&link);
    world_deinit(&world);
}

static void test_a_foreign_cluster_is_refused(void **state)
{
    (void)state;
    struct world world, other;
    world_init(&world);
    world_init(&other);
    struct identity *identity = &other.nodes[1].identity;
    world_show(world.nodes[1].credentials, other.nodes[1].membership.certificate, identity->key);
    /* even when its id is in the list */
    memcpy(world.nodes[0].view.members[1], identity->node_id, NODE_ID_BYTES);
    assert_refused(&world, "another cluster", "another cluster");
    world_deinit(&other);
    world_deinit(&world);
}

static void test_a_self_signed_certificate_is_refused(void **state)
{
    (void)state;
    struct world world;
    world_init(&world);
    struct identity *identity = &world.nodes[1].identity;
    char names[256], node[NODE_ID_TEXT], cluster[CLUSTER_ID_TEXT];
    id_text(identity->node_id, NODE_ID_BYTES, node);
    id_text(authority_of(&world)->cluster_id, CLUSTER_ID_BYTES, cluster);
    snprintf(names, sizeof names, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%s", node,
             cluster);
    show_forged(&world, &(struct world_forgery){.self_signed = true, .names = names});
    assert_refused(&world, "signed by itself", "another cluster");
    world_deinit(&world);
}

static void test_time(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    show_forged(&world, &(struct world_forgery){.authority = authority_of(&world),
                                                .until_unix_s = WORLD_NOW - 1});
    assert_refused(&world, "expired", "expired");
    show_forged(&world, &(struct world_forgery){.authority = authority_of(&world),
                                                .from_unix_s = WORLD_NOW + 60,
                                                .until_unix_s = WORLD_NOW + 6000});
    assert_refused(&world, "not in force yet", "does not take");
    show_forged(&world, &(struct world_forgery){.authority = authority_of(&world)});
    assert_true(connect_nodes(&world, 0, 1, &link));
    world_disconnect(&link);
    world_deinit(&world);
}

/* A clock that is behind by a day, or that starts in 1970, still takes the certificates of the
 * day. */
static void test_clocks_that_are_behind(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    const uint64_t behind[] = {WORLD_NOW - AUTHORITY_SKEW_S + 1, 0, AUTHORITY_EPOCH_UNIX_S};
    for (size_t i = 0; i < sizeof behind / sizeof behind[0]; i++) {
        world.nodes[0].view.now_unix_s = behind[i];
        assert_true(connect_nodes(&world, 0, 1, &link));
        world_disconnect(&link);
        assert_true(connect_nodes(&world, 1, 0, &link));
        world_disconnect(&link);
    }
    world.nodes[0].view.now_unix_s = WORLD_NOW + (AUTHORITY_NODE_DAYS + 1) * 86400ull;
    assert_false(connect_nodes(&world, 0, 1, &link));
    assert_text_says(link.client_why, "expired");
    world_disconnect(&link);
    world_deinit(&world);
}

/* Whoever holds the authority's key can sign anything: what it signs must still be a node's, and
 * its own. */
static void test_names_that_lie(void **state)
{
    (void)state;
    struct world world;
    world_init(&world);
    char node[NODE_ID_TEXT], other[NODE_ID_TEXT], cluster[CLUSTER_ID_TEXT], names[10][400];
    id_text(world.nodes[1].identity.node_id, NODE_ID_BYTES, node);
    id_text(world.nodes[2].identity.node_id, NODE_ID_BYTES, other);
    id_text(authority_of(&world)->cluster_id, CLUSTER_ID_BYTES, cluster);
    int n = 0;
    snprintf(names[n++], 400, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%s", other,
             cluster); /* another's id */
    snprintf(names[n++], 400, "URI:urn:medley:cluster:%s", cluster);
    snprintf(names[n++], 400, "URI:urn:medley:node:%s", node);
    snprintf(names[n++], 400,
             "URI:urn:medley:node:%s,URI:urn:medley:node:%s,URI:urn:medley:cluster:%s", node, other,
             cluster);
    snprintf(names[n++], 400, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%s,DNS:example.org",
             node, cluster);
    snprintf(names[n++], 400, "URI:urn:medley:node:%.63s,URI:urn:medley:cluster:%s", node, cluster);
    snprintf(names[n++], 400, "URI:urn:medley:node:%.63sG,URI:urn:medley:cluster:%s", node,
             cluster);
    snprintf(names[n++], 400, "DNS:localhost");
    for (int i = 0; i < n; i++) {
        show_forged(&world,
                    &(struct world_forgery){.authority = authority_of(&world), .names = names[i]});
        assert_refused(&world, "not one of a Medley node", "does not take");
    }
    snprintf(names[0], 400, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%032d", node, 0);
    show_forged(&world,
                &(struct world_forgery){.authority = authority_of(&world), .names = names[0]});
    assert_refused(&world, "another cluster", "another cluster");
    world_deinit(&world);
}

/* A removed member that kept the authority's key makes itself a new node with all the right
 * names. */
static void test_who_signs_itself(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    struct identity fresh;
    X509 *certificate;
    world_init(&world);
    assert_int_equal(identity_make(&fresh, NULL), ERROR_NONE);
    assert_int_equal(
        authority_sign(authority_of(&world), fresh.public_key, WORLD_NOW, &certificate, NULL),
        ERROR_NONE);
    world_show(world.nodes[1].credentials, certificate, fresh.key);
    assert_refused(&world, "not a member of this cluster", "not a member of its cluster");
    memcpy(world.nodes[0].view.members[world.nodes[0].view.n_members++], fresh.node_id,
           NODE_ID_BYTES);
    assert_true(connect_nodes(&world, 0, 1, &link)); /* the list was all that was missing */
    world_disconnect(&link);
    X509_free(certificate);
    identity_deinit(&fresh);
    world_deinit(&world);
}

static void test_the_authority_is_no_node(void **state)
{
    (void)state;
    struct world world;
    world_init(&world);
    const struct authority *authority = authority_of(&world);
    world_show(world.nodes[1].credentials, authority->certificate, authority->key);
    struct world_link link;
    assert_false(connect_nodes(&world, 0, 1, &link));
    assert_true(link.client_why[0] != 0);
    world_disconnect(&link);
    assert_false(connect_nodes(&world, 1, 0, &link));
    assert_true(link.server_why[0] != 0);
    world_disconnect(&link);
    world_deinit(&world);
}

/* A certificate for servers only is no client's, and the other way round. */
static void test_usage(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    show_forged(&world,
                &(struct world_forgery){.authority = authority_of(&world), .usage = "serverAuth"});
    assert_true(connect_nodes(&world, 0, 1, &link));
    world_disconnect(&link);
    assert_false(connect_nodes(&world, 1, 0, &link));
    world_disconnect(&link);
    world_deinit(&world);
}

/* A member may not pass its place on: a node's certificate signs nothing. */
static void test_a_member_cannot_sign(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    struct authority false_one = {.certificate = world.nodes[2].membership.certificate,
                                  .key = world.nodes[2].identity.key};
    memcpy(false_one.cluster_id, authority_of(&world)->cluster_id, CLUSTER_ID_BYTES);
    show_forged(&world, &(struct world_forgery){.authority = &false_one});
    for (int i = 0; i < 2; i++) { /* also with the chain that leads up to the authority */
        SSL_CTX_add1_chain_cert(tcp(world.nodes[1].credentials, (enum credentials_role)i),
                                false_one.certificate);
    }
    assert_false(connect_nodes(&world, 0, 1, &link));
    world_disconnect(&link);
    assert_false(connect_nodes(&world, 1, 0, &link));
    world_disconnect(&link);
    world_deinit(&world);
}

/* ---- protocol -------------------------------------------------------------------------------- */

static SSL_CTX *stranger(const char *protocol, int version)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    assert_non_null(context);
    uint8_t list[32];
    list[0] = (uint8_t)strlen(protocol);
    memcpy(list + 1, protocol, list[0]);
    if (list[0])
        assert_int_equal(SSL_CTX_set_alpn_protos(context, list, list[0] + 1u), 0);
    SSL_CTX_set_max_proto_version(context, version);
    return context;
}

static void test_strangers(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    static const struct {
        const char *protocol;
        int version;
        const char *why;
    } tries[] = {
        {CREDENTIALS_ALPN, TLS1_3_VERSION, "wants a certificate"},
        {"", TLS1_3_VERSION, "wants a certificate"},
        {"h2", TLS1_3_VERSION, "does not speak this version"},
        {"medley/2", TLS1_3_VERSION, "does not speak this version"},
        {CREDENTIALS_ALPN, TLS1_2_VERSION, "TLS 1.3"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof tries[0]; i++) {
        SSL_CTX *context = stranger(tries[i].protocol, tries[i].version);
        assert_false(
            world_connect(context, tcp(world.nodes[0].credentials, CREDENTIALS_SERVER), &link));
        assert_text_says(link.client_why, tries[i].why);
        uint8_t id[NODE_ID_BYTES];
        assert_int_equal(credentials_peer(link.server, id, NULL), ERROR_INVALID);
        world_disconnect(&link);
        SSL_CTX_free(context);
    }
    assert_int_equal(world.nodes[0].view.n_asked, 0);
    world_deinit(&world);
}

/* A member's certificate without the protocol's name makes no link. */
static void test_no_protocol(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    SSL_CTX *context = stranger("", TLS1_3_VERSION);
    struct world_node *node = &world.nodes[1];
    assert_int_equal(SSL_CTX_use_cert_and_key(context, node->membership.certificate,
                                              node->identity.key, NULL, 1),
                     1);
    assert_true(world_connect(context, tcp(world.nodes[0].credentials, CREDENTIALS_SERVER), &link));
    uint8_t id[NODE_ID_BYTES];
    struct error err;
    assert_int_equal(credentials_peer(link.server, id, &err), ERROR_INVALID);
    assert_text_says(err.text, "does not support");
    world_disconnect(&link);
    SSL_CTX_free(context);
    world_deinit(&world);
}

static void test_the_join_channel(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    SSL_CTX *context = credentials_join_context(CREDENTIALS_TCP, NULL);
    assert_non_null(context);
    assert_true(world_connect(context, tcp(world.nodes[0].credentials, CREDENTIALS_SERVER), &link));
    assert_int_equal(credentials_purpose(link.client), CREDENTIALS_JOIN);
    assert_int_equal(credentials_purpose(link.server), CREDENTIALS_JOIN);
    uint8_t id[NODE_ID_BYTES], here[CHANNEL_BINDING_BYTES], there[CHANNEL_BINDING_BYTES],
        other[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_peer(link.server, id, NULL), ERROR_INVALID);
    assert_int_equal(credentials_peer(link.client, id, NULL), ERROR_INVALID);
    assert_int_equal(credentials_channel_binding(link.client, here, NULL), ERROR_NONE);
    assert_int_equal(credentials_channel_binding(link.server, there, NULL), ERROR_NONE);
    assert_memory_equal(here, there, sizeof here);
    world_disconnect(&link);
    assert_true(world_connect(context, tcp(world.nodes[0].credentials, CREDENTIALS_SERVER), &link));
    assert_int_equal(credentials_channel_binding(link.client, other, NULL), ERROR_NONE);
    assert_memory_not_equal(here, other, sizeof here);
    world_disconnect(&link);
    SSL_CTX_free(context);
    /* a link still needs a certificate after a joiner was here */
    context = stranger(CREDENTIALS_ALPN, TLS1_3_VERSION);
    assert_false(
        world_connect(context, tcp(world.nodes[0].credentials, CREDENTIALS_SERVER), &link));
    world_disconnect(&link);
    SSL_CTX_free(context);
    world_deinit(&world);
}

/* A session that was good before the removal opens nothing after it. */
static void test_no_resumption(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    SSL_CTX *client = tcp(world.nodes[1].credentials, CREDENTIALS_CLIENT);
    assert_true(connect_nodes(&world, 1, 0, &link));
    SSL_SESSION *session = SSL_get1_session(link.client);
    assert_int_equal(SSL_SESSION_is_resumable(session), 0);
    world_disconnect(&link);
    world_remove(&world, 0, 1);
    SSL *again = SSL_new(client);
    SSL_set_session(again, session);
    assert_int_equal(SSL_session_reused(again), 0);
    SSL_free(again);
    SSL_SESSION_free(session);
    assert_false(connect_nodes(&world, 1, 0, &link));
    world_disconnect(&link);
    world_deinit(&world);
}

static void test_renewal(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    world_init(&world);
    struct world_node *node = &world.nodes[1];
    uint64_t later = WORLD_NOW + (AUTHORITY_NODE_DAYS - AUTHORITY_RENEW_DAYS + 1) * 86400ull;
    assert_false(membership_is_due(&node->membership, WORLD_NOW));
    assert_true(membership_is_due(&node->membership, later));
    assert_int_equal(membership_renew(&node->membership, &node->identity, later, NULL), ERROR_NONE);
    assert_false(membership_is_due(&node->membership, later));
    assert_int_equal(credentials_renew(node->credentials, &node->membership, NULL), ERROR_NONE);
    world.nodes[0].view.now_unix_s =
        later + AUTHORITY_RENEW_DAYS * 86400ull; /* the old one has expired */
    assert_true(connect_nodes(&world, 1, 0, &link));
    assert_int_equal(credentials_peer(link.server, (uint8_t[NODE_ID_BYTES]){0}, NULL), ERROR_NONE);
    world_disconnect(&link);
    assert_int_equal(credentials_renew(node->credentials, &world.nodes[0].membership, NULL),
                     ERROR_INVALID);
    struct world other;
    world_init(&other);
    assert_int_equal(credentials_renew(node->credentials, &other.nodes[1].membership, NULL),
                     ERROR_INVALID);
    world_deinit(&other);
    world_deinit(&world);
}

/* Whoever has the old key, an admin that was removed say, can make any certificate with it. */
static void test_rotation(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    struct authority next, copy;
    world_init(&world);
    assert_int_equal(authority_make_next(authority_of(&world), &next, NULL), ERROR_NONE);
    for (int i = 0; i < 2; i++) {
        struct world_node *node = &world.nodes[i];
        X509 *certificate;
        copy = next;
        X509_up_ref(copy.certificate);
        EVP_PKEY_up_ref(copy.key);
        assert_int_equal(membership_expect(&node->membership, &copy, NULL), ERROR_NONE);
        assert_int_equal(
            authority_sign(&next, node->identity.public_key, WORLD_NOW, &certificate, NULL),
            ERROR_NONE);
        assert_int_equal(
            membership_set_next_certificate(&node->membership, &node->identity, certificate, NULL),
            ERROR_NONE);
        assert_int_equal(credentials_renew(node->credentials, &node->membership, NULL), ERROR_NONE);
        X509_free(certificate);
    }
    assert_true(connect_nodes(&world, 1, 0, &link)); /* both show the old one */
    world_disconnect(&link);
    membership_promote(&world.nodes[1].membership);
    assert_int_equal(
        credentials_renew(world.nodes[1].credentials, &world.nodes[1].membership, NULL),
        ERROR_NONE);
    assert_true(connect_nodes(&world, 1, 0, &link) == false); /* one does not believe the old */
    world_disconnect(&link);
    membership_promote(&world.nodes[0].membership);
    assert_int_equal(
        credentials_renew(world.nodes[0].credentials, &world.nodes[0].membership, NULL),
        ERROR_NONE);
    assert_true(connect_nodes(&world, 1, 0, &link));
    world_disconnect(&link);
    authority_deinit(&next);
    world_deinit(&world);
}

/* A member's true id and name, by the old authority: refused. */
static void test_the_old_authority_opens_nothing(void **state)
{
    (void)state;
    struct world world;
    struct authority next;
    X509 *certificate, *old;
    world_init(&world);
    struct world_node *node = &world.nodes[0];
    assert_int_equal(authority_sign(authority_of(&world), world.nodes[1].identity.public_key,
                                    WORLD_NOW, &old, NULL),
                     ERROR_NONE);
    assert_int_equal(authority_make_next(authority_of(&world), &next, NULL), ERROR_NONE);
    assert_int_equal(
        authority_sign(&next, node->identity.public_key, WORLD_NOW, &certificate, NULL),
        ERROR_NONE);
    assert_int_equal(membership_expect(&node->membership, &next, NULL), ERROR_NONE);
    assert_int_equal(
        membership_set_next_certificate(&node->membership, &node->identity, certificate, NULL),
        ERROR_NONE);
    membership_promote(&node->membership);
    assert_int_equal(credentials_renew(node->credentials, &node->membership, NULL), ERROR_NONE);
    world_show(world.nodes[1].credentials, old, world.nodes[1].identity.key);
    assert_refused(&world, "of another cluster", "another cluster");
    X509_free(old);
    X509_free(certificate);
    world_deinit(&world);
}

static void test_credentials_that_do_not_fit(void **state)
{
    (void)state;
    struct world world;
    struct credentials *credentials;
    struct error err;
    world_init(&world);
    struct world_node *nodes = world.nodes;
    struct credentials_members members = {.admitted = world_is_member, .self = &nodes[0].view};
    assert_int_equal(
        credentials_new(&nodes[0].identity, &nodes[1].membership, &members, &credentials, &err),
        ERROR_INVALID);
    assert_text_says(err.text, "to another node");
    assert_null(credentials);
    mem_fail_nth(1);
    assert_int_equal(
        credentials_new(&nodes[0].identity, &nodes[0].membership, &members, &credentials, &err),
        ERROR_NO_MEMORY);
    mem_fail_nth(0);
    assert_null(credentials);
    credentials_free(NULL);
    /* the system's clock, whatever the day */
    uint64_t today = (uint64_t)time(NULL);
    for (int i = 0; i < 2; i++) {
        nodes[i].view.now_unix_s = today;
        assert_int_equal(membership_renew(&nodes[i].membership, &nodes[i].identity, today, NULL),
                         ERROR_NONE);
        assert_int_equal(credentials_renew(nodes[i].credentials, &nodes[i].membership, NULL),
                         ERROR_NONE);
    }
    assert_int_equal(
        credentials_new(&nodes[0].identity, &nodes[0].membership, &members, &credentials, &err),
        ERROR_NONE);
    struct world_link link;
    assert_true(world_connect(tcp(credentials, CREDENTIALS_CLIENT),
                              tcp(nodes[1].credentials, CREDENTIALS_SERVER), &link));
    world_disconnect(&link);
    credentials_free(credentials);
    world_deinit(&world);
}

/* Something at the other end that is no TLS at all, or that ends in the middle. */
static void test_words_for_other_failures(void **state)
{
    (void)state;
    struct world world;
    char why[200];
    BIO *here, *there;
    world_init(&world);
    SSL *ssl = SSL_new(tcp(world.nodes[0].credentials, CREDENTIALS_SERVER));
    assert_int_equal(BIO_new_bio_pair(&here, 0, &there, 0), 1);
    SSL_set_bio(ssl, here, here);
    SSL_set_accept_state(ssl);
    assert_int_equal(BIO_write(there, "GET / HTTP/1.1\r\n\r\n", 18), 18);
    assert_true(SSL_do_handshake(ssl) <= 0);
    credentials_failure(ssl, ERR_peek_error(), why, sizeof why);
    assert_text_says(why, "TLS: ");
    credentials_failure(ssl, 0, why, sizeof why);
    assert_string_equal(why, "it ended the TLS handshake");
    uint8_t binding[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_channel_binding(ssl, binding, NULL), ERROR_INVALID);
    static const struct {
        int alert;
        const char *says;
    } alerts[] = {{SSL_AD_UNSUPPORTED_CERTIFICATE, "does not take"},
                  {SSL_AD_PROTOCOL_VERSION, "TLS 1.3"},
                  {SSL_AD_INTERNAL_ERROR, "ended the TLS handshake: "}};
    for (size_t i = 0; i < sizeof alerts / sizeof alerts[0]; i++) {
        credentials_failure(ssl, ERR_PACK(ERR_LIB_SSL, 0, SSL_AD_REASON_OFFSET + alerts[i].alert),
                            why, sizeof why);
        assert_text_says(why, alerts[i].says);
    }
    ERR_clear_error();
    SSL_free(ssl);
    BIO_free(there);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_members_know_each_other),
        cmocka_unit_test(test_a_removed_node_is_refused_at_once),
        cmocka_unit_test(test_a_foreign_cluster_is_refused),
        cmocka_unit_test(test_a_self_signed_certificate_is_refused),
        cmocka_unit_test(test_time),
        cmocka_unit_test(test_clocks_that_are_behind),
        cmocka_unit_test(test_names_that_lie),
        cmocka_unit_test(test_who_signs_itself),
        cmocka_unit_test(test_the_authority_is_no_node),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_a_member_cannot_sign),
        cmocka_unit_test(test_strangers),
        cmocka_unit_test(test_no_protocol),
        cmocka_unit_test(test_the_join_channel),
        cmocka_unit_test(test_no_resumption),
        cmocka_unit_test(test_renewal),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_the_old_authority_opens_nothing),
        cmocka_unit_test(test_credentials_that_do_not_fit),
        cmocka_unit_test(test_words_for_other_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
