/* model: chat templates; the sandbox that they run in. */
#include "base/limits.h"
#include "base/mem.h"
#include "model/chat_template.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <yyjson.h>

#include <cmocka.h>

static struct chat_template *open_text(const char *source)
{
    struct chat_template *chat_template = NULL;
    struct error err = {0};
    if (chat_template_open(source, strlen(source), "<bos>", "<eos>", &chat_template, &err))
        fail_msg("%s\n%.200s", err.text, source);
    assert_false(chat_template_is_fallback(chat_template));
    return chat_template;
}

static void check_render(struct chat_template *chat_template, const char *input,
                         const char *expected)
{
    struct buffer out = {0};
    struct error err = {0};
    buffer_text(&out, "before|");
    if (chat_template_render(chat_template, input, strlen(input), &out, &err))
        fail_msg("%s", err.text);
    assert_memory_equal(out.data, "before|", 7);
    assert_string_equal(out.data + 7, expected);
    buffer_deinit(&out);
}

/* The error's text must hold `words`; nothing is appended. */
static void check_fails(struct chat_template *chat_template, const char *input, size_t size,
                        enum error_code expected, const char *words)
{
    struct buffer out = {0};
    struct error err = {0};
    buffer_text(&out, "before");
    enum error_code code = chat_template_render(chat_template, input, size, &out, &err);
    if (code != expected || err.code != expected || !strstr(err.text, words))
        fail_msg("%s: '%s' instead of %s: '%s'", error_name(code), err.text, error_name(expected),
                 words);
    assert_string_equal(out.data, "before");
    buffer_deinit(&out);
}

static void check(const char *source, const char *input, const char *expected)
{
    struct chat_template *chat_template = open_text(source);
    check_render(chat_template, input, expected);
    chat_template_close(chat_template);
}

/* ---- right ---- */

static char *golden_text(size_t *size)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/chat.json", getenv("MEDLEY_GOLDEN"));
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*size);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, file), *size);
    fclose(file);
    return text;
}

static void test_the_golden_set_renders_exactly(void **state)
{
    (void)state;
    size_t size, i, j, n, m, cases = 0;
    char *text = golden_text(&size);
    yyjson_doc *doc = yyjson_read(text, size, 0);
    yyjson_val *each, *one;
    yyjson_arr_foreach(yyjson_obj_get(yyjson_doc_get_root(doc), "templates"), i, n, each)
    {
        struct chat_template *chat_template =
            open_text(yyjson_get_str(yyjson_obj_get(each, "jinja")));
        yyjson_arr_foreach(yyjson_obj_get(each, "cases"), j, m, one)
        {
            char *input = yyjson_val_write(
                one, 0, NULL); /* "rendered" is one more variable, which nobody reads */
            check_render(chat_template, input, yyjson_get_str(yyjson_obj_get(one, "rendered")));
            free(input);
            cases++;
        }
        chat_template_close(chat_template);
    }
    assert_true(cases >= 78);
    yyjson_doc_free(doc);
    free(text);
}

#define USER(content) "{\"messages\": [{\"role\": \"user\", \"content\": \"" content "\"}]}"
#define NO_MESSAGES "{\"messages\": []}"

static void test_blocks_are_trimmed_as_in_transformers(void **state)
{
    (void)state;
    check("a\n  {% if true %}\n  b\n  {% endif %}\nc\n", NO_MESSAGES, "a\n  b\nc");
    check("{%- for m in messages -%}\n  {{ m.role }}  \n{%- endfor %}", USER("x"), "user");
    check("a {# no #}\nb {{ 1 }}\nc", NO_MESSAGES, "a b 1\nc");
    check("a{% generation %}b{% endgeneration %}c", NO_MESSAGES, "abc");
}

