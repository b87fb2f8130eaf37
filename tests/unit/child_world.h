/* A driver whose stages are in devices' processes: what a node does with them, in one call each.
 * For tests and the benchmark; a failure that is not asked about ends the program with its
 * reason. */
#pragma once

#include "model/model.h"
#include "pipeline/children.h"

enum { CHILD_WORLD_STAGES = 4, REPLY_TOKENS = 4096 };

struct child_world {
    const struct model *model;
    struct driver_options options; /* whole */
    struct children *children;     /* NULL: the stages are in this process, on `gpu` */
    struct gpu *gpu;
    const char *devices[CHILD_WORLD_STAGES]; /* of the stages, which have equally many layers */
    uint32_t n_stages;

    const _Atomic bool *unwanted; /* as in lane_source */

    struct driver *driver;
    struct lane *lanes[CHILD_WORLD_STAGES]; /* by stage */
    _Atomic uint32_t n_changes;
    uint32_t n_losses;
    bool lost;
};

/* Fills in the defaults of `options`, and opens. */
enum error_code child_world_try(struct child_world *world, struct error *err);
void child_world_open(struct child_world *world);
void child_world_close(struct child_world *world);
pid_t child_world_pid(struct child_world *world, uint32_t stage);
/* Driver_lost() and driver_found(), as hosting does; false: a device was given up, see `err`. */
bool child_world_mind(struct child_world *world, struct error *err);

/* A request that is replayed until it is whole, however often its stages are lost. */
struct reply {
    int32_t tokens[REPLY_TOKENS]; /* prompt, then what was generated */
    uint32_t n_prompt, n_tokens;
    uint32_t n_predict, n_replays;
    uint32_t n_cached;                     /* of the last part's prompt */
    void (*on_token)(struct reply *reply); /* may be NULL */
    void *arg;
    _Atomic int ended; /* a part of it; 1 + its finish_reason */
    struct error error;
    uint64_t decode_ns;
};
/* False: not within that time, or a device was given up (see reply->error). */
bool child_world_reply(struct child_world *world, struct reply *reply, uint64_t limit_ms);
