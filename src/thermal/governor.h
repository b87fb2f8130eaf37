/* Keeps a device below its temperature limit, with as little harm as it can: one governor per
 * device.
 *
 * Called every 500 ms with what the sensors say, it answers what the device may do until the next
 * call. The lines, from the top, for a limit of 83 °C on mains:
 *
 *     limit         83   never reached
 *     stop          78   limit - margin (5 °C; 10 on battery): paused, until hysteresis (10 °C)
 *                   below it
 *     hold          75   stop - 3: where a device is kept that could go hotter
 *     resume        68   stop - 10
 *
 * Measures, in this order:
 *  1. Lower precision is asked for when the hold line is near or the model says that it will be
 *  reached within a
 * minute. Whether anything answers is not this room's business. It is taken back after a quiet
 * minute below the resume line, unless the model says that the power of before would lead back;
 * taken back too early once, it waits twice as long the next time (an hour at most), so that it
 * cannot go back and forth.
 *  2. Duty: the share of time the device may compute. While the fit is trusted and power is known,
 *  the power that
 * brings the temperature to the hold line in a third of the time constant (5 to 30 s): the
 * feed-forward of the power that holds it, plus a term in proportion to what is missing. Its share
 * of the power at full duty is the duty. Otherwise a proportional law: full duty up to 12 °C below
 * the stop line, none at it. Both see the temperature 2 s ahead along its slope, and rise slowly (5
 * % a step) but fall at once. Full duty below is not cut during the first 5 s after precision was
 * asked for, unless the hold line is passed.
 *  3. Pause at the stop line. After a pause duty starts anew from a quarter of what it was.
 *
 * On battery or mobile: margin 10 °C, duty at most 60 %, lower precision asked for at once.
 *
 * Readings may be missing. For 2 s the last temperature stands, carried along its slope if that
 * rises. After that the sensor counts as lost: duty at most 25 %, or, while the model is trusted,
 * at most 50 % and 70 % of the power that it says holds the line, never more than before; a paused
 * device stays paused for five more minutes. A leap of more than 15 °C between two readings must be
 * confirmed by a second one. A device that has never shown a temperature is not governed: full duty
 * (on battery 60 %) and THERMAL_NO_SENSOR. Whoever shows this state must show that.
 *
 * What it can promise: it acts on readings, so a device that gains more than the margin within one
 * step plus its sensor's delay cannot be kept below the limit by anyone. The tests' devices gain up
 * to 17 K/s when work starts (the die alone), have sensors up to 2 s late and steps up to 2 °C. A
 * single body that gains 7 K/s behind a sensor 4 s late did pass its limit in a trial, by 0.2 K; 28
 * K/s behind 2 s, by 0.9 K.
 *
 * What it costs: a duty cycle saves power in proportion to work. A device whose own throttling
 * lowers the voltage with the clock saves more, and does more work at the same heat
 * (bench/README.md, "Heat"); one that halves its clock at full voltage does less.
 *
 * Time that goes back, or stands still, repeats the last action and restarts what counts time.
 * Zeroed limits are the defaults for a device whose limit is not known (85 °C).
 *
 * Pure, no allocation; one thread. Example:
 *
 *     struct thermal_governor governor;
 *     thermal_governor_init(&governor, thermal_limits_default(83000));
 *     every 500 ms: action = thermal_governor_step(&governor, &input);
 *                   device_set_duty(device, action.duty); */
#pragma once

#include "thermal/fit.h"
#include "thermal/history.h"
#include "thermal/outlook.h"

struct thermal_limits {
    int64_t limit_mc;   /* the device's own; outside 30 … 130 °C it is not believed: 85 °C */
    uint32_t margin_mc; /* stop this far below */
    uint32_t battery_margin_mc; /* the same on battery */
    uint32_t hysteresis_mc;     /* resume this far below stop */
    double battery_duty;        /* shares of its time, as all duties */
    double blind_duty;          /* sensor lost, model not trusted */
};
struct thermal_limits thermal_limits_default(int64_t limit_mc);
bool thermal_limit_is_believed(int64_t limit_mc);

/* What binds, weakest first. */
enum thermal_reason {
    THERMAL_FREE,        /* nothing */
    THERMAL_NO_SENSOR,   /* nothing: it has never shown a temperature */
    THERMAL_BATTERY,     /* the battery's duty */
    THERMAL_PRECISION,   /* lower precision is asked for, full duty */
    THERMAL_MODEL,       /* duty held by the fitted model */
    THERMAL_PROPORTION,  /* duty held by the proportional law */
    THERMAL_SENSOR_LOST, /* the blind duty, or still paused */
    THERMAL_PAUSED,      /* too hot, or not yet cool again */
};
const char *thermal_reason_text(enum thermal_reason reason);
uint32_t thermal_permille(double duty); /* as people and JSON are told */

struct thermal_action {
    bool lower_precision;
    bool paused;
    double duty; /* 0 to 1 in whole thousandths, so that it moves in steps; 0 exactly when paused */
    enum thermal_reason reason;
    struct reading predicted_c; /* in THERMAL_AHEAD_S at the power of now */
    struct reading
        headroom_w; /* the power that holds the hold line, less that of now; may be negative */
    struct reading headroom_s;        /* until the stop line at the power of now; THERMAL_NEVER when
                                                it is not reached */
    struct thermal_prospect prospect; /* what it can keep up; of use to who places work */
};
#define THERMAL_AHEAD_S 10.0

struct thermal_input {
    struct thermal_sample sample; /* with the time of this step */
    bool on_battery;              /* or mobile */
};

struct thermal_lines {
    double limit_c;
    double stop_c;
    double hold_c;
    double resume_c;
};

struct thermal_governor {
    struct thermal_limits limits;
    struct thermal_fit fit;
    struct thermal_history history;
    struct thermal_outlook outlook;
    struct thermal_action action; /* the last one */
    struct thermal_lines lines;   /* of the last step */

    uint64_t now_ns; /* of the last step */
    bool has_now;

    /* temperature */
    uint64_t sensed_ns;         /* of the last valid one */
    double temperature_c;       /* that one */
    double smooth_c;            /* rounding taken off */
    struct reading unconfirmed; /* a leap that waits for a second one like it */
    bool has_sensed;

    /* power, smoothed, with the duty that it came with */
    double power_w;
    double power_duty;   /* 0 … 1 */
    double power_idle_w; /* the least of late */
    uint64_t powered_ns;
    bool has_power;

    /* measures */
    double duty;      /* 0 … 1 before rounding; while paused, what to start from */
    double lost_duty; /* when the sensor was lost */
    bool lost;
    uint64_t lost_ns;
    bool asked_lower;
    uint64_t asked_ns;
    struct reading asked_power_w; /* of then */
    double quiet_s;               /* unrestricted and cool for so long */
    double release_wait_s;
    uint64_t released_ns;
    bool has_released;
};

void thermal_governor_init(struct thermal_governor *governor, struct thermal_limits limits);
struct thermal_action thermal_governor_step(struct thermal_governor *governor,
                                            const struct thermal_input *input);
