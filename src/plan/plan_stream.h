/* A model that no device holds: which device would compute it with most of the layers streamed from
 * the disk (engine/weight_window.h), and how fast.
 *
 * A token takes as long as reading the streamed layers or as computing all of them, whichever is
 * longer: both go on at the same time. The disk is measured, on the model's own file; the rest is
 * the placement's forecast. */
#pragma once

#include "base/buffer.h"
#include "placement/problem.h"

struct model;

struct plan_stream { /* zeroed: nothing is streamed */
    uint32_t device; /* of the problem */
    uint32_t n_streamed, n_layers;
    uint64_t weights_max; /* bytes that weights may take there */
    uint64_t streamed_bytes;
    uint64_t disk_bps;
    double decode_tokens_per_s;
    uint64_t missing_bytes;       /* with so much more memory all layers would stay */
    double resident_tokens_per_s; /* and this would be the speed */
};

/* `disk_bps` of model's file, PLAN_STREAM_DISK_BPS of one under 2 MiB; ERROR_UNSUPPORTED or
 * ERROR_IO where it cannot be read so. */
enum error_code plan_stream_disk(const struct model *model, uint64_t *disk_bps, struct error *err);

/* The fastest of the problem's devices; `weights_max`: of the user's, 0: what is free. False: not
 * even the smallest window fits on any. Pure. */
bool plan_stream_choose(const struct placement_problem *problem, uint64_t weights_max,
                        uint64_t disk_bps, struct plan_stream *out);

/* "0.8 tok/s with 32 of 48 layers streamed from this disk (1.2 GB/s); 3.1 with 0.9 GiB more on cpu"
 */
void plan_stream_text(const struct plan_stream *stream, const char *device, struct buffer *out);
