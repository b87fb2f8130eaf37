/* Fetching parts of a model (manifest.h) from several nodes at once: which range to ask of whom
 * next.
 *
 * Pure: no I/O and no clock. The caller tells what happens and when, and asks what to do until that
 * is nothing:
 *
 *     fetch_new(&manifest, &wanted, &settings, now_ns, &fetch, &err);
 *     fetch_peer_add(fetch, now_ns, &link, &has, &peer, &err);          … and gone, has, link as
 *                                                                       they change
 *     while ((action = fetch_next(fetch, now_ns)).kind != FETCH_NOTHING)
 *         FETCH_ASK     send the request (fetch_message.h)
 *         FETCH_CANCEL  tell that the answer is not wanted any more; it may still come
 *         FETCH_VERIFY  all of the part is written: hash it, then fetch_verified()
 *     a chunk came: fetch_chunk() says whether to write it, and where; write it before the next
 *     fetch_next() fetch_status() after each; at fetch_wake_ns() at the latest call fetch_next()
 *     again
 *
 * How it chooses. Parts are cut into chunks. A chunk goes to the peer that is expected to bring it
 * first: round trip + (what it owes already + chunk) / rate, so the nearest have most to do, and
 * others help as soon as those have their hands full. A peer owes at most two chunks and what its
 * link holds, so that little is lost with it. Parts that were begun are ended first, then those
 * that the fewest peers have. When no chunk is left, a peer that is idle also asks for one that
 * another is late with; the first answer counts. Rates begin as the link's estimate and then follow
 * what arrives.
 *
 * Whom it trusts. A part whose hash is wrong is fetched again, whole, from one peer: then a wrong
 * hash names the liar, which is asked no more. Those who had each sent some of the first, wrong one
 * are suspected: from then on each part is theirs alone or not at all (but for parts that were
 * begun and only suspected peers can end). So every wrong hash ends a peer, or makes one suspected
 * or one part single, and the number of those is bounded.
 *
 * How it ends. Done when every wanted part is verified. A peer that does not answer in time, or
 * says "not now" LIMIT_FETCH_TIMEOUTS times in a row, is paused, then asked one chunk, and given up
 * after LIMIT_FETCH_TIMEOUTS pauses in a row. When nothing arrives and nothing gets verified for
 * settings.patience_ns (a sixth of that where nobody has a part and nothing is under way), it has
 * failed, and says of which part and why. A peer that is added starts the patience anew.
 *
 * To fetch a manifest itself, whose identity is known: the same, with a manifest of one part of
 * that hash.
 *
 * Threads: one at a time. The manifest must outlive it. */
#pragma once

#include "topology/link.h"
#include "weights/manifest.h"
#include "weights/part_set.h"

struct fetch;

struct fetch_settings {       /* zero: the default */
    uint32_t chunk_bytes;     /* LIMIT_FETCH_CHUNK_BYTES, which is also the most */
    uint64_t bytes_in_flight; /* of all peers: LIMIT_FETCH_BYTES */
    uint64_t patience_ns;     /* LIMIT_FETCH_PATIENCE_MS */
};

/* Parts of `wanted` that are there already are not to be in it. */
enum error_code fetch_new(const struct manifest *manifest, const struct part_set *wanted,
                          const struct fetch_settings *settings, uint64_t now_ns,
                          struct fetch **out, struct error *err);
void fetch_free(struct fetch *fetch); /* NULL is fine */
/* It may ask for more at once from here on; 0: LIMIT_FETCH_BYTES. */
void fetch_hurry(struct fetch *fetch, uint64_t bytes_in_flight);

/* ---- peers: numbered from 0, at most LIMIT_FETCH_PEERS ---- */
enum error_code fetch_peer_add(struct fetch *fetch, uint64_t now_ns,
                               const struct topology_link *link, const struct part_set *has,
                               uint32_t *peer, struct error *err);
void fetch_peer_has(struct fetch *fetch, uint64_t now_ns, uint32_t peer,
                    const struct part_set *has);
void fetch_peer_gone(struct fetch *fetch, uint64_t now_ns, uint32_t peer);
/* After fetch_peer_gone(): it is back. What is known of it stays, so a liar stays out. */
void fetch_peer_back(struct fetch *fetch, uint64_t now_ns, uint32_t peer,
                     const struct topology_link *link);

struct fetch_peer_notes {
    uint64_t bytes; /* that counted */
    uint32_t n_timeouts, n_refusals;
    bool is_suspected; /* a part that it had a share in had a wrong hash */
    bool has_lied;     /* a part that it alone sent had, or it answered what it was not asked */
    bool is_out; /* it is asked no more: it lied, or did not answer LIMIT_FETCH_TIMEOUTS times in a
                    row */
};
struct fetch_peer_notes fetch_peer_notes(const struct fetch *fetch, uint32_t peer);

/* ---- what to do ---- */
enum fetch_kind { FETCH_NOTHING, FETCH_ASK, FETCH_CANCEL, FETCH_VERIFY };

struct fetch_action {
    enum fetch_kind kind;
    uint32_t part;
    uint32_t peer; /* not for FETCH_VERIFY, nor are the rest */
    uint32_t id;   /* of the request; unique in this fetch */
    uint64_t offset;
    uint32_t size;
};
struct fetch_action fetch_next(struct fetch *fetch, uint64_t now_ns);

/* UINT64_MAX: only when something happens. */
uint64_t fetch_wake_ns(const struct fetch *fetch, uint64_t now_ns);

/* ---- what happened ---- */
enum fetch_take {
    FETCH_IGNORE, /* no longer wanted */
    FETCH_WRITE,  /* at part and offset of *where */
    FETCH_BAD,    /* not what that peer was asked for: it has lied */
};
enum fetch_take fetch_chunk(struct fetch *fetch, uint64_t now_ns, uint32_t peer, uint32_t id,
                            uint64_t size, struct fetch_action *where);
/* The peer will not send it: it does not have the part (`lacks`), or not now. */
void fetch_refused(struct fetch *fetch, uint64_t now_ns, uint32_t peer, uint32_t id, bool lacks);
void fetch_verified(struct fetch *fetch, uint64_t now_ns, uint32_t part, bool is_good);

enum fetch_status { FETCH_RUNNING, FETCH_DONE, FETCH_FAILED };
enum fetch_status fetch_status(const struct fetch *fetch,
                               struct error *err); /* err: where it failed */

struct fetch_progress {
    uint64_t verified_bytes, received_bytes,
        wanted_bytes;              /* received: counts what is not verified yet, too */
    uint32_t n_verified, n_wanted; /* parts */
};
struct fetch_progress fetch_progress(const struct fetch *fetch);
