#include "thermal/governor.h"

#include "thermal/duty.h"

#include <assert.h>

#define LIMIT_UNKNOWN_MC INT64_C(85000)
#define HOLD_BELOW_STOP_C 3.0
#define LEAP_C 15.0       /* more between two readings wants a second one */
#define SENSOR_WAIT_S 2.0 /* a reading may be that old */
#define POWER_WAIT_S 3.0
#define LOST_PAUSE_S 300.0
#define LOST_DUTY_MODEL 0.5
#define LOST_POWER_SHARE 0.7
#define LEAD_S 2.0         /* the sensor's and our own delay */
#define SLOPE_S 4.0        /* over which a slope is taken for that */
#define SMOOTH_S 1.5       /* takes off the rounding to whole degrees */
#define NOISE_C 2.5        /* readings differ that much for nothing */
#define LOAD_S 3.0         /* over which power and duty are averaged */
#define IDLE_RISE_S 1800.0 /* how long the least power of late is remembered */
#define RISE_PER_S 0.1     /* of duty */
#define DUTY_MIN 0.02      /* running, but only just; less is a pause */
#define DUTY_STEP 0.004    /* changes that are not worth telling */
#define AGAIN_DUTY 0.25    /* after a pause, of the duty before */
#define PRECISION_NEAR_C 3.0
#define PRECISION_SOON_S 60.0
#define PRECISION_WAIT_S 5.0
#define RELEASE_S_MIN 60.0
#define RELEASE_S_MAX 3600.0
#define RELEASE_TOO_EARLY_S 600.0
#define STEP_S_MAX 5.0 /* a longer step counts as one of these */

struct thermal_limits thermal_limits_default(int64_t limit_mc)
{
    return (struct thermal_limits){
        .limit_mc = limit_mc,
        .margin_mc = 5000,
        .battery_margin_mc = 10000,
        .hysteresis_mc = 10000,
        .battery_duty = 0.6,
        .blind_duty = 0.25,
    };
}

bool thermal_limit_is_believed(int64_t limit_mc)
{
    return limit_mc >= 30000 && limit_mc <= 130000;
}

const char *thermal_reason_text(enum thermal_reason reason)
{
    switch (reason) {
    case THERMAL_FREE:
        return "free";
    case THERMAL_NO_SENSOR:
        return "no sensor";
    case THERMAL_BATTERY:
        return "on battery";
    case THERMAL_PRECISION:
        return "lower precision asked for";
    case THERMAL_MODEL:
        return "held by the fitted model";
    case THERMAL_PROPORTION:
        return "held in proportion to temperature";
    case THERMAL_SENSOR_LOST:
        return "sensor lost";
    case THERMAL_PAUSED:
        return "paused, too hot";
    }
    return "?";
}

uint32_t thermal_permille(double duty)
{
    return (uint32_t)lround(duty * 1000);
}

void thermal_governor_init(struct thermal_governor *governor, struct thermal_limits limits)
{
    *governor =
        (struct thermal_governor){.limits = limits, .duty = 1, .release_wait_s = RELEASE_S_MIN};
    governor->action = (struct thermal_action){.duty = 1};
}

static struct thermal_lines lines_of(const struct thermal_limits *limits, bool on_battery)
{
    static const struct thermal_limits none;
    struct thermal_limits use =
        limits->margin_mc == none.margin_mc && limits->hysteresis_mc == none.hysteresis_mc
            ? thermal_limits_default(limits->limit_mc)
            : *limits;
    if (!thermal_limit_is_believed(use.limit_mc))
        use.limit_mc = LIMIT_UNKNOWN_MC;
    const uint32_t margin_mc =
        on_battery && use.battery_margin_mc > use.margin_mc ? use.battery_margin_mc : use.margin_mc;
    const double stop_c = (double)(use.limit_mc - (int64_t)margin_mc) * 1e-3;
    return (struct thermal_lines){.limit_c = (double)use.limit_mc * 1e-3,
                                  .stop_c = stop_c,
                                  .hold_c = stop_c - HOLD_BELOW_STOP_C,
                                  .resume_c = stop_c - (double)use.hysteresis_mc * 1e-3};
}

