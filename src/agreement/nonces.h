/* The nonces of events that are in the log, or were lately: what keeps a leader from taking an
 * event twice that is sent to it again and again until it is applied.
 *
 *  - Of an event that was applied the nonce stays for a while: its proposer may not have seen it
 *    yet.
 *  - One that was submitted counts as long as this node leads: then it is in the log, and stays
 *    there.
 *  - With leadership go those that were not applied: another leader may have replaced them.
 * LIMIT_PROPOSAL_NONCES are kept, the newest. Pure. Zeroed: none. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

struct nonce {
    uint64_t value; /* 0: none */
    bool applied;
};

enum { NONCE_BUCKETS = 2 * LIMIT_PROPOSAL_NONCES };

struct nonces {
    struct nonce ring[LIMIT_PROPOSAL_NONCES];
    uint16_t counts[NONCE_BUCKETS]; /* of the ring's values, by a hash: most that are asked for are
                                       not there */
    uint32_t next;
    uint32_t n_open; /* submitted, not applied */
};

bool nonces_has(const struct nonces *nonces, uint64_t value);
/* Whether one more may be submitted: half of the ring is kept for what was applied. */
bool nonces_has_room(const struct nonces *nonces);
void nonces_submitted(struct nonces *nonces, uint64_t value);
void nonces_applied(struct nonces *nonces, uint64_t value); /* 0 is no nonce */
void nonces_lost(struct nonces *nonces);                    /* no leader any more */
void nonces_clear(struct nonces *nonces);
