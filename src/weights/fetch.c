/* Events, time, and the end. Peers are in fetch_peers.c, choices in fetch_choose.c. */
#include "weights/fetch.h"

#include "base/mem.h"
#include "weights/fetch_state.h"

#include <string.h>

enum { LOOK_MS = 20, RATE_SAMPLE_BYTES = 16 * 1024 };

uint32_t fetch_chunk_size(const struct fetch *fetch, uint32_t part, uint32_t chunk)
{
    uint64_t left =
        fetch->manifest->parts[part].size - (uint64_t)chunk * fetch->settings.chunk_bytes;
    return left < fetch->settings.chunk_bytes ? (uint32_t)left : fetch->settings.chunk_bytes;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static size_t cut_into_chunks(struct fetch *fetch, const struct part_set *wanted)
{
    size_t n_chunks = 0;
    for (uint32_t i = 0; i < fetch->manifest->n_parts; i++) {
        struct fetch_part *part = &fetch->parts[i];
        uint64_t size = fetch->manifest->parts[i].size;
        if (!part_set_has(wanted, i))
            continue;
        part->state = PART_OPEN;
        part->owner = FETCH_NOBODY;
        part->first_chunk = n_chunks;
        part->n_chunks = part->n_free = (uint32_t)((size - 1) / fetch->settings.chunk_bytes + 1);
        n_chunks += part->n_chunks;
        fetch->progress.n_wanted++;
        fetch->progress.wanted_bytes += size;
    }
    return n_chunks;
}

enum error_code fetch_new(const struct manifest *manifest, const struct part_set *wanted,
                          const struct fetch_settings *settings, uint64_t now_ns,
                          struct fetch **out, struct error *err)
{
    *out = NULL;
    struct fetch *fetch = mem_new(sizeof *fetch);
    if (!fetch)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    fetch->manifest = manifest;
    fetch->moved_ns = now_ns;
    fetch->settings = settings ? *settings : (struct fetch_settings){0};
    struct fetch_settings *s = &fetch->settings;
    if (!s->chunk_bytes || s->chunk_bytes > LIMIT_FETCH_CHUNK_BYTES)
        s->chunk_bytes = LIMIT_FETCH_CHUNK_BYTES;
    if (!s->bytes_in_flight || s->bytes_in_flight > LIMIT_FETCH_BYTES)
        s->bytes_in_flight = LIMIT_FETCH_BYTES;
    s->patience_ns = s->patience_ns ? s->patience_ns : LIMIT_FETCH_PATIENCE_MS * 1000000ull;
    fetch->parts = mem_new_array(manifest->n_parts, sizeof *fetch->parts);
    if (fetch->parts)
        fetch->chunks = mem_new(cut_into_chunks(fetch, wanted) + 1);
    if (!fetch->chunks) {
        fetch_free(fetch);
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    }
    fetch->status = fetch->progress.n_wanted ? FETCH_RUNNING : FETCH_DONE;
    *out = fetch;
    return ERROR_NONE;
}

void fetch_free(struct fetch *fetch)
{
    if (!fetch)
        return;
    for (uint32_t i = 0; i < fetch->n_peers; i++)
        part_set_deinit(&fetch->peers[i].has);
    mem_free(fetch->chunks);
    mem_free(fetch->parts);
    mem_free(fetch);
}

void fetch_hurry(struct fetch *fetch, uint64_t bytes_in_flight)
{
    const bool most = !bytes_in_flight || bytes_in_flight > LIMIT_FETCH_BYTES;
    fetch->settings.bytes_in_flight = most ? LIMIT_FETCH_BYTES : bytes_in_flight;
}

enum fetch_status fetch_status(const struct fetch *fetch, struct error *err)
{
    if (fetch->status == FETCH_FAILED && err)
        *err = fetch->err;
    return fetch->status;
}

struct fetch_progress fetch_progress(const struct fetch *fetch)
{
    return fetch->progress;
}

/* ---- answers --------------------------------------------------------------------------------- */

static struct fetch_request *find_request(struct fetch *fetch, uint32_t peer, uint32_t id)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        struct fetch_request *request = &fetch->requests[i];
        if (request->state == REQUEST_ASKED && request->id == id && request->peer == peer)
            return request;
    }
    return NULL;
}

static void fetch_measure(struct fetch_peer *peer, const struct fetch_request *request,
                          uint64_t now_ns)
{
    bool had_to_wait = peer->arrived_ns >
                       request->asked_ns; /* behind another chunk: then no round trip is in it */
    uint64_t since = had_to_wait ? peer->arrived_ns : request->asked_ns;
    uint64_t took = now_ns > since ? now_ns - since : 1;
    if (!had_to_wait)
        took = took > 2 * peer->round_trip_ns ? took - peer->round_trip_ns : took / 2 + 1;
    peer->arrived_ns = now_ns;
    if (request->size < RATE_SAMPLE_BYTES)
        return;
    double rate = (double)request->size / ((double)took / 1e9);
    peer->rate = peer->is_rate_known ? peer->rate + (rate - peer->rate) / 4 : rate;
    peer->rate = peer->rate < 1000 ? 1000 : peer->rate;
    peer->is_rate_known = true;
}

