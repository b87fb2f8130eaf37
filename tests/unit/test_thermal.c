/* thermal: closed forms of the model, the ring of history, the view. */
#include "thermal/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define SECOND UINT64_C(1000000000)

static void assert_near(double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%.9g, expected %.9g +- %g", found, expected, tolerance);
}

static const struct thermal_body body = {
    .capacity_j_per_k = 200, .resistance_k_per_w = 0.5, .ambient_c = 20};

static void test_closed_forms(void **state)
{
    (void)state;
    assert_near(thermal_time_constant_s(&body), 100, 1e-12);
    assert_near(thermal_steady_c(&body, 100), 70, 1e-12);
    assert_near(thermal_after_c(&body, 20, 100, 0), 20, 0);
    assert_near(thermal_after_c(&body, 20, 100, -5), 20, 0); /* no time */
    assert_near(thermal_after_c(&body, 20, 100, 100), 20 + 50 * (1 - 0.36787944117144233), 1e-9);
    assert_near(thermal_after_c(&body, 70, 0, 100), 20 + 50 * 0.36787944117144233, 1e-9);
    assert_near(thermal_after_c(&body, 20, 100, 1e9), 70, 1e-9);
    assert_near(thermal_power_holding_w(&body, 70), 100, 1e-12);
    assert_near(thermal_power_holding_w(&body, 10), 0, 0); /* nothing cools below the air */
    for (double s = 0.01; s < 2000; s *= 3) {
        double w = thermal_power_reaching_w(&body, 35, 60, s);
        assert_near(thermal_after_c(&body, 35, w, s), 60, 1e-6);
    }
    assert_true(thermal_power_reaching_w(&body, 90, 30, 1) < 0);
}

static void test_time_to_a_limit(void **state)
{
    (void)state;
    assert_near(thermal_seconds_to_heat(&body, 20, 100, 45), 69.314718055994531,
                1e-9); /* half way: ln 2 tau */
    assert_near(thermal_seconds_to_heat(&body, 50, 100, 45), 0, 0);
    assert_true(thermal_seconds_to_heat(&body, 20, 100, 70) ==
                THERMAL_NEVER); /* only in the limit */
    assert_true(thermal_seconds_to_heat(&body, 20, 50, 60) == THERMAL_NEVER);
    assert_true(thermal_seconds_to_heat(&body, 90, 10, 95) == THERMAL_NEVER); /* cools */
    for (double c = 25; c < 69; c += 3) {
        double s = thermal_seconds_to_heat(&body, 20, 100, c);
        assert_near(thermal_after_c(&body, 20, 100, s), c, 1e-9);
    }
}

