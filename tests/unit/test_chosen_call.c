/* Calls that the model chooses to make: free text until a mark, in each family's format, however
 * the mark is cut into tokens. A special token is written «text» here. */
#include "api/chosen_call.h"
#include "base/mem.h"
#include "request/constraint.h"
#include "tools/reply.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define CHOSEN(tools, more)                                                                        \
    "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"tools\":[" tools      \
    "]" more "}"
#define TOOL(name, parameters, more)                                                               \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"parameters\":" parameters more   \
    "}}"
#define OBJECT(member, schema)                                                                     \
    "{\"type\":\"object\",\"properties\":{\"" member "\":" schema "},\"required\":[\"" member      \
    "\"],\"additionalProperties\":false}"
#define STRICT ",\"strict\":true"
#define F_AND_G                                                                                    \
    TOOL("f", OBJECT("a", "{\"type\":\"integer\"}"), STRICT)                                       \
    "," TOOL("g", OBJECT("b", "{\"const\":1}"), "")
#define UNIQUE OBJECT("a", "{\"type\":\"array\",\"uniqueItems\":true}")

static const struct think_marks chosen_think = {"<think>", "</think>"};

static struct constraint *chosen_compile_with(const char *body, const char *format,
                                              const struct think_marks *think, bool thinks,
                                              struct api_error *err)
{
    const struct template_traits traits = {.format = tool_format_named(format), .think = think};
    struct generation_request request;
    struct constraint *constraint = NULL;
    assert_non_null(traits.format);
    if (!generation_request_parse(GENERATION_CHAT, body, strlen(body), &request, err))
        fail_msg("%s", err->message);
    const bool ok = chosen_call_compile(&request, &traits, thinks, &constraint, err);
    assert_int_equal(ok, err->status == 0);
    generation_request_deinit(&request);
    return constraint;
}

static struct constraint *chosen_compile(const char *body, const char *format, bool thinks,
                                         struct api_error *err)
{
    return chosen_compile_with(body, format, strcmp(format, "harmony") == 0 ? NULL : &chosen_think,
                               thinks, err);
}

/* «…» as the bytes of a special token, or as the text that a reader sees. */
static void chosen_spell(const char *text, const char *mark, struct buffer *out)
{
    while (*text) {
        const bool is_mark = memcmp(text, "\xc2\xab", 2) == 0 || memcmp(text, "\xc2\xbb", 2) == 0;
        if (is_mark)
            buffer_text(out, mark);
        else
            buffer_append(out, text, 1);
        text += is_mark ? 2 : 1;
    }
}

static bool chosen_accepts(const struct constraint *constraint, const char *text, const char *mark)
{
    struct grammar_matcher *matcher;
    struct grammar_run run = {0};
    struct buffer bytes = {0};
    struct error err;
    bool may_end = false, must_end;
    chosen_spell(text, mark, &bytes);
    assert_int_equal(grammar_matcher_new(constraint_grammar(constraint), NULL, &matcher, &err),
                     ERROR_NONE);
    const bool taken = !grammar_take(matcher, &run, bytes.data, bytes.size, &err) &&
                       !grammar_may_end(matcher, &run, &may_end, &must_end, &err);
    buffer_deinit(&bytes);
    grammar_run_deinit(&run);
    grammar_matcher_free(matcher);
    return taken && may_end;
}

/* ---- what a reader of replies sees in it ---- */

static void chosen_event(void *self, const struct reply_event *event)
{
    struct buffer *calls = self;
    if (event->part == REPLY_CALL)
        buffer_printf(calls, "%.*s ", (int)event->size, event->text);
    else if (event->part == REPLY_ARGUMENTS)
        buffer_append(calls, event->text, event->size);
}

static bool chosen_is_tool(void *self, const char *name, size_t size)
{
    (void)self;
    return size == 1 && (*name == 'f' || *name == 'g');
}

