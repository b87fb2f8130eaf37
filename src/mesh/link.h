/* A link: the authenticated, framed, ordered connection to one peer. One control channel (0) and
 * one or more data channels (1 …), each a stream of its own, so that tensors never wait behind
 * control messages, nor control messages behind tensors. mesh.h makes links; TCP or QUIC below
 * makes no difference here.
 *
 * Life: a link is good from the event `up` until the event `down` has returned. It is up when all
 * its channels are; it goes down as a whole. When the mesh dials again, that is another link.
 * Frames on one channel arrive in the order in which they were sent, each once or not at all;
 * between channels there is no order.
 *
 * Threads: everything here, and every event, is on the loop's thread. Events are never raised from
 * within a call of this header. An event may call anything here, also link_close().
 *
 * Back-pressure, sending: each channel has a queue of LIMIT_LINK_QUEUE_BYTES. Where it is full,
 * link_post() and link_send() answer ERROR_BUSY and take nothing; `drained` is raised once when
 * half of it is free. Receiving: link_pause() stops a data channel; what is under way then stays
 * with the sender. Control is never paused: what a node cannot take it must refuse by a message. */
#pragma once

#include "base/limits.h"
#include "mesh/frame.h"
#include "mesh/hello.h"
#include "mesh/stream.h"
#include "topology/link.h"

struct link;

enum { LINK_CONTROL = 0, LINK_DATA = 1, LINK_PIECES_MAX = 6 };

struct link_events {
    void (*up)(void *self, struct link *link);
    /* `why`: ERROR_CANCELLED when either end closed it in order. */
    void (*down)(void *self, struct link *link, const struct error *why);
    /* A frame was begun: where its payload shall go (header->length bytes, good until its event
     * `frame`, or `down`). NULL, or no function: into the channel's own memory. */
    void *(*memory)(void *self, struct link *link, uint32_t channel,
                    const struct frame_header *header);
    /* A whole frame of a type from FRAME_USER on, also one that nobody knows: those are to be
     * ignored. The payload in the channel's own memory is good until this returns. */
    void (*frame)(void *self, struct link *link, uint32_t channel,
                  const struct frame_header *header, const uint8_t *payload);
    void (*drained)(void *self, struct link *link, uint32_t channel);
    /* Nothing was heard for silence_ms (mesh.h), or link_watch() suspects the peer: a hint. Raised
     * once until it is heard again. */
    void (*silent)(void *self, struct link *link);
    void *self;
};

struct link_piece {
    const void *bytes;
    size_t size;
};

/* A frame to be sent from the caller's memory. The request and the pieces must stay until
 * `done`. */
struct link_send {
    uint16_t type, flags;
    uint32_t tag;
    uint32_t n_pieces;
    struct link_piece pieces[LINK_PIECES_MAX];
    /* The memory is free again. ERROR_NONE: all of it is encrypted and on its way, which does not
     * mean received. Else the link went down before. */
    void (*done)(struct link_send *send, enum error_code code);
    void *data;
    /* the link's own */
    struct link_send *next;
    uint64_t size, position; /* of the frame, header included */
    bool is_copy;
};

/* Sends a copy: for small frames. One that fits into a TLS record is encrypted and given to the
 * kernel before this returns, when nothing waits before it. header->length is the payload's size.
 * ERROR_BUSY: the queue is full. ERROR_CANCELLED: the link is closing. ERROR_NO_MEMORY. */
enum error_code link_post(struct link *link, uint32_t channel, const struct frame_header *header,
                          const void *payload, struct error *err);

/* Sends from the caller's memory: for tensors. Errors as above; then `done` is not called. */
enum error_code link_send(struct link *link, uint32_t channel, struct link_send *send,
                          struct error *err);

uint64_t link_queued_bytes(const struct link *link, uint32_t channel);
void link_pause(struct link *link, uint32_t channel); /* a data channel */
void link_resume(struct link *link, uint32_t channel);

/* In order: what is queued is sent, the peer does the same, then it is down (at the latest when
 * nothing has moved for LIMIT_LINK_CLOSE_MS, or after six times that). Nothing more can be sent;
 * frames may still arrive. */
void link_close(struct link *link);

/* At once: what is queued is lost. For a peer that broke the rules, or is no longer a member. */
void link_abort(struct link *link, const struct error *why);

const uint8_t *link_peer(const struct link *link);         /* NODE_ID_BYTES: its node id */
const struct hello *link_hello(const struct link *link);   /* as the peer sent it */
struct link_version link_version(const struct link *link); /* that both may use */
uint32_t link_channels(const struct link *link);           /* control included */
bool link_was_dialled(const struct link *link);            /* by this node */

/* What has been measured from here to there: unknown where nothing was (probe.h). from and to are
 * 0. */
struct topology_link link_measured(const struct link *link);
/* How far the peer's clock_now_ns() is ahead of this machine's, from the quickest of the last few
 * answers: wrong by half of what the two directions differ. False: unknown. */
bool link_clock(const struct link *link, int64_t *ahead_ns);
/* Much depends on the peer: it is pinged every watch_ms (mesh.h), and `silent` is raised as soon as
 * that is suspicious (pulse.h), under a second on a LAN. Where both ends do, 1.3 kB/s in each
 * direction, whatever the link carries. */
void link_watch(struct link *link, bool closely);

struct link_counts {
    uint64_t frames_sent, frames_received;
    uint64_t bytes_sent, bytes_received; /* of frames, headers included; bursts too */
    uint64_t unknown_frames;             /* of the link's own types, from a newer node: dropped */
};
struct link_counts link_counts(const struct link *link);

void link_set_data(struct link *link, void *data);
void *link_data(const struct link *link);
