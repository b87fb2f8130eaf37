#include "trust/credentials.h"

#include "base/mem.h"
#include "base/processor.h"
#include "trust/authority.h"
#include "trust/credentials_impl.h"
#include "trust/openssl_error.h"

#include <assert.h>
#include <openssl/quic.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <time.h>

enum { CERTIFICATE_LIST_BYTES = 16 * 1024 };

/* ---- what both ends speak ---------------------------------------------------------------- */

static const SSL_METHOD *method_of(enum credentials_transport transport, enum credentials_role role)
{
    if (transport == CREDENTIALS_QUIC)
        return role == CREDENTIALS_CLIENT ? OSSL_QUIC_client_method() : OSSL_QUIC_server_method();
    return role == CREDENTIALS_CLIENT ? TLS_client_method() : TLS_server_method();
}

/* AES is the faster cipher where the processor has instructions for it, and several times the
 * slower one elsewhere. */
static bool choose_algorithms(SSL_CTX *context)
{
    static const char aes_first[] =
        "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
    static const char chacha_first[] =
        "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384";
    return SSL_CTX_set_ciphersuites(context, processor_has_aes() ? aes_first : chacha_first) == 1 &&
           SSL_CTX_set1_sigalgs_list(context, "ed25519") == 1 &&
           SSL_CTX_set1_groups_list(context, "?X25519MLKEM768:X25519") == 1;
}

/* No tickets, no cache, no early data: every connection is a whole handshake, with both
 * certificates looked at. */
static void refuse_resumption(SSL_CTX *context)
{
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_num_tickets(context, 0);
    SSL_CTX_set_max_early_data(context, 0);
}

SSL_CTX *credentials_bare_context(enum credentials_transport transport, enum credentials_role role)
{
    SSL_CTX *context = SSL_CTX_new(method_of(transport, role));
    if (!context)
        return NULL;
    bool pinned = transport == CREDENTIALS_QUIC ||
                  (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                   SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
    if (!pinned || !choose_algorithms(context)) {
        SSL_CTX_free(context);
        return NULL;
    }
    refuse_resumption(context);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_CIPHER_SERVER_PREFERENCE |
                                     SSL_OP_PRIORITIZE_CHACHA);
    SSL_CTX_set_max_cert_list(context, CERTIFICATE_LIST_BYTES);
    return context;
}

/* ---- which protocol ---------------------------------------------------------------------- */

/* The list of a client: a length byte before each name (RFC 7301, 3.1). */
static const uint8_t *find_protocol(const uint8_t *list, size_t size, const char *name)
{
    size_t length = strlen(name);
    for (size_t i = 0; i < size && i + 1 + list[i] <= size; i += 1 + (size_t)list[i]) {
        if (list[i] == length && memcmp(list + i + 1, name, length) == 0)
            return list + i;
    }
    return NULL;
}

bool credentials_offer(SSL_CTX *context, const char *name)
{
    uint8_t list[64];
    size_t length = strlen(name);
    assert(length < sizeof list);
    list[0] = (uint8_t)length;
    memcpy(list + 1, name, length);
    return SSL_CTX_set_alpn_protos(context, list, (unsigned)length + 1) == 0; /* 0 is its success */
}

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_size,
                           const unsigned char *in, unsigned in_size, void *self)
{
    (void)self;
    const uint8_t *found = find_protocol(in, in_size, CREDENTIALS_ALPN);
    if (!found) {
        found = find_protocol(in, in_size, CREDENTIALS_JOIN_ALPN);
        if (!found)
            return SSL_TLSEXT_ERR_ALERT_FATAL;
        SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL); /* a stranger has nothing to show yet */
    }
    *out = found + 1;
    *out_size = found[0];
    return SSL_TLSEXT_ERR_OK;
}

/* ---- the contexts ------------------------------------------------------------------------ */

