#include "trust/security.h"

#include "trust/credentials.h"

#include <assert.h>
#include <openssl/ssl.h>

static SSL_CTX *security_context(void *self, bool is_quic, bool is_server)
{
    return credentials_context(self, is_quic ? CREDENTIALS_QUIC : CREDENTIALS_TCP,
                               is_server ? CREDENTIALS_SERVER : CREDENTIALS_CLIENT);
}

static enum error_code security_peer(void *self, const SSL *ssl, uint8_t node_id[NODE_ID_BYTES],
                                     struct error *err)
{
    return credentials_peer(ssl, node_id, err);
}

static bool is_joiner(void *self, const SSL *ssl)
{
    return credentials_purpose(ssl) == CREDENTIALS_JOIN;
}

struct link_security security_of(struct credentials *credentials)
{
    return (struct link_security){
        .context = security_context,
        .peer = security_peer,
        .is_joiner = is_joiner,
        .failure = credentials_failure,
        .self = credentials,
    };
}

/* ---- a stranger's ---------------------------------------------------------------------------- */

static SSL_CTX *join_context(void *self, bool is_quic, bool is_server)
{
    assert(!is_quic && !is_server);
    return self;
}

static enum error_code join_peer(void *self, const SSL *ssl, uint8_t node_id[NODE_ID_BYTES],
                                 struct error *err)
{
    return error_set(err, ERROR_INVALID, "this machine is joining and trusts nobody yet");
}

enum error_code security_of_stranger(struct link_security *out, struct error *err)
{
    *out = (struct link_security){
        .context = join_context, .peer = join_peer, .failure = credentials_failure};
    out->self = credentials_join_context(CREDENTIALS_TCP, err);
    return out->self ? ERROR_NONE : ERROR_NO_MEMORY;
}

void security_free_stranger(struct link_security *security)
{
    SSL_CTX_free(security->self);
    *security = (struct link_security){0};
}
