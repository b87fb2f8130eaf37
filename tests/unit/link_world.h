/* Nodes with links between them, all in this process on one loop, over loopback: for tests of
 * mesh. */
#pragma once

#include "mesh/mesh.h"
#include "trust/authority.h"
#include "trust/credentials.h"

#include <uv.h>

enum { WORLD_NODES = 3, WORLD_FRAMES = 4096 };

struct link_world;

/* A frame that arrived. */
struct link_world_frame {
    struct link *link;
    uint32_t channel;
    struct frame_header header;
    uint64_t first_word; /* of the payload, 0 where it is shorter */
    uint64_t hash;       /* of the payload */
};

struct link_world_node {
    struct link_world *world;
    struct identity identity;
    struct membership membership;
    struct credentials *credentials;
    struct mesh_options options; /* as opened */
    struct mesh *mesh;           /* NULL: closed */
    uint16_t port;
    bool is_closed;
    /* what its events said */
    struct link *link; /* the one that came up last; NULL: it is down */
    uint32_t n_up, n_down, n_drained, n_silent, n_joiners;
    struct error why; /* of the last that went down */
    struct link_world_frame frames[WORLD_FRAMES];
    uint32_t n_frames;
    uint8_t *memory; /* given to each frame of more than 1 KiB and at most memory_bytes */
    uint64_t memory_bytes;
    bool echoes;          /* sends every frame back */
    bool closes_on_frame; /* calls link_close() from the event */
    bool aborts_on_frame;
    void *data; /* the test's */
};

struct link_world {
    uv_loop_t loop;
    uv_timer_t timer;
    bool timed_out;
    enum mesh_transport transport;
    struct authority authority;
    struct link_world_node nodes[WORLD_NODES]; /* sorted by node id: the first has the lowest */
};

/* All nodes are members of one cluster; none is open. Returns the world, which stays this
 * file's. */
struct link_world *link_world_init(enum mesh_transport transport);
void link_world_deinit(struct link_world *world);

/* Opens it with short times, as options may change before: node->options; and lets it listen on
 * 127.0.0.1. */
void link_world_open(struct link_world *world, int node);
void link_world_close(struct link_world *world, int node); /* runs the loop until it is closed */
struct dial *link_world_dial(struct link_world *world, int from, int to);

/* Runs the loop until holds(arg), at most so long. Returns whether it held. */
bool link_world_run(struct link_world *world, bool (*holds)(void *arg), void *arg, uint64_t ms);
void link_world_pass(struct link_world *world, uint64_t ms); /* only lets time pass */

/* Opens nodes 0 and 1, dials from 0 to 1, waits until both are up. */
void link_world_link_two(struct link_world *world);

bool link_world_is_member(void *self, const uint8_t node_id[NODE_ID_BYTES]); /* everybody is */

uint64_t link_world_hash(const void *bytes, size_t size);

/* A TCP connection of the test itself, without TLS; blocking. */
int link_world_raw_connect(uint16_t port);
