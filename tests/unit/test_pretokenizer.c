/* The pre-tokeniser rules by name: how each cuts one text that has something for every pattern, and
 * that each compiles and has names of its own. The expected words were computed from libllama's
 * regexes by a separate program (Python's re over the same classes), not by this code. */
#include "base/buffer.h"
#include "base/mem.h"
#include "model/pretokenizer.h"
#include "model/unicode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct {
    const char *name, *words; /* with | between */
} cases[] = {
    {"default",
     "Hello|,| World|'|s| HTTPServer| I|'|LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n | "
     "x|\r\n\t|(|ok|)...| e|\u0301|te| |½34| |$|9|~| "},
    {"gpt-2",
     "Hello|,| World|'s| HTTPServer| I|'|LL| 1234567| a|12| 中国語のかな| 한국어| ไทย|  \n\n | "
     "x|\r\n|\t|(|ok|)...| e|\u0301|te| ½34| $|9|~| "},
    {"mpt",
     "Hello|,| World|'s| HTTPServer| I|'|LL| 1234567| a|12| 中国語のかな| 한국어| ไทย|  \n\n | "
     "x|\r\n|\t|(|ok|)...| e|\u0301|te| ½34| $|9|~| "},
    {"llama-bpe",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"dbrx",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"glm4",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"qwen2", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
              "ไทย|  \n\n| | "
              "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"stablelm2", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                  "한국어| ไทย|  \n\n| | "
                  "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"grok-2", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
               "ไทย|  \n\n| | "
               "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"jais-2",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"deepseek-llm", "Hello|,| World|'|s| HTTPServer| I|'|LL| |1234567| a|12| |中国語のかな| "
                     "|한국어| |ไทย|  |\n|\n| | "
                     "x|\r|\n|\t(|ok|)...| e|\u0301|te| |½34| $|9|~| "},
    {"deepseek-coder", "Hello|,| World|'|s| HTTPServer| I|'|LL| |1|2|3|4|5|6|7| a|1|2| "
                       "|中国語のかな| |한국어| |ไทย|  "
                       "|\n|\n| | x|\r|\n|\t(|ok|)...| e|\u0301|te| |½|3|4| $|9|~ "},
    {"deepseek-v3",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| |中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e\u0301te| |½34| $|9|~| "},
    {"spark2_5", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| |中国語のかな| "
                 "한국어| ไทย|  \n\n | "
                 "x|\r|\n|\t|(ok|)...| e\u0301te| |½|3|4| $|9|~| "},
    {"youtu", "Hello|,| World's| HTTPServer| I'LL| |1|2|3|4|5|6|7| a|1|2| |中国語のかな| |한국어| "
              "ไทย|  \n\n| | "
              "x|\r\n|\t|(ok|)...| e\u0301te| |½|3|4| $|9|~| "},
    {"falcon",
     "Hello|,| World|'|s| HTTPServer| I|'|LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n | "
     "x|\r\n\t|(|ok|)...| e|\u0301|te| ½34| |$|9|~| "},
    {"starcoder", "Hello|,| World|'s| HTTPServer| I|'|LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                  "한국어| ไทย|  \n\n | "
                  "x|\r\n|\t|(|ok|)...| e|\u0301|te| |½|3|4| $|9|~| "},
    {"command-r", "Hello|,| World|'s| HTTPServer| I|'|LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                  "한국어| ไทย|  \n\n | "
                  "x|\r\n|\t|(|ok|)...| e|\u0301|te| |½|3|4| $|9|~| "},
    {"qwen35", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
               "ไทย|  \n\n| | "
               "x|\r\n|\t|(ok|)...| e\u0301te| |½|3|4| $|9|~| "},
    {"poro-chat",
     "Hello|,| World's| HTTPServer| I'LL| 1234567| a12| 中国語のかな| 한국어| ไทย|  \n\n | "
     "x|\r\n\t(|ok|)...| e\u0301te| ½34| $9~| "},
    {"bloom", "Hello|,| World's| HTTPServer| I'LL| 1234567| a12| 中国語のかな| 한국어| ไทย|  \n\n "
              "| x|\r\n\t(|ok|)...| "
              "e\u0301te| ½34| $9~| "},
    {"viking", "Hello|,| World's| HTTPServer| I'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
               "ไทย|  \n\n | "
               "x|\r\n\t(|ok|)...| e\u0301te| |½|3|4| $|9|~| "},
    {"tekken", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
               "ไทย|  \n\n| | "
               "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"chameleon", "Hello|,| World|'|s| HTTPServer| I|'|LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                  "한국어| ไทย|  |\n|\n|  "
                  "|x|\r|\n|\t|(|ok|)|.|.|.| e|\u0301|te| |½|3|4| |$|9|~| "},
    {"gpt-4o",
     "Hello|,| World's| HTTPServer| I'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"granite-embed-multi-97m",
     "Hello|,| World's| HTTPServer| I'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  "
     "\n\n| | x|\r\n|\t|(ok|)...| e\u0301te| |½34| $|9|~| "},
    {"tiny_aya",
     "Hello|,| World's| HTTPServer| I'LL| |1|234|567| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e\u0301te| |½34| $|9|~| "},
    {"kimi-k2",
     "Hello|,| World's| HTTPServer| I'LL| |123|456|7| a|12| |中国語|のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"superbpe", "Hello, World's HTTPServer I'LL |1|234|567| a|12| 中国語のかな 한국어 ไทย  \n\n  "
                 "x\r\n\t(ok)... "
                 "e\u0301te |½34| $|9|~ "},
    {"bailingmoe", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                   "한국어| ไทย|  \n\n| | "
                   "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"seed-coder", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                   "한국어| ไทย|  \n\n| | "
                   "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"ufakzeka", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| "
                 "한국어| ไทย|  \n\n| | "
                 "x|\r\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"afmoe", "Hello|,| World|'s| HTTPServer| I|'LL| |1|234|567| a|12| |中国語のかな| |한국어| "
              "|ไ|ทย|  \n\n| | "
              "x|\r\n|\t|(ok|)...| e\u0301te| |½34| $|9|~| "},
    {"laguna", "Hello|,| World|'s| HTTPServer| I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな| 한국어| "
               "ไทย|  |\n\n| | "
               "x|\r|\n|\t|(ok|)...| e|\u0301te| |½|3|4| $|9|~| "},
    {"exaone-moe", "Hello|,| World|'s| HTTPServer I|'LL| |1|2|3|4|5|6|7| a|1|2| 中国語のかな "
                   "한국어 ไทย|  \n\n| | "
                   "x|\r\n|\t|(ok|)...| e\u0301te| |½|3|4| $|9|~| "},
    {"minicpm5",
     "Hello|,| World|'s| HTTPServer| I|'LL| |123|456|7| a|12| 中国語のかな| 한국어| ไทย|  \n\n| | "
     "x|\r\n|\t|(ok|)...| e|\u0301te| |½34| $|9|~| "},
    {"gemma4", "Hello, World's HTTPServer I'LL 1234567 a12 中国語のかな 한국어 ไทย  |\n\n|  "
               "x\r|\n|\t(ok)... e\u0301te ½34 $9~ "},
};

static void cut(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                const char *text, size_t size, struct buffer *words)
{
    buffer_clear(words);
    buffer_append(words, "", 0);
    assert_int_equal(pretokenizer_split(pretokenizer, text, size, scratch, NULL), ERROR_NONE);
    for (size_t i = 0, start = 0; i < scratch->n_words; start = scratch->ends[i++]) {
        assert_true(scratch->ends[i] > start);
        if (i)
            buffer_text(words, "|");
        buffer_append(words, scratch->text + start, scratch->ends[i] - start);
    }
}

static struct pretokenizer *open_named(const char *name)
{
    struct pretokenizer *pretokenizer;
    struct error err = {0};
    const struct pretokenizer_rule *rule = pretokenizer_rule_find(name, strlen(name));
    assert_non_null(rule);
    if (pretokenizer_open(rule, &pretokenizer, &err))
        fail_msg("%s: %s", name, err.text);
    return pretokenizer;
}

static void test_rules_cut_as_expected(void **state)
{
    struct buffer text = {0}, words = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        buffer_clear(&text);
        for (const char *at = cases[i].words; *at; at++) {
            if (*at != '|')
                buffer_append(&text, at, 1);
        }
        struct pretokenizer *pretokenizer = open_named(cases[i].name);
        struct pretokenizer_scratch scratch = {0};
        cut(pretokenizer, &scratch, text.data, text.size, &words);
        if (strcmp(words.data, cases[i].words) != 0)
            fail_msg("%s cuts\n%s\nshould be\n%s", cases[i].name, words.data, cases[i].words);
        pretokenizer_scratch_deinit(&scratch);
        pretokenizer_close(pretokenizer);
    }
    buffer_deinit(&text);
    buffer_deinit(&words);
}

