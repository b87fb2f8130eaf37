/* A pipeline: the stages of a model in their order, each reached in one of three ways.
 *
 *   on a device  of this process: a micro-batch is a job of the device's queue
 *   in a lane    of the process that has the device (children.h): a message through its ring
 *   far          on another machine: a message, which the caller sends (far.h)
 *
 * Which it is, the stage's plan says (driver.h), and pipeline_impl.h how each is done. A driver and
 * a runner own one pipeline each; what a micro-batch needs from them is in `pipeline_owner`. A
 * message that comes out of a lane goes straight to where it has to go next: into another lane, to
 * another machine, or to the owner.
 *
 * Threading: micro-batches are on one device's or lane's thread at a time. pipeline_receive() may
 * be called on any thread while the pipeline is loaded; so may the questions at the end. Loading
 * and unloading are the owner's, and block. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/far.h"
#include "pipeline/memory_ladder.h"
#include "pipeline/microbatch.h"
#include "pipeline/wire.h"

#include <stdatomic.h>

struct lane;
struct pipeline_impl;

struct pipeline_stage {
    const struct pipeline_impl *impl; /* NULL: not loaded */
    struct device *device;            /* on a device; else NULL */
    struct stage *stage;              /* the same, once it is loaded */
    struct lane *lane;                /* in a lane; the same one for all stages of a device */
    uint32_t n_layers;
    enum activation_type type;      /* of messages to it */
    bool poisoned[LIMIT_SEQUENCES]; /* the device thread's … */
    /* … and so many tokens of such a slot can be relied on: a cut to them, or less, heals it */
    uint32_t sound[LIMIT_SEQUENCES];
    _Atomic uint64_t busy_ns; /* spent in stage_forward() so far */
};

/* What the driver and the runner do for their pipeline; on a device's or lane's thread, or that of
 * whoever called microbatch_go_on() or pipeline_receive(). */
struct pipeline_owner {
    /* The micro-batch's next stage is not in this process: pipeline_post() it. */
    void (*leave)(void *arg, struct microbatch *microbatch);
    /* It is behind the last stage. */
    void (*done)(void *arg, struct microbatch *microbatch);
    /* A message for a stage on a device here, or behind the last stage. Not ERROR_NONE: its sender
     * broke the rules, or (ERROR_BUSY) sends more than there may be. */
    enum error_code (*arrive)(void *arg, const struct microbatch_message *message,
                              struct error *err);
};

struct pipeline {
    struct pipeline_stage *stages; /* all of the model */
    uint32_t n_stages;
    struct picker *picker; /* NULL: the last stage is not on a device here */
    struct far far;
    struct wire_shape shape;
    _Atomic bool serves; /* loaded: what comes out of lanes is taken */
    _Atomic bool
        gives_back;     /* memory is short: what no slot has of a cache goes (stages here), … */
    _Atomic bool drops; /* … and what went to host memory */
    /* On devices here rows are computed so many at a time, at most; 0: all of a micro-batch. */
    _Atomic uint32_t part_rows;
    const struct pipeline_owner *owner;
    void *arg;
};

/* Loads the stages that are here, different devices at the same time. `stages`, `shape`, `far` and
 * `owner` are set; `plan` has as many stages. On failure everything is closed again, and `err` is
 * that of the first stage that failed. */
enum error_code pipeline_load(struct pipeline *pipeline, const struct model *model,
                              const struct stage_plan *plan, const struct driver_options *options,
                              struct error *err);
/* Nothing comes out of lanes any more once it returns, and what is sent to them is lost. Optional
 * before pipeline_unload(). */
void pipeline_disconnect(struct pipeline *pipeline);
/* When nothing is under way on devices here. */
void pipeline_unload(struct pipeline *pipeline);

/* Writes the micro-batch as a message and sends it to the stage where it is `at`; behind the last,
 * to the driver's machine. It may be back before this returns. False: no memory, nothing was sent.
 * What is lost on the way is not said here (pipeline_take_loss(), far.h). */
bool pipeline_post(struct pipeline *pipeline, struct microbatch *microbatch, uint64_t number);

/* A message that came for a stage of this pipeline, or for its driver. ERROR_INVALID: it cannot be
 * right. ERROR_BUSY: there was no room for it; it is lost. */
enum error_code pipeline_receive(struct pipeline *pipeline,
                                 const struct microbatch_message *message, struct error *err);

/* A micro-batch with this number, on its way or to come, is wanted no more: stages in lanes and on
 * other machines are told. Where it is behind them already, nothing happens. Any thread. */
void pipeline_halt(struct pipeline *pipeline, uint64_t number);

/* ---- questions ---- */

/* Whether messages, and what the slots held, were lost in a lane since this was last asked. */
bool pipeline_take_loss(struct pipeline *pipeline, struct error *why);

enum pipeline_look { PIPELINE_LOADED, PIPELINE_RELOADING, PIPELINE_GIVEN_UP };
/* Of the stages here, the worst. `why`: unless all are loaded. */
enum pipeline_look pipeline_look(struct pipeline *pipeline, struct error *why);

uint64_t pipeline_stage_bytes(struct pipeline *pipeline, uint32_t at); /* 0: it is far */
uint64_t pipeline_row_bytes(struct pipeline *pipeline, uint32_t at);   /* of its KV cache */
/* Whether idle caches of the stages on devices here can go to host memory: of all of them; of any.
 */
bool pipeline_caches_all_move(const struct pipeline *pipeline);
bool pipeline_caches_move(const struct pipeline *pipeline);
/* What the ladder says of caches, for the stages on devices here. */
void pipeline_give_back(struct pipeline *pipeline, const struct memory_terms *terms);
/* How far a stage in a lane has gone down its own ladder; false: it is not in one. */
bool pipeline_memory_step(struct pipeline *pipeline, uint32_t at, struct memory_step *out);