/* ---- what the sensors say ------------------------------------------------------------------ */

/* The sample without a leap that nothing confirms. */
static struct thermal_sample governor_confirm(struct thermal_governor *governor,
                                              struct thermal_sample sample)
{
    const struct reading now = sample.temperature_mc;
    if (!now.valid)
        return sample;
    const double leap_c = fabs(now.value * 1e-3 - governor->temperature_c);
    const bool fresh =
        thermal_seconds_between(governor->sensed_ns, sample.time_ns) <= SENSOR_WAIT_S;
    if (governor->has_sensed && fresh && leap_c > LEAP_C) {
        const struct reading before = governor->unconfirmed;
        governor->unconfirmed = now;
        sample.temperature_mc.valid =
            before.valid && fabs(now.value - before.value) <= LEAP_C * 1e3;
    } else {
        governor->unconfirmed.valid = false;
    }
    return sample;
}

static void see_temperature(struct thermal_governor *governor, const struct thermal_sample *sample)
{
    if (!sample->temperature_mc.valid)
        return;
    const double c = sample->temperature_mc.value * 1e-3;
    const double since_s = thermal_seconds_between(governor->sensed_ns, sample->time_ns);
    const bool goes_on =
        governor->has_sensed && since_s <= SENSOR_WAIT_S && fabs(c - governor->smooth_c) <= LEAP_C;
    governor->smooth_c = goes_on ? c + (governor->smooth_c - c) * exp(-since_s / SMOOTH_S) : c;
    governor->temperature_c = c;
    governor->sensed_ns = sample->time_ns;
    governor->has_sensed = true;
}

static void see_power(struct thermal_governor *governor, const struct thermal_sample *sample,
                      double step_s)
{
    if (!sample->power_mw.valid)
        return;
    const double w = sample->power_mw.value * 1e-3, duty = governor->action.duty;
    if (!governor->has_power ||
        thermal_seconds_between(governor->powered_ns, sample->time_ns) > POWER_WAIT_S) {
        governor->power_w = w;
        governor->power_duty = duty;
        governor->power_idle_w = governor->has_power ? fmin(governor->power_idle_w, w) : w;
    }
    const double keep = exp(-step_s / LOAD_S);
    governor->power_w = w + (governor->power_w - w) * keep;
    governor->power_duty = duty + (governor->power_duty - duty) * keep;
    const double idle_w = governor->power_idle_w;
    governor->power_idle_w = fmin(
        idle_w + fmax(governor->power_w - idle_w, 0) * step_s / IDLE_RISE_S, governor->power_w);
    governor->powered_ns = sample->time_ns;
    governor->has_power = true;
}

static struct thermal_load load_of(const struct thermal_governor *governor)
{
    /* Until a rest has been seen, "idle" is only the least so far; half of it errs towards less
     * duty. */
    const double idle_w = fmin(governor->power_idle_w, governor->power_w / 2);
    return (struct thermal_load){
        .power_w = governor->power_w, .duty = governor->power_duty, .idle_w = idle_w};
}

static bool knows_power(const struct thermal_governor *governor)
{
    return governor->has_power &&
           thermal_seconds_between(governor->powered_ns, governor->now_ns) <= POWER_WAIT_S;
}

/* The body, where it may be followed. */
static bool governor_model_of(const struct thermal_governor *governor, struct thermal_body *body)
{
    return thermal_fit_trusted(&governor->fit) && knows_power(governor) &&
           thermal_fit_body(&governor->fit, body);
}

/* Where the temperature will be LEAD_S from now, at least: smoothed and along its slope, or the raw
 * reading where that runs away faster than smoothing can follow. */
