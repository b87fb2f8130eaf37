/* thermal: the fit finds a device from noisy, rounded, irregular readings, and says when it does
 * not know. */
#include "thermal_plant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define STEP_NS UINT64_C(500000000)

static void assert_within(const char *what, double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance))
        fail_msg("%s: %.6g, expected %.6g +- %g", what, found, expected, tolerance);
}

/* What a run does to the readings. */
struct harm {
    double lost;     /* share of samples without temperature, as many again without power */
    double spike;    /* share of samples with nonsense for a temperature, inside what is credible */
    double jitter_s; /* of the time of a sample */
};

/* Half an hour of work that comes and goes, a new load every 30 s. */
static void feed(struct thermal_fit *fit, struct plant *plant, struct harm harm, uint32_t from,
                 uint32_t n)
{
    double load = 1;
    for (uint32_t i = from; i < from + n; i++) {
        if (i % 60 == 59)
            load = fabs(plant_random(plant));
        double late_s = 0;
        if (harm.jitter_s > 0)
            late_s = floor(harm.jitter_s * (1 + plant_random(plant)) / 0.1) * 0.05;
        /* the step before ended late_s ago at most: keep the plant in time with the clock */
        plant_step(plant, 1, load, 0.5);
        struct thermal_sample sample;
        if (late_s > 0) {
            struct plant ahead = *plant;
            plant_step(&ahead, 1, load, late_s);
            sample = plant_sample(&ahead, (i + 1) * STEP_NS + (uint64_t)llround(late_s * 1e9));
            sample.power_mw = plant_sample(plant, 0).power_mw;
            plant->n_drawn += 8;
        } else {
            sample = plant_sample(plant, (i + 1) * STEP_NS);
        }
        if (fabs(plant_random(plant)) < harm.lost)
            sample.temperature_mc.valid = false;
        if (fabs(plant_random(plant)) < harm.lost)
            sample.power_mw.valid = false;
        if (fabs(plant_random(plant)) < harm.spike)
            sample.temperature_mc.value = trunc(60000 + 80000 * plant_random(plant));
        thermal_fit_add(fit, sample);
    }
}

static void check_recovered(const struct plant_kind *kind, struct harm harm, double tolerance)
{
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, kind, 7);
    feed(&fit, &plant, harm, 0, 3600);
    struct thermal_body found;
    assert_true(thermal_fit_body(&fit, &found));
    const double tau_s = thermal_time_constant_s(&kind->body);
    assert_within(kind->name, found.resistance_k_per_w / kind->body.resistance_k_per_w, 1,
                  tolerance);
    assert_within(kind->name, thermal_time_constant_s(&found) / tau_s, 1, tolerance);
    assert_within(kind->name, found.ambient_c, kind->body.ambient_c, tolerance * 60);
    assert_true(thermal_fit_trusted(&fit));
    assert_true(thermal_fit_error_k(&fit).valid);
    assert_true(thermal_fit_error_k(&fit).value < 0.6);
}

/* Devices of one node whose time constant half an hour shows often enough; 1 °C steps and a
 * sensor's lag, which is not in the model, are. */
static void test_recovers_from_rounded_noise(void **state)
{
    (void)state;
    const int chosen[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 15};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        check_recovered(&plant_kinds[chosen[i]], (struct harm){0}, 0.15);
}

static void test_recovers_from_missing_late_and_wild_readings(void **state)
{
    (void)state;
    const int chosen[] = {0, 2, 3, 7, 8};
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++) {
        check_recovered(&plant_kinds[chosen[i]], (struct harm){.lost = 0.1}, 0.15);
        check_recovered(&plant_kinds[chosen[i]], (struct harm){.jitter_s = 0.2}, 0.15);
        check_recovered(&plant_kinds[chosen[i]], (struct harm){.spike = 0.01}, 0.15);
        check_recovered(&plant_kinds[chosen[i]], (struct harm){0.05, 0.005, 0.2}, 0.2);
    }
}