static void test_what_is_physical(void **state)
{
    (void)state;
    const struct thermal_body bad[] = {
        {0},         {-1, 1, 20},         {1, 0, 20}, {NAN, 1, 20}, {1, INFINITY, 20},
        {1, 1, NAN}, {1e-300, 1e-300, 20}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(thermal_body_is_physical(&bad[i]));
    assert_true(thermal_body_is_physical(&body));
}

static const struct thermal_pair pair = {30, 0.08, 400, 0.2, 25};

/* The exact step against many small ones of Euler's. */
static void test_pair_is_its_own_differential_equation(void **state)
{
    (void)state;
    struct thermal_pair_state exact = {25, 25}, small = exact;
    for (int step = 0; step < 100; step++) {
        const double w = step % 20 < 10 ? 300 : 40;
        exact = thermal_pair_after(&pair, exact, w, 3);
        for (int i = 0; i < 30000; i++) {
            const double flow_w = (small.die_c - small.sink_c) / pair.die_resistance_k_per_w;
            const double out_w = (small.sink_c - pair.ambient_c) / pair.sink_resistance_k_per_w;
            small.die_c += (w - flow_w) / pair.die_capacity_j_per_k * 1e-4;
            small.sink_c += (flow_w - out_w) / pair.sink_capacity_j_per_k * 1e-4;
        }
        assert_near(exact.die_c, small.die_c, 0.01);
        assert_near(exact.sink_c, small.sink_c, 0.01);
    }
}

static void test_pair_steady_and_composition(void **state)
{
    (void)state;
    struct thermal_pair_state steady = thermal_pair_steady(&pair, 100);
    assert_near(steady.sink_c, 45, 1e-9);
    assert_near(steady.die_c, 53, 1e-9);
    struct thermal_pair_state late =
        thermal_pair_after(&pair, (struct thermal_pair_state){90, 30}, 100, 1e7);
    assert_near(late.die_c, 53, 1e-9);
    struct thermal_pair_state one =
        thermal_pair_after(&pair, (struct thermal_pair_state){90, 30}, 100, 7);
    struct thermal_pair_state two =
        thermal_pair_after(&pair, (struct thermal_pair_state){90, 30}, 100, 4);
    two = thermal_pair_after(&pair, two, 100, 3);
    assert_near(one.die_c, two.die_c, 1e-9);
    assert_near(one.sink_c, two.sink_c, 1e-9);
    /* With next to no die it is one body. */
    const struct thermal_pair thin = {1e-3, 1e-4, 200, 0.5, 20};
    struct thermal_pair_state like =
        thermal_pair_after(&thin, (struct thermal_pair_state){20, 20}, 100, 60);
    assert_near(like.die_c, thermal_after_c(&body, 20, 100, 60), 0.02);
}

static void test_history_ring(void **state)
{
    (void)state;
    static struct thermal_history history;
    assert_false(thermal_history_summary(&history).temperature_mc_min.valid);
    assert_false(thermal_history_slope(&history, 60).valid);
    for (int i = 0; i < 500; i++) {
        struct thermal_sample sample = {
            (uint64_t)i * SECOND / 2, {40000 + i * 100, i % 3 != 0}, {50000, i % 2 == 0}};
        thermal_history_add(&history, sample);
    }
    struct thermal_summary summary = thermal_history_summary(&history);
    assert_int_equal(summary.n_samples, THERMAL_HISTORY_SAMPLES); /* 60 s and both ends */
    assert_int_equal(thermal_history_at(&history, 0)->time_ns, 379 * SECOND / 2);
    assert_int_equal(summary.temperature_mc_min.value, 40000 + 379 * 100);
    assert_int_equal(summary.temperature_mc_max.value, 40000 + 499 * 100);
    assert_int_equal(summary.n_valid, 81);
    assert_int_equal(summary.power_mw_mean.value, 50000);
    assert_near(thermal_history_slope(&history, 10).value, 0.2, 1e-9);
    assert_near(thermal_history_slope(&history, 60).value, 0.2, 1e-9);
    /* A minute's silence: only the new one counts. */
    thermal_history_add(&history, (struct thermal_sample){400 * SECOND, {30000, true}, {0}});
    assert_int_equal(thermal_history_summary(&history).n_samples, 1);
    assert_false(thermal_history_slope(&history, 60).valid);
    /* Time that goes back, or stands still, starts anew. */
    thermal_history_add(&history, (struct thermal_sample){401 * SECOND, {31000, true}, {0}});
    thermal_history_add(&history, (struct thermal_sample){401 * SECOND, {32000, true}, {0}});
    assert_int_equal(thermal_history_summary(&history).n_samples, 1);
    thermal_history_add(&history, (struct thermal_sample){5, {33000, true}, {0}});
    assert_int_equal(thermal_history_summary(&history).n_samples, 1);
    thermal_history_add(&history, (struct thermal_sample){UINT64_MAX, {33000, true}, {0}});
    assert_int_equal(thermal_history_summary(&history).n_samples, 1);
}

static void test_nonsense_is_unknown(void **state)
{
    (void)state;
    const double bad_mc[] = {-INFINITY, NAN, -5000, 0, 150001, INFINITY, 65535000};
    for (size_t i = 0; i < sizeof bad_mc / sizeof *bad_mc; i++) {
        struct thermal_sample sample = {1, {bad_mc[i], true}, {1, true}};
        assert_false(thermal_sample_clean(sample).temperature_mc.valid);
        assert_true(thermal_sample_clean(sample).power_mw.valid);
    }
    const double bad_mw[] = {-INFINITY, NAN, -1, 0, 10000001, INFINITY};
    for (size_t i = 0; i < sizeof bad_mw / sizeof *bad_mw; i++)
        assert_false(thermal_sample_clean((struct thermal_sample){1, {1, true}, {bad_mw[i], true}})
                         .power_mw.valid);
    assert_false(
        thermal_sample_clean((struct thermal_sample){1, {50000, false}, {0}}).temperature_mc.valid);
    assert_true(
        thermal_sample_clean((struct thermal_sample){1, {500, true}, {0}}).temperature_mc.valid);
    assert_near(thermal_seconds_between(5, 4), 0, 0);
    assert_near(thermal_seconds_between(0, UINT64_MAX), 18446744073.709552, 1);
}

static void test_view(void **state)
{
    (void)state;
    struct thermal_state states[4] = {0};
    const double temperatures_mc[4] = {60000, 75000, 75000, 0};
    const int64_t limits_mc[4] = {70000, 95000, 90000, 83000};
    for (int i = 0; i < 4; i++) {
        struct thermal_governor governor;
        thermal_governor_init(&governor, thermal_limits_default(limits_mc[i]));
        struct thermal_input input = {.sample = {SECOND, {temperatures_mc[i], i != 3}, {0}}};
        thermal_governor_step(&governor, &input);
        char id[80];
        memset(id, 'a' + i, sizeof id);
        id[79] = 0;
        states[i] = thermal_state_of(id, &governor);
        assert_int_equal(strlen(states[i].id), sizeof states[i].id - 1);
    }
    assert_false(states[3].temperature_mc.valid);
    assert_int_equal(states[3].action.reason, THERMAL_NO_SENSOR);
    assert_near(states[0].limit_c, 70, 1e-9);
    assert_near(states[0].stop_c, 65, 1e-9);
    assert_false(states[0].ambient_c.valid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_time_to_a_limit),
        cmocka_unit_test(test_what_is_physical),
        cmocka_unit_test(test_pair_is_its_own_differential_equation),
        cmocka_unit_test(test_pair_steady_and_composition),
        cmocka_unit_test(test_history_ring),
        cmocka_unit_test(test_nonsense_is_unknown),
        cmocka_unit_test(test_view),
    };
    return cmocka_run_group_tests_name("thermal", tests, NULL, NULL);
}
