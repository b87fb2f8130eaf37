/* Who is let in by the API: tokens, scopes, limits, wrong ones; on made-up clocks. And the times
 * and rates of `medley token`. */
#include "api/access.h"
#include "api/access_kept.h"
#include "cli/token_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 3 };

static const uint64_t wall = UINT64_C(20000) * 86400000 + 1000; /* a second into a day */
static struct {
    char text[N][ACCESS_TOKEN_TEXT + 7]; /* "Bearer …" */
    struct access_grant grants[N];
    bool is_gone[N], had_tokens, is_ready;
} tokens;
static struct access *access;
static struct access_grant grant;
static struct access_refusal refusal;
static struct api_client client = {.share = "192.0.2.1"};

static bool find_token(void *self, const uint8_t *hash, struct access_grant *out)
{
    for (int i = 0; i < N; i++) {
        if (!tokens.is_gone[i] && access_token_same(tokens.grants[i].hash, hash)) {
            *out = tokens.grants[i];
            return true;
        }
    }
    return false;
}

static bool is_required(void *self)
{
    return tokens.had_tokens;
}

static bool is_ready(void *self)
{
    return tokens.is_ready;
}

static bool may_use(void *self, const uint8_t *hash, const char *model, bool lists,
                    struct error *why)
{
    if (strcmp(model, "mine") == 0)
        return true;
    error_set(why, ERROR_INVALID, "it is not bound to that");
    return false;
}

static void open_with(struct access_options options)
{
    options.tokens = (struct api_access){
        .find = find_token, .is_ready = is_ready, .is_required = is_required, .may_use = may_use};
    access = access_new(&options);
    assert_non_null(access);
}

static int setup(void **state)
{
    struct error err;
    char text[ACCESS_TOKEN_TEXT];
    memset(&tokens, 0, sizeof tokens);
    tokens.had_tokens = tokens.is_ready = true;
    for (int i = 0; i < N; i++) {
        struct access_grant *made = &tokens.grants[i];
        assert_int_equal(access_token_make(text, made->hash, &err), ERROR_NONE);
        snprintf(tokens.text[i], sizeof tokens.text[i], "Bearer %s", text);
        made->id = access_token_id(made->hash);
        made->scopes = ACCESS_GENERATE;
        snprintf(made->name, sizeof made->name, "token%d", i);
    }
    return 0;
}

static int teardown(void **state)
{
    access_free(access);
    access = NULL;
    return 0;
}

static bool begin(const char *authorization, uint32_t scopes, uint64_t now_ms, uint64_t wall_ms)
{
    return access_begin(access, &client, authorization, NULL, NULL, scopes, now_ms, wall_ms, &grant,
                        &refusal);
}

static void expect_refusal(unsigned status, const char *code, const char *words)
{
    assert_int_equal(refusal.err.status, status);
    assert_string_equal(refusal.err.code, code);
    if (!strstr(refusal.err.message, words))
        fail_msg("'%s' is not in: %s", words, refusal.err.message);
}

