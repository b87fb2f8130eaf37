/* The driver on the toy machine, one property a test. Random workloads: test_driver_random.c. */
#include "driver_world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct driver_options one_slot = {.n_slots = 1, .context = 400};
static const struct driver_options four_slots = {.n_slots = 4, .context = 400};

static void submit(struct client *client, struct world *world)
{
    struct error err = {0};
    if (client_submit(client, world, &err))
        fail_msg("submit: %s", err.text);
}

static void run(struct client *client, struct world *world)
{
    submit(client, world);
    client_wait(client);
    client_check(client, driver_options(world->driver)->context);
}

static void test_every_split_gives_the_same_tokens(void **state)
{
    (void)state;
    static const uint32_t shapes[][2] = {{1, 1}, {2, 2}, {2, 1}, {4, 4}, {4, 2}, {8, 3}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct world world;
        world_open(&world, shapes[i][0], shapes[i][1], &one_slot);
        struct client client;
        client_init(&client, 1, 300, 50);
        run(&client, &world);
        assert_int_equal(client.reason, FINISH_LENGTH);
        assert_int_equal(client.n_tokens, 50);
        world_close(&world);
    }
}

static void test_the_seed_decides(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &one_slot);
    struct client clients[3];
    for (int i = 0; i < 3; i++) {
        client_init(&clients[i], 5, 20, 60);
        clients[i].request.sampler = sampler_defaults();
        clients[i].request.sampler.seed = i < 2 ? 11 : 12;
        run(&clients[i], &world);
    }
    assert_memory_equal(clients[0].tokens, clients[1].tokens, sizeof clients[0].tokens);
    assert_memory_not_equal(clients[0].tokens, clients[2].tokens, sizeof clients[0].tokens);
    world_close(&world);
}

static void test_a_replayed_sequence_continues(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &one_slot);
    struct client whole, rest;
    client_init(&whole, 6, 30, 80);
    whole.request.sampler = sampler_defaults();
    whole.request.sampler.repeat_penalty = 1.2f;
    run(&whole, &world);
    client_init(&rest, 6, 30, 80 - 33);
    rest.request.sampler = whole.request.sampler;
    memcpy(rest.prompt + 30, whole.tokens, 33 * sizeof *rest.prompt);
    rest.request.n_prompt = 63;
    run(&rest, &world);
    assert_memory_equal(rest.tokens, whole.tokens + 33, rest.n_tokens * sizeof *rest.tokens);
    world_close(&world);
}

static void test_a_prefix_is_reused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &one_slot);
    struct client first, second, third;
    client_init(&first, 7, 200, 10);
    run(&first, &world);
    assert_int_equal(first.usage.cached_tokens, 0);
    client_init(&second, 7, 200, 10); /* the same prompt: its last token is computed again */
    run(&second, &world);
    assert_int_equal(second.usage.cached_tokens, 199);
    client_init(&third, 7, 200, 10);
    third.prompt[120] = (third.prompt[120] + 1) % FAKE_VOCAB;
    fake_trace_clear();
    run(&third, &world);
    assert_int_equal(third.usage.cached_tokens, 120);
    assert_int_equal(fake_trace().n_rows, 80 + 9);
    world_close(&world);
}

static void test_a_conversation_survives_another_that_shares_its_opening(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &(struct driver_options){.n_slots = 2, .context = 400});
    struct client talk, other, next;
    client_init(&talk, 8, 300, 20);
    run(&talk, &world);
    client_init(&other, 8, 60, 5); /* the first 60 of the same */
    fake_trace_clear();
    run(&other, &world);
    assert_int_equal(other.usage.cached_tokens, 59);
    assert_int_equal(fake_trace().copies, 1);
    client_init(&next, 8, 300, 20);
    run(&next, &world);
    assert_int_equal(next.usage.cached_tokens, 299);
    world_close(&world);
}

static void test_a_prefix_is_copied_from_a_busy_slot(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &four_slots);
    struct client busy, other;
    client_init(&busy, 9, 100, 250);
    fake_set_faults((struct fake_faults){.delay_us_max = 500});
    submit(&busy, &world);
    client_wait_tokens(&busy, 1);
    client_init(&other, 9, 100, 10);
    run(&other, &world);
    fake_set_faults((struct fake_faults){0});
    assert_int_equal(other.usage.cached_tokens, 99);
    client_wait(&busy);
    client_check(&busy, 400);
    world_close(&world);
}

