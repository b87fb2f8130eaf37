/* The policy of streamed layers: what stays, and what is read next. */
#include "engine/weight_window.h"

#include "base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 48 };

static uint64_t draw(uint64_t seed, uint64_t *counter, uint64_t below)
{
    return random_at(seed, (*counter)++) % below;
}

static void fill(struct weight_window_layer *layers, uint32_t n, uint64_t bytes)
{
    for (uint32_t i = 0; i < n; i++)
        layers[i] = (struct weight_window_layer){.resident = bytes, .slot = bytes};
}

static void test_what_fits_is_not_streamed(void **state)
{
    (void)state;
    struct weight_window_layer layers[LAYERS];
    struct weight_window_plan plan;
    uint64_t least;
    fill(layers, LAYERS, 100);
    assert_true(weight_window_plan_make(layers, LAYERS, 100 * LAYERS, &plan, &least));
    assert_int_equal(plan.n_streamed, 0);
    assert_int_equal(plan.pinned_bytes, 100 * LAYERS);
}

static void test_half_of_the_memory_pins_half_less_the_slots(void **state)
{
    (void)state;
    struct weight_window_layer layers[LAYERS];
    struct weight_window_plan plan;
    uint64_t least;
    fill(layers, LAYERS, 100);
    assert_true(weight_window_plan_make(layers, LAYERS, 100 * LAYERS / 2, &plan, &least));
    assert_int_equal(plan.n_slots, 2);
    assert_int_equal(plan.n_streamed, LAYERS / 2 + 2);
    /* evenly: of two neighbours at least one is streamed, never three in a row */
    for (uint32_t i = 0; i + 1 < LAYERS; i++)
        assert_true(plan.is_streamed[i] || plan.is_streamed[i + 1]);
    for (uint32_t i = 0; i + 2 < LAYERS; i++)
        assert_false(plan.is_streamed[i] && plan.is_streamed[i + 1] && plan.is_streamed[i + 2]);
}

static void test_too_little_says_what_is_least(void **state)
{
    (void)state;
    struct weight_window_layer layers[3];
    struct weight_window_plan plan;
    uint64_t least;
    fill(layers, 3, 100);
    assert_false(weight_window_plan_make(layers, 3, 99, &plan, &least));
    assert_int_equal(least, 100);
    assert_true(weight_window_plan_make(layers, 3, 100, &plan, &least));
    assert_int_equal(plan.n_slots, 1);
    assert_int_equal(plan.n_streamed, 3);
}

/* Any layers, any budget: what is said is kept, and less memory never streams less. */
static void test_any_plan_keeps_its_budget(void **state)
{
    (void)state;
    uint64_t n_drawn = 0;
    for (int round = 0; round < 1000; round++) {
        struct weight_window_layer layers[LAYERS];
        struct weight_window_plan plan;
        uint64_t least, all = 0;
        const uint32_t n = 1 + (uint32_t)(draw(7, &n_drawn, LAYERS));
        for (uint32_t i = 0; i < n; i++) {
            layers[i].resident = 1 + draw(7, &n_drawn, 1000);
            layers[i].slot = layers[i].resident + draw(7, &n_drawn, 10);
            all += layers[i].resident;
        }
        const uint64_t budget = draw(7, &n_drawn, (all + all / 8 + 1));
        if (!weight_window_plan_make(layers, n, budget, &plan, &least)) {
            assert_true(least > budget);
            continue;
        }
        uint64_t pinned = 0, slot = 0;
        uint32_t n_streamed = 0;
        for (uint32_t i = 0; i < n; i++) {
            pinned += plan.is_streamed[i] ? 0 : layers[i].resident;
            slot = plan.is_streamed[i] && layers[i].slot > slot ? layers[i].slot : slot;
            n_streamed += plan.is_streamed[i];
        }
        assert_int_equal(n_streamed, plan.n_streamed);
        assert_int_equal(pinned, plan.pinned_bytes);
        assert_int_equal(slot, plan.slot_bytes);
        assert_true(pinned + plan.n_slots * slot <= budget);
        assert_true(!n_streamed || n_streamed % plan.n_slots == 0);
    }
}

/* ---- what is read next ---- */

/* Readers and a user that take turns by chance, with failures and batches that end early: what is
 * used is always the layer that is due, and a slot is never filled while it is used. */
static void test_any_order_of_reading_and_using(void **state)
{
    (void)state;
    uint64_t n_drawn = 0;
    for (uint32_t n_slots = 1; n_slots <= WEIGHT_WINDOW_SLOTS; n_slots++) {
        struct weight_window window;
        uint32_t n = 6 * n_slots, due = 0, in_slot[WEIGHT_WINDOW_SLOTS] = {0};
        bool filling[WEIGHT_WINDOW_SLOTS] = {0};
        uint32_t n_used = 0;
        weight_window_init(&window, n, n_slots);
        for (int step = 0; step < 20000; step++) {
            uint32_t streamed, slot;
            enum weight_slot_state is;
            switch (draw(3, &n_drawn, 3)) {
            case 0:
                if (weight_window_begin(&window, &streamed, &slot)) {
                    assert_false(filling[slot]);
                    in_slot[slot] = streamed;
                    filling[slot] = true;
                }
                break;
            case 1:
                slot = (uint32_t)(draw(3, &n_drawn, n_slots));
                if (filling[slot])
                    weight_window_filled(&window, slot, draw(3, &n_drawn, 50) != 0);
                filling[slot] = false;
                break;
            default:
                slot = weight_window_next(&window, &is);
                if (is == WEIGHT_SLOT_READY) {
                    assert_int_equal(in_slot[slot], due);
                    weight_window_release(&window);
                    due = (due + 1) % n;
                    n_used++;
                } else if (is == WEIGHT_SLOT_FAILED && !weight_window_is_filling(&window)) {
                    weight_window_rewind(&window);
                    due = 0;
                }
            }
        }
        assert_true(n_used > 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_fits_is_not_streamed),
        cmocka_unit_test(test_half_of_the_memory_pins_half_less_the_slots),
        cmocka_unit_test(test_too_little_says_what_is_least),
        cmocka_unit_test(test_any_plan_keeps_its_budget),
        cmocka_unit_test(test_any_order_of_reading_and_using),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
