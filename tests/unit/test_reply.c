/* Replies of every format, cut at every byte: what is told must be the same. */
#include "reply_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct think_marks think = {"<think>", "</think>"};

struct reply_case {
    const char *format; /* its own marks of reasoning where it has some */
    bool thinks, thinks_first, no_tools;
    const char *text, *expected;
};

static const struct reply_case cases[] = {
    /* plain text */
    {"hermes", .text = "Hello, <b>you</b> {1}. \n", .expected = "[say]Hello, <b>you</b> {1}. \n"},
    {"hermes", .no_tools = true, .text = "<tool_call>{}</tool_call> ",
     .expected = "[say]<tool_call>{}</tool_call> "},
    {"generic", .text = "Use ```c\nint i;\n``` so.", .expected = "[say]Use ```c\nint i;\n``` so."},
    {"generic", .text = " {\"answer\": 42}\n", .expected = "[say] {\"answer\": 42}\n"},
    {"generic", .text = "{\"name\": \"Bob\", \"arguments\": {}}",
     .expected = "[say]{\"name\": \"Bob\", \"arguments\": {}}"},
    /* reasoning */
    {"hermes", .thinks = true, .text = "\n<think>\nHm <b>.\n</think>\n\nYes. <think>no</think>",
     .expected = "[think]Hm <b>.[say]Yes. <think>no</think>"},
    {"hermes", .thinks = true, .thinks_first = true, .text = "Hm.\n</think>\n\nYes.",
     .expected = "[think]Hm.[say]Yes."},
    {"hermes", .thinks = true, .no_tools = true, .text = "Yes </think> <thin",
     .expected = "[say]Yes </think> <thin"},
    {"hermes", .thinks = true, .text = "<think>never ends </thi",
     .expected = "[think]never ends </thi"},
    /* Hermes, Qwen */
    {"hermes",
     .text = "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
             "\"P}ar\\\"is\", \"days\": [1, {}]}}\n</tool_call>\n<tool_call>\n{\"name\": "
             "\"ping\", \"arguments\": {}}\n</tool_call>",
     .expected = "[say]Let me see.[call get_weather]{\"city\": \"P}ar\\\"is\", \"days\": [1, "
                 "{}]}[call ping]{}"},
    {"hermes", .text = "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"ping\"}</tool_call>",
     .expected = "[call ping]{\"a\": 1}"},
    {"hermes", .text = "<tool_call>{\"name\": \"p\\u0069ng\"}</tool_call> and so",
     .expected = "[call ping]{}[say]and so"},
    {"hermes",
     .text = "<tool_call>{\"type\": \"function\", \"id\": \"x1\", \"function\": {\"name\": "
             "\"ping\", \"arguments\": \"{\\\"a\\\": \\\"\\u00e9\\ud83d\\ude00\\\"}\"}}"
             "</tool_call>",
     .expected = "[call ping x1]{\"a\": \"é😀\"}"},
    {"hermes", .text = "a <tool_call> not one </tool_call>",
     .expected = "[say]a <tool_call> not one </tool_call>"},
    {"hermes", .text = "<tool_call>{\"name\": 3}</tool_call>!",
     .expected = "[say]<tool_call>{\"name\": 3}</tool_call>!"},
    {"hermes", .text = "<tool_call>{\"name\": \"ping\", \"arg",
     .expected = "[say]<tool_call>{\"name\": \"ping\", \"arg"},
    {"hermes", .text = "<tool_call>{\"name\": \"ping\", \"arguments\": {\"a\": \"b",
     .expected = "[call ping]{\"a\": \"b"},
    /* Qwen3-Coder */
    {"qwen3-coder",
     .text = "So:\n<tool_call>\n<function=get_weather>\n<parameter=city>\nA \"b\"\n\nc\n"
             "</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=flag>\nTrue\n"
             "</parameter>\n<parameter=other>\nso <so>\n</parameter>\n</function>\n</tool_call>",
     .expected = "[say]So:[call get_weather]{\"city\": \"A \\\"b\\\"\\n\\nc\", \"days\": 3, "
                 "\"flag\": true, \"other\": \"so <so>\"}"},
    {"qwen3-coder", .text = "<tool_call>\n<function=ping>\n</function>\n</tool_call>\nDone.",
     .expected = "[call ping]{}[say]Done."},
    /* GLM */
    {"glm",
     .text = "Ok\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n"
             "<arg_key>days</arg_key>\n<arg_value>{\"a\": 2}</arg_value>\n</tool_call>\n"
             "<tool_call>ping\n</tool_call>",
     .expected = "[say]Ok[call get_weather]{\"city\": \"Oslo\", \"days\": {\"a\": 2}}[call "
                 "ping]{}"},
    /* MiniMax */
    {"minimax",
     .text = "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Rome"
             "</parameter>\n<parameter name=\"days\">7</parameter>\n</invoke>\n"
             "</minimax:tool_call>",
     .expected = "[call get_weather]{\"city\": \"Rome\", \"days\": 7}"},
    {"minimax",
     .text = "Both.\n<minimax:tool_call>\n<invoke name=\"ping\">\n</invoke>\n<invoke "
             "name=\"ping\">\n<parameter name=\"n\">x\"y</parameter>\n</invoke>\n"
             "</minimax:tool_call>\n<invoice>",
     .expected = "[say]Both.[call ping]{}[call ping]{\"n\": \"x\\\"y\"}[say]<invoice>"},
    {"minimax", .text = "<minimax:tool_call><invoke name=\"\"></invoke>",
     .expected = "[say]<minimax:tool_call><invoke name=\"\"></invoke>"},
    {"minimax-m3", .thinks_first = true,
     .text = "Both</mm:think>\n]<]minimax[>[<tool_call>\n]<]minimax[>[<invoke name=\"get_weather\">"
             "]<]minimax[>[<city>5 <b>]<]minimax[>[</b>]<]minimax[>[</city>]<]minimax[>[<days>7"
             "]<]minimax[>[</days>]<]minimax[>[</invoke>\n]<]minimax[>[<invoke name=\"ping\">"
             "]<]minimax[>[</invoke>\n]<]minimax[>[</tool_call>",
     .expected = "[think]Both[call get_weather]{\"city\": \"5 <b>]<]minimax[>[</b>\", \"days\": 7}"
                 "[call ping]{}"},
    {"minimax-m3", .thinks_first = true,
     .text =
         "Hm.]<]minimax[>[<tool_call>]<]minimax[>[<invoke name=\"ping\">]<]minimax[>[</tool_call>",
     .expected = "[think]Hm.[call ping]{}"},
    /* Hunyuan */
    {"hunyuan",
     .text =
         "Ok.<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>5"
         "</arg_value>\n<arg_key>days</arg_key>\n<arg_value>[7]</arg_value>\n</tool_call>\n"
         "<tool_call>ping<tool_sep>\n</tool_call>\n</tool_calls>",
     .expected = "[say]Ok.[call get_weather]{\"city\": \"5\", \"days\": [7]}[call ping]{}"},
    /* DeepSeek V3.2 and V4 */
    {"dsml", .thinks = true, .thinks_first = true,
     .text =
         "Hm.</think>I look.\n\n<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">"
         "\n<｜DSML｜parameter name=\"city\" string=\"true\">5 \"x\"\n</｜DSML｜parameter>\n"
         "<｜DSML｜parameter name=\"days\" string=\"false\">[1, {\"a\": null}]</｜DSML｜parameter>"
         "\n<｜DSML｜parameter name=\"other\" string=\"true\">7</｜DSML｜parameter>\n"
         "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"ping\">\n\n</｜DSML｜invoke>\n"
         "</｜DSML｜function_calls>",
     .expected = "[think]Hm.[say]I look.[call get_weather]{\"city\": \"5 \\\"x\\\"\\n\", \"days\": "
                 "[1, {\"a\": null}], \"other\": \"7\"}[call ping]{}"},
    {"dsml",
     .text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
             "name=\"city\">12</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\">12"
             "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>\nSo <｜DSML｜x>.",
     .expected = "[call get_weather]{\"city\": \"12\", \"days\": 12}[say]So <｜DSML｜x>."},
    {"dsml", .text = "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=ping>",
     .expected = "[say]<｜DSML｜tool_calls>\n<｜DSML｜invoke name=ping>"},
    {"dsml",
     .text = "<｜DSML｜tool_calls><｜DSML｜invoke name=\"ping\"><｜DSML｜parameter name=\"a\" "
             "string=\"true\">never en",
     .expected = "[call ping]{\"a\": \"never en"},
    /* Kimi K3 */
    {"kimi-k3", .thinks_first = true,
     .text =
         "Hm.\n<|close|>think<|sep|><|open|>response<|sep|>I "
         "look.<|close|>response<|sep|><|open|>tools<|sep|>"
         "<|open|>call tool=\"get_weather\" index=\"1\"<|sep|><|open|>argument key=\"city\" "
         "type=\"string\"<|sep|>San \"F\"\n<|close|>argument<|sep|><|open|>argument key=\"days\" "
         "type=\"array\"<|sep|>[1]<|close|>argument<|sep|><|open|>argument key=\"a&quot;&amp;\" "
         "type=\"string\"<|sep|>7<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
         "tool=\"ping\" "
         "index=\"2\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|><|close|>message<|sep|>"
         "<|end_of_msg|>",
     .expected =
         "[think]Hm.[say]I look.[call get_weather]{\"city\": \"San \\\"F\\\"\\n\", \"days\": "
         "[1], \"a\\\"&\": \"7\"}[call ping]{}"},
    {"kimi-k3",
     .text =
         "<|close|>response<|sep|><|open|>tools<|sep|><|open|>call tool=\"ping\" index=\"1\"<|sep|>"
         "<|open|>json type=\"object\"<|sep|>{\"a\": 1}<|close|>json<|sep|><|close|>call<|sep|>"
         "<|close|>tools<|sep|>",
     .expected = "[call ping]{\"a\": 1}"},
    {"kimi-k3", .no_tools = true,
     .text = "<|open|>think<|sep|>Hm<|close|>think<|sep|><|open|>response<|sep|>Yes <|open|> "
             "no.<|close|>response"
             "<|sep|><|close|>message<|sep|>",
     .expected = "[think]Hm[say]Yes <|open|> no."},
    {"kimi-k3", .text = "<|open|>tools<|sep|><|open|>call tool=\"ping\" index=",
     .expected = "[say]<|open|>tools<|sep|><|open|>call tool=\"ping\" index="},
    {"kimi-k3",
     .text = "<|open|>tools<|sep|><|open|>call tool=\"ping\"<|sep|><|open|>argument key=\"a\" x",
     .expected = "[call ping][say]a\" x"},
    /* Gemma 4 */
    {"gemma4",
     .text =
         "<|channel>thought\nHm.\n<channel|>I look.\n<|tool_call>call:get_weather{city:<|\"|>San "
         "\"F\", {x}<|\"|>,days:-1.5e3,deep:{a:[<|\"|>b<|\"|>,[],{}],c:null},no:False}<tool_call|>"
         "<|tool_call>call:ping{}<tool_call|><|tool_response>",
     .expected =
         "[think]Hm.[say]I look.[call get_weather]{\"city\": \"San \\\"F\\\", {x}\", \"days\": "
         "-1.5e3, \"deep\": {\"a\": [\"b\", [], {}], \"c\": null}, \"no\": false}[call ping]{}"},
    {"gemma4", /* with quotes, without any, a comma too many */
     .text = "<|tool_call>call:ping{ \"a\" : \"b\\\"c\", <|\"|>d<|\"|>: e f , g: [1, 2,], "
             "}<tool_call|>Done",
     .expected = "[call ping]{\"a\": \"b\\\"c\", \"d\": \"e f\", \"g\": [1, 2]}[say]Done"},
    {"gemma4", .text = "<|tool_call>call:get_weather{city:12,days:12,other:null}<tool_call|>",
     .expected = "[call get_weather]{\"city\": \"12\", \"days\": 12, \"other\": null}"},
    {"gemma4", .text = "<|tool_call>call:ping{a:[1}<tool_call|> so",
     .expected = "[call ping]{\"a\": [1[say]}<tool_call|> so"},
    {"gemma4", .text = "<|tool_call>call:ping{a}", .expected = "[call ping]{[say]a}"},
    {"gemma4", .text = "<|tool_call>call:ping{a:<|\"|>never en",
     .expected = "[call ping]{\"a\": \"never en"},
    {"gemma4", .text = "a <|tool_call> not one {}", .expected = "[say]a <|tool_call> not one {}"},
    {"gemma4",
     .text = "<|channel><|channel>thought\n<channel|>Hello\n<|channel>thought\nMore<channel|><"
             "channel|>",
     .expected = "[say]Hello[think]More"},
    {"gemma4", .no_tools = true,
     .text = "<|channel>thought\nHm<channel|>Yes <|tool_call>call:ping{}",
     .expected = "[think]Hm[say]Yes <|tool_call>call:ping{}"},
    /* Llama 3 */
    {"llama3", .text = "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Bern\"}}",
     .expected = "[call get_weather]{\"city\": \"Bern\"}"},
    {"llama3",
     .text = "<|python_tag|>{\"type\": \"function\", \"name\": \"ping\", \"parameters\": {}}; "
             "{\"name\": \"ping\", \"parameters\": {\"n\": 2}}",
     .expected = "[call ping]{}[call ping]{\"n\": 2}"},
    {"llama3", .text = "<function=ping>{\"a\": 1}</function>", .expected = "[call ping]{\"a\": 1}"},
    {"llama3", .text = "<|python_tag|>print(1)\n", .expected = "[say]<|python_tag|>print(1)\n"},
    /* Mistral */
    {"mistral",
     .text = "[TOOL_CALLS] [{\"name\": \"ping\", \"arguments\": {\"a\": 1}, \"id\": "
             "\"abcdefghi\"}, {\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}}]",
     .expected = "[call ping]{\"a\": 1}[call get_weather]{\"city\": \"x\"}"},
    {"mistral",
     .text = "Hm. [TOOL_CALLS]ping[CALL_ID]123456789[ARGS]{\"a\": 1}[TOOL_CALLS]ping"
             "[ARGS]{}",
     .expected = "[say]Hm.[call ping 123456789]{\"a\": 1}[call ping]{}"},
    /* gpt-oss */
    {"harmony",
     .text = "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>"
             "commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary "
             "to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"X\"}<|call|>",
     .expected = "[think]Need weather.[say]I look.[call get_weather]{\"city\":\"X\"}"},
    {"harmony", .text = "<|channel|>final<|message|>Hi <|x|>.<|return|>",
     .expected = "[say]Hi <|x|>."},
    {"harmony", .text = " to=functions.ping<|channel|>commentary json<|message|>{}<|call|>",
     .expected = "[call ping]{}"},
    {"harmony", .text = "No header", .expected = "[say]No header"},
    /* DeepSeek */
    {"deepseek", .thinks = true, .thinks_first = true,
     .text = "Hm\n</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
             "get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁"
             "begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁"
             "end｜>",
     .expected = "[think]Hm[call get_weather]{\"city\": \"Paris\"}[call ping]{}"},
    {"deepseek",
     .text = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ping<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁"
             "end｜><｜tool▁calls▁end｜>",
     .expected = "[call ping]{\"a\": 1}"},
    /* Kimi */
    {"kimi",
     .text = "I go.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
             "<|tool_call_argument_begin|>{\"city\": \"X\"}<|tool_call_end|><|tool_call_begin|>"
             "functions.ping:1<|tool_call_argument_begin|>{}<|tool_call_end|>"
             "<|tool_calls_section_end|>",
     .expected = "[say]I go.[call get_weather functions.get_weather:0]{\"city\": \"X\"}[call ping "
                 "functions.ping:1]{}"},
    {"kimi", .thinks = true, .thinks_first = true, /* it calls before it has ended its reasoning */
     .text = "Hm.\n<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0"
             "<|tool_call_argument_begin|>{\"a\": "
             "1}<|tool_call_begin|>ping<|tool_call_argument_begin|>{}",
     .expected = "[think]Hm.[call ping functions.ping:0]{\"a\": 1}[call ping ping]{}"},
    {"kimi", .thinks = true, .thinks_first = true, .no_tools = true,
     .text = "Hm <|tool_call_begin|></think>", .expected = "[think]Hm <|tool_call_begin|>"},
    /* Granite */
    {"granite",
     .text = "<|tool_call|>[{\"name\": \"ping\", \"arguments\": {}}, {\"arguments\": {\"a\": 1}, "
             "\"name\": \"ping\"}]",
     .expected = "[call ping]{}[call ping]{\"a\": 1}"},
    /* others */
    {"generic", .text = "So:\n```json\n{\"name\": \"ping\", \"arguments\": {}}\n```\nDone",
     .expected = "[say]So:[call ping]{}[say]Done"},
    {"generic", .text = "```json\n{\"a\": 1}\n```", .expected = "[say]```json\n{\"a\": 1}\n```"},
};

