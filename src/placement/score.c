#include "placement/score.h"

#include "base/amount.h"
#include "placement/cost.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

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

/* ---- weights, as people write them ----------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} score_weights[PARTS] = {
    {"compute", offsetof(struct placement_weights, compute)},
    {"memory", offsetof(struct placement_weights, memory)},
    {"network", offsetof(struct placement_weights, network)},
    {"thermal", offsetof(struct placement_weights, thermal)},
    {"bandwidth", offsetof(struct placement_weights, bandwidth)},
};

static double *score_weight_of(struct placement_weights *weights, int index)
{
    return (double *)(void *)((char *)weights + score_weights[index].offset);
}

/* One "name=number", which ends at the comma or the text's end; the part's index, -1: it is none.
 */
static int score_read_one(const char *text, size_t size, double *out)
{
    double number = 0;
    for (int k = 0; k < PARTS; k++) {
        const size_t length = strlen(score_weights[k].name);
        if (size <= length || memcmp(text, score_weights[k].name, length) != 0 ||
            text[length] != '=')
            continue;
        const size_t rest = size - length - 1;
        if (!rest || amount_number(text + length + 1, rest, &number) != rest || number > 1000)
            return -1;
        *out = number;
        return k;
    }
    return -1;
}

static double score_total(struct placement_weights weights)
{
    double total = 0;
    for (int k = 0; k < PARTS; k++)
        total += *score_weight_of(&weights, k);
    return total;
}

bool placement_weights_are_set(const struct placement_weights *weights)
{
    return score_total(*weights) > 0;
}

enum error_code placement_weights_read(const char *text, struct placement_weights *weights,
                                       struct error *err)
{
    struct placement_weights read = *weights;
    bool given[PARTS] = {false};
    for (const char *at = text;; at++) {
        const size_t size = strcspn(at, ",");
        double number = 0;
        const int k = score_read_one(at, size, &number);
        if (k < 0 || given[k])
            return error_set(err, ERROR_INVALID,
                             "weights are compute, memory, network, thermal and bandwidth, once "
                             "each, from 0 to 1000, such as compute=10,memory=60; not '%.60s'",
                             text);
        given[k] = true;
        *score_weight_of(&read, k) = number;
        at += size;
        if (!*at)
            break;
    }
    if (!placement_weights_are_set(&read))
        return error_set(err, ERROR_INVALID, "at least one weight must be above 0");
    *weights = read;
    return ERROR_NONE;
}
