/* What nodes open an instance with: the same memory whether its devices can share cells or not. */
#include "engine/batch_shape.h"
#include "hosting/part_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static Cluster__Demand demand_of(uint32_t streams, uint32_t context, uint32_t cells)
{
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    demand.streams = streams;
    demand.context_tokens = context;
    demand.cells = cells;
    demand.kv_type = KV_Q8_0;
    demand.precision = 8;
    demand.precision_allowed = 12;
    return demand;
}

static void check(uint32_t streams, uint32_t context, uint32_t cells, uint32_t n_apart)
{
    const Cluster__Demand demand = demand_of(streams, context, cells);
    const struct driver_options shared = part_options(&demand, true),
                                apart = part_options(&demand, false);
    assert_int_equal(shared.n_slots, streams);
    assert_int_equal(shared.cells, cells);
    assert_int_equal(apart.n_slots, n_apart);
    assert_int_equal(apart.cells, 0);
    assert_int_equal(part_whole_streams(&demand), n_apart);
    assert_int_equal(shared.context, context);
    assert_int_equal(apart.context, context);
    assert_int_equal(apart.kv_type, KV_Q8_0);
    assert_int_equal(shared.precision, 8);
    assert_int_equal(shared.precision_allowed, 12); /* each device's ladder may step to it */
    if (cells >= kv_cells(context))                 /* else it is refused */
        assert_true(apart.n_slots * kv_cells(context) <= cells);
}

static void test_memory(void **state)
{
    (void)state;
    check(16, 4096, 4 * 4096, 4);
    check(4, 4096, 4 * 4096, 4);
    check(16, 1000, 4 * 1024, 4); /* whole extents */
    check(16, 4096, 6 * 4096, 6); /* more memory */
    check(16, 4096, 6 * 4096 + 1000, 6);
    check(2, 4096, 4 * 4096, 2); /* no more than are wanted */
    check(16, 4096, 4096, 1);
    check(16, 4096, 256, 1); /* the driver refuses it */
}

static void test_speculate(void **state)
{
    Cluster__Demand demand = demand_of(1, 512, 0);
    (void)state;
    assert_int_equal(part_options(&demand, false).speculate, SPECULATE_LOOKUP);
    demand.speculate = SPECULATE_OFF;
    assert_int_equal(part_options(&demand, false).speculate, SPECULATE_OFF);
    demand.speculate = 77; /* of a later version */
    assert_int_equal(part_options(&demand, false).speculate, SPECULATE_LOOKUP);
}

static void test_no_cells(void **state)
{
    const Cluster__Demand demand = demand_of(3, 4096, 0);
    (void)state;
    for (int shares = 0; shares < 2; shares++) {
        const struct driver_options options = part_options(&demand, shares);
        assert_int_equal(options.n_slots, 3);
        assert_int_equal(options.cells, 0);
    }
    assert_int_equal(part_whole_streams(&demand), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_memory),
                                       cmocka_unit_test(test_speculate),
                                       cmocka_unit_test(test_no_cells)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
