/* Which layers go on which of this machine's devices, and how fast that will be.
 *
 * plan_make() turns the model and the devices into a placement problem (plan_model.h,
 * plan_devices.h) and solves it; with a split of the user's it takes that instead. Either way the
 * placement is used only if placement_check() accepts it. The solver takes as few devices as are
 * fastest: one stream alone is fastest on the fastest device that holds all layers, and a slower
 * one beside it gets none. Several streams (slots) are shared out for the most tokens, with as many
 * micro-batches under way as there are stages, which is what the driver does.
 *
 * Example:
 *
 *     const struct plan_request request = {.devices = devices, .n_devices = 2, .options =
 *     &options}; struct plan plan;
 *     if (plan_make(&plan, model, &request, &err)) …
 *     driver_open(model, plan.stages, plan.n_stages, &options, &driver, &err) …
 *     plan_deinit(&plan);
 *
 * One thread. The devices' own threads are asked what buffers a stage takes (milliseconds). */
#pragma once

#include "clusterfile/cluster_problem.h"
#include "pipeline/driver.h"
#include "placement/solve.h"
#include "plan/plan_devices.h"
#include "plan/plan_forecast.h"
#include "plan/plan_model.h"
#include "plan/plan_stream.h"
#include "plan/plan_stream_place.h"

struct plan_request {
    struct device *const
        *devices; /* different ones; but one device alone may be split into several stages */
    uint32_t n_devices;
    /* The last of them are for need: unless all devices were measured, they are used only if the
     * others cannot hold the model. 0: none. */
    uint32_t n_spare;
    const char *split; /* layers of each device, such as "10,6", or of each stage on the one device;
                          NULL: solve */
    bool may_stream;   /* where no device holds the model: layers from the disk (plan_stream.h) */
    const struct plan *beside; /* another model's, with the same devices, and maybe others behind
                                  them: what it takes of their memory is not there. NULL: none */
    const struct device *only; /* one of the devices, which gets all layers or none; NULL: any */
    uint32_t limit_s;          /* of the search; 0: 1 s */
    struct placement_weights weights;     /* of the greedy answer; zeroed: as usual */
    const struct driver_options *options; /* as the driver will get them */
    uint32_t context_wished; /* by the model's maker, where options->context is 0; 0: not said */
};

struct plan { /* a zeroed one is empty */
    struct stage_plan stages[LIMIT_STAGES];
    uint32_t n_stages;
    bool is_given;             /* by a split: nothing was searched */
    struct plan_stream stream; /* n_streamed: layers that are not in memory; then the driver's
                                  options must have its weights_max */
    /* The same of several devices: each stage has its own weights_max, and reads its part from the
     * one disk. Zeroed: nothing is streamed so. */
    struct plan_stream_placement streams;
    uint64_t disk_bps; /* of the model's file, where it is streamed */
    bool proved;       /* no other placement of these devices generates faster, by their figures */
    /* What was solved, with device i = request.devices[i]; for report_placement_text() and
     * plan_forecast(). Stages that follow each other on one device are one stage of the
     * placement. */
    struct placement_problem problem;
    struct placement_solution solution;
    struct plan_model model;
    struct cluster cluster;
    struct cluster_problem
        posed; /* `problem` without the answer's micro-batches; its devices may be changed */
};

/* ERROR_INVALID: the split is none, or placement_check() refuses it. ERROR_NOT_FOUND: there is no
 * placement; the text says what is missing, and which options would make it fit. */
enum error_code plan_make(struct plan *out, const struct model *model,
                          const struct plan_request *request, struct error *err);
/* The same, and the context that the driver is to have. Where the options give none, it is the
 * wished one, up to the model's own; else the usual one, or more, up to the model's own, where that
 * takes no more than an eighth of the memory that is left on each device. Either becomes less, down
 * to 512 tokens, where that makes the model fit. A line of the log says so. */
enum error_code plan_make_context(struct plan *out, const struct model *model,
                                  const struct plan_request *request, uint32_t *context,
                                  struct error *err);
void plan_deinit(struct plan *plan); /* a zeroed one is fine */

/* What is streamed, how fast that is, and with how much more memory it would be how fast. Nothing
 * is: false. */
bool plan_stream_say(const struct plan *plan, struct buffer *out);

/* ---- plan_split.c and plan_refuse.c, for plan_make(): pure --------------------------------- */

/* The counts of a split such as "10,6", which add up to n_layers: LIMIT_STAGES of them at most. */
enum error_code plan_split_read(const char *split, uint32_t n_layers, uint32_t *counts,
                                uint32_t *n_counts, struct error *err);

/* ERROR_NOT_FOUND for a problem that has no placement: what is missing, and which options would
 * make it fit. */
enum error_code plan_refuse(const struct placement_problem *problem, const struct model *model,
                            enum kv_type kv_type, struct error *err);
/* The same where one device was to have all layers: what they take there, and what each device has.
 */
enum error_code plan_refuse_only(const struct placement_problem *problem, uint32_t device,
                                 struct error *err);
