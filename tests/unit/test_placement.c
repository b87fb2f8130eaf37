/* The solver against brute force and against itself. */
#include "base/mem.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/solve.h"
#include "placement_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct world world, other;

static void make_random(uint64_t seed, uint32_t devices_max, uint32_t layers_max)
{
    world_make_any(&world, seed, (struct world_range){1, devices_max, 1, layers_max});
}

static void assert_same(double a, double b, uint64_t seed)
{
    if (!(fabs(a - b) <= 1e-8 * fabs(b)) && a != b)
        fail_msg("seed %llu: %.12g is not %.12g", (unsigned long long)seed, a, b);
}

static double solve(const struct placement_problem *problem)
{
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct error err = {0};
    const enum error_code code = placement_solve(problem, &options, &solution, &err);
    if (code == ERROR_NOT_FOUND)
        return INFINITY;
    if (code)
        fail_msg("%s", err.text);
    assert_true(solution.proved);
    assert_true(solution.greedy_s >= solution.period_s);
    assert_int_equal(placement_check(problem, &solution.placement, &err), ERROR_NONE);
    const double cost_s = placement_decode_cost(problem, &solution.placement).objective_s;
    assert_same(cost_s, solution.period_s, 0);
    return solution.period_s;
}

static void equals_brute_force(void **state)
{
    uint32_t possible = 0, several = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        make_random(seed, 5, 8);
        const double expected_s = world_brute_force(&world.problem),
                     found_s = solve(&world.problem);
        assert_same(found_s, expected_s, seed);
        possible += expected_s < INFINITY;
        several += expected_s < INFINITY && world.problem.n_devices > 1;
    }
    print_message("# %u of 3000 were possible\n", possible);
    assert_true(possible > 1000 && possible < 2900 && several > 800);
}

/* Near enough is at most so far from the best, and takes no more steps. */
static void near_enough_is_as_near_as_it_says(void **state)
{
    struct placement_options options = placement_options_default();
    uint32_t possible = 0, unproved = 0;
    options.enough_gap = 0.1;
    for (uint64_t seed = 1; seed <= 1000; seed++) {
        struct placement_solution near;
        make_random(seed, 8, 8);
        const double best_s = solve(&world.problem);
        const enum error_code code = placement_solve(&world.problem, &options, &near, NULL);
        assert_int_equal(code, best_s < INFINITY ? ERROR_NONE : ERROR_NOT_FOUND);
        if (code)
            continue;
        assert_true(near.period_s <= best_s * 1.1 * (1 + 1e-9));
        assert_true(near.lower_bound_s <= best_s * (1 + 1e-9));
        assert_true(placement_gap(&near) <= 0.1 * (1 + 1e-9));
        possible++;
        unproved += !near.proved;
    }
    print_message("# %u were possible, %u ended before the proof\n", possible, unproved);
    assert_true(possible > 300 && unproved > 10);
}

/* More devices than are searched without the bound of all of them. */
static void many_devices_equal_brute_force(void **state)
{
    uint32_t possible = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        world_make_any(&world, seed, (struct world_range){13, 15, 2, 4});
        for (uint32_t i = 0; i < world.problem.n_devices; i++)
            world.devices[i].memory_free_bytes *=
                4; /* so few layers are large for so many devices */
        const double expected_s = world_brute_force(&world.problem);
        assert_same(solve(&world.problem), expected_s, seed);
        possible += expected_s < INFINITY;
    }
    assert_true(possible > 20 && possible < 60);
}

static void order_does_not_matter(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        make_random(seed, 7, 24);
        const double before_s = solve(&world.problem);
        const uint32_t n = world.problem.n_devices;
        make_random(seed, 7, 24);
        memcpy(&other, &world, sizeof world);
        for (uint32_t i = 0; i < n; i++) {
            world.devices[i] = other.devices[n - 1 - i];
            for (uint32_t j = 0; j < n; j++)
                world.links[i * n + j] = other.links[(n - 1 - i) * n + n - 1 - j];
        }
        assert_same(solve(&world.problem), before_s, seed);
    }
}

