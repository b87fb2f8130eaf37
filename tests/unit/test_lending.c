/* What an owner lends: settings as people write them, and what they mean at a moment. */
#include "lending/lending.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define GIB UINT64_C(1073741824)

static struct lending lending_of(const char *setting, const char *value)
{
    struct lending lending = {0};
    assert_int_equal(lending_set(&lending, setting, value, NULL), ERROR_NONE);
    return lending;
}

static void settings_are_taken_or_refused(void **state)
{
    static const struct {
        const char *setting, *value;
        const char *kept; /* NULL: refused */
    } rows[] = {
        {"memory", "8GiB", "8GiB"},
        {"memory", "8 GB", "7812500KiB"},
        {"memory", "all", "all"},
        {"memory", "8", NULL},
        {"memory", "-1GiB", NULL},
        {"memory", "1KiB", NULL},
        {"memory", "", NULL},
        {"share", "50%", "50%"},
        {"share", "100%", "all"},
        {"share", "0%", NULL},
        {"share", "101%", NULL},
        {"share", "50", NULL},
        {"share", "50%x", NULL},
        {"share", "-5%", NULL},
        {"devices", "gpu0,cpu", "gpu0,cpu"},
        {"devices", "all", "all"},
        {"devices", "", NULL},
        {"devices", "a,,b", NULL},
        {"devices", ",a", NULL},
        {"devices", "a,", NULL},
        {"devices", "a b", NULL},
        {"hours", "22:00-07:00", "22:00-07:00"},
        {"hours", "9:05-17:30", "09:05-17:30"},
        {"hours", "always", "always"},
        {"hours", "22:00", NULL},
        {"hours", "22:00-22:00", NULL},
        {"hours", "24:00-01:00", NULL},
        {"hours", "22:60-01:00", NULL},
        {"hours", "22:0-01:00", NULL},
        {"hours", "22:+1-01:00", NULL},
        {"hours", "22:00-07:00 ", NULL},
        {"battery", "no", "no"},
        {"battery", "maybe", NULL},
        {"used", "no", "no"},
        {"now", "no", "no"},
        {"now", "yes", "yes"},
        {"colour", "red", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lending lending = {.share_percent = 7, .by_hours = true, .to_minute = 1};
        const struct lending before = lending;
        struct error err = {0};
        const enum error_code code = lending_set(&lending, rows[i].setting, rows[i].value, &err);
        assert_int_equal(code, rows[i].kept ? ERROR_NONE : ERROR_INVALID);
        if (!rows[i].kept) {
            assert_true(err.text[0]);
            assert_memory_equal(&lending, &before, sizeof lending);
            continue;
        }
        for (uint32_t k = 0; k < LENDING_SETTINGS; k++) {
            char value[LENDING_TEXT];
            lending_value(&lending, k, value);
            if (strcmp(lending_setting(k), rows[i].setting) == 0)
                assert_string_equal(value, rows[i].kept);
        }
    }
}

static void the_file_gives_back_what_was_written(void **state)
{
    struct lending lending = {0}, read;
    struct buffer text = {0};
    static const char *const bad[] = {"memory", "memory 1GiB\nhours never\n", "x y\n"};
    static const char *const values[] = {"3GiB", "25%", "a,b", "23:59-00:01", "no", "no", "no"};
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++)
        assert_int_equal(lending_set(&lending, lending_setting(i), values[i], NULL), ERROR_NONE);
    lending_write(&lending, &text);
    assert_int_equal(lending_read(text.data, text.size, &read, NULL), ERROR_NONE);
    assert_memory_equal(&read, &lending, sizeof read);
    buffer_deinit(&text);
    assert_int_equal(lending_read("", 0, &read, NULL), ERROR_NONE);
    assert_false(lending_is_limited(&read));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(lending_read(bad[i], strlen(bad[i]), &read, NULL), ERROR_INVALID);
}

