/* Master and workers in a closed loop: what moves, by hand or for gain, changes over when all of it
 * is ready, and nothing moves for noise. Then the same with the real planner. */
#include "base/random.h"
#include "master_world.h"
#include "placement/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void a_move_changes_over_when_ready(void **unused)
{
    struct house *h = house_on_two_nodes();
    h->wanted = false;
    assert_true(house_serves(h) && h->loads == 2); /* node0: 0–3, node1: 4–7 */
    const uint64_t old = house_instance(h)->current->epoch;
    h->reverse = true;
    house_propose_move(h, 0, 2); /* the same once more: nothing is taken from what serves */
    house_run(h, 200);
    assert_true(house_serves(h) && house_instance(h)->next && h->adoptions == 0 &&
                h->n_have[0] == 2);
    house_run(h, 500);
    assert_true(house_serves(h) && !house_instance(h)->next && h->loads == 4 &&
                house_loaded(h) == 2);
    house_propose_move(h, 2, 2);
    house_run(h, 200);
    assert_true(house_serves(h) && house_instance(h)->next &&
                house_instance(h)->current->epoch == old + 1);
    house_run(h, 500);
    assert_true(house_serves(h) && !house_instance(h)->next &&
                house_instance(h)->current->epoch == old + 2);
    assert_true(h->loads == 6 && house_loaded(h) == 2 && h->n_have[2] == 1 && h->n_have[3] == 1);
    house_drop(h);
}

static void a_move_that_fails_is_given_up(void **unused)
{
    struct house *h = house_on_two_nodes();
    const uint64_t old = house_instance(h)->current->epoch;
    h->cannot_load[3] = true;
    house_propose_move(h, 2, 2);
    house_run(h, 2000);
    assert_true(house_serves(h) && !house_instance(h)->next &&
                house_instance(h)->current->epoch == old && house_loaded(h) == 2);
    house_propose_move(h, 1, 2);
    h->up[2] = false; /* dies in the middle of it */
    house_run(h, 3000);
    assert_true(house_serves(h) && !house_instance(h)->next &&
                house_instance(h)->current->epoch == old);
    assert_true(h->placed == 1);
    house_drop(h);
}

static bool devices_are_hot;

static bool fake_is_hot(void *self, const Cluster__Instance *instance)
{
    (void)self;
    assert_non_null(instance->current);
    return devices_are_hot;
}

/* The same stages under a new epoch, lower and back, once each; without leave nothing. */
static void heat_lowers_precision_where_that_is_allowed(void **unused)
{
    for (int is_allowed = 0; is_allowed < 2; is_allowed++) {
        struct house *h = house_on_two_nodes();
        const uint64_t old = house_instance(h)->current->epoch;
        h->options.is_hot = fake_is_hot;
        house_instance(h)->demand->precision_allowed = is_allowed ? 12 : 0;
        house_run(h, 2000);
        assert_int_equal(house_instance(h)->current->epoch, old);
        devices_are_hot = true;
        house_run(h, 3000);
        assert_true(house_serves(h) && !house_instance(h)->next);
        const uint64_t lower = house_instance(h)->current->epoch;
        assert_int_equal(lower > old, is_allowed);
        assert_int_equal(house_instance(h)->current->precision, is_allowed ? 12 : 0);
        devices_are_hot = false;
        house_run(h, 3000);
        assert_true(house_serves(h) && house_loaded(h) == 2);
        assert_int_equal(house_instance(h)->current->epoch > lower, is_allowed);
        assert_int_equal(house_instance(h)->current->precision, 0);
        house_drop(h);
    }
}

static enum error_code fake_consider(void *self, const struct master_view *view,
                                     const Cluster__Instance *want, const bool *allowed,
                                     struct master_placement *out, char why[static 64],
                                     struct error *e)
{
    struct house *h = self;
    h->considered++;
    snprintf(why, 64, "for a test");
    return h->gains ? house_fake_place(self, view, want, allowed, true, out, e) : ERROR_NONE;
}

