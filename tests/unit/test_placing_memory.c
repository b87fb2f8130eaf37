/* The memory that instances leave each other, step by step: placed, loaded, measured, heard of,
 * failed, replaced. */
#include "engine/batch_shape.h"
#include "placement/cost.h"
#include "placing_world.h"
#include "sim_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct placing_world w;

/* What node i's device k has for an instance. */
static uint64_t memory_for(const char *instance, uint32_t device)
{
    struct placing_view view = w.placing.view;
    struct cluster cluster;
    struct error err = {0};
    view.state = &w.state;
    if (placing_cluster(&view, instance, &cluster, &err))
        fail_msg("%s", err.text);
    const uint64_t bytes = cluster.devices[device].memory_bytes;
    assert_true(cluster.devices[device].reserve_bytes <= bytes);
    cluster_deinit(&cluster);
    return bytes;
}

/* What a whole gemma takes, by what is missing from the first instance's view to the second's. */
static void two_instances(void **state)
{
    static const char *const machines[] = {DEVICE("a", "100MiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("b", "100MiB", "100MB/s", "1TFLOP/s")};
    const uint64_t all = 100 << 20;
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"), "node0/sim:a 7");
    const uint64_t epoch = state_epoch(world_find(&w, "i"));

    /* placed, not loaded: nobody has measured it, and it is still to come; but not for itself */
    world_hear(&w, 0);
    world_step(&w, "i");
    assert_true(memory_for("i", 0) == all && memory_for("j", 1) == all);
    const uint64_t size = all - memory_for("j", 0);
    assert_in_range(size, 14 << 20, 60 << 20);
    assert_true(memory_for(NULL, 0) == all - size);

    /* loaded, measured, and the node says so; the log does not know yet */
    struct device *device = gpu_find(w.gpus[0], "sim:a");
    assert_int_equal(device_reserve(device, size, NULL), ERROR_NONE);
    world_hold(&w, 0, "i", epoch, 0);
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);

    /* the log says ready, but what was heard is older: it does not count in what was measured */
    world_report(&w, "i", epoch, CLUSTER__STAGE_STATE__READY);
    device_release(device, size);
    world_hold(&w, 0, NULL, 0, 0);
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);

    /* a node that tells nothing of its stages: the log is believed */
    assert_int_equal(device_reserve(device, size, NULL), ERROR_NONE);
    world_hear(&w, 0);
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);

    /* the second one goes where the first leaves room: not onto the fast one */
    world_instance(&w, "j", CONTEXT, 3);
    world_step(&w, "j");
    if (master_problem(&w.master, "j"))
        fail_msg("%s", master_problem(&w.master, "j"));
    assert_non_null(strstr(world_stages(&w, "j"), "node1/sim:b"));
    device_release(device, size);
    world_close(&w);
}

static void lend(uint64_t bytes)
{
    for (size_t i = 0; i < w.now[0].n_devices; i++) {
        w.now[0].devices[i]->has_lent_bytes = true;
        w.now[0].devices[i]->lent_bytes = bytes;
    }
}

static bool is_over(const char *instance)
{
    struct placing_view view = w.placing.view;
    bool over = false;
    view.state = &w.state;
    assert_int_equal(placing_over_lent(&view, instance, &over, NULL), ERROR_NONE);
    return over;
}

/* What an owner lends limits all instances together, whatever is free. */
static void a_loan_is_a_limit(void **state)
{
    static const char *const machines[] = {DEVICE("a", "100MiB", "300MB/s", "1TFLOP/s")};
    const uint64_t all = 100 << 20;
    world_open(&w, gemma, machines, 1);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    world_hear(&w, 0);
    const uint64_t size = all - memory_for("j", 0), epoch = state_epoch(world_find(&w, "i"));
    world_hold(&w, 0, "i", epoch, 0);
    for (size_t i = 0; i < w.now[0].n_devices; i++)
        w.now[0].devices[i]->free_bytes -= size;
    world_step(&w, "i"); /* which hears it */
    lend(all);
    assert_true(memory_for("i", 0) == all && memory_for("j", 0) == all - size && !is_over("i"));
    lend(size);
    assert_int_equal(memory_for("i", 0), size);
    assert_int_equal(memory_for("j", 0), 0);
    assert_true(!is_over("i") && !is_over("j"));
    lend(size - 1);
    assert_true(memory_for("i", 0) == size - 1 && memory_for("j", 0) == 0 && is_over("i"));
    lend(0);
    assert_true(memory_for("i", 0) == 0 && is_over("i") && !is_over("j"));
    world_close(&w);
}

