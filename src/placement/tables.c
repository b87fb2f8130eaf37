#include "placement/tables.h"

#include "base/mem.h"
#include "placement/cost.h"

#include <math.h>

static void placement_tables_fill_device(struct placement_tables *tables, uint32_t device)
{
    const struct placement_problem *problem = tables->problem;
    const struct placement_load load = placement_decode_load(problem);
    const uint64_t row = (uint64_t)device * (tables->n_layers + 1);
    double *time = tables->time + row;
    uint16_t *allowed_from = tables->allowed_from + row;
    const bool usable = placement_device_usable(&problem->devices[device]);
    tables->launch[device] = usable ? placement_launch_s(problem, device, load.rows) : 0;
    tables->room[device] = (int64_t)placement_device_bytes(&problem->devices[device]) -
                           (int64_t)problem->model.compute_bytes;
    for (uint32_t layer = 0; layer < tables->n_layers; layer++) {
        const bool allowed = usable && placement_layer_allowed(problem, device, layer);
        time[layer + 1] =
            time[layer] + (allowed ? placement_layer_s(problem, device, layer, load) : 0);
        allowed_from[layer + 1] = allowed ? allowed_from[layer] : (uint16_t)(layer + 1);
    }
}

enum error_code tables_init(struct placement_tables *tables,
                            const struct placement_problem *problem, struct error *err)
{
    const uint64_t width = problem->model.n_layers + 1, n_devices = problem->n_devices;
    const uint64_t times = n_devices * width;
    *tables = (struct placement_tables){.problem = problem,
                                        .n_devices = problem->n_devices,
                                        .n_layers = problem->model.n_layers,
                                        .rows = placement_rows(problem),
                                        .micro_batches = placement_micro_batches(problem),
                                        .busy = placement_busy(problem),
                                        .stages_max = LIMIT_STAGES};
    tables->memory = mem_new((times + 2 * width + 2 * n_devices) * 8 + times * 2);
    if (!tables->memory)
        return error_set(err, ERROR_NO_MEMORY,
                         "placement: not enough memory for %u devices x %u layers",
                         problem->n_devices, problem->model.n_layers);
    tables->time = tables->memory;
    tables->launch = tables->time + times;
    tables->bytes = (uint64_t *)(tables->launch + n_devices);
    tables->weights = tables->bytes + width;
    tables->room = (int64_t *)(tables->weights + width);
    tables->allowed_from = (uint16_t *)(tables->room + n_devices);
    for (uint32_t layer = 0; layer < tables->n_layers; layer++) {
        const struct placement_stage alone = {0, layer, 1};
        tables->bytes[layer + 1] = tables->bytes[layer] + placement_layer_bytes(problem, layer);
        tables->weights[layer + 1] =
            tables->weights[layer] + placement_shared_bytes(problem, &alone, &alone) +
            (tables->n_layers == 1 ? problem->model.tied_bytes : 0); /* as in bytes */
    }
    for (uint32_t layer = 0; layer < tables->n_layers; layer++)
        tables->has_copies |= problem->model.layers[layer].kv_seen > 0;
    for (uint32_t device = 0; device < tables->n_devices; device++)
        placement_tables_fill_device(tables, device);
    return ERROR_NONE;
}

void tables_deinit(struct placement_tables *tables)
{
    mem_free(tables->memory);
    *tables = (struct placement_tables){0};
}

double tables_stage_limit_s(const struct placement_tables *tables, double target_s)
{
    /* A round is no shorter than its longest stage. */
    return tables->micro_batches > 1
               ? target_s / (tables->busy + (1 - tables->busy) / tables->micro_batches)
               : INFINITY;
}

double tables_round_limit_s(const struct placement_tables *tables, double target_s)
{
    return target_s * tables->micro_batches;
}

double tables_longest_limit_s(const struct placement_tables *tables, double target_s,
                              double round_s)
{
    const double busy = tables->busy;
    return busy > 0 ? (target_s - (1 - busy) * round_s / tables->micro_batches) / busy : 0;
}

