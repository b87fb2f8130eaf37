#include "tools/tool_format.h"

#include <string.h>

/* Sources: the chat templates that the models' makers publish. */
static const struct tool_elements coder_elements = {
    "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", true};
static const struct tool_elements glm_elements = {
    "", "", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>", false};
static const struct tool_elements minimax_elements = {
    "<invoke name=\"", "\">", "<parameter name=\"", "\">", "", "</parameter>", "</invoke>", false};

#define DSML "｜DSML｜"
static const struct tool_elements dsml_elements = {.name_open = "<" DSML "invoke name=\"",
                                                   .name_close = "\"",
                                                   .key_open = "<" DSML "parameter name=\"",
                                                   .key_close = "\"",
                                                   .value_open = "",
                                                   .value_close = "</" DSML "parameter>",
                                                   .close = "</" DSML "invoke>",
                                                   .attributes_end = ">",
                                                   .text_attribute = "string=\"true\""};

/* Kimi K3 builds all marks of three tokens and words. */
#define K3_OPEN(tag) "<|open|>" tag "<|sep|>"
#define K3_CLOSE(tag) "<|close|>" tag "<|sep|>"
static const struct tool_elements kimi_k3_elements = {.name_open = "<|open|>call tool=\"",
                                                      .name_close = "\"",
                                                      .key_open = "<|open|>argument key=\"",
                                                      .key_close = "\"",
                                                      .value_open = "",
                                                      .value_close = K3_CLOSE("argument"),
                                                      .close = K3_CLOSE("call"),
                                                      .attributes_end = "<|sep|>",
                                                      .text_attribute = "type=\"string\"",
                                                      .json_open = "<|open|>json",
                                                      .json_close = K3_CLOSE("json"),
                                                      .has_entities = true};
/* MiniMax M3: each tag has a token before it, and an argument's is its key. */
#define M3 "]<]minimax[>["
static const struct tool_elements minimax_m3_elements = {.name_open = M3 "<invoke name=\"",
                                                         .name_close = "\">",
                                                         .key_open = M3 "<",
                                                         .key_close = ">",
                                                         .value_open = "",
                                                         .value_close = M3 "</",
                                                         .close = M3 "</invoke>",
                                                         .closed_by_key = true};
static const struct think_marks minimax_m3_think = {"<mm:think>", "</mm:think>", false};
/* As GLM, with a mark behind the name, and in a section. */
static const struct tool_elements hunyuan_elements = {
    "", "<tool_sep>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "</tool_call>"};
static const struct think_marks kimi_k3_think = {K3_OPEN("think"), K3_CLOSE("think"), false};
static const struct think_marks gemma4_think = {"<|channel>thought", "<channel|>", true};

/* Behind a recipient, up to the message's end. */
#define HARMONY_CALL(header) "functions.%n" header "%(<|message|>%)%a%.%(<|end|>%)"

static const struct tool_format tool_formats[] = {
    {.name = "harmony",
     .style = TOOL_STYLE_CHANNELS,
     .opening = "",
     .prefix = "functions.",
     .call_begin = {" to="},
     .call_forms = {HARMONY_CALL(" %(<|constrain|>%)json"), HARMONY_CALL("%(<|constrain|>%)json"),
                    HARMONY_CALL("%s"), HARMONY_CALL(" json"),
                    HARMONY_CALL("%(<|channel|>%)commentary %(<|constrain|>%)json"),
                    HARMONY_CALL("%(<|channel|>%)commentary%(<|constrain|>%)json"),
                    HARMONY_CALL("%(<|channel|>%)commentary json"),
                    HARMONY_CALL("%(<|channel|>%)commentary%s")},
     .call_headers = {"<|start|>", "<|channel|>", "<|message|>"}},
    {.name = "deepseek",
     .style = TOOL_STYLE_NAMED,
     .told = "<｜tool▁calls▁begin｜>, then for each call <｜tool▁call▁begin｜>, its name, "
             "<｜tool▁sep｜>, its arguments as a JSON object, <｜tool▁call▁end｜>, and at the end "
             "<｜tool▁calls▁end｜>",
     .opening = "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
     .begin = {"<｜tool▁call▁begin｜>"},
     .gap = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>", "```"},
     .separator = {"<｜tool▁sep｜>"},
     .call_forms = {"function%(<｜tool▁sep｜>%)%n\n```json\n%a\n```%(<｜tool▁call▁end｜>%)",
                    "%n%(<｜tool▁sep｜>%)%a%(<｜tool▁call▁end｜>%)"},
     .type = "function"},
    {.name = "gemma4",
     .style = TOOL_STYLE_DICT,
     .opening = "<|tool_call>",
     .begin = {"<|tool_call>"},
     .gap = {"<tool_call|>", "<|tool_response>"},
     .silent = {"<|channel>", "<channel|>"},
     .separator = {"<|\"|>"},
     .tokens = {"<|channel>", "<|\"|>"},
     .call_forms = {"%s%c%s%(<tool_call|>%)"},
     .is_not_own = true,
     .prefix = "call:",
     .think = &gemma4_think},
    {.name = "dsml", /* V3.2 has one of these blocks, V4 the other */
     .style = TOOL_STYLE_ELEMENTS,
     .opening = "\n\n<" DSML "tool_calls>\n",
     .begin = {"<" DSML "tool_calls>", "<" DSML "function_calls>"},
     .gap = {"</" DSML "tool_calls>", "</" DSML "function_calls>"},
     .tokens = {DSML},
     .call_forms = {"%s%c%s</%(" DSML "%)tool_calls>", "%s%c%s</%(" DSML "%)function_calls>"},
     .is_not_own = true,
     .elements = &dsml_elements},
    {.name = "kimi",
     .style = TOOL_STYLE_NAMED,
     .opening = "<|tool_calls_section_begin|><|tool_call_begin|>",
     .begin = {"<|tool_call_begin|>"},
     .gap = {"<|tool_calls_section_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>"},
     .separator = {"<|tool_call_argument_begin|>"},
     .call_forms = {"functions.%n:%d%(<|tool_call_argument_begin|>%)%s%a%s%(<|tool_call_end|>%)"},
     .ends_thought = true,
     .prefix = "functions."},
    {.name = "kimi-k3",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = K3_CLOSE("response") K3_OPEN("tools"),
     .begin = {K3_OPEN("tools")},
     .gap = {K3_CLOSE("tools"), K3_CLOSE("message"), "<|end_of_msg|>"},
     .silent = {K3_OPEN("response"), K3_CLOSE("response"), K3_CLOSE("message"), "<|end_of_msg|>"},
     .tokens = {"<|open|>", "<|close|>", "<|sep|>"},
     .call_forms = {"%s%c%s%(<|close|>%)tools%(<|sep|>%)"},
     .is_not_own = true,
     .elements = &kimi_k3_elements,
     .think = &kimi_k3_think},
    {.name = "minimax-m3",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = M3 "<tool_call>\n",
     .begin = {M3 "<tool_call>"},
     .gap = {M3 "</tool_call>"},
     .tokens = {M3, "<tool_call>", "</tool_call>"},
     .call_forms = {"%s%c%s%(" M3 "%)%(</tool_call>%)"},
     .is_not_own = true,
     .ends_thought = true,
     .elements = &minimax_m3_elements,
     .think = &minimax_m3_think},
    {.name = "hunyuan",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = "<tool_calls>\n<tool_call>",
     .begin = {"<tool_call>"},
     .gap = {"</tool_call>", "</tool_calls>"},
     .silent = {"<tool_calls>"},
     .call_forms = {"%s%c%s%(</tool_call>%)"},
     .is_not_own = true,
     .elements = &hunyuan_elements},
    {.name = "minimax",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = "<minimax:tool_call>\n",
     .begin = {"<minimax:tool_call>"},
     .gap = {"</minimax:tool_call>"},
     .call_forms = {"%s%c%s%(</minimax:tool_call>%)"},
     .is_not_own = true,
     .elements = &minimax_elements},
    {.name = "mistral",
     .style = TOOL_STYLE_NAMED,
     .opening = "[TOOL_CALLS]",
     .begin = {"[TOOL_CALLS]"},
     .gap = {"[CALL_ID]"},
     .separator = {"[ARGS]"},
     .call_forms = {"%s%l", "%n%([ARGS]%)%s%a", "%n%([CALL_ID]%)%w%([ARGS]%)%s%a"}},
    {.name = "qwen3-coder",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = "<tool_call>\n",
     .begin = {"<tool_call>"},
     .gap = {"</tool_call>"},
     .call_forms = {"%s%c%s%(</tool_call>%)"},
     .is_not_own = true,
     .elements = &coder_elements},
    {.name = "glm",
     .style = TOOL_STYLE_ELEMENTS,
     .opening = "<tool_call>\n",
     .begin = {"<tool_call>"},
     .gap = {"</tool_call>"},
     .call_forms = {"%s%c%s%(</tool_call>%)"},
     .is_not_own = true,
     .elements = &glm_elements},
    {.name = "granite",
     .style = TOOL_STYLE_JSON,
     .opening = "<|tool_call|>",
     .begin = {"<|tool_call|>", "<tool_call>"},
     .gap = {"</tool_call>"},
     .call_forms = {"%s%l", "%s%c"}},
    {.name = "hermes",
     .style = TOOL_STYLE_JSON,
     .opening = "<tool_call>\n",
     .begin = {"<tool_call>"},
     .gap = {"</tool_call>"},
     .call_forms = {"%s%c%s%(</tool_call>%)"}},
    {.name = "llama3",
     .style = TOOL_STYLE_NAMED,
     .opening = "",
     .begin = {"<|python_tag|>", "<function="},
     .gap = {"</function>", ";", "<|eom_id|>", "<|eot_id|>"},
     .separator = {">"},
     .bare = true,
     .asks_name = true},
    {.name = "generic",
     .style = TOOL_STYLE_JSON,
     .opening = "<tool_call>\n",
     .begin = {"<tool_call>", "```json", "```tool_call"},
     .gap = {"</tool_call>", "```"},
     .bare = true,
     .asks_name = true},
};

/* In which order texts are tried: the most telling ones first. */
static const struct {
    const char *has[2], *format;
} tool_format_signs[] = {
    {{"<|channel|>", "<|message|>"}, "harmony"},
    {{"<｜tool▁calls▁begin｜>", NULL}, "deepseek"},
    {{DSML, NULL}, "dsml"},
    {{"<|tool_call>call:", NULL}, "gemma4"},
    {{"<|tool_calls_section_begin|>", NULL}, "kimi"},
    {{"<|open|>", "<|close|>"}, "kimi-k3"},
    {{"<minimax:tool_call>", NULL}, "minimax"},
    {{M3, "<invoke name="}, "minimax-m3"},
    {{"<tool_sep>", "<arg_key>"}, "hunyuan"},
    {{"[TOOL_CALLS]", NULL}, "mistral"},
    {{"<function=", "<parameter="}, "qwen3-coder"},
    {{"<arg_key>", NULL}, "glm"},
    {{"<|tool_call|>", NULL}, "granite"},
    {{"<tool_call>", NULL}, "hermes"},
    {{"<|python_tag|>", NULL}, "llama3"},
    {{"<|start_header_id|>", "tools"}, "llama3"},
};

static const struct think_marks think_marks[] = {
    {"<think>", "</think>", false},
    {"[THINK]", "[/THINK]", false},
    {"<seed:think>", "</seed:think>", false},
};

const struct tool_format *tool_format_named(const char *name)
{
    for (size_t i = 0; i < sizeof tool_formats / sizeof *tool_formats; i++) {
        if (strcmp(tool_formats[i].name, name) == 0)
            return &tool_formats[i];
    }
    return NULL;
}

static bool template_has(const char *text, size_t size, const char *sign)
{
    const size_t length = strlen(sign);
    for (size_t i = 0; i + length <= size; i++) {
        const char *found = memchr(text + i, sign[0], size - length - i + 1);
        if (!found)
            return false;
        i = (size_t)(found - text);
        if (memcmp(found, sign, length) == 0)
            return true;
    }
    return false;
}

static const struct tool_format *format_of_text(const char *text, size_t size)
{
    for (size_t i = 0; i < sizeof tool_format_signs / sizeof *tool_format_signs; i++) {
        const char *const *has = tool_format_signs[i].has;
        if (template_has(text, size, has[0]) && (!has[1] || template_has(text, size, has[1])))
            return tool_format_named(tool_format_signs[i].format);
    }
    return tool_format_named("generic");
}

/* A template that joins arguments to its text as they are; one that asks what they are, or writes
 * them as JSON itself, takes an object. */
static bool joins_arguments(const char *text, size_t size)
{
    static const char *const objects[] = {"arguments | tojson",
                                          "arguments|tojson",
                                          "arguments'] | tojson",
                                          "arguments']|tojson",
                                          "arguments\"] | tojson",
                                          "arguments\"]|tojson",
                                          "is string",
                                          "is mapping",
                                          "items"};
    for (size_t i = 0; i < sizeof objects / sizeof *objects; i++) {
        if (template_has(text, size, objects[i]))
            return false;
    }
    return template_has(text, size, "'arguments'] +") || template_has(text, size, ".arguments +") ||
           template_has(text, size, "'arguments']+");
}

/* The first of the names that stands in the text as a variable's; NULL: none. */
static const char *switch_of_text(const char *text, size_t size, const char *const *names,
                                  const char *const *signs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (template_has(text, size, signs[i]))
            return names[i];
    }
    return NULL;
}

static const char *thinking_of_text(const char *text, size_t size)
{
    static const char *const names[] = {"enable_thinking", "thinking", "thinking",
                                        "thinking",        "thinking", "thinking"};
    static const char *const signs[] = {"enable_thinking",          " thinking is defined",
                                        " thinking is not defined", " thinking is undefined",
                                        "{%- if thinking ",         "{% if thinking "};
    return switch_of_text(text, size, names, signs, sizeof names / sizeof *names);
}

static const char *effort_of_text(const char *text, size_t size)
{
    static const char *const names[] = {"reasoning_effort", "thinking_effort"};
    return switch_of_text(text, size, names, names, sizeof names / sizeof *names);
}

struct template_traits template_traits_of(const char *text, size_t size)
{
    struct template_traits traits = {.format = tool_format_named("generic")};
    if (!text)
        return traits;
    traits.format = format_of_text(text, size);
    traits.think = traits.format->think;
    for (size_t i = 0; i < sizeof think_marks / sizeof *think_marks && !traits.think; i++) {
        if (template_has(text, size, think_marks[i].end) ||
            template_has(text, size, think_marks[i].begin))
            traits.think = &think_marks[i];
    }
    if (traits.format->style == TOOL_STYLE_CHANNELS)
        traits.think = NULL;
    traits.knows_tools = template_has(text, size, "tools");
    traits.arguments_as_text = joins_arguments(text, size);
    traits.effort = effort_of_text(text, size);
    traits.thinking = thinking_of_text(text, size);
    return traits;
}

struct template_traits template_traits_with_tools(struct template_traits traits)
{
    /* What is asked for where nothing is known is Hermes' form, whose marks may be special tokens.
     */
    const bool is_asked_for = traits.format == tool_format_named("hermes");
    const bool has_own = traits.knows_tools || traits.format->told || is_asked_for ||
                         traits.format->style == TOOL_STYLE_CHANNELS;
    if (!has_own)
        traits.format = tool_format_named("generic");
    return traits;
}

static bool is_mark(const char *const *marks, const char *text, size_t size)
{
    for (size_t i = 0; i < TOOL_MARKS_MAX && marks[i]; i++) {
        if (strlen(marks[i]) == size && memcmp(marks[i], text, size) == 0)
            return true;
    }
    return false;
}

static bool is_of_elements(const struct tool_elements *elements, const char *text, size_t size)
{
    if (!elements)
        return false;
    const char *const marks[TOOL_MARKS_MAX] = {
        elements->name_open,  elements->name_close,  elements->key_open, elements->key_close,
        elements->value_open, elements->value_close, elements->close};
    return is_mark(marks, text, size);
}

bool template_traits_show(const struct template_traits *traits, const char *text, size_t size)
{
    static const char *const channels[TOOL_MARKS_MAX] = {
        "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>",
        "<|end|>",   "<|return|>",  "<|call|>"};
    const struct tool_format *format = traits->format;
    const char *const think[TOOL_MARKS_MAX] = {traits->think ? traits->think->begin : NULL,
                                               traits->think ? traits->think->end : NULL};
    return is_mark(format->begin, text, size) || is_mark(format->gap, text, size) ||
           is_mark(format->separator, text, size) || is_mark(format->tokens, text, size) ||
           is_mark(format->silent, text, size) || is_mark(think, text, size) ||
           is_of_elements(format->elements, text, size) ||
           (format->style == TOOL_STYLE_CHANNELS && is_mark(channels, text, size));
}