static void better_is_never_worse(void **state)
{
    for (uint64_t seed = 1; seed <= 300; seed++) {
        make_random(seed, 6, 20);
        struct placement_device *device = &world.devices[seed % world.problem.n_devices];
        double before_s = solve(&world.problem) * (1 + 1e-8);
        device->memory_free_bytes += device->memory_free_bytes / 3 + (64 << 20);
        double now_s = solve(&world.problem);
        assert_true(now_s <= before_s);
        before_s = now_s * (1 + 1e-8);
        device->decode_bytes_per_s[0] *= 1.5;
        device->decode_bytes_per_s[1] *= 1.5;
        now_s = solve(&world.problem);
        assert_true(now_s <= before_s);
        before_s = now_s * (1 + 1e-8);
        for (uint32_t i = 0; i < world.problem.n_devices * world.problem.n_devices; i++)
            world.links[i].latency_s /= 2;
        now_s = solve(&world.problem);
        assert_true(now_s <= before_s);
        before_s = now_s * (1 + 1e-8);
        world.problem.demand.context_tokens /= 2;
        assert_true(solve(&world.problem) <= before_s);
    }
}

static void scale_does_not_matter(void **state)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        make_random(seed, 6, 20);
        const double before_s = solve(&world.problem);
        for (uint32_t i = 0; i < world.problem.n_devices; i++) {
            world.devices[i].launch_s *= 2;
            for (uint32_t type = 0; type < 2; type++) {
                world.devices[i].decode_bytes_per_s[type] /= 2;
                world.devices[i].prefill_flops[type] /= 2;
            }
        }
        for (uint32_t i = 0; i < world.problem.n_devices * world.problem.n_devices; i++) {
            world.links[i].latency_s *= 2;
            world.links[i].bytes_per_s /= 2;
        }
        assert_same(solve(&world.problem), 2 * before_s, seed);
    }
}

static void check_rejects_mutants(void **state)
{
    uint32_t mutants = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        make_random(seed, 6, 20);
        const struct placement_options options = placement_options_default();
        struct placement_solution solution;
        if (placement_solve(&world.problem, &options, &solution, NULL))
            continue;
        struct placement broken = solution.placement;
        broken.stages[0].n_layers++;
        assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
        broken = solution.placement;
        broken.n_stages--;
        assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
        broken = solution.placement;
        broken.stages[broken.n_stages - 1].device = world.problem.n_devices;
        assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
        broken = solution.placement;
        broken.n_stages = LIMIT_STAGES + 1;
        assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
        broken = solution.placement;
        broken.stages[0].first_layer = UINT32_MAX;
        assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
        if (solution.placement.n_stages > 1) {
            broken = solution.placement;
            broken.stages[1].device = broken.stages[0].device;
            assert_int_equal(placement_check(&world.problem, &broken, NULL), ERROR_INVALID);
            const uint32_t from = solution.placement.stages[0].device,
                           to = solution.placement.stages[1].device;
            world.links[from * world.problem.n_devices + to].bytes_per_s = 0;
            assert_int_equal(placement_check(&world.problem, &solution.placement, NULL),
                             ERROR_INVALID);
            world.links[from * world.problem.n_devices + to].bytes_per_s = 1e9;
            mutants++;
        }
        struct placement_device *device = &world.devices[solution.placement.stages[0].device];
        const struct placement_device kept = *device;
        device->memory_free_bytes =
            device->reserve_bytes +
            placement_stage_bytes(&world.problem, &solution.placement.stages[0]) - 1;
        assert_int_equal(placement_check(&world.problem, &solution.placement, NULL), ERROR_INVALID);
        *device = kept;
        device->excluded = true;
        assert_int_equal(placement_check(&world.problem, &solution.placement, NULL), ERROR_INVALID);
        *device = kept;
        device->decode_bytes_per_s[0] = device->decode_bytes_per_s[1] = 0;
        assert_int_equal(placement_check(&world.problem, &solution.placement, NULL), ERROR_INVALID);
    }
    assert_true(mutants > 30);
}

static bool never(void *self)
{
    return false;
}

