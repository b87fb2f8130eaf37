/* The leader's large placement problems, solved beside the loop: on libuv's pool, each with its
 * time limit. What is asked is answered at once where the problem is small; else ERROR_BUSY, and
 * `solved` when the answer is there, to be fetched by asking again. An answer is good for the same
 * instance on the same devices with the same demand, as long as it fits the memory of then. On the
 * loop's thread. */
#pragma once

#include "cluster/master.h"

#include <uv.h>

enum {
    SOLVING_SMALL_DEVICES = 6,   /* up to so many: at once, in milliseconds */
    SOLVING_SMALL_NODES = 20000, /* of that search */
    SOLVING_LIMIT_MS = 5000,     /* of the others; then the best that was found */
    SOLVING_GOOD_MS = 10 * 1000, /* so long an answer is good */
    SOLVING_JOBS_MAX = 2,        /* of the pool's threads */
};

struct solving;

/* `solved` is told the instance. NULL: no memory. */
struct solving *solving_new(uv_loop_t *loop, void (*solved)(void *arg, const char *instance),
                            void *arg);
/* Searches under way end soon, and tell nobody. NULL is fine. */
void solving_free(struct solving *solving);

/* A master_planner's `solve`. */
enum error_code solving_solve(void *solving, const char *instance, bool beside,
                              const struct placement_problem *problem,
                              struct placement_solution *out, struct error *err);
