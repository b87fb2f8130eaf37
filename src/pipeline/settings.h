/* What follows from a driver's options and plan: checked and filled in once, the same for the
 * driver and for the runners that hold some of its stages elsewhere. */
#pragma once

#include "pipeline/driver.h"
#include "pipeline/wire.h"

enum {
    SMALL_MICROBATCHES = 16,
    SMALL_ROWS = 32,
    OUTPUT_ALL_ROWS = 64, /* of one micro-batch, besides one for each slot: bounds the logits'
                             memory. Rows of drafts count, too */
};

/* Refuses stages and options that cannot be; `options` are those given, with the defaults filled
 * in. */
enum error_code pipeline_check(const struct model *model, const struct stage_plan *stages,
                               uint32_t n_stages, const struct driver_options *given,
                               struct driver_options *options, struct error *err);

struct pipeline_settings {
    uint32_t n_devices;                   /* of any machine */
    uint32_t stage_devices[LIMIT_STAGES]; /* which of them a stage is on */
    uint32_t n_microbatches; /* under way at once: one for each device. Where there are several, one
                                more, so that what a device gives on finds the next at work and
                                another waiting: its own next need not wait for that to end */
    /* Beside those, of guesses alone (speculation_train.h), which links hold where some of the
     * stages are elsewhere. They have few rows, and so are small. */
    uint32_t n_small;
    struct wire_shape shape;
    struct microbatch_sizes sizes, small_sizes;
};
void pipeline_settings_init(struct pipeline_settings *settings, const struct model *model,
                            const struct stage_plan *stages, uint32_t n_stages,
                            const struct driver_options *options);
