/* gpu/thread_choice.h on made-up machines. */
#include "gpu/thread_choice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct machine {
    uint64_t ns[5];    /* a batch takes with 1 … 4 threads */
    uint32_t takes[5]; /* processors that others take meanwhile */
    uint64_t loses[5]; /* processor time so */
};

struct run {
    uint32_t with[5]; /* batches */
    uint64_t ns;
};

static struct run compute(struct thread_choice *choice, const struct machine *machine,
                          uint32_t n_batches, uint32_t n_rows)
{
    struct run run = {0};
    for (uint32_t i = 0; i < n_batches; i++) {
        const uint32_t n = thread_choice_next(choice);
        thread_choice_took(
            choice, n_rows,
            &(struct thread_took){machine->ns[n], machine->takes[n], machine->loses[n]});
        run.with[n]++;
        run.ns += machine->ns[n];
    }
    return run;
}

static const struct machine quiet = {.ns = {0, 25, 18}},
                            beside_one = {.ns = {0, 25, 38},
                                          .takes = {0, 0, 5},
                                          .loses = {0, 0, 40}},
                            crowded = {.ns = {0, 100, 80},
                                       .takes = {0, 9, 9},
                                       .loses = {0, 30, 20}},
                            serving = {.ns = {0, 60, 33}, .takes = {0, 4, 5}, .loses = {0, 1, 3}};

static void takes_all_threads_of_a_quiet_machine(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    const struct run run = compute(&choice, &quiet, 10000, 1);
    assert_int_equal(run.with[2], 10000);
}

static void leaves_a_busy_strangers_processor_and_comes_back(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    compute(&choice, &quiet, 100, 1);
    struct run run = compute(&choice, &beside_one, 1000, 1);
    assert_true(run.with[2] <= 40); /* to notice, and to look whether he is still there */
    assert_true(run.ns < 1000 * 25 * 103 / 100);
    run = compute(&choice, &beside_one, 100000, 1);
    assert_true(run.with[2] <= 100000 / 100);
    run = compute(&choice, &quiet, 1000, 1);
    assert_int_equal(thread_choice_next(&choice), 2);
    assert_true(run.with[1] <= (THREAD_PAUSE_MAX + 2) * THREAD_WINDOW);
    run = compute(&choice, &quiet, 10000, 1);
    assert_int_equal(run.with[2], 10000);
}

static void tries_seldom_what_does_not_help(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    const struct run run = compute(&choice, &crowded, 10000, 1);
    assert_true(run.with[1] > 0);
    assert_true(run.with[1] <= 10000 / 50);
}

/* Eight streams: what a client takes to read its tokens is less than a thread does. */
static void keeps_all_threads_beside_a_client(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    const struct run run = compute(&choice, &serving, 10000, 8);
    assert_int_equal(run.with[2], 10000);
}

/* Both threads were on one processor for a batch, or the whole machine was halted. */
static void keeps_all_threads_after_one_late_batch(void **state)
{
    (void)state;
    static const struct machine late = {.ns = {0, 60, 55}, .takes = {0, 4, 5}, .loses = {0, 1, 28}};
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(compute(&choice, &late, 1, 8).with[2], 1);
        assert_int_equal(compute(&choice, &serving, THREAD_WINDOW, 8).with[2], THREAD_WINDOW);
    }
}

static void ends_a_trial_that_cannot_win(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    compute(&choice, &crowded, THREAD_WINDOW, 1);
    const struct run run = compute(&choice, &crowded, THREAD_WINDOW, 1);
    assert_int_equal(run.with[1], 3); /* 300, and four with both took 320 */
    assert_int_equal(run.with[2], 1);
}

static void gives_as_many_threads_as_strangers_want(void **state)
{
    (void)state;
    static const struct machine two_strangers = {
        .ns = {0, 80, 45, 55, 65}, .takes = {0, 0, 0, 3, 5}, .loses = {0, 0, 0, 30, 50}};
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 4, 4, THREAD_WINDOW);
    compute(&choice, &two_strangers, 200, 1);
    const struct run run = compute(&choice, &two_strangers, 1000, 1);
    assert_true(run.with[2] > 900);
    assert_int_equal(run.with[4], 0);
}