/* It answers: what else it owes may come later than was thought when it was asked. */
static void wait_anew(struct fetch *fetch, uint32_t peer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        struct fetch_request *request = &fetch->requests[i];
        if (request->state != REQUEST_ASKED || request->peer != peer)
            continue;
        uint64_t late = now_ns + fetch_waiting_ns(&fetch->peers[peer],
                                                  fetch_expected_ns(&fetch->peers[peer], 0));
        request->late_ns = late > request->late_ns ? late : request->late_ns;
    }
}

static void cancel_twins(struct fetch *fetch, uint32_t part, uint32_t chunk)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        struct fetch_request *request = &fetch->requests[i];
        if (request->state == REQUEST_ASKED && request->part == part && request->chunk == chunk)
            fetch_request_end(fetch, request, true);
    }
}

enum fetch_take fetch_chunk(struct fetch *fetch, uint64_t now_ns, uint32_t peer_index, uint32_t id,
                            uint64_t size, struct fetch_action *where)
{
    struct fetch_request *request = find_request(fetch, peer_index, id);
    if (!request)
        return FETCH_IGNORE;
    struct fetch_peer *peer = &fetch->peers[peer_index];
    if (size != request->size) {
        peer->notes.has_lied = true;
        fetch_peer_out(fetch, peer_index);
        return FETCH_BAD;
    }
    struct fetch_request done = *request;
    struct fetch_part *part = &fetch->parts[done.part];
    *where = (struct fetch_action){.part = done.part,
                                   .peer = peer_index,
                                   .id = id,
                                   .offset = (uint64_t)done.chunk * fetch->settings.chunk_bytes,
                                   .size = done.size};
    assert(fetch->chunks[part->first_chunk + done.chunk] == CHUNK_ASKED);
    fetch->chunks[part->first_chunk + done.chunk] = CHUNK_GOT;
    fetch_request_end(fetch, request, false);
    cancel_twins(fetch, done.part, done.chunk);
    fetch_measure(peer, &done, now_ns);
    wait_anew(fetch, peer_index, now_ns);
    peer->timeouts = peer->refused = 0;
    peer->notes.bytes += done.size;
    part->senders |= UINT64_C(1) << peer_index;
    part->got_bytes += done.size;
    fetch->progress.received_bytes += done.size;
    fetch->moved_ns = now_ns;
    if (++part->n_got == part->n_chunks) {
        part->state = PART_CHECKING;
        fetch->n_checking++;
    }
    return FETCH_WRITE;
}

void fetch_refused(struct fetch *fetch, uint64_t now_ns, uint32_t peer_index, uint32_t id,
                   bool lacks)
{
    struct fetch_request *request = find_request(fetch, peer_index, id);
    if (!request)
        return;
    struct fetch_peer *peer = &fetch->peers[peer_index];
    uint32_t part = request->part;
    peer->notes.n_refusals++;
    fetch_request_end(fetch, request, false);
    if (!lacks) {
        peer->resume_ns = now_ns + FETCH_PAUSE_MS * 1000000ull;
        if (++peer->refused >= LIMIT_FETCH_TIMEOUTS)
            fetch_peer_late(fetch, peer_index, now_ns);
        return;
    }
    if (part_set_has(&peer->has, part)) {
        part_set_remove(&peer->has, part);
        fetch->parts[part].n_sources--;
    }
    fetch_part_lacks(fetch, peer_index, part);
}

/* Those who sent the part: one is the liar; of several nobody knows which. */
static void fetch_blame(struct fetch *fetch, uint64_t senders)
{
    bool is_one = (senders & (senders - 1)) == 0;
    for (uint32_t i = 0; i < fetch->n_peers; i++) {
        if (!(senders >> i & 1))
            continue;
        fetch->peers[i].notes.is_suspected = true;
        if (is_one) {
            fetch->peers[i].notes.has_lied = true;
            fetch_peer_out(fetch, i);
        }
    }
}

void fetch_verified(struct fetch *fetch, uint64_t now_ns, uint32_t i, bool is_good)
{
    struct fetch_part *part = &fetch->parts[i];
    assert(i < fetch->manifest->n_parts && part->state == PART_CHECKING && fetch->n_checking);
    fetch->n_checking--;
    fetch->moved_ns = now_ns;
    if (is_good) {
        part->state = PART_DONE;
        fetch->progress.n_verified++;
        fetch->progress.verified_bytes += part->got_bytes;
        if (fetch->progress.n_verified == fetch->progress.n_wanted)
            fetch->status = FETCH_DONE;
        return;
    }
    uint64_t senders = part->senders;
    fetch_part_reset(fetch, i);
    part->is_single = true;
    fetch_blame(fetch, senders);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void end_late_requests(struct fetch *fetch, uint64_t now_ns)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        if (fetch->requests[i].state == REQUEST_ASKED && fetch->requests[i].late_ns <= now_ns)
            fetch_peer_late(fetch, fetch->requests[i].peer, now_ns);
    }
}

