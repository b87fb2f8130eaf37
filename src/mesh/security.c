#include "mesh/security.h"

#include "mesh/credentials.h"

static SSL_CTX *context(void *self, bool is_quic, bool is_server)
{
    return credentials_context(self, is_quic ? CREDENTIALS_QUIC : CREDENTIALS_TCP,
                               is_server ? CREDENTIALS_SERVER : CREDENTIALS_CLIENT);
}

static enum error_code peer(void *self, const SSL *ssl, uint8_t node_id[NODE_ID_BYTES], struct error *err)
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
        .context = context,
        .peer = peer,
        .is_joiner = is_joiner,
        .failure = credentials_failure,
        .self = credentials,
    };
}
