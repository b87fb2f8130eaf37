/* The control socket of a node that has a model: what may not be planned, placed, moved, drained
 * and bound to, and why; requests to the model, good ones and broken ones. */
#include "daemon_world.h"

#include "base/clock.h"
#include "node/lead.h"
#include "request/request_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CHIP(layers) "{\"node\":\"node0\",\"device\":\"sim:chip\",\"n_layers\":" #layers "}"

static struct daemon_world *w;
static struct error err;

static void expect(const char *line, const char *words)
{
    const char *answer = ask(w, 0, line);
    if (!strstr(answer, words))
        fail_msg("%s: '%s' is not in: %s", line, words, answer);
}

struct said {
    const char *line, *answer;
};

static void expect_all(const struct said *said, size_t n)
{
    for (size_t i = 0; i < n; i++)
        expect(said[i].line, said[i].answer);
}

#define EXPECT_ALL(...)                                                                            \
    expect_all((const struct said[]){__VA_ARGS__},                                                 \
               sizeof((const struct said[]){__VA_ARGS__}) / sizeof(struct said))

static bool leads(void *arg)
{
    const struct daemon *daemon = w->nodes[0].daemon;
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), daemon->id);
    return lead_is(daemon->lead) && record && record->admitted;
}

/* One node, which leads itself and has the model `llama`, of two layers. */
static int setup(void **state)
{
    char line[512];
    w = daemon_world_open();
    if (daemon_world_start(w, 0, &(struct daemon_options){0}, &err))
        fail_msg("%s", err.text);
    assert_true(daemon_world_run(w, leads, NULL, 5000));
    snprintf(line, sizeof line, "{\"do\":\"add\",\"path\":\"%s/models/llama.gguf\"}",
             getenv("MEDLEY_GOLDEN"));
    expect(line, "\"llama\"");
    return 0;
}

static int teardown(void **state)
{
    daemon_world_close(w);
    return 0;
}

static void place(void)
{
    expect("{\"do\":\"place\",\"model\":\"llama\",\"context\":64,\"streams\":2}", "\"ready\"");
}

static void test_plans_that_are_refused(void **state)
{
    EXPECT_ALL(
        {"{\"do\":\"plan\"}", "has no model ''"},
        {"{\"do\":\"plan\",\"model\":\"none\"}", "`medley add FILE` adds it"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"without\":[\"none\"]}", "without: "},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"without\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}",
         "`without` lists at most 16 machines"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"with\":[{\"node\":\"none\"}]}", "with: "},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"with\":[{\"node\":\"node0\",\"device\":\"x\"}]}",
         "with: node0 has no device 'x'"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"with\":[0,0,0,0,0,0,0,0,0]}",
         "`with` lists at most 8 devices"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"layers\":[{\"node\":\"none\"}]}", "layers: "},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"layers\":[" CHIP(0) "]}",
         "layers: a stage has 1 to"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"layers\":[" CHIP(1) "]}",
         "1 of 2 layers are placed"},
        {"{\"do\":\"plan\",\"model\":\"llama\",\"context\":100000}", "512"}, );
    char line[8192] = "{\"do\":\"plan\",\"model\":\"llama\",\"layers\":[0";
    for (int i = 0; i < LIMIT_STAGES; i++)
        strcat(line, ",0");
    strcat(line, "]}");
    expect(line, "`layers` lists at most");
    expect("{\"do\":\"plan\",\"model\":\"llama\",\"layers\":[" CHIP(2) "]}", "\"stages\"");
}

static void test_moves_that_are_refused(void **state)
{
    EXPECT_ALL({"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[" CHIP(2) "]}",
                "no instance 'llama'; `medley status` lists them"},
               {"{\"do\":\"place\",\"model\":\"none\",\"layers\":[" CHIP(2) "]}", "not_found"}, );
    place();
    EXPECT_ALL(
        {"{\"do\":\"move\",\"instance\":\"llama\"}", "`to` lists 1 to"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[]}", "`to` lists 1 to"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[{\"node\":\"none\"}]}", "not_found"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[{\"node\":\"node0\"}]}",
         "node0 has no device ''; `medley nodes` lists them"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[" CHIP(0) "]}", "a stage has 1 to"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[" CHIP(1) "]}", "error"},
        {"{\"do\":\"unload\",\"instance\":\"llama\"}", "llama"},
        {"{\"do\":\"move\",\"instance\":\"llama\",\"to\":[" CHIP(2) "]}",
         "\"error\""}, /* it is being unloaded, or is gone */
        {"{\"do\":\"place\",\"model\":\"llama\",\"layers\":[" CHIP(3) "]}", "error"}, );
}

