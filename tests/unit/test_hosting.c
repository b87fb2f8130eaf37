/* Stages of one state on several nodes (hosting_world.h): loaded, driven over links, moved, lost,
 * found and given back.
 */
#include "hosting_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS = 4 };
static struct client clients[CLIENTS];

static bool clients_done(void *arg)
{
    (void)arg;
    for (int i = 0; i < CLIENTS; i++) {
        if (!client_is_done(&clients[i]))
            return false;
    }
    return true;
}

static bool has_tokens(void *arg)
{
    return client_is_done(arg) || client_has_tokens(arg, 4);
}

static void submit(struct driver *driver, uint32_t n_predict)
{
    struct world world = {.driver = driver};
    for (uint32_t i = 0; i < CLIENTS; i++) {
        client_init(&clients[i], i % 3, 10 + 7 * i, n_predict);
        clients[i].request.sampler.seed = i;
        clients[i].request.sampler.temperature = i & 1 ? 1.0f : 0.0f;
        assert_int_equal(client_submit(&clients[i], &world, NULL), ERROR_NONE);
    }
}

/* Requests to node 0's driver: the tokens of the plain model. */
static void converse(struct house *house)
{
    submit(house_driver(house, 0), 20);
    assert_true(house_run(house, clients_done, NULL, 10000));
    for (int i = 0; i < CLIENTS; i++) {
        if (clients[i].reason != FINISH_LENGTH)
            fail_msg("client %d ended with %d: %s", i, (int)clients[i].reason,
                     clients[i].error.text);
        client_check(&clients[i], HOUSE_CONTEXT);
    }
}

static uint32_t n_listed(struct house *house, int node)
{
    return hosting_stage_list(house->nodes[node].hosting, NULL, 0);
}

static bool all_gone(void *arg)
{
    return fake_stages_open() == 0 && !n_listed(arg, 0) && !n_listed(arg, 1) && !n_listed(arg, 2);
}

/* ---- the usual ------------------------------------------------------------------------- */

static void test_an_instance_over_nodes(void **state)
{
    (void)state;
    static const char *const places[] = {"0a", "0a0b", "0a1a", "0a1a0b", "0a1a1b2a", "0a1a2a0b"};
    struct house *house = house_open();
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        const uint64_t epoch = house_place(house, places[i]);
        uint64_t answered = 0;
        house_driver(house, 0);
        hosting_driver(house->nodes[0].hosting, "i", &answered);
        assert_int_equal(answered, epoch);
        assert_null(hosting_driver(house->nodes[1].hosting, "i", NULL));
        assert_null(hosting_driver(house->nodes[0].hosting, "another", NULL));
        converse(house);
        assert_int_equal(fake_stages_open(), strlen(places[i]) / 2);
        struct hosting_stage list[4];
        assert_int_equal(hosting_stage_list(house->nodes[0].hosting, list, 4) >= 1, 1);
        assert_string_equal(list[0].instance, "i");
        assert_true(list[0].state == WORKER_READY && list[0].bytes == 1000 * list[0].n_layers &&
                    !list[0].problem);
        house_set_active(house, false);
        assert_true(house_run(house, all_gone, house, 5000));
        assert_null(hosting_driver(house->nodes[0].hosting, "i", NULL));
        for (int k = 0; k < WORLD_NODES; k++)
            assert_int_equal(house->nodes[k].n_held, 0);
        house_set_active(house, true);
    }
    assert_true(house->n_reports < 100 && house->n_ignored == 0); /* nothing is said twice */
    house_close(house);
}

static bool is_done(void *client)
{
    return client_is_done(client);
}

/* In the middle of the chunk, wherever its stage is; with processes for devices on node 1. */
static void test_a_cancelled_chunk_stops_elsewhere(void **state)
{
    (void)state;
    static const char *const places[] = {"0a1a", "0a1a2a", "0a1a0b"};
    struct house *house = house_open_with("-c-");
    uint64_t seed = 80;
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        house_place(house, places[i]);
        struct world world = {.driver = house_driver(house, 0)};
        for (uint32_t layer = 0; layer < FAKE_LAYERS; layer += FAKE_LAYERS - 1) {
            fake_trace_clear();
            fake_pause_at(layer, 150);
            client_init(&clients[0], ++seed, 280, 10);
            assert_int_equal(client_submit(&clients[0], &world, NULL), ERROR_NONE);
            while (!fake_is_paused())
                house_pass(house, 1);
            driver_cancel(world.driver, clients[0].id);
            assert_true(house_run(house, is_done, &clients[0], 5000));
            assert_int_equal(clients[0].reason, FINISH_CANCELLED);
            while (!fake_trace().n_stopped) /* else it would wait there for ever */
                house_pass(house, 1);
            assert_true(fake_trace().n_rows_stopped <= 150);
            fake_pause_at(0, 0);
            converse(house);
            client_init(&clients[0], seed, 290, 5); /* the same text */
            assert_int_equal(client_submit(&clients[0], &world, NULL), ERROR_NONE);
            assert_true(house_run(house, is_done, &clients[0], 5000));
            client_check(&clients[0], HOUSE_CONTEXT);
            assert_int_equal(clients[0].reason, FINISH_LENGTH);
        }
        house_set_active(house, false);
        assert_true(house_run(house, all_gone, house, 5000));
        house_set_active(house, true);
    }
    house_close(house);
}

