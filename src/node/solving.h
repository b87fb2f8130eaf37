/* The leader's large placement problems, solved beside the loop: on libuv's pool, each with its
 * time limit. What is asked is answered at once where the problem is small; else ERROR_BUSY, and
 * `solved` when the answer is there, to be fetched by asking again. An answer is good for the same
 * instance on the same devices with the same demand, as long as it fits the memory of then. On the
 * loop's thread.
 *
 * The greedy answer alone is not taken: on homes of 64 devices it is 2 to 25 % slower than what a
 * second of searching finds (bench/README.md, "The solver"), and loading takes longer than that.
 * But a placement that is at most SOLVING_ENOUGH slower than the best can be ends the search: of 64
 * devices in about a second, where proving takes more than five. Who gives a time limit of their
 * own has the best within it. */
#pragma once

#include "cluster/master.h"
#include "plan/plan_stream_place.h"

#include <uv.h>

enum {
    SOLVING_SMALL_DEVICES = 6,   /* up to so many: at once, in milliseconds */
    SOLVING_SMALL_NODES = 20000, /* of that search */
    SOLVING_LIMIT_MS = 5000,     /* of the others; then the best that was found */
    SOLVING_GOOD_MS = 10 * 1000, /* so long an answer is good */
    SOLVING_JOBS_MAX = 2, /* of the pool's threads; a move begins only where none is at work */
    SOLVING_MOVE_NODES = 20000, /* of the search for a move beside the loop */
};
#define SOLVING_ENOUGH 0.02

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
/* The same for what streams (plan_stream_place.h), a struct placing's `search_streams`: never at
 * once, as six devices take 0.1 s and 64 take 1 s; until the limit, and the best by then. */
enum error_code solving_streams(void *solving, const char *instance,
                                const struct placement_problem *problem,
                                const struct plan_stream_disk *disks,
                                struct plan_stream_placement *out, struct error *err);
/* A master_mover's `replan`. The answer is that of the moment of asking, given once: the state goes
 * on from it. */
enum error_code solving_replan(void *solving, const char *instance,
                               const struct replan_input *input,
                               const struct replan_options *options, struct replan_state *state,
                               struct replan_decision *out, struct error *err);
