/* A made-up device that heats up as physics says: one or two nodes, a power curve, a vendor's
 * throttling law, and sensors that round, lag and lie a little. For the tests and for
 * bench/thermal.c.
 *
 * It works in slices of 50 ms, each wholly busy or wholly at rest, as a duty cycle is. */
#pragma once

#include "thermal/governor.h"

struct plant_kind {
    const char *name;
    struct thermal_body body; /* one node … */
    struct thermal_pair pair; /* … or two, where its capacities are not 0 */
    double idle_w;            /* always */
    double fixed_w;           /* when busy: memory, leakage: what a lower clock does not save */
    double core_w;            /* when busy, at full clock */
    double limit_c;
    double tokens_per_s; /* busy all the time at full clock */
    double lag_s;        /* of the temperature sensor, first order */
    double round_c;      /* its steps */
    double noise_c;      /* uniform, +- */
    double noise_w;
};

/* The vendor's: at the limit the clock drops, and again every second that it stays there, until it
 * is 10 °C cooler; then all comes back. Zeroed: none. */
struct plant_throttling {
    double clock;      /* of the clock before, at each drop */
    double core_power; /* of the core's power before: `clock` without, less with a lower voltage */
};

struct plant {
    struct plant_kind kind;
    struct plant_throttling throttling;
    struct thermal_pair_state state; /* one node: die_c */
    double sensed_c;
    double power_w; /* mean of the last step */
    double max_c;   /* hottest ever */
    double tokens;
    double pulse;
    uint32_t n_drops; /* in force */
    double dropped_s; /* since the last one */
    uint64_t seed;
    uint64_t n_drawn;
};

void plant_init(struct plant *plant, const struct plant_kind *kind,
                uint64_t seed); /* at the ambient's temperature */
/* `load`: the share of slices that it may use for which there is work; 0 … 1. */
void plant_step(struct plant *plant, double duty, double load, double seconds);
struct thermal_sample plant_sample(struct plant *plant, uint64_t now_ns);
double plant_random(struct plant *plant); /* -1 … 1 */

enum { PLANT_KINDS = 16 };
extern const struct plant_kind plant_kinds[PLANT_KINDS];
