/* thermal: the governor on simulated devices. The limit is never passed; it does not swing; it does
 * not waste. */
#include "thermal_plant.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define STEP_NS UINT64_C(500000000)
enum { HOUR = 7200 }; /* steps */

/* A device under its governor, and what a run may do to it. */
struct world {
    struct plant plant;
    struct thermal_governor governor;
    struct thermal_action action;
    uint64_t step;
    bool on_battery;
    bool no_temperature;
    bool no_power;
    uint32_t n_pauses;
    double low_c, high_c; /* since mark() */
    double duty_low, duty_high;
};

static void mark(struct world *world)
{
    world->low_c = world->high_c = world->plant.state.die_c;
    world->duty_low = world->duty_high = world->action.duty;
    world->n_pauses = 0;
}

static void world_init(struct world *world, const struct plant_kind *kind, uint64_t seed)
{
    *world = (struct world){.action.duty = 1};
    plant_init(&world->plant, kind, seed);
    thermal_governor_init(&world->governor, thermal_limits_default(llround(kind->limit_c * 1e3)));
    mark(world);
}

static void step(struct world *world, double load)
{
    plant_step(&world->plant, world->action.duty, load, 0.5);
    struct thermal_input input = {plant_sample(&world->plant, ++world->step * STEP_NS),
                                  world->on_battery};
    if (world->no_temperature)
        input.sample.temperature_mc.valid = false;
    if (world->no_power)
        input.sample.power_mw.valid = false;
    const bool was_paused = world->action.paused;
    world->action = thermal_governor_step(&world->governor, &input);
    world->n_pauses += world->action.paused && !was_paused;
    world->low_c = fmin(world->low_c, world->plant.state.die_c);
    world->high_c = fmax(world->high_c, world->plant.state.die_c);
    world->duty_low = fmin(world->duty_low, world->action.duty);
    world->duty_high = fmax(world->duty_high, world->action.duty);
    assert_true(world->action.paused == (world->action.duty == 0));
    assert_true(world->action.duty <= 1);
    if (world->plant.max_c >= world->plant.kind.limit_c)
        fail_msg("%s: %.2f °C at %.1f s, limit %.1f", world->plant.kind.name,
                 world->plant.state.die_c, (double)world->step / 2, world->plant.kind.limit_c);
}

static void run(struct world *world, double load, uint32_t n_steps)
{
    for (uint32_t i = 0; i < n_steps; i++)
        step(world, load);
}

/* ---- what it can keep up --------------------------------------------------------------------- */

/* Of a device of one node that is always busy at full clock. */
static double sustained(const struct world *world)
{
    const struct plant_kind *kind = &world->plant.kind;
    const double full_w = kind->idle_w + kind->fixed_w + kind->core_w;
    const double hold_w =
        (world->governor.lines.hold_c - kind->body.ambient_c) / kind->body.resistance_k_per_w;
    return fmin((hold_w - kind->idle_w) / (full_w - kind->idle_w), 1);
}

/* Work that comes and goes teaches the body; then it works all the time. What it can keep up is
 * known before its duty falls, and when that will be; a rest forgets neither; and in cooler air it
 * can keep up more. */
static void test_what_it_can_keep_up(void **state)
{
    (void)state;
    static const struct plant_kind kind = {
        "in a warm room", {400, 0.6, 50}, {0}, 10, 40, 50, 90, 20, 0.2, 1, 0.2, 1};
    struct world world;
    world_init(&world, &kind, 3);
    assert_false(world.action.prospect.share.valid);
    for (uint32_t i = 0; i < 12; i++) {
        run(&world, 1, 80);
        run(&world, 0, 400 + 100 * (i % 3));
    }
    assert_true(world.duty_low >= 1);
    const double truth = sustained(&world);
    assert_true(truth > 0.4 && truth < 0.6);
    uint32_t known = 0, steps = 0;
    double said_s = 0, said_at_s = 0;
    for (; world.action.duty == 1 && steps < HOUR; steps++) {
        step(&world, 1);
        const struct thermal_prospect *prospect = &world.action.prospect;
        if (!prospect->share.valid || prospect->share.value > 0.75)
            continue;
        if (!known++)
            said_s = prospect->full_s, said_at_s = steps / 2.0;
        assert_true(fabs(prospect->share.value - truth) < 2 * prospect->share_error + 0.05);
    }
    assert_true(known > 40 && steps < HOUR);            /* 20 s before */
    assert_true(said_at_s + said_s < steps / 2.0 + 10); /* at the earliest */
    assert_true(said_at_s + said_s > steps / 2.0 - 90);
    run(&world, 0, HOUR);
    assert_true(world.action.prospect.share.valid &&
                fabs(world.action.prospect.share.value - truth) < 0.15);
    assert_true(world.action.prospect.full_s > 60 && world.action.prospect.full_s < 600);
    world.plant.kind.body.ambient_c = 20;
    run(&world, 0, HOUR / 4);
    assert_true(world.action.prospect.share.value > truth + 0.2 &&
                world.action.prospect.share.value <= 1);
    world.no_power = true;
    run(&world, 1, 60);
    assert_false(world.action.prospect.share.valid);
}

