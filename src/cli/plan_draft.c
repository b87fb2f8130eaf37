#include "cli/plan_draft.h"

#include "cli/inspect.h"
#include "clusterfile/cluster_problem.h"
#include "model/draft_model.h"
#include "placement/draft_device.h"

#include <string.h>

enum error_code plan_draft_open(struct plan_draft *out, const char *word, const struct model *model,
                                const struct driver_options *given, struct error *err)
{
    *out = (struct plan_draft){.given = {.n_slots = given->n_slots, .context = given->context}};
    if (!word)
        return ERROR_NONE;
    enum error_code code = model_header_open(word, &out->header, err);
    if (!code)
        code = model_open(out->header.path, &out->model, err);
    if (!code)
        code = model_check_draft(out->model, model, err);
    if (!code)
        code = driver_options_fill(&out->given, out->model, &out->options, err);
    if (code)
        return code;
    const char *name = model_name(out->model);
    inspect_clean_text(&out->name, name, strlen(name), true);
    return out->name.failed ? error_set(err, ERROR_NO_MEMORY, "not enough memory for a name")
                            : ERROR_NONE;
}

/* Its context is the model's, as far as it reaches. */
static enum error_code plan_draft_fit_context(struct plan_draft *draft,
                                              const struct driver_options *options,
                                              struct error *err)
{
    const uint32_t reach = model_hyperparameters(draft->model)->n_context_train;
    draft->given.n_slots = options->n_slots;
    draft->given.context = reach && reach < options->context ? reach : options->context;
    return driver_options_fill(&draft->given, draft->model, &draft->options, err);
}

enum error_code plan_draft_count(struct plan_draft *draft, const struct driver_options *options,
                                 bool embedding_counts, struct plan_model *cost, struct error *err)
{
    struct plan_compute compute;
    if (!draft->model)
        return ERROR_NONE;
    enum error_code code = plan_draft_fit_context(draft, options, err);
    if (code)
        return code;
    plan_compute_estimate(draft->model, &draft->options, &compute);
    code = plan_model_init(&draft->cost, draft->model, &draft->options, &compute, embedding_counts,
                           err);
    if (code)
        return error_wrap(err, "the draft model %s", draft->name.data);
    draft->demand = plan_demand(&draft->options);
    const struct placement_problem whole = {.model = draft->cost.model, .demand = draft->demand};
    cost->model.compute_input_bytes += placement_draft_bytes(&whole, 0);
    return ERROR_NONE;
}

enum error_code plan_draft_report(const struct plan_draft *draft, const struct plan_here *devices,
                                  struct report *report, struct error *err)
{
    struct cluster_problem posed;
    if (!draft->model)
        return ERROR_NONE;
    if (devices->draft.n_stages) {
        report_add_draft(report, draft->name.data, &devices->draft.problem,
                         &devices->draft.solution.placement);
        return ERROR_NONE;
    }
    const enum error_code code =
        cluster_problem_init(&posed, &devices->cluster, &draft->cost.model, &draft->demand, err);
    if (!code)
        report_add_draft(report, draft->name.data, &posed.problem, NULL);
    cluster_problem_deinit(&posed);
    return code;
}

void plan_draft_deinit(struct plan_draft *draft)
{
    plan_model_deinit(&draft->cost);
    buffer_deinit(&draft->name);
    model_close(draft->model);
    model_header_close(&draft->header);
    *draft = (struct plan_draft){0};
}
