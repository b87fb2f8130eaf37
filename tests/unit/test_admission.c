/* node: joining, both ends, over real connections on loopback. */
#include "admission_world.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* A code that this one is not. */
static const char *another(const char *code)
{
    static char wrong[JOIN_CODE_TEXT];
    memcpy(wrong, code, JOIN_CODE_TEXT);
    wrong[0] = wrong[0] == '7' ? '8' : '7';
    return wrong;
}

static bool member_decides(void *arg)
{
    return ((struct town *)arg)->n_decide > 0;
}

/* ---- by code --------------------------------------------------------------------------------- */

static void test_the_right_code(void **state)
{
    struct town *town = town_init();
    char shown[JOIN_CODE_TEXT];
    uint64_t left_ms;
    assert_false(admission_invited(town->admission, shown, &left_ms));
    const char *code = town_invite(town);
    assert_true(admission_invited(town->admission, shown, &left_ms));
    assert_string_equal(shown, code);
    assert_true(left_ms > LIMIT_JOIN_CODE_MS - 5000 && left_ms <= LIMIT_JOIN_CODE_MS);
    newcomer_expect_joined(town_join(town, 0, NULL, code));
    assert_false(admission_invited(town->admission, shown, &left_ms));
    town_deinit(town);
}

/* localhost may be ::1 first, where nobody listens. */
static void test_a_host_name_with_several_addresses(void **state)
{
    struct town *town = town_init();
    newcomer_expect_joined(town_join(town, 0, "localhost", town_invite(town)));
    town_deinit(town);
}

/* Nothing waits for a timer, and by hand only for the persons. Over QUIC: who joins comes by TCP;
 * the links of members are QUIC's. */
static void test_by_the_real_clock(void **state)
{
    static const enum mesh_transport transports[] = {MESH_TCP, MESH_QUIC};
    for (int i = 0; i < 2; i++) {
        struct town *town = town_init_over(transports[i]);
        struct admission_waiting waiting = {0};
        struct newcomer *by_hand = town_join(town, 1, NULL, NULL);
        assert_true(town_run(town, newcomer_compares, by_hand));
        link_world_pass(town->links, 5);
        assert_int_equal(town_waiting(town, &waiting), 1);
        assert_string_equal(waiting.words, by_hand->words);
        newcomer_expect_joined(town_join(town, 0, NULL, town_invite(town)));
        town_deinit(town);
    }
}

static void test_wrong_codes(void **state)
{
    struct town *town = town_init();
    const char *code = town_invite(town);
    for (int i = 0; i < LIMIT_JOIN_WRONG; i++) {
        struct newcomer *newcomer = town_join(town, 0, NULL, another(code));
        newcomer_expect_failure(newcomer, ERROR_INVALID, "code is wrong");
        assert_true(joining_again_ms(newcomer->joining) == UINT64_MAX);
        newcomer_expect_failure(town_join(town, 1, NULL, code),
                                i < 2 ? ERROR_BUSY : ERROR_NOT_FOUND,
                                i < 2 ? "try again in a few seconds" : "no join code is open");
        if (i < 2)
            assert_int_equal(joining_again_ms(town->newcomers[1].joining), LIMIT_JOIN_PAUSE_MS);
        town_skip(town, LIMIT_JOIN_PAUSE_MS);
    }
    assert_int_equal(town->n_decide, 0);
    town->n_ended = 0;
    newcomer_expect_joined(town_join(town, 2, NULL, town_invite(town)));
    town_deinit(town);
}

static void test_an_expired_code(void **state)
{
    struct town *town = town_init();
    const char *code = town_invite(town);
    town_skip(town, LIMIT_JOIN_CODE_MS);
    newcomer_expect_failure(town_join(town, 0, NULL, code), ERROR_NOT_FOUND,
                            "no join code is open");
    town_deinit(town);
}

static void test_a_code_is_good_once(void **state)
{
    struct town *town = town_init();
    const char *code = town_invite(town);
    struct newcomer *both[] = {town_join(town, 0, NULL, code), town_join(town, 1, NULL, code)};
    for (int i = 0; i < 2; i++)
        assert_true(town_run(town, newcomer_ended, both[i]));
    assert_int_equal(both[0]->n_joined + both[1]->n_joined, 1);
    assert_int_equal(both[0]->n_joined ? both[1]->why.code : both[0]->why.code, ERROR_NOT_FOUND);
    newcomer_expect_failure(town_join(town, 2, NULL, code), ERROR_NOT_FOUND,
                            "no join code is open");
    assert_int_equal(town->n_decide, 1);
    town_deinit(town);
}

