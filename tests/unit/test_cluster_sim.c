/* The simulated cluster: 200 seeds of five nodes without a violation, the same seed twice,
 * scenarios as files, and that a violation is found and made small.
 *
 * test-cluster_sim [FIRST-SEED [SEEDS]] */
#include "sim/sim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct error err;
static uint64_t first_seed = 1, n_seeds = 200;

static struct scenario drawn(uint64_t seed, uint32_t nodes)
{
    struct scenario scenario;
    assert_int_equal(
        scenario_random(&(struct scenario_wish){.seed = seed, .nodes = nodes}, &scenario, &err),
        ERROR_NONE);
    return scenario;
}

static struct scenario parsed(const char *text)
{
    struct scenario scenario;
    if (scenario_parse(text, strlen(text), &scenario, &err))
        fail_msg("%s", err.text);
    return scenario;
}

static void seeds_are_clean(void **unused)
{
    struct sim_result sums = {0};
    for (uint64_t seed = first_seed; seed < first_seed + n_seeds; seed++) {
        struct scenario scenario = drawn(seed, 5);
        struct sim_result result;
        assert_int_equal(sim_run(&scenario, NULL, &result, &err), ERROR_NONE);
        if (result.violated)
            fail_msg("seed %llu, %llu ms: %s (medley sim --nodes 5 --seed %llu -v)",
                     (unsigned long long)seed, (unsigned long long)result.at_ms, result.what,
                     (unsigned long long)seed);
        assert_true(result.answered + result.failed == result.requests);
        sums.answered += result.answered;
        sums.replays += result.replays;
        sums.elections += result.elections;
        sums.failovers += result.failovers;
        sums.snapshots += result.snapshots;
        sums.generations += result.generations - 1;
        sums.refused_loads += result.refused_loads;
        sums.moves += result.moves;
        sums.suspicions += result.suspicions;
        scenario_deinit(&scenario);
    }
    print_message("# %llu seeds: %llu requests answered, %llu replays, %llu drivers lost, %llu "
                  "elections, %llu foundings anew\n",
                  (unsigned long long)n_seeds, (unsigned long long)sums.answered,
                  (unsigned long long)sums.replays, (unsigned long long)sums.failovers,
                  (unsigned long long)sums.elections, (unsigned long long)sums.generations);
    if (n_seeds >= 200) { /* they were not idle */
        assert_true(sums.answered > 10 * n_seeds && sums.replays > n_seeds / 2 &&
                    sums.elections > n_seeds);
        assert_true(sums.failovers > n_seeds / 4 && sums.snapshots > 0 && sums.generations > 0);
        assert_true(sums.moves > 0 && sums.suspicions > n_seeds);
    }
}

static void one_seed_draws_all(void **unused)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sim_result results[2] = {0};
        for (int i = 0; i < 2; i++) {
            struct scenario scenario = drawn(seed, 0);
            assert_int_equal(sim_run(&scenario, NULL, &results[i], &err), ERROR_NONE);
            scenario_deinit(&scenario);
        }
        assert_memory_equal(&results[0], &results[1], sizeof results[0]);
    }
}

static void files_say_all(void **unused)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        struct scenario scenario = drawn(seed, 0), again;
        struct buffer text = {0}, other = {0};
        scenario_write(&scenario, &text);
        assert_int_equal(scenario_parse(text.data, text.size, &again, &err), ERROR_NONE);
        scenario_write(&again, &other);
        assert_string_equal(text.data, other.data);
        assert_true(again.n_faults == scenario.n_faults && again.n_nodes == scenario.n_nodes);
        assert_memory_equal(again.faults, scenario.faults,
                            scenario.n_faults * sizeof *scenario.faults);
        buffer_deinit(&text);
        buffer_deinit(&other);
        scenario_deinit(&scenario);
        scenario_deinit(&again);
    }
}