/* ---- never above the limit ------------------------------------------------------------------- */

static void test_limit_holds_at_full_load(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        struct world world;
        world_init(&world, &plant_kinds[i], 1);
        run(&world, 1, 4 * HOUR);
        world_init(&world, &plant_kinds[i], 2);
        world.no_power = true;
        run(&world, 1, HOUR);
    }
}

/* Work that comes and goes at random, rooms that change, readings that go missing, leap, or stop
 * for minutes, power that is not told, batteries. */
static void test_limit_holds_whatever_happens(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        for (uint64_t seed = 0; seed < 3; seed++) {
            struct world world;
            world_init(&world, &plant_kinds[i], seed + 10);
            double load = 1;
            for (uint32_t s = 0; s < 3 * HOUR; s++) {
                const double draw = random_unit_at(seed + 100, (uint64_t)i * 100000000 + s);
                if (draw < 0.01)
                    load = draw < 0.005 ? 1 : draw * 100;
                else if (draw > 0.9995)
                    world.on_battery = !world.on_battery;
                else if (draw > 0.999)
                    world.no_power = !world.no_power;
                world.no_temperature =
                    world.no_temperature ? draw < 0.99 : draw > 0.5 && draw < 0.502;
                if (s % HOUR == HOUR / 2) {
                    world.plant.kind.body.ambient_c += seed == 1 ? -8 : 8;
                    world.plant.kind.pair.ambient_c += seed == 1 ? -8 : 8;
                }
                step(&world, load);
            }
        }
    }
}

static void test_burst_from_rest(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        struct world world;
        world_init(&world, &plant_kinds[i], 4);
        for (int burst = 0; burst < 40; burst++) {
            run(&world, 1, 20 + (uint32_t)burst * 10);
            run(&world, 0, 10 + (uint32_t)burst * 3);
        }
    }
}

/* ---- it does not swing ----------------------------------------------------------------------- */

static void test_settles(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        struct world world;
        world_init(&world, &plant_kinds[i], 1);
        run(&world, 1, 3 * HOUR);
        mark(&world);
        run(&world, 1, HOUR);
        assert_int_equal(world.n_pauses, 0);
        if (world.high_c - world.low_c > 3.5 || world.duty_high - world.duty_low > 0.35)
            fail_msg("%s swings: %.1f to %.1f °C, duty %.2f to %.2f", plant_kinds[i].name,
                     world.low_c, world.high_c, world.duty_low, world.duty_high);
        /* nor does it stay far below what it may */
        const double mean_c = (world.high_c + world.low_c) / 2;
        if (mean_c < world.governor.lines.hold_c - 6)
            fail_msg("%s wastes: %.1f °C, may be %.1f", plant_kinds[i].name, mean_c,
                     world.governor.lines.hold_c);
    }
}

static void count_precision(bool no_power, uint32_t most)
{
    struct world world;
    world_init(&world, &plant_kinds[0], 1);
    world.no_power = no_power;
    uint32_t n_asked = 0;
    bool lower = false;
    for (uint32_t s = 0; s < 8 * HOUR; s++) { /* three minutes hard, four minutes easy */
        step(&world, s % 840 < 360 ? 1 : 0.1);
        n_asked += world.action.lower_precision && !lower;
        lower = world.action.lower_precision;
    }
    assert_true(n_asked >= 1);
    if (n_asked > most)
        fail_msg("asked %u times", n_asked);
}

static void test_precision_is_not_asked_for_and_back(void **state)
{
    (void)state;
    count_precision(false, 6); /* the load comes 69 times */
    count_precision(true, 6);
}

