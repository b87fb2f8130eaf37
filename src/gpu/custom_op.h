/* Operations of Medley's own in ggml's graphs, on the CPU's threads. */
#pragma once

#include <ggml.h>

enum { CUSTOM_OWN = 4 };

/* Share `ith` of `nth` of `out`, on as many threads at once. */
typedef void custom_share(struct ggml_tensor *out, int ith, int nth, void *arg);

struct custom_op { /* in the parameters of its tensor, which are numbers of 32 bits */
    custom_share *share;
    void *arg;
    int32_t scratch;         /* the number of a source that is written, too, plus 1; 0: none */
    int32_t own[CUSTOM_OWN]; /* what the operation keeps for itself; zeros at first */
} __attribute__((packed, aligned(4)));

/* F32 or I8 [ne[0], ne[1], ne[2]]; `arg` stays the caller's. */
struct ggml_tensor *custom_op_new(struct ggml_context *ctx, enum ggml_type type,
                                  const int64_t ne[3], struct ggml_tensor **sources, int n_sources,
                                  custom_share *share, const void *arg);
/* Of a tensor that custom_op_new() made, whatever has become of its operation (custom_runs.h). */
struct custom_op *custom_op_of(struct ggml_tensor *tensor);