static bool tables_weights_fit(const struct placement_tables *tables, uint64_t bytes)
{
    const uint64_t most = tables->problem->demand.weights_max;
    return !most || bytes <= most;
}

/* A stage that begins one layer later has that layer's cache less, and at most a copy of it more;
 * so windows can be searched as without copies. */
static uint64_t tables_bytes(const struct placement_tables *tables, uint32_t first, uint32_t end)
{
    return tables->bytes[end] - tables->bytes[first] +
           (tables->has_copies ? placement_copy_bytes(tables->problem, first, end) : 0);
}

void tables_windows(const struct placement_tables *tables, uint32_t device, double limit_s,
                    uint16_t *low)
{
    const double *time = tables_time(tables, device);
    const uint16_t *allowed_from = tables->allowed_from + (time - tables->time);
    const uint64_t room = tables->room[device] > 0 ? (uint64_t)tables->room[device] : 0;
    const double rest_s = limit_s - tables->launch[device];
    uint32_t a = 0;
    low[0] = 0;
    for (uint32_t b = 1; b <= tables->n_layers; b++) {
        if (a < allowed_from[b])
            a = allowed_from[b];
        while (a < b && (tables->room[device] < 0 || tables_bytes(tables, a, b) > room ||
                         !tables_weights_fit(tables, tables->weights[b] - tables->weights[a]) ||
                         !(time[b] - time[a] < rest_s)))
            a++;
        low[b] = (uint16_t)a;
    }
}

bool tables_holds_all(const struct placement_tables *tables, uint32_t device)
{
    const uint32_t n = tables->n_layers;
    const uint64_t needed = tables->bytes[n] - tables->problem->model.tied_bytes;
    return tables->allowed_from[(uint64_t)device * (n + 1) + n] == 0 && tables->room[device] >= 0 &&
           needed <= (uint64_t)tables->room[device] &&
           tables_weights_fit(tables, tables->weights[n] - tables->problem->model.tied_bytes);
}

double tables_hop_s(const struct placement_tables *tables, uint32_t from, uint32_t to)
{
    return placement_hop_s(tables->problem, from, to, tables->rows);
}

double tables_back_s(const struct placement_tables *tables, uint32_t from, uint32_t to)
{
    return placement_back_s(tables->problem, from, to, tables->rows);
}

static void placement_tables_begin(const struct placement_tables *tables, uint32_t device,
                                   const uint16_t *low, double *out, uint16_t *from)
{
    const double *time = tables_time(tables, device);
    for (uint32_t b = 1; b <= tables->n_layers; b++) {
        out[b] = low[b] == 0 ? tables->launch[device] + time[b] : INFINITY;
        if (from)
            from[b] = 0;
    }
}

void tables_extend(const struct placement_tables *tables, uint32_t device, const double *before,
                   double hop_s, const uint16_t *low, double *out, uint16_t *from)
{
    const double *time = tables_time(tables, device);
    const double fixed_s = hop_s + tables->launch[device];
    double keys[LIMIT_LAYERS];
    uint16_t starts[LIMIT_LAYERS];
    uint32_t head = 0, tail = 0;
    out[0] = INFINITY;
    if (!before) {
        placement_tables_begin(tables, device, low, out, from);
        return;
    }
    for (uint32_t b = 1; b <= tables->n_layers; b++) {
        const double key = before[b - 1] - time[b - 1];
        if (key < INFINITY) {
            while (tail > head && keys[tail - 1] >= key)
                tail--;
            keys[tail] = key;
            starts[tail++] = (uint16_t)(b - 1);
        }
        while (head < tail && starts[head] < low[b])
            head++;
        out[b] = head < tail ? keys[head] + time[b] + fixed_s : INFINITY;
        if (from && head < tail)
            from[b] = starts[head];
    }
}