/* A fan stops under a model that knows nothing of it. */
static void test_fan_fails(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        struct world world;
        world_init(&world, &plant_kinds[i], 6);
        run(&world, 1, HOUR);
        world.plant.kind.body.resistance_k_per_w *= 2;
        world.plant.kind.pair.sink_resistance_k_per_w *= 2;
        mark(&world);
        run(&world, 1, HOUR);
        if (world.n_pauses > 5)
            fail_msg("%s: %u pauses", plant_kinds[i].name, world.n_pauses);
        mark(&world);
        run(&world, 1, HOUR);
        assert_int_equal(world.n_pauses, 0); /* it has learned */
    }
}

/* ---- order of measures ----------------------------------------------------------------------- */

static void test_asks_for_precision_before_duty(void **state)
{
    (void)state;
    struct world world;
    world_init(&world, &plant_kinds[0], 1);
    run(&world, 1, 20);
    assert_int_equal(world.action.reason, THERMAL_FREE);
    assert_false(world.action.lower_precision);
    uint64_t asked = 0, restricted = 0;
    while (!restricted) {
        step(&world, 1);
        if (!asked && world.action.lower_precision) {
            asked = world.step;
            assert_int_equal(world.action.reason, THERMAL_PRECISION);
        }
        if (world.action.duty < 1)
            restricted = world.step;
        assert_true(world.step < HOUR);
    }
    assert_true(asked > 0 && asked < restricted);
    assert_true(restricted - asked >= 8 ||
                world.plant.state.die_c > world.governor.lines.hold_c - 2);
    run(&world, 1, HOUR);
    assert_int_equal(world.action.reason, THERMAL_MODEL);
    assert_true(world.action.headroom_w.valid && fabs(world.action.headroom_w.value) < 60);
    assert_true(world.action.predicted_c.valid);
    assert_true(fabs(world.action.predicted_c.value - world.plant.state.die_c) < 2);
    assert_true(world.action.headroom_s.valid && world.action.headroom_s.value > 10);
    run(&world, 0, HOUR); /* nothing to do: all is given back */
    assert_int_equal(world.action.reason, THERMAL_FREE);
    assert_true(world.action.duty == 1);
    assert_true(world.action.headroom_w.value > 50);
    assert_true(world.action.headroom_s.value == THERMAL_NEVER);
}

static struct thermal_action tell(struct thermal_governor *governor, uint64_t *step_number,
                                  double mc)
{
    struct thermal_input input = {.sample = {++*step_number * STEP_NS, {mc, true}, {0}}};
    return thermal_governor_step(governor, &input);
}

static void test_pause_and_hysteresis(void **state)
{
    (void)state;
    struct thermal_governor governor;
    uint64_t n = 0;
    thermal_governor_init(&governor, thermal_limits_default(83000));
    for (int mc = 40000; mc < 78000; mc += 500)
        assert_false(tell(&governor, &n, mc).paused);
    struct thermal_action action = tell(&governor, &n, 78000); /* 5 below */
    assert_true(action.paused && action.lower_precision);
    assert_int_equal(action.reason, THERMAL_PAUSED);
    for (int mc = 78000; mc > 68000; mc -= 250)
        assert_true(tell(&governor, &n, mc).paused);
    action = tell(&governor, &n, 68000); /* 10 below that */
    assert_false(action.paused);
    assert_true(action.duty > 0 && action.duty <= 0.3); /* not all at once */
    for (int i = 0; i < 400; i++)
        action = tell(&governor, &n, 50000);
    assert_true(action.duty == 1);
    assert_false(action.lower_precision);
}

static void test_battery_is_stricter(void **state)
{
    (void)state;
    struct world mains, battery;
    world_init(&mains, &plant_kinds[3], 1);
    world_init(&battery, &plant_kinds[3], 1);
    battery.on_battery = true;
    step(&battery, 1);
    assert_true(battery.action.lower_precision);
    assert_true(battery.action.duty == 0.6);
    assert_int_equal(battery.action.reason, THERMAL_BATTERY);
    run(&mains, 1, HOUR);
    run(&battery, 1, HOUR);
    assert_true(battery.plant.max_c < plant_kinds[3].limit_c - 10);
    assert_true(battery.plant.max_c < mains.plant.max_c - 3);
    /* The lines move down at once; too hot for them is a pause. */
    mains.on_battery = true;
    step(&mains, 1);
    step(&mains, 1);
    assert_true(mains.action.paused || mains.plant.state.die_c < 77);
    battery.on_battery = false;
    run(&battery, 0.1, 400);
    assert_true(battery.action.duty == 1);
}

