/* Weights that a node fetches from others: from whom, how many bytes, and what goes wrong on the
 * way; closing in the middle. Nodes in this process, over links. */
#include "base/limits.h"
#include "base/mem.h"
#include "model/model.h"
#include "weights/weights_state.h"
#include "weights_hosts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_only_what_is_needed_is_fetched(void **state)
{
    world_open(2);
    connect_hosts(0, 1);
    add_demo(&hosts[1]);
    assert_int_equal(hosts[1].facts.n_layers, n_layers);
    assert_int_equal(hosts[1].facts.bytes, demo.size);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, n_layers), WORKER_HAS_ALL);
    assert_int_equal(weights_have(hosts[1].weights, &demo_id, 0, n_layers + 1), WORKER_LACKS);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 1), WORKER_LACKS);
    assert_null(weights_model(hosts[0].weights, &demo_id));

    weights_fetch(hosts[0].weights, &demo_id, 1, 1);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 1, 1), WORKER_FETCHES);
    await_layers(&hosts[0], 1, 1);
    struct part_set set = parts_of(1, 1);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes,
                     manifest_bytes() + bytes_of(&set));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 2, 1), WORKER_LACKS);
    assert_true(hosts[0].n_changed > 0);
    check_bytes(&hosts[0], 1, 1);
    part_set_deinit(&set);

    /* more of it, while it is being fetched; what is there is not fetched again */
    weights_fetch(hosts[0].weights, &demo_id, 2, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    await_layers(&hosts[0], 0, n_layers);
    struct part_set all = parts_of(0, n_layers);
    assert_int_equal(weights_counts(hosts[0].weights).received_bytes,
                     manifest_bytes() + bytes_of(&all));
    check_bytes(&hosts[0], 0, n_layers);
    part_set_deinit(&all);
    world_close(2);
}

static void test_two_holders_share_the_work(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    add_demo(&hosts[2]);
    connect_hosts(0, 1);
    connect_hosts(0, 2);
    fetch_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    assert_true(weights_counts(hosts[1].weights).sent_bytes > 0);
    assert_true(weights_counts(hosts[2].weights).sent_bytes > 0);
    world_close(3);
}

static void test_receivers_give_what_they_have(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    link_world_close(world, 1);
    connect_hosts(0, 2);
    fetch_layers(&hosts[0], 0, 2);
    check_bytes(&hosts[0], 0, 2);
    world_close(3);
}

/* Both want the same at once, only one of them is linked to the holder: it passes on what it
 * gets. */
static void test_parts_travel_on_while_they_come(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    await_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

static bool has_begun(void *arg)
{
    struct fetch_progress progress = weights_progress(((struct host *)arg)->weights, &demo_id);
    return progress.n_wanted > 1 && progress.n_verified >= progress.n_wanted / 4;
}

static void test_a_fetch_goes_on_after_a_restart(void **state)
{
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    struct fetch_progress before = weights_progress(hosts[0].weights, &demo_id);
    assert_true(before.n_verified < before.n_wanted);
    close_weights(&hosts[0]);
    open_weights(&hosts[0]);
    fetch_layers(&hosts[0], 0, n_layers);
    struct part_set all = parts_of(0, n_layers);
    /* the manifest, the header and what was verified did not travel again */
    assert_true(weights_counts(hosts[0].weights).received_bytes <=
                bytes_of(&all) - before.verified_bytes);
    check_bytes(&hosts[0], 0, n_layers);
    part_set_deinit(&all);
    world_close(2);
}

/* Its header could not be opened for want of memory: it is tried again when layers are wanted. */
static void test_a_header_is_opened_once_more(void **state)
{
    (void)state;
    world_open(2);
    connect_hosts(0, 1);
    add_demo(&hosts[0]);
    fetch_layers(&hosts[1], 0, 1);
    struct weights_entry *entry = weights_find(hosts[1].weights, &demo_id);
    mem_fail_nth(1);
    struct weights_shelved opened = {.shelf = entry->here.shelf};
    assert_int_equal(weights_shelved_open_header(&opened, NULL), ERROR_NO_MEMORY);
    mem_fail_nth(0);
    assert_false(opened.is_dead);
    assert_null(opened.model);
    model_close(entry->here.model);
    entry->here.model = NULL;
    fetch_layers(&hosts[1], 0, n_layers);
    assert_non_null(entry->here.model);
    world_close(2);
}

static void test_a_holder_leaves(void **state)
{
    world_open(3);
    add_demo(&hosts[1]);
    add_demo(&hosts[2]);
    connect_hosts(0, 1);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    link_abort(mesh_find(hosts[2].node->mesh, hosts[0].node->identity.node_id),
               &(struct error){ERROR_IO, "gone"});
    await_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

/* Host 2 has fetched all, then a byte of it turns on its disk. */
static void make_liar(void)
{
    char path[PATH_MAX], name[DIGEST_TEXT];
    add_demo(&hosts[1]);
    connect_hosts(2, 1);
    fetch_layers(&hosts[2], 0, n_layers);
    snprintf(path, sizeof path, "%.3900s/models/%s.gguf", hosts[2].folder,
             digest_text(&demo_id, name));
    for (uint32_t i = 1; i < demo.n_parts; i++)
        weights_flip_byte(path, demo.parts[i].offset + demo.parts[i].size / 2);
}

static void test_a_holder_lies(void **state)
{
    world_open(3);
    make_liar();
    connect_hosts(0, 2);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, n_layers);
    check_bytes(&hosts[0], 0, n_layers);
    world_close(3);
}

static void test_all_holders_lie(void **state)
{
    world_open(3);
    make_liar();
    link_world_close(world, 1);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 1200;
    open_weights(&hosts[0]);
    connect_hosts(0, 2);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_problem, &hosts[0], 10000));
    assert_non_null(strstr(weights_problem(hosts[0].weights, &demo_id), "1 sent wrong bytes"));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, n_layers), WORKER_CANNOT_FETCH);
    world_close(3);
}