static struct house *house_that_considers(void)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->options.consider = fake_consider;
    h->options.considers = h;
    h->max_stages = 2;
    h->wanted = true;
    house_run(h, 1000);
    assert_true(house_serves(h) && h->placed == 1);
    return h;
}

static void moves_for_gain(void **unused)
{
    struct house *h = house_that_considers();
    house_run(h, 60 * 1000);
    assert_true(h->considered >= 10 && h->considered <= 12 && h->placed == 1);
    h->reverse = h->gains = true;
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && h->placed == 2 && h->n_have[2] == 1 && h->n_have[3] == 1 &&
                house_loaded(h) == 2);
    assert_string_equal(house_instance(h)->current->why, "for a test");
    assert_false(house_instance(h)->current->replaces);
    /* Somebody does not want that. */
    house_set(h, "moves", "off");
    h->reverse = false;
    h->considered = 0;
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && h->placed == 2 && h->considered == 0);
    house_set(h, "moves", NULL);
    h->cannot_load[0] = true; /* a move that fails is not tried again and again */
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && h->placed >= 3 && h->placed <= 6 && h->n_have[2] == 1 &&
                h->n_have[3] == 1);
    h->cannot_load[0] = false;
    house_run(h, 320 * 1000);
    assert_true(house_serves(h) && h->n_have[0] == 1 && h->n_have[1] == 1 && house_loaded(h) == 2);
    house_drop(h);
}

static void what_was_placed_by_hand_stays(void **unused)
{
    struct house *h = house_that_considers();
    h->by_hand = true;
    house_propose_move(h, 1, 2);
    house_run(h, 1000);
    h->considered = 0;
    h->gains = true;
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && h->placed == 1 && h->considered == 0 &&
                house_instance(h)->current->by_hand);
    h->up[2] = false, h->n_have[2] = 0; /* until it has lost a device */
    house_run(h, 3000);
    assert_true(house_serves(h) && h->placed == 2 && !house_instance(h)->current->by_hand);
    house_drop(h);
}

static enum error_code problem_of(void *self, const struct master_view *view,
                                  const Cluster__Instance *want, const bool *allowed,
                                  const struct placement_problem **problem,
                                  const struct master_device **devices, struct error *e)
{
    static struct placement_problem p;
    static struct placement_device list[NODES];
    static struct placement_layer layers[LAYERS];
    static struct placement_link links[NODES * NODES];
    static struct master_device names[NODES];
    const struct house *h = self;
    memset(&p, 0, sizeof p);
    memset(list, 0, sizeof list);
    for (uint32_t i = 0; i < view->n_nodes; i++) {
        if (!allowed[i])
            continue;
        struct placement_device *device = &list[p.n_devices];
        names[p.n_devices++] = (struct master_device){view->nodes[i].id, "gpu", true};
        snprintf(device->id, sizeof device->id, "gpu");
        snprintf(device->node, sizeof device->node, "%s", view->nodes[i].id);
        const double noise = 1 + h->noise * 0.01 * (2 * random_unit_at(i, h->now_ms) - 1);
        device->memory_free_bytes = h->memory[i];
        device->decode_bytes_per_s[0] = h->speeds[i] * noise;
        device->thermal_headroom = 1;
        device->share = h->paused[i] ? 0 : h->sustained[i] > 0 ? h->sustained[i] : 1;
        device->full_s = h->full_s[i];
        device->share_error = h->doubt[i];
    }
    for (uint32_t i = 0; i < LAYERS; i++)
        layers[i] = (struct placement_layer){.bytes = {100}, .bytes_per_token = {100}};
    for (uint32_t i = 0; i < NODES * NODES; i++)
        links[i] = (struct placement_link){1e-6, 1e9};
    if (!p.n_devices)
        return error_set(e, ERROR_NOT_FOUND, "there is no device left");
    p.devices = list, p.links = links;
    p.model = (struct placement_model){.n_types = 1, .n_layers = LAYERS, .layers = layers};
    p.model.activation_bytes_per_token = 1;
    p.demand =
        (struct placement_demand){.context_tokens = want->demand->context_tokens, .streams = 1};
    *problem = &p, *devices = names;
    return ERROR_NONE;
}

