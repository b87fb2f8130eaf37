/* Instances on clusters of unlike simulated machines: what a node says of itself, and placed as the
 * solver places them. */
#include "placing_world.h"
#include "sim_world.h"

#include "base/limits.h"
#include "base/mem.h"
#include "clusterfile/cluster_file.h"
#include "clusterfile/cluster_write.h"
#include "heat/heat.h"
#include "model/model.h"
#include "placement/as_run.h"
#include "plan/plan.h"

#include <limits.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct placing_world w;

/* ---- what a node says of itself -------------------------------------------------------------- */

static void a_description_says_it_all(void **state)
{
    struct gpu *gpu = open_sim(DEVICE("a", "1GiB", "1.5GB/s", "1TFLOP/s")
                                   DEVICE("b", "2GiB", "9GB/s", "3TFLOP/s"));
    Cluster__Node node = CLUSTER__NODE__INIT;
    struct error err = {0};
    assert_int_equal(placing_describe(gpu, "", &node, &err), ERROR_NONE);
    assert_int_equal(node.n_devices, 2); /* not the CPU: the file's devices alone */
    assert_true(node.memory_bytes > 1 << 20);
    for (uint32_t i = 0; i < 2; i++) {
        struct cluster_device read, asked;
        assert_true(placing_device_of(node.devices[i], &read));
        plan_device_ask(gpu_find(gpu, node.devices[i]->id), &asked);
        assert_string_equal(read.id, asked.id);
        assert_string_equal(read.name, asked.name);
        assert_true(read.kind == asked.kind && read.own_memory == asked.own_memory &&
                    read.speed == CLUSTER_GIVEN);
        assert_true(read.memory_bytes == asked.memory_bytes && read.share == 1 && !read.spare);
        assert_true(read.decode_bytes_per_s == asked.decode_bytes_per_s &&
                    read.prefill_flops == asked.prefill_flops);
        assert_true(fabs(read.launch_s - asked.launch_s) < 1e-12 &&
                    read.read_bytes_per_s == asked.read_bytes_per_s);
        assert_true(node.devices[i]->has_reserve_bytes && node.devices[i]->reserve_bytes == 0);
    }
    placing_describe_clear(&node);
    gpu_close(gpu);
}

static void the_cpu_describes_itself(void **state)
{
    struct gpu *gpu;
    Cluster__Node node = CLUSTER__NODE__INIT;
    Node__Now now = NODE__NOW__INIT;
    struct cluster_device device;
    struct error err = {0};
    assert_int_equal(gpu_open(&(struct gpu_options){.skip_other = true}, &gpu, &err), ERROR_NONE);
    assert_int_equal(placing_describe(gpu, "cpu,none", &node, &err), ERROR_NONE);
    assert_true(node.n_devices == 1 && placing_device_of(node.devices[0], &device));
    assert_true(device.kind == CLUSTER_CPU && !device.own_memory && !device.is_software);
    assert_false(node.devices[0]->has_reserve_bytes);
    assert_true(node.devices[0]->free_bytes <= node.devices[0]->memory_bytes);
    const struct worker_stage stages[] = {
        {.instance = "i", .epoch = 3, .stage = 1, .state = WORKER_READY},
        {.instance = "i", .epoch = 4, .stage = 1, .state = WORKER_LOADING}};
    assert_int_equal(placing_now(gpu, NULL, stages, 2, &now, &err), ERROR_NONE);
    assert_true(now.n_devices == 1 && now.devices[0]->free_bytes > 0 &&
                now.devices[0]->share_ppm == 1000000);
    assert_true(now.tells_held && now.n_held == 1 && now.held[0]->epoch == 3 &&
                now.held[0]->stage == 1);
    placing_now_clear(&now);
    placing_describe_clear(&node);
    for (unsigned nth = 1; nth < 40; nth++) { /* without memory: an error, and nothing is left */
        mem_fail_nth(nth);
        const enum error_code code = placing_describe(gpu, "", &node, &err);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || (code == ERROR_NO_MEMORY && !node.devices));
        placing_describe_clear(&node);
        mem_fail_nth(nth);
        const enum error_code then = placing_now(gpu, NULL, stages, 2, &now, &err);
        mem_fail_nth(0);
        assert_true(then == ERROR_NONE || (then == ERROR_NO_MEMORY && !now.devices && !now.held));
        placing_now_clear(&now);
        if (!code && !then)
            break;
        assert_true(nth < 39);
    }
    gpu_close(gpu);
}

