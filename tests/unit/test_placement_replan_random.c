/* Moves on random problems: the least time of all placements there are; and it never flaps. */
#include "placement/check.h"
#include "placement/cost.h"
#include "replan_world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- against all placements there are --------------------------------------------------- */

struct all {
    struct placement placement;
    double least_s;
    bool optional;
};

static void try_all(struct all *all, uint32_t first_layer)
{
    struct placement *placement = &all->placement;
    if (first_layer == world.problem.model.n_layers) {
        struct replan_plan plan;
        if (replan_to(&input, &options, placement, &plan, NULL))
            return;
        const bool pays = plan.n_moves &&
                          plan.decode_tokens_per_s >= 1.1 * decision.current_tokens_per_s &&
                          decision.stay_s - plan.total_s > options.worth * plan.pause_s;
        if (pays || !all->optional)
            all->least_s = fmin(all->least_s, plan.total_s);
        return;
    }
    for (uint32_t d = 0; d < world.problem.n_devices; d++) {
        bool used = false;
        for (uint32_t i = 0; i < placement->n_stages; i++)
            used |= placement->stages[i].device == d;
        for (uint32_t n = 1; !used && first_layer + n <= world.problem.model.n_layers; n++) {
            placement->stages[placement->n_stages++] = (struct placement_stage){d, first_layer, n};
            try_all(all, first_layer + n);
            placement->n_stages--;
        }
    }
}

static bool a_placement(uint64_t seed, struct placement *out)
{
    struct placement_solution solution;
    const struct placement_options solve = placement_options_default();
    const uint32_t off = (uint32_t)(seed % world.problem.n_devices);
    world.devices[off].excluded = true;
    const enum error_code code = placement_solve(&world.problem, &solve, &solution, NULL);
    world.devices[off].excluded = false;
    *out = solution.placement;
    return code == ERROR_NONE;
}

/* Every layer is either where it was or in exactly one move. */
static void moves_are_the_difference(const struct replan_plan *plan, const struct placement *now)
{
    uint32_t owner[WORLD_LAYERS];
    for (uint32_t i = 0; i < now->n_stages; i++) {
        for (uint32_t j = 0; j < now->stages[i].n_layers; j++)
            owner[now->stages[i].first_layer + j] = now->stages[i].device;
    }
    for (uint32_t i = 0; i < plan->n_moves; i++) {
        const struct replan_move *move = &plan->moves[i];
        assert_true(move->n_layers > 0 && move->from != move->to);
        for (uint32_t j = 0; j < move->n_layers; j++) {
            assert_true(owner[move->first_layer + j] == move->from);
            owner[move->first_layer + j] = move->to;
        }
    }
    for (uint32_t i = 0; i < plan->target.n_stages; i++) {
        for (uint32_t j = 0; j < plan->target.stages[i].n_layers; j++)
            assert_int_equal(owner[plan->target.stages[i].first_layer + j],
                             plan->target.stages[i].device);
    }
}

struct least {
    uint32_t n, best, moved;
    double worst;
};

