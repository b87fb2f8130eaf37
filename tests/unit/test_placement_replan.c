/* When to move, to where, by which moves: by hand; and what is refused. */
#include "base/mem.h"
#include "placement/check.h"
#include "placement/prefill.h"
#include "replan_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.12g is not %.12g", a, b);
}

enum { MB = 1000 * 1000 };

/* Three devices of 1, 2 and 2 GB/s on nodes of their own; four layers of 100 MB; hops of 5 ms + 1
 * KB at 100 MB/s. */
static void make_plain(void)
{
    memset(&world, 0, sizeof world);
    world.problem = (struct placement_problem){
        .n_devices = 3,
        .devices = world.devices,
        .links = world.links,
        .model = {.n_types = 1,
                  .n_layers = 4,
                  .layers = world.layers,
                  .activation_bytes_per_token = 1000},
        .demand = {.context_tokens = 1000, .streams = 1, .prompt_tokens = 64, .chunk_tokens = 16},
    };
    for (uint32_t i = 0; i < 4; i++) {
        world.layers[i].bytes[0] = world.layers[i].bytes_per_token[0] = 100 * MB;
        world.layers[i].flops_per_token[0] = 1e9;
        world.layers[i].kv_bytes_per_token = 10;
    }
    for (uint32_t i = 0; i < 3; i++) {
        world.devices[i] =
            (struct placement_device){.memory_free_bytes = 900 * (uint64_t)MB, .share = 1};
        world.devices[i].decode_bytes_per_s[0] = i == 0 ? 1e9 : 2e9;
        world.devices[i].kv_bytes_per_s = 1e18;
        world.devices[i].prefill_flops[0] = 1e12;
        snprintf(world.devices[i].id, sizeof world.devices[i].id, "gpu%u", i);
        snprintf(world.devices[i].node, sizeof world.devices[i].node, "node%u", i);
    }
    for (uint32_t i = 0; i < 9; i++)
        world.links[i] = (struct placement_link){0.005, 100e6};
    replan_world_start(400e6);
}

/* ---- costs by hand -------------------------------------------------------------------- */

static void costs_by_hand(void **unused)
{
    struct replan_plan plan;
    make_plain();
    const struct placement now = {2, {{0, 0, 3}, {1, 3, 1}}}, then = {2, {{0, 0, 1}, {1, 1, 3}}};
    replan_world_set_layout(&now);
    input.kv_tokens = 500;
    input.tokens = 1000;
    assert_int_equal(replan_to(&input, &options, &then, &plan, NULL), ERROR_NONE);
    assert_int_equal(plan.n_moves, 1);
    assert_true(plan.moves[0].first_layer == 1 && plan.moves[0].n_layers == 2);
    assert_true(plan.moves[0].from == 0 && plan.moves[0].to == 1 && plan.moves[0].source == 1);
    assert_int_equal(plan.weight_bytes, 200 * MB);
    assert_int_equal(plan.kv_bytes, 2 * 10 * 500);
    near(plan.load_s, 0.5);
    near(plan.pause_s, options.switch_s + 0.005 + 1e-4);
    assert_true(plan.beside && !plan.replay);
    const double old_s = 0.3 + 0.05 + 0.01001 + 4e-8, new_s = 0.1 + 0.15 + 0.01001 + 4e-8;
    near(plan.total_s, 0.5 + plan.pause_s + (1000 - 0.5 / old_s) * new_s);
    /* No memory for both: nothing is decoded while it loads. */
    world.devices[1].memory_free_bytes = 310 * (uint64_t)MB;
    const struct placement away = {2, {{1, 0, 3}, {0, 3, 1}}};
    assert_int_equal(replan_to(&input, &options, &away, &plan, NULL), ERROR_NONE);
    assert_false(plan.beside);
    near(plan.load_s, 0.75); /* both disks at once */
    near(plan.total_s, 0.75 + plan.pause_s + 1000 * (0.15 + 0.1 + 0.01001 + 4e-8));
    /* Large KV caches: 10 s to copy, so tokens are replayed. */
    for (uint32_t i = 0; i < 4; i++)
        world.layers[i].kv_bytes_per_token = MB;
    world.devices[0].memory_free_bytes = world.devices[1].memory_free_bytes = 9000 * (uint64_t)MB;
    assert_int_equal(replan_to(&input, &options, &then, &plan, NULL), ERROR_NONE);
    assert_true(plan.replay && plan.kv_bytes == 0 && plan.moves[0].kv_bytes == 0);
    near(plan.pause_s,
         options.switch_s + 500 / placement_prefill_tokens_per_s(&world.problem, &then));
}

