/* Random placement problems from a seed, and the brute force that the solver must equal. */
#pragma once

#include "placement/problem.h"

enum { WORLD_DEVICES = 64, WORLD_LAYERS = 160 };

struct world {
    struct placement_problem problem;
    struct placement_device devices[WORLD_DEVICES];
    struct placement_link links[WORLD_DEVICES * WORLD_DEVICES];
    struct placement_layer layers[WORLD_LAYERS];
    uint64_t seed, counter;
};

struct world_shape {
    uint32_t n_devices, n_layers;
    double tightness;     /* the devices' memory together, relative to the model's; about */
    double links_missing; /* 0 … 1 */
    double twins;         /* 0 … 1: how many devices are copies of the one before */
    bool mixed_types;
};

/* A home: GPUs, laptops, small boards, on Ethernet or Wi-Fi; the model's layers differ a little.
 * Links within a node are fast. The pointers in `world` are to itself: do not copy it. */
void world_make(struct world *world, uint64_t seed, struct world_shape shape);
double world_random(struct world *world);

/* Any shape: tight, impossible, links that lack, twins, layers and devices unlike each other,
 * mixtures of experts, all goals. */
struct world_range {
    uint32_t devices_min, devices_max, layers_min, layers_max;
};
void world_make_any(struct world *world, uint64_t seed, struct world_range range);

/* The least objective over all sequences and all cuts, by the public cost functions and
 * placement_check() alone; INFINITY: no placement. Small problems only. */
double world_brute_force(const struct placement_problem *problem);

/* The same of a stream's mean time for a token, with a micro-batch for each stage (as_run.h). */
double world_brute_force_as_run(const struct placement_problem *problem);

/* The highest sum of rates over all divisions of devices and streams into groups, each rated by
 * rate(): the problem with the other devices excluded and the group's streams (0: impossible). Few
 * devices and streams only. */
double world_all_divisions(const struct placement_problem *problem,
                           double (*rate)(const struct placement_problem *));
