/* mesh: joining by hand, where two people compare words. */
#include "base/limits.h"
#include "join/join_session.h"
#include "join_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

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
                assert_int_equal(joiner_agree(&attempt.joiner, world.now_ms, &attempt.to_member),
                                 JOIN_WAITING);
                attempt_run(&attempt, &world);
            }
            if (i == 0)
                assert_int_equal(attempt.inviter_result, JOIN_WAITING);
        }
        attempt_finish(&attempt, &world);
        assert_int_equal(world.invite.state, INVITE_OPEN); /* codes have nothing to do with it */
        attempt_end(&attempt);
        join_world_deinit(&world);
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
    attempt_assert_failed(&near);
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
    attempt.joiner_result =
        joiner_refuse(&attempt.joiner, &attempt.to_member, &attempt.joiner_error);
    attempt_run(&attempt, &world);
    attempt_assert_failed(&attempt);
    assert_says(&attempt.inviter_error, "tower said no");
    attempt_end(&attempt);
    world.now_ms += LIMIT_JOIN_PAUSE_MS;
    attempt_start(&attempt, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&attempt, &world);
    attempt.inviter_result = inviter_refuse(&attempt.inviter, "the name tower is taken",
                                            &attempt.to_joiner, &attempt.inviter_error);
    attempt_run(&attempt, &world);
    attempt_assert_failed(&attempt);
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
    attempt_grant(&attempt, &world);
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
    assert_int_equal(
        joiner_start(&again, &settings, world.now_ms + LIMIT_JOIN_PAUSE_MS - 1, &b.to_member, NULL),
        ERROR_BUSY);
    joiner_deinit(&again);
    world.pace = (struct join_pace){0}; /* another newcomer */
    attempt_start(&b, &world, JOIN_BY_HAND, world.code, world.binding);
    attempt_run(&b, &world);
    attempt_assert_failed(&b);
    assert_int_equal(b.joiner.refusal, JOIN_REFUSED_BUSY);
    attempt_end(&a);
    attempt_end(&b);
    join_world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_what_the_words_depend_on),
        cmocka_unit_test(test_the_words_of_one_in_the_middle),
        cmocka_unit_test(test_a_commitment_that_is_not_kept),
        cmocka_unit_test(test_one_side_says_no),
        cmocka_unit_test(test_a_member_that_does_not_wait),
        cmocka_unit_test(test_knocking_too_often),
    };
    return cmocka_run_group_tests(tests, join_world_setup, NULL);
}
