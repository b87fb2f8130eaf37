/* node/rates.h and node/history.h's text: pure parts of what a node tells. */
#include "node/history.h"
#include "node/rates.h"
#include "vitals/vitals.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_a_rate_is_of_the_time_in_which_it_was_busy(void **state)
{
    static struct rates rates;
    double rate = rates_step(&rates, RATE_DECODE, "a", 1000, 0, false);
    assert_float_equal(rate, 0, 0);
    for (uint64_t i = 1; i <= 20; i++)
        rate = rates_step(&rates, RATE_DECODE, "a", 1000 + 500 * i, 10 * (i - 1), true);
    assert_float_equal(rate, 20, 0.01);
    for (uint64_t i = 1; i <= 20; i++) /* at rest it is that of before … */
        rate = rates_step(&rates, RATE_DECODE, "a", 11000 + 500 * i, 190, false);
    assert_true(rate > 15 && rate <= 20.01);
    rate = rates_step(&rates, RATE_DECODE, "a", 11500 + RATES_LAST_MS, 190, false);
    assert_float_equal(rate, 0, 0); /* … for a minute */
}

static void test_a_counter_that_fell_begins_anew(void **state)
{
    static struct rates rates;
    for (uint64_t i = 1; i <= 10; i++)
        rates_step(&rates, RATE_FETCH, "m", 1000 * i, 5000 * i, true);
    assert_float_equal(rates_step(&rates, RATE_FETCH, "m", 11000, 100, true), 0, 0);
    assert_float_equal(rates_step(&rates, RATE_FETCH, "m", 12000, 400, true), 300, 0.01);
    assert_float_equal(rates_step(&rates, RATE_DECODE, "m", 12000, 400, true), 0, 0); /* another */
}

static void test_more_names_than_rows(void **state)
{
    static struct rates rates;
    char name[16];
    for (uint64_t turn = 1; turn < 4; turn++) {
        for (uint32_t i = 0; i < 3 * RATES_MAX; i++) {
            snprintf(name, sizeof name, "m%u", i);
            rates_step(&rates, RATE_FETCH, name, 1000 * turn + i, turn, true);
        }
    }
}

static void test_since_when(void **state)
{
    static struct rates rates;
    assert_int_equal(rates_since(&rates, "i", 5000, false), 0);
    assert_int_equal(rates_since(&rates, "i", 6000, true), 0);
    assert_int_equal(rates_since(&rates, "i", 8500, true), 2500);
    assert_int_equal(rates_since(&rates, "i", 9000, false), 0);
    assert_int_equal(rates_since(&rates, "i", 9500, true), 0);
}

/* ---- the last minute, as text ---- */

static void test_the_minute_as_text(void **state)
{
    Node__HistoryAnswer answer = NODE__HISTORY_ANSWER__INIT;
    int32_t temperatures[] = {VITALS_UNKNOWN, -5, 612}, memory[] = {3};
    struct buffer text = {0};
    answer.period_ms = 500;
    answer.age_ms = 40;
    answer.temperature_dc = temperatures;
    answer.n_temperature_dc = 3;
    answer.free_mib = memory;
    answer.n_free_mib = 1;
    history_write(&answer, 1000, &text);
    assert_string_equal(text.data, "{\"period_ms\":500,\"end_ms\":960,\"temperature_c\":[null,-0.5,"
                                   "61.2],\"use_share\":[],\"power_w\":[],\"clock_mhz\":[],"
                                   "\"free_bytes\":[3145728],\"predicted_c\":[]}");
    buffer_deinit(&text);
}

static void test_more_than_a_minute_is_refused(void **state)
{
    Node__HistoryAnswer answer = NODE__HISTORY_ANSWER__INIT;
    struct error err;
    answer.n_power_dw = HISTORY_VALUES_MAX;
    assert_int_equal(history_check(&answer, &err), ERROR_NONE);
    answer.n_power_dw++;
    assert_int_equal(history_check(&answer, &err), ERROR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rate_is_of_the_time_in_which_it_was_busy),
        cmocka_unit_test(test_a_counter_that_fell_begins_anew),
        cmocka_unit_test(test_more_names_than_rows),
        cmocka_unit_test(test_since_when),
        cmocka_unit_test(test_the_minute_as_text),
        cmocka_unit_test(test_more_than_a_minute_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