struct epoch_wait {
    struct house *house;
    uint64_t epoch;
    uint32_t n_open;
};

static bool has_switched(void *arg)
{
    const struct epoch_wait *wait = arg;
    uint64_t epoch = 0;
    return hosting_driver(wait->house->nodes[0].hosting, "i", &epoch) && epoch == wait->epoch &&
           fake_stages_open() == wait->n_open &&
           n_listed(wait->house, 0) + n_listed(wait->house, 1) + n_listed(wait->house, 2) ==
               wait->n_open; /* a part is listed until its job has ended, after its stages have */
}

static void move(struct house *house, const char *place)
{
    struct epoch_wait wait = {house, house_place(house, place), (uint32_t)strlen(place) / 2};
    assert_true(house_run(house, has_switched, &wait, 5000));
    assert_null(house_next(house));
    converse(house);
}

static bool has_next_driver(void *arg)
{
    struct house *house = arg;
    struct hosting_stage list[4];
    uint32_t n = hosting_stage_list(house->nodes[0].hosting, list, 4);
    for (uint32_t i = 0; i < n && i < 4; i++) {
        if (house_next(house) && list[i].epoch == house_next(house)->epoch &&
            list[i].state == WORKER_READY)
            return true;
    }
    return false;
}

static void test_a_new_placement_takes_over(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1a");
    struct driver *old = house_driver(house, 0);
    /* The old one serves until all of the new one is ready. */
    house->nodes[2].weights = WORKER_LACKS;
    house_place(house, "0b2a");
    assert_true(house_run(house, has_next_driver, house, 5000));
    assert_int_equal(house->nodes[2].n_fetches, 1);
    assert_ptr_equal(house_driver(house, 0), old);
    converse(house);
    house->nodes[2].weights = WORKER_HAS_ALL;
    house->is_dirty = true;
    struct epoch_wait wait = {house, house_next(house)->epoch, 2};
    assert_true(house_run(house, has_switched, &wait, 5000));
    converse(house);
    assert_int_equal(n_listed(house, 1), 0);
    /* Some of the same layers, all of them, others. */
    move(house, "0b1b");
    move(house, "0b1b");
    move(house, "0a1b");
    move(house, "0a");
    move(house, "0a");
    move(house, "0a2a1b0b");
    house_close(house);
}

/* What was given up for a new placement is loaded again when that comes to nothing. */
static void test_a_move_that_is_abandoned(void **state)
{
    (void)state;
    struct house *house = house_open();
    const uint64_t epoch = house_place(house, "0a1a");
    converse(house);
    house->nodes[2].weights = WORKER_CANNOT_FETCH;
    house_place(house, "0a2a");
    house_pass(house, 300);
    assert_string_equal(house_next(house)->stages[1]->problem, "its weights cannot be had");
    house_abandon_next(house);
    struct epoch_wait wait = {house, epoch, 2};
    assert_true(house_run(house, has_switched, &wait, 5000));
    converse(house);
    house_close(house);
}

/* ---- what is lost ---------------------------------------------------------------------- */

static void break_under_way(struct house *house, int from, int to)
{
    submit(house_driver(house, 0), 250);
    assert_true(house_run(house, has_tokens, &clients[0], 5000));
    house_abort(house, from, to);
    assert_true(house_run(house, clients_done, NULL, 10000));
    for (int i = 0; i < CLIENTS; i++)
        client_check(&clients[i], HOUSE_CONTEXT);
    assert_int_equal(clients[CLIENTS - 1].reason, FINISH_ERROR);
}

static void test_a_link_that_comes_back(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1a0b");
    struct driver *driver = house_driver(house, 0);
    for (int i = 0; i < 2; i++) {
        break_under_way(house, 0, 1);
        assert_true(house_driver(house, 0) == driver); /* nothing was loaded anew */
        converse(house);
    }
    /* Down for longer: no driver meanwhile. */
    house_cut(house, 0, 1);
    house_pass(house, 400);
    assert_null(hosting_driver(house->nodes[0].hosting, "i", NULL));
    struct hosting_stage list[2];
    assert_int_equal(hosting_stage_list(house->nodes[0].hosting, list, 2), 2);
    assert_true(list[0].state == WORKER_READY && strstr(list[0].problem, "the cable is out"));
    house_mend(house, 0, 1);
    converse(house);
    assert_int_equal(house_current(house)->stages[1]->state, CLUSTER__STAGE_STATE__READY);
    house_close(house);
}