static void test_when_one_is_needed(void **state)
{
    static const struct {
        struct access_options options;
        bool had_tokens, is_guarded;
    } cases[] = {
        {{.is_loopback = true}, false, false},
        {{.is_loopback = true}, true, true},
        {{.is_loopback = false}, false, true},
        {{.is_loopback = true, .requires = true}, false, true},
        {{.is_open = true}, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tokens.had_tokens = cases[i].had_tokens;
        open_with(cases[i].options);
        assert_true(access_is_guarded(access) == cases[i].is_guarded);
        assert_true(begin(NULL, ACCESS_GENERATE, 0, wall) == !cases[i].is_guarded);
        assert_true(begin(NULL, 0, 0, wall)); /* for everybody */
        assert_true(grant.id == 0);
        access_free(access);
    }
    access = NULL;
}

static void test_what_is_shown(void **state)
{
    open_with((struct access_options){0});
    assert_false(begin(NULL, ACCESS_GENERATE, 0, wall));
    expect_refusal(401, "missing_api_key", "medley token create");
    assert_int_equal(refusal.delay_ms, 0);
    assert_false(begin("Basic YTpi", ACCESS_GENERATE, 0, wall));
    expect_refusal(401, "missing_api_key", "Bearer");
    assert_true(begin(tokens.text[0], ACCESS_GENERATE | ACCESS_READ, 0, wall));
    assert_string_equal(grant.name, "token0");
    access_end(access, &grant);
    memcpy(tokens.text[0], "bEARER", 6);
    assert_true(begin(tokens.text[0], ACCESS_GENERATE, 0, wall));
    access_end(access, &grant);
    assert_true(access_begin(access, &client, NULL, tokens.text[1] + 7, NULL, ACCESS_GENERATE, 0,
                             wall, &grant, &refusal));
    access_end(access, &grant);
    assert_false(begin(tokens.text[0], ACCESS_READ, 0, wall));
    expect_refusal(403, "insufficient_scope", "token0");
    tokens.is_ready = false;
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 0, wall));
    expect_refusal(503, "tokens_not_known", "try again");
}

static void test_ends(void **state)
{
    struct api_error err = {0};
    open_with((struct access_options){0});
    tokens.grants[0].expires_ms = wall + 1000;
    assert_true(begin(tokens.text[0], ACCESS_GENERATE, 0, wall));
    assert_true(access_holds(access, &grant, wall + 999, &err));
    assert_false(access_holds(access, &grant, wall + 1000, &err));
    assert_string_equal(err.code, "token_expired");
    tokens.is_gone[0] = true;
    assert_false(access_holds(access, &grant, wall, &err));
    assert_string_equal(err.code, "token_revoked");
    access_end(access, &grant);
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 0, wall));
    expect_refusal(401, "invalid_api_key", "revoked");
    tokens.is_gone[0] = false;
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 0, wall + 1000));
    expect_refusal(401, "invalid_api_key", "expired");
    assert_true(access_holds(access, &(struct access_grant){0}, wall, &err));
}

static void test_limits(void **state)
{
    open_with((struct access_options){0});
    tokens.grants[0].requests_per_min = 60;
    for (int i = 0; i < 60; i++) {
        assert_true(begin(tokens.text[0], ACCESS_GENERATE, 1000, wall));
        access_end(access, &grant);
    }
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 1000, wall));
    expect_refusal(429, "token_rate", "60 requests a minute");
    assert_int_equal(refusal.err.retry_after_s, 2);
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 1999, wall));
    assert_true(begin(tokens.text[0], ACCESS_GENERATE, 2000, wall));
    access_end(access, &grant);

    struct access_grant first, second;
    tokens.grants[1].streams = 2;
    assert_true(begin(tokens.text[1], ACCESS_GENERATE, 1000, wall));
    first = grant;
    assert_true(begin(tokens.text[1], ACCESS_GENERATE, 1000, wall));
    second = grant;
    assert_false(begin(tokens.text[1], ACCESS_GENERATE, 1000, wall));
    expect_refusal(429, "token_streams", "2 requests at once");
    access_end(access, &first);
    assert_true(begin(tokens.text[1], ACCESS_GENERATE, 1000, wall));
    access_end(access, &grant);
    access_end(access, &second);

    tokens.grants[2].tokens_per_day = 100;
    assert_true(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall));
    access_count(access, grant.id, 100, wall);
    access_end(access, &grant);
    assert_false(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall));
    expect_refusal(429, "token_tokens_per_day", "has used 100");
    assert_int_equal(refusal.err.retry_after_s, 86400);
    assert_true(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall + 86400000));
    access_end(access, &grant);
    access_count(access, 12345, 1, wall); /* of a token that nobody knows */
}

/* A restart gives nobody another day's tokens; another day does, and so does a file that is none.
 */
