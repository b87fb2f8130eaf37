/* The model whole on several groups of devices: against every division there is, and never slower
 * than one group. */
#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replicas.h"
#include "placement_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct world world;
static struct placement_replicas replicas;

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

static void replicate(const struct placement_problem *problem)
{
    const struct placement_options options = placement_options_default();
    struct error err;
    if (placement_replicate(problem, &options, NULL, false, &replicas, &err))
        fail_msg("%s", err.text);
}

/* What every answer keeps. */
static void is_sound(const struct placement_problem *problem)
{
    struct error err;
    if (placement_check_groups(problem, &replicas.groups, &err))
        fail_msg("%s", err.text);
    near(replicas.rate, placement_groups_rate(problem, &replicas.groups));
    assert_true(replicas.rate >= replicas.one_rate &&
                replicas.rate <= replicas.most_rate * (1 + 1e-9));
    assert_true(!replicas.proved || replicas.all);
}

/* Alike devices of 1 GB/s with room for `copies` models of four layers of 100 MB each, hops of 20
 * ms. */
static void make_alike(uint32_t n_devices, double copies, uint32_t streams)
{
    memset(&world, 0, sizeof world);
    world.problem = (struct placement_problem){
        .n_devices = n_devices,
        .devices = world.devices,
        .links = world.links,
        .model = {.n_types = 1,
                  .n_layers = 4,
                  .layers = world.layers,
                  .activation_bytes_per_token = 1000},
        .demand = {.goal = PLACEMENT_THROUGHPUT,
                   .context_tokens = 1000,
                   .streams = streams,
                   .replicas = true},
    };
    for (uint32_t i = 0; i < 4; i++)
        world.layers[i].bytes[0] = world.layers[i].bytes_per_token[0] = 100 * 1000 * 1000;
    for (uint32_t i = 0; i < n_devices; i++) {
        world.devices[i] =
            (struct placement_device){.memory_free_bytes = (uint64_t)(copies * 400e6), .share = 1};
        world.devices[i].decode_bytes_per_s[0] = 1e9;
        snprintf(world.devices[i].id, sizeof world.devices[i].id, "gpu%u", i);
        snprintf(world.devices[i].node, sizeof world.devices[i].node, "node%u", i);
    }
    for (uint32_t i = 0; i < n_devices * n_devices; i++)
        world.links[i] = (struct placement_link){0.02, 1e9};
}

/* Rows are computed as slowly as the weights are read for one: a larger batch gains nothing. */
static void compute_slowly(void)
{
    for (uint32_t i = 0; i < 4; i++)
        world.layers[i].flops_per_token[0] = 1e9;
    for (uint32_t i = 0; i < world.problem.n_devices; i++)
        world.devices[i].prefill_flops[0] = 1e10;
}

/* ---- by hand ---------------------------------------------------------------------------- */

static void two_machines_that_each_hold_it(void **state)
{
    make_alike(2, 1, 2);
    world.problem.demand.micro_batches =
        2; /* rows are computed by themselves: 2 / (0.4 + 2 hops) or 1 / 0.4 for one */
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.proved && replicas.copies == 2);
    assert_int_equal(replicas.groups.n_groups, 2);
    near(replicas.rate, 2 / 0.4);
    assert_true(replicas.one_rate < 2 / 0.4);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(replicas.groups.groups[i].streams, 1);
        assert_int_equal(replicas.groups.groups[i].placement.n_stages, 1);
    }
}

static void a_large_batch_is_worth_two_machines(void **state)
{
    make_alike(2, 1, 8); /* one reads its weights once for all 8 rows */
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.groups.n_groups == 1 && replicas.proved);
    near(replicas.rate, 8 / 0.4);
    compute_slowly();
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.groups.n_groups == 2 && replicas.proved);
    near(replicas.rate, 2 / 0.4);
    make_alike(2, 0.6, 8); /* neither holds it */
    compute_slowly();
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.groups.n_groups == 1 && replicas.proved && replicas.copies == 1);
    near(replicas.rate, replicas.one_rate);
}

static void one_where_it_is_asked_for(void **state)
{
    make_alike(2, 1, 2);
    world.problem.demand.replicas = false;
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_int_equal(replicas.groups.n_groups, 1);
    world.problem.demand.replicas = true;
    world.problem.demand.goal = PLACEMENT_LATENCY;
    replicate(&world.problem);
    assert_int_equal(replicas.groups.n_groups, 1);
    world.problem.demand.goal = PLACEMENT_THROUGHPUT;
    world.problem.demand.streams = 1;
    replicate(&world.problem);
    assert_int_equal(replicas.groups.n_groups, 1);
    make_alike(3, 0.1, 2);
    const struct placement_options options = placement_options_default();
    assert_int_equal(placement_replicate(&world.problem, &options, NULL, false, &replicas, NULL),
                     ERROR_NOT_FOUND);
    assert_int_equal(replicas.groups.n_groups, 0);
}

