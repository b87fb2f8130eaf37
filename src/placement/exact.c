#include "placement/exact.h"

#include "base/mem.h"
#include "base/random.h"
#include "placement/exact_bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct exact_child {
    double bound_s; /* of the round */
    uint32_t device;
    double *vector;
};

/* What is known of the sequences over one set of devices with alike ends. */
struct known_walks {
    uint64_t set; /* 0: empty */
    uint32_t ends;
    uint32_t walk;
};

struct exact_search {
    const struct placement_tables *tables;
    struct sequence_work *work;
    const struct exact_limits *limits;
    struct exact_bound bound;
    struct placement *best;
    double best_s;
    double target_s; /* a round must be below */
    double
        front_s; /* of the mix: the least round so far with stages below the limit; else not used */
    double front_longest_s;
    double stage_limit_s;
    uint32_t sequence[LIMIT_STAGES];
    uint32_t problem_sequence[LIMIT_STAGES];
    double *least_back_s;         /* [n] the cheapest way back to this first device */
    struct exact_child *children; /* [levels * n] */
    double *vectors;              /* [levels * n * width] */
    double *rest;                 /* [width] */
    struct known_walks *known;
    double *known_vectors;
    uint32_t n_known; /* slots, a power of two */
    uint32_t walk;
    uint32_t levels;
    double holds[LIMIT_STAGES + 1]; /* the most work that so many devices hold */
    double open_s; /* the least bound of the first devices that were not finished */
    uint64_t nodes;
    bool stopped;
    bool again;
};

static void set_target(struct exact_search *search)
{
    search->target_s =
        tables_round_limit_s(search->tables, search->best_s * (1 - PLACEMENT_EPSILON));
}

static bool is_mix(const struct exact_search *search)
{
    return search->tables->micro_batches > 1 && search->tables->busy < 1;
}

static bool should_stop(struct exact_search *search)
{
    const struct exact_limits *limits = search->limits;
    search->nodes++;
    if (limits->max_nodes && search->nodes > limits->max_nodes)
        search->stopped = true;
    if (search->best_s <= limits->enough_s)
        search->stopped = true;
    if ((search->nodes & 255) == 1 && limits->go_on && !limits->go_on(limits->self))
        search->stopped = true;
    return search->stopped;
}

/* The sequence covers the model with a round below the target: its cuts, and a new best. */
static void exact_complete(struct exact_search *search, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        search->problem_sequence[i] = search->bound.devices[search->sequence[i]].index;
    const double objective_s =
        sequence_best(search->tables, search->work, search->problem_sequence, n,
                      search->best_s * (1 - PLACEMENT_EPSILON), search->best);
    if (objective_s < search->best_s)
        search->best_s = objective_s;
    if (is_mix(search)) {
        struct placement found;
        double longest_s = 0;
        const double round_s =
            n == 1 ? INFINITY
                   : sequence_round(search->tables, search->work, search->problem_sequence, n,
                                    search->stage_limit_s, search->target_s, &longest_s, &found);
        if (round_s < INFINITY) {
            search->front_s = round_s;
            search->front_longest_s = longest_s;
            search->target_s = round_s * (1 - PLACEMENT_EPSILON);
        }
    } else if (objective_s < INFINITY) {
        set_target(search);
        search->again = search->tables->micro_batches > 1;
    }
}

/* Strikes out what another order of the same devices does at least as well; true when nothing is
 * left. */
static bool exact_dominated(struct exact_search *search, uint64_t used, uint32_t first,
                            uint32_t last, double *vector)
{
    const uint32_t n_layers = search->tables->n_layers;
    const uint32_t ends =
        search->bound.devices[first].as_first << 8 | search->bound.devices[last].as_last;
    const uint32_t at = (uint32_t)random_mix(used ^ random_mix(ends)) & (search->n_known - 1);
    uint32_t slot = at;
    for (uint32_t probe = 0; probe < 4; probe++) {
        const uint32_t i = (at + probe) & (search->n_known - 1);
        const struct known_walks *known = &search->known[i];
        if (known->walk != search->walk) {
            slot = i;
            break;
        }
        if (known->set == used && known->ends == ends) {
            double *stored = search->known_vectors + (uint64_t)i * n_layers;
            bool any = false;
            for (uint32_t b = 0; b < n_layers; b++) {
                if (vector[b] < stored[b]) {
                    stored[b] = vector[b];
                    any = true;
                } else {
                    vector[b] = INFINITY;
                }
            }
            return !any;
        }
    }
    search->known[slot] = (struct known_walks){used, ends, search->walk};
    memcpy(search->known_vectors + (uint64_t)slot * n_layers, vector, n_layers * sizeof *vector);
    return false;
}

