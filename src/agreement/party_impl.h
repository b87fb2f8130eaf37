/* The inside of a party, for party*.c alone.
 *
 * Invariants, between two calls:
 *  1. `replica` is NULL while the party has failed, is forgetting or stopped.
 *  2. While `keeps`, `kept` is shown, and `state` is behind it.
 *  3. A proposal is in `proposals` or, done, in the list of what is to be told: never in both. One
 *     that is to be forwarded is in both.
 *  4. `ready` only while it leads. */
#pragma once

#include "agreement/nonces.h"
#include "agreement/party.h"
#include "agreement/pieces.h"
#include "base/buffer.h"

struct proposal { /* of this node */
    struct proposal *next, *told_next;
    uint64_t nonce, deadline_ms, again_ms;
    struct buffer event;
    size_t body_size;     /* of the event without its proof (cluster/proof.h); 0: it has none */
    uint32_t level;       /* of the event */
    struct error refused; /* a code: what to say in the next step */
    bool over, counts;    /* out of the list; applied, with that outcome */
    struct state_outcome outcome;
    uint64_t forward_to; /* member; 0: not now */
    party_done_fn done;
    void *arg;
};

struct foreign_proposal { /* of another node, for a leader that has not caught up with its own log
                             yet */
    struct foreign_proposal *next;
    uint64_t nonce;
    uint32_t level;
    size_t size;
    uint8_t bytes[];
};

struct party {
    struct party_options options; /* with the defaults */
    char *node;
    uint64_t now_ms, member;
    struct replica *replica;
    bool due, stopped, forgetting;

    struct state *state, *kept;
    bool keeps;
    uint64_t applied, kept_until; /* indices */
    uint64_t ahead_until;         /* what a shared state has already */
    bool changed;

    bool failed, may_reopen, reopening, wrote; /* wrote: since the last failure */
    bool tells_failure, knows_failure;
    struct error failure; /* the last */
    uint64_t reopen_at_ms, reopen_wait_ms;

    /* what the last effect points to */
    struct replica_effect effect;
    Cluster__Event *event;
    struct state_outcome outcome;
    struct proposal *done;

    struct pieces pieces;
    struct pieces_cut cut; /* of a message that is being sent: effect.bytes */
    struct buffer frame;
    uint32_t message_number;

    struct proposal *proposals, *told_first, **told_last;
    uint32_t n_proposals;
    struct foreign_proposal *first_foreign, **last_foreign;
    uint32_t n_foreign;
    size_t foreign_bytes;
    uint64_t n_dropped, dropped_said_ms; /* messages of the replica's that were refused */
    struct nonces nonces;
    uint64_t n_nonces;

    struct replica_status last; /* as of the last step */
    bool ready;                 /* leads, and all that was in its log before is applied */
    uint64_t lead_from, ready_by_ms;

    struct members members, members_wanted;
    struct member_view *views;
    uint32_t n_views;
    bool members_due;
    uint64_t members_ms, members_pause_ms; /* not before */
};

/* ---- party.c ---- */
void party_say(const struct party *p, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void party_clock(struct party *p, uint64_t now_ms);

/* ---- party_effects.c ---- */
bool party_carry_out(struct party *p, struct party_effect *out); /* p->effect; true: there is one */
bool party_next_frame(struct party *p, struct party_effect *out);
void party_clear_effect(struct party *p);
void party_keep_state(struct party *p, uint64_t until);
void party_drop_state(struct party *p);

/* ---- party_propose.c ---- */
void party_step_proposals(struct party *p); /* sends, submits and gives up what is due */
void party_send_proposals_now(struct party *p);
void party_proposal_applied(struct party *p, uint64_t nonce);
void party_end_proposals(struct party *p, enum error_code code, const char *why);
bool party_tell_proposal(struct party *p, struct party_effect *out);
void party_drop_foreign(struct party *p);
void party_free_proposals(struct party *p);
void party_free_done(struct party *p);
uint64_t party_proposals_timer(const struct party *p);

/* ---- party_members.c ---- */
void party_step_members(struct party *p);
uint64_t party_members_timer(const struct party *p);
