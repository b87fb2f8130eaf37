/* gpu: the queue (order, exclusion, draining) and the handles. No driver is loaded, so that
 * ThreadSanitizer sees our threads alone. */
#include "base/mem.h"
#include "gpu/handles.h"
#include "gpu/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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
        assert_int_equal(pthread_create(&submitters[t].thread, NULL, submit_all, &submitters[t]), 0);
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

static void test_handles_tell_live_from_stale_and_foreign(void **state)
{
    (void)state;
    struct handle_table mine = {.owner = handle_owner_next()}, other = {.owner = handle_owner_next()};
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
        cmocka_unit_test(test_handles_tell_live_from_stale_and_foreign),
        cmocka_unit_test(test_many_handles_stay_apart),
        cmocka_unit_test(test_full_handle_table_says_so),
    };
    return cmocka_run_group_tests_name("gpu_queue", tests, NULL, NULL);
}