/* ---- missing sensors ------------------------------------------------------------------------- */

static void test_no_sensor_at_all(void **state)
{
    (void)state;
    struct thermal_governor governor;
    thermal_governor_init(&governor, thermal_limits_default(83000));
    struct thermal_action action = {0};
    for (uint64_t i = 1; i < 1000; i++) {
        struct thermal_input input = {.sample = {i * STEP_NS, {0}, {100000, true}}};
        action = thermal_governor_step(&governor, &input);
    }
    assert_int_equal(action.reason, THERMAL_NO_SENSOR);
    assert_true(action.duty == 1);
    assert_false(action.lower_precision || action.predicted_c.valid || action.headroom_s.valid);
    struct thermal_input input = {.sample = {1000 * STEP_NS, {0}, {0}}, .on_battery = true};
    assert_true(thermal_governor_step(&governor, &input).duty == 0.6);
}

static void lose_sensor_after(const struct plant_kind *kind, uint32_t n_steps, bool power_too)
{
    struct world world;
    world_init(&world, kind, 1);
    run(&world, 1, n_steps);
    const double before = world.action.duty;
    world.no_temperature = true;
    world.no_power = power_too;
    run(&world, 1, 8); /* power counts for 3 s, temperature for 2 */
    assert_int_equal(world.action.reason, THERMAL_SENSOR_LOST);
    assert_true(world.action.duty <= (power_too ? 0.25 : 0.5) && world.action.duty <= before);
    assert_false(world.action.headroom_s.valid);
    run(&world, 1, 2 * HOUR); /* step() looks at the limit */
    assert_int_equal(world.action.reason, THERMAL_SENSOR_LOST);
    world.no_temperature = world.no_power = false;
    run(&world, 0.05, 1200);
    assert_true(world.action.reason == THERMAL_FREE || world.action.reason == THERMAL_PRECISION);
    assert_true(world.action.duty == 1);
}

static void test_sensor_lost(void **state)
{
    (void)state;
    for (int i = 0; i < PLANT_KINDS; i++) {
        lose_sensor_after(&plant_kinds[i], 10, false);
        lose_sensor_after(&plant_kinds[i], 100, true);
        lose_sensor_after(&plant_kinds[i], HOUR, false);
        lose_sensor_after(&plant_kinds[i], HOUR, true);
    }
}

static void test_sensor_lost_while_paused(void **state)
{
    (void)state;
    struct thermal_governor governor;
    uint64_t n = 0;
    thermal_governor_init(&governor, thermal_limits_default(83000));
    tell(&governor, &n, 70000);
    assert_true(tell(&governor, &n, 79000).paused);
    uint32_t n_paused = 0;
    struct thermal_action action;
    for (int i = 0; i < 700; i++) {
        struct thermal_input input = {.sample = {++n * STEP_NS, {0}, {0}}};
        action = thermal_governor_step(&governor, &input);
        n_paused += action.paused;
    }
    assert_true(n_paused >= 600 && n_paused < 620); /* five minutes */
    assert_int_equal(action.reason, THERMAL_SENSOR_LOST);
    assert_true(action.duty > 0 && action.duty <= 0.25);
}

/* ---- hostile input --------------------------------------------------------------------------- */

static void test_one_wild_reading_changes_nothing(void **state)
{
    (void)state;
    struct thermal_governor governor;
    uint64_t n = 0;
    thermal_governor_init(&governor, thermal_limits_default(83000));
    for (int i = 0; i < 100; i++)
        tell(&governor, &n, 50000);
    const double wild[] = {-INFINITY, NAN, 2147483647, -273150, 127000, 0};
    for (size_t i = 0; i < sizeof wild / sizeof *wild; i++) {
        assert_true(tell(&governor, &n, wild[i]).duty == 1);
        assert_true(tell(&governor, &n, 50000).duty == 1);
    }
    tell(&governor, &n, 90000);
    assert_true(tell(&governor, &n, 90000).paused); /* a second one like it is the truth */
}

static void test_time_that_goes_back(void **state)
{
    (void)state;
    struct thermal_governor governor;
    uint64_t n = 1000;
    thermal_governor_init(&governor, thermal_limits_default(83000));
    tell(&governor, &n, 70000);
    assert_true(tell(&governor, &n, 79000).paused);
    n = 10;
    assert_true(tell(&governor, &n, 50000).paused); /* the last action, once */
    assert_true(tell(&governor, &n, 50000).paused); /* a leap */
    assert_false(tell(&governor, &n, 50000).paused);
    n--;
    assert_false(tell(&governor, &n, 90000).paused); /* the same time again is not a step */
    tell(&governor, &n, 50000);
    n = UINT64_MAX / STEP_NS - 2;
    assert_true(
        tell(&governor, &n, 81000).paused); /* centuries later a leap needs no second word */
}

