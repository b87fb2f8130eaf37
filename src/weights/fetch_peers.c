/* Peers: what they have, how fast they are, and what becomes of what they owe. */
#include "weights/fetch_state.h"

#include <math.h>
#include <string.h>

enum {
    ROUND_TRIP_UNKNOWN_MS = 20,
    WAIT_FLOOR_MS = 2000,
    WAIT_UNKNOWN_MS = 15000,
    WAIT_MAX_MS = 60000,
    WAIT_FACTOR = 4, /* a rate may fall to a quarter of the estimate */
    LOSSES_MAX = 8,  /* parts that were its alone and that it did not end: else it could begin them
                        for ever */
};

static const double RATE_UNKNOWN = 10e6, RATE_MIN = 1000; /* bytes/s */

/* ---- estimates ------------------------------------------------------------------------------- */

static void fetch_peers_read_link(struct fetch_peer *peer, const struct topology_link *link)
{
    struct topology_link clean = topology_link_clean(*link);
    struct reading rate = topology_link_bandwidth(&clean);
    peer->is_rate_known = rate.valid;
    peer->rate = rate.valid ? fmax(rate.value, RATE_MIN) : RATE_UNKNOWN;
    peer->round_trip_ns = clean.latency_ns.valid ? 2 * reading_whole(clean.latency_ns)
                                                 : ROUND_TRIP_UNKNOWN_MS * 1000000ull;
}

uint64_t fetch_expected_ns(const struct fetch_peer *peer, uint64_t bytes)
{
    return peer->round_trip_ns + (uint64_t)((double)(peer->owed_bytes + bytes) / peer->rate * 1e9);
}

uint64_t fetch_waiting_ns(const struct fetch_peer *peer, uint64_t expected_ns)
{
    uint64_t wait = WAIT_FLOOR_MS * 1000000ull + WAIT_FACTOR * expected_ns;
    if (!peer->is_rate_known && wait < WAIT_UNKNOWN_MS * 1000000ull)
        wait = WAIT_UNKNOWN_MS * 1000000ull;
    return wait < WAIT_MAX_MS * 1000000ull ? wait : WAIT_MAX_MS * 1000000ull;
}

/* ---- coming and going ------------------------------------------------------------------------ */

void fetch_count_sources(struct fetch *fetch)
{
    for (uint32_t i = 0; i < fetch->manifest->n_parts; i++) {
        fetch->parts[i].n_sources = 0;
        for (uint32_t p = 0; p < fetch->n_peers; p++)
            fetch->parts[i].n_sources +=
                fetch_peer_usable(&fetch->peers[p]) && part_set_has(&fetch->peers[p].has, i);
    }
}

static void copy_set(struct part_set *to, const struct part_set *from)
{
    for (uint32_t i = 0; i < to->n_parts; i++) {
        if (part_set_has(from, i))
            part_set_add(to, i);
        else
            part_set_remove(to, i);
    }
}

enum error_code fetch_peer_add(struct fetch *fetch, uint64_t now_ns,
                               const struct topology_link *link, const struct part_set *has,
                               uint32_t *peer, struct error *err)
{
    if (fetch->n_peers == LIMIT_FETCH_PEERS)
        return error_set(err, ERROR_BUSY, "a fetch can ask at most %d nodes", LIMIT_FETCH_PEERS);
    struct fetch_peer *new = &fetch->peers[fetch->n_peers];
    enum error_code code = part_set_init(&new->has, fetch->manifest->n_parts, err);
    if (code)
        return code;
    *peer = fetch->n_peers++;
    new->is_here = true;
    fetch_peers_read_link(new, link);
    fetch_peer_has(fetch, now_ns, *peer, has);
    return ERROR_NONE;
}

void fetch_peer_has(struct fetch *fetch, uint64_t now_ns, uint32_t peer, const struct part_set *has)
{
    copy_set(&fetch->peers[peer].has, has);
    fetch->moved_ns = now_ns;
    for (uint32_t i = 0; i < fetch->manifest->n_parts; i++) {
        if (!part_set_has(has, i))
            fetch_part_lacks(fetch, peer, i);
    }
    fetch_count_sources(fetch);
}

void fetch_peer_gone(struct fetch *fetch, uint64_t now_ns, uint32_t peer)
{
    (void)now_ns;
    fetch_peer_release(fetch, peer, false);
    fetch->peers[peer].is_here = false;
    fetch_count_sources(fetch);
}

void fetch_peer_back(struct fetch *fetch, uint64_t now_ns, uint32_t peer,
                     const struct topology_link *link)
{
    struct fetch_peer *back = &fetch->peers[peer];
    back->is_here = true;
    back->timeouts = 0;
    back->resume_ns = 0;
    back->notes.is_out = back->notes.has_lied || back->losses > LOSSES_MAX;
    fetch_peers_read_link(back, link);
    fetch->moved_ns = now_ns;
    fetch_count_sources(fetch);
}

