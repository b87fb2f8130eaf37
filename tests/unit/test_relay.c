/* Requests to a driver wherever it is: here, on another node, lost and placed anew. */
#include "relay_world.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct relay_options DEFAULTS = {0};

/* Tokens come slowly enough for something to happen between them. */
static void slow_down(void)
{
    fake_set_faults((struct fake_faults){.delay_us_max = 4000, .seed = 1});
}

static void ask(struct relay_world *world, int node, struct client *client)
{
    struct error err = {0};
    if (relay_world_ask(world, node, client, &err))
        fail_msg("%s", err.text);
}

/* ---- where the driver is ------------------------------------------------------------------- */

enum { N_KINDS = 8 };

/* One of each kind of request. */
static void make_kinds(struct client clients[N_KINDS])
{
    for (uint32_t i = 0; i < N_KINDS; i++) {
        client_init(&clients[i], i, 10 + 20 * i, 30);
        clients[i].request.sampler.seed = i;
    }
    clients[1].request.sampler.temperature = 1;
    clients[1].request.sampler.repeat_penalty = 1.3f;
    clients[2].request.logprobs = true;
    clients[2].request.n_top_logprobs = 5;
    clients[3].request.want_all_logits = true;
    clients[4].request.n_predict = 0;
    clients[4].request.embeddings = true;
    clients[5].request.n_predict = 0;
    clients[6].stop_after = 7;
    clients[7].request.n_predict = UINT32_MAX; /* until the context is full */
}

static void check_kinds(const struct client clients[N_KINDS])
{
    for (uint32_t i = 0; i < N_KINDS; i++)
        client_check(&clients[i], RELAY_CONTEXT);
    assert_int_equal(clients[0].reason, FINISH_LENGTH);
    assert_int_equal(clients[6].reason, FINISH_STOP);
    assert_int_equal(clients[6].n_tokens, 7);
    assert_int_equal(clients[7].n_tokens, RELAY_CONTEXT - clients[7].request.n_prompt);
    assert_int_equal(clients[3].n_rows, clients[3].request.n_prompt + 30);
    assert_true(clients[0].usage.prefill_ns > 0 && clients[0].usage.decode_ns > 0);
}

static void test_every_kind_here_and_there(void **state)
{
    (void)state;
    static struct client clients[N_KINDS];
    struct relay_world world;
    float logprobs[2][30];
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 0);
    for (int node = 0; node < 2; node++) {
        make_kinds(clients);
        for (uint32_t i = 0; i < N_KINDS; i++)
            ask(&world, node, &clients[i]);
        assert_true(relay_world_wait(&world, clients, N_KINDS));
        check_kinds(clients);
        memcpy(logprobs[node], clients[2].logprobs, sizeof logprobs[node]);
    }
    assert_true(logprobs[0][3] < 0);
    assert_memory_equal(logprobs[0], logprobs[1], sizeof logprobs[0]);
    assert_int_equal(generator_context(world.nodes[1].generator), RELAY_CONTEXT);
    assert_int_equal(generator_stats(world.nodes[1].generator).requests_total, N_KINDS);
    assert_true(relay_world_use(&world, 0, "toy").used_ms > 0);
    assert_int_equal(relay_world_use(&world, 2, "toy").used_ms, 0);
    assert_int_equal(world.nodes[1].n_wanted, 0);
    relay_world_close(&world);
}

static void test_stop_tokens(void **state)
{
    (void)state;
    struct relay_world world;
    static struct client client;
    int32_t stop_tokens[FAKE_VOCAB / 8];
    for (int32_t i = 0; i < FAKE_VOCAB / 8; i++)
        stop_tokens[i] = i;
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 2);
    for (uint64_t seed = 0; seed < 4; seed++) {
        client_init(&client, seed, 20, 200);
        client.request.stop_tokens = stop_tokens;
        client.request.n_stop_tokens = FAKE_VOCAB / 8;
        ask(&world, 1, &client);
        assert_true(relay_world_wait(&world, &client, 1));
        client_check(&client, RELAY_CONTEXT);
        assert_int_equal(client.reason, FINISH_STOP);
    }
    relay_world_close(&world);
}