static void test_variables_are_those_of_transformers(void **state)
{
    (void)state;
    check("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", USER("x"), "<bos>x<eos>");
    check("{{ tools is none }} {{ documents is none }} {{ add_generation_prompt }} {{ other is "
          "defined }}",
          NO_MESSAGES, "True True False False");
    check(
        "{{ tools|length }}{{ other }}{{ add_generation_prompt }}",
        "{\"messages\": [], \"tools\": [1, 2], \"other\": \"o\", \"add_generation_prompt\": true}",
        "2oTrue");
    check("{{ bos_token }}", "{\"messages\": [], \"bos_token\": \"mine\"}", "mine");
    struct chat_template *none;
    assert_int_equal(chat_template_open("[{{ bos_token }}]", 17, NULL, NULL, &none, NULL),
                     ERROR_NONE);
    check_render(none, NO_MESSAGES, "[]");
    chat_template_close(none);
}

static void test_python_s_jinja_is_followed(void **state)
{
    (void)state;
    check("{{ messages[0].content.strip('xn') }}|{{ messages[0].content.lstrip('\\n') }}|{{ '  a "
          "'.strip() }}",
          USER("\\n nx"),
          "\n |"
          " nx|a");
    check("{{ 'abba'.lstrip('a') }} {{ 'abba'.rstrip('a') }} {{ 'aa'.strip('a') }}.", NO_MESSAGES,
          "bba abb .");
    check("{{ tools }} {{ tools|string }}",
          "{\"messages\": [], \"tools\": [{\"a\": \"it's\", \"b\": [true, null, 1.5]}]}",
          "[{'a': \"it's\", 'b': [True, None, 1.5]}] [{'a': \"it's\", 'b': [True, None, 1.5]}]");
    check("{{ messages[0]|tojson }}", USER("<ü\\\">"),
          "{\"role\": \"user\", \"content\": \"<ü\\\">\"}");
    check("{{ dict(b=1, a='x')|tojson }}", NO_MESSAGES, "{\"b\": 1, \"a\": \"x\"}");
    check("{% for c in messages[0].content %}{% if c.type == 'image' %}!{% endif %}{{ c }}.{% "
          "endfor %}",
          USER("añ😀"), "a.ñ.😀.");
    check("{{ messages[0].content|selectattr('type', 'equalto', 'image')|list|length }}{{ "
          "missing|trim }}",
          USER("x"), "0");
    check("{% for i in range(9) %}{% if i == 2 %}{% continue %}{% elif i == 5 %}{% break %}{% "
          "endif %}{{ i }}"
          "{% endfor %}{{ range(5, 1, -2)|list }}",
          NO_MESSAGES, "0134[5, 3]");
    check("{{ '=' * 3 }}{{ [1] * 2 }} {{ -7 % 3 }} {{ [1, 'a'] == [1, 'a'] }} {{ '' == false }} {{ "
          "'a' < 'b' }} "
          "{{ 'a' ~ 1 ~ none ~ missing }}",
          NO_MESSAGES, "===[1, 1] 2 True False True a1None");
    check("{{ 'aBC dEF'.capitalize() }} {{ 'aBC dEF'|title }} {{ ', '.join(['a', 'b']) }} {{ "
          "'a\nb\n'.splitlines() }} "
          "{{ 'a/b/c'.rsplit('/', 1) }} {{ 'abab'.find('b') }} {{ 'abab'.count('b') }} {{ "
          "'abc'.removeprefix('a') }}"
          "{{ 'abc'.removesuffix('c') }} {{ '12'.isdigit() }} {{ messages|count }} {{ "
          "missing|d('e') }} {{ "
          "'xax'|trim('x') }}",
          NO_MESSAGES, "Abc def Abc Def a, b ['a', 'b'] ['a/b', 'c'] 1 2 bcab True 0 e a");
    check(
        "{% set a = [] %}{% set _ = a.append('x') %}{% set _ = a.append(1) %}{{ a }}{{ "
        "a|length }} {{ ['a', 'b']|map('upper')|list }} {{ ['xax']|map('trim', 'x')|join }} {{ "
        "[1, 2.5]|sum }} {% for k, v in '{\"x\": [1]}'|fromjson|items %}{{ k }}{{ v }}{% endfor %}",
        NO_MESSAGES, "['x', 1]2 ['A', 'B'] a 3.5 x[1]");
    check("{% macro f(n) %}{{ n }}{% if n %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ "
          "f(100)|length }}",
          NO_MESSAGES, "193");
}

