/* api/chat_reply.h: which arguments of a request's tools are texts, ids of calls, and what a reply
 * keeps. */
#include "api/chat_reply.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

#include <cmocka.h>

static const char tools[] =
    "[{\"function\":{\"name\":\"write\",\"parameters\":{\"properties\":{"
    "\"path\":{\"type\":\"string\"},\"lines\":{\"type\":\"integer\"},"
    "\"maybe\":{\"type\":[\"string\",\"null\"]},\"either\":{\"type\":[\"string\",\"integer\"]},"
    "\"nothing\":{\"type\":[\"null\"]},\"any\":{}}}}},"
    "{\"function\":{\"name\":\"list\"}}]";

static bool takes_text(const struct reply_tools *of, const char *tool, const char *key)
{
    return of->takes_text(of->self, tool, strlen(tool), key, strlen(key));
}

static void test_tools(void **state)
{
    (void)state;
    struct tool_table table = {0};
    yyjson_doc *doc = yyjson_read(tools, sizeof tools - 1, 0);
    assert_null(tool_table_for_reply(&table).is_tool); /* no tools: nothing is a call */
    assert_true(tool_table_make(&table, yyjson_doc_get_root(doc)));
    yyjson_doc_free(doc);
    const struct reply_tools of = tool_table_for_reply(&table);
    assert_true(of.is_tool(of.self, "write", 5));
    assert_true(of.is_tool(of.self, "list", 4));
    assert_false(of.is_tool(of.self, "path", 4)); /* an argument is no tool */
    assert_false(of.is_tool(of.self, "writ", 4));
    assert_true(takes_text(&of, "write", "path"));
    assert_true(takes_text(&of, "write", "maybe"));
    assert_false(takes_text(&of, "write", "lines"));
    assert_false(takes_text(&of, "write", "either"));
    assert_false(takes_text(&of, "write", "nothing"));
    assert_false(takes_text(&of, "write", "any"));
    assert_false(takes_text(&of, "write", "none"));
    assert_false(takes_text(&of, "list", "path")); /* that is the other's */
    assert_false(takes_text(&of, "none", "path"));
    tool_table_deinit(&table);
}

static void test_ids(void **state)
{
    (void)state;
    char id[CALL_ID_BYTES], other[CALL_ID_BYTES];
    chat_call_id(tool_format_named("hermes"), 255, id);
    assert_string_equal(id, "call_00000000000000ff");
    chat_call_id(tool_format_named("mistral"), 35, id);
    assert_string_equal(id, "z00000000");
    chat_call_id(tool_format_named("mistral"), UINT64_MAX, id);
    chat_call_id(tool_format_named("mistral"), UINT64_MAX - 1, other);
    assert_int_equal(strlen(id), 9);
    for (int i = 0; i < 9; i++)
        assert_true(isalnum((unsigned char)id[i]));
    assert_string_not_equal(id, other);
}

static void keep(struct chat_reply *reply, enum reply_part part, uint32_t call, const char *text)
{
    const struct reply_event event = {
        .part = part, .call = call, .text = text, .size = strlen(text)};
    chat_reply_keep(reply, &event);
}

static void test_keeping(void **state)
{
    (void)state;
    struct chat_reply reply = {0};
    keep(&reply, REPLY_CONTENT, 0, "is streamed");
    keep(&reply, REPLY_REASONING, 0, "one ");
    keep(&reply, REPLY_REASONING, 0, "two");
    strcpy(reply.call_id, "first");
    keep(&reply, REPLY_CALL, 0, "write");
    keep(&reply, REPLY_ARGUMENTS, 0, "{\"a\":");
    keep(&reply, REPLY_ARGUMENTS, 0, "1}");
    strcpy(reply.call_id, "second");
    keep(&reply, REPLY_CALL, 1, "list");
    assert_false(reply.failed);
    assert_int_equal(reply.reasoning.size, 7);
    assert_memory_equal(reply.reasoning.data, "one two", 7);
    assert_int_equal(reply.n_calls, 2);
    assert_string_equal(reply.calls[0].id, "first");
    assert_memory_equal(reply.calls[0].arguments.data, "{\"a\":1}", 7);
    assert_string_equal(reply.calls[1].id, "second");
    keep(&reply, REPLY_CALL, LIMIT_TOOLS, "one too many"); /* is nobody's */
    assert_int_equal(reply.n_calls, 2);
    chat_reply_deinit(&reply);
    assert_int_equal(reply.n_calls, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tools),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_keeping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
