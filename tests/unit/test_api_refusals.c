/* What no interface takes: each wrong field, with its status and the words that say what to do. */
#include "api_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A chat whose only message, or whose body, has what is wrong. */
#define MESSAGES(list) "{\"model\":\"fake-model\",\"messages\":[" list "]}"
#define INPUT(list) "{\"model\":\"fake-model\",\"input\":[" list "]}"
#define USER "{\"role\":\"user\",\"content\":\"hello\"}"
#define CALL                                                                                       \
    "{\"id\":\"a\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}"

struct refusal {
    const char *path, *body;
    int status;
    const char *words;
};

static bool is_refused(const struct refusal *refusal)
{
    struct api_reply reply = api_once(refusal->path, refusal->body);
    const bool is = reply.status == refusal->status && strstr(reply.body.data, refusal->words);
    if (!is)
        print_error("%s %s\n  was to be %d with \"%s\", and is %d: %s\n", refusal->path,
                    refusal->body, refusal->status, refusal->words, reply.status, reply.body.data);
    api_reply_clear(&reply);
    return is;
}

static void expect_all_refused(const struct refusal *refusals, size_t n)
{
    size_t n_refused = 0;
    for (size_t i = 0; i < n; i++)
        n_refused += is_refused(&refusals[i]);
    assert_int_equal(n_refused, n);
    struct api_reply reply = api_once("/v1/chat/completions", CHAT("hello", ""));
    assert_int_equal(reply.status, 200); /* and it goes on */
    api_reply_clear(&reply);
}

static int setup(void **state)
{
    (void)state;
    api_world_start((struct fake_driver_options){.n_slots = 2, .queue_max = 8, .context = 256});
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

static void test_messages(void **state)
{
    static const char chat[] = "/v1/chat/completions";
    static const struct refusal refusals[] = {
        {chat, MESSAGES("{\"role\":\"wizard\",\"content\":\"x\"}"), 400,
         "'wizard' is not supported"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":7}"), 400,
         "must be a string or an array of parts"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":[{\"type\":\"smell\"}]}"), 400,
         "'smell' is not supported"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":[{\"text\":\"x\"}]}"), 400,
         "'(none)' is not supported"},
        {chat, MESSAGES(USER ",{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":7}"), 400,
         "must be an array of at most"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":\"x\",\"tool_calls\":[" CALL "]}"), 400,
         "'messages[0].tool_calls' is the assistant's alone"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":\"x\",\"reasoning_content\":\"y\"}"), 400,
         "'messages[0].reasoning_content' is the assistant's alone"},
        {chat, MESSAGES("{\"role\":\"user\",\"role\":\"user\",\"content\":\"x\"}"), 400,
         "'messages[0].role' is given twice"},
        {chat, MESSAGES("{\"role\":\"user\",\"content\":\"x\",\"content\":\"x\"}"), 400,
         "'messages[0].content' is given twice"},
        {chat, MESSAGES(USER), 200, "assistant"},
        {chat, "[]", 400, "object"},
        {chat, "{\"model\":\"fake-model\",\"messages\":[]}", 400, "messages"},
        {chat, CHAT("x", ",\"tools\":7"), 400, "tools"},
        {chat, CHAT("x", ",\"tools\":[{\"type\":\"magic\"}]"), 400, "tools[0]"},
        {chat, CHAT("x", ",\"tools\":[{\"type\":\"function\",\"function\":7}]"), 400,
         "'tools[0]' must be {"},
        {chat,
         CHAT("x", ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\","
                   "\"parameters\":7}}]"),
         400, "must be an object"},
        {chat, CHAT("x", ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":7}"), 400,
         "json_schema"},
        {chat, CHAT("x", ",\"response_format\":{\"type\":\"json_object\",\"smell\":1}"), 400,
         "'response_format' must be {"},
        {chat, CHAT("x", ",\"logit_bias\":7"), 400, "logit_bias"},
        {chat, CHAT("x", ",\"n\":0"), 400, "'n'"},
        {chat, CHAT("x", ",\"seed\":\"x\""), 400, "seed"},
        {chat, CHAT("x", ",\"stop\":[1]"), 400, "stop"},
        {"/v1/completions", "{\"model\":\"fake-model\"}", 400, "prompt"},
        {"/v1/completions", "{\"model\":\"fake-model\",\"prompt\":[\"x\",7]}", 400, "prompt"},
        {"/v1/embeddings", "{\"model\":\"fake-model\",\"input\":7}", 400, "input"},
        {"/v1/embeddings",
         "{\"model\":\"fake-model\",\"input\":\"x\",\"encoding_format\":\"morse\"}", 400,
         "'encoding_format' must be"},
        {"/tokenize", "{\"content\":7}", 400, "content"},
        {"/detokenize", "{\"tokens\":\"x\"}", 400, "'tokens' must be an array of token ids"},
    };
    expect_all_refused(refusals, sizeof refusals / sizeof *refusals);
}

