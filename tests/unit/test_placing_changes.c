/* Instances as things change: nodes that go, links that become known, heat, what is an event; nodes
 * that lie, no memory. */
#include "placing_world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_write.h"
#include "heat/heat.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct placing_world w;

/* ---- nodes that go, and what is too large ---------------------------------------------------- */

static void a_node_that_is_down(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("c", "1GiB", "200MB/s", "1TFLOP/s")};
    world_open(&w, gemma, machines, 3);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "node1/sim:b 7");
    w.up[1] = false;
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "node2/sim:c 7");
    assert_true(world_find(&w, "i")->next->replaces);
    w.up[2] = false;
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "node0/sim:a 7");
    world_close(&w);
}

static void expect_problem(const char *words)
{
    const char *why = master_problem(&w.master, "i");
    if (!why || !strstr(why, words))
        fail_msg("'%s' does not say '%s'", why ? why : "nothing", words);
}

static void too_large(void **state)
{
    static const char *const machines[] = {DEVICE("a", "12MiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "12MiB", "300MB/s", "1TFLOP/s")};
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 4);
    world_step(&w, "i");
    expect_problem("layer 0 needs ");
    expect_problem("; the largest device has 12.0 MiB");
    assert_string_equal(world_stages(&w, "i"), "");
    w.model = NULL; /* its header is on the way */
    world_step(&w, "i");
    expect_problem("header of m is still being fetched");
    world_close(&w);
    static const char *const larger[] = {DEVICE("a", "44MiB", "100MB/s", "1TFLOP/s"),
                                         DEVICE("b", "44MiB", "300MB/s", "1TFLOP/s")};
    world_open(&w, gemma, larger, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 3);
    world_step(&w, "i");
    expect_problem("the model needs 43.4 MiB, 2 devices have ");
    expect_problem(" are missing");
    world_close(&w);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void links_as_they_become_known(void **state)
{
    static const char *const machines[] = {DEVICE("a", "46MiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "46MiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("c", "5MiB", "200MB/s", "1TFLOP/s")};
    world_open(&w, gemma, machines, 3);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    assert_non_null(master_problem(&w.master, "i")); /* no two can reach each other */
    world_link(&w, 0, 1, 100000, 1000000000);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), ""); /* no way back */
    world_link(&w, 1, 2, 100000, 1000000000);
    world_link(&w, 2, 0, 100000, 1000000000);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), ""); /* nobody passes on what is for another */
    world_link(&w, 1, 0, 100000, 0);                /* its bandwidth is not known: assumed */
    world_step(&w, "i");
    assert_non_null(strstr(world_stages(&w, "i"), "node0/sim:a"));
    assert_non_null(strstr(world_stages(&w, "i"), "node1/sim:b"));
    uint32_t n_assumed = 0;
    for (uint32_t i = 0; i < w.placing.cluster.n_links; i++)
        n_assumed += w.placing.cluster.link_assumed[i];
    assert_true(n_assumed == 1 && w.placing.cluster.n_links == 4);
    world_close(&w);
}

/* What nodes say of their devices' heat comes to the planner as it is meant; nonsense is
 * nothing. */
