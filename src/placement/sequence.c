#include "placement/sequence.h"

#include "base/mem.h"
#include "placement/cost.h"

#include <math.h>

enum error_code sequence_work_init(struct sequence_work *work, uint32_t n_layers, struct error *err)
{
    const uint64_t cells = (uint64_t)LIMIT_STAGES * (n_layers + 1);
    work->rounds = mem_new_array(cells, sizeof *work->rounds);
    work->froms = mem_new_array(cells, sizeof *work->froms);
    work->low = mem_new_array(n_layers + 1, sizeof *work->low);
    if (work->rounds && work->froms && work->low)
        return ERROR_NONE;
    sequence_work_deinit(work);
    return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for cuts of %u layers",
                     n_layers);
}

void sequence_work_deinit(struct sequence_work *work)
{
    mem_free(work->rounds);
    mem_free(work->froms);
    mem_free(work->low);
    *work = (struct sequence_work){0};
}

static void read_back(const struct placement_tables *tables, const struct sequence_work *work,
                      const uint32_t *devices, uint32_t n, struct placement *out)
{
    uint32_t end = tables->n_layers;
    out->n_stages = n;
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t first = i ? work->froms[(uint64_t)i * (tables->n_layers + 1) + end] : 0;
        out->stages[i] = (struct placement_stage){devices[i], first, end - first};
        end = first;
    }
}

static double longest_of(const struct placement_tables *tables, const struct placement *placement)
{
    double longest_s = 0;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const double *time = tables_time(tables, stage->device);
        longest_s = fmax(longest_s, tables->launch[stage->device] +
                                        time[stage->first_layer + stage->n_layers] -
                                        time[stage->first_layer]);
        if (i)
            longest_s = fmax(longest_s, placement_occupation_s(tables->problem, stage[-1].device,
                                                               stage->device, tables->rows));
    }
    return longest_s;
}

double sequence_round(const struct placement_tables *tables, struct sequence_work *work,
                      const uint32_t *devices, uint32_t n, double stage_limit_s,
                      double round_limit_s, double *longest_s, struct placement *out)
{
    const uint32_t width = tables->n_layers + 1;
    if (n < tables->stages_min || n > tables->stages_max)
        return INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double hop_s = 0;
        if (i) {
            hop_s = tables_hop_s(tables, devices[i - 1], devices[i]);
            if (!(hop_s < INFINITY) ||
                placement_occupation_s(tables->problem, devices[i - 1], devices[i], tables->rows) >=
                    stage_limit_s)
                return INFINITY;
        }
        tables_windows(tables, devices[i], stage_limit_s, work->low);
        tables_extend(tables, devices[i], i ? work->rounds + (uint64_t)(i - 1) * width : NULL,
                      hop_s, work->low, work->rounds + (uint64_t)i * width,
                      work->froms + (uint64_t)i * width);
    }
    const double round_s = work->rounds[(uint64_t)(n - 1) * width + tables->n_layers] +
                           tables_back_s(tables, devices[n - 1], devices[0]);
    if (!(round_s < round_limit_s) || !(round_s < INFINITY))
        return INFINITY;
    read_back(tables, work, devices, n, out);
    *longest_s = longest_of(tables, out);
    return round_s;
}

static double sequence_alone(const struct placement_tables *tables, uint32_t device,
                             double target_s, struct placement *out)
{
    const struct placement whole = {1, {{device, 0, tables->n_layers}}};
    const double seconds = tables->launch[device] + tables_time(tables, device)[tables->n_layers];
    const double objective_s = tables_objective_s(tables, seconds, seconds);
    if (!tables_holds_all(tables, device) || !(objective_s < target_s))
        return INFINITY;
    *out = whole;
    return objective_s;
}

struct cuts {
    const struct placement_tables *tables;
    struct sequence_work *work;
    const uint32_t *devices;
    uint32_t n;
    struct placement *out;
    double best_s;   /* of *out, or what it must be below */
    double target_s; /* an objective must be below */
    double hops_s;
};

static double hops_of(const struct cuts *cuts)
{
    double seconds = tables_back_s(cuts->tables, cuts->devices[cuts->n - 1], cuts->devices[0]);
    for (uint32_t i = 1; i < cuts->n; i++)
        seconds += tables_hop_s(cuts->tables, cuts->devices[i - 1], cuts->devices[i]);
    return seconds;
}

/* All cuts whose longest stage or link is in [low_s, high_s). A longest stage is no shorter than
 * the mean one. */
static void sequence_explore(struct cuts *cuts, double low_s, double high_s)
{
    const struct placement_tables *tables = cuts->tables;
    while (high_s > low_s) {
        struct placement found;
        double longest_s = 0;
        const double round_s =
            sequence_round(tables, cuts->work, cuts->devices, cuts->n, high_s,
                           tables_round_limit_s(tables, cuts->target_s), &longest_s, &found);
        if (!(round_s < INFINITY))
            return;
        const double objective_s = tables_objective_s(tables, round_s, longest_s);
        if (objective_s < cuts->target_s) {
            cuts->best_s = objective_s;
            cuts->target_s = objective_s * (1 - PLACEMENT_EPSILON);
            *cuts->out = found;
        }
        low_s = fmax(low_s, (round_s - cuts->hops_s) / cuts->n * (1 - PLACEMENT_EPSILON));
        high_s = fmin(longest_s * (1 - PLACEMENT_EPSILON),
                      tables_longest_limit_s(tables, cuts->target_s, round_s));
        if (high_s - low_s > 1e-3 * high_s &&
            tables_objective_s(tables, round_s, low_s) < cuts->target_s) {
            const double middle_s = (low_s + high_s) / 2;
            sequence_explore(cuts, low_s, middle_s);
            low_s = middle_s;
        }
        if (tables->micro_batches <= 1 ||
            !(tables_objective_s(tables, round_s, low_s) < cuts->target_s))
            return;
    }
}

double sequence_best(const struct placement_tables *tables, struct sequence_work *work,
                     const uint32_t *devices, uint32_t n, double target_s, struct placement *out)
{
    if (n < tables->stages_min || n > tables->stages_max)
        return INFINITY;
    if (n == 1)
        return sequence_alone(tables, devices[0], target_s, out);
    struct cuts cuts = {tables, work, devices, n, out, INFINITY, target_s, 0};
    cuts.hops_s = hops_of(&cuts);
    sequence_explore(&cuts, 0, tables_stage_limit_s(tables, target_s));
    return cuts.best_s;
}
