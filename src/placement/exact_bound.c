#include "placement/exact_bound.h"

#include "base/mem.h"
#include "placement/cost.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A layer that costs nothing still is work, so that a device that holds it has a capacity.
 * Seconds. */
#define WORK_MIN 1e-18

static void fill_work(struct exact_bound *bound)
{
    const struct placement_tables *tables = bound->tables;
    const uint32_t width = tables->n_layers + 1;
    for (uint32_t layer = 0; layer < tables->n_layers; layer++) {
        double least = INFINITY;
        for (uint32_t d = 0; d < tables->n_devices; d++) {
            const double *time = tables_time(tables, d);
            if (tables->allowed_from[(uint64_t)d * width + layer + 1] <= layer)
                least = fmin(least, time[layer + 1] - time[layer]);
        }
        bound->work[layer + 1] =
            bound->work[layer] + (least < INFINITY ? fmax(least, WORK_MIN) : WORK_MIN);
    }
}

static double exact_bound_rate_of(const struct exact_bound *bound, uint32_t device)
{
    const struct placement_tables *tables = bound->tables;
    const double *time = tables_time(tables, device);
    double rate = INFINITY;
    for (uint32_t layer = 0; layer < tables->n_layers; layer++) {
        const double work = bound->work[layer + 1] - bound->work[layer];
        if (work > 2 * WORK_MIN &&
            tables->allowed_from[(uint64_t)device * (tables->n_layers + 1) + layer + 1] <= layer)
            rate = fmin(rate, (time[layer + 1] - time[layer]) / work);
    }
    return rate < INFINITY ? rate : 0;
}

/* ---- devices that are alike ------------------------------------------------------------ */

static bool exact_bound_same_link(const struct placement_problem *problem, uint32_t from,
                                  uint32_t to, uint32_t from2, uint32_t to2)
{
    const struct placement_link *a = placement_link(problem, from, to),
                                *b = placement_link(problem, from2, to2);
    return a->latency_s == b->latency_s && a->bytes_per_s == b->bytes_per_s;
}

static bool exact_bound_alike(const struct exact_bound *bound, uint32_t i, uint32_t j, bool out,
                              bool in)
{
    const struct placement_problem *problem = bound->tables->problem;
    const uint32_t a = bound->devices[i].index, b = bound->devices[j].index;
    for (uint32_t k = 0; k < bound->n; k++) {
        const uint32_t other = bound->devices[k].index;
        if (k == i || k == j)
            continue;
        if ((out && !exact_bound_same_link(problem, a, other, b, other)) ||
            (in && !exact_bound_same_link(problem, other, a, other, b)))
            return false;
    }
    return true;
}

static bool exact_bound_interchangeable(const struct exact_bound *bound, uint32_t i, uint32_t j)
{
    const struct placement_tables *tables = bound->tables;
    const uint32_t a = bound->devices[i].index, b = bound->devices[j].index,
                   width = tables->n_layers + 1;
    return tables->launch[a] == tables->launch[b] && tables->room[a] == tables->room[b] &&
           !memcmp(tables_time(tables, a), tables_time(tables, b), width * sizeof(double)) &&
           !memcmp(tables->allowed_from + (uint64_t)a * width,
                   tables->allowed_from + (uint64_t)b * width, width * sizeof(uint16_t)) &&
           exact_bound_same_link(tables->problem, a, b, b, a) &&
           exact_bound_alike(bound, i, j, true, true);
}

/* Whether j is alike to every device of the group that i stands for. Links between two of a group
 * are not compared, so one comparison with i would not be enough. */
static bool exact_bound_joins(const struct exact_bound *bound, uint32_t i, uint32_t j, bool as_last)
{
    for (uint32_t k = i; k < j; k++) {
        const uint32_t group = as_last ? bound->devices[k].as_last : bound->devices[k].as_first;
        if (group == i && !exact_bound_alike(bound, k, j, as_last, !as_last))
            return false;
    }
    return true;
}

static void find_alike(struct exact_bound *bound)
{
    for (uint32_t j = 0; j < bound->n; j++) {
        struct exact_device *device = &bound->devices[j];
        for (device->twins = 0;
             device->twins < j && !exact_bound_interchangeable(bound, device->twins, j);)
            device->twins++;
        for (device->as_last = 0; device->as_last < j; device->as_last++) {
            if (bound->devices[device->as_last].as_last == device->as_last &&
                exact_bound_joins(bound, device->as_last, j, true))
                break;
        }
        for (device->as_first = 0; device->as_first < j; device->as_first++) {
            if (bound->devices[device->as_first].as_first == device->as_first &&
                exact_bound_joins(bound, device->as_first, j, false))
                break;
        }
    }
}

/* ---- under a limit --------------------------------------------------------------------- */

static double capacity_of(const struct exact_bound *bound, const uint16_t *low)
{
    double most = 0;
    for (uint32_t b = 1; b <= bound->tables->n_layers; b++)
        most = fmax(most, bound->work[b] - bound->work[low[b]]);
    return most;
}

