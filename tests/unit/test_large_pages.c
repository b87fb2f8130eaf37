/* Files in large pages of the page cache. The kernel decides: where a file of the build folder can
 * have none, what depends on that is skipped. */
#include "base/durable_file.h"
#include "base/large_pages.h"
#include "base/random.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 9 << 20, WHOLE_PAGES = 4, SMALL_WRITE = 16 << 10, LARGE_WRITE = 700 << 10 };

/* Of the build folder: what `./dev test` has at /tmp is memory. -1: it cannot be made. */
static int new_file(void)
{
    const int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0)
        assert_int_equal(ftruncate(fd, SIZE), 0);
    return fd;
}

static int new_file_or_skip(void)
{
    if (!large_pages_possible("."))
        skip();
    const int fd = new_file();
    assert_true(fd >= 0);
    return fd;
}

static uint8_t *new_bytes(void)
{
    uint8_t *bytes = malloc(SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < SIZE; i += 8) {
        const uint64_t word = random_at(7, i);
        memcpy(bytes + i, &word, 8);
    }
    return bytes;
}

/* In pieces; odd ones first where `mixed`. */
static void write_all(int fd, const uint8_t *bytes, size_t piece, bool expected, bool mixed)
{
    for (size_t turn = 0; turn < (mixed ? 2 : 1); turn++) {
        for (size_t i = 0; i * piece < SIZE; i++) {
            const size_t at = i * piece, size = SIZE - at < piece ? SIZE - at : piece;
            if (mixed && i % 2 == turn)
                continue;
            if (expected)
                large_pages_expect(fd, at, size);
            assert_int_equal(pwrite_all(fd, bytes + at, size, at), 0);
        }
    }
}

static void assert_holds(int fd, const uint8_t *bytes)
{
    uint8_t *found = malloc(SIZE);
    assert_non_null(found);
    assert_int_equal(pread_all(fd, found, SIZE, 0), 0);
    assert_memory_equal(found, bytes, SIZE);
    free(found);
}

static void test_small_writes_come_into_large_pages(void **state)
{
    (void)state;
    const int fd = new_file_or_skip(), other = new_file();
    uint8_t *bytes = new_bytes();
    write_all(fd, bytes, SMALL_WRITE, true, false);
    write_all(other, bytes, SMALL_WRITE, false, false);
    const struct large_pages_seen seen = large_pages_look(fd), without = large_pages_look(other);
    assert_int_equal(seen.n_places, WHOLE_PAGES);
    assert_int_equal(seen.n_large, WHOLE_PAGES);
    assert_int_equal(without.n_places, WHOLE_PAGES);
    assert_int_equal(without.n_large, 0);
    assert_holds(fd, bytes);
    free(bytes);
    close(other);
    close(fd);
}

static void test_large_writes_in_any_order_do_too(void **state)
{
    (void)state;
    const int fd = new_file_or_skip();
    uint8_t *bytes = new_bytes();
    write_all(fd, bytes, LARGE_WRITE, true, true);
    assert_int_equal(large_pages_look(fd).n_large, WHOLE_PAGES);
    assert_holds(fd, bytes);
    free(bytes);
    close(fd);
}

static void test_holes_stay_holes(void **state)
{
    (void)state;
    const int fd = new_file_or_skip();
    uint8_t zeros[4096] = {0}, found[4096];
    struct stat file;
    large_pages_expect(fd, LARGE_PAGE_BYTES, 4096);
    assert_int_equal(pwrite_all(fd, "here", 4, LARGE_PAGE_BYTES), 0);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(fstat(fd, &file), 0);
    assert_true(file.st_blocks * 512 <= 64 << 10);
    assert_int_equal(pread_all(fd, found, sizeof found, LARGE_PAGE_BYTES + 4096), 0);
    assert_memory_equal(found, zeros, sizeof zeros);
    close(fd);
}

/* As a model is opened: what had to be read anew comes in large pages, whatever the readahead. */
static void test_what_a_mapping_reads_anew_is_large(void **state)
{
    (void)state;
    const int fd = new_file_or_skip();
    uint8_t *bytes = new_bytes();
    write_all(fd, bytes, SMALL_WRITE, false, false);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    const uint32_t left = large_pages_look(fd).n_places; /* nothing, and looking reads nothing */
    uint8_t *mapped = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(mapped, MAP_FAILED);
    large_pages_advise(mapped, SIZE);
    assert_memory_equal(mapped, bytes, SIZE);
    assert_int_equal(munmap(mapped, SIZE), 0);
    const struct large_pages_seen seen = large_pages_look(fd);
    free(bytes);
    close(fd);
    if (left)
        skip(); /* the kernel kept pages: somebody else looked at them */
    assert_int_equal(seen.n_places, WHOLE_PAGES);
    assert_int_equal(seen.n_large, WHOLE_PAGES);
}

/* Where the kernel gives none, or the file is none, what is written is as without. */
static void test_nothing_is_lost_where_there_are_none(void **state)
{
    (void)state;
    uint8_t *bytes = new_bytes();
    const int memory = memfd_create("large-pages", MFD_CLOEXEC);
    assert_true(memory >= 0);
    assert_int_equal(ftruncate(memory, SIZE), 0);
    write_all(memory, bytes, SMALL_WRITE, true, false);
    assert_holds(memory, bytes);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    large_pages_expect(ends[1], 0, SMALL_WRITE);
    large_pages_expect(-1, 0, SMALL_WRITE);
    large_pages_expect(memory, UINT64_MAX - 100, 100);
    large_pages_expect(memory, SIZE, LARGE_WRITE);
    large_pages_expect(memory, 0, 0);
    assert_int_equal(large_pages_look(ends[0]).n_places, 0);
    assert_int_equal(large_pages_look(-1).n_places, 0);
    assert_false(large_pages_possible("/proc"));
    assert_false(large_pages_possible("nowhere"));
    assert_holds(memory, bytes);
    free(bytes);
    close(ends[0]);
    close(ends[1]);
    close(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_writes_come_into_large_pages),
        cmocka_unit_test(test_large_writes_in_any_order_do_too),
        cmocka_unit_test(test_holes_stay_holes),
        cmocka_unit_test(test_what_a_mapping_reads_anew_is_large),
        cmocka_unit_test(test_nothing_is_lost_where_there_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
