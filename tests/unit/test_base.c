/* base: errors, buffers, memory, randomness. */
#include "base/buffer.h"
#include "base/durable_file.h"
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
#include <sys/stat.h>
#include <unistd.h>

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
    assert_int_equal(mapped_for_a_second_block(4 << 20),
                     0); /* glibc's own way: from the heap, which keeps it */
    heap_return_large();
    assert_true(mapped_for_a_second_block(8 << 20) >=
                8 << 20); /* more than the heap has kept by now */
}

/* ---- durable files ---- */

static char place[64];

static void in_place(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "cd %s && %s", place, command);
    assert_int_equal(system(line), 0);
}

static void assert_read(const char *path, mode_t forbidden, enum error_code expected,
                        const char *says)
{
    struct buffer bytes = {0};
    struct error err = {0};
    assert_int_equal(durable_read(path, 8, forbidden, &bytes, &err), expected);
    assert_non_null(strstr(expected ? err.text : bytes.data, says));
    buffer_deinit(&bytes);
}

static void test_durable_file(void **state)
{
    (void)state;
    char path[PATH_MAX];
    struct stat file;
    struct error err;
    strcpy(place, "/tmp/medley-base-XXXXXX");
    assert_non_null(mkdtemp(place));
    assert_int_equal(durable_path(place, "a/b/file", "", path, &err), ERROR_NONE);
    assert_read(path, 0, ERROR_NOT_FOUND, path);
    assert_int_equal(durable_replace(path, "old", 3, &err), ERROR_IO); /* its folder is not there */
    assert_int_equal(durable_make_folder_of(path, &err), ERROR_NONE);
    assert_int_equal(durable_replace(path, "old", 3, &err), ERROR_NONE);
    in_place("printf 'half' > a/b/.file.new; chmod 666 a/b/.file.new; ln -f a/b/.file.new witness");
    const mode_t mask = umask(0777);
    assert_int_equal(durable_replace(path, "new", 3, &err), ERROR_NONE);
    umask(mask);
    in_place("test half = $(cat witness) && test 1 = $(ls -A a/b | wc -l)"); /* what a crash left is
                                                                                not written to */
    assert_int_equal(stat(path, &file), 0);
    assert_int_equal(file.st_mode & 0777, 0600);
    assert_read(path, S_IWOTH, ERROR_NONE, "new");
    in_place("chmod 602 a/b/file");
    assert_read(path, 0, ERROR_NONE, "new");
    assert_read(path, S_IWOTH, ERROR_INVALID, "others can change it");
    in_place("printf 123456789 > a/b/file");
    assert_read(path, 0, ERROR_INVALID, "limit of 8 bytes");
    in_place("mv a/b/file a/b/real && ln -s real a/b/file");
    assert_read(path, 0, ERROR_IO, "it is a link");
    assert_int_equal(durable_replace(path, "new", 3, &err),
                     ERROR_NONE); /* the link, not what it means */
    in_place("test 9 = $(wc -c < a/b/real) && rm a/b/file && mkfifo a/b/file");
    assert_read(path, 0, ERROR_INVALID, "not a regular file");
    in_place("rm a/b/file && mkdir -p a/b/file/full");
    assert_int_equal(durable_replace(path, "new", 3, &err), ERROR_IO);
    in_place("test ! -e a/b/.file.new && rm -r ../$(basename $PWD)");
}

/* Without a slash, right below the root, and longer than there is. */
static void test_durable_paths(void **state)
{
    (void)state;
    static char endless[PATH_MAX + 1];
    struct error err;
    memset(endless, 'x', PATH_MAX);
    assert_int_equal(durable_sync_folder_of("name"), 0);
    assert_int_equal(durable_make_folder_of("/name", &err), ERROR_NONE);
    assert_int_equal(durable_make_folder_of(endless, &err), ERROR_INVALID);
    assert_int_equal(durable_replace(endless, "", 0, &err), ERROR_INVALID);
    assert_int_equal(durable_make_folder("", &err), ERROR_INVALID);
    endless[NAME_MAX + 1] = 0;
    assert_int_equal(durable_replace(endless, "", 0, &err), ERROR_IO);
    assert_int_equal(durable_path("", "a", "", endless, &err), ERROR_INVALID);
}

static void test_durable_lock(void **state)
{
    (void)state;
    struct error err;
    FILE *one = tmpfile();
    char path[64];
    assert_non_null(one);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(one));
    FILE *other = fopen(path, "r");
    assert_non_null(other);
    assert_int_equal(durable_lock(fileno(one), 0, &err), ERROR_NONE);
    assert_int_equal(durable_lock(fileno(other), 30, &err), ERROR_BUSY);
    fclose(one);
    assert_int_equal(durable_lock(fileno(other), 0, &err), ERROR_NONE);
    fclose(other);
    assert_int_equal(durable_lock(-1, 0, &err), ERROR_IO);
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
        cmocka_unit_test(test_durable_file),
        cmocka_unit_test(test_durable_paths),
        cmocka_unit_test(test_durable_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
