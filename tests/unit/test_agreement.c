/* Agreements: founding, members, proposals from everywhere, elections, restarts, snapshots in
 * pieces, founding anew. */
#include "agreement_world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct agreement_world *w;
static struct error err;

static int setup(void **state)
{
    w = agreement_world_init();
    return 0;
}

static int teardown(void **state)
{
    agreement_world_deinit(w);
    return 0;
}

/* ---- one node ---- */

static void test_alone(void **state)
{
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    struct agreement *a = w->nodes[0].agreement;
    const uint64_t member = agreement_member(a);
    assert_true(member != 0);
    agreement_world_run_for(w, 30);
    assert_false(agreement_status(a).leads);
    assert_int_equal(agreement_found(a, &err), ERROR_NONE);
    assert_int_equal(agreement_found(a, &err), ERROR_INVALID);
    assert_int_equal(agreement_world_agree(w, 0, "fan", "quiet", &err), ERROR_NONE);
    assert_string_equal(agreement_world_setting(w, 0, "fan"), "quiet");
    assert_int_equal(w->nodes[0].n_applied, 1);
    assert_true(w->nodes[0].n_changed > 0 && agreement_status(a).leads &&
                agreement_status(a).lineage.generation == 1);

    /* A second one of the same file is refused, and does it no harm. */
    struct agreement_options options = w->options;
    struct agreement *second;
    options.path = w->nodes[0].path;
    assert_int_equal(agreement_open(&options, &second, &err), ERROR_BUSY);
    assert_null(second);

    agreement_world_close(w, 0);
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    agreement_world_await(w, 0, "fan", "quiet");
    assert_true(agreement_member(w->nodes[0].agreement) == member);
    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_INVALID);
    assert_int_equal(agreement_world_agree(w, 0, "fan", "loud", &err), ERROR_NONE);
}

/* ---- proposals that come to nothing ---- */

static void test_refused(void **state)
{
    w->options.proposal_ms = 150;
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    assert_int_equal(agreement_world_agree(w, 0, "fan", "quiet", &err),
                     ERROR_BUSY); /* nobody leads */
    assert_non_null(strstr(err.text, "no leader"));

    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_NONE);
    char *large = calloc(1, LIMIT_CLUSTER_ENTRY_BYTES + 1);
    memset(large, 'x', LIMIT_CLUSTER_ENTRY_BYTES);
    assert_int_equal(agreement_world_agree(w, 0, "fan", large, &err), ERROR_INVALID);
    free(large);

    /* An event that makes no sense counts, and says why it changes nothing. */
    struct agreement_wish wish;
    agreement_world_set(w, 0, "", "x", &wish);
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 1000));
    assert_int_equal(wish.code, ERROR_NONE);
    assert_true(!wish.outcome.applied && wish.outcome.reason);

    static struct agreement_wish many[LIMIT_PROPOSALS + 1];
    for (int i = 0; i <= LIMIT_PROPOSALS; i++)
        agreement_world_set(w, 0, "n", "x", &many[i]);
    agreement_world_run_for(w, 1);
    assert_true(many[LIMIT_PROPOSALS].is_done && many[LIMIT_PROPOSALS].code == ERROR_BUSY);
    agreement_world_run_for(w, 200);
    for (int i = 0; i < LIMIT_PROPOSALS; i++)
        assert_true(many[i].is_done);

    agreement_world_set(w, 0, "fan", "loud", &wish);
    agreement_world_close(w, 0);
    assert_true(wish.is_done && wish.code == ERROR_CANCELLED);
}

static void test_foreign_bytes(void **state)
{
    agreement_world_found(w, 1);
    struct agreement *a = w->nodes[0].agreement;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    Cluster__Setting setting = CLUSTER__SETTING__INIT;
    struct buffer bytes = {0};
    setting.key = (char *)(uintptr_t)"k";
    setting.value = (char *)(uintptr_t)"v";
    event.kind_case = CLUSTER__EVENT__KIND_SETTING_CHANGED;
    event.setting_changed = &setting;
    event_encode(&event, &bytes);
    agreement_receive_proposal(a, bytes.data, bytes.size); /* no nonce */
    agreement_receive_proposal(a, "\xff\xff", 2);
    agreement_receive(a, 99, "\x00\x07garbage", 9);
    agreement_receive(a, 99, "", 0);
    agreement_receive(a, 0, "\x00\x01", 2);
    agreement_receive(a, agreement_member(a), bytes.data, bytes.size);
    agreement_world_run_for(w, 50);
    assert_null(agreement_world_setting(w, 0, "k"));
    /* The same nonce again and again: once in the log. */
    event.has_nonce = true;
    event.nonce = 4711;
    buffer_clear(&bytes);
    event_encode(&event, &bytes);
    for (int i = 0; i < 50; i++) {
        agreement_receive_proposal(a, bytes.data, bytes.size);
        agreement_world_run_for(w, 2);
    }
    buffer_deinit(&bytes);
    agreement_world_await(w, 0, "k", "v");
    assert_int_equal(w->nodes[0].n_applied, 1);
}