static void test_many_from_everywhere(void **state)
{
    (void)state;
    enum { N = 96 };
    static struct client clients[N];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 0);
    for (uint32_t i = 0; i < N; i++) {
        client_init(&clients[i], i % 7, 5 + i, 40);
        clients[i].request.sampler.temperature = i & 1 ? 0.9f : 0;
        clients[i].request.sampler.seed = i;
        ask(&world, (int)i % WORLD_NODES, &clients[i]);
    }
    assert_true(relay_world_wait(&world, clients, N));
    for (uint32_t i = 0; i < N; i++) {
        client_check(&clients[i], RELAY_CONTEXT);
        assert_int_equal(clients[i].reason, FINISH_LENGTH);
    }
    relay_world_close(&world);
}

/* ---- waiting, refusing, cancelling ----------------------------------------------------------- */

static void test_waiting_for_a_driver(void **state)
{
    (void)state;
    static struct client clients[3];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    for (int i = 0; i < 3; i++) {
        client_init(&clients[i], 1, 20, 20);
        ask(&world, i, &clients[i]);
    }
    assert_true(relay_world_use(&world, 1, "toy").waits);
    assert_false(relay_world_use(&world, 1, "another").waits);
    assert_int_equal(generator_stats(world.nodes[1].generator).queued, 1);
    link_world_pass(world.links, 50);
    assert_int_equal(world.nodes[1].n_wanted, 1); /* not more than once a second */
    relay_world_place(&world, 1);
    assert_true(relay_world_wait(&world, clients, 3));
    for (int i = 0; i < 3; i++) {
        client_check(&clients[i], RELAY_CONTEXT);
        assert_int_equal(clients[i].reason, FINISH_LENGTH);
        assert_true(clients[i].usage.queued_ns >= 40000000);
    }
    relay_world_close(&world);
}

static void test_patience(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    relay_world_open(&world, &(struct relay_options){.patience_ms = 200});
    client_init(&client, 1, 20, 20);
    ask(&world, 0, &client);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_ERROR);
    assert_int_equal(client.error.code, ERROR_BUSY);
    assert_non_null(strstr(client.error.text, "within 0.2 s"));
    assert_non_null(strstr(client.error.text, "the toy is being loaded"));
    client_check(&client, RELAY_CONTEXT);
    /* The node that has it cannot be reached. */
    relay_world_place(&world, 2);
    link_world_close(world.links, 2);
    client_init(&client, 1, 20, 20);
    ask(&world, 0, &client);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_ERROR);
    assert_non_null(strstr(client.error.text, "there is no link to node"));
    relay_world_close(&world);
}

/* Nothing is loaded for it, and it goes nowhere else: all of that ends it. */
static void test_what_never_waits(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    for (int node = 0; node < 2; node++) {
        client_init(&client, 1, 20, 20);
        client.request.never_waits = true;
        ask(&world, node, &client);
        assert_true(relay_world_wait(&world, &client, 1));
        assert_int_equal(client.reason, FINISH_ERROR);
        assert_int_equal(client.error.code, ERROR_BUSY);
        assert_int_equal(world.nodes[node].n_wanted, 0);
        assert_int_equal(client.n_tokens, 0);
    }
    relay_world_place(&world, 1);
    for (int node = 0; node < 2; node++) {
        client_init(&client, 1, 20, 20);
        client.request.never_waits = true;
        ask(&world, node, &client);
        assert_true(relay_world_wait(&world, &client, 1));
        client_check(&client, RELAY_CONTEXT);
        assert_int_equal(client.reason, FINISH_LENGTH);
    }
    slow_down();
    client_init(&client, 1, 20, 200);
    client.request.never_waits = true;
    ask(&world, 0, &client);
    assert_true(relay_world_wait_tokens(&world, &client, 5));
    link_world_close(world.links, 1);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_ERROR);
    assert_int_equal(client.error.code, ERROR_IO);
    assert_true(client.n_tokens < 200);
    relay_world_close(&world);
}