/* The authority; while it gets a new key, the next one, too. */
static bool believe(SSL_CTX *context, const struct membership *membership)
{
    X509_STORE *store = X509_STORE_new();
    X509 *next = membership->next.certificate;
    if (!store || X509_STORE_add_cert(store, membership->authority.certificate) != 1 ||
        (next && X509_STORE_add_cert(store, next) != 1)) {
        X509_STORE_free(store);
        return false;
    }
    SSL_CTX_set_cert_store(context, store); /* takes it, in place of the one before */
    return true;
}

static bool set_up(struct credentials *credentials, SSL_CTX *context, enum credentials_role role,
                   const struct membership *membership)
{
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(context, 0); /* nothing between the authority and a node */
    SSL_CTX_set_cert_verify_callback(context, credentials_verify, credentials);
    if (X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_X509_STRICT) != 1 ||
        !believe(context, membership))
        return false;
    if (role == CREDENTIALS_CLIENT)
        return credentials_offer(context, CREDENTIALS_ALPN);
    SSL_CTX_set_alpn_select_cb(context, choose_protocol, NULL);
    return true;
}

static bool open_contexts(struct credentials *credentials, const struct membership *membership)
{
    for (int transport = 0; transport < 2; transport++) {
        for (int role = 0; role < 2; role++) {
            SSL_CTX *context = credentials_bare_context((enum credentials_transport)transport,
                                                        (enum credentials_role)role);
            credentials->contexts[transport][role] = context;
            if (!context || !set_up(credentials, context, (enum credentials_role)role, membership))
                return false;
        }
    }
    return true;
}

/* From the certificate: the other contexts are only touched when it fits. */
static enum error_code credentials_show(struct credentials *credentials, EVP_PKEY *key,
                                        X509 *certificate, struct error *err)
{
    uint64_t from, until;
    if (!certificate_period(certificate, &from, &until))
        return error_set(err, ERROR_INVALID, "the node's certificate has no validity period");
    for (int i = 0; i < 4; i++) {
        if (SSL_CTX_use_cert_and_key(credentials->contexts[i / 2][i % 2], certificate, key, NULL,
                                     1) != 1)
            return openssl_error(err, "using the node's certificate");
    }
    credentials->floor_unix_s = from + AUTHORITY_SKEW_S;
    return ERROR_NONE;
}

enum error_code credentials_new(const struct identity *identity,
                                const struct membership *membership,
                                const struct credentials_members *members, struct credentials **out,
                                struct error *err)
{
    *out = NULL;
    assert(members->admitted);
    enum error_code code = membership_check(membership, identity, err);
    if (code)
        return code;
    struct credentials *credentials = mem_new(sizeof *credentials);
    if (!credentials)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    credentials->members = *members;
    memcpy(credentials->cluster_id, membership->authority.cluster_id, CLUSTER_ID_BYTES);
    EVP_PKEY_up_ref(identity->key);
    credentials->identity = *identity;
    if (!open_contexts(credentials, membership))
        code = openssl_error(err, "setting up TLS");
    else
        code = credentials_show(credentials, identity->key, membership->certificate, err);
    if (code)
        credentials_free(credentials);
    else
        *out = credentials;
    return code;
}

void credentials_free(struct credentials *credentials)
{
    if (!credentials)
        return;
    for (int i = 0; i < 4; i++)
        SSL_CTX_free(credentials->contexts[i / 2][i % 2]);
    identity_deinit(&credentials->identity);
    mem_free(credentials);
}

SSL_CTX *credentials_context(const struct credentials *credentials,
                             enum credentials_transport transport, enum credentials_role role)
{
    return credentials->contexts[transport][role];
}

enum error_code credentials_renew(struct credentials *credentials,
                                  const struct membership *membership, struct error *err)
{
    if (memcmp(membership->authority.cluster_id, credentials->cluster_id, CLUSTER_ID_BYTES) != 0)
        return error_set(err, ERROR_INVALID, "the new certificate belongs to another cluster");
    enum error_code code = membership_check(membership, &credentials->identity, err);
    for (int i = 0; i < 4 && !code; i++) {
        if (!believe(credentials->contexts[i / 2][i % 2], membership))
            code = openssl_error(err, "setting up TLS");
    }
    return code ? code
                : credentials_show(credentials, credentials->identity.key, membership->certificate,
                                   err);
}
