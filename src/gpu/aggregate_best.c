/* The best k devices for a model: aggregate_best(). */
#include "gpu/aggregate.h"

#include "gpu/device_sim.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A device, in the order of filling. */
struct fill_candidate {
    uint32_t index;
    uint64_t mb_per_s; /* 0: not measured */
    uint64_t free_bytes;
    uint32_t capacity; /* layers */
    bool in_host;
};

struct aggregate_search {
    struct fill_candidate candidates[LIMIT_DEVICES];
    uint32_t n;
    uint32_t n_layers;
    uint32_t host_capacity; /* layers, of all that share the host's memory together */
    double layer_read_bytes;
};

/* What a set of candidates comes to; better ones come first in the order of the fields. */
struct outcome {
    uint32_t n_left;       /* layers without room */
    uint32_t n_unmeasured; /* layers on devices that were not measured */
    double ns;             /* of the others */
    uint32_t n_used;       /* devices */
};

static bool aggregate_best_is_better(const struct outcome *a, const struct outcome *b)
{
    if (a->n_left != b->n_left)
        return a->n_left < b->n_left;
    if (a->n_unmeasured != b->n_unmeasured)
        return a->n_unmeasured < b->n_unmeasured;
    if (a->ns < b->ns || a->ns > b->ns)
        return a->ns < b->ns;
    return a->n_used < b->n_used;
}

/* Fills the candidates of the set in their order; `layers` (may be NULL) gets what each has. */
static struct outcome aggregate_best_fill(const struct aggregate_search *search, uint64_t set,
                                          uint32_t *layers)
{
    struct outcome outcome = {.n_left = search->n_layers};
    uint32_t host_left = search->host_capacity;
    for (uint32_t i = 0; i < search->n; i++) {
        const struct fill_candidate *candidate = &search->candidates[i];
        uint32_t room = set >> i & 1 ? candidate->capacity : 0;
        room = candidate->in_host && room > host_left ? host_left : room;
        room = room > outcome.n_left ? outcome.n_left : room;
        if (layers)
            layers[i] = room;
        if (!room)
            continue;
        host_left -= candidate->in_host ? room : 0;
        outcome.n_left -= room;
        outcome.n_used++;
        if (candidate->mb_per_s)
            outcome.ns += room * search->layer_read_bytes / (double)candidate->mb_per_s * 1e3;
        else
            outcome.n_unmeasured += room;
    }
    return outcome;
}

/* ---- the order of filling ---------------------------------------------------------------- */

static bool comes_before(const struct fill_candidate *a, const struct fill_candidate *b)
{
    if (a->mb_per_s != b->mb_per_s)
        return a->mb_per_s > b->mb_per_s; /* those that were not measured are last */
    if (!a->mb_per_s && a->free_bytes != b->free_bytes)
        return a->free_bytes > b->free_bytes;
    return a->index < b->index;
}

static void aggregate_best_insert(struct aggregate_search *search, struct fill_candidate candidate)
{
    uint32_t at = search->n++;
    for (; at && comes_before(&candidate, &search->candidates[at - 1]); at--)
        search->candidates[at] = search->candidates[at - 1];
    search->candidates[at] = candidate;
}

static void aggregate_best_prepare(struct aggregate_search *search,
                                   const struct device_info *devices, uint32_t n_devices,
                                   const struct aggregate_need *need)
{
    bool overflows = need->kv_bytes > UINT64_MAX - need->weight_bytes;
    uint64_t bytes = overflows ? UINT64_MAX : need->weight_bytes + need->kv_bytes;
    uint64_t layer_bytes = bytes / need->n_layers + (bytes % need->n_layers != 0);
    *search = (struct aggregate_search){.n_layers = need->n_layers};
    search->layer_read_bytes =
        (double)(need->bytes_per_token ? need->bytes_per_token : bytes) / need->n_layers;
    for (uint32_t i = 0; i < n_devices; i++) {
        const struct device_info *info = &devices[i];
        uint64_t fits = layer_bytes ? info->memory_free_bytes / layer_bytes : need->n_layers;
        struct fill_candidate candidate = {
            .index = i,
            .mb_per_s =
                info->bandwidth_mb_per_s.valid ? reading_whole(info->bandwidth_mb_per_s) : 0,
            .free_bytes = info->memory_free_bytes,
            .capacity = fits < need->n_layers ? (uint32_t)fits : need->n_layers,
            .in_host = info->kind != DEVICE_GPU && !device_info_is_simulated(info),
        };
        if (candidate.in_host && candidate.capacity > search->host_capacity)
            search->host_capacity = candidate.capacity;
        aggregate_best_insert(search, candidate);
    }
}