/* What the families that came last do; expected texts are Jinja 3.1.6's, but for append(). */
static void test_constructs_of_late_families(void **state)
{
    (void)state;
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"<think>\\nhm\\n</think>\\n\\nyes\", \"tool_calls\": [{\"id\": \"a\", "
        "\"function\": {\"name\": \"f\", \"arguments\": {\"x\": 1, \"t\": \"é\"}}}]}, {\"role\": "
        "\"tool\", \"content\": \"5\"}], \"tools\": [{\"function\": {\"name\": \"f\", "
        "\"parameters\": {\"b\": {\"type\": [\"string\", \"null\"]}, \"a\": {\"type\": "
        "\"number\"}}}}]}";
    /* Kimi K3 */
    check(
        "{%- macro open(tag, attrs=[]) -%}{{- '<' + tag -}}{%- for a in attrs -%}{{- ' ' + a[0] + "
        "'=' + a[1]|string|replace('&', '&amp;') -}}{%- endfor -%}{{- '>' -}}{%- endmacro -%}{{ "
        "open('m', [('role', 'a&b'), ('i', 3)]) }}{{ open('x') }}"
        "{%- macro sorted(v) -%}{%- if v is mapping -%}{{- '{' -}}{%- for k, i in v|dictsort -%}"
        "{{- ',' if not loop.first -}}{{- k|tojson(ensure_ascii=false) -}}:{{- sorted(i) -}}{%- "
        "endfor -%}{{- '}' -}}{%- elif v is string or v is number -%}{{- "
        "v|tojson(ensure_ascii=false) -}}{%- else -%}[{%- for i in v -%}{{- ',' if not loop.first "
        "-}}{{- sorted(i) -}}{%- endfor -%}]{%- endif -%}{%- endmacro -%}{{ sorted(tools) }}"
        "{%- for m in messages[1:] -%}{%- if m.role == 'tool' -%}{%- break -%}{%- endif -%}"
        "{{ m.get('name', 'none') }}{%- endfor -%}",
        talk,
        "<m role=a&amp;b i=3><x>[{\"function\":{\"name\":\"f\",\"parameters\":{\"a\":{\"type\":"
        "\"number\"},\"b\":{\"type\":[\"string\",\"null\"]}}}}]none");
    /* Gemma 4 */
    check("{%- for k, v in tools[0]['function']['parameters']|dictsort -%}{{ k }}:{%- if v['type'] "
          "is string -%}{{ v['type']|upper }}{%- else -%}{{ v['type']|map('upper')|list|join('/') "
          "}}{%- endif -%}{{ ',' if not loop.last }}{%- endfor -%}",
          talk, "a:NUMBER,b:STRING/NULL");
    check("{%- set ns = namespace(r='') -%}{%- for part in 'a<|channel>b<channel|>c'"
          ".split('<channel|>') -%}{%- set ns.r = ns.r + (part.split('<|channel>')[0] if "
          "'<|channel>' in part else part) -%}{%- endfor -%}{{ ns.r|trim }}{{ 'x' if not "
          "enable_thinking | default(false) }}",
          talk, "acx");
    /* DeepSeek V3.2 */
    check(
        "{%- set t = namespace(value=[]) -%}{%- for m in messages -%}{%- if "
        "m.get('tool_calls') -%}{%- set _ = t.value.append(m.tool_calls[0].function.name) -%}{%- "
        "endif -%}{%- endfor -%}{{ t.value|join }}{%- for i in range(messages|length - 1, -1, -1) "
        "-%}{{ messages[i].role[0] }}{%- endfor -%}{%- for k, v in "
        "messages[1].tool_calls[0].function.arguments.items() -%} {{ k }}={{ v if v is string "
        "else (v | tojson(ensure_ascii=False)) }}{%- endfor -%}",
        talk, "ftaux=1t=é");
    /* Step, MiMo and others after Qwen 3 */
    check(
        "{%- for m in messages[::-1] -%}{{ (messages|length - 1) - loop.index0 }}{%- endfor -%}"
        "{%- set c = messages[1].content -%}{{ c.split('</think>')[0].rstrip('\\n').split("
        "'<think>')[-1].lstrip('\\n') }}|{{ c.split('</think>')[-1].lstrip('\\n') }}|{%- for k, v "
        "in '{\"a\": [1, \"é\"]}'|fromjson|items -%}{{ k }}={{ v | tojson(ensure_ascii=False) | "
        "safe }}{%- endfor -%}",
        talk, "210hm|yes|a=[1, \"é\"]");
}