static void weights_come_from_who_has_them(void **unused)
{
    struct replan_plan plan;
    make_plain();
    const struct placement now = {1, {{0, 0, 4}}}, then = {2, {{1, 0, 2}, {2, 2, 2}}};
    replan_world_set_layout(&now);
    disks[1].disk_bytes_per_s = disks[2].disk_bytes_per_s = 0;
    world.links[1 * 3 + 2].bytes_per_s = 200e6; /* of no use: node1 has no file */
    assert_int_equal(replan_to(&input, &options, &then, &plan, NULL), ERROR_NONE);
    assert_int_equal(plan.n_moves, 2);
    assert_true(plan.moves[0].source == 0 && plan.moves[1].source == 0);
    near(plan.load_s, 2 * (0.005 + 2)); /* one after the other */
    disks[1].disk_bytes_per_s = 150e6;
    assert_int_equal(replan_to(&input, &options, &then, &plan, NULL), ERROR_NONE);
    assert_true(plan.moves[0].source == 1 && plan.moves[1].source == 1);
    near(plan.load_s, fmax(200e6 / 150e6, 0.005 + 200e6 / 150e6));
    disks[0].disk_bytes_per_s = disks[1].disk_bytes_per_s =
        0; /* node0 still has them in its device */
    assert_int_equal(replan_to(&input, &options, &then, &plan, NULL), ERROR_NONE);
    assert_true(plan.moves[0].source == 0);
    strcpy(layout.runs[0].device, "lost");
    struct error err;
    assert_int_equal(replan_to(&input, &options, &then, &plan, &err), ERROR_NOT_FOUND);
    assert_non_null(strstr(err.text, "has the model's weights"));
    replan_world_step(0);
    assert_int_equal(decision.verdict, REPLAN_NOWHERE);
    assert_string_equal(decision.why, "no device that is linked has the model's weights");
}

/* ---- decisions ------------------------------------------------------------------------- */

static void a_move_must_pay_and_settle(void **unused)
{
    make_plain();
    world.devices[1].memory_free_bytes = world.devices[2].memory_free_bytes = 0;
    const struct placement alone = {1, {{0, 0, 4}}};
    replan_world_set_layout(&alone);
    replan_world_step(100);
    assert_true(decision.verdict == REPLAN_STAY && decision.running);
    near(decision.current_tokens_per_s, 2.5);
    world.devices[1].memory_free_bytes = 900 * (uint64_t)MB;
    input.tokens = 2; /* loading takes 1 s */
    replan_world_step(101);
    assert_int_equal(decision.verdict, REPLAN_STAY);
    input.tokens = 1e5;
    replan_world_step(102);
    assert_int_equal(decision.verdict, REPLAN_WAIT);
    near(decision.wait_s, 10);
    replan_world_step(108);
    near(decision.wait_s, 4);
    input.tokens = 2; /* no longer: it begins anew */
    replan_world_step(109);
    assert_int_equal(decision.verdict, REPLAN_STAY);
    input.tokens = 0;
    input.seconds = 3600;
    replan_world_step(110);
    near(decision.wait_s, 10);
    replan_world_step(120);
    assert_int_equal(decision.verdict, REPLAN_MOVE);
    assert_true(decision.plan.target.n_stages == 1 && decision.plan.target.stages[0].device == 1);
    near(decision.stay_s, 3600);
    near(decision.gain_s, decision.stay_s - decision.plan.total_s);
    near(decision.plan.decode_tokens_per_s, 5);
    near(decision.current_tokens_per_s, 2.5);
    near(decision.plan.load_s, 1);
    assert_true(decision.plan.beside && decision.plan.n_moves == 1);
    const struct replan_move *move = &decision.plan.moves[0];
    assert_true(move->first_layer == 0 && move->n_layers == 4);
    assert_true(move->from == 0 && move->to == 1 && move->source == 1);
    assert_int_equal(move->weight_bytes, 400 * MB);
    /* It moved; a third, faster still, must wait for the hold. */
    replan_world_set_layout(&decision.plan.target);
    world.devices[2].memory_free_bytes = 900 * (uint64_t)MB;
    world.devices[2].decode_bytes_per_s[0] = 8e9;
    replan_world_step(121);
    assert_int_equal(decision.verdict, REPLAN_WAIT);
    near(decision.wait_s, 59);
    replan_world_step(179);
    assert_int_equal(decision.verdict, REPLAN_WAIT);
    replan_world_step(180);
    assert_int_equal(decision.verdict, REPLAN_MOVE);
    near(state.cooldown_s, 120);
}

