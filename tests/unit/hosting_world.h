/* Nodes that host stages of one agreed state: each a mesh, a carrier and a hosting, with toy
 * devices (fake_pipeline.h). The state is shared; what is proposed is applied between the loop's
 * turns. */
#pragma once

#include "driver_world.h"
#include "fake_children.h"
#include "hosting/hosting.h"
#include "link_world.h"

enum { HOUSE_DEVICES = 2, HOUSE_CONTEXT = 300, HOUSE_REPORTS = 256 };

struct house;

struct house_node {
    struct house *house;
    int index;
    char id[NODE_ID_TEXT];
    struct device *devices[HOUSE_DEVICES]; /* "toyNa", "toyNb" */
    struct gpu *gpu;
    struct children *children; /* its devices' processes; NULL: they compute in the node's */
    struct carrier *carrier;
    struct hosting *hosting; /* NULL: closed */
    bool has_closed;
    enum worker_weights weights; /* of everything */
    bool lacks_model;
    uint32_t fail_nth;          /* allocation of its next steps */
    bool is_behind;             /* does not hear of the state's changes */
    uint32_t n_fetches, n_held; /* models that were not released */
    uint32_t n_changed;
};

struct house {
    struct link_world *links;
    struct house_node nodes[WORLD_NODES];
    struct dial *dials[WORLD_NODES][WORLD_NODES]; /* from the lower to the higher */
    struct state state;
    uint64_t index;
    bool is_dirty;
    bool replaces; /* placements from now on: what is there has to make room */
    struct buffer proposed[HOUSE_REPORTS];
    uint32_t n_proposed;
    uint32_t n_reports, n_ignored;
    void (*down[WORLD_NODES])(void *self, struct link *link, const struct error *why);
};

/* All nodes are linked and admitted, the model "toy" is registered, the instance "i" is wanted, and
 * placed nowhere. */
struct house *house_open(void);
struct house *
house_open_with(const char *children); /* a letter a node: 'c' has processes for its devices */
void house_close(struct house *house);

void house_open_hosting(struct house *house, int node);
void house_close_hosting(struct house *house, int node);

/* Places "i": a letter pair for each stage, the node's digit and the device's letter: "0a1a". "0x"
 * is a device that the state knows and the node does not have. Returns the epoch. */
uint64_t house_place(struct house *house, const char *stages);
void house_set_active(struct house *house, bool active);
void house_abandon_next(struct house *house);

/* Runs the loop, applying what is proposed and stepping the hostings. */
bool house_run(struct house *house, bool (*holds)(void *arg), void *arg, uint64_t ms);
void house_pass(struct house *house, uint64_t ms);

struct driver *house_driver(struct house *house,
                            int node); /* waits until it can serve; fails the test after 5 s */
const Cluster__Placement *house_current(const struct house *house);
const Cluster__Placement *house_next(const struct house *house);

void house_cut(struct house *house, int from, int to);   /* the link goes down and stays down */
void house_mend(struct house *house, int from, int to);  /* and comes back */
void house_abort(struct house *house, int from, int to); /* it goes down; the dial brings it back */
