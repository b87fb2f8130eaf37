/* Which way a stream of weights reads: by what its own reads took. */
#include "engine/weight_way.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { PASS = 1000, CHUNK = 10 };

/* A whole pass; what a byte takes each way. True: it was read past the cache. */
static bool read_pass(struct weight_way *way, uint64_t direct_ns, uint64_t cached_ns)
{
    const bool is_direct = way->is_direct;
    for (int i = 0; i < PASS / CHUNK; i++) {
        assert_int_equal(way->is_direct, is_direct);
        weight_way_count(way, is_direct, CHUNK, CHUNK * (is_direct ? direct_ns : cached_ns));
    }
    return is_direct;
}

static void test_both_ways_are_tried_and_the_faster_stays(void **state)
{
    (void)state;
    struct weight_way way;
    weight_way_init(&way, true, false, PASS);
    assert_false(read_pass(&way, 10, 20));
    for (int i = 0; i < WEIGHT_WAY_PASSES; i++)
        assert_true(read_pass(&way, 10, 20));
    weight_way_init(&way, true, true, PASS);
    assert_true(read_pass(&way, 20, 10));
    for (int i = 0; i < WEIGHT_WAY_PASSES; i++)
        assert_false(read_pass(&way, 20, 10));
}

static void test_the_cache_has_to_be_faster_by_a_quarter(void **state)
{
    (void)state;
    struct weight_way way;
    weight_way_init(&way, true, true, PASS);
    assert_true(read_pass(&way, 110, 100));
    assert_false(read_pass(&way, 110, 100));
    assert_true(read_pass(&way, 110, 100));
}

static void test_a_disk_that_changes_is_noticed(void **state)
{
    (void)state;
    struct weight_way way;
    int n_cached = 0;
    weight_way_init(&way, true, true, PASS);
    for (int i = 0; i < 10; i++)
        read_pass(&way, 10, 20);
    assert_true(way.is_direct);
    for (int i = 0; i < 2 * WEIGHT_WAY_PASSES; i++)
        n_cached += !read_pass(&way, 40, 20);
    assert_in_range(n_cached, WEIGHT_WAY_PASSES / 2, 2 * WEIGHT_WAY_PASSES);
    assert_false(way.is_direct);
}

static void test_a_late_read_does_not_count(void **state)
{
    (void)state;
    struct weight_way way;
    weight_way_init(&way, true, true, PASS);
    read_pass(&way, 10, 20);
    weight_way_count(&way, true, PASS, 1);
    assert_false(way.is_direct);
    assert_false(read_pass(&way, 10, 20));
    assert_true(way.is_direct);
}

static void test_where_there_is_one_way_it_stays(void **state)
{
    (void)state;
    struct weight_way way;
    weight_way_init(&way, false, false, PASS);
    for (int i = 0; i < 3 * WEIGHT_WAY_PASSES; i++)
        assert_false(read_pass(&way, 1, 100));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_ways_are_tried_and_the_faster_stays),
        cmocka_unit_test(test_the_cache_has_to_be_faster_by_a_quarter),
        cmocka_unit_test(test_a_disk_that_changes_is_noticed),
        cmocka_unit_test(test_a_late_read_does_not_count),
        cmocka_unit_test(test_where_there_is_one_way_it_stays),
    };
    return cmocka_run_group_tests_name("weight_way", tests, NULL, NULL);
}
