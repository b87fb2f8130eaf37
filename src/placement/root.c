#include "placement/root.h"

#include "base/mem.h"
#include "placement/greedy.h"
#include "placement/relax.h"

#include <math.h>
#include <string.h>

enum {
    PASSES = 3,
    FEW_DEVICES = 12, /* so few are searched sooner than bounded */
    FEW_BUDGET = 1000 * 1000,
    FIX_DEVICES = 128,                  /* of more, none is looked at by itself */
    IMPROVE_BUDGET = 400 * 1000 * 1000, /* as GREEDY_BUDGET */
};

/* How finely the limits of stages are divided for the bound, relative. */
#define LIMIT_STEP 3e-4
#define COARSE_STEP 5e-3 /* for more than FIX_DEVICES */
#define ROUGH_STEP 3e-2  /* for FEW_DEVICES */

struct root {
    const struct placement_tables *tables;
    struct sequence_work *work;
    const struct exact_limits *limits;
    struct relax *relax;
    struct placement *best;
    double best_s;
    bool stopped;
};

static bool root_go_on(struct root *root)
{
    if (root->limits->go_on && !root->limits->go_on(root->limits->self))
        root->stopped = true;
    return !root->stopped;
}

static double target_of(const struct root *root)
{
    return root->best_s * (1 - PLACEMENT_EPSILON);
}

/* ---- a good placement from the bound's devices ----------------------------------------- */

static double tour_s(const struct placement_tables *tables, const uint32_t *devices, uint32_t n)
{
    double seconds = tables_back_s(tables, devices[n - 1], devices[0]);
    for (uint32_t i = 1; i < n; i++)
        seconds += tables_hop_s(tables, devices[i - 1], devices[i]);
    return seconds;
}

static void root_move(uint32_t *devices, uint32_t from, uint32_t to)
{
    const uint32_t device = devices[from];
    if (from < to)
        memmove(devices + from, devices + from + 1, (to - from) * sizeof *devices);
    else
        memmove(devices + to + 1, devices + to, (from - to) * sizeof *devices);
    devices[to] = device;
}

static void root_reverse(uint32_t *devices, uint32_t from, uint32_t to)
{
    for (; from < to; from++, to--) {
        const uint32_t device = devices[from];
        devices[from] = devices[to];
        devices[to] = device;
    }
}

/* A shorter tour with the same ends: moving one device, or turning a part round (or-opt and 2-opt:
 * Lin, Bell System Technical Journal 44, 1965). */
static void root_shorten(const struct placement_tables *tables, uint32_t *devices, uint32_t n)
{
    double best_s = tour_s(tables, devices, n);
    for (bool better = true; better;) {
        better = false;
        for (uint32_t i = 1; i + 1 < n; i++) {
            for (uint32_t j = 1; j + 1 < n; j++) {
                uint32_t other[LIMIT_STAGES];
                for (uint32_t kind = 0; kind < 2 && i != j; kind++) {
                    memcpy(other, devices, n * sizeof *other);
                    if (kind == 0)
                        root_move(other, i, j);
                    else
                        root_reverse(other, i, j);
                    const double seconds = tour_s(tables, other, n);
                    if (seconds < best_s * (1 - 1e-12)) {
                        memcpy(devices, other, n * sizeof *other);
                        best_s = seconds;
                        better = true;
                    }
                }
            }
        }
    }
}

static void try_devices(struct root *root)
{
    uint32_t devices[LIMIT_STAGES];
    const uint32_t n = relax_devices(root->relax, devices);
    if (n == 0 || n > root->tables->n_layers)
        return;
    root_shorten(root->tables, devices, n);
    const double seconds =
        sequence_best(root->tables, root->work, devices, n, target_of(root), root->best);
    if (seconds < root->best_s)
        root->best_s = seconds;
}

/* ---- the bound -------------------------------------------------------------------------- */

static double root_step_of(const struct root *root)
{
    if (root->relax->n <= FEW_DEVICES)
        return ROUGH_STEP;
    return root->relax->n > FIX_DEVICES ? COARSE_STEP : LIMIT_STEP;
}

/* No placement whose longest stage is in [low_s, high_s) has a shorter objective. known_s: a bound
 * of its round. */
static double root_explore(struct root *root, double low_s, double high_s, double known_s)
{
    const struct placement_tables *tables = root->tables;
    if (!root_go_on(root))
        return tables_objective_s(tables, known_s, low_s);
    const double round_s = relax_round(root->relax, high_s);
    if (!(round_s < INFINITY))
        return INFINITY;
    try_devices(root);
    const double bound_s = tables_objective_s(tables, round_s, low_s);
    const double step = root_step_of(root);
    if (bound_s >= target_of(root) || high_s - low_s <= step * high_s || tables->micro_batches <= 1)
        return bound_s;
    if (!(high_s < INFINITY)) /* a first placement is known now, or there may be none at all */
        return root->best_s < INFINITY
                   ? root_explore(root, low_s, tables_stage_limit_s(tables, target_of(root)),
                                  round_s)
                   : bound_s;
    const double middle_s = (low_s + high_s) / 2;
    const double below_s = root_explore(root, low_s, middle_s, round_s);
    if (below_s <= tables_objective_s(tables, round_s, middle_s))
        return below_s;
    return fmin(below_s, root_explore(root, middle_s, high_s, round_s));
}

