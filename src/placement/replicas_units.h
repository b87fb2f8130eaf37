/* What a group is made of: devices that are alike, counted; or blocks of devices that stay
 * together. Private to placement_replicate().
 *
 * A state says how many copies of each unit are in a set: a number in mixed radix, so that of two
 * sets, one within the other, the difference of states is the state of the difference. */
#pragma once

#include "placement/problem.h"

enum { REPLICAS_UNITS = 64, REPLICAS_STATES = 1024 };

struct replicas_unit {
    uint32_t first;  /* in `devices` */
    uint32_t size;   /* devices of one copy */
    uint32_t copies; /* one behind the other */
    uint32_t step;   /* what a copy adds to a state */
};

struct replicas_units {
    uint32_t n_devices;
    uint32_t *devices; /* of the problem's */
    uint32_t n_units;
    struct replicas_unit units[REPLICAS_UNITS];
    uint32_t n_states;
    uint8_t *counts; /* [state * n_units + unit] */
    bool merged;     /* there are blocks that could be divided */
};

/* Of the devices with able[n_devices]; at most max_steps pairs of a set and one within it.
 * ERROR_NO_MEMORY alone. */
enum error_code replicas_units_init(struct replicas_units *units,
                                    const struct placement_problem *problem, const bool *able,
                                    double max_steps, struct error *err);
void replicas_units_deinit(struct replicas_units *units);

bool replicas_contains(const struct replicas_units *units, uint32_t set, uint32_t part);