static void wrong_files_are_refused(void **unused)
{
    static const char *const wrong[][2] = {
        {"", "needs a node"},
        {"seed = 1\n", "line 1: no section begins before it"},
        {"[scenario]\nsede = 1\n", "line 2: [scenario] has no key 'sede'"},
        {"[scenario]\nseed = -1\n", "line 2: seed cannot be '-1'"},
        {"[scenario]\nfits = 2\n", "fits cannot be '2'"},
        {"[knot]\n", "no section [knot]"},
        {"[scenario]\nhello\n", "neither"},
        {"[node]\n[instance]\n[fault]\nkind = flood\n", "kind cannot be 'flood'"},
        {"[node]\n[instance]\n[fault]\nnode = 1\n", "fault 0: there is no such node"},
        {"[node]\n[instance]\n[fault]\nkind = cut\n", "no link to itself"},
        {"[node]\n[instance]\n[fault]\nkind = clock\namount = 9223372036854775807\n",
         "the amount of 'clock' is at most 3162"},
        {"[node]\n[instance]\n[fault]\nkind = memory\namount = 17592186044416\n",
         "the amount of 'memory' is at most 16777216"},
        {"[node]\nload_c = 25\n[instance]\n", "node 0: load_c must be 0 or at least 30"},
        {"[node]\n[instance]\n[stream]\ninstance = 1\n", "stream 0: there is no such"},
        {"[node]\n[instance]\n[fault]\nat_ms = 60001\n", "after the end of the faults"},
        {"[scenario]\nseed = 18446744073709551616\n", "seed cannot be"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct scenario scenario;
        assert_int_equal(scenario_parse(wrong[i][0], strlen(wrong[i][0]), &scenario, &err),
                         ERROR_INVALID);
        if (!strstr(err.text, wrong[i][1]))
            fail_msg("'%s' does not say '%s'", err.text, wrong[i][1]);
    }
}

/* Clocks on walls are for people: with leaps of some, the run is the same step for step. */
static void nothing_depends_on_wall_clocks(void **unused)
{
    for (uint64_t seed = 1; seed <= 5; seed++) {
        struct sim_result results[2] = {0};
        for (int i = 0; i < 2; i++) {
            struct scenario scenario = drawn(seed, 5);
            for (uint32_t k = 0; k < scenario.n_faults; k++) {
                if (scenario.faults[k].kind == FAULT_CLOCK)
                    scenario.faults[k].amount = 0;
            }
            for (uint32_t k = 0; k < 2; k++) { /* the same number of steps in both */
                struct scenario_fault *leap =
                    &scenario.faults[scenario.n_faults - 1 - k % scenario.n_faults];
                *leap = (struct scenario_fault){
                    .at_ms = 20000 + 9000 * k, .for_ms = 15000, .kind = FAULT_CLOCK};
                leap->node = seed % 5;
                leap->amount = i ? UINT64_C(40000000) << k : 0;
            }
            assert_int_equal(sim_run(&scenario, NULL, &results[i], &err), ERROR_NONE);
            results[i].state_bytes = 0; /* the state has times in it */
            scenario_deinit(&scenario);
        }
        assert_memory_equal(&results[0], &results[1], sizeof results[0]);
    }
}

/* The node's governor cannot see this one coming: from cold to its limit within two samples. */
static void a_device_that_throttles_is_found(void **unused)
{
    static const char text[] = "[scenario]\nchaos_ms = 30000\n"
                               "[node]\nload_c = %s\nlimit_c = 60\ntau_s = 10\n"
                               "[instance]\nlayer_mib = 100\n"
                               "[stream]\nrequests = 1000\npause_ms = 0\n";
    for (int i = 0; i < 2; i++) {
        char filled[sizeof text + 8];
        snprintf(filled, sizeof filled, text, i ? "500" : "100");
        struct scenario scenario = parsed(filled);
        struct sim_result result;
        assert_int_equal(sim_run(&scenario, NULL, &result, &err), ERROR_NONE);
        print_message("# %.1f C, %llu tokens\n", (double)result.hottest_mc / 1000,
                      (unsigned long long)result.tokens);
        assert_true(result.hottest_mc > 45000 && (i == 1 || result.tokens > 100));
        if (result.violated != (i == 1))
            fail_msg("%s", result.what);
        assert_true(!i || strstr(result.what, "d0 reached its limit of 60 C"));
        scenario_deinit(&scenario);
    }
}

/* Other programs take what an instance stands on: it goes elsewhere, and is not fetched back. */
static void memory_that_others_take_is_left(void **unused)
{
    struct scenario scenario =
        parsed("[scenario]\nchaos_ms = 200000\n"
               "[node]\ngb_per_s = 100\n[node]\n[node]\n"
               "[instance]\nlayers = 16\nlayer_mib = 256\n"
               "[stream]\nnode = 1\nrequests = 1000\n"
               "[fault]\nkind = memory\nnode = 0\nat_ms = 40000\nfor_ms = 160000\namount = 6000\n");
    struct sim_result result;
    assert_int_equal(sim_run(&scenario, NULL, &result, &err), ERROR_NONE);
    assert_false(result.violated);
    assert_true(result.moves == 1 && result.placements == 2 && result.failed == 0);
    scenario_deinit(&scenario);
}

/* A model that fits nowhere, of which the scenario claims that it does, among faults that do not
 * matter. */
static void violations_are_found_and_made_small(void **unused)
{
    struct scenario scenario = parsed("[scenario]\nsettle_ms = 10000\nchaos_ms = 30000\n"
                                      "[node]\n[node]\n[node]\n"
                                      "[instance]\nlayers = 8\nlayer_mib = 100000\n"
                                      "[stream]\nnode = 1\n[stream]\nnode = 2\n"
                                      "[fault]\nkind = kill\nnode = 1\nat_ms = 20000\n"
                                      "[fault]\nkind = pause\nnode = 2\nat_ms = 5000\n"
                                      "[fault]\nkind = cut\nnode = 0\nother = 1\nat_ms = 9000\n");
    struct sim_result result;
    char why[256];
    assert_int_equal(sim_run(&scenario, NULL, &result, &err), ERROR_NONE);
    assert_true(result.violated && !sim_as_expected(&scenario, &result, why, sizeof why));
    assert_non_null(strstr(why, "not placed and ready"));
    assert_int_equal(sim_shrink(&scenario, 200, &result, &err), ERROR_NONE);
    assert_true(result.violated && strstr(result.what, "not placed and ready"));
    assert_true(scenario.n_faults == 0 && scenario.n_nodes == 1 && scenario.n_streams == 1);
    scenario.expect.violation = 1;
    assert_true(sim_as_expected(&scenario, &result, why, sizeof why));
    scenario_deinit(&scenario);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        first_seed = strtoull(argv[1], NULL, 10);
    if (argc > 2)
        n_seeds = strtoull(argv[2], NULL, 10);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seeds_are_clean),
        cmocka_unit_test(one_seed_draws_all),
        cmocka_unit_test(files_say_all),
        cmocka_unit_test(wrong_files_are_refused),
        cmocka_unit_test(nothing_depends_on_wall_clocks),
        cmocka_unit_test(a_device_that_throttles_is_found),
        cmocka_unit_test(memory_that_others_take_is_left),
        cmocka_unit_test(violations_are_found_and_made_small),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