static void test_every_rule_compiles_and_keeps_all_bytes(void **state)
{
    static const char text[] = "a 1\xFF\xED\xA0\x80\xF0\x9F\x98\x80\xC0\xAF \xE3\x80\x80\n\0z'";
    static const char kept[] =
        "a 1\xEF\xBF\xBD\xED\xA0\x80\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBD \xE3\x80\x80\n\0z'";
    struct pretokenizer_scratch scratch = {0}; /* one for all: scratches are not tied to a rule */
    const struct pretokenizer_rule *rule;
    for (size_t i = 0; (rule = pretokenizer_rule_at(i)); i++) {
        struct pretokenizer *pretokenizer;
        assert_int_equal(pretokenizer_open(rule, &pretokenizer, NULL), ERROR_NONE);
        assert_int_equal(pretokenizer_split(pretokenizer, text, sizeof text - 1, &scratch, NULL),
                         ERROR_NONE);
        assert_true(scratch.n_words > 0);
        assert_int_equal(scratch.ends[scratch.n_words - 1], sizeof kept - 1);
        assert_memory_equal(scratch.text, kept, sizeof kept - 1);
        assert_int_equal(pretokenizer_split(pretokenizer, "", 0, &scratch, NULL), ERROR_NONE);
        assert_int_equal(scratch.n_words, 0);
        pretokenizer_close(pretokenizer);
    }
    pretokenizer_scratch_deinit(&scratch);
}

