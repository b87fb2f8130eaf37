/* base: errors, buffers, memory, randomness. */
#include "base/buffer.h"
#include "base/error.h"
#include "base/mem.h"
#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_error_is_wrapped_outermost_first(void **state)
{
    (void)state;
    struct error err = {0};
    assert_int_equal(error_set(&err, ERROR_NO_MEMORY, "needs %d bytes", 5), ERROR_NO_MEMORY);
    assert_int_equal(error_wrap(&err, "device %s", "cpu"), ERROR_NO_MEMORY);
    assert_string_equal(err.text, "device cpu: needs 5 bytes");
}

static void test_buffer_grows_and_drops(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    for (int i = 0; i < 1000; i++)
        buffer_printf(&buffer, "%d,", i);
    assert_false(buffer.failed);
    buffer_drop_front(&buffer, 4);
    assert_memory_equal(buffer.data, "2,3,", 4);
    assert_int_equal(strlen(buffer.data), buffer.size);
    buffer_deinit(&buffer);
}

static void test_buffer_remembers_failure(void **state)
{
    (void)state;
    struct buffer buffer = {0};
    mem_fail_nth(1);
    buffer_text(&buffer, "lost");
    assert_true(buffer.failed);
    buffer_text(&buffer, "lost too");
    assert_int_equal(buffer.size, 0);
    buffer_deinit(&buffer);
}

static void test_nth_allocation_fails_once(void **state)
{
    (void)state;
    mem_fail_nth(2);
    void *first = mem_new(8), *second = mem_new(8), *third = mem_new(8);
    assert_non_null(first);
    assert_null(second);
    assert_non_null(third);
    mem_free(first);
    mem_free(third);
}

static void test_random_depends_on_seed_and_counter_only(void **state)
{
    (void)state;
    assert_true(random_at(1, 2) == random_at(1, 2));
    assert_true(random_at(1, 2) != random_at(2, 1));
    double sum = 0;
    for (uint64_t i = 0; i < 10000; i++)
        sum += random_unit_at(7, i);
    assert_true(sum > 4900 && sum < 5100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_wrapped_outermost_first),
        cmocka_unit_test(test_buffer_grows_and_drops),
        cmocka_unit_test(test_buffer_remembers_failure),
        cmocka_unit_test(test_nth_allocation_fails_once),
        cmocka_unit_test(test_random_depends_on_seed_and_counter_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
