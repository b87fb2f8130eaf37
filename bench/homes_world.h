/* Random homes: the machines that people own, the network between them, and a model that they might
 * want to run.
 *
 * A home is drawn from its seed alone. Everything it is drawn from lies in the tables of
 * homes_world.c:
 *
 *  - machines: 2 to 5 of them, drawn independently by how common they are: laptops, PCs with and
 *    without a graphics card, Macs, mini PCs, home servers, old PCs, Raspberry Pis. A PC with a
 *    card has two devices, the card and the processor; a Mac has one, with the memory that macOS
 *    lets a GPU have.
 *  - speeds: the data sheets' memory bandwidth and half-precision FLOP/s, times what programs reach
 *    of it (per kind of device, and 10 % up or down for each specimen). Memory: what is left beside
 *    the desktop and its programs.
 *  - network: a switch of 1, 2.5 or 10 Gbit/s; what can be carried is mostly on Wi-Fi, the rest
 *    mostly on cable. Two machines on Wi-Fi share the air.
 *  - models: open ones from 3 to 123 billion weights, dense and mixtures, by the figures of their
 *    configuration files,
 * in types that people use. One home in two (where there is such a model) wants one that no device
 * of it holds alone,
 *    the others one that some device does. Within that, each model and type that fits into all
 *    memory together with a tenth to spare is as likely as another.
 *
 * How common each machine is, is a judgement, not a survey. It was written down once, before any
 * result. */
#pragma once

#include "placement/problem.h"

enum { HOME_MACHINES = 5, HOME_DEVICES = 16, HOME_LAYERS = 128, HOME_CONTEXT = 8192 };

struct home {
    struct placement_problem problem; /* latency, one stream, HOME_CONTEXT */
    struct placement_device devices[HOME_DEVICES];
    struct placement_link links[HOME_DEVICES * HOME_DEVICES];
    struct placement_layer layers[HOME_LAYERS];
    bool is_main[HOME_DEVICES]; /* the machine's fastest: its card, or its processor where it has
                                   none */
    uint32_t n_machines;
    const char *model;  /* "70B" … */
    const char *type;   /* "Q4_K" … */
    bool needs_several; /* no device holds it alone */
    uint64_t seed, counter;
};

/* False: no model at all fits into this home. The pointers in `home` are to itself: do not copy
 * it. */
bool home_make(struct home *home, uint64_t seed);
