/* Whom to believe, and how to say why not. */
#include "trust/authority.h"
#include "trust/credentials_impl.h"

#include <openssl/err.h>
#include <openssl/quic.h>
#include <openssl/ssl.h>
#include <openssl/x509_vfy.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- one certificate ----------------------------------------------------------------------- */

static time_t time_of_judgement(const struct credentials *credentials)
{
    const struct credentials_members *members = &credentials->members;
    uint64_t now = members->now_unix_s ? members->now_unix_s(members->self) : (uint64_t)time(NULL);
    return (time_t)(now < credentials->floor_unix_s ? credentials->floor_unix_s : now);
}

/* What the chain alone cannot say. The reasons are X509_V_ERR_…, since OpenSSL makes the alert for
 * the other end out of them: "certificate revoked" is how a removed node learns of it. */
static int credentials_verify_judge(const struct credentials *credentials, const X509 *certificate)
{
    uint8_t node_id[NODE_ID_BYTES], cluster_id[CLUSTER_ID_BYTES];
    if (!certificate || !certificate_names(certificate, node_id, cluster_id))
        return X509_V_ERR_APPLICATION_VERIFICATION;
    if (memcmp(cluster_id, credentials->cluster_id, sizeof cluster_id) != 0)
        return X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY;
    if (!credentials->members.admitted(credentials->members.self, node_id))
        return X509_V_ERR_CERT_REVOKED;
    return X509_V_OK;
}

int credentials_verify(X509_STORE_CTX *store, void *self)
{
    const struct credentials *credentials = self;
    X509_STORE_CTX_set_time(store, 0, time_of_judgement(credentials));
    if (X509_verify_cert(store) != 1) {
        if (X509_STORE_CTX_get_error(store) == X509_V_OK)
            X509_STORE_CTX_set_error(store, X509_V_ERR_UNSPECIFIED);
        return 0;
    }
    int reason = credentials_verify_judge(credentials, X509_STORE_CTX_get0_cert(store));
    X509_STORE_CTX_set_error(store, reason);
    return reason == X509_V_OK;
}

/* ---- after the handshake ------------------------------------------------------------------- */

enum credentials_purpose credentials_purpose(const SSL *ssl)
{
    const unsigned char *name = NULL;
    unsigned size = 0;
    if (!SSL_is_init_finished(ssl))
        return CREDENTIALS_NOTHING;
    SSL_get0_alpn_selected(ssl, &name, &size);
    if (size == strlen(CREDENTIALS_ALPN) && memcmp(name, CREDENTIALS_ALPN, size) == 0)
        return CREDENTIALS_LINK;
    if (size == strlen(CREDENTIALS_JOIN_ALPN) && memcmp(name, CREDENTIALS_JOIN_ALPN, size) == 0)
        return CREDENTIALS_JOIN;
    return CREDENTIALS_NOTHING;
}

enum error_code credentials_peer(const SSL *ssl, uint8_t node_id[NODE_ID_BYTES], struct error *err)
{
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    memset(node_id, 0, NODE_ID_BYTES);
    if (!SSL_is_init_finished(ssl))
        return error_set(err, ERROR_INVALID, "the TLS handshake is not over");
    if (credentials_purpose(ssl) != CREDENTIALS_LINK)
        return error_set(err, ERROR_INVALID, "the other end does not support " CREDENTIALS_ALPN);
    const X509 *certificate = SSL_get0_peer_certificate(ssl);
    if (!certificate || SSL_get_verify_result(ssl) != X509_V_OK || SSL_session_reused(ssl) ||
        !certificate_names(certificate, node_id, cluster_id)) {
        memset(node_id, 0, NODE_ID_BYTES);
        return error_set(err, ERROR_INVALID, "the other end is not a verified member");
    }
    return ERROR_NONE;
}

enum error_code credentials_channel_binding(SSL *ssl, uint8_t binding[CHANNEL_BINDING_BYTES],
                                            struct error *err)
{
    static const char label[] = "EXPORTER-medley-join";
    if (!SSL_is_init_finished(ssl) ||
        SSL_export_keying_material(ssl, binding, CHANNEL_BINDING_BYTES, label, sizeof label - 1,
                                   NULL, 0, 0) != 1) {
        ERR_clear_error();
        return error_set(err, ERROR_INVALID, "the TLS channel is not up");
    }
    return ERROR_NONE;
}