static double ahead_c(const struct thermal_governor *governor, double step_s)
{
    const struct reading slope = thermal_history_slope(&governor->history, SLOPE_S);
    const double along = slope.valid ? slope.value : 0;
    const double old_s = thermal_seconds_between(governor->sensed_ns, governor->now_ns);
    const double smooth_c = governor->smooth_c + fmax(along, 0) * old_s + fmax(along * LEAD_S, -1);
    const double run_c = governor->temperature_c - governor->smooth_c;
    if (run_c <= NOISE_C || step_s <= 0)
        return smooth_c;
    return fmax(smooth_c, governor->temperature_c + run_c / SMOOTH_S * LEAD_S);
}

/* ---- measures -------------------------------------------------------------------------------- */

static void ask_lower(struct thermal_governor *governor, const struct thermal_load *load)
{
    if (governor->asked_lower)
        return;
    const double since_s = thermal_seconds_between(governor->released_ns, governor->now_ns);
    if (governor->has_released && since_s < RELEASE_TOO_EARLY_S)
        governor->release_wait_s = fmin(governor->release_wait_s * 2, RELEASE_S_MAX);
    governor->asked_lower = true;
    governor->asked_ns = governor->now_ns;
    governor->asked_power_w =
        (struct reading){.value = thermal_load_full_w(load), .valid = knows_power(governor)};
    governor->quiet_s = 0;
}

static void consider_release(struct thermal_governor *governor, double temperature_c, double step_s)
{
    if (!governor->asked_lower)
        return;
    const bool quiet = temperature_c <= governor->lines.resume_c && governor->duty >= 1;
    governor->quiet_s = quiet ? governor->quiet_s + step_s : 0;
    if (governor->quiet_s < governor->release_wait_s)
        return;
    struct thermal_body body;
    const bool leads_back =
        governor_model_of(governor, &body) && governor->asked_power_w.valid &&
        thermal_steady_c(&body, governor->asked_power_w.value) > governor->lines.hold_c;
    if (leads_back && governor->quiet_s < governor->release_wait_s * 10)
        return;
    governor->asked_lower = false;
    governor->released_ns = governor->now_ns;
    governor->has_released = true;
}

/* What the law in force allows, 0 … 1. */
static double governor_allowed(struct thermal_governor *governor, double temperature_c,
                               enum thermal_reason *law)
{
    const struct thermal_lines *lines = &governor->lines;
    struct thermal_body body;
    if (!governor_model_of(governor, &body)) {
        *law = THERMAL_PROPORTION;
        return thermal_duty_proportional(temperature_c, lines->stop_c);
    }
    *law = THERMAL_MODEL;
    const struct thermal_load load = load_of(governor);
    const double model = thermal_duty_model(&body, &load, governor->smooth_c, lines->hold_c);
    return fmin(model, thermal_duty_guard(temperature_c, lines->hold_c, lines->stop_c));
}

/* The duty while the sensor works and nothing is paused. */
static enum thermal_reason governor_run(struct thermal_governor *governor, double temperature_c,
                                        double step_s)
{
    const struct thermal_load load = load_of(governor);
    enum thermal_reason law;
    double duty = governor_allowed(governor, temperature_c, &law);
    struct thermal_body body;
    const bool soon = governor_model_of(governor, &body) &&
                      thermal_seconds_to_heat(&body, governor->smooth_c, governor->power_w,
                                              governor->lines.hold_c) < PRECISION_SOON_S;
    if (duty < 1 || soon || temperature_c >= governor->lines.hold_c - PRECISION_NEAR_C)
        ask_lower(governor, &load);
    const bool may_help =
        thermal_seconds_between(governor->asked_ns, governor->now_ns) < PRECISION_WAIT_S;
    if (governor->asked_lower && may_help && governor->duty >= 1 &&
        temperature_c < governor->lines.hold_c)
        duty = 1;
    duty = fmin(duty, governor->duty + RISE_PER_S * fmin(step_s, 1));
    if (thermal_seconds_between(governor->sensed_ns, governor->now_ns) > 0)
        duty = fmin(duty, governor->duty); /* no reading just now: not higher */
    governor->duty = fmax(duty, DUTY_MIN);
    if (governor->duty < 1)
        return law;
    return governor->asked_lower ? THERMAL_PRECISION : THERMAL_FREE;
}

