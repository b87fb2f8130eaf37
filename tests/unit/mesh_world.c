#include "mesh_world.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

bool world_is_member(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    struct world_view *view = self;
    view->n_asked++;
    for (int i = 0; i < view->n_members; i++) {
        if (memcmp(view->members[i], node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

uint64_t world_now(void *self)
{
    return ((struct world_view *)self)->now_unix_s;
}

static void make_membership(struct world *world, int i)
{
    struct world_node *node = &world->nodes[i], *first = &world->nodes[0];
    if (i == 0) {
        assert_int_equal(membership_found(&node->identity, WORLD_NOW, &node->membership, NULL),
                         ERROR_NONE);
        return;
    }
    struct authority copy = first->membership.authority;
    X509_up_ref(copy.certificate);
    EVP_PKEY_up_ref(copy.key);
    assert_int_equal(
        membership_of_authority(&copy, &node->identity, WORLD_NOW, &node->membership, NULL),
        ERROR_NONE);
}

void world_init(struct world *world)
{
    *world = (struct world){0};
    for (int i = 0; i < WORLD_NODES; i++) {
        assert_int_equal(identity_make(&world->nodes[i].identity, NULL), ERROR_NONE);
        make_membership(world, i);
    }
    for (int i = 0; i < WORLD_NODES; i++) {
        struct world_node *node = &world->nodes[i];
        node->view.now_unix_s = WORLD_NOW;
        node->view.n_members = WORLD_NODES;
        for (int j = 0; j < WORLD_NODES; j++)
            memcpy(node->view.members[j], world->nodes[j].identity.node_id, NODE_ID_BYTES);
        struct credentials_members members = {world_is_member, world_now, &node->view};
        struct error err = {0};
        if (credentials_new(&node->identity, &node->membership, &members, &node->credentials, &err))
            fail_msg("%s", err.text);
    }
}

void world_deinit(struct world *world)
{
    for (int i = 0; i < WORLD_NODES; i++) {
        credentials_free(world->nodes[i].credentials);
        membership_deinit(&world->nodes[i].membership);
        identity_deinit(&world->nodes[i].identity);
    }
}

void world_remove(struct world *world, int from, int of)
{
    struct world_view *view = &world->nodes[from].view;
    int kept = 0;
    for (int i = 0; i < view->n_members; i++) {
        if (memcmp(view->members[i], world->nodes[of].identity.node_id, NODE_ID_BYTES) != 0)
            memmove(view->members[kept++], view->members[i], NODE_ID_BYTES);
    }
    view->n_members = kept;
}

/* ---- forged certificates -------------------------------------------------------------------- */

static void add_extension(X509 *certificate, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, certificate, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    assert_non_null(extension);
    assert_int_equal(X509_add_ext(certificate, extension, -1), 1);
    X509_EXTENSION_free(extension);
}

static void default_names(const struct identity *identity, const struct authority *authority,
                          char *names, size_t size)
{
    char node[NODE_ID_TEXT], cluster[CLUSTER_ID_TEXT];
    uint8_t none[CLUSTER_ID_BYTES] = {0};
    id_text(identity->node_id, NODE_ID_BYTES, node);
    id_text(authority ? authority->cluster_id : none, CLUSTER_ID_BYTES, cluster);
    snprintf(names, size, "URI:urn:medley:node:%s,URI:urn:medley:cluster:%s", node, cluster);
}

X509 *world_forge(const struct identity *identity, const struct world_forgery *what)
{
    X509 *certificate = X509_new();
    char names[256];
    default_names(identity, what->authority, names, sizeof names);
    X509_set_version(certificate, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(certificate), 7);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate), "CN", MBSTRING_ASC,
                               (const uint8_t *)"forged", -1, -1, 0);
    X509 *issuer = what->self_signed ? certificate : what->authority->certificate;
    X509_set_issuer_name(certificate, X509_get_subject_name(issuer));
    ASN1_TIME_set(X509_getm_notBefore(certificate),
                  (time_t)(what->from_unix_s ? what->from_unix_s : WORLD_NOW - 100));
    ASN1_TIME_set(X509_getm_notAfter(certificate),
                  (time_t)(what->until_unix_s ? what->until_unix_s : WORLD_NOW + 100));
    X509_set_pubkey(certificate, identity->key);
    add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE");
    add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature");
    add_extension(certificate, issuer, NID_ext_key_usage,
                  what->usage ? what->usage : "serverAuth,clientAuth");
    add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
    if (!what->self_signed)
        add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always");
    add_extension(certificate, issuer, NID_subject_alt_name, what->names ? what->names : names);
    assert_true(
        X509_sign(certificate, what->self_signed ? identity->key : what->authority->key, NULL) > 0);
    return certificate;
}

void world_show(struct credentials *credentials, X509 *certificate, EVP_PKEY *key)
{
    for (int i = 0; i < 4; i++) {
        SSL_CTX *context = credentials_context(credentials, (enum credentials_transport)(i / 2),
                                               (enum credentials_role)(i % 2));
        assert_int_equal(SSL_CTX_use_cert_and_key(context, certificate, key, NULL, 1), 1);
    }
}

/* ---- TLS in memory -------------------------------------------------------------------------- */

/* One turn of one end. False when it has failed, with the reason. */
static bool turn(SSL *ssl, bool *done, char *why, size_t size)
{
    if (*done)
        return true;
    ERR_clear_error();
    int result = SSL_do_handshake(ssl);
    *done = result == 1;
    if (result == 1 || SSL_get_error(ssl, result) == SSL_ERROR_WANT_READ)
        return true;
    credentials_failure(ssl, ERR_peek_error(), why, size);
    ERR_clear_error();
    return false;
}

/* The byte that tells the client that the server has taken its certificate. */
static bool first_byte(struct world_link *link)
{
    char byte = 'm';
    if (SSL_write(link->server, &byte, 1) != 1)
        return false;
    int result = SSL_read(link->client, &byte, 1);
    if (result != 1)
        credentials_failure(link->client, ERR_peek_error(), link->client_why,
                            sizeof link->client_why);
    ERR_clear_error();
    return result == 1;
}

bool world_connect(SSL_CTX *client, SSL_CTX *server, struct world_link *link)
{
    BIO *a, *b;
    *link = (struct world_link){.client = SSL_new(client), .server = SSL_new(server)};
    assert_non_null(link->client);
    assert_non_null(link->server);
    assert_int_equal(BIO_new_bio_pair(&a, 0, &b, 0), 1);
    SSL_set_bio(link->client, a, a);
    SSL_set_bio(link->server, b, b);
    SSL_set_connect_state(link->client);
    SSL_set_accept_state(link->server);
    bool good = true;
    for (int i = 0; good && i < 10 && !(link->client_done && link->server_done); i++) {
        good = turn(link->client, &link->client_done, link->client_why, sizeof link->client_why);
        good &= turn(link->server, &link->server_done, link->server_why, sizeof link->server_why);
    }
    if (!good && link->client_done) { /* what the client hears of it */
        char byte;
        assert_true(SSL_read(link->client, &byte, 1) <= 0);
        credentials_failure(link->client, ERR_peek_error(), link->client_why,
                            sizeof link->client_why);
        ERR_clear_error();
    } else if (!good && !link->server_why[0]) {
        turn(link->server, &link->server_done, link->server_why, sizeof link->server_why);
    } else if (!good && !link->client_why[0]) {
        turn(link->client, &link->client_done, link->client_why, sizeof link->client_why);
    }
    return good && link->client_done && link->server_done && first_byte(link);
}

void world_disconnect(struct world_link *link)
{
    SSL_free(link->client);
    SSL_free(link->server);
    *link = (struct world_link){0};
}

void assert_peer(const SSL *ssl, const struct world_node *node)
{
    uint8_t id[NODE_ID_BYTES];
    struct error err = {0};
    if (credentials_peer(ssl, id, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(id, node->identity.node_id, sizeof id);
}

void assert_text_says(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("\"%s\" does not say \"%s\"", text, part);
}