/* Neither from a free slot nor from a busy one; and the own prefix is there still. */
/* Six prompts of two extents in eight: only where the first extent is computed and held once. */
static void test_equal_prompts_are_held_once(void **state)
{
    (void)state;
    enum { N = 6, PROMPT = 300 };
    static struct client clients[N];
    struct world world;
    struct error err = {0};
    world_open(
        &world, 2, 1,
        &(struct driver_options){.n_slots = N, .context = 512, .cells = 8 * 256, .batch_rows = 64});
    fake_block(true);
    for (uint32_t i = 0; i < N; i++) {
        client_init(&clients[i], 5, PROMPT, 20);
        assert_int_equal(client_submit(&clients[i], &world, &err), ERROR_NONE);
    }
    fake_block(false);
    for (uint32_t i = 0; i < N; i++) {
        client_wait(&clients[i]);
        client_check(&clients[i], 512);
    }
    const struct driver_stats stats = driver_stats(world.driver);
    assert_int_equal(stats.parked_total, 0);
    assert_true(stats.cached_tokens_total >= (N - 1) * 256);
    assert_int_equal(stats.cells_total, 8 * 256);
    assert_true(stats.cells_free <= 7 * 256);
    assert_int_equal(stats.cells_shared, 256);
    world_close(&world);
}

static void test_a_prefix_is_reused_for_its_own_key_only(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &four_slots);
    struct client one, other, busy;
    client_init(&one, 7, 200, 3);
    one.request.cache_key = 1;
    run(&one, &world);
    for (uint64_t key = 0; key <= 2; key++) {
        client_init(&other, 7, 200, 3);
        other.request.cache_key = key;
        run(&other, &world);
        assert_int_equal(other.usage.cached_tokens, key == 1 ? 199 : 0);
    }
    fake_set_faults((struct fake_faults){.delay_us_max = 500});
    client_init(&busy, 9, 100, 250);
    busy.request.cache_key = 1;
    submit(&busy, &world);
    client_wait_tokens(&busy, 1);
    client_init(&other, 9, 100, 3);
    other.request.cache_key = 2;
    run(&other, &world);
    fake_set_faults((struct fake_faults){0});
    assert_int_equal(other.usage.cached_tokens, 0);
    client_wait(&busy);
    world_close(&world);
}

static void test_reuse_can_be_switched_off(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1,
               &(struct driver_options){.n_slots = 1, .context = 400, .no_prefix_reuse = true});
    struct client client;
    for (int i = 0; i < 2; i++) {
        client_init(&client, 7, 200, 3);
        run(&client, &world);
        assert_int_equal(client.usage.cached_tokens, 0);
    }
    world_close(&world);
}

static void test_stop_tokens_end_and_are_not_given(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &one_slot);
    struct client plain, stopped;
    client_init(&plain, 10, 10, 40);
    run(&plain, &world);
    int32_t stop = plain.tokens[20];
    client_init(&stopped, 10, 10, 40);
    stopped.request.stop_tokens = &stop;
    stopped.request.n_stop_tokens = 1;
    run(&stopped, &world);
    assert_int_equal(stopped.reason, FINISH_STOP);
    assert_in_range(stopped.n_tokens, 0, 20);
    world_close(&world);
}

static void test_a_callback_may_stop(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &one_slot);
    struct client client;
    client_init(&client, 11, 10, 40);
    client.stop_after = 7;
    run(&client, &world);
    assert_int_equal(client.reason, FINISH_STOP);
    assert_int_equal(client.n_tokens, 7);
    world_close(&world);
}

static void test_the_context_bounds_the_answer(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &(struct driver_options){.n_slots = 1, .context = 50});
    struct client client;
    client_init(&client, 12, 49, 10);
    run(&client, &world);
    assert_int_equal(client.n_tokens, 1);
    assert_int_equal(client.reason, FINISH_LENGTH);
    client_init(&client, 12, 20, 100);
    run(&client, &world);
    assert_int_equal(client.n_tokens, 30);
    client_init(&client, 12, 50, 0); /* no answer needs no room */
    run(&client, &world);
    assert_int_equal(client.reason, FINISH_LENGTH);
    world_close(&world);
}

