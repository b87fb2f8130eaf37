/* This node's end of all its links: it listens, dials, and keeps one link to each peer.
 *
 *     mesh_open(&options, &mesh, err);
 *     mesh_listen(mesh, "0.0.0.0", 7979, &port, err);
 *     mesh_dial(mesh, &(struct mesh_target){.host = "tower", .port = 7979}, &dial, err);
 *     // dials until mesh_forget(mesh, dial)
 *     ... events ...
 *     mesh_close(mesh, on_closed, self);
 *
 * Dialling goes on until mesh_forget(): after a failure or the end of a link it waits 250 ms, twice
 * as long each time up to LIMIT_DIAL_WAIT_MS, and less by a random part, so that a cluster that
 * comes back does not come all at once. After the end of a link that had lasted, it waits an eighth
 * of the time since (backoff.h). While there is a link to the node at the other end, whoever
 * dialled it, nothing is dialled.
 *
 * When both ends dial at once, one of the two connections stays, and both ends choose the same: the
 * one that the node with the lower id dialled (resolve.h).
 *
 * Connections that have not greeted are limited in number, per address, and in time.
 *
 * All on the loop's thread; events are raised from the loop only. The process ignores SIGPIPE, as a
 * node does: a peer that is gone is an error of its link. */
#pragma once

#include "mesh/link.h"
#include "trust/security.h"

#include <uv.h>

struct mesh;
struct dial;

enum mesh_transport { MESH_TCP, MESH_QUIC };

struct mesh_options {
    uv_loop_t *loop;
    struct link_security
        security; /* copied; what it points to is the caller's until mesh_close() is done */
    struct link_events events;
    uint8_t node_id[NODE_ID_BYTES];
    enum mesh_transport transport;
    uint32_t n_data_channels;              /* of links that this node dials; 0: one */
    uint32_t ping_ms, silence_ms, dead_ms; /* 0: 2000, 5000, 10000 */
    uint32_t watch_ms;                     /* between pings of a link that is watched; 0: 200 */
    uint32_t greeting_ms, dial_wait_ms;    /* 0: LIMIT_GREETING_MS; 250, the first wait of a dial */
    uint64_t queue_bytes;                  /* 0: LIMIT_LINK_QUEUE_BYTES */
    bool measures_bandwidth;               /* bursts (probe.h) */
    const uint8_t *greeting;               /* copied; the peer finds it in link_hello() */
    uint32_t n_greeting;                   /* at most LIMIT_GREETING_BYTES */
    struct link_version version;           /* {0}: LINK_MAJOR, LINK_MINOR. For tests */
    /* A node that is not a member wants to join (security.h). The stream becomes the callee's,
     * after its handshake. NULL: such are turned away. Where there is one, a mesh over QUIC listens
     * on the TCP port of the same number, too: strangers come by TCP. */
    void (*joiner)(void *self, struct stream *stream);
};

/* ERROR_INVALID: an option beyond its limit. ERROR_NO_MEMORY, ERROR_IO. */
enum error_code mesh_open(const struct mesh_options *options, struct mesh **out, struct error *err);

/* Closes all links in order, then itself; `closed` is called from the loop when nothing is left. */
void mesh_close(struct mesh *mesh, void (*closed)(void *self), void *self);

/* `address` is numeric, IPv4 or IPv6. Port 0: any free one. Several addresses may be listened
 * to. */
enum error_code mesh_listen(struct mesh *mesh, const char *address, uint16_t port, uint16_t *actual,
                            struct error *err);

struct mesh_target {
    const char *host; /* a name or a numeric address; copied */
    uint16_t port;
    bool has_node_id; /* only this node will do */
    uint8_t node_id[NODE_ID_BYTES];
    uint64_t gone_ms; /* since the end of a link to it, over another dial; 0: there was none */
};

/* ERROR_BUSY: LIMIT_DIAL_TARGETS. The dial is the mesh's, until mesh_forget() or the end of
 * mesh_close(). */
enum error_code mesh_dial(struct mesh *mesh, const struct mesh_target *target, struct dial **out,
                          struct error *err);
void mesh_forget(struct mesh *mesh, struct dial *dial); /* a link that it made stays */

/* The way to that node may be free again (NULL: to all): what waits to be dialled is dialled soon,
 * one after another. A dial is hurried at most once in LIMIT_DIAL_HURRY_MS. A link that goes up
 * does the same for all. */
void mesh_hurry(struct mesh *mesh, const uint8_t *node_id);

struct dial_status {
    struct link *link;   /* NULL: none now */
    uint32_t n_failures; /* since the last link */
    struct error last;   /* why the last attempt failed; code ERROR_NONE: none did */
    bool has_node_id;    /* given, or learnt from the first handshake */
    uint8_t node_id[NODE_ID_BYTES];
};
struct dial_status dial_status(const struct dial *dial);

/* The link to a node that is up; NULL: none. */
struct link *mesh_find(struct mesh *mesh, const uint8_t node_id[NODE_ID_BYTES]);
struct link *mesh_next(struct mesh *mesh,
                       struct link *after); /* those that are up, one after another; NULL begins */