static void test_a_days_tokens_are_kept(void **state)
{
    char folder[] = "/tmp/medley-kept-XXXXXX", path[64];
    struct access_kept kept;
    struct buffer text = {0};
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/token-usage", folder);
    tokens.grants[2].tokens_per_day = 100;
    open_with((struct access_options){0});
    access_kept_open(&kept, folder, access, wall);
    assert_false(access_kept_step(&kept, access, wall));
    assert_true(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall));
    access_count(access, grant.id, 60, wall);
    assert_false(access_kept_step(&kept, access, wall)); /* written */
    access_count(access, grant.id, 40, wall);
    assert_true(access_kept_step(&kept, access, wall + ACCESS_KEPT_MS - 1)); /* later … */
    access_kept_flush(&kept, access, wall + 1);                              /* … or at the end */
    access_end(access, &grant);
    access_usage_write(access, wall, &text);

    access_free(access);
    open_with((struct access_options){0});
    access_kept_open(&kept, folder, access, wall + 2);
    assert_false(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall + 2));
    expect_refusal(429, "token_tokens_per_day", "has used 100");
    assert_true(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall + 86400000));
    access_end(access, &grant);

    for (size_t cut = 0; cut <= text.size; cut++) { /* a file that is cut anywhere */
        access_free(access);
        open_with((struct access_options){0});
        access_usage_read(access, text.data, cut, wall);
        assert_int_equal(begin(tokens.text[2], ACCESS_GENERATE, 1000, wall), cut < text.size);
        if (cut < text.size)
            access_end(access, &grant);
    }
    static const char noise[] = "\nx\n0 1 2\n-1 -1 -1\nffffffffffffffffff 20000 5\n1 20000\n";
    access_usage_read(access, noise, sizeof noise - 1, wall);
    buffer_deinit(&text);
    assert_int_equal(remove(path), 0);
    assert_int_equal(remove(folder), 0);
}

/* 20 of an address are answered late, the others not looked at; a right one is never slowed, and
 * other addresses are not either. After a minute it begins anew. */
static void test_wrong_ones(void **state)
{
    char wrong[ACCESS_TOKEN_TEXT + 7];
    open_with((struct access_options){0});
    memcpy(wrong, tokens.text[0], sizeof wrong);
    wrong[20] = wrong[20] == 'x' ? 'y' : 'x';
    for (int i = 0; i < 2 * ACCESS_WRONG_MAX; i++) {
        assert_false(begin(wrong, ACCESS_GENERATE, 1000, wall));
        if (i < ACCESS_WRONG_MAX)
            expect_refusal(401, "invalid_api_key", "mistyped");
        else
            expect_refusal(429, "too_many_wrong_tokens", "too many");
        assert_int_equal(refusal.delay_ms, i < ACCESS_WRONG_MAX ? ACCESS_WRONG_MS : 0);
    }
    assert_int_equal(refusal.err.retry_after_s, ACCESS_WRONG_WINDOW_S + 1);
    assert_true(begin(tokens.text[0], ACCESS_GENERATE, 1000, wall));
    access_end(access, &grant);
    for (int i = 0; i < 3 * ACCESS_ADDRESSES; i++) {
        snprintf(client.share, sizeof client.share, "198.51.100.%d", i);
        assert_false(begin("Bearer sk-none", ACCESS_GENERATE, 2000 + (uint64_t)i, wall));
        expect_refusal(401, "invalid_api_key", "not known");
    }
    assert_false(begin("Bearer sk-none", ACCESS_GENERATE, 1000 + 61000, wall));
    expect_refusal(401, "invalid_api_key", "not known");
    snprintf(client.share, sizeof client.share, "192.0.2.1");
}

