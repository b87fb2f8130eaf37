/* Which log a node follows. A cluster's log starts with its first node (generation 1). When the
 * voters are gone for good, a survivor founds it anew from its copy with the next generation
 * (replica.h, "Re-founding"); two that do so apart from each other differ in the founder. Of two
 * lineages that meet, the higher one stays and the nodes of the other drop their log and join.
 * Zeroed: none yet, below all others. Pure. */
#pragma once

#include <stdint.h>

struct lineage {
    uint64_t generation;
    uint64_t founder; /* the founder's member id */
};

/* Below 0, 0 or above 0, like memcmp. */
static inline int lineage_compare(struct lineage a, struct lineage b)
{
    if (a.generation != b.generation)
        return a.generation < b.generation ? -1 : 1;
    return (a.founder > b.founder) - (a.founder < b.founder);
}