static void a_lost_device_moves_its_layers_only(void **unused)
{
    make_plain();
    const struct placement now = {3, {{0, 0, 1}, {1, 1, 2}, {2, 3, 1}}};
    for (uint32_t i = 0; i < 3; i++)
        world.devices[i].memory_free_bytes = 310 * (uint64_t)MB;
    replan_world_set_layout(&now);
    input.tokens = 20;
    input.kv_tokens = 100;
    strcpy(layout.runs[2].device, "lost");
    world.devices[2].excluded = true;
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_false(decision.running);
    assert_string_equal(decision.why, "lost of node2 is gone");
    assert_true(decision.stay_s == INFINITY && decision.plan.replay && !decision.plan.beside);
    assert_int_equal(decision.plan.n_moves, 1);
    assert_true(decision.plan.moves[0].first_layer == 3 &&
                decision.plan.moves[0].from == REPLAN_GONE);
    replan_world_step(5.1); /* again, while it has not been done */
    assert_int_equal(decision.verdict, REPLAN_MUST);
    /* Nowhere to go. */
    world.devices[1].excluded = true;
    replan_world_step(6);
    assert_int_equal(decision.verdict, REPLAN_NOWHERE);
    assert_non_null(strstr(decision.why, "are missing"));
    /* Not placed yet at all. */
    world.devices[1].excluded = false;
    layout.n_runs = 0;
    input.kv_tokens = 0;
    replan_world_step(7);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_string_equal(decision.why, "it is nowhere yet");
    assert_int_equal(decision.plan.n_moves, decision.plan.target.n_stages);
}

/* Excluded, for heat or by hand: it still works while the weights load elsewhere, and its KV cache
 * is copied. */
static void a_hot_device_hands_over(void **unused)
{
    make_plain();
    const struct placement now = {1, {{1, 0, 4}}};
    replan_world_set_layout(&now);
    input.kv_tokens = 100;
    world.devices[1].excluded = true;
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_true(decision.running && decision.plan.beside && !decision.plan.replay);
    assert_true(decision.plan.target.n_stages == 1 && decision.plan.target.stages[0].device == 2);
    assert_non_null(strstr(decision.why, "gpu1 is not to be used"));
    assert_int_equal(decision.plan.kv_bytes, 4 * 10 * 100);
    near(decision.plan.decode_tokens_per_s, 5);
}

/* Its best placement, with alike devices exchanged, is no reason to move. */
static void alike_devices_stay_where_they_are(void **unused)
{
    make_plain();
    for (uint32_t i = 0; i < 3; i++) {
        world.devices[i].decode_bytes_per_s[0] = 2e9;
        world.devices[i].memory_free_bytes = 210 * (uint64_t)MB;
    }
    world.devices[0].excluded = true;
    const struct placement now = {2, {{2, 0, 2}, {1, 2, 2}}};
    replan_world_set_layout(&now);
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_STAY);
    /* One of the two goes, its twin comes: the other one stays. */
    world.devices[0].excluded = false;
    world.devices[2].excluded = true;
    replan_world_step(6);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_int_equal(decision.plan.n_moves, 1);
    assert_true(decision.plan.target.stages[0].device == 0 &&
                decision.plan.target.stages[1].device == 1);
}

/* A fast machine far away, by which little is saved in the time that is left, and a near change
 * that does most of it.
 */
static void near_wins_over_far(void **unused)
{
    make_plain();
    const struct placement now = {2, {{0, 0, 3}, {1, 3, 1}}};
    replan_world_set_layout(&now);
    world.devices[2].decode_bytes_per_s[0] = 2.4e9;
    disks[2].disk_bytes_per_s = 10e6; /* 40 s for all of it, by links, too */
    world.links[0 * 3 + 2].bytes_per_s = world.links[1 * 3 + 2].bytes_per_s = 10e6;
    world.devices[1].memory_free_bytes = 410 * (uint64_t)MB;
    input.tokens = 300;
    options.settle_s = 0;
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_MOVE);
    assert_true(decision.plan.target.n_stages == 1 && decision.plan.target.stages[0].device == 1);
    input.tokens = 1e6; /* for ever it is worth going far */
    state = (struct replan_state){0};
    replan_world_step(5);
    assert_true(decision.plan.target.n_stages == 1 && decision.plan.target.stages[0].device == 2);
}

/* A stage beyond its own limit of weights streams: it is left where there is a layout within the
 * limit, and only there. */
static void what_streams_within_a_limit_is_left(void **unused)
{
    make_plain();
    const struct placement now = {1, {{1, 0, 4}}};
    replan_world_set_layout(&now);
    world.problem.demand.weights_max = 250 * (uint64_t)MB;
    world.devices[0].excluded = world.devices[2].excluded = true;
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_NOWHERE);
    world.devices[2].excluded = false;
    replan_world_step(6);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_int_equal(decision.plan.target.n_stages, 2);
    assert_int_equal(decision.plan.target.stages[0].n_layers, 2);
    assert_non_null(strstr(decision.why, "within their limit"));
    replan_world_set_layout(&decision.plan.target);
    replan_world_step(7);
    assert_int_equal(decision.verdict, REPLAN_STAY);
}

