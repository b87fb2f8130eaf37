/* What a link asks of credentials: contexts to make sessions from, and who is at the other end. The
 * link itself looks at no certificate.
 *
 * `self` and the contexts stay good until the mesh is closed. Called on the mesh's loop. */
#pragma once

#include "trust/identity.h"

struct link_security {
    /* A context for this transport and end, never NULL. */
    SSL_CTX *(*context)(void *self, bool is_quic, bool is_server);
    /* After the handshake: the node id of the other end, or why it is not a member. */
    enum error_code (*peer)(void *self, const SSL *ssl, uint8_t node_id[NODE_ID_BYTES],
                            struct error *err);
    /* After the handshake: the other end is not a member and only wants to join. NULL: there are
     * none such. */
    bool (*is_joiner)(void *self, const SSL *ssl);
    /* Why a handshake failed, in a user's words. NULL: as OpenSSL says it. */
    void (*failure)(const SSL *ssl, unsigned long library_error, char *text, size_t size);
    void *self;
};

struct credentials;

/* What credentials.h gives, as a link asks for it. The credentials stay the caller's. */
struct link_security security_of(struct credentials *credentials);

/* For the stranger's end of a connection on which it joins: shows nothing, believes anybody
 * (credentials_join_context(); TCP). Free it when its streams are closed. */
enum error_code security_of_stranger(struct link_security *out, struct error *err);
void security_free_stranger(struct link_security *security); /* zeroed is fine */