/* ---- the search ------------------------------------------------------------------------ */

static uint64_t try_all(const struct aggregate_search *search, uint32_t k)
{
    uint64_t best_set = 0;
    struct outcome best = aggregate_best_fill(search, 0, NULL);
    for (uint64_t set = 1; set < UINT64_C(1) << search->n; set++) {
        if ((uint32_t)__builtin_popcountll(set) > k)
            continue;
        struct outcome outcome = aggregate_best_fill(search, set, NULL);
        if (aggregate_best_is_better(&outcome, &best)) {
            best = outcome;
            best_set = set;
        }
    }
    return best_set;
}

/* The k devices that hold most. Taking each time the one that adds most is right here: all that
 * share the host's memory hold no more together than the largest of them alone. */
static uint64_t take_the_largest(const struct aggregate_search *search, uint32_t k)
{
    uint64_t set = 0;
    for (; k; k--) {
        uint32_t best_left = aggregate_best_fill(search, set, NULL).n_left;
        uint64_t best_set = 0;
        uint32_t best_capacity = 0; /* beyond what is needed a larger one still is worth more */
        for (uint32_t i = 0; i < search->n; i++) {
            uint64_t with = set | UINT64_C(1) << i;
            if (with == set)
                continue;
            uint32_t left = aggregate_best_fill(search, with, NULL).n_left;
            if (left < best_left ||
                (left == best_left && best_set && search->candidates[i].capacity > best_capacity)) {
                best_left = left;
                best_set = with;
                best_capacity = search->candidates[i].capacity;
            }
        }
        if (!best_set)
            break;
        set = best_set;
    }
    return set;
}

/* The best set that differs from `set` by one device: one more, or one in the place of another. */
static uint64_t best_exchange(const struct aggregate_search *search, uint64_t set, uint32_t k)
{
    struct outcome best = aggregate_best_fill(search, set, NULL);
    uint64_t best_set = set;
    bool has_room = (uint32_t)__builtin_popcountll(set) < k;
    for (uint32_t in = 0; in < search->n; in++) {
        if (set >> in & 1)
            continue;
        for (uint32_t out = 0; out <= search->n; out++) { /* n: none goes */
            if (out == search->n ? !has_room : !(set >> out & 1))
                continue;
            uint64_t other = set | UINT64_C(1) << in;
            other &= out == search->n ? UINT64_MAX : ~(UINT64_C(1) << out);
            struct outcome outcome = aggregate_best_fill(search, other, NULL);
            if (aggregate_best_is_better(&outcome, &best)) {
                best = outcome;
                best_set = other;
            }
        }
    }
    return best_set;
}

static uint64_t aggregate_best_improve(const struct aggregate_search *search, uint64_t set,
                                       uint32_t k)
{
    for (uint32_t round = 0; round < AGGREGATE_ROUNDS_MAX; round++) {
        uint64_t better = best_exchange(search, set, k);
        if (better == set)
            break;
        set = better;
    }
    return set;
}

struct aggregate_choice aggregate_best(const struct device_info *devices, uint32_t n_devices,
                                       const struct aggregate_need *need, uint32_t k)
{
    static_assert(LIMIT_DEVICES <= 64, "a set is 64 bits");
    assert(n_devices <= LIMIT_DEVICES && need->n_layers && need->n_layers <= LIMIT_LAYERS);
    struct aggregate_search search;
    aggregate_best_prepare(&search, devices, n_devices, need);
    k = k > n_devices ? n_devices : k;
    struct aggregate_choice choice = {.exact = n_devices <= AGGREGATE_EXACT_MAX};
    uint64_t set = choice.exact ? try_all(&search, k)
                                : aggregate_best_improve(&search, take_the_largest(&search, k), k);
    uint32_t layers[LIMIT_DEVICES];
    struct outcome outcome = aggregate_best_fill(&search, set, layers);
    for (uint32_t i = 0; i < search.n; i++) {
        if (!layers[i])
            continue;
        choice.device[choice.n_devices] = search.candidates[i].index;
        choice.n_layers[choice.n_devices++] = layers[i];
        choice.n_unmeasured += !search.candidates[i].mb_per_s;
    }
    choice.fits = !outcome.n_left;
    choice.n_layers_left = outcome.n_left;
    if (choice.fits && !choice.n_unmeasured)
        choice.ns_per_token = reading_of(UNIT_NUMBER, floor(outcome.ns));
    return choice;
}