/* More tokens than there can be, one after another: what the first have used is forgotten. */
static void test_many_tokens(void **state)
{
    open_with((struct access_options){0});
    for (uint64_t i = 0; i < 3 * LIMIT_ACCESS_TOKENS; i++) {
        tokens.grants[0].id = 1 + i;
        assert_true(begin(tokens.text[0], ACCESS_GENERATE, i, wall));
        access_end(access, &grant);
    }
    struct access_grant all[2 * LIMIT_ACCESS_TOKENS];
    for (uint64_t i = 0; i < 2 * LIMIT_ACCESS_TOKENS; i++) {
        tokens.grants[0].id = 5000 + i;
        assert_true(begin(tokens.text[0], ACCESS_GENERATE, 5000, wall));
        all[i] = grant;
    }
    tokens.grants[0].id = 9999;
    assert_false(begin(tokens.text[0], ACCESS_GENERATE, 5000, wall));
    expect_refusal(429, "too_many_tokens", "too many tokens");
    for (uint64_t i = 0; i < 2 * LIMIT_ACCESS_TOKENS; i++)
        access_end(access, &all[i]);
}

static void test_bound(void **state)
{
    struct api_error err = {0};
    open_with((struct access_options){0});
    struct access_grant free = tokens.grants[0], bound = tokens.grants[1];
    bound.is_bound = true;
    assert_true(access_may_use(access, &free, "other", &err));
    assert_true(access_may_use(access, &bound, "mine", &err));
    assert_false(access_may_use(access, &bound, "other", &err));
    assert_int_equal(err.status, 403);
    assert_non_null(strstr(err.message, "token1"));
    assert_false(access_may_list(access, &bound, "other"));
    assert_true(access_may_list(access, &(struct access_grant){0}, "other"));
}

static void test_words(void **state)
{
    static const char *const wrong_times[] = {"",    "d",    "0d",          "30",    "30x",
                                              "-1d", "1.5h", "9999999999s", "99999d"};
    static const char *const wrong_rates[] = {"", "0", "/min", "60/s", "-1/min", "1000001"};
    uint64_t number;
    assert_true(token_time_parse("30d", &number) && number == 30 * 86400);
    assert_true(token_time_parse("90s", &number) && number == 90);
    assert_true(token_time_parse("15m", &number) && number == 900);
    assert_true(token_time_parse("36500d", &number) && number == UINT64_C(36500) * 86400);
    assert_true(token_rate_parse("60/min", &number) && number == 60);
    assert_true(token_rate_parse("7", &number) && number == 7);
    for (size_t i = 0; i < sizeof wrong_times / sizeof *wrong_times; i++)
        assert_false(token_time_parse(wrong_times[i], &number));
    for (size_t i = 0; i < sizeof wrong_rates / sizeof *wrong_rates; i++)
        assert_false(token_rate_parse(wrong_rates[i], &number));
}

/* --open gives models to everybody, and the cluster to nobody. */
static void test_open_elsewhere(void **state)
{
    static const struct {
        bool is_loopback;
        uint32_t scopes;
        bool let_in;
    } rows[] = {
        {false, ACCESS_READ, true},       {false, ACCESS_GENERATE, true},
        {false, ACCESS_MODELS, true},     {false, ACCESS_ADMIN, false},
        {false, ACCESS_SCOPES_ALL, true}, {true, ACCESS_ADMIN, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct access *open = access_new(
            &(struct access_options){.is_open = true, .is_loopback = rows[i].is_loopback});
        const struct api_client somebody = api_client_of_address("192.0.2.1");
        struct access_grant granted;
        struct access_refusal why;
        assert_int_equal(
            access_begin(open, &somebody, NULL, NULL, NULL, rows[i].scopes, 1, 1, &granted, &why),
            rows[i].let_in);
        assert_int_equal(granted.id, 0);
        if (!rows[i].let_in)
            assert_int_equal(why.err.status, 401);
        access_free(open);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_when_one_is_needed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_is_shown, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_days_tokens_are_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_ones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_many_tokens, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bound, setup, teardown),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_open_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