SSL_CTX *credentials_join_context(enum credentials_transport transport, struct error *err)
{
    SSL_CTX *context = credentials_bare_context(transport, CREDENTIALS_CLIENT);
    if (context && credentials_offer(context, CREDENTIALS_JOIN_ALPN)) {
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        return context;
    }
    SSL_CTX_free(context);
    ERR_clear_error();
    error_set(err, ERROR_NO_MEMORY, "setting up TLS: out of memory");
    return NULL;
}

/* ---- words for a failure ------------------------------------------------------------------- */

static const char *words_of_verification(long reason)
{
    switch (reason) {
    case X509_V_ERR_CERT_REVOKED:
        return "it is not a member of this cluster, or was removed";
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return "its certificate has expired (or this machine's clock is ahead)";
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "its certificate is not in force yet (its clock is ahead, or this machine's is "
               "behind)";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
        return "its certificate is signed by itself";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
    case X509_V_ERR_CERT_UNTRUSTED:
    case X509_V_ERR_CERT_CHAIN_TOO_LONG: /* it shows its authority with it, which has our name */
        return "its certificate is of another cluster, or of an authority that was replaced";
    case X509_V_ERR_APPLICATION_VERIFICATION:
        return "its certificate is not one of a Medley node";
    default:
        return X509_verify_cert_error_string(reason);
    }
}

static const char *words_of_alert(int alert)
{
    switch (alert) {
    case SSL_AD_CERTIFICATE_REVOKED:
        return "it says that this node is not a member of its cluster, or was removed";
    case SSL_AD_CERTIFICATE_EXPIRED:
        return "it says that this node's certificate has expired or is not in force yet: compare "
               "the clocks";
    case SSL_AD_UNKNOWN_CA:
        return "it is of another cluster";
    case SSL_AD_CERTIFICATE_REQUIRED:
        return "it wants a certificate, and this node showed none";
    case SSL_AD_NO_APPLICATION_PROTOCOL:
        return "it does not speak this version of Medley's protocol";
    case SSL_AD_PROTOCOL_VERSION:
        return "it does not speak TLS 1.3";
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_HANDSHAKE_FAILURE:
        return "it does not take this node's certificate";
    default:
        return NULL;
    }
}

/* The alert that the other end sent, or -1: over TCP it is in the library's error, over QUIC in the
 * code that closed the connection (RFC 9001, 4.8). */
static int alert_of(const SSL *ssl, unsigned long library_error)
{
    int reason = ERR_GET_REASON(library_error);
    if (library_error && ERR_GET_LIB(library_error) == ERR_LIB_SSL &&
        reason > SSL_AD_REASON_OFFSET && reason <= SSL_AD_REASON_OFFSET + 255)
        return reason - SSL_AD_REASON_OFFSET;
    SSL_CONN_CLOSE_INFO info;
    if (SSL_is_quic(ssl) &&
        SSL_get_conn_close_info((SSL *)(uintptr_t)ssl, &info, sizeof info) == 1 &&
        info.error_code >> 8 == 1)
        return (int)(info.error_code & 255);
    return -1;
}

void credentials_failure(const SSL *ssl, unsigned long library_error, char *text, size_t size)
{
    /* who does not verify has a result all the same */
    long reason =
        SSL_get_verify_mode(ssl) == SSL_VERIFY_NONE ? X509_V_OK : SSL_get_verify_result(ssl);
    const char *words = reason != X509_V_OK ? words_of_verification(reason) : NULL;
    int alert = words ? -1 : alert_of(ssl, library_error);
    if (alert >= 0)
        words = words_of_alert(alert);
    if (words)
        snprintf(text, size, "%s", words);
    else if (alert >= 0)
        snprintf(text, size, "it ended the TLS handshake: %s", SSL_alert_desc_string_long(alert));
    else if (library_error && ERR_reason_error_string(library_error))
        snprintf(text, size, "TLS: %s", ERR_reason_error_string(library_error));
    else
        snprintf(text, size, "it ended the TLS handshake");
}