/* ---- several ---- */

static void test_three(void **state)
{
    agreement_world_found(w, 3);
    for (int i = 0; i < 3; i++) {
        char value[16];
        snprintf(value, sizeof value, "by %d", i);
        assert_int_equal(agreement_world_agree(w, i, "who", value, &err), ERROR_NONE);
        for (int k = 0; k < 3; k++)
            agreement_world_await(w, k, "who", value);
    }
    /* Everybody has raised the same events in the same order. */
    for (int k = 1; k < 3; k++) {
        assert_int_equal(w->nodes[k].n_applied, w->nodes[0].n_applied);
        assert_memory_equal(w->nodes[k].nonces, w->nodes[0].nonces,
                            w->nodes[0].n_applied * sizeof(uint64_t));
    }
    /* All are gone and come back. */
    for (int k = 0; k < 3; k++)
        agreement_world_close(w, k);
    for (int k = 0; k < 3; k++)
        assert_int_equal(agreement_world_open(w, k, &err), ERROR_NONE);
    for (int k = 0; k < 3; k++)
        agreement_world_await(w, k, "who", "by 2");
}

static void test_leader_is_lost(void **state)
{
    agreement_world_found(w, 3);
    const int first = agreement_world_leader(w), follower = (first + 1) % 3;
    w->nodes[first].cut_off = true;
    assert_int_equal(agreement_world_agree(w, follower, "after", "election", &err), ERROR_NONE);
    agreement_world_await(w, (first + 2) % 3, "after", "election");
    assert_null(agreement_world_setting(w, first, "after"));
    w->nodes[first].cut_off = false;
    agreement_world_await(w, first, "after", "election");
    assert_int_equal(agreement_world_agree(w, first, "old leader", "follows", &err), ERROR_NONE);
    agreement_world_await(w, follower, "old leader", "follows");
}

static void count_once(const struct agreement_node *node, uint32_t n)
{
    assert_int_equal(node->n_applied, n);
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < i; k++)
            assert_true(node->nonces[i] != node->nonces[k]);
    }
}

static bool all_done(void *arg)
{
    const struct agreement_wish *wishes = arg;
    for (int i = 0; i < 60; i++) {
        if (!wishes[i].is_done)
            return false;
    }
    return true;
}

/* While messages are lost and leaders are cut off, every event counts, and counts once. */
static void test_once(void **state)
{
    static struct agreement_wish wishes[60];
    w->options.proposal_ms = 20000;
    agreement_world_found(w, 3);
    w->loss_ppm = 100000;
    for (int i = 0; i < 60; i++) {
        char key[16];
        snprintf(key, sizeof key, "key %d", i);
        agreement_world_set(w, i % 3, key, "set", &wishes[i]);
        agreement_world_run_for(w, 10);
        if (i % 20 == 10) {
            const int leader = agreement_world_leader(w);
            if (leader >= 0)
                w->nodes[leader].cut_off = true;
        } else if (i % 20 == 19) {
            agreement_world_run_for(w, 300);
            for (int k = 0; k < 3; k++)
                w->nodes[k].cut_off = false;
        }
    }
    assert_true(agreement_world_run(w, all_done, wishes, 15000));
    w->loss_ppm = 0;
    for (int i = 0; i < 60; i++) {
        char key[16];
        assert_int_equal(wishes[i].code, ERROR_NONE);
        snprintf(key, sizeof key, "key %d", i);
        for (int k = 0; k < 3; k++)
            agreement_world_await(w, k, key, "set");
    }
    for (int k = 0; k < 3; k++)
        count_once(&w->nodes[k], 60);
}

static bool leader_is_gone(void *arg)
{
    const int old = *(int *)arg, leader = agreement_world_leader(w);
    return leader >= 0 && leader != old &&
           agreement_state(w->nodes[leader].agreement)->root->n_members == 3;
}

static void test_leader_is_removed(void **state)
{
    agreement_world_found(w, 4);
    int old = agreement_world_leader(w);
    w->nodes[old].wanted = false;
    assert_true(agreement_world_run(w, leader_is_gone, &old, 8000));
    assert_int_equal(agreement_world_agree(w, (old + 1) % 4, "still", "there", &err), ERROR_NONE);
}

/* ---- long absence ---- */

static void join_node(int node, int number, size_t size)
{
    Cluster__Node joined = CLUSTER__NODE__INIT;
    Cluster__Event event = CLUSTER__EVENT__INIT;
    struct agreement_wish wish;
    char id[16], *address = calloc(1, size + 1);
    snprintf(id, sizeof id, "n%d", number);
    memset(address, 'a', size);
    joined.id = joined.name = id;
    joined.has_member = true;
    joined.member = (uint64_t)number + 1;
    joined.n_addresses = 1;
    joined.addresses = &address;
    event.kind_case = CLUSTER__EVENT__KIND_NODE_JOINED;
    event.node_joined = &joined;
    agreement_world_propose(w, node, &event, &wish);
    free(address);
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 8000));
    assert_int_equal(wish.code, ERROR_NONE);
}

