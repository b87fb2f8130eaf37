#include "plan/plan_draft_here.h"

#include "gpu/gpu.h"
#include "model/model.h"

/* The model's devices, and this one behind them where it is none of those. */
static uint32_t draft_here_list(const struct selection *selection, struct device *device,
                                struct device *out[LIMIT_STAGES + 1])
{
    uint32_t n = 0;
    bool is_there = !device;
    for (; n < selection->n_devices; n++) {
        out[n] = selection->devices[n];
        is_there = is_there || out[n] == device;
    }
    if (!is_there)
        out[n++] = device;
    return n;
}

enum error_code plan_draft_here(struct plan *out, const struct model *draft,
                                const struct plan_draft_request *request, struct error *err)
{
    struct device *devices[LIMIT_STAGES + 1], *device = NULL;
    uint32_t n = 0;
    *out = (struct plan){0};
    if (request->device && gpu_select(request->gpu, request->device, &device, 1, &n, err))
        return error_wrap(err, "--draft-device");
    const struct plan_request plan = {
        .n_devices = draft_here_list(request->selection, device, devices),
        .devices = devices,
        .n_spare = device ? 0 : request->selection->n_spare,
        .only = device,
        .limit_s = request->limit_s,
        .options = request->options,
    };
    const enum error_code code = plan_make(out, draft, &plan, err);
    return code ? error_wrap(err, "the draft model %s", model_name(draft)) : ERROR_NONE;
}
