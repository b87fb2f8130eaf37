#include "thermal/model.h"

#include <assert.h>

static bool is_positive(double value)
{
    return isfinite(value) && value > 0;
}

bool thermal_body_is_physical(const struct thermal_body *body)
{
    return is_positive(body->capacity_j_per_k) && is_positive(body->resistance_k_per_w) &&
           is_positive(body->capacity_j_per_k * body->resistance_k_per_w) &&
           isfinite(body->ambient_c);
}

double thermal_time_constant_s(const struct thermal_body *body)
{
    assert(thermal_body_is_physical(body));
    return body->capacity_j_per_k * body->resistance_k_per_w;
}

double thermal_steady_c(const struct thermal_body *body, double power_w)
{
    return body->ambient_c + body->resistance_k_per_w * power_w;
}

double thermal_after_c(const struct thermal_body *body, double start_c, double power_w,
                       double seconds)
{
    const double steady_c = thermal_steady_c(body, power_w);
    return steady_c + (start_c - steady_c) * exp(-fmax(seconds, 0) / thermal_time_constant_s(body));
}

double thermal_power_holding_w(const struct thermal_body *body, double target_c)
{
    assert(thermal_body_is_physical(body));
    return fmax((target_c - body->ambient_c) / body->resistance_k_per_w, 0);
}

double thermal_power_reaching_w(const struct thermal_body *body, double start_c, double target_c,
                                double seconds)
{
    assert(seconds > 0);
    const double gone =
        -expm1(-seconds / thermal_time_constant_s(body)); /* the part of the way, 0 to 1 */
    return (start_c + (target_c - start_c) / gone - body->ambient_c) / body->resistance_k_per_w;
}

/* From `start` to `goal`, which lies on the way to the steady temperature or is never reached. */
static double thermal_model_seconds_between(const struct thermal_body *body, double start_c,
                                            double power_w, double goal_c)
{
    const double steady_c = thermal_steady_c(body, power_w);
    const double way = steady_c - start_c, rest = steady_c - goal_c;
    if (rest == 0 || way / rest <= 0)
        return THERMAL_NEVER;
    return thermal_time_constant_s(body) * log(way / rest);
}

double thermal_seconds_to_heat(const struct thermal_body *body, double start_c, double power_w,
                               double limit_c)
{
    if (start_c >= limit_c)
        return 0;
    return thermal_steady_c(body, power_w) > limit_c
               ? thermal_model_seconds_between(body, start_c, power_w, limit_c)
               : THERMAL_NEVER;
}

/* ---- two nodes ------------------------------------------------------------------------- */

bool thermal_pair_is_physical(const struct thermal_pair *pair)
{
    return is_positive(pair->die_capacity_j_per_k) && is_positive(pair->die_resistance_k_per_w) &&
           is_positive(pair->sink_capacity_j_per_k) && is_positive(pair->sink_resistance_k_per_w) &&
           isfinite(pair->ambient_c);
}

struct thermal_pair_state thermal_pair_steady(const struct thermal_pair *pair, double power_w)
{
    const double sink_c = pair->ambient_c + pair->sink_resistance_k_per_w * power_w;
    return (struct thermal_pair_state){.die_c = sink_c + pair->die_resistance_k_per_w * power_w,
                                       .sink_c = sink_c};
}

struct thermal_pair_state thermal_pair_after(const struct thermal_pair *pair,
                                             struct thermal_pair_state start, double power_w,
                                             double seconds)
{
    assert(thermal_pair_is_physical(pair));
    const double die_to_sink = 1 / pair->die_resistance_k_per_w,
                 sink_to_air = 1 / pair->sink_resistance_k_per_w;
    const double a = -die_to_sink / pair->die_capacity_j_per_k, b = -a;
    const double c = die_to_sink / pair->sink_capacity_j_per_k;
    const double d = -(die_to_sink + sink_to_air) / pair->sink_capacity_j_per_k;

    const double middle = (a + d) / 2,
                 half_gap = sqrt((a - d) * (a - d) / 4 + b * c); /* b c > 0: real and apart */
    const double fast = middle - half_gap;
    const double slow =
        b * sink_to_air / pair->sink_capacity_j_per_k / fast; /* det A / fast: nothing cancels */
    const double t = fmax(seconds, 0);
    const double grow_fast = exp(fast * t), grow_slow = exp(slow * t);

    const struct thermal_pair_state steady = thermal_pair_steady(pair, power_w);
    const double die = start.die_c - steady.die_c, sink = start.sink_c - steady.sink_c;
    const double moved_die = a * die + b * sink, moved_sink = c * die + d * sink; /* A x */
    const double by_slow = grow_slow / (slow - fast), by_fast = grow_fast / (slow - fast);
    return (struct thermal_pair_state){
        .die_c =
            steady.die_c + by_slow * (moved_die - fast * die) - by_fast * (moved_die - slow * die),
        .sink_c = steady.sink_c + by_slow * (moved_sink - fast * sink) -
                  by_fast * (moved_sink - slow * sink),
    };
}
