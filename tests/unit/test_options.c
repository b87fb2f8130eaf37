/* cli/options.h: one table is what is parsed, and what the help says. */
#include "cli/options.h"

#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char said[512];

int command_misused(const struct command *command, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    return EXIT_USAGE;
}

struct inner_flags {
    float warmth;
    uint64_t seed;
};
struct flags {
    const char *text;
    uint32_t n;
    bool deep, said_n;
    uint64_t size;
    struct inner_flags inner;
};

static const struct option_row rows[] = {
    {.name = "text",
     .value = "WORD",
     .standard = "none",
     .help = "a word\n(default %s)",
     OPTION_TEXT(struct flags, text)},
    {.letter = 'n',
     .alias = "number",
     .value = "N",
     .help = "how many",
     OPTION_U32(struct flags, n, 2, 9),
     .mark = offsetof(struct flags, said_n)},
    {.name = "deep", .letter = 'd', .help = "all of it", OPTION_TRUE(struct flags, deep)},
    {.name = "size", .value = "SIZE", .help = "so much", OPTION_BYTES(struct flags, size)},
};
static const struct option_row inner_rows[] = {
    {.name = "warmth", .value = "W", OPTION_FLOAT(struct inner_flags, warmth)},
    {.take = option_take_float}, /* a row of a table elsewhere that is no option */
    {.name = "seed", .value = "S", OPTION_U64(struct inner_flags, seed)},
};
static const struct option_section sections[] = {
    {OPTION_ROWS(rows), .column = 15},
    {.title = "\nInside:\n",
     OPTION_ROWS(inner_rows),
     .offset = offsetof(struct flags, inner),
     .end = "  (any)\n"},
    {0},
};
static const struct command command = {
    .name = "try", .usage = "Usage: try\n\n", .options = sections, .usage_end = "\nThe end.\n"};

/* The words after the command's name, with spaces between: how many are no options; -1: they are
 * wrong. */
static int parse(const char *words, struct flags *flags)
{
    static char line[256];
    static char *argv[16];
    int argc = 0;
    snprintf(line, sizeof line, "try %s", words);
    for (char *word = strtok(line, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    said[0] = 0;
    optind = 0; /* glibc: begin anew */
    *flags = (struct flags){0};
    return options_parse(&command, argc, argv, flags) ? argc - optind : -1;
}

static void test_values_go_where_the_table_says(void **state)
{
    struct flags flags;
    assert_int_equal(parse("--text here -n 5 -d --warmth 0.5 --seed 12345678901 rest", &flags), 1);
    assert_string_equal(flags.text, "here");
    assert_true(flags.n == 5 && flags.deep && flags.said_n);
    assert_true(flags.inner.warmth == 0.5f && flags.inner.seed == UINT64_C(12345678901));
    assert_int_equal(parse("--number=3 --deep --size 2KB", &flags), 0);
    assert_true(flags.n == 3 && flags.deep && flags.size == 2000);
}

static void test_what_is_not_said_has_its_default(void **state)
{
    struct flags flags;
    assert_int_equal(parse("", &flags), 0);
    assert_string_equal(flags.text, "none");
    assert_true(!flags.n && !flags.deep && !flags.said_n && !flags.inner.seed);
}

static void test_wrong_words_are_named_as_they_are_written(void **state)
{
    static const struct {
        const char *words, *says;
    } cases[] = {
        {"-n 1", "-n takes a whole number from 2 to 9, not '1'"},
        {"--number 10", "-n takes a whole number from 2 to 9, not '10'"},
        {"--warmth much", "--warmth takes a number, not 'much'"},
        {"--seed -1", "--seed takes a whole number, not '-1'"},
        {"--size 5kg", "--size takes an amount such as 8GiB, 900MB or 123456, not '5kg'"},
        {"--text", "unknown or incomplete option '--text'"},
        {"--colour", "unknown or incomplete option '--colour'"},
        {"-x", "unknown or incomplete option '-x'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct flags flags;
        assert_int_equal(parse(cases[i].words, &flags), -1);
        assert_string_equal(said, cases[i].says);
    }
}

static void test_the_help_has_every_option(void **state)
{
    struct buffer text = {0};
    options_help(&command, &text);
    assert_string_equal(text.data, "Usage: try\n"
                                   "\n"
                                   "  --text WORD  a word\n"
                                   "               (default none)\n"
                                   "  -n N         how many\n"
                                   "  -d, --deep   all of it\n"
                                   "  --size SIZE  so much\n"
                                   "\n"
                                   "Inside:\n"
                                   "  --warmth W  --seed S  (any)\n"
                                   "\n"
                                   "The end.\n");
    buffer_deinit(&text);
}

static void test_a_command_without_a_table_has_its_usage(void **state)
{
    const struct command plain = {.name = "plain", .usage = "Usage: plain\n"};
    struct buffer text = {0};
    options_help(&plain, &text);
    assert_string_equal(text.data, "Usage: plain\n");
    buffer_deinit(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_go_where_the_table_says),
        cmocka_unit_test(test_what_is_not_said_has_its_default),
        cmocka_unit_test(test_wrong_words_are_named_as_they_are_written),
        cmocka_unit_test(test_the_help_has_every_option),
        cmocka_unit_test(test_a_command_without_a_table_has_its_usage),
    };
    return cmocka_run_group_tests_name("options", tests, NULL, NULL);
}
