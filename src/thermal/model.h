/* How a device heats and cools: one or two lumps of metal, each at one temperature.
 *
 * Lumped capacitance with Newton's law of cooling (Incropera, DeWitt, Bergman, Lavine: Fundamentals
 * of Heat and Mass Transfer, chapter 5, "The Lumped Capacitance Method"): a body of thermal mass C
 * (J/K) that takes up the power P (W) and gives heat to air of T_ambient (°C) through a resistance
 * R (K/W) obeys
 *
 *     C dT/dt = P - (T - T_ambient) / R
 *
 * With P constant for t seconds the solution is exact, whatever t is:
 *
 *     T_steady = T_ambient + R P          tau = R C
 *     T(t)     = T_steady + (T(0) - T_steady) exp(-t / tau)          heating and cooling alike
 *
 * from which follow the power that holds a temperature, P = (T - T_ambient) / R, the power that
 * reaches one in t seconds, and the time to a limit, t = tau ln((T_steady - T(0)) / (T_steady -
 * T_limit)).
 *
 * It is valid while heat spreads inside the lump faster than it leaves (Biot number below 0.1):
 * right for a heatsink, rough for a die on one. The second node below is for that.
 *
 * Pure functions of finite numbers, any thread. A body must be physical (asserted); a negative time
 * counts as none. exp, expm1 and log of the C library are the only ones used, on arguments where
 * they cannot fail. */
#pragma once

#include <math.h>
#include <stdbool.h>

#define THERMAL_NEVER INFINITY /* seconds: the limit is not reached at this power */

struct thermal_body {
    double capacity_j_per_k;   /* > 0 */
    double resistance_k_per_w; /* > 0 */
    double ambient_c;          /* of all that cools it: air, and neighbours that it cannot heat */
};

bool thermal_body_is_physical(const struct thermal_body *body);

double thermal_time_constant_s(const struct thermal_body *body);
double thermal_steady_c(const struct thermal_body *body, double power_w);
double thermal_after_c(const struct thermal_body *body, double start_c, double power_w,
                       double seconds);

/* The power at which the temperature stays; 0 where the air alone is warmer than that. */
double thermal_power_holding_w(const struct thermal_body *body, double target_c);

/* The power that brings it from start to target in so many seconds (> 0). Negative: even no power
 * is too much. */
double thermal_power_reaching_w(const struct thermal_body *body, double start_c, double target_c,
                                double seconds);

/* Seconds until it has heated up to that temperature: 0 when it is there or
 * beyond, THERMAL_NEVER when this power does not lead there. */
double thermal_seconds_to_heat(const struct thermal_body *body, double start_c, double power_w,
                               double limit_c);

/* Two nodes: a die that takes the power, on a heatsink that the air cools.
 *
 *     C_die  dT_die/dt  = P - (T_die - T_sink) / R_die
 *     C_sink dT_sink/dt = (T_die - T_sink) / R_die - (T_sink - T_ambient) / R_sink
 */
struct thermal_pair {
    double die_capacity_j_per_k;
    double die_resistance_k_per_w; /* die to sink */
    double sink_capacity_j_per_k;
    double sink_resistance_k_per_w; /* sink to air */
    double ambient_c;
};

struct thermal_pair_state {
    double die_c;
    double sink_c;
};

bool thermal_pair_is_physical(const struct thermal_pair *pair);
struct thermal_pair_state thermal_pair_steady(const struct thermal_pair *pair, double power_w);

/* Exact for any time: the exponential of the 2 x 2 system matrix A by Sylvester's formula, exp(A t)
 * = [exp(l1 t) (A - l2 I) - exp(l2 t) (A - l1 I)] / (l1 - l2); the eigenvalues l1, l2 of such a
 * network are real, negative and apart. */
struct thermal_pair_state thermal_pair_after(const struct thermal_pair *pair,
                                             struct thermal_pair_state start, double power_w,
                                             double seconds);
