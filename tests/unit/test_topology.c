/* topology: the estimate of a transfer in closed form, best paths by hand, bad input, text. */
#include "topology_world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "base/random.h"
#include "topology/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void assert_near(double found, double expected)
{
    if (!(fabs(found - expected) <= 1e-9 * fabs(expected) + 1e-15))
        fail_msg("%.12g, expected %.12g", found, expected);
}

static double seconds_of(struct topology_link link, uint64_t bytes)
{
    const struct topology_time time = topology_link_time(&link, bytes);
    assert_true(time.valid);
    return time.seconds;
}

static void test_time_in_closed_form(void **state)
{
    (void)state;
    struct topology_link link = link_of(0, 1, 200000, 125000000);
    assert_near(seconds_of(link, 0), 200e-6);
    assert_near(seconds_of(link, 125000), 1.2e-3);
    link.overhead_ns.value = 50000;
    assert_near(seconds_of(link, 125000), 1.25e-3);
    link.jitter_ns.value = 10000; /* does not move the mean */
    assert_near(seconds_of(link, 125000), 1.25e-3);
    assert_near(topology_link_time(&link, 125000).late_s, 1.29e-3);
    link.peer_bandwidth_bytes_per_s = (struct reading)KNOWN(1250000000); /* preferred */
    assert_near(seconds_of(link, 125000), 0.35e-3);
    assert_false(topology_link_time(&link, 125000).is_floor);
}

static void test_time_with_loss(void **state)
{
    (void)state;
    struct topology_link link =
        link_of(0, 1, 1000000, 1000000); /* slower than TCP at these losses: no cap */
    link.jitter_ns.value = 250000;       /* R = 2 ms + 1 ms */
    link.loss_share.value = 0.01;
    assert_near(seconds_of(link, 1000), 1e-3 + 1e-3 + 0.01 / 0.99 * 3e-3); /* one packet */
    const double p = 0.01, two = 2 * p / (1 - p) -
                                 p * p / (1 - p * p); /* of two the slower, inclusion-exclusion */
    assert_near(seconds_of(link, 1461), 1e-3 + 1.461e-3 + two * 3e-3);
    /* a fast link is held to Mathis's bound: 1460 B sqrt(3/2) / (2 ms * 0.1) = 8.94 MB/s */
    link.bandwidth_bytes_per_s.value = 10000000000;
    const double large = seconds_of(link, 1000000000), larger = seconds_of(link, 2000000000);
    assert_true(fabs((larger - large) / (1e9 / (1460 * sqrt(1.5) / 2e-4)) - 1) < 1e-3);
    link.loss_share.value = LIMIT_LINK_LOSS_SHARE;
    link.bandwidth_bytes_per_s.value = 1;
    assert_near(seconds_of(link, 1), 1e-3 + 1 + 3e-3); /* p / (1 - p) = 1 */
    link.loss_share.value += 1e-6;
    assert_false(topology_link_time(&link, 1).valid);
    link.loss_share.value = 0.001; /* no round trip: nothing to bound by, nothing to wait for */
    link.latency_ns.value = link.jitter_ns.value = 0;
    link.bandwidth_bytes_per_s.value = 1000;
    assert_near(seconds_of(link, 1000), 1);
}

/* The formula's sum against thrown dice. */
static void test_retransmissions_against_simulation(void **state)
{
    (void)state;
    struct topology_link link = link_of(0, 1, 500000000, 100000000000); /* R = 1 s */
    link.loss_share.value = 0.2;
    const uint32_t n_packets = 12, n_runs = 20000;
    uint64_t drawn = 0, rounds = 0;
    for (uint32_t run = 0; run < n_runs; run++) {
        uint32_t slowest = 0;
        for (uint32_t i = 0; i < n_packets; i++) {
            uint32_t tries = 0;
            while (random_unit_at(5, drawn++) < 0.2)
                tries++;
            slowest = tries > slowest ? tries : slowest;
        }
        rounds += slowest;
    }
    const double carried_s = n_packets * 1460 / (1460 * sqrt(1.5) / sqrt(0.2));
    const double formula = seconds_of(link, n_packets * 1460) - 0.5 - carried_s;
    assert_true(fabs((double)rounds / n_runs - formula) <
                0.03); /* 4 standard errors of the mean are 0.02 */
}