/* Cold and free at first. */
static void heat_is_told(void **state)
{
    struct gpu *gpu =
        open_sim("[hot]\nmemory = 64MiB\ndecode = 1GB/s\nflops = 1GFLOP/s\nlaunch = 0s\n"
                 "power_idle = 5W\npower_max = 100W\nthermal_mass = 2J/K\n"
                 "thermal_resistance = 1.5K/W\nlimit = 80C\nthrottle = 100%\n");
    struct heat *heat;
    struct error err = {0};
    const Node__DeviceNow *hot = NULL;
    Node__Now now = NODE__NOW__INIT;
    assert_int_equal(heat_open(gpu, &(struct heat_options){.period_ms = 50}, &heat, &err),
                     ERROR_NONE);
    for (int i = 0; i < 100 && !(hot && hot->has_headroom_ppm); i++) {
        nanosleep(&(struct timespec){0, 50 * 1000 * 1000}, NULL);
        placing_now_clear(&now);
        assert_int_equal(placing_now(gpu, heat, NULL, 0, &now, &err), ERROR_NONE);
        for (size_t k = 0; k < now.n_devices; k++)
            hot = strcmp(now.devices[k]->id, "sim:hot") ? hot : now.devices[k];
    }
    assert_true(hot && hot->has_headroom_ppm && !now.tells_held);
    assert_true(hot->headroom_ppm > 600000 && hot->headroom_ppm <= 1000000 &&
                hot->share_ppm == 1000000);
    placing_now_clear(&now);
    heat_close(heat);
    gpu_close(gpu);
}

/* What was measured travels, too. */
static void measured_speeds_travel(void **state)
{
    Cluster__Rate rates[2] = {CLUSTER__RATE__INIT, CLUSTER__RATE__INIT},
                  *list[] = {&rates[0], &rates[1]};
    Cluster__Device said = CLUSTER__DEVICE__INIT;
    struct cluster_device device;
    rates[0].type = (char *)"q4_0", rates[0].has_decode_bytes_per_s = true,
    rates[0].decode_bytes_per_s = 1000;
    rates[0].has_prefill_flops = true, rates[0].prefill_flops = 77;
    rates[0].has_decode_spread_ppm = true, rates[0].decode_spread_ppm = 20000;
    rates[1].type = (char *)"f16", rates[1].has_decode_bytes_per_s = true,
    rates[1].decode_bytes_per_s = UINT64_MAX;
    said.id = (char *)"cuda0", said.kind = (char *)"gpu", said.pci = (char *)"0000:01:00.0";
    said.n_rates = 2, said.rates = list;
    said.has_speed = true, said.speed = CLUSTER_MEASURED;
    assert_true(placing_device_of(&said, &device));
    assert_true(device.n_types == 2 && device.types[0].decode_bytes_per_s == 1000 &&
                device.own_memory);
    assert_true(device.types[0].prefill_flops == 77 &&
                fabs(device.types[0].decode_spread - 0.02) < 1e-12);
    assert_true(device.types[1].decode_bytes_per_s == 0); /* no machine */
    said.speed = 99;
    assert_true(placing_device_of(&said, &device) && device.speed == CLUSTER_ASSUMED);
    said.id = (char *)"a b";
    assert_false(placing_device_of(&said, &device));
    said.id = NULL;
    assert_false(placing_device_of(&said, &device));
}

