/* JSON schemas in which something must not hold (`not`, `oneOf`, `if`), what is left over after
 * alternatives (`unevaluated…`), and escapes of expressions: what they take, and what is refused
 * with its place. */
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static enum error_code compile(enum grammar_kind kind, const char *text, struct grammar **out,
                               struct error *err)
{
    const struct grammar_source source = {kind, false, text, strlen(text)};
    return grammar_compile(&source, out, err);
}

static bool takes(const struct grammar *grammar, const char *text)
{
    struct grammar_matcher *matcher;
    struct grammar_run run = {0};
    struct error err;
    bool may_end = false, must_end;
    assert_int_equal(grammar_matcher_new(grammar, NULL, &matcher, &err), ERROR_NONE);
    if (!grammar_take(matcher, &run, text, strlen(text), &err))
        assert_int_equal(grammar_may_end(matcher, &run, &may_end, &must_end, &err), ERROR_NONE);
    grammar_run_deinit(&run);
    grammar_matcher_free(matcher);
    return may_end;
}

struct example {
    enum grammar_kind kind;
    const char *source, *yes[6], *no[6];
};

static const struct example examples[] = {
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"integer\",\"not\":{\"allOf\":[{\"minimum\":3},{\"maximum\":7}]}}",
     {"2", "8", "-5"},
     {"3", "5", "7"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"integer\",\"not\":{\"anyOf\":[{\"minimum\":3},{\"multipleOf\":2}]}}",
     {"1", "-1"},
     {"3", "2", "4", "0"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9,"
     "\"not\":{\"oneOf\":[{\"maximum\":4},{\"minimum\":3}]}}",
     {"3", "4"},
     {"0", "2", "5", "9"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"integer\",\"not\":{\"if\":{\"minimum\":5},\"then\":{\"maximum\":9},"
     "\"else\":{\"maximum\":0}}}",
     {"10", "1", "4"},
     {"5", "9", "0", "-3"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"integer\",\"minimum\":0,\"maximum\":9,\"$defs\":{\"low\":{\"maximum\":4}},"
     "\"not\":{\"$ref\":\"#/$defs/low\"}}",
     {"5", "9"},
     {"4", "0"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"type\":\"integer\",\"minimum\":0,\"maximum\":3},"
     "\"maxItems\":3,\"not\":{\"prefixItems\":[{\"const\":1},{\"const\":2}]}}",
     {"[0]", "[1,3]", "[2,2,2]"},
     {"[]", "[1]", "[1,2]", "[1,2,3]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"maxItems\":3,"
     "\"contains\":{\"const\":2},\"minContains\":1,\"maxContains\":2}",
     {"[2]", "[1,2]", "[2,1,2]"},
     {"[]", "[1]", "[2,2,2]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"items\":{\"enum\":[1,2]},\"maxItems\":3,"
     "\"not\":{\"contains\":{\"const\":2},\"minContains\":1,\"maxContains\":2}}",
     {"[]", "[1]", "[2,2,2]"},
     {"[2]", "[1,2]", "[2,1,2]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":[\"integer\",\"boolean\"],\"not\":{\"enum\":[1,true]}}",
     {"2", "false"},
     {"1", "true"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"anyOf\":[{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},"
     "{\"properties\":{\"b\":{\"const\":2}},\"required\":[\"b\"]}],"
     "\"unevaluatedProperties\":false}",
     {"{\"a\":1}", "{\"b\":2}", "{\"a\":1,\"b\":2}"},
     {"{}", "{\"a\":2}", "{\"a\":1,\"b\":3}", "{\"a\":1,\"c\":1}"}},
    /* alternatives that a member tells apart */
    {GRAMMAR_JSON_SCHEMA,
     "{\"oneOf\":[{\"type\":\"object\",\"properties\":{\"kind\":{\"const\":\"a\"},"
     "\"n\":{\"type\":\"integer\"}},\"required\":[\"kind\"],\"additionalProperties\":false},"
     "{\"type\":\"object\",\"properties\":{\"kind\":{\"enum\":[\"b\",\"c\"]},"
     "\"t\":{\"type\":\"string\"}},\"required\":[\"kind\"],\"additionalProperties\":false}]}",
     {"{\"kind\":\"a\",\"n\":1}", "{\"kind\":\"c\",\"t\":\"x\"}", "{\"kind\":\"b\"}"},
     {"{\"kind\":\"a\",\"t\":\"x\"}", "{\"kind\":\"b\",\"n\":1}", "{\"n\":1}"}},
    {GRAMMAR_REGEX,
     "\\u0041\\u{1F600}\\ud83d\\ude00",
     {"A\xf0\x9f\x98\x80\xf0\x9f\x98\x80"},
     {"A"}},
    {GRAMMAR_REGEX, "\\n\\r\\f\\v\\t\\cA", {"\n\r\f\v\t\x01"}, {"nrfvtA"}},
    {GRAMMAR_REGEX, "(?:a|b)(?<name>c)[\\b\\-x]", {"ac\b", "bc-", "acx"}, {"ac", "acb"}},
};

static void what_they_take(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct grammar *grammar = NULL;
        struct error err = {0};
        if (compile(examples[i].kind, examples[i].source, &grammar, &err))
            fail_msg("%s: %s", examples[i].source, err.text);
        for (size_t k = 0; k < 6 && examples[i].yes[k]; k++) {
            if (!takes(grammar, examples[i].yes[k]))
                fail_msg("%s must take %s", examples[i].source, examples[i].yes[k]);
        }
        for (size_t k = 0; k < 6 && examples[i].no[k]; k++) {
            if (takes(grammar, examples[i].no[k]))
                fail_msg("%s must not take %s", examples[i].source, examples[i].no[k]);
        }
        grammar_free(grammar);
    }
}

static const struct {
    enum grammar_kind kind;
    const char *source, *text;
} refusals[] = {
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":{}}", "#/anyOf: must be an array of schemas"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":[]}", "#/properties: must be an object"},
    {GRAMMAR_JSON_SCHEMA, "{\"enum\":1}", "#/enum: must be an array"},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":[1]}", "#/required: must be an array of texts"},
    {GRAMMAR_JSON_SCHEMA, "{\"required\":\"a\"}", "#/required: must be an array of texts"},
    {GRAMMAR_JSON_SCHEMA, "{\"items\":[{}]}", "#/items: "},
    {GRAMMAR_JSON_SCHEMA, "{\"not\":{\"prefixItems\":[{}],\"items\":{\"type\":\"null\"}}}",
     "cannot be negated behind prefixItems"},
    {GRAMMAR_REGEX, "\\ud83d\\u0041", "a surrogate without its other half"},
    {GRAMMAR_REGEX, "\\u{110000}", "no code point"},
    {GRAMMAR_REGEX, "\\x4", "hexadecimal digits are missing"},
    {GRAMMAR_REGEX, "\\c1", "\\c needs a letter"},
    {GRAMMAR_REGEX, "\\p{L}", "\\p is not supported"},
    {GRAMMAR_REGEX, "[a", "']' is missing"},
    {GRAMMAR_REGEX, "[a-\\d]", "a range may not end with a class"},
    {GRAMMAR_REGEX, "(?<name", "a group's name has no '>'"},
    {GRAMMAR_REGEX, "(?#x)", "this kind of group is not supported"},
    {GRAMMAR_REGEX, "a{3,2}", "a count from high to low"},
    {GRAMMAR_REGEX, "a{200000}", "counts above 100000"},
};

static void what_is_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        struct grammar *grammar = NULL;
        struct error err = {0};
        if (!compile(refusals[i].kind, refusals[i].source, &grammar, &err))
            fail_msg("%s is not refused", refusals[i].source);
        assert_null(grammar);
        if (!strstr(err.text, refusals[i].text))
            fail_msg("%s: '%s' should say '%s'", refusals[i].source, err.text, refusals[i].text);
    }
}

/* Alternatives are counted before they are multiplied. */
static void too_many_alternatives_are_refused(void **state)
{
    (void)state;
    static const char *const sources[] = {"{\"type\":\"integer\",\"not\":{\"oneOf\":[",
                                          "{\"type\":\"object\",\"unevaluatedProperties\":false,"
                                          "\"x\":{\"oneOf\":[]},\"anyOf\":["};
    static const char *const ends[] = {"{}]}}", "{}]}"};
    for (size_t i = 0; i < 2; i++) {
        char text[4096];
        struct grammar *grammar = NULL;
        struct error err = {0};
        size_t size = (size_t)snprintf(text, sizeof text, "%s", sources[i]);
        for (int k = 0; k < 40; k++)
            size += (size_t)snprintf(text + size, sizeof text - size,
                                     i ? "{\"required\":[\"a%d\"]}," : "{\"minimum\":%d},", k);
        snprintf(text + size, sizeof text - size, "%s", ends[i]);
        assert_int_equal(compile(GRAMMAR_JSON_SCHEMA, text, &grammar, &err), ERROR_BUSY);
        assert_non_null(strstr(err.text, "too many alternatives"));
    }
    char deep[5000];
    struct grammar *grammar = NULL;
    struct error err = {0};
    memset(deep, '(', 2000);
    memset(deep + 2000, ')', 2000);
    deep[4000] = '\0';
    assert_int_equal(compile(GRAMMAR_REGEX, deep, &grammar, &err), ERROR_BUSY);
    assert_non_null(strstr(err.text, "nested too deeply"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_they_take),
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(too_many_alternatives_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
