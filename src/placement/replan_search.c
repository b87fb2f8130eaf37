#include "placement/replan_search.h"

#include "base/mem.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/sequence.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct replan_walk {
    struct replan_context *context;
    struct placement_tables tables;
    struct placement_tables weighed; /* the same with time = remaining use x time + moving */
    double *load_s; /* [device * (n_layers + 1)] prefix sums of replan_layer_*_s() */
    double *kv_s;
    struct sequence_work work;
    struct replan_plan plan; /* being looked at */
    struct replan_found *found;
    int64_t budget;
};

static bool replan_search_has_time(const struct replan_walk *walk)
{
    const struct placement_options *options = &walk->context->options->solve;
    return walk->budget > 0 && (!options->go_on || options->go_on(options->self));
}

static bool replan_search_is_better(const struct replan_plan *a, const struct replan_plan *b)
{
    const double same_s = PLACEMENT_EPSILON * fmax(a->total_s, b->total_s);
    if (b->target.n_stages == 0 || fabs(a->total_s - b->total_s) > same_s)
        return b->target.n_stages == 0 || a->total_s < b->total_s;
    if (a->weight_bytes != b->weight_bytes)
        return a->weight_bytes < b->weight_bytes;
    return a->n_moves < b->n_moves;
}

/* Looks at one target, whoever made it: the check comes first. */
static bool replan_search_accept(struct replan_walk *walk, const struct placement *target)
{
    return placement_check(walk->context->input->problem, target, NULL) == ERROR_NONE &&
           replan_cost(walk->context, target, &walk->plan) && walk->plan.total_s < INFINITY &&
           (walk->context->must_move || replan_pays(walk->context, &walk->plan));
}

static void replan_search_offer(struct replan_walk *walk, const struct placement *target)
{
    if (replan_search_accept(walk, target) &&
        replan_search_is_better(&walk->plan, &walk->found->plan))
        walk->found->plan = walk->plan;
}

/* ---- cuts that know what moving costs --------------------------------------------------- */

/* For a sequence: tables whose time of a stage is  rounds x time + its layers' loading and
 * copying. */
static void replan_search_weigh(struct replan_walk *walk, const uint32_t *devices, uint32_t n,
                                double load_weight)
{
    const struct replan_context *context = walk->context;
    const uint64_t width = walk->tables.n_layers + 1;
    const double rounds = context->tokens / context->input->problem->demand.streams;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t at = devices[i] * width;
        for (uint64_t layer = 0; layer < width; layer++)
            walk->weighed.time[at + layer] = rounds * walk->tables.time[at + layer] +
                                             load_weight * walk->load_s[at + layer] +
                                             walk->kv_s[at + layer];
        walk->weighed.launch[devices[i]] = rounds * walk->tables.launch[devices[i]];
    }
}

/* The least weighed time with stages shorter than limit_s. */
static void offer_weighed(struct replan_walk *walk, const uint32_t *devices, uint32_t n,
                          double limit_s)
{
    const struct placement_problem *problem = walk->context->input->problem;
    const uint32_t width = walk->tables.n_layers + 1;
    struct placement target = {.n_stages = n};
    for (uint32_t i = 0; i < n; i++) {
        if (i && !placement_linked(problem, devices[i - 1], devices[i]))
            return;
        tables_windows(&walk->tables, devices[i], limit_s, walk->work.low);
        tables_extend(&walk->weighed, devices[i],
                      i ? walk->work.rounds + (uint64_t)(i - 1) * width : NULL, 0, walk->work.low,
                      walk->work.rounds + (uint64_t)i * width,
                      walk->work.froms + (uint64_t)i * width);
    }
    uint32_t end = walk->tables.n_layers;
    if (!(walk->work.rounds[(uint64_t)(n - 1) * width + end] < INFINITY))
        return;
    for (uint32_t i = n; i-- > 0;) {
        const uint32_t first = i ? walk->work.froms[(uint64_t)i * width + end] : 0;
        target.stages[i] = (struct placement_stage){devices[i], first, end - first};
        end = first;
    }
    replan_search_offer(walk, &target);
}

