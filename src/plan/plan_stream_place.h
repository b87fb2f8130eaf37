/* A model that fits on no devices together: stages of which a part is read from the disks of their
 * nodes for every batch (engine/weight_window.h), and how fast that is.
 *
 * A batch takes as long in such a stage as reading what is streamed or as computing all of it,
 * whichever is longer; disks of different nodes read at the same time. With T seconds for reading,
 * a device is as large as its memory, less the two slots of its window, and T times what its disk
 * reads. So the least T for which the solver finds a placement is looked for, by halving, and of
 * all placements on that way the fastest is taken. That fills memories first, and divides the rest
 * by what disks can do.
 *
 * Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "placement/solve.h"

/* Of which nobody has measured how fast it reads: a slow SSD, so that a forecast promises little.
 */
enum { PLAN_STREAM_DISK_BPS = 200 * 1000 * 1000 };
enum { PLAN_STREAM_NODES = 500 }; /* of each of a dozen searches */

struct plan_stream_stage { /* zeroed: all of it stays in memory */
    uint64_t weights_max;  /* bytes of memory that its weights may take */
    uint32_t n_streamed;   /* layers */
    uint64_t streamed_bytes;
    uint64_t missing_bytes; /* with so much more memory all of them would stay */
    double wait_s;          /* what a batch waits for the disk beyond its computing */
};

struct plan_stream_placement {
    struct placement placement;
    struct plan_stream_stage stages[LIMIT_STAGES];
    uint32_t n_streamed;
    double decode_tokens_per_s, resident_tokens_per_s; /* so; with enough memory for all */
};

/* What is streamed of a stage whose weights may take so much. False: its window does not fit. */
bool plan_stream_stage_of(const struct placement_problem *problem,
                          const struct placement_stage *stage, uint64_t weights_max,
                          struct plan_stream_stage *out);
/* What a batch of decoding waits for the disk beyond its computing. */
double plan_stream_wait_s(const struct placement_problem *problem,
                          const struct placement_stage *stage, uint64_t streamed_bytes,
                          uint64_t disk_bps);

/* Where the demand has weights_max, no stage's weights take more memory.
 *
 * disk_bps[n_devices] of the problem; 0: nothing is streamed there. At most one device of those
 * that read from one disk has any. The options are those of each search. False: not even windows
 * fit. */
bool plan_stream_place(const struct placement_problem *problem, const uint64_t *disk_bps,
                       const struct placement_options *options, struct plan_stream_placement *out);

/* The same on one machine, where all devices read from one disk: each a part of it while several
 * micro-batches are under way, else one after the other. The whole model on each device alone is
 * looked at, too. */
bool plan_stream_place_here(const struct placement_problem *problem, uint64_t disk_bps,
                            const struct placement_options *options,
                            struct plan_stream_placement *out);

/* "0.8 tok/s with 9 of 48 layers streamed from this disk (1.1 GB/s): 7 on cpu, 2 on vulkan0; 3.1
 * with 1.2 GiB more on cpu and 310 MiB more on vulkan0" */
void plan_stream_here_text(const struct placement_problem *problem,
                           const struct plan_stream_placement *stream, uint64_t disk_bps,
                           struct buffer *out);

/* "0.8 tok/s with 9 of 48 layers from the disks of tower and attic; 3.1 with 1.2 GiB more on tower
 * and 310 MiB more on attic" */
void plan_stream_place_text(const struct placement_problem *problem,
                            const struct plan_stream_placement *stream, struct buffer *out);