static void begin_case(struct reply_text *out, const struct reply_case *of)
{
    const struct think_marks *own = tool_format_named(of->format)->think;
    reply_text_init(out, of->format,
                    own          ? own
                    : of->thinks ? &think
                                 : NULL,
                    of->thinks_first, !of->no_tools);
}

static void expect_case(struct reply_text *out, const struct reply_case *of, size_t cut)
{
    reply_reader_finish(&out->reply);
    assert_false(out->reply.failed);
    if (strcmp(out->text.data ? out->text.data : "", of->expected) != 0)
        fail_msg("%s, cut at %zu:\n%s\ngives\n%s\nnot\n%s", of->format, cut, of->text,
                 out->text.data ? out->text.data : "", of->expected);
    reply_text_deinit(out);
}

static void test_cuts(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t size = strlen(cases[i].text);
        for (size_t cut = 0; cut <= size; cut++) {
            struct reply_text out;
            begin_case(&out, &cases[i]);
            reply_reader_push(&out.reply, cases[i].text, cut);
            reply_reader_push(&out.reply, cases[i].text + cut, size - cut);
            expect_case(&out, &cases[i], cut);
        }
    }
}

static void test_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reply_text out;
        begin_case(&out, &cases[i]);
        for (const char *at = cases[i].text; *at; at++)
            reply_reader_push(&out.reply, at, 1);
        expect_case(&out, &cases[i], 1);
    }
}