static uint32_t largest_frame(void)
{
    uint32_t largest = 0;
    for (int i = 0; i < AGREEMENT_NODES; i++)
        largest = w->nodes[i].largest_frame > largest ? w->nodes[i].largest_frame : largest;
    return largest;
}

/* Nobody who could lead has the big entries any more. */
static bool has_cut_its_log(void *arg)
{
    uint32_t n = 0;
    for (int i = 0; i < 3; i++)
        n += agreement_status(w->nodes[i].agreement).snapshot > 20 && !w->nodes[i].cut_off;
    return n == 2;
}

static void test_snapshot_in_pieces(void **state)
{
    w->options.replica.election_ms = 400; /* states of 5 MiB take their time under sanitizers */
    w->options.replica.heartbeat_ms = 100;
    w->options.replica.snapshot_after = 8;
    w->options.replica.trailing = 1;
    agreement_world_found(w, 3);
    const int leader = agreement_world_leader(w), away = (leader + 1) % 3;
    w->nodes[away].cut_off = true;
    for (int i = 0; i < 20; i++)
        join_node(leader, i, 230 * 1024);
    assert_int_equal(agreement_world_agree(w, leader, "big", "state", &err), ERROR_NONE);
    for (int i = 0; i < 10; i++)
        assert_int_equal(agreement_world_agree(w, leader, "more", "entries", &err), ERROR_NONE);
    assert_true(agreement_world_run(w, has_cut_its_log, NULL, 8000));
    w->nodes[0].largest_frame = w->nodes[1].largest_frame = w->nodes[2].largest_frame = 0;
    const uint32_t applied = w->nodes[away].n_applied;
    w->nodes[away].cut_off = false;
    agreement_world_await(w, away, "big", "state");
    agreement_world_await(w, away, "more", "entries");
    assert_true(w->nodes[away].n_applied < applied + 20); /* the rest came as a snapshot */
    assert_int_equal(largest_frame(), LIMIT_FRAME_CONTROL_BYTES);
    assert_int_equal(agreement_state(w->nodes[away].agreement)->root->n_nodes, 20);
    agreement_world_close(w, away);
    assert_int_equal(agreement_world_open(w, away, &err), ERROR_NONE);
    agreement_world_await(w, away, "big", "state");
}

/* ---- the voters are gone ---- */

static bool leads_anew(void *arg)
{
    const struct agreement_node *node = arg;
    const struct replica_status status = agreement_status(node->agreement);
    return status.leads && status.lineage.generation == 2;
}

static bool has_lineage_2(void *arg)
{
    const struct agreement_node *node = arg;
    return agreement_status(node->agreement).lineage.generation == 2;
}

/* Who votes, by a node's state: that one member alone. */
static bool state_has_one_voter(int node, uint64_t voter)
{
    const Cluster__State *root = agreement_state(w->nodes[node].agreement)->root;
    bool is_so = root->n_members > 0;
    for (size_t i = 0; i < root->n_members; i++)
        is_so &= root->members[i]->votes == (root->members[i]->id == voter);
    return is_so;
}

static void test_founded_anew(void **state)
{
    w->options.replica.grace_ms = w->options.replica.minority_grace_ms = 400;
    agreement_world_found(w, 2);
    assert_int_equal(agreement_world_agree(w, 0, "kept", "yes", &err), ERROR_NONE);
    agreement_world_await(w, 1, "kept", "yes");
    agreement_world_close(w, 0);
    w->nodes[1].n_emptied = 0;
    assert_true(agreement_world_run(w, leads_anew, &w->nodes[1], 5000));
    assert_string_equal(agreement_world_setting(w, 1, "kept"), "yes");
    const uint64_t founder = agreement_member(w->nodes[1].agreement);
    assert_true(state_has_one_voter(1, founder));
    assert_int_equal(agreement_world_agree(w, 1, "new", "era", &err), ERROR_NONE);

    /* The old voter leads its own log alone, until it hears of the new one. Its state is never
     * empty. */
    w->nodes[1].cut_off = true;
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    agreement_world_await(w, 0, "kept", "yes");
    assert_null(agreement_world_setting(w, 0, "new"));
    w->nodes[0].n_emptied = 0;
    w->nodes[1].cut_off = false;
    assert_true(agreement_world_run(w, has_lineage_2, &w->nodes[0], 5000));
    agreement_world_await(w, 0, "new", "era");
    assert_true(state_has_one_voter(0, founder));
    assert_int_equal(w->nodes[0].n_emptied + w->nodes[1].n_emptied, 0);
    assert_int_equal(agreement_world_agree(w, 0, "old voter", "follows", &err), ERROR_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_alone),
        TEST(test_refused),
        TEST(test_foreign_bytes),
        TEST(test_three),
        TEST(test_leader_is_lost),
        TEST(test_once),
        TEST(test_leader_is_removed),
        TEST(test_snapshot_in_pieces),
        TEST(test_founded_anew),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
