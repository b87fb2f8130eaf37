/* mesh: CPace against the test vectors of draft-irtf-cfrg-cpace ("CPace using group ristretto255
 * and hash SHA-512"), the join code, and the words. */
#include "base/limits.h"
#include "join/cpace.h"
#include "join/join_invite.h"
#include "join/join_words.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct cpace_text text(const char *bytes)
{
    return (struct cpace_text){bytes, strlen(bytes)};
}

static void from_hex(const char *hex, uint8_t *bytes, size_t size)
{
    size_t n;
    assert_int_equal(sodium_hex2bin(bytes, size, hex, strlen(hex), NULL, &n, NULL), 0);
    assert_int_equal(n, size);
}

/* ---- the draft's vectors --------------------------------------------------------------------- */

struct vectors {
    struct cpace_text code, channel, session;
    uint8_t session_bytes[16], ya[32], yb[32];
    struct cpace_turn a, b;
};

static void load(struct vectors *v)
{
    *v = (struct vectors){.code = text("Password"),
                          .channel = text("\x0b"
                                          "A_initiator\x0b"
                                          "B_responder")};
    from_hex("7e4b4791d6a8ef019b936c79fb7f2c57", v->session_bytes, 16);
    v->session = (struct cpace_text){v->session_bytes, 16};
    from_hex("da3d23700a9e5699258aef94dc060dfda5ebb61f02a5ea77fad53f4ff0976d08", v->ya, 32);
    from_hex("d2316b454718c35362d83d69df6320f38578ed5984651435e2949762d900b80d", v->yb, 32);
    from_hex("d6bac480f2c386c394efc7c47adb9925dcd2630b64f240c50f8d0eec482b9157", v->a.share, 32);
    from_hex("3ea7e0b19560d7c0b0f5734f63b955286dfa8232b5ebe63324e2d9e7433f7258", v->b.share, 32);
    v->a.data = text("ADa");
    v->b.data = text("ADb");
}

static void test_generator_and_shares(void **state)
{
    (void)state;
    struct vectors v;
    uint8_t expected[32], generator[32], share[32];
    load(&v);
    from_hex("222b6b195fe84b1652badb6f6a3ae3d24341e7306967f0b8115b40d5698c7e56", expected, 32);
    cpace_generator(v.code, v.channel, v.session, generator);
    assert_memory_equal(generator, expected, 32);
    assert_true(cpace_share(generator, v.ya, share));
    assert_memory_equal(share, v.a.share, 32);
    assert_true(cpace_share(generator, v.yb, share));
    assert_memory_equal(share, v.b.share, 32);
}

static void test_key(void **state)
{
    (void)state;
    struct vectors v;
    uint8_t expected[CPACE_KEY_BYTES], key[CPACE_KEY_BYTES];
    load(&v);
    from_hex("b69effbf61b51d56401c0f65601abe428de8206feaaf0e32198896dcae7b35cd"
             "2b38950a39dfd5d4a79164614c2984f7daa460b588c1e80c3fa2068af7900447",
             expected, sizeof expected);
    assert_true(cpace_key(v.ya, v.b.share, v.session, &v.a, &v.b, key));
    assert_memory_equal(key, expected, sizeof key);
    assert_true(cpace_key(v.yb, v.a.share, v.session, &v.a, &v.b, key));
    assert_memory_equal(key, expected, sizeof key);
}

/* What is no point, and the neutral one, must end the run: the first ones are RFC 9496's, appendix
 * A.2. */
static void test_invalid_shares(void **state)
{
    (void)state;
    struct vectors v;
    uint8_t key[CPACE_KEY_BYTES], zero[CPACE_KEY_BYTES] = {0};
    load(&v);
    static const char *const bad[] = {
        "0000000000000000000000000000000000000000000000000000000000000000",
        "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
        "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
        "0100000000000000000000000000000000000000000000000000000000000000",
        "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint8_t share[32];
        from_hex(bad[i], share, 32);
        memset(key, 7, sizeof key);
        assert_false(cpace_key(v.ya, share, v.session, &v.a, &v.b, key));
        assert_memory_equal(key, zero, sizeof key);
    }
}

/* ---- what depends on what -------------------------------------------------------------------- */

struct side {
    const char *code, *channel, *session;
};