static void test_half_a_character_becomes_a_replacement(void **state)
{
    (void)state;
    check("{{ messages[0].content[0] }}{{ messages[0].content }}", USER("😀"), "\xEF\xBF\xBD😀");
    check("{{ messages[0].content }}", USER("\\ud83d\\ude00\\u0000."),
          "😀"); /* up to the NUL, as C sees it */
}

static void test_strftime_now_tells_the_date(void **state)
{
    (void)state;
    char before[64], after[64];
    struct buffer out = {0};
    struct chat_template *chat_template = open_text("{{ strftime_now('%A %d %B %Y') }}");
    time_t now = time(NULL);
    strftime(before, sizeof before, "%A %d %B %Y", localtime(&now));
    assert_int_equal(
        chat_template_render(chat_template, NO_MESSAGES, strlen(NO_MESSAGES), &out, NULL),
        ERROR_NONE);
    now = time(NULL);
    strftime(after, sizeof after, "%A %d %B %Y", localtime(&now));
    assert_true(strcmp(out.data, before) == 0 || strcmp(out.data, after) == 0);
    buffer_deinit(&out);
    chat_template_close(chat_template);
}

static void test_without_a_template_the_rendering_is_plain(void **state)
{
    (void)state;
    struct chat_template *plain;
    assert_int_equal(chat_template_open(NULL, 0, "<bos>", "", &plain, NULL), ERROR_NONE);
    assert_true(chat_template_is_fallback(plain));
    check_render(plain,
                 "{\"messages\": [{\"role\": \"system\", \"content\": \"Be\\nbrief.\"}, {\"role\": "
                 "\"user\", \"content\": "
                 "[{\"type\": \"text\", \"text\": \"Hi\"}, {\"type\": \"text\", \"text\": "
                 "\"!\"}]}, {\"role\": "
                 "\"assistant\", \"content\": null}], \"add_generation_prompt\": true}",
                 "system: Be\nbrief.\nuser: Hi!\nassistant: \nassistant:");
    check_render(plain, USER("x"), "user: x\n");
    const char *wrong[] = {
        "{\"messages\": [{\"content\": \"x\"}]}", "{\"messages\": [3]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": 3}]}",
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_fails(plain, wrong[i], strlen(wrong[i]), ERROR_INVALID, "messages[0]");
    chat_template_close(plain);
}

/* ---- wrong ---- */

static void check_refused(const char *source, size_t size, enum error_code expected,
                          const char *words)
{
    struct chat_template *chat_template = (struct chat_template *)1;
    struct error err = {0};
    enum error_code code = chat_template_open(source, size, "", "", &chat_template, &err);
    if (code != expected || err.code != expected || !strstr(err.text, words))
        fail_msg("%s: '%s' instead of %s: '%s'", error_name(code), err.text, error_name(expected),
                 words);
    assert_null(chat_template);
}

