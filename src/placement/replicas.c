#include "placement/replicas.h"

#include "base/mem.h"
#include "placement/as_run.h"
#include "placement/check.h"
#include "placement/cost.h"
#include "placement/replicas_bound.h"
#include "placement/replicas_units.h"
#include "placement/sequence.h"
#include "placement/whatif.h"

#include <math.h>
#include <string.h>

enum { NOT_FOUND = UINT16_MAX };

/* A set of devices and a number of parts of the streams, as one group: [state * (n_parts + 1) +
 * parts]. */
struct option {
    double upper; /* no such group has more */
    double rate;  /* of what was found; 0: nothing */
    uint16_t found;
    bool solved;
};

/* How the best division of a set begins. */
struct replicas_step {
    double rate;
    uint16_t group; /* a state; 0: none, `parts` is a unit of which one copy is left out */
    uint8_t parts;
};

struct replicas_search {
    const struct placement_problem *problem;
    const struct placement_options *options;
    struct replicas_units units;
    struct replicas_bound bound;
    uint32_t n_parts, part_streams;
    uint32_t streams[REPLICAS_PARTS]; /* of 1 … n_parts parts */
    struct option *table;
    struct replicas_step *steps; /* as the table */
    struct placement_device *devices;
    bool *in;
    struct placement_group *found; /* on the first copies of its units */
    uint32_t n_found, found_room;
    struct placement_replicas *out;
    bool stopped;
};

static struct option *option_of(const struct replicas_search *search, uint32_t state,
                                uint32_t parts)
{
    return &search->table[(uint64_t)state * (search->n_parts + 1) + parts];
}

/* ---- one group -------------------------------------------------------------------------- */

/* Marks the first copies of each unit. */
static void replicas_mark(const struct replicas_search *search, uint32_t state)
{
    const struct replicas_units *units = &search->units;
    memset(search->in, 0, search->problem->n_devices * sizeof *search->in);
    for (uint32_t i = 0; i < units->n_units; i++) {
        const struct replicas_unit *unit = &units->units[i];
        const uint32_t count = units->counts[state * units->n_units + i] * unit->size;
        for (uint32_t j = 0; j < count; j++)
            search->in[units->devices[unit->first + j]] = true;
    }
}

static enum error_code note_found(struct replicas_search *search, struct option *option,
                                  const struct placement_group *group, struct error *err)
{
    if (search->n_found == search->found_room) {
        const uint32_t room = 2 * search->found_room + 16;
        struct placement_group *found = mem_resize(search->found, room, sizeof *found);
        if (!found)
            return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for %u groups",
                             room);
        search->found = found;
        search->found_room = room;
    }
    option->found = (uint16_t)search->n_found;
    option->rate = placement_group_rate(search->problem, group);
    search->found[search->n_found++] = *group;
    return ERROR_NONE;
}

/* No part of a set is faster than the set; and with more streams no stream's token comes sooner,
 * because each takes memory and time. */
static void bound_parts_of(struct replicas_search *search, uint32_t state, uint32_t parts)
{
    const double each = option_of(search, state, parts)->upper / search->streams[parts - 1];
    for (uint32_t part = 1; part <= state; part++) {
        if (!replicas_contains(&search->units, state, part))
            continue;
        for (uint32_t more = parts; more <= search->n_parts; more++) {
            struct option *option = option_of(search, part, more);
            option->upper = fmin(option->upper, each * search->streams[more - 1] * (1 + 1e-12));
        }
    }
}

static enum error_code solve_group(struct replicas_search *search, uint32_t state, uint32_t parts,
                                   struct error *err)
{
    struct placement_problem problem = *search->problem;
    struct placement_options options = *search->options;
    struct placement_solution solution;
    struct option *option = option_of(search, state, parts);
    options.max_nodes = options.max_nodes ? options.max_nodes : PLACEMENT_WHATIF_NODES;
    options.greedy_only =
        options.greedy_only || search->units.merged; /* nothing is proved then, so many are tried */
    replicas_mark(search, state);
    for (uint32_t d = 0; d < problem.n_devices; d++)
        search->devices[d].excluded = search->problem->devices[d].excluded || !search->in[d];
    problem.devices = search->devices;
    problem.demand.streams = search->streams[parts - 1];
    search->out->solves++;
    option->solved = true;
    const enum error_code code = placement_solve_as_run(&problem, &options, &solution, err);
    if (code == ERROR_NOT_FOUND)
        option->upper = 0;
    if (code)
        return code == ERROR_NOT_FOUND || code == ERROR_BUSY ? ERROR_NONE : code;
    const uint32_t micro_batches = placement_micro_batches(&problem);
    const struct placement_group group = {solution.placement, problem.demand.streams,
                                          micro_batches};
    if (note_found(search, option, &group, err))
        return err->code;
    if (solution.proved)
        option->upper = option->rate;
    else if (solution.lower_bound_s > 0)
        option->upper =
            fmin(option->upper, group.streams / (micro_batches * solution.lower_bound_s));
    bound_parts_of(search, state, parts);
    return ERROR_NONE;
}