static void no_time_is_still_an_answer(void **state)
{
    world_make(&world, 5, (struct world_shape){.n_devices = 64, .n_layers = 126, .tightness = 2});
    struct placement_options options = placement_options_default();
    options.go_on = never;
    struct placement_solution solution;
    assert_int_equal(placement_solve(&world.problem, &options, &solution, NULL), ERROR_NONE);
    assert_false(solution.proved);
    assert_true(solution.period_s == solution.greedy_s && solution.nodes == 1);
    assert_true(solution.lower_bound_s <= solution.period_s && placement_gap(&solution) >= 0);
    options.go_on = NULL;
    options.max_nodes = 2000;
    double last_s = solution.period_s, bound_s = 0;
    for (int i = 0; i < 3; i++, options.max_nodes *= 4) {
        assert_int_equal(placement_solve(&world.problem, &options, &solution, NULL), ERROR_NONE);
        assert_true(solution.period_s <= last_s && solution.lower_bound_s >= bound_s * (1 - 1e-12));
        assert_true(solution.nodes <= options.max_nodes + 64);
        last_s = solution.period_s;
        bound_s = solution.lower_bound_s;
    }
}

/* A thousand devices: an answer and a bound before the search begins. */
static void a_thousand_devices_are_placed(void **state)
{
    enum { DEVICES = 1000 };
    struct placement_device *devices = calloc(DEVICES, sizeof *devices);
    struct placement_link *links = calloc((size_t)DEVICES * DEVICES, sizeof *links);
    assert_true(devices && links);
    world_make(&world, 11, (struct world_shape){.n_devices = 64, .n_layers = 126, .tightness = 2});
    for (uint32_t i = 0; i < DEVICES; i++) {
        devices[i] = world.devices[i % 64];
        devices[i].launch_s *= 1 + i / 1000.0;
        for (uint32_t j = 0; j < DEVICES; j++)
            links[i * DEVICES + j] = i / 3 == j / 3 ? (struct placement_link){1e-5, 1e10}
                                                    : (struct placement_link){3e-4, 115e6};
    }
    struct placement_problem problem = world.problem;
    problem.n_devices = DEVICES;
    problem.devices = devices;
    problem.links = links;
    struct placement_options options = placement_options_default();
    struct placement_solution solution;
    options.max_nodes = 1;
    assert_int_equal(placement_solve(&problem, &options, &solution, NULL), ERROR_NONE);
    assert_int_equal(placement_check(&problem, &solution.placement, NULL), ERROR_NONE);
    assert_true(solution.lower_bound_s > 0 && placement_gap(&solution) < 0.2);
    free(devices);
    free(links);
}

static void says_what_is_missing(void **state)
{
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct error err;
    world_make(&world, 7, (struct world_shape){.n_devices = 4, .n_layers = 32, .tightness = 1});
    for (uint32_t i = 0; i < 4; i++)
        world.devices[i].memory_free_bytes = 3 * placement_layer_bytes(&world.problem, 31);
    assert_int_equal(placement_solve(&world.problem, &options, &solution, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "are missing"));
    assert_int_equal(solution.placement.n_stages, 0);
    for (uint32_t i = 0; i < 4; i++)
        world.devices[i].memory_free_bytes = 30 << 20;
    assert_int_equal(placement_solve(&world.problem, &options, &solution, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "largest device"));
    for (uint32_t i = 0; i < 4; i++)
        world.devices[i].decode_bytes_per_s[0] = 0;
    assert_int_equal(placement_solve(&world.problem, &options, &solution, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "types"));
}

static void refused(const char *words)
{
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    struct error err = {0};
    assert_int_equal(placement_solve(&world.problem, &options, &solution, &err), ERROR_INVALID);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
}

#define REFUSE(field, bad, words)                                                                  \
    do {                                                                                           \
        const __typeof__(field) kept = (field);                                                    \
        (field) = (bad);                                                                           \
        refused(words);                                                                            \
        (field) = kept;                                                                            \
    } while (0)

