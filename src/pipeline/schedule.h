/* Which rows the next micro-batch holds. Pure: no clock, no memory, no other state.
 *
 * Rules, in this order:
 *  1. One micro-batch gives logits or embeddings, not both. Whoever has waited longest decides.
 *  2. Decode rows come first, one a sequence, longest waiting first. With several devices in a
 *     row the streams are spread over as many micro-batches, so that each device has one.
 *  3. The rest is for prompts, shared evenly in quanta of at least SCHEDULE_QUANTUM rows,
 *     longest waiting first; what a short prompt leaves goes to the others. While anybody is
 *     decoding, prompts get at most `prefill_rows_mixed`, which bounds how long a step may
 *     take. With several devices a prompt is cut so that its chunks overlap (chunks.h).
 *     What is to be read whole has all its rows in one micro-batch, or waits; the longest waiting
 *     goes even if it is larger than its share, alone where it does not fit beside decode rows. It
 *     is in no micro-batch with prompts that are cut: who has waited longest decides.
 *  4. Decode rows never take the last quarter of the rows while a prompt waits, and with a single
 *     row the longest waiting sequence has it: nobody starves. */
#pragma once

#include "base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCHEDULE_QUANTUM = 64 };

struct schedule_item { /* one running sequence */
    uint32_t waiting;  /* tokens that are known and in no micro-batch yet; 0: nothing to do now */
    bool decoding;     /* its prompt is done: it waits for one token at a time */
    bool embeddings;   /* it wants hidden states, not logits */
    bool whole;        /* all that waits goes at once */
    bool output_all;   /* every row of it has an output */
    uint64_t served;   /* number of the micro-batch that last had rows of it; for a new one, of its
                          admission */
};

struct schedule_limits {
    uint32_t rows;       /* of one micro-batch, at least 1 */
    uint32_t devices;    /* that work on different micro-batches at the same time, at least 1 */
    uint32_t chunk_rows; /* of the rows, prompt rows where there are several devices, at least 1 */
    uint32_t
        prefill_rows_mixed;   /* of the rows, prompt rows while somebody is decoding, at least 1 */
    uint32_t output_all_rows; /* of those, rows of sequences with `output_all`, at least 1 */
    uint32_t embedding_rows;  /* rows of a micro-batch of embeddings, at least 1 */
};

struct schedule_share {
    uint32_t item; /* index into the items */
    uint32_t rows; /* at least 1 */
};

struct schedule {
    bool embeddings;
    uint32_t n_shares;
    uint32_t n_rows;
    struct schedule_share shares[LIMIT_SEQUENCES]; /* each item at most once */
};

/* At most LIMIT_SEQUENCES items. n_shares is 0 exactly when no item waits. */
void schedule_next(const struct schedule_item *items, uint32_t n_items,
                   const struct schedule_limits *limits, struct schedule *out);