static void test_refusals(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct error err = {0};
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 0);
    client_init(&client, 1, 0, 20);
    assert_int_equal(relay_world_ask(&world, 1, &client, &err), ERROR_INVALID);
    client_init(&client, 1, RELAY_CONTEXT + 1, 20);
    assert_int_equal(relay_world_ask(&world, 1, &client, &err), ERROR_INVALID);
    client_init(&client, 1, 10, 20);
    client.request.sampler.temperature = -1;
    assert_int_equal(relay_world_ask(&world, 1, &client, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "temperature"));
    for (int node = 0; node < 2; node++) { /* only the driver knows the vocabulary */
        client_init(&client, 1, 10, 20);
        client.prompt[3] = FAKE_VOCAB;
        ask(&world, node, &client);
        assert_true(relay_world_wait(&world, &client, 1));
        assert_int_equal(client.reason, FINISH_ERROR);
        assert_int_equal(client.error.code, ERROR_INVALID);
        assert_non_null(strstr(client.error.text, "outside the vocabulary"));
    }
    world.find_fails = ERROR_NOT_FOUND;
    client_init(&client, 1, 10, 20);
    ask(&world, 1, &client);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.error.code, ERROR_NOT_FOUND);
    struct generator *generator;
    assert_int_equal(relay_generator(world.nodes[0].relay, "", 10, &generator, &err),
                     ERROR_INVALID);
    assert_int_equal(relay_generator(world.nodes[0].relay, "toy", 0, &generator, &err),
                     ERROR_INVALID);
    relay_world_close(&world);
}

static void test_no_memory(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    struct error err = {0};
    uint32_t n = 0;
    relay_world_open(&world, &DEFAULTS);
    for (;;) {
        client_init(&client, 1, 10, 20);
        mem_fail_nth(++n);
        if (!relay_world_ask(&world, 0, &client, &err))
            break;
        assert_int_equal(err.code, ERROR_NO_MEMORY);
    }
    mem_fail_nth(0);
    assert_in_range(n, 3, 20);
    relay_world_place(&world, 0);
    assert_true(relay_world_wait(&world, &client, 1));
    client_check(&client, RELAY_CONTEXT);
    relay_world_close(&world);
}

static void test_cancelling_in_every_state(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    client_init(&client, 1, 20, 200);
    ask(&world, 1, &client); /* waiting */
    link_world_pass(world.links, 20);
    generator_cancel(world.nodes[1].generator, client.id);
    assert_true(relay_world_wait(&world, &client, 1));
    assert_int_equal(client.reason, FINISH_CANCELLED);
    relay_world_place(&world, 0);
    slow_down();
    for (int node = 0; node < 2; node++) { /* here, and there */
        client_init(&client, 1, 20, 250);
        ask(&world, node, &client);
        assert_true(relay_world_wait_tokens(&world, &client, 3));
        generator_cancel(world.nodes[node].generator, client.id);
        generator_cancel(world.nodes[node].generator, client.id);
        generator_cancel(world.nodes[node].generator, 12345);
        assert_true(relay_world_wait(&world, &client, 1));
        assert_int_equal(client.reason, FINISH_CANCELLED);
        client_check(&client, RELAY_CONTEXT);
        assert_in_range(client.n_tokens, 3, 200);
    }
    for (int i = 0; i < 100 && driver_stats(world.driver.driver).slots_busy; i++)
        link_world_pass(world.links, 20);
    assert_int_equal(driver_stats(world.driver.driver).slots_busy, 0); /* it ended there, too */
    relay_world_close(&world);
}

/* ---- loss and replay ------------------------------------------------------------------------- */

/* Where the driver is, how it is lost, where the next is. */
struct loss {
    int from, to;
    bool is_cut;
};

static void lose(struct relay_world *world, const struct loss *loss)
{
    slow_down();
    if (loss->is_cut)
        relay_world_cut(world);
    else
        relay_world_unplace(world);
    link_world_pass(world->links, 30);
    relay_world_unplace(world);
}

