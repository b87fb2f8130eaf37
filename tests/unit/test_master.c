/* Master and workers in a closed loop: what is wanted gets loaded, what is idle goes, what is lost
 * or drained is placed elsewhere, and nothing flutters. */
#include "cluster/placed.h"
#include "master_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void on_demand_and_when_idle(void **unused)
{
    struct house *h = house_that_serves(5000);
    assert_true(h->loads == NODES && h->placed == 1 && h->ignored == 0);
    house_run(h, 4000);
    assert_true(house_serves(h) && h->unloads == 0);
    h->used_ms = h->now_ms;
    house_run(h, 4000);
    assert_true(house_serves(h)); /* it was used in between */
    house_run(h, 2000);
    assert_true(!house_instance(h)->active && house_loaded(h) == 0);
    h->wanted = true;
    house_run(h, 1000);
    assert_true(house_serves(h) && h->placed == 2 && h->ignored == 0);
    house_drop(h);
}

static void rests_while_all_is_well(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t index = h->index;
    house_run(h, 60 * 1000);
    assert_true(h->index == index && h->placed == 1); /* not one event in a minute */
    h->leads_since_ms = h->now_ms; /* an election: another master, which has heard of nobody yet */
    memset(&h->master, 0, sizeof h->master);
    memset(h->heard_ms, 0, sizeof h->heard_ms);
    house_run(h, 60 * 1000);
    assert_true(h->index == index && house_serves(h));
    house_drop(h);
}

static void a_lost_node_is_replaced(void **unused)
{
    struct house *h = house_that_serves(0);
    h->up[2] = false;
    h->n_have[2] = 0;
    house_run(h, 800);
    assert_true(h->placed == 1); /* it may come back */
    house_run(h, 1500);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 3 && h->placed == 2 &&
                !house_instance(h)->next);
    assert_true(house_loaded(h) == 3);
    h->up[2] = true; /* back: nothing is moved for that */
    house_run(h, 5000);
    assert_true(house_serves(h) && h->placed == 2 && h->n_have[2] == 0 && h->ignored == 0);
    house_drop(h);
}

static void a_node_that_restarts_loads_again(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t epoch = house_instance(h)->current->epoch;
    h->n_have[1] = 0; /* so quickly that nobody missed it */
    house_run(h, 200);
    assert_false(house_serves(h));
    house_run(h, 1000);
    assert_true(house_serves(h) && house_instance(h)->current->epoch == epoch &&
                h->loads == NODES + 1);
    house_drop(h);
}

static void all_comes_back_after_a_restart(void **unused)
{
    struct house *h = house_that_serves(0);
    memset(h->n_have, 0, sizeof h->n_have);
    memset(&h->master, 0, sizeof h->master);
    h->now_ms = h->leads_since_ms = 500;
    memset(h->heard_ms, 0, sizeof h->heard_ms);
    house_run(h, 1500);
    assert_true(house_serves(h) && h->placed == 1 && h->loads == 2 * NODES);
    house_drop(h);
}

static void weights_are_fetched_first(void **unused)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->lacks_weights[1] = h->lacks_weights[3] = true;
    h->wanted = true;
    house_run(h, 1500);
    assert_true(house_serves(h) && h->fetches == 2);
    house_drop(h);
}

/* The stage's device refuses: tried again, ever more rarely, and served when it can be. */
static void failures_are_retried_with_patience(void **unused)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->wanted = true;
    h->cannot_load[0] = true;
    house_run(h, 60 * 1000);
    assert_false(house_serves(h));
    assert_true(h->placed >= 3 && h->placed <= 8);
    h->cannot_load[0] = false;
    house_run(h, 64 * 1000);
    assert_true(house_serves(h) && house_loaded(h) == NODES);
    house_drop(h);
}

static void nowhere_to_go(void **unused)
{
    struct house *h = house_that_serves(0);
    for (uint32_t i = 0; i < NODES; i++)
        h->up[i] = false, h->n_have[i] = 0;
    house_run(h, 5000);
    assert_non_null(strstr(master_problem(&h->master, "i"), "there is no device left"));
    h->up[3] = true;
    house_run(h, 40 * 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 1);
    assert_null(master_problem(&h->master, "i"));
    house_drop(h);
}

/* What replaces a placement that has lost a node gets its memory: the old stages go at once, but
 * for those that the new ones take over; and none of them is loaded again meanwhile. */
