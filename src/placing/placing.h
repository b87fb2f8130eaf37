/* From what the cluster has agreed on, and what its nodes say all the time, to a placement problem:
 * the master's builder (cluster/master.h), which has for several machines the rules that `medley
 * run` has for one (plan/plan.h): rates, reserve, the embedding, devices that stand by,
 * micro-batches as run. And the other way: what this node says of its devices.
 *
 * Memory. What a device has for an instance is
 *
 *     free + given back - still to come
 *
 *     free           what the node measured last (Now); before it has said any, what it described
 *     given back     stages of this instance that are loaded there: it is placed anew, and they go
 *                    first, as those of others' placements that were replaced do
 *     still to come  stages of other instances that are placed there, and not loaded yet: nobody
 *                    has measured them
 *
 * A stage is loaded when the node's own list says so, which is of the same moment as its
 * measurement (Now.held); of a node that gives no list, when the log says that it is ready. A
 * failed one takes nothing. A stage that a newer placement that replaces takes over as it is counts
 * once. Each counts for all devices that live in the same memory.
 *
 * In host memory that is not enough: weights that stay in their mapped file are measured as free,
 * since the kernel could drop them. So a device without memory of its own never has more than
 *
 *     max(free, free when it was described, with nothing loaded) - all stages of other instances
 *     placed there
 *
 * What a stage takes is said by the same formulas as for placing it (placement_stage_bytes()). No
 * device has more than all of its memory, whatever its node says.
 *
 * A draft model (Demand.draft) is opened whole on the device of the first layers. What it takes
 * there is counted as a part of what the first stage takes beside its layers. Another device of
 * that node on which nothing is placed has it instead, where more is expected of that
 * (placement/guessed.h) and it has the memory now; what it takes there is seen in what the node
 * says is free, and the first stage's device keeps the room. One that is an instance itself is
 * placed as such, and counts nowhere else.
 *
 * What an owner lends (Now.lent_bytes) is a limit beside that: all instances together have no more
 * of that memory, whatever is free.
 *
 * Time. A device's share is the part of its time that it may compute now, and no more than what its
 * fitted thermal model says that it can keep up; where it is cool yet, the seconds until then go
 * along (full_s), and the error.
 *
 * Links. Those of the state, whose ends are both there. One that lacks its latency or its bandwidth
 * is assumed by its class, as in a cluster file; one of which nothing is known is no way. Messages
 * are not passed on: where there is no link of its own, there is no way. Hidden states travel as
 * `wire` says, which the links' bandwidths are scaled by.
 *
 * Everything here is on one thread (the loop's) and pure but for placing_describe() and
 * placing_now(), which ask the devices, and the clock-less search that the master runs on the
 * problem. */
#pragma once

#include "cluster/master.h"
#include "cluster/worker.h"
#include "clusterfile/cluster_problem.h"
#include "engine/activation.h"
#include "node.pb-c.h"
#include "placement/forecast.h"
#include "plan/plan_model.h"
#include "plan/plan_stream_place.h"
#include "topology/link.h"

struct gpu;
struct heat;
struct model;

/* ---- this node ------------------------------------------------------------------------------- */

/* Fills node->devices and node->memory_bytes: the devices that `medley run` would take, and
 * software GPUs that their owner lends by name (`lent`: ids with commas; "": none), described as it
 * describes them. To be called before anything is loaded: the free memory of then is the
 * measure of "nothing loaded". placing_describe_clear() gives them back. ERROR_NO_MEMORY, or
 * gpu_select()'s. */
enum error_code placing_describe(struct gpu *gpu, const char *lent, Cluster__Node *node,
                                 struct error *err);
/* Says the speeds of node->devices anew, once they were measured; their memory stays as it was
 * described. */
enum error_code placing_describe_speeds(struct gpu *gpu, Cluster__Node *node, struct error *err);
void placing_describe_clear(Cluster__Node *node);