static void compares_batches_of_as_many_rows_alone(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 2, THREAD_WINDOW);
    for (uint32_t i = 0; i < 1000; i++) { /* each shape is another, so nothing is learnt */
        const uint32_t n_rows = 1 + i % 2, n = thread_choice_next(&choice);
        assert_int_equal(n, 2);
        compute(&choice, &beside_one, 1, n_rows);
    }
    compute(&choice, &beside_one, THREAD_WINDOW, 1);
    assert_int_equal(thread_choice_next(&choice), 1); /* a trial … */
    compute(&choice, &beside_one, 1, 2);
    assert_int_equal(thread_choice_next(&choice), 2); /* … that another shape ends */
}

static void never_gives_less_than_the_cores_for_many_rows(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 2, 2, 2, 1);
    const struct run run = compute(&choice, &beside_one, 1000, 512);
    assert_int_equal(run.with[2], 1000);
}

/* Two cores of two threads each. */
static const struct machine seconds_wait = {.ns = {0, 190, 100, 0, 120}},
                            seconds_help = {.ns = {0, 190, 100, 0, 80}},
                            seconds_are_taken = {.ns = {0, 190, 100, 0, 140},
                                                 .takes = {0, 0, 0, 0, 6},
                                                 .loses = {0, 0, 0, 0, 200}};

static void leaves_second_threads_alone_where_they_wait(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 4, THREAD_WINDOW);
    const struct run run = compute(&choice, &seconds_wait, 20000, 1);
    assert_true(run.with[4] > 0 && run.with[4] <= 20000 / 50);
    assert_int_equal(run.with[1] + run.with[2] + run.with[4], 20000);
    assert_true(run.with[1] == 0);
}

static void takes_second_threads_where_they_help(void **state)
{
    (void)state;
    struct thread_choice choice;
    thread_choice_init(&choice, 2, 2, 4, 1);
    struct run run = compute(&choice, &seconds_help, 1000, 512);
    assert_true(run.with[4] > 900);
    run = compute(&choice, &seconds_are_taken, 1000, 512); /* somebody else has them now */
    assert_true(run.with[2] > 900 - THREAD_PAUSE_MAX);
    assert_int_equal(thread_choice_next(&choice), 2);
}

static void notices_strangers_after_second_threads_did_not_help(void **state)
{
    (void)state;
    static const struct machine beside_one_of_four = {
        .ns = {0, 105, 140, 0, 170}, .takes = {0, 0, 5, 0, 9}, .loses = {0, 0, 100, 0, 300}};
    struct thread_choice choice;
    thread_choice_init(&choice, 1, 2, 4, THREAD_WINDOW);
    compute(&choice, &seconds_wait, 1000, 1);
    const struct run run = compute(&choice, &beside_one_of_four, 1000, 1);
    assert_true(run.with[1] > 900);
}

static void has_nothing_to_choose_without_threads(void **state)
{
    (void)state;
    struct thread_choice none = {0}, one;
    thread_choice_init(&one, 1, 1, 1, THREAD_WINDOW);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(thread_choice_next(&none), 0);
        assert_int_equal(thread_choice_next(&one), 1);
        thread_choice_took(&none, 1, &(struct thread_took){1, 9, 1});
        thread_choice_took(&one, 1, &(struct thread_took){1, 9, 1});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_all_threads_of_a_quiet_machine),
        cmocka_unit_test(leaves_a_busy_strangers_processor_and_comes_back),
        cmocka_unit_test(tries_seldom_what_does_not_help),
        cmocka_unit_test(keeps_all_threads_beside_a_client),
        cmocka_unit_test(keeps_all_threads_after_one_late_batch),
        cmocka_unit_test(ends_a_trial_that_cannot_win),
        cmocka_unit_test(gives_as_many_threads_as_strangers_want),
        cmocka_unit_test(compares_batches_of_as_many_rows_alone),
        cmocka_unit_test(never_gives_less_than_the_cores_for_many_rows),
        cmocka_unit_test(leaves_second_threads_alone_where_they_wait),
        cmocka_unit_test(takes_second_threads_where_they_help),
        cmocka_unit_test(notices_strangers_after_second_threads_did_not_help),
        cmocka_unit_test(has_nothing_to_choose_without_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
