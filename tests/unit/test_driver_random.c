/* The driver on the toy machine under random workloads: whatever else runs, is cancelled or fails,
 * each request gets what it would have got alone (or a beginning of it, when it was cut short).
 * MEDLEY_SEEDS=from-to picks the scenarios; a failure prints its seed. */
#include "far_world.h"

#include "base/random.h"
#include "engine/batch_shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { CLIENTS_MAX = 24 };

struct scenario {
    uint64_t seed, n_draws;
    struct far_world far; /* with stages on other machines, or only its `world` */
    bool is_far;
    uint32_t context;
    uint32_t predict; /* of a request, less than this */
    uint32_t n_clients;
    struct client clients[CLIENTS_MAX];
    bool accepted[CLIENTS_MAX];
    bool cancelled[CLIENTS_MAX];
};

static uint64_t n_parked, n_drafted, n_accepted, n_taken, n_stopped; /* in all scenarios */

static uint32_t draw(struct scenario *scenario, uint32_t below)
{
    return (uint32_t)(random_at(scenario->seed, scenario->n_draws++) % below);
}

static bool chance(struct scenario *scenario, uint32_t percent)
{
    return draw(scenario, 100) < percent;
}

static void open_world(struct scenario *scenario)
{
    static const uint32_t shapes[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 4}, {4, 2}, {3, 2}};
    const uint32_t *shape = shapes[draw(scenario, 6)];
    scenario->context = 20 + draw(scenario, 180);
    struct driver_options options = {
        .n_slots = 1 + draw(scenario, 6),
        .context = scenario->context,
        .batch_rows = 1 + draw(scenario, chance(scenario, 50) ? 8 : 200),
        .no_prefix_reuse = chance(scenario, 10),
        .speculate = (enum speculate)draw(scenario, SPECULATE_MODES),
    };
    fake_set_repeats(chance(scenario, 70) ? 50 + draw(scenario, 50) : 0);
    scenario->predict = 60;
    if (chance(scenario, 50)) { /* a context and a little more, for all */
        options.context = scenario->context = 300 + draw(scenario, 200);
        options.n_slots = 2 + draw(scenario, 10);
        options.cells = scenario->context + draw(scenario, 3 * KV_PADDING);
        scenario->predict = 400;
    }
    const bool has_states = chance(scenario, 40);
    fake_set_states(has_states);
    options.checkpoints = 1 + draw(scenario, 12);
    if (has_states && !options.cells) /* states are kept of longer texts */
        options.context = scenario->context = 200 + draw(scenario, 300);
    static const char *const splits[] = {"1", "01", "10", "012", "0110", "1201", "0123"};
    scenario->is_far = chance(scenario, 40);
    if (scenario->is_far)
        far_world_open(&scenario->far, splits[draw(scenario, 7)], ACTIVATION_F16, &options);
    else
        world_open(&scenario->far.world, shape[0], shape[1], &options);
}

/* Prompts come in three families, so that many share a beginning. */
static void draw_client(struct scenario *scenario, struct client *client)
{
    uint32_t n_prompt = 1 + draw(scenario, scenario->context - 1);
    client_init(client, draw(scenario, 3), n_prompt, draw(scenario, scenario->predict));
    if (chance(scenario, 70)) {
        uint32_t at = draw(scenario, n_prompt);
        client->prompt[at] = (int32_t)draw(scenario, FAKE_VOCAB);
    }
    struct request *request = &client->request;
    request->sampler.seed = draw(scenario, 1000);
    if (chance(scenario, 50))
        request->sampler.temperature = 1;
    if (chance(scenario, 20))
        request->sampler.repeat_penalty = 1.3f;
    if (chance(scenario, 10))
        client->stop_after = 1 + draw(scenario, 20);
    static const int32_t stops[] = {3, 96};
    if (chance(scenario, 20)) {
        request->stop_tokens = stops;
        request->n_stop_tokens = 2;
    }
    if (chance(scenario, 10)) {
        request->want_all_logits = true;
    } else if (chance(scenario, 10)) {
        request->embeddings = true;
        request->n_predict = 0;
    }
}

static void cancel_somebody(struct scenario *scenario, uint32_t n_submitted)
{
    uint32_t i = draw(scenario, n_submitted);
    if (!scenario->accepted[i])
        return;
    driver_cancel(scenario->far.world.driver, scenario->clients[i].id);
    scenario->cancelled[i] = true;
}