/* Do two sides that believe this find the same key? Data of A is "hello", of B `data`. */
static bool agree(const struct side *a, const struct side *b, const char *data_at_a,
                  const char *data_at_b)
{
    uint8_t g[2][32], scalar[2][32], key[2][CPACE_KEY_BYTES], tag[2][CPACE_TAG_BYTES];
    struct cpace_turn at_a[2] = {{.data = text("hello")}, {.data = text(data_at_a)}};
    struct cpace_turn at_b[2] = {{.data = text("hello")}, {.data = text(data_at_b)}};
    cpace_generator(text(a->code), text(a->channel), text(a->session), g[0]);
    cpace_generator(text(b->code), text(b->channel), text(b->session), g[1]);
    cpace_scalar(scalar[0]);
    cpace_scalar(scalar[1]);
    assert_true(cpace_share(g[0], scalar[0], at_a[0].share) &&
                cpace_share(g[1], scalar[1], at_a[1].share));
    memcpy(at_b[0].share, at_a[0].share, 32);
    memcpy(at_b[1].share, at_a[1].share, 32);
    assert_true(cpace_key(scalar[0], at_a[1].share, text(a->session), &at_a[0], &at_a[1], key[0]));
    assert_true(cpace_key(scalar[1], at_b[0].share, text(b->session), &at_b[0], &at_b[1], key[1]));
    cpace_tag(key[0], text(a->session), &at_a[0], tag[0]);
    cpace_tag(key[1], text(b->session), &at_b[0], tag[1]);
    bool same = memcmp(key[0], key[1], CPACE_KEY_BYTES) == 0;
    assert_int_equal(same, memcmp(tag[0], tag[1], CPACE_TAG_BYTES) == 0);
    cpace_tag(key[0], text(a->session), &at_a[1], tag[1]);
    assert_memory_not_equal(tag[0], tag[1],
                            CPACE_TAG_BYTES); /* one side's proof is not the other's */
    return same;
}

static void test_both_must_believe_the_same(void **state)
{
    (void)state;
    struct side good = {"K7QM4XZD", "channel", "session"};
    struct side code = {"K7QM4XZE", "channel", "session"},
                channel = {"K7QM4XZD", "other", "session"},
                session = {"K7QM4XZD", "channel", "other"},
                moved = {"K7QM4XZDc", "hannel", "session"};
    assert_true(agree(&good, &good, "x", "x"));
    assert_false(agree(&good, &good, "x", "y"));
    assert_false(agree(&good, &code, "x", "x"));
    assert_false(agree(&good, &channel, "x", "x"));
    assert_false(agree(&good, &session, "x", "x"));
    assert_false(agree(&good, &moved, "x", "x"));
}

static void test_long_inputs(void **state)
{
    (void)state;
    static char longer[300];
    memset(longer, 'x', sizeof longer - 1);
    struct side side = {longer, longer, longer};
    assert_true(agree(&side, &side, longer, longer));
}

/* ---- the code -------------------------------------------------------------------------------- */

static void test_codes(void **state)
{
    (void)state;
    struct invite invite = {0};
    char code[JOIN_CODE_TEXT], digits[JOIN_CODE_DIGITS], other[JOIN_CODE_TEXT];
    uint32_t seen = 0;
    for (int i = 0; i < 200; i++) {
        assert_int_equal(invite_make(&invite, 0, 0, code, NULL), ERROR_NONE);
        assert_int_equal(strlen(code), 9);
        assert_int_equal(join_code_parse(code, digits, NULL), ERROR_NONE);
        assert_memory_equal(digits, invite.digits, sizeof digits);
        for (int d = 0; d < JOIN_CODE_DIGITS; d++) {
            const char *at = strchr("0123456789ABCDEFGHJKMNPQRSTVWXYZ", digits[d]);
            assert_non_null(at);
            seen |= 1u << (at - "0123456789ABCDEFGHJKMNPQRSTVWXYZ");
        }
    }
    assert_int_equal(seen, UINT32_MAX);
    invite_make(&invite, 0, 0, other, NULL);
    assert_string_not_equal(code, other);
    assert_int_equal(invite_make(&invite, 0, LIMIT_JOIN_CODE_MS_MAX + 1ull, code, NULL),
                     ERROR_INVALID);
    assert_int_equal(invite_look(&invite, 0), INVITE_OPEN); /* the old one stays */
    invite_end(&invite);
    assert_int_equal(invite_look(&invite, 0), INVITE_NONE);
}

static void test_typed_codes(void **state)
{
    (void)state;
    char digits[JOIN_CODE_DIGITS];
    static const char *const good[] = {"K7QM-1X0D", "k7qm1x0d", " k7qM lxOd ", "K-7-Q-M-I-X-o-D",
                                       "K7QM--1XOD"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(join_code_parse(good[i], digits, NULL), ERROR_NONE);
        assert_memory_equal(digits, "K7QM1X0D", sizeof digits);
    }
    static const char *const bad[] = {"",          "K7QM-1X0",     "K7QM-1X0D2", "K7QM-1XUD",
                                      "K7QM_1X0D", "K7QM\2001X0D", "K7QM\n1X0D"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct error err = {0};
        assert_int_equal(join_code_parse(bad[i], digits, &err), ERROR_INVALID);
        assert_non_null(strstr(err.text, "K7QM-4XZD"));
    }
}