/* ---- placed as the solver does --------------------------------------------------------------- */

/* The same cluster, put together from the devices themselves. */
static void solve_the_same(uint32_t n_slots, const bool *up, uint64_t latency_ns,
                           uint64_t bytes_per_s, char *out, size_t size)
{
    const struct driver_options given = {.context = CONTEXT, .n_slots = n_slots};
    struct driver_options options;
    struct plan_compute compute;
    struct plan_model cost;
    struct cluster cluster = {0};
    struct cluster_problem posed;
    struct placement_solution solution;
    struct error err = {0};
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        if (!up[i])
            continue;
        strcpy(cluster_add_node(&cluster)->name, world_ids[i]);
        for (uint32_t k = 0; k < gpu_device_count(w.gpus[i]); k++) {
            struct cluster_device device;
            plan_device_ask(gpu_device(w.gpus[i], k), &device);
            if (device.speed != CLUSTER_GIVEN) /* the CPU beside them */
                continue;
            device.node = cluster.n_nodes - 1;
            *cluster_add_device(&cluster) = device;
        }
    }
    for (uint32_t i = 0; i < cluster.n_nodes * cluster.n_nodes; i++) {
        if (i / cluster.n_nodes != i % cluster.n_nodes)
            *cluster_add_link(&cluster, false) =
                (struct topology_link){.from = i / cluster.n_nodes,
                                       .to = i % cluster.n_nodes,
                                       .up = true,
                                       .latency_ns = {(double)latency_ns, true},
                                       .jitter_ns = {0, true},
                                       .overhead_ns = {0, true},
                                       .loss_share = {0, true},
                                       .bandwidth_bytes_per_s = {(double)bytes_per_s, true}};
    }
    assert_int_equal(driver_options_fill(&given, gemma, &options, &err), ERROR_NONE);
    plan_compute_estimate(gemma, &options, &compute);
    assert_int_equal(plan_model_init(&cost, gemma, &options, &compute, true, &err), ERROR_NONE);
    const struct placement_demand demand = plan_demand(&options);
    if (cluster_problem_init(&posed, &cluster, &cost.model, &demand, &err))
        fail_msg("%s", err.text);
    const struct placement_options search = placement_options_default();
    if (placement_solve_as_run(&posed.problem, &search, &solution, &err))
        fail_msg("%s", err.text);
    size_t used = 0;
    for (uint32_t i = 0; i < solution.placement.n_stages; i++) {
        const struct placement_device *device = &posed.devices[solution.placement.stages[i].device];
        used += (size_t)snprintf(out + used, size - used, "%s%s/%s %u", i ? ", " : "", device->node,
                                 device->id, solution.placement.stages[i].n_layers);
    }
    cluster_problem_deinit(&posed);
    plan_model_deinit(&cost);
    cluster_deinit(&cluster);
}

static void expect_as_solved(uint32_t n_slots, uint64_t latency_ns, uint64_t bytes_per_s,
                             size_t n_stages_min)
{
    char expected[512];
    world_instance(&w, "i", CONTEXT, n_slots);
    world_step(&w, "i");
    if (master_problem(&w.master, "i"))
        fail_msg("%s", master_problem(&w.master, "i"));
    solve_the_same(n_slots, w.up, latency_ns, bytes_per_s, expected, sizeof expected);
    assert_string_equal(world_stages(&w, "i"), expected);
    assert_true(world_find(&w, "i")->current->n_stages >= n_stages_min);
}

