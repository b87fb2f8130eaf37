#include "plan/selection.h"

#include "gpu/gpu.h"

/* A device that computes from host memory already leaves the CPU nothing. */
static void add_spare_cpu(const struct gpu *gpu, struct selection *out)
{
    bool is_wanted = out->n_devices < LIMIT_STAGES;
    for (uint32_t i = 0; i < out->n_devices; i++)
        is_wanted = is_wanted && device_info(out->devices[i])->kind == DEVICE_GPU;
    struct device *cpu = is_wanted ? gpu_find(gpu, "cpu") : NULL;
    if (!cpu)
        return;
    out->devices[out->n_devices++] = cpu;
    out->n_spare = 1;
}

enum error_code selection_make(const struct gpu *gpu, const char *list, bool as_given,
                               struct selection *out, struct error *err)
{
    *out = (struct selection){0};
    enum error_code code = gpu_select(gpu, list, out->devices, LIMIT_STAGES, &out->n_devices, err);
    if (!code && !list && !as_given)
        add_spare_cpu(gpu, out);
    return code;
}
