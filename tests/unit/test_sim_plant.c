/* Heat and pace of simulated devices: hours in milliseconds, for both are pure. */
#include "simdevices/sim_pace.h"
#include "simdevices/sim_plant.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Busy it would settle at 25 + 200 * 0.5 = 125 C, throttled to 0.5 at 25 + (20 + 180/8) * 0.5 = 46
 * C. */
static const struct plant_params hot = {
    .power_idle_w = 20,
    .power_max_w = 200,
    .thermal_mass_j_per_k = 100,
    .resistance_k_per_w = 0.5,
    .ambient_c = 25,
    .limit_c = 85,
    .hysteresis_k = 5,
    .throttled_clock = 0.5,
};

static void near_to(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%.9g is not %.9g within %g", got, want, tolerance);
}

static void test_it_rests_where_its_idle_power_ends(void **state)
{
    (void)state;
    struct plant plant = plant_rested(&hot);
    near_to(plant.temperature_c, 35, 1e-12);
    plant_advance(&hot, &plant, false, 36000);
    near_to(plant.temperature_c, 35, 1e-9);
    near_to(plant_power_w(&hot, &plant, false), 20, 0);
    near_to(plant_power_w(&hot, &plant, true), 200, 0);
}

/* One time constant (R C = 50 s) covers 1 - 1/e of the way. */
static void test_it_follows_the_exponential(void **state)
{
    (void)state;
    struct plant_params cool = hot;
    cool.limit_c = 200;
    struct plant plant = plant_rested(&cool);
    plant_advance(&cool, &plant, true, 50);
    near_to(plant.temperature_c, 125 - 90 * exp(-1), 1e-9);
    plant_advance(&cool, &plant, false, 100);
    near_to(plant.temperature_c, 35 + 90 * (1 - exp(-1)) * exp(-2), 1e-9);
}

static void test_steps_of_any_size_give_the_same(void **state)
{
    (void)state;
    struct plant whole = plant_rested(&hot), pieces = whole;
    plant_advance(&hot, &whole, true, 1000);
    for (int i = 0; i < 8000; i++)
        plant_advance(&hot, &pieces, true, 0.125);
    near_to(pieces.temperature_c, whole.temperature_c, 1e-6);
    assert_int_equal(pieces.throttled, whole.throttled);
}

static void test_it_throttles_at_the_limit_and_recovers_below_it(void **state)
{
    (void)state;
    struct plant plant = plant_rested(&hot);
    /* 35 to 85 on the way to 125: 50 ln(90 / 40) s */
    double reaches_s = 50 * log(90.0 / 40.0);
    plant_advance(&hot, &plant, true, reaches_s - 0.01);
    assert_false(plant.throttled);
    plant_advance(&hot, &plant, true, 0.02);
    assert_true(plant.throttled);
    near_to(plant_clock(&hot, &plant), 0.5, 0);
    near_to(plant_power_w(&hot, &plant, true), 20 + 180.0 / 8, 1e-12);
    /* 85 to 80 on the way to 46.25 */
    double recovers_s = 50 * log((85 - 46.25) / (80 - 46.25));
    plant_advance(&hot, &plant, true, recovers_s - 0.05);
    assert_true(plant.throttled);
    plant_advance(&hot, &plant, true, 0.1);
    assert_false(plant.throttled);
}

static void test_an_hour_of_load_stays_between_limit_and_hysteresis(void **state)
{
    (void)state;
    struct plant plant = plant_rested(&hot);
    plant_advance(&hot, &plant, true, 60);
    int n_throttled = 0;
    for (int i = 0; i < 36000; i++) {
        plant_advance(&hot, &plant, true, 0.1);
        if (plant.temperature_c > 85 + 1e-9 || plant.temperature_c < 80 - 1e-9)
            fail_msg("%g C after %d steps", plant.temperature_c, i);
        n_throttled += plant.throttled;
    }
    assert_in_range(n_throttled, 1000, 35000);
    plant_advance(&hot, &plant, false, 3600);
    near_to(plant.temperature_c, 35, 1e-6);
    assert_false(plant.throttled);
}

