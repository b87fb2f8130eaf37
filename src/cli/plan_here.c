#include "cli/plan_here.h"

#include "base/this_process.h"
#include "cli/notice.h"
#include "gpu/gpu.h"
#include "plan/plan_devices.h"
#include "plan/plan_draft_here.h"

#include <limits.h>

static enum error_code plan_here_place_draft(struct plan_here *out, const struct gpu *gpu,
                                             const struct selection *selection,
                                             const struct plan_here_draft *draft, struct error *err)
{
    const struct plan_draft_request request = {
        .gpu = gpu, .selection = selection, .device = draft->device, .options = draft->options};
    const enum error_code code = plan_draft_here(&out->draft, draft->model, &request, err);
    if (code)
        return code;
    plan_devices_take(&out->cluster, &out->draft.problem, &out->draft.solution.placement);
    return ERROR_NONE;
}

static enum error_code plan_here_ask(struct plan_here *out, const struct gpu *gpu,
                                     const char *sim_file, const struct model *model,
                                     const struct driver_options *options,
                                     const struct plan_here_draft *draft, struct error *err)
{
    struct selection selection;
    enum error_code code = selection_make(gpu, NULL, sim_file != NULL, &selection, err);
    if (!code)
        code = plan_compute_measure_all(selection.devices, selection.n_devices, model, options,
                                        &out->compute, err);
    if (!code)
        code = plan_devices_init(&out->cluster, selection.devices, selection.n_devices, err);
    if (!code && draft)
        code = plan_here_place_draft(out, gpu, &selection, draft, err);
    out->n_spare = selection.n_spare;
    return code;
}

enum error_code plan_here_init(struct plan_here *out, const char *sim_file,
                               const struct model *model, const struct driver_options *options,
                               const struct plan_here_draft *draft, struct error *err)
{
    char registry[PATH_MAX];
    struct gpu *gpu;
    struct notice notice;
    gpu_registry_path(registry, sizeof registry);
    const struct gpu_options gpu_options = {.registry = registry,
                                            .prober = this_program(),
                                            .sim_file = sim_file,
                                            .skip_other = sim_file && !(draft && draft->device)};
    *out = (struct plan_here){0};
    notice_begin(&notice, "looking at this machine's devices …");
    enum error_code code = gpu_open(&gpu_options, &gpu, err);
    if (!code) {
        code = plan_here_ask(out, gpu, sim_file, model, options, draft, err);
        gpu_close(gpu);
    }
    if (code)
        plan_here_deinit(out);
    notice_end(&notice);
    return code;
}

void plan_here_deinit(struct plan_here *here)
{
    if (!here)
        return;
    cluster_deinit(&here->cluster);
    plan_deinit(&here->draft);
    *here = (struct plan_here){0};
}
