/* gpu: the queue (order, exclusion, draining, duty) and the handles. No driver is loaded, so that
 * ThreadSanitizer sees our threads alone. */
#include "base/clock.h"
#include "base/mem.h"
#include "gpu/handles.h"
#include "gpu/queue.h"
#include "gpu_fake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { THREADS = 4, JOBS = 1000 };

/* Written by the queue's thread alone; not atomic, on purpose. */
struct journal {
    uint32_t next[THREADS]; /* the number that each submitter's next job must have */
    uint32_t n_run;
    uint32_t n_out_of_order;
};

struct numbered_job {
    struct device_job job;
    struct journal *journal;
    uint32_t thread;
    uint32_t number;
};

struct submitter {
    struct queue *queue;
    struct numbered_job jobs[JOBS];
    pthread_t thread;
};

static void note(struct device_job *job)
{
    struct numbered_job *mine = (struct numbered_job *)job;
    struct journal *journal = mine->journal;
    journal->n_run++;
    journal->n_out_of_order += journal->next[mine->thread]++ != mine->number;
}

static void *submit_all(void *argument)
{
    struct submitter *submitter = argument;
    for (uint32_t i = 0; i < JOBS; i++)
        queue_submit(submitter->queue, &submitter->jobs[i].job);
    return NULL;
}

static void test_queue_keeps_each_threads_order(void **state)
{
    (void)state;
    struct queue queue;
    struct journal journal = {0};
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct submitter *submitters = mem_new_array(THREADS, sizeof *submitters);
    assert_non_null(submitters);
    for (uint32_t t = 0; t < THREADS; t++) {
        submitters[t].queue = &queue;
        for (uint32_t i = 0; i < JOBS; i++)
            submitters[t].jobs[i] = (struct numbered_job){{.run = note}, &journal, t, i};
        assert_int_equal(pthread_create(&submitters[t].thread, NULL, submit_all, &submitters[t]),
                         0);
    }
    for (uint32_t t = 0; t < THREADS; t++)
        pthread_join(submitters[t].thread, NULL);
    queue_close(&queue); /* whatever is still queued runs first */
    assert_int_equal(journal.n_run, THREADS * JOBS);
    assert_int_equal(journal.n_out_of_order, 0);
    mem_free(submitters);
}

struct chain {
    struct device_job job;
    struct queue *queue;
    uint32_t left;
    uint32_t n_run;
};

static void run_chain(struct device_job *job)
{
    struct chain *chain = (struct chain *)job;
    chain->n_run++;
    if (chain->left--)
        queue_submit(chain->queue, job); /* the job's memory is free again once it runs */
}

static void test_close_runs_what_jobs_queue(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct chain chain = {.job.run = run_chain, .queue = &queue, .left = 5000};
    queue_submit(&queue, &chain.job);
    queue_close(&queue);
    assert_int_equal(chain.n_run, 5001);
}

static void run_and_free(struct device_job *job)
{
    mem_free(job);
}

static void test_job_may_free_itself(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    for (int i = 0; i < 1000; i++) {
        struct device_job *job = mem_new(sizeof *job);
        job->run = run_and_free;
        queue_submit(&queue, job);
    }
    queue_close(&queue);
}

/* ---- duty ------------------------------------------------------------------------------------ */

/* A job that computes for a while; when it began and ended. */
struct spin_job {
    struct device_job job;
    uint64_t span_ns;
    uint64_t began_ns;
    _Atomic uint64_t ended_ns; /* 0: not yet */
};

static void spin(struct device_job *job)
{
    struct spin_job *mine = (struct spin_job *)job;
    mine->began_ns = clock_now_ns();
    while (clock_now_ns() - mine->began_ns < mine->span_ns)
        continue;
    mine->ended_ns = clock_now_ns();
}

static void sleep_ms(long ms)
{
    const struct timespec span = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&span, NULL);
}

static void wait_for_end(struct spin_job *job)
{
    while (!job->ended_ns)
        sleep_ms(1);
}

/* Rest between the first and the last job, as a multiple of the work before the last one. */
static double rest_per_work(double duty, struct spin_job *jobs, uint32_t n, uint64_t span_ns)
{
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    queue_set_duty(&queue, duty);
    for (uint32_t i = 0; i < n; i++) {
        jobs[i] = (struct spin_job){.job.run = spin, .span_ns = span_ns};
        queue_submit(&queue, &jobs[i].job);
    }
    wait_for_end(&jobs[n - 1]);
    queue_close(&queue);
    double work = 0;
    for (uint32_t i = 0; i + 1 < n; i++)
        work += (double)(jobs[i].ended_ns - jobs[i].began_ns);
    return ((double)(jobs[n - 1].began_ns - jobs[0].began_ns) - work) / work;
}

