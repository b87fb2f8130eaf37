/* topology: the paths of random networks against brute force, their properties; 1,000 nodes. */
#include "topology_world.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Random links between n nodes; coarse values, so that ties are common. */
static uint32_t random_links(uint64_t seed, uint32_t n_nodes, double density,
                             struct topology_link *links)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_nodes * n_nodes; i++) {
        if (random_unit_at(seed, 8 * i) >= density)
            continue;
        struct topology_link link =
            link_of(i / n_nodes, i % n_nodes, 1000 * (double)(random_at(seed, 8 * i + 1) % 4),
                    1000000 * (double)(1 + random_at(seed, 8 * i + 2) % 3));
        link.up = random_unit_at(seed, 8 * i + 3) < 0.9;
        if (random_unit_at(seed, 8 * i + 4) < 0.3)
            link.loss_share.value = (double)(random_at(seed, 8 * i + 5) % 600000) * 1e-6;
        link.jitter_ns.value = (double)(random_at(seed, 8 * i + 6) % 1000);
        link.latency_ns.valid = random_unit_at(seed, 8 * i + 7) < 0.95;
        links[n++] = link;
    }
    return n;
}

struct search {
    const struct topology *topology;
    uint64_t bytes;
    uint32_t to;
    bool is_visited[8];
    double best_ns;
    uint32_t best_hops, best_next;
};

/* Every simple path. Whole nanoseconds are exact in a double. */
static void search(struct search *s, uint32_t at, double ns, uint32_t hops, uint32_t first)
{
    if (at == s->to) {
        if (ns < s->best_ns || (ns == s->best_ns && hops < s->best_hops) ||
            (ns == s->best_ns && hops == s->best_hops && first < s->best_next)) {
            s->best_ns = ns;
            s->best_hops = hops;
            s->best_next = first;
        }
        return;
    }
    s->is_visited[at] = true;
    for (uint32_t i = s->topology->first_link[at]; i < s->topology->first_link[at + 1]; i++) {
        const struct topology_link *link = &s->topology->links[i];
        const struct topology_time time = topology_link_time(link, s->bytes);
        if (time.valid && !s->is_visited[link->to])
            search(s, link->to, ns + round(time.seconds * 1e9), hops + 1, hops ? first : link->to);
    }
    s->is_visited[at] = false;
}

static void check_by_brute_force(const struct topology *topology, uint64_t bytes)
{
    struct topology_paths paths = paths_of(topology, bytes);
    for (uint32_t from = 0; from < topology->n_nodes; from++) {
        for (uint32_t to = 0; to < topology->n_nodes; to++) {
            struct search s = {.topology = topology, .bytes = bytes, .to = to, .best_ns = INFINITY};
            search(&s, from, 0, 0, from);
            if (s.best_ns == INFINITY) {
                assert_true(topology_paths_seconds(&paths, from, to) == TOPOLOGY_APART);
                continue;
            }
            assert_true(round(topology_paths_seconds(&paths, from, to) * 1e9) == s.best_ns);
            assert_int_equal(topology_paths_hops(&paths, from, to), s.best_hops);
            assert_int_equal(topology_paths_next(&paths, from, to), s.best_next);
            uint32_t at = from, n_steps = 0;
            for (; at != to; n_steps++)
                at = topology_paths_next(&paths, at, to);
            assert_int_equal(n_steps, s.best_hops); /* the way as walked */
        }
    }
    topology_paths_deinit(&paths);
}

static void test_against_brute_force(void **state)
{
    (void)state;
    struct topology_link links[64];
    for (uint64_t seed = 0; seed < 600; seed++) {
        const uint32_t n_nodes = 1 + (uint32_t)(seed % 7);
        const uint32_t n_links = random_links(seed, n_nodes, 0.2 + 0.1 * (double)(seed % 8), links);
        struct topology topology = topology_of(n_nodes, links, n_links);
        check_by_brute_force(&topology, seed % 3 * 1000);
        topology_deinit(&topology);
    }
}

