/* What a node shows to other nodes, and whom it believes: SSL_CTX objects for both ends of a link,
 * over TCP and QUIC.
 *
 * Every context does TLS 1.3 and nothing else, shows this node's certificate, demands the other's,
 * and speaks CREDENTIALS_ALPN. A certificate is believed when all of this holds:
 *   1. this cluster's authority signed it, directly, for both ends of TLS, and it is in force;
 *   2. its key is Ed25519, and the node id in it is the hash of that key;
 *   3. it names this cluster;
 *   4. `members.admitted(node id)` says yes, now.
 * 4 is what removes a node: its certificate stays good, but no member shakes hands with it any
 * more. Sessions are never resumed (no tickets, no cache, no early data), since a resumed one would
 * skip all four.
 *
 * The end of a handshake, and what the link must do:
 *   - call credentials_peer() when the handshake is over; only its ERROR_NONE makes the link one
 *     between members;
 *   - a TLS 1.3 client is done before the server has looked at its certificate: it knows that it
 *     was accepted when the first byte from the server has arrived, not before;
 *   - a removal does not end links that are up: who applies the removal closes the links to that
 *     node;
 *   - to be refused as no member is a reason to try again later, never to forget one's keys: the
 *     other end may only not have heard yet that this node was let in.
 *
 * Strangers on the same port: a server context also takes CREDENTIALS_JOIN_ALPN, without a
 * certificate from the client. credentials_purpose() tells the two apart; nothing but join messages
 * (join.h) may pass on such a channel.
 *
 * The clock: a machine without a battery-backed clock starts in the past. The time that is used is
 * never before this node's own certificate was issued.
 *
 * Ownership: everything given to credentials_new() is copied or counted, except `members`, whose
 * callbacks must stay good until credentials_free(). The contexts belong to the credentials; an SSL
 * made from one counts it, but must not shake hands after credentials_free().
 * Threads: handshakes may run on any; credentials_renew() only while none runs.
 *
 *     struct credentials *credentials;
 *     credentials_new(&identity, &membership, &(struct credentials_members){.admitted = is_member,
 *     .self = state},
 *                     &credentials, err);
 *     SSL *ssl = SSL_new(credentials_context(credentials, CREDENTIALS_TCP, CREDENTIALS_CLIENT)); */
#pragma once

#include "trust/identity.h"

#define CREDENTIALS_ALPN "medley/1"
#define CREDENTIALS_JOIN_ALPN "medley-join/1"

struct credentials;
struct membership; /* authority.h */

struct credentials_members {
    /* Is this node a member of the cluster at this moment, as far as this node knows? */
    bool (*admitted)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    /* Seconds since 1970. NULL: the system's clock. */
    uint64_t (*now_unix_s)(void *self);
    void *self;
};

enum credentials_transport { CREDENTIALS_TCP, CREDENTIALS_QUIC };
enum credentials_role { CREDENTIALS_CLIENT, CREDENTIALS_SERVER };
enum credentials_purpose { CREDENTIALS_NOTHING, CREDENTIALS_LINK, CREDENTIALS_JOIN };

enum error_code credentials_new(const struct identity *identity,
                                const struct membership *membership,
                                const struct credentials_members *members, struct credentials **out,
                                struct error *err);
void credentials_free(struct credentials *credentials);

/* Never NULL. Its protocol and verification must be left as they are; timeouts, buffers and modes
 * are the link's. */
SSL_CTX *credentials_context(const struct credentials *credentials,
                             enum credentials_transport transport, enum credentials_role role);

/* From now on shows the certificate of `membership`, which must be of the same node and cluster,
 * and believes its authority, or both of them while there are two. */
enum error_code credentials_renew(struct credentials *credentials,
                                  const struct membership *membership, struct error *err);

/* What the channel is for, as both ends agreed (ALPN). CREDENTIALS_NOTHING before the handshake is
 * over. */
enum credentials_purpose credentials_purpose(const SSL *ssl);

/* Who the other end is. ERROR_INVALID when the handshake is not over, or was not one between
 * members. */
enum error_code credentials_peer(const SSL *ssl, uint8_t node_id[NODE_ID_BYTES], struct error *err);

/* Why a handshake failed, in a user's words: what was wrong with the other's certificate, or which
 * alert it sent. `library_error` is ERR_peek_error() after the failure, or 0. */
void credentials_failure(const SSL *ssl, unsigned long library_error, char *text, size_t size);

/* ---- the joiner's end -------------------------------------------------------------------- */

/* A client context for CREDENTIALS_JOIN_ALPN: shows nothing and believes anybody. Whom it talks to
 * is what the join protocol finds out. Freed with SSL_CTX_free(). NULL: out of memory. */
SSL_CTX *credentials_join_context(enum credentials_transport transport, struct error *err);

enum { CHANNEL_BINDING_BYTES = 32 };

/* What both ends of this one TLS channel know and nobody else: RFC 8446's exporter. Join messages
 * are bound to it. */
enum error_code credentials_channel_binding(SSL *ssl, uint8_t binding[CHANNEL_BINDING_BYTES],
                                            struct error *err);