static void test_unknown_is_not_zero(void **state)
{
    (void)state;
    const struct topology_link whole = link_of(0, 1, 1000, 1000);
    struct topology_link link = whole;
    link.latency_ns.valid = false;
    assert_false(topology_link_time(&link, 1).valid);
    link = whole;
    link.bandwidth_bytes_per_s.valid = false;
    assert_false(topology_link_time(&link, 1).valid);
    assert_false(topology_link_time(&link, 0).valid);
    link.peer_bandwidth_bytes_per_s = (struct reading)KNOWN(7);
    assert_true(topology_link_time(&link, 1).valid);
    link = whole;
    link.up = false;
    assert_false(topology_link_time(&link, 1).valid);
    for (int missing = 0; missing < 3; missing++) {
        link = whole;
        (missing == 0   ? &link.jitter_ns
         : missing == 1 ? &link.loss_share
                        : &link.overhead_ns)
            ->valid = false;
        const struct topology_time time = topology_link_time(&link, 1000);
        assert_true(time.valid && time.is_floor);
        assert_near(time.seconds, 1.000001);
    }
    link = (struct topology_link){.up = true};
    assert_false(topology_link_time(&link, 1).valid);
}

static void test_absurd_readings_are_unknown(void **state)
{
    (void)state;
    struct topology_link link = link_of(0, 1, INFINITY, 0);
    link.jitter_ns.value = link.overhead_ns.value = LIMIT_LINK_DELAY_MS * UINT64_C(1000000) + 1;
    link.loss_share.value = 1.000001;
    link.peer_bandwidth_bytes_per_s = (struct reading)KNOWN(NAN);
    link.class = (enum topology_class)77;
    link = topology_link_clean(link);
    assert_false(link.latency_ns.valid || link.jitter_ns.valid || link.overhead_ns.valid ||
                 link.loss_share.valid || link.bandwidth_bytes_per_s.valid ||
                 link.peer_bandwidth_bytes_per_s.valid);
    assert_int_equal(link.class, TOPOLOGY_UNKNOWN);
    assert_string_equal(topology_class_name((enum topology_class) - 1), "unknown");
    assert_string_equal(topology_class_name(TOPOLOGY_RDMA), "rdma");

    link = link_of(0, 1, LIMIT_LINK_DELAY_MS * UINT64_C(1000000),
                   LIMIT_LINK_GB_PER_S * UINT64_C(1000000000));
    link.loss_share.value = LIMIT_LINK_LOSS_SHARE;
    link.jitter_ns = link.overhead_ns = link.latency_ns; /* at every limit */
    link = topology_link_clean(link);
    assert_true(link.latency_ns.valid && link.jitter_ns.valid && link.bandwidth_bytes_per_s.valid);
    const uint64_t sizes[] = {0, 1, 1460, UINT64_MAX};
    for (int i = 0; i < 4; i++)
        assert_true(isfinite(seconds_of(link, sizes[i])));
}

/* a -> b -> c -> d fast, a -> d direct with little bandwidth, nothing back but d -> a, which is
 * slow. */
static const struct topology_link square[] = {
    {0, 1, TOPOLOGY_RDMA, true, KNOWN(1000), KNOWN(0), KNOWN(0), KNOWN(0), KNOWN(1000000000)},
    {1, 2, TOPOLOGY_RDMA, true, KNOWN(1000), KNOWN(0), KNOWN(0), KNOWN(0), KNOWN(500000000)},
    {2, 3, TOPOLOGY_RDMA, true, KNOWN(1000), KNOWN(0), KNOWN(0), KNOWN(0), KNOWN(1000000000)},
    {0, 3, TOPOLOGY_WIFI, true, KNOWN(2000), KNOWN(0), KNOWN(0), KNOWN(0), KNOWN(1000000)},
    {3, 0, TOPOLOGY_ETHERNET, true, KNOWN(90000), KNOWN(0), KNOWN(0), KNOWN(0), KNOWN(100000000)},
};