/* Nothing but the device itself: the window's equation is exact, whatever the load does. */
static void test_exact_without_noise(void **state)
{
    (void)state;
    struct plant_kind clean = plant_kinds[2];
    clean.lag_s = clean.round_c = clean.noise_c = clean.noise_w = 0;
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, &clean, 9);
    double load = 1, power_w = 0;
    for (uint32_t i = 1; i <= 36000;
         i++) { /* every 50 ms; power is a straight line between samples, as assumed */
        if (i % 400 == 0)
            load = fabs(plant_random(&plant));
        const double next_w = power_w + (load * 100 - power_w) * 0.02;
        plant.state.die_c =
            thermal_after_c(&clean.body, plant.state.die_c, (power_w + next_w) / 2, 0.05);
        power_w = next_w;
        thermal_fit_add(&fit, (struct thermal_sample){i * (STEP_NS / 10),
                                                      {round(plant.state.die_c * 1e3), true},
                                                      {round(power_w * 1e3), true}});
    }
    struct thermal_body found;
    assert_true(thermal_fit_trusted(&fit) && thermal_fit_body(&fit, &found));
    assert_within("R", found.resistance_k_per_w / clean.body.resistance_k_per_w, 1, 0.002);
    assert_within("C", found.capacity_j_per_k / clean.body.capacity_j_per_k, 1, 0.002);
    assert_within("ambient", found.ambient_c, clean.body.ambient_c, 0.1);
    assert_true(thermal_fit_error_k(&fit).value < 0.01);
}

static void test_long_gap_is_not_bridged(void **state)
{
    (void)state;
    struct thermal_fit fit = {0};
    const struct thermal_sample first = {STEP_NS, {40000, true}, {50000, true}};
    struct thermal_sample later = first;
    thermal_fit_add(&fit, first);
    later.time_ns += 100 * STEP_NS; /* 50 s: ten halves of a window, if it were bridged */
    thermal_fit_add(&fit, later);
    assert_int_equal(fit.n_windows, 0);
    for (int i = 0; i < 21; i++) { /* 2.5 s at a time: bridged */
        later.time_ns += 5 * STEP_NS;
        thermal_fit_add(&fit, later);
    }
    assert_int_equal(fit.n_windows, 9);
}

/* Something else warms the sensor for ten seconds, every ten minutes. */
static void test_spoiled_windows_weigh_less(void **state)
{
    (void)state;
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, &plant_kinds[0], 8);
    double load = 1;
    for (uint32_t i = 1; i < 7200; i++) {
        if (i % 60 == 0)
            load = fabs(plant_random(&plant));
        plant_step(&plant, 1, load, 0.5);
        struct thermal_sample sample = plant_sample(&plant, i * STEP_NS);
        if (i % 1200 > 1180)
            sample.temperature_mc.value += 25000;
        thermal_fit_add(&fit, sample);
    }
    struct thermal_body found;
    assert_true(thermal_fit_body(&fit, &found));
    assert_within("tau", thermal_time_constant_s(&found) / 75, 1, 0.2);
    assert_within("R", found.resistance_k_per_w / 0.25, 1, 0.2);
}

/* What it is for: where the device will be a minute from now. */
static void test_predicts(void **state)
{
    (void)state;
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, &plant_kinds[0], 3);
    feed(&fit, &plant, (struct harm){0}, 0, 1800);
    struct thermal_body found;
    assert_true(thermal_fit_trusted(&fit) && thermal_fit_body(&fit, &found));
    for (int load = 0; load <= 1; load++) {
        struct plant ahead = plant;
        const double start_c = ahead.state.die_c;
        plant_step(&ahead, 1, load, 60);
        assert_within("in a minute", thermal_after_c(&found, start_c, ahead.power_w, 60),
                      ahead.state.die_c, 2);
    }
}

static void test_follows_the_room(void **state)
{
    (void)state;
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, &plant_kinds[2], 5);
    feed(&fit, &plant, (struct harm){0}, 0, 3600);
    plant.kind.body.ambient_c += 10;
    feed(&fit, &plant, (struct harm){0}, 3600, 5400);
    struct thermal_body found;
    assert_true(thermal_fit_body(&fit, &found));
    /* The steady temperature of the middle load is what the governor lives by. */
    assert_within("steady", thermal_steady_c(&found, 70), thermal_steady_c(&plant.kind.body, 70),
                  5);
}

