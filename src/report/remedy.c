#include "report/remedy.h"

#include "base/mem.h"
#include "placement/changed.h"
#include "placement/cost.h"
#include "placement/tables.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A problem with one thing that can be turned until it fits. */
struct trial {
    const struct placement_problem *problem;
    const struct placement_kv_types *kv_types;
    struct placement_options options; /* of the question whether it fits */
    struct changed changed;
    void (*turn)(struct trial *trial, uint64_t to);
    uint32_t device; /* that `turn` is about */
    uint64_t added_bytes;
    uint16_t low[LIMIT_LAYERS + 1];
    bool sure; /* the last "no" was proved */
    enum error_code code;
    struct error *err;
};

uint32_t placement_context_step(uint32_t context_tokens)
{
    if (context_tokens < 64)
        return 1;
    return context_tokens >= 8192 ? 1024 : context_tokens >= 2048 ? 256 : 64;
}

const char *placement_remedy_name(enum placement_remedy_kind kind)
{
    static const char *const names[PLACEMENT_REMEDY_KINDS] = {
        [PLACEMENT_REMEDY_KV_TYPE] = "kv_type",
        [PLACEMENT_REMEDY_STREAMS] = "streams",
        [PLACEMENT_REMEDY_CONTEXT] = "context",
        [PLACEMENT_REMEDY_COMBINED] = "combined",
        [PLACEMENT_REMEDY_FREE_MEMORY] = "free_memory",
        [PLACEMENT_REMEDY_ADD_DEVICE] = "add_device",
    };
    return (unsigned)kind < PLACEMENT_REMEDY_KINDS ? names[kind] : "?";
}

/* ---- does it fit ---------------------------------------------------------------------- */

static bool remedy_has_time(const struct trial *trial)
{
    return !trial->code && (!trial->options.go_on || trial->options.go_on(trial->options.self));
}

/* Each device with as many layers as it holds anywhere, whatever the others do: fewer than there
 * are, and it is proved that nothing fits, which the search would take long for. */
static bool too_few(struct trial *trial, uint64_t to)
{
    const struct placement_problem *problem = &trial->changed.problem;
    const uint32_t n_layers = problem->model.n_layers;
    struct placement_tables tables;
    uint64_t sum = 0;
    trial->turn(trial, to);
    trial->code = tables_init(&tables, problem, trial->err);
    if (trial->code)
        return true;
    for (uint32_t d = 0; d < problem->n_devices && sum < n_layers; d++) {
        uint32_t most = 0;
        tables_windows(&tables, d, INFINITY, trial->low);
        for (uint32_t b = 1; b <= n_layers; b++)
            most = b - trial->low[b] > most ? b - trial->low[b] : most;
        sum += tables_holds_all(&tables, d) ? n_layers : most;
    }
    tables_deinit(&tables);
    return sum < n_layers;
}

/* Greedy says yes quickly; only the search can say no for certain. */
static bool remedy_fits(struct trial *trial, uint64_t to)
{
    struct placement_solution solution;
    struct error own = {0};
    trial->sure = false;
    if (!remedy_has_time(trial))
        return false;
    if (too_few(trial, to)) {
        trial->sure = !trial->code;
        return false;
    }
    trial->options.greedy_only = true;
    enum error_code code =
        placement_solve(&trial->changed.problem, &trial->options, &solution, &own);
    if (code == ERROR_NOT_FOUND || code == ERROR_BUSY) {
        trial->options.greedy_only = false;
        code = placement_solve(&trial->changed.problem, &trial->options, &solution, &own);
    }
    trial->sure = code == ERROR_NOT_FOUND;
    if (code && code != ERROR_NOT_FOUND && code != ERROR_BUSY)
        trial->code = error_set(trial->err, code, "%s", own.text);
    return code == ERROR_NONE;
}

static uint64_t middle_of(uint64_t a, uint64_t b)
{
    return a < b ? a + (b - a) / 2 : b + (a - b) / 2;
}

