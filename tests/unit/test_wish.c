/* node/wish.h: what was asked for before, and is kept. */
#include "engine/kv_cache.h"
#include "node/wish.h"
#include "placement/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* An instance that somebody placed with these words. */
struct before {
    Cluster__Instance instance;
    Cluster__Demand wished;
};

static const Cluster__Instance *place(struct before *before, const struct place_demand *wanted)
{
    cluster__instance__init(&before->instance);
    wish_of(wanted, NULL, &before->wished);
    before->instance.wished = &before->wished;
    before->instance.idle_ms = wish_idle_ms(wanted, NULL);
    return &before->instance;
}

static void test_the_last_word_counts(void **state)
{
    (void)state;
    struct before before;
    Cluster__Demand out;
    const struct place_demand first = {.context = 8192,
                                       .streams = 2,
                                       .has_kv_type = true,
                                       .kv_type = KV_Q8_0,
                                       .has_idle = true,
                                       .idle_ms = 60000};
    const struct place_demand then = {
        .streams = 4, .has_goal = true, .goal = PLACEMENT_LATENCY, .is_by_hand = false};
    const Cluster__Instance *instance = place(&before, &first);
    wish_of(&then, instance, &out);
    assert_int_equal(out.context_tokens, 8192);
    assert_int_equal(out.streams, 4);
    assert_true(out.has_kv_type);
    assert_int_equal(out.kv_type, KV_Q8_0);
    assert_true(out.has_goal);
    assert_int_equal(out.goal, PLACEMENT_LATENCY);
    assert_int_equal(wish_idle_ms(&then, instance), 60000);
    wish_of(NULL, instance, &out);
    assert_int_equal(out.streams, 2);
    assert_false(out.has_goal);
}

static void test_nobody_has_wished(void **state)
{
    (void)state;
    Cluster__Instance of_request = CLUSTER__INSTANCE__INIT;
    Cluster__Demand out;
    const struct place_demand wanted = {.streams = 3};
    char text[WISH_TEXT];
    of_request.idle_ms = 1800000; /* as usual, for nobody placed it */
    wish_of(&wanted, &of_request, &out);
    assert_int_equal(out.streams, 3);
    assert_false(out.has_context_tokens || out.has_kv_type || out.has_goal);
    assert_int_equal(wish_idle_ms(&wanted, &of_request), 0);
    wish_kept_text(&wanted, &of_request, text);
    assert_string_equal(text, "");
}

static void test_says_what_is_kept(void **state)
{
    (void)state;
    struct before before;
    char text[WISH_TEXT];
    const struct place_demand first = {.context = 512,
                                       .streams = 2,
                                       .has_goal = true,
                                       .goal = PLACEMENT_MIX,
                                       .has_kv_type = true,
                                       .kv_type = KV_Q8_0};
    const struct place_demand nothing = {0}, again = first, by_hand = {.is_by_hand = true};
    const Cluster__Instance *instance = place(&before, &first);
    wish_kept_text(&nothing, instance, text);
    assert_string_equal(text, "--context 512, --streams 2, --goal mix, --kv q8_0");
    wish_kept_text(&again, instance, text);
    assert_string_equal(text, "");
    const struct place_demand limits = {
        .weights_bytes = 1 << 20, .time_limit_s = 7, .has_score = true};
    instance = place(&before, &limits);
    wish_kept_text(&nothing, instance, text);
    assert_string_equal(text, "--weights-memory 1048576, --score-weights, --time-limit 7");
    wish_kept_text(&by_hand, instance, text); /* loaded whole */
    assert_string_equal(text, "--score-weights, --time-limit 7");
    Cluster__Demand out;
    wish_of(&by_hand, instance, &out);
    assert_false(out.has_weights_bytes);
    assert_int_equal(out.time_limit_s, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_word_counts),
        cmocka_unit_test(test_nobody_has_wished),
        cmocka_unit_test(test_says_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