/* ---- all divisions ---------------------------------------------------------------------- */

static struct replicas_step *replicas_step_of(const struct replicas_search *search, uint32_t state,
                                              uint32_t parts)
{
    return &search->steps[(uint64_t)state * (search->n_parts + 1) + parts];
}

/* The best without one copy of a unit. */
static void leave_one(struct replicas_search *search, uint32_t set)
{
    const struct replicas_units *units = &search->units;
    for (uint32_t i = 0; i < units->n_units; i++) {
        if (!units->counts[set * units->n_units + i])
            continue;
        for (uint32_t parts = 1; parts <= search->n_parts; parts++) {
            const double rate = replicas_step_of(search, set - units->units[i].step, parts)->rate;
            if (rate > replicas_step_of(search, set, parts)->rate)
                *replicas_step_of(search, set, parts) = (struct replicas_step){rate, 0, (uint8_t)i};
        }
    }
}

/* Of every set and number of parts, by the upper rates or by those that were found. */
static double replicas_divide(struct replicas_search *search, bool upper)
{
    const uint32_t n_parts = search->n_parts, n_states = search->units.n_states;
    for (uint32_t set = 0; set < n_states; set++) {
        for (uint32_t parts = 0; parts <= n_parts; parts++)
            *replicas_step_of(search, set, parts) =
                (struct replicas_step){parts ? -INFINITY : 0, 0, 0};
        leave_one(search, set);
        for (uint32_t group = 1; group <= set; group++) {
            if (!replicas_contains(&search->units, set, group))
                continue;
            const struct option *options = option_of(search, group, 0);
            for (uint32_t own = 1; own <= n_parts; own++) {
                const double rate = upper ? options[own].upper : options[own].rate;
                for (uint32_t parts = own; rate > 0 && parts <= n_parts; parts++) {
                    const double sum =
                        rate + replicas_step_of(search, set - group, parts - own)->rate;
                    struct replicas_step *step = replicas_step_of(search, set, parts);
                    if (sum > step->rate)
                        *step = (struct replicas_step){sum, (uint16_t)group, (uint8_t)own};
                }
            }
        }
    }
    return replicas_step_of(search, n_states - 1, n_parts)->rate;
}

struct division {
    uint32_t n;
    uint32_t states[REPLICAS_PARTS], parts[REPLICAS_PARTS];
};

static struct division read_division(const struct replicas_search *search)
{
    struct division out = {0};
    uint32_t set = search->units.n_states - 1, parts = search->n_parts;
    while (parts) {
        const struct replicas_step *step = replicas_step_of(search, set, parts);
        if (!step->group) {
            set -= search->units.units[step->parts].step;
            continue;
        }
        out.states[out.n] = step->group;
        out.parts[out.n++] = step->parts;
        set -= step->group;
        parts -= step->parts;
    }
    return out;
}

static bool replicas_go_on(struct replicas_search *search)
{
    if ((search->options->go_on && !search->options->go_on(search->options->self)) ||
        search->out->solves >= REPLICAS_SOLVES)
        search->stopped = true;
    return !search->stopped;
}

/* Solves the groups of the best division by the bounds until it has none that was not; *found
 * becomes true when a division was met whose every group was found. The bound of all. */
static enum error_code close_in(struct replicas_search *search, double *most_rate,
                                struct error *err)
{
    double best = search->out->one_rate;
    for (;;) {
        double rate = 0;
        bool any = false, whole = true;
        *most_rate = replicas_divide(search, true);
        if (*most_rate <= best * (1 + PLACEMENT_EPSILON) || !replicas_go_on(search))
            return ERROR_NONE;
        const struct division division = read_division(search);
        for (uint32_t i = 0; i < division.n && whole && replicas_go_on(search); i++) {
            struct option *option = option_of(search, division.states[i], division.parts[i]);
            if (!option->solved) {
                any = true;
                if (solve_group(search, division.states[i], division.parts[i], err))
                    return err->code;
            }
            rate += option->rate;
            whole = option->rate > 0;
        }
        if (whole && !search->stopped)
            best = fmax(best, rate);
        if (!any)
            return ERROR_NONE;
    }
}

