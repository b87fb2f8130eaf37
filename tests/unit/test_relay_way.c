/* Requests to a driver that their node does not reach, through a third. The driver is at node 0,
 * who asks is node 1. */
#include "relay_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct relay_options DEFAULTS = {0};

static void ask(struct relay_world *world, struct client *client, uint64_t seed, uint32_t n_predict)
{
    struct error err = {0};
    client_init(client, seed, 40, n_predict);
    client->request.sampler.temperature = 1;
    client->request.sampler.presence_penalty = 0.5f;
    client->request.sampler.seed = seed;
    client->request.want_all_logits = seed == 2;
    client->request.logprobs = seed == 1;
    client->request.n_top_logprobs = seed == 1 ? 3 : 0;
    if (relay_world_ask(world, 1, client, &err))
        fail_msg("%s", err.text);
}

static void check(const struct client *client)
{
    client_check(client, RELAY_CONTEXT);
    assert_int_equal(client->reason, FINISH_LENGTH);
    assert_int_equal(client->n_tokens, client->request.n_predict);
}

static void slow_down(void)
{
    fake_set_faults((struct fake_faults){.delay_us_max = 20000, .seed = 1});
}

static void test_through_the_third(void **state)
{
    (void)state;
    static struct client clients[3];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    world.has_detours = true;
    world.blind[1][0] = true;
    relay_world_place(&world, 0);
    for (uint32_t i = 0; i < 3; i++)
        ask(&world, &clients[i], i, 60);
    assert_true(relay_world_wait(&world, clients, 3));
    for (uint32_t i = 0; i < 3; i++)
        check(&clients[i]);
    assert_int_equal(clients[2].n_rows, 40 + 60);
    assert_true(world.nodes[2].n_frames > 0);
    assert_int_equal(clients[0].usage.prompt_tokens, 40);
    relay_world_close(&world);
}

/* The node with the driver falls silent, though its link is up; then the third does not hear it
 * either, but by then the first does. */
static void test_in_the_middle(void **state)
{
    (void)state;
    static struct client clients[3];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    world.has_detours = true;
    relay_world_place(&world, 0);
    slow_down();
    for (uint32_t i = 0; i < 3; i++)
        ask(&world, &clients[i], i, 250);
    assert_true(relay_world_wait_tokens(&world, &clients[0], 10));
    assert_int_equal(world.nodes[2].n_frames, 0);
    world.blind[1][0] = true;
    relay_world_pass(&world, 1500);
    const uint32_t n_frames = world.nodes[2].n_frames, n_tokens = client_tokens(&clients[0]);
    assert_true(n_frames > 0);
    assert_true(relay_world_wait_tokens(&world, &clients[0], n_tokens + 5));
    world.blind[1][0] = false;
    world.blind[2][0] = true;
    relay_world_pass(&world, 1500);
    fake_set_faults((struct fake_faults){0});
    assert_true(relay_world_wait(&world, clients, 3));
    for (uint32_t i = 0; i < 3; i++)
        check(&clients[i]);
    assert_int_equal(clients[2].n_rows, 40 + 250);
    relay_world_close(&world);
}

/* Nobody hands on a second time: the third refuses, and that is all. */
static void test_no_way(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    const struct relay_options impatient = {.patience_ms = 700};
    relay_world_open(&world, &impatient);
    world.has_detours = world.is_misled = true;
    world.blind[1][0] = world.blind[2][0] = true;
    relay_world_place(&world, 0);
    ask(&world, &client, 1, 20);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_ERROR);
    assert_int_equal(client.error.code, ERROR_BUSY);
    assert_in_range(world.nodes[2].n_frames, 1, 20); /* ever more rarely */
    assert_int_equal(world.nodes[0].n_frames, 0);
    relay_world_close(&world);
}

static void test_cancelled_and_closed(void **state)
{
    (void)state;
    static struct client clients[2];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    world.has_detours = true;
    world.blind[1][0] = true;
    relay_world_place(&world, 0);
    slow_down();
    for (uint32_t i = 0; i < 2; i++)
        ask(&world, &clients[i], i, 250);
    assert_true(relay_world_wait_tokens(&world, &clients[1], 3));
    generator_cancel(world.nodes[1].generator, clients[0].id);
    assert_true(relay_world_wait(&world, clients, 1));
    assert_int_equal(clients[0].reason, FINISH_CANCELLED);
    for (int i = 0; i < 100 && driver_stats(world.driver.driver).slots_busy > 1; i++)
        link_world_pass(world.links, 20);
    assert_int_equal(driver_stats(world.driver.driver).slots_busy, 1); /* it ended there, too */
    struct error why = {.code = ERROR_IO, .text = "the cable is out"};
    link_abort(mesh_find(world.links->nodes[1].mesh, world.links->nodes[2].identity.node_id), &why);
    relay_world_link(&world);
    assert_true(relay_world_wait_tokens(&world, &clients[1], client_tokens(&clients[1]) + 5));
    client_check(&clients[0], RELAY_CONTEXT);
    relay_world_close(&world); /* with a guest in it */
    assert_true(client_is_done(&clients[1]));
    client_check(&clients[1], RELAY_CONTEXT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_through_the_third),
        cmocka_unit_test(test_in_the_middle),
        cmocka_unit_test(test_no_way),
        cmocka_unit_test(test_cancelled_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