static void test_templates_that_do_not_parse_are_refused(void **state)
{
    (void)state;
    const char *wrong[] = {"{{ 'abc",  "{% foo %}", "{% if %}", "{% for x in %}{% endfor %}",
                           "{# never", "{{ 1 + }}"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        check_refused(wrong[i], strlen(wrong[i]), ERROR_INVALID, "chat template: ");
    check_refused("\xff", 1, ERROR_INVALID, "UTF-8");
    check_refused("\xed\xa0\x80", 3, ERROR_INVALID, "UTF-8");
    char *large = malloc(LIMIT_TEMPLATE_BYTES + 1);
    assert_non_null(large);
    memset(large, 'x', LIMIT_TEMPLATE_BYTES + 1);
    check_refused(large, LIMIT_TEMPLATE_BYTES + 1, ERROR_INVALID, "1048577 bytes");
    free(large);
}

static void test_what_the_template_raises_is_told(void **state)
{
    (void)state;
    struct chat_template *chat_template = open_text(
        "{% if messages|length == 0 %}{{ raise_exception('no messages, no prompt') }}{% endif %}"
        "{{ messages[0].content.nothing() }}");
    check_fails(chat_template, NO_MESSAGES, strlen(NO_MESSAGES), ERROR_INVALID,
                "chat template: no messages, no prompt");
    check_fails(chat_template, USER("x"), strlen(USER("x")), ERROR_INVALID, "not a function");
    chat_template_close(chat_template);
    chat_template_close(NULL);
}

static void test_input_that_is_not_messages_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *text, *words;
    } wrong[] = {
        {"", "not JSON"},
        {"{\"messages\": [}", "at byte 14"},
        {"[]", "not a JSON object"},
        {"{}", "not a JSON object"},
        {"{\"messages\": 3}", "not a JSON object"},
        {USER("\xff"), "not JSON"},
        {USER("\xc3"), "not JSON"},
        {USER("\\ud83d"), "not JSON"},
        {"null", "not a JSON object"},
        {NO_MESSAGES "x", "not JSON"},
    };
    const char *sources[] = {"{{ messages }}", NULL};
    for (size_t s = 0; s < 2; s++) {
        struct chat_template *chat_template;
        size_t size = sources[s] ? strlen(sources[s]) : 0;
        assert_int_equal(chat_template_open(sources[s], size, "", "", &chat_template, NULL),
                         ERROR_NONE);
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
            check_fails(chat_template, wrong[i].text, strlen(wrong[i].text), ERROR_INVALID,
                        wrong[i].words);
        check_fails(chat_template, NO_MESSAGES "\0", strlen(NO_MESSAGES) + 1, ERROR_INVALID,
                    "not JSON");
        check_render(chat_template, NO_MESSAGES, sources[s] ? "[]" : "");
        chat_template_close(chat_template);
    }
}

/* ---- bombs: each template is harmless unless `boom` is set ---- */

#define BOMB(text) "{% if boom %}" text "{% endif %}fine"
#define DOUBLED(times)                                                                             \
    "{% set n = namespace(s='ab') %}{% for i in range(" times                                      \
    ") %}{% set n.s = n.s + n.s %}{% endfor %}"
static const char light[] = "{\"messages\": [], \"boom\": true}";

static void check_bomb(const char *source, const char *words)
{
    struct chat_template *chat_template = open_text(source);
    check_render(chat_template, NO_MESSAGES, "fine");
    check_fails(chat_template, light, strlen(light), ERROR_BUSY, words);
    check_render(chat_template, NO_MESSAGES, "fine"); /* the object lives on */
    chat_template_close(chat_template);
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    check_bomb(BOMB(DOUBLED("60") "{{ n.s }}"), "too long");
    check_bomb(BOMB(DOUBLED("28") "{{ n.s }}"), "256 MiB");
    check_bomb(BOMB("{{ 'a\\nb'|indent(1000000000) }}"), "256 MiB");
    check_bomb(BOMB("{{ [[[1]]]|tojson(indent=500000000) }}"), "256 MiB");
    check_bomb(BOMB("{{ 'ab' * 1000000000 }}"), "repeating");
    check_bomb(BOMB("{{ range(10**9) }}"), "range() of 1000000000");
    check_bomb(BOMB("{% for i in range(0, 1, 0.000000001) %}{% endfor %}"),
               "range() of 1000000000");
    check_bomb(BOMB("{{ range(10**300) }}"), "range() of 1e+300");
}

