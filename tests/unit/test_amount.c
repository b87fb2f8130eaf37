/* base/amount.h: amounts of bytes as people write them. */
#include "base/amount.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_units_of_1024_and_of_1000(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {
        {"1", 1},
        {"123456", 123456},
        {"12B", 12},
        {"900kB", 900000},
        {"900KB", 900000},
        {"900kb", 900000},
        {"3KiB", 3072},
        {"2MB", 2000000},
        {"800MiB", UINT64_C(800) << 20},
        {"16GB", UINT64_C(16000000000)},
        {"8 GiB", UINT64_C(8) << 30},
        {"8gib", UINT64_C(8) << 30},
        {"1.5TiB", UINT64_C(3) << 39},
        {".5KiB", 512},
        {"2TB", UINT64_C(2000000000000)},
        {"9007199254740992", AMOUNT_BYTES_MAX},
    };
    static const struct amount_rule rule = {.plain_bytes = 1};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 0;
        struct error err;
        assert_int_equal(amount_read("--size", cases[i].text, &rule, &bytes, &err), ERROR_NONE);
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void test_what_is_no_amount(void **state)
{
    static const char *const texts[] = {"",       "GiB", "-1GiB", "+1GiB", "0x10",     "1e9",
                                        "nan",    "inf", "1.2.3", "8GiBs", "8 apples", "8G",
                                        "8 GiB ", " 8",  "1,5GB", "40%",   "all"};
    static const struct amount_rule rule = {.plain_bytes = 1};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        uint64_t bytes = 7;
        struct error err;
        char said[128];
        snprintf(said, sizeof said,
                 "--size takes an amount such as 8GiB, 900MB or 123456, not '%s'", texts[i]);
        assert_int_equal(amount_read("--size", texts[i], &rule, &bytes, &err), ERROR_INVALID);
        assert_string_equal(err.text, said);
        assert_int_equal(bytes, 7);
    }
}

static void test_the_caller_says_what_is_taken(void **state)
{
    static const struct {
        struct amount_rule rule;
        const char *text, *says;
        uint64_t bytes;
    } cases[] = {
        {{0}, "8", "--size takes an amount such as 8GiB or 900MB, not '8'", 0},
        {{.plain_bytes = 1 << 30}, "8", NULL, UINT64_C(8) << 30},
        {{.plain_bytes = 1 << 30}, "x", "8GiB, 900MB or 8 (GiB), not 'x'", 0},
        {{.takes_all = true}, "all", NULL, 0},
        {{.takes_all = true}, "ALL", "8GiB or 900MB, or all, not 'ALL'", 0},
        {{.min = 1 << 20}, "1KiB", "--size takes an amount from 1.0 MiB to 8192.0 TiB", 0},
        {{.min = 1 << 20, .max = 1 << 30}, "2GiB", "from 1.0 MiB to 1.0 GiB, not '2GiB'", 0},
        {{0}, "0MiB", "from 1 B to", 0},
        {{0}, "0.1B", "from 1 B to", 0},
        {{.plain_bytes = 1}, "9007199254740994", "from 1 B to", 0},
        {{.plain_bytes = 1}, "99999999999999999999999999999999", "such as 8GiB", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t bytes = 7;
        struct error err = {0};
        const enum error_code code =
            amount_read("--size", cases[i].text, &cases[i].rule, &bytes, &err);
        assert_int_equal(code, cases[i].says ? ERROR_INVALID : ERROR_NONE);
        assert_int_equal(bytes, cases[i].says ? 7 : cases[i].bytes);
        assert_true(!cases[i].says || strstr(err.text, cases[i].says));
    }
}

static void test_percents(void **state)
{
    static const struct {
        const char *text;
        uint32_t percent;
    } good[] = {{"1%", 1}, {"50%", 50}, {"100%", 100}, {"007%", 7}, {"all", 0}};
    static const char *const bad[] = {"",    "50", "0%",    "101%", "-1%",
                                      "5 %", "%",  "0001%", "50%%", "1.5%"};
    struct error err;
    uint32_t percent = 0;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(amount_read_percent("share", good[i].text, true, &percent, &err), 0);
        assert_int_equal(percent, good[i].percent);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(amount_read_percent("share", bad[i], true, &percent, &err), ERROR_INVALID);
    assert_int_equal(amount_read_percent("share", "all", false, &percent, &err), ERROR_INVALID);
    assert_string_equal(err.text, "share takes 1% to 100%, not 'all'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_units_of_1024_and_of_1000),
        cmocka_unit_test(test_what_is_no_amount),
        cmocka_unit_test(test_the_caller_says_what_is_taken),
        cmocka_unit_test(test_percents),
    };
    return cmocka_run_group_tests_name("amount", tests, NULL, NULL);
}
