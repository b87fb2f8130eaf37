/* base/reading.h: what is known, and what can be. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/reading.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_a_zeroed_reading_is_unknown(void **state)
{
    const struct reading none = {0};
    assert_false(none.valid);
    assert_int_equal(none.time_ns, 0);
    assert_false(reading_checked(UNIT_SHARE, none).valid);
}

static void test_what_cannot_be_is_unknown(void **state)
{
    static const struct {
        enum unit unit;
        double lowest, highest; /* that are plausible; one step beyond is not */
        double step;
    } cases[] = {
        {UNIT_MC, 1, LIMIT_TEMPERATURE_MC, 1}, /* a sensor that is not connected says 0 */
        {UNIT_MW, 1, LIMIT_POWER_MW, 1},       /* so does a driver without a sensor */
        {UNIT_MHZ, 0, LIMIT_CLOCK_MHZ, 1},
        {UNIT_PCT, 0, 100, 1},
        {UNIT_SHARE, 0, 1, 1e-9},
        {UNIT_BYTES, 0, 0x1p53, 2},
        {UNIT_DELAY_NS, 0, LIMIT_LINK_DELAY_MS * 1e6, 1},
        {UNIT_BYTES_PER_S, 1, LIMIT_LINK_GB_PER_S * 1e9, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum unit unit = cases[i].unit;
        assert_true(reading_of(unit, cases[i].lowest).valid);
        assert_true(reading_of(unit, cases[i].highest).valid);
        assert_true(reading_of(unit, cases[i].highest).value == cases[i].highest);
        assert_false(reading_of(unit, cases[i].lowest - cases[i].step).valid);
        assert_false(reading_of(unit, cases[i].highest + cases[i].step).valid);
        assert_true(reading_of(unit, cases[i].highest + cases[i].step).value == 0);
    }
    for (int unit = 0; unit < UNITS; unit++)
        assert_false(reading_of((enum unit)unit, NAN).valid);
}

static void test_a_computed_number_may_be_any(void **state)
{
    assert_true(reading_of(UNIT_NUMBER, -3.5).value == -3.5);
    assert_true(reading_of(UNIT_NUMBER, INFINITY).valid); /* a line that is never reached */
}

static void test_its_time_stays(void **state)
{
    const uint64_t before_ns = clock_now_ns();
    const struct reading now = reading_now_u64(UNIT_MHZ, 2500), failed = reading_failed();
    assert_true(now.valid && now.time_ns >= before_ns && now.time_ns <= failed.time_ns);
    assert_false(failed.valid);
    const struct reading broken = reading_checked(UNIT_PCT, now); /* 2500 % */
    assert_false(broken.valid);
    assert_true(broken.time_ns == now.time_ns); /* it was read, and is wrong */
    assert_true(reading_at(UNIT_PCT, 40, 7).time_ns == 7);
}

static void test_whole_numbers_are_exact(void **state)
{
    const uint64_t most = UINT64_C(1) << 53;
    assert_int_equal(reading_whole(reading_now_u64(UNIT_BYTES, most)), most);
    assert_int_equal(reading_whole(reading_now_u64(UNIT_BYTES, most - 1)), most - 1);
    assert_int_equal(reading_whole(reading_of(UNIT_NUMBER, 2.9)), 2);
}

static void test_the_lower_one_is_kept(void **state)
{
    struct reading limit = {0};
    reading_keep_lower(&limit, (struct reading){0});
    assert_false(limit.valid);
    reading_keep_lower(&limit, reading_of(UNIT_MC, 90000));
    reading_keep_lower(&limit, reading_of(UNIT_MC, 95000));
    reading_keep_lower(&limit, (struct reading){0});
    assert_true(limit.valid && limit.value == 90000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_zeroed_reading_is_unknown),
        cmocka_unit_test(test_what_cannot_be_is_unknown),
        cmocka_unit_test(test_a_computed_number_may_be_any),
        cmocka_unit_test(test_its_time_stays),
        cmocka_unit_test(test_whole_numbers_are_exact),
        cmocka_unit_test(test_the_lower_one_is_kept),
    };
    return cmocka_run_group_tests_name("reading", tests, NULL, NULL);
}
