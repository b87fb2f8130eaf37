/* grammar/grammar.h: what each kind of source takes, what is refused and where, masks against each
 * token tried by itself, runs that are copied and rebuilt. */
#include "base/random.h"
#include "grammar/grammar.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct grammar *compile(enum grammar_kind kind, const char *text)
{
    const struct grammar_source source = {kind, false, text, strlen(text)};
    struct grammar *grammar = NULL;
    struct error err = {0};
    if (grammar_compile(&source, &grammar, &err))
        fail_msg("%s: %s", text, err.text);
    return grammar;
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
    {GRAMMAR_REGEX, "[a-c]{2,3}|x+y", {"ab", "abc", "xxy"}, {"a", "abca", "xx", ""}},
    {GRAMMAR_REGEX, "\\d{4}-\\d\\d", {"2026-11"}, {"2026-1", "x2026-11"}},
    {GRAMMAR_REGEX, "[^\\x00-\\x7f]+", {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}, {"\xc3", "a"}},
    {GRAMMAR_CHOICE, "[\"yes\", \"no\", \"not\"]", {"yes", "no", "not"}, {"ye", "noo"}},
    {GRAMMAR_JSON_OBJECT,
     "",
     {"{}", "{\"a\": [1, null, {\"b\": -1.5e3}]}"},
     {"[]", "1", "{\"a\"}"}},
    {GRAMMAR_GBNF,
     "root ::= item (\", \" item)*  # a list\nitem ::= [a-z]+ | \"(\" root \")\"\n",
     {"a", "a, b", "(a, (b))"},
     {"a,b", "(a", ""}},
    {GRAMMAR_GBNF, "root ::= \"a\"{2,4} \"b\"?", {"aa", "aaaab"}, {"a", "aaaaa"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"object\",\"properties\":{\"path\":{\"type\":\"string\"},\"line\":{\"type\":"
     "\"integer\",\"minimum\":1,\"maximum\":120}},\"required\":[\"path\"],"
     "\"additionalProperties\":false}",
     {"{\"path\":\"a\"}", "{\"line\": 120, \"path\": \"\\u00e9\"}"},
     {"{}", "{\"path\":\"a\",\"line\":121}", "{\"path\":\"a\",\"path\":\"b\"}",
      "{\"path\":\"a\",\"x\":1}"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"minItems\":1000,\"items\":{\"type\":\"null\"}}",
     {NULL},
     {"[]", "[null]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"minLength\":2,\"maxLength\":3}",
     {"\"ab\"", "\"\xc3\xa9\xc3\xa9\xc3\xa9\"", "\"\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83dx\""}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"n\":{\"type\":\"object\",\"properties\":{\"next\":{\"$ref\":\"#/$defs/n\"}},"
     "\"additionalProperties\":false}},\"$ref\":\"#/$defs/n\"}",
     {"{}", "{\"next\":{\"next\":{}}}"},
     {"{\"next\":1}"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"string\",\"format\":\"date\"}",
     {"\"2024-02-29\""},
     {"\"2023-02-29\"", "\"2024-13-01\""}},
    {GRAMMAR_GBNF,
     "root ::= \"\\t\" \"\\x41\" [\\r\\n] \"\\u00e9\" \"\\U0001F600\"",
     {"\tA\n\xc3\xa9\xf0\x9f\x98\x80", "\tA\r\xc3\xa9\xf0\x9f\x98\x80"},
     {"\tA\xc3\xa9"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"a\":{\"$anchor\":\"here\",\"type\":\"integer\"}},\"$ref\":\"#here\"}",
     {"7"},
     {"\"7\""}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"$defs\":{\"a\":{\"$id\":\"http://x/a\",\"type\":\"null\"}},\"$ref\":\"http://x/a\"}",
     {"null"},
     {"1"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"anyOf\":[{\"type\":\"null\"},{\"type\":\"boolean\"}],\"$ref\":\"#/anyOf/1\"}",
     {"true"},
     {"null"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"prefixItems\":[{\"type\":\"null\"}],\"contains\":{\"type\":"
     "\"integer\"},\"unevaluatedItems\":false}",
     {"[null, 1]", "[null, 1, 2]"},
     {"[null]", "[null, 1, \"x\"]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"allOf\":[{\"prefixItems\":[{\"type\":\"null\"}]}],"
     "\"unevaluatedItems\":{\"type\":\"boolean\"}}",
     {"[]", "[null, true]"},
     {"[null, 1]", "[1]"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":[\"string\",\"integer\"],\"not\":{\"enum\":[1,\"a\"]}}",
     {"2", "\"b\""},
     {"1", "\"a\""}},
    {GRAMMAR_JSON_SCHEMA, "{\"multipleOf\":0.01,\"type\":\"number\"}", {"4.35", "-2"}, {"0.001"}},
    {GRAMMAR_JSON_SCHEMA,
     "{\"oneOf\":[{\"type\":\"integer\"},{\"minimum\":2,\"type\":\"number\"}]}",
     {"1", "2.5"},
     {"3", "1.5"}},
};

static void test_examples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct grammar *grammar = compile(examples[i].kind, examples[i].source);
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

struct refusal {
    enum grammar_kind kind;
    const char *source, *text;
};

static const struct refusal refusals[] = {
    {GRAMMAR_JSON_SCHEMA, "{", "the schema is no JSON"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"text\"}", "#/type: is no type"},
    {GRAMMAR_JSON_SCHEMA, "{\"properties\":{\"a\":{\"pattern\":\"(?=x)\"}}}",
     "#/properties/a/pattern: at 2: look-around"},
    {GRAMMAR_JSON_SCHEMA, "{\"items\":{\"uniqueItems\":true}}", "#/items/uniqueItems: "},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"other.json\"}", "#/$ref: leads to nothing"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"string\",\"maxLength\":-1}", "#/maxLength: must be a whole"},
    {GRAMMAR_JSON_SCHEMA, "{\"enum\":[]}", "no text satisfies"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"type\":\"object\","
     "\"properties\":{\"x\":{\"$ref\":\"#/$defs/a\"}},\"required\":[\"x\"]}}}",
     "no text satisfies"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":7}", "#/$ref: must be a text"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#none\"}", "#/$ref: leads to nothing"},
    {GRAMMAR_JSON_SCHEMA, "{\"$ref\":\"#/anyOf/x\",\"anyOf\":[true]}", "leads to nothing"},
    {GRAMMAR_JSON_SCHEMA, "{\"anyOf\":7}", "#/anyOf: must be an array of schemas"},
    {GRAMMAR_JSON_SCHEMA, "{\"$schema\":\"http://x/y\"}", "#/$schema: this dialect is not known"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"allOf\":[{\"contains\":{\"const\":1}},{\"contains\":{\"const\":2}}]}",
     "several such demands on one array are not supported"},
    {GRAMMAR_JSON_SCHEMA,
     "{\"type\":\"array\",\"contains\":{\"const\":1},\"minContains\":99999,"
     "\"maxContains\":999999}",
     "with such counts it needs too many states"},
    {GRAMMAR_JSON_SCHEMA, "{\"type\":\"object\",\"minProperties\":2}",
     "#/minProperties: above 1 needs members that the schema names, and no others"},
    {GRAMMAR_REGEX, "(a", "')' is missing"},
    {GRAMMAR_REGEX, "(a|b)*a(a|b){20}", "needs more than"},
    {GRAMMAR_REGEX, "(a{1000}){1000}", "too large"},
    {GRAMMAR_CHOICE, "[]", "1 to 4096 texts"},
    {GRAMMAR_CHOICE, "[1]", "must be a text"},
    {GRAMMAR_GBNF, "root ::= root \"a\" | \"b\"", "left recursion"},
    {GRAMMAR_GBNF, "root ::= a\n", "'a' is used"},
    {GRAMMAR_GBNF, "root ::= \"a", "line 1: a literal"},
    {GRAMMAR_GBNF, "root ::= \"\\U00110000\"", "no code point"},
    {GRAMMAR_GBNF, "root ::= \"a\\", "line 1: "},
    {GRAMMAR_GBNF, "root ::= \"a\"{100001}", "a count above 100000"},
    {GRAMMAR_GBNF, "root ::= (\"a\"?){2000}", "a count above 1000 of an element that may be empty"},
};

static void test_refusals(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct grammar_source source = {refusals[i].kind, false, refusals[i].source,
                                              strlen(refusals[i].source)};
        struct grammar *grammar = NULL;
        struct error err = {0};
        assert_int_not_equal(grammar_compile(&source, &grammar, &err), ERROR_NONE);
        assert_null(grammar);
        if (!strstr(err.text, refusals[i].text))
            fail_msg("%s: '%s' should say '%s'", refusals[i].source, err.text, refusals[i].text);
    }
}

/* A small vocabulary: all bytes, then pieces that cross what JSON keeps apart. Token 0 ends. */
static const char *const pieces[] = {
    "{\"",   "\":", "\": ", "\",",      "\"}",   "{}",  "[]",   "},",   "]}",
    "true",  "fal", "se",   "null",     "12",    "0",   "path", "pa",   "line",
    "\\u00", "\\n", "abc",  "\xc3\xa9", "\xa9x", "   ", "\n  ", ", \"",
};
enum { N_PIECES = sizeof pieces / sizeof *pieces, N_VOCAB = 257 + N_PIECES };

static struct grammar_vocabulary *make_vocabulary(char *bytes, uint64_t *starts)
{
    struct grammar_vocabulary *vocabulary;
    struct error err;
    const int32_t end = 0;
    uint64_t size = 0;
    for (uint32_t id = 0; id < N_VOCAB; id++) {
        starts[id] = size;
        if (id >= 1 && id < 257)
            bytes[size++] = (char)(id - 1);
        if (id >= 257) {
            memcpy(bytes + size, pieces[id - 257], strlen(pieces[id - 257]));
            size += strlen(pieces[id - 257]);
        }
    }
    starts[N_VOCAB] = size;
    assert_int_equal(grammar_vocabulary_new(bytes, starts, N_VOCAB, &end, 1, &vocabulary, &err),
                     ERROR_NONE);
    return vocabulary;
}

/* The mask against each token tried, then one of those allowed; until the end or for 40 tokens. */
static void walk(struct grammar_matcher *matcher, uint64_t seed)
{
    struct grammar_run run = {0};
    struct error err = {0};
    for (uint64_t step = 0; step < 40; step++) {
        const uint64_t *bits;
        uint64_t mask[(N_VOCAB + 63) / 64];
        int32_t allowed[N_VOCAB], n_allowed = 0;
        assert_int_equal(grammar_mask(matcher, &run, &bits, &err), ERROR_NONE);
        memcpy(mask, bits, sizeof mask);
        for (int32_t id = 0; id < N_VOCAB; id++) {
            struct grammar_run copy;
            assert_int_equal(grammar_run_copy(&run, &copy, &err), ERROR_NONE);
            const bool is_taken = !grammar_take_token(matcher, &copy, id, &err);
            assert_int_equal(is_taken, mask[id / 64] >> (id % 64) & 1);
            grammar_run_deinit(&copy);
            if (is_taken)
                allowed[n_allowed++] = id;
        }
        assert_int_not_equal(n_allowed, 0);
        const int32_t id =
            allowed[(uint32_t)(random_unit_at(seed, step) * n_allowed) % (uint32_t)n_allowed];
        if (id == 0)
            break;
        assert_int_equal(grammar_take_token(matcher, &run, id, &err), ERROR_NONE);
        run.epoch = step % 7 ? run.epoch : 0; /* elsewhere, from its bytes */
    }
    grammar_run_deinit(&run);
}

static void test_masks(void **state)
{
    (void)state;
    char bytes[1024];
    uint64_t starts[N_VOCAB + 1];
    struct grammar_vocabulary *vocabulary = make_vocabulary(bytes, starts);
    struct error err;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct grammar *grammar = compile(examples[i].kind, examples[i].source);
        struct grammar_matcher *matcher;
        assert_int_equal(grammar_matcher_new(grammar, vocabulary, &matcher, &err), ERROR_NONE);
        for (uint64_t seed = 0; seed < 10; seed++)
            walk(matcher, seed * 31 + i);
        grammar_matcher_free(matcher);
        grammar_free(grammar);
    }
    grammar_vocabulary_free(vocabulary);
}

static void test_many_items(void **state)
{
    (void)state;
    struct grammar *grammar =
        compile(GRAMMAR_JSON_SCHEMA, "{\"type\":\"array\",\"minItems\":1000,\"maxItems\":1000,"
                                     "\"items\":{\"const\":1}}");
    char text[2002] = "[1";
    assert_true(grammar_size(grammar).n_nodes < 1000);
    for (int i = 1; i < 1000; i++)
        memcpy(text + i * 2, ",1", 3);
    memcpy(text + 2000, "]", 2);
    assert_true(takes(grammar, text));
    memcpy(text + 1998, "]", 2);
    assert_false(takes(grammar, text));
    grammar_free(grammar);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_masks),
        cmocka_unit_test(test_many_items),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