static void two_nodes(void **state)
{
    static const char *const machines[] = {DEVICE("a", "48MiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "44MiB", "300MB/s", "1TFLOP/s")};
    world_open(&w, gemma, machines, 2);
    world_links(&w, 200000, 100000000);
    expect_as_solved(1, 200000, 100000000, 2);
    world_close(&w);
}

static void three_nodes_and_many_streams(void **state)
{
    static const char *const machines[] = {
        DEVICE("a", "1GiB", "100MB/s", "30MFLOP/s"), DEVICE("b", "1GiB", "300MB/s", "10MFLOP/s"),
        DEVICE("c", "1GiB", "200MB/s", "20MFLOP/s") DEVICE("d", "1GiB", "200MB/s", "25MFLOP/s")};
    world_open(&w, gemma, machines, 3);
    world_links(&w, 100000, 1000000000);
    expect_as_solved(8, 100000, 1000000000, 3);
    world_close(&w);
}

/* The type of the KV cache is the instance's: what does not fit as f16 does as q8_0, and what no
 * version knows is said. */
static void the_type_of_the_cache_is_chosen(void **state)
{
    static const char *const machines[] = {DEVICE("a", "44MiB", "1GB/s", "30MFLOP/s")};
    (void)state;
    world_open(&w, gemma, machines, 1);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "");
    world_instance_of(&w, "j", CONTEXT, 1, KV_Q8_0);
    world_step(&w, "j");
    assert_string_equal(world_stages(&w, "j"), "node0/sim:a 7");
    world_instance_of(&w, "k", CONTEXT, 1, KV_TYPES);
    world_step(&w, "k");
    assert_non_null(strstr(master_problem(&w.master, "k"), "does not know KV cache type 4"));
    world_close(&w);
}

/* One node alone: what `medley run` does there. */
static void one_node_as_medley_run(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "1GB/s", "30MFLOP/s")
                                               DEVICE("b", "1GiB", "1GB/s", "10MFLOP/s")};
    struct device *devices[4];
    char expected[256] = "";
    size_t used = 0;
    const struct driver_options options = {.context = CONTEXT, .n_slots = 8};
    struct plan_request request = {.devices = devices, .options = &options};
    struct plan plan;
    struct error err = {0};
    world_open(&w, gemma, machines, 1);
    world_instance(&w, "i", CONTEXT, 8);
    world_step(&w, "i");
    assert_int_equal(gpu_select(w.gpus[0], NULL, devices, 4, &request.n_devices, &err), ERROR_NONE);
    assert_int_equal(plan_make(&plan, gemma, &request, &err), ERROR_NONE);
    for (uint32_t i = 0; i < plan.n_stages; i++)
        used += (size_t)snprintf(expected + used, sizeof expected - used, "%snode0/%s %u",
                                 i ? ", " : "", device_info(plan.stages[i].device)->id,
                                 plan.stages[i].n_layers);
    assert_string_equal(world_stages(&w, "i"), expected);
    /* and the same forecast, but for the compute buffers, which take no time */
    struct placement_forecast forecast, own;
    const struct Cluster__Instance *instance = world_find(&w, "i");
    struct placing_view view = w.placing.view;
    view.state = &w.state;
    if (placing_forecast(&view, instance, instance->current, &forecast, &err))
        fail_msg("%s", err.text);
    placement_forecast(&plan.problem, &plan.solution.placement, &own);
    assert_true(fabs(forecast.decode_tokens_per_s / own.decode_tokens_per_s - 1) < 1e-9);
    assert_true(fabs(forecast.prefill_tokens_per_s / own.prefill_tokens_per_s - 1) < 1e-9);
    plan_deinit(&plan);
    world_close(&w);
}

/* Hidden states that travel in half the bytes take half the time of the wire, and no less
 * latency. */
