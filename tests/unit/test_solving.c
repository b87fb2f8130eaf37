/* The leader's large placement problems, solved beside the loop. */
#include "base/clock.h"
#include "node/solving.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replan.h"
#include "placement/solve.h"
#include "placement_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct world world;
static uint32_t n_solved;
static char solved_last[64];

static void note_solved(void *arg, const char *instance)
{
    assert_ptr_equal(arg, &world);
    snprintf(solved_last, sizeof solved_last, "%s", instance);
    n_solved++;
}

/* A problem of so many devices that has a placement. */
static const struct placement_problem *problem_of(uint32_t n_devices)
{
    world_make(&world, 3,
               (struct world_shape){.n_devices = n_devices, .n_layers = 48, .tightness = 3});
    return &world.problem;
}

static uv_loop_t *open_loop(uv_loop_t *loop)
{
    assert_int_equal(uv_loop_init(loop), 0);
    n_solved = 0;
    return loop;
}

static void test_small_ones_are_answered_at_once(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    struct placement_solution solution;
    const struct placement_problem *problem = problem_of(SOLVING_SMALL_DEVICES);
    assert_int_equal(solving_solve(solving, "a", false, problem, &solution, NULL), ERROR_NONE);
    assert_int_equal(placement_check(problem, &solution.placement, NULL), ERROR_NONE);
    assert_int_equal(n_solved, 0);
    solving_free(solving);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_large_ones_leave_the_loop(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    struct placement_solution solution;
    struct error err;
    const struct placement_problem *problem = problem_of(64);
    const uint64_t begin_ns = clock_now_ns();
    assert_int_equal(solving_solve(solving, "a", false, problem, &solution, &err), ERROR_BUSY);
    const double asked_ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    assert_int_equal(solving_solve(solving, "a", false, problem, &solution, &err), ERROR_BUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    const double solved_ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    assert_int_equal(n_solved, 1);
    assert_string_equal(solved_last, "a");
    assert_int_equal(solving_solve(solving, "a", false, problem, &solution, &err), ERROR_NONE);
    assert_int_equal(placement_check(problem, &solution.placement, NULL), ERROR_NONE);
    assert_true(placement_gap(&solution) <= SOLVING_ENOUGH || solved_ms >= SOLVING_LIMIT_MS);
    printf("# 64 devices, 48 layers: asked in %.2f ms, solved in %.0f ms, at most %.1f %% slower "
           "than the best\n",
           asked_ms, solved_ms, 100 * placement_gap(&solution));
    /* another question: beside what is there, of another instance */
    assert_int_equal(solving_solve(solving, "a", true, problem, &solution, &err), ERROR_BUSY);
    assert_int_equal(solving_solve(solving, "b", false, problem, &solution, &err), ERROR_BUSY);
    assert_int_equal(solving_solve(solving, "c", false, problem, &solution, &err), ERROR_BUSY);
    solving_free(solving); /* two searches are under way; the third never began */
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_solved, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_an_answer_that_does_not_fit_any_more_is_not_used(void **state)
{
    (void)state;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    struct placement_solution solution;
    struct placement_problem problem = *problem_of(8);
    struct placement_device devices[8];
    assert_int_equal(solving_solve(solving, "a", false, &problem, &solution, NULL), ERROR_BUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(solving_solve(solving, "a", false, &problem, &solution, NULL), ERROR_NONE);
    memcpy(devices, problem.devices, sizeof devices);
    devices[solution.placement.stages[0].device].memory_free_bytes = 0;
    devices[solution.placement.stages[0].device].reserve_bytes = 0;
    problem.devices = devices;
    assert_int_equal(solving_solve(solving, "a", false, &problem, &solution, NULL), ERROR_BUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_solved, 2);
    solving_free(solving);
    assert_int_equal(uv_loop_close(&loop), 0);
}

/* ---- where nothing fits: what streams from disks ---- */

static struct plan_stream_disk stream_disks[64];

/* One device of four holds some layers, two of a node read from one disk. */
static const struct placement_problem *too_small_of(uint32_t n_devices)
{
    uint64_t all = 0;
    world_make(
        &world, 3,
        (struct world_shape){.n_devices = n_devices, .n_layers = WORLD_LAYERS, .tightness = 1});
    world.problem.demand.context_tokens = 256;
    world.problem.demand.limit_s = 60; /* a loaded machine's answers are compared, too */
    for (uint32_t i = 0; i < WORLD_LAYERS; i++)
        all += placement_layer_bytes(&world.problem, i);
    for (uint32_t i = 0; i < n_devices; i++)
        world.devices[i].memory_free_bytes = (i % 4 ? 1 : 8) * all / n_devices / 4;
    for (uint32_t i = 0; i < n_devices; i++)
        stream_disks[i] = (struct plan_stream_disk){UINT64_C(500000000) * (1 + i % 7), i / 2};
    return &world.problem;
}

/* Computing, whatever else the machine does. */
static double thread_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec * 1e-6;
}

static void expect_streams(const struct plan_stream_placement *found)
{
    assert_true(found->n_streamed > 0);
    assert_true(plan_stream_fits(&world.problem, found));
}

static void streams_leave_the_loop(uint32_t n_devices)
{
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    struct plan_stream_placement found, expected;
    struct error err;
    const struct placement_problem *problem = too_small_of(n_devices);
    const struct placement_options options = plan_stream_options(problem);
    const double begin_ms = thread_ms();
    assert_true(plan_stream_place(problem, stream_disks, &options, &expected));
    const double here_ms = thread_ms() - begin_ms, asks_ms = thread_ms();
    assert_int_equal(solving_streams(solving, "a", problem, stream_disks, &found, &err),
                     ERROR_BUSY);
    const double asked_ms = thread_ms() - asks_ms;
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_solved, 1);
    assert_string_equal(solved_last, "a");
    assert_int_equal(solving_streams(solving, "a", problem, stream_disks, &found, &err),
                     ERROR_NONE);
    printf("# %u devices, %d layers that do not fit: %.0f ms of the loop, asked in %.2f ms\n",
           n_devices, WORLD_LAYERS, here_ms, asked_ms);
    expect_streams(&found);
    assert_int_equal(found.placement.n_stages, expected.placement.n_stages);
    assert_memory_equal(found.placement.stages, expected.placement.stages,
                        found.placement.n_stages * sizeof *found.placement.stages);
    /* memory has gone: another question */
    world.devices[found.placement.stages[0].device].memory_free_bytes /= 2;
    assert_int_equal(solving_streams(solving, "a", problem, stream_disks, &found, &err),
                     ERROR_BUSY);
    solving_free(solving);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_solved, 1);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_what_streams_is_searched_for_beside_the_loop(void **state)
{
    (void)state;
    streams_leave_the_loop(SOLVING_SMALL_DEVICES);
    streams_leave_the_loop(64);
}

static bool three_times(void *self)
{
    uint32_t *n = self;
    return (*n)++ < 3;
}

/* With no time left it answers with what it has. */
static void test_a_search_for_streams_ends_with_its_time(void **state)
{
    (void)state;
    const struct placement_problem *problem = too_small_of(64);
    struct placement_options options = plan_stream_options(problem);
    struct plan_stream_placement found;
    uint32_t n = 0;
    options.go_on = three_times;
    options.self = &n;
    if (plan_stream_place(problem, stream_disks, &options, &found))
        expect_streams(&found);
    assert_true(n > 3 && n < 200); /* 64 devices are asked about once each */
}

/* ---- moves ---- */

static struct replan_device disks[64];
static struct replan_layout layout;

/* What the solver finds runs, and then its first device gets slow. */
static struct replan_input move_of(uint32_t n_devices)
{
    struct placement_options options = placement_options_default();
    struct placement_solution solution;
    options.greedy_only = true;
    problem_of(n_devices);
    assert_int_equal(placement_solve(&world.problem, &options, &solution, NULL), ERROR_NONE);
    layout = replan_layout_of(&world.problem, &solution.placement);
    world.devices[solution.placement.stages[0].device].share = 0.05;
    for (uint32_t i = 0; i < n_devices; i++)
        disks[i].disk_bytes_per_s = 2e9;
    return (struct replan_input){.problem = &world.problem,
                                 .devices = disks,
                                 .current = &layout,
                                 .tokens = 1e6,
                                 .now_s = 100};
}

static void test_small_moves_are_answered_at_once(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    const struct replan_options options = replan_options_default();
    const struct replan_input input = move_of(SOLVING_SMALL_DEVICES);
    struct replan_state state = {0};
    struct replan_decision decision = {0};
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, NULL),
                     ERROR_NONE);
    assert_true(decision.verdict == REPLAN_WAIT && state.pending.n_runs);
    solving_free(solving);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_large_moves_leave_the_loop(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    struct replan_options options = replan_options_default();
    struct replan_input input = move_of(16);
    struct replan_state state = {0}, expected_state = {0};
    struct replan_decision decision = {0}, expected = {0};
    struct error err;
    assert_int_equal(replan(&input, &options, &expected_state, &expected_state, &expected, &err),
                     ERROR_NONE);
    assert_int_equal(expected.verdict, REPLAN_WAIT);
    options.solve.max_nodes = 1; /* the loop's limit is not the pool's */
    const uint64_t begin_ns = clock_now_ns();
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, &err),
                     ERROR_BUSY);
    const double asked_ms = (double)(clock_now_ns() - begin_ns) * 1e-6;
    assert_int_equal(state.pending.n_runs, 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    printf("# 16 devices: asked for a move in %.2f ms, answered in %.0f ms\n", asked_ms,
           (double)(clock_now_ns() - begin_ns) * 1e-6);
    assert_int_equal(n_solved, 1);
    input.now_s = 101; /* it is asked about another moment; the answer is the old one's */
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, &err),
                     ERROR_NONE);
    assert_int_equal(decision.verdict, expected.verdict);
    const struct placement *target = &expected.plan.target;
    assert_int_equal(decision.plan.target.n_stages, target->n_stages);
    assert_memory_equal(decision.plan.target.stages, target->stages,
                        target->n_stages * sizeof *target->stages);
    assert_memory_equal(&state, &expected_state, sizeof state);
    /* given once; and not for another layout */
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, &err),
                     ERROR_BUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    layout.runs[0].n_layers--;
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, &err),
                     ERROR_BUSY);
    solving_free(solving);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(n_solved, 2);
    assert_int_equal(uv_loop_close(&loop), 0);
}

