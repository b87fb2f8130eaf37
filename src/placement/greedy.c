#include "placement/greedy.h"

#include "base/mem.h"
#include "placement/cost.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct greedy {
    const struct placement_tables *tables;
    struct sequence_work *work;
    const double *worth; /* what devices are taken by, highest first */
    double *speed;       /* 1 / seconds for the whole model */
    double *room;
    uint32_t *order;
    bool *used;
    struct placement *best;
    double best_s;
    int64_t budget;
    const struct exact_limits *limits; /* NULL: the budget alone */
    uint32_t asked;
};

enum { STARTS = 12, ORDERS = 3 };

static bool try_sequence(struct greedy *greedy, const uint32_t *devices, uint32_t n)
{
    greedy->budget -= (int64_t)n * greedy->tables->n_layers;
    if (greedy->limits && greedy->limits->go_on && ++greedy->asked % 256 == 0 &&
        !greedy->limits->go_on(greedy->limits->self))
        greedy->budget = 0;
    const double period_s = sequence_best(greedy->tables, greedy->work, devices, n,
                                          greedy->best_s * (1 - PLACEMENT_EPSILON), greedy->best);
    if (!(period_s < greedy->best_s))
        return false;
    if (greedy->tables->micro_batches >
        1) /* finding that there is something took one pass, the best of it more */
        greedy->budget -= 15 * (int64_t)n * greedy->tables->n_layers;
    greedy->best_s = period_s;
    return true;
}

static bool greedy_spent(const struct greedy *greedy)
{
    return greedy->budget <= 0 && greedy->best_s < INFINITY;
}

static uint32_t greedy_next_of(const struct greedy *greedy, uint32_t last)
{
    uint32_t next = UINT32_MAX;
    for (uint32_t d = 0; d < greedy->tables->n_devices; d++) {
        if (!greedy->used[d] && greedy->worth[d] > 0 &&
            placement_linked(greedy->tables->problem, last, d) &&
            (next == UINT32_MAX || greedy->worth[d] > greedy->worth[next]))
            next = d;
    }
    return next;
}

/* From one device on, always to the best one that is linked. */
static void greedy_chain(struct greedy *greedy, uint32_t start)
{
    uint32_t devices[LIMIT_STAGES] = {start};
    memset(greedy->used, 0, greedy->tables->n_devices * sizeof *greedy->used);
    greedy->used[start] = true;
    for (uint32_t n = 1; n < LIMIT_STAGES && n < greedy->tables->n_layers && !greedy_spent(greedy);
         n++) {
        const uint32_t next = greedy_next_of(greedy, devices[n - 1]);
        if (next == UINT32_MAX || greedy->budget < -3 * (int64_t)GREEDY_BUDGET)
            return;
        devices[n] = next;
        greedy->used[next] = true;
        try_sequence(greedy, devices, n + 1);
    }
}

static const double *sort_key(const struct greedy *greedy, int order, const double *scores)
{
    return order == 0 ? scores : order == 1 ? greedy->speed : greedy->room;
}

static int compare_worth(const void *a, const void *b, void *context)
{
    const double *worth = context;
    const uint32_t i = *(const uint32_t *)a, j = *(const uint32_t *)b;
    if (worth[i] != worth[j])
        return worth[i] > worth[j] ? -1 : 1;
    return i < j ? -1 : i > j;
}

static void greedy_chains(struct greedy *greedy, const double *scores)
{
    for (int order = 0; order < ORDERS; order++) {
        greedy->worth = sort_key(greedy, order, scores);
        for (uint32_t d = 0; d < greedy->tables->n_devices; d++)
            greedy->order[d] = d;
        qsort_r(greedy->order, greedy->tables->n_devices, sizeof *greedy->order, compare_worth,
                (void *)(uintptr_t)greedy->worth);
        for (uint32_t i = 0; i < greedy->tables->n_devices && i < STARTS; i++)
            greedy_chain(greedy, greedy->order[i]);
    }
}

static uint32_t greedy_without(const uint32_t *devices, uint32_t n, uint32_t at, uint32_t *out)
{
    memcpy(out, devices, at * sizeof *out);
    memcpy(out + at, devices + at + 1, (n - at - 1) * sizeof *out);
    return n - 1;
}

static uint32_t greedy_with(const uint32_t *devices, uint32_t n, uint32_t at, uint32_t device,
                            uint32_t *out)
{
    memcpy(out, devices, at * sizeof *out);
    out[at] = device;
    memcpy(out + at + 1, devices + at, (n - at) * sizeof *out);
    return n + 1;
}

static bool drop_or_swap(struct greedy *greedy, const uint32_t *devices, uint32_t n)
{
    uint32_t other[LIMIT_STAGES];
    for (uint32_t i = 0; i < n && n > 1; i++) {
        if (try_sequence(greedy, other, greedy_without(devices, n, i, other)))
            return true;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = i + 1; j < n && !greedy_spent(greedy); j++) {
            memcpy(other, devices, n * sizeof *other);
            other[i] = devices[j];
            other[j] = devices[i];
            if (try_sequence(greedy, other, n))
                return true;
        }
    }
    return false;
}