void fetch_peer_out(struct fetch *fetch, uint32_t peer)
{
    fetch_peer_release(fetch, peer, true);
    fetch->peers[peer].notes.is_out = true;
    fetch_count_sources(fetch);
}

struct fetch_peer_notes fetch_peer_notes(const struct fetch *fetch, uint32_t peer)
{
    assert(peer < fetch->n_peers);
    return fetch->peers[peer].notes;
}

/* ---- what they owe --------------------------------------------------------------------------- */

bool fetch_is_asked_twice(const struct fetch *fetch, const struct fetch_request *request)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        const struct fetch_request *other = &fetch->requests[i];
        if (other != request && other->state == REQUEST_ASKED && other->part == request->part &&
            other->chunk == request->chunk)
            return true;
    }
    return false;
}

void fetch_request_end(struct fetch *fetch, struct fetch_request *request, bool tell)
{
    struct fetch_peer *peer = &fetch->peers[request->peer];
    struct fetch_part *part = &fetch->parts[request->part];
    uint8_t *chunk = &fetch->chunks[part->first_chunk + request->chunk];
    assert(request->state == REQUEST_ASKED && peer->n_requests &&
           peer->owed_bytes >= request->size);
    peer->owed_bytes -= request->size;
    peer->n_requests--;
    fetch->owed_bytes -= request->size;
    if (*chunk == CHUNK_ASKED && !fetch_is_asked_twice(fetch, request)) {
        *chunk = CHUNK_FREE;
        part->n_free++;
        part->free_hint = request->chunk < part->free_hint ? request->chunk : part->free_hint;
    }
    request->state = tell ? REQUEST_CANCELLED : REQUEST_NONE;
}

void fetch_part_reset(struct fetch *fetch, uint32_t i)
{
    struct fetch_part *part = &fetch->parts[i];
    for (uint32_t r = 0; r < LIMIT_FETCH_REQUESTS; r++) {
        if (fetch->requests[r].state == REQUEST_ASKED && fetch->requests[r].part == i)
            fetch_request_end(fetch, &fetch->requests[r], true);
    }
    memset(fetch->chunks + part->first_chunk, CHUNK_FREE, part->n_chunks);
    fetch->progress.received_bytes -= part->got_bytes;
    part->got_bytes = 0;
    part->senders = 0;
    part->n_free = part->n_chunks;
    part->n_got = part->free_hint = 0;
    part->owner = FETCH_NOBODY;
    part->state = PART_OPEN;
    part->is_announced = false;
    fetch->first_open = i < fetch->first_open ? i : fetch->first_open;
}

void fetch_part_lacks(struct fetch *fetch, uint32_t peer, uint32_t i)
{
    const struct fetch_part *part = &fetch->parts[i];
    if (part->state != PART_OPEN || !part->is_single || part->owner != peer)
        return;
    fetch->peers[peer].losses += part->got_bytes != 0;
    fetch_part_reset(fetch, i);
    if (fetch->peers[peer].losses > LOSSES_MAX)
        fetch_peer_out(fetch, peer);
}

void fetch_peer_release(struct fetch *fetch, uint32_t peer, bool tell)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        struct fetch_request *request = &fetch->requests[i];
        if (request->peer != peer)
            continue;
        if (request->state == REQUEST_ASKED)
            fetch_request_end(fetch, request, tell);
        else if (!tell)
            request->state = REQUEST_NONE;
    }
    for (uint32_t i = 0; i < fetch->manifest->n_parts; i++) {
        struct fetch_part *part = &fetch->parts[i];
        if (part->state == PART_OPEN && part->is_single && part->owner == peer) {
            fetch->peers[peer].losses += part->got_bytes != 0;
            fetch_part_reset(fetch, i);
        }
    }
}

void fetch_peer_late(struct fetch *fetch, uint32_t i, uint64_t now_ns)
{
    struct fetch_peer *peer = &fetch->peers[i];
    fetch_peer_release(fetch, i, true);
    peer->rate = peer->rate / 2 < RATE_MIN ? RATE_MIN : peer->rate / 2;
    peer->timeouts++;
    peer->refused = 0;
    peer->notes.n_timeouts++;
    peer->resume_ns = now_ns + (FETCH_PAUSE_MS * 1000000ull << peer->timeouts);
    if (peer->timeouts >= LIMIT_FETCH_TIMEOUTS || peer->losses > LOSSES_MAX)
        fetch_peer_out(fetch, i);
}
