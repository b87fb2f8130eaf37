/* Private to fetch.c, fetch_peers.c and fetch_choose.c.
 *
 * Invariants: a chunk is ASKED exactly while a request for it is under way (at most two), and GOT
 * when one was answered. A single part's chunks come from its owner only. Peers that are out or
 * away have no requests. */
#pragma once

#include "base/limits.h"
#include "weights/fetch.h"

#define FETCH_NOBODY UINT32_MAX
enum { FETCH_PAUSE_MS = 1000 };

enum fetch_part_state { PART_UNWANTED, PART_OPEN, PART_CHECKING, PART_DONE };
enum fetch_chunk_state { CHUNK_FREE, CHUNK_ASKED, CHUNK_GOT };

struct fetch_part {
    enum fetch_part_state state;
    bool is_single;    /* of one peer only */
    bool is_announced; /* CHECKING: fetch_next() has said so */
    uint32_t owner;    /* single: FETCH_NOBODY until one is asked */
    uint32_t n_sources;
    uint32_t n_chunks, n_free, n_got;
    uint32_t free_hint; /* no chunk before it is free */
    size_t first_chunk; /* in fetch.chunks */
    uint64_t senders;   /* a bit a peer: it sent some of what is there */
    uint64_t got_bytes;
};

struct fetch_peer {
    bool is_here;
    struct part_set has;
    struct fetch_peer_notes notes;
    double rate; /* bytes/s */
    bool is_rate_known;
    uint64_t round_trip_ns;
    uint64_t owed_bytes;
    uint32_t n_requests;
    uint32_t timeouts, refused; /* in a row; refused: for now */
    uint32_t losses;            /* parts that were its alone and begun anew for it */
    uint64_t resume_ns;         /* not asked before */
    uint64_t arrived_ns;        /* the last chunk */
};

enum fetch_request_state { REQUEST_NONE, REQUEST_ASKED, REQUEST_CANCELLED };

struct fetch_request {
    enum fetch_request_state state;
    uint32_t id, peer, part, chunk, size;
    uint64_t asked_ns, expected_ns,
        late_ns; /* expected: how long it should take; late: when it is given up */
};

struct fetch {
    const struct manifest *manifest;
    struct fetch_settings settings;
    struct fetch_part *parts;
    uint8_t *chunks; /* enum fetch_chunk_state */
    struct fetch_peer peers[LIMIT_FETCH_PEERS];
    struct fetch_request requests[LIMIT_FETCH_REQUESTS];
    uint32_t n_peers, n_checking, next_id;
    uint64_t owed_bytes; /* by all peers */
    uint64_t moved_ns;   /* something arrived, was verified, or a peer came */
    uint32_t first_open; /* no part before it is open */
    struct fetch_progress progress;
    enum fetch_status status;
    struct error err;
};

static inline bool fetch_peer_usable(const struct fetch_peer *peer)
{
    return peer->is_here && !peer->notes.is_out;
}

uint32_t fetch_chunk_size(const struct fetch *fetch, uint32_t part, uint32_t chunk);

/* How long the peer should take for so many bytes more. */
uint64_t fetch_expected_ns(const struct fetch_peer *peer, uint64_t bytes);
/* How long is waited for it. */
uint64_t fetch_waiting_ns(const struct fetch_peer *peer, uint64_t expected_ns);

/* Another request for the same chunk is under way. */
bool fetch_is_asked_twice(const struct fetch *fetch, const struct fetch_request *request);

/* The request is no more; its chunk is free again unless another is under way for it. `tell`: the
 * peer is told. */
void fetch_request_end(struct fetch *fetch, struct fetch_request *request, bool tell);
/* All that the peer owes. Single parts of it begin anew. */
void fetch_peer_release(struct fetch *fetch, uint32_t peer, bool tell);
/* A peer answers in order, so one late answer means that it is silent: all that it owes is asked
 * elsewhere. */
void fetch_peer_late(struct fetch *fetch, uint32_t peer, uint64_t now_ns);
void fetch_peer_out(struct fetch *fetch, uint32_t peer);
/* Nothing of the part counts any more. */
void fetch_part_reset(struct fetch *fetch, uint32_t part);
/* That peer does not have the part any more. If it was its alone, it is begun anew, by whoever has
 * it; who does that too often is asked no more. */
void fetch_part_lacks(struct fetch *fetch, uint32_t peer, uint32_t part);
void fetch_count_sources(struct fetch *fetch);

/* Chooses the next request and registers it; false: none. */
bool fetch_choose(struct fetch *fetch, uint64_t now_ns, struct fetch_action *out);