/* ---- the answer ------------------------------------------------------------------------- */

/* The found group on the copies behind those that other groups have. */
static void put_group(const struct replicas_search *search, const struct placement_group *found,
                      const uint32_t *offsets, struct placement_group *out)
{
    *out = *found;
    for (uint32_t s = 0; s < found->placement.n_stages; s++) {
        for (uint32_t i = 0; i < search->units.n_units; i++) {
            const struct replicas_unit *unit = &search->units.units[i];
            for (uint32_t j = 0; j < unit->size * unit->copies; j++) {
                if (search->units.devices[unit->first + j] == found->placement.stages[s].device)
                    out->placement.stages[s].device =
                        search->units.devices[unit->first + j + offsets[i] * unit->size];
            }
        }
    }
}

/* Streams in parts are more than there are by less than a part. */
static void cut_streams(const struct placement_problem *problem, struct placement_groups *groups)
{
    uint32_t streams = 0;
    for (uint32_t i = 0; i < groups->n_groups; i++)
        streams += groups->groups[i].streams;
    for (uint32_t i = groups->n_groups; i-- > 0 && streams > problem->demand.streams;) {
        const uint32_t over = streams - problem->demand.streams, own = groups->groups[i].streams;
        const uint32_t less = over < own ? over : own - 1;
        groups->groups[i].streams -= less;
        streams -= less;
    }
}

static enum error_code take_best(struct replicas_search *search, struct error *err)
{
    struct placement_replicas *out = search->out;
    struct placement_groups groups = {0};
    uint32_t offsets[REPLICAS_UNITS] = {0};
    if (!(replicas_divide(search, false) > out->one_rate))
        return ERROR_NONE;
    const struct division division = read_division(search);
    for (uint32_t i = 0; i < division.n; i++) {
        const struct option *option = option_of(search, division.states[i], division.parts[i]);
        put_group(search, &search->found[option->found], offsets,
                  &groups.groups[groups.n_groups++]);
        for (uint32_t u = 0; u < search->units.n_units; u++)
            offsets[u] += search->units.counts[division.states[i] * search->units.n_units + u];
    }
    cut_streams(search->problem, &groups);
    if (placement_check_groups(search->problem, &groups, err))
        return error_wrap(err, "the solver's own groups");
    const double rate = placement_groups_rate(search->problem, &groups);
    if (rate > out->one_rate * (1 + PLACEMENT_EPSILON)) {
        out->groups = groups;
        out->rate = rate;
    }
    return ERROR_NONE;
}

/* ---- the whole -------------------------------------------------------------------------- */

static enum error_code replicas_search_init(struct replicas_search *search, struct error *err)
{
    const struct placement_problem *problem = search->problem;
    const uint32_t n = problem->n_devices, streams = problem->demand.streams;
    search->part_streams = (streams + REPLICAS_PARTS - 1) / REPLICAS_PARTS;
    search->n_parts = (streams + search->part_streams - 1) / search->part_streams;
    for (uint32_t i = 0; i < search->n_parts; i++) {
        const uint32_t own = (i + 1) * search->part_streams;
        search->streams[i] = own < streams ? own : streams;
    }
    search->devices = mem_new_array(n, sizeof *search->devices);
    search->in = mem_new(n);
    if (!search->devices || !search->in)
        return error_set(err, ERROR_NO_MEMORY,
                         "placement: not enough memory for groups of %u devices", n);
    memcpy(search->devices, problem->devices, n * sizeof *search->devices);
    enum error_code code =
        replicas_bound_init(&search->bound, problem, search->streams, search->n_parts, err);
    for (uint32_t d = 0; d < n && !code; d++)
        search->in[d] = search->bound.capacity[d] > 0;
    if (!code)
        code = replicas_units_init(
            &search->units, problem, search->in,
            2.0 * (double)REPLICAS_STEPS / (search->n_parts * (search->n_parts + 1.0)), err);
    if (code)
        return code;
    const uint64_t cells = (uint64_t)search->units.n_states * (search->n_parts + 1);
    search->table = mem_new_array(cells, sizeof *search->table);
    search->steps = mem_new_array(cells, sizeof *search->steps);
    if (!search->table || !search->steps)
        return error_set(err, ERROR_NO_MEMORY,
                         "placement: not enough memory for divisions of %u devices", n);
    for (uint32_t state = 1; state < search->units.n_states; state++) {
        struct replicas_set set;
        replicas_mark(search, state);
        replicas_set_init(&set, problem, search->in);
        for (uint32_t parts = 1; parts <= search->n_parts; parts++)
            option_of(search, state, parts)->upper =
                replicas_bound_rate(&search->bound, &set, parts - 1, search->streams[parts - 1]);
    }
    return ERROR_NONE;
}

