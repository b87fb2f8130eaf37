/* What visiting devices costs at least, whatever the order: sets of devices, one within another,
 * with a moat around each. Private to this room.
 *
 * The hops of a placement and its way back are a tour of its devices. A set that has some of them,
 * but not all, is entered and left once at least. If the moats between any two devices are together
 * no wider than the shorter of their two hops, then every tour costs at least twice the moats of
 * the sets that it touches without being inside (moats and control zones: Jünger and Pulleyblank,
 * "Geometric duality and combinatorial optimization", 1993). The way back carries a token and not
 * an activation, so it may be shorter than a hop: by no more than the mean of `back_first` of the
 * first device and `back_last` of the last.
 *
 * The moats grow from every device at once; where two meet, their sets become one (single linkage;
 * Goemans and Williamson, SIAM J. Computing 24, 1995). With one hop between all machines of a home
 * and a shorter one within each, the bound is exact. A set of more than half of the devices may
 * stop growing instead, which is better where most are on a wire and a few on a slow radio; the
 * caller tries both. */
#pragma once

#include "placement/tables.h"

struct moats {
    uint32_t n;         /* devices: nodes 0 … n-1 */
    uint32_t n_nodes;   /* then sets of two nodes each, children before parents; more than one root
                           where links lack */
    uint32_t *left;     /* [n_nodes], of a set */
    uint32_t *right;    /* the same */
    double *moat_s;     /* [n_nodes] */
    double *back_first; /* [n] seconds, may be negative; 0 for a device without links */
    double *back_last;  /* [n] */
};

enum { MOATS_FREEZE_DEVICES = 128 }; /* of more, `freeze` is ignored: it takes devices^3 steps */

/* devices[n], of the problem's. ERROR_NO_MEMORY alone. */
enum error_code moats_init(struct moats *moats, const struct placement_tables *tables,
                           const uint32_t *devices, uint32_t n, bool freeze, struct error *err);
void moats_deinit(struct moats *moats);
