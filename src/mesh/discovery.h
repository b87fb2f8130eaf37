/* Finding nodes on the local networks by DNS-SD over multicast DNS (RFC 6762, 6763): service
 * `_medley._tcp`, over IPv4 and IPv6, on every interface.
 *
 * Discovery only finds; it never trusts. What it reports is what anybody on the network may have
 * sent, checked for shape alone: who a peer is, its certificate says when it is dialled.
 *
 * Avahi's responder runs in this process, also beside a daemon of Avahi or another one on this
 * machine: multicast DNS lets several share the port, and so it works the same everywhere. (Avahi's
 * client library cannot be linked beside its core: both export avahi_entry_group_free.) Without a
 * network interface nothing is found, and nothing fails; those that come later are used.
 *
 * Threading: the loop's thread. Callbacks are not called after discovery_close(). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

enum {
    DISCOVERY_NAME_MAX = 64, /* with the terminator, as in DNS-SD */
    DISCOVERY_ID_MAX = 72,
};

struct discovery_record {           /* what a node tells of itself; texts of printable ASCII */
    char name[DISCOVERY_NAME_MAX];  /* of the machine, for people */
    char id[DISCOVERY_ID_MAX];      /* of the node; not "" */
    char cluster[DISCOVERY_ID_MAX]; /* "": none yet */
    uint32_t version_major, version_minor; /* of the protocol between nodes */
    uint16_t port;
};

struct discovery_peer {
    struct discovery_record record;
    struct sockaddr_storage address; /* with the port and, for a link-local address, the scope */
};

struct discovery_handlers {
    /* A peer, or a further address of it, or something of it has changed. Its own node is not
     * reported. */
    void (*found)(void *arg, const struct discovery_peer *peer);
    void (*lost)(void *arg, const char *name); /* nobody answers to the name any more */
    void *arg;
};

struct discovery;

/* Announces `own` and looks for others. */
enum error_code discovery_open(uv_loop_t *loop, const struct discovery_record *own,
                               const struct discovery_handlers *handlers, struct discovery **out,
                               struct error *err);

/* Says something else of this node from now on: another cluster, another name. */
enum error_code discovery_announce(struct discovery *discovery, const struct discovery_record *own,
                                   struct error *err);

/* Takes the announcement back. `closed` when the loop has nothing of it left; may be NULL. */
void discovery_close(struct discovery *discovery, void (*closed)(void *arg), void *arg);
