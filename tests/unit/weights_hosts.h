/* Nodes in this process that give each other weights, over links on loopback. */
#pragma once

#include "link_world.h"
#include "weights/weights.h"
#include "weights_world.h"

struct host {
    struct link_world_node *node;
    struct weights *weights;
    struct weights_options options;
    char folder[PATH_MAX], file[PATH_MAX];
    bool is_closed, is_added;
    uint32_t n_changed;
    struct weights_facts facts;
    struct error err;
    uint32_t n_chunks, n_refused, n_have; /* what a bare node heard */
    bool spoils;                          /* turns a bit of every converted chunk that it hears */
};

extern struct link_world *world;
extern struct host hosts[WORLD_NODES];
extern struct link_version host_versions[WORLD_NODES]; /* of their protocol; {0}: this one's */
extern struct manifest demo;                           /* the model that most tests use */
extern struct digest demo_id;
extern uint32_t n_layers; /* of it */

/* cmocka's set-up and tear-down of the demo model's manifest. */
int hosts_set_up(void **state);
int hosts_tear_down(void **state);

/* The first n, in folders of their own. Node 0 dials the others; the others dial each other. */
void world_open(int n);
void world_close(int n);
void connect_hosts(int from, int to);
bool host_is_linked(void *host);

void open_weights(struct host *host);
void close_weights(struct host *host); /* waits until they are */
void host_on_closed(void *host);       /* for weights_close() */
bool host_is_closed(void *host);

const char *demo_path(char out[PATH_MAX]);
void add_file(struct host *host, const char *path); /* what came of it is in `facts` or `err` */
void add_demo(struct host *host);                   /* a copy of it in the host's folder */

/* Layers of the demo model that a host is to have. */
struct awaited {
    struct host *host;
    uint32_t first_layer, n_layers;
};

bool has_layers_or_problem(void *awaited);
bool has_problem(void *host);
void await_layers(struct host *host, uint32_t first, uint32_t n);
void fetch_layers(struct host *host, uint32_t first, uint32_t n); /* waits, too */

/* The parts that hold these layers, and what they weigh. */
struct part_set parts_of(uint32_t first, uint32_t n);
uint64_t bytes_of(const struct part_set *set);
uint64_t manifest_bytes(void);

/* The model that the host gives out has the original's bytes in these layers' tensors. */
void check_bytes(struct host *host, uint32_t first, uint32_t n);
