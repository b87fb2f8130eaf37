/* Vitals between nodes (vitals/vitals.h): this node's to the leader and to whoever watches, and
 * those of others here.
 *
 * The leader is told every 2 s what has changed; who watches (FRAME_WATCH, renewed every 2 s, good
 * for 6 s) twice a second, within 50 ms of its sample; nobody else anything. So what is
 * known of a node is right while this node leads or watches. A watcher that has died costs its
 * lease.
 *
 * On the loop's thread. */
#pragma once

#include "base/live_feed.h"
#include "mesh/mesh.h"
#include "vitals/vitals.h"

struct daemon;
struct peer;
struct telling;

enum {
    TELL_WATCHER_MS = 450, /* between two tellings of what has changed, to who watches … */
    TELL_LEADER_MS = 1900, /* … and to the leader */
    TELL_LATE_MS = 1000,   /* that it waits for a message of the log to go along with */
    TELL_LOOK_MS = 50,     /* while somebody watches: for a new sample */
    WATCH_LEASE_MS = 6000,
    WATCH_RENEW_MS = 2000,
};

/* Of a peer; owned by it. */
struct told_peer {
    /* what it knows of this node; NULL: nothing */
    struct vitals *told;
    uint64_t told_work; /* a hash */
    uint64_t told_ms, watches_until_ms;
    bool wants_anew;
    /* what this node knows of it; NULL: nothing */
    struct vitals *heard;
    Node__Work *work;
};
void told_peer_clear(struct told_peer *peer); /* its link is another, or it goes */

enum error_code telling_open(struct daemon *daemon, struct telling **out, struct error *err);
void telling_close(struct telling *telling, void (*closed)(struct daemon *daemon));

/* A message of the log goes to that member: where it leads, what it is to be told goes along, so
 * that it costs no packet and no acknowledgement of its own. */
void telling_along(struct daemon *daemon, uint64_t member, struct peer *peer);

/* With every NOW: the leader is told what had no message to go along with. */
void telling_tick(struct daemon *daemon);

/* This node watches all others: while `until` it calls telling_ask() every turn. */
void telling_begin(struct daemon *daemon);
void telling_ask(struct daemon *daemon);
void telling_end(struct daemon *daemon);

/* A node's, this one's too; NULL: not known (now). */
const struct vitals *telling_vitals(const struct daemon *daemon, const char *node);
const Node__Work *telling_work(const struct daemon *daemon, const char *node);
/* What the node with an instance's driver tells of it; NULL: nothing (yet, or an older version). */
const Node__Driving *telling_driving(const struct daemon *daemon,
                                     const Cluster__Instance *instance);

/* FRAME_VITALS, FRAME_WATCH. */
enum error_code telling_take(struct daemon *daemon, struct peer *peer,
                             const struct frame_header *header, const uint8_t *payload,
                             struct error *err);