/* A text that breaks off anywhere: nothing hangs, and a reply never says more than it was given,
 * but for escapes and the brackets of elements. */
static void test_ends(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t size = 0; size <= strlen(cases[i].text); size++) {
            struct reply_text whole, bytes;
            begin_case(&whole, &cases[i]);
            begin_case(&bytes, &cases[i]);
            reply_reader_push(&whole.reply, cases[i].text, size);
            reply_reader_finish(&whole.reply);
            for (size_t k = 0; k < size; k++)
                reply_reader_push(&bytes.reply, cases[i].text + k, 1);
            reply_reader_finish(&bytes.reply);
            if (whole.text.size != bytes.text.size ||
                (size && whole.text.size &&
                 memcmp(whole.text.data, bytes.text.data, whole.text.size)))
                fail_msg("%s, ended at %zu: '%s' and '%s'", cases[i].format, size, whole.text.data,
                         bytes.text.data);
            reply_text_deinit(&whole);
            reply_text_deinit(&bytes);
        }
    }
}

/* Arguments that stand before the name are told as soon as there is one. */
static void test_name_after_arguments(void **state)
{
    (void)state;
    static const char text[] = "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"ping\"";
    struct reply_text out;
    reply_text_init(&out, "hermes", NULL, false, true);
    reply_reader_push(&out.reply, text, sizeof text - 1);
    assert_string_equal(out.text.data, "[call ping]{\"a\": 1}");
    reply_text_deinit(&out);
}

