/* How a stage is reached: one table for each of the three ways (pipeline.h), one file each. For
 * those who implement them; who uses a pipeline reads pipeline.h. */
#pragma once

#include "pipeline/latch.h"
#include "pipeline/pipeline.h"

#include <pthread.h>

/* One stage that is being loaded. */
struct pipeline_opening {
    struct device_job job; /* first; a device's */
    pthread_t thread;      /* a lane's, joined by who waits */
    bool has_thread;
    struct latch *latch;
    struct pipeline *pipeline;
    uint32_t at, first_layer;
    const struct model *model;
    const struct stage_plan *plan; /* all stages' */
    const struct driver_options *options;
    enum error_code code;
    struct error error;
};
void pipeline_opened(struct pipeline_opening *opening); /* to be called once; any thread */

struct pipeline_impl {
    const char *name;
    /* Begins to load the stage, and does not wait; pipeline_opened() follows. NULL: there is
     * nothing to load. */
    void (*open)(struct pipeline_opening *opening);
    /* Optional. Nothing comes from it any more; repeated for stages that share a lane. */
    void (*disconnect)(struct pipeline *pipeline, uint32_t at);
    /* Optional. After disconnect(); also of a stage that was not opened. */
    void (*close)(struct pipeline *pipeline, uint32_t at);
    /* Takes the micro-batch there. Does not wait. */
    void (*send)(struct pipeline *pipeline, struct microbatch *microbatch);
    /* The same for one that is a message. */
    enum error_code (*pass)(struct pipeline *pipeline, const struct microbatch_message *message,
                            struct error *err);
    /* Optional: what is in this process its owner halts. pipeline_halt() for this stage. */
    void (*halt)(struct pipeline *pipeline, uint32_t at, uint64_t number);
    /* Optional: what is never lost without somebody else saying so has none. */
    bool (*take_loss)(struct pipeline *pipeline, uint32_t at, struct error *why);
    enum pipeline_look (*look)(struct pipeline *pipeline, uint32_t at, struct error *why);
    /* Optional; 0. */
    uint64_t (*bytes)(struct pipeline *pipeline, uint32_t at);
    uint64_t (*row_bytes)(struct pipeline *pipeline, uint32_t at);
    /* Optional: it has no ladder of its own. */
    void (*memory_step)(struct pipeline *pipeline, uint32_t at, struct memory_step *out);
};

extern const struct pipeline_impl pipeline_on_device, pipeline_far;
/* pipeline_in_lane is in children.h: only who has children needs it, and what it brings along. */