static void test_a_driver_that_is_lost(void **state)
{
    (void)state;
    static const struct loss losses[] = {{0, 0, false}, {0, 2, false}, {1, 2, false}, {1, 0, false},
                                         {0, 1, true},  {2, 1, true},  {2, 2, true}};
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        static struct client clients[3];
        const struct loss *loss = &losses[i];
        struct relay_world world;
        relay_world_open(&world, &DEFAULTS);
        slow_down();
        if (loss->is_cut)
            relay_world_place_far(&world, loss->from);
        else
            relay_world_place(&world, loss->from);
        for (uint32_t k = 0; k < 3; k++) {
            client_init(&clients[k], k, 30 + 10 * k, 150);
            clients[k].request.sampler.temperature = k ? 1.0f : 0.0f;
            clients[k].request.sampler.presence_penalty = k ? 0.5f : 0;
            clients[k].request.sampler.seed = k;
            clients[k].request.want_all_logits = k == 2;
            ask(&world, 0, &clients[k]);
        }
        for (uint32_t k = 0; k < 3; k++)
            assert_true(relay_world_wait_tokens(&world, &clients[k], 5 + (uint32_t)i));
        lose(&world, loss);
        for (uint32_t k = 0; k < 3; k++)
            assert_false(client_is_done(&clients[k]));
        assert_true(relay_world_use(&world, 0, "toy").waits);
        relay_world_place(&world, loss->to);
        assert_true(relay_world_wait_tokens(&world, &clients[2], 40));
        relay_world_place(&world, loss->from); /* and once more */
        fake_set_faults((struct fake_faults){0});
        assert_true(relay_world_wait(&world, clients, 3));
        for (uint32_t k = 0; k < 3; k++) {
            client_check(&clients[k], RELAY_CONTEXT);
            assert_int_equal(clients[k].reason, FINISH_LENGTH);
            assert_int_equal(clients[k].n_tokens, 150);
        }
        assert_int_equal(clients[2].n_rows, 50 + 150);
        relay_world_close(&world);
    }
}

static void test_a_link_that_goes_down(void **state)
{
    (void)state;
    static struct client clients[2];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 2);
    slow_down();
    for (uint32_t i = 0; i < 2; i++) {
        client_init(&clients[i], 3, 40, 200);
        clients[i].request.sampler.temperature = 1;
        clients[i].request.want_all_logits = i;
        ask(&world, 0, &clients[i]);
    }
    for (uint32_t n = 10; n <= 50; n += 20) {
        assert_true(relay_world_wait_tokens(&world, &clients[0], n));
        struct error why = {.code = ERROR_IO, .text = "the cable is out"};
        link_abort(mesh_find(world.links->nodes[0].mesh, world.links->nodes[2].identity.node_id),
                   &why);
        link_world_pass(world.links, 1);
        relay_world_link(&world);
    }
    fake_set_faults((struct fake_faults){0});
    assert_true(relay_world_wait(&world, clients, 2));
    for (uint32_t i = 0; i < 2; i++) {
        client_check(&clients[i], RELAY_CONTEXT);
        assert_int_equal(clients[i].reason, FINISH_LENGTH);
    }
    assert_int_equal(driver_stats(world.driver.driver).slots_busy,
                     0); /* what the lost link had begun has ended */
    relay_world_close(&world);
}

/* The rows of a prompt and of the last token are not given twice, nor left out, wherever it is
 * lost. */
static void test_rows_of_a_lost_driver(void **state)
{
    (void)state;
    static struct client clients[3];
    for (uint32_t i = 0; i < 12; i++) {
        struct relay_world world;
        relay_world_open(&world, &DEFAULTS);
        relay_world_place(&world, 1);
        fake_set_faults((struct fake_faults){.delay_us_max = 1000, .seed = i});
        client_init(&clients[0], i, 250, 4);
        clients[0].request.want_all_logits = true;
        client_init(&clients[1], i + 1, 250, 0);
        clients[1].request.embeddings = true;
        client_init(&clients[2], i + 2, 200, 0);
        for (uint32_t k = 0; k < 3; k++)
            ask(&world, (int)(i & 1), &clients[k]);
        link_world_pass(world.links, 2 + 2 * i);
        relay_world_place(&world, 2);
        assert_true(relay_world_wait(&world, clients, 3));
        for (uint32_t k = 0; k < 3; k++) {
            client_check(&clients[k], RELAY_CONTEXT);
            assert_int_equal(clients[k].reason, FINISH_LENGTH);
        }
        relay_world_close(&world);
    }
}

