#include "placement/moats.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

/* A set, by its first device. */
struct set {
    uint32_t node; /* UINT32_MAX: it is part of another */
    uint32_t size;
    double moat_s; /* of the set's own, so far */
};

struct edge {
    double hop_s;
    uint32_t a, b;
};

struct growing {
    struct moats *moats;
    const struct placement_tables *tables;
    const uint32_t *devices;
    uint32_t n;
    struct set *sets;   /* [n] */
    struct edge *edges; /* [n] */
    double *gap;        /* [n * n], to freeze alone: what is left between two sets */
};

static double shorter_hop_s(const struct growing *growing, uint32_t i, uint32_t j)
{
    const uint32_t a = growing->devices[i], b = growing->devices[j];
    return fmin(tables_hop_s(growing->tables, a, b), tables_hop_s(growing->tables, b, a));
}

static void find_backs(const struct growing *growing)
{
    for (uint32_t i = 0; i < growing->n; i++) {
        double first_s = -INFINITY, last_s = -INFINITY;
        for (uint32_t j = 0; j < growing->n; j++) {
            const double hop_s = i == j ? INFINITY : shorter_hop_s(growing, i, j);
            if (!(hop_s < INFINITY))
                continue;
            first_s = fmax(first_s, hop_s - tables_back_s(growing->tables, growing->devices[j],
                                                          growing->devices[i]));
            last_s = fmax(last_s, hop_s - tables_back_s(growing->tables, growing->devices[i],
                                                        growing->devices[j]));
        }
        growing->moats->back_first[i] = first_s > -INFINITY ? first_s : 0;
        growing->moats->back_last[i] = last_s > -INFINITY ? last_s : 0;
    }
}

/* The set of device b joins that of device a. */
static void moats_join(struct growing *growing, uint32_t a, uint32_t b)
{
    struct moats *moats = growing->moats;
    struct set *left = &growing->sets[a], *right = &growing->sets[b];
    const uint32_t node = moats->n_nodes++;
    moats->left[node] = left->node;
    moats->right[node] = right->node;
    moats->moat_s[left->node] = left->moat_s;
    moats->moat_s[right->node] = right->moat_s;
    *left = (struct set){.node = node, .size = left->size + right->size};
    right->node = UINT32_MAX;
}

/* ---- all growing at one speed: the radius of a set is half of the hop that made it -------- */

static int compare_edges(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->hop_s != y->hop_s)
        return x->hop_s < y->hop_s ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

/* A least spanning tree (Prim); where links lack, with edges of infinite length. */
static void moats_span(struct growing *growing)
{
    struct edge *edges =
        growing->edges; /* edges[i]: the shortest from the tree to device i; then sorted */
    uint32_t last = 0;
    for (uint32_t i = 1; i < growing->n; i++)
        edges[i] = (struct edge){INFINITY, 0, i};
    for (uint32_t done = 1; done < growing->n; done++) {
        uint32_t nearest = done;
        for (uint32_t i = done; i < growing->n; i++) {
            const double hop_s = shorter_hop_s(growing, last, edges[i].b);
            if (hop_s < edges[i].hop_s) {
                edges[i].hop_s = hop_s;
                edges[i].a = last;
            }
            if (edges[i].hop_s < edges[nearest].hop_s)
                nearest = i;
        }
        const struct edge edge = edges[nearest];
        edges[nearest] = edges[done];
        edges[done] = edge;
        last = edge.b;
    }
    qsort(edges + 1, growing->n - 1, sizeof *edges, compare_edges);
}

static uint32_t first_of(const struct growing *growing, const uint32_t *parents, uint32_t device)
{
    while (parents[device] != device)
        device = parents[device];
    return device;
}

static void grow_evenly(struct growing *growing, uint32_t *parents, double *born_s)
{
    moats_span(growing);
    for (uint32_t i = 0; i < growing->n; i++)
        parents[i] = i;
    for (uint32_t i = 1; i < growing->n && growing->edges[i].hop_s < INFINITY; i++) {
        const uint32_t a = first_of(growing, parents, growing->edges[i].a);
        const uint32_t b = first_of(growing, parents, growing->edges[i].b);
        const double radius_s = growing->edges[i].hop_s / 2;
        growing->sets[a].moat_s = radius_s - born_s[a];
        growing->sets[b].moat_s = radius_s - born_s[b];
        moats_join(growing, a, b);
        born_s[a] = radius_s;
        parents[b] = a;
    }
}

