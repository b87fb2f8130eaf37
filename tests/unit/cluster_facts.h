/* What was seen once in a cluster_world must be so for ever: one leader for a lineage and term, one
 * entry for a lineage and index, one state for it. */
#pragma once

#include "cluster_world.h"

struct fact {
    struct lineage lineage;
    uint64_t key; /* a term, or an index */
    uint64_t value, by;
    int kind;
};

/* The kinds. */
enum { FACT_LEADER = 1, FACT_ENTRY, FACT_STATE };

struct world_facts *world_facts_new(void);
void world_facts_free(struct world_facts *facts);
/* Kept; says so and aborts if another value is known. */
void world_facts_check(struct world *world, struct fact fact, const char *what);

/* Says the seed and the time, and aborts: the test has failed. */
__attribute__((noreturn, format(printf, 2, 3))) void world_broken(const struct world *world,
                                                                  const char *format, ...);