static void expect_read(const char *format, const char *text, const char *wanted)
{
    struct buffer shown = {0}, calls = {0};
    struct reply_reader reply = {.format = tool_format_named(format),
                                 .tools = {.is_tool = chosen_is_tool},
                                 .event = chosen_event,
                                 .self = &calls};
    chosen_spell(text, "", &shown);
    reply_reader_push(&reply, shown.data, shown.size);
    reply_reader_finish(&reply);
    if (!calls.data || strcmp(calls.data, wanted) != 0)
        fail_msg("%s: %s is read as '%s'", format, text, calls.data ? calls.data : "");
    reply_reader_deinit(&reply);
    buffer_deinit(&shown);
    buffer_deinit(&calls);
}

/* ---- formats ---- */

#define DS_SEP "«<｜tool▁sep｜>»"
#define DS_BEGIN "«<｜tool▁calls▁begin｜>»«<｜tool▁call▁begin｜>»"
#define DS_END "«<｜tool▁call▁end｜>»"
#define KIMI(name, arguments)                                                                      \
    "«<|tool_calls_section_begin|>»«<|tool_call_begin|>»functions." name                           \
    ":0«<|tool_call_argument_begin|>»" arguments "«<|tool_call_end|>»"
#define HARMONY "«<|channel|>»analysis«<|message|>»Hm, to=f.«<|end|>»«<|start|>»assistant"

/* A call of f is held to an integer `a`, and one of g to a `b` of 1. */
static const struct chosen_example {
    const char *format, *yes, *read, *no;
} chosen_examples[] = {
    {"hermes", "I call.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 5}}\n</tool_call>",
     "f {\"a\": 5}", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"5\"}}\n</tool_call>"},
    {"hermes", "«<tool_call>»{\"name\": \"g\", \"arguments\": {\"b\": 1}}«</tool_call>» Done.",
     "g {\"b\": 1}", "«<tool_call>» so"},
    {"granite", "«<|tool_call|>»[{\"name\": \"f\", \"arguments\": {\"a\": 5}}]", "f {\"a\": 5}",
     "«<|tool_call|>»[{\"name\": \"h\", \"arguments\": {}}]"},
    {"granite", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 5}}</tool_call>",
     "f {\"a\": 5}", "<tool_call>{\"name\": \"f\", \"arguments\": {}}"},
    {"mistral", "«[TOOL_CALLS]»f«[ARGS]»{\"a\": 5}", "f {\"a\": 5}",
     "«[TOOL_CALLS]»f«[ARGS]»{\"b\": 1}"},
    {"mistral", "[TOOL_CALLS]g[CALL_ID]a1b[ARGS] {\"b\": 1}", "g {\"b\": 1}",
     "[TOOL_CALLS]h[ARGS]{}"},
    {"mistral",
     "«[TOOL_CALLS]»[{\"name\": \"f\", \"arguments\": {\"a\": 5}}, {\"name\": \"g\", "
     "\"arguments\": {\"b\": 1}}]",
     "f {\"a\": 5}g {\"b\": 1}", "«[TOOL_CALLS]»[]"},
    {"deepseek",
     "Text." DS_BEGIN "function" DS_SEP "f\n```json\n{\"a\": 5}\n```" DS_END
     "«<｜tool▁calls▁end｜>»",
     "f {\"a\": 5}", DS_BEGIN "function" DS_SEP "f\n```json\n{\"b\": 1}\n```" DS_END},
    {"deepseek", DS_BEGIN "g" DS_SEP "{\"b\": 1}" DS_END, "g {\"b\": 1}",
     DS_BEGIN "g" DS_SEP "{\"b\": 2}" DS_END},
    {"kimi", KIMI("f", "{\"a\": 5}"), "f {\"a\": 5}", KIMI("f", "{\"b\": 5}")},
    {"qwen3-coder", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 5}}\n</tool_call>",
     "f {\"a\": 5}",
     "<tool_call>\n<function=f>\n<parameter=a>\nx\n</parameter>\n</function>\n</tool_call>"},
    {"glm", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 5}}</tool_call>", "f {\"a\": 5}",
     "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"},
    {"minimax",
     "<minimax:tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 5}}\n</minimax:tool_call>",
     "f {\"a\": 5}", "<minimax:tool_call>\n<invoke name=\"f\">\n</invoke>\n</minimax:tool_call>"},
    {"gemma4", "So.«<|tool_call>»{\"name\": \"g\", \"arguments\": {\"b\": 1}}«<tool_call|>»",
     "g {\"b\": 1}", "«<|tool_call>»call:g{b:1}«<tool_call|>»"},
    {"kimi-k3",
     "«<|close|>»response«<|sep|>»«<|open|>»tools«<|sep|>»{\"name\": \"f\", \"arguments\": {\"a\": "
     "5}}"
     "«<|close|>»tools«<|sep|>»",
     "f {\"a\": 5}", "«<|open|>»tools«<|sep|>»«<|open|>»call tool=\"f\""},
    {"minimax-m3",
     "«]<]minimax[>[»«<tool_call>»{\"name\": \"f\", \"arguments\": {\"a\": 5}}"
     "«]<]minimax[>[»«</tool_call>»",
     "f {\"a\": 5}", "«]<]minimax[>[»«<tool_call>»«]<]minimax[>[»<invoke name=\"f\">"},
    {"hunyuan",
     "<tool_calls>\n«<tool_call>»{\"name\": \"g\", \"arguments\": {\"b\": 1}}</tool_call>",
     "g {\"b\": 1}", "<tool_call>g<tool_sep>"},
    {"dsml",
     "So.\n<«｜DSML｜»tool_calls>\n{\"name\": \"f\", \"arguments\": {\"a\": 5}}\n"
     "</«｜DSML｜»tool_calls>",
     "f {\"a\": 5}", "<«｜DSML｜»function_calls>\n<«｜DSML｜»invoke name=\"f\">\n"},
    {"harmony",
     HARMONY "«<|channel|>»commentary to=functions.f «<|constrain|>»json«<|message|>»{\"a\": 5}",
     "f {\"a\": 5}", HARMONY "«<|channel|>»commentary to=functions.f «<|message|>»{\"b\": 5}"},
    {"harmony", " to=functions.g«<|channel|>»commentary json«<|message|>»{\"b\": 1}«<|end|>»",
     "g {\"b\": 1}", " to=functions.h«<|channel|>»commentary json«<|message|>»{\"b\": 1}"},
};

