/* Records of requests: what the API shows of those under way and those that are over. */
#include "api/record.h"
#include "api_world.h"
#include "models_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int start(void **state)
{
    (void)state;
    models_world_start(20);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    models_world_stop();
    return 0;
}

#define ASK(model, prompt, more) "{\"model\":\"" model "\",\"prompt\":\"" prompt "\"" more "}"

static struct api_reply list(void)
{
    struct api_reply reply = api_once("/api/requests", NULL);
    assert_int_equal(reply.status, 200);
    return reply;
}

/* Until the value is that, for 5 s. */
static void wait_until(const char *pointer, const char *value)
{
    for (int i = 0; i < 500; i++) {
        struct api_reply reply = list();
        const bool is_so = strcmp(api_json_at(&reply.body, pointer), value) == 0;
        if (is_so) {
            api_reply_clear(&reply);
            return;
        }
        if (i == 499)
            fail_msg("%s is not %s in %s", pointer, value, reply.body.data);
        api_reply_clear(&reply);
        usleep(10000);
    }
}

static void expect(const struct api_reply *reply, const char *pointer, const char *value)
{
    if (strcmp(api_json_at(&reply->body, pointer), value) != 0)
        fail_msg("%s is %s, not %s, in %s", pointer, api_json_at(&reply->body, pointer), value,
                 reply->body.data);
}

static void test_a_whole_request(void **state)
{
    char id[64], path[128];
    struct api_reply reply = api_once("/v1/completions", ASK("one", "secret", ""));
    assert_int_equal(reply.status, 200);
    snprintf(id, sizeof id, "%s", api_json_at(&reply.body, "/id"));
    api_reply_clear(&reply);
    reply = list();
    expect(&reply, "/finished/0/id", id);
    expect(&reply, "/finished/0/model", "first");
    expect(&reply, "/finished/0/outcome", "done");
    expect(&reply, "/finished/0/prompt_tokens", "7"); /* and the BOS */
    expect(&reply, "/finished/0/cached_tokens", "1");
    expect(&reply, "/finished/0/generated_tokens", "6");
    expect(&reply, "/finished/0/client", "null");
    expect(&reply, "/finished/0/driver", "null"); /* nobody said */
    expect(&reply, "/finished/0/joules", "null");
    expect(&reply, "/finished/1", "(none)");
    expect(&reply, "/under_way/0", "(none)");
    assert_true(atof(api_json_at(&reply.body, "/finished/0/ttft_ms")) > 0);
    assert_true(atof(api_json_at(&reply.body, "/finished/0/total_ms")) >=
                atof(api_json_at(&reply.body, "/finished/0/ttft_ms")));
    assert_true(atof(api_json_at(&reply.body, "/finished/0/started_ms")) > 1.6e12);
    assert_null(strstr(reply.body.data, "secret")); /* neither the prompt nor its echo */
    api_reply_clear(&reply);
    snprintf(path, sizeof path, "/api/requests/%s", id);
    reply = api_once(path, NULL);
    expect(&reply, "/id", id);
    api_reply_clear(&reply);
    reply = api_once("/api/requests/cmpl-nobody", NULL);
    assert_int_equal(reply.status, 404);
    api_reply_clear(&reply);
}

static void test_outcomes(void **state)
{
    struct api_reply reply = api_once("/v1/completions", ASK("nobody", "abc", ""));
    assert_int_equal(reply.status, 404);
    api_reply_clear(&reply);
    reply = list();
    expect(&reply, "/finished/0/outcome", "failed");
    expect(&reply, "/finished/0/model", "null");
    expect(&reply, "/finished/0/prompt_tokens", "null");
    expect(&reply, "/finished/0/ttft_ms", "null");
    api_reply_clear(&reply);
    models_world_slow(20000);
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", "abc!", ",\"stream\":true,\"max_tokens\":1000"));
    assert_true(api_wait_for(fd, "\"text\""));
    reply = list();
    expect(&reply, "/under_way/0/outcome", "null");
    expect(&reply, "/under_way/0/model", "first");
    expect(&reply, "/under_way/0/total_ms", "null");
    assert_true(atoi(api_json_at(&reply.body, "/under_way/0/generated_tokens")) > 0);
    api_reply_clear(&reply);
    close(fd);
    wait_until("/finished/0/outcome", "cancelled");
    wait_until("/under_way/0", "(none)");
}