static void what_is_replaced_makes_room(void **unused)
{
    struct house *h = house_on_two_nodes();
    assert_true(house_serves(h) && h->loads == 2); /* node0: 0–3, node1: 4–7 */
    h->up[1] = false;
    h->n_have[1] = 0;
    h->max_stages = 1; /* node0 has to take all */
    h->lacks_weights[0] = true;
    for (uint64_t end_ms = h->now_ms + 5000; !house_instance(h)->next && h->now_ms < end_ms;)
        house_run(h, 100);
    assert_true(house_instance(h)->next && house_instance(h)->next->replaces &&
                house_instance(h)->current);
    house_run(h, 100);
    for (uint32_t i = 0; i < h->n_have[0]; i++)
        assert_true(h->have[0][i].epoch == house_instance(h)->next->epoch && h->n_have[0] == 1);
    assert_int_equal(h->unloads, 1);
    house_run(h, 1000);
    assert_true(house_serves(h) && !house_instance(h)->next && h->loads == 3 && h->n_have[0] == 1);
    house_drop(h);
}

/* What is on a drained node goes, while it goes on serving; and nothing comes back to it before
 * that is undone. */
static void a_drained_node_is_emptied(void **unused)
{
    struct house *h = house_on_two_nodes();
    const uint64_t old = house_instance(h)->current->epoch;
    house_set(h, "drain/node1", "yes");
    for (int i = 0; i < 3; i++) { /* all of its own is loaded beside: no moment without */
        house_run(h, 100);
        assert_true(house_serves(h) && h->n_have[1] == 1 && house_instance(h)->next &&
                    !house_instance(h)->next->replaces);
    }
    house_run(h, 1000);
    assert_true(house_serves(h) && h->n_have[1] == 0 && h->placed == 2 &&
                house_instance(h)->current->epoch > old);
    h->up[0] = false, h->n_have[0] = 0; /* not even for want of others … */
    house_run(h, 3000);
    assert_true(house_serves(h) && h->n_have[1] == 0 && h->placed == 3);
    h->up[2] = h->up[3] = false, h->n_have[2] = h->n_have[3] = 0;
    house_run(h, 3000);
    assert_non_null(strstr(master_problem(&h->master, "i"), "there is no device left"));
    house_set(h, "drain/node1", NULL);
    house_run(h, 40 * 1000);
    assert_true(house_serves(h) && h->n_have[1] == 1);
    house_drop(h);
}

/* Where a drained node's stages can go nowhere they stay, and serve. */
static void a_drained_node_that_is_needed(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint64_t epoch = house_instance(h)->current->epoch;
    for (uint32_t i = 0; i < NODES; i++) {
        char key[16];
        snprintf(key, sizeof key, "drain/%s", house_ids[i]);
        house_set(h, key, "yes");
    }
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && house_instance(h)->current->epoch == epoch && h->placed == 1);
    assert_non_null(strstr(master_problem(&h->master, "i"), "cannot leave the drained node"));
    house_set(h, "drain/node2", NULL);
    house_run(h, 320 * 1000);
    assert_true(house_serves(h) && house_loaded(h) == 1 && h->n_have[2] == 1 &&
                !master_problem(&h->master, "i"));
    house_drop(h);
}

/* As from a drained node; and where there is no place, it is stopped, until it is lent again. */
static void a_node_that_lends_nothing_is_emptied(void **unused)
{
    struct house *h = house_on_two_nodes();
    h->lends_nothing[1] = true;
    for (int i = 0; i < 3; i++) {
        house_run(h, 100);
        assert_true(house_serves(h) && h->n_have[1] == 1 && house_instance(h)->next);
    }
    house_run(h, 1000);
    assert_true(house_serves(h) && h->n_have[1] == 0);
    h->wanted = true;
    for (uint32_t i = 0; i < NODES; i++)
        h->lends_nothing[i] = true;
    house_run(h, 3000);
    assert_int_equal(house_loaded(h), 0);
    assert_non_null(master_problem(&h->master, "i"));
    h->lends_nothing[3] = false;
    house_run(h, 40 * 1000);
    assert_true(house_serves(h) && h->n_have[3] > 0 && house_loaded(h) == h->n_have[3]);
    house_drop(h);
}

/* The answer is fetched while it is good, however long ago the last move failed. */
static void a_search_for_another_place_is_heard(void **unused)
{
    struct house *h = house_on_two_nodes();
    h->searches_ms = 500;
    for (uint32_t i = 0; i < NODES; i++)
        h->lends_nothing[i] = true;
    house_run(h, 3000);
    assert_int_equal(house_loaded(h), 0);
    house_drop(h);
}

static struct house
    *over_loan; /* whose instance is asked about: its options' self is the planner */

static bool house_is_over(void *self, const Cluster__Instance *instance)
{
    assert_true(instance->current && !instance->next);
    return over_loan && over_loan->is_over;
}

