/* Spare copies of weights, in the cluster (placing/spread.h): nodes tell what is on their disks,
 * the leader says who is to keep a copy of what and how many losses each instance survives, and
 * each node does what falls to it (weights_spread()). On the loop's thread. */
#pragma once

#include "cluster/state.h"
#include "placing/spread.h"

#include "node.pb-c.h"

struct daemon;

/* What this node's NOW says of weights; large, and the loop's alone. */
struct spreading_told {
    Node__OnDisk on_disk[LIMIT_SPREAD_RANGES], *on_disk_list[LIMIT_SPREAD_RANGES];
    Node__SpareCopy copies[LIMIT_SPREAD_RANGES], *copy_list[LIMIT_SPREAD_RANGES];
    Node__Survival survivals[LIMIT_CLUSTER_INSTANCES], *survival_list[LIMIT_CLUSTER_INSTANCES];
};
/* Points into `told`. A leader's says copies and survivals, too. */
void spreading_tell(struct daemon *daemon, struct spreading_told *told, Node__Now *now);
void spreading_untell(Node__Now *now); /* takes the pointers out again */

void spreading_step(struct daemon *daemon); /* now and then: does what the leader says */

/* As the leader says, whoever that is; NULL: it has said nothing. Good until the next loop turn. */
const Node__Survival *spreading_survival(const struct daemon *daemon, const char *instance);

/* Of an instance that is to be placed anew: whether some of its layers are on no disk of a node
 * that is up, as all of those say. *err says which. */
bool spreading_lost(struct daemon *daemon, const Cluster__Instance *instance, struct error *err);
