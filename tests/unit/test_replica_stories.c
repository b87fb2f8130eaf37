/* Several replicas under a made-up clock, network and disk: who votes, and who leads. */
#include "cluster_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static struct world *world_of(uint64_t seed, uint32_t n, uint64_t grace_ms)
{
    struct world *w = calloc(1, sizeof *w);
    world_init(w, seed, n, grace_ms);
    for (uint32_t i = 0; i < n; i++)
        w->nodes[i].admitted = true;
    world_run(w, 10000, false);
    return w;
}

static void end_world(struct world *w)
{
    char why[512];
    if (!world_agrees(w, why, sizeof why)) {
        world_describe(w, stderr);
        fail_msg("%s", why);
    }
    world_deinit(w);
    free(w);
}

static uint32_t voters(const struct world *w)
{
    static struct members members;
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->nodes[i].up && replica_status(w->nodes[i].replica).leads) {
            replica_members(w->nodes[i].replica, &members);
            return members_voters(&members);
        }
    }
    return 0;
}

static void voters_follow_the_number_of_nodes(void **unused)
{
    const uint32_t wanted[] = {0, 1, 1, 3, 3, 5, 5, 5};
    for (uint32_t n = 1; n <= WORLD_NODES; n++) {
        struct world *w = world_of(n, n, 0);
        assert_int_equal(voters(w), wanted[n]);
        end_world(w);
    }
}

static void a_lost_leader_is_replaced(void **unused)
{
    struct world *w = world_of(3, 5, 0);
    uint32_t leader = 0;
    while (!replica_status(w->nodes[leader].replica).leads)
        leader++;
    world_crash(w, leader);
    world_run(w, 4000, false);
    assert_true(world_leaders(w) == 1 && world_submit(w));
    world_start(w, leader);
    world_run(w, 4000, false);
    end_world(w);
}

/* Two laptops, and the one that votes is gone for good: the other goes on, with all that was known.
 * When the first comes back after all, it gives up its log. */
static void the_second_of_two_goes_on_alone(void **unused)
{
    struct world *w = world_of(5, 2, 3000);
    for (int i = 0; i < 40; i++) {
        world_submit(w);
        world_run(w, 100, false);
    }
    world_run(w, 1000, false);
    const uint64_t known = replica_status(w->nodes[1].replica).applied;
    world_crash(w, 0);
    world_run(w, 2500, false);
    assert_true(world_leaders(w) == 0); /* the grace period */
    world_run(w, 6000, false);
    assert_true(world_leaders(w) == 1 && world_submit(w));
    const struct replica_status status = replica_status(w->nodes[1].replica);
    assert_true(status.lineage.generation == 2 && status.lineage.founder == w->nodes[1].id &&
                status.commit >= known);
    world_start(w, 0);
    world_run(w, 6000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 2);
    end_world(w);
}

static void a_minority_waits_longer(void **unused)
{
    struct world *w = world_of(6, 5, 3000); /* alone: 9 s */
    for (uint32_t i = 1; i < 5; i++)
        w->cut[0][i] = w->cut[i][0] = true;
    world_run(w, 7000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 1);
    assert_true(world_leaders(w) == 1 && world_submit(w)); /* the others have not waited */
    world_heal(w);
    world_run(w, 5000, false);
    assert_true(replica_status(w->nodes[0].replica).lineage.generation == 1);
    end_world(w);
}

static void leadership_is_handed_over(void **unused)
{
    struct world *w = world_of(9, 3, 0);
    uint32_t leader = 0;
    while (!replica_status(w->nodes[leader].replica).leads)
        leader++;
    const uint32_t other = (leader + 1) % 3;
    assert_int_equal(
        replica_hand_over(w->nodes[leader].replica, w->now_ms, w->nodes[other].id, NULL),
        ERROR_NONE);
    world_run(w, 300, false);
    assert_true(replica_status(w->nodes[other].replica).leads);
    assert_int_equal(replica_hand_over(w->nodes[other].replica, w->now_ms, 12345, NULL),
                     ERROR_INVALID);
    world_run(w, 2000, false);
    end_world(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(voters_follow_the_number_of_nodes),
        cmocka_unit_test(a_lost_leader_is_replaced),
        cmocka_unit_test(the_second_of_two_goes_on_alone),
        cmocka_unit_test(a_minority_waits_longer),
        cmocka_unit_test(leadership_is_handed_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