/* The fastest cuts of an order of devices; and where those could win, the cheapest to get to. */
static void replan_search_look_at(struct replan_walk *walk, const uint32_t *devices, uint32_t n)
{
    static const double slack[] = {1 + 1e-9, 1.05, 1.2, 1.5};
    const struct replan_context *context = walk->context;
    const bool one_batch = walk->tables.micro_batches <= 1;
    struct placement target;
    if (n == 0 || n > LIMIT_STAGES || n > walk->tables.n_layers || !replan_search_has_time(walk))
        return;
    walk->budget -= (int64_t)(one_batch ? 1 : 16) * n * walk->tables.n_layers;
    const double period_s =
        sequence_best(&walk->tables, &walk->work, devices, n, INFINITY, &target);
    if (!(period_s < INFINITY))
        return;
    const struct placement_cost cost = {.period_s = period_s};
    const double rate = placement_decode_tokens_per_s(context->input->problem, &cost);
    if (!context->must_move && rate < (1 + context->options->margin) * context->tokens_per_s)
        return;
    replan_search_offer(walk, &target);
    if (n == 1 ||
        (walk->found->plan.target.n_stages && context->tokens / rate >= walk->found->plan.total_s))
        return;
    /* While loading goes on beside decoding only the gain is lost; else all of it. */
    for (int beside = 0; beside <= 1; beside++) {
        if (beside && !context->running)
            break;
        replan_search_weigh(walk, devices, n,
                            beside ? fmax(0, 1 - context->tokens_per_s / rate) : 1);
        for (uint32_t i = 0; i < (one_batch ? 1 : sizeof slack / sizeof *slack); i++) {
            walk->budget -= (int64_t)2 * n * walk->tables.n_layers;
            offer_weighed(walk, devices, n, one_batch ? INFINITY : period_s * slack[i]);
        }
    }
}

/* ---- orders near the current one ------------------------------------------------------- */

static bool replan_search_contains(const uint32_t *devices, uint32_t n, uint32_t device)
{
    for (uint32_t i = 0; i < n; i++) {
        if (devices[i] == device)
            return true;
    }
    return false;
}

static void look_around(struct replan_walk *walk, const uint32_t *devices, uint32_t n)
{
    const uint32_t n_devices = walk->tables.n_devices;
    uint32_t other[LIMIT_STAGES + 1];
    replan_search_look_at(walk, devices, n);
    for (uint32_t i = 0; i < n; i++) {
        memcpy(other, devices, i * sizeof *other);
        memcpy(other + i, devices + i + 1, (n - i - 1) * sizeof *other);
        replan_search_look_at(walk, other, n - 1);
    }
    for (uint32_t d = 0; d < n_devices && replan_search_has_time(walk); d++) {
        if (replan_search_contains(devices, n, d) || walk->tables.room[d] < 0 ||
            !placement_device_usable(&walk->context->input->problem->devices[d]))
            continue;
        for (uint32_t at = 0; at < n; at++) {
            memcpy(other, devices, n * sizeof *other);
            other[at] = d;
            replan_search_look_at(walk, other, n);
        }
        for (uint32_t at = 0; at <= n; at++) {
            memcpy(other, devices, at * sizeof *other);
            other[at] = d;
            memcpy(other + at + 1, devices + at, (n - at) * sizeof *other);
            replan_search_look_at(walk, other, n + 1);
        }
    }
}

/* ---- the best of all --------------------------------------------------------------------- */

static void replan_search_exchange(struct placement *placement, uint32_t stage, uint32_t device)
{
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i].device == device)
            placement->stages[i].device = placement->stages[stage].device;
    }
    placement->stages[stage].device = device;
}

/* Of devices that are alike, those that have the layers already: exchanges that make nothing
 * slower. */
static void keep_places(struct replan_walk *walk, struct placement *target)
{
    const struct replan_context *context = walk->context;
    const struct placement_problem *problem = context->input->problem;
    struct replan_plan now, then;
    if (!replan_cost(context, target, &now))
        return;
    for (bool again = true; again && replan_search_has_time(walk);) {
        again = false;
        for (uint32_t i = 0; i < target->n_stages; i++) {
            for (uint32_t j = 0; j < context->current.n_stages; j++) {
                const uint32_t device = context->current.stages[j].device;
                struct placement other = *target;
                if (device == REPLAN_GONE || device == target->stages[i].device)
                    continue;
                replan_search_exchange(&other, i, device);
                walk->budget -= walk->tables.n_layers;
                if (placement_check(problem, &other, NULL) ||
                    !replan_cost(context, &other, &then) || then.weight_bytes >= now.weight_bytes ||
                    then.decode_tokens_per_s < now.decode_tokens_per_s * (1 - PLACEMENT_EPSILON))
                    continue;
                *target = other;
                now = then;
                again = true;
            }
        }
    }
}