static void test_the_life_of_an_invite(void **state)
{
    (void)state;
    struct invite invite = {0};
    char code[JOIN_CODE_TEXT], gone[JOIN_CODE_DIGITS] = {0};
    invite_make(&invite, 1000, 0, code, NULL);
    assert_int_equal(invite_look(&invite, 1000 + LIMIT_JOIN_CODE_MS - 1), INVITE_OPEN);
    assert_int_equal(invite_look(&invite, 1000 + LIMIT_JOIN_CODE_MS), INVITE_EXPIRED);
    assert_memory_equal(invite.digits, gone, sizeof gone);
    invite_make(&invite, 1000, 5000, code, NULL);
    assert_int_equal(invite_look(&invite, 5999), INVITE_OPEN);
    assert_int_equal(invite_look(&invite, 6000), INVITE_EXPIRED);
    invite_make(&invite, 0, 0, code, NULL);
    for (int i = 1; i <= LIMIT_JOIN_WRONG; i++) {
        assert_int_equal(invite_look(&invite, 0), INVITE_OPEN);
        invite_wrong(&invite, 100);
        assert_true(invite_is_paused(&invite, 100 + LIMIT_JOIN_PAUSE_MS - 1));
        assert_false(invite_is_paused(&invite, 100 + LIMIT_JOIN_PAUSE_MS));
    }
    assert_int_equal(invite_look(&invite, 0), INVITE_VOID);
    assert_memory_equal(invite.digits, gone, sizeof gone);
    invite_make(&invite, 0, 0, code, NULL);
    assert_int_equal(invite_look(&invite, 0), INVITE_OPEN);
    assert_false(invite_is_paused(&invite, 0)); /* a new code starts anew */
    invite_use(&invite);
    assert_int_equal(invite_look(&invite, 0), INVITE_USED);
    assert_memory_equal(invite.digits, gone, sizeof gone);
    assert_true(join_knock(&invite.hand_paused_until_ms, 10));
    assert_false(join_knock(&invite.hand_paused_until_ms, 10 + LIMIT_JOIN_PAUSE_MS - 1));
    invite_end(&invite); /* does not give a second knock */
    assert_false(join_knock(&invite.hand_paused_until_ms, 10 + LIMIT_JOIN_PAUSE_MS - 1));
    assert_true(join_knock(&invite.hand_paused_until_ms, 10 + LIMIT_JOIN_PAUSE_MS));
}

/* ---- the words ------------------------------------------------------------------------------- */

/* Is the one the other after changing, adding or dropping at most one letter? */
static bool is_near(const char *a, const char *b)
{
    size_t same = 0, la = strlen(a), lb = strlen(b);
    while (a[same] && a[same] == b[same])
        same++;
    return (la == lb && strcmp(a + same + (a[same] != 0), b + same + (b[same] != 0)) == 0) ||
           (la == lb + 1 && strcmp(a + same + 1, b + same) == 0) ||
           (lb == la + 1 && strcmp(a + same, b + same + 1) == 0);
}

static void test_words(void **state)
{
    (void)state;
    char four[JOIN_WORDS_TEXT];
    for (int i = 0; i < 256; i++) {
        const char *word = join_word((uint8_t)i);
        assert_true(strlen(word) >= 3 && strlen(word) <= 8);
        assert_int_equal(strspn(word, "abcdefghijklmnopqrstuvwxyz"), strlen(word));
        for (int j = 0; j < i; j++) {
            if (is_near(word, join_word((uint8_t)j)))
                fail_msg("%s and %s are nearly the same", word, join_word((uint8_t)j));
        }
    }
    join_words_text((const uint8_t[]){0, 255, 1, 128}, four);
    assert_true(strstr(four, join_word(0)) == four && strstr(four, " zebra ") != NULL);
}

static int start(void **state)
{
    (void)state;
    return sodium_init() < 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_generator_and_shares),
        cmocka_unit_test(test_key),
        cmocka_unit_test(test_invalid_shares),
        cmocka_unit_test(test_both_must_believe_the_same),
        cmocka_unit_test(test_long_inputs),
        cmocka_unit_test(test_codes),
        cmocka_unit_test(test_typed_codes),
        cmocka_unit_test(test_the_life_of_an_invite),
        cmocka_unit_test(test_words),
    };
    return cmocka_run_group_tests(tests, start, NULL);
}