static void replicas_search_deinit(struct replicas_search *search)
{
    replicas_units_deinit(&search->units);
    replicas_bound_deinit(&search->bound);
    mem_free(search->table);
    mem_free(search->steps);
    mem_free(search->devices);
    mem_free(search->in);
    mem_free(search->found);
}

static enum error_code replicas_run(struct replicas_search *search, bool one_proved,
                                    struct error *err)
{
    struct placement_replicas *out = search->out;
    double most_rate = INFINITY;
    enum error_code code = replicas_search_init(search, err);
    if (!code) {
        struct option *whole = option_of(search, search->units.n_states - 1, search->n_parts);
        whole->solved = true;
        code = note_found(search, whole, &out->groups.groups[0], err);
        whole->upper = one_proved ? whole->rate : whole->upper;
        bound_parts_of(search, search->units.n_states - 1, search->n_parts);
        out->all = !search->units.merged && search->part_streams == 1;
    }
    if (!code)
        code = close_in(search, &most_rate, err);
    if (!code)
        code = take_best(search, err);
    out->most_rate = out->all ? fmax(most_rate, out->rate) : INFINITY;
    out->proved = out->all && most_rate <= out->rate * (1 + 2 * PLACEMENT_EPSILON);
    return code;
}

static uint32_t copies_of(const struct placement_problem *problem)
{
    struct placement_problem one = *problem;
    uint64_t needed = 0, there = 0;
    one.demand.streams = 1;
    for (uint32_t layer = 0; layer < problem->model.n_layers; layer++)
        needed += placement_layer_bytes(&one, layer);
    needed -= problem->model.tied_bytes;
    for (uint32_t d = 0; d < problem->n_devices; d++) {
        const uint64_t room = placement_device_bytes(&problem->devices[d]);
        if (placement_device_usable(&problem->devices[d]) && room > problem->model.compute_bytes)
            there += room - problem->model.compute_bytes;
    }
    const uint64_t copies = needed ? there / needed : UINT32_MAX;
    return copies < UINT32_MAX ? (uint32_t)copies : UINT32_MAX;
}

/* What all of it does as one group, which begins the answer. */
static enum error_code solve_one(const struct placement_problem *problem,
                                 const struct placement_options *options,
                                 struct placement_group *out, bool *proved, struct error *err)
{
    struct placement_problem own = *problem;
    struct placement_options bounded = *options;
    struct placement_solution solution = {0};
    bounded.max_nodes = bounded.max_nodes ? bounded.max_nodes : PLACEMENT_WHATIF_NODES;
    const enum error_code code = placement_solve_as_run(&own, &bounded, &solution, err);
    if (!code)
        *out = (struct placement_group){solution.placement, own.demand.streams,
                                        placement_micro_batches(&own)};
    *proved = solution.proved;
    return code;
}

enum error_code placement_replicate(const struct placement_problem *problem,
                                    const struct placement_options *options,
                                    const struct placement_group *one, bool one_proved,
                                    struct placement_replicas *out, struct error *err)
{
    struct replicas_search search = {.problem = problem, .options = options, .out = out};
    struct error own;
    err = err ? err : &own;
    *out = (struct placement_replicas){.all = true, .proved = true, .groups.n_groups = 1};
    enum error_code code = placement_problem_check(problem, err);
    if (!code && one)
        out->groups.groups[0] = *one;
    else if (!code)
        code = solve_one(problem, options, &out->groups.groups[0], &one_proved, err);
    if (!code)
        code = placement_check_groups(problem, &out->groups, err);
    if (!code) {
        out->copies = copies_of(problem);
        out->rate = out->one_rate = out->most_rate = placement_groups_rate(problem, &out->groups);
        const bool several =
            problem->demand.replicas && problem->demand.goal != PLACEMENT_LATENCY &&
            problem->demand.streams > 1 && problem->n_devices > 1 && out->copies > 1;
        if (several)
            code = replicas_run(&search, one_proved, err);
        replicas_search_deinit(&search);
    }
    if (code)
        *out = (struct placement_replicas){0};
    return code;
}