/* A recurrent layer's state is of one size whatever a sequence's length: that of each goes over. */
static void states_count_in_what_is_copied(void **unused)
{
    make_plain();
    const struct placement now = {1, {{1, 0, 4}}};
    replan_world_set_layout(&now);
    world.layers[1].state_bytes = world.layers[2].state_bytes = 700;
    world.layers[1].kv_bytes_per_token = world.layers[2].kv_bytes_per_token = 0;
    input.kv_tokens = 100;
    input.kv_sequences = 1;
    world.devices[1].excluded = true;
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_MUST);
    assert_int_equal(decision.plan.kv_bytes, 2 * 10 * 100 + 2 * 700);
    const double pause_s = decision.plan.pause_s;
    world.layers[1].state_bytes = 700 + 10000000;
    replan_world_step(6);
    assert_true(decision.plan.replay || decision.plan.pause_s > pause_s);
}

/* ---- what comes in is wrong, or memory runs out --------------------------------------------- */

static void wrong_input_is_refused(void **unused)
{
    struct error err;
    const struct placement now = {1, {{1, 0, 4}}};
    make_plain();
    replan_world_set_layout(&now);
    const struct replan_input good = input;
    const struct replan_options good_options = options;
#define REFUSED(what)                                                                              \
    do {                                                                                           \
        what;                                                                                      \
        assert_int_equal(replan(&input, &options, &state, &state, &decision, &err),                \
                         ERROR_INVALID);                                                           \
        input = good;                                                                              \
        options = good_options;                                                                    \
        replan_world_set_layout(&now);                                                             \
        disks[2].disk_bytes_per_s = 1e8;                                                           \
    } while (0)
    REFUSED(input.tokens = NAN);
    REFUSED(input.seconds = -1);
    REFUSED(input.now_s = INFINITY);
    REFUSED(input.kv_tokens = 1001);
    REFUSED(input.kv_sequences = input.problem->demand.streams + 1);
    REFUSED(layout.n_runs = LIMIT_STAGES + 1);
    REFUSED(disks[2].disk_bytes_per_s = NAN);
    REFUSED(options.margin = -0.1);
    REFUSED(options.cooldown_s_max = 1);
    REFUSED(options.settle_s = NAN);
    /* Layouts that are none: they must go, and nothing is read beyond them. */
    const struct replan_run wrong[] = {
        {"node1", "gpu1", 0, 5},          {"node1", "gpu1", 1, 3}, {"node1", "gpu1", UINT32_MAX, 2},
        {"node1", "gpu1", 0, UINT32_MAX}, {"node1", "gpu1", 0, 0}, {"", "", 7, 7}};
    for (uint32_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        layout = (struct replan_layout){1, {wrong[i]}};
        replan_world_step(1);
        assert_int_equal(decision.verdict, REPLAN_MUST);
    }
    /* Another machine's clock, which was ahead: the hold counts from now. */
    replan_world_set_layout(&(struct placement){1, {{0, 0, 4}}});
    state = (struct replan_state){
        .has_moved = true, .moved_s = 1e9, .cooldown_s = NAN, .pending_since_s = 1e9};
    replan_world_step(5);
    assert_int_equal(decision.verdict, REPLAN_WAIT);
    near(decision.wait_s, 60);
    replan_world_step(65);
    assert_int_equal(decision.verdict, REPLAN_MOVE);
}

static void memory_that_runs_out(void **unused)
{
    uint32_t n = 0;
    make_plain();
    const struct placement now = {1, {{0, 0, 4}}};
    replan_world_set_layout(&now);
    for (enum error_code code = ERROR_NO_MEMORY; code; n++) {
        struct replan_state after;
        mem_fail_nth(n + 1);
        code = replan(&input, &options, &state, &after, &decision, NULL);
        if (code) {
            assert_int_equal(code, ERROR_NO_MEMORY);
            assert_memory_equal(&after, &state, sizeof state);
        }
    }
    mem_fail_nth(0);
    assert_true(n > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(costs_by_hand),
        cmocka_unit_test(weights_come_from_who_has_them),
        cmocka_unit_test(a_move_must_pay_and_settle),
        cmocka_unit_test(a_lost_device_moves_its_layers_only),
        cmocka_unit_test(a_hot_device_hands_over),
        cmocka_unit_test(states_count_in_what_is_copied),
        cmocka_unit_test(alike_devices_stay_where_they_are),
        cmocka_unit_test(near_wins_over_far),
        cmocka_unit_test(what_streams_within_a_limit_is_left),
        cmocka_unit_test(wrong_input_is_refused),
        cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
