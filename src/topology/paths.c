#include "topology/paths.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>

/* A cost is nanoseconds above hops in one integer: adding two adds both, the lesser is the faster
 * or, at the same time, the shorter. Two paths' hops together stay below the nanoseconds, and two
 * costs do not overflow. */
enum { HOP_BITS = 11 };
static_assert(2 * (LIMIT_TOPOLOGY_NODES - 1) < 1 << HOP_BITS, "the hops of two paths fit");
static_assert(LIMIT_TOPOLOGY_NODES <= UINT16_MAX, "a next hop fits");
#define APART (UINT64_MAX / 2)

static size_t paths_at(const struct topology_paths *paths, uint32_t from, uint32_t to)
{
    assert(from < paths->n_nodes && to < paths->n_nodes);
    return (size_t)from * paths->n_nodes + to;
}

static uint64_t link_cost(const struct topology_link *link, uint64_t bytes)
{
    const struct topology_time time = topology_link_time(link, bytes);
    const double ns = round(time.seconds * 1e9);
    return time.valid && ns < (double)(APART >> HOP_BITS) ? ((uint64_t)ns << HOP_BITS) + 1 : APART;
}

/* Every path that gets better by way of one node. A cost of APART never wins: whatever is added has
 * a hop. */
static void paths_relax(struct topology_paths *paths, uint32_t via)
{
    const uint32_t n = paths->n_nodes;
    const uint64_t *onward = &paths->costs[paths_at(paths, via, 0)];
    for (uint32_t from = 0; from < n; from++) {
        uint64_t *costs = &paths->costs[paths_at(paths, from, 0)];
        uint16_t *next_hops = &paths->next_hops[paths_at(paths, from, 0)];
        const uint64_t there = costs[via];
        const uint16_t hop = next_hops[via];
        if (from == via || there == APART)
            continue;
        for (uint32_t to = 0; to < n; to++) {
            const uint64_t cost = there + onward[to];
            if (cost < costs[to] || (cost == costs[to] && hop < next_hops[to])) {
                costs[to] = cost;
                next_hops[to] = hop;
            }
        }
    }
}

enum error_code topology_paths_init(struct topology_paths *paths, const struct topology *topology,
                                    uint64_t bytes, struct error *err)
{
    const uint32_t n = topology->n_nodes;
    const size_t n_pairs = (size_t)n * n;
    *paths = (struct topology_paths){.n_nodes = n, .bytes = bytes};
    paths->costs = mem_new_array(n_pairs + 1, sizeof *paths->costs);
    paths->next_hops = mem_new_array(n_pairs + 1, sizeof *paths->next_hops);
    if (!paths->costs || !paths->next_hops) {
        topology_paths_deinit(paths);
        return error_set(err, ERROR_NO_MEMORY,
                         "topology: not enough memory for the paths of %u nodes", n);
    }
    for (size_t i = 0; i < n_pairs; i++)
        paths->costs[i] = APART;
    for (uint32_t i = 0; i < topology->n_links; i++) {
        const struct topology_link *link = &topology->links[i];
        paths->costs[paths_at(paths, link->from, link->to)] = link_cost(link, bytes);
        paths->next_hops[paths_at(paths, link->from, link->to)] = (uint16_t)link->to;
    }
    for (uint32_t i = 0; i < n; i++) {
        paths->costs[paths_at(paths, i, i)] = 0;
        paths->next_hops[paths_at(paths, i, i)] = (uint16_t)i;
    }
    for (uint32_t via = 0; via < n; via++)
        paths_relax(paths, via);
    return ERROR_NONE;
}

void topology_paths_deinit(struct topology_paths *paths)
{
    if (!paths)
        return;
    mem_free(paths->costs);
    mem_free(paths->next_hops);
    *paths = (struct topology_paths){0};
}

static bool paths_reaches(const struct topology_paths *paths, uint32_t from, uint32_t to)
{
    return paths->costs[paths_at(paths, from, to)] < APART;
}

