#include "gpu/custom_op.h"

#include <assert.h>
#include <stddef.h>

/* Behind what ggml keeps there: a function, a number and a pointer. */
enum { CUSTOM_BEGIN = sizeof(ggml_custom_op_t) + 2 * sizeof(void *) };

static_assert(GGML_MAX_OP_PARAMS >= CUSTOM_BEGIN + sizeof(struct custom_op) &&
                  (offsetof(struct ggml_tensor, op_params) + CUSTOM_BEGIN) %
                          _Alignof(struct custom_op) ==
                      0,
              "the parameters of a custom operation leave room");

struct ggml_tensor *custom_op_new(struct ggml_context *ctx, enum ggml_type type,
                                  const int64_t ne[3], struct ggml_tensor **sources, int n_sources,
                                  custom_share *share, const void *arg)
{
    void *const own = (void *)(uintptr_t)arg;
    struct ggml_tensor *out = ggml_custom_4d(ctx, type, ne[0], ne[1], ne[2], 1, sources, n_sources,
                                             share, GGML_N_TASKS_MAX, own);
    *custom_op_of(out) = (struct custom_op){.share = share, .arg = own};
    return out;
}

struct custom_op *custom_op_of(struct ggml_tensor *tensor)
{
    return (struct custom_op *)((char *)tensor->op_params + CUSTOM_BEGIN);
}