static struct least find_least(bool mix)
{
    struct least out = {.worst = 1};
    for (uint64_t seed = 1; seed <= 300; seed++) {
        const bool streams = seed % 3 == 0, forced = seed % 2;
        struct placement now;
        world_make(
            &world, seed,
            (struct world_shape){
                .n_devices = 4, .n_layers = 7, .tightness = 2, .mixed_types = seed % 5 == 0});
        replan_world_start(200e6 + 2e9 * world_random(&world));
        if (streams) {
            world.problem.demand.goal = PLACEMENT_THROUGHPUT;
            world.problem.demand.streams = 4;
        }
        if (mix) {
            world.problem.demand.goal = PLACEMENT_MIX;
            world.problem.demand.streams = 4;
            world.problem.demand.busy = 0.1;
        }
        if (!a_placement(seed, &now))
            continue;
        replan_world_set_layout(&now);
        input.tokens = 100 * pow(10, 3 * world_random(&world));
        input.kv_tokens = (uint64_t)(3000 * world_random(&world));
        options.settle_s = 0;
        if (forced)
            world.devices[now.stages[0].device].excluded = true;
        replan_world_step(0);
        if (decision.verdict == REPLAN_NOWHERE)
            continue;
        struct all all = {.least_s = INFINITY, .optional = !forced};
        try_all(&all, 0);
        const bool found = decision.verdict != REPLAN_STAY,
                   missed = !found && all.least_s < INFINITY;
        /* Of a mix the fastest cuts are not those with the most tokens, by which a move is
         * weighed. */
        if (!missed || !mix)
            assert_int_equal(decision.verdict, forced                   ? REPLAN_MUST
                                               : all.least_s < INFINITY ? REPLAN_MOVE
                                                                        : REPLAN_STAY);
        out.n += missed;
        if (!found)
            continue;
        assert_int_equal(placement_check(&world.problem, &decision.plan.target, NULL), ERROR_NONE);
        moves_are_the_difference(&decision.plan, &now);
        assert_true(decision.plan.total_s >= all.least_s * (1 - 1e-9));
        out.worst = fmax(out.worst, decision.plan.total_s / all.least_s);
        out.best += decision.plan.total_s <= all.least_s * (1 + 1e-9);
        out.moved += !forced;
        out.n++;
    }
    print_message("# the least of all: %u of %u, the worst is %.3f of it\n", out.best, out.n,
                  out.worst);
    return out;
}

static void the_least_time_of_all(void **unused)
{
    const struct least least = find_least(false);
    assert_true(least.n > 100 && least.moved > 20);
    assert_true(least.best * 100 >= least.n * 90 && least.worst < 1.1);
}

/* Whose fastest cuts are not those with the shortest period: a search by the objective finds 79,
 * the worst is 1.21. */
static void the_least_time_of_a_mix(void **unused)
{
    const struct least least = find_least(true);
    assert_true(least.n >= 80 && least.moved > 10);
    assert_true(least.best * 100 >= least.n * 82 && least.worst < 1.2);
}

/* ---- no flapping -------------------------------------------------------------------------- */

struct truth {
    struct placement_device devices[WORLD_DEVICES];
    struct placement_link links[WORLD_DEVICES * WORLD_DEVICES];
};

/* Every rate and delay is off by a factor of its own, up to 1 + noise. */
static void disturb(const struct truth *truth, double noise)
{
    const uint32_t n = world.problem.n_devices;
    for (uint32_t d = 0; d < n; d++) {
        const double off = pow(1 + noise, 2 * world_random(&world) - 1);
        for (uint32_t type = 0; type < 2; type++)
            world.devices[d].decode_bytes_per_s[type] =
                truth->devices[d].decode_bytes_per_s[type] * off;
        world.devices[d].launch_s = truth->devices[d].launch_s / off;
    }
    for (uint32_t i = 0; i < n * n; i++) {
        const double off = pow(1 + noise, 2 * world_random(&world) - 1);
        world.links[i].bytes_per_s = truth->links[i].bytes_per_s * off;
        world.links[i].latency_s = truth->links[i].latency_s / off;
    }
}

static void restore(const struct truth *truth)
{
    memcpy(world.devices, truth->devices, sizeof world.devices);
    memcpy(world.links, truth->links, sizeof world.links);
}

static double true_rate(const struct truth *truth)
{
    const struct placement placement = replan_find(&world.problem, &layout);
    restore(truth);
    assert_int_equal(placement_check(&world.problem, &placement, NULL), ERROR_NONE);
    const struct placement_cost cost = placement_decode_cost(&world.problem, &placement);
    return placement_decode_tokens_per_s(&world.problem, &cost);
}

static bool begin(uint64_t seed, struct truth *truth)
{
    struct placement now;
    world_make(
        &world, seed,
        (struct world_shape){.n_devices = 5, .n_layers = 24, .tightness = 2.5, .twins = 0.3});
    replan_world_start(1e9);
    if (seed % 2) {
        world.problem.demand.goal = PLACEMENT_THROUGHPUT;
        world.problem.demand.streams = 4;
    }
    memcpy(truth->devices, world.devices, sizeof world.devices);
    memcpy(truth->links, world.links, sizeof world.links);
    if (!a_placement(seed, &now))
        return false;
    replan_world_set_layout(&now);
    input.tokens = 1e7;
    return true;
}

static uint32_t n_returns, n_moves;