/* A device that is not in use, in the place of one, then between two. */
static bool add_or_replace(struct greedy *greedy, const uint32_t *devices, uint32_t n,
                           uint32_t device)
{
    uint32_t other[LIMIT_STAGES];
    for (uint32_t at = 0; at < n && !greedy_spent(greedy); at++) {
        memcpy(other, devices, n * sizeof *other);
        other[at] = device;
        if (try_sequence(greedy, other, n))
            return true;
    }
    for (uint32_t at = 0;
         at <= n && n < LIMIT_STAGES && n < greedy->tables->n_layers && !greedy_spent(greedy);
         at++) {
        if (try_sequence(greedy, other, greedy_with(devices, n, at, device, other)))
            return true;
    }
    return false;
}

/* A device of the sequence, or where `device` is one, that one in the stead of it, at another
 * place. */
static bool move_one(struct greedy *greedy, const uint32_t *devices, uint32_t n, uint32_t device)
{
    uint32_t rest[LIMIT_STAGES], other[LIMIT_STAGES];
    for (uint32_t i = 0; i < n; i++) {
        greedy_without(devices, n, i, rest);
        for (uint32_t at = 0; at < n && !greedy_spent(greedy); at++) {
            greedy_with(rest, n - 1, at, device == UINT32_MAX ? devices[i] : device, other);
            if (at != i && try_sequence(greedy, other, n))
                return true;
        }
    }
    return false;
}

/* One change that is better, or false. `far`: also those that are many. */
static bool greedy_improve_row(struct greedy *greedy, bool far)
{
    uint32_t devices[LIMIT_STAGES];
    const uint32_t n = greedy->best->n_stages;
    for (uint32_t i = 0; i < n; i++)
        devices[i] = greedy->best->stages[i].device;
    if (drop_or_swap(greedy, devices, n))
        return true;
    memset(greedy->used, 0, greedy->tables->n_devices * sizeof *greedy->used);
    for (uint32_t i = 0; i < n; i++)
        greedy->used[devices[i]] = true;
    for (uint32_t d = 0; d < greedy->tables->n_devices; d++) {
        if (!greedy->used[d] && add_or_replace(greedy, devices, n, d))
            return true;
    }
    if (!far)
        return false;
    if (move_one(greedy, devices, n, UINT32_MAX))
        return true;
    for (uint32_t d = 0; d < greedy->tables->n_devices && !greedy_spent(greedy); d++) {
        if (!greedy->used[d] && greedy->speed[d] > 0 && move_one(greedy, devices, n, d))
            return true;
    }
    return false;
}

static enum error_code greedy_init(struct greedy *greedy, struct error *err)
{
    const uint32_t n = greedy->tables->n_devices;
    greedy->speed = mem_new_array(n, sizeof *greedy->speed);
    greedy->room = mem_new_array(n, sizeof *greedy->room);
    greedy->order = mem_new_array(n, sizeof *greedy->order);
    greedy->used = mem_new_array(n, sizeof *greedy->used);
    if (!greedy->speed || !greedy->room || !greedy->order || !greedy->used)
        return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for %u devices", n);
    for (uint32_t d = 0; d < n; d++) {
        if (greedy->tables->room[d] < 0 ||
            !placement_device_usable(&greedy->tables->problem->devices[d]))
            continue;
        const double seconds = tables_time(greedy->tables, d)[greedy->tables->n_layers];
        greedy->speed[d] = 1 / (seconds + 1e-12);
        greedy->room[d] = (double)greedy->tables->room[d] + 1;
    }
    return ERROR_NONE;
}

static void greedy_deinit(struct greedy *greedy)
{
    mem_free(greedy->speed);
    mem_free(greedy->room);
    mem_free(greedy->order);
    mem_free(greedy->used);
}

enum error_code greedy_search(const struct placement_tables *tables, struct sequence_work *work,
                              const double *scores, struct placement *best, double *best_s,
                              struct error *err)
{
    struct greedy greedy = {.tables = tables,
                            .work = work,
                            .best = best,
                            .best_s = *best_s,
                            .budget = GREEDY_BUDGET / 2};
    const enum error_code code = greedy_init(&greedy, err);
    if (!code) {
        for (uint32_t d = 0; d < tables->n_devices; d++)
            try_sequence(&greedy, &d, 1);
        greedy.budget = GREEDY_BUDGET / 2;
        greedy_chains(&greedy, scores);
        greedy.budget += GREEDY_BUDGET / 2;
        while (greedy.best_s < INFINITY && greedy.budget > 0 && greedy_improve_row(&greedy, false))
            ;
        *best_s = greedy.best_s;
    }
    greedy_deinit(&greedy);
    return code;
}

enum error_code greedy_improve(const struct placement_tables *tables, struct sequence_work *work,
                               const struct exact_limits *limits, int64_t budget,
                               struct placement *best, double *best_s, struct error *err)
{
    struct greedy greedy = {.tables = tables,
                            .work = work,
                            .best = best,
                            .best_s = *best_s,
                            .budget = budget,
                            .limits = limits};
    const enum error_code code = greedy_init(&greedy, err);
    while (!code && greedy.best_s < INFINITY && greedy.budget > 0 &&
           greedy_improve_row(&greedy, true))
        ;
    *best_s = greedy.best_s;
    greedy_deinit(&greedy);
    return code;
}
