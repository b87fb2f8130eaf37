/* mesh: joining, and everybody who should not get in: in the middle, with false notes, with spoiled
 * messages. */
#include "base/limits.h"
#include "join/join_session.h"
#include "join_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
    attempt_assert_failed(&attempt);
    /* the joiner's signature covers the channel, so the proof was not even looked at: nobody's
     * guess */
    assert_says(&attempt.inviter_error, "does not have the private key");
    assert_int_equal(world.invite.n_wrong, 0);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* … and signs what it carries as its own: the proof is still of another channel, and costs a
 * guess. */
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
    assert_int_equal(join_message_read(near.to_member.data, near.to_member.size, &stolen, NULL),
                     ERROR_NONE);
    memcpy(far.to_member.data + 4, stolen.fields[0].bytes, stolen.fields[0].size);
    attempt_run(&far, &world);
    attempt_assert_failed(&far);
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

/* A member whose grant does not fit what it said: another cluster's authority, or another node's
 * certificate. */
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
        attempt_by_code(&world, world.code, &attempt);
        if (what == 0)
            attempt.inviter.authority = &other.membership.authority;
        else
            memcpy(attempt.inviter.peer_public_key, other.newcomer.public_key, PUBLIC_KEY_BYTES);
        attempt_grant(&attempt, &world);
        attempt_assert_failed(&attempt);
        assert_says(&attempt.joiner_error, what == 0 ? "to another cluster" : "to another node");
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
    attempt_by_code(&world, world.code, &attempt);
    inviter_grant(&attempt.inviter, &world_grant, world.now_ms, WORLD_NOW, &attempt.to_joiner,
                  NULL);
    uint8_t agree[CPACE_TAG_BYTES]; /* a good note, but the other one */
    join_session_note(&attempt.joiner.session, JOIN_AGREE, agree);
    join_message_begin(&attempt.to_member, JOIN_DONE);
    join_message_field(&attempt.to_member, agree, sizeof agree);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    attempt_end(&attempt);
    join_world_invite(&world); /* by code nobody has to agree, and nobody may */
    attempt_by_code(&world, world.code, &attempt);
    join_session_note(&attempt.joiner.session, JOIN_AGREE, agree);
    join_message_begin(&attempt.to_member, JOIN_AGREE);
    join_message_field(&attempt.to_member, agree, sizeof agree);
    attempt_deliver_to_member(&attempt, &world);
    assert_int_equal(attempt.inviter_result, JOIN_FAILED);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* Every message of a good join, said again in a new attempt (with a new code of the same digits:
 * the worst case). */
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
    attempt_finish(&attempt, &world);
    attempt_end(&attempt);
    join_world_invite(&world);
    memcpy(world.invite.digits, digits, sizeof digits);
    struct inviter_settings settings = {.identity = &world.member,
                                        .authority = &world.membership.authority,
                                        .name = "laptop",
                                        .invite = &world.invite};
    memcpy(settings.binding, world.binding, sizeof settings.binding);
    struct inviter inviter;
    struct error err;
    assert_int_equal(inviter_init(&inviter, &settings, world.now_ms, NULL), ERROR_NONE);
    assert_int_equal(inviter_step(&inviter, world.now_ms, hello.data, hello.size, &nothing, &err),
                     JOIN_WAITING);
    assert_int_equal(inviter_step(&inviter, world.now_ms, proof.data, proof.size, &nothing, &err),
                     JOIN_FAILED);
    assert_int_equal(world.invite.state, INVITE_OPEN);
    inviter_deinit(&inviter);
    buffer_deinit(&hello);
    buffer_deinit(&proof);
    buffer_deinit(&nothing);
    join_world_deinit(&world);
}

/* Runs a join up to its `step`th message, cut to `size` bytes of it and with one bit of byte `flip`
 * turned; then on to its end. True: it made a member all the same. */
static bool run_spoiled(struct join_world *world, enum join_mode mode, int step, size_t *size,
                        size_t flip, int bit)
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
            attempt.inviter_result = inviter_grant(&attempt.inviter, &world_grant, world->now_ms,
                                                   WORLD_NOW, &attempt.to_joiner, NULL);
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
                assert_false(
                    run_spoiled(&world, (enum join_mode)mode, step, &whole, i, (int)(i % 8)));
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
            attempt_by_code(&world, world.code, &attempt);
            assert_int_equal(inviter_grant(&attempt.inviter, &world_grant, world.now_ms, WORLD_NOW,
                                           &attempt.to_joiner, NULL),
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
    static const char *const names[] = {
        "",
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
    buffer_append(&attempt.to_joiner, attempt.to_member.data,
                  attempt.to_member.size); /* its own words back */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_one_in_the_middle),
        cmocka_unit_test(test_the_one_in_the_middle_signs),
        cmocka_unit_test(test_a_false_member_that_accepts),
        cmocka_unit_test(test_everything_depends_on_the_channel),
        cmocka_unit_test(test_a_member_that_grants_something_else),
        cmocka_unit_test(test_false_notes),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_spoiled_messages),
        cmocka_unit_test(test_a_spoiled_grant),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_turns),
    };
    return cmocka_run_group_tests(tests, join_world_setup, NULL);
}