static void expect_refused(struct world *world, struct client *client, const char *words)
{
    struct error err = {0};
    assert_int_equal(client_submit(client, world, &err), ERROR_INVALID);
    if (!strstr(err.text, words))
        fail_msg("'%s' does not say '%s'", err.text, words);
    assert_int_equal(client->n_done, 0);
}

static void test_impossible_requests_are_refused(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &(struct driver_options){.n_slots = 1, .context = 50});
    struct client client;
    client_init(&client, 1, 51, 1);
    expect_refused(&world, &client, "51 tokens, but the context has 50");
    client_init(&client, 1, 50, 1);
    expect_refused(&world, &client, "no room");
    client_init(&client, 1, 0, 1);
    expect_refused(&world, &client, "empty");
    client_init(&client, 1, 5, 1);
    client.prompt[3] = FAKE_VOCAB;
    expect_refused(&world, &client, "token 97 at position 3");
    client.prompt[3] = -1;
    expect_refused(&world, &client, "token -1 at position 3");
    client_init(&client, 1, 5, 1);
    client.request.sampler.top_p = -1;
    expect_refused(&world, &client, "top_p");
    client_init(&client, 1, 5, 1);
    client.request.embeddings = true;
    expect_refused(&world, &client, "n_predict");
    client_init(&client, 1, 5, 1);
    client.request.n_top_logprobs = LIMIT_TOP_LOGPROBS + 1;
    expect_refused(&world, &client, "top logprobs");
    assert_int_equal(driver_stats(world.driver).requests_total, 0);
    world_close(&world);
}

static void test_the_queue_is_bounded(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &(struct driver_options){.n_slots = 1, .context = 50, .queue_max = 2});
    static struct client clients[4];
    fake_block(true);
    struct error err = {0};
    for (int i = 0; i < 4; i++) {
        client_init(&clients[i], 20 + (uint64_t)i, 5, 5);
        enum error_code code = client_submit(&clients[i], &world, &err);
        assert_int_equal(code, i < 3 ? ERROR_NONE : ERROR_BUSY);
    }
    assert_non_null(strstr(err.text, "2 requests"));
    fake_block(false);
    for (int i = 0; i < 3; i++) {
        client_wait(&clients[i]);
        client_check(&clients[i], 50);
    }
    assert_int_equal(clients[3].n_done, 0);
    world_close(&world);
}

/* What the forecast is compared with is the sum of what the requests were told. */
static void test_what_replies_took_is_added_up(void **state)
{
    (void)state;
    static struct client clients[4];
    static const uint32_t n_predict[4] = {20, 1, 9, 0};
    struct driver_served sum = {0};
    struct driver_served served;
    struct world world;
    world_open(&world, 2, 2, &(struct driver_options){.n_slots = 1, .context = 500});
    for (int i = 0; i < 4; i++) {
        client_init(&clients[i], 40 + (uint64_t)i, 10, n_predict[i]);
        run(&clients[i], &world);
        const struct request_usage *usage = &clients[i].usage;
        assert_int_equal(usage->generated_tokens, n_predict[i]);
        if (usage->generated_tokens) {
            sum.prompts++;
            sum.prompt_rows += usage->prompt_tokens - usage->cached_tokens;
            sum.prompt_ns += usage->prefill_ns;
        }
        if (usage->generated_tokens > 1) {
            sum.replies++;
            sum.reply_tokens += usage->generated_tokens - 1;
            sum.reply_ns += usage->decode_ns;
        }
    }
    do /* it is published with the step's end */
        served = driver_stats(world.driver).served;
    while (served.prompts < sum.prompts);
    assert_memory_equal(&served, &sum, sizeof sum);
    assert_int_equal(served.replies, 2);
    assert_int_equal(served.reply_tokens, 19 + 8);
    world_close(&world);
}

