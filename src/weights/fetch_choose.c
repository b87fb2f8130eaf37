/* Who is asked for what next. */
#include "weights/fetch_state.h"

enum {
    STEAL_PERCENT = 150
}; /* another's chunk is asked for twice where it would take so much longer than here */

/* ---- whom to ask ----------------------------------------------------------------------------- */

/* Two chunks, and what the link holds in one round trip: then its sender never waits for us. */
static uint64_t owed_max(const struct fetch *fetch, const struct fetch_peer *peer)
{
    uint64_t chunk = fetch->settings.chunk_bytes;
    if (!peer->is_rate_known || peer->timeouts)
        return chunk;
    double holds = peer->rate * (double)peer->round_trip_ns / 1e9;
    return 2 * chunk + (holds < (double)LIMIT_FETCH_BYTES ? (uint64_t)holds : LIMIT_FETCH_BYTES);
}

static bool fetch_choose_has_room(const struct fetch *fetch, const struct fetch_peer *peer,
                                  uint64_t now_ns)
{
    return fetch_peer_usable(peer) && peer->resume_ns <= now_ns &&
           peer->n_requests < LIMIT_FETCH_REQUESTS_OF_PEER &&
           peer->owed_bytes < owed_max(fetch, peer) && !(peer->timeouts && peer->n_requests);
}

/* ---- which part of it ------------------------------------------------------------------------ */

static bool has_trusted_source(const struct fetch *fetch, uint32_t part)
{
    for (uint32_t i = 0; i < fetch->n_peers; i++) {
        const struct fetch_peer *peer = &fetch->peers[i];
        bool answers = fetch_peer_usable(peer) && !peer->timeouts && !peer->refused;
        if (answers && !peer->notes.is_suspected && part_set_has(&peer->has, part))
            return true;
    }
    return false;
}

/* A part that several have begun is not for those who are suspected, unless only they can end
 * it. */
static bool may_serve(const struct fetch *fetch, uint32_t i, uint32_t peer)
{
    const struct fetch_part *part = &fetch->parts[i];
    if (part->state != PART_OPEN || !part->n_free || !part_set_has(&fetch->peers[peer].has, i))
        return false;
    if (part->is_single)
        return part->owner == FETCH_NOBODY || part->owner == peer;
    return !fetch->peers[peer].notes.is_suspected || part->n_free == part->n_chunks ||
           !has_trusted_source(fetch, i);
}

/* Begun ones first, then the rarest, then in order. n_parts: none. */
static uint32_t choose_part(const struct fetch *fetch, uint32_t peer)
{
    uint32_t best = fetch->manifest->n_parts;
    for (uint32_t i = fetch->first_open; i < fetch->manifest->n_parts; i++) {
        if (!may_serve(fetch, i, peer))
            continue;
        const struct fetch_part *part = &fetch->parts[i];
        if (part->n_free < part->n_chunks)
            return i;
        if (best == fetch->manifest->n_parts || part->n_sources < fetch->parts[best].n_sources)
            best = i;
    }
    return best;
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct fetch_request *free_request(struct fetch *fetch)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        if (fetch->requests[i].state == REQUEST_NONE)
            return &fetch->requests[i];
    }
    return NULL;
}

static void fetch_choose_ask(struct fetch *fetch, uint64_t now_ns, uint32_t peer_index, uint32_t i,
                             uint32_t chunk, struct fetch_action *out)
{
    struct fetch_peer *peer = &fetch->peers[peer_index];
    struct fetch_part *part = &fetch->parts[i];
    struct fetch_request *request = free_request(fetch);
    uint32_t size = fetch_chunk_size(fetch, i, chunk);
    uint64_t expected = fetch_expected_ns(peer, size);
    *request = (struct fetch_request){.state = REQUEST_ASKED,
                                      .id = fetch->next_id++,
                                      .peer = peer_index,
                                      .part = i,
                                      .chunk = chunk,
                                      .size = size,
                                      .asked_ns = now_ns,
                                      .expected_ns = expected,
                                      .late_ns = now_ns + fetch_waiting_ns(peer, expected)};
    if (fetch->chunks[part->first_chunk + chunk] == CHUNK_FREE) {
        fetch->chunks[part->first_chunk + chunk] = CHUNK_ASKED;
        part->n_free--;
    }
    if (peer->notes.is_suspected && part->n_free + 1 == part->n_chunks && !part->senders)
        part->is_single = true;
    part->owner = part->is_single ? peer_index : FETCH_NOBODY;
    peer->owed_bytes += size;
    peer->n_requests++;
    fetch->owed_bytes += size;
    *out = (struct fetch_action){.kind = FETCH_ASK,
                                 .peer = peer_index,
                                 .id = request->id,
                                 .part = i,
                                 .offset = (uint64_t)chunk * fetch->settings.chunk_bytes,
                                 .size = size};
}

