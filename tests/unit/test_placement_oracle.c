/* The solver against HiGHS: 2-8 devices, 4-40 layers, all goals. A part of the instances by
 * default; all 2,000 with
 *
 *     MEDLEY_ORACLE_INSTANCES=2000 test-placement_oracle
 *
 * and with MEDLEY_ORACLE_FIRST=1001 the second half of them, for a second processor. More than a
 * quarter of an hour of one. */
#include "base/clock.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replicas.h"
#include "placement_oracle.h"
#include "placement_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { INSTANCES = 30, MANY_INSTANCES = 16, GROUPS_INSTANCES = 24 };

static struct world world;

struct tally {
    uint32_t possible, goals[3], several;
    double worst;
    uint64_t oracle_ns, own_ns;
};

static void compare(uint64_t seed, struct world_range range, struct tally *tally)
{
    const struct placement_problem *problem = &world.problem;
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct placement placement;
    struct error err;
    world_make_any(&world, seed, range);
    const uint64_t start_ns = clock_now_ns();
    const enum error_code code = placement_solve(problem, &options, &solution, &err);
    const uint64_t then_ns = clock_now_ns();
    const double expected_s =
        placement_oracle(problem, code ? INFINITY : solution.period_s, &placement);
    tally->own_ns += then_ns - start_ns;
    tally->oracle_ns += clock_now_ns() - then_ns;
    if (code != ERROR_NONE && code != ERROR_NOT_FOUND)
        fail_msg("instance %llu: %s", (unsigned long long)seed, err.text);
    if ((code == ERROR_NONE) != (expected_s < INFINITY))
        fail_msg("instance %llu: %s for the solver, %s for HiGHS", (unsigned long long)seed,
                 code ? "impossible" : "possible",
                 expected_s < INFINITY ? "possible" : "impossible");
    if (code)
        return;
    if (placement_check(problem, &placement, &err))
        fail_msg("instance %llu: HiGHS's placement is refused: %s", (unsigned long long)seed,
                 err.text);
    const double cost_s = placement_decode_cost(problem, &placement).objective_s;
    const double error =
        fmax(fabs(expected_s - solution.period_s), fabs(cost_s - solution.period_s)) /
        solution.period_s;
    if (!solution.proved || !(error <= 1e-6))
        fail_msg("instance %llu: %.12g, HiGHS %.12g (its placement costs %.12g)",
                 (unsigned long long)seed, solution.period_s, expected_s, cost_s);
    tally->possible++;
    tally->several += solution.placement.n_stages > 1;
    tally->goals[problem->demand.goal]++;
    tally->worst = fmax(tally->worst, error);
}

static uint64_t number_given(const char *name, uint64_t otherwise)
{
    const char *given = getenv(name);
    return given ? strtoull(given, NULL, 10) : otherwise;
}

static void equals_highs(void **state)
{
    const uint64_t last = number_given("MEDLEY_ORACLE_INSTANCES", INSTANCES);
    const uint64_t first = number_given("MEDLEY_ORACLE_FIRST", 1), n = last + 1 - first;
    struct tally tally = {0};
    assert_true(first >= 1 && first <= last);
    for (uint64_t seed = first; seed <= last; seed++)
        compare(seed, (struct world_range){2, 8, 4, 40}, &tally);
    print_message(
        "# %u of %llu were possible (latency %u, throughput %u, mix %u), %u with several stages\n",
        tally.possible, (unsigned long long)n, tally.goals[PLACEMENT_LATENCY],
        tally.goals[PLACEMENT_THROUGHPUT], tally.goals[PLACEMENT_MIX], tally.several);
    print_message("# largest relative difference %.1e; HiGHS took %.1f s, the solver %.2f s\n",
                  tally.worst, (double)tally.oracle_ns / 1e9, (double)tally.own_ns / 1e9);
    assert_true(tally.possible > n / 4 && tally.several > n / 8 && tally.possible < n);
}

/* So many that the bound of all devices takes part. */
static void many_devices_equal_highs(void **state)
{
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= MANY_INSTANCES; seed++)
        compare(seed, (struct world_range){13, 16, 6, 12}, &tally);
    print_message("# %u of %u were possible, largest relative difference %.1e; HiGHS took %.1f s\n",
                  tally.possible, MANY_INSTANCES, tally.worst, (double)tally.oracle_ns / 1e9);
    assert_true(tally.several > MANY_INSTANCES / 8);
}

static double highs_rate(const struct placement_problem *problem)
{
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct placement placement;
    const enum error_code code = placement_solve(problem, &options, &solution, NULL);
    const double objective_s =
        placement_oracle(problem, code ? INFINITY : solution.period_s, &placement);
    assert_true((code == ERROR_NONE) == (objective_s < INFINITY));
    return code ? 0 : problem->demand.streams / (placement_micro_batches(problem) * objective_s);
}

/* The model on several groups: every division of four devices and three streams, each group by
 * HiGHS. */
static void groups_equal_highs(void **state)
{
    const struct placement_options options = placement_options_default();
    static struct placement_replicas replicas;
    uint32_t several = 0, possible = 0;
    for (uint64_t seed = 1; seed <= GROUPS_INSTANCES; seed++) {
        struct placement_demand *demand = &world.problem.demand;
        struct error err;
        world_make(&world, seed,
                   (struct world_shape){.n_devices = 4,
                                        .n_layers = 4 + (uint32_t)seed % 4,
                                        .tightness = 2 + 5 * (double)(seed % 5) / 5,
                                        .twins = seed % 2 ? 0 : 0.5});
        demand->goal = seed % 3 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
        demand->busy = 0.5;
        demand->streams = 3;
        demand->micro_batches = 1 + (uint32_t)seed % 3;
        demand->replicas = true;
        const double expected = world_all_divisions(&world.problem, highs_rate);
        const enum error_code code =
            placement_replicate(&world.problem, &options, NULL, false, &replicas, &err);
        if (code)
            continue;
        if (!replicas.proved || !(fabs(replicas.rate - expected) <= 1e-6 * expected))
            fail_msg("instance %llu: %.12g in %u groups, HiGHS %.12g", (unsigned long long)seed,
                     replicas.rate, replicas.groups.n_groups, expected);
        several += replicas.groups.n_groups > 1;
        possible++;
    }
    print_message("# %u of %d were possible, %u with several groups\n", possible, GROUPS_INSTANCES,
                  several);
    assert_true(several > GROUPS_INSTANCES / 8 && several < possible);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equals_highs),
                                       cmocka_unit_test(many_devices_equal_highs),
                                       cmocka_unit_test(groups_equal_highs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