static void play(struct scenario *scenario, uint32_t cancel_percent)
{
    scenario->n_clients = 1 + draw(scenario, CLIENTS_MAX);
    for (uint32_t i = 0; i < scenario->n_clients; i++) {
        draw_client(scenario, &scenario->clients[i]);
        struct error err = {0};
        enum error_code code = client_submit(&scenario->clients[i], &scenario->far.world, &err);
        if (code)
            fail_msg("submit: %s", err.text);
        scenario->accepted[i] = true;
        if (chance(scenario, 15))
            usleep(draw(scenario, 300));
        if (chance(scenario, cancel_percent))
            cancel_somebody(scenario, i + 1);
    }
    for (uint32_t i = 0; i < scenario->n_clients && cancel_percent; i++) {
        usleep(draw(scenario, 100));
        if (chance(scenario, cancel_percent))
            cancel_somebody(scenario, scenario->n_clients);
    }
}

static void check(struct scenario *scenario, bool may_fail)
{
    for (uint32_t i = 0; i < scenario->n_clients; i++) {
        const struct client *client = &scenario->clients[i];
        client_wait(client);
        client_check(client, scenario->context);
        assert_true(client->reason != FINISH_CANCELLED || scenario->cancelled[i]);
        assert_true(client->reason != FINISH_ERROR || may_fail);
    }
    struct driver_stats stats = driver_stats(scenario->far.world.driver);
    assert_int_equal(stats.slots_busy, 0);
    assert_int_equal(stats.queued, 0);
    assert_int_equal(stats.requests_total, scenario->n_clients);
    assert_int_equal(stats.parked, 0);
    n_parked += stats.parked_total;
    n_taken += fake_trace().takes;
    n_stopped += fake_trace().n_stopped;
    fake_trace_clear();
    n_drafted += stats.drafted_tokens_total;
    n_accepted += stats.accepted_tokens_total;
}

/* After everything: the driver is as good as new. */
static void check_survivor(struct scenario *scenario)
{
    fake_set_faults((struct fake_faults){0});
    struct client client;
    for (uint32_t family = 0; family < 3; family++) {
        client_init(&client, family, scenario->context - 10, 10);
        struct error err = {0};
        assert_int_equal(client_submit(&client, &scenario->far.world, &err), ERROR_NONE);
        client_wait(&client);
        client_check(&client, scenario->context);
        assert_int_equal(client.reason, FINISH_LENGTH);
    }
}

static uint64_t seed_under_way; /* 0: none */

static int report(void **state)
{
    (void)state;
    if (seed_under_way)
        fprintf(stderr, "failed with MEDLEY_SEEDS=%llu\n", (unsigned long long)seed_under_way);
    return 0;
}

static void run_all(uint64_t salt, uint32_t cancel_percent, bool faults)
{
    unsigned long long from = 1, to = 60;
    const char *chosen = getenv("MEDLEY_SEEDS");
    if (chosen && sscanf(chosen, "%llu-%llu", &from, &to) == 1)
        to = from;
    static struct scenario scenario;
    for (uint64_t seed = from; seed <= to; seed++) {
        seed_under_way = seed;
        scenario = (struct scenario){.seed = seed * 1000 + salt};
        struct fake_faults wanted = {.seed = seed};
        if (chance(&scenario, 25))
            wanted.delay_us_max = 200;
        if (faults) {
            wanted.forward_per_mille = draw(&scenario, 40);
            wanted.copy_per_mille = draw(&scenario, 500);
        }
        fake_set_faults(wanted);
        open_world(&scenario);
        play(&scenario, cancel_percent);
        check(&scenario, faults);
        check_survivor(&scenario);
        if (scenario.is_far)
            far_world_close(&scenario.far);
        else
            world_close(&scenario.far.world);
    }
    seed_under_way = 0;
    fake_set_repeats(0);
    fake_set_states(false);
}

static void test_undisturbed(void **state)
{
    (void)state;
    run_all(1, 0, false);
    /* else the pools, and the drafts, were no test */
    assert_true(n_parked > 0 || getenv("MEDLEY_SEEDS"));
    assert_true(n_taken > 8 || getenv("MEDLEY_SEEDS"));
    assert_true((n_accepted > 1000 && n_drafted - n_accepted > 1000) || getenv("MEDLEY_SEEDS"));
}

static void test_cancelled(void **state)
{
    (void)state;
    n_stopped = 0;
    run_all(2, 40, false);
    assert_true(n_stopped > 5 || getenv("MEDLEY_SEEDS")); /* else it was no test of that */
}

static void test_failing(void **state)
{
    (void)state;
    run_all(3, 0, true);
}

static void test_failing_and_cancelled(void **state)
{
    (void)state;
    run_all(4, 40, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_undisturbed, report),
        cmocka_unit_test_teardown(test_cancelled, report),
        cmocka_unit_test_teardown(test_failing, report),
        cmocka_unit_test_teardown(test_failing_and_cancelled, report),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
