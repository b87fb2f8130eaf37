/* A joiner and a member that carry each other's messages, for tests of join. */
#pragma once

#include "join/join.h"
#include "mesh_world.h"

struct join_world {
    struct identity member, newcomer;
    struct membership membership; /* the member's */
    struct invite invite;
    char code[JOIN_CODE_DIGITS];
    struct join_pace pace;
    uint64_t now_ms;
    uint8_t binding[CHANNEL_BINDING_BYTES];
};

void join_world_init(struct join_world *world); /* with a code that is open */
void join_world_deinit(struct join_world *world);
void join_world_invite(struct join_world *world);
void join_world_wrong_code(const struct join_world *world,
                           char code[JOIN_CODE_DIGITS]); /* one letter is off */
int join_world_setup(void **state);                      /* of a group of tests */

extern const struct join_grant world_grant; /* a member's gift: the authority's key, and a text */

/* One attempt: two machines, and the last message of each. */
struct attempt {
    struct joiner joiner;
    struct inviter inviter;
    struct buffer to_member, to_joiner;
    enum join_result joiner_result, inviter_result;
    struct error joiner_error, inviter_error;
};

/* The joiner believes this code, mode and channel. Starts both; HELLO waits in to_member. */
void attempt_start(struct attempt *attempt, struct join_world *world, enum join_mode mode,
                   const char *code, const uint8_t *joiner_binding);
void attempt_deliver_to_member(struct attempt *attempt,
                               struct join_world *world); /* an empty message is not */
void attempt_deliver_to_joiner(struct attempt *attempt, struct join_world *world);
/* Carries messages until neither says anything more. */
void attempt_run(struct attempt *attempt, struct join_world *world);
void attempt_end(struct attempt *attempt);

void attempt_by_code(struct join_world *world, const char *code,
                     struct attempt *attempt); /* starts and runs it */
void attempt_grant(struct attempt *attempt,
                   struct join_world *world); /* world_grant; then runs on */
/* From JOIN_DECIDE to the end, and what the newcomer has then. */
void attempt_finish(struct attempt *attempt, struct join_world *world);
void attempt_assert_failed(const struct attempt *attempt); /* at both ends */
void assert_says(const struct error *err, const char *part);
