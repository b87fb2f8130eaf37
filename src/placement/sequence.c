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
    return error_set(err, ERROR_NO_MEMORY, "placement: no memory for cuts of %u layers", n_layers);
}

void sequence_work_deinit(struct sequence_work *work)
{
    mem_free(work->rounds);
    mem_free(work->froms);
    mem_free(work->low);
    *work = (struct sequence_work){0};
}

static void read_back(const struct placement_tables *tables, const struct sequence_work *work, const uint32_t *devices,
                      uint32_t n, struct placement *out)
{
    uint32_t end = tables->n_layers;
    out->n_stages = n;
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t first = i ? work->froms[(uint64_t)i * (tables->n_layers + 1) + end] : 0;
        out->stages[i] = (struct placement_stage){devices[i], first, end - first};
        end = first;
    }
}

static double period_of(const struct placement_tables *tables, const struct placement *placement, double round_s)
{
    double period_s = round_s / tables->micro_batches;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        const struct placement_stage *stage = &placement->stages[i];
        const double *time = tables_time(tables, stage->device);
        period_s = fmax(period_s, tables->launch[stage->device] + time[stage->first_layer + stage->n_layers] -
                                      time[stage->first_layer]);
        if (i)
            period_s =
                fmax(period_s, placement_occupation_s(tables->problem, stage[-1].device, stage->device, tables->rows));
    }
    return period_s;
}

/* The least round of stages and links that take less than limit_s each; its period, or INFINITY where that is not
 * below the limit. */
static double below(const struct placement_tables *tables, struct sequence_work *work, const uint32_t *devices,
                    uint32_t n, double limit_s, struct placement *out)
{
    const uint32_t width = tables->n_layers + 1;
    const double stage_limit_s = tables->micro_batches > 1 ? limit_s : INFINITY;
    for (uint32_t i = 0; i < n; i++) {
        double hop_s = 0;
        if (i) {
            hop_s = tables_hop_s(tables, devices[i - 1], devices[i]);
            if (!(hop_s < INFINITY) ||
                placement_occupation_s(tables->problem, devices[i - 1], devices[i], tables->rows) >= stage_limit_s)
                return INFINITY;
        }
        tables_windows(tables, devices[i], stage_limit_s, work->low);
        tables_extend(tables, devices[i], i ? work->rounds + (uint64_t)(i - 1) * width : NULL, hop_s, work->low,
                      work->rounds + (uint64_t)i * width, work->froms + (uint64_t)i * width);
    }
    const double round_s =
        work->rounds[(uint64_t)(n - 1) * width + tables->n_layers] + tables_back_s(tables, devices[n - 1], devices[0]);
    if (!(round_s < limit_s * tables->micro_batches) || !(round_s < INFINITY))
        return INFINITY;
    read_back(tables, work, devices, n, out);
    return period_of(tables, out, round_s);
}

static double alone(const struct placement_tables *tables, uint32_t device, double limit_s, struct placement *out)
{
    const struct placement whole = {1, {{device, 0, tables->n_layers}}};
    const double seconds = tables->launch[device] + tables_time(tables, device)[tables->n_layers];
    if (!tables_holds_all(tables, device) || !(seconds < limit_s))
        return INFINITY;
    *out = whole;
    return seconds;
}

double sequence_best(const struct placement_tables *tables, struct sequence_work *work, const uint32_t *devices,
                     uint32_t n, double limit_s, struct placement *out)
{
    struct placement found;
    if (n == 1)
        return alone(tables, devices[0], limit_s, out);
    double best_s = below(tables, work, devices, n, limit_s, &found);
    if (!(best_s < INFINITY))
        return INFINITY;
    *out = found;
    if (tables->micro_batches <= 1)
        return best_s;
    for (double low_s = 0; best_s - low_s > 1e-3 * best_s;) {
        const double middle_s = (low_s + best_s) / 2, period_s = below(tables, work, devices, n, middle_s, &found);
        if (period_s < best_s) {
            best_s = period_s;
            *out = found;
        } else {
            low_s = middle_s;
        }
    }
    for (;;) {
        const double period_s = below(tables, work, devices, n, best_s * (1 - PLACEMENT_EPSILON), &found);
        if (!(period_s < best_s))
            return best_s;
        best_s = period_s;
        *out = found;
    }
}
