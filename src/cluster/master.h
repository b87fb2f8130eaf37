/* What the leader proposes, given what is agreed on and what it sees: loads instances that are
 * asked for, unloads idle ones, places anew what has lost a device, empties nodes that are drained,
 * moves what runs for gain, gives up moves that fail.
 *
 * Everything goes through the log: a proposal that is lost with its leader is made again by the
 * next one, since the state still says what is wanted. A proposal that comes too late is ignored by
 * the state (it names the epoch that it was decided after). An election moves nothing: a new leader
 * finds the placements there, and leaves what works.
 *
 * Soft knowledge (who is alive, who asked for what) comes in with each step. A node counts as lost
 * only after it was silent for `lost_ms`, and not before this leader has listened for so long
 * itself; or when it is `suspected`.
 *
 * Moves. What works is moved beside itself: the new stages are loaded while the old ones serve,
 * where there is memory for both; where there is not, the old ones make room first, if that pays,
 * too, or somebody asked for it. One move of an instance at a time; one that has failed is tried
 * again ever more rarely. Moves for gain are `consider`'s to find (master_replan()): not while
 * anything of the instance is being loaded, not of what somebody placed by hand, not where the
 * setting "moves" is "off".
 *
 * Pure: no clock, no I/O; `place` is asked for placements, and must be pure, too. Its answers are
 * taken only if the state would take them. One thread. */
#pragma once

#include "base/buffer.h"
#include "cluster/state.h"

#include "base/limits.h"

struct master_node {
    const char *id;
    uint64_t heard_ms;   /* when it was last heard of; 0: never */
    bool suspected;      /* it does not answer: nobody waits for lost_ms any more */
    char *const *missed; /* ids of nodes that it does not hear, though this one may */
    size_t n_missed;
    bool lends_nothing; /* its owner's word: what is there goes, as from a drained one */
};

struct master_use {
    const char *instance;
    uint64_t used_ms; /* when a request was last in it */
    bool wanted;      /* a request waits for it now */
    uint32_t live;    /* requests that are in it now */
    double tokens;    /* generated in the last MASTER_RECENT_S, as an estimate */
};
enum { MASTER_RECENT_S = 600 };

struct master_view {
    const struct state *state;
    struct lineage lineage; /* the replica's, with its term */
    uint64_t term;
    uint64_t now_ms, wall_ms;
    uint64_t leads_since_ms;
    const struct master_node *nodes;
    uint32_t n_nodes;
    const struct master_use *uses;
    uint32_t n_uses;
    const char *self; /* this node's id */
};

/* The stages of an instance on devices of `allowed` nodes (of the view; [n_nodes]). */
struct master_stage {
    const char *node, *device; /* of the state */
    uint32_t first_layer, n_layers;
    uint64_t weights_max; /* bytes of memory for its weights; 0: for all. The rest is streamed */
    uint32_t n_streamed;
};
struct master_placement {
    uint32_t precision; /* of its weights; 0: as demanded */
    bool by_hand;
    bool replaces; /* of a move for gain: what serves has to make room first */
    bool unproved; /* it streams, and memory might hold it: the search for that had no more time */
    uint32_t n_stages;
    struct master_stage stages[LIMIT_STAGES];
};
/* `beside`: what the instance's current placement takes is not to be counted on: it stays
 * loaded. */
typedef enum error_code (*master_place)(void *self, const struct master_view *view,
                                        const Cluster__Instance *instance, const bool *allowed,
                                        bool beside, struct master_placement *out,
                                        struct error *err);

/* A move for gain: out->n_stages of 0: none now. `why` is for people. */
typedef enum error_code (*master_consider)(void *self, const struct master_view *view,
                                           const Cluster__Instance *instance, const bool *allowed,
                                           struct master_placement *out, char why[static 64],
                                           struct error *err);

struct master_options {
    uint64_t lost_ms;      /* silence after which a node's stages are placed elsewhere */
    uint64_t retry_ms;     /* between attempts to place an instance; doubled up to 32 times that */
    uint64_t repropose_ms; /* a proposal that has had no effect by then is made again */
    master_place place;
    void *self;
    master_consider consider; /* NULL: nothing is moved for gain */
    void *considers;          /* its `self` */
    uint64_t consider_ms;     /* between two questions about an instance */
    /* An instance takes more of a node than its owner lends: it is placed anew, or stopped. NULL:
     * none ever does. */
    bool (*exceeds)(void *self, const Cluster__Instance *instance);
    /* A device of the instance's current placement asks for lower precision. NULL: none does. */
    bool (*is_hot)(void *self, const Cluster__Instance *instance);
    uint64_t failed_ms; /* after a move that failed; doubled up to 32 times that */
};
struct master_options master_options_default(void); /* without place */

enum { MASTER_PROPOSALS = 16 }; /* of one step; more wait for the next */

/* What the master remembers of an instance between steps; nothing of it is needed by its
 * successor. */
struct master_memory {
    char instance[LIMIT_CLUSTER_ID_BYTES + 1];
    uint64_t epoch;              /* it was placed after this one; */
    uint64_t proposed_ms;        /* then; 0: not */
    uint64_t retry_ms, wait_ms;  /* not before; how long it waited */
    uint64_t considered_ms;      /* a move for gain was last asked for; 0: never */
    uint64_t move_ms, failed_ms; /* no move before; how long that was put off */
    uint64_t moved_to;           /* the epoch of the move that was last seen under way */
    char problem[256];           /* why it could not be placed; empty: it could */
};

struct master {
    uint64_t founded_ms; /* when it told the state of a new lineage, last; 0: never */
    uint32_t n;
    struct master_memory memory[LIMIT_CLUSTER_INSTANCES];
};

