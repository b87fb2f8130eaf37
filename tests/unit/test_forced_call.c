/* A call that the prompt opens, in each family's format: what follows as JSON is read as the call.
 */
#include "api/forced_call.h"
#include "request/constraint.h"
#include "tools/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FORCED(tools, choice)                                                                      \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" tools      \
    "],\"tool_choice\":" choice "}"
#define TOOL(name, parameters)                                                                     \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters "}}"
#define OBJECT "{\"type\":\"object\"}"
#define BOTH TOOL("f", OBJECT) "," TOOL("g", OBJECT)
#define BY_NAME "{\"type\":\"function\",\"function\":{\"name\":\"g\"}}"

static const char *const forced_formats[] = {
    "harmony", "deepseek", "kimi",    "minimax", "mistral", "qwen3-coder", "glm",        "granite",
    "hermes",  "llama3",   "generic", "dsml",    "gemma4",  "kimi-k3",     "minimax-m3", "hunyuan"};
enum { FORCED_FORMATS = sizeof forced_formats / sizeof *forced_formats };

static void forced_parse(const char *body, struct generation_request *request)
{
    struct api_error err = {0};
    if (!generation_request_parse(GENERATION_CHAT, body, strlen(body), request, &err))
        fail_msg("%s", err.message);
    assert_true(forced_call_is_wanted(request));
}

/* ---- the reply ---- */

struct forced_seen {
    uint32_t n_calls;
    struct buffer name, arguments, content;
};

static void forced_event(void *self, const struct reply_event *event)
{
    struct forced_seen *seen = self;
    seen->n_calls += event->part == REPLY_CALL;
    buffer_append(event->part == REPLY_CALL        ? &seen->name
                  : event->part == REPLY_ARGUMENTS ? &seen->arguments
                                                   : &seen->content,
                  event->text, event->size);
}

static bool forced_is_tool(void *self, const char *name, size_t size)
{
    (void)self;
    return size == 1 && (*name == 'f' || *name == 'g');
}

static void check_forced(const char *format, const char *choice_body, const char *answer)
{
    struct template_traits traits = {.format = tool_format_named(format)};
    struct generation_request request;
    struct buffer prompt = {0}, opening = {0};
    struct forced_seen seen = {0};
    assert_non_null(traits.format);
    forced_parse(choice_body, &request);
    forced_call_open(&request, &traits, &prompt, &opening);
    struct reply_reader reply = {.format = traits.format,
                                 .tools = {.is_tool = forced_is_tool},
                                 .event = forced_event,
                                 .self = &seen};
    reply_reader_push(&reply, opening.data ? opening.data : "", opening.size);
    reply_reader_push(&reply, answer, strlen(answer));
    reply_reader_finish(&reply);
    if (seen.n_calls != 1 || seen.content.size)
        fail_msg("%s: %u calls, content '%s'", format, seen.n_calls,
                 seen.content.data ? seen.content.data : "");
    assert_string_equal(seen.name.data, "g");
    assert_string_equal(seen.arguments.data, "{\"a\": [1]}");
    reply_reader_deinit(&reply);
    buffer_deinit(&seen.name);
    buffer_deinit(&seen.arguments);
    buffer_deinit(&seen.content);
    buffer_deinit(&prompt);
    buffer_deinit(&opening);
    generation_request_deinit(&request);
}

static void test_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < FORCED_FORMATS; i++) {
        check_forced(forced_formats[i], FORCED(BOTH, BY_NAME), "{\"a\": [1]}");
        check_forced(forced_formats[i], FORCED(BOTH, "\"required\""),
                     "{\"name\": \"g\", \"arguments\": {\"a\": [1]}}");
        check_forced(forced_formats[i], FORCED(BOTH, "\"required\""),
                     "{\"arguments\": {\"a\": [1]}, \"name\": \"g\"}");
    }
}

static void test_harmony_names_the_tool_in_the_header(void **state)
{
    (void)state;
    struct template_traits traits = {.format = tool_format_named("harmony")};
    struct generation_request request;
    struct buffer prompt = {0}, opening = {0};
    forced_parse(FORCED(BOTH, BY_NAME), &request);
    forced_call_open(&request, &traits, &prompt, &opening);
    assert_string_equal(prompt.data,
                        "<|channel|>commentary to=functions.g <|constrain|>json<|message|>");
    assert_string_equal(opening.data, prompt.data);
    buffer_deinit(&prompt);
    buffer_deinit(&opening);
    generation_request_deinit(&request);
}

/* ---- the grammar ---- */

#define LOCAL_REF(value)                                                                           \
    "{\"type\":\"object\",\"properties\":{\"v\":{\"$ref\":\"#/$defs/v\"}},\"required\":[\"v\"],"   \
    "\"additionalProperties\":false,\"$defs\":{\"v\":{\"const\":" value "}}}"