static void test_the_last_200_are_kept(void **state)
{
    char first[64] = "", last[64] = "";
    for (int i = 0; i < RECORDS_FINISHED + 5; i++) {
        struct api_reply reply = api_once("/v1/completions", ASK("first", "a", ""));
        snprintf(i ? last : first, sizeof first, "%s", api_json_at(&reply.body, "/id"));
        api_reply_clear(&reply);
    }
    struct api_reply reply = list();
    expect(&reply, "/finished/0/id", last);
    expect(&reply, "/finished/200", "(none)");
    assert_string_not_equal(api_json_at(&reply.body, "/finished/199/id"), "(none)");
    assert_null(strstr(reply.body.data, first));
    api_reply_clear(&reply);
}

static void test_what_computes_it(void **state)
{
    struct request_run run = {.driver = "node-a",
                              .n_stages = 2,
                              .stages = {{"node-a", "cpu", 0, 3}, {"node-b", "cuda0", 3, 5}},
                              .forecast_decode_tokens_per_s = 12.5,
                              .has_power = true,
                              .power_w = 100};
    models_world_run(&run);
    models_world_slow(5000);
    struct api_reply reply = api_once("/v1/completions", ASK("first", "abcdefgh", ""));
    api_reply_clear(&reply);
    reply = list();
    expect(&reply, "/finished/0/driver", "node-a");
    expect(&reply, "/finished/0/stages/0/device", "cpu");
    expect(&reply, "/finished/0/stages/1/node", "node-b");
    expect(&reply, "/finished/0/stages/1/first_layer", "3");
    expect(&reply, "/finished/0/stages/1/n_layers", "5");
    expect(&reply, "/finished/0/forecast_decode_tokens_per_s", "12.5");
    const double joules = atof(api_json_at(&reply.body, "/finished/0/joules"));
    const double total_s = atof(api_json_at(&reply.body, "/finished/0/total_ms")) / 1000;
    assert_true(joules > 0 && joules <= 100 * total_s + 0.001); /* both were rounded */
    api_reply_clear(&reply);
}

static void test_a_pause(void **state)
{
    struct request_run run = {.paused_ns = 1, .why = "node b was lost"};
    models_world_slow(2000000);
    models_world_run(&run);
    int fd = api_connect();
    api_post(fd, "/v1/completions", ASK("first", "abc!", ",\"stream\":true,\"max_tokens\":1000"));
    wait_until("/under_way/0/pauses/0/why", "node b was lost");
    struct api_reply reply = list();
    expect(&reply, "/under_way/0/pauses/0/over", "false");
    expect(&reply, "/under_way/0/pauses/1", "(none)");
    api_reply_clear(&reply);
    models_world_run(&(struct request_run){0});
    wait_until("/under_way/0/pauses/0/over", "true");
    close(fd);
    wait_until("/finished/0/pauses/0/why", "node b was lost");
}

/* ---- the record alone, on a clock of the test ---- */

static const uint64_t MS = 1000000, BEGUN = 7000000000;

static struct request_record *begin(struct request_records *records)
{
    struct request_record *record = api_record_begin(records, "cmpl-1", "lena", BEGUN, 1000);
    assert_non_null(record);
    api_record_opened(record, "m");
    api_record_submitted(record, 10, BEGUN + 5 * MS);
    return record;
}

