#include "join_world.h"

#include "base/limits.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

void join_world_invite(struct join_world *world)
{
    char code[JOIN_CODE_TEXT];
    assert_int_equal(invite_make(&world->invite, world->now_ms, 0, code, NULL), ERROR_NONE);
    assert_int_equal(join_code_parse(code, world->code, NULL), ERROR_NONE);
}

void join_world_init(struct join_world *world)
{
    *world = (struct join_world){.now_ms = 1000000};
    memset(world->binding, 0x5a, sizeof world->binding);
    assert_int_equal(identity_make(&world->member, NULL), ERROR_NONE);
    assert_int_equal(identity_make(&world->newcomer, NULL), ERROR_NONE);
    assert_int_equal(membership_found(&world->member, WORLD_NOW, &world->membership, NULL),
                     ERROR_NONE);
    join_world_invite(world);
}

void join_world_deinit(struct join_world *world)
{
    membership_deinit(&world->membership);
    identity_deinit(&world->member);
    identity_deinit(&world->newcomer);
}

void attempt_start(struct attempt *attempt, struct join_world *world, enum join_mode mode,
                   const char *code, const uint8_t *joiner_binding)
{
    *attempt = (struct attempt){0};
    struct joiner_settings joiner = {
        .identity = &world->newcomer, .name = "tower", .mode = mode, .pace = &world->pace};
    struct inviter_settings inviter = {.identity = &world->member,
                                       .authority = &world->membership.authority,
                                       .name = "laptop",
                                       .invite = &world->invite};
    memcpy(joiner.code, code, JOIN_CODE_DIGITS);
    memcpy(joiner.binding, joiner_binding, sizeof joiner.binding);
    memcpy(inviter.binding, world->binding, sizeof inviter.binding);
    assert_int_equal(inviter_init(&attempt->inviter, &inviter, world->now_ms, NULL), ERROR_NONE);
    assert_int_equal(
        joiner_start(&attempt->joiner, &joiner, world->now_ms, &attempt->to_member, NULL),
        ERROR_NONE);
}

void attempt_deliver_to_member(struct attempt *attempt, struct join_world *world)
{
    if (!attempt->to_member.size)
        return;
    attempt->inviter_result =
        inviter_step(&attempt->inviter, world->now_ms, attempt->to_member.data,
                     attempt->to_member.size, &attempt->to_joiner, &attempt->inviter_error);
    buffer_clear(&attempt->to_member);
}

void attempt_deliver_to_joiner(struct attempt *attempt, struct join_world *world)
{
    if (!attempt->to_joiner.size)
        return;
    attempt->joiner_result =
        joiner_step(&attempt->joiner, world->now_ms, attempt->to_joiner.data,
                    attempt->to_joiner.size, &attempt->to_member, &attempt->joiner_error);
    buffer_clear(&attempt->to_joiner);
}

void attempt_run(struct attempt *attempt, struct join_world *world)
{
    while (attempt->to_member.size || attempt->to_joiner.size) {
        attempt_deliver_to_member(attempt, world);
        attempt_deliver_to_joiner(attempt, world);
    }
}

void attempt_end(struct attempt *attempt)
{
    joiner_deinit(&attempt->joiner);
    inviter_deinit(&attempt->inviter);
    buffer_deinit(&attempt->to_member);
    buffer_deinit(&attempt->to_joiner);
}

static const char payload[] = "whom else to talk to";
const struct join_grant world_grant = {
    .with_key = true, .payload = payload, .payload_size = sizeof payload};

void assert_says(const struct error *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("\"%s\" does not say \"%s\"", err->text, part);
}

void attempt_grant(struct attempt *attempt, struct join_world *world)
{
    attempt->inviter_result =
        inviter_grant(&attempt->inviter, &world_grant, world->now_ms, WORLD_NOW,
                      &attempt->to_joiner, &attempt->inviter_error);
    attempt_run(attempt, world);
}

void attempt_finish(struct attempt *attempt, struct join_world *world)
{
    struct membership membership;
    struct buffer told;
    assert_int_equal(attempt->inviter_result, JOIN_DECIDE);
    assert_memory_equal(attempt->inviter.peer_id, world->newcomer.node_id, NODE_ID_BYTES);
    assert_string_equal(attempt->inviter.peer_name, "tower");
    attempt_grant(attempt, world);
    if (attempt->joiner_result != JOIN_STORE)
        fail_msg("%s", attempt->joiner_error.text);
    assert_string_equal(attempt->joiner.peer_name, "laptop");
    assert_memory_equal(attempt->joiner.peer_id, world->member.node_id, NODE_ID_BYTES);
    joiner_take(&attempt->joiner, &membership, &told);
    assert_int_equal(membership_check(&membership, &world->newcomer, NULL), ERROR_NONE);
    assert_memory_equal(membership.authority.cluster_id, world->membership.authority.cluster_id,
                        CLUSTER_ID_BYTES);
    assert_non_null(membership.authority.key);
    assert_int_equal(told.size, sizeof payload);
    assert_memory_equal(told.data, payload, sizeof payload);
    membership_deinit(&membership);
    buffer_deinit(&told);
    assert_int_equal(joiner_done(&attempt->joiner, &attempt->to_member), JOIN_OVER);
    attempt_run(attempt, world);
    assert_int_equal(attempt->inviter_result, JOIN_OVER);
}

void attempt_assert_failed(const struct attempt *attempt)
{
    assert_int_equal(attempt->joiner_result, JOIN_FAILED);
    assert_int_equal(attempt->inviter_result, JOIN_FAILED);
}

void attempt_by_code(struct join_world *world, const char *code, struct attempt *attempt)
{
    attempt_start(attempt, world, JOIN_BY_CODE, code, world->binding);
    attempt_run(attempt, world);
}

void join_world_wrong_code(const struct join_world *world, char code[JOIN_CODE_DIGITS])
{
    memcpy(code, world->code, JOIN_CODE_DIGITS);
    code[3] = code[3] == 'A' ? 'B' : 'A';
}

int join_world_setup(void **state)
{
    return sodium_init() < 0;
}
