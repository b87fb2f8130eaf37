/* A chat as templates of several kinds take it, and what /v1/responses keeps. */
#include "api/chat_prompt.h"
#include "api/responses.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

#define CALL_AND_RESULT                                                                            \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"},{\"role\":"             \
    "\"assistant\",\"tool_calls\":[{\"id\":\"c1\",\"type\":\"function\",\"function\":{\"name\":"   \
    "\"f\",\"arguments\":\"{\\\"a\\\":1}\"}}]},{\"role\":\"tool\",\"tool_call_id\":\"c1\","        \
    "\"content\":\"R\"}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\"}}]"

static const char knows_all[] = "tools tool_calls arguments | tojson enable_thinking <think>";
static const char joins_text[] = "tools '<x>' + tool['function']['arguments'] + '</x>'";
static const char knows_none[] = "{{ messages[0].content }}";

/* The value at a pointer of what the template gets, as JSON; "" where there is none. */
static const char *at(const char *body, const char *template, const char *pointer)
{
    static char text[1024];
    struct generation_request request;
    struct api_error err = {0};
    struct buffer out = {0};
    if (!generation_request_parse(GENERATION_CHAT, body, strlen(body), &request, &err))
        fail_msg("%s", err.message);
    const struct template_traits traits = template_traits_of(template, strlen(template));
    assert_true(chat_prompt_write(&request, &traits, &out, &err));
    yyjson_doc *doc = yyjson_read(out.data, out.size, 0);
    assert_non_null(doc);
    yyjson_val *value = yyjson_doc_ptr_get(doc, pointer);
    char *json = value ? yyjson_val_write(value, 0, NULL) : NULL;
    snprintf(text, sizeof text, "%s", json ? json : "");
    free(json);
    yyjson_doc_free(doc);
    buffer_deinit(&out);
    generation_request_deinit(&request);
    return text;
}

static void test_template_that_knows_tools(void **state)
{
    (void)state;
    static const char body[] = CALL_AND_RESULT "}";
    assert_string_equal(at(body, knows_all, "/tools/0/function/name"), "\"f\"");
    assert_string_equal(at(body, knows_all, "/messages/1/tool_calls/0/function/arguments"),
                        "{\"a\":1}");
    assert_string_equal(at(body, knows_all, "/messages/1/content"), "\"\"");
    assert_string_equal(at(body, knows_all, "/messages/2/role"), "\"tool\"");
    assert_string_equal(at(body, knows_all, "/messages/2/name"), "\"f\"");
    assert_string_equal(at(body, joins_text, "/messages/1/tool_calls/0/function/arguments"),
                        "\"{\\\"a\\\":1}\"");
    assert_string_equal(at(CALL_AND_RESULT ",\"tool_choice\":\"none\"}", knows_all, "/tools"), "");
}

static void test_template_that_knows_none(void **state)
{
    (void)state;
    static const char body[] = CALL_AND_RESULT "}";
    assert_string_equal(at(body, knows_none, "/tools"), "");
    assert_string_equal(at(body, knows_none, "/messages/0/role"), "\"user\"");
    assert_non_null(strstr(at(body, knows_none, "/messages/0/content"), "<tool_call>"));
    assert_string_equal(at(body, knows_none, "/messages/1/content"),
                        "\"<tool_call>\\n{\\\"arguments\\\":{\\\"a\\\":1},\\\"name\\\":\\\"f\\\"}"
                        "\\n</tool_call>\"");
    assert_string_equal(at(body, knows_none, "/messages/2/role"), "\"user\"");
    assert_string_equal(at(body, knows_none, "/messages/2/content"),
                        "\"<tool_response>\\nR\\n</tool_response>\"");
}

/* It shows calls that were made, in its family's form, which the model is told. */
static void test_template_that_knows_calls_alone(void **state)
{
    (void)state;
    static const char body[] = CALL_AND_RESULT "}";
    static const char knows_calls[] = "<｜tool▁calls▁begin｜> message['tool_calls']";
    assert_string_equal(at(body, knows_calls, "/tools"), "");
    assert_non_null(strstr(at(body, knows_calls, "/messages/0/content"), "<｜tool▁sep｜>"));
    assert_string_equal(at(body, knows_calls, "/messages/1/tool_calls/0/function/name"), "\"f\"");
    assert_string_equal(at(body, knows_calls, "/messages/2/role"), "\"tool\"");
}

