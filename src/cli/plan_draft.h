/* The draft model of `medley plan MODEL --draft SMALL`. On this machine it is placed before the
 * model, as `medley run` does; in a cluster the model's first stage has its memory, too, as
 * `medley place` counts it. */
#pragma once

#include "base/buffer.h"
#include "cli/model_given.h"
#include "cli/plan_here.h"
#include "plan/plan_model.h"
#include "report/report.h"

struct plan_draft { /* a zeroed one is none */
    struct model_header header;
    struct model *model; /* NULL: there is none */
    struct buffer name;
    struct driver_options given, options; /* of the model, as asked for; its own */
    /* in a cluster: */
    struct plan_model cost;
    struct placement_demand demand;
};

/* `word`: as MODEL is given; NULL: none. ERROR_INVALID: it has other tokens than the model. */
enum error_code plan_draft_open(struct plan_draft *out, const char *word, const struct model *model,
                                const struct driver_options *given, struct error *err);
/* For a model with these options in a cluster: adds to `cost`, the model's. */
enum error_code plan_draft_count(struct plan_draft *draft, const struct driver_options *options,
                                 bool embedding_counts, struct plan_model *cost, struct error *err);
/* Adds it to the report that was made so, or of this machine's devices. */
enum error_code plan_draft_report(const struct plan_draft *draft, const struct plan_here *devices,
                                  struct report *report, struct error *err);
void plan_draft_deinit(struct plan_draft *draft);
