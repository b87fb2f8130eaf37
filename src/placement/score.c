#include "placement/score.h"

#include "placement/cost.h"

#include <math.h>

enum { PARTS = 5 };

static double placement_score_mean(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i];
    return n ? sum / n : 0;
}

static double network_of(const struct placement_problem *problem, uint32_t device)
{
    double sum = 0;
    for (uint32_t other = 0; other < problem->n_devices; other++) {
        if (other != device && placement_linked(problem, device, other))
            sum += 1 / (1e-6 + placement_hop_s(problem, device, other, 1));
    }
    return sum;
}

static void parts_of(const struct placement_problem *problem, uint32_t index, double parts[PARTS])
{
    const struct placement_device *device = &problem->devices[index];
    const bool usable = placement_device_usable(device);
    parts[0] =
        usable ? placement_score_mean(device->prefill_flops, problem->model.n_types) * device->share
               : 0;
    parts[1] = usable ? (double)placement_device_bytes(device) : 0;
    parts[2] = usable ? network_of(problem, index) : 0;
    parts[3] = usable ? device->thermal_headroom * device->share : 0;
    parts[4] = usable ? placement_score_mean(device->decode_bytes_per_s, problem->model.n_types) *
                            device->share
                      : 0;
}

void placement_scores(const struct placement_problem *problem,
                      const struct placement_weights *weights, double *scores)
{
    const double given[PARTS] = {weights->compute, weights->memory, weights->network,
                                 weights->thermal, weights->bandwidth};
    double best[PARTS] = {0}, total = 0, parts[PARTS];
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        parts_of(problem, i, parts);
        for (int k = 0; k < PARTS; k++)
            best[k] = fmax(best[k], parts[k]);
    }
    for (int k = 0; k < PARTS; k++)
        total += given[k] > 0 && isfinite(given[k]) ? given[k] : 0;
    for (uint32_t i = 0; i < problem->n_devices; i++) {
        scores[i] = 0;
        parts_of(problem, i, parts);
        for (int k = 0; k < PARTS; k++) {
            if (given[k] > 0 && isfinite(given[k]) && best[k] > 0)
                scores[i] += given[k] / total * parts[k] / best[k];
        }
    }
}
