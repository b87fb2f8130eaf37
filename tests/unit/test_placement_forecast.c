/* Costs by hand, the forecast, its reasons, and others' policies. */
#include "placement/check.h"
#include "placement/forecast.h"
#include "placement/policy.h"
#include "placement_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct world world;

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

/* Two devices of 1 and 2 GB/s, four layers of 100 MB, hops of 5 ms + 1 KB at 1 MB/s. */
static void make_plain(void)
{
    memset(&world, 0, sizeof world);
    world.problem = (struct placement_problem){
        .n_devices = 3,
        .devices = world.devices,
        .links = world.links,
        .model = {.n_types = 1,
                  .n_layers = 4,
                  .layers = world.layers,
                  .activation_bytes_per_token = 1000},
        .demand = {.context_tokens = 100, .streams = 1, .prompt_tokens = 64, .chunk_tokens = 16},
    };
    for (uint32_t i = 0; i < 4; i++) {
        world.layers[i].bytes[0] = world.layers[i].bytes_per_token[0] = 100000000;
        world.layers[i].flops_per_token[0] = 1e9;
    }
    for (uint32_t i = 0; i < 3; i++) {
        world.devices[i] = (struct placement_device){
            .memory_free_bytes = i == 1 ? 300000000 : 900000000, .share = 1};
        world.devices[i].decode_bytes_per_s[0] = i == 0 ? 1e9 : i == 1 ? 2e9 : 1e7;
        world.devices[i].prefill_flops[0] = 1e12;
        world.devices[i].spread = 0.1;
        strcpy(world.devices[i].id, i == 0 ? "slow" : i == 1 ? "fast" : "snail");
        strcpy(world.devices[i].node, world.devices[i].id);
    }
    for (uint32_t i = 0; i < 9; i++)
        world.links[i] = (struct placement_link){0.005, 1e6};
}

static struct placement_solution solve(void)
{
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct error err = {0};
    if (placement_solve(&world.problem, &options, &solution, &err))
        fail_msg("%s", err.text);
    return solution;
}

static void formulas_by_hand(void **state)
{
    make_plain();
    const struct placement split = {2, {{1, 0, 3}, {0, 3, 1}}};
    assert_int_equal(placement_check(&world.problem, &split, NULL), ERROR_NONE);
    struct placement_cost cost = placement_decode_cost(&world.problem, &split);
    near(cost.round_s, 0.150 + 0.006 + 0.100 + 0.005 + 4e-6);
    near(cost.period_s, cost.round_s);
    assert_int_equal(cost.longest, 0);
    struct placement_forecast forecast;
    placement_forecast(&world.problem, &split, &forecast);
    near(forecast.decode_tokens_per_s, 1 / cost.round_s);
    near(forecast.decode_spread, 0.1 * hypot(0.15, 0.1) / cost.round_s);
    /* A chunk of 16 rows reads for as long as one row (computing takes 16 ms a layer): four
     * chunks. */
    near(forecast.prefill_tokens_per_s, 64 / (0.150 + 0.100 + 0.005 + 0.016 + 3 * 0.150));
    world.problem.demand = (struct placement_demand){
        .goal = PLACEMENT_THROUGHPUT, .context_tokens = 100, .streams = 8};
    cost = placement_decode_cost(&world.problem, &split);
    near(cost.period_s, 0.150);
    near(placement_decode_tokens_per_s(&world.problem, &cost), 1 / 0.150);
    world.devices[1].prefill_flops[0] = 0;
    placement_forecast(&world.problem, &split, &forecast);
    assert_true(forecast.prefill_tokens_per_s == 0);
}

static void reasons(void **state)
{
    make_plain();
    struct placement_solution solution = solve();
    assert_int_equal(solution.placement.n_stages, 2);
    struct placement_reason reason;
    assert_int_equal(placement_why_left_out(&world.problem, &solution.placement, 2, &reason, NULL),
                     ERROR_NONE);
    assert_int_equal(reason.why, PLACEMENT_COSTS_TIME);
    assert_true(reason.more_s > 9 && reason.n_layers == 1);
}

static enum placement_left_out why(uint32_t device)
{
    const struct placement_solution solution = solve();
    struct placement_reason reason;
    assert_int_equal(
        placement_why_left_out(&world.problem, &solution.placement, device, &reason, NULL),
        ERROR_NONE);
    return reason.why;
}

static void each_reason(void **state)
{
    make_plain();
    assert_int_equal(why(0), PLACEMENT_USED);
    world.devices[2].memory_free_bytes = 1000;
    assert_int_equal(why(2), PLACEMENT_NO_MEMORY);
    world.devices[2].decode_bytes_per_s[0] = 0;
    assert_int_equal(why(2), PLACEMENT_NO_TYPES);
    world.devices[2].share = 0;
    assert_int_equal(why(2), PLACEMENT_EXCLUDED);
    make_plain();
    for (uint32_t i = 0; i < 2; i++)
        world.links[3 * i + 2].bytes_per_s = world.links[6 + i].bytes_per_s = 0;
    assert_int_equal(why(2), PLACEMENT_NO_LINK);
}