static double root_lower_bound(struct root *root)
{
    const double bound_s =
        root_explore(root, 0, tables_stage_limit_s(root->tables, target_of(root)), 0);
    return fmin(bound_s * (1 - 1e-12), root->best_s);
}

/* Prices for where the bound is lowest. */
static void root_sharpen(struct root *root, double bound_s)
{
    const struct placement_tables *tables = root->tables;
    const double limit_s = tables_stage_limit_s(tables, sqrt(bound_s * root->best_s));
    double round_s = 0;
    if (root->best_s < INFINITY && bound_s > 0 && root->relax->n > FEW_DEVICES &&
        root->relax->n <= FIX_DEVICES)
        relax_sharpen(root->relax, limit_s, tables_round_limit_s(tables, root->best_s), &round_s);
}

/* Or nearly, where that is enough. */
static bool is_met(const struct root *root, double bound_s)
{
    return target_of(root) <= bound_s * (1 + root->limits->enough_gap);
}

/* Devices with which the bound is no better than the best. */
static void root_leave_out(struct root *root, bool *out)
{
    struct relax *relax = root->relax;
    const double limit_s = tables_stage_limit_s(root->tables, target_of(root));
    for (uint32_t i = 0;
         i < relax->n && relax->n > FEW_DEVICES && relax->n <= FIX_DEVICES && root_go_on(root);
         i++) {
        relax->status[i] = RELAX_IN;
        const double round_s = relax_round(relax, limit_s) * (1 - 1e-12);
        const bool hopeless = !(tables_objective_s(root->tables, round_s, 0) < target_of(root));
        relax->status[i] = hopeless ? RELAX_OUT : RELAX_FREE;
        out[relax->devices[i]] = hopeless;
    }
}

/* Of several micro-batches: stages so long that nothing better has one, because of what a round
 * then takes. */
static double longest_limit(struct root *root)
{
    const struct placement_tables *tables = root->tables;
    double limit_s = tables_stage_limit_s(tables, target_of(root));
    if (tables->micro_batches <= 1 || tables->busy >= 1 || root->relax->n > FIX_DEVICES)
        return limit_s;
    for (double before_s = INFINITY; limit_s < 0.99 * before_s && root_go_on(root);) {
        before_s = limit_s;
        limit_s =
            fmin(limit_s, tables_longest_limit_s(tables, target_of(root),
                                                 relax_round(root->relax, limit_s) * (1 - 1e-12)));
    }
    return fmax(limit_s, 0);
}

/* The tree of moats that gives the higher bound. */
static enum error_code choose_relax(struct root *root, struct relax *relax, struct error *err)
{
    struct relax other;
    const double limit_s = tables_stage_limit_s(root->tables, root->best_s);
    if (relax_init(relax, root->tables, false, err))
        return err->code;
    root->relax = relax;
    if (relax->n <= FEW_DEVICES || relax->n > MOATS_FREEZE_DEVICES)
        return ERROR_NONE;
    if (relax_init(&other, root->tables, true, err)) {
        relax_deinit(relax);
        return err->code;
    }
    const bool worse = relax_round(&other, limit_s) <= relax_round(relax, limit_s);
    relax_deinit(worse ? &other : relax);
    if (!worse)
        *relax = other;
    return ERROR_NONE;
}

enum error_code root_search(const struct placement_tables *tables, struct sequence_work *work,
                            const struct exact_limits *limits, struct placement *best,
                            double *best_s, double *lower_bound_s, double *longest_limit_s,
                            bool *out, struct error *err)
{
    struct root root = {
        .tables = tables, .work = work, .limits = limits, .best = best, .best_s = *best_s};
    struct relax relax;
    double bound_s = 0;
    enum error_code code = choose_relax(&root, &relax, err);
    if (code)
        return code;
    for (uint32_t pass = 0; pass < PASSES && !code && !root.stopped; pass++) {
        const double before_s = root.best_s;
        bound_s = fmax(bound_s, root_lower_bound(&root));
        if (is_met(&root, bound_s) || !root_go_on(&root) || (pass > 1 && root.best_s == before_s))
            break;
        root_sharpen(&root, bound_s);
        code = greedy_improve(tables, work, limits,
                              relax.n > FEW_DEVICES ? IMPROVE_BUDGET : FEW_BUDGET, best,
                              &root.best_s, err);
    }
    if (!code && !root.stopped && !is_met(&root, bound_s))
        root_leave_out(&root, out);
    *longest_limit_s = code ? INFINITY : longest_limit(&root);
    *best_s = root.best_s;
    *lower_bound_s = root.best_s < INFINITY ? fmin(bound_s, root.best_s) : bound_s;
    relax_deinit(&relax);
    return code;
}
