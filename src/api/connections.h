/* The connections of the API: how many there are, whose, and which is closed when there is no room
 * for the next. Pure; nothing here closes anything.
 *
 * A connection waits for its client (for a request's head or body, or for an answer to be taken)
 * or it is busy: a request is being worked on. Only one that waits is closed to make room, and of
 * those the one that has waited longest; so who connects and says nothing makes room for who does.
 * One client's connections are a bounded share, and beyond it a client makes room for itself.
 *
 * Lifetime: the table is the caller's memory, zeroed and given its limits; a connection is the
 * caller's from connections_add() to connections_remove(). */
#pragma once

#include "api/client.h"
#include "api/sessions.h"

#include <stdbool.h>
#include <stdint.h>

struct exchange;
struct greeter;
struct lws;
struct rpc_connection;

enum { CONNECTION_ADDRESS_MAX = 64 };

struct connection {
    struct connection *next, *before;
    struct api_client client;
    bool busy;
    uint64_t head_by_ns; /* it is closed unless it has sent a request's head by then; 0: it has */
    struct lws *wsi;     /* NULL: not adopted yet, or never */
    enum { CONNECTION_NEW, CONNECTION_UNBORN, CONNECTION_OVER } unadopted; /* where there is none */
    struct exchange *exchange;                                             /* NULL: between two */
    struct greeter *greeter;    /* it is not known yet what it speaks … */
    struct rpc_connection *rpc; /* … or it speaks gRPC; else both are NULL */
    bool is_inner;              /* a call's, within this process (rpc_way.h) */
    bool is_batch;              /* a line's of a batch (batches.h), inner as well … */
    bool acts_for_token;        /* … and on behalf of a token that is not shown */
    struct browser_session acts_for;
    char arrived[CONNECTION_ADDRESS_MAX]; /* of the last two: at which address it came in */
};

struct connections {
    struct connection *first, *last; /* who has waited longest comes first */
    uint32_t n, n_max;
    uint32_t client_max; /* of one client */
};

enum connections_room {
    CONNECTIONS_ROOM,
    CONNECTIONS_CLOSE_ONE,   /* there will be room when *victim is closed */
    CONNECTIONS_CLIENT_BUSY, /* the client's share is busy: refuse it */
    CONNECTIONS_BUSY,        /* all are busy: wait until one is not */
};

/* How many there may be, of a process that may have so many descriptors: at most half of them, the
 * rest is for links, devices' processes and files; and of one client at most three quarters of
 * these. */
void connections_init(struct connections *connections, uint64_t n_max, uint64_t client_max,
                      uint32_t descriptors);
/* Whether there is room for one more of this client. */
enum connections_room connections_room_for(const struct connections *connections,
                                           const struct api_client *client,
                                           struct connection **victim);
/* The one that has waited longest; NULL: none waits. */
struct connection *connections_oldest(const struct connections *connections);
/* One that has not sent its first request in time; NULL: none. */
struct connection *connections_overdue(const struct connections *connections, uint64_t now_ns);

/* Whether one has been accepted and has not sent its first request. */
bool connections_has_new(const struct connections *connections);

void connections_add(struct connections *connections, struct connection *connection);
void connections_remove(struct connections *connections, struct connection *connection);
/* From now on it is busy, or waits anew. */
void connections_set_busy(struct connections *connections, struct connection *connection,
                          bool busy);