/* F2, and that what is left on the table is no more than what the margin allows. */
static void noisy(uint64_t seed, double noise, bool assert_it)
{
    static struct truth truth;
    struct replan_layout seen[64];
    uint32_t n_seen = 0;
    if (!begin(seed, &truth))
        return;
    const double margin = options.margin;
    double rate = true_rate(&truth), now_s = 0;
    if (!assert_it) {
        options.margin = options.worth = options.settle_s = options.switch_s = 0;
        options.cooldown_s_min = options.cooldown_s_max = 0;
    }
    for (uint32_t i = 0; i < 100; i++) {
        now_s += 30 * world_random(&world);
        disturb(&truth, noise);
        replan_world_step(now_s);
        if (decision.verdict != REPLAN_MOVE)
            continue;
        n_moves++;
        for (uint32_t j = 0; j < n_seen; j++)
            n_returns += !memcmp(&seen[j], &layout, sizeof layout);
        if (n_seen < 64)
            seen[n_seen++] = layout;
        replan_world_set_layout(&decision.plan.target);
        const double new_rate = true_rate(&truth);
        if (assert_it)
            assert_true(new_rate > rate);
        rate = new_rate;
    }
    if (!assert_it)
        return;
    struct placement_solution best;
    restore(&truth);
    assert_int_equal(placement_solve(&world.problem, &options.solve, &best, NULL), ERROR_NONE);
    const struct placement_cost cost = placement_decode_cost(&world.problem, &best.placement);
    const double best_rate = placement_decode_tokens_per_s(&world.problem, &cost);
    assert_true(rate * (1 + margin) * pow(1 + noise, 2) >= best_rate);
}

static void noise_moves_nothing_back(void **unused)
{
    n_returns = n_moves = 0;
    for (uint64_t seed = 1; seed <= 25; seed++)
        noisy(seed, 0.045, true);
    print_message("# with hysteresis %u moves, %u returns\n", n_moves, n_returns);
    assert_int_equal(n_returns, 0);
    assert_true(n_moves > 5 && n_moves < 50);
    /* Without margin, settling and hold the same noise makes it flap: the test can fail. */
    n_returns = n_moves = 0;
    for (uint64_t seed = 1; seed <= 5; seed++)
        noisy(seed, 0.045, false);
    print_message("# without %u moves, %u returns\n", n_moves, n_returns);
    assert_true(n_returns > 10);
}

/* F1: whatever comes in; here rates jump by factors of up to 20, and devices come and go. */
static void wild_input_moves_seldom(void **unused)
{
    uint32_t most = 0, forced = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        static struct truth truth;
        double moved_s[300], now_s = 0;
        uint32_t n = 0;
        if (!begin(seed, &truth))
            continue;
        options.settle_s = seed % 2 ? 0 : 10;
        for (uint32_t i = 0; i < 300; i++) {
            now_s += 60 * world_random(&world);
            disturb(&truth, 20);
            for (uint32_t d = 0; d < world.problem.n_devices; d++)
                world.devices[d].excluded = seed % 3 == 0 && world_random(&world) < 0.05;
            replan_world_step(now_s);
            forced += decision.verdict == REPLAN_MUST;
            if (decision.verdict == REPLAN_MOVE)
                moved_s[n++] = now_s;
            if (decision.verdict == REPLAN_MOVE || decision.verdict == REPLAN_MUST)
                replan_world_set_layout(&decision.plan.target);
        }
        for (uint32_t i = 0; i < n; i++) {
            uint32_t in_window = 0;
            for (uint32_t j = i; j < n && moved_s[j] - moved_s[i] < options.cooldown_s_max; j++)
                in_window++;
            assert_true(i == 0 || moved_s[i] - moved_s[i - 1] >= options.cooldown_s_min);
            assert_true(in_window <= 2 + log2(options.cooldown_s_max / options.cooldown_s_min));
            most = in_window > most ? in_window : most;
        }
    }
    print_message("# at most %u optional moves in an hour; %u forced ones\n", most, forced);
    assert_true(most >= 4 && forced > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_least_time_of_all),
        cmocka_unit_test(the_least_time_of_a_mix),
        cmocka_unit_test(noise_moves_nothing_back),
        cmocka_unit_test(wild_input_moves_seldom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