/* Whether an interchangeable device that comes first is still unused. */
static bool has_elder(const struct exact_search *search, uint64_t used, uint32_t device)
{
    const uint32_t twins = search->bound.devices[device].twins;
    for (uint32_t i = twins; i < device; i++) {
        if (search->bound.devices[i].twins == twins && !(used >> i & 1))
            return true;
    }
    return false;
}

/* Fills in the vector of the sequence with `device` added; false for a dead end. */
static bool exact_grow(struct exact_search *search, uint32_t depth, uint64_t used,
                       const double *before, uint32_t device, struct exact_child *child)
{
    struct exact_bound *bound = &search->bound;
    const uint32_t n_layers = search->tables->n_layers, index = bound->devices[device].index;
    const double hop_s = depth ? bound->hop[search->sequence[depth - 1] * bound->n + device] : 0;
    if (!(hop_s < INFINITY) || !(bound->devices[device].capacity > 0 || bound->work[n_layers] <= 0))
        return false;
    search->sequence[depth] = device;
    const uint32_t first = search->sequence[0];
    double *vector = child->vector;
    tables_extend(search->tables, index, before, hop_s,
                  bound->low + (uint64_t)device * (n_layers + 1), vector, NULL);
    if (depth && vector[n_layers] + bound->back[device * bound->n + first] < search->target_s)
        exact_complete(search, depth + 1);
    exact_bound_rest(bound, used | UINT64_C(1) << device, search->rest);
    child->device = device;
    child->bound_s = INFINITY;
    const double holds = search->holds[search->levels - depth - 1] * (1 + 1e-9),
                 all = bound->work[n_layers];
    for (uint32_t b = 0; b < n_layers; b++) {
        if (all - bound->work[b] > holds)
            vector[b] = INFINITY;
        const double round_s = vector[b] + search->rest[b] + search->least_back_s[first];
        if (round_s < search->target_s)
            child->bound_s = fmin(child->bound_s, round_s);
        else
            vector[b] = INFINITY;
    }
    return child->bound_s < INFINITY;
}

static int compare_children(const void *a, const void *b)
{
    const struct exact_child *x = a, *y = b;
    if (x->bound_s != y->bound_s)
        return x->bound_s < y->bound_s ? -1 : 1;
    return x->device < y->device ? -1 : x->device > y->device;
}

/* All sequences that begin with the first `depth` devices of search->sequence. */
static void exact_walk(struct exact_search *search, uint32_t depth, uint64_t used,
                       const double *before)
{
    const uint32_t n = search->bound.n, width = search->tables->n_layers + 1;
    struct exact_child *children = search->children + (uint64_t)depth * n;
    uint32_t n_children = 0;
    if (depth == search->levels)
        return;
    for (uint32_t d = 0; d < n && !search->again; d++) {
        if ((used >> d & 1) || has_elder(search, used, d))
            continue;
        if (should_stop(search))
            return;
        children[n_children].vector = search->vectors + ((uint64_t)depth * n + n_children) * width;
        if (exact_grow(search, depth, used, before, d, &children[n_children]))
            n_children++;
    }
    qsort(children, n_children, sizeof *children, compare_children);
    if (depth == 0 && n_children)
        search->open_s = children[0].bound_s;
    for (uint32_t i = 0; i < n_children && !search->again && children[i].bound_s < search->target_s;
         i++) {
        const uint64_t now_used = used | UINT64_C(1) << children[i].device;
        if (depth == 0)
            search->open_s = children[i].bound_s;
        search->sequence[depth] = children[i].device;
        if (depth < 2 || !exact_dominated(search, now_used, search->sequence[0], children[i].device,
                                          children[i].vector))
            exact_walk(search, depth + 1, now_used, children[i].vector);
        if (search->stopped)
            return;
    }
    if (depth == 0 && !search->again)
        search->open_s = INFINITY;
}

static enum error_code exact_search_init(struct exact_search *search, const bool *out,
                                         struct error *err)
{
    if (exact_bound_init(&search->bound, search->tables, out, err))
        return err ? err->code : ERROR_NO_MEMORY;
    const uint64_t n = search->bound.n, n_layers = search->tables->n_layers;
    search->levels = (uint32_t)(n < n_layers ? n : n_layers);
    if (search->levels > search->tables->stages_max)
        search->levels = search->tables->stages_max;
    const uint64_t slot_bytes = n_layers * sizeof(double) + sizeof(struct known_walks);
    for (search->n_known = 1; 2 * search->n_known * slot_bytes <= LIMIT_PLACEMENT_TABLE_BYTES &&
                              (n >= 16 || search->n_known < n * n << n);)
        search->n_known *= 2;
    search->least_back_s = mem_new_array(n + 1, sizeof *search->least_back_s);
    search->children = mem_new_array((search->levels + 1) * n + 1, sizeof *search->children);
    search->vectors =
        mem_new_array(search->levels * n * (n_layers + 1) + 1, sizeof *search->vectors);
    search->rest = mem_new_array(n_layers + 1, sizeof *search->rest);
    search->known = mem_new_array(search->n_known, sizeof *search->known);
    search->known_vectors =
        mem_new_array(search->n_known * n_layers, sizeof *search->known_vectors);
    if (search->least_back_s && search->children && search->vectors && search->rest &&
        search->known && search->known_vectors)
        return ERROR_NONE;
    return error_set(err, ERROR_NO_MEMORY, "placement: not enough memory for the search");
}

