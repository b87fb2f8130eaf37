#include "simdevices/sim_plant.h"

#include <assert.h>
#include <math.h>

/* Changes of clock in one call. Beyond it (a tiny mass, a tiny hysteresis, a long time) the
 * temperature stands still for the rest: it could not move by more than the hysteresis anyway. */
enum { CHANGES_MAX = 100000 };

struct plant plant_rested(const struct plant_params *params)
{
    return (struct plant){.temperature_c = params->ambient_c +
                                           params->power_idle_w * params->resistance_k_per_w};
}

double plant_clock(const struct plant_params *params, const struct plant *plant)
{
    return plant->throttled ? params->throttled_clock : 1;
}

double plant_power_w(const struct plant_params *params, const struct plant *plant, bool busy)
{
    double clock = plant_clock(params, plant);
    return params->power_idle_w +
           (busy ? (params->power_max_w - params->power_idle_w) * clock * clock * clock : 0);
}

static double end_temperature(const struct plant_params *params, const struct plant *plant,
                              bool busy)
{
    return params->ambient_c + plant_power_w(params, plant, busy) * params->resistance_k_per_w;
}

static double turning_point(const struct plant_params *params, const struct plant *plant)
{
    return plant->throttled ? params->limit_c - params->hysteresis_k : params->limit_c;
}

/* Seconds until the clock changes if nothing else does; INFINITY: never. */
static double seconds_to_change(const struct plant_params *params, const struct plant *plant,
                                bool busy)
{
    double now = plant->temperature_c, goal = turning_point(params, plant),
           end = end_temperature(params, plant, busy);
    if (plant->throttled ? now <= goal : now >= goal)
        return 0;
    if (plant->throttled ? end >= goal : end <= goal)
        return INFINITY;
    return params->resistance_k_per_w * params->thermal_mass_j_per_k *
           log((now - end) / (goal - end));
}

static void sim_plant_heat(const struct plant_params *params, struct plant *plant, bool busy,
                           double seconds)
{
    double end = end_temperature(params, plant, busy);
    double decay = exp(-seconds / (params->resistance_k_per_w * params->thermal_mass_j_per_k));
    plant->temperature_c = end + (plant->temperature_c - end) * decay;
}

static void change_clock(const struct plant_params *params, struct plant *plant)
{
    plant->temperature_c = plant->throttled
                               ? fmin(plant->temperature_c, turning_point(params, plant))
                               : fmax(plant->temperature_c, turning_point(params, plant));
    plant->throttled = !plant->throttled;
}

void plant_advance(const struct plant_params *params, struct plant *plant, bool busy,
                   double seconds)
{
    assert(seconds >= 0);
    for (int i = 0; i < CHANGES_MAX; i++) {
        double until = seconds_to_change(params, plant, busy);
        if (until >= seconds) {
            sim_plant_heat(params, plant, busy, seconds);
            return;
        }
        sim_plant_heat(params, plant, busy, until);
        change_clock(params, plant);
        seconds -= until;
    }
}

double plant_work(const struct plant_params *params, struct plant *plant, double seconds)
{
    assert(seconds >= 0);
    double spent = 0;
    for (int i = 0; i < CHANGES_MAX; i++) {
        double clock = plant_clock(params, plant), until = seconds_to_change(params, plant, true);
        if (until >= seconds / clock) {
            sim_plant_heat(params, plant, true, seconds / clock);
            return spent + seconds / clock;
        }
        sim_plant_heat(params, plant, true, until);
        change_clock(params, plant);
        seconds -= until * clock;
        spent += until;
    }
    return spent + seconds / plant_clock(params, plant);
}
