/* A driver on node 1 of stages on nodes 1, 2 and 3, and a runner on node 2, without clock or link:
 * what is lost, who is told, and when it serves again (hosting/reach.h). */
#include "hosting/reach.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct part_life driver_life, runner_life;
static struct reach driver, runner;
static uint8_t ids[4][NODE_ID_BYTES];
static bool are_linked;

static void place(struct part_life *life, struct reach *reach, uint8_t node)
{
    *life = (struct part_life){.n_stages = 3, .is_placed = true, .others_ready = true};
    for (uint8_t i = 0; i < 3; i++) {
        ids[i + 1][0] = i + 1;
        life->stages[i].here = i + 1 == node;
        memcpy(life->stages[i].node_id, ids[i + 1], NODE_ID_BYTES);
    }
    reach_init(reach, life);
    life->state = PART_READY;
    life->has_driver = node == 1;
}

static int set_up(void **state)
{
    (void)state;
    place(&driver_life, &driver, 1);
    place(&runner_life, &runner, 2);
    are_linked = true;
    return 0;
}

static bool linked(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    (void)self, (void)node_id;
    return are_linked;
}

static uint32_t look(uint64_t now_ms)
{
    return reach_look(&driver, now_ms, true, linked, NULL);
}

/* It serves, since now_ms. */
static void begin(uint64_t now_ms)
{
    assert_int_equal(reach_opened(&driver, now_ms), REACH_CUT | REACH_WAIT);
    assert_int_equal(look(now_ms), REACH_FOUND);
}

static void a_driver_serves_as_soon_as_the_others_are_ready(void **state)
{
    (void)state;
    driver_life.others_ready = false;
    assert_int_equal(reach_opened(&driver, 1000), REACH_CUT | REACH_WAIT);
    assert_int_equal(look(1000), 0);
    driver_life.others_ready = true;
    assert_int_equal(reach_look(&driver, 1001, false, linked, NULL), 0);
    assert_int_equal(look(1001), REACH_FOUND);
    assert_false(reach_is_due(&driver));
    assert_int_equal(reach_opened(&runner, 1000), 0);
}

static void a_driver_with_all_its_stages_here_waits_for_nobody(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 3; i++)
        driver_life.stages[i].here = true;
    assert_int_equal(reach_opened(&driver, 1000), 0);
    assert_int_equal(reach_link_lost(&driver, 1001, ids[2], false), 0);
}

static void a_link_that_ends_cuts_the_driver_until_it_is_back(void **state)
{
    (void)state;
    begin(1000);
    are_linked = false;
    assert_int_equal(reach_link_lost(&driver, 20000, ids[3], false),
                     REACH_CUT | REACH_END_TAKE | REACH_WAIT);
    assert_int_equal(look(30000), 0);
    are_linked = true;
    assert_int_equal(look(30000), REACH_FOUND);
}

static void each_loss_soon_after_doubles_the_pause(void **state)
{
    uint64_t now_ms = 1000, pause_ms = REACH_PAUSE_MS;
    (void)state;
    begin(now_ms);
    for (uint32_t i = 0; i < 10; i++) {
        pause_ms = pause_ms * 2 < REACH_PAUSE_MAX_MS ? pause_ms * 2 : REACH_PAUSE_MAX_MS;
        assert_true(reach_notice(&driver, ++now_ms) & REACH_WAIT);
        assert_int_equal(look(now_ms + pause_ms - 1), 0);
        assert_int_equal(look(now_ms += pause_ms), REACH_FOUND);
    }
    assert_int_equal(pause_ms, REACH_PAUSE_MAX_MS);
    assert_true(reach_notice(&driver, now_ms += REACH_STEADY_MS) & REACH_WAIT);
    assert_int_equal(look(now_ms + REACH_PAUSE_MS), REACH_FOUND);
}

static void more_that_is_lost_meanwhile_cuts_but_is_told_once(void **state)
{
    (void)state;
    begin(1000);
    assert_true(reach_broken(&driver, 50000) & REACH_WAIT);
    assert_int_equal(reach_notice(&driver, 50050), REACH_CUT | REACH_END_TAKE);
    assert_int_equal(look(50100), 0); /* the pause begins anew */
    assert_int_equal(look(50150), REACH_FOUND);
}

static void a_driver_that_hands_over_is_cut_and_does_not_wait(void **state)
{
    (void)state;
    begin(1000);
    driver_life.state = PART_HANDING;
    assert_int_equal(reach_link_lost(&driver, 2000, ids[2], false), REACH_CUT);
    assert_false(reach_is_due(&driver));
}

static void a_stage_that_is_not_ready_any_more_loses_the_driver_once(void **state)
{
    (void)state;
    begin(1000);
    driver_life.others_ready = false;
    assert_true(reach_look_at_state(&driver, 2000) & REACH_WAIT);
    assert_int_equal(reach_look_at_state(&driver, 2001), 0);
    runner_life.others_ready = false;
    assert_int_equal(reach_look_at_state(&runner, 2000), 0);
}

static void a_runner_tells_its_driver_of_whom_it_sends_to(void **state)
{
    (void)state;
    assert_int_equal(reach_link_lost(&runner, 1000, ids[3], false), REACH_TELL_DRIVER);
    assert_int_equal(reach_link_lost(&runner, 1000, ids[1], false), 0); /* which hears itself */
    assert_int_equal(reach_notice(&runner, 1000), REACH_TELL_DRIVER);
    assert_int_equal(reach_missed(&runner), REACH_TELL_DRIVER);
    assert_int_equal(reach_missed(&driver), 0);
    assert_false(reach_is_due(&runner));
}

static void a_notice_that_cannot_be_sent_is_owed_once(void **state)
{
    (void)state;
    assert_int_equal(reach_link_lost(&runner, 1000, ids[1], true), 0);
    assert_true(reach_is_due(&runner));
    assert_int_equal(reach_look(&runner, 1001, false, linked, NULL), REACH_TELL_DRIVER);
    assert_int_equal(reach_look(&runner, 1002, false, linked, NULL), 0);
}

static void who_leaves_owes_and_waits_for_nothing(void **state)
{
    (void)state;
    begin(1000);
    reach_notice(&driver, 2000);
    reach_link_lost(&runner, 2000, ids[1], true);
    driver_life.state = runner_life.state = PART_LEAVING;
    reach_leave(&driver);
    reach_leave(&runner);
    assert_false(reach_is_due(&driver) || reach_is_due(&runner));
    assert_int_equal(reach_notice(&driver, 3000), 0);
    assert_int_equal(reach_link_lost(&runner, 3000, ids[3], false), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        TEST(a_driver_serves_as_soon_as_the_others_are_ready),
        TEST(a_driver_with_all_its_stages_here_waits_for_nobody),
        TEST(a_link_that_ends_cuts_the_driver_until_it_is_back),
        TEST(each_loss_soon_after_doubles_the_pause),
        TEST(more_that_is_lost_meanwhile_cuts_but_is_told_once),
        TEST(a_driver_that_hands_over_is_cut_and_does_not_wait),
        TEST(a_stage_that_is_not_ready_any_more_loses_the_driver_once),
        TEST(a_runner_tells_its_driver_of_whom_it_sends_to),
        TEST(a_notice_that_cannot_be_sent_is_owed_once),
        TEST(who_leaves_owes_and_waits_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