/* A link of which the driver's node sees nothing: the runner before it says so. */
static void test_a_link_between_others(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1a2a");
    converse(house);
    house_cut(house, 1, 2);
    house_pass(house, 100);
    for (int i = 0; i < 2; i++) {
        submit(house_driver(house, 0), 20);
        assert_true(house_run(house, clients_done, NULL, 5000));
        for (int k = 0; k < CLIENTS; k++)
            assert_int_equal(clients[k].reason, FINISH_ERROR);
    }
    house_mend(house, 1, 2);
    house_pass(house, 300);
    converse(house);
    house_close(house);
}

/* The other node loses all it has loaded; then the driver's. */
static void test_a_node_that_starts_anew(void **state)
{
    (void)state;
    struct house *house = house_open();
    const uint64_t epoch = house_place(house, "0a1a");
    fake_set_faults(
        (struct fake_faults){.strangers = true}); /* a message may meet the new runner */
    for (int node = 1; node >= 0; node--) {
        submit(house_driver(house, 0), 250);
        assert_true(house_run(house, has_tokens, &clients[0], 5000));
        house_close_hosting(house, node);
        house_open_hosting(house, node);
        assert_true(house_run(house, clients_done, NULL, 5000));
        house_driver(house, 0);
        converse(house);
        assert_int_equal(house_current(house)->epoch, epoch);
    }
    fake_set_faults((struct fake_faults){0});
    house_close(house);
}

/* Messages come to a node that has loaded nothing, and the driver's node does not know it from the
 * state. */
static void test_messages_that_come_to_nobody(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1a2a");
    converse(house);
    struct driver *driver = house_driver(house, 0);
    house->nodes[0].is_behind = true;
    for (int node = 1; node <= 2; node++) {
        house_close_hosting(house, node);
        house->nodes[node].weights = WORKER_FETCHES;
        house_open_hosting(house, node);
        house_pass(house, 300);
        submit(driver, 20);
        assert_true(house_run(house, clients_done, NULL, 5000));
        for (int i = 0; i < CLIENTS; i++) {
            assert_int_equal(clients[i].reason, FINISH_ERROR);
            assert_non_null(strstr(clients[i].error.text, "has not loaded its stages"));
        }
        house->nodes[node].weights = WORKER_HAS_ALL;
        house->is_dirty = true;
        house_pass(house, 300);
    }
    house->nodes[0].is_behind = false;
    house->is_dirty = true;
    converse(house);
    assert_ptr_equal(house_driver(house, 0), driver);
    house_close(house);
}

/* ---- what cannot be loaded ------------------------------------------------------------- */

static bool has_failed(void *arg)
{
    const struct house *house = arg;
    const Cluster__Placement *placement = house_current(house);
    for (size_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i]->state == CLUSTER__STAGE_STATE__FAILED)
            return true;
    }
    return false;
}

static void fails(struct house *house, uint32_t stage, const char *text)
{
    assert_true(house_run(house, has_failed, house, 5000));
    house_pass(house, 50);
    const Cluster__Stage *failed = house_current(house)->stages[stage];
    assert_int_equal(failed->state, CLUSTER__STAGE_STATE__FAILED);
    if (!strstr(failed->problem, text))
        fail_msg("'%s' in '%s'", text, failed->problem);
    assert_null(hosting_driver(house->nodes[0].hosting, "i", NULL));
    house_set_active(house, false);
    assert_true(house_run(house, all_gone, house, 5000));
    house_set_active(house, true);
}

static void test_loads_that_fail(void **state)
{
    (void)state;
    struct house *house = house_open();
    house_place(house, "0a1x");
    fails(house, 1, "stage 1: this node has no device toy1x");
    house_place(house, "0x");
    fails(house, 0, "no device toy0x");
    fake_set_faults((struct fake_faults){.open_fails_at = 6});
    house_place(house, "0a1a");
    fails(house, 1, "stage 1 (layers 4-7 on toy1a): needs 2 GiB, 1 GiB is free");
    house_place(house, "0a0b");
    fails(house, 0, "layers 4-7 on toy0b");
    fake_set_faults((struct fake_faults){0});
    house->nodes[1].weights = WORKER_CANNOT_FETCH;
    house_place(house, "0a1a");
    fails(house, 1, "its weights cannot be had");
    house->nodes[1].weights = WORKER_HAS_ALL;
    house->nodes[1].lacks_model = true; /* its header is on the way: waited for */
    house_place(house, "0a1a");
    house_pass(house, 200);
    assert_false(has_failed(house));
    house->nodes[1].lacks_model = false;
    house->is_dirty = true;
    converse(house);
    house_close(house);
}