double topology_paths_seconds(const struct topology_paths *paths, uint32_t from, uint32_t to)
{
    const uint64_t cost = paths->costs[paths_at(paths, from, to)];
    return cost < APART ? (double)(cost >> HOP_BITS) * 1e-9 : TOPOLOGY_APART;
}

uint32_t topology_paths_hops(const struct topology_paths *paths, uint32_t from, uint32_t to)
{
    return paths_reaches(paths, from, to)
               ? (uint32_t)(paths->costs[paths_at(paths, from, to)] & ((1 << HOP_BITS) - 1))
               : 0;
}

uint32_t topology_paths_next(const struct topology_paths *paths, uint32_t from, uint32_t to)
{
    return paths_reaches(paths, from, to) ? paths->next_hops[paths_at(paths, from, to)]
                                          : TOPOLOGY_NO_NODE;
}

static bool paths_narrower(const struct topology_link *link, const struct topology_link *than)
{
    return !than || topology_link_bandwidth(link).value < topology_link_bandwidth(than).value;
}

const struct topology_link *topology_paths_bottleneck(const struct topology_paths *paths,
                                                      const struct topology *topology,
                                                      uint32_t from, uint32_t to)
{
    const struct topology_link *narrowest = NULL;
    if (!paths_reaches(paths, from, to))
        return NULL;
    while (from != to) {
        const uint32_t hop = topology_paths_next(paths, from, to);
        const struct topology_link *link = topology_link(topology, from, hop);
        assert(link);
        if (paths_narrower(link, narrowest))
            narrowest = link;
        from = hop;
    }
    return narrowest;
}

static void measure_links(struct topology_metrics *metrics, const struct topology *topology,
                          const struct topology_paths *paths)
{
    double sum_bytes_per_s = 0;
    for (uint32_t i = 0; i < topology->n_links; i++) {
        const struct topology_link *link = &topology->links[i];
        const struct topology_time time = topology_link_time(link, paths->bytes);
        if (link->from == link->to)
            continue;
        metrics->n_links++;
        metrics->n_down += !link->up;
        if (!time.valid)
            continue;
        metrics->n_usable++;
        metrics->n_floors += time.is_floor;
        sum_bytes_per_s += (double)topology_link_bandwidth(link).value;
        /* a part of a best path is best, so a link that any of them takes is the best one between
         * its own ends */
        if (topology_paths_next(paths, link->from, link->to) == link->to &&
            paths_narrower(link, metrics->bottleneck))
            metrics->bottleneck = link;
    }
    if (metrics->n_usable)
        metrics->average_bytes_per_s = sum_bytes_per_s / metrics->n_usable;
}

/* The first node that it reaches and that reaches it: the same one for all of a group. */
static uint32_t group_of(const struct topology_paths *paths, uint32_t node)
{
    uint32_t first = 0;
    while (!paths_reaches(paths, first, node) || !paths_reaches(paths, node, first))
        first++;
    return first;
}

struct topology_metrics topology_measure(const struct topology *topology,
                                         const struct topology_paths *paths)
{
    assert(topology->n_nodes == paths->n_nodes);
    struct topology_metrics metrics = {0};
    measure_links(&metrics, topology, paths);
    for (uint32_t from = 0; from < paths->n_nodes; from++) {
        metrics.n_groups += group_of(paths, from) == from;
        for (uint32_t to = 0; to < paths->n_nodes; to++) {
            const double seconds = topology_paths_seconds(paths, from, to);
            if (seconds == TOPOLOGY_APART) {
                if (!metrics.n_apart++) {
                    metrics.apart[0] = from;
                    metrics.apart[1] = to;
                }
            } else if (from != to && (metrics.diameter[0] == metrics.diameter[1] ||
                                      seconds > metrics.diameter_s)) {
                metrics.diameter_s = seconds;
                metrics.diameter[0] = from;
                metrics.diameter[1] = to;
            }
        }
    }
    return metrics;
}