/* ---- a set of most devices stands still ------------------------------------------------ */

static double moats_speed(const struct growing *growing, uint32_t i)
{
    return 2 * growing->sets[i].size > growing->n ? 0 : 1;
}

/* The two sets that meet next; the time until then. */
static double next_meeting(const struct growing *growing, uint32_t *a, uint32_t *b)
{
    double least_s = INFINITY;
    for (uint32_t i = 0; i < growing->n; i++) {
        for (uint32_t j = i + 1; j < growing->n && growing->sets[i].node != UINT32_MAX; j++) {
            if (growing->sets[j].node == UINT32_MAX)
                continue;
            const double seconds = growing->gap[(uint64_t)i * growing->n + j] /
                                   (moats_speed(growing, i) + moats_speed(growing, j));
            if (seconds < least_s) {
                least_s = seconds;
                *a = i;
                *b = j;
            }
        }
    }
    return least_s;
}

static void grow_frozen(struct growing *growing)
{
    const uint32_t n = growing->n;
    uint32_t a = 0, b = 0;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t j = 0; j < n; j++)
            growing->gap[(uint64_t)i * n + j] = i == j ? INFINITY : shorter_hop_s(growing, i, j);
    }
    for (double seconds; (seconds = next_meeting(growing, &a, &b)) < INFINITY;) {
        for (uint32_t i = 0; i < n; i++) {
            growing->sets[i].moat_s += seconds * moats_speed(growing, i);
            for (uint32_t j = 0; j < n; j++) {
                double *gap = &growing->gap[(uint64_t)i * n + j];
                *gap =
                    fmax(0, *gap - seconds * (moats_speed(growing, i) + moats_speed(growing, j)));
            }
        }
        moats_join(growing, a, b);
        for (uint32_t i = 0; i < n; i++) {
            const double gap =
                fmin(growing->gap[(uint64_t)a * n + i], growing->gap[(uint64_t)b * n + i]);
            growing->gap[(uint64_t)a * n + i] = growing->gap[(uint64_t)i * n + a] =
                i == a ? INFINITY : gap;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------- */

enum error_code moats_init(struct moats *moats, const struct placement_tables *tables,
                           const uint32_t *devices, uint32_t n, bool freeze, struct error *err)
{
    *moats = (struct moats){.n = n, .n_nodes = n};
    struct growing growing = {.moats = moats, .tables = tables, .devices = devices, .n = n};
    freeze = freeze && n <= MOATS_FREEZE_DEVICES;
    moats->left = mem_new_array(4 * (uint64_t)n + 1, sizeof *moats->left);
    moats->moat_s = mem_new_array(4 * (uint64_t)n + 1, sizeof *moats->moat_s);
    growing.sets = mem_new_array(n + 1, sizeof *growing.sets);
    growing.edges = mem_new_array(n + 1, sizeof *growing.edges);
    growing.gap = mem_new_array(freeze ? (uint64_t)n * n + 1 : n + 1, sizeof *growing.gap);
    uint32_t *parents = mem_new_array(n + 1, sizeof *parents);
    const bool there =
        moats->left && moats->moat_s && growing.sets && growing.edges && growing.gap && parents;
    if (there) {
        moats->right = moats->left + 2 * (uint64_t)n;
        moats->back_first = moats->moat_s + 2 * (uint64_t)n;
        moats->back_last = moats->back_first + n;
        for (uint32_t i = 0; i < n; i++)
            growing.sets[i] = (struct set){.node = i, .size = 1};
        find_backs(&growing);
        if (freeze)
            grow_frozen(&growing);
        else if (n)
            grow_evenly(&growing, parents, growing.gap);
    } else {
        moats_deinit(moats);
    }
    mem_free(growing.sets);
    mem_free(growing.edges);
    mem_free(growing.gap);
    mem_free(parents);
    return there ? ERROR_NONE
                 : error_set(err, ERROR_NO_MEMORY,
                             "placement: not enough memory for the moats of %u devices", n);
}

void moats_deinit(struct moats *moats)
{
    mem_free(moats->left);
    mem_free(moats->moat_s);
    *moats = (struct moats){0};
}