static void test_duty_rests_in_proportion(void **state)
{
    (void)state;
    static struct spin_job jobs[401];
    /* The rest may be longer on a busy machine; shorter only by what is still owed at the end (2
     * ms). */
    double rest = rest_per_work(0.25, jobs, 21, 4000000);
    assert_true(rest > 2.5 && rest < 60);
    rest = rest_per_work(0.5, jobs, 401, 200000); /* rests of many short jobs add up */
    assert_true(rest > 0.8 && rest < 20);
}

static void test_full_duty_does_not_rest(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct spin_job jobs[2] = {{.job.run = spin, .span_ns = 5000000}, {.job.run = spin}};
    queue_set_duty(&queue, 0.001); /* a rest of 5 s if this still counted */
    queue_set_duty(&queue, 1);
    queue_submit(&queue, &jobs[0].job);
    queue_submit(&queue, &jobs[1].job);
    wait_for_end(&jobs[1]);
    assert_true(jobs[1].began_ns - jobs[0].ended_ns < 2500000000u);
    assert_int_equal(queue.reckoned_ns, 0); /* no clock was read */
    queue_close(&queue);
}

static void test_new_duty_ends_a_rest(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct spin_job jobs[2] = {{.job.run = spin, .span_ns = 50000000}, {.job.run = spin}};
    queue_set_duty(&queue, 0.001); /* 50 s */
    queue_submit(&queue, &jobs[0].job);
    queue_submit(&queue, &jobs[1].job);
    wait_for_end(&jobs[0]);
    sleep_ms(20);
    assert_int_equal(jobs[1].ended_ns, 0);
    uint64_t set_ns = clock_now_ns();
    queue_set_duty(&queue, 0.5); /* 50 ms, little of which is over */
    wait_for_end(&jobs[1]);
    assert_true(jobs[1].began_ns - jobs[0].ended_ns > 35000000);
    assert_true(jobs[1].began_ns - set_ns < 5000000000u);
    queue_close(&queue);
}

static void test_same_duty_again_does_not_end_a_rest(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct spin_job jobs[2] = {{.job.run = spin, .span_ns = 20000000}, {.job.run = spin}};
    queue_set_duty(&queue, 0.1); /* 180 ms */
    queue_submit(&queue, &jobs[0].job);
    queue_submit(&queue, &jobs[1].job);
    while (!jobs[1].ended_ns) {
        queue_set_duty(&queue, 0.1);
        sleep_ms(1);
    }
    assert_true(jobs[1].began_ns - jobs[0].ended_ns > 150000000);
    queue_close(&queue);
}

static void test_pause_and_resume(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct spin_job jobs[2] = {{.job.run = spin}, {.job.run = spin}};
    queue_set_duty(&queue, 0);
    queue_submit(&queue, &jobs[0].job);
    sleep_ms(30);
    queue_submit(&queue, &jobs[1].job);
    sleep_ms(30);
    assert_int_equal(jobs[0].ended_ns, 0);
    queue_set_duty(&queue, 1);
    wait_for_end(&jobs[1]);
    queue_set_duty(&queue, 0); /* on an empty queue */
    sleep_ms(10);
    queue_set_duty(&queue, 0.3);
    jobs[0].ended_ns = 0;
    queue_submit(&queue, &jobs[0].job);
    wait_for_end(&jobs[0]);
    queue_close(&queue);
}

static void test_close_ignores_duty(void **state)
{
    (void)state;
    for (uint32_t permille = 0; permille < 2; permille++) {
        struct queue queue;
        assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
        static struct spin_job jobs[100];
        queue_set_duty(&queue, permille / 1000.0);
        for (uint32_t i = 0; i < 100; i++) {
            jobs[i] = (struct spin_job){.job.run = spin, .span_ns = 100000};
            queue_submit(&queue, &jobs[i].job);
        }
        sleep_ms(10);
        uint64_t begin_ns = clock_now_ns();
        queue_close(&queue); /* at 1 permille the jobs would want 10 s of rest */
        assert_true(clock_now_ns() - begin_ns < 5000000000u);
        for (uint32_t i = 0; i < 100; i++)
            assert_int_not_equal(jobs[i].ended_ns, 0);
    }
}

struct setter {
    struct queue *queue;
    _Atomic bool stop;
};

static void *set_duties(void *argument)
{
    struct setter *setter = argument;
    for (uint32_t i = 0; !setter->stop; i++)
        queue_set_duty(setter->queue, (double)(i * 37 % 1001) / 1000);
    return NULL;
}

/* For ThreadSanitizer, and for lost wake-ups. */
static void test_duty_changes_while_jobs_come(void **state)
{
    (void)state;
    struct queue queue;
    assert_int_equal(queue_open(&queue, "test", NULL), ERROR_NONE);
    struct setter setter = {.queue = &queue};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, set_duties, &setter), 0);
    static struct spin_job jobs[500];
    for (uint32_t i = 0; i < 500; i++) {
        jobs[i] = (struct spin_job){.job.run = spin, .span_ns = 1000};
        queue_submit(&queue, &jobs[i].job);
    }
    sleep_ms(20);
    setter.stop = true;
    pthread_join(thread, NULL);
    queue_set_duty(&queue, 1);
    wait_for_end(&jobs[499]);
    queue_close(&queue);
}