static void test_searches_are_bounded(void **state)
{
    (void)state;
#define LONG_PATTERN DOUBLED("15") "{% set pattern = n.s ~ '!' %}" DOUBLED("18")
    check_bomb(BOMB(LONG_PATTERN "{{ pattern in n.s }}"), "too long");
    check_bomb(BOMB(LONG_PATTERN "{{ n.s.split(pattern) }}"), "too long");
    check_bomb(BOMB(LONG_PATTERN "{{ n.s.replace(pattern, '') }}"), "too long");
}

static void test_the_stack_is_bounded(void **state)
{
    (void)state;
    check_bomb(BOMB("{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}"), "stack overflow");
    check_bomb(BOMB("{% set n = namespace() %}{% set n.n = n %}{{ n|tojson }}"), "stack overflow");
    check_bomb(BOMB("{% set n = namespace() %}{% set n.n = n %}{{ [n] }}"), "stack overflow");

    enum { DEPTH = 3000 };
    struct buffer deep = {0};
    for (int i = 0; i < DEPTH; i++)
        buffer_text(&deep, i ? "[" : "{{ [");
    check_refused(deep.data, deep.size, ERROR_BUSY, "stack overflow");
    buffer_clear(&deep);
    buffer_text(&deep, "{\"messages\": ");
    for (int i = 0; i < 100 * DEPTH; i++)
        buffer_text(&deep, "[");
    for (int i = 0; i < 100 * DEPTH; i++)
        buffer_text(&deep, "]");
    buffer_text(&deep, "}");
    struct chat_template *chat_template = open_text("fine");
    check_fails(chat_template, deep.data, deep.size, ERROR_BUSY, "stack overflow");
    check_render(chat_template, NO_MESSAGES, "fine");
    chat_template_close(chat_template);
    buffer_deinit(&deep);
}

static void test_what_it_writes_is_bounded(void **state)
{
    (void)state;
    struct chat_template *chat_template = open_text(BOMB(DOUBLED("24") "{{ n.s }}{{ n.s }}!") "\n");
    check_fails(chat_template, light, strlen(light), ERROR_BUSY, "writes more than 64 MiB");
    check_render(chat_template, NO_MESSAGES, "fine");
    chat_template_close(chat_template);
    check_bomb(BOMB(DOUBLED("25") "{{ n.s }}!"), "writes more than 64 MiB");
}

/* The two that take the whole time, at once: in a render, and in the parser (whose search for
 * {% generation %} is quadratic in blanks). */
static void *bomb_render(void *result)
{
    struct error *err = result;
    struct buffer out = {0};
    struct chat_template *chat_template = NULL;
    const char source[] =
        "{% for a in range(1000) %}{% for b in range(1000) %}{% for c in range(1000) %}"
        "{% set x = a + b + c %}{% endfor %}{% endfor %}{% endfor %}";
    chat_template_open(source, sizeof source - 1, "", "", &chat_template, err);
    chat_template_render(chat_template, NO_MESSAGES, strlen(NO_MESSAGES), &out, err);
    buffer_deinit(&out);
    chat_template_close(chat_template);
    return NULL;
}

static void *bomb_parse(void *result)
{
    struct error *err = result;
    struct chat_template *chat_template = NULL;
    char *blanks = malloc(LIMIT_TEMPLATE_BYTES);
    memset(blanks, ' ', LIMIT_TEMPLATE_BYTES);
    chat_template_open(blanks, LIMIT_TEMPLATE_BYTES, "", "", &chat_template, err);
    chat_template_close(chat_template);
    free(blanks);
    return NULL;
}