static void test_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof chosen_examples / sizeof *chosen_examples; i++) {
        const struct chosen_example *example = &chosen_examples[i];
        struct api_error err = {0};
        struct constraint *held = chosen_compile(CHOSEN(F_AND_G, ""), example->format, false, &err);
        if (!held)
            fail_msg("%s: %s", example->format, err.message);
        for (int special = 0; special < 2; special++) {
            const char *mark = special ? "\xff" : "";
            if (!chosen_accepts(held, example->yes, mark))
                fail_msg("%s: %s is not accepted (%d)", example->format, example->yes, special);
            if (chosen_accepts(held, example->no, mark))
                fail_msg("%s: %s is accepted (%d)", example->format, example->no, special);
        }
        expect_read(example->format, example->yes, example->read);
        constraint_release(held);
    }
}

/* ---- where a call begins ---- */

#define CALL_F "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 5}}</tool_call>"

static void expect_chosen(const char *more, bool thinks, const char *text, bool accepted)
{
    struct api_error err = {0};
    struct buffer body = {0};
    buffer_printf(&body, CHOSEN(F_AND_G, "%s"), more);
    struct constraint *held = chosen_compile(body.data, "hermes", thinks, &err);
    assert_non_null(held);
    if (chosen_accepts(held, text, "\xff") != accepted)
        fail_msg("%s is %saccepted", text, accepted ? "not " : "");
    constraint_release(held);
    buffer_deinit(&body);
}

