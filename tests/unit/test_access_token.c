/* Access tokens: their text, what is told from what, scopes, names; and as facts of the cluster. */
#include "base/limits.h"
#include "cluster/state.h"
#include "trust/access_token.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct error err;

static void test_texts(void **state)
{
    char text[ACCESS_TOKEN_TEXT], other[ACCESS_TOKEN_TEXT];
    uint8_t hash[32], again[32], second[32];
    assert_int_equal(access_token_make(text, hash, &err), ERROR_NONE);
    assert_int_equal(access_token_make(other, second, &err), ERROR_NONE);
    assert_int_equal(strlen(text), ACCESS_TOKEN_TEXT - 1);
    assert_int_equal(access_token_read(text, strlen(text), again), ACCESS_TOKEN_GOOD);
    assert_true(access_token_same(hash, again));
    assert_false(access_token_same(hash, second));
    assert_true(access_token_id(hash) && access_token_id(hash) != access_token_id(second));
}

/* Each single wrong character, each cut and each addition is a typo, whatever it is. */
static void test_typos(void **state)
{
    char text[ACCESS_TOKEN_TEXT + 1];
    uint8_t hash[32];
    assert_int_equal(access_token_make(text, hash, &err), ERROR_NONE);
    const size_t n = strlen(text);
    for (size_t i = 7; i < n; i++) {
        const char right = text[i];
        for (int wrong = 0; wrong < 256; wrong++) {
            text[i] = (char)wrong;
            assert_int_equal(access_token_read(text, n, hash),
                             (char)wrong == right ? ACCESS_TOKEN_GOOD : ACCESS_TOKEN_TYPO);
        }
        text[i] = right;
        assert_int_equal(access_token_read(text, i, hash), ACCESS_TOKEN_TYPO);
    }
    text[n] = '0';
    assert_int_equal(access_token_read(text, n + 1, hash), ACCESS_TOKEN_TYPO);
    assert_int_equal(access_token_read(text, 3, hash), ACCESS_TOKEN_OTHER);
    assert_int_equal(access_token_read("", 0, hash), ACCESS_TOKEN_OTHER);
    assert_int_equal(access_token_read("sk-none", 7, hash), ACCESS_TOKEN_OTHER);
}

static void test_scopes(void **state)
{
    uint32_t scopes;
    char text[64];
    assert_true(access_scopes_parse("generate,read", &scopes, text, sizeof text));
    assert_int_equal(scopes, ACCESS_READ | ACCESS_GENERATE);
    access_scopes_text(scopes, text, sizeof text);
    assert_string_equal(text, "read,generate");
    access_scopes_text(ACCESS_SCOPES_ALL, text, 32);
    assert_string_equal(text, "read,generate,models,admin");
    assert_false(access_scopes_parse("read,root", &scopes, text, sizeof text));
    assert_string_equal(text, "root");
    assert_false(access_scopes_parse("", &scopes, text, sizeof text));
    assert_false(access_scopes_parse("read,", &scopes, text, sizeof text));
    assert_true(access_token_name_is_valid("ci.tower_2@home-1"));
    assert_false(access_token_name_is_valid(""));
    assert_false(access_token_name_is_valid(NULL));
    assert_false(access_token_name_is_valid("a b"));
    assert_false(access_token_name_is_valid("\x1b[31m"));
    char name[LIMIT_ACCESS_TOKEN_NAME_BYTES + 2];
    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = 0;
    assert_false(access_token_name_is_valid(name));
    name[sizeof name - 2] = 0;
    assert_true(access_token_name_is_valid(name));
}

/* ---- as events ---- */

static const char *apply(struct state *state, uint64_t index, const Cluster__Event *event)
{
    struct buffer bytes = {0};
    struct state_outcome outcome;
    event_encode(event, &bytes);
    assert_int_equal(
        state_apply(state, index, (const uint8_t *)bytes.data, bytes.size, &outcome, &err),
        ERROR_NONE);
    buffer_deinit(&bytes);
    return outcome.reason;
}

