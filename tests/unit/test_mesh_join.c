/* mesh: joining by code and by hand, and everybody who should not get in. */
#include "base/limits.h"
#include "base/mem.h"
#include "join_world.h"
#include "mesh/join_session.h"

#include <openssl/x509.h>
#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char payload[] = "whom else to talk to";
static const struct join_grant grant = {.with_key = true, .payload = payload, .payload_size = sizeof payload};

static void assert_says(const struct error *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

static void give(struct attempt *attempt, struct join_world *world)
{
    attempt->inviter_result = inviter_grant(&attempt->inviter, &grant, world->now_ms, WORLD_NOW, &attempt->to_joiner,
                                            &attempt->inviter_error);
    attempt_run(attempt, world);
}

/* From JOIN_DECIDE to the end, and what the newcomer has then. */
static void finish(struct attempt *attempt, struct join_world *world)
{
    struct membership membership;
    struct buffer told;
    assert_int_equal(attempt->inviter_result, JOIN_DECIDE);
    assert_memory_equal(attempt->inviter.peer_id, world->newcomer.node_id, NODE_ID_BYTES);
    assert_string_equal(attempt->inviter.peer_name, "tower");
    give(attempt, world);
    if (attempt->joiner_result != JOIN_STORE)
        fail_msg("%s", attempt->joiner_error.text);
    assert_string_equal(attempt->joiner.peer_name, "laptop");
    assert_memory_equal(attempt->joiner.peer_id, world->member.node_id, NODE_ID_BYTES);
    joiner_take(&attempt->joiner, &membership, &told);
    assert_int_equal(membership_check(&membership, &world->newcomer, NULL), ERROR_NONE);
    assert_memory_equal(membership.authority.cluster_id, world->membership.authority.cluster_id, CLUSTER_ID_BYTES);
    assert_non_null(membership.authority.key);
    assert_int_equal(told.size, sizeof payload);
    assert_memory_equal(told.data, payload, sizeof payload);
    membership_deinit(&membership);
    buffer_deinit(&told);
    assert_int_equal(joiner_done(&attempt->joiner, &attempt->to_member), JOIN_OVER);
    attempt_run(attempt, world);
    assert_int_equal(attempt->inviter_result, JOIN_OVER);
}

static void assert_both_failed(const struct attempt *attempt)
{
    assert_int_equal(attempt->joiner_result, JOIN_FAILED);
    assert_int_equal(attempt->inviter_result, JOIN_FAILED);
}

static void try_code(struct join_world *world, const char *code, struct attempt *attempt)
{
    attempt_start(attempt, world, JOIN_BY_CODE, code, world->binding);
    attempt_run(attempt, world);
}

static void wrong_code(const struct join_world *world, char code[JOIN_CODE_DIGITS])
{
    memcpy(code, world->code, JOIN_CODE_DIGITS);
    code[3] = code[3] == 'A' ? 'B' : 'A';
}

/* ---- by code ---------------------------------------------------------------------------------- */

static void test_the_right_code(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    try_code(&world, world.code, &attempt);
    assert_int_equal(attempt.joiner_result, JOIN_WAITING);
    assert_int_equal(world.invite.state, INVITE_USED);
    finish(&attempt, &world);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_without_the_authoritys_key(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    struct membership membership;
    struct buffer told;
    join_world_init(&world);
    try_code(&world, world.code, &attempt);
    attempt.inviter_result =
        inviter_grant(&attempt.inviter, &(struct join_grant){0}, world.now_ms, WORLD_NOW, &attempt.to_joiner, NULL);
    attempt_run(&attempt, &world);
    assert_int_equal(attempt.joiner_result, JOIN_STORE);
    joiner_take(&attempt.joiner, &membership, &told);
    assert_null(membership.authority.key);
    assert_int_equal(told.size, 0);
    struct inviter inviter;
    struct inviter_settings settings = {
        .identity = &world.newcomer, .authority = &membership.authority, .name = "tower", .invite = &world.invite};
    assert_int_equal(inviter_init(&inviter, &settings, 0, NULL), ERROR_UNSUPPORTED);
    inviter_deinit(&inviter);
    membership_deinit(&membership);
    buffer_deinit(&told);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_a_code_is_good_once(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt first, second;
    join_world_init(&world);
    try_code(&world, world.code, &first);
    assert_int_equal(first.inviter_result, JOIN_DECIDE);
    try_code(&world, world.code, &second);
    assert_both_failed(&second);
    assert_int_equal(second.joiner.refusal, JOIN_REFUSED_NO_CODE);
    assert_says(&second.joiner_error, "no join code is open on");
    attempt_end(&second);
    finish(&first, &world);
    attempt_end(&first);
    join_world_deinit(&world);
}

/* Two who both know the code and are at it at once: the second proof comes too late. */
static void test_two_at_once(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt a, b;
    join_world_init(&world);
    attempt_start(&a, &world, JOIN_BY_CODE, world.code, world.binding);
    attempt_start(&b, &world, JOIN_BY_CODE, world.code, world.binding);
    attempt_deliver_to_member(&a, &world);
    attempt_deliver_to_member(&b, &world);
    attempt_deliver_to_joiner(&a, &world);
    attempt_deliver_to_joiner(&b, &world);
    attempt_run(&a, &world);
    attempt_run(&b, &world);
    assert_int_equal(a.inviter_result, JOIN_DECIDE);
    assert_both_failed(&b);
    attempt_end(&a);
    attempt_end(&b);
    join_world_deinit(&world);
}

static void test_an_expired_code(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    world.now_ms += LIMIT_JOIN_CODE_MS;
    try_code(&world, world.code, &attempt);
    assert_both_failed(&attempt);
    assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_NO_CODE);
    attempt_end(&attempt);
    /* … or that expires in the middle */
    join_world_invite(&world);
    world.now_ms += LIMIT_JOIN_CODE_MS - 1;
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_WAITING);
    world.now_ms++;
    attempt_run(&attempt, &world);
    assert_both_failed(&attempt);
    assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_NO_CODE);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_guessing_voids_the_code(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    char wrong[JOIN_CODE_DIGITS];
    join_world_init(&world);
    wrong_code(&world, wrong);
    for (int i = 0; i < LIMIT_JOIN_WRONG; i++) {
        world.pace = (struct join_pace){0};
        try_code(&world, wrong, &attempt);
        assert_both_failed(&attempt);
        assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_CODE);
        assert_says(&attempt.joiner_error, "the join code is wrong");
        assert_says(&attempt.inviter_error, "tower tried a wrong join code");
        attempt_end(&attempt);
        /* at once again: not even looked at, with the right code either */
        if (world.invite.state == INVITE_OPEN) {
            try_code(&world, world.code, &attempt);
            assert_both_failed(&attempt);
            assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_BUSY);
            attempt_end(&attempt);
        }
        world.now_ms += LIMIT_JOIN_PAUSE_MS;
    }
    assert_int_equal(world.invite.state, INVITE_VOID);
    try_code(&world, world.code, &attempt);
    assert_both_failed(&attempt);
    assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_NO_CODE);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* A hundred that open at once and only then show their proofs have no more guesses than one after the other. */