static void test_text_is_free(void **state)
{
    (void)state;
    expect_chosen("", false, "", true);
    expect_chosen("", false, "a < b, <tool <tool_cal, <tool_<x> «<|other|>» \xc3\xa9 \xc3\n", true);
    expect_chosen("", false, "<<tool_call>x", false);
    expect_chosen("", false, "<tool<tool_call>x", false);
    expect_chosen("", false, "<tool«<|hidden|>»_call>x", false); /* a reader does not see it */
    expect_chosen("", false, "<tool«<|hidden|>»x_call>x", true);
    expect_chosen("", false, CALL_F "\n" CALL_F " and text", true);
    expect_chosen("", false, CALL_F "<tool_call>x", false);
    expect_chosen(",\"parallel_tool_calls\":false", false, "So: " CALL_F, true);
    expect_chosen(",\"parallel_tool_calls\":false", false, CALL_F "\n" CALL_F, false);
}

static void test_reasoning_is_free(void **state)
{
    (void)state;
    expect_chosen("", false, "<think>I may <tool_call> it.</think>" CALL_F, true);
    expect_chosen("", false, "\n«<think>»I may «<tool_call>» it", true);
    expect_chosen("", false, "<think>a</think><tool_call>x", false);
    expect_chosen("", false, "<thin<tool_call>x", false);
    expect_chosen("", false, "Text. <think><tool_call>x", false); /* it may only come first */
    expect_chosen("", true, "I may <tool_call> it.</think>\n" CALL_F, true);
    expect_chosen("", true, "Hm.«</think>»<tool_call>x", false);
}

/* Kimi K2 calls before it has ended its reasoning. */
static void test_call_in_reasoning(void **state)
{
    (void)state;
    struct api_error err = {0};
    struct constraint *held = chosen_compile(CHOSEN(F_AND_G, ""), "kimi", true, &err);
    assert_non_null(held);
    assert_true(chosen_accepts(held, "So" KIMI("f", "{\"a\": 5}"), "\xff"));
    assert_false(chosen_accepts(held, "So" KIMI("f", "{\"b\": 5}"), "\xff"));
    assert_false(chosen_accepts(held, "So</think>" KIMI("f", "{\"b\": 5}"), ""));
    constraint_release(held);
}

/* Marks that are made of special tokens and words. */
static void test_marks_of_tokens(void **state)
{
    (void)state;
    static const struct think_marks think = {"<|open|>think<|sep|>", "<|close|>think<|sep|>",
                                             false};
    static const char call[] =
        "«<|open|>»tools«<|sep|>»{\"name\": \"f\", \"arguments\": {\"a\": 5}}"
        "«<|close|>»tools«<|sep|>»";
    static const struct {
        const char *before;
        bool thinks, held;
    } cases[] = {
        {"", false, true},
        {"«<|open|>»think«<|sep|>»So «<|open|>»tools«<|sep|>»x", false, false},
        {"«<|open|>»think«<|sep|>»So«<|close|>»think«<|sep|>»", false, true},
        {"So«<|close|>»think«<|sep|>»", true, true},
        {"So «<|other|>» «<|open|>»tools", true, false},
        {"«<|open|>»«<|open|>»", false, true},
        {"«<|open|>»x«<|sep|>»", false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int bad = 0; bad < 2; bad++) {
            struct api_error err = {0};
            struct buffer text = {0};
            struct constraint *held =
                chosen_compile_with(CHOSEN(F_AND_G, ""), "kimi-k3", &think, cases[i].thinks, &err);
            assert_non_null(held);
            buffer_printf(&text, "%s%s", cases[i].before, bad ? "«<|open|>»tools«<|sep|>»x" : call);
            if (chosen_accepts(held, text.data, "\xff") != (!bad || !cases[i].held))
                fail_msg("%s", text.data);
            constraint_release(held);
            buffer_deinit(&text);
        }
    }
}

/* ---- tokens ---- */

/* All that can be cut out of a text, as tokens, a special one, the others of no use, and an end. */
struct chosen_tokens {
    struct grammar_vocabulary *vocabulary;
    uint32_t of[40][40]; /* by start and size */
    uint32_t special, bad, end;
};

static const char chosen_text[] = "b <<tool_call>\n{\"name\"";
enum { CHOSEN_TEXT = sizeof chosen_text - 1, CHOSEN_TOKENS = 1024 };

