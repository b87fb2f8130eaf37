/* The scheduler alone: its rules on hand-made cases, its promises on random ones. */
#include "base/random.h"
#include "pipeline/schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct schedule_limits plain = {.rows = 512,
                                             .devices = 1,
                                             .chunk_rows = 512,
                                             .prefill_rows_mixed = 128,
                                             .output_all_rows = 64,
                                             .embedding_rows = 512};

static uint32_t rows_of(const struct schedule *schedule, uint32_t item)
{
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        if (schedule->shares[i].item == item)
            return schedule->shares[i].rows;
    }
    return 0;
}

static void test_nothing_waits_nothing_is_sent(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.decoding = true}, {.waiting = 0}};
    struct schedule schedule;
    schedule_next(items, 2, &plain, &schedule);
    assert_int_equal(schedule.n_shares, 0);
    assert_int_equal(schedule.n_rows, 0);
}

static void test_a_lone_prompt_gets_all_rows(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 3000}};
    struct schedule schedule;
    schedule_next(items, 1, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 512);
    items[0].waiting = 100;
    schedule_next(items, 1, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 100);
}

static void test_decode_rows_come_first_and_bound_the_prompt(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 3000, .served = 1},
                                    {.waiting = 1, .decoding = true, .served = 9}};
    struct schedule schedule;
    schedule_next(items, 2, &plain, &schedule);
    assert_int_equal(schedule.shares[0].item, 1);
    assert_int_equal(rows_of(&schedule, 1), 1);
    assert_int_equal(rows_of(&schedule, 0), 128);
    items[1].waiting = 0; /* its token is under way: the bound holds all the same */
    schedule_next(items, 2, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 128);
}

static void test_short_prompts_are_not_behind_a_long_one(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 100000, .served = 1},
                                    {.waiting = 20, .served = 5},
                                    {.waiting = 90, .served = 5}};
    struct schedule schedule;
    schedule_next(items, 3, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 1), 20);
    assert_int_equal(rows_of(&schedule, 2), 90);
    assert_int_equal(rows_of(&schedule, 0), 512 - 110); /* what they leave */
}

static void test_streams_are_spread_over_devices(void **state)
{
    (void)state;
    struct schedule_item items[8];
    for (uint32_t i = 0; i < 8; i++)
        items[i] = (struct schedule_item){.waiting = 1, .decoding = true, .served = i};
    struct schedule_limits limits = plain;
    limits.devices = 3;
    struct schedule schedule;
    schedule_next(items, 8, &limits, &schedule);
    assert_int_equal(schedule.n_rows, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(schedule.shares[i].item, i);
}

static void test_a_prompt_is_cut_so_that_devices_overlap(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 512}};
    struct schedule_limits limits = plain;
    limits.chunk_rows = 40;
    struct schedule schedule;
    schedule_next(items, 1, &limits, &schedule);
    assert_int_equal(schedule.n_rows, 512); /* one device: at once */
    limits.devices = 2;
    schedule_next(items, 1, &limits, &schedule);
    assert_int_equal(schedule.n_rows, 40);
    items[0].waiting = 13;
    schedule_next(items, 1, &limits, &schedule);
    assert_int_equal(schedule.n_rows, 13);
}

static void test_embeddings_and_logits_are_apart(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 1, .decoding = true, .served = 3},
                                    {.waiting = 700, .embeddings = true, .served = 2}};
    struct schedule_limits limits = plain;
    limits.embedding_rows = 40;
    struct schedule schedule;
    schedule_next(items, 2, &limits, &schedule);
    assert_true(schedule.embeddings);
    assert_int_equal(rows_of(&schedule, 1), 40);
    assert_int_equal(schedule.n_shares, 1);
    items[1].served = 4;
    schedule_next(items, 2, &limits, &schedule);
    assert_false(schedule.embeddings);
    assert_int_equal(schedule.n_shares, 1);
}