static void test_device_duty(void **state)
{
    (void)state;
    struct fake_family family = {0};
    struct gpu_options options = {0};
    struct device_info info = {.id = "fake0"};
    struct device *device = NULL;
    assert_int_equal(device_open(&fake_impl, &family, 0, &options, 20000, &info, &device, NULL),
                     ERROR_NONE);
    struct spin_job job = {.job.run = spin};
    device_set_duty(device, 0);
    device_submit(device, &job.job);
    sleep_ms(20);
    assert_int_equal(job.ended_ns, 0);
    device_set_duty(device, 0.4);
    wait_for_end(&job);
    job.ended_ns = 0;
    device_set_duty(device, 0);
    device_submit(device, &job.job);
    device_close(device); /* runs it all the same */
    assert_int_not_equal(job.ended_ns, 0);
    assert_int_equal(family.n_open, 0);
}

/* ---- handles --------------------------------------------------------------------------------- */

static void test_handles_tell_live_from_stale_and_foreign(void **state)
{
    (void)state;
    struct handle_table mine = {.owner = handle_owner_next()},
                        other = {.owner = handle_owner_next()};
    int thing;
    assert_int_not_equal(mine.owner, other.owner);
    assert_null(handle_find(&mine, 0));
    uint64_t first = handle_add(&mine, &thing, 7);
    assert_int_not_equal(first, 0);
    assert_ptr_equal(handle_find(&mine, first)->memory, &thing);
    assert_int_equal(handle_find(&mine, first)->size, 7);
    assert_null(handle_find(&other, first));
    assert_true(handle_is_foreign(&other, first));
    assert_false(handle_is_foreign(&mine, first));
    handle_remove(&mine, first);
    assert_null(handle_find(&mine, first));
    uint64_t second = handle_add(&mine, NULL, 0); /* takes the same slot */
    assert_int_not_equal(second, first);
    assert_null(handle_find(&mine, first));
    assert_non_null(handle_find(&mine, second));
    handle_table_deinit(&mine);
    handle_table_deinit(&other);
}

static void test_many_handles_stay_apart(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    struct handle_table table = {.owner = handle_owner_next()};
    static uint64_t handles[COUNT];
    for (uint64_t i = 0; i < COUNT; i++)
        handles[i] = handle_add(&table, NULL, i);
    for (uint64_t i = 0; i < COUNT; i += 3)
        handle_remove(&table, handles[i]);
    for (uint64_t i = 0; i < COUNT; i++) {
        const struct handle_slot *slot = handle_find(&table, handles[i]);
        if (i % 3 == 0)
            assert_null(slot);
        else
            assert_int_equal(slot->size, i);
    }
    uint32_t n_slots = table.n_slots;
    for (uint64_t i = 0; i < COUNT / 3; i++)
        handle_add(&table, NULL, i);
    assert_int_equal(table.n_slots, n_slots); /* freed slots were reused */
    handle_table_deinit(&table);
}

static void test_full_handle_table_says_so(void **state)
{
    (void)state;
    struct handle_table table = {.owner = handle_owner_next()};
    for (uint32_t i = 0; i < 1u << HANDLE_SLOT_BITS; i++)
        assert_int_not_equal(handle_add(&table, NULL, 0), 0);
    assert_int_equal(handle_add(&table, NULL, 0), 0);
    handle_table_deinit(&table);
    table.owner = handle_owner_next();
    mem_fail_nth(1);
    assert_int_equal(handle_add(&table, NULL, 0), 0);
    assert_int_not_equal(handle_add(&table, NULL, 0), 0);
    handle_table_deinit(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_queue_keeps_each_threads_order),
        cmocka_unit_test(test_close_runs_what_jobs_queue),
        cmocka_unit_test(test_job_may_free_itself),
        cmocka_unit_test(test_duty_rests_in_proportion),
        cmocka_unit_test(test_full_duty_does_not_rest),
        cmocka_unit_test(test_new_duty_ends_a_rest),
        cmocka_unit_test(test_same_duty_again_does_not_end_a_rest),
        cmocka_unit_test(test_pause_and_resume),
        cmocka_unit_test(test_close_ignores_duty),
        cmocka_unit_test(test_duty_changes_while_jobs_come),
        cmocka_unit_test(test_device_duty),
        cmocka_unit_test(test_handles_tell_live_from_stale_and_foreign),
        cmocka_unit_test(test_many_handles_stay_apart),
        cmocka_unit_test(test_full_handle_table_says_so),
    };
    return cmocka_run_group_tests_name("gpu_queue", tests, NULL, NULL);
}
