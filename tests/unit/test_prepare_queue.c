/* api/prepare_queue: whose turn it is. */
#include "api/prepare_queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct api_client client(const char *address)
{
    return api_client_of_address(address);
}

static void add(struct prepare_queue *queue, const char *address, struct prepare_entry *entry)
{
    struct api_client from = client(address);
    assert_int_equal(prepare_queue_add(queue, &from, entry), PREPARE_QUEUED);
}

static struct prepare_queue open_queue(void)
{
    return (struct prepare_queue){.waiting_max = 100, .client_max = 50};
}

/* Runs the next to its end; NULL: there is none. */
static struct prepare_entry *run_next(struct prepare_queue *queue, uint64_t ns)
{
    struct prepare_entry *entry = prepare_queue_next(queue, false);
    if (entry)
        prepare_queue_done(queue, entry, ns);
    return entry;
}

/* Who has filled the queue before does not keep another waiting. */
static void test_turns(void **state)
{
    struct prepare_queue queue = open_queue();
    struct prepare_entry greedy[10] = {0}, other[2] = {0};
    (void)state;
    for (int i = 0; i < 10; i++)
        add(&queue, "10.0.0.1", &greedy[i]);
    assert_ptr_equal(run_next(&queue, 1000), &greedy[0]);
    add(&queue, "10.0.0.2", &other[0]);
    add(&queue, "10.0.0.2", &other[1]);
    assert_ptr_equal(run_next(&queue, 10), &other[0]);
    assert_ptr_equal(run_next(&queue, 10), &other[1]);
    for (int i = 1; i < 10; i++)
        assert_ptr_equal(run_next(&queue, 1000), &greedy[i]);
    assert_null(run_next(&queue, 0));
    assert_null(queue.shares);
    prepare_queue_deinit(&queue);
}

/* Time counts, not how many: nine cheap ones for a dear one. */
static void test_time_counts(void **state)
{
    struct prepare_queue queue = open_queue();
    struct prepare_entry dear[10] = {0}, cheap[20] = {0};
    unsigned n_dear = 0, n_cheap = 0;
    (void)state;
    for (int i = 0; i < 10; i++)
        add(&queue, "10.0.0.1", &dear[i]);
    for (int i = 0; i < 20; i++)
        add(&queue, "10.0.0.2", &cheap[i]);
    for (int i = 0; i < 20; i++) {
        struct prepare_entry *entry = prepare_queue_next(&queue, false);
        bool is_dear = entry >= dear && entry < dear + 10;
        n_dear += is_dear;
        n_cheap += !is_dear;
        prepare_queue_done(&queue, entry, is_dear ? 900 : 100);
    }
    assert_in_range(n_dear, 2, 3);
    assert_int_equal(n_dear + n_cheap, 20);
    while (run_next(&queue, 1))
        ;
    prepare_queue_deinit(&queue);
}

/* Neither by leaving nor by waiting does a client win over those who work. */
static void test_no_savings_and_no_escape(void **state)
{
    struct prepare_queue queue = open_queue();
    struct prepare_entry steady[20] = {0}, late[20] = {0};
    (void)state;
    for (int i = 0; i < 20; i++)
        add(&queue, "10.0.0.1", &steady[i]);
    for (int i = 0; i < 10; i++)
        run_next(&queue, 1000);
    for (int i = 0; i < 5; i++)
        add(&queue, "10.0.0.2", &late[i]);
    unsigned n_late = 0;
    for (int i = 0; i < 6; i++) {
        struct prepare_entry *entry = run_next(&queue, 1000);
        n_late += entry >= late && entry < late + 20;
    }
    assert_in_range(n_late, 2, 4); /* not all five at once */
    while (queue.n_waiting > 2)
        run_next(&queue, 1000);
    prepare_queue_next(&queue, false);
    add(&queue, "10.0.0.3", &late[10]);
    assert_ptr_equal(run_next(&queue, 50000), &late[10]);
    add(&queue, "10.0.0.3", &late[11]); /* it comes back at once, and has its debt still */
    struct prepare_entry *next = prepare_queue_next(&queue, false);
    assert_ptr_not_equal(next, &late[11]);
    prepare_queue_done(&queue, next, 1);
    prepare_queue_done(&queue, queue.running, 1);
    while (run_next(&queue, 1))
        ;
    assert_null(queue.shares);
    prepare_queue_deinit(&queue);
}

static void test_bounds(void **state)
{
    struct prepare_queue queue = {.waiting_max = 5, .client_max = 3};
    struct prepare_entry entries[7] = {0};
    struct api_client one = client("10.0.0.1"), two = client("10.0.0.2");
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(prepare_queue_add(&queue, &one, &entries[i]), PREPARE_QUEUED);
    assert_int_equal(prepare_queue_add(&queue, &one, &entries[3]), PREPARE_CLIENT_FULL);
    assert_int_equal(prepare_queue_add(&queue, &two, &entries[3]), PREPARE_QUEUED);
    assert_int_equal(prepare_queue_add(&queue, &two, &entries[4]), PREPARE_QUEUED);
    assert_int_equal(prepare_queue_add(&queue, &two, &entries[5]), PREPARE_FULL);
    prepare_queue_remove(&queue, &entries[1]);
    prepare_queue_remove(&queue, &entries[2]);
    assert_int_equal(prepare_queue_add(&queue, &one, &entries[5]), PREPARE_QUEUED);
    for (int i = 0; i < 4; i++)
        assert_non_null(run_next(&queue, 1));
    assert_int_equal(queue.n_waiting, 0);
    prepare_queue_deinit(&queue);
}

/* Large ones are not for everybody, and of those with the same object one runs at a time. */
static void test_small_and_exclusive(void **state)
{
    struct prepare_queue queue = open_queue();
    int first_model = 0, second_model = 0;
    struct prepare_entry large = {.is_large = true, .exclusive = &first_model};
    struct prepare_entry same = {.exclusive = &first_model}, other = {.exclusive = &second_model};
    struct prepare_entry free_one = {0};
    (void)state;
    add(&queue, "10.0.0.1", &large);
    add(&queue, "10.0.0.1", &same);
    add(&queue, "10.0.0.1", &other);
    add(&queue, "10.0.0.1", &free_one);
    assert_ptr_equal(prepare_queue_next(&queue, true), &same);
    prepare_queue_done(&queue, &same, 1);
    add(&queue, "10.0.0.1", &same);
    assert_ptr_equal(prepare_queue_next(&queue, false), &large);
    assert_ptr_equal(prepare_queue_next(&queue, true), &other);
    assert_ptr_equal(prepare_queue_next(&queue, true), &free_one);
    assert_null(prepare_queue_next(&queue, true));
    prepare_queue_done(&queue, &large, 1);
    assert_ptr_equal(prepare_queue_next(&queue, true), &same);
    prepare_queue_done(&queue, &same, 1);
    prepare_queue_done(&queue, &other, 1);
    prepare_queue_done(&queue, &free_one, 1);
    prepare_queue_deinit(&queue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_time_counts),
        cmocka_unit_test(test_no_savings_and_no_escape),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_small_and_exclusive),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