/* What has failed takes nothing; what was replaced goes before what comes. */
static void failed_and_replaced(void **state)
{
    static const char *const machines[] = {DEVICE("a", "100MiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("b", "100MiB", "100MB/s", "1TFLOP/s")};
    const uint64_t all = 100 << 20;
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "i", CONTEXT, 1);
    world_step(&w, "i");
    world_step(&w, "i");
    const uint64_t size = all - memory_for("j", 0), epoch = state_epoch(world_find(&w, "i"));
    world_hold(&w, 0, "i", epoch, 0);
    for (size_t i = 0; i < w.now[0].n_devices; i++) /* as measured with it loaded */
        w.now[0].devices[i]->free_bytes -= size;
    world_step(&w, "i");
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);
    world_report(&w, "i", epoch, CLUSTER__STAGE_STATE__FAILED);
    assert_true(memory_for("j", 0) == all - size); /* failed, but it is still held */
    world_step(
        &w, "i"); /* the same again, under a new epoch: taken over, so it counts once, as loaded */
    world_step(&w, "i");
    const Cluster__Instance *instance = world_find(&w, "i");
    assert_true(instance->next && instance->next->replaces && instance->next->epoch > epoch);
    assert_string_equal(world_stages(&w, "i"), "node0/sim:a 7");
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);
    world_hold(&w, 0, NULL, 0, 0); /* it went */
    assert_true(memory_for("j", 0) == all - size && memory_for("i", 0) == all);
    world_report(&w, "i", instance->next->epoch, CLUSTER__STAGE_STATE__FAILED);
    assert_true(memory_for("j", 0) == all && memory_for("i", 0) == all);
    world_close(&w);
}

/* Of a machine of whose devices two live in its memory. The weights of what is loaded are measured
 * as free. */
static void host_memory(void **state)
{
    Cluster__Device devices[2] = {CLUSTER__DEVICE__INIT, CLUSTER__DEVICE__INIT},
                    *list[] = {&devices[0], &devices[1]};
    Cluster__Node node = CLUSTER__NODE__INIT;
    const uint64_t all = 64 << 20, free = 56 << 20;
    world_open(&w, gemma, NULL, 0);
    for (int i = 0; i < 2; i++) {
        devices[i].id = i ? (char *)"igpu" : (char *)"cpu";
        devices[i].kind = i ? (char *)"integrated gpu" : (char *)"cpu";
        devices[i].has_shares_host_memory = devices[i].shares_host_memory = true;
        devices[i].has_memory_bytes = devices[i].has_free_bytes = true;
        devices[i].memory_bytes = all, devices[i].free_bytes = free;
    }
    node.id = node.name = (char *)"node0", node.has_member = true, node.member = 1;
    node.n_devices = 2, node.devices = list;
    world_node(&w, &node);
    w.n_nodes = 1, w.up[0] = true, w.placing.view.n_seen = 1;
    node__now__init(&w.now[0]);
    world_instance(&w, "i", 4096, 1);
    world_step(&w, "i");
    assert_string_equal(world_stages(&w, "i"),
                        "node0/cpu 7"); /* the first of equals, in all of the memory */
    world_step(&w, "i");
    const uint64_t size = free - memory_for("j", 0), epoch = state_epoch(world_find(&w, "i"));
    assert_in_range(size, 1 << 20, 50 << 20);
    assert_true(memory_for("j", 1) == free - size &&
                memory_for("i", 1) == free); /* whichever of the two it is on */

    Node__Held held = NODE__HELD__INIT, *held_list = &held;
    Node__DeviceNow now[2] = {NODE__DEVICE_NOW__INIT, NODE__DEVICE_NOW__INIT},
                    *now_list[] = {&now[0], &now[1]};
    Node__Now heard = NODE__NOW__INIT;
    held.instance = (char *)"i", held.epoch = epoch;
    heard.tells_held = true, heard.n_held = 1, heard.held = &held_list;
    heard.n_devices = 2, heard.devices = now_list;
    for (int i = 0; i < 2; i++)
        now[i].id = devices[i].id, now[i].has_free_bytes = true,
        now[i].free_bytes = free - (1 << 20);
    w.seen[0].now = &heard; /* loaded: a MiB is gone, the rest is mapped */
    assert_true(memory_for("j", 0) == free - size && memory_for("j", 1) == free - size);
    assert_true(memory_for("i", 0) == free);     /* not more than it ever had */
    now[0].free_bytes = free - size - (2 << 20); /* and others take more, too */
    assert_true(memory_for("j", 0) == free - size - (2 << 20));
    now[0].free_bytes = UINT64_MAX; /* a lie */
    assert_true(memory_for("i", 0) == all);
    state_deinit(&w.state);
    placing_deinit(&w.placing);
}