static void test_cancelling_queued_running_and_prefilling(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2,
               &(struct driver_options){.n_slots = 1, .context = 500, .batch_rows = 32});
    static struct client running, queued, after, prefilling;
    client_init(&running, 30, 10, 400);
    client_init(&queued, 31, 10, 10);
    client_init(&prefilling, 32, 480, 1);
    client_init(&after, 33, 10, 10);
    fake_pause_at(0, 15);
    submit(&running, &world);
    while (!fake_is_paused())
        usleep(1000);
    submit(&queued, &world);
    driver_cancel(world.driver, queued.id);
    client_wait(&queued);
    assert_int_equal(queued.reason, FINISH_CANCELLED);
    assert_int_equal(queued.n_tokens, 0);
    driver_cancel(world.driver, running.id);
    client_wait(&running);
    fake_pause_at(0, 0);
    assert_int_equal(running.reason, FINISH_CANCELLED);
    client_check(&running, 500);
    const uint64_t n_before = driver_stats(world.driver).rows_total;
    fake_block(true);
    submit(&prefilling, &world);
    driver_cancel(world.driver, prefilling.id);
    driver_cancel(world.driver, 123456); /* nobody's */
    client_wait(&prefilling);
    assert_int_equal(prefilling.reason, FINISH_CANCELLED);
    fake_block(false);
    run(&after, &world);
    /* of its 480 rows what was under way alone: a micro-batch for each device, and one more */
    assert_true(driver_stats(world.driver).rows_total - n_before <= 3 * 32 + 20);
    assert_int_equal(driver_stats(world.driver).slots_busy, 0);
    assert_int_equal(driver_stats(world.driver).queued, 0);
    world_close(&world);
}

/* Two stages; the first has the chunk while it is cancelled. What came before it is still there for
 * the next request, and nothing of the chunk. */
static void test_a_cancelled_chunk_is_not_computed_to_its_end(void **state)
{
    (void)state;
    struct world world;
    for (uint32_t n_cells = 0; n_cells <= 1024; n_cells += 1024) {
        world_open(&world, 2, 2,
                   &(struct driver_options){
                       .n_slots = 2, .context = 500, .batch_rows = 200, .cells = n_cells});
        static struct client first, second;
        client_init(&first, 70, 480, 1);
        client_init(&second, 70, 490, 10);
        fake_trace_clear();
        fake_pause_at(0, 300); /* in the second chunk or the third, which may begin there */
        submit(&first, &world);
        while (!fake_is_paused())
            usleep(1000);
        driver_cancel(world.driver, first.id);
        client_wait(&first);
        assert_int_equal(first.reason, FINISH_CANCELLED);
        for (int i = 0; i < 5000 && !fake_trace().n_stopped; i++)
            usleep(1000); /* it is halted a moment after its request has ended */
        fake_pause_at(0, 0);
        run(&second, &world);
        assert_int_equal(second.reason, FINISH_LENGTH);
        client_check(&second, 500);
        const struct fake_trace trace = fake_trace();
        assert_true(trace.n_stopped >= 1);
        assert_true(trace.n_rows_stopped <= 300);
        assert_in_range(second.usage.cached_tokens, 1, 300);
        world_close(&world);
    }
}

static void test_closing_cancels_what_runs(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 4, 4, &(struct driver_options){.n_slots = 2, .context = 500});
    static struct client clients[5];
    for (int i = 0; i < 5; i++) {
        client_init(&clients[i], 40 + (uint64_t)i, 100, 400);
        submit(&clients[i], &world);
    }
    world_close(&world);
    for (int i = 0; i < 5; i++) {
        assert_int_equal(clients[i].n_done, 1);
        client_check(&clients[i], 500);
    }
}

