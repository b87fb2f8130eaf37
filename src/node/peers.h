/* The members that this node has heard of, and the links to them. daemon_links.c tells them what
 * they must know and hears what they say. On the loop's thread. */
#pragma once

#include "base/error.h"
#include "mesh/mesh.h"
#include "node/link_usual.h"
#include "node/telling.h"
#include "trust/identity.h"

#include "node.pb-c.h"

struct daemon;

enum {
    GONE_MS =
        400, /* a link that broke is back after 100 to 200 ms, or its node is taken to be lost */
    THROUGH_MS = 1000,  /* that a node is missed before others are asked to hand on to it */
    NEW_LINK_MS = 2000, /* between two events of a link whose bandwidth is not known yet … */
    MEASURE_MS = 60000, /* … and of one where it is */
};

/* A member that this node has heard of, itself excluded. */
struct peer {
    struct peer *next;
    uint8_t node_id[NODE_ID_BYTES];
    char id[NODE_ID_TEXT];
    struct link *link; /* NULL: none that is up */
    uint32_t n_links;  /* up and not down yet: for a moment there may be two */
    bool is_silent;
    uint64_t heard_ms, up_ms;
    uint64_t silent_ms; /* when it was found to be silent, last */
    uint64_t
        down_ms; /* its last link ended then, and no other came; 0: there is one, or never was */
    Cluster__Node *about;    /* what it says of itself; NULL: nothing yet */
    Node__Now *now;          /* the same */
    uint64_t proposed_ms;    /* its record for the state, last */
    uint64_t told_ms;        /* when it was told of what changes all the time, last … */
    uint64_t told_now;       /* … and a hash of that */
    uint64_t signed_ms;      /* when something was signed for it, last */
    uint64_t measured_ms;    /* when the link to it was last worth an event; 0: never */
    bool has_clock;          /* it has told the time … */
    int64_t clock_off_ms;    /* … which was so much ahead of this node's when it came */
    struct link_usual usual; /* of the link to it */
    struct told_peer told;   /* readings, both ways (telling.h) */
};

struct peer *daemon_peer(const struct daemon *daemon, const char *id); /* NULL: unknown */
/* Made where it is not known yet. NULL: no memory. */
struct peer *daemon_peer_of_link(struct daemon *daemon, const struct link *link);
/* Nodes that are no members any more are forgotten, and the links to them cut. */
void daemon_drop_strangers(struct daemon *daemon);
void daemon_free_peers(struct daemon *daemon);

/* The member id that it says is its; 0: none that it may. */
uint64_t daemon_member_of_peer(const struct daemon *daemon, const struct peer *peer);
bool daemon_has_link(const struct daemon *daemon); /* to anybody */
bool daemon_is_linked(void *self, const uint8_t node_id[NODE_ID_BYTES]);
uint64_t daemon_link_bytes_per_s(void *self,
                                 const uint8_t node_id[NODE_ID_BYTES]); /* 0: not measured */
/* Its last link broke, and has had the time to come back. */
bool daemon_is_gone(const struct daemon *daemon, const struct peer *peer);
/* It has said that it is being stopped, and was not heard to start again. NULL: false. */
bool daemon_was_stopped(const struct peer *peer);
/* Another node that reaches one which this one does not hear (relay.h), each time the next of them,
 * so that one that is of no use does not stand in the way of the others. out NULL: is there one? */
bool daemon_find_detour(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out);

void daemon_watch(struct daemon *daemon); /* who is to be noticed soon when it goes */
/* Now and then: proposes what was measured on this node's links. */
void daemon_measure_links(struct daemon *daemon);
