/* In which chunks a prompt goes through devices, and what is learned of them. */
#include "base/random.h"
#include "pipeline/chunks.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { ROWS_MAX = 512 };

struct draws {
    uint64_t seed, n;
};
static uint32_t draw_below(struct draws *draws, uint32_t end)
{
    return (uint32_t)(random_at(draws->seed, draws->n++) % end);
}

/* When the last of the chunks has left the last device, by playing it. */
static double time_of(const struct chunk_work *work, const uint32_t *rows, uint32_t n_chunks)
{
    double free_at[LIMIT_STAGES] = {0}, before = (double)work->n_before, done = 0;
    for (uint32_t i = 0; i < n_chunks; i++) {
        done = 0;
        for (uint32_t d = 0; d < work->n_devices; d++) {
            const double took = chunk_line_time(&work->lines[d], rows[i], before);
            done = free_at[d] = fmax(free_at[d], done) + took;
        }
        before += rows[i];
    }
    return done;
}

static double best_of_equal(const struct chunk_work *work)
{
    double best = INFINITY;
    for (uint32_t chunk = CHUNK_ROWS_MIN; chunk <= ROWS_MAX; chunk++) {
        uint32_t rows[CHUNK_PLAN_MAX], n = 0;
        for (uint64_t at = 0; at < work->n_rows; at += chunk)
            rows[n++] = (uint32_t)fmin(chunk, (double)(work->n_rows - at));
        best = fmin(best, time_of(work, rows, n));
    }
    return best;
}

static uint64_t sum_of(const struct chunk_plan *plan)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < plan->n_chunks; i++)
        sum += plan->rows[i];
    return sum;
}

static void test_equal_devices_get_equal_chunks(void **state)
{
    (void)state;
    static const double fixed[] = {1, 4, 20};
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
        for (uint32_t devices = 2; devices <= 4; devices++) {
            struct chunk_line lines[4];
            for (uint32_t d = 0; d < devices; d++)
                lines[d] = (struct chunk_line){.fixed = fixed[i], .row = 1};
            const struct chunk_work work = {lines, devices, ROWS_MAX, 0, 2000};
            struct chunk_plan plan;
            chunk_plan(&work, &plan);
            assert_int_equal(sum_of(&plan), 2000);
            for (uint32_t k = 1; k < plan.n_chunks; k++)
                assert_true(abs((int)plan.rows[k] - (int)plan.rows[0]) <= CHUNK_ROWS_STEP);
            assert_true(time_of(&work, plan.rows, plan.n_chunks) <= 1.01 * best_of_equal(&work));
        }
    }
}

static void test_short_chunks_lie_where_the_slowest_would_wait(void **state)
{
    (void)state;
    struct chunk_line lines[3] = {{.fixed = 14, .row = 2}, {.fixed = 7, .row = 1}};
    struct chunk_work work = {lines, 2, ROWS_MAX, 0, 512};
    struct chunk_plan plan;
    chunk_plan(&work, &plan); /* the second is faster: shorter at the end */
    assert_true(plan.rows[0] > 2 * plan.rows[plan.n_chunks - 1]);
    assert_true(time_of(&work, plan.rows, plan.n_chunks) < 0.98 * best_of_equal(&work));
    lines[2] = lines[0], lines[0] = lines[1], lines[1] = lines[2];
    chunk_plan(&work, &plan); /* the first is */
    assert_true(plan.rows[plan.n_chunks - 1] > 2 * plan.rows[0]);
    assert_true(time_of(&work, plan.rows, plan.n_chunks) < 0.98 * best_of_equal(&work));
    lines[2] = lines[0], work.n_devices = 3;
    chunk_plan(&work, &plan); /* both the first and the last are */
    const uint32_t middle = plan.rows[plan.n_chunks / 2];
    assert_true(middle > plan.rows[0] && middle > plan.rows[plan.n_chunks - 1]);
    assert_true(time_of(&work, plan.rows, plan.n_chunks) < 0.98 * best_of_equal(&work));
}

static void test_a_plan_is_never_worse_than_equal_chunks(void **state)
{
    (void)state;
    struct draws draws = {.seed = 7};
    for (int round = 0; round < 300; round++) {
        struct chunk_line lines[5];
        const uint32_t n = 2 + draw_below(&draws, 4);
        for (uint32_t d = 0; d < n; d++)
            lines[d] = (struct chunk_line){.fixed = draw_below(&draws, 40),
                                           .row = 0.1 + draw_below(&draws, 30) / 10.0,
                                           .row_token = draw_below(&draws, 2) * 1e-4};
        const struct chunk_work work = {lines, n, ROWS_MAX, draw_below(&draws, 2) * 1000,
                                        200 + draw_below(&draws, 3000)};
        struct chunk_plan plan;
        chunk_plan(&work, &plan);
        assert_int_equal(sum_of(&plan), work.n_rows);
        assert_true(time_of(&work, plan.rows, plan.n_chunks) <= 1.05 * best_of_equal(&work));
    }
}

/* Whatever was sent before, the next chunks end where the plan's do. */
static void test_the_next_chunk_follows_the_plan(void **state)
{
    (void)state;
    const struct chunk_line lines[] = {{.fixed = 14, .row = 2}, {.fixed = 7, .row = 1}};
    static const uint64_t prompts[] = {1, 31, 32, 40, 512, 8192, 8193, 100000};
    static const uint32_t most[] = {1, 5, 48, ROWS_MAX};
    for (uint32_t i = 0; i < 32; i++) {
        const struct chunk_work work = {lines, 2, most[i / 8], 0, prompts[i % 8]};
        struct chunk_plan plan;
        chunk_plan(&work, &plan);
        uint64_t left = work.n_rows;
        for (uint32_t n = 0; left; n++) {
            const uint32_t rows = chunk_plan_next(&plan, &work, left);
            assert_in_range(rows, 1, left < work.rows_max ? left : work.rows_max);
            if (work.n_rows <= CHUNK_PLAN_ROWS && work.rows_max == ROWS_MAX)
                assert_int_equal(rows, plan.rows[n]);
            left -= rows;
        }
    }
}

