/* mesh: who makes room when strangers take up all the places. */
#include "mesh/crowd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ALL = 8, OF_HOST = 3, ROUNDS = 2000 };
static const struct crowd_limits limits = {ALL, OF_HOST};

static struct crowd_member member(uint64_t network, uint64_t interface)
{
    return (struct crowd_member){.host = {network, interface}, .may_go = true};
}

static void test_room(void **state)
{
    struct crowd_member members[ALL];
    (void)state;
    for (uint32_t n = 0; n < ALL; n++) {
        assert_int_equal(crowd_choose(members, n, &limits, (struct stream_host){9, n}), CROWD_ROOM);
        members[n] = member(9, n);
    }
    assert_int_equal(crowd_choose(members, ALL, &limits, (struct stream_host){8, 0}), 0);
}

static void test_one_host_pushes_out_its_own(void **state)
{
    struct crowd_member members[] = {member(1, 0), member(2, 0), member(2, 0), member(2, 0)};
    (void)state;
    assert_int_equal(crowd_choose(members, 4, &limits, (struct stream_host){2, 0}), 1);
    members[1].may_go = false;
    assert_int_equal(crowd_choose(members, 4, &limits, (struct stream_host){2, 0}), 2);
    members[2].may_go = members[3].may_go = false;
    assert_int_equal(crowd_choose(members, 4, &limits, (struct stream_host){2, 0}), CROWD_FULL);
    assert_int_equal(crowd_choose(members, 4, &limits, (struct stream_host){3, 0}), CROWD_ROOM);
}

/* A LAN shares a /64: its hosts are told apart. An attacker there who takes many addresses is one
 * network to everybody else. */
static void test_networks_and_hosts(void **state)
{
    struct crowd_member members[ALL] = {member(5, 1), member(6, 1), member(5, 2), member(5, 3),
                                        member(5, 3), member(5, 4), member(5, 5), member(7, 1)};
    (void)state;
    assert_int_equal(crowd_choose(members, ALL, &limits, (struct stream_host){6, 2}), 3);
    members[3].may_go = false;
    assert_int_equal(crowd_choose(members, ALL, &limits, (struct stream_host){6, 2}), 4);
    for (int i = 0; i < ALL; i++)
        members[i].may_go = members[i].host.network != 5;
    assert_int_equal(crowd_choose(members, ALL, &limits, (struct stream_host){6, 2}), 1);
    for (int i = 0; i < ALL; i++)
        members[i].may_go = false;
    assert_int_equal(crowd_choose(members, ALL, &limits, (struct stream_host){6, 2}), CROWD_FULL);
}

/* An honest one that is silent for a moment stays while an attacker of another network, who has a
 * new address each time, comes again and again. */
static void test_an_attacker_of_another_network(void **state)
{
    struct crowd_member members[ALL] = {member(1, 1)};
    uint32_t n = 1;
    (void)state;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        const struct stream_host newcomer = {2, i};
        const int gone = crowd_choose(members, n, &limits, newcomer);
        assert_int_not_equal(gone, CROWD_FULL);
        if (gone >= 0) {
            assert_int_not_equal(members[gone].host.network, 1);
            for (uint32_t at = (uint32_t)gone; at + 1 < n; at++)
                members[at] = members[at + 1];
            n--;
        }
        members[n++] = (struct crowd_member){.host = newcomer, .may_go = true};
    }
    assert_int_equal(members[0].host.network, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),
        cmocka_unit_test(test_one_host_pushes_out_its_own),
        cmocka_unit_test(test_networks_and_hosts),
        cmocka_unit_test(test_an_attacker_of_another_network),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
