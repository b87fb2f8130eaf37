/* Clusters of simulated machines for tests of placing: nodes, links, models and instances go in as
 * events, the master steps with the planner, and its proposals are applied. */
#pragma once

#include "cluster/master.h"
#include "placing/placing.h"

enum { WORLD_NODES = 4, WORLD_INSTANCES = 4 };
enum { LAYERS = 7, CONTEXT = 16384 }; /* of gemma3; 2 MiB of KV cache a layer and stream */

/* A device's section of a machine's text. */
#define DEVICE(name, memory, decode, flops)                                                        \
    "[" name "]\nmemory = " memory "\ndecode = " decode "\nflops = " flops                         \
    "\nlaunch = 10us\ncopy = 1GB/s\n"

struct placing_world {
    struct state state;
    uint64_t index, now_ms;
    struct gpu *gpus[WORLD_NODES];
    uint32_t n_nodes;
    bool up[WORLD_NODES];
    Node__Now now[WORLD_NODES]; /* what was heard last */
    struct placing_seen seen[WORLD_NODES];
    struct placing placing;
    struct master master;
    struct master_options options;
    struct master_planner planner;
    const struct model *model; /* of every name; NULL: its header is on the way */
};

/* gemma3, between cmocka's set-up and tear-down. */
extern struct model *gemma;
int open_gemma(void **state);
int close_gemma(void **state);

extern const char *const world_ids[WORLD_NODES];

/* A node for each machine; all are up, and nothing is between them. */
void world_open(struct placing_world *w, const struct model *model, const char *const *machines,
                uint32_t n);
void world_close(struct placing_world *w);
void world_apply(struct placing_world *w, Cluster__Event *event);
void world_node(struct placing_world *w, Cluster__Node *node); /* joined and admitted */
void world_link(struct placing_world *w, uint32_t from, uint32_t to, uint64_t latency_ns,
                uint64_t bytes_per_s);
void world_links(struct placing_world *w, uint64_t latency_ns,
                 uint64_t bytes_per_s); /* all, both ways */
void world_instance(struct placing_world *w, const char *id, uint32_t context, uint32_t streams);
void world_instance_of(struct placing_world *w, const char *id, uint32_t context, uint32_t streams,
                       uint32_t kv_type);
void world_hear(struct placing_world *w,
                uint32_t node); /* its devices now; of its stages it tells nothing */
void world_hold(struct placing_world *w, uint32_t node, const char *instance, uint64_t epoch,
                uint32_t stage);
void world_report(struct placing_world *w, const char *instance, uint64_t epoch,
                  Cluster__StageState state);
/* A step of the master that wants this instance; what it proposes is applied. */
void world_step(struct placing_world *w, const char *wanted);
const Cluster__Instance *world_find(const struct placing_world *w, const char *id);
/* "node0/sim:a 3, node1/sim:b 4" of its newest placement; "" where it has none. */
const char *world_stages(const struct placing_world *w, const char *id);