static void test_what_is_no_attempt(void **state)
{
    struct town *town = town_init();
    newcomer_expect_failure(town_join(town, 0, NULL, "K7QM"), ERROR_INVALID, "8 characters");
    newcomer_expect_failure(town_join(town, 0, "", "K7QM-4XZD"), ERROR_INVALID, "host");
    newcomer_expect_failure(town_join(town, 0, "no-such-host.invalid", "K7QM-4XZD"),
                            ERROR_NOT_FOUND, "no-such-host.invalid");
    struct newcomer *closed_at_once = town_join(town, 1, "no-such-host.invalid", "K7QM-4XZD");
    newcomer_close(closed_at_once);
    assert_int_equal(closed_at_once->n_ended, 0);
    link_world_close(town->links, TOWN_MEMBER);
    newcomer_expect_failure(town_join(town, 0, NULL, "K7QM-4XZD"), ERROR_IO, "cannot connect");
    assert_int_equal(joining_again_ms(town->newcomers[0].joining), LIMIT_JOIN_PAUSE_MS);
    town_deinit(town);
}

/* A host that takes connections and says nothing. */
static void test_a_silent_host(void **state)
{
    struct town *town = town_init();
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    town->links->nodes[TOWN_MEMBER].port = ntohs(address.sin_port);
    struct newcomer *newcomer = town_join(town, 0, NULL, "K7QM-4XZD");
    link_world_pass(town->links, 50);
    town_skip(town, LIMIT_JOIN_CONNECT_MS - 1000);
    assert_int_equal(newcomer->n_ended, 0);
    town_skip(town, 1000);
    newcomer_expect_failure(newcomer, ERROR_IO, "no connection in time");
    close(fd);
    town_deinit(town);
}

/* ---- the owner decides ----------------------------------------------------------------------- */

static void test_the_cluster_says_no(void **state)
{
    struct town *town = town_init();
    town->decision = DECIDE_REFUSE;
    newcomer_expect_failure(town_join(town, 0, NULL, town_invite(town)), ERROR_CANCELLED,
                            "it was removed for good");
    assert_int_equal(town->n_decide, 1);
    assert_int_equal(admission_grant(town->admission, town->decide_id, true, NULL, 0, NULL),
                     ERROR_NOT_FOUND);
    town_deinit(town);
}

static void test_the_cluster_says_nothing(void **state)
{
    struct town *town = town_init();
    town->decision = DECIDE_NEVER;
    struct newcomer *newcomer = town_join(town, 0, NULL, town_invite(town));
    assert_true(town_run(town, member_decides, town));
    town_skip(town, LIMIT_JOIN_DECIDE_MS);
    newcomer_expect_failure(newcomer, ERROR_CANCELLED, "not taken it in in time");
    town_deinit(town);
}

static void test_a_decision_later(void **state)
{
    struct town *town = town_init();
    town->decision = DECIDE_NEVER;
    struct newcomer *newcomer = town_join(town, 0, NULL, town_invite(town));
    assert_true(town_run(town, member_decides, town));
    assert_int_equal(newcomer->n_joined, 0);
    assert_int_equal(admission_grant(town->admission, town->decide_id, true, NULL, 0, NULL),
                     ERROR_NONE);
    assert_int_equal(admission_grant(town->admission, town->decide_id, true, NULL, 0, NULL),
                     ERROR_NOT_FOUND);
    assert_true(town_run(town, newcomer_ended, newcomer));
    assert_int_equal(newcomer->why.code, ERROR_NONE);
    assert_int_equal(newcomer->n_joined, 1);
    assert_int_equal(newcomer->payload.size, 0);
    town_deinit(town);
}

static void test_a_payload_beyond_its_limit(void **state)
{
    struct town *town = town_init();
    town->decision = DECIDE_TOO_MUCH;
    newcomer_expect_failure(town_join(town, 0, NULL, town_invite(town)), ERROR_CANCELLED,
                            "said no");
    town_deinit(town);
}