static uint32_t devices_of(const struct placement *placement, uint32_t *devices)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < placement->n_stages; i++) {
        if (placement->stages[i].device != REPLAN_GONE &&
            !replan_search_contains(devices, n, placement->stages[i].device))
            devices[n++] = placement->stages[i].device;
    }
    return n;
}

static enum error_code look_far(struct replan_walk *walk, struct error *err)
{
    struct replan_context *context = walk->context;
    struct placement_solution solution;
    struct error why = {0};
    uint32_t devices[LIMIT_STAGES];
    const enum error_code code =
        placement_solve(context->input->problem, &context->options->solve, &solution, &why);
    if (code == ERROR_NOT_FOUND || code == ERROR_BUSY) {
        memcpy(walk->found->why, why.text, sizeof why.text);
        return ERROR_NONE;
    }
    if (code)
        return error_set(err, code, "%s", why.text);
    if (!context->running) {
        const struct placement_cost cost =
            placement_decode_cost(context->input->problem, &solution.placement);
        context->tokens =
            context->input->tokens +
            context->input->seconds * placement_decode_tokens_per_s(context->input->problem, &cost);
    }
    replan_search_offer(walk, &solution.placement);
    keep_places(walk, &solution.placement);
    replan_search_offer(walk, &solution.placement);
    replan_search_look_at(walk, devices, devices_of(&solution.placement, devices));
    if (walk->found->plan.target.n_stages == 0)
        (void)snprintf(walk->found->why, sizeof walk->found->why,
                       "no device that is linked has the model's weights");
    return ERROR_NONE;
}

/* ---- the whole ------------------------------------------------------------------------- */

static enum error_code walk_init(struct replan_walk *walk, struct error *err)
{
    const struct placement_problem *problem = walk->context->input->problem;
    const uint64_t n = problem->n_devices, width = problem->model.n_layers + 1;
    enum error_code code = tables_init(&walk->tables, problem, err);
    if (!code)
        code = sequence_work_init(&walk->work, problem->model.n_layers, err);
    if (code)
        return code;
    walk->tables.busy = 1; /* of a mix, too: a move is weighed by the tokens of all streams, so cuts
                              are by period */
    walk->weighed = walk->tables;
    walk->weighed.time = mem_new_array(n * width, sizeof(double));
    walk->weighed.launch = mem_new_array(n, sizeof(double));
    walk->load_s = mem_new_array(n * width, sizeof(double));
    walk->kv_s = mem_new_array(n * width, sizeof(double));
    if (!walk->weighed.time || !walk->weighed.launch || !walk->load_s || !walk->kv_s)
        return error_set(err, ERROR_NO_MEMORY, "replan: not enough memory for %u devices",
                         problem->n_devices);
    for (uint32_t d = 0; d < n; d++) {
        for (uint32_t layer = 0; layer < problem->model.n_layers; layer++) {
            const uint64_t at = d * width + layer;
            const double kv_s = replan_layer_kv_s(walk->context, d, layer);
            const double load_s = replan_layer_load_s(walk->context, d, layer);
            /* What cannot be loaded at all is refused by replan_cost(); sums with infinity have no
             * differences. */
            walk->load_s[at + 1] =
                walk->load_s[at] + (load_s < INFINITY ? load_s : PLACEMENT_SECONDS_MAX);
            walk->kv_s[at + 1] =
                walk->kv_s[at] + (kv_s < INFINITY ? kv_s : 0); /* replayed, wherever they are */
        }
    }
    return ERROR_NONE;
}

static void walk_deinit(struct replan_walk *walk)
{
    mem_free(walk->weighed.time == walk->tables.time ? NULL : walk->weighed.time);
    mem_free(walk->weighed.launch == walk->tables.launch ? NULL : walk->weighed.launch);
    mem_free(walk->load_s);
    mem_free(walk->kv_s);
    sequence_work_deinit(&walk->work);
    tables_deinit(&walk->tables);
}

enum error_code replan_search(struct replan_context *context, const struct placement *pending,
                              struct replan_found *out, struct error *err)
{
    struct replan_walk walk = {.context = context, .found = out, .budget = REPLAN_BUDGET};
    uint32_t devices[LIMIT_STAGES];
    *out = (struct replan_found){0};
    enum error_code code = walk_init(&walk, err);
    if (!code)
        code = look_far(&walk, err);
    if (!code) {
        look_around(&walk, devices, devices_of(&context->current, devices));
        if (pending && replan_search_accept(&walk, pending))
            out->pending = walk.plan;
        if (out->pending.target.n_stages && replan_search_is_better(&out->pending, &out->plan))
            out->plan = out->pending;
    }
    walk_deinit(&walk);
    return code;
}
