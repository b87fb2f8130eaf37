/* Who replicates the log, who votes, and who should.
 *
 * A member is a log, not a machine: its id is made with its store, so a node that lost its disk
 * comes back as another member, and nobody counts on what it had promised. Everyone replicates; few
 * vote: one while there are fewer than three nodes, then three, then five, so that a home of two
 * laptops does not stop when one is closed.
 *
 * members_next() says the next step to that. One voter at a time, so that any two majorities
 * overlap (Ongaro's dissertation, section 4.1), and never a step that takes the vote from the one
 * who proposes it: a leader that is to go hands over first.
 *
 * Pure; any thread. */
#pragma once

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct member {
    uint64_t id; /* never 0 */
    bool votes;
};

struct members {
    uint32_t n;
    struct member list[LIMIT_CLUSTER_NODES];
};

/* As they stand in the log, which is libraft's own form. Foreign bytes: everything is checked.
 * ERROR_INVALID. */
enum error_code members_decode(const uint8_t *bytes, size_t size, struct members *out,
                               struct error *err);
const struct member *members_find(const struct members *members, uint64_t id); /* NULL: is none */
uint32_t members_voters(const struct members *members);
uint32_t members_voters_wanted(uint32_t nodes); /* 1, 3 or 5; 0 of none */

/* Whether a leader may go from one to the other in one step: the voters differ in one member at
 * most, the leader stays a voter, nobody is there twice; and with as many members as before they
 * are the same in the same order (libraft's memory of how far each is goes by the place).
 * ERROR_INVALID. */
enum error_code members_check_step(const struct members *from, const struct members *to,
                                   uint64_t leader, struct error *err);

/* What the leader knows of a node that was admitted. */
struct member_view {
    uint64_t id;
    bool alive;     /* heard of lately */
    bool caught_up; /* has nearly all of the log */
    bool steady;    /* was not away lately: a better voter */
};

/* The step after `now` towards what `views` ask for: every view's id is a member and nobody else;
 * the voters are `members_voters_wanted`, alive ones where there are enough. True: take it
 * (`next`). False: nothing to do, or nothing that can be done before a node is alive and has caught
 * up; `*hand_over` is then the member that should lead before the leader, which has no view any
 * more, can be removed; 0: none. */
bool members_next(const struct members *now, const struct member_view *views, uint32_t n_views,
                  uint64_t leader, struct members *next, uint64_t *hand_over);

/* So long a leader waits after a step by which somebody came or went. A list is 30 bytes a member,
 * and each member gets, keeps and reads all of it (libraft compares each address with all others),
 * so that among hundreds those who come together go into one list. 0 among few. */
uint64_t members_pause_ms(const struct members *before, const struct members *after);