/* A disk that is full at the newcomer: the member hears that it did not work. */
static void test_what_cannot_be_kept(void **state)
{
    struct town *town = town_init();
    town->newcomers[0].declines_to_keep = true;
    struct newcomer *newcomer = town_join(town, 0, NULL, town_invite(town));
    assert_true(town_run(town, newcomer_ended, newcomer));
    assert_int_equal(newcomer->why.code, ERROR_IO);
    assert_true(town_run(town, town_is_told, town));
    assert_int_equal(town->why.code, ERROR_CANCELLED);
    town_deinit(town);
}

/* The member goes before it has heard that the newcomer has kept all. */
static void test_a_member_that_does_not_know(void **state)
{
    struct town *town = town_init();
    struct newcomer *newcomer = &town->newcomers[0];
    newcomer->member_stops = true;
    town_join(town, 0, NULL, town_invite(town));
    assert_true(town_run(town, newcomer_ended, newcomer));
    assert_int_equal(newcomer->n_joined, 1);
    assert_int_equal(newcomer->why.code, ERROR_IO);
    assert_non_null(strstr(newcomer->why.text, "is a member, but member may not know"));
    assert_true(joining_again_ms(newcomer->joining) == UINT64_MAX);
    newcomer_check_member(newcomer);
    town_deinit(town);
}

/* Hosts that speak TLS as a member does, and then nothing, or nonsense. */
static void test_a_false_member(void **state)
{
    struct town *town = town_init();
    for (int garbage = 0; garbage < 2; garbage++) {
        town->holds = true;
        struct newcomer *newcomer = town_join(town, 0, NULL, "K7QM-4XZD");
        for (int i = 0; i < 1000 && !town->held; i++)
            link_world_pass(town->links, 1);
        link_world_pass(town->links, 20);
        assert_int_equal(newcomer->n_ended, 0);
        if (garbage) {
            size_t n;
            assert_int_equal(stream_write(town->held, "HTTP/1.1 200 OK", 15, &n, NULL),
                             STREAM_DONE);
            assert_int_equal(stream_flush(town->held, NULL), STREAM_DONE);
            newcomer_expect_failure(newcomer, ERROR_INVALID, "no message of the join protocol");
        } else {
            town_skip(town, LIMIT_JOIN_STEP_MS);
            newcomer_expect_failure(newcomer, ERROR_CANCELLED, "did not answer in time");
        }
        stream_close(town->held, NULL, NULL);
        town->held = NULL;
    }
    assert_int_equal(town->newcomers[0].pace.n_shown, 0); /* they got no guess at the code */
    town_deinit(town);
}

