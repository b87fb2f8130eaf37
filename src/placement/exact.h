/* The complete search: the placement with the least objective, proved, or the best so far with the
 * gap.
 *
 * It walks the sequences of distinct devices, depth first. A node is a sequence, and with it a
 * whole vector: for every number b of layers, the least round in which the sequence computes the
 * first b of them (tables.h), so that all cuts of an order are one node. If a valid placement
 * exists it is found, unless it is stopped. What keeps it small:
 *
 *  - domains: a device that can hold no layer (memory, types, excluded) is none; where no link is,
 *    no child.
 *  - bound: layers b … must go on unused devices. Work is measured in w, the time of each layer on
 *    the device that is fastest for it; device d takes at least rate(d) = min t/w for each unit,
 *    holds at most capacity(d), and costs its
 * launch and its cheapest incoming hop once. Filling the cheapest devices first, the fixed cost
 * spread over the capacity, solves the relaxed problem (fractional knapsack: Dantzig, Operations
 * Research 5, 1957), so it is never too high. Entries of the vector that cannot beat the best are
 * struck out (forward checking: when the unused devices cannot hold the rest, or as many as there
 * may still be stages, that is one); a vector without entries is a dead end.
 *  - mix: one walk finds the least round with stages below a limit; all stages that are so long
 *    that, with that round,
 * they are no better than the best need no look, and the next walk has the shorter ones.
 *  - throughput: stages are kept shorter than the best period found, which shrinks windows and
 *    capacities. Each better answer begins the walk anew with smaller ones.
 *  - dominance: two sequences of the same devices with the same last and the same first (or ones
 *    with the same links) differ only in their vectors (Held and Karp, J. SIAM 10, 1962). What is
 *    not below the other's is struck out. Kept
 * in a table of LIMIT_PLACEMENT_TABLE_BYTES that forgets when it is full, which costs time and
 * nothing else.
 *  - symmetry: of interchangeable devices (same numbers, same links) the first unused one stands
 *    for all.
 *  - children in the order of their bound. A run of layers has no order of its own to choose from
 *    (it begins where the
 * last one ended), so minimum-remaining-values has nothing to choose among and is left out.
 *
 * Limits: LIMIT_PLACEMENT_EXACT_DEVICES; of more, the cheapest per unit of work are searched, and
 * nothing is proved. "Proved" is up to PLACEMENT_EPSILON. The same input gives the same answer
 * while no time limit cuts it off. */
#pragma once

#include "placement/sequence.h"

struct exact_limits {
    bool (*go_on)(
        void *self); /* asked every 256 nodes; false ends the search. NULL: never ends it */
    void *self;
    uint64_t max_nodes; /* 0: no limit */
    double enough_gap;  /* of root.h: so far above the bound is near enough; 0: only the best is */
    double enough_s;    /* of exact_search(): a placement that is no slower ends it; 0: none does */
};

struct exact_result {
    bool proved;
    double lower_bound_s; /* no placement has a shorter objective; 0: not known */
    uint64_t nodes;
};

/* *best and *best_s are what is known (INFINITY: nothing) and come back as good or better.
 * out[n_devices]: devices that are not tried, because nothing better has them; NULL: none.
 * longest_limit_s: of the mix, nothing better has a stage of that length or longer; INFINITY: not
 * known. ERROR_NO_MEMORY alone. */
enum error_code exact_search(const struct placement_tables *tables, struct sequence_work *work,
                             const struct exact_limits *limits, const bool *out,
                             double longest_limit_s, struct placement *best, double *best_s,
                             struct exact_result *result, struct error *err);