static void test_the_best_path_depends_on_size_and_direction(void **state)
{
    (void)state;
    struct topology topology = topology_of(4, square, 5);
    struct topology_paths small = paths_of(&topology, 0), large = paths_of(&topology, 1000000);
    assert_near(topology_paths_seconds(&small, 0, 3), 2e-6);
    assert_int_equal(topology_paths_hops(&small, 0, 3), 1);
    assert_near(topology_paths_seconds(&large, 0, 3), 3e-6 + 4e-3);
    assert_int_equal(topology_paths_hops(&large, 0, 3), 3);
    assert_int_equal(topology_paths_next(&large, 0, 3), 1);
    assert_int_equal(topology_paths_next(&large, 1, 3), 2);
    assert_near(topology_paths_seconds(&large, 3, 0), 90e-6 + 10e-3);
    assert_near(topology_paths_seconds(&large, 1, 0), 2e-6 + 3e-3 + 90e-6 + 10e-3);
    assert_near(topology_paths_seconds(&large, 2, 2), 0);
    assert_int_equal(topology_paths_next(&large, 2, 2), 2);
    assert_ptr_equal(topology_paths_bottleneck(&large, &topology, 0, 3),
                     topology_link(&topology, 1, 2));
    assert_ptr_equal(topology_paths_bottleneck(&small, &topology, 0, 3),
                     topology_link(&topology, 0, 3));
    assert_null(topology_paths_bottleneck(&small, &topology, 1, 1));
    assert_null(topology_link(&topology, 1, 3)); /* the next node has one to d */

    struct topology_metrics metrics = topology_measure(&topology, &large);
    assert_near(metrics.diameter_s, 92e-6 + 13e-3); /* b to a */
    assert_ptr_equal(metrics.bottleneck,
                     topology_link(&topology, 3, 0)); /* nobody takes the slower wifi */
    assert_int_equal(metrics.n_groups, 1);
    topology_paths_deinit(&small);
    topology_paths_deinit(&large);
    topology_deinit(&topology);
}

