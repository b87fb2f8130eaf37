/* Relays on nodes with links between them (link_world.h), and one driver on the toy machine
 * (driver_world.h, far_world.h), which the test moves from node to node. */
#pragma once

#include "far_world.h"
#include "link_world.h"
#include "relay/relay.h"

enum { RELAY_CONTEXT = 300, NOWHERE = -1 };

struct relay_node {
    struct relay_world *world;
    int index;
    struct relay *relay;
    struct generator *generator; /* of the instance "toy" */
    bool is_closed;
    bool is_deaf; /* its relay is given no frames: the test answers in its place */
    uint32_t n_frames, n_wanted;
    void (*link_down)(void *self, struct link *link, const struct error *why);
};

struct relay_world {
    struct link_world *links;
    struct relay_node nodes[WORLD_NODES];
    int where; /* the driver is; NOWHERE: find() says ERROR_BUSY */
    uint64_t epoch;
    enum error_code find_fails; /* what find() answers instead */
    struct world driver;
    struct far_world far;
    bool is_far; /* the driver is far's */
    bool blind[WORLD_NODES]
              [WORLD_NODES]; /* the first does not hear the second, as its relay is told */
    bool has_detours;        /* relays are told of thirds at all */
    bool is_misled;          /* the third is named though it does not hear it either */
};

/* Three nodes, all linked, no driver. `options`: patience and queue. */
void relay_world_open(struct relay_world *world, const struct relay_options *options);
void relay_world_close(
    struct relay_world *world); /* relays, driver, links; what runs is cancelled */
void relay_world_close_relays(struct relay_world *world);

/* A new driver on that node, under a new epoch; the relays are told. */
void relay_world_place(struct relay_world *world, int node);
void relay_world_place_far(struct relay_world *world,
                           int node);                /* one with a stage on another machine */
void relay_world_unplace(struct relay_world *world); /* closes it: what it runs it cancels */
void relay_world_cut(
    struct relay_world *world); /* far: its machine is lost, find() says ERROR_BUSY from now on */

/* The loop runs so long, with relays that look now and then, as a daemon has them. */
void relay_world_pass(struct relay_world *world, uint64_t ms);

void relay_world_link(struct relay_world *world); /* waits until all are linked */

struct relay_use relay_world_use(struct relay_world *world, int node, const char *instance);

enum error_code relay_world_ask(struct relay_world *world, int node, struct client *client,
                                struct error *err);
/* Runs the loop until the clients are done; false: not within 20 s. */
bool relay_world_wait(struct relay_world *world, const struct client *clients, uint32_t n);
bool relay_world_wait_tokens(struct relay_world *world, const struct client *client,
                             uint32_t n_tokens);