static void the_wire_counts(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "100MB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "300MB/s", "1TFLOP/s")};
    double rates[2], latencies[2];
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000);
    world_instance(&w, "i", CONTEXT, 1);
    const struct master_node nodes[2] = {{"node0", 1}, {"node1", 1}};
    const struct master_view view = {.state = &w.state, .nodes = nodes, .n_nodes = 2};
    const bool allowed[2] = {true, true};
    for (int half = 0; half < 2; half++) {
        const struct placement_problem *problem;
        const struct master_device *devices;
        struct error err = {0};
        w.placing.view.wire = half ? ACTIVATION_F16 : ACTIVATION_F32;
        if (placing_problem(&w.placing, &view, world_find(&w, "i"), allowed, &problem, &devices,
                            &err))
            fail_msg("%s", err.text);
        rates[half] = placement_link(problem, 0, 1)->bytes_per_s;
        latencies[half] = placement_link(problem, 0, 1)->latency_s;
    }
    assert_true(rates[1] / rates[0] > 1.9 && rates[1] / rates[0] <= 2 &&
                latencies[0] == latencies[1]);
    world_close(&w);
}

/* ---- the context that nobody gave ------------------------------------------------------------ */

static uint32_t wished_context_for(uint32_t n_streams, uint32_t wished)
{
    Cluster__Demand demand = CLUSTER__DEMAND__INIT;
    struct placing_view view = w.placing.view;
    struct cluster cluster;
    struct error err = {0};
    demand.streams = n_streams;
    demand.has_goal = true, demand.goal = PLACEMENT_THROUGHPUT;
    view.state = &w.state;
    for (uint32_t i = 0; i < w.n_nodes; i++)
        w.seen[i].alive = true;
    if (placing_cluster(&view, NULL, &cluster, &err))
        fail_msg("%s", err.text);
    const uint32_t context = placing_context(&cluster, ACTIVATION_F32, gemma, &demand, wished);
    cluster_deinit(&cluster);
    return context;
}

static uint32_t context_for(uint32_t n_streams)
{
    return wished_context_for(n_streams, 0);
}

static bool is_placed_with(const char *id, uint32_t context, uint32_t n_streams)
{
    world_instance(&w, id, context, n_streams);
    world_step(&w, id);
    const bool is_placed = world_find(&w, id)->current != NULL;
    Cluster__InstanceName name = CLUSTER__INSTANCE_NAME__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    name.id = (char *)(uintptr_t)id;
    event.kind_case = CLUSTER__EVENT__KIND_INSTANCE_STOPPED, event.instance_stopped = &name;
    world_apply(&w, &event);
    return is_placed;
}

/* In a large memory it is the model's own, in a small one the usual one, or as much as fits: the
 * next power of two does not. */
static void the_context_is_what_fits(void **state)
{
    static const char *const roomy[] = {DEVICE("a", "8GiB", "1GB/s", "30MFLOP/s")},
                             *const tight[] = {DEVICE("a", "44MiB", "1GB/s", "30MFLOP/s")},
                             *const two[] = {DEVICE("a", "44MiB", "1GB/s", "30MFLOP/s"),
                                             DEVICE("b", "44MiB", "1GB/s", "30MFLOP/s")},
                             *const none[] = {DEVICE("a", "4MiB", "1GB/s", "30MFLOP/s")};
    struct hyperparameters *h = (struct hyperparameters *)(uintptr_t)model_hyperparameters(gemma);
    const uint32_t n_context_train = h->n_context_train, own = h->n_context_train = 20000;
    world_open(&w, gemma, roomy, 1);
    assert_int_equal(context_for(1), own);
    assert_int_equal(wished_context_for(1, 3000), 3000);
    assert_int_equal(wished_context_for(1, 2 * own), own);
    world_close(&w);
    world_open(&w, gemma, tight, 1);
    assert_int_equal(context_for(1), PLACING_CONTEXT_USUAL);
    const uint32_t shorter = context_for(16);
    assert_int_equal(wished_context_for(16, 4 * shorter), shorter); /* halved until it fits */
    assert_true(shorter >= 512 && shorter < PLACING_CONTEXT_USUAL);
    assert_true(is_placed_with("i", shorter, 16));
    assert_false(is_placed_with("j", 2 * shorter, 16));
    world_close(&w);
    world_open(&w, gemma, two, 2);
    world_links(&w, 200000, 100000000);
    assert_true(context_for(16) > shorter); /* both machines' memory counts */
    world_close(&w);
    world_open(&w, gemma, none, 1);
    assert_int_equal(context_for(64), PLACING_CONTEXT_USUAL); /* which is refused by name */
    world_close(&w);
    h->n_context_train = n_context_train;
}

