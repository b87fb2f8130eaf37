/* A batch in as many parts as memory allows: where a device has no memory for all rows at once, the
 * halves are computed one after the other, and their halves. One row alone waits for memory. What
 * comes out is what the whole would have given. Pure but for the functions that it is given. */
#pragma once

#include "engine/stage.h"

struct batch_parts {
    enum error_code (*forward)(void *arg, const struct batch *batch, const float *in, float *out,
                               struct error *err); /* as stage_forward() */
    bool (*wait)(void *arg); /* one row did not fit: false to give up; may take its time */
    void *arg;
    uint32_t in_width;    /* floats of a row of `in` */
    uint32_t out_width;   /* of a row of `out` */
    uint32_t given_width; /* of a row of batch.given */
    uint32_t rows_max;    /* more are not tried at once, where they can be cut; 0: all are */
    bool whole;           /* a slot's rows stay together: parts are of slots */
    bool outputs_only;    /* `out` has rows for the batch's outputs alone */
};

/* `in` and `out` as for stage_forward(); either may be NULL. *was_short: it did not go as
 * it was tried.
 * After an error the first parts' rows are in the cache: the caller cuts them off. */
enum error_code batch_parts_run(const struct batch_parts *parts, const struct batch *batch,
                                const float *in, float *out, bool *was_short, struct error *err);