static void test_names_belong_to_one_rule(void **state)
{
    size_t n_names = 0;
    const struct pretokenizer_rule *rule;
    for (size_t i = 0; (rule = pretokenizer_rule_at(i)); i++) {
        for (const char *name = rule->names; *name;) {
            size_t length = strcspn(name, " ");
            assert_true(length > 0);
            assert_ptr_equal(pretokenizer_rule_find(name, length), rule);
            name += length + (name[length] == ' ');
            n_names++;
        }
    }
    assert_true(n_names >= 80);
    assert_null(pretokenizer_rule_find("", 0));
    assert_null(pretokenizer_rule_find("gpt", 3));
    assert_null(pretokenizer_rule_find("gpt-2 phi-2", 11));
}

/* Every regex must take a long run of anything in linear time. */
/* GLM 4 cuts as chatglm-bpe does, and then looks for the whole word first (found by
 * tests/golden/tokenizers/pre.py). */
static void test_glm_looks_up_whole_words(void **state)
{
    (void)state;
    const struct pretokenizer_rule *glm4 = pretokenizer_rule_find("glm4", 4);
    assert_true(glm4->flags & PRE_IGNORE_MERGES);
    assert_ptr_equal(pretokenizer_rule_find("glm5", 4), glm4);
    assert_false(pretokenizer_rule_find("chatglm-bpe", 11)->flags & PRE_IGNORE_MERGES);
}