/* The first part that cannot be had; n_parts: all have a source. */
static uint32_t part_without_source(const struct fetch *fetch)
{
    for (uint32_t i = fetch->first_open; i < fetch->manifest->n_parts; i++) {
        if (fetch->parts[i].state == PART_OPEN && !fetch->parts[i].n_sources)
            return i;
    }
    return fetch->manifest->n_parts;
}

static const char *part_name(const struct fetch *fetch, uint32_t part)
{
    const char *name = fetch->manifest->parts[part].name;
    return name[0] ? name : "the model's header";
}

static void fetch_fail(struct fetch *fetch, uint32_t missing)
{
    uint32_t lied = 0, silent = 0, away = 0;
    for (uint32_t i = 0; i < fetch->n_peers; i++) {
        const struct fetch_peer *peer = &fetch->peers[i];
        if (peer->notes.has_lied)
            lied++;
        else if (peer->notes.is_out || peer->timeouts)
            silent++;
        else if (!peer->is_here)
            away++;
    }
    fetch->status = FETCH_FAILED;
    if (missing < fetch->manifest->n_parts)
        error_set(&fetch->err, ERROR_NOT_FOUND,
                  "%s: no node has it (of %u nodes asked, %u sent wrong bytes, %u did not answer, "
                  "%u left)",
                  part_name(fetch, missing), fetch->n_peers, lied, silent, away);
    else
        error_set(&fetch->err, ERROR_IO,
                  "nothing arrived for %llu s (of %u nodes, %u did not answer, %u sent wrong "
                  "bytes, %u left)",
                  (unsigned long long)(fetch->settings.patience_ns / 1000000000u), fetch->n_peers,
                  silent, lied, away);
}

static uint64_t patience_end(const struct fetch *fetch)
{
    bool hopeless = !fetch->owed_bytes && part_without_source(fetch) < fetch->manifest->n_parts;
    return fetch->moved_ns + fetch->settings.patience_ns / (hopeless ? 6 : 1);
}

static bool next_cancel(struct fetch *fetch, struct fetch_action *out)
{
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        struct fetch_request *request = &fetch->requests[i];
        if (request->state != REQUEST_CANCELLED)
            continue;
        request->state = REQUEST_NONE;
        *out = (struct fetch_action){
            .kind = FETCH_CANCEL, .peer = request->peer, .id = request->id, .part = request->part};
        return true;
    }
    return false;
}

static bool next_verify(struct fetch *fetch, struct fetch_action *out)
{
    for (uint32_t i = 0; fetch->n_checking && i < fetch->manifest->n_parts; i++) {
        if (fetch->parts[i].state == PART_CHECKING && !fetch->parts[i].is_announced) {
            fetch->parts[i].is_announced = true;
            *out = (struct fetch_action){.kind = FETCH_VERIFY, .part = i};
            return true;
        }
    }
    return false;
}

struct fetch_action fetch_next(struct fetch *fetch, uint64_t now_ns)
{
    struct fetch_action action = {0};
    if (fetch->status == FETCH_RUNNING) {
        end_late_requests(fetch, now_ns);
        if (!fetch->n_checking && now_ns >= patience_end(fetch)) {
            fetch_fail(fetch, part_without_source(fetch));
            for (uint32_t i = 0; i < fetch->n_peers; i++)
                fetch_peer_release(fetch, i, true);
        }
    }
    if (next_cancel(fetch, &action) || fetch->status != FETCH_RUNNING)
        return action;
    if (!next_verify(fetch, &action))
        fetch_choose(fetch, now_ns, &action);
    return action;
}

uint64_t fetch_wake_ns(const struct fetch *fetch, uint64_t now_ns)
{
    if (fetch->status != FETCH_RUNNING)
        return UINT64_MAX;
    uint64_t wake = fetch->n_checking ? UINT64_MAX : patience_end(fetch);
    for (uint32_t i = 0; i < LIMIT_FETCH_REQUESTS; i++) {
        if (fetch->requests[i].state == REQUEST_ASKED && fetch->requests[i].late_ns < wake)
            wake = fetch->requests[i].late_ns;
    }
    for (uint32_t i = 0; i < fetch->n_peers; i++) {
        const struct fetch_peer *peer = &fetch->peers[i];
        if (!fetch_peer_usable(peer))
            continue;
        if (peer->resume_ns > now_ns && peer->resume_ns < wake)
            wake = peer->resume_ns;
        if (!peer->n_requests && fetch->owed_bytes && now_ns + LOOK_MS * 1000000ull < wake)
            wake = now_ns + LOOK_MS * 1000000ull; /* it may have to help somebody who is late */
    }
    return wake;
}