static void exact_search_deinit(struct exact_search *search)
{
    exact_bound_deinit(&search->bound);
    mem_free(search->least_back_s);
    mem_free(search->children);
    mem_free(search->vectors);
    mem_free(search->rest);
    mem_free(search->known);
    mem_free(search->known_vectors);
}

/* The model whole on one device, which the walk leaves out because tied weights are stored once
 * there. */
static void try_single(struct exact_search *search)
{
    for (uint32_t i = 0; i < search->bound.n; i++) {
        search->sequence[0] = i;
        exact_complete(search, 1);
    }
}

static int compare_falling(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x > y ? -1 : x < y;
}

/* With a few stages only, the rest must be held by a few devices. */
static void sum_capacities(struct exact_search *search)
{
    double capacities[LIMIT_PLACEMENT_EXACT_DEVICES];
    const uint32_t n = search->bound.n;
    for (uint32_t i = 0; i < n; i++)
        capacities[i] = search->bound.devices[i].capacity;
    qsort(capacities, n, sizeof *capacities, compare_falling);
    for (uint32_t i = 0; i < LIMIT_STAGES; i++)
        search->holds[i + 1] = search->holds[i] + (i < n ? capacities[i] : 0);
}

static void begin_walk(struct exact_search *search, double stage_limit_s)
{
    const uint32_t n = search->bound.n;
    search->again = false;
    search->walk++;
    search->stage_limit_s = stage_limit_s;
    exact_bound_limit(&search->bound, stage_limit_s);
    sum_capacities(search);
    for (uint32_t i = 0; i < n; i++) {
        search->least_back_s[i] = n > 1 ? INFINITY : 0;
        for (uint32_t j = 0; j < n; j++) {
            if (i != j)
                search->least_back_s[i] =
                    fmin(search->least_back_s[i], search->bound.back[j * n + i]);
        }
    }
    search->open_s = 0;
    exact_walk(search, 0, 0, NULL);
}

static void exact_run(struct exact_search *search)
{
    do {
        begin_walk(search,
                   tables_stage_limit_s(search->tables, search->best_s * (1 - PLACEMENT_EPSILON)));
    } while (search->again && !search->stopped);
}

/* The mix: all placements whose longest stage or link is in [low_s, high_s). One walk finds the
 * least round with stages below a limit; nothing between what it would need as its longest stage to
 * beat the best, and that limit, does. */
static void run_front(struct exact_search *search, double low_s, double high_s)
{
    const double m = search->tables->micro_batches, busy = search->tables->busy;
    while (high_s > low_s && !search->stopped) {
        const double before_s = search->best_s * (1 - PLACEMENT_EPSILON);
        search->front_s = INFINITY;
        search->target_s = fmin(m * before_s, m * (before_s - busy * low_s) / (1 - busy));
        begin_walk(search, high_s);
        if (!(search->front_s < INFINITY))
            return;
        const double best_s = search->best_s * (1 - PLACEMENT_EPSILON);
        high_s = fmin(search->front_longest_s * (1 - PLACEMENT_EPSILON),
                      tables_longest_limit_s(search->tables, best_s, search->front_s));
    }
}

enum error_code exact_search(const struct placement_tables *tables, struct sequence_work *work,
                             const struct exact_limits *limits, const bool *out,
                             double longest_limit_s, struct placement *best, double *best_s,
                             struct exact_result *result, struct error *err)
{
    struct exact_search search = {
        .tables = tables, .work = work, .limits = limits, .best = best, .best_s = *best_s};
    struct error own;
    err = err ? err : &own;
    *result = (struct exact_result){0};
    enum error_code code = exact_search_init(&search, out, err);
    if (!code) {
        set_target(&search);
        try_single(&search);
        if (is_mix(&search))
            run_front(&search, 0,
                      fmin(longest_limit_s,
                           tables_stage_limit_s(tables, search.best_s * (1 - PLACEMENT_EPSILON))));
        else
            exact_run(&search);
        *best_s = search.best_s;
        result->nodes = search.nodes;
        result->proved = !search.stopped && !search.bound.cut;
        result->lower_bound_s = result->proved ? search.best_s : 0;
        if (!result->proved && !search.bound.cut && !is_mix(&search))
            result->lower_bound_s = fmin(search.best_s, search.open_s / tables->micro_batches);
    }
    exact_search_deinit(&search);
    return code;
}
