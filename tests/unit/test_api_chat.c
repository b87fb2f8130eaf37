/* Chats with tools and reasoning. The fake model repeats its prompt, so that what it says is what
 * the last message says; its template's format is Hermes'. */
#include "api_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int start(void **state)
{
    (void)state;
    api_world_start((struct fake_driver_options){
        .n_slots = 4, .queue_max = 16, .context = 4096, .token_us = 20});
    return 0;
}

static int stop(void **state)
{
    (void)state;
    api_world_stop();
    return 0;
}

#define TOOLS                                                                                      \
    ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"weather\",\"parameters\":{"       \
    "\"type\":\"object\"}}}]"
#define CALL_OF(name)                                                                              \
    "<tool_call>{\\\"name\\\": \\\"" name "\\\", \\\"arguments\\\": {\\\"a\\\": 1}}</tool_call>"

static void expect_at(const struct api_reply *reply, const char *pointer, const char *value)
{
    if (strcmp(api_json_at(&reply->body, pointer), value) != 0)
        fail_msg("%s is %s, not %s, in %s", pointer, api_json_at(&reply->body, pointer), value,
                 reply->body.data);
}

static void expect_has(const struct api_reply *reply, const char *text)
{
    if (!reply->body.data || !strstr(reply->body.data, text))
        fail_msg("no %s in %s", text, reply->body.data);
}

static struct api_reply ask(const char *json)
{
    return api_once("/v1/chat/completions", json);
}

static void test_call(void **state)
{
    (void)state;
    struct api_reply reply = ask(CHAT("Well. " CALL_OF("weather"), TOOLS));
    assert_int_equal(reply.status, 200);
    expect_at(&reply, "/choices/0/message/content", "Well.");
    expect_at(&reply, "/choices/0/message/tool_calls/0/function/name", "weather");
    expect_at(&reply, "/choices/0/message/tool_calls/0/function/arguments", "{\"a\": 1}");
    expect_at(&reply, "/choices/0/message/tool_calls/0/type", "function");
    expect_at(&reply, "/choices/0/finish_reason", "tool_calls");
    api_reply_clear(&reply);
}

