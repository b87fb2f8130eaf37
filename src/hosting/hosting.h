/* This node's stages of the instances: loads what the state wants here, drives or runs it, gives it
 * back.
 *
 * hosting_step() shows worker_step() (cluster/worker.h) what is here and carries out what it
 * answers. All stages that one placement has on this node are one *part*, opened and closed
 * together on libuv's thread pool, at most PARTS_JOBS at a time: a driver where stage 0 is here,
 * else a runner. A part is opened when all of its stages have their weights and what has to leave
 * their devices has gone. Where a new placement has to take the place of an old one and wants the
 * very layers that are loaded (ADOPT), the old part is closed first and the new one loaded, so the
 * instance is silent meanwhile; its old stages count as ready until the new part goes. The weights
 * of layers that stay on their device stay loaded (hosting_pin.c).
 *
 * A placement that takes over from one that serves takes over its KV caches as well, at a token's
 * boundary (hosting_give.c, hosting_take.c, pipeline/cache_wire.h): its driver is not shown before
 * they are there, or are given up; then it begins with empty ones, and what was generated is
 * computed anew.
 *
 * A part that cannot be opened, because its device is gone or memory lacks, is FAILED with the
 * reason; it stays so until a new epoch. A model whose file options.model() does not have yet is
 * waited for.
 *
 * What is lost on the way. A pipeline over nodes loses messages when a link breaks, when a node
 * starts anew, and when a message comes to a node whose part is not loaded. Whatever it was, the
 * driver hears of it, so nothing waits for ever:
 *   - a link of the driver's node: hosting_lost() there;
 *   - a link between two others: the runner that sends over it tells the driver's node by a notice
 *     (pipeline/wire.h);
 *   - a part that is not there: its node answers with a notice (hosting_stray()), which a runner
 *     passes on to the
 * driver;
 *   - the state says that a stage elsewhere is not ready any more: hosting_step().
 * Then driver_lost() ends what is under way with an error, and hosting_driver() says NULL. When
 * there is a link to each node of the placement, all stages elsewhere are ready and a pause is over
 * (REACH_PAUSE_MS, doubled with each loss up to REACH_PAUSE_MAX_MS in reach.h), driver_found()
 * makes the same driver serve again, without the master, a new epoch or any loading. Stages are not
 * reported as failed meanwhile: whether a node is gone for good is the master's to say.
 *
 * A runner needs not be opened again for a driver that starts anew (also in a new process): it
 * keeps no sequences, only what its stages' KV slots hold and which are poisoned, and
 * driver_found() makes the driver empty every slot before it uses it, which comes down the pipeline
 * in order. Micro-batches of before that come back late have numbers which the driver knows as old
 * (far.numbers_after: by the wall clock) and drops.
 *
 * A device's process that has died is lost in the same way: its driver is told, here or by a
 * notice, and serves again when the process has been started anew and its layers are loaded. When
 * that fails, or it dies again and again, the part is given back and FAILED, so that the master
 * places it elsewhere.
 *
 * Everything is on the loop's thread. Events are raised from the loop only, but for those of
 * hosting_step(): weights, fetch, model, release and propose are called from within it. */
#pragma once

#include "cluster/worker.h"
#include "clusterfile/cluster.h"
#include "hosting/carrier.h"
#include "pipeline/driver.h"

#include <uv.h>

struct children;
struct gpu;
struct hosting;
struct model;

struct hosting_file { /* which file of a model */
    struct worker_precision precision;
    bool is_smaller; /* the answer: its weights are of that type in the file already */
};