static void test_figures(void **state)
{
    struct request_records records = {0};
    struct request_record *record = begin(&records);
    struct buffer out = {0};
    for (uint32_t i = 0; i < 5; i++)
        api_record_token(record, BEGUN + (100 + 10 * i) * MS);
    api_record_usage(record, &(struct request_usage){
                                 .prompt_tokens = 10,
                                 .cached_tokens = 4,
                                 .queued_ns = 20 * MS,
                                 .prefill_ns = 60 * MS,
                                 .decode_ns = 40 * MS,
                                 .slowest_ns = 70 * MS,
                                 .times = {.n_stages = 2,
                                           .stages = {{70 * MS, 2 * MS, 0, 0},
                                                      {10 * MS, 0, REQUEST_TIME_UNKNOWN, 900}},
                                           .back_ns = 3 * MS}});
    struct request_run run = {.n_stages = 2, .stages = {{"a", "cpu", 0, 4}, {"b", "cpu", 4, 4}}};
    api_record_see_run(record, &run, 1, BEGUN + 190 * MS);
    api_record_end(&records, record, RECORD_DONE, BEGUN + 200 * MS);
    api_record_write(record, true, BEGUN + 900 * MS, &out);
    assert_string_equal(api_json_at(&out, "/client"), "lena");
    assert_string_equal(api_json_at(&out, "/queue_ms"), "20.0");
    assert_string_equal(api_json_at(&out, "/slowest_stage_ms"), "70.0");
    assert_string_equal(api_json_at(&out, "/stages/0/compute_ms"), "70.0");
    assert_string_equal(api_json_at(&out, "/stages/0/wait_ms"), "2.0");
    assert_string_equal(api_json_at(&out, "/stages/0/link_ms"), "0.0");
    assert_string_equal(api_json_at(&out, "/stages/0/link_bytes"), "0");
    assert_string_equal(api_json_at(&out, "/stages/1/compute_ms"), "10.0");
    assert_string_equal(api_json_at(&out, "/stages/1/link_ms"), "null");
    assert_string_equal(api_json_at(&out, "/stages/1/link_bytes"), "900");
    assert_string_equal(api_json_at(&out, "/back_ms"), "3.0");
    assert_string_equal(api_json_at(&out, "/ttft_ms"), "100.0");
    assert_string_equal(api_json_at(&out, "/total_ms"), "200.0");
    assert_string_equal(api_json_at(&out, "/decode_tokens_per_s"), "100.0");
    assert_string_equal(api_json_at(&out, "/prefill_tokens_per_s"), "100.0");
    buffer_clear(&out);
    api_record_write(record, false, BEGUN, &out);
    assert_string_equal(api_json_at(&out, "/client"), "null");
    buffer_deinit(&out);
    api_records_deinit(&records);
}

/* A pause begins with what was heard last, ends with the next token, and the list is bounded. */
static void test_pauses_are_bounded(void **state)
{
    struct request_records records = {0};
    struct request_record *record = begin(&records);
    struct request_run run = {.paused_ns = 1, .why = "loading"};
    uint64_t now = BEGUN + 5 * MS;
    api_record_see_run(record, &run, 1, now + 100 * MS);
    assert_int_equal(record->n_pauses, 0); /* too short to be told of */
    for (uint32_t i = 0; i < RECORD_PAUSES + 3; i++) {
        api_record_see_run(record, &run, 1, now + 300 * MS);
        api_record_see_run(record, &run, 1, now + 600 * MS);
        api_record_token(record, now + 700 * MS);
        if (!i) {
            assert_int_equal(record->n_pauses, 1);
            assert_int_equal(record->pauses[0].begun_ns, now);
            assert_int_equal(record->pauses[0].ended_ns, now + 700 * MS);
        }
        now += 700 * MS;
    }
    assert_int_equal(record->n_pauses, RECORD_PAUSES);
    assert_int_equal(record->pauses[RECORD_PAUSES - 1].ended_ns, now);
    api_record_end(&records, record, RECORD_DONE, now);
    api_records_deinit(&records);
}

static void test_energy_is_shared_or_unknown(void **state)
{
    struct request_records records = {0};
    struct request_record *record = begin(&records);
    struct request_run run = {.has_power = true, .power_w = 50};
    api_record_see_run(record, &run, 1, BEGUN + 1005 * MS);
    api_record_see_run(record, &run, 2, BEGUN + 2005 * MS);
    assert_float_equal(record->joules, 75, 1e-9);
    assert_false(record->lacks_joules);
    run.has_power = false;
    api_record_see_run(record, &run, 1, BEGUN + 2500 * MS);
    assert_true(record->lacks_joules);
    api_records_deinit(&records); /* under way: freed, too */
}

#define ON_A_SERVER(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_A_SERVER(test_a_whole_request),
        ON_A_SERVER(test_outcomes),
        ON_A_SERVER(test_the_last_200_are_kept),
        ON_A_SERVER(test_what_computes_it),
        ON_A_SERVER(test_a_pause),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_pauses_are_bounded),
        cmocka_unit_test(test_energy_is_shared_or_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