/* 100 s of work: 20 at once, the rest at a quarter of its time. */
static void a_share_for_some_time(void **state)
{
    (void)state;
    const struct placement_device cool = {.share = 0.25, .full_s = 20};
    assert_double_equal(placement_share_over(&cool, 100), 100 / (20 + 80 / 0.25), 1e-12);
    assert_double_equal(placement_share_over(&cool, 20), 1, 0);
    assert_double_equal(placement_share_over(&cool, 0), 1, 0);
    assert_double_equal(placement_share_over(&cool, 1e12), 0.25, 1e-9);
    const struct placement_device hot = {.share = 0.25};
    assert_double_equal(placement_share_over(&hot, 0), 0.25, 0);
}

static void hostile_numbers_are_refused(void **state)
{
    world_make(&world, 1, (struct world_shape){.n_devices = 3, .n_layers = 8, .tightness = 3});
    const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e300};
    for (uint32_t i = 0; i < 5; i++) {
        REFUSE(world.devices[1].decode_bytes_per_s[0], bad[i], "device 1: decode_bytes_per_s");
        REFUSE(world.devices[1].prefill_flops[1], bad[i], "prefill_flops");
        REFUSE(world.devices[2].launch_s, bad[i], "launch_s");
        REFUSE(world.devices[2].share, bad[i], "share");
        REFUSE(world.devices[2].spread, bad[i], "spread");
        REFUSE(world.devices[2].full_s, bad[i], "full_s");
        REFUSE(world.devices[2].share_error, bad[i], "share_error");
        REFUSE(world.devices[0].kv_bytes_per_s, bad[i], "kv_bytes_per_s");
        REFUSE(world.links[1].latency_s, bad[i], "link from device 0 to 1");
        REFUSE(world.links[5].bytes_per_s, bad[i], "link from device 1 to 2");
        REFUSE(world.layers[3].flops_per_token[0], bad[i], "model: layer 3");
        REFUSE(world.problem.model.expert_share, bad[i], "expert_share");
    }
    REFUSE(world.devices[0].memory_free_bytes, UINT64_MAX, "2^50");
    REFUSE(world.layers[0].bytes[0], UINT64_MAX, "2^50");
    REFUSE(world.layers[0].kv_bytes_per_token, UINT64_MAX, "KV cache");
    REFUSE(world.problem.model.tied_bytes, UINT64_MAX, "tied");
    REFUSE(world.problem.model.compute_bytes, UINT64_MAX, "2^50");
    REFUSE(world.problem.model.n_layers, 0, "layers");
    REFUSE(world.problem.model.n_layers, LIMIT_LAYERS + 1, "layers");
    REFUSE(world.problem.model.n_types, PLACEMENT_TYPES_MAX + 1, "types");
    REFUSE(world.problem.n_devices, 0, "devices");
    REFUSE(world.problem.n_devices, LIMIT_PLACEMENT_DEVICES + 1, "devices");
    REFUSE(world.problem.demand.streams, 0, "streams");
    REFUSE(world.problem.demand.streams, LIMIT_SEQUENCES + 1, "streams");
    REFUSE(world.problem.demand.context_tokens, 0, "context");
    REFUSE(world.problem.demand.context_tokens, UINT32_MAX, "context");
    REFUSE(world.problem.demand.chunk_tokens, UINT32_MAX, "chunks");
    REFUSE(world.problem.demand.goal, (enum placement_goal)7, "goal");
    REFUSE(world.problem.demand.busy, 1.5, "busy");
    REFUSE(world.problem.demand.busy, NAN, "busy");
}

/* Layers and devices that cost nothing, or all that is allowed. */
static void extreme_numbers_are_solved(void **state)
{
    for (uint64_t seed = 1; seed <= 400; seed++) {
        make_random(seed, 4, 6);
        struct world dice = {.seed = seed};
        for (uint32_t i = 0; i < world.problem.model.n_layers; i++) {
            if (world_random(&dice) < 0.3)
                world.layers[i] = (struct placement_layer){0};
        }
        for (uint32_t i = 0; i < world.problem.n_devices; i++) {
            if (world_random(&dice) < 0.2)
                world.devices[i].memory_free_bytes = 0;
            if (world_random(&dice) < 0.2)
                world.devices[i].decode_bytes_per_s[0] = world.devices[i].decode_bytes_per_s[1] =
                    1e18;
            if (world_random(&dice) < 0.2)
                world.devices[i].launch_s = world_random(&dice) < 0.5 ? 0 : 1e6;
            if (world_random(&dice) < 0.1)
                world.devices[i].share = world_random(&dice) < 0.5 ? 0 : 1e-9;
        }
        assert_same(solve(&world.problem), world_brute_force(&world.problem), seed);
    }
}

