/* node: whom a member lets in while strangers are up to no good, and while memory runs out. */
#include "admission_world.h"

#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t FULL[4 + 200] = {200, 0, 0, 0};

/* A good machine is let in whatever the others are doing. */
static void expect_service(struct town *town)
{
    town->n_ended = town->n_decide = 0;
    newcomer_expect_joined(town_join(town, 0, NULL, town_invite(town)));
}

static void test_garbage(void **state)
{
    static const struct {
        const char *name;
        size_t size;
        uint8_t bytes[64];
    } cases[] = {
        {"words", 16, "GET / HTTP/1.1\r\n"},
        {"a huge length", 4, {0xff, 0xff, 0xff, 0xff}},
        {"a length beyond the limit", 4, {0x01, 0xe0, 0, 0}},
        {"an empty message", 4, {0, 0, 0, 0}},
        {"no message", 8, {4, 0, 0, 0, 'a', 'b', 'c', 'd'}},
        {"a hello of nothing", 6, {2, 0, 0, 0, 1, 1}},
        {"a proof at once", 6, {2, 0, 0, 0, 1, 3}},
    };
    struct town *town = town_init();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct stranger stranger;
        stranger_connect(&stranger, town, 2);
        stranger_say(&stranger, cases[i].bytes, cases[i].size);
        if (!town_run(town, stranger_is_cut, &stranger))
            fail_msg("%s was taken", cases[i].name);
        stranger_close(&stranger);
    }
    expect_service(town);
    town_deinit(town);
}

static void test_a_message_that_breaks_off(void **state)
{
    struct town *town = town_init();
    struct stranger stranger;
    stranger_connect(&stranger, town, 2);
    stranger_say(&stranger, FULL, 100);
    stranger_close(&stranger);
    expect_service(town);
    town_deinit(town);
}

static void test_silence(void **state)
{
    struct town *town = town_init();
    struct stranger stranger;
    stranger_connect(&stranger, town, 2);
    town_skip(town, LIMIT_JOIN_STEP_MS - 5000);
    assert_false(stranger_is_cut(&stranger));
    town_skip(town, 5000);
    assert_true(town_run(town, stranger_is_cut, &stranger));
    stranger_close(&stranger);
    expect_service(town);
    town_deinit(town);
}

/* A byte a second, of the clock that limits count by. */
static void test_dripping(void **state)
{
    struct town *town = town_init();
    struct stranger stranger;
    stranger_connect(&stranger, town, 2);
    int n = 0;
    for (; n < 100 && !stranger_is_cut(&stranger); n++) {
        stranger_say(&stranger, FULL + n, 1);
        town->ahead_ms += 1000;
        link_world_pass(town->links, 50);
    }
    assert_true(n >= LIMIT_JOIN_MESSAGE_MS / 1000 && n <= LIMIT_JOIN_MESSAGE_MS / 1000 + 3);
    stranger_close(&stranger);
    expect_service(town);
    town_deinit(town);
}

/* It sends without end and reads nothing. */
static void test_flooding(void **state)
{
    static const uint8_t waste[16 * 1024] = {0x00, 0x20};
    struct town *town = town_init();
    struct stranger stranger;
    stranger_connect(&stranger, town, 2);
    for (int i = 0; i < 300; i++)
        stranger_say(&stranger, waste, sizeof waste);
    assert_true(town_run(town, stranger_is_cut, &stranger));
    stranger_close(&stranger);
    expect_service(town);
    town_deinit(town);
}

/* As many as there may be, and nobody says anything: the one that has been silent longest goes. */
static void test_a_crowd(void **state)
{
    struct town *town = town_init();
    struct stranger crowd[LIMIT_JOIN_CHANNELS], more;
    for (int i = 0; i < LIMIT_JOIN_CHANNELS; i++)
        stranger_connect(&crowd[i], town, 2 + i / LIMIT_JOIN_CHANNELS_OF_HOST);
    for (int i = 0; i < LIMIT_JOIN_CHANNELS; i++)
        assert_false(stranger_is_cut(&crowd[i]));
    stranger_connect(&more, town, 3); /* as many as one host may have: its own oldest */
    assert_true(town_run(town, stranger_is_cut, &crowd[LIMIT_JOIN_CHANNELS_OF_HOST]));
    assert_false(stranger_is_cut(&more));
    assert_false(stranger_is_cut(&crowd[0]));
    expect_service(town); /* the seventeenth */
    assert_true(stranger_is_cut(&crowd[0]));
    assert_false(stranger_is_cut(&crowd[1]));
    for (int i = 0; i < LIMIT_JOIN_CHANNELS; i++)
        stranger_close(&crowd[i]);
    stranger_close(&more);
    town_deinit(town);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Whatever allocation fails: both ends come to an end, nothing is left behind, and the next attempt
 * works. */
static void test_lack_of_memory(void **state)
{
    struct town *town = town_init();
    for (unsigned nth = 1; nth <= 25; nth++) {
        const char *code = town_invite(town);
        mem_fail_nth(nth);
        struct newcomer *newcomer = town_join(town, 0, NULL, code);
        const bool ended = town_run(town, newcomer_ended, newcomer);
        mem_fail_nth(0);
        assert_true(ended);
        assert_true(newcomer->why.code || newcomer->n_joined == 1);
        newcomer_close(newcomer);
        membership_deinit(&newcomer->membership);
    }
    link_world_pass(town->links, 50);
    expect_service(town);
    town_deinit(town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_garbage),        cmocka_unit_test(test_a_message_that_breaks_off),
        cmocka_unit_test(test_silence),        cmocka_unit_test(test_dripping),
        cmocka_unit_test(test_flooding),       cmocka_unit_test(test_a_crowd),
        cmocka_unit_test(test_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