static void test_a_failing_stage_ends_the_request_and_no_more(void **state)
{
    (void)state;
    for (uint32_t layer = 0; layer < FAKE_LAYERS; layer += 2) {
        struct world world;
        world_open(&world, 4, 4,
                   &(struct driver_options){.n_slots = 1, .context = 400, .batch_rows = 16});
        struct client broken, after;
        client_init(&broken, 50, 300, 20);
        fake_fail_next(layer);
        submit(&broken, &world);
        client_wait(&broken);
        assert_int_equal(broken.reason, FINISH_ERROR);
        assert_int_equal(broken.error.code, ERROR_DEVICE);
        assert_non_null(strstr(broken.error.text, "the toy fell down"));
        assert_non_null(strstr(broken.error.text, "toy"));
        client_init(&after, 50, 300, 20);
        run(&after, &world);
        assert_int_equal(after.reason, FINISH_LENGTH);
        assert_int_equal(after.usage.cached_tokens, 0); /* nothing of a broken slot is trusted */
        world_close(&world);
    }
}

/* The second request copies its prefix from the first, which then turns out never to have passed
 * the stage of `layer`.
 */
static void copy_from_a_failing_slot(uint32_t n_stages, uint32_t layer)
{
    struct world world;
    world_open(&world, n_stages, n_stages,
               &(struct driver_options){.n_slots = 2, .context = 400, .batch_rows = 32});
    struct client broken, copying;
    client_init(&broken, 51, 200, 5);
    client_init(&copying, 51, 200, 5);
    fake_block(true);
    submit(&broken, &world);
    while (driver_stats(world.driver).steps_total < 2)
        usleep(1000);
    submit(&copying, &world);
    while (driver_stats(world.driver).slots_busy < 2)
        usleep(1000);
    assert_true(driver_stats(world.driver).cached_tokens_total >= 32);
    fake_fail_next(layer);
    fake_block(false);
    client_wait(&broken);
    assert_int_equal(broken.reason, FINISH_ERROR);
    client_wait(&copying);
    client_check(&copying, 400);
    assert_int_equal(copying.reason, FINISH_LENGTH);
    assert_int_equal(copying.usage.cached_tokens, 0);
    world_close(&world);
}

static void test_a_prefix_copied_from_a_failing_slot_is_computed_anew(void **state)
{
    (void)state;
    copy_from_a_failing_slot(2, FAKE_LAYERS - 1);
    copy_from_a_failing_slot(4, 2); /* the stages behind the failing one have nothing to copy */
}

static void test_rows_and_embeddings(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 2, 2, &(struct driver_options){.n_slots = 2, .context = 400});
    struct client client;
    client_init(&client, 60, 200, 12);
    client.request.want_all_logits = true;
    fake_trace_clear();
    run(&client, &world);
    assert_int_equal(client.n_rows, 212);
    assert_in_range(fake_trace().outputs_max, 2,
                    66); /* memory is bounded, however long the prompt */
    client_init(&client, 60, 200, 0);
    client.request.embeddings = true;
    run(&client, &world);
    assert_int_equal(client.n_rows, 200);
    assert_int_equal(client.usage.cached_tokens, 0);
    world_close(&world);
}

static void test_logprobs_are_given(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1, &one_slot);
    struct client client;
    client_init(&client, 61, 10, 5);
    client.request.logprobs = true;
    run(&client, &world);
    for (uint32_t i = 0; i < client.n_tokens; i++)
        assert_true(client.logprobs[i] < 0 && client.logprobs[i] > -8);
    world_close(&world);
}

/* A long prompt comes while a stream runs: the stream gets a token with every micro-batch, none is
 * larger than half. */
static void test_a_long_prompt_does_not_freeze_a_stream(void **state)
{
    (void)state;
    struct world world;
    world_open(&world, 1, 1,
               &(struct driver_options){.n_slots = 2, .context = 500, .batch_rows = 128});
    static struct client stream, prompt;
    client_init(&stream, 70, 5, 450);
    client_init(&prompt, 71, 480, 1);
    fake_set_faults((struct fake_faults){.delay_us_max = 5000}); /* a second for the stream */
    submit(&stream, &world);
    client_wait_tokens(&stream, 3);
    fake_trace_clear();
    submit(&prompt, &world);
    client_wait(&prompt);
    fake_set_faults((struct fake_faults){0});
    assert_false(client_is_done(&stream));
    assert_in_range(fake_trace().rows_max, 2, 65);
    driver_cancel(world.driver, stream.id);
    client_wait(&stream);
    client_check(&stream, 500);
    client_check(&prompt, 500);
    world_close(&world);
}