/* Texts that are read at once: never a part of one, as many as fit, the longest waiting first even
 * where it is larger than the rows there are. */
static void test_texts_that_are_whole_are_not_cut(void **state)
{
    (void)state;
    struct schedule_item items[] = {
        {.waiting = 300, .served = 2, .embeddings = true, .whole = true},
        {.waiting = 400, .served = 1, .embeddings = true, .whole = true},
        {.waiting = 100, .served = 3, .embeddings = true, .whole = true},
        {.waiting = 12, .served = 4, .embeddings = true, .whole = true}};
    struct schedule schedule;
    schedule_next(items, 4, &plain, &schedule);
    assert_true(schedule.embeddings);
    assert_int_equal(schedule.n_rows, 512);
    assert_int_equal(rows_of(&schedule, 0), 0);
    assert_int_equal(rows_of(&schedule, 1), 400);
    assert_int_equal(rows_of(&schedule, 2), 100);
    assert_int_equal(rows_of(&schedule, 3), 12);
    struct schedule_limits limits = plain;
    limits.rows = 64; /* memory is short */
    schedule_next(items, 4, &limits, &schedule);
    assert_int_equal(schedule.n_shares, 1);
    assert_int_equal(rows_of(&schedule, 1), 400);
    limits = plain;
    limits.devices = 4; /* so that each has one */
    limits.chunk_rows = 102;
    schedule_next(items, 4, &limits, &schedule);
    assert_int_equal(rows_of(&schedule, 1), 400);
    assert_int_equal(schedule.n_shares, 1);
}

/* A picture that is seen whole beside prompts that may be cut, and beside decode rows. */
static void test_what_is_whole_goes_without_what_is_cut(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 300, .served = 2, .whole = true},
                                    {.waiting = 900, .served = 3},
                                    {.waiting = 1, .decoding = true, .served = 9}};
    struct schedule schedule;
    schedule_next(items, 3, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 300);
    assert_int_equal(rows_of(&schedule, 1), 0);
    assert_int_equal(rows_of(&schedule, 2), 1);
    items[0].waiting = 512; /* no room beside it */
    schedule_next(items, 3, &plain, &schedule);
    assert_int_equal(schedule.n_rows, 512);
    assert_int_equal(rows_of(&schedule, 0), 512);
    items[0].served = 4; /* the other has waited longer */
    schedule_next(items, 3, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 0);
    assert_true(rows_of(&schedule, 1) > 0);
    assert_int_equal(rows_of(&schedule, 2), 1);
}

static void test_all_outputs_are_bounded_together(void **state)
{
    (void)state;
    struct schedule_item items[] = {{.waiting = 60, .output_all = true, .served = 1},
                                    {.waiting = 60, .output_all = true, .served = 2},
                                    {.waiting = 60, .served = 3}};
    struct schedule schedule;
    schedule_next(items, 3, &plain, &schedule);
    assert_int_equal(rows_of(&schedule, 0), 60);
    assert_int_equal(rows_of(&schedule, 1), 4);
    assert_int_equal(rows_of(&schedule, 2), 60);
}

/* ---- random workloads: a small world that runs until all is done --------------------- */

static void check_schedule(const struct schedule_item *items, uint32_t n,
                           const struct schedule_limits *limits, const struct schedule *schedule)
{
    uint32_t rows = 0, all_rows = 0, waiting = 0;
    bool seen[LIMIT_SEQUENCES] = {false};
    for (uint32_t i = 0; i < n; i++)
        waiting += items[i].waiting != 0;
    assert_int_equal(schedule->n_shares == 0, waiting == 0);
    for (uint32_t i = 0; i < schedule->n_shares; i++) {
        const struct schedule_share *share = &schedule->shares[i];
        const struct schedule_item *item = &items[share->item];
        assert_false(seen[share->item]);
        seen[share->item] = true;
        assert_in_range(share->rows, 1, item->waiting);
        assert_int_equal(item->embeddings, schedule->embeddings);
        rows += share->rows;
        all_rows += item->output_all && !item->decoding ? share->rows : 0;
    }
    assert_int_equal(rows, schedule->n_rows);
    assert_in_range(rows, 0, limits->rows);
    assert_in_range(all_rows, 0, limits->output_all_rows);
    if (schedule->embeddings)
        assert_in_range(rows, 0, limits->embedding_rows);
}

