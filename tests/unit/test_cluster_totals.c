/* clusterfile/cluster_totals.h */
#include "clusterfile/cluster_totals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GIB (UINT64_C(1) << 30)

/* A tower with two cards and a processor, a laptop with a processor that draws, too. */
static const struct totals_device machines[] = {
    {0, "NVIDIA", false, true, 24 * GIB, 20 * GIB, UINT64_C(900000000000)},
    {0, "AMD", false, true, 16 * GIB, 16 * GIB, UINT64_C(500000000000)},
    {0, "Intel", true, true, 64 * GIB, 60 * GIB, UINT64_C(50000000000)},
    {1, "Intel", true, true, 16 * GIB, 8 * GIB, UINT64_C(60000000000)},
    {1, "Intel", true, true, 12 * GIB, 9 * GIB, 0},
};

/* 0.1 ms between them. */
static const struct totals_link wired[] = {{0, 1, 100000}, {1, 0, 120000}};

static void test_sums_and_extremes(void **state)
{
    const uint64_t links[] = {125000000, 0, 375000000};
    const struct cluster_totals totals = cluster_totals_of(machines, 5, links, 3);
    assert_int_equal(totals.n_devices, 5);
    assert_int_equal(totals.n_nodes, 2);
    assert_int_equal(totals.memory_bytes, (24 + 16 + 64 + 16) * GIB); /* a host's memory once */
    assert_int_equal(totals.free_bytes, (20 + 16 + 60 + 9) * GIB);
    assert_true(totals.has_free);
    assert_int_equal(totals.n_rated, 4);
    assert_int_equal(totals.decode_bytes_per_s, UINT64_C(1510000000000));
    assert_float_equal(totals.fastest_to_slowest, 18, 1e-9);
    assert_int_equal(totals.n_vendors, 3);
    assert_string_equal(totals.vendors[2].name, "Intel");
    assert_int_equal(totals.vendors[2].n, 3);
    assert_int_equal(totals.bottleneck_link_bytes_per_s, 125000000);
    assert_int_equal(totals.mean_link_bytes_per_s, 250000000); /* of those that are measured */
}

static void test_unknown_is_not_zero(void **state)
{
    const struct totals_device unknown[] = {{0, NULL, false, false, 0, 0, 0}};
    const uint64_t none[] = {0};
    const struct cluster_totals totals = cluster_totals_of(unknown, 1, none, 1);
    assert_false(totals.has_free);
    assert_int_equal(totals.n_rated, 0);
    assert_int_equal(totals.n_vendors, 0);
    assert_float_equal(totals.fastest_to_slowest, 0, 0);
    assert_int_equal(totals.bottleneck_link_bytes_per_s, 0);
    assert_int_equal(cluster_totals_of(NULL, 0, NULL, 0).n_nodes, 0);
    assert_false(cluster_totals_of(NULL, 0, NULL, 0).has_free);
}

static void test_a_sentence(void **state)
{
    const uint64_t links[] = {125000000};
    struct cluster_totals totals = cluster_totals_of(machines, 5, links, 1);
    struct buffer text = {0};
    cluster_totals_say(&totals, &text);
    assert_string_equal(text.data,
                        "5 devices on 2 nodes: 120.0 GiB of memory, 105.0 GiB free; together they "
                        "read 1510 GB/s, the fastest 18 times as fast as the slowest; the "
                        "slowest link carries 125 MB/s");
    buffer_clear(&text);
    totals = cluster_totals_of(machines, 1, NULL, 0);
    cluster_totals_say(&totals, &text);
    assert_string_equal(text.data,
                        "1 device on 1 node: 24.0 GiB of memory, 20.0 GiB free; together "
                        "they read 900 GB/s");
    buffer_deinit(&text);
}

static void test_the_best_few_for_a_model(void **state)
{
    uint32_t chosen[4];
    assert_int_equal(cluster_best_devices(machines, 5, wired, 2, 19 * GIB, chosen, 4), 1);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(cluster_best_devices(machines, 5, wired, 2, 30 * GIB, chosen, 4), 2);
    assert_int_equal(chosen[1], 1);
    /* The laptop's second device lives in the memory of its first. */
    assert_int_equal(cluster_best_devices(machines, 5, wired, 2, 100 * GIB, chosen, 4), 4);
    assert_int_equal(chosen[2], 3);
    assert_int_equal(chosen[3], 2);
    assert_int_equal(cluster_best_devices(machines, 5, wired, 2, 105 * GIB, chosen, 4), 0);
    assert_int_equal(cluster_best_devices(machines, 5, wired, 2, 30 * GIB, chosen, 1), 0);
    assert_int_equal(cluster_best_devices(machines, 0, wired, 2, 1, chosen, 4), 0);
}

/* Three machines of equal cards: a pair over a quick link comes before one over a slow link, and
 * what no link reaches is not chosen. */
static void test_links_count(void **state)
{
    static const struct totals_device cards[] = {
        {0, "A", false, true, 8 * GIB, 8 * GIB, UINT64_C(400000000000)},
        {1, "A", false, true, 8 * GIB, 8 * GIB, UINT64_C(390000000000)},
        {2, "A", false, true, 8 * GIB, 8 * GIB, UINT64_C(380000000000)},
    };
    const struct totals_link slow[] = {{0, 1, 30000000}, {0, 2, 100000}, {1, 2, 30000000}};
    uint32_t chosen[4];
    assert_int_equal(cluster_best_devices(cards, 3, slow, 3, 12 * GIB, chosen, 4), 2);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 2);
    assert_int_equal(cluster_best_devices(cards, 3, slow, 1, 12 * GIB, chosen, 4), 2);
    assert_int_equal(chosen[1], 1);
    assert_int_equal(cluster_best_devices(cards, 3, slow, 0, 12 * GIB, chosen, 4), 0);
    assert_int_equal(cluster_best_devices(cards, 3, slow, 3, 20 * GIB, chosen, 4), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums_and_extremes), cmocka_unit_test(test_unknown_is_not_zero),
        cmocka_unit_test(test_a_sentence),        cmocka_unit_test(test_the_best_few_for_a_model),
        cmocka_unit_test(test_links_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
