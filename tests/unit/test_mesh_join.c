/* mesh: joining by code, its ways and its ends; then over TLS, and a link. */
#include "base/limits.h"
#include "base/mem.h"
#include "join_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_the_right_code(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_by_code(&world, world.code, &attempt);
    assert_int_equal(attempt.joiner_result, JOIN_WAITING);
    assert_int_equal(world.invite.state, INVITE_USED);
    attempt_finish(&attempt, &world);
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
    attempt_by_code(&world, world.code, &attempt);
    attempt.inviter_result = inviter_grant(&attempt.inviter, &(struct join_grant){0}, world.now_ms,
                                           WORLD_NOW, &attempt.to_joiner, NULL);
    attempt_run(&attempt, &world);
    assert_int_equal(attempt.joiner_result, JOIN_STORE);
    joiner_take(&attempt.joiner, &membership, &told);
    assert_null(membership.authority.key);
    assert_int_equal(told.size, 0);
    struct inviter inviter;
    struct inviter_settings settings = {.identity = &world.newcomer,
                                        .authority = &membership.authority,
                                        .name = "tower",
                                        .invite = &world.invite};
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
    attempt_by_code(&world, world.code, &first);
    assert_int_equal(first.inviter_result, JOIN_DECIDE);
    attempt_by_code(&world, world.code, &second);
    attempt_assert_failed(&second);
    assert_int_equal(second.joiner.refusal, JOIN_REFUSED_NO_CODE);
    assert_says(&second.joiner_error, "no join code is open on");
    attempt_end(&second);
    attempt_finish(&first, &world);
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
    attempt_assert_failed(&b);
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
    attempt_by_code(&world, world.code, &attempt);
    attempt_assert_failed(&attempt);
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
    attempt_assert_failed(&attempt);
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
    join_world_wrong_code(&world, wrong);
    for (int i = 0; i < LIMIT_JOIN_WRONG; i++) {
        world.pace = (struct join_pace){0};
        attempt_by_code(&world, wrong, &attempt);
        attempt_assert_failed(&attempt);
        assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_CODE);
        assert_says(&attempt.joiner_error, "the join code is wrong");
        assert_says(&attempt.inviter_error, "tower tried a wrong join code");
        attempt_end(&attempt);
        /* at once again: not even looked at, with the right code either */
        if (world.invite.state == INVITE_OPEN) {
            attempt_by_code(&world, world.code, &attempt);
            attempt_assert_failed(&attempt);
            assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_BUSY);
            attempt_end(&attempt);
        }
        world.now_ms += LIMIT_JOIN_PAUSE_MS;
    }
    assert_int_equal(world.invite.state, INVITE_VOID);
    attempt_by_code(&world, world.code, &attempt);
    attempt_assert_failed(&attempt);
    assert_int_equal(attempt.joiner.refusal, JOIN_REFUSED_NO_CODE);
    attempt_end(&attempt);
    join_world_deinit(&world);
}

/* A hundred that open at once and only then show their proofs have no more guesses than one after
 * the other. */