static void test_what_cannot_open_leaves_nothing_behind(void **state)
{
    (void)state;
    struct device *device = fake_device_open("toy0", 1, 0);
    struct stage_plan plan[2] = {{device, 4}, {device, 4}};
    struct driver *driver = NULL;
    struct error err = {0};
    fake_set_faults((struct fake_faults){.open_fails_at = 6});
    assert_int_equal(driver_open(fake_model(), plan, 2, &one_slot, &driver, &err), ERROR_NO_MEMORY);
    fake_set_faults((struct fake_faults){0});
    assert_string_equal(err.text, "stage 1 (layers 4-7 on toy0): needs 2 GiB, 1 GiB is free");
    plan[1].n_layers = 3;
    assert_int_equal(driver_open(fake_model(), plan, 2, &one_slot, &driver, &err), ERROR_INVALID);
    plan[1].n_layers = 4;
    struct driver_options too_many = {.n_slots = LIMIT_SEQUENCES + 1};
    assert_int_equal(driver_open(fake_model(), plan, 2, &too_many, &driver, &err), ERROR_INVALID);
    assert_null(driver);
    assert_int_equal(fake_stages_open(), 0);
    fake_device_close(device);
}

static void test_every_allocation_may_fail(void **state)
{
    (void)state;
    struct device *device = fake_device_open("toy0", 1, 0);
    struct stage_plan plan[3] = {{device, 4}, {device, 3}, {device, 1}};
    struct driver *driver = NULL;
    unsigned nth = 0;
    enum error_code code = ERROR_NO_MEMORY;
    while (code) {
        mem_fail_nth(++nth);
        code = driver_open(fake_model(), plan, 3, &one_slot, &driver, NULL);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        assert_int_equal(fake_stages_open(), code ? 0 : 3);
    }
    assert_in_range(nth, 15, 100);
    struct world world = {.driver = driver};
    struct client client;
    client_init(&client, 1, 5, 5);
    int32_t stop = 96;
    client.request.stop_tokens = &stop;
    client.request.n_stop_tokens = 1;
    for (nth = 1; nth <= 3; nth++) {
        mem_fail_nth(nth);
        assert_int_equal(client_submit(&client, &world, NULL), ERROR_NO_MEMORY);
        mem_fail_nth(0);
    }
    run(&client, &world);
    driver_close(driver);
    fake_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split_gives_the_same_tokens),
        cmocka_unit_test(test_the_seed_decides),
        cmocka_unit_test(test_a_replayed_sequence_continues),
        cmocka_unit_test(test_a_prefix_is_reused),
        cmocka_unit_test(test_a_conversation_survives_another_that_shares_its_opening),
        cmocka_unit_test(test_a_prefix_is_copied_from_a_busy_slot),
        cmocka_unit_test(test_equal_prompts_are_held_once),
        cmocka_unit_test(test_a_prefix_is_reused_for_its_own_key_only),
        cmocka_unit_test(test_reuse_can_be_switched_off),
        cmocka_unit_test(test_stop_tokens_end_and_are_not_given),
        cmocka_unit_test(test_a_callback_may_stop),
        cmocka_unit_test(test_the_context_bounds_the_answer),
        cmocka_unit_test(test_impossible_requests_are_refused),
        cmocka_unit_test(test_the_queue_is_bounded),
        cmocka_unit_test(test_what_replies_took_is_added_up),
        cmocka_unit_test(test_cancelling_queued_running_and_prefilling),
        cmocka_unit_test(test_a_cancelled_chunk_is_not_computed_to_its_end),
        cmocka_unit_test(test_closing_cancels_what_runs),
        cmocka_unit_test(test_a_failing_stage_ends_the_request_and_no_more),
        cmocka_unit_test(test_a_prefix_copied_from_a_failing_slot_is_computed_anew),
        cmocka_unit_test(test_rows_and_embeddings),
        cmocka_unit_test(test_logprobs_are_given),
        cmocka_unit_test(test_a_long_prompt_does_not_freeze_a_stream),
        cmocka_unit_test(test_what_cannot_open_leaves_nothing_behind),
        cmocka_unit_test(test_every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
