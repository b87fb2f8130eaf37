/* `medley render`, `tokenize`, `detokenize` and `inspect` as a user starts them: what they print,
 * and what they say of wrong words, wrong input and files that are not there. */
#include "shell_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MODEL "\"$MEDLEY_ROOT/models/demo.gguf\""
#define HELLO "printf '[{\"role\": \"user\", \"content\": \"Hello\"}]' | "

static void expect_exactly(const char *line, const char *text)
{
    const char *out;
    assert_int_equal(shell_run(line, &out), 0);
    assert_string_equal(out, text);
}

static void a_template_in_a_file_is_rendered(void **state)
{
    (void)state;
    assert_int_equal(system("printf '%s' '{{ bos_token }}{% for m in messages %}[{{ m.role }}]"
                            "{{ m.content }}{% endfor %}"
                            "{% if tools is not none %}{{ tools }}{% endif %}"
                            "{% if add_generation_prompt %}>{% endif %}' >template"),
                     0);
    expect_exactly(HELLO "\"$MEDLEY\" render --template template", "[user]Hello");
    expect_exactly(HELLO "\"$MEDLEY\" render --template template --add-generation-prompt",
                   "[user]Hello>");
    expect_exactly("printf '{\"messages\": [], \"tools\": 1}' | "
                   "\"$MEDLEY\" render --template template",
                   "1");
    assert_int_equal(system("printf '[]' >tools"), 0);
    expect_exactly(HELLO "\"$MEDLEY\" render --template template --tools tools", "[user]Hello[]");
}

static void render_says_what_is_wrong(void **state)
{
    (void)state;
    shell_expect(2, HELLO "\"$MEDLEY\" render", "medley render");
    shell_expect(2, HELLO "\"$MEDLEY\" render --nonsense", "nonsense");
    shell_expect(1, HELLO "\"$MEDLEY\" render --template nothing", "nothing");
    shell_expect(1, HELLO "\"$MEDLEY\" render nothing.gguf", "nothing.gguf");
    shell_expect(2, "echo '[' | \"$MEDLEY\" render --template template",
                 "standard input is not JSON");
    shell_expect(2, "echo 7 | \"$MEDLEY\" render --template template",
                 "neither a JSON array of messages nor an object");
    shell_expect(2,
                 "echo '{}' >tools && " HELLO "\"$MEDLEY\" render --template template "
                 "--tools tools",
                 "not a JSON array of tools");
    shell_expect(2, "echo '{% if %}' >wrong && " HELLO "\"$MEDLEY\" render --template wrong",
                 "medley render");
    shell_expect(1, HELLO "\"$MEDLEY\" render --template template >/dev/full", "standard output");
}

static void a_text_becomes_tokens_and_a_text_again(void **state)
{
    (void)state;
    expect_exactly("printf 'One fine day' | \"$MEDLEY\" tokenize " MODEL
                   " | \"$MEDLEY\" detokenize " MODEL,
                   "One fine day");
    expect_exactly("printf '' | \"$MEDLEY\" tokenize " MODEL, "[]\n");
    expect_exactly("echo '[]' | \"$MEDLEY\" detokenize " MODEL " --pieces", "");
}

static void tokens_that_are_none_are_refused(void **state)
{
    (void)state;
    shell_expect(2, "\"$MEDLEY\" tokenize </dev/null", "one model file is needed, not 0");
    shell_expect(2, "\"$MEDLEY\" tokenize --nonsense " MODEL " </dev/null", "wrong options");
    shell_expect(2, "\"$MEDLEY\" detokenize a b </dev/null", "one model file is needed, not 2");
    shell_expect(1, "\"$MEDLEY\" tokenize nothing.gguf </dev/null", "nothing.gguf");
    shell_expect(2, "echo '[1,' | \"$MEDLEY\" detokenize " MODEL, "standard input is not JSON");
    shell_expect(2, "echo '{}' | \"$MEDLEY\" detokenize " MODEL, "not a JSON array of tokens");
    shell_expect(2, "echo '[1, -1]' | \"$MEDLEY\" detokenize " MODEL, "element 1 is not a token");
    shell_expect(2, "echo '[99999999]' | \"$MEDLEY\" detokenize " MODEL,
                 "element 0 is not a token");
    shell_expect(2, "echo '[1.5]' | \"$MEDLEY\" detokenize " MODEL, "must be an integer");
    shell_expect(1, "echo hello | \"$MEDLEY\" tokenize " MODEL " >/dev/full", "standard output");
}

/* What a file says of its layers: experts, latent attention, recurrent states, rope. */
static void each_kind_of_model_is_described(void **state)
{
    static const char *const rows[][2] = {
        {"more/models/kimi-linear", "6 in 3 of the 4 layers, 2 used for a token"},
        {"more/models/kimi-linear", "3 of 4 layers; a state of 14.1 KiB a sequence"},
        {"more/models/deepseek2-legacy", "32 values a token, cached as keys and values"},
        {"more/models/deepseek2-legacy", "4 of 20 (K) and 16 (V), 4 for KV"},
        {"more/models/glm-flash", "1 layers at the end, which predict further tokens"},
        {"models/gpt-oss", "yarn, x32, from 4096 tokens"},
        {"models/llama-rope31", "factors, in rope_freqs"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char line[256];
        snprintf(line, sizeof line, "\"$MEDLEY\" inspect \"$MEDLEY_GOLDEN/%s.gguf\"", rows[i][0]);
        shell_expect(0, line, rows[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_in_a_file_is_rendered),
        cmocka_unit_test(render_says_what_is_wrong),
        cmocka_unit_test(a_text_becomes_tokens_and_a_text_again),
        cmocka_unit_test(tokens_that_are_none_are_refused),
        cmocka_unit_test(each_kind_of_model_is_described),
    };
    return cmocka_run_group_tests(tests, shell_open, shell_close);
}