static void test_guessing_in_parallel(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static struct attempt attempts[MANY];
    struct join_world world;
    char wrong[JOIN_CODE_DIGITS];
    int n_looked_at = 0;
    join_world_init(&world);
    wrong_code(&world, wrong);
    for (int i = 0; i < MANY; i++) {
        world.pace = (struct join_pace){0};
        attempt_start(&attempts[i], &world, JOIN_BY_CODE, wrong, world.binding);
        attempt_deliver_to_member(&attempts[i], &world);
        attempt_deliver_to_joiner(&attempts[i], &world);
    }
    for (int i = 0; i < MANY; i++) {
        attempt_run(&attempts[i], &world);
        n_looked_at += attempts[i].joiner.refusal == JOIN_REFUSED_CODE;
        attempt_end(&attempts[i]);
    }
    assert_int_equal(n_looked_at, 1);
    assert_int_equal(world.invite.n_wrong, 1);
    join_world_deinit(&world);
}

/* Opening attempts and going away tells nothing, and costs nobody a guess. */
static void test_attempts_that_are_given_up(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    for (int i = 0; i < 50; i++) {
        world.pace = (struct join_pace){0};
        attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
        attempt_deliver_to_member(&attempt, &world);
        attempt_end(&attempt);
    }
    assert_int_equal(world.invite.n_wrong, 0);
    try_code(&world, world.code, &attempt);
    finish(&attempt, &world);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* A false member gets one guess for each proof that it is shown, so a joiner shows a few only. */
static void test_false_members(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    char wrong[JOIN_CODE_DIGITS];
    join_world_init(&world);
    wrong_code(&world, wrong);
    for (int i = 0; i < LIMIT_JOIN_GUESSES; i++) {
        attempt_start(&attempt, &world, JOIN_BY_CODE, wrong, world.binding);
        attempt_deliver_to_member(&attempt, &world);
        attempt_deliver_to_joiner(&attempt, &world);
        assert_int_equal(attempt.joiner_result, JOIN_WAITING);
        attempt_end(&attempt);
    }
    struct joiner joiner;
    struct error err;
    struct buffer reply = {0};
    struct joiner_settings settings = {
        .identity = &world.newcomer, .name = "tower", .mode = JOIN_BY_CODE, .pace = &world.pace};
    assert_int_equal(joiner_start(&joiner, &settings, 0, &reply, &err), ERROR_BUSY);
    assert_says(&err, "get a new code");
    joiner_deinit(&joiner);
    buffer_deinit(&reply);
    join_world_deinit(&world);
}

/* The one in the middle has two TLS channels and carries every message from one to the other. */
static void test_the_one_in_the_middle(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    uint8_t other[CHANNEL_BINDING_BYTES];
    join_world_init(&world);
    memset(other, 0xa5, sizeof other);
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, other);
    attempt_run(&attempt, &world);
    assert_both_failed(&attempt);
    /* the joiner's signature covers the channel, so the proof was not even looked at: nobody's guess */
    assert_says(&attempt.inviter_error, "does not have the private key");
    assert_int_equal(world.invite.n_wrong, 0);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* … and signs what it carries as its own: the proof is still of another channel, and costs a guess. */
static void test_the_one_in_the_middle_signs(void **state)
{
    (void)state;
    struct join_world world, middle;
    struct attempt near, far;
    join_world_init(&world);
    join_world_init(&middle);
    memset(middle.binding, 0xa5, sizeof middle.binding);
    /* the joiner talks to the middle, the middle (with a guessed code) to the member */
    attempt_start(&near, &middle, JOIN_BY_CODE, world.code, middle.binding);
    attempt_start(&far, &world, JOIN_BY_CODE, middle.code, world.binding);
    attempt_deliver_to_member(&near, &middle);
    attempt_deliver_to_joiner(&near, &middle); /* the true proof is in near.to_member */
    attempt_deliver_to_member(&far, &world);
    attempt_deliver_to_joiner(&far, &world);
    struct join_message stolen;
    assert_int_equal(join_message_read(near.to_member.data, near.to_member.size, &stolen, NULL), ERROR_NONE);
    memcpy(far.to_member.data + 4, stolen.fields[0].bytes, stolen.fields[0].size);
    attempt_run(&far, &world);
    assert_both_failed(&far);
    assert_int_equal(far.joiner.refusal, JOIN_REFUSED_CODE);
    assert_int_equal(world.invite.n_wrong, 1);
    attempt_end(&near);
    attempt_end(&far);
    join_world_deinit(&middle);
    join_world_deinit(&world);
}

/* A member that does not know the code, and says that all is well. */
static void test_a_false_member_that_accepts(void **state)
{
    (void)state;
    struct join_world world, other;
    struct attempt attempt;
    join_world_init(&world);
    join_world_init(&other);
    attempt_start(&attempt, &other, JOIN_BY_CODE, world.code, other.binding);
    attempt_deliver_to_member(&attempt, &other);
    attempt_deliver_to_joiner(&attempt, &other);
    join_message_begin(&attempt.to_joiner, JOIN_ACCEPT);
    join_message_field(&attempt.to_joiner, (uint8_t[32]){1, 2, 3}, 32);
    attempt_deliver_to_joiner(&attempt, &other);
    assert_int_equal(attempt.joiner_result, JOIN_FAILED);
    assert_says(&attempt.joiner_error, "does not know this join code");
    attempt_end(&attempt);
    join_world_deinit(&other);
    join_world_deinit(&world);
}

/* Two that know the code, said and heard the same, but sit at the ends of different channels. */
static void test_everything_depends_on_the_channel(void **state)
{
    (void)state;
    struct join_session a = {.mode = JOIN_BY_CODE, .hello = {1}, .answer = {2}}, b = a;
    for (int different = 0; different < 2; different++) {
        b.binding[31] = (uint8_t)different;
        assert_true(join_session_share(&a, "K7QM4XZD", a.joiner_share));
        assert_true(join_session_share(&b, "K7QM4XZD", b.inviter_share));
        memcpy(b.joiner_share, a.joiner_share, sizeof a.joiner_share);
        memcpy(a.inviter_share, b.inviter_share, sizeof a.inviter_share);
        assert_true(join_session_key(&a, JOINER) && join_session_key(&b, INVITER));
        assert_int_equal(memcmp(a.key, b.key, sizeof a.key) != 0, different);
        uint8_t tags[2][CPACE_TAG_BYTES];
        join_session_tag(&a, JOINER, tags[0]);
        join_session_tag(&b, JOINER, tags[1]);
        assert_int_equal(memcmp(tags[0], tags[1], CPACE_TAG_BYTES) != 0, different);
        join_session_words(&a, (const uint8_t[32]){7});
        join_session_words(&b, (const uint8_t[32]){7});
        assert_int_equal(strcmp(a.words, b.words) != 0, different);
        assert_int_equal(memcmp(a.key, b.key, sizeof a.key) != 0, different);
    }
}

/* The words depend on both nonces (the member's is in its ANSWER) and on all that was said. */
static void test_what_the_words_depend_on(void **state)
{
    (void)state;
    struct join_session a = {.mode = JOIN_BY_HAND}, b;
    join_session_words(&a, (const uint8_t[32]){7});
    for (int what = 0; what < 3; what++) {
        b = (struct join_session){.mode = JOIN_BY_HAND};
        b.hello[0] = what == 0;
        b.answer[0] = what == 1;
        join_session_words(&b, (const uint8_t[32]){what == 2 ? 8 : 7});
        assert_string_not_equal(a.words, b.words);
    }
}

/* A member whose grant does not fit what it said: another cluster's authority, or another node's certificate. */
static void test_a_member_that_grants_something_else(void **state)
{
    (void)state;
    struct join_world world, other;
    struct attempt attempt;
    join_world_init(&world);
    join_world_init(&other);
    for (int what = 0; what < 2; what++) {
        world.pace = (struct join_pace){0};
        join_world_invite(&world);
        try_code(&world, world.code, &attempt);
        if (what == 0)
            attempt.inviter.authority = &other.membership.authority;
        else
            memcpy(attempt.inviter.peer_public_key, other.newcomer.public_key, PUBLIC_KEY_BYTES);
        give(&attempt, &world);
        assert_both_failed(&attempt);
        assert_says(&attempt.joiner_error, what == 0 ? "of another cluster" : "of another node");
        assert_null(attempt.joiner.membership.certificate);
        attempt_end(&attempt);
    }
    join_world_deinit(&other);
    join_world_deinit(&world);
}

/* Notes that somebody else made up. */
static void test_false_notes(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&attempt, &world);
    inviter_agree(&attempt.inviter, world.now_ms);
    join_message_begin(&attempt.to_member, JOIN_AGREE);
    join_message_field(&attempt.to_member, (uint8_t[32]){1}, 32);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    attempt_end(&attempt);
    try_code(&world, world.code, &attempt);
    inviter_grant(&attempt.inviter, &grant, world.now_ms, WORLD_NOW, &attempt.to_joiner, NULL);
    uint8_t agree[CPACE_TAG_BYTES]; /* a good note, but the other one */
    join_session_note(&attempt.joiner.session, JOIN_AGREE, agree);
    join_message_begin(&attempt.to_member, JOIN_DONE);
    join_message_field(&attempt.to_member, agree, sizeof agree);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    attempt_end(&attempt);
    join_world_invite(&world); /* by code nobody has to agree, and nobody may */
    try_code(&world, world.code, &attempt);
    join_session_note(&attempt.joiner.session, JOIN_AGREE, agree);
    join_message_begin(&attempt.to_member, JOIN_AGREE);
    join_message_field(&attempt.to_member, agree, sizeof agree);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* Every message of a good join, said again in a new attempt (with a new code of the same digits: the worst case). */
static void test_replay(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    struct buffer hello = {0}, proof = {0}, nothing = {0};
    join_world_init(&world);
    char digits[JOIN_CODE_DIGITS];
    memcpy(digits, world.code, sizeof digits);
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    buffer_append(&hello, attempt.to_member.data, attempt.to_member.size);
    attempt_deliver_to_member(&attempt, &world);
    attempt_deliver_to_joiner(&attempt, &world);
    buffer_append(&proof, attempt.to_member.data, attempt.to_member.size);
    attempt_run(&attempt, &world);
    finish(&attempt, &world);
    attempt_end(&attempt);
    join_world_invite(&world);
    memcpy(world.invite.digits, digits, sizeof digits);
    struct inviter_settings settings = {
        .identity = &world.member, .authority = &world.membership.authority, .name = "laptop", .invite = &world.invite};
    memcpy(settings.binding, world.binding, sizeof settings.binding);
    struct inviter inviter;
    struct error err;
    assert_int_equal(inviter_init(&inviter, &settings, world.now_ms, NULL), ERROR_NONE);
    assert_int_equal(inviter_step(&inviter, world.now_ms, hello.data, hello.size, &nothing, &err), JOIN_WAITING);
    assert_int_equal(inviter_step(&inviter, world.now_ms, proof.data, proof.size, &nothing, &err), JOIN_FAILED);
    assert_int_equal(world.invite.state, INVITE_OPEN);
    inviter_deinit(&inviter);
    buffer_deinit(&hello);
    buffer_deinit(&proof);
    buffer_deinit(&nothing);
    join_world_deinit(&world);
}

/* ---- by hand ---------------------------------------------------------------------------------- */

static void test_by_hand(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct join_world world;
        struct attempt attempt;
        join_world_init(&world);
        attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
        attempt_run(&attempt, &world);
        assert_int_equal(attempt.joiner_result, JOIN_COMPARE);
        assert_int_equal(attempt.inviter_result, JOIN_COMPARE);
        assert_string_equal(attempt.joiner.session.words, attempt.inviter.session.words);
        assert_true(strlen(attempt.joiner.session.words) >= 4 * 3 + 3);
        for (int i = 0; i < 2; i++) {
            if (i == first) {
                attempt.inviter_result = inviter_agree(&attempt.inviter, world.now_ms);
            } else {
                assert_int_equal(joiner_agree(&attempt.joiner, world.now_ms, &attempt.to_member), JOIN_WAITING);
                attempt_run(&attempt, &world);
            }
            if (i == 0)
                assert_int_equal(attempt.inviter_result, JOIN_WAITING);
        }
        finish(&attempt, &world);
        assert_int_equal(world.invite.state, INVITE_OPEN); /* codes have nothing to do with it */
        attempt_end(&attempt);
        join_world_deinit(&world);
    }
}

