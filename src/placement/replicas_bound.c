#include "placement/replicas_bound.h"

#include "base/mem.h"
#include "placement/cost.h"
#include "placement/tables.h"

#include <math.h>
#include <stdlib.h>

#define WORK_MIN 1e-18 /* seconds, as in exact_bound.c */

enum { ROWS_EXACT = 16, ROWS_TABLES = 24, HALVINGS = 24 };

/* ---- rows ----------------------------------------------------------------------------------- */

/* The table for so many rows, or for the most that are fewer. */
static uint32_t rows_index(uint32_t rows)
{
    uint32_t index = ROWS_EXACT - 1;
    if (rows <= ROWS_EXACT)
        return rows - 1;
    for (uint32_t of = 2 * ROWS_EXACT; of <= rows; of *= 2)
        index++;
    return index;
}

static uint32_t rows_of(uint32_t index)
{
    return index < ROWS_EXACT ? index + 1 : (uint32_t)ROWS_EXACT << (index - ROWS_EXACT + 1);
}

static struct placement_problem with_rows(const struct placement_problem *problem, uint32_t streams,
                                          uint32_t rows)
{
    struct placement_problem own = *problem;
    own.demand.streams = streams;
    own.demand.micro_batches = rows == 1 ? streams : 1;
    return own;
}

/* ---- tables --------------------------------------------------------------------------------- */

static double least_time(const struct placement_tables *tables, uint32_t layer)
{
    double least = INFINITY;
    for (uint32_t d = 0; d < tables->n_devices; d++) {
        const double *time = tables_time(tables, d);
        if (tables->allowed_from[(uint64_t)d * (tables->n_layers + 1) + layer + 1] <= layer)
            least = fmin(least, time[layer + 1] - time[layer]);
    }
    return least < INFINITY ? fmax(least, WORK_MIN) : WORK_MIN;
}

static double least_rate(const struct placement_tables *tables, const double *work, uint32_t device)
{
    const double *time = tables_time(tables, device);
    double rate = INFINITY;
    for (uint32_t layer = 0; layer < tables->n_layers; layer++) {
        const double own = work[layer + 1] - work[layer];
        if (own > 2 * WORK_MIN &&
            tables->allowed_from[(uint64_t)device * (tables->n_layers + 1) + layer + 1] <= layer)
            rate = fmin(rate, (time[layer + 1] - time[layer]) / own);
    }
    return rate < INFINITY ? rate : 0;
}

static double most_work(const struct placement_tables *tables, const double *work, uint32_t device)
{
    uint16_t low[LIMIT_LAYERS + 1];
    double most = 0;
    if (tables_holds_all(tables, device))
        return work[tables->n_layers];
    tables_windows(tables, device, INFINITY, low);
    for (uint32_t b = 1; b <= tables->n_layers; b++)
        most = fmax(most, work[b] - work[low[b]]);
    return most;
}

static enum error_code fill_rows(struct replicas_bound *bound, double *work, struct error *err)
{
    const uint32_t n = bound->problem->n_devices;
    for (uint32_t i = 0; i < bound->n_rows; i++) {
        const struct placement_problem own = with_rows(bound->problem, rows_of(i), rows_of(i));
        struct placement_tables tables;
        if (tables_init(&tables, &own, err))
            return err->code;
        for (uint32_t layer = 0; i == 0 && layer < tables.n_layers; layer++)
            work[layer + 1] = work[layer] + least_time(&tables, layer);
        for (uint32_t d = 0; d < n; d++) {
            bound->rate[i * n + d] = least_rate(&tables, work, d);
            bound->launch[i * n + d] = tables.launch[d];
        }
        tables_deinit(&tables);
    }
    bound->all = work[bound->problem->model.n_layers];
    return ERROR_NONE;
}

static enum error_code fill_capacities(struct replicas_bound *bound, const double *work,
                                       const uint32_t *streams, struct error *err)
{
    const uint32_t n = bound->problem->n_devices;
    for (uint32_t part = 0; part < bound->n_parts; part++) {
        const struct placement_problem own = with_rows(bound->problem, streams[part], 1);
        struct placement_tables tables;
        if (tables_init(&tables, &own, err))
            return err->code;
        for (uint32_t d = 0; d < n; d++)
            bound->capacity[part * n + d] = most_work(&tables, work, d);
        tables_deinit(&tables);
    }
    return ERROR_NONE;
}

struct bound_key {
    double cost;
    uint32_t device;
};