/* ---- where nothing fits ---------------------------------------------------------------------- */

static struct model *demo; /* five layers */

static void open_demo(void)
{
    char path[PATH_MAX];
    struct error err = {0};
    snprintf(path, sizeof path, "%s/models/demo.gguf", getenv("MEDLEY_ROOT"));
    assert_int_equal(model_open(path, &demo, &err), ERROR_NONE);
}

/* What fits on no devices is placed with a part of its weights on the disks, at a speed that says
 * so; what it takes of memory counts as such for others; a disk that was measured is counted. */
static void what_does_not_fit_is_streamed(void **state)
{
    static const char *const machines[] = {DEVICE("a", "4MiB", "1GB/s", "30MFLOP/s")};
    uint32_t context = 16;
    struct placement_forecast slow, fast;
    struct error err = {0};
    open_demo();
    world_open(&w, demo, machines, 1);
    while (is_placed_with("fits", context, 1))
        context += 16;
    w.planner.stream = placing_stream;
    world_instance(&w, "i", context, 1);
    world_step(&w, "i");
    const struct Cluster__Instance *instance = world_find(&w, "i");
    if (!instance->current)
        fail_msg("%s", master_problem(&w.master, "i"));
    uint32_t n_streamed = 0;
    for (size_t i = 0; i < instance->current->n_stages; i++)
        n_streamed += instance->current->stages[i]->n_streamed;
    assert_true(n_streamed > 0);
    struct placing_view view = w.placing.view;
    view.state = &w.state;
    for (uint32_t i = 0; i < w.n_nodes; i++)
        w.seen[i].alive = true;
    if (placing_forecast(&view, instance, instance->current, &slow, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < w.n_nodes; i++) {
        world_hear(&w, i);
        w.now[i].has_disk_bytes_per_s = true;
        w.now[i].disk_bytes_per_s = 10 * PLAN_STREAM_DISK_BPS;
        w.seen[i].now = &w.now[i];
    }
    if (placing_forecast(&view, instance, instance->current, &fast, &err))
        fail_msg("%s", err.text);
    print_message("# %s: %u streamed, %.1f tok/s, %.1f from disks ten times as fast\n",
                  world_stages(&w, "i"), n_streamed, slow.decode_tokens_per_s,
                  fast.decode_tokens_per_s);
    assert_true(fast.decode_tokens_per_s > 1.2 * slow.decode_tokens_per_s);
    world_close(&w);
    model_close(demo);
}

/* A planner's `solve` that has had no time. */
static enum error_code no_time(void *solver, const char *instance, bool beside,
                               const struct placement_problem *problem,
                               struct placement_solution *out, struct error *err)
{
    (void)solver, (void)instance, (void)beside, (void)problem;
    *out = (struct placement_solution){0};
    return master_answer_ended(ERROR_BUSY, err);
}

/* No time for the search in memory: it streams, and says that memory might have held it. */
static void what_is_not_found_in_time_is_streamed(void **state)
{
    static const char *const machines[] = {DEVICE("a", "4MiB", "1GB/s", "30MFLOP/s")};
    uint32_t context = 16;
    (void)state;
    open_demo();
    world_open(&w, demo, machines, 1);
    while (is_placed_with("fits", context, 1))
        context += 16;
    w.planner.solve = no_time;
    world_instance(&w, "i", context, 1);
    world_step(&w, "i");
    assert_null(world_find(&w, "i")->current);
    assert_non_null(strstr(master_problem(&w.master, "i"), "none is ruled out"));
    w.planner.stream = placing_stream;
    world_step(&w, "i");
    const struct Cluster__Instance *instance = world_find(&w, "i");
    if (!instance->current)
        fail_msg("%s", master_problem(&w.master, "i"));
    assert_non_null(strstr(instance->current->why, "in time: it streams"));
    world_close(&w);
    model_close(demo);
}

/* Of two stages of `demo`, each of which streams. */
static double forecast_of_streaming(const char *const *machines, uint32_t n_machines,
                                    uint32_t n_streams)
{
    struct placement_forecast forecast;
    struct error err = {0};
    Cluster__Stage stages[2] = {CLUSTER__STAGE__INIT, CLUSTER__STAGE__INIT};
    Cluster__Stage *list[] = {&stages[0], &stages[1]};
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    placement.n_stages = 2, placement.stages = list;
    for (uint32_t i = 0; i < 2; i++) {
        stages[i].node = (char *)(uintptr_t)world_ids[n_machines > 1 ? i : 0];
        stages[i].device = (char *)(uintptr_t)(i ? "sim:b" : "sim:a");
        stages[i].first_layer = i ? 3 : 0, stages[i].n_layers = i ? 2 : 3;
        stages[i].has_weights_max = true, stages[i].weights_max = 1100 << 10;
    }
    world_open(&w, demo, machines, n_machines);
    if (n_machines > 1)
        world_links(&w, 10000, 1000000000);
    world_instance(&w, "i", 256, n_streams);
    struct placing_view view = w.placing.view;
    view.state = &w.state;
    for (uint32_t i = 0; i < n_machines; i++)
        w.seen[i].alive = true;
    if (placing_forecast(&view, world_find(&w, "i"), &placement, &forecast, &err))
        fail_msg("%s", err.text);
    world_close(&w);
    return forecast.decode_tokens_per_s;
}

/* At once they wait for what both read; one after the other each has all of the disk. */
static void devices_of_a_node_share_its_disk(void **state)
{
    static const char *const one[] = {DEVICE("a", "64MiB", "10GB/s", "10TFLOP/s")
                                          DEVICE("b", "64MiB", "10GB/s", "10TFLOP/s")};
    static const char *const two[] = {DEVICE("a", "64MiB", "10GB/s", "10TFLOP/s"),
                                      DEVICE("b", "64MiB", "10GB/s", "10TFLOP/s")};
    (void)state;
    open_demo();
    const double one_at_once = forecast_of_streaming(one, 1, 2),
                 two_at_once = forecast_of_streaming(two, 2, 2),
                 one_in_turn = forecast_of_streaming(one, 1, 1),
                 two_in_turn = forecast_of_streaming(two, 2, 1);
    print_message("# 2 streams: %.1f tok/s from one disk, %.1f from two; 1 stream: %.1f, %.1f\n",
                  one_at_once, two_at_once, one_in_turn, two_in_turn);
    assert_true(one_at_once < 0.75 * two_at_once);
    assert_true(one_at_once > 0.45 * two_at_once);
    assert_true(one_in_turn > 0.99 * two_in_turn && one_in_turn < 1.1 * two_in_turn);
    model_close(demo);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_says_it_all),
        cmocka_unit_test(the_cpu_describes_itself),
        cmocka_unit_test(heat_is_told),
        cmocka_unit_test(measured_speeds_travel),
        cmocka_unit_test(two_nodes),
        cmocka_unit_test(three_nodes_and_many_streams),
        cmocka_unit_test(the_type_of_the_cache_is_chosen),
        cmocka_unit_test(one_node_as_medley_run),
        cmocka_unit_test(the_context_is_what_fits),
        cmocka_unit_test(what_does_not_fit_is_streamed),
        cmocka_unit_test(what_is_not_found_in_time_is_streamed),
        cmocka_unit_test(devices_of_a_node_share_its_disk),
        cmocka_unit_test(the_wire_counts),
    };
    return cmocka_run_group_tests(tests, open_gemma, close_gemma);
}
