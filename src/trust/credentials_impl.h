/* What the files of credentials share. */
#pragma once

#include "trust/credentials.h"

struct credentials {
    SSL_CTX *contexts[2][2]; /* [transport][role] */
    struct credentials_members members;
    struct identity identity;
    uint8_t cluster_id[CLUSTER_ID_BYTES];
    uint64_t
        floor_unix_s; /* it is not earlier than this: then this node's own certificate was made */
};

/* TLS 1.3 with our algorithms, and no certificate yet. NULL: OpenSSL's queue says why. */
SSL_CTX *credentials_bare_context(enum credentials_transport transport, enum credentials_role role);

/* The one protocol that a client offers. */
bool credentials_offer(SSL_CTX *context, const char *name);

/* SSL_CTX_set_cert_verify_callback()'s; `self` is the credentials. */
int credentials_verify(X509_STORE_CTX *store, void *self);