static void policies_are_never_better(void **state)
{
    uint32_t found = 0;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        world_make(&world, seed,
                   (struct world_shape){.n_devices = 5, .n_layers = 32, .tightness = 3});
        const struct placement_options options = placement_options_default();
        struct placement_solution best;
        const bool possible = placement_solve(&world.problem, &options, &best, NULL) == ERROR_NONE;
        for (int policy = PLACEMENT_BY_MEMORY; policy <= PLACEMENT_BY_SCORE; policy++) {
            struct placement placement;
            if (placement_by_policy(&world.problem, (enum placement_policy)policy, &placement,
                                    NULL))
                continue;
            assert_true(possible);
            assert_true(placement_decode_cost(&world.problem, &placement).period_s >=
                        best.period_s * (1 - 1e-9));
            found++;
        }
    }
    assert_true(found > 200);
}

/* Two stages; a row more costs next to nothing, so a text that repeats is faster by what trains are
 * said to give, and never slower than one row at a time. */
static void test_guesses_are_a_range(void **state)
{
    (void)state;
    make_plain();
    const struct placement_solution solution = solve();
    struct placement_guessed guessed;
    placement_guessed(&world.problem, &solution.placement, &guessed);
    const struct placement_cost cost = placement_decode_cost(&world.problem, &solution.placement);
    near(guessed.without, 1 / cost.round_s);
    assert_true(guessed.repeating > 2 * guessed.without);
    assert_true(guessed.repeating < guessed.without / (1 - PLACEMENT_GUESSED_SHARE) * 2);
    assert_true(placement_guesses_gain(&guessed));
    world.layers[1].state_bytes = 100; /* cannot be cut back */
    placement_guessed(&world.problem, &solution.placement, &guessed);
    near(guessed.repeating, guessed.without);
    assert_false(placement_guesses_gain(&guessed));
}

static void drafted(const struct placement *placement, double guess_s, double ask_s,
                    bool has_own_device, struct placement_guessed *out)
{
    const struct placement_drafter drafter = {guess_s, ask_s, has_own_device, false};
    placement_drafted(&world.problem, placement, &drafter, out);
}

/* A row more costs next to nothing, so one stage waits for its guesses alone: 1.85 at best. */
static void test_a_draft_model_is_in_the_range(void **state)
{
    (void)state;
    make_plain();
    const struct placement whole = {.n_stages = 1,
                                    .stages = {{0, 0, world.problem.model.n_layers}}};
    struct placement_guessed guessed;
    placement_guessed(&world.problem, &whole, &guessed);
    near(guessed.drafted, 0);
    drafted(&whole, 1 / guessed.without / 8, 0, false, &guessed);
    assert_in_range((unsigned)(100 * guessed.drafted / guessed.without), 175, 185);
    const double near_by = guessed.drafted, pass_s = 1 / guessed.without;
    drafted(&whole, pass_s / 8, pass_s / 8, true, &guessed);
    assert_in_range((unsigned)(100 * guessed.drafted / guessed.without), 165, 175);
    assert_true(guessed.drafted < near_by); /* the way costs as much as a guess */
    placement_drafted(&world.problem, &whole,
                      &(struct placement_drafter){pass_s / 4, pass_s / 8, true, true}, &guessed);
    assert_in_range((unsigned)(100 * guessed.drafted / guessed.without), 155, 165); /* 3 guesses */
    drafted(&whole, pass_s, 0, true, &guessed);
    near(guessed.drafted, guessed.without); /* each takes as long as a token */
    const struct placement_solution solution = solve();
    assert_true(solution.placement.n_stages > 1);
    placement_guessed(&world.problem, &solution.placement, &guessed);
    drafted(&solution.placement, 0.01, 0, false, &guessed);
    const double beside = guessed.drafted;
    drafted(&solution.placement, 0.01, 0, true, &guessed);
    assert_true(beside > guessed.without && guessed.drafted > beside);
    assert_true(guessed.drafted < guessed.without / (1 - PLACEMENT_DRAFTED_SHARE));
    const double here = guessed.drafted;
    drafted(&solution.placement, 0.01, 0.02, true, &guessed);
    assert_true(guessed.drafted < here);
    world.layers[1].state_bytes = 100; /* cannot be cut back */
    drafted(&solution.placement, 0.01, 0, true, &guessed);
    near(guessed.drafted, guessed.without);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guesses_are_a_range),
        cmocka_unit_test(test_a_draft_model_is_in_the_range),
        cmocka_unit_test(formulas_by_hand),
        cmocka_unit_test(reasons),
        cmocka_unit_test(each_reason),
        cmocka_unit_test(policies_are_never_better),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