static void chosen_tokens_make(struct chosen_tokens *tokens)
{
    uint64_t starts[CHOSEN_TOKENS] = {0};
    struct buffer bytes = {0};
    struct error err;
    uint32_t n = 0;
    for (uint32_t at = 0; at < CHOSEN_TEXT; at++) {
        for (uint32_t size = 1; at + size <= CHOSEN_TEXT; size++) {
            tokens->of[at][size] = n++;
            buffer_append(&bytes, chosen_text + at, size);
            starts[n] = bytes.size;
        }
    }
    tokens->special = n;
    buffer_text(&bytes, "\xff<tool_call>\xff");
    starts[++n] = bytes.size;
    tokens->bad = n;
    buffer_text(&bytes, "zz");
    starts[++n] = bytes.size;
    tokens->end = n;
    starts[++n] = bytes.size;
    const int32_t end = (int32_t)tokens->end;
    assert_true(n < CHOSEN_TOKENS);
    assert_int_equal(
        grammar_vocabulary_new(bytes.data, starts, n, &end, 1, &tokens->vocabulary, &err),
        ERROR_NONE);
    buffer_deinit(&bytes);
}

static bool chosen_bit(struct grammar_matcher *matcher, struct grammar_run *run, uint32_t token)
{
    const uint64_t *bits;
    struct error err;
    assert_int_equal(grammar_mask(matcher, run, &bits, &err), ERROR_NONE);
    return bits[token / 64] >> (token % 64) & 1;
}

/* A mask has a token where its bytes can be taken. */
static void check_mask(struct grammar_matcher *matcher, struct grammar_run *run,
                       const struct chosen_tokens *tokens)
{
    for (uint32_t token = 0; token <= tokens->end; token++) {
        struct grammar_run copy;
        struct error err;
        assert_int_equal(grammar_run_copy(run, &copy, &err), ERROR_NONE);
        const bool taken = !grammar_take_token(matcher, &copy, (int32_t)token, &err);
        if (chosen_bit(matcher, run, token) != taken)
            fail_msg("token %u after %.*s", token, (int)run->n_bytes, run->bytes);
        grammar_run_deinit(&copy);
    }
}

/* Of every token that can stand at a place: it is allowed, and what may follow behind it is free
 * before the mark's end, and held behind it. */
static void test_marks_cut_into_tokens(void **state)
{
    (void)state;
    const uint32_t mark_end = (uint32_t)(strchr(chosen_text, '>') - chosen_text) + 1;
    struct chosen_tokens tokens;
    struct api_error none = {0};
    struct error err;
    struct grammar_matcher *matcher;
    struct constraint *held = chosen_compile(CHOSEN(F_AND_G, ""), "hermes", false, &none);
    chosen_tokens_make(&tokens);
    assert_int_equal(
        grammar_matcher_new(constraint_grammar(held), tokens.vocabulary, &matcher, &err),
        ERROR_NONE);
    for (uint32_t at = 0; at < CHOSEN_TEXT; at++) {
        for (uint32_t size = 1; at + size <= CHOSEN_TEXT; size++) {
            struct grammar_run run = {0};
            const bool is_open = at + size < mark_end;
            if (at)
                assert_int_equal(grammar_take_token(matcher, &run, (int32_t)tokens.of[0][at], &err),
                                 ERROR_NONE);
            assert_int_equal(chosen_bit(matcher, &run, tokens.bad), at < mark_end);
            if (size == 1)
                check_mask(matcher, &run, &tokens);
            assert_true(chosen_bit(matcher, &run, tokens.of[at][size]));
            assert_int_equal(grammar_take_token(matcher, &run, (int32_t)tokens.of[at][size], &err),
                             ERROR_NONE);
            assert_int_equal(chosen_bit(matcher, &run, tokens.bad), is_open);
            assert_int_equal(chosen_bit(matcher, &run, tokens.special), is_open);
            assert_int_equal(chosen_bit(matcher, &run, tokens.end), is_open);
            grammar_run_deinit(&run);
        }
    }
    grammar_matcher_free(matcher);
    grammar_vocabulary_free(tokens.vocabulary);
    constraint_release(held);
}