/* 64 alike, each with a quarter of the model: 65 sets. */
static void alike_devices_are_counted(void **state)
{
    make_alike(64, 0.26, 16);
    world.problem.demand.micro_batches = 16;
    replicate(&world.problem);
    is_sound(&world.problem);
    print_message("# 64 alike: %u groups, %.1f of at most %.1f, %u solved\n",
                  replicas.groups.n_groups, replicas.rate, replicas.most_rate, replicas.solves);
    assert_true(replicas.all && replicas.copies == 16);
    near(replicas.rate, 16 / (0.4 + 4 * 0.02 + 3 * 1e-6 + 4e-9));
}

/* ---- against every division --------------------------------------------------------------- */

static double force_rate(const struct placement_problem *problem)
{
    const double objective_s = world_brute_force(problem);
    return objective_s < INFINITY
               ? problem->demand.streams / (placement_micro_batches(problem) * objective_s)
               : 0;
}

static double as_run_rate(const struct placement_problem *problem)
{
    struct placement_problem own = *problem;
    struct placement_solution solution;
    const struct placement_options options = placement_options_default();
    if (placement_solve_as_run(&own, &options, &solution, NULL))
        return 0;
    const struct placement_group group = {solution.placement, own.demand.streams,
                                          placement_micro_batches(&own)};
    return placement_group_rate(problem, &group);
}

struct tally {
    uint32_t n, several, proved, solves, slower;
};

static void compare(uint64_t seed, uint32_t n_devices, uint32_t n_layers, bool as_run,
                    struct tally *tally)
{
    struct placement_demand *demand = &world.problem.demand;
    const struct placement_options options = placement_options_default();
    world_make(&world, seed,
               (struct world_shape){.n_devices = n_devices,
                                    .n_layers = n_layers,
                                    .tightness = 1.5 + 5 * (double)(seed % 7) / 7,
                                    .links_missing = seed % 3 ? 0 : 0.3,
                                    .twins = seed % 2 ? 0 : 0.5,
                                    .mixed_types = seed % 5 == 0});
    demand->goal = seed % 4 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
    demand->busy = (double)(seed % 9) / 8;
    demand->streams = 2 + seed % 4;
    demand->micro_batches = as_run ? 0 : 1 + (uint32_t)seed % demand->streams;
    demand->replicas = true;
    struct error err;
    const enum error_code code =
        placement_replicate(&world.problem, &options, NULL, false, &replicas, &err);
    const double expected = world_all_divisions(&world.problem, as_run ? as_run_rate : force_rate);
    if (code) {
        assert_int_equal(code, ERROR_NOT_FOUND);
        return;
    }
    is_sound(&world.problem);
    assert_true(replicas.all);
    if (!replicas.proved || !(fabs(replicas.rate - expected) <= 1e-6 * expected))
        fail_msg("seed %llu: %.9g in %u groups (proved: %d), all divisions %.9g",
                 (unsigned long long)seed, replicas.rate, replicas.groups.n_groups, replicas.proved,
                 expected);
    tally->n++;
    tally->several += replicas.groups.n_groups > 1;
    tally->proved += replicas.proved;
    tally->solves += replicas.solves;
}

static void equals_brute_force(void **state)
{
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= 200; seed++)
        compare(seed, 2 + (uint32_t)seed % 3, 4, false, &tally);
    print_message("# %u possible, %u in several groups, %u groups solved\n", tally.n, tally.several,
                  tally.solves);
    assert_true(tally.n > 100 && tally.several > 30 && tally.several < tally.n - 10);
}

static void equals_every_division_as_run(void **state)
{
    struct tally tally = {0};
    for (uint64_t seed = 1; seed <= 100; seed++)
        compare(seed, 3 + (uint32_t)seed % 3, 12, true, &tally);
    print_message("# %u possible, %u in several groups, %u groups solved\n", tally.n, tally.several,
                  tally.solves);
    assert_true(tally.n > 50 && tally.several > 10 && tally.several < tally.n - 5);
}

/* What one group is solved by: no number of stages is better as it is run. */
static void as_run_equals_brute_force(void **state)
{
    const struct placement_options options = placement_options_default();
    uint32_t n = 0, several = 0;
    for (uint64_t seed = 1; seed <= 200; seed++) {
        world_make(&world, seed,
                   (struct world_shape){.n_devices = 2 + (uint32_t)seed % 4,
                                        .n_layers = 5,
                                        .tightness = 1.2 + 2 * (double)(seed % 7) / 7,
                                        .twins = seed % 2 ? 0 : 0.5});
        world.problem.demand.goal = seed % 3 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
        world.problem.demand.busy = 0.5;
        world.problem.demand.streams = 2 + (uint32_t)seed % 5;
        struct placement_problem own = world.problem;
        struct placement_solution solution;
        const double expected_s = world_brute_force_as_run(&world.problem);
        const enum error_code code = placement_solve_as_run(&own, &options, &solution, NULL);
        assert_int_equal(code, expected_s < INFINITY ? ERROR_NONE : ERROR_NOT_FOUND);
        if (code)
            continue;
        assert_true(solution.proved);
        near(placement_micro_batches(&own) * solution.period_s, expected_s);
        near(placement_decode_cost(&own, &solution.placement).objective_s, solution.period_s);
        several += solution.placement.n_stages > 1;
        n++;
    }
    print_message("# %u possible, %u in several stages\n", n, several);
    assert_true(n > 100 && several > 50);
}