static const struct placement_problem *problem_of(const char *instance)
{
    const struct master_node nodes[2] = {{"node0", 1}, {"node1", 1}};
    const struct master_view view = {.state = &w.state, .nodes = nodes, .n_nodes = 2};
    const bool allowed[2] = {true, true};
    const struct placement_problem *problem;
    const struct master_device *devices;
    struct error err = {0};
    if (placing_problem(&w.placing, &view, world_find(&w, instance), allowed, &problem, &devices,
                        &err))
        fail_msg("%s", err.text);
    return problem;
}

static uint64_t bytes_of(const char *instance)
{
    return placement_stage_bytes(problem_of(instance), &(struct placement_stage){0, 0, LAYERS});
}

/* Cells for so many contexts take what the contexts take and, where attention wants a copy, those
 * of one layer, however many streams share them; and the forecast is of as many streams. A node of
 * a version that knows no cells is left out. */
static void shared_cells(void **state)
{
    static const char *const machines[] = {DEVICE("a", "1GiB", "300MB/s", "1TFLOP/s"),
                                           DEVICE("b", "1GiB", "100MB/s", "1TFLOP/s")};
    world_open(&w, gemma, machines, 2);
    world_links(&w, 100000, 1000000000);
    world_instance(&w, "apart", CONTEXT, 4);
    world_instance(&w, "shared", CONTEXT, 16);
    Cluster__Demand *demand = world_find(&w, "shared")->demand;
    demand->has_cells = true, demand->cells = 4 * kv_cells(CONTEXT);
    const uint64_t copied = bytes_of("shared") - bytes_of("apart");
    assert_in_range(copied, 1, bytes_of("apart") / 8);
    assert_int_equal(copied % demand->cells, 0);
    assert_int_equal(problem_of("shared")->demand.streams, 4);
    demand->cells *= 2;
    assert_true(bytes_of("shared") > bytes_of("apart"));
    assert_int_equal(problem_of("shared")->demand.streams, 8);
    assert_true(problem_of("shared")->devices[1].share > 0);
    w.state.root->nodes[1]->node->devices[0]->has_shares_cells = false;
    assert_true(problem_of("shared")->devices[0].share > 0 &&
                problem_of("shared")->devices[1].share == 0);
    assert_true(problem_of("apart")->devices[1].share > 0);
    world_close(&w);
}

/* It is whole where the first layers are, beside them. */
static void a_draft_model(void **state)
{
    (void)state;
    static const char *const machines[] = {DEVICE("a", "1GiB", "300MB/s", "1TFLOP/s")};
    const struct placement_stage last = {0, LAYERS - 1, 1};
    world_open(&w, gemma, machines, 1);
    world_instance(&w, "i", CONTEXT, 4);
    const uint64_t whole = bytes_of("i"), behind = placement_stage_bytes(problem_of("i"), &last);
    Cluster__Demand *demand = world_find(&w, "i")->demand;
    demand->draft = (char *)"m"; /* itself */
    assert_int_equal(bytes_of("i"), 2 * whole);
    assert_int_equal(placement_stage_bytes(problem_of("i"), &last), behind);
    demand->speculate = SPECULATE_OFF;
    assert_int_equal(bytes_of("i"), whole);
    demand->speculate = SPECULATE_LOOKUP;
    world_instance(&w, "j", CONTEXT, 4); /* of the same model: that guesses where it is placed */
    world_step(&w, "j");
    demand = world_find(&w, "i")->demand;
    assert_int_equal(bytes_of("i"), whole);
    demand->draft = (char *)"forgotten";
    assert_int_equal(bytes_of("i"), whole);
    demand->draft = NULL;
    world_close(&w);
}