static void test_trusts_nothing_without_reason(void **state)
{
    (void)state;
    struct thermal_fit fit = {0};
    struct thermal_body found = {1, 2, 3};
    assert_false(thermal_fit_trusted(&fit));
    assert_false(thermal_fit_body(&fit, &found));
    assert_true(found.capacity_j_per_k == 1); /* untouched */
    assert_false(thermal_fit_error_k(&fit).valid);
    for (uint32_t i = 1; i < 20000; i++) /* a device that does nothing tells nothing */
        thermal_fit_add(&fit, (struct thermal_sample){i * STEP_NS, {45000, true}, {30000, true}});
    assert_false(thermal_fit_trusted(&fit));
    fit = (struct thermal_fit){0};
    struct plant plant; /* power unknown: not fitted */
    plant_init(&plant, &plant_kinds[0], 3);
    for (uint32_t i = 1; i < 3600; i++) {
        plant_step(&plant, 1, i / 200 % 2, 0.5);
        struct thermal_sample sample = plant_sample(&plant, i * STEP_NS);
        sample.power_mw.valid = false;
        thermal_fit_add(&fit, sample);
    }
    assert_int_equal(fit.n_windows, 0);
    fit = (struct thermal_fit){0};
    for (uint32_t i = 1; i < 7200; i++) { /* cools when it works: b < 0 */
        const double busy = i / 200 % 2;
        thermal_fit_add(&fit, (struct thermal_sample){i * STEP_NS,
                                                      {70000 - 200 * (i % 200) * busy, true},
                                                      {20000 + 200000 * busy, true}});
    }
    assert_false(thermal_fit_trusted(&fit));
}

static void test_absurd_input_does_no_harm(void **state)
{
    (void)state;
    struct plant plant;
    struct thermal_fit fit = {0};
    plant_init(&plant, &plant_kinds[0], 11);
    feed(&fit, &plant, (struct harm){0}, 0, 3600);
    struct thermal_body before, after;
    assert_true(thermal_fit_body(&fit, &before));
    const double extremes[] = {-INFINITY, NAN, 0, -1, 150001, 1};
    for (uint64_t i = 0; i < 600; i++) {
        const double a = extremes[i % 6], b = extremes[i / 6 % 6];
        thermal_fit_add(&fit,
                        (struct thermal_sample){i * i * 7919 * STEP_NS, {a, true}, {b, true}});
        thermal_fit_add(&fit, (struct thermal_sample){UINT64_MAX - i, {a, true}, {b, i % 2}});
        thermal_fit_add(&fit, (struct thermal_sample){0, {50000, true}, {b, true}});
    }
    for (int i = 0; i < THERMAL_FIT_TERMS; i++)
        assert_true(isfinite(fit.coefficient[i]) && isfinite(fit.covariance[i][i]));
    assert_true(thermal_fit_body(&fit, &after));
    assert_within("R", after.resistance_k_per_w / before.resistance_k_per_w, 1, 0.05);
    /* Credible but wild, for hours: no value may run away. */
    for (uint32_t i = 1; i < 20000; i++) {
        const double mc = 55000 + 90000 * plant_random(&plant),
                     mw = 5e6 + 5e6 * plant_random(&plant);
        thermal_fit_add(&fit, (struct thermal_sample){i * STEP_NS, {mc, true}, {mw, true}});
    }
    for (int i = 0; i < THERMAL_FIT_TERMS; i++)
        assert_true(isfinite(fit.coefficient[i]) && isfinite(fit.covariance[i][i]));
    assert_false(thermal_fit_trusted(&fit));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recovers_from_rounded_noise),
        cmocka_unit_test(test_recovers_from_missing_late_and_wild_readings),
        cmocka_unit_test(test_exact_without_noise),
        cmocka_unit_test(test_long_gap_is_not_bridged),
        cmocka_unit_test(test_spoiled_windows_weigh_less),
        cmocka_unit_test(test_predicts),
        cmocka_unit_test(test_follows_the_room),
        cmocka_unit_test(test_trusts_nothing_without_reason),
        cmocka_unit_test(test_absurd_input_does_no_harm),
    };
    return cmocka_run_group_tests_name("thermal_fit", tests, NULL, NULL);
}