static void test_detection(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"{{ '<|channel|>' }}{{ '<|message|>' }} tools", "harmony"},
        {"<｜tool▁calls▁begin｜>", "deepseek"},
        {"<|tool_calls_section_begin|>", "kimi"},
        {"<minimax:tool_call>", "minimax"},
        {"{%- set ns_token = ']<]minimax[>[' -%} <tool_call> <invoke name=", "minimax-m3"},
        {"<tool_call>{function-name}<tool_sep> <arg_key>", "hunyuan"},
        {"{%- set dsml_token = '｜DSML｜' -%}", "dsml"},
        {"{{- '<|tool_call>call:' + function['name'] + '{' -}}", "gemma4"},
        {"'<|open|>' + tag '<|close|>' <tool_call>", "kimi-k3"},
        {"[AVAILABLE_TOOLS] [TOOL_CALLS]", "mistral"},
        {"<tool_call>\n<function=x>\n<parameter=y>", "qwen3-coder"},
        {"<tool_call>{name}\n<arg_key>", "glm"},
        {"<|tool_call|>", "granite"},
        {"<tool_call>\n{", "hermes"},
        {"<|start_header_id|> if tools", "llama3"},
        {"<start_of_turn>", "generic"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(template_traits_of(texts[i][0], strlen(texts[i][0])).format->name,
                            texts[i][1]);
    assert_string_equal(template_traits_of(NULL, 0).format->name, "generic");
}