/* One step for the better, which no path may suffer from. */
static void improve(struct topology_link *link, uint64_t how)
{
    switch (how % 6) {
    case 0:
        link->latency_ns.value /= 2;
        break;
    case 1:
        link->bandwidth_bytes_per_s.value *= 2;
        break;
    case 2:
        link->loss_share.value /= 3;
        break;
    case 3:
        link->jitter_ns.value = 0;
        break;
    case 4:
        link->up = true;
        break;
    case 5:
        link->latency_ns = (struct reading)KNOWN(0);
        break;
    }
}

static void assert_nowhere_longer(const struct topology_paths *paths,
                                  const struct topology_paths *than)
{
    for (uint32_t from = 0; from < paths->n_nodes; from++) {
        for (uint32_t to = 0; to < paths->n_nodes; to++)
            assert_true(topology_paths_seconds(paths, from, to) <=
                        topology_paths_seconds(than, from, to));
    }
}

static void test_better_links_never_hurt_and_lost_ones_never_help(void **state)
{
    (void)state;
    struct topology_link links[400];
    for (uint64_t seed = 0; seed < 300; seed++) {
        const uint32_t n_links = random_links(seed, 20, 0.05 + 0.01 * (double)(seed % 20), links);
        const uint32_t chosen = (uint32_t)(random_at(seed, UINT64_MAX) % n_links);
        struct topology before = topology_of(20, links, n_links);
        const struct topology_link last = links[n_links - 1];
        improve(&links[chosen], seed);
        struct topology better = topology_of(20, links, n_links);
        links[chosen] = chosen == n_links - 1 ? last : links[n_links - 1];
        struct topology fewer = topology_of(20, links, n_links - 1);
        struct topology_paths paths[] = {paths_of(&better, 3000), paths_of(&before, 3000),
                                         paths_of(&fewer, 3000), paths_of(&before, 3001)};
        assert_nowhere_longer(&paths[0], &paths[1]);
        assert_nowhere_longer(&paths[1], &paths[2]);
        assert_nowhere_longer(&paths[1], &paths[3]); /* a larger message is never faster */
        for (uint32_t i = 0; i < 8000;
             i++) { /* the triangle's inequality; half a nanosecond is rounding */
            const uint32_t a = i / 400, b = i / 20 % 20, c = i % 20;
            assert_true(topology_paths_seconds(&paths[1], a, c) <=
                        topology_paths_seconds(&paths[1], a, b) +
                            topology_paths_seconds(&paths[1], b, c) + 5e-10);
        }
        for (int i = 0; i < 4; i++)
            topology_paths_deinit(&paths[i]);
        topology_deinit(&before);
        topology_deinit(&better);
        topology_deinit(&fewer);
    }
}

/* The same nodes under other indices: the same times. */
static void test_numbering_does_not_matter(void **state)
{
    (void)state;
    struct topology_link links[225], renamed[225];
    for (uint64_t seed = 0; seed < 100; seed++) {
        const uint32_t n = 15, n_links = random_links(seed, n, 0.2, links),
                       turn = 1 + (uint32_t)(seed % 14);
        for (uint32_t i = 0; i < n_links; i++) {
            renamed[n_links - 1 - i] = links[i];
            renamed[n_links - 1 - i].from = (links[i].from + turn) % n;
            renamed[n_links - 1 - i].to = (links[i].to + turn) % n;
        }
        struct topology one = topology_of(n, links, n_links),
                        other = topology_of(n, renamed, n_links);
        struct topology_paths here = paths_of(&one, 500), there = paths_of(&other, 500);
        for (uint32_t i = 0; i < n * n; i++) {
            const uint32_t from = i / n, to = i % n, from2 = (from + turn) % n,
                           to2 = (to + turn) % n;
            assert_true(topology_paths_seconds(&here, from, to) ==
                        topology_paths_seconds(&there, from2, to2));
            assert_int_equal(topology_paths_hops(&here, from, to),
                             topology_paths_hops(&there, from2, to2));
        }
        topology_paths_deinit(&here);
        topology_paths_deinit(&there);
        topology_deinit(&one);
        topology_deinit(&other);
    }
}

