/* A few nodes under a made-up clock, network and disk, for tests of the log: one seed draws
 * everything.
 *
 * A node is a replica, what its disk holds, writes that are not durable yet, and a state: a hash
 * over all that was applied. A crash loses the writes that were not acknowledged, from a random one
 * on. Messages are lost, doubled and overtake each other; links are cut one way or both. After
 * every effect the checkers look: one leader for a lineage and term (and that in one life of it),
 * one entry for a lineage and index, one state for it. */
#pragma once

#include "cluster/replica.h"

#include <stdio.h>

enum { WORLD_NODES = 7, WORLD_WRITES = 256 };

struct world_write {
    struct log_write write;
    uint64_t done_ms;
};

struct world_node {
    uint64_t id;
    bool up, admitted, removed;
    uint32_t life; /* how often it was started */
    struct replica *replica;
    struct log_saved disk;
    struct world_write writes[WORLD_WRITES];
    uint32_t n_writes;
    uint64_t state, applied; /* the state is a hash */
};

struct world {
    uint64_t seed, draws, now_ms;
    struct replica_options options;
    uint32_t n;
    struct world_node nodes[WORLD_NODES];
    bool cut[WORLD_NODES][WORLD_NODES]; /* from, to */
    double loss, twice, slow;           /* of messages */
    uint32_t delay_ms, disk_ms;         /* at most */
    uint64_t submitted, committed;      /* events */
    uint64_t sent, restored, elected, refused;
    struct world_messages *messages;
    struct world_facts *facts;
};

/* The first node founds the cluster; grace_ms 0: nobody founds it anew. */
void world_init(struct world *world, uint64_t seed, uint32_t n, uint64_t grace_ms);
void world_deinit(struct world *world);
uint64_t world_draw(struct world *world, uint64_t below);
bool world_chance(struct world *world, double probability);

void world_start(struct world *world, uint32_t node); /* from its disk */
void world_crash(struct world *world, uint32_t node);
void world_heal(struct world *world); /* every link, no loss, every node up */
void world_run(struct world *world, uint64_t ms, bool chaos);
bool world_submit(struct world *world); /* an event, by some node that believes it leads */
uint32_t world_leaders(const struct world *world);
/* All nodes that are not removed: same lineage, same log, same state, one leader. Says what is not
 * so. */
bool world_agrees(const struct world *world, char *why, size_t size);

void world_describe(const struct world *world, FILE *out);