static void hours_go_across_midnight(void **state)
{
    static const struct {
        const char *hours;
        uint32_t minute;
        bool open;
    } rows[] = {
        {"22:00-07:00", 22 * 60, true},
        {"22:00-07:00", 22 * 60 - 1, false},
        {"22:00-07:00", 0, true},
        {"22:00-07:00", 24 * 60 - 1, true},
        {"22:00-07:00", 7 * 60 - 1, true},
        {"22:00-07:00", 7 * 60, false},
        {"09:00-17:00", 9 * 60, true},
        {"09:00-17:00", 17 * 60 - 1, true},
        {"09:00-17:00", 17 * 60, false},
        {"09:00-17:00", 0, false},
        {"00:00-00:01", 0, true},
        {"00:00-00:01", 1, false},
        {"23:59-00:00", 24 * 60 - 1, true},
        {"23:59-00:00", 0, false},
        {"00:00-23:59", 24 * 60 - 1, false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct lending lending = lending_of("hours", rows[i].hours);
        const struct lending_moment moment = {.minute = rows[i].minute};
        assert_int_equal(lending_at(&lending, &moment),
                         rows[i].open ? LENDING_OPEN : LENDING_HOURS);
    }
}

/* Central Europe 2026: 29 March 01:00 UTC is 03:00, not 02:00; 25 October 01:00 UTC is 02:00 for
 * the second time. */
static void hours_are_the_local_clocks(void **state)
{
    static const struct {
        int64_t at;
        uint32_t minute;
    } rows[] = {
        {1774745999, 119}, /* 2026-03-29 00:59:59 UTC: 01:59 */
        {1774746000, 180}, /* 01:00:00 UTC: 03:00 */
        {1792889999, 179}, /* 2026-10-25 00:59:59 UTC: 02:59 */
        {1792890000, 120}, /* 01:00:00 UTC: 02:00 */
    };
    const struct lending night = lending_of("hours", "22:00-02:30");
    assert_int_equal(setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1), 0);
    tzset();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct lending_moment moment = {.minute = lending_minute(rows[i].at)};
        assert_int_equal(moment.minute, rows[i].minute);
        assert_int_equal(lending_at(&night, &moment),
                         moment.minute < 150 ? LENDING_OPEN : LENDING_HOURS);
    }
    unsetenv("TZ");
    tzset();
}

static void reasons_have_an_order(void **state)
{
    static const struct {
        bool nothing, not_on_battery, not_while_used; /* settings */
        int on_battery;                               /* -1: not known */
        bool used;
        enum lending_state state;
    } rows[] = {
        {false, false, false, 1, true, LENDING_OPEN},
        {false, true, false, 1, false, LENDING_BATTERY},
        {false, true, false, 0, false, LENDING_OPEN},
        {false, true, false, -1, false, LENDING_OPEN},
        {false, false, true, 0, true, LENDING_USED},
        {false, false, true, 0, false, LENDING_OPEN},
        {false, true, true, 1, true, LENDING_BATTERY},
        {true, true, true, 1, true, LENDING_OFF},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct lending lending = {.nothing = rows[i].nothing,
                                        .not_on_battery = rows[i].not_on_battery,
                                        .not_while_used = rows[i].not_while_used};
        const struct lending_moment moment = {
            .on_battery = {.value = rows[i].on_battery, .valid = rows[i].on_battery >= 0},
            .used = rows[i].used};
        assert_int_equal(lending_at(&lending, &moment), rows[i].state);
    }
}

static void limits_of_memory(void **state)
{
    static const struct {
        const char *memory, *share, *devices;
        uint64_t total, lent;
    } rows[] = {
        {"all", "all", "all", 24 * GIB, 24 * GIB}, {"8GiB", "all", "all", 24 * GIB, 8 * GIB},
        {"8GiB", "all", "all", 4 * GIB, 4 * GIB},  {"all", "50%", "all", 24 * GIB, 12 * GIB},
        {"8GiB", "25%", "all", 24 * GIB, 6 * GIB}, {"4GiB", "25%", "all", 24 * GIB, 4 * GIB},
        {"all", "all", "cpu", 24 * GIB, 0},        {"all", "all", "gpu", 24 * GIB, 0},
        {"all", "all", "gpu00", 24 * GIB, 0},      {"all", "all", "cpu,gpu0", 24 * GIB, 24 * GIB},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct lending lending = {0};
        lending_set(&lending, "memory", rows[i].memory, NULL);
        lending_set(&lending, "share", rows[i].share, NULL);
        lending_set(&lending, "devices", rows[i].devices, NULL);
        const uint64_t lent = lending_bytes(&lending, "gpu0", rows[i].total);
        assert_true(lent <= rows[i].lent && rows[i].lent - lent < 100); /* percent of whole bytes */
    }
}

static void use_by_others_takes_time(void **state)
{
    static const struct {
        uint64_t at_s;
        double share; /* below 0: not known */
        bool used;
    } rows[] = {
        {1, 0.9, false},   {10, 0.9, false},  {11, 0.9, true},   {12, 0.1, true},
        {60, 0.1, true},   {61, 0.4, true},   {62, 0.1, true},   {121, 0.1, true},
        {122, 0.1, false}, {123, 0.9, false}, {130, -1, false},  {134, 0.9, false},
        {143, 0.9, false}, {144, 0.9, true},  {145, 0.2, true},  {204, 0.2, true},
        {205, 0.2, false}, {206, 0.5, false}, {900, 0.5, false},
    };
    struct lending_use use = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct reading share = {.value = rows[i].share, .valid = rows[i].share >= 0};
        lending_use_step(&use, rows[i].at_s * 1000, share);
        assert_int_equal(use.used, rows[i].used);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_are_taken_or_refused),
        cmocka_unit_test(the_file_gives_back_what_was_written),
        cmocka_unit_test(hours_go_across_midnight),
        cmocka_unit_test(hours_are_the_local_clocks),
        cmocka_unit_test(reasons_have_an_order),
        cmocka_unit_test(limits_of_memory),
        cmocka_unit_test(use_by_others_takes_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