/* ---- any problem ---------------------------------------------------------------------------- */

static bool a_while(void *self)
{
    int *left = self;
    return --*left > 0;
}

static void any_time_and_never_slower(void **state)
{
    uint32_t several = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        int left = (int)(10 * seed * seed);
        struct placement_options options = placement_options_default();
        options.go_on = a_while;
        options.self = &left;
        options.max_nodes = 200;
        world_make_any(&world, seed, (struct world_range){2, 24, 4, 20});
        for (uint32_t d = 0; d < world.problem.n_devices; d++)
            world.devices[d].memory_free_bytes *= 3;
        world.problem.demand.goal = seed % 2 ? PLACEMENT_THROUGHPUT : PLACEMENT_MIX;
        world.problem.demand.streams = 2 + (uint32_t)seed;
        world.problem.demand.replicas = true;
        const enum error_code code =
            placement_replicate(&world.problem, &options, NULL, false, &replicas, NULL);
        assert_true(code == ERROR_NONE || code == ERROR_NOT_FOUND || code == ERROR_BUSY);
        if (code)
            continue;
        is_sound(&world.problem);
        several += replicas.groups.n_groups > 1;
    }
    assert_true(several > 0);
}

static void streams_in_parts_are_all_there(void **state)
{
    make_alike(4, 1, 101);
    compute_slowly();
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.groups.n_groups == 4 && !replicas.all && !replicas.proved);
    assert_true(isinf(replicas.most_rate));
}

static void the_same_twice(void **state)
{
    world_make(&world, 5, (struct world_shape){.n_devices = 12, .n_layers = 20, .tightness = 6});
    world.problem.demand = (struct placement_demand){
        .goal = PLACEMENT_THROUGHPUT, .context_tokens = 4096, .streams = 12, .replicas = true};
    static struct placement_replicas again;
    replicate(&world.problem);
    again = replicas;
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_int_equal(again.groups.n_groups, replicas.groups.n_groups);
    for (uint32_t i = 0; i < again.groups.n_groups;
         i++) { /* behind n_stages is what was there before */
        const struct placement_group *a = &again.groups.groups[i], *b = &replicas.groups.groups[i];
        assert_true(a->streams == b->streams && a->micro_batches == b->micro_batches);
        assert_int_equal(a->placement.n_stages, b->placement.n_stages);
        assert_memory_equal(a->placement.stages, b->placement.stages,
                            a->placement.n_stages * sizeof *a->placement.stages);
    }
}

/* ---- the check ---------------------------------------------------------------------------- */

static void mutated_groups_are_refused(void **state)
{
    make_alike(4, 1, 8);
    compute_slowly();
    replicate(&world.problem);
    is_sound(&world.problem);
    assert_true(replicas.groups.n_groups == 4);
    const struct placement_groups good = replicas.groups;
    struct placement_groups bad = good;
    bad.groups[1].placement.stages[0].device = bad.groups[0].placement.stages[0].device;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    bad = good;
    bad.groups[0].streams++;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    bad = good;
    bad.groups[2].streams = 0;
    bad.groups[3].streams *= 2;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    bad = good;
    bad.n_groups = 3;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    bad.n_groups = PLACEMENT_GROUPS_MAX + 1;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    bad = good;
    bad.groups[0].placement.stages[0].n_layers--;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
    for (uint32_t i = 0; i < 4;
         i++) /* room for the weights, but not for the KV cache of two streams */
        world.layers[i].kv_bytes_per_token = 1000;
    bad = good;
    assert_int_equal(placement_check_groups(&world.problem, &bad, NULL), ERROR_INVALID);
}

static void without_memory_it_says_so(void **state)
{
    const struct placement_options options = placement_options_default();
    enum error_code code = ERROR_NO_MEMORY;
    unsigned nth = 0;
    while (code == ERROR_NO_MEMORY && nth < 10000) {
        make_alike(3, 1, 3);
        mem_fail_nth(++nth);
        code = placement_replicate(&world.problem, &options, NULL, false, &replicas, NULL);
        mem_fail_nth(0);
    }
    assert_int_equal(code, ERROR_NONE);
    assert_true(nth > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_machines_that_each_hold_it),
        cmocka_unit_test(a_large_batch_is_worth_two_machines),
        cmocka_unit_test(one_where_it_is_asked_for),
        cmocka_unit_test(alike_devices_are_counted),
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(equals_every_division_as_run),
        cmocka_unit_test(as_run_equals_brute_force),
        cmocka_unit_test(any_time_and_never_slower),
        cmocka_unit_test(streams_in_parts_are_all_there),
        cmocka_unit_test(the_same_twice),
        cmocka_unit_test(mutated_groups_are_refused),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