static void check_thousand(const char *what, const struct topology_link *links, uint32_t n_links,
                           uint32_t n)
{
    const uint64_t start_ns = clock_now_ns();
    struct topology topology = topology_of(n, links, n_links);
    const uint64_t made_ns = clock_now_ns();
    struct topology_paths paths = paths_of(&topology, 16384);
    const uint64_t found_ns = clock_now_ns();
    const struct topology_metrics metrics = topology_measure(&topology, &paths);
    const uint64_t measured_ns = clock_now_ns();
    print_message("# %s, %u nodes, %u links: made %.1f ms, paths %.1f ms, metrics %.1f ms\n", what,
                  n, n_links, (double)(made_ns - start_ns) * 1e-6,
                  (double)(found_ns - made_ns) * 1e-6, (double)(measured_ns - found_ns) * 1e-6);
    assert_int_equal(metrics.n_links, n_links);
    assert_int_equal(metrics.n_groups, 1);
    for (uint32_t i = 0; i < 2000;
         i++) { /* sampled: the way adds up, and no link from here is a better start */
        const uint32_t from = (uint32_t)(random_at(1, i) % n), to = (uint32_t)(random_at(2, i) % n);
        double sum_ns = 0;
        for (uint32_t at = from; at != to; at = topology_paths_next(&paths, at, to))
            sum_ns +=
                round(topology_link_time(
                          topology_link(&topology, at, topology_paths_next(&paths, at, to)), 16384)
                          .seconds *
                      1e9);
        assert_true(round(topology_paths_seconds(&paths, from, to) * 1e9) == sum_ns);
        for (uint32_t j = topology.first_link[from]; j < topology.first_link[from + 1]; j++) {
            const struct topology_link *link = &topology.links[j];
            assert_true(round(topology_link_time(link, 16384).seconds * 1e9) +
                                round(topology_paths_seconds(&paths, link->to, to) * 1e9) >=
                            sum_ns ||
                        from == to);
        }
    }
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

/* Fewer under a sanitizer, which slows the innermost loop a hundredfold. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { RING_NODES = 200, MESH_NODES = 200 };
#else
enum { RING_NODES = LIMIT_TOPOLOGY_NODES, MESH_NODES = 1000 };
#endif

static void test_a_thousand_nodes(void **state)
{
    (void)state;
    const uint32_t n = RING_NODES;
    struct topology_link *links = mem_new_array((size_t)MESH_NODES * MESH_NODES, sizeof *links);
    assert_non_null(links);
    uint32_t n_links = 0;
    for (uint32_t i = 0; i < n; i++)
        links[n_links++] =
            link_of(i, (i + 1) % n, 1000, 1000000000); /* one way round: the deepest there is */
    check_thousand("ring", links, n_links, n);
    n_links = 0;
    for (uint32_t i = 0; i < MESH_NODES * MESH_NODES; i++) { /* everyone to everyone */
        if (i / MESH_NODES != i % MESH_NODES)
            links[n_links++] =
                link_of(i / MESH_NODES, i % MESH_NODES, 10000 + (double)(random_at(3, i) % 1000000),
                        100000000 + (double)(random_at(4, i) % 1000000000));
    }
    check_thousand("mesh", links, n_links, MESH_NODES);
    mem_free(links);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_brute_force),
        cmocka_unit_test(test_better_links_never_hurt_and_lost_ones_never_help),
        cmocka_unit_test(test_numbering_does_not_matter),
        cmocka_unit_test(test_a_thousand_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
