/* The driver with stages on other machines: whatever the split, the same tokens; and what happens
 * when a stage fails or the network is lost. */
#include "far_world.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const char *const splits[] = {"1",   "01",  "10",   "12",   "012",
                                     "010", "121", "0123", "1230", "0011"};
enum { N_SPLITS = sizeof splits / sizeof *splits, CONTEXT = 300 };

static const struct driver_options OPTIONS = {.n_slots = 4, .context = CONTEXT, .batch_rows = 40};

static void run_clients(struct far_world *far, uint32_t n_clients)
{
    static struct client clients[12];
    assert_true(n_clients <= 12);
    for (uint32_t i = 0; i < n_clients; i++) {
        client_init(&clients[i], i % 3, 20 + 11 * i, 30);
        clients[i].request.sampler.seed = i;
        clients[i].request.sampler.temperature = i & 1 ? 1.0f : 0.0f;
        clients[i].request.sampler.repeat_penalty = i & 2 ? 1.3f : 1.0f;
        clients[i].request.logprobs = i & 4;
        clients[i].request.want_all_logits = i == 5;
        clients[i].request.embeddings = i == 6;
        if (i == 6)
            clients[i].request.n_predict = 0;
        assert_int_equal(client_submit(&clients[i], &far->world, NULL), ERROR_NONE);
    }
    for (uint32_t i = 0; i < n_clients; i++) {
        client_wait(&clients[i]);
        client_check(&clients[i], CONTEXT);
        assert_int_equal(clients[i].n_bad_rows, 0);
    }
}

static void test_every_split_gives_the_same_text(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_SPLITS; i++) {
        for (enum activation_type type = ACTIVATION_F32; type <= ACTIVATION_F16; type++) {
            struct far_world far;
            far_world_open(&far, splits[i], type, &OPTIONS);
            run_clients(&far, 12);
            far_world_close(&far);
        }
    }
}

/* With one sequence at a time the messages of each token can be counted: hops, and the way back. */
static void test_activations_go_straight_from_stage_to_stage(void **state)
{
    (void)state;
    static const struct {
        const char *machines;
        uint32_t messages_a_step;
    } cases[] = {{"1", 2}, {"01", 2}, {"12", 3}, {"012", 3}, {"010", 2}, {"0011", 2}, {"0123", 4}};
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct far_world far;
        far_world_open(&far, cases[i].machines, ACTIVATION_F16, &OPTIONS);
        static struct client client;
        client_init(&client, 1, 5, 20);
        assert_int_equal(client_submit(&client, &far.world, NULL), ERROR_NONE);
        client_wait(&client);
        struct driver_stats stats = driver_stats(far.world.driver);
        assert_int_equal(far_world_traffic(&far).n_messages,
                         stats.steps_total * cases[i].messages_a_step);
        far_world_close(&far);
    }
}

/* A stage that fails elsewhere ends the requests concerned with its words, and nothing else. */
static void test_a_stage_that_fails_elsewhere(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < N_SPLITS; i++) {
        struct far_world far;
        far_world_open(&far, splits[i], ACTIVATION_F32, &OPTIONS);
        for (uint32_t layer = 0; layer < FAKE_LAYERS; layer += 3) {
            static struct client client;
            client_init(&client, layer, 10, 20);
            fake_fail_next(layer);
            assert_int_equal(client_submit(&client, &far.world, NULL), ERROR_NONE);
            client_wait(&client);
            assert_int_equal(client.reason, FINISH_ERROR);
            assert_non_null(strstr(client.error.text, "stage "));
            run_clients(&far, 5);
        }
        far_world_close(&far);
    }
}

static void test_a_lost_network_ends_requests_with_an_error(void **state)
{
    (void)state;
    static struct client clients[6];
    struct far_world far;
    far_world_open(&far, "012", ACTIVATION_F16, &OPTIONS);
    for (uint32_t i = 0; i < 6; i++) {
        client_init(&clients[i], i, 20, 250);
        assert_int_equal(client_submit(&clients[i], &far.world, NULL), ERROR_NONE);
    }
    client_wait_tokens(&clients[0], 5);
    far_world_cut(&far);
    for (uint32_t i = 0; i < 6; i++) {
        client_wait(&clients[i]);
        if (clients[i].reason == FINISH_ERROR)
            assert_string_equal(clients[i].error.text, "the network is gone");
        else
            client_check(&clients[i], CONTEXT);
    }
    assert_int_equal(clients[5].reason, FINISH_ERROR);
    far_world_close(&far);
}