static void test_long_runs(void **state)
{
    enum { RUN_BYTES = 1 << 17 };
    static const char *const units[] = {
        "a", "A", "1", " ", "\n", "\r\n ", "!", "'", "\xE4\xB8\xAD", "\xCC\x81", "a 1"};
    struct pretokenizer_scratch scratch = {0};
    struct buffer text = {0};
    const struct pretokenizer_rule *rule;
    for (size_t i = 0; (rule = pretokenizer_rule_at(i)); i++) {
        struct pretokenizer *pretokenizer;
        assert_int_equal(pretokenizer_open(rule, &pretokenizer, NULL), ERROR_NONE);
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            buffer_clear(&text);
            while (text.size < RUN_BYTES)
                buffer_text(&text, units[u]);
            buffer_text(&text, "x"); /* so that no run reaches the end */
            assert_int_equal(pretokenizer_split(pretokenizer, text.data, text.size, &scratch, NULL),
                             ERROR_NONE);
            assert_int_equal(scratch.ends[scratch.n_words - 1], text.size);
        }
        pretokenizer_close(pretokenizer);
    }
    buffer_deinit(&text);
    pretokenizer_scratch_deinit(&scratch);
}

static void test_running_out_of_memory(void **state)
{
    const struct pretokenizer_rule *rule = pretokenizer_rule_find("deepseek-v3", 11);
    unsigned nth = 1;
    for (bool done = false; !done; nth++) {
        struct pretokenizer *pretokenizer = NULL;
        struct pretokenizer_scratch scratch = {0};
        mem_fail_nth(nth);
        enum error_code code = pretokenizer_open(rule, &pretokenizer, NULL);
        if (!code)
            code = pretokenizer_split(pretokenizer, "Hello 123 \xE4\xB8\xAD", 13, &scratch, NULL);
        mem_fail_nth(0);
        done = !code && nth > 20;
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        pretokenizer_scratch_deinit(&scratch);
        pretokenizer_close(pretokenizer);
    }
    assert_true(nth > 10);
}

static void test_byte_alphabet(void **state)
{
    bool seen[0x200] = {0};
    for (unsigned byte = 0; byte < 256; byte++) {
        uint32_t code_point = byte_alphabet_encode((uint8_t)byte);
        assert_true(code_point < 0x200 && !seen[code_point]);
        seen[code_point] = true;
        assert_int_equal(byte_alphabet_decode(code_point), byte);
    }
    assert_int_equal(byte_alphabet_encode(' '), 0x120); /* GPT-2's famous G with a dot */
    assert_int_equal(byte_alphabet_encode('\n'), 0x10A);
    assert_int_equal(byte_alphabet_encode('A'), 'A');
    for (uint32_t code_point = 0; code_point < 0x400; code_point++)
        assert_int_equal(byte_alphabet_decode(code_point) >= 0,
                         code_point < 0x200 && seen[code_point]);
}

static void test_utf8(void **state)
{
    for (uint32_t code_point = 0; code_point <= UNICODE_MAX; code_point++) {
        char bytes[4];
        size_t size = unicode_encode(code_point, bytes), length;
        assert_int_equal(unicode_decode(bytes, size, &length), code_point);
        assert_int_equal(length, size);
        assert_int_equal(unicode_length(bytes[0]), size);
        if (size > 1) {
            assert_int_equal(unicode_decode(bytes, size - 1, &length), UNICODE_REPLACEMENT);
            assert_int_equal(length, 1);
        }
    }
    static const char *const wrong[] = {"\x80",
                                        "\xBF",
                                        "\xC0\xAF",
                                        "\xE0\x80\x80",
                                        "\xF0\x80\x80\x80",
                                        "\xF4\x90\x80\x80",
                                        "\xF8\x88\x80\x80\x80",
                                        "\xFF",
                                        "\xC3(",
                                        "\xE2\x82("};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        size_t length;
        assert_int_equal(unicode_decode(wrong[i], strlen(wrong[i]), &length), UNICODE_REPLACEMENT);
        assert_int_equal(length, 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_cut_as_expected),
        cmocka_unit_test(test_every_rule_compiles_and_keeps_all_bytes),
        cmocka_unit_test(test_names_belong_to_one_rule),
        cmocka_unit_test(test_glm_looks_up_whole_words),
        cmocka_unit_test(test_long_runs),
        cmocka_unit_test(test_running_out_of_memory),
        cmocka_unit_test(test_byte_alphabet),
        cmocka_unit_test(test_utf8),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
