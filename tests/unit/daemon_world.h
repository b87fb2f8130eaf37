/* Whole nodes on one loop, for tests: each a daemon with simulated devices, a folder of its own and
 * any free port of this machine, found by nobody. They are spoken to as commands do, over their
 * control sockets. */
#pragma once

#include "node/daemon_state.h"

enum { NODES_MAX = 3, TALK_BYTES = 1 << 20 };

struct daemon_node {
    struct daemon *daemon; /* NULL: it does not run */
    struct gpu *gpu;
    char folder[64], name[16];
    bool is_over, has_failed, has_stopped;
    struct error why; /* it could not go on */
    char said[4096];  /* its last lines */
};

struct daemon_world {
    uv_loop_t loop;
    char folder[40];
    struct daemon_node nodes[NODES_MAX];
};

/* A connection to a control socket. */
struct talk {
    int fd;
    bool has_ended;
    size_t n;
    char text[TALK_BYTES];
};

struct daemon_world *daemon_world_open(void);
void daemon_world_close(struct daemon_world *world); /* stops who runs; removes the folders */

/* What `options` leaves open is set: folder, name, devices, no discovery, host and port. */
enum error_code daemon_world_start(struct daemon_world *world, int node,
                                   const struct daemon_options *options, struct error *err);
void daemon_world_stop(struct daemon_world *world,
                       int node); /* fails the test where it takes more than 15 s */

void daemon_world_turn(struct daemon_world *world);
bool daemon_world_run(struct daemon_world *world, bool (*holds)(void *arg), void *arg, uint64_t ms);
void daemon_world_pass(struct daemon_world *world, uint64_t ms);

struct talk *talk_open(struct daemon_world *world, int node);
void talk_say(struct daemon_world *world, struct talk *talk, const void *bytes, size_t size);
bool talk_await(struct daemon_world *world, struct talk *talk, const char *text,
                uint64_t ms); /* has it been said? */
bool talk_await_end(struct daemon_world *world, struct talk *talk, uint64_t ms);
void talk_close(struct talk *talk);
/* One request and all of its answer, which is good until the next one. Fails the test after 20
 * s. */
const char *ask(struct daemon_world *world, int node, const char *line);