/* The same driver goes on, with the same runners, whatever they still hold. */
static void test_a_network_that_comes_back(void **state)
{
    (void)state;
    static struct client clients[6];
    for (uint32_t round = 0; round < 12; round++) {
        struct far_world far;
        far_world_open(&far, round % 2 ? "12" : "0120", ACTIVATION_F16, &OPTIONS);
        /* A message that was lost between two machines leaves a gap behind it. */
        fake_set_faults((struct fake_faults){.strangers = true, .delay_us_max = 30, .seed = round});
        for (uint32_t again = 0; again < 3; again++) {
            for (uint32_t i = 0; i < 6; i++) {
                client_init(&clients[i], i, 20, 250);
                assert_int_equal(client_submit(&clients[i], &far.world, NULL), ERROR_NONE);
            }
            client_wait_tokens(&clients[0], 2 + round % 5);
            far_world_cut(&far);
            if (round % 3)
                client_wait(&clients[round % 4]);
            far_world_mend(&far);
            for (uint32_t i = 0; i < 6; i++) {
                client_wait(&clients[i]);
                client_check(&clients[i], CONTEXT);
            }
            assert_int_equal(clients[0].reason, FINISH_ERROR);
            run_clients(&far, 8);
        }
        fake_set_faults((struct fake_faults){0});
        far_world_close(&far);
    }
}

/* Toy tokens are one byte each, from the blank on; the first ends an answer. */
static void client_text(const struct client *client, char *text)
{
    for (uint32_t i = 0; i < client->n_tokens; i++)
        text[i] = (char)(' ' + client->tokens[i] % 95);
    text[client->n_tokens] = 0;
}

static void client_constrain(struct client *client, uint64_t seed, const char *regex)
{
    const struct grammar_source source = {GRAMMAR_REGEX, false, regex, strlen(regex)};
    static const int32_t end = 0;
    client_init(client, seed, 20, 100);
    client->request.stop_tokens = &end;
    client->request.n_stop_tokens = 1;
    assert_int_equal(constraint_open(&source, &client->request.constraint, NULL), ERROR_NONE);
}

/* Wherever tokens are picked, they follow the grammar, to the same text; also when an answer goes
 * on whose beginning is in the prompt. */
static void test_grammars_travel(void **state)
{
    (void)state;
    static struct client client, rest;
    static char wanted[CLIENT_TOKENS + 1], text[CLIENT_TOKENS + 1];
    for (uint32_t i = 0; i < N_SPLITS; i++) {
        struct far_world far;
        far_world_open(&far, splits[i], ACTIVATION_F16, &OPTIONS);
        client_constrain(&client, 7, "([a-f]{3}-){20}end");
        assert_int_equal(client_submit(&client, &far.world, NULL), ERROR_NONE);
        client_wait(&client);
        client_text(&client, text);
        assert_int_equal(client.reason, FINISH_STOP);
        assert_int_equal(strlen(text), 83);
        assert_string_equal(text + 80, "end");
        assert_true(strspn(text, "abcdef") == 3);
        if (!i)
            memcpy(wanted, text, sizeof wanted);
        assert_string_equal(text, wanted);

        client_constrain(&rest, 7, "([a-f]{3}-){20}end");
        memcpy(rest.prompt + 20, client.tokens, 33 * sizeof *rest.prompt);
        rest.request.n_prompt = 53;
        rest.request.n_answered = 33;
        assert_int_equal(client_submit(&rest, &far.world, NULL), ERROR_NONE);
        client_wait(&rest);
        client_text(&rest, text);
        assert_string_equal(text, wanted + 33);
        constraint_release(client.request.constraint);
        constraint_release(rest.request.constraint);
        far_world_close(&far);
    }
}

/* It ends its request with words, and the pipeline serves on. */
static void test_a_grammar_that_is_refused_elsewhere(void **state)
{
    (void)state;
    static const char *const broken = "[a-";
    const struct grammar_source source = {GRAMMAR_REGEX, false, broken, 3};
    static struct client client;
    for (uint32_t i = 0; i < 4; i++) {
        struct far_world far;
        far_world_open(&far, splits[i], ACTIVATION_F32, &OPTIONS);
        client_init(&client, 7, 20, 100);
        assert_int_equal(constraint_note(&source, &client.request.constraint, NULL), ERROR_NONE);
        assert_int_equal(client_submit(&client, &far.world, NULL), ERROR_NONE);
        client_wait(&client);
        assert_int_equal(client.reason, FINISH_ERROR);
        assert_int_equal(client.error.code, ERROR_UNSUPPORTED);
        assert_non_null(strstr(client.error.text, "where tokens are picked"));
        constraint_release(client.request.constraint);
        run_clients(&far, 5);
        far_world_close(&far);
    }
}