static uint32_t first_free_chunk(struct fetch *fetch, uint32_t i)
{
    struct fetch_part *part = &fetch->parts[i];
    assert(part->n_free);
    while (fetch->chunks[part->first_chunk + part->free_hint] != CHUNK_FREE)
        part->free_hint++;
    return part->free_hint;
}

/* The peer with room that brings a chunk first, and what of it. */
static bool choose_fresh(struct fetch *fetch, uint64_t now_ns, struct fetch_action *out)
{
    uint32_t best_peer = FETCH_NOBODY, best_part = 0;
    uint64_t best_ns = UINT64_MAX;
    while (fetch->first_open < fetch->manifest->n_parts &&
           fetch->parts[fetch->first_open].state != PART_OPEN)
        fetch->first_open++;
    for (uint32_t p = 0; p < fetch->n_peers; p++) {
        uint64_t expected = fetch_expected_ns(&fetch->peers[p], fetch->settings.chunk_bytes);
        if (!fetch_choose_has_room(fetch, &fetch->peers[p], now_ns) || expected >= best_ns)
            continue;
        uint32_t part = choose_part(fetch, p);
        if (part == fetch->manifest->n_parts)
            continue;
        best_peer = p;
        best_part = part;
        best_ns = expected;
    }
    if (best_peer == FETCH_NOBODY)
        return false;
    fetch_choose_ask(fetch, now_ns, best_peer, best_part, first_free_chunk(fetch, best_part), out);
    return true;
}

/* ---- at the end: helping those who are late -------------------------------------------------- */

static uint64_t remaining_ns(const struct fetch_request *request, uint64_t now_ns)
{
    uint64_t passed = now_ns - request->asked_ns;
    return passed < request->expected_ns ? request->expected_ns - passed
                                         : passed; /* overdue: who knows; ever more */
}

/* The request of another that would gain most from this idle peer; NULL: none would. */
static const struct fetch_request *choose_late(const struct fetch *fetch, uint32_t peer,
                                               uint64_t now_ns)
{
    const struct fetch_request *best = NULL;
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        const struct fetch_request *request = &fetch->requests[i];
        if (request->state != REQUEST_ASKED || request->peer == peer ||
            fetch->parts[request->part].is_single ||
            !part_set_has(&fetch->peers[peer].has, request->part))
            continue;
        uint64_t here = fetch_expected_ns(&fetch->peers[peer], request->size);
        uint64_t there = remaining_ns(request, now_ns);
        if (there > here / 100 * STEAL_PERCENT && (!best || there > remaining_ns(best, now_ns)) &&
            !fetch_is_asked_twice(fetch, request))
            best = request;
    }
    return best;
}

static bool choose_stolen(struct fetch *fetch, uint64_t now_ns, struct fetch_action *out)
{
    for (uint32_t p = 0; p < fetch->n_peers; p++) {
        const struct fetch_peer *peer = &fetch->peers[p];
        if (!fetch_choose_has_room(fetch, peer, now_ns) || peer->n_requests ||
            peer->notes.is_suspected)
            continue;
        const struct fetch_request *late = choose_late(fetch, p, now_ns);
        if (late) {
            fetch_choose_ask(fetch, now_ns, p, late->part, late->chunk, out);
            return true;
        }
    }
    return false;
}

bool fetch_choose(struct fetch *fetch, uint64_t now_ns, struct fetch_action *out)
{
    if (!free_request(fetch) ||
        (fetch->owed_bytes &&
         fetch->owed_bytes + fetch->settings.chunk_bytes > fetch->settings.bytes_in_flight))
        return false;
    return choose_fresh(fetch, now_ns, out) || choose_stolen(fetch, now_ns, out);
}