static void test_placements_go_before_moves(void **unused)
{
    (void)unused;
    uv_loop_t loop;
    struct solving *solving = solving_new(open_loop(&loop), note_solved, &world);
    const struct replan_options options = replan_options_default();
    const struct replan_input input = move_of(16);
    struct replan_state state = {0};
    struct replan_decision decision;
    struct placement_solution solution;
    assert_int_equal(solving_solve(solving, "b", false, &world.problem, &solution, NULL),
                     ERROR_BUSY);
    assert_int_equal(solving_replan(solving, "a", &input, &options, &state, &decision, NULL),
                     ERROR_BUSY);
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_true(n_solved == 1 && strcmp(solved_last, "b") == 0);
    solving_free(solving);
    assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_ones_are_answered_at_once),
        cmocka_unit_test(test_large_ones_leave_the_loop),
        cmocka_unit_test(test_an_answer_that_does_not_fit_any_more_is_not_used),
        cmocka_unit_test(test_what_streams_is_searched_for_beside_the_loop),
        cmocka_unit_test(test_a_search_for_streams_ends_with_its_time),
        cmocka_unit_test(test_small_moves_are_answered_at_once),
        cmocka_unit_test(test_large_moves_leave_the_loop),
        cmocka_unit_test(test_placements_go_before_moves),
    };
    return cmocka_run_group_tests_name("solving", tests, NULL, NULL);
}