static void test_ollama(void **state)
{
    static const struct refusal refusals[] = {
        {"/api/chat", "{\"model\":\"fake-model\",\"messages\":[7]}", 400,
         "'messages[0]' must be an object"},
        {"/api/chat", "{\"model\":\"fake-model\",\"messages\":[" USER "],\"options\":7}", 400,
         "'options' must be an object"},
        {"/api/chat", "{\"model\":\"fake-model\",\"messages\":[" USER "],\"think\":7}", 400,
         "'think' must be true, false, low, medium or high"},
        {"/api/chat",
         "{\"model\":\"fake-model\",\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]}]}",
         400, "'tool_calls[0]' must be"},
        {"/api/generate", "{\"model\":\"fake-model\",\"prompt\":7}", 400, "prompt"},
        {"/api/show", "{}", 400, "model"},
        {"/api/embed", "{\"model\":\"fake-model\"}", 400, "input"},
        {"/api/pull", "{}", 404, "`medley up` starts a node that does"},
        {"/api/show", "{\"model\":\"nobody\"}", 404, "nobody"},
    };
    expect_all_refused(refusals, sizeof refusals / sizeof *refusals);
}

static void test_responses_and_messages(void **state)
{
    static const char to[] = "/v1/responses";
    static const struct refusal refusals[] = {
        {to, INPUT("{\"type\":\"smell\"}"), 400, "'smell' is not supported"},
        {to, INPUT("{\"role\":\"user\",\"content\":7}"), 400, "must be a string or an array"},
        {to,
         INPUT("{\"role\":\"user\",\"content\":[{\"type\":\"input_image\",\"detail\":\"high\","
               "\"image_url\":\"data:,\"}]}"),
         400, "is not supported beyond auto"},
        {to, INPUT("{\"type\":\"function_call\"}"), 400, "must have call_id, name and arguments"},
        {to, INPUT("{\"type\":\"function_call_output\"}"), 400, "call_id"},
        {to, INPUT("{\"content\":\"x\"}"), 400, "role"},
        {to, "{\"model\":\"fake-model\",\"input\":\"x\",\"tools\":7}", 400,
         "'tools' must be an array"},
        {to, "{\"model\":\"fake-model\",\"input\":\"x\",\"truncation\":\"auto\"}", 400,
         "'truncation' is not supported beyond disabled"},
        {to, "{\"model\":\"fake-model\",\"input\":\"x\",\"previous_response_id\":\"resp_0\"}", 404,
         "resp_0"},
        {"/v1/messages", "{\"model\":\"fake-model\",\"messages\":[" USER "]}", 400, "max_tokens"},
        {"/v1/messages", "{\"model\":\"fake-model\",\"max_tokens\":4,\"messages\":[7]}", 400,
         "messages"},
        {"/v1/messages", "{\"model\":\"nobody\",\"max_tokens\":4,\"messages\":[" USER "]}", 404,
         "not_found_error"},
        {"/v1/rerank", "{\"model\":\"fake-model\",\"query\":\"x\"}", 400, "documents"},
    };
    expect_all_refused(refusals, sizeof refusals / sizeof *refusals);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ollama, setup, teardown),
        cmocka_unit_test_setup_teardown(test_responses_and_messages, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