static void with_the_planner(void **unused)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->planner = (struct master_planner){.problem = problem_of, .self = h};
    h->options.place = master_plan;
    h->options.self = &h->planner;
    h->wanted = true;
    house_run(h, 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 2);
    for (uint32_t i = 0; i < NODES; i++) { /* one after the other, until one alone is too little */
        h->up[i] = false;
        h->n_have[i] = 0;
        house_run(h, 5000);
        if (i < 2)
            assert_true(house_serves(h));
        else
            assert_non_null(master_problem(&h->master, "i"));
    }
    h->up[0] = h->up[1] = true;
    house_run(h, 40 * 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 2);
    house_drop(h);
}

static struct house *house_that_replans(const double *speeds)
{
    struct house *h = malloc(sizeof *h);
    house_make(h, 0);
    h->planner = (struct master_planner){.problem = problem_of, .self = h};
    h->mover = (struct master_mover){.planner = &h->planner};
    h->options.place = master_plan;
    h->options.self = &h->planner;
    h->options.consider = master_replan;
    h->options.considers = &h->mover;
    memcpy(h->speeds, speeds, sizeof h->speeds);
    h->wanted = true;
    house_run(h, 1000);
    assert_true(house_serves(h) && house_instance(h)->current->n_stages == 2 && h->placed == 1);
    h->wanted = false;
    return h;
}

static void drop_replanning(struct house *h)
{
    master_mover_clear(&h->mover);
    house_drop(h);
}

static bool uses(const struct house *h, const char *node)
{
    const Cluster__Placement *current = house_instance(h)->current;
    for (size_t i = 0; current && i < current->n_stages; i++) {
        if (strcmp(current->stages[i]->node, node) == 0)
            return true;
    }
    return false;
}

static void faster_devices_are_moved_to(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    assert_true(uses(h, "node0") && uses(h, "node1"));
    h->speeds[2] = h->speeds[3] = 4000;
    house_run(h, 120 * 1000);
    assert_true(house_serves(h) && h->placed == 1); /* nobody uses it: nothing is gained */
    h->tokens = 1000;
    for (int i = 0; i < 600; i++) { /* at no moment does it not serve */
        house_run(h, 100);
        assert_true(house_serves(h));
    }
    assert_true(h->placed == 2 && uses(h, "node2") && uses(h, "node3"));
    assert_non_null(strstr(house_instance(h)->current->why, "tokens/s instead of"));
    assert_false(house_instance(h)->current->replaces);
    h->speeds[2] = 0.1; /* it got hot */
    house_run(h, 4 * 60 * 1000);
    assert_true(house_serves(h) && !uses(h, "node2") && uses(h, "node3") && h->placed == 3);
    drop_replanning(h);
}

/* A cluster at rest, and one at work whose measurements are not quite the same each time: nothing
 * moves. */
static void noise_moves_nothing(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 1000, 1000};
    struct house *h = house_that_replans(speeds);
    const uint64_t epoch = house_instance(h)->current->epoch;
    h->noise = 4;
    for (int use = 0; use < 2; use++) {
        h->tokens = use * 1e6;
        house_run(h, 3600 * 1000);
        assert_true(house_serves(h) && h->placed == 1 &&
                    house_instance(h)->current->epoch == epoch && h->ignored == 0);
    }
    drop_replanning(h);
}

/* One that is too hot to compute decodes nothing: sooner than where a placement works that is not
 * valid any more. */