/* A device's failure is the request's own: no replay, or it would go on for ever. */
static void test_an_error_of_the_request(void **state)
{
    (void)state;
    static struct client client;
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    relay_world_place(&world, 0);
    for (int node = 0; node < 2; node++) {
        client_init(&client, 1, 20, 20);
        fake_fail_next(0);
        ask(&world, node, &client);
        assert_true(relay_world_wait(&world, &client, 1));
        assert_int_equal(client.reason, FINISH_ERROR);
        assert_int_equal(client.error.code, ERROR_DEVICE);
    }
    relay_world_close(&world);
}

/* ---- limits and the end ---------------------------------------------------------------------- */

/* The loop stands still: the driver goes on, and ends what finds no room. */
static void test_a_link_that_is_too_slow(void **state)
{
    (void)state;
    static struct client clients[2];
    struct relay_world world;
    relay_world_open(&world, &(struct relay_options){.queue_bytes = 2000});
    relay_world_place(&world, 0);
    for (uint32_t i = 0; i < 2; i++) {
        client_init(&clients[i], i, 20, i ? 0 : 250);
        clients[i].request.embeddings = i;
        clients[i].request.n_prompt = i ? 250 : 20;
        fake_block(true);
        ask(&world, 1, &clients[i]);
        for (int k = 0; k < 200 && !driver_stats(world.driver.driver).slots_busy; k++)
            link_world_pass(world.links, 5);
        link_world_pass(world.links, 20); /* it was accepted */
        fake_block(false);
        for (int k = 0; k < 1000 && driver_stats(world.driver.driver).slots_busy; k++)
            usleep(5000);
        assert_int_equal(driver_stats(world.driver.driver).slots_busy, 0);
        assert_true(relay_world_wait(&world, &clients[i], 1));
        assert_int_equal(clients[i].reason, FINISH_ERROR);
        assert_int_equal(clients[i].error.code, ERROR_BUSY);
        assert_non_null(strstr(clients[i].error.text, "too slow"));
        assert_true(i ? clients[i].n_rows > 10 && clients[i].n_rows < 250
                      : clients[i].n_tokens > 10 && clients[i].n_tokens < 250);
    }
    client_check(&clients[0], RELAY_CONTEXT);
    relay_world_close(&world);
}

static void test_closing_with_requests(void **state)
{
    (void)state;
    static struct client clients[9];
    struct relay_world world;
    relay_world_open(&world, &DEFAULTS);
    slow_down();
    relay_world_place(&world, 0);
    for (uint32_t i = 0; i < 9; i++) { /* in slots, and waiting for one */
        client_init(&clients[i], i, 20, 250);
        ask(&world, (int)i % 3, &clients[i]);
    }
    assert_true(relay_world_wait_tokens(&world, &clients[0], 3));
    relay_world_close_relays(&world);
    for (uint32_t i = 0; i < 9; i++) {
        assert_true(client_is_done(&clients[i]));
        client_check(&clients[i], RELAY_CONTEXT);
        assert_int_equal(clients[i].reason, FINISH_CANCELLED);
    }
    relay_world_close(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind_here_and_there),
        cmocka_unit_test(test_stop_tokens),
        cmocka_unit_test(test_many_from_everywhere),
        cmocka_unit_test(test_waiting_for_a_driver),
        cmocka_unit_test(test_patience),
        cmocka_unit_test(test_what_never_waits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_cancelling_in_every_state),
        cmocka_unit_test(test_a_driver_that_is_lost),
        cmocka_unit_test(test_a_link_that_goes_down),
        cmocka_unit_test(test_rows_of_a_lost_driver),
        cmocka_unit_test(test_an_error_of_the_request),
        cmocka_unit_test(test_a_link_that_is_too_slow),
        cmocka_unit_test(test_closing_with_requests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
