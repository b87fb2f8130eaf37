#include "thermal/duty.h"

#define PROPORTIONAL_BAND_C 12.0
#define GUARD_ABOVE_HOLD_C 1.0
#define REACH_S_MIN 5.0
#define REACH_S_MAX 30.0
#define DUTY_SEEN_MIN 0.05 /* below, a share of the power says too little of the whole */

static double duty_between(double low, double value, double high)
{
    return fmin(fmax(value, low), high);
}

double thermal_duty_proportional(double temperature_c, double stop_c)
{
    return duty_between(0, (stop_c - temperature_c) / PROPORTIONAL_BAND_C, 1);
}

double thermal_duty_proportional_from_c(double stop_c)
{
    return stop_c - PROPORTIONAL_BAND_C;
}

double thermal_load_full_w(const struct thermal_load *load)
{
    return load->idle_w +
           fmax(load->power_w - load->idle_w, 0) / duty_between(DUTY_SEEN_MIN, load->duty, 1);
}

double thermal_duty_for_power(const struct thermal_load *load, double power_w)
{
    const double busy_w = thermal_load_full_w(load) - load->idle_w,
                 allowed_w = power_w - load->idle_w;
    if (allowed_w >= busy_w)
        return 1;
    return duty_between(0, allowed_w / busy_w, 1);
}

double thermal_duty_reach_s(const struct thermal_body *body)
{
    return duty_between(REACH_S_MIN, thermal_time_constant_s(body) / 3, REACH_S_MAX);
}

double thermal_duty_model(const struct thermal_body *body, const struct thermal_load *load,
                          double temperature_c, double hold_c)
{
    const double power_w =
        thermal_power_reaching_w(body, temperature_c, hold_c, thermal_duty_reach_s(body));
    return thermal_duty_for_power(load, power_w);
}

double thermal_duty_guard(double temperature_c, double hold_c, double stop_c)
{
    const double from_c = fmin(hold_c + GUARD_ABOVE_HOLD_C, stop_c - 0.1);
    return duty_between(0, (stop_c - temperature_c) / (stop_c - from_c), 1);
}
