/* The context that nobody asked for: the usual one, more where memory is left over, less where that
 * makes the model fit. */
#include "plan/plan_context.h"
#include "base/log.h"
#include "engine/batch_shape.h"
#include "model/model.h"
#include "placement/cost.h"
#include "plan/plan.h"

enum {
    SHARE_OF_REST = 8 /* of what the usual context leaves free, more of it takes so much: 1/8 */
};

/* LongRoPE has other factors for contexts beyond the original one, for short prompts, too. */
uint32_t plan_context_most(const struct model *model)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    uint32_t most = h->n_context_train < LIMIT_CONTEXT ? h->n_context_train : LIMIT_CONTEXT;
    if (h->n_context_max && h->n_context_max < most)
        most = h->n_context_max;
    if (model_tensor(model, TENSOR_ROPE_FACTORS_LONG, 0) && h->n_context_original < most)
        most = h->n_context_original;
    return most;
}

static bool context_is_modest(const struct placement_problem *problem,
                              const struct placement_stage *stage, uint32_t context)
{
    const uint64_t all = placement_device_bytes(&problem->devices[stage->device]),
                   usual = placement_stage_bytes(problem, stage);
    struct placement_problem longer = *problem;
    longer.demand.context_tokens = kv_cells(context);
    const uint64_t cells = longer.demand.context_tokens - problem->demand.context_tokens;
    const uint64_t more = placement_stage_bytes(&longer, stage) - usual +
                          cells * problem->model.compute_bytes_per_context;
    const bool is_known = all < PLACEMENT_BYTES_MAX;
    return is_known && all > usual && more <= (all - usual) / SHARE_OF_REST;
}

uint32_t plan_context_modest(const struct placement_problem *problem,
                             const struct placement *placement, uint32_t context, uint32_t most)
{
    for (uint32_t next; context < most; context = next) {
        next = most - context < context ? most : 2 * context;
        for (uint32_t i = 0; i < placement->n_stages; i++) {
            if (!context_is_modest(problem, &placement->stages[i], next))
                return context;
        }
    }
    return context;
}

static enum error_code context_raise(struct plan *out, const struct model *model,
                                     const struct plan_request *request,
                                     struct driver_options *options, struct error *err)
{
    const uint32_t usual = options->context;
    if (model_hyperparameters(model)->reads_whole) /* its batches would grow, too */
        return ERROR_NONE;
    options->context = plan_context_modest(&out->problem, &out->solution.placement, usual,
                                           plan_context_most(model));
    if (options->context == usual)
        return ERROR_NONE;
    plan_deinit(out);
    if (plan_make(out, model, request, NULL) == ERROR_NONE) {
        log_line(LOG_INFO, "plan", "a context of %u tokens: there is memory for it (--context)",
                 options->context);
        return ERROR_NONE;
    }
    options->context = usual;
    return plan_make(out, model, request, err);
}

static enum error_code context_lower(struct plan *out, const struct model *model,
                                     const struct plan_request *request,
                                     struct driver_options *options)
{
    enum error_code code = ERROR_NOT_FOUND;
    const uint32_t usual = options->context;
    while (code == ERROR_NOT_FOUND && options->context / 2 >= PLAN_CONTEXT_LEAST) {
        options->context /= 2;
        code = plan_make(out, model, request, NULL);
    }
    if (!code)
        log_line(LOG_WARN, "plan", "a context of %u tokens: %u do not fit (--context)",
                 options->context, usual);
    return code;
}

/* A shorter context comes before layers that are read from the disk for each token. */
static enum error_code context_choose(struct plan *out, const struct model *model,
                                      const struct plan_request *request,
                                      struct driver_options *options, struct error *err)
{
    const uint32_t most = plan_context_most(model), wished = request->context_wished;
    if (wished)
        options->context = wished < most ? wished : most;
    const uint32_t usual = options->context;
    struct plan_request resident = *request;
    resident.may_stream = request->may_stream && options->weights_max;
    enum error_code code = plan_make(out, model, &resident, err);
    if (code == ERROR_NONE)
        return wished || out->stream.n_streamed || out->streams.n_streamed
                   ? ERROR_NONE
                   : context_raise(out, model, &resident, options, err);
    if (code != ERROR_NOT_FOUND || context_lower(out, model, &resident, options) == ERROR_NONE)
        return code == ERROR_NOT_FOUND ? ERROR_NONE : code;
    options->context = usual;
    return request->may_stream ? plan_make(out, model, request, err) : code;
}

enum error_code plan_make_context(struct plan *out, const struct model *model,
                                  const struct plan_request *request, uint32_t *context,
                                  struct error *err)
{
    struct driver_options options = *request->options, usual;
    struct plan_request asked = *request;
    *out = (struct plan){0};
    enum error_code code = driver_options_fill(request->options, model, &usual, err);
    if (code)
        return code;
    options.context = usual.context;
    asked.options = &options;
    /* A context that grew with the memory could be more than the cells that were asked for. */
    code = request->options->context || request->options->cells
               ? plan_make(out, model, &asked, err)
               : context_choose(out, model, &asked, &options, err);
    *context = options.context;
    return code;
}