static void a_paused_device_is_left_soon(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    assert_true(uses(h, "node0") && MASTER_STOPPED_MS < MASTER_MUST_MS / 2);
    h->paused[0] = true;
    house_run(h, MASTER_STOPPED_MS / 2);
    assert_true(h->placed == 1); /* it may be for a moment */
    house_run(h, MASTER_STOPPED_MS + 12 * 1000);
    assert_true(h->placed == 2 && house_serves(h) && !uses(h, "node0"));
    h->paused[0] = false;
    house_run(h, 120 * 1000);
    assert_true(h->placed == 2); /* nobody uses it */
    drop_replanning(h);
}

/* A device that will throttle is left while it still computes all of its time; one that stays cool
 * for as long as it is used, or of which nobody can say it for sure, is not; and when it can keep
 * it up again, it may be used again. */
static void a_device_that_will_be_hot_is_left(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    h->sustained[0] = 0.4, h->full_s[0] = 30, h->doubt[0] = 0.02;
    h->tokens = 10; /* 8 s at full duty */
    house_run(h, 120 * 1000);
    assert_true(h->placed == 1 && uses(h, "node0"));
    h->tokens = 500;
    h->doubt[0] = 0.6;
    house_run(h, 120 * 1000);
    assert_true(h->placed == 1 && uses(h, "node0"));
    h->doubt[0] = 0.02;
    house_run(h, 25 * 1000);
    assert_true(h->placed == 2 && !uses(h, "node0") && house_serves(h));
    assert_string_equal(house_instance(h)->current->why,
                        "hot: node0/gpu predicted to throttle in 30 s");
    h->full_s[0] = 120; /* it has cooled, and would be hot again */
    house_run(h, 600 * 1000);
    assert_true(h->placed == 2);
    h->sustained[0] = 1, h->full_s[0] = PLACEMENT_SECONDS_MAX;
    h->doubt[0] = 0.02;
    house_run(h, 600 * 1000);
    assert_true(h->placed == 2); /* less than a tenth would be gained */
    h->speeds[2] = 700;
    house_run(h, 600 * 1000);
    assert_true(h->placed == 3 && uses(h, "node0") && house_serves(h));
    drop_replanning(h);
}

/* Memory that somebody else takes: what works is left only when that lasts, and not again and
 * again. */
static void memory_that_others_take(void **unused)
{
    static const double speeds[NODES] = {1000, 1000, 900, 900};
    struct house *h = house_that_replans(speeds);
    h->memory[1] = 350;
    house_run(h, 20 * 1000);
    h->memory[1] = 450;
    house_run(h, 20 * 1000);
    h->memory[1] = 350;
    house_run(h, 20 * 1000);
    assert_true(house_serves(h) && h->placed == 1 && uses(h, "node1"));
    house_run(h, 60 * 1000);
    assert_true(house_serves(h) && h->placed == 2 && !uses(h, "node1"));
    for (int i = 0; i < 60; i++) { /* an hour in which each in turn is short */
        for (uint32_t k = 0; k < NODES; k++)
            h->memory[k] = (uint32_t)i % NODES == k || (uint32_t)(i + 1) % NODES == k ? 350 : 450;
        house_run(h, 60 * 1000);
        assert_true(house_serves(h));
    }
    assert_true(h->placed <= 9);
    drop_replanning(h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_move_changes_over_when_ready),
        cmocka_unit_test(a_move_that_fails_is_given_up),
        cmocka_unit_test(heat_lowers_precision_where_that_is_allowed),
        cmocka_unit_test(moves_for_gain),
        cmocka_unit_test(what_was_placed_by_hand_stays),
        cmocka_unit_test(with_the_planner),
        cmocka_unit_test(faster_devices_are_moved_to),
        cmocka_unit_test(noise_moves_nothing),
        cmocka_unit_test(a_paused_device_is_left_soon),
        cmocka_unit_test(a_device_that_will_be_hot_is_left),
        cmocka_unit_test(memory_that_others_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
