/* api/stop: stop strings over text in pieces, cut in every way. */
#include "api/stop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct stop_case {
    const char *text;
    const char *stops[4];
    const char *expected;
    bool stopped;
};

static const struct stop_case cases[] = {
    {"hello world", {"wor"}, "hello ", true},
    {"hello world", {"xyz"}, "hello world", false},
    {"hello world", {"world!"}, "hello world", false}, /* a prefix at the end goes out after all */
    {"hello", {"hello"}, "", true},
    {"aaab", {"aab"}, "a", true},
    {"abababac", {"ababac"}, "ab", true},
    {"one two three", {"three", "two"}, "one ", true},
    {"abcx", {"abcdef", "c"}, "ab", true}, /* the shorter one inside the beginning of the longer */
    {"abc", {"abcdef", "c"}, "ab", true},
    {"abcdef", {"abcdef", "c"}, "", true}, /* what starts first wins */
    {"na\xc3\xafve \xe2\x82\xac"
     "5",
     {"\xe2\x82\xac"},
     "na\xc3\xafve ",
     true},
    {"\xf0\x9f\x98\x80\xf0\x9f\x98\x81", {"\xf0\x9f\x98\x81"}, "\xf0\x9f\x98\x80", true},
    {"line\n\nnext", {"\n\n"}, "line", true},
    {"plain", {NULL}, "plain", false},
};

static struct stop_matcher matcher_of(const struct stop_case *c, struct text *strings)
{
    struct stop_matcher matcher = {.strings = strings};
    for (; matcher.n_strings < 4 && c->stops[matcher.n_strings]; matcher.n_strings++)
        strings[matcher.n_strings] =
            (struct text){c->stops[matcher.n_strings], strlen(c->stops[matcher.n_strings])};
    return matcher;
}

/* Bit i of `cuts`: a cut after byte i. A piece is whole characters, as the token stream gives
 * them. */
static void check(const struct stop_case *c, uint32_t cuts)
{
    struct text strings[4];
    struct stop_matcher matcher = matcher_of(c, strings);
    struct buffer out = {0};
    size_t size = strlen(c->text), from = 0;
    bool stopped = false;
    for (size_t i = 0; i < size; i++) {
        bool inside = i + 1 < size && ((unsigned char)c->text[i + 1] & 0xc0) == 0x80;
        if (i + 1 < size && (inside || !(cuts & UINT32_C(1) << i)))
            continue;
        stopped = stop_push(&matcher, c->text + from, i + 1 - from, &out);
        from = i + 1;
        /* never more than what must come out, and never part of a character */
        assert_true(out.size <= strlen(c->expected));
        assert_memory_equal(out.data ? out.data : "", c->expected, out.size);
        assert_true(out.size == strlen(c->expected) ||
                    ((unsigned char)c->expected[out.size] & 0xc0) != 0x80);
    }
    stopped = stop_finish(&matcher, &out) || stopped;
    assert_int_equal(stopped, c->stopped);
    assert_int_equal(out.size, strlen(c->expected));
    assert_memory_equal(out.data ? out.data : "", c->expected, out.size);
    stop_deinit(&matcher);
    buffer_deinit(&out);
}

static void test_every_cut_gives_the_same(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (uint32_t cuts = 0; cuts < UINT32_C(1) << (strlen(cases[i].text) - 1); cuts++)
            check(&cases[i], cuts);
    }
}

static void test_text_flows_when_no_stop_is_possible(void **state)
{
    (void)state;
    struct text stop = {"END", 3};
    struct stop_matcher matcher = {.strings = &stop, .n_strings = 1};
    struct buffer out = {0};
    assert_false(stop_push(&matcher, "abcE", 4, &out));
    assert_string_equal(out.data, "abc");
    assert_false(stop_push(&matcher, "Nd", 2, &out));
    assert_string_equal(out.data, "abcENd");
    stop_deinit(&matcher);
    buffer_deinit(&out);
}

static void test_nothing_comes_after_a_stop(void **state)
{
    (void)state;
    struct text stop = {".", 1};
    struct stop_matcher matcher = {.strings = &stop, .n_strings = 1};
    struct buffer out = {0};
    assert_true(stop_push(&matcher, "a.b", 3, &out));
    assert_true(stop_push(&matcher, "c", 1, &out));
    assert_true(stop_finish(&matcher, &out));
    assert_string_equal(out.data, "a");
    stop_deinit(&matcher);
    buffer_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut_gives_the_same),
        cmocka_unit_test(test_text_flows_when_no_stop_is_possible),
        cmocka_unit_test(test_nothing_comes_after_a_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