static void heat_that_is_predicted(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s")};
    const struct {
        uint32_t share_ppm, sustained_ppm, error_ppm;
        uint64_t in_ms;
        double share, error, full_s;
    } cases[] = {
        {1000000, 400000, 50000, 30000, 0.4, 0.05, 30}, /* it will be hot in 30 s */
        {1000000, 1000000, 20000, 0, 1, 0.02, 1e6},     /* it never will */
        {300000, 400000, 50000, 30000, 0.3, 0, 0},      /* it is, and more than it has to be */
        {600000, 400000, 50000, 30000, 0.4, 0, 0},      /* its duty still falls */
        {0, 400000, 50000, 30000, 0, 0, 0},             /* paused */
        {1000000, 4000000000, 4000000000, UINT64_MAX, 1, 1, 1e6},
    };
    (void)state;
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    world_hear(&w, 1);
    Node__DeviceNow *now = NULL;
    for (size_t i = 0; i < w.now[1].n_devices; i++)
        now = strcmp(w.now[1].devices[i]->id, "sim:b") ? now : w.now[1].devices[i];
    assert_non_null(now);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct placement_problem *problem;
        const struct master_device *devices;
        struct error err = {0};
        const bool allowed[2] = {true, true};
        const struct master_node nodes[2] = {{"node0", 1}, {"node1", 1}};
        const struct master_view view = {.state = &w.state, .nodes = nodes, .n_nodes = 2};
        now->has_share_ppm = now->has_sustained_ppm = now->has_sustained_error_ppm = true;
        now->share_ppm = cases[i].share_ppm;
        now->sustained_ppm = cases[i].sustained_ppm;
        now->sustained_error_ppm = cases[i].error_ppm;
        now->has_throttles_in_ms = cases[i].in_ms > 0;
        now->throttles_in_ms = cases[i].in_ms;
        w.seen[0] = (struct placing_seen){world_ids[0], true, NULL};
        w.seen[1] = (struct placing_seen){world_ids[1], true, &w.now[1]};
        assert_int_equal(placing_problem(&w.placing, &view, world_find(&w, "i"), allowed, &problem,
                                         &devices, &err),
                         0);
        assert_int_equal(placement_problem_check(problem, &err), 0);
        const struct placement_device *device = &problem->devices[1];
        assert_string_equal(device->id, "sim:b");
        assert_double_equal(device->share, cases[i].share, 1e-9);
        assert_double_equal(device->share_error, cases[i].error, 1e-9);
        assert_double_equal(device->full_s, cases[i].full_s, 1e-9);
    }
    world_close(&w);
}