static void test_streamed_call(void **state)
{
    (void)state;
    struct api_reply reply = ask(CHAT(CALL_OF("weather"), TOOLS ",\"stream\":true"));
    assert_int_equal(reply.status, 200);
    expect_has(&reply, "\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"call_");
    expect_has(&reply, "\"name\":\"weather\",\"arguments\":\"\"}}]}");
    expect_has(&reply,
               "\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"{\"}");
    expect_has(&reply, "\"finish_reason\":\"tool_calls\"");
    assert_null(strstr(reply.body.data, "<tool_call>"));
    api_reply_clear(&reply);
}

static void test_no_tools(void **state)
{
    (void)state;
    struct api_reply reply = ask(CHAT(CALL_OF("weather"), ""));
    expect_at(&reply, "/choices/0/finish_reason", "stop");
    expect_at(&reply, "/choices/0/message/tool_calls", "(none)");
    expect_has(&reply, "<tool_call>{");
    api_reply_clear(&reply);
    reply = ask(CHAT(CALL_OF("weather"), TOOLS ",\"tool_choice\":\"none\""));
    expect_has(&reply, "<tool_call>{");
    api_reply_clear(&reply);
}

static void test_one_call(void **state)
{
    (void)state;
    struct api_reply reply =
        ask(CHAT(CALL_OF("weather") CALL_OF("weather"), TOOLS ",\"parallel_tool_calls\":false"));
    expect_at(&reply, "/choices/0/message/tool_calls/0/function/name", "weather");
    expect_at(&reply, "/choices/0/message/tool_calls/1", "(none)");
    api_reply_clear(&reply);
    reply = ask(CHAT(CALL_OF("weather") CALL_OF("weather"), TOOLS));
    expect_at(&reply, "/choices/0/message/tool_calls/1/function/name", "weather");
    api_reply_clear(&reply);
}

/* The prompt opens the call, so that what the model says goes on with it. */
static void test_forced_call(void **state)
{
    (void)state;
    static const char *const choices[] = {
        ",\"tool_choice\":\"required\"",
        ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"weather\"}}"};
    for (int i = 0; i < 2; i++) {
        char body[1024];
        snprintf(body, sizeof body, CHAT("{\\\"a\\\": 1}}", TOOLS "%s"), choices[i]);
        struct api_reply reply = ask(body);
        assert_int_equal(reply.status, 200);
        expect_at(&reply, "/choices/0/message/tool_calls/0/function/name", "weather");
        expect_at(&reply, "/choices/0/message/tool_calls/0/function/arguments", "{\"a\": 1}");
        expect_at(&reply, "/choices/0/finish_reason", "tool_calls");
        api_reply_clear(&reply);
    }
    struct api_reply reply =
        ask(CHAT("{\\\"a\\\": 1}}", TOOLS ",\"tool_choice\":\"required\",\"stream\":true"));
    expect_has(&reply, "\"name\":\"weather\",\"arguments\":\"\"}}]}");
    expect_has(&reply, "\"finish_reason\":\"tool_calls\"");
    api_reply_clear(&reply);
}

static void test_reasoning(void **state)
{
    (void)state;
    struct api_reply reply = ask(CHAT("<think>\\nHm.\\n</think>\\n\\nYes.", ""));
    expect_at(&reply, "/choices/0/message/reasoning_content", "Hm.");
    expect_at(&reply, "/choices/0/message/content", "Yes.");
    api_reply_clear(&reply);
    reply = ask(CHAT("<think>Hm</think>Yes", ",\"stream\":true"));
    expect_has(&reply, "\"delta\":{\"reasoning_content\":\"H\"}");
    expect_has(&reply, "\"delta\":{\"content\":\"Y\"}");
    assert_null(strstr(reply.body.data, "think>"));
    api_reply_clear(&reply);
}

/* What the prompt has opened is closed where a grammar holds: the answer is content. */
static void test_no_reasoning_before_grammar(void **state)
{
    (void)state;
    struct api_reply reply = ask(CHAT("x<think>\\n", ""));
    expect_at(&reply, "/choices/0/message/reasoning_content", "x<think>");
    api_reply_clear(&reply);
    reply = ask(CHAT("x<think>\\n", ",\"guided_regex\":\".*\""));
    expect_at(&reply, "/choices/0/message/reasoning_content", "(none)");
    expect_at(&reply, "/choices/0/message/content", "x<think>\n\n</think>\n\n");
    api_reply_clear(&reply);
}

/* A conversation with a call and its result. */
static void test_history(void **state)
{
    (void)state;
    struct api_reply reply =
        ask("{\"model\":\"fake-model\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},"
            "{\"role\":\"assistant\",\"content\":null,\"refusal\":null,\"tool_calls\":[{\"id\":"
            "\"call_1\",\"type\":\"function\",\"function\":{\"name\":\"weather\",\"arguments\":"
            "\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"call_1\",\"content\":"
            "\"Sun\"}]" TOOLS "}");
    assert_int_equal(reply.status, 200);
    expect_at(&reply, "/choices/0/message/content", "Sun");
    api_reply_clear(&reply);
}

static void test_harmless(void **state)
{
    (void)state;
    struct api_reply reply =
        ask(CHAT("x", ",\"metadata\":{\"a\":\"b\"},\"store\":true,\"user\":\"u\",\"service_tier\":"
                      "\"flex\",\"prompt_cache_key\":\"k\",\"safety_identifier\":\"s\","
                      "\"modalities\":[\"text\"],\"verbosity\":\"medium\",\"reasoning_effort\":"
                      "\"low\",\"chat_template_kwargs\":{\"enable_thinking\":false}"));
    assert_int_equal(reply.status, 200);
    api_reply_clear(&reply);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {CHAT("x", TOOLS ",\"tool_choice\":\"required\",\"guided_regex\":\"a\""), "tool_choice"},
        {CHAT("x",
              ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"parameters\":{"
              "\"type\":\"object\",\"uniqueItems\":1}}}],\"tool_choice\":\"required\""),
         "tools[0].function.parameters"},
        {CHAT("x",
              ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":1}}]"),
         "tools[0].function.strict"},
        {CHAT("x", ",\"tool_choice\":\"required\""), "tool_choice"},
        {CHAT("x", TOOLS ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"no\"}}"),
         "tool_choice"},
        {CHAT("x", ",\"tools\":[{\"type\":\"web\"}]"), "tools[0]"},
        {CHAT("x", ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]"),
         "tools[0].function.name"},
        {CHAT("x", ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a\",\"strict\":"
                   "true,\"parameters\":{\"type\":\"object\",\"uniqueItems\":1}}}]"),
         "tools[0].function.parameters"},
        {CHAT("x", ",\"verbosity\":\"low\""), "verbosity"},
        {CHAT("x", ",\"web_search_options\":{}"), "web_search_options"},
        {CHAT("x", ",\"chat_template_kwargs\":{\"messages\":[]}"), "chat_template_kwargs"},
        {CHAT("x", ",\"reasoning_effort\":\"much\""), "reasoning_effort"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_reply reply = ask(cases[i][0]);
        assert_int_equal(reply.status, 400);
        expect_at(&reply, "/error/param", cases[i][1]);
        api_reply_clear(&reply);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_call),        cmocka_unit_test(test_streamed_call),
        cmocka_unit_test(test_no_tools),    cmocka_unit_test(test_one_call),
        cmocka_unit_test(test_reasoning),   cmocka_unit_test(test_history),
        cmocka_unit_test(test_harmless),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_forced_call), cmocka_unit_test(test_no_reasoning_before_grammar),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