static void ignore_send(void *arg, uint32_t stage, struct buffer *message)
{
    (void)arg, (void)stage, (void)message;
}

/* Numbers of an earlier driver are late, and no offence. */
static void test_what_comes_late(void **state)
{
    (void)state;
    struct device *device = fake_device_open("toy", 1000000, 0);
    struct stage_plan plan[2] = {{device, 4}, {NULL, 4}};
    struct far far = {.instance = 1, .epoch = 2, .numbers_after = 1000, .send = ignore_send};
    struct driver *driver;
    assert_int_equal(driver_open_far(fake_model(), plan, 2, &OPTIONS, &far, &driver, NULL),
                     ERROR_NONE);
    struct buffer message = {0};
    wire_write_notice(&(struct wire_route){.instance = 1, .epoch = 2}, &message);
    assert_int_equal(message.size, WIRE_HEADER_BYTES);
    struct wire_route route;
    assert_int_equal(wire_read_route(message.data, message.size, &route, NULL), ERROR_NONE);
    assert_true(wire_is_notice(&route) && route.instance == 1 && route.epoch == 2);
    message.data[24] = 9; /* its number, the lowest byte */
    assert_int_equal(wire_read_route(message.data, message.size, &route, NULL), ERROR_NONE);
    assert_true(route.number == 9 && !wire_is_notice(&route));
    assert_int_equal(driver_receive(driver, message.data, message.size, NULL), ERROR_NONE);
    message.data[25] = 9; /* 2313: not sent yet */
    assert_int_equal(driver_receive(driver, message.data, message.size, NULL), ERROR_INVALID);
    buffer_deinit(&message);
    driver_stop(driver);
    struct world world = {.driver = driver};
    struct client client;
    client_init(&client, 1, 5, 5);
    assert_int_equal(client_submit(&client, &world, NULL), ERROR_CANCELLED);
    driver_close(driver);
    fake_device_close(device);
}

static void test_garbage_is_refused(void **state)
{
    (void)state;
    struct device *device = fake_device_open("toy", 1000000, 0);
    struct stage_plan plan[2] = {{NULL, 4}, {device, 4}};
    struct far far = {.instance = 1, .epoch = 2, .send = ignore_send};
    struct runner *runner;
    struct driver *driver;
    assert_int_equal(runner_open(fake_model(), plan, 2, &OPTIONS, &far, &runner, NULL), ERROR_NONE);
    struct stage_plan ours[2] = {{device, 4}, {NULL, 4}};
    assert_int_equal(driver_open(fake_model(), ours, 2, &OPTIONS, &driver, NULL), ERROR_INVALID);
    assert_int_equal(driver_open_far(fake_model(), ours, 2, &OPTIONS, &far, &driver, NULL),
                     ERROR_NONE);
    for (uint64_t i = 0; i < 2000; i++) {
        _Alignas(8) unsigned char bytes[256];
        for (size_t k = 0; k < sizeof bytes; k++)
            bytes[k] = (unsigned char)random_at(i, k);
        struct error err = {0};
        assert_int_equal(runner_receive(runner, bytes, i % 257, &err), ERROR_INVALID);
        assert_int_equal(driver_receive(driver, bytes, i % 257, &err), ERROR_INVALID);
        assert_true(err.text[0]);
    }
    driver_close(driver);
    runner_close(runner);
    fake_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split_gives_the_same_text),
        cmocka_unit_test(test_activations_go_straight_from_stage_to_stage),
        cmocka_unit_test(test_a_stage_that_fails_elsewhere),
        cmocka_unit_test(test_a_lost_network_ends_requests_with_an_error),
        cmocka_unit_test(test_a_network_that_comes_back),
        cmocka_unit_test(test_grammars_travel),
        cmocka_unit_test(test_a_grammar_that_is_refused_elsewhere),
        cmocka_unit_test(test_what_comes_late),
        cmocka_unit_test(test_garbage_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