static void test_traits(void **state)
{
    (void)state;
    static const char qwen[] = "{%- if tools %}<tool_call>{{ tool_call.arguments | tojson }}"
                               "{% if enable_thinking is false %}<think>\n\n</think>";
    static const char deepseek[] = "<｜tool▁calls▁begin｜>' + tool['function']['arguments'] + '";
    static const char kimi_k3[] =
        "{%- if thinking is undefined %}<|open|><|close|> thinking_effort";
    struct template_traits traits = template_traits_of(qwen, sizeof qwen - 1);
    assert_true(traits.knows_tools && !traits.effort);
    assert_string_equal(traits.thinking, "enable_thinking");
    assert_false(traits.arguments_as_text);
    assert_string_equal(traits.think->end, "</think>");
    assert_true(template_traits_show(&traits, "<think>", 7));
    assert_true(template_traits_show(&traits, "</tool_call>", 12));
    assert_false(template_traits_show(&traits, "<|im_end|>", 10));
    traits = template_traits_of("'<|tool_call>call:'", 18);
    assert_string_equal(traits.think->begin, "<|channel>thought");
    assert_true(template_traits_show(&traits, "<|\"|>", 5));
    assert_true(template_traits_show(&traits, "<channel|>", 10));
    assert_false(template_traits_show(&traits, "<turn|>", 7));
    traits = template_traits_of(kimi_k3, sizeof kimi_k3 - 1);
    assert_string_equal(traits.thinking, "thinking");
    assert_string_equal(traits.effort, "thinking_effort");
    assert_string_equal(traits.think->end, "<|close|>think<|sep|>");
    assert_true(template_traits_show(&traits, "<|sep|>", 7));
    traits = template_traits_of("[TOOL_CALLS]", 12);
    assert_string_equal(template_traits_with_tools(traits).format->name, "generic");
    traits = template_traits_of("<tool_call>", 11);
    assert_string_equal(template_traits_with_tools(traits).format->name, "hermes");
    traits = template_traits_of("<tool_call> tools", 17);
    assert_string_equal(template_traits_with_tools(traits).format->name, "hermes");
    traits = template_traits_of(deepseek, sizeof deepseek - 1);
    assert_string_equal(template_traits_with_tools(traits).format->name, "deepseek");
    assert_true(template_traits_of(deepseek, sizeof deepseek - 1).arguments_as_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cuts),   cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_ends),   cmocka_unit_test(test_detection),
        cmocka_unit_test(test_traits), cmocka_unit_test(test_name_after_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