static const char *create(struct state *state, const char *name, unsigned number)
{
    Cluster__Token token = CLUSTER__TOKEN__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    uint8_t hash[32] = {(uint8_t)(97 * number), (uint8_t)(number >> 8), (uint8_t)number};
    token.name = (char *)(uintptr_t)name;
    token.has_hash = token.has_scopes = true;
    token.hash = (ProtobufCBinaryData){sizeof hash, hash};
    token.scopes = ACCESS_GENERATE;
    event.kind_case = CLUSTER__EVENT__KIND_TOKEN_CREATED, event.token_created = &token;
    return apply(state, number + 1, &event);
}

static const char *revoke(struct state *state, unsigned number)
{
    Cluster__TokenHash token = CLUSTER__TOKEN_HASH__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    uint8_t hash[32] = {(uint8_t)(97 * number), (uint8_t)(number >> 8), (uint8_t)number};
    token.has_hash = true;
    token.hash = (ProtobufCBinaryData){sizeof hash, hash};
    event.kind_case = CLUSTER__EVENT__KIND_TOKEN_REVOKED, event.token_revoked = &token;
    return apply(state, 10000, &event);
}

static bool knows(const struct state *state, unsigned number)
{
    const uint8_t hash[32] = {(uint8_t)(97 * number), (uint8_t)(number >> 8), (uint8_t)number};
    return state_token(state, hash) != NULL;
}

static void test_events(void **unused)
{
    struct state state = {0}, copy = {0};
    char name[32];
    assert_false(state_has_had_tokens(&state));
    for (unsigned i = 0; i < LIMIT_ACCESS_TOKENS; i++) {
        snprintf(name, sizeof name, "token%u", i);
        assert_null(create(&state, name, i));
    }
    assert_non_null(strstr(create(&state, "one-more", 999), "too many"));
    assert_non_null(strstr(create(&state, "token3", 999), "of that name"));
    assert_non_null(strstr(create(&state, "two words", 999), "no valid name"));
    for (unsigned i = 0; i < LIMIT_ACCESS_TOKENS; i++)
        assert_true(knows(&state, i));
    assert_false(knows(&state, 999));
    struct buffer bytes = {0};
    state_encode(&state, &bytes);
    assert_int_equal(state_decode(&copy, (const uint8_t *)bytes.data, bytes.size, &err),
                     ERROR_NONE);
    assert_true(knows(&copy, 17));
    assert_null(revoke(&state, 17));
    assert_false(knows(&state, 17));
    assert_non_null(strstr(revoke(&state, 17), "no such token"));
    assert_null(create(&state, "token17", 999));
    for (unsigned i = 0; i < LIMIT_ACCESS_TOKENS; i++)
        assert_true(i == 17 || revoke(&state, i) == NULL);
    assert_null(revoke(&state, 999));
    assert_true(state.root->n_tokens == 0 && state_has_had_tokens(&state));
    buffer_deinit(&bytes);
    state_deinit(&state);
    state_deinit(&copy);
}

/* A snapshot whose tokens are out of order, where a look-up by halves would miss them. */
static void test_snapshot_out_of_order(void **unused)
{
    struct state state = {0}, copy = {0};
    struct buffer bytes = {0};
    assert_null(create(&state, "a", 1));
    assert_null(create(&state, "b", 2));
    Cluster__Token *first = state.root->tokens[0];
    state.root->tokens[0] = state.root->tokens[1];
    state.root->tokens[1] = first;
    state_encode(&state, &bytes);
    assert_int_equal(state_decode(&copy, (const uint8_t *)bytes.data, bytes.size, &err),
                     ERROR_INVALID);
    buffer_deinit(&bytes);
    state_deinit(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_typos),
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_events),
        cmocka_unit_test(test_snapshot_out_of_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
