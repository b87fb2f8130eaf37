/* model: what chat templates take from Python's Jinja. The expected texts are those of Jinja 3.1.6
 * with loop controls, but for pop(), which its immutable sandbox refuses. */
#include "model/chat_template.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char python_input[] =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\", \"x\": \"one\"}, {\"role\": "
    "\"assistant\", \"content\": null}, {\"role\": \"user\", \"content\": \"Ho\", \"x\": "
    "\"two\"}], \"d\": {\"items\": [1, 2], \"get\": \"g\", \"b\": {\"keys\": 3}}}";

static const char *const python_cases[][2] = {
    /* what a turn sets is gone in the next */
    {"{%- for m in messages -%}{%- if m.x -%}{%- set y = m.x -%}{%- endif -%}[{{ y if y is defined "
     "else '-' }}]{%- endfor -%}{{ y is defined }}",
     "[one][-][two]False"},
    /* what is written before a turn is left counts */
    {"{%- for m in messages -%}<{{ loop.index }}{%- if m.role == 'assistant' -%}skip{%- continue "
     "-%}{%- endif -%}{%- if loop.last -%}stop{%- break -%}{%- endif -%}>{%- else -%}none{%- "
     "endfor -%}",
     "<1><2skip<3stop"},
    {"{%- for m in messages -%}{%- continue -%}{%- else -%}none{%- endfor -%}|{%- for m in [] "
     "-%}x{%- else -%}none{%- endfor -%}",
     "none|none"},
    {"{%- for i, (a, b) in [(1, (2, 3)), [4, 'xy']] -%}{{ i }}{{ a }}{{ b }} {% endfor -%}{%- for "
     "c in 'añ' if c != 'a' -%}{{ c }}{{ loop.length }}{%- endfor -%}",
     "123 4xy ñ1"},
    /* None */
    {"{{ messages[1].content }}|{{ messages[1].content|string }}|{{ messages[1].nothing }}|{{ none "
     "~ 1 }}|{%- set z = none -%}{{ [none, 1] }}",
     "None|None||None1|[None, 1]"},
    /* text of anything */
    {"{{ ['string', 'null']|upper }} {{ 3|string + 'x' }} {{ true|lower }} {{ {'a': none}|trim }}",
     "['STRING', 'NULL'] 3x true {'a': None}"},
    /* in */
    {"{{ [1] in [[1], [2]] }} {{ ['a'] not in [['b']] }} {{ 'a' in {'a': 1} }} {{ 2 in {'a': 1} }} "
     "{{ none in [none] }}",
     "True True True False True"},
    /* methods */
    {"{%- for k, v in d.items() -%}{{ k }}={{ v }};{%- endfor -%}{{ d['items'] }} {{ d.get('get') "
     "}} {{ d.b.keys()|list }} {{ d['b'].get('x', 'y') }}",
     "items=[1, 2];get=g;b={'keys': 3};[1, 2] g ['keys'] y"},
    /* numbers as keys */
    {"{%- set t = {512: 128, 64: 16, 'a': 1} -%}{{ t[512] }} {{ t[1] is defined }} {{ t['a'] }}{%- "
     "for k, v in {512: 128, 64: 16}|dictsort -%} {{ k < 100 }}{{ v }}{%- endfor -%}{{ {1: 2} }} "
     "{{ 64 in t }}",
     "128 False 1True16False128{1: 2} True"},
    /* pop */
    {"{%- set ids = namespace(v=['a', 'b', 'c']) -%}{{ ids.v.pop(0) }}{{ ids.v.pop() }}{{ ids.v "
     "}}{{ ids.v|length }}",
     "ac['b']1"},
    /* line ends */
    {"{# one #}\r\n{%- set a = 1 %}\r\n{{ a }}\r\n  {% if a %}\r\nx\r\n{% endif %}", "1\nx\n"},
    /* GLM 5 */
    {"{%- for m in messages -%}{%- if m.role == 'user' -%}U{{ m.content }}{%- else -%}{%- set c = "
     "m.content or '' -%}{%- if m.x is string -%}{%- set r = m.x -%}{%- endif -%}A{{ '<think>' + r "
     "+ '</think>' if r is defined else '<think></think>' }}{{ c.strip() }}{%- endif -%}{%- endfor "
     "-%}",
     "UHiA<think></think>UHo"},
};

static void test_as_jinja(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof python_cases / sizeof *python_cases; i++) {
        const char *source = python_cases[i][0];
        struct chat_template *chat_template;
        struct buffer out = {0};
        struct error err = {0};
        if (chat_template_open(source, strlen(source), "", "", &chat_template, &err) ||
            chat_template_render(chat_template, python_input, strlen(python_input), &out, &err))
            fail_msg("%s\n%s", source, err.text);
        if (strcmp(out.data ? out.data : "", python_cases[i][1]) != 0)
            fail_msg("%s\n%s", source, out.data ? out.data : "");
        buffer_deinit(&out);
        chat_template_close(chat_template);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_jinja)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