static bool are_neighbours(uint64_t a, uint64_t b)
{
    return a < b ? b - a <= 1 : a - b <= 1;
}

/* From `bad`, which does not fit, towards `good`: the first that does. False: not even `good`.
 * Halved twice: by what is proved quickly, which is nearly always all there is to it, and by the
 * search. */
static bool turn_until(struct trial *trial, uint64_t bad, uint64_t good, uint64_t *first,
                       bool *least)
{
    uint64_t maybe = good;
    trial->sure = true;
    while (remedy_has_time(trial) && !are_neighbours(bad, maybe)) {
        const uint64_t middle = middle_of(bad, maybe);
        if (too_few(trial, middle))
            bad = middle;
        else
            maybe = middle;
    }
    *least = true;
    *first = maybe;
    if (remedy_fits(trial, maybe))
        return true;
    *least = trial->sure;
    if (maybe == good || !remedy_fits(trial, good))
        return false;
    for (bad = maybe; !are_neighbours(bad, good);) {
        const uint64_t middle = middle_of(bad, good);
        if (remedy_fits(trial, middle)) {
            good = middle;
        } else {
            bad = middle;
            *least = trial->sure;
        }
    }
    *first = good;
    return !trial->code;
}

/* ---- what can be turned --------------------------------------------------------------- */

static void turn_kv_type(struct trial *trial, uint64_t to)
{
    const struct placement_kv_type *now = &trial->kv_types->current,
                                   *then = &trial->kv_types->others[to];
    const double ratio = (double)then->bytes_per_block / then->elements_per_block /
                         ((double)now->bytes_per_block / now->elements_per_block);
    for (uint32_t i = 0; i < trial->problem->model.n_layers; i++) {
        const uint64_t bytes = trial->problem->model.layers[i].kv_bytes_per_token;
        /* Less 1e-9 of it, so that a whole number does not become the next one. */
        trial->changed.layers[i].kv_bytes_per_token =
            (uint64_t)ceil((double)bytes * ratio * (1 - 1e-9));
    }
}

static void turn_streams(struct trial *trial, uint64_t to)
{
    trial->changed.problem.demand.streams = (uint32_t)to;
}

static void turn_context(struct trial *trial, uint64_t steps)
{
    struct placement_demand *demand = &trial->changed.problem.demand;
    demand->context_tokens =
        (uint32_t)steps * placement_context_step(trial->problem->demand.context_tokens);
    if (demand->prompt_tokens > demand->context_tokens)
        demand->prompt_tokens = demand->context_tokens;
    const struct placement_model *was = &trial->problem->model;
    const uint32_t asked = trial->problem->demand.context_tokens;
    const uint64_t fewer = asked > demand->context_tokens ? asked - demand->context_tokens : 0;
    const uint64_t most =
        fewer ? was->compute_bytes / fewer : 0; /* all of the buffer: the product cannot overflow */
    const uint64_t each =
        was->compute_bytes_per_context < most ? was->compute_bytes_per_context : most;
    trial->changed.problem.model.compute_bytes = was->compute_bytes - each * fewer;
}

static void turn_memory(struct trial *trial, uint64_t units)
{
    struct placement_device *device = &trial->changed.devices[trial->device];
    const struct placement_device *was = &trial->problem->devices[trial->device];
    trial->added_bytes = units * PLACEMENT_REMEDY_UNIT;
    /* A device whose reserve is more than its memory lacks the difference, too. */
    device->memory_free_bytes = was->memory_free_bytes + trial->added_bytes;
}

static void turn_added(struct trial *trial, uint64_t units)
{
    struct placement_device *device = &trial->changed.devices[trial->problem->n_devices];
    trial->added_bytes = units * PLACEMENT_REMEDY_UNIT;
    device->memory_free_bytes = trial->added_bytes;
    device->reserve_bytes = 0;
}

/* ---- the remedies --------------------------------------------------------------------- */

static bool trial_init(struct trial *trial, void (*turn)(struct trial *, uint64_t))
{
    trial->turn = turn;
    trial->code = changed_init(&trial->changed, trial->problem, trial->err);
    return !trial->code;
}