/* Plays one workload; returns the most micro-batches that any waiting item was passed over. */
static uint64_t play(uint64_t seed, uint32_t *n_items, struct schedule_limits *limits)
{
    uint64_t draw = 0;
    uint32_t n = *n_items = 1 + (uint32_t)(random_at(seed, draw++) % 24);
    *limits = (struct schedule_limits){0};
    limits->rows = 1u << random_at(seed, draw++) % 8;
    limits->devices = 1 + (uint32_t)(random_at(seed, draw++) % 3);
    limits->chunk_rows = 1 + limits->rows / 3;
    limits->output_all_rows = 1 + (uint32_t)(random_at(seed, draw++) % 8);
    limits->embedding_rows = 1 + (uint32_t)(random_at(seed, draw++) % 8);
    limits->prefill_rows_mixed = 1 + limits->rows / 2;
    struct schedule_item items[24] = {0};
    uint32_t to_generate[24];
    for (uint32_t i = 0; i < n; i++) {
        uint64_t kind = random_at(seed, draw++);
        items[i].waiting = 1 + (uint32_t)((kind >> 8) % 300);
        items[i].embeddings = kind % 5 == 0;
        items[i].output_all = kind % 5 == 1;
        to_generate[i] = items[i].embeddings ? 0 : (uint32_t)((kind >> 32) % 40);
    }
    uint64_t longest = 0;
    for (uint64_t step = 1;; step++) {
        assert_in_range(step, 1, 100000); /* it ends */
        struct schedule schedule;
        schedule_next(items, n, limits, &schedule);
        check_schedule(items, n, limits, &schedule);
        if (!schedule.n_shares)
            return longest;
        for (uint32_t s = 0; s < schedule.n_shares; s++) {
            uint32_t i = schedule.shares[s].item;
            uint64_t passed_over = step - items[i].served - 1;
            longest = passed_over > longest ? passed_over : longest;
            items[i].served = step;
            items[i].waiting -= schedule.shares[s].rows;
            if (items[i].waiting)
                continue;
            items[i].decoding = to_generate[i] != 0;
            if (to_generate[i]) {
                items[i].waiting = 1;
                to_generate[i]--;
            }
        }
    }
}

static void test_random_workloads_end_and_nobody_starves(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        uint32_t n = 0;
        struct schedule_limits limits;
        uint64_t longest = play(seed, &n, &limits);
        /* Whoever is passed over is older than all who are served meanwhile, once each, kind by
         * kind. */
        if (longest > 2 * n + 2)
            fail_msg("seed %llu: passed over %llu times with %u sequences",
                     (unsigned long long)seed, (unsigned long long)longest, n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_waits_nothing_is_sent),
        cmocka_unit_test(test_a_lone_prompt_gets_all_rows),
        cmocka_unit_test(test_decode_rows_come_first_and_bound_the_prompt),
        cmocka_unit_test(test_short_prompts_are_not_behind_a_long_one),
        cmocka_unit_test(test_streams_are_spread_over_devices),
        cmocka_unit_test(test_a_prompt_is_cut_so_that_devices_overlap),
        cmocka_unit_test(test_embeddings_and_logits_are_apart),
        cmocka_unit_test(test_texts_that_are_whole_are_not_cut),
        cmocka_unit_test(test_what_is_whole_goes_without_what_is_cut),
        cmocka_unit_test(test_all_outputs_are_bounded_together),
        cmocka_unit_test(test_random_workloads_end_and_nobody_starves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