/* Where "i" would guess, its layers all on sim:a; its draft is "m" itself. sim:b has so much free;
 * `asked` for by its owner, or NULL. */
static const char *draft_device(const char *const *machines, const char *asked, bool is_taken,
                                double *gain)
{
    static struct placing_draft draft;
    struct placement_forecast forecast;
    struct error err = {0};
    Cluster__Stage stage = CLUSTER__STAGE__INIT;
    Cluster__Stage *list[] = {&stage};
    Cluster__Placement placement = CLUSTER__PLACEMENT__INIT;
    placement.n_stages = 1, placement.stages = list;
    stage.node = (char *)(uintptr_t)world_ids[0], stage.device = (char *)(uintptr_t)"sim:a";
    stage.n_layers = LAYERS;
    world_open(&w, gemma, machines, 1);
    world_instance(&w, "i", CONTEXT, 1);
    world_find(&w, "i")->demand->draft = (char *)(uintptr_t)"m";
    world_find(&w, "i")->demand->draft_device = (char *)(uintptr_t)asked;
    if (is_taken) {
        world_instance(&w, "j", CONTEXT, 1);
        world_step(&w, "j");
        assert_non_null(strstr(world_stages(&w, "j"), "node0/sim:b"));
    }
    w.seen[0].alive = true;
    struct placing_view view = w.placing.view;
    view.state = &w.state;
    if (placing_forecast(&view, world_find(&w, "i"), &placement, &forecast, &err))
        fail_msg("%s", err.text);
    *gain = forecast.guessed.drafted / forecast.guessed.without;
    assert_true(placing_draft_place(&view, world_find(&w, "i"), &placement, &draft));
    world_find(&w, "i")->demand->draft = world_find(&w, "i")->demand->draft_device = NULL;
    world_close(&w);
    assert_true(draft.share > 0 && (draft.share < .9) == (*gain > 1.3));
    return draft.device;
}

/* On another device of that node, if guesses are quicker there and nobody has it. */
static void a_draft_on_a_device_of_its_own(void **state)
{
    (void)state;
    static const char *const slower[] = {DEVICE("a", "1GiB", "300MB/s", "1TFLOP/s")
                                             DEVICE("b", "1GiB", "100MB/s", "1TFLOP/s")},
                             *const quicker[] = {DEVICE("a", "1GiB", "300MB/s", "1TFLOP/s")
                                                     DEVICE("b", "1GiB", "9GB/s", "1TFLOP/s")};
    double gain;
    assert_string_equal(draft_device(slower, NULL, false, &gain), "sim:a");
    assert_true(gain < 1.01); /* a guess takes as long as a token */
    assert_string_equal(draft_device(quicker, NULL, false, &gain), "sim:b");
    assert_true(gain > 1.3);
    assert_string_equal(draft_device(quicker, NULL, true, &gain), ""); /* an instance on sim:b */
    assert_true(gain > 1.3);
    assert_string_equal(draft_device(slower, "sim:b", false, &gain), "sim:b");
    assert_true(gain < 1.01); /* its owner will have it so */
    assert_string_equal(draft_device(quicker, "sim:a", false, &gain), "sim:a");
    assert_string_equal(draft_device(quicker, "sim:b", true, &gain), "sim:a"); /* it is taken */
    assert_string_equal(draft_device(quicker, "sim:c", false, &gain), "sim:b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_instances),
        cmocka_unit_test(a_loan_is_a_limit),
        cmocka_unit_test(failed_and_replaced),
        cmocka_unit_test(shared_cells),
        cmocka_unit_test(host_memory),
        cmocka_unit_test(a_draft_model),
        cmocka_unit_test(a_draft_on_a_device_of_its_own),
    };
    return cmocka_run_group_tests(tests, open_gemma, close_gemma);
}
