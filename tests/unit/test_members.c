/* Who votes: decoding, the policy's goal from any start, one voter a step. */
#include "base/random.h"
#include "cluster/members.h"
#include "cluster/replica.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

static void one_three_five(void **unused)
{
    const uint32_t wanted[] = {0, 1, 1, 3, 3, 5, 5, 5, 5};
    for (uint32_t n = 0; n < 9; n++)
        assert_int_equal(members_voters_wanted(n), wanted[n]);
}

/* Whatever the members are, and whoever is alive: step by step to what is wanted, never two voters
 * at once, never the leader's own vote; and then it rests. */
static void every_way_leads_there(void **unused)
{
    static struct members now, next;
    for (uint64_t seed = 1; seed <= 2000; seed++) {
        uint64_t draws = 0;
        struct member_view views[9];
        uint32_t n = 1 + (uint32_t)(random_at(seed, draws++) % 9), alive = 0;
        now.n = 0;
        for (uint32_t i = 0; i < 9; i++) {
            if (i == 0 || random_at(seed, draws++) % 2)
                now.list[now.n++] =
                    (struct member){100 + i, i == 0 || random_at(seed, draws++) % 2};
        }
        for (uint32_t i = 0; i < n; i++) { /* of nodes that are, will be, or are no more */
            const bool steady = random_at(seed, draws++) % 2;
            views[i] =
                (struct member_view){100 + i, i == 0 || random_at(seed, draws++) % 4, true, steady};
            alive += views[i].alive;
        }
        uint32_t steps = 0;
        uint64_t hand_over;
        while (members_next(&now, views, n, 100, &next, &hand_over)) {
            assert_int_equal(members_check_step(&now, &next, 100, &err), ERROR_NONE);
            now = next;
            assert_true(++steps < 40);
        }
        assert_true(hand_over == 0 && now.n == n);
        uint32_t alive_voters = 0;
        for (uint32_t i = 0; i < n; i++) {
            const struct member *member = members_find(&now, views[i].id);
            assert_non_null(member);
            alive_voters += member->votes && views[i].alive;
        }
        const uint32_t wanted = members_voters_wanted(n);
        assert_true(members_voters(&now) <= wanted);
        assert_true(alive_voters == (alive < wanted ? alive : wanted));
    }
}

static void a_leader_that_goes_hands_over(void **unused)
{
    static struct members now = {3, {{1, true}, {2, true}, {3, true}}}, next;
    const struct member_view views[] = {{2, true, true, true}, {3, true, true, true}};
    uint64_t hand_over;
    while (members_next(&now, views, 2, 1, &next, &hand_over))
        now = next;
    assert_true(hand_over == 2 || hand_over == 3);
    const uint64_t leader = hand_over;
    while (members_next(&now, views, 2, leader, &next, &hand_over)) {
        assert_int_equal(members_check_step(&now, &next, leader, &err), ERROR_NONE);
        now = next;
    }
    assert_true(now.n == 2 && members_voters(&now) == 1 && members_find(&now, leader)->votes);
}

/* A node that lost its disk is another member: the old one goes in one step, the new one comes in
 * the next. In one step libraft would take the new one to have the old one's entries, and never
 * send it any. */
static void nobody_takes_anothers_place(void **unused)
{
    static struct members now = {2, {{1, true}, {2, false}}}, next;
    static const struct members swapped = {2, {{1, true}, {4, false}}};
    const struct member_view views[] = {{1, true, true, true}, {4, true, false, false}};
    uint64_t hand_over;
    assert_int_equal(members_check_step(&now, &swapped, 1, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "place"));
    assert_true(members_next(&now, views, 2, 1, &next, &hand_over));
    assert_true(next.n == 1 && next.list[0].id == 1);
    now = next;
    assert_true(members_next(&now, views, 2, 1, &next, &hand_over));
    assert_true(next.n == 2 && members_find(&next, 4));
}

static void wrong_steps_are_refused(void **unused)
{
    static struct members from = {3, {{1, true}, {2, false}, {3, false}}};
    static struct members two = {3, {{1, true}, {2, true}, {3, true}}};
    static struct members self = {2, {{1, false}, {2, false}}};
    static struct members twice = {2, {{1, true}, {1, true}}};
    assert_int_equal(members_check_step(&from, &two, 1, &err), ERROR_INVALID);
    assert_int_equal(members_check_step(&from, &self, 1, &err), ERROR_INVALID);
    assert_int_equal(members_check_step(&from, &twice, 1, &err), ERROR_INVALID);
}

/* Every cut and every flipped byte of a list: refused, or another list; never read past its end. */
static void foreign_lists(void **unused)
{
    static struct members members;
    struct log_write first;
    assert_int_equal(replica_found(UINT64_MAX, &first, &err), ERROR_NONE);
    const struct log_entry *entry = &first.log.entries[0];
    assert_int_equal(members_decode(entry->bytes, entry->size, &members, &err), ERROR_NONE);
    assert_true(members.n == 1 && members.list[0].id == UINT64_MAX && members.list[0].votes);
    for (size_t size = 0; size < entry->size; size++) {
        uint8_t cut[128];
        memcpy(cut, entry->bytes, size);
        if (members_decode(cut, size, &members, &err) == ERROR_NONE)
            assert_true(size >= 9 + 8 + 21 + 1); /* only zeros are missing */
    }
    for (size_t at = 0; at < entry->size * 8; at++) {
        uint8_t wrong[128];
        memcpy(wrong, entry->bytes, entry->size);
        wrong[at / 8] ^= (uint8_t)(1 << at % 8);
        if (members_decode(wrong, entry->size, &members, &err) == ERROR_NONE)
            assert_true(at / 8 >= 9 + 8 + 21 + 1);
    }
    log_write_clear(&first);
}

/* Few never wait, nor does a vote. */
static void many_come_in_few_lists(void **unused)
{
    static struct members before, after;
    before.n = after.n = 1000;
    assert_true(members_pause_ms(&before, &after) == 0);
    before.n = 1;
    assert_true(members_pause_ms(&before, &after) == 10000);
    after.n = 64;
    assert_true(members_pause_ms(&before, &after) == 0);
    after.n = 65;
    assert_true(members_pause_ms(&before, &after) == 650);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_three_five),
        cmocka_unit_test(every_way_leads_there),
        cmocka_unit_test(a_leader_that_goes_hands_over),
        cmocka_unit_test(nobody_takes_anothers_place),
        cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(many_come_in_few_lists),
        cmocka_unit_test(foreign_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