static int compare_rates(const void *a, const void *b, void *context)
{
    const struct exact_device *devices = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (devices[i].rate != devices[j].rate)
        return devices[i].rate < devices[j].rate ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void limit_links(struct exact_bound *bound, double limit_s)
{
    const struct placement_tables *tables = bound->tables;
    for (uint32_t i = 0; i < bound->n; i++) {
        for (uint32_t j = 0; j < bound->n; j++) {
            const uint32_t from = bound->devices[i].index, to = bound->devices[j].index;
            const bool slow = i != j && !(placement_occupation_s(tables->problem, from, to,
                                                                 tables->rows) < limit_s);
            bound->hop[i * bound->n + j] = slow ? INFINITY : tables_hop_s(tables, from, to);
            bound->back[i * bound->n + j] = tables_back_s(tables, from, to);
        }
    }
}

void exact_bound_limit(struct exact_bound *bound, double limit_s)
{
    const uint32_t width = bound->tables->n_layers + 1;
    limit_links(bound, limit_s);
    for (uint32_t i = 0; i < bound->n; i++) {
        struct exact_device *device = &bound->devices[i];
        double hop_s = INFINITY;
        for (uint32_t j = 0; j < bound->n; j++)
            hop_s = j == i ? hop_s : fmin(hop_s, bound->hop[j * bound->n + i]);
        tables_windows(bound->tables, device->index, limit_s, bound->low + (uint64_t)i * width);
        device->capacity = capacity_of(bound, bound->low + (uint64_t)i * width);
        device->fixed_s = bound->tables->launch[device->index] + (hop_s < INFINITY ? hop_s : 0);
        device->rate =
            device->capacity > 0 ? device->least + device->fixed_s / device->capacity : INFINITY;
        bound->order[i] = i;
    }
    qsort_r(bound->order, bound->n, sizeof *bound->order, compare_rates, bound->devices);
}

void exact_bound_rest(const struct exact_bound *bound, uint64_t used, double *rest)
{
    const uint32_t n_layers = bound->tables->n_layers;
    const double all = bound->work[n_layers];
    double filled = 0, spent_s = 0, capacity = 0, rate = 0;
    uint32_t next = 0;
    for (uint32_t b = n_layers + 1; b-- > 0;) {
        const double work = all - bound->work[b];
        while (filled + capacity < work * (1 - 1e-9)) {
            filled += capacity;
            spent_s += capacity * rate;
            while (next < bound->n && (used >> bound->order[next] & 1))
                next++;
            if (next == bound->n || !(bound->devices[bound->order[next]].capacity > 0)) {
                for (uint32_t i = 0; i <= b; i++)
                    rest[i] = INFINITY;
                return;
            }
            capacity = bound->devices[bound->order[next]].capacity;
            rate = bound->devices[bound->order[next++]].rate;
        }
        rest[b] = spent_s + fmax(work - filled, 0) * rate;
    }
}

/* ---- the devices ----------------------------------------------------------------------- */

struct bound_candidate {
    double rate;
    uint32_t index;
};

static int compare_candidates(const void *a, const void *b)
{
    const struct bound_candidate *x = a, *y = b;
    if (x->rate != y->rate)
        return x->rate < y->rate ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static enum error_code exact_bound_choose(struct exact_bound *bound, const bool *out,
                                          struct error *err)
{
    const struct placement_tables *tables = bound->tables;
    struct bound_candidate *candidates = mem_new_array(tables->n_devices, sizeof *candidates);
    uint16_t low[LIMIT_LAYERS + 1];
    uint32_t n = 0;
    if (!candidates)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory to choose devices");
    for (uint32_t d = 0; d < tables->n_devices; d++) {
        if (out && out[d])
            continue;
        tables_windows(tables, d, INFINITY, low);
        bool holds = tables_holds_all(tables, d);
        for (uint32_t b = 1; b <= tables->n_layers && !holds; b++)
            holds = low[b] < b;
        if (holds)
            candidates[n++] = (struct bound_candidate){exact_bound_rate_of(bound, d), d};
    }
    qsort(candidates, n, sizeof *candidates, compare_candidates);
    bound->cut = n > LIMIT_PLACEMENT_EXACT_DEVICES;
    bound->n = bound->cut ? LIMIT_PLACEMENT_EXACT_DEVICES : n;
    for (uint32_t i = 0; i < bound->n; i++)
        bound->devices[i] =
            (struct exact_device){.index = candidates[i].index, .least = candidates[i].rate};
    mem_free(candidates);
    return ERROR_NONE;
}

enum error_code exact_bound_init(struct exact_bound *bound, const struct placement_tables *tables,
                                 const bool *out, struct error *err)
{
    const uint64_t width = tables->n_layers + 1, n = LIMIT_PLACEMENT_EXACT_DEVICES;
    *bound = (struct exact_bound){.tables = tables};
    bound->devices = mem_new_array(n, sizeof *bound->devices);
    bound->order = mem_new_array(n, sizeof *bound->order);
    bound->low = mem_new_array(n * width, sizeof *bound->low);
    bound->work = mem_new_array(width, sizeof *bound->work);
    bound->hop = mem_new_array(n * n, sizeof *bound->hop);
    bound->back = mem_new_array(n * n, sizeof *bound->back);
    if (!bound->devices || !bound->order || !bound->low || !bound->work || !bound->hop ||
        !bound->back) {
        exact_bound_deinit(bound);
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for the search");
    }
    fill_work(bound);
    if (exact_bound_choose(bound, out, err)) {
        exact_bound_deinit(bound);
        return err ? err->code : ERROR_NO_MEMORY;
    }
    find_alike(bound);
    return ERROR_NONE;
}

void exact_bound_deinit(struct exact_bound *bound)
{
    mem_free(bound->devices);
    mem_free(bound->order);
    mem_free(bound->low);
    mem_free(bound->work);
    mem_free(bound->hop);
    mem_free(bound->back);
    *bound = (struct exact_bound){0};
}