/* Whichever allocation of a step fails: nothing is lost that the next steps do not make good, or it
 * fails in order. */
static void test_steps_without_memory(void **state)
{
    (void)state;
    struct house *house = house_open();
    for (uint32_t nth = 1; nth < 40; nth++) {
        house_place(house, "0a1a0b");
        house->nodes[0].fail_nth = house->nodes[1].fail_nth = nth;
        house_pass(house, 5);
        house->nodes[0].fail_nth = house->nodes[1].fail_nth = 0;
        house->is_dirty = true;
        house_pass(house, 5);
        house_set_active(house, false);
        assert_true(house_run(house, all_gone, house, 5000));
        house_set_active(house, true);
    }
    house_place(house, "0a1a0b");
    converse(house);
    house_close(house);
}

/* ---- closing --------------------------------------------------------------------------- */

static bool loads(void *arg)
{
    return ((struct house *)arg)->nodes[0].n_held > 0;
}

static void release_soon(uv_timer_t *timer)
{
    fake_device_hold(timer->data, false);
    uv_close((uv_handle_t *)timer, NULL);
}

static void hold(struct house *house, struct device *device, uv_timer_t *timer)
{
    fake_device_hold(device, true);
    uv_timer_init(&house->links->loop, timer);
    timer->data = device;
}

static void test_closing_while_it_loads(void **state)
{
    (void)state;
    uv_timer_t timer;
    struct house *house = house_open();
    hold(house, house->nodes[0].devices[0], &timer);
    house_place(house, "0a1a");
    assert_true(house_run(house, loads, house, 5000));
    uv_timer_start(&timer, release_soon, 100, 0);
    house_close(house);
}

static void test_unloading_while_it_loads(void **state)
{
    (void)state;
    uv_timer_t timer;
    struct house *house = house_open();
    hold(house, house->nodes[0].devices[0], &timer);
    house_place(house, "0a1a");
    assert_true(house_run(house, loads, house, 5000));
    house_set_active(house, false);
    house_pass(house, 50);
    assert_int_equal(n_listed(house, 0), 1);
    uv_timer_start(&timer, release_soon, 50, 0);
    assert_true(house_run(house, all_gone, house, 5000));
    house_set_active(house, true);
    house_place(house, "0a1a");
    converse(house);
    house_close(house);
}

/* ---- memory ----------------------------------------------------------------------------- */

struct step_wait {
    struct house *house;
    uint32_t step;
};

static bool has_step(void *arg)
{
    const struct step_wait *wait = arg;
    return house_current(wait->house)->stages[1]->memory_step == wait->step;
}

static void test_steps_of_memory_are_told(void **state)
{
    (void)state;
    struct house *house = house_open_with("ccc");
    house_place(house, "0a1a");
    house_driver(house, 0);
    for (uint32_t i = 0; i < 3; i++) {
        struct step_wait wait = {house, i % 2 ? 0 : 4 + i};
        struct hosting_stage list[4];
        usleep(i ? 1100 * 1000 : 0); /* they are told once a second */
        fake_children_step(house->nodes[1].children, "toy1a", wait.step);
        assert_true(house_run(house, has_step, &wait, 10000));
        assert_int_equal(hosting_memory_step(house->nodes[1].hosting, "toy1a"), wait.step);
        assert_true(hosting_memory_step(house->nodes[0].hosting, "toy0a") != wait.step ||
                    !wait.step);
        assert_int_equal(hosting_stage_list(house->nodes[1].hosting, list, 4), 1);
        assert_int_equal(list[0].memory_step, wait.step);
    }
    assert_string_equal(house_current(house)->stages[1]->memory_given, memory_step_words(6));
    assert_int_equal(house->n_ignored, 0);
    converse(house);
    house_close(house);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_instance_over_nodes),
        cmocka_unit_test(test_a_cancelled_chunk_stops_elsewhere),
        cmocka_unit_test(test_a_new_placement_takes_over),
        cmocka_unit_test(test_a_move_that_is_abandoned),
        cmocka_unit_test(test_a_link_that_comes_back),
        cmocka_unit_test(test_a_link_between_others),
        cmocka_unit_test(test_a_node_that_starts_anew),
        cmocka_unit_test(test_messages_that_come_to_nobody),
        cmocka_unit_test(test_loads_that_fail),
        cmocka_unit_test(test_steps_without_memory),
        cmocka_unit_test(test_closing_while_it_loads),
        cmocka_unit_test(test_unloading_while_it_loads),
        cmocka_unit_test(test_steps_of_memory_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