static void test_random_input(void **state)
{
    (void)state;
    static const int64_t extremes[] = {INT64_MIN, INT64_MAX, 0,      1,     -1,      83000,
                                       150000,    150001,    -40000, 60000, 10000000};
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct thermal_governor governor;
        struct thermal_limits limits = {0};
        if (seed % 2)
            limits =
                (struct thermal_limits){extremes[seed % 11],          (uint32_t)random_at(seed, 1),
                                        (uint32_t)random_at(seed, 2), (uint32_t)random_at(seed, 3),
                                        (uint32_t)random_at(seed, 4), (uint32_t)random_at(seed, 5)};
        thermal_governor_init(&governor, limits);
        uint64_t time_ns = 0;
        for (uint64_t i = 0; i < 5000; i++) {
            const uint64_t draw = random_at(seed + 50, i);
            time_ns = draw % 50 == 0 ? draw : time_ns + draw % (2 * STEP_NS);
            const double mc =
                draw % 3 ? (double)((draw >> 20) % 100000) : (double)extremes[(draw >> 8) % 11];
            const double mw =
                draw % 5 ? (double)((draw >> 30) % 400000) : (double)extremes[(draw >> 12) % 11];
            struct thermal_input input = {{time_ns, {mc, draw % 7 != 0}, {mw, draw % 11 != 0}},
                                          draw % 13 == 0};
            struct thermal_action action = thermal_governor_step(&governor, &input);
            assert_true(action.duty <= 1);
            assert_true(action.paused == (action.duty == 0));
            assert_true(!action.predicted_c.valid || isfinite(action.predicted_c.value));
            assert_true(!action.headroom_w.valid || isfinite(action.headroom_w.value));
            assert_true(!action.headroom_s.valid || action.headroom_s.value >= 0);
            assert_true(strlen(thermal_reason_text(action.reason)) > 2);
        }
    }
}

/* ---- what it is good for --------------------------------------------------------------------- */

/* A vendor's law that halves the clock without the voltage, and again while that is not enough. */
static void test_more_tokens_than_throttling(void **state)
{
    (void)state;
    const struct plant_throttling law = {.clock = 0.5, .core_power = 0.5};
    double product = 0;
    for (int i = 0; i < PLANT_KINDS; i++) {
        struct world world;
        world_init(&world, &plant_kinds[i], 1);
        world.plant.throttling = law;
        run(&world, 1, HOUR);
        struct plant alone;
        plant_init(&alone, &plant_kinds[i], 1);
        alone.throttling = law;
        for (int s = 0; s < HOUR; s++)
            plant_step(&alone, 1, 1, 0.5);
        assert_true(alone.max_c >= plant_kinds[i].limit_c);
        const double ratio = world.plant.tokens / alone.tokens;
        print_message("# %s: tokens per hour, governed : throttling = %.2f\n", plant_kinds[i].name,
                      ratio);
        assert_true(ratio > 1);
        product += log(ratio) / (double)PLANT_KINDS;
    }
    print_message("# geometric mean %.2f\n", exp(product));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_holds_at_full_load),
        cmocka_unit_test(test_limit_holds_whatever_happens),
        cmocka_unit_test(test_burst_from_rest),
        cmocka_unit_test(test_settles),
        cmocka_unit_test(test_precision_is_not_asked_for_and_back),
        cmocka_unit_test(test_fan_fails),
        cmocka_unit_test(test_asks_for_precision_before_duty),
        cmocka_unit_test(test_pause_and_hysteresis),
        cmocka_unit_test(test_battery_is_stricter),
        cmocka_unit_test(test_no_sensor_at_all),
        cmocka_unit_test(test_sensor_lost),
        cmocka_unit_test(test_sensor_lost_while_paused),
        cmocka_unit_test(test_one_wild_reading_changes_nothing),
        cmocka_unit_test(test_time_that_goes_back),
        cmocka_unit_test(test_random_input),
        cmocka_unit_test(test_what_it_can_keep_up),
        cmocka_unit_test(test_more_tokens_than_throttling),
    };
    return cmocka_run_group_tests_name("thermal_governor", tests, NULL, NULL);
}