/* ---- what is not held ---- */

static void test_left_free(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {CHOSEN(TOOL("f", OBJECT("a", "{}"), ""), ""), "generic"},
        {CHOSEN(TOOL("f", OBJECT("a", "{}"), ""), ""), "llama3"},
        {CHOSEN(TOOL("f", OBJECT("a", "{}"), ""), ""), "glm"}, /* not how it writes calls */
        {CHOSEN(TOOL("f", UNIQUE, ""), ""), "hermes"},
        {CHOSEN(TOOL("f", OBJECT("a", "{}"), STRICT), ",\"tool_choice\":\"none\""), "generic"},
        {CHOSEN(TOOL("f", OBJECT("a", "{}"), ""),
                ",\"response_format\":{\"type\":\"json_object\"}"),
         "hermes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error err = {0};
        assert_null(chosen_compile(cases[i][0], cases[i][1], false, &err));
        assert_int_equal(err.status, 0);
    }
}

static void test_strict_is_refused(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {CHOSEN(F_AND_G, ""), "generic", "tools[0].function.strict", "the generic format"},
        {CHOSEN(F_AND_G, ""), "llama3", "tools[0].function.strict", "the llama3 format"},
        {CHOSEN(F_AND_G, ",\"response_format\":{\"type\":\"json_object\"}"), "hermes",
         "tools[0].function.strict", "'response_format'"},
        {CHOSEN(F_AND_G "," TOOL("h", UNIQUE, STRICT), ""), "hermes",
         "tools[2].function.parameters", "#/properties/a/uniqueItems"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_error err = {0};
        assert_null(chosen_compile(cases[i][0], cases[i][1], false, &err));
        assert_int_equal(err.status, 400);
        assert_string_equal(err.param, cases[i][2]);
        if (!strstr(err.message, cases[i][3]))
            fail_msg("no %s in %s", cases[i][3], err.message);
    }
}

/* Sources come from other machines, too. */
static void test_wrong_sources(void **state)
{
    (void)state;
#define SOURCE_TOOLS ",\"tools\":[{\"name\":\"f\",\"arguments\":{}}]}"
    static const char *const sources[] = {
        "",
        "[]",
        "{\"begin\":[\"<a>\"],\"forms\":[\"%n\"]}",
        "{\"begin\":[],\"forms\":[\"%n\"]" SOURCE_TOOLS,
        "{\"begin\":[\"\"],\"forms\":[\"%n\"]" SOURCE_TOOLS,
        "{\"begin\":[5],\"forms\":[\"%n\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[5]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%x\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%(a\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%c\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%n\"],\"headers\":[\"<b>\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%n\"],\"think\":[\"<b>\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%n\"],\"tokens\":[\"\"]" SOURCE_TOOLS,
        "{\"begin\":[\"<a>\"],\"forms\":[\"%n\"],\"tokens\":[\"1\",\"2\",\"3\",\"4\","
        "\"5\"]" SOURCE_TOOLS,
        "{\"begin\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\"],\"forms\":[\"%"
        "n\"]" SOURCE_TOOLS,
    };
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        const struct grammar_source source = {GRAMMAR_CALLS, false, sources[i], strlen(sources[i])};
        struct grammar *grammar;
        struct error err = {0};
        if (grammar_compile(&source, &grammar, &err) != ERROR_INVALID || !err.text[0])
            fail_msg("%s: %d %s", sources[i], (int)err.code, err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),           cmocka_unit_test(test_text_is_free),
        cmocka_unit_test(test_reasoning_is_free), cmocka_unit_test(test_marks_cut_into_tokens),
        cmocka_unit_test(test_left_free),         cmocka_unit_test(test_strict_is_refused),
        cmocka_unit_test(test_wrong_sources),     cmocka_unit_test(test_marks_of_tokens),
        cmocka_unit_test(test_call_in_reasoning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