static void test_nobody_has_it(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.patience_ms = 600;
    open_weights(&hosts[0]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, 1);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_CANNOT_FETCH);
    /* somebody gets it: then it is worth another attempt */
    add_demo(&hosts[1]);
    link_world_pass(world, 50);
    assert_int_equal(weights_have(hosts[0].weights, &demo_id, 0, 1), WORKER_LACKS);
    fetch_layers(&hosts[0], 0, 1);
    assert_null(weights_problem(hosts[0].weights, &demo_id));
    world_close(2);
}

static void test_the_limit_is_too_small(void **state)
{
    world_open(2);
    close_weights(&hosts[0]);
    hosts[0].options.limit_bytes = 600 * 1024;
    open_weights(&hosts[0]);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_problem, &hosts[0], 5000));
    assert_non_null(strstr(weights_problem(hosts[0].weights, &demo_id), "limit"));
    struct part_set all = parts_of(0, n_layers);
    assert_true(weights_counts(hosts[0].weights).received_bytes <
                bytes_of(&all) / 2); /* said before it was fetched */
    part_set_deinit(&all);
    world_close(2);
}

static void test_a_model_makes_room_for_another(void **state)
{
    char path[PATH_MAX];
    world_open(2);
    add_demo(&hosts[1]);
    add_file(&hosts[1], weights_golden("qwen3", path));
    assert_int_equal(hosts[1].err.code, 0);
    close_weights(&hosts[0]);
    hosts[0].options.limit_bytes = demo.size + hosts[1].facts.bytes / 2; /* one or the other */
    open_weights(&hosts[0]);
    connect_hosts(0, 1);
    fetch_layers(&hosts[0], 0, n_layers);
    const struct digest other = hosts[1].facts.model;
    link_world_pass(world, LIMIT_WEIGHTS_IDLE_MS + 100);
    weights_fetch(hosts[0].weights, &other, 0, hosts[1].facts.n_layers);
    struct host *host = &hosts[0];
    for (int i = 0; i < 100 && weights_have(host->weights, &other, 0, hosts[1].facts.n_layers) ==
                                   WORKER_FETCHES;
         i++)
        link_world_pass(world, 20);
    if (weights_problem(host->weights, &other))
        fail_msg("%s", weights_problem(host->weights, &other));
    assert_int_equal(weights_have(host->weights, &other, 0, hosts[1].facts.n_layers),
                     WORKER_HAS_ALL);
    assert_int_equal(weights_have(host->weights, &demo_id, 0, 0), WORKER_LACKS);
    world_close(2);
}

static void count_ended(void *arg, const struct weights_facts *facts, const struct error *err)
{
    assert_true(facts ? !err : err && err->code == ERROR_CANCELLED);
    ++*(uint32_t *)arg;
}

/* Hashing, waiting to be hashed, reading and sending for others, receiving, writing, verifying: all
 * at once. */
static void test_closing_with_everything_under_way(void **state)
{
    char path[PATH_MAX];
    uint32_t n_ended = 0;
    world_open(2);
    add_demo(&hosts[1]);
    connect_hosts(0, 1);
    weights_fetch(hosts[0].weights, &demo_id, 0, n_layers);
    assert_true(link_world_run(world, has_begun, &hosts[0], 10000));
    for (int i = 0; i < 4; i++) {
        weights_add_file(hosts[0].weights, weights_golden("llama", path), count_ended, &n_ended);
        weights_add_file(hosts[1].weights, weights_golden("qwen3", path), count_ended, &n_ended);
    }
    weights_close(hosts[1].weights, host_on_closed, &hosts[1]);
    weights_close(hosts[0].weights, host_on_closed, &hosts[0]);
    assert_true(link_world_run(world, host_is_closed, &hosts[0], 5000));
    assert_true(link_world_run(world, host_is_closed, &hosts[1], 5000));
    assert_int_equal(n_ended, 8);
    hosts[0].weights = hosts[1].weights = NULL;
    world_close(2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_what_is_needed_is_fetched),
        cmocka_unit_test(test_two_holders_share_the_work),
        cmocka_unit_test(test_receivers_give_what_they_have),
        cmocka_unit_test(test_parts_travel_on_while_they_come),
        cmocka_unit_test(test_a_fetch_goes_on_after_a_restart),
        cmocka_unit_test(test_a_header_is_opened_once_more),
        cmocka_unit_test(test_a_holder_leaves),
        cmocka_unit_test(test_a_holder_lies),
        cmocka_unit_test(test_all_holders_lie),
        cmocka_unit_test(test_nobody_has_it),
        cmocka_unit_test(test_the_limit_is_too_small),
        cmocka_unit_test(test_a_model_makes_room_for_another),
        cmocka_unit_test(test_closing_with_everything_under_way),
    };
    return cmocka_run_group_tests(tests, hosts_set_up, hosts_tear_down);
}