/* The remedy as the trial is turned now, with its rates. */
static void remedy_keep(struct trial *trial, enum placement_remedy_kind kind, bool least,
                        const char *kv_type, const struct placement_options *options,
                        struct placement_remedies *out)
{
    const struct placement_demand *demand = &trial->changed.problem.demand;
    struct placement_options full = *options;
    struct placement_rates rates;
    if (trial->code)
        return;
    full.max_nodes = full.max_nodes ? full.max_nodes : PLACEMENT_REMEDY_NODES;
    trial->code = placement_rate(&trial->changed.problem, &full, &rates, trial->err);
    if (!trial->code &&
        rates.answer != PLACEMENT_POSSIBLE) { /* the time is over: greedy is quick */
        full.go_on = NULL;
        full.greedy_only = true;
        trial->code = placement_rate(&trial->changed.problem, &full, &rates, trial->err);
    }
    if (trial->code || rates.answer != PLACEMENT_POSSIBLE)
        return;
    struct placement_remedy *remedy = &out->list[out->n++];
    *remedy = (struct placement_remedy){
        .kind = kind,
        .least = least,
        .streams = demand->streams,
        .context_tokens = demand->context_tokens,
        .device = trial->device,
        .bytes = trial->added_bytes,
        .rates = rates,
    };
    snprintf(remedy->kv_type, sizeof remedy->kv_type, "%s", kv_type);
}

static double kv_size(const struct placement_kv_type *type)
{
    return (double)type->bytes_per_block / type->elements_per_block;
}

static void try_kv_types(struct trial *trial, const struct placement_options *options,
                         struct placement_remedies *out)
{
    bool least = true;
    if (!trial_init(trial, turn_kv_type))
        return;
    for (uint32_t i = 0; i < trial->kv_types->n; i++) {
        if (kv_size(&trial->kv_types->others[i]) >= kv_size(&trial->kv_types->current))
            continue;
        if (remedy_fits(trial, i)) {
            remedy_keep(trial, PLACEMENT_REMEDY_KV_TYPE, least, trial->kv_types->others[i].name,
                        options, out);
            break;
        }
        least = least && trial->sure;
    }
    changed_deinit(&trial->changed);
}

static void try_streams(struct trial *trial, const struct placement_options *options,
                        struct placement_remedies *out)
{
    uint64_t streams;
    bool least;
    if (trial->problem->demand.streams == 1 || !trial_init(trial, turn_streams))
        return;
    if (turn_until(trial, trial->problem->demand.streams, 1, &streams, &least)) {
        turn_streams(trial, streams);
        remedy_keep(trial, PLACEMENT_REMEDY_STREAMS, least, "", options, out);
    }
    changed_deinit(&trial->changed);
}

/* The longest context with what else the trial has been given. */
static void turn_context_down(struct trial *trial, enum placement_remedy_kind kind,
                              const char *kv_type, const struct placement_options *options,
                              struct placement_remedies *out)
{
    const uint32_t asked = trial->problem->demand.context_tokens,
                   step = placement_context_step(asked);
    const uint32_t most = (asked + step - 1) / step;
    uint64_t steps;
    bool least;
    if (turn_until(trial, most, 1, &steps, &least) && steps < most) {
        turn_context(trial, steps);
        remedy_keep(trial, kind, least, kv_type, options, out);
    }
}

static void try_context(struct trial *trial, const struct placement_options *options,
                        struct placement_remedies *out)
{
    if (trial->problem->demand.context_tokens == 1 || !trial_init(trial, turn_context))
        return;
    turn_context_down(trial, PLACEMENT_REMEDY_CONTEXT, "", options, out);
    changed_deinit(&trial->changed);
}

