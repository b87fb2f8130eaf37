/* Several agreements on one loop, without a mesh: what one sends is delivered to the other from a
 * queue, if nothing is between them and it is not lost. Each has a store in a folder of its own.
 * Time is real, elections are quick. */
#pragma once

#include "agreement/agreement.h"

#include <uv.h>

enum { AGREEMENT_NODES = 5, AGREEMENT_APPLIED_MAX = 4096 };

struct agreement_world;

struct agreement_node {
    struct agreement_world *world;
    int index;
    char id[16], path[128];
    struct agreement *agreement; /* NULL: closed */
    bool is_closed, cut_off;     /* from all others */
    bool wanted;                 /* as a member */
    uint32_t n_failed, n_changed, n_frames, largest_frame, n_emptied;
    struct error failure;
    uint64_t nonces[AGREEMENT_APPLIED_MAX]; /* of events that were raised */
    uint32_t n_applied;
};

struct agreement_world {
    uv_loop_t loop;
    uv_timer_t tick;
    char folder[64];
    struct agreement_node nodes[AGREEMENT_NODES];
    struct agreement_options options; /* of those that are opened */
    uint32_t loss_ppm;
    uint64_t draws;
    struct parcel_of_world *first, **last;
};

struct agreement_world *agreement_world_init(void);
void agreement_world_deinit(
    struct agreement_world *world); /* closes what is open; checks that nothing is left */
enum error_code agreement_world_open(struct agreement_world *world, int index, struct error *err);
void agreement_world_close(struct agreement_world *world, int index);
/* Runs the loop until it is so; false: not within `limit_ms`. */
bool agreement_world_run(struct agreement_world *world, bool (*is_so)(void *arg), void *arg,
                         uint32_t limit_ms);
void agreement_world_run_for(struct agreement_world *world, uint32_t ms);
/* Opens n nodes, the first founds, the others are taken in; they have the state. */
void agreement_world_found(struct agreement_world *world, int n);

int agreement_world_leader(const struct agreement_world *world); /* -1: none that others follow */
const char *agreement_world_setting(const struct agreement_world *world, int index,
                                    const char *key);
/* What became of an event. */
struct agreement_wish {
    bool is_done;
    enum error_code code;
    struct state_outcome outcome;
    struct error err;
};
void agreement_world_propose(struct agreement_world *world, int index, Cluster__Event *event,
                             struct agreement_wish *wish);
void agreement_world_set(struct agreement_world *world, int index, const char *key,
                         const char *value, struct agreement_wish *wish);
bool agreement_wish_is_done(void *wish);
/* The same, and waits; ERROR_NONE: it counts. */
enum error_code agreement_world_agree(struct agreement_world *world, int index, const char *key,
                                      const char *value, struct error *err);
/* Until this node's state says so. */
void agreement_world_await(struct agreement_world *world, int index, const char *key,
                           const char *value);
