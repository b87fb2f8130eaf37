#include "thermal_plant.h"

#include "base/random.h"

#define SLICE_S 0.05

/* Would all go far beyond their limits at full load. C in J/K, R in K/W. */
const struct plant_kind plant_kinds[PLANT_KINDS] = {
    {"desktop GPU", {300, 0.25, 25}, {0}, 40, 100, 180, 83, 60, 0.5, 1, 0.2, 4},
    {"desktop GPU in a hot case", {350, 0.22, 45}, {0}, 35, 90, 165, 83, 50, 0.5, 1, 0.2, 4},
    {"small desktop GPU", {120, 0.5, 28}, {0}, 12, 40, 78, 80, 20, 0.3, 1, 0.2, 2},
    {"laptop GPU", {60, 1.2, 25}, {0}, 8, 20, 42, 87, 25, 0.5, 1, 0.3, 1},
    {"laptop processor", {40, 1.5, 28}, {0}, 5, 12, 38, 95, 12, 0.2, 1, 1, 1},
    {"mini PC", {150, 1.8, 30}, {0}, 6, 10, 30, 90, 9, 0.5, 1, 0.5, 1},
    {"phone", {30, 6, 25}, {0}, 1, 3, 6, 65, 5, 1, 1, 0.2, 0.2},
    {"single-board computer", {12, 8, 25}, {0}, 2, 2, 5, 80, 3, 0.2, 0.5, 0.2, 0.1},
    {"quick and small", {40, 0.5, 25}, {0}, 15, 45, 90, 85, 15, 0.3, 1, 0.3, 2},
    {"slow and large", {2500, 0.2, 22}, {0}, 60, 120, 220, 80, 80, 1, 1, 0.2, 5},
    {"GPU, die on sink", {0}, {30, 0.08, 400, 0.2, 25}, 35, 95, 170, 83, 55, 0.5, 1, 0.2, 4},
    {"GPU, small die", {0}, {15, 0.1, 500, 0.18, 25}, 30, 70, 150, 83, 45, 0.3, 1, 0.2, 4},
    {"server card, passive", {0}, {40, 0.1, 600, 0.25, 35}, 40, 80, 180, 90, 60, 1, 1, 0.2, 4},
    {"laptop, vapour chamber", {0}, {10, 0.3, 150, 0.9, 27}, 8, 22, 45, 87, 22, 0.5, 1, 0.3, 1},
    {"late sensor", {200, 0.35, 25}, {0}, 30, 70, 130, 83, 40, 2, 1, 0.3, 4},
    {"coarse sensor", {250, 0.3, 25}, {0}, 30, 70, 150, 85, 40, 0.5, 2, 0, 8},
};

double plant_random(struct plant *plant)
{
    return random_unit_at(plant->seed, plant->n_drawn++) * 2 - 1;
}

void plant_init(struct plant *plant, const struct plant_kind *kind, uint64_t seed)
{
    const bool two = kind->pair.die_capacity_j_per_k > 0;
    const double ambient_c = two ? kind->pair.ambient_c : kind->body.ambient_c;
    *plant = (struct plant){.kind = *kind,
                            .state = {ambient_c, ambient_c},
                            .sensed_c = ambient_c,
                            .power_w = kind->idle_w,
                            .max_c = ambient_c,
                            .seed = seed};
}

static void throttle(struct plant *plant)
{
    plant->dropped_s += SLICE_S;
    if (plant->state.die_c <= plant->kind.limit_c - 10)
        plant->n_drops = 0;
    if (plant->state.die_c < plant->kind.limit_c || plant->n_drops == 4 ||
        (plant->n_drops && plant->dropped_s < 1))
        return;
    plant->n_drops++;
    plant->dropped_s = 0;
}

static void slice(struct plant *plant, double duty, double load)
{
    const struct plant_kind *kind = &plant->kind;
    plant->pulse += duty * load;
    const bool busy = plant->pulse >= 1 - 1e-9;
    plant->pulse -= busy;
    const double n_drops = plant->throttling.clock > 0 ? plant->n_drops : 0;
    const double core = n_drops > 0 ? pow(plant->throttling.core_power, n_drops) : 1;
    const double clock = n_drops > 0 ? pow(plant->throttling.clock, n_drops) : 1;
    double power_w = kind->idle_w;
    if (busy) {
        power_w += kind->fixed_w + kind->core_w * core;
        plant->tokens += kind->tokens_per_s * SLICE_S * clock;
    }
    if (kind->pair.die_capacity_j_per_k > 0)
        plant->state = thermal_pair_after(&kind->pair, plant->state, power_w, SLICE_S);
    else
        plant->state.die_c = thermal_after_c(&kind->body, plant->state.die_c, power_w, SLICE_S);
    plant->power_w += power_w;
    plant->max_c = fmax(plant->max_c, plant->state.die_c);
    throttle(plant);
}

void plant_step(struct plant *plant, double duty, double load, double seconds)
{
    const int n = (int)lround(seconds / SLICE_S);
    const double keep = plant->kind.lag_s > 0 ? exp(-SLICE_S / plant->kind.lag_s) : 0;
    plant->power_w = 0;
    for (int i = 0; i < n; i++) {
        slice(plant, duty, load);
        plant->sensed_c = plant->state.die_c + (plant->sensed_c - plant->state.die_c) * keep;
    }
    plant->power_w /= n;
}

struct thermal_sample plant_sample(struct plant *plant, uint64_t now_ns)
{
    const struct plant_kind *kind = &plant->kind;
    double c = plant->sensed_c + kind->noise_c * plant_random(plant);
    if (kind->round_c > 0)
        c = round(c / kind->round_c) * kind->round_c;
    const double w = plant->power_w + kind->noise_w * plant_random(plant);
    return (struct thermal_sample){
        now_ns, {round(c * 1e3), true}, {round(fmax(w, 0.001) * 1e3), true}};
}
