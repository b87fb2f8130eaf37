/* base/work_limit: what one piece of work may take. */
#include "base/buffer.h"
#include "base/json_memory.h"
#include "base/mem.h"
#include "base/work_limit.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MIB = 1 << 20 };

/* All that is allocated and freed inside is charged to both; what is kept is returned at the end.
 */
static void test_memory_is_charged(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit limit = {.total = &total, .bytes_max = 32 * MIB};
    struct buffer kept = {0};
    (void)state;
    work_limit_enter(&limit);
    void *first = mem_new(MIB);
    assert_true(memory_total_used(&total) >= MIB && memory_total_used(&total) < MIB + 8192);
    mem_free(first);
    assert_int_equal(memory_total_used(&total), 0);
    for (int i = 0; i < 1000; i++)
        buffer_append(&kept, "0123456789abcdef", 16);
    work_limit_leave();
    assert_false(kept.failed);
    assert_true(limit.bytes >= 16000 && memory_total_used(&total) == (uint64_t)limit.bytes);
    void *outside = mem_new(MIB);
    assert_true(memory_total_used(&total) < MIB);
    mem_free(outside);
    buffer_deinit(&kept);
    work_limit_end(&limit);
    assert_int_equal(memory_total_used(&total), 0);
    assert_true(atomic_load(&total.peak) >= MIB);
    assert_int_equal(limit.stop, WORK_GOES_ON);
}

static void test_too_large(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit limit = {.total = &total, .bytes_max = 2 * MIB};
    (void)state;
    work_limit_enter(&limit);
    void *block = mem_new(MIB);
    assert_non_null(block);
    assert_null(mem_resize(block, 3 * MIB, 1)); /* the old block is as it was */
    memset(block, 1, MIB);
    assert_null(mem_new(64)); /* who was stopped gets nothing more */
    mem_free(block);
    work_limit_leave();
    assert_int_equal(limit.stop, WORK_TOO_LARGE);
    assert_int_equal(memory_total_used(&total), 0);
}

/* Large work leaves a part of the total to small work. */
static void test_no_room(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit large = {.total = &total, .bytes_max = 64 * MIB};
    struct work_limit small = {.total = &total, .bytes_max = 64 * MIB};
    (void)state;
    work_limit_enter(&large);
    void *most = mem_new(59 * MIB);
    assert_non_null(most);
    assert_null(mem_new(2 * MIB));
    work_limit_leave();
    assert_int_equal(large.stop, WORK_NO_ROOM);
    work_limit_enter(&small);
    void *little = mem_new(MIB / 2);
    assert_non_null(little);
    mem_free(little);
    work_limit_leave();
    mem_free(most);
    work_limit_end(&large);
    work_limit_end(&small);
    assert_int_equal(memory_total_used(&total), 0);
}

static void test_given_up_and_late(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit gone = {.total = &total, .bytes_max = MIB};
    struct work_limit late = {.total = &total, .bytes_max = MIB, .cpu_ns_max = 5000000};
    (void)state;
    assert_true(work_limit_goes_on()); /* outside of any */
    work_limit_enter(&gone);
    assert_true(work_limit_goes_on());
    work_limit_cancel(&gone);
    assert_false(work_limit_goes_on());
    assert_null(mem_new(1));
    work_limit_leave();
    assert_int_equal(gone.stop, WORK_CANCELLED);
    work_limit_enter(&late);
    uint64_t n = 0;
    while (work_limit_goes_on())
        n++;
    work_limit_leave();
    assert_true(n > 256);
    assert_int_equal(late.stop, WORK_TOO_LONG);
}

/* A stay that is not measured, later or on another thread, is not late by the last one's clock. */
static void test_untimed(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit limit = {.total = &total, .bytes_max = MIB, .cpu_ns_max = 1};
    (void)state;
    work_limit_enter(&limit);
    work_limit_leave();
    work_limit_enter_untimed(&limit);
    for (int i = 0; i < 1000; i++)
        assert_true(work_limit_goes_on());
    assert_null(mem_new(2 * MIB));
    work_limit_leave();
    assert_int_equal(limit.stop, WORK_TOO_LARGE);
}

/* A parsed document is many times its text, and counted as what it is. */
static void test_parsed_json_is_counted(void **state)
{
    enum { BYTES = 8 * MIB };
    struct memory_total total = {.limit = 512 * MIB};
    struct work_limit limit = {.total = &total, .bytes_max = 2 * BYTES};
    char *text = malloc(BYTES);
    yyjson_read_err problem;
    (void)state;
    memset(text, ',', BYTES);
    for (size_t i = 1; i < BYTES; i += 2)
        text[i] = '1';
    text[0] = '[';
    text[BYTES - 1] = ']';
    text[BYTES - 2] = '1';
    text[BYTES - 3] = ' ';
    work_limit_enter(&limit);
    yyjson_doc *doc = yyjson_read_opts(text, BYTES, 0, &json_memory, &problem);
    work_limit_leave();
    assert_null(doc);
    assert_int_equal(problem.code, YYJSON_READ_ERROR_MEMORY_ALLOCATION);
    assert_int_equal(limit.stop, WORK_TOO_LARGE);
    assert_int_equal(memory_total_used(&total), 0);
    free(text);
}

static void test_changing_hands(void **state)
{
    struct memory_total total = {.limit = 64 * MIB};
    struct work_limit limit = {.total = &total, .bytes_max = 8 * MIB};
    (void)state;
    void *body = mem_new(MIB);
    assert_true(work_limit_adopt(&limit, body) >= MIB);
    assert_true(memory_total_used(&total) >= MIB);
    work_limit_enter(&limit);
    mem_free(body);
    assert_int_equal(memory_total_used(&total), 0);
    void *answer = mem_new(2 * MIB);
    work_limit_leave();
    assert_true(work_limit_hand_over(&limit, answer) >= 2 * MIB);
    assert_int_equal(limit.bytes, 0);
    assert_int_equal(memory_total_used(&total), 0);
    mem_free(answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_memory_is_charged), cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_no_room),           cmocka_unit_test(test_given_up_and_late),
        cmocka_unit_test(test_untimed),           cmocka_unit_test(test_parsed_json_is_counted),
        cmocka_unit_test(test_changing_hands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