/* What takes more than is lent is placed anew once, also where it was placed by hand. */
static void what_is_over_the_loan_is_placed_anew(void **unused)
{
    struct house *h = house_on_two_nodes();
    const uint64_t epoch = house_instance(h)->current->epoch;
    h->options.exceeds = house_is_over;
    over_loan = h;
    house_run(h, 3000);
    assert_int_equal(house_instance(h)->current->epoch, epoch);
    h->is_over = true;
    house_run(h, 200);
    assert_true(house_serves(h) && house_instance(h)->next);
    h->is_over = false;
    house_run(h, 3000);
    assert_true(house_serves(h) && house_instance(h)->current->epoch > epoch);
    over_loan = NULL;
    house_drop(h);
}

/* Where there is no memory for both, the old stages make room. */
static void a_drain_without_memory_for_both(void **unused)
{
    struct house *h = house_on_two_nodes();
    h->no_memory_beside = true;
    house_set(h, "drain/node1", "yes");
    house_run(h, 100);
    assert_true(house_instance(h)->next && house_instance(h)->next->replaces);
    house_run(h, 1000);
    assert_true(house_serves(h) && h->n_have[1] == 0 && h->placed == 2);
    house_drop(h);
}

/* The leader hears both ends of a way that is cut. */
static void stages_that_do_not_hear_each_other(void **unused)
{
    (void)unused;
    struct house *h = house_that_serves(0);
    const uint32_t placed = h->placed;
    h->misses[3] = (char *)(uintptr_t)house_ids[1]; /* nothing passes between these two */
    house_run(h, 5000);
    assert_int_equal(h->placed, placed);
    h->max_stages = 2;
    h->misses[2] = (char *)(uintptr_t)house_ids[1];
    house_run(h, 5000);
    assert_int_equal(h->placed, placed + 1);
    assert_int_equal(house_instance(h)->current->n_stages, 2);
    assert_true(house_serves(h));
    h->misses[0] = (char *)(uintptr_t)house_ids[1]; /* driver and last stage, too */
    h->max_stages = 1;
    house_run(h, 5000);
    assert_int_equal(h->placed, placed + 2);
    assert_true(house_serves(h));
    house_drop(h);
}

/* The driver hears from every stage what is lost there, also from those that are not its
 * neighbours. */
static void a_driver_that_does_not_hear_a_stage(void **unused)
{
    (void)unused;
    struct house *h = house_that_serves(0);
    const uint32_t placed = h->placed;
    h->misses[0] = (char *)(uintptr_t)house_ids[2];
    house_run(h, 5000);
    assert_int_equal(h->placed, placed + 1);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 3);
    for (int i = 0; i < 3; i++) /* the stage goes, the driver stays */
        assert_string_not_equal(house_instance(h)->current->stages[i]->node, house_ids[2]);
    h->misses[0] = NULL;
    for (int i = 1; i < NODES; i++) /* nobody hears the driver: it goes */
        h->misses[i] = (char *)(uintptr_t)house_ids[0];
    h->needs_three = true;
    house_run(h, 5000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 3);
    for (int i = 0; i < 3; i++)
        assert_string_not_equal(house_instance(h)->current->stages[i]->node, house_ids[0]);
    h->misses[2] = (char *)(uintptr_t)house_ids[1]; /* of three no two hear the third */
    h->misses[3] = (char *)(uintptr_t)house_ids[2];
    h->up[0] = false, h->n_have[0] = 0;
    house_run(h, 5000);
    assert_non_null(master_problem(&h->master, "i"));
    house_drop(h);
}

/* Whoever is suspected is lost at once, also for a leader that has just begun. */
static void who_is_suspected_is_lost(void **unused)
{
    struct house *h = house_that_serves(0);
    h->up[2] = false, h->n_have[2] = 0;
    h->suspected[2] = true;
    house_run(h, 100);
    assert_true(house_instance(h)->next && h->placed == 2);
    house_run(h, 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 3);
    house_drop(h);
}

static void a_new_lineage_is_told_first(void **unused)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->lineage = (struct lineage){3, 9};
    h->wanted = true;
    house_run(h, 1500);
    assert_true(house_serves(h) && state_lineage(&h->state).generation == 3 &&
                state_lineage(&h->state).founder == 9);
    assert_true(house_instance(h)->current->epoch > UINT64_C(3) << 32);
    house_drop(h);
}

/* Above the last one; and two who propose after the same one, or one who does in two terms, take
 * different ones; so does whoever places something else. */
/* Told once, and again when it changes; a new placement begins without. */
static void steps_of_memory_are_told(void **unused)
{
    struct house *h = house_that_serves(0);
    const uint32_t ignored = h->ignored;
    h->memory_step[1] = 4;
    house_run(h, 2000);
    const Cluster__Stage *stage = house_instance(h)->current->stages[1];
    assert_int_equal(stage->memory_step, 4);
    assert_string_equal(stage->memory_given, "something");
    assert_int_equal(h->memory_said, 1);
    assert_int_equal(house_instance(h)->current->stages[0]->memory_step, 0);
    h->memory_step[1] = 0;
    house_run(h, 2000);
    assert_int_equal(stage->memory_step, 0);
    assert_int_equal(h->memory_said, 2);
    assert_int_equal(h->ignored, ignored);
    house_drop(h);
}