static void test_drains_and_switches(void **state)
{
    EXPECT_ALL(
        {"{\"do\":\"drain\",\"node\":\"none\"}", "not_found"},
        {"{\"do\":\"drain\",\"node\":\"node0\",\"undo\":true}", "node0 is not drained"},
        {"{\"do\":\"drain\",\"node\":\"node0\"}", "\"drained\""},
        {"{\"do\":\"drain\",\"node\":\"node0\"}", "node0 is drained already"},
        {"{\"do\":\"place\",\"model\":\"llama\",\"layers\":[" CHIP(2) "]}", "node0 is drained"},
        {"{\"do\":\"drain\",\"node\":\"node0\",\"undo\":true}", "\"undrained\""},
        {"{\"do\":\"moves\"}", "\"on\""},
        {"{\"do\":\"moves\",\"on\":true}", "not what it is already"},
        {"{\"do\":\"moves\",\"on\":false}", "\"off\""}, {"{\"do\":\"moves\"}", "\"off\""}, );
}

static void test_tokens_are_bound_to_what_is_there(void **state)
{
    char line[4096];
    EXPECT_ALL(
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a b\"}", "a token's name has 1 to"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"fly\"}",
         "there is no scope 'fly'"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\",\"places\":[7]}",
         "places must be texts: NODE or NODE/DEVICE"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\",\"places\":["
         "\"none\"]}",
         "not_found"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\",\"places\":["
         "\"node0/x\"]}",
         "node0 has no device 'x'; `medley nodes` lists them"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\",\"places\":["
         "\"none/x\"]}",
         "not_found"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\",\"models\":["
         "\"none\"]}",
         "the cluster has no model 'none'; `medley status` lists them"},
        {"{\"do\":\"token\",\"what\":\"create\",\"name\":\"bound\",\"scopes\":\"generate\","
         "\"models\":[\"llama\"],\"places\":[\"node0/sim:chip\"]}",
         "\"token\""},
        {"{\"do\":\"token\",\"what\":\"list\"}", "\"llama\""}, );
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line,
                 "{\"do\":\"token\",\"what\":\"create\",\"name\":\"a\",\"scopes\":\"read\","
                 "\"%s\":[\"x\"",
                 i ? "models" : "places");
        for (int k = 0; k < LIMIT_ACCESS_TOKEN_BINDINGS; k++)
            strcat(line, ",\"x\"");
        strcat(line, "]}");
        expect(line, i ? "a token can be bound to at most 64 models"
                       : "a token can be bound to at most 64 devices");
    }
}

/* ---- requests to the model ---- */

/* What was answered to the request of one id, as far as it was heard. */
struct replies {
    size_t at;
    uint32_t n_accepted, n_refused, n_tokens, n_rows, n_done;
    uint32_t n_values; /* of the last row */
    enum finish_reason reason;
    struct error error;
};

static void replies_take(struct replies *replies, struct request_message *message)
{
    switch ((enum request_kind)message->kind) {
    case REQUEST_ACCEPTED:
        replies->n_accepted++;
        break;
    case REQUEST_REFUSED:
        replies->n_refused++;
        replies->error = message->error;
        break;
    case REQUEST_TOKENS:
        replies->n_tokens += message->tokens.count;
        break;
    case REQUEST_ROW:
        replies->n_rows++;
        replies->n_values = message->row.n_values;
        break;
    case REQUEST_DONE:
        replies->n_done++;
        replies->reason = message->done.reason;
        replies->error = message->error;
        break;
    case REQUEST_SUBMIT:
    case REQUEST_CANCEL:
        fail_msg("a node asks");
    }
}

/* Hears until `n` requests of the connection have ended, or were refused. */
static void replies_await(struct talk *talk, struct replies *replies, uint32_t n)
{
    const uint64_t end_ns = clock_now_ns() + UINT64_C(20000000000);
    while (replies->n_done + replies->n_refused < n) {
        const void *message;
        size_t size;
        assert_true(clock_now_ns() < end_ns);
        assert_false(talk_await_end(w, talk, 5));
        struct bytes_reader run = {(const unsigned char *)talk->text + replies->at,
                                   talk->n - replies->at, false};
        while (request_next(&run, &message, &size, &err) == ERROR_NONE && message) {
            struct request_message read;
            assert_int_equal(request_read(message, size, &read, &err), ERROR_NONE);
            replies_take(replies, &read);
            request_message_deinit(&read);
        }
        replies->at = talk->n - run.left;
    }
}

