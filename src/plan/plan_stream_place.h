/* A model that fits on no devices together: stages of which a part is read from the disks of their
 * nodes for every batch (engine/weight_window.h), and how fast that is.
 *
 * A batch takes as long in such a stage as reading what is streamed or as computing all of it,
 * whichever is longer. Disks of different nodes read at the same time. Devices of one node share
 * its disk: with several micro-batches under way all its stages read at once, and each waits for
 * what they read together; with one they read one after the other, each with the whole disk.
 *
 * With T seconds for reading, a device is as large as its memory, less the two slots of its window,
 * and T times its part of what its disk reads. So the least T for which the solver finds a
 * placement is looked for, by halving, and of all placements on that way the fastest is taken. That
 * fills memories first, and divides the rest by what disks can do. It begins with all devices of a
 * disk, each with an equal part, with the fastest of each disk, and with the whole model on each
 * device; from each of these, layers and devices are exchanged while that is faster.
 *
 * Pure; any thread. */
#pragma once

#include "base/buffer.h"
#include "placement/solve.h"

/* Of which nobody has measured how fast it reads: a slow SSD, so that a forecast promises little.
 */
enum { PLAN_STREAM_DISK_BPS = 200 * 1000 * 1000 };
enum {
    PLAN_STREAM_NODES = 500, /* of each of a dozen searches */
    PLAN_STREAM_SMALL = 6,   /* with more devices each is greedy's */
};

struct plan_stream_disk { /* that a device reads from */
    uint64_t bytes_per_s; /* all of it; 0: nothing is streamed there */
    uint32_t index;       /* devices with the same one share it */
};

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
/* Fills wait_s of all stages from the rest of them, for as many micro-batches as the problem has.
 * disks[n_devices]; those of stages that stream have a speed. */
void plan_stream_waits(const struct placement_problem *problem,
                       const struct plan_stream_disk *disks, struct plan_stream_placement *of);

/* Where the demand has weights_max, no stage's weights take more memory.
 *
 * disks[n_devices] of the problem. The options are those of each search; their `go_on` ends all of
 * it, with the best so far. False: not even windows fit, or there was no time to find one that
 * does. */
bool plan_stream_place(const struct placement_problem *problem,
                       const struct plan_stream_disk *disks,
                       const struct placement_options *options, struct plan_stream_placement *out);

/* The options for a problem of that size: each search is bounded, and a large one is greedy's. */
struct placement_options plan_stream_options(const struct placement_problem *problem);
/* Whether an answer still fits the memory of the problem. */
bool plan_stream_fits(const struct placement_problem *problem,
                      const struct plan_stream_placement *of);

/* The same on one machine, where all devices read from one disk. */
bool plan_stream_place_here(const struct placement_problem *problem, uint64_t disk_bps,
                            const struct placement_options *options,
                            struct plan_stream_placement *out);

/* "0.8 tok/s with 9 of 48 layers streamed from this disk (1.1 GB/s): 7 on cpu, 2 on vulkan0; 3.1
 * with 1.2 GiB more on cpu and 310 MiB more on vulkan0" */
void plan_stream_here_text(const struct placement_problem *problem,
                           const struct plan_stream_placement *stream, uint64_t disk_bps,
                           struct buffer *out);

/* "0.8 tok/s with 9 of 48 layers from the disk of tower and attic; 3.1 with 1.2 GiB more on tower
 * cpu and 1.1 GiB more on tower gpu0 and 310 MiB more on attic" */
void plan_stream_place_text(const struct placement_problem *problem,
                            const struct plan_stream_placement *stream, struct buffer *out);
