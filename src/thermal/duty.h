/* The governor's two laws: how much of its time a device may compute. Pure; any thread. */
#pragma once

#include "thermal/model.h"

/* Between the lines of governor.h; temperature_c is seen `slope` ahead by the caller. 0 … 1. */
double thermal_duty_proportional(double temperature_c, double stop_c);
double thermal_duty_proportional_from_c(double stop_c); /* up to there it is all */

/* What is known of the power: smoothed, at the duty (0 … 1) that it came with, and at rest. */
struct thermal_load {
    double power_w;
    double duty;
    double idle_w;
};

/* The power that this load would draw at full duty: power is taken to be idle + duty x (full -
 * idle). */
double thermal_load_full_w(const struct thermal_load *load);

/* The duty at which the load draws `power_w`. 0 … 1; 1 where full duty draws less. */
double thermal_duty_for_power(const struct thermal_load *load, double power_w);

/* The duty that brings the body to hold_c. 0 … 1. */
double thermal_duty_model(const struct thermal_body *body, const struct thermal_load *load,
                          double temperature_c, double hold_c);

/* In how long: a third of its time constant, 5 to 30 s. At full duty the law begins to cut so long
 * before that line. */
double thermal_duty_reach_s(const struct thermal_body *body);

/* What either law may not exceed just below the stop line: 1 until a degree above hold, 0 at
 * stop. */
double thermal_duty_guard(double temperature_c, double hold_c, double stop_c);
