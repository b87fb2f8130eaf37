/* An admin's signature over an event. Every node that applies an event of a kind that needs an
 * admin (event_kinds.h) checks it, so it does not matter who led when the event went into the log.
 *
 *     body || proof field     the bytes of the event; the proof is its last field
 *
 * Signed is PROOF_LABEL || cluster id || generation || founder || change || body: so a signature is
 * worth nothing in another cluster, in a log that was founded anew, or a second time, since each
 * good one takes the next number (State.admin_changes). One that comes too late is refused with
 * proof_is_late, and the proposer signs again. The body is taken as it is, never decoded and
 * encoded again: a version that knows more fields of it comes to the same answer.
 *
 * The key's hash is the node's id, so a proof needs no certificate and no directory of keys.
 * Pure. */
#pragma once

#include "cluster/state.h"
#include "trust/identity.h"

/* The reason of an event that was signed before another change, or another founding, was known. */
extern const char proof_is_late[];

/* Appends the proof to an encoded event that has none. Its `by` must be the signer's id. */
enum error_code proof_add(const struct state *state, const struct identity *signer,
                          struct buffer *event, struct error *err);

/* NULL: the event may count, as far as proofs go; `*proven`: it carries a good one. Else the
 * reason. `event` is what `bytes` decode to. */
const char *proof_check(const Cluster__State *state, const Cluster__Event *event,
                        const uint8_t *bytes, size_t size, bool *proven);
