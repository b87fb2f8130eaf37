/* A cluster of nodes in memory, and TLS between any two of them, for tests of mesh. */
#pragma once

#include "trust/authority.h"
#include "trust/credentials.h"

#include <openssl/ssl.h>

enum { WORLD_NODES = 3 };
#define WORLD_NOW (AUTHORITY_EPOCH_UNIX_S + 86400u * 30)

/* What one node knows, and its clock. */
struct world_view {
    uint8_t members[8][NODE_ID_BYTES];
    int n_members;
    uint64_t now_unix_s;
    int n_asked;
};

struct world_node {
    struct identity identity;
    struct membership membership;
    struct world_view view;
    struct credentials *credentials;
};

/* All are members, know each other, and agree on the time. */
struct world {
    struct world_node nodes[WORLD_NODES];
};

void world_init(struct world *world);
void world_deinit(struct world *world);

/* Node `from` forgets that node `of` is a member. */
void world_remove(struct world *world, int from, int of);

/* A certificate of the world's authority that says what it is told to. */
struct world_forgery {
    const char *names;                  /* subject alternative names; NULL: the right ones */
    const char *usage;                  /* extended key usage; NULL: both ends */
    uint64_t from_unix_s, until_unix_s; /* 0: in force at WORLD_NOW */
    bool self_signed;
    const struct authority *authority; /* NULL: self_signed, or … */
};
X509 *world_forge(const struct identity *identity, const struct world_forgery *what);

/* Makes credentials' contexts show this certificate, whatever membership_check() would say. */
void world_show(struct credentials *credentials, X509 *certificate, EVP_PKEY *key);

bool world_is_member(void *self, const uint8_t node_id[NODE_ID_BYTES]);
uint64_t world_now(void *self);

/* Two ends of one TLS connection in memory. */
struct world_link {
    SSL *client, *server;
    bool client_done, server_done; /* its handshake came to an end without an error */
    char client_why[128], server_why[128];
};

/* Runs the handshake, then lets the server say one byte and the client read it: only then does a
 * client know. False when either end failed. */
bool world_connect(SSL_CTX *client, SSL_CTX *server, struct world_link *link);
void world_disconnect(struct world_link *link);

void assert_peer(const SSL *ssl, const struct world_node *node); /* it is at the other end */
void assert_text_says(const char *text, const char *part);
