/* base: errors, buffers, memory, randomness. */
#include "base/buffer.h"
#include "base/error.h"
#include "base/heap.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/size_text.h"
#include "base/state_folder.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

static void test_amounts_are_short(void **state)
{
    (void)state;
    assert_string_equal(size_text(0).text, "0 B");
    assert_string_equal(size_text(1023).text, "1023 B");
    assert_string_equal(size_text(1024).text, "1.0 KiB");
    assert_string_equal(size_text(2645056).text, "2.5 MiB");
    assert_string_equal(size_text(1048575).text, "1.0 MiB"); /* not 1024.0 KiB */
    assert_string_equal(size_text(UINT64_C(12671000000)).text, "11.8 GiB");
    assert_string_equal(size_text(UINT64_MAX).text, "16777216.0 TiB");
    assert_string_equal(time_text(31e-6).text, "31 us");
    assert_string_equal(time_text(0.00025).text, "0.25 ms");
    assert_string_equal(time_text(0.0181).text, "18.1 ms");
    assert_string_equal(time_text(12).text, "12.0 s");
    assert_string_equal(bandwidth_text(117.5e6).text, "940 Mb/s");
    assert_string_equal(bandwidth_text(312.5e6).text, "2.5 Gb/s");
}

static void test_state_folder(void **state)
{
    (void)state;
    char path[64], home[256];
    snprintf(home, sizeof home, "%s", getenv("HOME") ? getenv("HOME") : "");
    setenv("MEDLEY_STATE_DIR", "/own", 1);
    assert_true(state_folder(path, sizeof path));
    assert_string_equal(path, "/own");
    assert_true(state_folder_file("control.sock", path, sizeof path));
    assert_string_equal(path, "/own/control.sock");
    assert_false(state_folder_file("control.sock", path, sizeof "/own/control.sock" - 1));
    assert_string_equal(path, "");
    setenv("MEDLEY_STATE_DIR", "", 1);
    assert_false(state_folder(path, sizeof path));
    unsetenv("MEDLEY_STATE_DIR");
    setenv("XDG_STATE_HOME", "/state", 1);
    assert_true(state_folder_file("x", path, sizeof path));
    assert_string_equal(path, "/state/medley/x");
    setenv("XDG_STATE_HOME", "relative", 1);
    setenv("HOME", "/home/me", 1);
    assert_true(state_folder(path, sizeof path));
    assert_string_equal(path, "/home/me/.local/state/medley");
    unsetenv("HOME");
    assert_false(state_folder(path, sizeof path));
    setenv("HOME", home, 1);
    unsetenv("XDG_STATE_HOME");
    setenv("MEDLEY_STATE_DIR", "", 1);
}

/* What the system gave for one large block, the second of two of a size. */
static size_t mapped_for_a_second_block(size_t size)
{
    for (int i = 0;; i++) {
        const size_t before = mallinfo2().hblkhd;
        void *block = mem_new(size);
        assert_non_null(block);
        const size_t mapped = mallinfo2().hblkhd - before;
        mem_free(block);
        if (i == 1)
            return mapped;
    }
}

static void test_large_blocks_are_given_back(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip(); /* another heap */
#endif
    assert_int_equal(mapped_for_a_second_block(4 << 20), 0); /* glibc's own way: from the heap, which keeps it */
    heap_return_large();
    assert_true(mapped_for_a_second_block(8 << 20) >= 8 << 20); /* more than the heap has kept by now */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_is_wrapped_outermost_first),
        cmocka_unit_test(test_buffer_grows_and_drops),
        cmocka_unit_test(test_buffer_remembers_failure),
        cmocka_unit_test(test_nth_allocation_fails_once),
        cmocka_unit_test(test_random_depends_on_seed_and_counter_only),
        cmocka_unit_test(test_amounts_are_short),
        cmocka_unit_test(test_state_folder),
        cmocka_unit_test(test_large_blocks_are_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