/* Proposals as encoded events; buffer_deinit() each. */
struct master_proposals {
    uint32_t n;
    struct buffer events[MASTER_PROPOSALS];
};
void master_proposals_clear(struct master_proposals *proposals);

/* Zeroed, a master has just come to power. ERROR_NO_MEMORY: what there is of proposals is good. */
enum error_code master_step(struct master *master, const struct master_options *options,
                            const struct master_view *view, struct master_proposals *out,
                            struct error *err);

/* Why an instance could not be placed; NULL: no reason is known. */
const char *master_problem(const struct master *master, const char *instance);

/* ---- placing with the planner ---- */

struct placement;
struct placement_problem;
struct placement_solution;
struct replan_decision;
struct replan_input;
struct replan_options;
struct replan_state;

/* Makes the problem whose device i is `devices[i]`, of allowed nodes only; it stays the builder's
 * until the next call. How much memory is free, what a layer costs and how fast the links are is
 * the builder's knowledge. */
struct master_device {
    const char *node, *device;
    bool own_memory; /* false: in its node's host memory, beside others */
};
typedef enum error_code (*master_problem_of)(void *self, const struct master_view *view,
                                             const Cluster__Instance *instance, const bool *allowed,
                                             const struct placement_problem **problem,
                                             const struct master_device **devices,
                                             struct error *err);
struct master_planner {
    master_problem_of problem;
    /* There was no placement of that problem: some of its devices stood by, and are in it now.
     * False: none did. NULL: none ever does. */
    bool (*call_in)(void *self);
    /* There is still none, and nothing of the instance is loaded: stages of which a part is read
     * from disks all the time. ERROR_NOT_FOUND: not even those. ERROR_BUSY: they are searched for;
     * it is asked again. NULL: nothing is ever streamed. */
    enum error_code (*stream)(void *self, const char *instance, struct master_placement *out,
                              struct error *err);
    void *self;
    uint64_t max_nodes; /* of the planner's search; 0: no limit */
    /* Solves problems in place of placement_solve_as_run(), perhaps elsewhere: ERROR_BUSY, and is
     * asked again. ERROR_NOT_FOUND: there is none, which out->proved says, or none was found in
     * time. `beside`: without the memory of what the instance has now. NULL: at once, here. */
    enum error_code (*solve)(void *solver, const char *instance, bool beside,
                             const struct placement_problem *problem,
                             struct placement_solution *out, struct error *err);
    void *solver;
};
/* What a search that has ended says: its ERROR_BUSY, no more time, as ERROR_NOT_FOUND with words.
 */
enum error_code master_answer_ended(enum error_code code, struct error *err);
/* The solver's answer in the words of the log; `names` as the problem's builder gave them. */
void master_placement_of(const struct placement *placement, const struct master_device *names,
                         struct master_placement *out);
/* A master_place whose `self` is a struct master_planner: builds, solves as it will run
 * (placement/as_run.h), checks.
 */
enum error_code master_plan(void *planner, const struct master_view *view,
                            const Cluster__Instance *instance, const bool *allowed, bool beside,
                            struct master_placement *out, struct error *err);

/* Whether that is a placement of the instance: placement_check()'s answer, on the problem as it is
 * now. *beside: whether there is memory for it while the current placement stays. */
enum error_code master_check(const struct master_planner *planner, const struct master_view *view,
                             const Cluster__Instance *instance, const bool *allowed,
                             const struct master_placement *placement, bool *beside,
                             struct error *err);

/* ---- moving for gain ---- */

enum {
    MASTER_DISK_BYTES_PER_S = 500 * 1000 * 1000, /* of which nobody knows better: a SATA SSD */
    MASTER_MUST_MS = 30 * 1000, /* so long a layout has to be invalid before it is left */
    MASTER_STOPPED_MS =
        4 * 1000, /* the same where nothing is decoded on it: a device is paused, a link is down */
    MASTER_FORCED_MAX_MS =
        3600 * 1000, /* between two such moves at most, doubled from 2 x MASTER_MUST_MS */
};

/* A master_consider whose `self` is a struct master_mover: placement/replan.h, with the instance's
 * use of late taken as that to come. Answers only with what placement_check() accepts. Where there
 * is no memory for what is new beside what is there, the pause is as long as loading, and the gain
 * has to be worth that. What is a "must" for replan (memory is short, a link is too slow) has to be
 * so for MASTER_MUST_MS, or for MASTER_STOPPED_MS. */
struct master_mover {
    const struct master_planner *planner;
    /* Whether all of the model is on that node's disk. NULL: nobody has it. */
    bool (*has_weights)(void *self, const char *node, const char *model);
    void *self;
    uint64_t max_nodes; /* of the search; 0: no limit */
    /* Answers in place of replan(), perhaps elsewhere: ERROR_BUSY, and is asked again. NULL: at
     * once, here. */
    enum error_code (*replan)(void *solver, const char *instance, const struct replan_input *input,
                              const struct replan_options *options, struct replan_state *state,
                              struct replan_decision *out, struct error *err);
    void *solver;
    uint32_t n;
    struct master_mover_memory *list[LIMIT_CLUSTER_INSTANCES];
};
void master_mover_clear(struct master_mover *mover); /* forgets all instances */
enum error_code master_replan(void *mover, const struct master_view *view,
                              const Cluster__Instance *instance, const bool *allowed,
                              struct master_placement *out, char why[static 64], struct error *err);
/* Whether it is a placement of the problem while `stays` is loaded (NULL: nothing). */
enum error_code master_check_beside(const struct placement_problem *problem,
                                    const struct master_device *names,
                                    const Cluster__Placement *stays,
                                    const struct master_placement *placement, struct error *err);