static void test_the_words_of_one_in_the_middle(void **state)
{
    (void)state;
    struct join_world world, middle;
    struct attempt near, far;
    join_world_init(&world);
    join_world_init(&middle);
    memset(middle.binding, 0xa5, sizeof middle.binding);
    attempt_start(&near, &middle, JOIN_BY_HAND, world.code, middle.binding);
    attempt_start(&far, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&near, &middle);
    attempt_run(&far, &world);
    assert_string_not_equal(near.joiner.session.words, far.inviter.session.words);
    attempt_end(&near);
    attempt_end(&far);
    /* carrying the messages as they are gives no words at all */
    world.now_ms += LIMIT_JOIN_PAUSE_MS;
    attempt_start(&near, &world, JOIN_BY_HAND, world.code, middle.binding);
    attempt_run(&near, &world);
    assert_both_failed(&near);
    assert_string_equal(near.joiner.session.words, "");
    attempt_end(&near);
    join_world_deinit(&middle);
    join_world_deinit(&world);
}

/* Whoever wants to choose its part of the words after it has seen the other's is found out. */
static void test_a_commitment_that_is_not_kept(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_deliver_to_member(&attempt, &world);
    attempt_deliver_to_joiner(&attempt, &world);
    attempt.to_member.data[4] ^= 1; /* the nonce */
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    assert_says(&attempt.inviter_error, "committed");
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_one_side_says_no(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&attempt, &world);
    attempt.joiner_result = joiner_refuse(&attempt.joiner, &attempt.to_member, &attempt.joiner_error);
    attempt_run(&attempt, &world);
    assert_both_failed(&attempt);
    assert_says(&attempt.inviter_error, "tower said no");
    attempt_end(&attempt);
    world.now_ms += LIMIT_JOIN_PAUSE_MS;
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&attempt, &world);
    attempt.inviter_result =
        inviter_refuse(&attempt.inviter, "the name tower is taken", &attempt.to_joiner, &attempt.inviter_error);
    attempt_run(&attempt, &world);
    assert_both_failed(&attempt);
    assert_says(&attempt.joiner_error, "laptop said no: the name tower is taken");
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* A member cannot give before the newcomer's person has agreed to it. */
static void test_a_member_that_does_not_wait(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&attempt, &world);
    inviter_agree(&attempt.inviter, world.now_ms);
    attempt.inviter.they_agree = true;
    assert_int_equal(inviter_agree(&attempt.inviter, world.now_ms), JOIN_DECIDE);
    give(&attempt, &world);
    assert_int_equal(attempt.joiner_result, JOIN_FAILED);
    assert_null(attempt.joiner.membership.certificate);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_knocking_too_often(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt a, b = {0};
    join_world_init(&world);
    attempt_start(&a, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&a, &world);
    struct joiner again;
    struct joiner_settings settings = {
        .identity = &world.newcomer, .name = "tower", .mode = JOIN_BY_HAND, .pace = &world.pace};
    assert_int_equal(joiner_start(&again, &settings, world.now_ms + LIMIT_JOIN_PAUSE_MS - 1, &b.to_member, NULL),
                     ERROR_BUSY);
    joiner_deinit(&again);
    world.pace = (struct join_pace){0}; /* another newcomer */
    attempt_start(&b, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&b, &world);
    assert_both_failed(&b);
    assert_int_equal(b.joiner.refusal, JOIN_REFUSED_BUSY);
    attempt_end(&a);
    attempt_end(&b);
    join_world_deinit(&world);
}

