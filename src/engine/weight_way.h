/* Past the page cache or through it: which way a stream of weights reads, by what its own reads
 * took.
 *
 * A short measurement when a stage opens is too kind to one way or the other: it meets a disk's own
 * cache, and nothing beside it computes or needs the memory. So the stream measures as it goes on.
 * A pass is as many bytes as all streamed layers have. After the first pass the other way gets one,
 * and then the faster one stays; every WEIGHT_WAY_PASSES passes the other is tried again. Reads
 * through the cache have to be faster by a quarter: they push out pages that others need, and take
 * the processor's time for copying.
 *
 * Pure: no clock, no file. One thread at a time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { WEIGHT_WAY_PASSES = 64 };

struct weight_way_sum {
    uint64_t bytes, ns; /* of reads, those of several threads added up */
};

struct weight_way {
    bool is_direct; /* the next read's */
    bool is_trial;  /* of the way that is not the better one as far as is known */
    bool has_both;
    uint64_t pass_bytes;
    uint32_t n_passes; /* since the last trial */
    struct weight_way_sum now;
    struct weight_way_sum last[2]; /* of a whole pass: through the cache, past it */
};

/* `pass_bytes`: more than 0. */
void weight_way_init(struct weight_way *way, bool has_both, bool is_direct, uint64_t pass_bytes);
/* A read has ended. One that began the other way, before the last change, does not count. */
void weight_way_count(struct weight_way *way, bool was_direct, uint64_t bytes, uint64_t ns);
