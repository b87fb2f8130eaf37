/* The event that says where an instance's stages are to be: from a placement to a message. It points to itself and to
 * the placement's texts: it must not be moved, and they must outlive it. Pure. */
#pragma once

#include "cluster/master.h"

struct placed_event {
    Cluster__Event event;
    Cluster__InstancePlaced placed;
    Cluster__Placement placement; /* the caller may say more in it */
    Cluster__Stage stages[LIMIT_STAGES], *list[LIMIT_STAGES];
};

/* The next epoch: above the last, and none that another would take after the same one. A proposal that was not agreed
 * on in one lineage may be in the next, which was founded from the log that holds it, while nodes have loaded what
 * somebody else had placed in the older one: so the low bits are a hash of who proposes, when and where. */
enum { PLACED_TAG_BITS = 12 };
uint64_t placed_epoch(uint64_t last_epoch, struct lineage lineage, uint64_t term, const char *by);

/* Decided after what the state knows of the instance now. */
void placed_event_init(struct placed_event *out, const Cluster__Instance *instance,
                       const struct master_placement *placement, uint64_t epoch, bool replaces, const char *why);
