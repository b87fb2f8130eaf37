#include "base/buffer.h"
#include "base/size_text.h"
#include "model/model.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "plan/plan.h"
#include "report/remedy.h"

enum { QUESTIONS_NODES = 20000 }; /* of each search: the user waits for the message */

static void plan_refuse_say(const struct placement_problem *problem,
                            const struct placement_remedy *remedy, uint32_t index,
                            struct buffer *out)
{
    buffer_text(out, index ? ", or " : "; it would fit with ");
    switch (remedy->kind) {
    case PLACEMENT_REMEDY_KV_TYPE:
        buffer_printf(out, "--kv %s", remedy->kv_type);
        break;
    case PLACEMENT_REMEDY_STREAMS:
        buffer_printf(out, "--slots %u", remedy->streams);
        break;
    case PLACEMENT_REMEDY_CONTEXT:
        buffer_printf(out, "--context %u", remedy->context_tokens);
        break;
    case PLACEMENT_REMEDY_COMBINED:
        buffer_printf(out, "--slots %u --context %u%s%s", remedy->streams, remedy->context_tokens,
                      remedy->kv_type[0] ? " --kv " : "", remedy->kv_type);
        break;
    case PLACEMENT_REMEDY_FREE_MEMORY:
        buffer_printf(out, "%.0f MiB more on %s", (double)remedy->bytes / 0x1p20,
                      problem->devices[remedy->device].id);
        break;
    case PLACEMENT_REMEDY_ADD_DEVICE:
        buffer_printf(out, "one more device of %.0f MiB", (double)remedy->bytes / 0x1p20);
        break;
    case PLACEMENT_REMEDY_KINDS:
        break;
    }
}

/* Which of the three is large decides what helps. */
static void say_parts(const struct placement_problem *problem, struct buffer *out)
{
    const struct placement_model *model = &problem->model;
    double weights = 0, kv = 0;
    for (uint32_t i = 0; i < model->n_layers; i++)
        kv += (double)placement_kv_bytes(&model->layers[i], &problem->demand) +
              (double)placement_state_bytes(&model->layers[i], &problem->demand);
    for (uint32_t i = 0; i < model->n_layers; i++)
        weights += (double)placement_layer_bytes(problem, i);
    weights -= kv + (double)(model->compute_input_bytes + model->compute_output_bytes);
    buffer_printf(out, " (MiB: weights %.1f, KV cache %.1f, compute of a stage %.1f)",
                  weights / 0x1p20, kv / 0x1p20, (double)model->compute_bytes / 0x1p20);
}

enum error_code plan_refuse(const struct placement_problem *problem, const struct model *model,
                            enum kv_type kv_type, struct error *err)
{
    const struct placement_kv_types types = plan_kv_types(model, kv_type);
    struct placement_options options = placement_options_default();
    struct placement_remedies remedies;
    struct buffer text = {0};
    options.max_nodes = QUESTIONS_NODES;
    enum error_code code = placement_remedies(problem, &types, &options, &remedies, err);
    if (code)
        return code;
    say_parts(problem, &text);
    for (uint32_t i = 0; i < remedies.n; i++)
        plan_refuse_say(problem, &remedies.list[i], i, &text);
    const struct placement all = {1, {{0, 0, problem->model.n_layers}}};
    struct error why = {
        0}; /* of one device the check says it more exactly than the solver's summary */
    const bool one = problem->n_devices == 1 && placement_check(problem, &all, &why);
    code = error_set(err, ERROR_NOT_FOUND, "%s%s", one ? why.text : remedies.why,
                     text.data ? text.data : "");
    buffer_deinit(&text);
    return code;
}

enum error_code plan_refuse_only(const struct placement_problem *problem, uint32_t device,
                                 struct error *err)
{
    const struct placement_stage all = {device, 0, problem->model.n_layers};
    const struct placement_device *of = &problem->devices[device];
    const uint64_t bytes = placement_stage_bytes(problem, &all);
    struct buffer text = {0};
    if (bytes <= placement_device_bytes(of))
        return error_set(err, ERROR_NOT_FOUND, "%s cannot compute with its weights", of->id);
    buffer_printf(&text, "%s has no room for it, which takes %s; there are", of->id,
                  size_text(bytes).text);
    for (uint32_t i = 0; i < problem->n_devices; i++)
        buffer_printf(&text, "%s %s with %s", i ? "," : "", problem->devices[i].id,
                      size_text(placement_device_bytes(&problem->devices[i])).text);
    error_set(err, ERROR_NOT_FOUND, "%s", text.failed ? "no room" : text.data);
    buffer_deinit(&text);
    return ERROR_NOT_FOUND;
}
