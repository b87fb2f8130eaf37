/* The event that says where an instance's stages are to be: from a placement to a message. It
 * points to itself and to the placement's texts: it must not be moved, and they must outlive it.
 * Pure. */
#pragma once

#include "cluster/master.h"

struct placed_event {
    Cluster__Event event;
    Cluster__InstancePlaced placed;
    Cluster__Placement placement; /* the caller may say more in it */
    Cluster__Stage stages[LIMIT_STAGES], *list[LIMIT_STAGES];
};

/* The next epoch: above the last, and none that another placement would get after the same one. A
 * proposal that was not agreed on in one lineage may be in the next, which was founded from the log
 * that holds it, while nodes have loaded what somebody else had placed in the older one; and nodes
 * know what they have loaded by its epoch. So the low bits are a hash of what is placed, and of who
 * proposes it, when and where: one epoch is one list of stages at one
 * precision. (Two lists after one epoch have the
 * same with a chance of one in a million.) */
enum { PLACED_TAG_BITS = 20 };
uint64_t placed_epoch(uint64_t last_epoch, struct lineage lineage, uint64_t term, const char *by,
                      const struct master_placement *placement);

/* The stages of a placement that is there, to be placed once more. */
void placed_again(const Cluster__Placement *placement, struct master_placement *out);
bool placed_streams(const Cluster__Placement *placement); /* part of it comes from a disk */

/* Decided after what the state knows of the instance and of its devices now. */
void placed_event_init(struct placed_event *out, const struct state *state,
                       const Cluster__Instance *instance, const struct master_placement *placement,
                       uint64_t epoch, bool replaces, const char *why);
