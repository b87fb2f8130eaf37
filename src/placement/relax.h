/* A bound for all devices together, in milliseconds for 64 devices and a second for 1,000. Private
 * to this room.
 *
 * What is given up: where the layers of a stage lie, but for the first and the last; and the order
 * of the devices. What is kept: that each device is used once, whole layers, every device's memory,
 * the length of a stage, the model's unequal ends, and what visiting a set of devices costs at
 * least (moats.h). Layers are counted in units, small whole numbers about proportional to their
 * bytes, so that a device takes windows of u units and all take U together; with equal layers a
 * unit is a layer. That is a knapsack over the tree of the moats,
 *
 *     cost[device][ends][u]  = the shortest stage of u units that fits        ends: has the first
 *                            layer, the last
 *     cost[set][ends][u]     = min over u1 + u2 = u, ends1 + ends2 = ends     of the two parts,
 *                            their moats twice
 *
 * less a price for each layer that a stage has, whose sum is 0: no placement's round changes, but a
 * layer that every device would like to leave out gets dear, and one that two would have cheap
 * (Lagrangian relaxation: Held and Karp, Mathematical Programming 1, 1971). (Tree knapsack: Johnson
 * and Niemi, Mathematics of Operations Research 8, 1983.) It is exact for what it keeps: what it
 * gives is never above the least round, and the devices that it takes are near the best ones. */
#pragma once

#include "placement/moats.h"

enum relax_status { RELAX_FREE, RELAX_OUT, RELAX_IN };

struct relax {
    const struct placement_tables *tables;
    uint32_t n;        /* devices that can hold a layer */
    uint32_t *devices; /* [n] of the problem's */
    uint8_t *status;   /* [n] enum relax_status: free to be used, not to be used, to be used; the
                          caller's */
    struct moats moats;
    uint32_t units;
    uint16_t *unit; /* [n_layers + 1] prefix sums */
    uint16_t *low;  /* [n_layers + 1] */
    double *price;  /* [n_layers + 1] prefix sums, 0 in the end: what a stage is paid for a layer */
    uint32_t *most; /* [nodes] units that its devices hold at most */
    uint32_t *must; /* [nodes] devices of it that are to be used */
    uint64_t *cells; /* [nodes] where its table begins: [4][most + 1] */
    double *table;
    uint64_t n_cells;
    uint32_t top; /* of the last answer: the least set with all devices in use */
};

/* `freeze`: as moats_init(). ERROR_NO_MEMORY alone. */
enum error_code relax_init(struct relax *relax, const struct placement_tables *tables, bool freeze,
                           struct error *err);
void relax_deinit(struct relax *relax);

/* No placement whose stages are all shorter than limit_s has a shorter round; INFINITY: there is
 * none. */
double relax_round(struct relax *relax, double limit_s);

/* The devices of the last answer, those that are near each other together, the one with the first
 * layer first, the one with the last one last. Of an answer below INFINITY. Returns how many; 0:
 * more than LIMIT_STAGES. */
uint32_t relax_devices(const struct relax *relax, uint32_t devices[LIMIT_STAGES]);

/* Finds prices that raise the bound for limit_s, towards target_s; *round_s what it then is. False:
 * there are none. */
bool relax_sharpen(struct relax *relax, double limit_s, double target_s, double *round_s);