static void test_one_device_gets_all_that_it_takes(void **state)
{
    (void)state;
    const struct chunk_line line = {.row = 1};
    const struct chunk_work work = {&line, 1, ROWS_MAX, 0, 700};
    struct chunk_plan plan;
    chunk_plan(&work, &plan);
    assert_int_equal(plan.n_chunks, 2);
    assert_int_equal(plan.rows[0], ROWS_MAX);
    assert_int_equal(plan.rows[1], 188);
}

/* ---- what is learned ---------------------------------------------------------------------- */

static uint64_t ns_of(const struct chunk_line *line, uint32_t rows, double before)
{
    return (uint64_t)(1e6 * chunk_line_time(line, rows, before));
}

static void test_lines_follow_what_was_measured(void **state)
{
    (void)state;
    static const struct chunk_line lines[] = {
        {1, 1, 0}, {4, 1, 0.001}, {20, 2, 0.0002}, {14, 2, 0}};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct chunk_costs costs = {0};
        struct chunk_line line;
        for (uint32_t k = 0; k < 100; k++) {
            const uint32_t rows = 32 + k * 7 % 60, before = k * 64 % 1000;
            chunk_costs_note(&costs, 0, rows, rows * (before + rows / 2.0),
                             ns_of(&lines[i], rows, before));
        }
        chunk_costs_lines(&costs, 1, &line);
        for (uint32_t rows = 32; rows <= 128; rows += 48)
            assert_true(
                fabs(chunk_line_time(&line, rows, 300) / chunk_line_time(&lines[i], rows, 300) -
                     1) < 0.01);
        assert_true(fabs(line.fixed - lines[i].fixed) < 1);
    }
}

static void test_what_is_not_known_is_expected(void **state)
{
    (void)state;
    struct chunk_costs costs = {0};
    struct chunk_prompts prompts = {.n_rows = 512, .n_left = 512};
    struct chunk_line line;
    assert_int_equal(chunk_rows(&costs, &prompts, 1, ROWS_MAX), ROWS_MAX);
    assert_int_equal(chunk_rows(&costs, &prompts, 2, ROWS_MAX), 64);
    prompts.n_left = 256;
    assert_int_equal(chunk_rows(&costs, &prompts, 2, ROWS_MAX), 32); /* to learn it */
    for (uint32_t k = 0; k < 10; k++)                                /* of one length: no line */
        chunk_costs_note(&costs, 0, 32, 512, 40000000);
    chunk_costs_lines(&costs, 1, &line);
    assert_true(fabs(line.row - 1) < 0.02 && fabs(line.fixed - CHUNK_COST_FIRST) < 0.2);
    for (uint32_t k = 0; k < 60; k++) /* nor behind a few others, by clocks that are out by 2 % */
        chunk_costs_note(&costs, 0, k < 4 ? 64 : 32, 512,
                         k < 4 ? 70500000 : 40400000 - k % 2 * 800000);
    chunk_costs_lines(&costs, 1, &line);
    assert_true(line.fixed > 3 * line.row && line.fixed < 13 * line.row);
    for (uint32_t k = 0; k < 50; k++) /* shorter takes longer: not believed */
        chunk_costs_note(&costs, 0, k % 2 ? 32 : 96, 0, k % 2 ? 900000 : 100000);
    chunk_costs_lines(&costs, 1, &line);
    assert_true(line.row > 0 && line.fixed > 0 && line.row_token >= 0);
    assert_in_range(chunk_rows(&costs, &prompts, 2, ROWS_MAX), 1, 512);
    prompts = (struct chunk_prompts){0};
    assert_int_equal(chunk_rows(&costs, &prompts, 2, ROWS_MAX), ROWS_MAX);
}

/* Whatever a peer says its stage took, chunks are chunks. */
static void test_any_time_makes_a_chunk(void **state)
{
    (void)state;
    struct draws draws = {.seed = 3};
    for (int round = 0; round < 200; round++) {
        struct chunk_costs costs = {0};
        for (uint32_t k = 0; k < 30; k++) {
            const uint32_t rows = 32 + draw_below(&draws, 480);
            chunk_costs_note(&costs, k % 2, rows, draw_below(&draws, 1u << 30),
                             (uint64_t)draw_below(&draws, 1u << 31) << draw_below(&draws, 12));
        }
        const struct chunk_prompts prompts = {.n_rows = 20000,
                                              .n_left = 1 + draw_below(&draws, 20000)};
        const uint32_t rows = chunk_rows(&costs, &prompts, 2, ROWS_MAX);
        assert_in_range(rows, 1, ROWS_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_devices_get_equal_chunks),
        cmocka_unit_test(test_short_chunks_lie_where_the_slowest_would_wait),
        cmocka_unit_test(test_a_plan_is_never_worse_than_equal_chunks),
        cmocka_unit_test(test_the_next_chunk_follows_the_plan),
        cmocka_unit_test(test_one_device_gets_all_that_it_takes),
        cmocka_unit_test(test_lines_follow_what_was_measured),
        cmocka_unit_test(test_what_is_not_known_is_expected),
        cmocka_unit_test(test_any_time_makes_a_chunk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