#define CHAT_WITH(more)                                                                            \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]" more "}"

static void test_reasoning(void **state)
{
    (void)state;
    assert_string_equal(
        at(CHAT_WITH(",\"reasoning_effort\":\"none\""), knows_all, "/enable_thinking"), "false");
    assert_string_equal(
        at(CHAT_WITH(",\"reasoning_effort\":\"high\""), knows_all, "/enable_thinking"), "true");
    assert_string_equal(at(CHAT_WITH(",\"reasoning_effort\":\"high\""),
                           "<|channel|> <|message|> reasoning_effort", "/reasoning_effort"),
                        "\"high\"");
    assert_string_equal(
        at(CHAT_WITH(",\"reasoning_effort\":\"low\""), knows_none, "/reasoning_effort"), "");
    assert_string_equal(at(CHAT_WITH(",\"chat_template_kwargs\":{\"x\":[1]}"), knows_none, "/x"),
                        "[1]");
}

/* An answer that a grammar holds begins at once. */
static void test_no_thinking_before_grammar(void **state)
{
    (void)state;
    static const char forced[] = CALL_AND_RESULT ",\"tool_choice\":\"required\"}";
    static const char bound[] = CHAT_WITH(",\"guided_regex\":\"a\",\"reasoning_effort\":\"high\"");
    static const char own[] =
        CHAT_WITH(",\"guided_regex\":\"a\",\"chat_template_kwargs\":{\"enable_thinking\":true}");
    assert_string_equal(at(forced, knows_all, "/enable_thinking"), "false");
    assert_string_equal(at(bound, knows_all, "/enable_thinking"), "false");
    assert_string_equal(at(bound, knows_none, "/enable_thinking"), "");
    assert_string_equal(at(own, knows_all, "/enable_thinking"), "true");
}

/* A model that reasons, whose template has no switch. */
static void test_effort_that_cannot_be_had(void **state)
{
    (void)state;
    static const char body[] = CHAT_WITH(",\"reasoning_effort\":\"high\"");
    const struct template_traits traits = template_traits_of("<think>", 7);
    struct generation_request request;
    struct api_error err = {0};
    struct buffer out = {0};
    assert_true(generation_request_parse(GENERATION_CHAT, body, sizeof body - 1, &request, &err));
    assert_false(chat_prompt_write(&request, &traits, &out, &err));
    assert_int_equal(err.status, 400);
    assert_string_equal(err.param, "reasoning_effort");
    buffer_deinit(&out);
    generation_request_deinit(&request);
}

static void test_store_is_bounded(void **state)
{
    (void)state;
    struct response_store *store = response_store_new();
    struct buffer found = {0}, large = {0};
    char id[48];
    buffer_extend(&large, RESPONSES_BYTES / 4);
    memset(large.data, 'x', large.size);
    for (int i = 0; i < RESPONSES_KEPT + 1; i++) {
        const struct buffer text = {.data = id, .size = (size_t)sprintf(id, "resp-%d", i)};
        response_store_keep(store, id, 7, &text);
    }
    assert_false(response_store_find(store, "resp-0", 7, &found)); /* the oldest made room */
    assert_false(response_store_find(store, "resp-1", 8, &found)); /* another token's */
    assert_true(response_store_find(store, "resp-1", 7, &found));
    assert_string_equal(found.data, "resp-1");
    for (int i = 0; i < 5; i++) {
        sprintf(id, "large-%d", i);
        response_store_keep(store, id, 7, &large);
    }
    assert_true(store->n_bytes <= RESPONSES_BYTES);
    assert_false(response_store_find(store, "large-0", 7, &found));
    assert_true(response_store_find(store, "large-4", 7, &found));
    buffer_text(&large, "x");
    response_store_keep(store, "too-large", 7, &large);
    assert_false(response_store_find(store, "too-large", 7, &found));
    response_store_free(store);
    buffer_deinit(&large);
    buffer_deinit(&found);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_that_knows_tools),
        cmocka_unit_test(test_template_that_knows_none),
        cmocka_unit_test(test_template_that_knows_calls_alone),
        cmocka_unit_test(test_reasoning),
        cmocka_unit_test(test_no_thinking_before_grammar),
        cmocka_unit_test(test_effort_that_cannot_be_had),
        cmocka_unit_test(test_store_is_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