static void epochs_of_different_proposers_and_placements_differ(void **unused)
{
    const struct master_placement here = {.n_stages = 1, .stages = {{"node0", "gpu0", 0, 8}}};
    const struct master_placement there = {.n_stages = 1, .stages = {{"node1", "gpu0", 0, 8}}};
    const struct master_placement both = {
        .n_stages = 2, .stages = {{"node0", "gpu0", 0, 7}, {"node1", "gpu0", 7, 1}}};
    const struct lineage lineage = {4, 99}, twin = {4, 98}, next = {5, 99};
    for (uint64_t last = 0; last < 20; last++) {
        const uint64_t epoch = placed_epoch(last, lineage, 6, "node0", &here);
        assert_true(epoch > last && epoch == placed_epoch(last, lineage, 6, "node0", &here));
        assert_true(epoch != placed_epoch(last, lineage, 7, "node0", &here) &&
                    epoch != placed_epoch(last, lineage, 6, "node1", &here));
        assert_true(epoch != placed_epoch(last, twin, 6, "node0", &here) &&
                    epoch != placed_epoch(last, next, 6, "node0", &here));
        assert_true(epoch != placed_epoch(last, lineage, 6, "node0", &there) &&
                    epoch != placed_epoch(last, lineage, 6, "node0", &both));
        assert_true(placed_epoch(epoch, twin, 1, "", &here) > epoch);
    }
}

static Cluster__Device *device_of(struct house *h, uint32_t node)
{
    return h->state.root->nodes[node]->node->devices[0];
}

/* Whether a placement on the first two nodes says that its streams share cells. */
static bool shares_cells(struct house *h, uint32_t cells)
{
    const struct master_placement placement = {
        .n_stages = 2, .stages = {{house_ids[0], "gpu", 0, 4}, {house_ids[1], "gpu", 4, 4}}};
    Cluster__Instance instance = *house_instance(h);
    Cluster__Demand demand = *instance.demand;
    struct placed_event event;
    demand.cells = cells;
    instance.demand = &demand;
    placed_event_init(&event, &h->state, &instance, &placement, UINT64_MAX, false, "test");
    assert_true(event.placement.shares_cells == event.placement.has_shares_cells);
    return event.placement.shares_cells;
}

static void cells_are_shared_where_all_devices_can(void **unused)
{
    struct house *h = house_that_serves(0);
    assert_false(shares_cells(h, 2048)); /* both are of an older version */
    device_of(h, 0)->has_shares_cells = device_of(h, 0)->shares_cells = true;
    assert_false(shares_cells(h, 2048));
    device_of(h, 1)->has_shares_cells = true;
    assert_false(shares_cells(h, 2048)); /* it says that it cannot */
    device_of(h, 1)->shares_cells = true;
    assert_true(shares_cells(h, 2048));
    assert_false(shares_cells(h, 0)); /* nobody wants it */
    house_drop(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_demand_and_when_idle),
        cmocka_unit_test(rests_while_all_is_well),
        cmocka_unit_test(a_lost_node_is_replaced),
        cmocka_unit_test(a_node_that_restarts_loads_again),
        cmocka_unit_test(all_comes_back_after_a_restart),
        cmocka_unit_test(weights_are_fetched_first),
        cmocka_unit_test(failures_are_retried_with_patience),
        cmocka_unit_test(nowhere_to_go),
        cmocka_unit_test(what_is_replaced_makes_room),
        cmocka_unit_test(a_drained_node_is_emptied),
        cmocka_unit_test(a_drained_node_that_is_needed),
        cmocka_unit_test(a_node_that_lends_nothing_is_emptied),
        cmocka_unit_test(a_search_for_another_place_is_heard),
        cmocka_unit_test(what_is_over_the_loan_is_placed_anew),
        cmocka_unit_test(a_drain_without_memory_for_both),
        cmocka_unit_test(stages_that_do_not_hear_each_other),
        cmocka_unit_test(a_driver_that_does_not_hear_a_stage),
        cmocka_unit_test(who_is_suspected_is_lost),
        cmocka_unit_test(a_new_lineage_is_told_first),
        cmocka_unit_test(steps_of_memory_are_told),
        cmocka_unit_test(epochs_of_different_proposers_and_placements_differ),
        cmocka_unit_test(cells_are_shared_where_all_devices_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
