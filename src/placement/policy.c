#include "placement/policy.h"

#include "base/mem.h"
#include "placement/check.h"
#include "placement/cost.h"

#include <math.h>

const char *placement_policy_name(enum placement_policy policy)
{
    switch (policy) {
    case PLACEMENT_BY_MEMORY:
        return "memory";
    case PLACEMENT_BY_FLOPS:
        return "flops";
    case PLACEMENT_EQUAL:
        return "equal";
    case PLACEMENT_BY_SCORE:
        return "score";
    }
    return "?";
}

static double policy_share_of(const struct placement_problem *problem, enum placement_policy policy,
                              uint32_t index)
{
    const struct placement_device *device = &problem->devices[index];
    double sum = 0;
    switch (policy) {
    case PLACEMENT_BY_MEMORY:
        return (double)placement_device_bytes(device);
    case PLACEMENT_BY_FLOPS:
        for (uint32_t type = 0; type < problem->model.n_types; type++)
            sum += device->prefill_flops[type];
        return sum;
    case PLACEMENT_EQUAL:
    case PLACEMENT_BY_SCORE: /* scores are there already */
        return 1;
    }
    return 0;
}

/* The most layers from `first` that the device can hold, at most `wanted`. */
static uint32_t layers_that_fit(const struct placement_problem *problem, uint32_t device,
                                uint32_t first, uint32_t wanted)
{
    const uint64_t there = placement_device_bytes(&problem->devices[device]);
    uint32_t n = 0;
    while (n < wanted && placement_layer_allowed(problem, device, first + n)) {
        const struct placement_stage stage = {device, first, n + 1};
        if (placement_stage_bytes(problem, &stage) > there)
            break;
        n++;
    }
    return n;
}

static void policy_fill(const struct placement_problem *problem, const double *shares,
                        struct placement *out)
{
    double left = 0;
    uint32_t first = 0;
    *out = (struct placement){0};
    for (uint32_t d = 0; d < problem->n_devices; d++)
        left += shares[d];
    /* Shares are of what is left, so that what one device could not take is spread over those
     * behind it. */
    for (uint32_t d = 0; d < problem->n_devices && first < problem->model.n_layers; d++) {
        if (!(shares[d] > 0) || out->n_stages == LIMIT_STAGES)
            continue;
        const double wanted = (problem->model.n_layers - first) * fmin(shares[d] / left, 1);
        const uint32_t n = layers_that_fit(problem, d, first, (uint32_t)lround(wanted));
        left = fmax(left - shares[d], 0);
        if (n)
            out->stages[out->n_stages++] = (struct placement_stage){d, first, n};
        first += n;
    }
}

enum error_code placement_by_policy(const struct placement_problem *problem,
                                    enum placement_policy policy, struct placement *out,
                                    struct error *err)
{
    struct error own;
    err = err ? err : &own;
    double *shares = mem_new_array(problem->n_devices, sizeof *shares);
    if (!shares)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for %u devices",
                         problem->n_devices);
    if (policy == PLACEMENT_BY_SCORE)
        placement_scores(problem, &PLACEMENT_WEIGHTS_DEFAULT, shares);
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        if (policy != PLACEMENT_BY_SCORE)
            shares[d] = policy_share_of(problem, policy, d);
        if (!placement_device_usable(&problem->devices[d]))
            shares[d] = 0;
    }
    policy_fill(problem, shares, out);
    mem_free(shares);
    if (placement_check(problem, out, err)) {
        err->code = ERROR_NOT_FOUND;
        return error_wrap(err, "by %s", placement_policy_name(policy));
    }
    return ERROR_NONE;
}