static void test_guessing_in_parallel(void **state)
{
    (void)state;
    enum { MANY = 100 };
    static struct attempt attempts[MANY];
    struct join_world world;
    char wrong[JOIN_CODE_DIGITS];
    int n_looked_at = 0;
    join_world_init(&world);
    join_world_wrong_code(&world, wrong);
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
    attempt_by_code(&world, world.code, &attempt);
    attempt_finish(&attempt, &world);
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
    join_world_wrong_code(&world, wrong);
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

static void test_waiting_too_long(void **state)
{
    (void)state;
    struct join_world world;
    struct attempt attempt;
    join_world_init(&world);
    attempt_start(&attempt, &world, JOIN_BY_CODE, world.code, world.binding);
    assert_int_equal(attempt.joiner.deadline_ms, world.now_ms + LIMIT_JOIN_STEP_MS);
    assert_int_equal(joiner_tick(&attempt.joiner, world.now_ms + LIMIT_JOIN_STEP_MS - 1,
                                 &attempt.to_member, NULL),
                     JOIN_WAITING);
    assert_int_equal(joiner_tick(&attempt.joiner, world.now_ms + LIMIT_JOIN_STEP_MS,
                                 &attempt.to_member, &attempt.joiner_error),
                     JOIN_FAILED);
    assert_says(&attempt.joiner_error, "in time");
    assert_int_equal(inviter_tick(&attempt.inviter, world.now_ms + LIMIT_JOIN_STEP_MS,
                                  &attempt.to_joiner, &attempt.inviter_error),
                     JOIN_FAILED);
    attempt_end(&attempt);
    /* let in, and never heard of again */
    attempt_by_code(&world, world.code, &attempt);
    attempt.inviter_result = inviter_grant(&attempt.inviter, &world_grant, world.now_ms, WORLD_NOW,
                                           &attempt.to_joiner, NULL);
    assert_int_equal(inviter_tick(&attempt.inviter, world.now_ms + LIMIT_JOIN_STEP_MS,
                                  &attempt.to_joiner, &attempt.inviter_error),
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
    attempt_by_code(&world, world.code, &attempt);
    attempt_finish(&attempt, &world);
    assert_int_equal(joiner_step(&attempt.joiner, UINT64_MAX, "x", 1, &attempt.to_member, NULL),
                     JOIN_OVER);
    assert_int_equal(inviter_step(&attempt.inviter, UINT64_MAX, "x", 1, &attempt.to_joiner, NULL),
                     JOIN_OVER);
    assert_int_equal(attempt.to_member.size + attempt.to_joiner.size, 0);
    attempt_end(&attempt);
    attempt_by_code(&world, world.code, &attempt);
    attempt_assert_failed(&attempt);
    assert_int_equal(joiner_step(&attempt.joiner, 0, "x", 1, &attempt.to_member, NULL),
                     JOIN_FAILED);
    assert_int_equal(inviter_step(&attempt.inviter, 0, "x", 1, &attempt.to_joiner, NULL),
                     JOIN_FAILED);
    assert_int_equal(joiner_agree(&attempt.joiner, 0, &attempt.to_member), JOIN_FAILED);
    assert_int_equal(inviter_agree(&attempt.inviter, 0), JOIN_FAILED);
    assert_int_equal(inviter_grant(&attempt.inviter, &world_grant, 0, 0, &attempt.to_joiner, NULL),
                     JOIN_FAILED);
    assert_int_equal(attempt.to_member.size + attempt.to_joiner.size, 0);
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
    struct joiner_settings a = {
        .identity = &world.newcomer, .name = "a b", .mode = JOIN_BY_HAND, .pace = &world.pace};
    struct inviter_settings b = {
        .identity = &world.member, .authority = &world.membership.authority, .name = ""};
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
        attempt_by_code(&world, world.code, &attempt);
        struct join_grant much = {true, large, sizeof large - 1 + (size_t)over};
        attempt.inviter_result = inviter_grant(&attempt.inviter, &much, world.now_ms, WORLD_NOW,
                                               &attempt.to_joiner, &attempt.inviter_error);
        attempt_run(&attempt, &world);
        assert_int_equal(attempt.inviter_result, over ? JOIN_FAILED : JOIN_WAITING);
        assert_int_equal(attempt.joiner_result, over ? JOIN_FAILED : JOIN_STORE);
        if (!over)
            assert_int_equal(attempt.joiner.payload.size, LIMIT_JOIN_PAYLOAD_BYTES);
        attempt_end(&attempt);
        join_world_deinit(&world);
    }
}

/* Each allocation of a join fails once: the join fails in words, or goes on; nothing leaks (address
 * sanitizer). */
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
            attempt_grant(&attempt, &world);
        mem_fail_nth(0);
        if (attempt.joiner_result == JOIN_STORE)
            n_members++;
        else
            assert_true(attempt.joiner_result == JOIN_FAILED ||
                        attempt.inviter_result == JOIN_FAILED);
        attempt_end(&attempt);
    }
    assert_true(n_members > 0 && n_members < 12);
    join_world_deinit(&world);
}

/* The whole way: a TLS channel between a stranger and a member, its binding, the join, and then a
 * link. */
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
    SSL_CTX *server =
        credentials_context(world.nodes[0].credentials, CREDENTIALS_TCP, CREDENTIALS_SERVER);
    assert_true(world_connect(stranger, server, &link));
    uint8_t binding[CHANNEL_BINDING_BYTES];
    assert_int_equal(credentials_channel_binding(link.server, join.binding, NULL), ERROR_NONE);
    assert_int_equal(credentials_channel_binding(link.client, binding, NULL), ERROR_NONE);
    attempt_start(&attempt, &join, JOIN_BY_CODE, join.code, binding);
    attempt_run(&attempt, &join);
    assert_int_equal(attempt.inviter_result, JOIN_DECIDE);
    memcpy(world.nodes[0].view.members[world.nodes[0].view.n_members++], attempt.inviter.peer_id,
           NODE_ID_BYTES);
    attempt_grant(&attempt, &join);
    world_disconnect(&link);
    struct membership membership;
    struct buffer told;
    struct credentials *credentials;
    joiner_take(&attempt.joiner, &membership, &told);
    struct credentials_members members = {world_is_member, world_now, &world.nodes[0].view};
    assert_int_equal(credentials_new(&join.newcomer, &membership, &members, &credentials, NULL),
                     ERROR_NONE);
    assert_true(world_connect(credentials_context(credentials, CREDENTIALS_TCP, CREDENTIALS_CLIENT),
                              server, &link));
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
        cmocka_unit_test(test_waiting_too_long),
        cmocka_unit_test(test_after_the_end),
        cmocka_unit_test(test_bad_settings),
        cmocka_unit_test(test_a_payload_that_is_too_large),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_from_stranger_to_member),
    };
    return cmocka_run_group_tests(tests, join_world_setup, NULL);
}