static void test_time_is_bounded(void **state)
{
    (void)state;
    void *(*const bombs[])(void *) = {bomb_render, bomb_parse};
    pthread_t threads[2];
    struct error errors[2] = {{0}};
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, bombs[i], &errors[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(errors[i].code, ERROR_BUSY);
        assert_string_equal(errors[i].text,
                            "chat template: takes more than 5000 ms of processor time");
    }
}

/* ---- threads and memory ---- */

struct worker {
    struct chat_template *chat_template;
    unsigned good;
};

static void *render_often(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < 30; i++) {
        struct buffer out = {0};
        if (!chat_template_render(worker->chat_template, USER("hi"), strlen(USER("hi")), &out,
                                  NULL))
            worker->good += strcmp(out.data, "user: hi\n") == 0;
        buffer_deinit(&out);
    }
    return NULL;
}

static void test_objects_are_independent_of_threads(void **state)
{
    (void)state;
    struct worker workers[2] = {{0}};
    pthread_t threads[2];
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 * 1024);
    for (int i = 0; i < 2; i++)
        workers[i].chat_template =
            open_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}");
    for (int round = 0; round < 2;
         round++) { /* the second round from other threads than the first */
        for (int i = 0; i < 2; i++)
            assert_int_equal(
                pthread_create(&threads[i], &small, render_often, &workers[(i + round) % 2]), 0);
        for (int i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(workers[i].good, 60);
        chat_template_close(workers[i].chat_template);
    }
    pthread_attr_destroy(&small);
}

static enum error_code open_and_render(const char *source)
{
    struct chat_template *chat_template = NULL;
    struct buffer out = {0};
    struct error err = {0};
    enum error_code code =
        chat_template_open(source, source ? strlen(source) : 0, "", "", &chat_template, &err);
    if (!code)
        code = chat_template_render(chat_template, USER("x"), strlen(USER("x")), &out, &err);
    assert_int_equal(code, err.code);
    if (!code)
        assert_string_equal(out.data, "user: x\n");
    else
        assert_true(strstr(err.text, "not enough memory") != NULL && out.size == 0);
    buffer_deinit(&out);
    chat_template_close(chat_template);
    return code;
}

static void test_every_failed_allocation_is_an_error(void **state)
{
    (void)state;
    const char *sources[] = {NULL, "{{ messages[0].role }}: {{ messages[0].content }}\n\n"};
    for (size_t s = 0; s < 2; s++) {
        unsigned nth = 1;
        enum error_code code;
        do {
            mem_fail_nth(nth);
            code = open_and_render(sources[s]);
            mem_fail_nth(0);
            assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
            nth++;
        } while (code);
        assert_true(nth > (s ? 8u : 4u));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_golden_set_renders_exactly),
        cmocka_unit_test(test_blocks_are_trimmed_as_in_transformers),
        cmocka_unit_test(test_variables_are_those_of_transformers),
        cmocka_unit_test(test_python_s_jinja_is_followed),
        cmocka_unit_test(test_constructs_of_late_families),
        cmocka_unit_test(test_half_a_character_becomes_a_replacement),
        cmocka_unit_test(test_strftime_now_tells_the_date),
        cmocka_unit_test(test_without_a_template_the_rendering_is_plain),
        cmocka_unit_test(test_templates_that_do_not_parse_are_refused),
        cmocka_unit_test(test_what_the_template_raises_is_told),
        cmocka_unit_test(test_input_that_is_not_messages_is_refused),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_searches_are_bounded),
        cmocka_unit_test(test_the_stack_is_bounded),
        cmocka_unit_test(test_what_it_writes_is_bounded),
        cmocka_unit_test(test_time_is_bounded),
        cmocka_unit_test(test_objects_are_independent_of_threads),
        cmocka_unit_test(test_every_failed_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
