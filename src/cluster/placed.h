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

/* Decided after what the state knows of the instance now. */
void placed_event_init(struct placed_event *out, const Cluster__Instance *instance,
                       const struct master_placement *placement, uint64_t epoch, bool replaces, const char *why);
