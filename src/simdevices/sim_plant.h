/* The heat of a simulated device: what the governor's own model (another room) has to cope with, so
 * this one stays independent of it. Pure: it is told how much time passes.
 *
 * One thermal mass C (J/K) behind one resistance R (K/W) to air at a constant temperature:
 *     C dT/dt = P - (T - ambient) / R
 * (the lumped-capacitance model; Incropera et al., Fundamentals of Heat and Mass Transfer, chapter
 * 5). For a constant P its exact solution is T(t) = T_end + (T(0) - T_end) exp(-t / RC), T_end =
 * ambient + P R, which is what every step uses: the size of a step does not matter.
 *
 * Power: idle, or while it computes idle + (max - idle) x clock^3; dynamic power is C V^2 f, and
 * voltage falls about as frequency does (Weste and Harris, CMOS VLSI Design, chapter 5).
 *
 * Throttling: at `limit_c` the clock falls to `throttled_clock`, until `limit_c - hysteresis_k` is
 * reached. The moment is solved for, not stepped over. A device that is too hot even so goes on
 * heating: it has no emergency stop. */
#pragma once

#include <stdbool.h>

struct plant_params {
    double power_idle_w;
    double power_max_w; /* while it computes at full clock */
    double thermal_mass_j_per_k;
    double resistance_k_per_w;
    double ambient_c;
    double limit_c;
    double hysteresis_k;    /* > 0 */
    double throttled_clock; /* share of the full clock, 0 < x <= 1 */
};

struct plant {
    double temperature_c;
    bool throttled;
};

/* In balance with the air, doing nothing. */
struct plant plant_rested(const struct plant_params *params);

double plant_clock(const struct plant_params *params,
                   const struct plant *plant); /* share of the full clock */
double plant_power_w(const struct plant_params *params, const struct plant *plant, bool busy);

/* `seconds` pass; it computes or not. */
void plant_advance(const struct plant_params *params, struct plant *plant, bool busy,
                   double seconds);

/* Does what takes `seconds` at full clock; returns the seconds that it took. */
double plant_work(const struct plant_params *params, struct plant *plant, double seconds);