/* Fills now->devices and now->held, and leaves the uses alone; placing_now_clear() gives them back.
 * `heat` may be NULL: then nothing is said of headroom, and every device may compute all the time.
 * `stages` are those of worker_step()'s view; NULL: now->held is not told. */
enum error_code placing_now(struct gpu *gpu, struct heat *heat, const struct worker_stage *stages,
                            uint32_t n_stages, Node__Now *now, struct error *err);
void placing_now_clear(Node__Now *now);

/* A described device as placement has it, with the free memory and the speeds of its description.
 * Foreign: what no device can have is unknown. False: its id is none that could be shown. */
bool placing_device_of(const Cluster__Device *said, struct cluster_device *out);

/* ---- the cluster ----------------------------------------------------------------------------- */

struct placing_seen { /* of a node */
    const char *node;
    bool alive;
    const Node__Now *now; /* the last; NULL: none was heard */
};

struct placing_view {
    const struct state *state;
    const struct placing_seen *seen; /* a node that is not in it is not alive */
    uint32_t n_seen;
    /* A model whose header is here. NULL: it is being fetched. It must stay good until the next
     * loop turn. */
    const struct model *(*model)(void *self, const Cluster__Model *model);
    void *self;
    enum activation_type wire;
};

/* Every admitted node with its devices and links. Devices of nodes that are not alive have no
 * share, so that it can be said why they are not used. Names are the nodes', made printable and
 * different. `instance` NULL: of nobody's stages is anything given back. ERROR_BUSY: stages of a
 * model are still to come whose header is not here yet. */
enum error_code placing_cluster(const struct placing_view *view, const char *instance,
                                struct cluster *out, struct error *err);

/* ---- for the master -------------------------------------------------------------------------- */

/* The search runs where master_step() runs, and up to eight times (placement/as_run.h), and anew
 * without a node for each that a driver does not hear (master.c): on a loop give it max_nodes, such
 * as 20000.
 *
 *     struct placing placing = {.view = …};
 *     struct master_planner planner = {.problem = placing_problem, .call_in = placing_call_in,
 *                                      .stream = placing_stream, .self = &placing, …};
 *     options.place = master_plan, options.self = &planner;
 *     … placing_deinit(&placing);
 *
 * Of the view here, the state and who is alive come from the master's view; `seen` gives what nodes
 * say now. */
struct placing {
    struct placing_view view; /* the caller's: seen, model, wire; to be kept up to date */
    /* The caller's: searches in place of plan_stream_place(), perhaps elsewhere: ERROR_BUSY, and is
     * asked again. ERROR_NOT_FOUND: nothing can be streamed either. NULL: at once, here. */
    enum error_code (*search_streams)(void *searcher, const char *instance,
                                      const struct placement_problem *problem,
                                      const struct plan_stream_disk *disks,
                                      struct plan_stream_placement *out, struct error *err);
    void *searcher;
    /* of the last problem */
    struct cluster cluster;
    struct master_device *names; /* by device */
    struct plan_model model;
    struct placement_demand demand;
    struct cluster_problem posed;
    bool stands_by; /* some device does */
};
void placing_deinit(struct placing *placing); /* a zeroed one is fine */

/* A master_problem_of. ERROR_BUSY: the model's header is not here yet. ERROR_NOT_FOUND: no node has
 * any device. */
enum error_code placing_problem(void *placing, const struct master_view *view,
                                const Cluster__Instance *instance, const bool *allowed,
                                const struct placement_problem **problem,
                                const struct master_device **devices, struct error *err);
/* Whether stages of the instance are loaded beyond what the owner of their device lends. Errors as
 * of placing_cluster(). */
enum error_code placing_over_lent(const struct placing_view *view, const char *instance, bool *over,
                                  struct error *err);
bool placing_call_in(void *placing); /* master_planner.call_in */
/* master_planner.stream: of the last problem, where it has no placement (plan_stream_place.h). */
enum error_code placing_stream(void *placing, const char *instance, struct master_placement *out,
                               struct error *err);