static void try_combined(struct trial *trial, const struct placement_options *options,
                         struct placement_remedies *out)
{
    const struct placement_kv_type *smallest = &trial->kv_types->current;
    if (out->n || !trial_init(trial, turn_streams))
        return;
    for (uint32_t i = 0; i < trial->kv_types->n; i++) {
        if (kv_size(&trial->kv_types->others[i]) < kv_size(smallest)) {
            smallest = &trial->kv_types->others[i];
            turn_kv_type(trial, i);
        }
    }
    trial->changed.problem.demand.streams = 1;
    const bool changed_type = smallest != &trial->kv_types->current;
    /* The whole context first: the other two together may be enough. */
    if (remedy_fits(trial, 1)) {
        remedy_keep(trial, PLACEMENT_REMEDY_COMBINED, false, changed_type ? smallest->name : "",
                    options, out);
    } else if (changed_type || trial->problem->demand.streams > 1) {
        trial->turn = turn_context;
        turn_context_down(trial, PLACEMENT_REMEDY_COMBINED, changed_type ? smallest->name : "",
                          options, out);
    }
    changed_deinit(&trial->changed);
}

/* What one device needs at most: everything. */
static uint64_t remedy_most_units(const struct placement_problem *problem,
                                  const struct placement_device *device)
{
    const struct placement_stage whole = {0, 0, problem->model.n_layers};
    const uint64_t bytes = placement_stage_bytes(problem, &whole) + device->reserve_bytes;
    const uint64_t possible = PLACEMENT_BYTES_MAX - device->memory_free_bytes;
    return (bytes < possible ? bytes + PLACEMENT_REMEDY_UNIT - 1 : possible) /
           PLACEMENT_REMEDY_UNIT;
}

static void try_free_memory(struct trial *trial, const struct placement_options *options,
                            struct placement_remedies *out)
{
    uint64_t best = 0;
    uint32_t best_device = 0;
    bool best_least = true, least;
    if (!trial_init(trial, turn_memory))
        return;
    for (uint32_t d = 0; d < trial->problem->n_devices && remedy_has_time(trial); d++) {
        if (!placement_device_usable(&trial->problem->devices[d]))
            continue;
        uint64_t units;
        trial->device = d;
        const uint64_t most =
            best ? best - 1 : remedy_most_units(trial->problem, &trial->problem->devices[d]);
        if (most > 0 && turn_until(trial, 0, most, &units, &least)) {
            best = units;
            best_device = d;
            best_least = least;
        } else if (best) {
            best_least = best_least && trial->sure;
        }
        trial->changed.devices[d] = trial->problem->devices[d];
    }
    if (best) {
        trial->device = best_device;
        turn_memory(trial, best);
        out->missing_bytes = trial->added_bytes;
        remedy_keep(trial, PLACEMENT_REMEDY_FREE_MEMORY, best_least, "", options, out);
    }
    changed_deinit(&trial->changed);
}

/* Like the device with the best score; types that it does not know it takes at the rate of its
 * slowest one. */
static uint32_t best_device(const struct placement_problem *problem,
                            const struct placement_weights *weights, double *scores)
{
    uint32_t best = 0;
    placement_scores(problem, weights, scores);
    for (uint32_t d = 1; d < problem->n_devices; d++)
        best = scores[d] > scores[best] ? d : best;
    return best;
}

static void know_all_types(const struct placement_problem *problem, struct placement_device *device)
{
    double slowest = INFINITY;
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (device->decode_bytes_per_s[type] > 0)
            slowest = fmin(slowest, device->decode_bytes_per_s[type]);
    }
    for (uint32_t type = 0; type < problem->model.n_types; type++) {
        if (device->decode_bytes_per_s[type] <= 0)
            device->decode_bytes_per_s[type] = slowest < INFINITY ? slowest : 1e9;
    }
    device->share = device->share > 0 ? device->share : 1;
    device->measured = false;
}

