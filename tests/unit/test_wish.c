/* node/wish.h: what was asked for before, and is kept. */
#include "engine/kv_cache.h"
#include "node/wish.h"
#include "pipeline/driver.h"
#include "placement/problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

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
    const struct place_demand limits = {.weights_bytes = 1 << 20,
                                        .time_limit_s = 7,
                                        .has_score = true,
                                        .has_speculate = true,
                                        .speculate = SPECULATE_OFF,
                                        .draft = "small"};
    instance = place(&before, &limits);
    wish_kept_text(&nothing, instance, text);
    assert_string_equal(text, "--speculate off, --draft 'small', --weights-memory 1048576, "
                              "--score-weights, --time-limit 7");
    wish_kept_text(&by_hand, instance, text); /* loaded whole */
    assert_string_equal(text, "--speculate off, --draft 'small', --score-weights, --time-limit 7");
    Cluster__Demand out;
    wish_of(&by_hand, instance, &out);
    assert_false(out.has_weights_bytes);
    assert_int_equal(out.time_limit_s, 7);
    assert_string_equal(out.draft, "small");
}

/* ---- all pairs of fields --------------------------------------------------------------------- */

/* Something asked for, and what of it is to be seen in a wish: its words, and a number. */
struct wish_field {
    const char *words;
    struct place_demand wanted;
    uint64_t (*seen)(const Cluster__Demand *wish);
    uint64_t value;
};

static uint64_t seen_context(const Cluster__Demand *wish)
{
    return wish->context_tokens;
}
static uint64_t seen_streams(const Cluster__Demand *wish)
{
    return wish->streams;
}
static uint64_t seen_cells(const Cluster__Demand *wish)
{
    return wish->cells;
}
static uint64_t seen_goal(const Cluster__Demand *wish)
{
    return wish->has_goal ? 1 + wish->goal : 0;
}
static uint64_t seen_kv(const Cluster__Demand *wish)
{
    return wish->has_kv_type ? 1 + wish->kv_type : 0;
}
static uint64_t seen_precision(const Cluster__Demand *wish)
{
    return wish->precision;
}
static uint64_t seen_allowed(const Cluster__Demand *wish)
{
    return wish->precision_allowed;
}
static uint64_t seen_weights(const Cluster__Demand *wish)
{
    return wish->weights_bytes;
}
static uint64_t seen_limit(const Cluster__Demand *wish)
{
    return wish->time_limit_s;
}
static uint64_t seen_score(const Cluster__Demand *wish)
{
    return wish->score_weights ? wish->score_weights->memory : 0;
}
static uint64_t seen_rope(const Cluster__Demand *wish)
{
    return wish->rope ? wish->rope->original_tokens : 0;
}

static uint64_t seen_draft_device(const Cluster__Demand *wish)
{
    return wish->draft_device ? strlen(wish->draft_device) : 0;
}

static const struct wish_field wish_fields[] = {
    {"--context 512", {.context = 512}, seen_context, 512},
    {"--streams 3", {.streams = 3}, seen_streams, 3},
    {"--cells 2048", {.cells = 2048}, seen_cells, 2048},
    {"--goal mix", {.has_goal = true, .goal = PLACEMENT_MIX}, seen_goal, 1 + PLACEMENT_MIX},
    {"--kv q8_0", {.has_kv_type = true, .kv_type = KV_Q8_0}, seen_kv, 1 + KV_Q8_0},
    {"--precision q8_0", {.precision = 8}, seen_precision, 8},
    {"--allow-precision q4_k", {.precision_allowed = 12}, seen_allowed, 12},
    {"--weights-memory 4096", {.weights_bytes = 4096}, seen_weights, 4096},
    {"--time-limit 7", {.time_limit_s = 7}, seen_limit, 7},
    {"--score-weights", {.has_score = true, .score = {.memory = 5}}, seen_score, 5},
    {"--draft-device cpu", {.draft_device = "cpu"}, seen_draft_device, 3},
    {"--yarn-orig-ctx 64", {.has_rope = true, .rope = {.original_tokens = 64}}, seen_rope, 64},
};
enum { WISH_FIELDS = sizeof wish_fields / sizeof *wish_fields };

static void test_each_field_is_kept_beside_each_other(void **state)
{
    (void)state;
    for (int i = 0; i < WISH_FIELDS; i++) {
        for (int k = 0; k < WISH_FIELDS; k++) {
            const struct wish_field *first = &wish_fields[i], *then = &wish_fields[k];
            struct before before;
            Cluster__Demand out;
            char text[WISH_TEXT];
            const Cluster__Instance *instance = place(&before, &first->wanted);
            wish_of(&then->wanted, instance, &out);
            wish_kept_text(&then->wanted, instance, text);
            assert_int_equal(first->seen(&out), first->value);
            assert_int_equal(then->seen(&out), then->value);
            assert_string_equal(text, i == k ? "" : first->words);
        }
    }
}

static void test_idle_is_kept_and_said(void **state)
{
    (void)state;
    struct before before;
    char text[WISH_TEXT];
    const struct place_demand first = {.has_idle = true, .idle_ms = 60000}, nothing = {0};
    const Cluster__Instance *instance = place(&before, &first);
    assert_int_equal(wish_idle_ms(&nothing, instance), 60000);
    wish_kept_text(&nothing, instance, text);
    assert_string_equal(text, "--idle 60");
    wish_kept_text(&first, instance, text);
    assert_string_equal(text, "");
}

/* Weights of another type are streamed; not ones that may become smaller still. */
static void test_sound_wishes(void **state)
{
    (void)state;
    struct before before;
    Cluster__Demand out;
    const struct place_demand type = {.precision = 8}, limit = {.weights_bytes = 4096},
                              both = {.precision_allowed = 12, .weights_bytes = 4096};
    wish_of(&limit, place(&before, &type), &out);
    assert_true(wish_is_sound(&out));
    wish_of(&type, place(&before, &both), &out);
    assert_false(wish_is_sound(&out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_word_counts),
        cmocka_unit_test(test_nobody_has_wished),
        cmocka_unit_test(test_says_what_is_kept),
        cmocka_unit_test(test_each_field_is_kept_beside_each_other),
        cmocka_unit_test(test_idle_is_kept_and_said),
        cmocka_unit_test(test_sound_wishes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