static void without_memory_it_says_so(void **state)
{
    make_random(3, 5, 8);
    world_make(&world, 5, (struct world_shape){.n_devices = 5, .n_layers = 20, .tightness = 3});
    const struct placement_options options = placement_options_default();
    struct placement_solution solution;
    enum error_code code = ERROR_NO_MEMORY;
    unsigned nth = 1;
    for (; code == ERROR_NO_MEMORY; nth++) {
        mem_fail_nth(nth);
        code = placement_solve(&world.problem, &options, &solution, NULL);
    }
    mem_fail_nth(0);
    assert_int_equal(code, ERROR_NONE);
    assert_true(nth > 20);
}

static void weights_are_read(void **state)
{
    static const char *const bad[] = {
        "",          "compute",     "compute=",     "compute=-1",        "speed=1",
        "compute=x", "compute=1,",  "compute=1001", "memory=1,memory=2", "compute=1 ",
        ",memory=1", "compute=nan", "compute=0x1",  "compute=1;memory=2"};
    struct placement_weights weights = placement_options_default().weights;
    struct error err = {0};
    assert_int_equal(placement_weights_read("memory=60,compute=0.5", &weights, &err), ERROR_NONE);
    assert_true(weights.memory == 60 && weights.compute == 0.5 && weights.network == 15);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(placement_weights_read(bad[i], &weights, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "weights are compute, memory"));
        assert_true(weights.memory == 60 && weights.compute == 0.5);
    }
    assert_int_equal(placement_weights_read("compute=0,memory=0,network=0,thermal=0,bandwidth=0",
                                            &weights, &err),
                     ERROR_INVALID);
    assert_string_equal(err.text, "at least one weight must be above 0");
    assert_true(placement_weights_are_set(&weights));
    assert_false(placement_weights_are_set(&(struct placement_weights){0}));
}

/* What is first in the greedy answer changes with them; what is best does not. */
static void weights_change_greedy_alone(void **state)
{
    uint32_t different = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        struct placement_options by_memory = placement_options_default();
        struct placement_solution solution;
        make_random(seed, 8, 8);
        const double best_s = solve(&world.problem);
        if (!(best_s < INFINITY))
            continue;
        by_memory.weights = (struct placement_weights){.memory = 1};
        assert_int_equal(placement_solve(&world.problem, &by_memory, &solution, NULL), ERROR_NONE);
        assert_same(solution.period_s, best_s, seed);
        const double greedy_s = solution.greedy_s;
        by_memory.weights = (struct placement_weights){.bandwidth = 1};
        assert_int_equal(placement_solve(&world.problem, &by_memory, &solution, NULL), ERROR_NONE);
        different += greedy_s != solution.greedy_s;
    }
    assert_true(different > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(near_enough_is_as_near_as_it_says),
        cmocka_unit_test(weights_are_read),
        cmocka_unit_test(weights_change_greedy_alone),
        cmocka_unit_test(many_devices_equal_brute_force),
        cmocka_unit_test(order_does_not_matter),
        cmocka_unit_test(better_is_never_worse),
        cmocka_unit_test(scale_does_not_matter),
        cmocka_unit_test(check_rejects_mutants),
        cmocka_unit_test(no_time_is_still_an_answer),
        cmocka_unit_test(says_what_is_missing),
        cmocka_unit_test(a_thousand_devices_are_placed),
        cmocka_unit_test(a_share_for_some_time),
        cmocka_unit_test(hostile_numbers_are_refused),
        cmocka_unit_test(extreme_numbers_are_solved),
        cmocka_unit_test(without_memory_it_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