/* The leader, on a third machine or one of them, hears both. */
static void two_that_do_not_hear_each_other(void **state)
{
    static const char *const machines[] = {DEVICE("a", "46MiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "46MiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("c", "46MiB", "200MB/s", "1TFLOP/s")};
    char *missed[] = {(char *)"node1", (char *)"nobody"};
    (void)state;
    world_open(&w, gemma, machines, 3);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    for (uint32_t i = 0; i < 3; i += 2) { /* all but itself */
        world_hear(&w, i);
        w.now[i].unreached = missed, w.now[i].n_unreached = 2;
    }
    world_step(&w, "i");
    assert_non_null(strstr(world_stages(&w, "i"), "node0/sim:a"));
    assert_non_null(strstr(world_stages(&w, "i"), "node2/sim:c"));
    uint32_t n_down = 0;
    for (uint32_t i = 0; i < w.placing.cluster.n_links; i++)
        n_down += !w.placing.cluster.links[i].up;
    assert_int_equal(n_down, 4); /* both ways */
    for (uint32_t i = 0; i < 3; i += 2)
        w.now[i].unreached = NULL, w.now[i].n_unreached = 0;
    world_close(&w);
}

static void which_changes_are_events(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "1GB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "1GB/s", "1TFLOP/s")};
    struct topology_link measured = {.class = TOPOLOGY_ETHERNET, .up = true};
    Cluster__Link link;
    world_open(&w, gemma, machines, 2);
    measured.class = TOPOLOGY_UNKNOWN;
    assert_false(
        placing_link_changed(&w.state, "node0", "node1", &measured, &link)); /* nothing is known */
    world_link(&w, 0, 1, 1000000, 0);
    measured = (struct topology_link){
        .class = TOPOLOGY_ETHERNET, .up = true, .latency_ns = {1000000, true}};
    assert_false(placing_link_changed(&w.state, "node0", "node1", &measured, &link));
    assert_true(placing_link_changed(&w.state, "node1", "node0", &measured,
                                     &link)); /* the other way: the first */
    measured.bandwidth_bytes_per_s = (struct reading){1000000, true};
    assert_true(placing_link_changed(&w.state, "node0", "node1", &measured,
                                     &link)); /* the first of these */
    assert_true(link.bytes_per_s == 1000000 && link.latency_ns == 1000000 &&
                link.class_ == TOPOLOGY_ETHERNET);
    assert_true(link.has_jitter_ns && link.jitter_ns == 0); /* of the state */
    world_link(&w, 0, 1, 1000000, 1000000);
    static const struct {
        uint64_t latency_ns, bytes_per_s;
        enum topology_class class;
        bool worth_it;
    } cases[] = {
        {1000000, 1000000, TOPOLOGY_ETHERNET, false}, {1240000, 1190000, TOPOLOGY_ETHERNET, false},
        {1260000, 1000000, TOPOLOGY_ETHERNET, true},  {740000, 1000000, TOPOLOGY_ETHERNET, true},
        {760000, 1000000, TOPOLOGY_ETHERNET, false},  {1000000, 1210000, TOPOLOGY_ETHERNET, true},
        {1000000, 790000, TOPOLOGY_ETHERNET, true},   {1000000, 810000, TOPOLOGY_ETHERNET, false},
        {1000000, 1000000, TOPOLOGY_WIFI, true},      {1000000, 1000000, TOPOLOGY_UNKNOWN, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        measured =
            (struct topology_link){.class = cases[i].class,
                                   .latency_ns = {(double)cases[i].latency_ns, true},
                                   .bandwidth_bytes_per_s = {(double)cases[i].bytes_per_s, true}};
        if (placing_link_changed(&w.state, "node0", "node1", &measured, &link) != cases[i].worth_it)
            fail_msg("case %zu", i);
    }
    world_link(&w, 1, 0, 100000, 1000000); /* 40 us more are two fifths, and nothing */
    measured = (struct topology_link){.class = TOPOLOGY_ETHERNET, .latency_ns = {140000, true}};
    assert_false(placing_link_changed(&w.state, "node1", "node0", &measured, &link));
    measured.latency_ns.value = INFINITY; /* cannot be: unknown */
    assert_false(placing_link_changed(&w.state, "node1", "node0", &measured, &link));
    world_close(&w);
}

/* ---- spare devices, lies, no memory ---------------------------------------------------------- */

static void add_node(const char *id, const char *name, uint64_t member, Cluster__Device **devices,
                     size_t n)
{
    Cluster__Node node = CLUSTER__NODE__INIT;
    node.id = (char *)(uintptr_t)id, node.name = (char *)(uintptr_t)name;
    node.has_member = true, node.member = member;
    node.n_devices = n, node.devices = devices;
    world_node(&w, &node);
}

/* The CPU beside a card that nobody measured: only when the card is too small. */
static void spare_devices_are_called_in(void **state)
{
    Cluster__Device devices[2] = {CLUSTER__DEVICE__INIT, CLUSTER__DEVICE__INIT},
                    *list[] = {&devices[0], &devices[1]};
    world_open(&w, gemma, NULL, 0);
    devices[0].id = (char *)"cuda0", devices[0].kind = (char *)"gpu";
    devices[0].has_free_bytes = true, devices[0].free_bytes = 48 << 20;
    devices[1].id = devices[1].kind = (char *)"cpu";
    devices[1].has_free_bytes = true, devices[1].free_bytes = UINT64_C(1) << 30;
    devices[1].shares_host_memory = devices[1].spare = true;
    devices[1].has_shares_host_memory = devices[1].has_spare = true;
    add_node("node0", "tower", 1, list, 2);
    w.n_nodes = 1, w.up[0] = true, w.placing.view.n_seen = 1;
    world_instance(&w, "i", 4096, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "node0/cuda0 7");
    world_instance(&w, "j", CONTEXT, 8);
    world_step(&w, "j");
    assert_non_null(strstr(world_stages(&w, "j"), "node0/cpu"));
    state_deinit(&w.state);
    placing_deinit(&w.placing);
}

/* Names that are there twice, empty or no text; devices that cannot be: the others are placed on
 * all the same. */
static void nodes_that_lie(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s")};
    Cluster__Device devices[3] = {CLUSTER__DEVICE__INIT, CLUSTER__DEVICE__INIT,
                                  CLUSTER__DEVICE__INIT};
    Cluster__Device *list[] = {&devices[0], &devices[1], &devices[2]};
    Cluster__Rate rate = CLUSTER__RATE__INIT, *rates[20];
    char long_name[1000];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    rate.type = long_name, rate.has_decode_bytes_per_s = true, rate.decode_bytes_per_s = UINT64_MAX;
    for (size_t i = 0; i < 20; i++)
        rates[i] = &rate;
    for (int i = 0; i < 3; i++) {
        devices[i].has_speed = true, devices[i].speed = (uint32_t)i;
        devices[i].has_launch_ns = true, devices[i].launch_ns = UINT64_MAX;
        devices[i].has_decode_bytes_per_s = devices[i].has_prefill_flops = true;
        devices[i].decode_bytes_per_s = devices[i].prefill_flops = UINT64_MAX;
        devices[i].has_free_bytes = devices[i].has_reserve_bytes = true;
        devices[i].free_bytes = devices[i].reserve_bytes = UINT64_MAX;
        devices[i].n_rates = 20, devices[i].rates = rates;
    }
    rate.type = (char *)"q4_0"; /* twenty times */
    devices[2].decode_bytes_per_s = 7;
    devices[0].id = long_name, devices[1].id = (char *)"b\x1b[", devices[2].id = (char *)"c";
    world_open(&w, gemma, machines, 1);
    add_node("node1", "node0", 12, list, 3);
    add_node("node2", "node0", 13, list, 3);
    add_node("nodes", "\x1b[2J a/b,\xff", 14, NULL, 0);
    add_node(long_name, long_name, 15, NULL, 0);
    w.n_nodes = 3, w.up[1] = w.up[2] = true, w.placing.view.n_seen = 3;
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"),
                        "node0/sim:a 7"); /* what lies has kept all of it free */
    const struct cluster *cluster = &w.placing.cluster;
    assert_true(cluster->n_nodes == 5 && cluster->n_devices == 3);
    for (uint32_t i = 0; i < cluster->n_nodes; i++)
        assert_int_equal(cluster_find_node(cluster, cluster->nodes[i].name), i);
    struct buffer json = {0};
    struct cluster back;
    struct error err = {0};
    cluster_write(cluster, &json); /* and a file of it is one */
    if (cluster_parse(json.data, json.size, &back, &err))
        fail_msg("%s", err.text);
    assert_true(back.n_devices == 3 && back.n_nodes == 5);
    cluster_deinit(&back);
    buffer_deinit(&json);
    assert_string_equal(cluster->nodes[0].name, "node0");
    assert_string_equal(cluster->nodes[1].name, "node0-node1");
    assert_string_equal(cluster->nodes[3].name, "-[2J-a-b--");
    for (int i = 1; i < 3; i++)
        node__now__init(&w.now[i]);
    w.n_nodes = 1;
    world_close(&w);
}

static void nothing_there(void **state)
{
    struct placing_view view = w.placing.view;
    struct state empty = {0};
    struct cluster cluster;
    struct error err = {0};
    const struct placement_problem *problem;
    const struct master_device *devices;
    struct placing placing = {.view = view};
    const struct master_view nobody = {.state = &empty};
    Cluster__Instance instance = CLUSTER__INSTANCE__INIT;
    view.state = &empty;
    assert_int_equal(placing_cluster(&view, NULL, &cluster, &err), ERROR_NONE);
    assert_true(!cluster.n_nodes && !cluster.n_devices);
    assert_int_equal(placing_problem(&placing, &nobody, &instance, NULL, &problem, &devices, &err),
                     ERROR_NOT_FOUND);
    placing_deinit(&placing);
}

static void every_failed_allocation_is_an_error(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s")};
    const struct placement_problem *problem;
    const struct master_device *devices;
    const bool allowed[2] = {true, true};
    unsigned nth = 0;
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    world_instance(&w, "j", CONTEXT, 1);
    world_step(&w, "i");
    const struct master_node nodes[2] = {{"node0", 1}, {"node1", 1}};
    const struct master_view view = {.state = &w.state, .nodes = nodes, .n_nodes = 2};
    for (enum error_code code = ERROR_NO_MEMORY; code;) {
        struct error err = {0};
        mem_fail_nth(++nth);
        code = placing_problem(&w.placing, &view, world_find(&w, "j"), allowed, &problem, &devices,
                               &err);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || (code == ERROR_NO_MEMORY && err.text[0]));
        assert_true(nth < 200);
    }
    assert_true(nth > 15);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_node_that_is_down),
        cmocka_unit_test(too_large),
        cmocka_unit_test(links_as_they_become_known),
        cmocka_unit_test(heat_that_is_predicted),
        cmocka_unit_test(two_that_do_not_hear_each_other),
        cmocka_unit_test(which_changes_are_events),
        cmocka_unit_test(spare_devices_are_called_in),
        cmocka_unit_test(nodes_that_lie),
        cmocka_unit_test(nothing_there),
        cmocka_unit_test(every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, open_gemma, close_gemma);
}