static int replicas_bound_compare_keys(const void *a, const void *b)
{
    const struct bound_key *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

static enum error_code fill_orders(struct replicas_bound *bound, struct error *err)
{
    const uint32_t n = bound->problem->n_devices;
    struct bound_key *keys = mem_new_array(n, sizeof *keys);
    if (!keys)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for bounds of groups");
    for (uint32_t i = 0; i < bound->n_parts * bound->n_rows; i++) {
        const uint32_t part = i / bound->n_rows, rows = i % bound->n_rows;
        for (uint32_t d = 0; d < n; d++) {
            const double capacity = bound->capacity[part * n + d];
            const double cost = bound->rate[rows * n + d] + bound->launch[rows * n + d] / capacity;
            keys[d] = (struct bound_key){capacity > 0 ? cost : INFINITY, d};
        }
        qsort(keys, n, sizeof *keys, replicas_bound_compare_keys);
        for (uint32_t d = 0; d < n; d++)
            bound->order[(uint64_t)i * n + d] = keys[d].device;
    }
    mem_free(keys);
    return ERROR_NONE;
}

enum error_code replicas_bound_init(struct replicas_bound *bound,
                                    const struct placement_problem *problem,
                                    const uint32_t *streams, uint32_t parts, struct error *err)
{
    const uint64_t n = problem->n_devices, n_rows = rows_index(problem->demand.streams) + 1;
    *bound =
        (struct replicas_bound){.problem = problem, .n_rows = (uint32_t)n_rows, .n_parts = parts};
    double *work = mem_new_array(problem->model.n_layers + 1, sizeof *work);
    bound->capacity = mem_new_array(parts * n, sizeof *bound->capacity);
    bound->rate = mem_new_array(n_rows * n, sizeof *bound->rate);
    bound->launch = mem_new_array(n_rows * n, sizeof *bound->launch);
    bound->order = mem_new_array(parts * n_rows * n, sizeof *bound->order);
    enum error_code code = ERROR_NONE;
    if (!work || !bound->capacity || !bound->rate || !bound->launch || !bound->order)
        code = error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for bounds of groups");
    if (!code)
        code = fill_rows(bound, work, err);
    if (!code)
        code = fill_capacities(bound, work, streams, err);
    if (!code)
        code = fill_orders(bound, err);
    mem_free(work);
    if (code)
        replicas_bound_deinit(bound);
    return code;
}

void replicas_bound_deinit(struct replicas_bound *bound)
{
    mem_free(bound->capacity);
    mem_free(bound->rate);
    mem_free(bound->launch);
    mem_free(bound->order);
    *bound = (struct replicas_bound){0};
}

/* ---- one set -------------------------------------------------------------------------------- */

/* INFINITY: it does not fit. */
static double least_round(const struct replicas_bound *bound, const bool *in, uint32_t part,
                          uint32_t rows)
{
    const uint32_t n = bound->problem->n_devices;
    const uint32_t *order = bound->order + ((uint64_t)part * bound->n_rows + rows) * n;
    double left = bound->all * (1 - 1e-9), seconds = 0;
    for (uint32_t i = 0; i < n && left > 0; i++) {
        const uint32_t d = order[i];
        const double capacity = bound->capacity[part * n + d];
        if (!in[d] || !(capacity > 0))
            continue;
        const double taken = fmin(left, capacity);
        seconds += taken * (bound->rate[rows * n + d] + bound->launch[rows * n + d] / capacity);
        left -= taken;
    }
    return left > 0 ? INFINITY : seconds;
}

static double work_below(const struct replicas_bound *bound, const bool *in, uint32_t part,
                         uint32_t rows, double longest_s)
{
    const uint32_t n = bound->problem->n_devices;
    double work = 0;
    for (uint32_t d = 0; d < n; d++) {
        const double left_s = longest_s - bound->launch[rows * n + d],
                     rate = bound->rate[rows * n + d];
        if (in[d] && left_s > 0)
            work += left_s >= rate * bound->capacity[part * n + d] ? bound->capacity[part * n + d]
                                                                   : left_s / rate;
    }
    return work;
}

/* Of what fits: its round is no shorter, so is its longest. */
static double least_longest(const struct replicas_bound *bound, const bool *in, uint32_t part,
                            uint32_t rows, double round_s)
{
    double low_s = 0, high_s = round_s;
    for (uint32_t i = 0; i < HALVINGS; i++) {
        const double middle_s = (low_s + high_s) / 2;
        if (work_below(bound, in, part, rows, middle_s) < bound->all * (1 - 1e-9))
            low_s = middle_s;
        else
            high_s = middle_s;
    }
    return low_s;
}

static int compare_numbers(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

void replicas_set_init(struct replicas_set *set, const struct placement_problem *problem,
                       const bool *in)
{
    double least[LIMIT_STAGES], all_s = INFINITY;
    uint32_t n_least = 0;
    *set = (struct replicas_set){.in = in, .occupation_s = INFINITY, .back_s = INFINITY};
    for (uint32_t to = 0; to < problem->n_devices; to++) {
        double latency_s = INFINITY;
        set->n += in[to];
        for (uint32_t from = 0; in[to] && from < problem->n_devices; from++) {
            if (from == to || !in[from] || !placement_linked(problem, from, to))
                continue;
            latency_s = fmin(latency_s, placement_link(problem, from, to)->latency_s);
            set->occupation_s =
                fmin(set->occupation_s, placement_occupation_s(problem, from, to, 1));
        }
        if (!(latency_s < INFINITY))
            continue;
        all_s = fmin(all_s, latency_s);
        if (n_least < LIMIT_STAGES)
            least[n_least] = latency_s;
        n_least++;
    }
    for (uint32_t i = 0; i < LIMIT_STAGES && n_least > LIMIT_STAGES; i++) /* too many to sort */
        least[i] = all_s;
    n_least = n_least < LIMIT_STAGES ? n_least : LIMIT_STAGES;
    qsort(least, n_least, sizeof *least, compare_numbers);
    for (uint32_t i = 1; i < LIMIT_STAGES; i++)
        set->hops_s[i] = i <= n_least ? set->hops_s[i - 1] + least[i - 1] : INFINITY;
    set->back_s = all_s;
}

/* The fewest devices that hold the model. */
static uint32_t least_stages(const struct replicas_bound *bound, const bool *in, uint32_t part)
{
    const uint32_t n = bound->problem->n_devices;
    double most = 0, sum = 0;
    for (uint32_t d = 0; d < n; d++) {
        most = in[d] ? fmax(most, bound->capacity[part * n + d]) : most;
        sum += in[d] ? bound->capacity[part * n + d] : 0;
    }
    const double needed = bound->all * (1 - 1e-9);
    return sum < needed     ? 0
           : most >= needed ? 1
                            : (uint32_t)fmax(2, ceil(needed / most * (1 - 1e-9)));
}

/* The model whole on the best of them. */
static double least_alone(const struct replicas_bound *bound, const bool *in, uint32_t part,
                          uint32_t rows)
{
    const uint32_t n = bound->problem->n_devices;
    double least_s = INFINITY;
    for (uint32_t d = 0; d < n; d++) {
        if (in[d] && bound->capacity[part * n + d] >= bound->all * (1 - 1e-9))
            least_s =
                fmin(least_s, bound->launch[rows * n + d] + bound->all * bound->rate[rows * n + d]);
    }
    return least_s;
}

static double least_objective(const struct replicas_bound *bound, const struct replicas_set *set,
                              uint32_t part, uint32_t rows, uint32_t m, uint32_t n_stages)
{
    const double busy = placement_busy(bound->problem);
    const uint32_t index = rows_index(rows);
    double round_s = least_round(bound, set->in, part, index);
    if (!(round_s < INFINITY))
        return INFINITY;
    const double longest_s = m == 1 ? 0 : least_longest(bound, set->in, part, index, round_s);
    if (n_stages > 1)
        round_s +=
            set->hops_s[n_stages - 1] + (n_stages - 1) * rows * set->occupation_s + set->back_s;
    const double alone_s = round_s / m;
    return busy * fmax(longest_s, alone_s) + (1 - busy) * alone_s;
}

double replicas_bound_rate(const struct replicas_bound *bound, const struct replicas_set *set,
                           uint32_t part, uint32_t streams)
{
    const uint32_t fixed = bound->problem->demand.micro_batches,
                   least = least_stages(bound, set->in, part);
    const uint32_t possible = set->n < streams ? set->n : streams;
    double most = 0;
    if (least == 0 || least > LIMIT_STAGES)
        return 0;
    if (fixed) {
        const uint32_t m = fixed < streams ? fixed : streams;
        const double objective_s =
            least_objective(bound, set, part, (streams + m - 1) / m, m, least);
        return objective_s > 0 ? streams / (m * objective_s) * (1 + 1e-9) : INFINITY;
    }
    for (uint32_t m = 1; m <= possible && m <= LIMIT_STAGES; m++) {
        const uint32_t rows = (streams + m - 1) / m;
        const bool last = m == streams; /* more stages have as many micro-batches */
        double objective_s = INFINITY;
        if (m == 1)
            objective_s = least_alone(bound, set->in, part, rows_index(rows));
        if (m > 1 || last)
            objective_s = fmin(objective_s,
                               least_objective(bound, set, part, rows, m, m > least ? m : least));
        if (m >= least || last)
            most = fmax(most, objective_s > 0 ? streams / (m * objective_s) : INFINITY);
    }
    return most * (1 + 1e-9);
}