struct hosting_options {
    uv_loop_t *loop;
    struct gpu *gpu;
    struct children *children; /* stages live in their devices' processes (pipeline/children.h);
                                  NULL: in this one */
    const char *node;          /* own id, in hexadecimal digits; must stay */
    struct carrier *carrier;
    enum activation_type wire;
    enum worker_weights (*weights)(void *self, const Cluster__Model *model,
                                   struct worker_precision precision, uint32_t first_layer,
                                   uint32_t n_layers);
    void (*fetch)(void *self, const Cluster__Model *model, struct worker_precision precision,
                  uint32_t first_layer, uint32_t n_layers);
    /* Why the weights cannot be fetched; NULL: it is not known, or may be NULL itself. */
    const char *(*weights_problem)(void *self, const Cluster__Model *model);
    /* The model of that manifest with all of these layers, held until release(); n_ranges 0: as
     * file->is_smaller says. NULL: not here yet. release() may come long after the state has
     * forgotten the model. */
    const struct model *(*model)(void *self, const Cluster__Model *model,
                                 const struct worker_range *ranges, uint32_t n_ranges,
                                 struct hosting_file *file);
    void (*release)(void *self, const Cluster__Model *model, const struct hosting_file *file);
    /* Who guesses for the instance where its draft model is an instance, too: the same as long as
     * that is so, and good until requests have ended; *is_apart: on other machines than it. NULL,
     * or NULL answered: nobody; then it is opened here: */
    struct generator *(*draft_instance)(void *self, const Cluster__Instance *instance,
                                        bool *is_apart);
    /* What guesses take there; or the device for a copy, and what they take on that (*share; 0: not
     * known), once the instance is placed so. False, or NULL: on the device of the first layers. */
    bool (*draft_place)(void *self, const Cluster__Instance *instance,
                        const Cluster__Placement *placement, char device[CLUSTER_ID_MAX],
                        double *share);
    void (*propose)(void *self, const void *event, size_t size);
    /* A stage or a driver is another than before: call hosting_step(), which may be done from here,
     * and whoever uses drivers asks hosting_driver() again. */
    void (*changed)(void *self);
    /* Whether there is a link to that node now. NULL: there always is. */
    bool (*linked)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    /* What the link from here to that node carries, as measured; 0: not known. NULL: of none. */
    uint64_t (*link_bytes_per_s)(void *self, const uint8_t node_id[NODE_ID_BYTES]);
    void *self;
};

enum error_code hosting_open(const struct hosting_options *options, struct hosting **out,
                             struct error *err);

/* Ends everything; `closed` is called from the loop when nothing is left, before the carrier may be
 * closed. Loads that are under way on the thread pool end first (device_interrupt() ends the waits
 * of a device that hangs); none begins. Events end now, but for release(). */
void hosting_close(struct hosting *hosting, void (*closed)(void *arg), void *arg);

/* After every change of the state, of weights, and of what is here (`changed`), and every
 * second. */
void hosting_step(struct hosting *hosting, const struct state *state, uint64_t now_ms,
                  uint64_t wall_ms);

/* The driver of the instance's current placement, when it is here and can serve; else NULL. `epoch`
 * may be NULL. When this says otherwise, at the latest when the `changed` after that has returned,
 * nothing more may be submitted to the driver. It may only be lost: then its requests end with
 * ERROR_IO, and it may come back. Or it goes: then they end with ERROR_CANCELLED, or with
 * FINISH_CANCELLED although nobody cancelled them; after the last one has ended `changed` is raised
 * once more, and when that has returned the driver is freed. */
struct driver *hosting_driver(struct hosting *hosting, const char *instance, uint64_t *epoch);

/* ---- the carrier's events ---- */
void hosting_lost(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                  const struct error *why);
void hosting_stray(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                   const struct wire_route *route);
/* Heard of the node that has the driver alone. */
void hosting_halt(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                  const struct wire_route *route);

enum error_code hosting_cache(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                              const void *bytes, size_t size, struct error *err);

/* ---- for people ---- */
struct hosting_stage {
    const char *instance, *device; /* good until the next call here that is not a question */
    uint64_t epoch;
    uint32_t stage, first_layer, n_layers;
    enum worker_stage_state state;
    const char *problem;  /* FAILED: why; READY, of a driver that waits for a stage elsewhere: for
                             what; else NULL */
    uint64_t bytes;       /* on the device and beside it; 0: not loaded */
    uint32_t memory_step; /* of the ladder where memory is short; 0: as placed */
};
/* The furthest that stages on the device have gone down their ladders; 0: as placed. */
uint32_t hosting_memory_step(const struct hosting *hosting, const char *device);
/* Fills at most n_max; returns how many there are. */
uint32_t hosting_stage_list(const struct hosting *hosting, struct hosting_stage *out,
                            uint32_t n_max);