/* A member without the authority's key says so. */
static void test_a_member_that_may_not_let_in(void **state)
{
    struct town *town = town_init();
    struct authority *authority = &town->links->nodes[TOWN_MEMBER].membership.authority;
    EVP_PKEY *key = authority->key;
    authority->key = NULL;
    newcomer_expect_failure(town_join(town, 0, NULL, town_invite(town)), ERROR_UNSUPPORTED,
                            "is a plain member");
    authority->key = key;
    town_deinit(town);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Until the words are on both screens. */
static struct admission_waiting knock(struct town *town, int index)
{
    struct admission_waiting waiting = {0};
    struct newcomer *newcomer = town_join(town, index, NULL, NULL);
    assert_true(town_run(town, newcomer_compares, newcomer));
    assert_true(town_waiting(town, &waiting) > 0);
    assert_string_equal(waiting.words, newcomer->words);
    assert_string_equal(newcomer->peer_name, "member");
    assert_memory_equal(waiting.node_id, newcomer->identity.node_id, NODE_ID_BYTES);
    assert_int_equal(newcomer->n_joined, 0);
    link_world_pass(town->links, 5);
    return waiting;
}

static void test_both_say_yes(void **state)
{
    for (int member_first = 0; member_first < 2; member_first++) {
        struct town *town = town_init();
        struct admission_waiting waiting = knock(town, 0);
        struct newcomer *newcomer = &town->newcomers[0];
        assert_int_equal(town->n_changed, 1);
        assert_false(waiting.agreed);
        if (!member_first)
            joining_agree(newcomer->joining);
        if (member_first)
            assert_int_equal(admission_agree(town->admission, waiting.id, NULL), ERROR_NONE);
        link_world_pass(town->links, 50);
        assert_int_equal(town->n_decide, 0); /* one alone is not enough */
        assert_int_equal(town_waiting(town, &waiting), 1);
        assert_int_equal(waiting.agreed, member_first);
        assert_int_equal(admission_agree(town->admission, waiting.id, NULL),
                         ERROR_NONE); /* a second time, or the first */
        joining_agree(newcomer->joining);
        newcomer_expect_joined(newcomer);
        assert_int_equal(town_waiting(town, NULL), 0);
        assert_int_equal(admission_agree(town->admission, waiting.id, NULL), ERROR_NOT_FOUND);
        town_deinit(town);
    }
}

static void test_the_member_says_no(void **state)
{
    struct town *town = town_init();
    struct admission_waiting waiting = knock(town, 0);
    assert_int_equal(admission_refuse(town->admission, waiting.id, "not my machine", NULL),
                     ERROR_NONE);
    newcomer_expect_failure(&town->newcomers[0], ERROR_CANCELLED, "not my machine");
    assert_int_equal(joining_again_ms(town->newcomers[0].joining), LIMIT_JOIN_DECLINED_MS);
    assert_int_equal(town_waiting(town, NULL), 0);
    assert_int_equal(town->n_changed, 2); /* it came, it went */
    assert_int_equal(admission_refuse(town->admission, waiting.id, "", NULL), ERROR_NOT_FOUND);
    town_deinit(town);
}

static void test_the_newcomer_says_no(void **state)
{
    for (int member_agreed = 0; member_agreed < 2; member_agreed++) {
        struct town *town = town_init();
        struct admission_waiting waiting = knock(town, 0);
        if (member_agreed)
            assert_int_equal(admission_agree(town->admission, waiting.id, NULL), ERROR_NONE);
        newcomer_close(&town->newcomers[0]);
        assert_int_equal(town->newcomers[0].n_ended, 0); /* it has closed: it hears no more */
        assert_true(town_run(town, town_is_told, town));
        assert_int_equal(town->why.code, ERROR_CANCELLED);
        assert_int_equal(town_waiting(town, NULL), 0);
        assert_int_equal(town->n_decide, 0);
        town_deinit(town);
    }
}

static void test_nobody_answers(void **state)
{
    struct town *town = town_init();
    knock(town, 0);
    town_skip(town, LIMIT_JOIN_WAIT_MS / 2);
    assert_int_equal(town_waiting(town, NULL), 1);
    town_skip(town, LIMIT_JOIN_WAIT_MS / 2);
    assert_true(town_run(town, newcomer_ended, &town->newcomers[0]));
    assert_int_equal(town->newcomers[0].why.code, ERROR_CANCELLED);
    assert_true(town_run(town, town_is_told, town));
    assert_int_equal(town_waiting(town, NULL), 0);
    /* It knocks again. */
    assert_int_equal(joining_again_ms(town->newcomers[0].joining), LIMIT_JOIN_PAUSE_MS);
    town->n_ended = 0;
    struct admission_waiting waiting = knock(town, 0);
    assert_int_equal(admission_agree(town->admission, waiting.id, NULL), ERROR_NONE);
    joining_agree(town->newcomers[0].joining);
    newcomer_expect_joined(&town->newcomers[0]);
    town_deinit(town);
}

/* The pace of the member, and of one newcomer that asks at two doors. */
static void test_one_knock_at_a_time(void **state)
{
    struct town *town = town_init();
    knock(town, 0);
    newcomer_expect_failure(town_join(town, 1, NULL, NULL), ERROR_BUSY,
                            "try again in a few seconds");
    town->ahead_ms += LIMIT_JOIN_PAUSE_MS;
    knock(town, 1);
    assert_int_equal(town_waiting(town, NULL), 2);
    town->newcomers[2].pace.hand_paused_until_ms = 1 + town->newcomers[1].pace.hand_paused_until_ms;
    const struct newcomer *newcomer = town_join(town, 2, NULL, NULL);
    link_world_pass(town->links, 100);
    assert_int_equal(newcomer->n_ended + newcomer->n_compare, 0); /* it waits for its turn */
    town->ahead_ms += LIMIT_JOIN_PAUSE_MS;
    assert_true(town_run(town, newcomer_compares, &town->newcomers[2]));
    assert_int_equal(town_waiting(town, NULL), 3);
    town_deinit(town);
}

/* A newcomer that lost its connection without a word does not wait twice. */
static void test_a_second_knock_takes_the_place_of_the_first(void **state)
{
    struct town *town = town_init();
    knock(town, 0);
    struct identity twin = town->newcomers[1].identity;
    town->newcomers[1].identity = town->newcomers[0].identity;
    town->ahead_ms += LIMIT_JOIN_PAUSE_MS;
    knock(town, 1);
    assert_int_equal(town_waiting(town, NULL), 1);
    newcomer_expect_failure(&town->newcomers[0], ERROR_CANCELLED, "a second time");
    newcomer_close(&town->newcomers[1]);
    town->newcomers[1].identity = twin;
    town_deinit(town);
}

/* ---- closing in the middle ------------------------------------------------------------------- */

static void test_the_member_closes(void **state)
{
    struct town *town = town_init();
    knock(town, 0);
    town->decision = DECIDE_NEVER;
    struct newcomer *by_code = town_join(town, 1, NULL, town_invite(town));
    assert_true(town_run(town, member_decides, town));
    town_close_member(town);
    newcomer_expect_failure(&town->newcomers[0], ERROR_BUSY, "member closed the connection");
    newcomer_expect_failure(by_code, ERROR_BUSY, "member closed the connection");
    assert_int_equal(joining_again_ms(by_code->joining), LIMIT_JOIN_PAUSE_MS);
    town_deinit(town);
}

static void test_the_newcomer_closes_within_events(void **state)
{
    struct town *town = town_init();
    struct newcomer *newcomer = &town->newcomers[0];
    newcomer->closes_on_compare = true;
    town_join(town, 0, NULL, NULL);
    assert_true(town_run(town, town_is_told, town));
    assert_int_equal(town->why.code, ERROR_CANCELLED);
    /* What it has kept counts, and the member is told. */
    town->n_ended = 0;
    newcomer->closes_on_joined = true;
    town_join(town, 0, NULL, town_invite(town));
    assert_true(town_run(town, town_is_told, town));
    assert_int_equal(town->why.code, ERROR_NONE);
    newcomer_check_member(newcomer);
    assert_int_equal(newcomer->n_ended, 0);
    town_deinit(town);
}

static void test_the_newcomer_closes_at_any_time(void **state)
{
    struct town *town = town_init();
    town->decision = DECIDE_NEVER;
    for (uint64_t turns = 0; turns < 40; turns++) {
        town_join(town, 0, NULL, turns % 2 ? town_invite(town) : NULL);
        for (uint64_t i = 0; i < 2 * turns; i++)
            uv_run(&town->links->loop, UV_RUN_NOWAIT);
        newcomer_close(&town->newcomers[0]);
        town->newcomers[0].pace.n_shown = 0; /* the next is another code */
        town->ahead_ms += LIMIT_JOIN_PAUSE_MS;
    }
    link_world_pass(town->links, 50);
    town->n_decide = town->n_ended = 0;
    town->decision = DECIDE_GRANT;
    newcomer_expect_joined(town_join(town, 0, NULL, town_invite(town)));
    town_deinit(town);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_right_code),
        cmocka_unit_test(test_a_host_name_with_several_addresses),
        cmocka_unit_test(test_by_the_real_clock),
        cmocka_unit_test(test_wrong_codes),
        cmocka_unit_test(test_an_expired_code),
        cmocka_unit_test(test_a_code_is_good_once),
        cmocka_unit_test(test_what_is_no_attempt),
        cmocka_unit_test(test_a_silent_host),
        cmocka_unit_test(test_the_cluster_says_no),
        cmocka_unit_test(test_the_cluster_says_nothing),
        cmocka_unit_test(test_a_decision_later),
        cmocka_unit_test(test_a_payload_beyond_its_limit),
        cmocka_unit_test(test_what_cannot_be_kept),
        cmocka_unit_test(test_a_member_that_does_not_know),
        cmocka_unit_test(test_a_false_member),
        cmocka_unit_test(test_a_member_that_may_not_let_in),
        cmocka_unit_test(test_both_say_yes),
        cmocka_unit_test(test_the_member_says_no),
        cmocka_unit_test(test_the_newcomer_says_no),
        cmocka_unit_test(test_nobody_answers),
        cmocka_unit_test(test_one_knock_at_a_time),
        cmocka_unit_test(test_a_second_knock_takes_the_place_of_the_first),
        cmocka_unit_test(test_the_member_closes),
        cmocka_unit_test(test_the_newcomer_closes_within_events),
        cmocka_unit_test(test_the_newcomer_closes_at_any_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
