/* Sessions and passes: found by their secret alone, until they are over. */
#include "api/sessions.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct sessions *sessions;
static const uint8_t token_a[ACCESS_TOKEN_HASH_BYTES] = {1}, token_b[ACCESS_TOKEN_HASH_BYTES] = {2};

static int set_up(void **state)
{
    sessions = sessions_new();
    return sessions ? 0 : -1;
}

static int tear_down(void **state)
{
    sessions_free(sessions);
    return 0;
}

struct secret {
    char text[SESSION_SECRET_TEXT];
};

static struct secret begin(enum session_kind kind, const uint8_t *token, uint64_t now_ms,
                           uint64_t lasts_ms)
{
    struct secret secret;
    assert_int_equal(
        sessions_open(sessions, kind, token, ACCESS_READ, now_ms, lasts_ms, secret.text, NULL),
        ERROR_NONE);
    assert_int_equal(strlen(secret.text), SESSION_SECRET_TEXT - 1);
    return secret;
}

static bool has(enum session_kind kind, const struct secret *secret, uint64_t now_ms)
{
    struct browser_session found;
    return sessions_find(sessions, kind, secret->text, strlen(secret->text), now_ms, &found);
}

static void test_lasts(void **state)
{
    struct secret one = begin(SESSION_BROWSER, token_a, 100, 1000);
    struct browser_session found;
    assert_true(has(SESSION_BROWSER, &one, 100));
    assert_true(has(SESSION_BROWSER, &one, 1099));
    assert_false(has(SESSION_BROWSER, &one, 1100));
    assert_false(has(SESSION_PASS, &one, 200));
    assert_true(
        sessions_find(sessions, SESSION_BROWSER, one.text, SESSION_SECRET_TEXT - 1, 200, &found));
    assert_memory_equal(found.token_hash, token_a, sizeof token_a);
    assert_int_equal(found.scopes, ACCESS_READ);
    sessions_close(sessions, &found);
    assert_false(has(SESSION_BROWSER, &one, 200));
}

static void test_pass_once(void **state)
{
    struct secret pass = begin(SESSION_PASS, token_a, 0, 1000);
    assert_false(has(SESSION_BROWSER, &pass, 1));
    assert_true(has(SESSION_PASS, &pass, 1));
    assert_false(has(SESSION_PASS, &pass, 1));
}

static void test_foreign_secrets(void **state)
{
    struct secret one = begin(SESSION_BROWSER, token_a, 0, 1000), wrong = one;
    struct browser_session found;
    wrong.text[3] = wrong.text[3] == '0' ? '1' : '0';
    assert_false(has(SESSION_BROWSER, &wrong, 1));
    assert_false(sessions_find(sessions, SESSION_BROWSER, one.text, 10, 1, &found));
    assert_false(sessions_find(sessions, SESSION_BROWSER, "", 0, 1, &found));
    assert_true(has(SESSION_BROWSER, &one, 1));
}

/* One token's browsers do not push out another's. */
static void test_many(void **state)
{
    struct secret other = begin(SESSION_BROWSER, token_b, 0, 1000000);
    struct secret first = begin(SESSION_BROWSER, token_a, 1, 1000000);
    for (int i = 0; i < SESSIONS_OF_TOKEN_MAX - 1; i++)
        begin(SESSION_BROWSER, token_a, (uint64_t)(2 + i), 1000000);
    assert_true(has(SESSION_BROWSER, &first, 100));
    for (int i = 0; i < 3 * SESSIONS_MAX; i++)
        begin(SESSION_BROWSER, token_a, (uint64_t)(100 + i), 1000000);
    assert_false(has(SESSION_BROWSER, &first, 2000));
    assert_true(has(SESSION_BROWSER, &other, 2000));
}

/* When every place is taken, the oldest of all goes. */
static void test_full(void **state)
{
    struct secret first = begin(SESSION_BROWSER, token_a, 1, 1000000);
    for (int i = 0; i < SESSIONS_MAX; i++) {
        uint8_t token[ACCESS_TOKEN_HASH_BYTES] = {3, (uint8_t)i};
        begin(SESSION_BROWSER, token, (uint64_t)(2 + i), 1000000);
    }
    assert_false(has(SESSION_BROWSER, &first, 2000));
}

static void test_cookie(void **state)
{
    static const struct {
        const char *header, *value;
    } rows[] = {
        {"s=1", "1"},       {"a=2; s=1", "1"}, {"a=2;s=1 ; b=3", "1"},
        {"ss=2; s=1", "1"}, {"s=", ""},        {"s", ""},
        {"", ""},           {";;; ;", ""},     {"as=1", ""},
        {"s=1; s=2", "1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t size;
        const char *found = session_of_cookie(rows[i].header, "s", &size);
        assert_int_equal(size, strlen(rows[i].value));
        assert_memory_equal(found, rows[i].value, size);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lasts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_pass_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_foreign_secrets, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_many, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_full, set_up, tear_down),
        cmocka_unit_test(test_cookie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