/* The sensor has been silent for too long. */
static enum thermal_reason run_blind(struct thermal_governor *governor)
{
    if (!governor->lost) {
        governor->lost = true;
        governor->lost_ns = governor->now_ns;
        governor->lost_duty = governor->duty;
    }
    const struct thermal_load load = load_of(governor);
    ask_lower(governor, &load);
    double duty = governor->limits.blind_duty;
    struct thermal_body body;
    if (governor_model_of(governor, &body)) {
        const double safe_w =
            LOST_POWER_SHARE * thermal_power_holding_w(&body, governor->lines.hold_c);
        duty = fmin(thermal_duty_for_power(&load, safe_w), LOST_DUTY_MODEL);
    }
    governor->duty = fmax(fmin(duty, governor->lost_duty), DUTY_MIN);
    return THERMAL_SENSOR_LOST;
}

static bool stays_paused(struct thermal_governor *governor, bool blind)
{
    const struct thermal_lines *lines = &governor->lines;
    const bool was_paused = governor->action.paused;
    if (blind) {
        const uint64_t since_ns = governor->lost ? governor->lost_ns : governor->now_ns;
        return was_paused && thermal_seconds_between(since_ns, governor->now_ns) < LOST_PAUSE_S;
    }
    const double c = fmax(governor->temperature_c, governor->smooth_c);
    return was_paused ? governor->temperature_c > lines->resume_c : c >= lines->stop_c;
}

static enum thermal_reason governor_decide(struct thermal_governor *governor, double step_s)
{
    if (!governor->has_sensed) {
        governor->duty = 1;
        return THERMAL_NO_SENSOR;
    }
    const bool blind =
        thermal_seconds_between(governor->sensed_ns, governor->now_ns) > SENSOR_WAIT_S;
    if (!blind)
        governor->lost = false;
    const bool was_paused = governor->action.paused;
    const bool pause = stays_paused(governor, blind);
    if (pause && !was_paused)
        governor->duty = fmax(governor->duty * AGAIN_DUTY, DUTY_MIN);
    const double temperature_c = ahead_c(governor, step_s);
    if (blind) {
        const enum thermal_reason reason = run_blind(governor);
        governor->action.paused = pause;
        return reason;
    }
    governor->action.paused = pause;
    if (pause) {
        const struct thermal_load load = load_of(governor);
        ask_lower(governor, &load);
        return THERMAL_PAUSED;
    }
    const enum thermal_reason reason = governor_run(governor, temperature_c, step_s);
    consider_release(governor, temperature_c, step_s);
    return reason;
}

/* ---- predictions ----------------------------------------------------------------------------- */

static struct thermal_prospect look_ahead(struct thermal_governor *governor, double step_s)
{
    struct thermal_body body;
    const bool by_model = governor_model_of(governor, &body);
    const struct thermal_situation now = {
        .load = load_of(governor),
        .temperature_c = governor->smooth_c,
        .hold_c = governor->lines.hold_c,
        .line_c = by_model ? governor->lines.hold_c
                           : thermal_duty_proportional_from_c(governor->lines.stop_c),
        .reach_s = by_model ? thermal_duty_reach_s(&body) : LEAD_S,
    };
    if (!knows_power(governor) || !governor->has_sensed || governor->lost)
        return (struct thermal_prospect){.full_s = THERMAL_NEVER};
    thermal_outlook_see(&governor->outlook, &now.load, &governor->fit, step_s);
    return thermal_outlook_ask(&governor->outlook, &governor->fit, &now);
}