/* The same for a problem of that cluster, at once. The devices of a node share its disk, at its
 * speed, or PLAN_STREAM_DISK_BPS where that was not measured. options: NULL: the usual ones. */
bool placing_stream_of(const struct cluster *cluster, const struct placement_problem *problem,
                       const struct placement_options *options, struct plan_stream_placement *out);

/* What parts of a score weigh; NULL: as usual, zeroed. */
struct placement_weights placing_weights(const Cluster__ScoreWeights *said);

/* Where a model would be placed of which only the header is somewhere, and that the state does not
 * know: on what is free now. A context of 0 becomes the one that would be chosen. ERROR_NOT_FOUND:
 * nowhere, as a whole. Time as of placing_context(). */
struct placing_foreseen_stage {
    char node[65]; /* its id */
    uint32_t first_layer, n_layers;
};
struct placing_foreseen {
    uint32_t n_stages;
    struct placing_foreseen_stage stages[LIMIT_STAGES];
};
enum error_code placing_foresee(const struct placing_view *view, const struct model *model,
                                Cluster__Demand *demand, struct placing_foreseen *out,
                                struct error *err);

/* The context of an instance for which nobody gave one, with the streams, the goal and the KV type
 * of `demand`: the usual one (4,096 tokens, or the model's own where that is less); up to the
 * model's own where there is memory for it (plan/plan_context.h); down to 512 where only that fits;
 * the usual one, if nothing does. `wished` by the model's maker (0: not said) takes the usual one's
 * place, up to the model's own, and is not made longer. Devices that stand by are used where the
 * usual one does not fit without them; the cluster is left as it was. Fewer than ten problems are
 * solved: milliseconds for up to six devices, beyond that greedy's time. */
enum { PLACING_CONTEXT_USUAL = 4096 };
uint32_t placing_context_usual(const struct model *model);
uint32_t placing_context(struct cluster *cluster, enum activation_type wire,
                         const struct model *model, const Cluster__Demand *demand, uint32_t wished);

/* The driver's options for an instance where its devices can share cells, which takes no less
 * memory than where they cannot (hosting/part_options.h). */
struct driver_options placing_driver_options(const Cluster__Demand *demand,
                                             const struct model *model);
/* Streams that a forecast is of: each may have a whole context. Of those that share cells there may
 * be more at once, of less each. */
uint32_t placing_streams(const Cluster__Demand *demand, const struct placement_model *model);

/* How fast an instance is on one of its placements, for status. ERROR_NOT_FOUND: a device or a way
 * is not there (now); ERROR_BUSY as above. */
enum error_code placing_forecast(const struct placing_view *view, const Cluster__Instance *instance,
                                 const Cluster__Placement *placement,
                                 struct placement_forecast *out, struct error *err);

/* Where the draft model of an instance is to guess that is placed so. */
struct placing_draft {
    char device[CLUSTER_ID_MAX]; /* of the driver's node; "": it is an instance itself */
    double share; /* what a guess takes, of what a token of the instance does; 0: not known */
};
/* False: it has none, or it cannot be told; *out is zeroed. */
bool placing_draft_place(const struct placing_view *view, const Cluster__Instance *instance,
                         const Cluster__Placement *placement, struct placing_draft *out);

/* ---- links ----------------------------------------------------------------------------------- */

/* Whether what a link measures now (mesh/link.h: link_measured()) is worth an event of the log: the
 * first reading of something; latency moved by more than a quarter and 50 us, bandwidth by more
 * than a fifth; another class. *out is then what to propose: with the readings that are known, and
 * those of the state that are not known any better. `from` and `to` must outlive it; nothing is to
 * be freed. */
bool placing_link_changed(const struct state *state, const char *from, const char *to,
                          const struct topology_link *measured, Cluster__Link *out);