/* ---- time ------------------------------------------------------------------------------------- */

static void test_waiting_too_long(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    assert_int_equal(attempt.joiner.deadline_ms, world.now_ms + LIMIT_JOIN_STEP_MS);
    assert_int_equal(joiner_tick(&attempt.joiner, world.now_ms + LIMIT_JOIN_STEP_MS - 1, &attempt.to_member, NULL),
                     JOIN_WAITING);
    assert_int_equal(
        joiner_tick(&attempt.joiner, world.now_ms + LIMIT_JOIN_STEP_MS, &attempt.to_member, &attempt.joiner_error),
        JOIN_FAILED);
    assert_says(&attempt.joiner_error, "in time");
    assert_int_equal(
        inviter_tick(&attempt.inviter, world.now_ms + LIMIT_JOIN_STEP_MS, &attempt.to_joiner, &attempt.inviter_error),
        JOIN_FAILED);
    attempt_end(&attempt);
    /* let in, and never heard of again */
    try_code(&world, world.code, &attempt);
    attempt.inviter_result = inviter_grant(&attempt.inviter, &grant, world.now_ms, WORLD_NOW, &attempt.to_joiner, NULL);
    assert_int_equal(
        inviter_tick(&attempt.inviter, world.now_ms + LIMIT_JOIN_STEP_MS, &attempt.to_joiner, &attempt.inviter_error),
        JOIN_FAILED);
    assert_says(&attempt.inviter_error, "remove it");
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_after_the_end(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    try_code(&world, world.code, &attempt);
    finish(&attempt, &world);
    assert_int_equal(joiner_step(&attempt.joiner, UINT64_MAX, "x", 1, &attempt.to_member, NULL), JOIN_OVER);
    assert_int_equal(inviter_step(&attempt.inviter, UINT64_MAX, "x", 1, &attempt.to_joiner, NULL), JOIN_OVER);
    assert_int_equal(attempt.to_member.size + attempt.to_joiner.size, 0);
    attempt_end(&attempt);
    try_code(&world, world.code, &attempt);
    assert_both_failed(&attempt);
    assert_int_equal(joiner_step(&attempt.joiner, 0, "x", 1, &attempt.to_member, NULL), JOIN_FAILED);
    assert_int_equal(inviter_step(&attempt.inviter, 0, "x", 1, &attempt.to_joiner, NULL), JOIN_FAILED);
    assert_int_equal(joiner_agree(&attempt.joiner, 0, &attempt.to_member), JOIN_FAILED);
    assert_int_equal(inviter_agree(&attempt.inviter, 0), JOIN_FAILED);
    assert_int_equal(inviter_grant(&attempt.inviter, &grant, 0, 0, &attempt.to_joiner, NULL), JOIN_FAILED);
    assert_int_equal(attempt.to_member.size + attempt.to_joiner.size, 0);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* ---- bad messages ----------------------------------------------------------------------------- */

/* Runs a join up to its `step`th message, cut to `size` bytes of it and with one bit of byte `flip` turned; then on to
 * its end. True: it made a member all the same. */
static bool run_spoiled(struct join_world *world, enum join_mode mode, int step, size_t *size, size_t flip, int bit)
{
    struct attempt attempt;
    world->pace = (struct join_pace){0};
    world->invite = (struct invite){0};
    join_world_invite(world);
    attempt_start(&attempt, world, mode, world->code, world->binding);
    for (int i = 0; i <= 8; i++) {
        struct buffer *next = i % 2 == 0 ? &attempt.to_member : &attempt.to_joiner;
        if (i == step && next->size) {
            if (*size > next->size)
                *size = next->size;
            next->size = *size;
            if (flip < next->size)
                next->data[flip] ^= (char)(1 << bit);
        }
        if (i % 2 == 0)
            attempt_deliver_to_member(&attempt, world);
        else
            attempt_deliver_to_joiner(&attempt, world);
        if (attempt.inviter_result == JOIN_COMPARE && attempt.joiner_result == JOIN_COMPARE) {
            inviter_agree(&attempt.inviter, world->now_ms);
            joiner_agree(&attempt.joiner, world->now_ms, &attempt.to_member);
        }
        if (attempt.inviter_result == JOIN_DECIDE) {
            assert_int_not_equal(step, 2); /* a spoiled proof is never taken */
            attempt_deliver_to_joiner(&attempt, world);
            attempt.inviter_result =
                inviter_grant(&attempt.inviter, &grant, world->now_ms, WORLD_NOW, &attempt.to_joiner, NULL);
        }
        if (attempt.joiner_result == JOIN_STORE) {
            attempt.joiner_result = joiner_done(&attempt.joiner, &attempt.to_member);
        }
    }
    bool member = attempt.joiner_result == JOIN_OVER;
    attempt_end(&attempt);
    return member;
}

static void test_spoiled_messages(void **state)
{
    (void)state;
    struct join_world world;
    join_world_init(&world);
    for (int mode = JOIN_BY_CODE; mode <= JOIN_BY_HAND; mode++) {
        size_t whole = SIZE_MAX;
        assert_true(run_spoiled(&world, (enum join_mode)mode, -1, &whole, SIZE_MAX, 0));
        for (int step = 0; step < 4; step++) { /* HELLO, ANSWER, PROOF, ACCEPT */
            whole = SIZE_MAX;
            run_spoiled(&world, (enum join_mode)mode, step == 2 ? 99 : step, &whole, SIZE_MAX, 0);
            size_t n = step == 2 ? 102 : whole;
            for (size_t i = 0; i < n; i += 1 + n / 40) {
                size_t cut = i;
                assert_false(run_spoiled(&world, (enum join_mode)mode, step, &cut, SIZE_MAX, 0));
                whole = SIZE_MAX;
                assert_false(run_spoiled(&world, (enum join_mode)mode, step, &whole, i, (int)(i % 8)));
            }
        }
    }
    join_world_deinit(&world);
}

static void test_a_spoiled_grant(void **state)
{
    (void)state;
    struct join_world world;
    join_world_init(&world);
    size_t size = 100000;
    for (size_t i = 0; i < size; i += 1 + size / 60) {
        for (int cut = 0; cut < 2; cut++) {
            struct attempt attempt;
            world.pace = (struct join_pace){0};
            join_world_invite(&world);
            try_code(&world, world.code, &attempt);
            assert_int_equal(inviter_grant(&attempt.inviter, &grant, world.now_ms, WORLD_NOW, &attempt.to_joiner, NULL),
                             JOIN_WAITING);
            size = attempt.to_joiner.size;
            if (cut)
                attempt.to_joiner.size = i;
            else
                attempt.to_joiner.data[i] ^= 1;
            attempt_deliver_to_joiner(&attempt, &world); /* nothing, when all was cut */
            assert_int_equal(attempt.joiner_result, i == 0 && cut ? JOIN_WAITING : JOIN_FAILED);
            assert_null(attempt.joiner.membership.certificate);
            attempt_end(&attempt);
        }
    }
    join_world_deinit(&world);
}

static void read_refused(const void *bytes, size_t size, const char *part)
{
    struct join_message message;
    struct error err = {0};
    assert_int_not_equal(join_message_read(bytes, size, &message, &err), ERROR_NONE);
    assert_says(&err, part);
}

static void test_messages(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    struct join_message message;
    read_refused("", 0, "ends early");
    read_refused("\x01", 1, "ends early");
    read_refused("\x02\x01", 2, "another version");
    read_refused("\x01\x09", 2, "unknown type");
    read_refused("\x01\x00", 2, "unknown type");
    read_refused("\x01\x04\x21\x00", 4, "ends early");
    read_refused("\x01\x04\xff\xff", 4, "ends early");
    read_refused("\x01\x04\x01\x00x", 5, "field 0");
    read_refused("\x01\x08\x01\x00\x05\x01\x00\x1b", 8, "unprintable");
    static char large[LIMIT_JOIN_MESSAGE_BYTES + 1];
    read_refused(large, sizeof large, "larger than the limit");
    static const char *const names[] = {"",
                                        "a b",
                                        "a\x1b[2J",
                                        "tower\n",
                                        "t\xc3\xbcrme",
                                        "../etc",
                                        "0123456789012345678901234567890123456789012345678901234567890123"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_false(join_name_is_valid(names[i], strlen(names[i])));
        join_message_begin(&buffer, JOIN_ANSWER);
        join_message_field(&buffer, large, CLUSTER_ID_BYTES);
        join_message_field(&buffer, large, NODE_ID_BYTES);
        join_message_field(&buffer, large, 32);
        join_message_field(&buffer, names[i], strlen(names[i]));
        read_refused(buffer.data, buffer.size, i == 0 || i == 6 ? "field 3" : "name");
    }
    assert_true(join_name_is_valid("tower-2.local_x", 15));
    /* what a newer node says behind is skipped, if it is well formed */
    join_message_begin(&buffer, JOIN_DONE);
    join_message_field(&buffer, large, 32);
    assert_int_equal(join_message_read(buffer.data, buffer.size, &message, NULL), ERROR_NONE);
    join_message_field(&buffer, "newer", 5);
    assert_int_equal(join_message_read(buffer.data, buffer.size, &message, NULL), ERROR_NONE);
    assert_int_equal(message.type, JOIN_DONE);
    assert_int_equal(message.fields[0].size, 32);
    read_refused(buffer.data, buffer.size - 1, "ends early");
    buffer_deinit(&buffer);
}

static void test_turns(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    for (int type = JOIN_ANSWER; type < JOIN_REFUSE; type++) {
        attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
        static const uint8_t zeros[64];
        join_message_begin(&attempt.to_member, (enum join_type)type);
        join_message_field(&attempt.to_member, zeros, type == JOIN_ANSWER ? 16 : 32);
        if (type == JOIN_PROOF)
            join_message_field(&attempt.to_member, zeros, 64);
        attempt_deliver_to_member(&attempt, &world);
        assert_int_equal(attempt.inviter_result, JOIN_FAILED);
        attempt_end(&attempt);
    }
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    buffer_append(&attempt.to_joiner, attempt.to_member.data, attempt.to_member.size); /* its own words back */
    attempt_deliver_to_joiner(&attempt, &world);
    assert_int_equal(attempt.joiner_result, JOIN_FAILED);
    attempt_end(&attempt);
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    attempt.to_member.data[4] = 3; /* a mode that nobody knows */
    attempt_deliver_to_member(&attempt, &world);
    assert_says(&attempt.inviter_error, "unknown way");
    attempt_end(&attempt);
    join_world_deinit(&world);
}

static void test_bad_settings(void **state)
{
    (void)state;
    struct join_world world;
    struct joiner joiner;
    struct inviter inviter;
    struct buffer reply = {0};
    join_world_init(&world);
    struct joiner_settings a = {.identity = &world.newcomer, .name = "a b", .mode = JOIN_BY_HAND, .pace = &world.pace};
    struct inviter_settings b = {.identity = &world.member, .authority = &world.membership.authority, .name = ""};
    assert_int_equal(joiner_start(&joiner, &a, 0, &reply, NULL), ERROR_INVALID);
    assert_int_equal(inviter_init(&inviter, &b, 0, NULL), ERROR_INVALID);
    joiner_deinit(&joiner);
    joiner_deinit(NULL);
    inviter_deinit(&inviter);
    inviter_deinit(NULL);
    buffer_deinit(&reply);
    join_world_deinit(&world);
}

static void test_a_payload_that_is_too_large(void **state)
{
    (void)state;
    static char large[LIMIT_JOIN_PAYLOAD_BYTES + 1];
    for (int over = 0; over < 2; over++) {
        struct join_world world;
        struct attempt attempt;
        join_world_init(&world);
        try_code(&world, world.code, &attempt);
        struct join_grant much = {true, large, sizeof large - 1 + (size_t)over};
        attempt.inviter_result =
            inviter_grant(&attempt.inviter, &much, world.now_ms, WORLD_NOW, &attempt.to_joiner, &attempt.inviter_error);
        attempt_run(&attempt, &world);
        assert_int_equal(attempt.inviter_result, over ? JOIN_FAILED : JOIN_WAITING);
        assert_int_equal(attempt.joiner_result, over ? JOIN_FAILED : JOIN_STORE);
        if (!over)
            assert_int_equal(attempt.joiner.payload.size, LIMIT_JOIN_PAYLOAD_BYTES);
        attempt_end(&attempt);
        join_world_deinit(&world);
    }
}

/* Each allocation of a join fails once: the join fails in words, or goes on; nothing leaks (address sanitizer). */
static void test_out_of_memory(void **state)
{
    (void)state;
    struct join_world world;
    int n_members = 0;
    join_world_init(&world);
    for (unsigned nth = 1; nth <= 12; nth++) {
        struct attempt attempt;
        world.pace = (struct join_pace){0};
        join_world_invite(&world);
        attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
        mem_fail_nth(nth);
        attempt_run(&attempt, &world);
        if (attempt.inviter_result == JOIN_DECIDE)
            give(&attempt, &world);
        mem_fail_nth(0);
        if (attempt.joiner_result == JOIN_STORE)
            n_members++;
        else
            assert_true(attempt.joiner_result == JOIN_FAILED || attempt.inviter_result == JOIN_FAILED);
        attempt_end(&attempt);
    }
    assert_true(n_members > 0 && n_members < 12);
    join_world_deinit(&world);
}

/* ---- over TLS --------------------------------------------------------------------------------- */

/* The whole way: a TLS channel between a stranger and a member, its binding, the join, and then a link. */
static void test_from_stranger_to_member(void **state)
{
    (void)state;
    struct world world;
    struct world_link link;
    struct join_world join;
    struct attempt attempt;
    world_init(&world);
    join_world_init(&join);
    membership_deinit(&join.membership);
    join.membership.authority = world.nodes[0].membership.authority; /* borrowed */
    SSL_CTX *stranger = credentials_join_context(CREDENTIALS_TCP, NULL);
    SSL_CTX *server = credentials_context(world.nodes[0].credentials, CREDENTIALS_TCP, CREDENTIALS_SERVER);
    assert_true(world_connect(stranger, server, &link));
    uint8_t binding[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_channel_binding(link.server, join.binding, NULL), ERROR_NONE);
    assert_int_equal(credentials_channel_binding(link.client, binding, NULL), ERROR_NONE);
    attempt_start(&attempt, &join, JOIN_BY_CODE, join.code, binding);
    attempt_run(&attempt, &join);
    assert_int_equal(attempt.inviter_result, JOIN_DECIDE);
    memcpy(world.nodes[0].view.members[world.nodes[0].view.n_members++], attempt.inviter.peer_id, NODE_ID_BYTES);
    give(&attempt, &join);
    world_disconnect(&link);
    struct membership membership;
    struct buffer told;
    struct credentials *credentials;
    joiner_take(&attempt.joiner, &membership, &told);
    struct credentials_members members = {world_is_member, world_now, &world.nodes[0].view};
    assert_int_equal(credentials_new(&join.newcomer, &membership, &members, &credentials, NULL), ERROR_NONE);
    assert_true(world_connect(credentials_context(credentials, CREDENTIALS_TCP, CREDENTIALS_CLIENT), server, &link));
    uint8_t id[NODE_ID_BYTES];
    assert_int_equal(credentials_peer(link.server, id, NULL), ERROR_NONE);
    assert_memory_equal(id, join.newcomer.node_id, sizeof id);
    world_disconnect(&link);
    credentials_free(credentials);
    membership_deinit(&membership);
    buffer_deinit(&told);
    attempt_end(&attempt);
    SSL_CTX_free(stranger);
    join.membership = (struct membership){0};
    join_world_deinit(&join);
    world_deinit(&world);
}

static int start(void **state)
{
    (void)state;
    return sodium_init() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_right_code),
        cmocka_unit_test(test_without_the_authoritys_key),
        cmocka_unit_test(test_a_code_is_good_once),
        cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_an_expired_code),
        cmocka_unit_test(test_guessing_voids_the_code),
        cmocka_unit_test(test_guessing_in_parallel),
        cmocka_unit_test(test_attempts_that_are_given_up),
        cmocka_unit_test(test_false_members),
        cmocka_unit_test(test_the_one_in_the_middle),
        cmocka_unit_test(test_the_one_in_the_middle_signs),
        cmocka_unit_test(test_a_false_member_that_accepts),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_everything_depends_on_the_channel),
        cmocka_unit_test(test_what_the_words_depend_on),
        cmocka_unit_test(test_a_member_that_grants_something_else),
        cmocka_unit_test(test_false_notes),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_the_words_of_one_in_the_middle),
        cmocka_unit_test(test_a_commitment_that_is_not_kept),
        cmocka_unit_test(test_one_side_says_no),
        cmocka_unit_test(test_a_member_that_does_not_wait),
        cmocka_unit_test(test_knocking_too_often),
        cmocka_unit_test(test_waiting_too_long),
        cmocka_unit_test(test_after_the_end),
        cmocka_unit_test(test_spoiled_messages),
        cmocka_unit_test(test_a_spoiled_grant),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_a_payload_that_is_too_large),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_from_stranger_to_member),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