static void governor_predict(struct thermal_governor *governor)
{
    struct thermal_action *action = &governor->action;
    action->predicted_c = action->headroom_w = action->headroom_s = (struct reading){0};
    if (!governor->has_sensed || governor->lost)
        return;
    const double now_c = governor->smooth_c, stop_c = governor->lines.stop_c;
    struct thermal_body body;
    if (governor_model_of(governor, &body)) {
        const double power_w = governor->power_w;
        const double hold_w = thermal_power_holding_w(&body, governor->lines.hold_c);
        action->predicted_c =
            reading_of(UNIT_NUMBER, thermal_after_c(&body, now_c, power_w, THERMAL_AHEAD_S));
        action->headroom_w = reading_of(UNIT_NUMBER, hold_w - power_w);
        action->headroom_s =
            reading_of(UNIT_NUMBER, thermal_seconds_to_heat(&body, now_c, power_w, stop_c));
        return;
    }
    const struct reading slope = thermal_history_slope(&governor->history, 2 * THERMAL_AHEAD_S);
    if (!slope.valid)
        return;
    const double s = now_c >= stop_c   ? 0
                     : slope.value > 0 ? (stop_c - now_c) / slope.value
                                       : THERMAL_NEVER;
    action->predicted_c = reading_of(UNIT_NUMBER, now_c + slope.value * THERMAL_AHEAD_S);
    action->headroom_s = reading_of(UNIT_NUMBER, s);
}

/* ---- one step -------------------------------------------------------------------------------- */

/* The clock went back: nothing that counted time may go on counting. */
static void restart_time(struct thermal_governor *governor, uint64_t now_ns)
{
    thermal_fit_interrupt(&governor->fit);
    thermal_history_clear(&governor->history);
    governor->now_ns = governor->sensed_ns = governor->powered_ns = now_ns;
    governor->asked_ns = governor->released_ns = governor->lost_ns = now_ns;
    governor->quiet_s = 0;
}

static void governor_set_duty(struct thermal_governor *governor, bool on_battery,
                              enum thermal_reason reason)
{
    struct thermal_action *action = &governor->action;
    double duty = governor->duty;
    const double battery_duty = fmax(governor->limits.battery_duty, DUTY_MIN);
    if (on_battery && duty > battery_duty) {
        duty = battery_duty;
        reason =
            reason == THERMAL_NO_SENSOR || reason == THERMAL_SENSOR_LOST ? reason : THERMAL_BATTERY;
    }
    const double told = action->duty;
    action->reason = reason;
    action->lower_precision = governor->asked_lower;
    if (action->paused)
        action->duty = 0;
    else if (duty >= 1 || fabs(duty - told) >= DUTY_STEP)
        action->duty = round(fmin(duty, 1) * 1000) / 1000;
}

struct thermal_action thermal_governor_step(struct thermal_governor *governor,
                                            const struct thermal_input *input)
{
    struct thermal_sample sample = thermal_sample_clean(input->sample);
    if (governor->has_now && sample.time_ns <= governor->now_ns) {
        if (sample.time_ns < governor->now_ns)
            restart_time(governor, sample.time_ns);
        return governor->action;
    }
    const double since_s =
        governor->has_now ? thermal_seconds_between(governor->now_ns, sample.time_ns) : 0;
    const double step_s = fmin(since_s, STEP_S_MAX);
    governor->now_ns = sample.time_ns;
    governor->has_now = true;
    governor->lines = lines_of(&governor->limits, input->on_battery);

    sample = governor_confirm(governor, sample);
    see_temperature(governor, &sample);
    see_power(governor, &sample, step_s);
    thermal_history_add(&governor->history, sample);
    thermal_fit_add(&governor->fit, sample);

    const enum thermal_reason reason = governor_decide(governor, step_s);
    if (input->on_battery) {
        const struct thermal_load load = load_of(governor);
        ask_lower(governor, &load);
        governor->quiet_s = 0;
    }
    governor_set_duty(governor, input->on_battery, reason);
    governor->action.prospect = look_ahead(governor, step_s);
    governor_predict(governor);
    assert(governor->action.paused == (governor->action.duty == 0));
    assert(unit_is_plausible(UNIT_SHARE, governor->action.duty));
    return governor->action;
}