static void test_work_takes_longer_when_it_is_hot(void **state)
{
    (void)state;
    struct plant plant = plant_rested(&hot);
    near_to(plant_work(&hot, &plant, 10), 10, 1e-12);
    struct plant throttled = {.temperature_c = 85, .throttled = true};
    near_to(plant_work(&hot, &throttled, 1), 2, 1e-12);
    /* across the limit: full clock until it, half of it after */
    plant = plant_rested(&hot);
    double reaches_s = 50 * log(90.0 / 40.0);
    near_to(plant_work(&hot, &plant, reaches_s + 1), reaches_s + 2, 1e-9);
    /* and back: half of it until it has cooled, full clock after */
    double recovers_s = 50 * log((85 - 46.25) / (80 - 46.25));
    near_to(plant_work(&hot, &throttled, 0), 0, 0);
    throttled.temperature_c = 85;
    near_to(plant_work(&hot, &throttled, recovers_s / 2 + 1), recovers_s + 1, 1e-9);
}

static void test_work_and_time_agree(void **state)
{
    (void)state;
    struct plant by_work = plant_rested(&hot), by_time = by_work;
    double spent_s = 0;
    for (int i = 0; i < 20000; i++)
        spent_s += plant_work(&hot, &by_work, 0.05);
    assert_true(spent_s > 1000 && spent_s < 2000);
    plant_advance(&hot, &by_time, true, spent_s);
    near_to(by_work.temperature_c, by_time.temperature_c, 1e-5);
}

/* A spark of a mass: it would change its clock a million times a second. */
static void test_a_senseless_plant_ends(void **state)
{
    (void)state;
    struct plant_params wild = hot;
    wild.thermal_mass_j_per_k = 0.1;
    wild.resistance_k_per_w = 1e-3;
    wild.power_max_w = 1e5;
    wild.hysteresis_k = 0.1;
    struct plant plant = plant_rested(&wild);
    plant_advance(&wild, &plant, true, 3600);
    assert_true(plant.temperature_c >= 84 && plant.temperature_c <= 86);
    double spent_s = plant_work(&wild, &plant, 3600);
    assert_true(spent_s >= 3600 && spent_s <= 7200);
}

/* ---- pace ---------------------------------------------------------------------------------- */

static void test_pace_averages_out_long_sleeps(void **state)
{
    (void)state;
    struct pace pace = {0};
    double spent_s = 0;
    for (int i = 0; i < 1000; i++) {
        double sleep_s = pace_owe(&pace, 2e-3, 0.5e-3);
        double slept_s = sleep_s > 0 ? sleep_s + 0.3e-3 : 0; /* every sleep is 0.3 ms too long */
        if (sleep_s > 0)
            pace_slept(&pace, slept_s);
        spent_s += 0.5e-3 + slept_s;
    }
    near_to(spent_s, 2, 1e-3);
}

static void test_pace_saves_up_what_is_too_short_to_sleep(void **state)
{
    (void)state;
    struct pace pace = {0};
    int n_sleeps = 0;
    double slept_s = 0;
    for (int i = 0; i < 1000; i++) {
        double sleep_s = pace_owe(&pace, 15e-6, 5e-6);
        n_sleeps += sleep_s > 0;
        slept_s += sleep_s;
        pace_slept(&pace, sleep_s);
    }
    near_to(slept_s, 0.01, 2e-4);
    assert_in_range(n_sleeps, 50, 100);
}

static void test_pace_never_hurries_after_slow_work(void **state)
{
    (void)state;
    struct pace pace = {0};
    assert_true(pace_owe(&pace, 1e-3, 5) == 0);
    near_to(pace_owe(&pace, 2e-3, 1e-3), 1e-3, 1e-12);
    pace_slept(&pace, 3600); /* the process was stopped meanwhile */
    assert_true(pace.debt_s >= -1.001);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_rests_where_its_idle_power_ends),
        cmocka_unit_test(test_it_follows_the_exponential),
        cmocka_unit_test(test_steps_of_any_size_give_the_same),
        cmocka_unit_test(test_it_throttles_at_the_limit_and_recovers_below_it),
        cmocka_unit_test(test_an_hour_of_load_stays_between_limit_and_hysteresis),
        cmocka_unit_test(test_work_takes_longer_when_it_is_hot),
        cmocka_unit_test(test_work_and_time_agree),
        cmocka_unit_test(test_a_senseless_plant_ends),
        cmocka_unit_test(test_pace_averages_out_long_sleeps),
        cmocka_unit_test(test_pace_saves_up_what_is_too_short_to_sleep),
        cmocka_unit_test(test_pace_never_hurries_after_slow_work),
    };
    return cmocka_run_group_tests_name("sim_plant", tests, NULL, NULL);
}