static void try_add_device(struct trial *trial, const struct placement_options *options,
                           double *scores, struct placement_remedies *out)
{
    const struct placement_problem *problem = trial->problem;
    uint64_t units;
    bool least, assumed;
    if (problem->n_devices == LIMIT_PLACEMENT_DEVICES || !trial_init(trial, turn_added))
        return;
    trial->device = best_device(problem, &options->weights, scores);
    struct placement_extra extra = placement_extra_copy(problem, trial->device, true);
    know_all_types(problem, &extra.device);
    trial->code = changed_add(&trial->changed, &extra.device, trial->device,
                              placement_extra_beside(problem, &extra, &assumed), trial->err);
    if (!trial->code &&
        turn_until(trial, 0, remedy_most_units(problem, &extra.device), &units, &least)) {
        turn_added(trial, units);
        remedy_keep(trial, PLACEMENT_REMEDY_ADD_DEVICE, least, "", options, out);
    }
    changed_deinit(&trial->changed);
}

/* ---- the whole ------------------------------------------------------------------------ */

static enum error_code check_type(const struct placement_kv_type *type, struct error *err)
{
    if (!memchr(type->name, 0, sizeof type->name))
        return error_set(err, ERROR_INVALID, "the name of a KV type is not terminated");
    if (type->elements_per_block == 0 || type->bytes_per_block == 0)
        return error_set(err, ERROR_INVALID, "KV type %s: blocks without elements or bytes",
                         type->name);
    return ERROR_NONE;
}

static enum error_code check_types(const struct placement_kv_types *types, struct error *err)
{
    if (types->n > PLACEMENT_KV_TYPES_MAX)
        return error_set(err, ERROR_INVALID, "%u KV types; %d are possible", types->n,
                         PLACEMENT_KV_TYPES_MAX);
    enum error_code code = types->n ? check_type(&types->current, err) : ERROR_NONE;
    for (uint32_t i = 0; i < types->n && !code; i++)
        code = check_type(&types->others[i], err);
    return code;
}

static void count_bytes(const struct placement_problem *problem, struct placement_remedies *out)
{
    for (uint32_t layer = 0; layer < problem->model.n_layers; layer++)
        out->needed_bytes += placement_layer_bytes(problem, layer);
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        const uint64_t room = placement_device_bytes(&problem->devices[d]);
        if (placement_device_usable(&problem->devices[d]) && room > problem->model.compute_bytes)
            out->there_bytes += room - problem->model.compute_bytes;
    }
}

static enum error_code find_remedies(struct trial *trial, const struct placement_options *options,
                                     struct placement_remedies *out)
{
    double *scores = mem_new_array(trial->problem->n_devices, sizeof *scores);
    if (!scores)
        return error_set(trial->err, ERROR_NO_MEMORY, "placement: not enough memory for scores");
    count_bytes(trial->problem, out);
    if (!trial->code)
        try_kv_types(trial, options, out);
    if (!trial->code)
        try_streams(trial, options, out);
    if (!trial->code)
        try_context(trial, options, out);
    if (!trial->code)
        try_combined(trial, options, out);
    trial->added_bytes = 0;
    if (!trial->code)
        try_free_memory(trial, options, out);
    if (!trial->code)
        try_add_device(trial, options, scores, out);
    mem_free(scores);
    return trial->code;
}

enum error_code placement_remedies(const struct placement_problem *problem,
                                   const struct placement_kv_types *kv_types,
                                   const struct placement_options *options,
                                   struct placement_remedies *out, struct error *err)
{
    struct placement_solution solution;
    struct error why = {0};
    struct trial trial = {
        .problem = problem, .kv_types = kv_types, .options = *options, .err = err};
    *out = (struct placement_remedies){0};
    if (check_types(kv_types, err))
        return ERROR_INVALID;
    trial.options.max_nodes = PLACEMENT_REMEDY_NODES;
    const enum error_code code = placement_solve(problem, options, &solution, &why);
    out->fits = code == ERROR_NONE;
    out->undecided = code == ERROR_BUSY;
    if (out->fits || out->undecided)
        return ERROR_NONE;
    if (code != ERROR_NOT_FOUND)
        return error_set(err, code, "%s", why.text);
    snprintf(out->why, sizeof out->why, "%s", why.text);
    return find_remedies(&trial, options, out);
}