/* Asks for the model; the answer's line ends where messages begin. */
static struct talk *talk_to_model(struct replies *replies)
{
    static const char line[] = "{\"do\":\"generate\",\"model\":\"llama\"}\n";
    struct talk *talk = talk_open(w, 0);
    talk_say(w, talk, line, sizeof line - 1);
    assert_true(talk_await(w, talk, "\n", 5000));
    assert_non_null(strstr(talk->text, "\"instance\":\"llama\""));
    *replies = (struct replies){.at = (size_t)(strchr(talk->text, '\n') - talk->text) + 1};
    return talk;
}

static void submit(struct talk *talk, uint64_t id, const struct request *request)
{
    struct buffer run = {0};
    request_write_submit(id, "llama", request, &run);
    assert_false(run.failed);
    talk_say(w, talk, run.data, run.size);
    buffer_deinit(&run);
}

static void test_requests_are_answered(void **state)
{
    static const int32_t prompt[100] = {1, 5, 7, 9};
    const struct request usual = {
        .prompt = prompt, .n_prompt = 4, .n_predict = 3, .sampler = sampler_defaults()};
    struct request rows = usual, too_long = usual, long_one = usual;
    struct replies replies;
    place();
    struct talk *talk = talk_to_model(&replies);
    submit(talk, 1, &usual);
    replies_await(talk, &replies, 1);
    assert_int_equal(replies.n_accepted, 1);
    assert_int_equal(replies.n_tokens, 3);
    assert_int_equal(replies.reason, FINISH_LENGTH);

    rows.want_all_logits = true; /* of the prompt's rows and of the tokens, each as a row */
    submit(talk, 2, &rows);
    replies_await(talk, &replies, 2);
    assert_true(replies.n_rows >= 4);
    assert_int_equal(replies.n_values, 320);

    too_long.n_prompt = 100; /* its place is free again for the next */
    submit(talk, 3, &too_long);
    replies_await(talk, &replies, 3);
    assert_int_equal(replies.n_refused, 1);
    assert_non_null(strstr(replies.error.text, "64"));

    long_one.n_predict = 50;
    submit(talk, 4, &long_one);
    struct buffer run = {0};
    request_write_cancel(77, &run); /* nobody's */
    request_write_cancel(4, &run);
    talk_say(w, talk, run.data, run.size);
    buffer_deinit(&run);
    replies_await(talk, &replies, 4);
    assert_true(replies.reason == FINISH_CANCELLED || replies.reason == FINISH_LENGTH);
    talk_close(talk);
}

/* A connection has so many requests at a time, and who breaks the protocol is hung up on. */
static void test_requests_have_limits(void **state)
{
    static const int32_t prompt[] = {1, 5, 7, 9};
    enum { MANY = 70, AT_A_TIME = 64 };
    const struct request request = {
        .prompt = prompt, .n_prompt = 4, .n_predict = 40, .sampler = sampler_defaults()};
    struct replies replies;
    struct buffer run = {0};
    place();
    struct talk *talk = talk_to_model(&replies);
    for (uint64_t id = 1; id <= MANY; id++)
        request_write_submit(id, "llama", &request, &run);
    talk_say(w, talk, run.data, run.size);
    buffer_deinit(&run);
    replies_await(talk, &replies, MANY - AT_A_TIME);
    assert_true(replies.n_refused > 0);
    assert_non_null(strstr(replies.error.text, "64 requests of this connection are under way"));
    talk_close(talk); /* those that are under way end with it */

    talk = talk_to_model(&replies);
    talk_say(w, talk, "\1\0\0\0\1", 5); /* a SUBMIT of one byte */
    assert_true(talk_await_end(w, talk, 5000));
    talk_close(talk);
    talk = talk_to_model(&replies);
    talk_say(w, talk, "\377\377\377\377", 4); /* 4 GiB */
    assert_true(talk_await_end(w, talk, 5000));
    talk_close(talk);
    expect("{\"do\":\"status\"}", "\"waiting\":false");
}

/* Who watches is told of what changes, and of events, line by line. */
static void test_watchers_are_told(void **state)
{
    struct talk *talk = talk_open(w, 0);
    talk_say(w, talk, "{\"do\":\"live\"}\n", 14);
    assert_true(talk_await(w, talk, "{\"snapshot\":", 5000));
    place();
    assert_true(talk_await(w, talk, "{\"change\":", 10000));
    assert_true(talk_await(w, talk, "{\"event\":", 10000));
    talk_close(talk);
    expect("{\"do\":\"status\"}", "\"waiting\":false");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_plans_that_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_moves_that_are_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_drains_and_switches, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tokens_are_bound_to_what_is_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests_are_answered, setup, teardown),
        cmocka_unit_test_setup_teardown(test_requests_have_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_watchers_are_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