static void test_metrics(void **state)
{
    (void)state;
    struct topology_link links[8];
    memcpy(links, square, sizeof square);
    links[3].up = false;
    links[5] = link_of(2, 2, 10, 10); /* a loopback counts for nothing */
    links[6] = link_of(4, 0, 10, 4000000000);
    links[6].loss_share.valid = false;
    links[7] = link_of(0, 4, 10, 0);
    struct topology topology = topology_of(5, links, 8);
    struct topology_paths paths = paths_of(&topology, 1000);
    const struct topology_metrics metrics = topology_measure(&topology, &paths);
    assert_int_equal(metrics.n_links, 7);
    assert_int_equal(metrics.n_usable, 5);
    assert_int_equal(metrics.n_down, 1);
    assert_int_equal(metrics.n_floors, 1);
    assert_int_equal(metrics.n_groups, 2);
    assert_int_equal(metrics.n_apart, 4);
    assert_int_equal(metrics.apart[0], 0);
    assert_int_equal(metrics.apart[1], 4);
    assert_near(metrics.average_bytes_per_s, (1e9 + 5e8 + 1e9 + 1e8 + 4e9) / 5);
    assert_ptr_equal(metrics.bottleneck, topology_link(&topology, 3, 0));
    /* b -> c -> d -> a is the longest: 1 + 1 + 90 µs and 1000 B at 0.5, 1 and 0.1 GB/s */
    assert_near(metrics.diameter_s, 92e-6 + 13e-6);
    assert_int_equal(metrics.diameter[0], 1);
    assert_int_equal(metrics.diameter[1], 0);
    assert_true(topology_paths_seconds(&paths, 0, 4) == TOPOLOGY_APART);
    assert_int_equal(topology_paths_next(&paths, 0, 4), TOPOLOGY_NO_NODE);
    assert_int_equal(topology_paths_hops(&paths, 0, 4), 0);
    assert_null(topology_paths_bottleneck(&paths, &topology, 0, 4));
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

static void test_ties_go_to_fewer_hops_then_to_the_lower_node(void **state)
{
    (void)state;
    /* a to d: by c or by b, 2 µs each; e to d: direct 3 µs, or by a in 1 + 2 µs */
    struct topology_link links[] = {link_of(0, 2, 1000, 1), link_of(2, 3, 1000, 1),
                                    link_of(0, 1, 1500, 1), link_of(1, 3, 500, 1),
                                    link_of(4, 0, 1000, 1), link_of(4, 3, 3000, 1)};
    for (int order = 0; order < 2; order++) {
        struct topology topology = topology_of(5, links, 6);
        struct topology_paths paths = paths_of(&topology, 0);
        assert_int_equal(topology_paths_next(&paths, 0, 3), 1);
        assert_int_equal(topology_paths_next(&paths, 4, 3), 3);
        assert_int_equal(topology_paths_hops(&paths, 4, 3), 1);
        topology_paths_deinit(&paths);
        topology_deinit(&topology);
        for (int i = 0; i < 3; i++) {
            const struct topology_link link = links[i];
            links[i] = links[5 - i];
            links[5 - i] = link;
        }
    }
}

/* a to f by b and e, or by c and d, equally fast: b, though the way by d is found first. */
static void test_ties_of_long_paths(void **state)
{
    (void)state;
    const struct topology_link links[] = {link_of(0, 1, 1000, 1), link_of(1, 4, 1000, 1),
                                          link_of(4, 5, 1000, 1), link_of(0, 2, 1000, 1),
                                          link_of(2, 3, 1000, 1), link_of(3, 5, 1000, 1)};
    struct topology topology = topology_of(6, links, 6);
    struct topology_paths paths = paths_of(&topology, 0);
    assert_int_equal(topology_paths_next(&paths, 0, 5), 1);
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

static void refuse(const char *const *names, uint32_t n_nodes, const struct topology_link *links,
                   uint32_t n_links, const char *words)
{
    struct topology topology;
    struct error err = {0};
    assert_int_equal(topology_init(&topology, names, n_nodes, links, n_links, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, words));
    assert_int_equal(topology.n_nodes, 0);
    assert_null(topology.names);
}

static void test_refusals(void **state)
{
    (void)state;
    char long_name[LIMIT_NODE_NAME_BYTES + 2];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const char *names[LIMIT_TOPOLOGY_NODES + 1] = {"a", "b", "a"};
    const struct topology_link twice[] = {link_of(0, 1, 1, 1), link_of(1, 0, 1, 1),
                                          link_of(0, 1, 2, 2)};
    refuse(names, 3, NULL, 0, "nodes 0 and 2 have the same name");
    refuse(names, 2, twice, 3, "two links from node 0 to 1");
    refuse(names, 1, twice, 1, "from node 0 to 1, there are 1");
    refuse(names, 0, twice, 1, "there are 0");
    names[1] = "";
    refuse(names, 2, NULL, 0, "node 1 is empty");
    names[1] = long_name;
    refuse(names, 2, NULL, 0, "node 1 is too long");
    refuse(names, LIMIT_TOPOLOGY_NODES + 1, NULL, 0, "1025 nodes");
    refuse(names, 1, twice, LIMIT_TOPOLOGY_LINKS + 1, "links, at most");
}

static void test_none_and_one(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 2; n++) {
        struct topology topology = topology_of(n, NULL, 0);
        struct topology_paths paths = paths_of(&topology, UINT64_MAX);
        const struct topology_metrics metrics = topology_measure(&topology, &paths);
        assert_int_equal(metrics.n_groups, n);
        assert_int_equal(metrics.n_apart, 0);
        assert_null(metrics.bottleneck);
        struct buffer text = {0};
        topology_summary(&text, &topology, &paths);
        assert_string_equal(text.data,
                            n ? "1 node, 0 links: 0 usable, 0 down, 0 without an estimate\n"
                                "every node reaches every other\n"
                              : "0 nodes, 0 links: 0 usable, 0 down, 0 without an estimate\n"
                                "every node reaches every other\n");
        buffer_deinit(&text);
        topology_paths_deinit(&paths);
        topology_deinit(&topology);
    }
    topology_deinit(NULL);
    topology_paths_deinit(NULL);
}

/* 2 GB over 1 B/s takes 63 years: no path, rather than a wrong number. */
static void test_too_slow_is_no_path(void **state)
{
    (void)state;
    const struct topology_link links[] = {link_of(0, 1, 0, 1), link_of(1, 2, 0, 1)};
    struct topology topology = topology_of(3, links, 2);
    struct topology_paths paths = paths_of(&topology, 2000000000);
    assert_true(topology_paths_seconds(&paths, 0, 1) == TOPOLOGY_APART);
    topology_paths_deinit(&paths);
    paths = paths_of(&topology, 30 * 86400); /* 30 days each: two are too many */
    assert_near(topology_paths_seconds(&paths, 0, 1), 30 * 86400);
    assert_true(topology_paths_seconds(&paths, 0, 2) == TOPOLOGY_APART);
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

static void test_summary(void **state)
{
    (void)state;
    const char *const names[] = {"studio", "K\xc3\xbc\x63he", "pi\n\x1b[2J"};
    struct topology_link links[] = {link_of(0, 1, 200000, 1250000000),
                                    link_of(1, 0, 210000, 118000000),
                                    link_of(1, 2, 2000000, 12000000), link_of(2, 1, 1, 1)};
    links[2].class = TOPOLOGY_WIFI;
    links[2].jitter_ns.valid = false;
    links[3].up = false;
    struct topology topology;
    assert_int_equal(topology_init(&topology, names, 3, links, 4, NULL), ERROR_NONE);
    struct topology_paths paths = paths_of(&topology, 12000);
    struct buffer text = {0};
    topology_summary(&text, &topology, &paths);
    assert_string_equal(
        text.data,
        "3 nodes, 4 links: 3 usable, 1 down, 0 without an estimate\n"
        "not connected: 2 groups, 2 pairs without a path, the first pi??[2J to studio\n"
        "a message of 12 kB takes at most 3.21 ms: studio to pi??[2J, 2 hops\n"
        "bandwidth 460 MB/s on average, 12 MB/s at the narrowest: Küche to pi??[2J (wifi)\n"
        "ethernet: 2 links, latency 200 µs to 210 µs, bandwidth 118 MB/s to 1.25 GB/s\n"
        "wifi: 1 link, latency 2 ms to 2 ms, bandwidth 12 MB/s to 12 MB/s\n"
        "times are lower bounds: 1 link without jitter, loss or overhead\n");
    buffer_deinit(&text);
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

static void test_dot_escapes_hostile_names(void **state)
{
    (void)state;
    const char *const names[] = {"a\"]; n9 [label=\"x", "\\N\\", "&lt;\n",
                                 "\xff\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xf9\x80\x80\x80\xe2\x82",
                                 "x\xe2\x80\xaey\xc2\x85\xf0\x9f\x96\xa5"};
    struct topology_link links[] = {
        link_of(0, 1, 999600, 1000), link_of(1, 0, 1, 1), {.from = 4, .to = 3, .up = true}};
    links[1].up = false;
    struct topology topology;
    assert_int_equal(topology_init(&topology, names, 5, links, 3, NULL), ERROR_NONE);
    struct buffer text = {0};
    topology_dot(&text, &topology);
    assert_string_equal(text.data,
                        "digraph topology {\n"
                        "  charset=\"UTF-8\";\n"
                        "  node [shape=box];\n"
                        "  n0 [label=\"a\\\"]; n9 [label=\\\"x\"];\n"
                        "  n1 [label=\"\\\\N\\\\\"];\n"
                        "  n2 [label=\"&amp;lt;?\"];\n"
                        "  n3 [label=\"????????????????\"];\n"
                        "  n4 [label=\"x???y??\xf0\x9f\x96\xa5\"];\n"
                        "  n0 -> n1 [label=\"ethernet\\n1 ms\\n1 kB/s\"];\n"
                        "  n1 -> n0 [label=\"ethernet\\n1 ns\\n1 B/s\\ndown\", style=dashed];\n"
                        "  n4 -> n3 [label=\"unknown\", style=dashed];\n"
                        "}\n");
    buffer_deinit(&text);
    topology_deinit(&topology);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    const char *const names[] = {"a", "b"};
    const struct topology_link link = link_of(0, 1, 1, 1);
    struct topology topology;
    struct topology_paths paths;
    struct error err;
    unsigned nth = 1;
    for (;; nth++) {
        mem_fail_nth(nth);
        const enum error_code code = topology_init(&topology, names, 2, &link, 1, &err);
        mem_fail_nth(0);
        if (!code)
            break;
        assert_int_equal(code, ERROR_NO_MEMORY);
        assert_null(topology.links);
    }
    assert_int_equal(nth, 3 + 2 + 2 + 1);
    for (nth = 1; nth <= 2; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(topology_paths_init(&paths, &topology, 1, &err), ERROR_NO_MEMORY);
        mem_fail_nth(0);
        assert_null(paths.costs);
    }
    paths = paths_of(&topology, 1);
    struct buffer text = {0};
    mem_fail_nth(1);
    topology_summary(&text, &topology, &paths);
    mem_fail_nth(0);
    assert_true(text.failed);
    buffer_deinit(&text);
    topology_paths_deinit(&paths);
    topology_deinit(&topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_time_in_closed_form),
        cmocka_unit_test(test_time_with_loss),
        cmocka_unit_test(test_retransmissions_against_simulation),
        cmocka_unit_test(test_unknown_is_not_zero),
        cmocka_unit_test(test_absurd_readings_are_unknown),
        cmocka_unit_test(test_the_best_path_depends_on_size_and_direction),
        cmocka_unit_test(test_metrics),
        cmocka_unit_test(test_ties_go_to_fewer_hops_then_to_the_lower_node),
        cmocka_unit_test(test_ties_of_long_paths),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_none_and_one),
        cmocka_unit_test(test_too_slow_is_no_path),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_dot_escapes_hostile_names),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