static bool forced_accepts(const struct constraint *constraint, const char *text)
{
    struct grammar_matcher *matcher;
    struct grammar_run run = {0};
    struct error err;
    bool may_end = false, must_end;
    assert_int_equal(grammar_matcher_new(constraint_grammar(constraint), NULL, &matcher, &err),
                     ERROR_NONE);
    const bool taken = !grammar_take(matcher, &run, text, strlen(text), &err) &&
                       !grammar_may_end(matcher, &run, &may_end, &must_end, &err);
    grammar_run_deinit(&run);
    grammar_matcher_free(matcher);
    return taken && may_end;
}

static void expect_forced(const char *body, const char *text, bool accepted)
{
    struct generation_request request;
    struct constraint *constraint = NULL;
    struct api_error err = {0};
    forced_parse(body, &request);
    if (!forced_call_compile(&request, &constraint, &err))
        fail_msg("%s", err.message);
    if (forced_accepts(constraint, text) != accepted)
        fail_msg("%s is %saccepted", text, accepted ? "not " : "");
    constraint_release(constraint);
    generation_request_deinit(&request);
}

static void test_references_stay_inside_their_tool(void **state)
{
    (void)state;
    static const char both[] =
        FORCED(TOOL("f", LOCAL_REF("1")) "," TOOL("g", LOCAL_REF("2")), "\"required\"");
    static const char named[] =
        FORCED(TOOL("f", LOCAL_REF("1")) "," TOOL("g", LOCAL_REF("2")), BY_NAME);
    expect_forced(both, "{\"name\": \"f\", \"arguments\": {\"v\": 1}}", true);
    expect_forced(both, "{\"name\": \"g\", \"arguments\": {\"v\": 2}}", true);
    expect_forced(both, "{\"name\": \"f\", \"arguments\": {\"v\": 2}}", false);
    expect_forced(both, "{\"name\": \"h\", \"arguments\": {\"v\": 1}}", false);
    expect_forced(both, "{\"name\": \"f\"}", false);
    expect_forced(named, "{\"v\": 2}", true);
    expect_forced(named, "{\"v\": 1}", false);
}

/* In draft-07 nothing beside a reference counts. */
static void test_arguments_are_objects(void **state)
{
    (void)state;
    static const char untyped[] = FORCED(TOOL("f", "{}"), "\"required\"");
    static const char referred[] =
        FORCED(TOOL("f", "{\"$schema\":\"http://json-schema.org/draft-07/schema#\",\"type\":"
                         "\"object\",\"$ref\":\"#/definitions/v\",\"definitions\":{\"v\":{"
                         "\"enum\":[5,{\"a\":1}]}}}"),
               "\"required\"");
    static const char none[] =
        FORCED("{\"type\":\"function\",\"function\":{\"name\":\"f\"}}", "\"required\"");
    expect_forced(untyped, "{\"b\": 5}", true);
    expect_forced(untyped, "5", false);
    expect_forced(referred, "{\"a\": 1}", true);
    expect_forced(referred, "{\"a\": 2}", false);
    expect_forced(referred, "5", false);
    expect_forced(none, "{}", true);
    expect_forced(none, "{\"a\": 1}", false);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {FORCED(TOOL("f", OBJECT) "," TOOL("g", "{\"properties\":{\"a\":{\"uniqueItems\":true}}}"),
                "\"required\""),
         "tools[1].function.parameters", ": #/properties/a/uniqueItems: "},
        {FORCED(TOOL("g", "{\"properties\":{\"a\":{\"uniqueItems\":true}}}"), BY_NAME),
         "tools[0].function.parameters", ": #/properties/a/uniqueItems: "},
        {FORCED(TOOL("f", "{\"$schema\":\"http://json-schema.org/draft-07/schema#\"}") "," TOOL(
                    "g", OBJECT),
                "\"required\""),
         "tools[1].function.parameters", "#/$schema"},
        {FORCED(TOOL("f", "{\"$id\":\"a\"}") "," TOOL("g", "{\"$id\":\"a\"}"), "\"required\""),
         "tools", "$id: stands twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct generation_request request;
        struct constraint *constraint = NULL;
        struct api_error err = {0};
        forced_parse(cases[i][0], &request);
        assert_false(forced_call_compile(&request, &constraint, &err));
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, cases[i][1]);
        if (!strstr(err.message, cases[i][2]))
            fail_msg("no %s in %s", cases[i][2], err.message);
        generation_request_deinit(&request);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_harmony_names_the_tool_in_the_header),
        cmocka_unit_test(test_references_stay_inside_their_tool),
        cmocka_unit_test(test_arguments_are_objects),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
