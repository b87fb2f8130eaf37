/* Agreements: founding, members, proposals from everywhere, elections, restarts, snapshots in
 * pieces, founding anew, disks that are full, leaving. */
#include "agreement_world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* Proposes and waits; ERROR_NONE: it counts. */
static enum error_code set(int node, const char *key, const char *value)
{
    struct agreement_wish wish;
    agreement_world_set(w, node, key, value, &wish);
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 8000));
    if (!wish.code)
        assert_true(wish.outcome.applied);
    err = wish.err;
    return wish.code;
}

struct expected {
    int node;
    const char *key, *value;
};

static bool has(void *arg)
{
    const struct expected *e = arg;
    const char *value = agreement_world_setting(w, e->node, e->key);
    return value && strcmp(value, e->value) == 0;
}

static void await(int node, const char *key, const char *value)
{
    if (!agreement_world_run(w, has, &(struct expected){node, key, value}, 8000))
        fail_msg("node %d does not get %s = %s", node, key, value);
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
    assert_int_equal(set(0, "fan", "quiet"), ERROR_NONE);
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
    await(0, "fan", "quiet");
    assert_true(agreement_member(w->nodes[0].agreement) == member);
    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_INVALID);
    assert_int_equal(set(0, "fan", "loud"), ERROR_NONE);
}

static void test_files(void **state)
{
    FILE *file = fopen(w->nodes[0].path, "w");
    assert_non_null(file);
    assert_true(fputs("this is no store", file) >= 0);
    fclose(file);
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_INVALID);
    assert_int_equal(access(w->nodes[0].path, F_OK), 0);

    struct agreement_options options = w->options;
    struct agreement *a;
    options.path = "/tmp/medley-no-such-folder/cluster.db";
    assert_int_not_equal(agreement_open(&options, &a, &err), ERROR_NONE);
    assert_null(a);

    /* A write-ahead log that was left alone is not taken for that of the new file. */
    char wal[160];
    assert_int_equal(agreement_world_open(w, 1, &err), ERROR_NONE);
    agreement_world_close(w, 1);
    unlink(w->nodes[1].path);
    snprintf(wal, sizeof wal, "%s-wal", w->nodes[1].path);
    assert_non_null(file = fopen(wal, "w"));
    assert_true(fputs("a log without its file", file) >= 0);
    fclose(file);
    assert_int_equal(agreement_world_open(w, 1, &err), ERROR_NONE);
    assert_int_equal(agreement_found(w->nodes[1].agreement, &err), ERROR_NONE);
    assert_int_equal(set(1, "a", "b"), ERROR_NONE);
}

/* ---- proposals that come to nothing ---- */

static void test_refused(void **state)
{
    w->options.proposal_ms = 150;
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    assert_int_equal(set(0, "fan", "quiet"), ERROR_BUSY); /* nobody leads */
    assert_non_null(strstr(err.text, "no leader"));

    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_NONE);
    char *large = calloc(1, LIMIT_CLUSTER_ENTRY_BYTES + 1);
    memset(large, 'x', LIMIT_CLUSTER_ENTRY_BYTES);
    assert_int_equal(set(0, "fan", large), ERROR_INVALID);
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
    await(0, "k", "v");
    assert_int_equal(w->nodes[0].n_applied, 1);
}

/* ---- several ---- */

static void test_three(void **state)
{
    agreement_world_found(w, 3);
    for (int i = 0; i < 3; i++) {
        char value[16];
        snprintf(value, sizeof value, "by %d", i);
        assert_int_equal(set(i, "who", value), ERROR_NONE);
        for (int k = 0; k < 3; k++)
            await(k, "who", value);
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
        await(k, "who", "by 2");
}

static void test_leader_is_lost(void **state)
{
    agreement_world_found(w, 3);
    const int first = agreement_world_leader(w), follower = (first + 1) % 3;
    w->nodes[first].cut_off = true;
    assert_int_equal(set(follower, "after", "election"), ERROR_NONE);
    await((first + 2) % 3, "after", "election");
    assert_null(agreement_world_setting(w, first, "after"));
    w->nodes[first].cut_off = false;
    await(first, "after", "election");
    assert_int_equal(set(first, "old leader", "follows"), ERROR_NONE);
    await(follower, "old leader", "follows");
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
            await(k, key, "set");
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
    assert_int_equal(set((old + 1) % 4, "still", "there"), ERROR_NONE);
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
    assert_int_equal(set(leader, "big", "state"), ERROR_NONE);
    for (int i = 0; i < 10; i++)
        assert_int_equal(set(leader, "more", "entries"), ERROR_NONE);
    assert_true(agreement_world_run(w, has_cut_its_log, NULL, 8000));
    w->nodes[0].largest_frame = w->nodes[1].largest_frame = w->nodes[2].largest_frame = 0;
    const uint32_t applied = w->nodes[away].n_applied;
    w->nodes[away].cut_off = false;
    await(away, "big", "state");
    await(away, "more", "entries");
    assert_true(w->nodes[away].n_applied < applied + 20); /* the rest came as a snapshot */
    assert_int_equal(largest_frame(), LIMIT_FRAME_CONTROL_BYTES);
    assert_int_equal(agreement_state(w->nodes[away].agreement)->root->n_nodes, 20);
    agreement_world_close(w, away);
    assert_int_equal(agreement_world_open(w, away, &err), ERROR_NONE);
    await(away, "big", "state");
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

static void test_founded_anew(void **state)
{
    w->options.replica.grace_ms = w->options.replica.minority_grace_ms = 400;
    agreement_world_found(w, 2);
    assert_int_equal(set(0, "kept", "yes"), ERROR_NONE);
    await(1, "kept", "yes");
    agreement_world_close(w, 0);
    w->nodes[1].n_emptied = 0;
    assert_true(agreement_world_run(w, leads_anew, &w->nodes[1], 5000));
    assert_string_equal(agreement_world_setting(w, 1, "kept"), "yes");
    assert_int_equal(set(1, "new", "era"), ERROR_NONE);

    /* The old voter leads its own log alone, until it hears of the new one. Its state is never
     * empty. */
    w->nodes[1].cut_off = true;
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
    await(0, "kept", "yes");
    assert_null(agreement_world_setting(w, 0, "new"));
    w->nodes[0].n_emptied = 0;
    w->nodes[1].cut_off = false;
    assert_true(agreement_world_run(w, has_lineage_2, &w->nodes[0], 5000));
    await(0, "new", "era");
    assert_int_equal(w->nodes[0].n_emptied + w->nodes[1].n_emptied, 0);
    assert_int_equal(set(0, "old voter", "follows"), ERROR_NONE);
}

/* ---- the disk ---- */

static bool has_failed(void *arg)
{
    return agreement_failure(((struct agreement_node *)arg)->agreement) != NULL;
}

static bool takes_part(void *arg)
{
    return agreement_failure(((struct agreement_node *)arg)->agreement) == NULL;
}

static bool is_damaged(void *arg)
{
    const struct error *why = agreement_failure(((struct agreement_node *)arg)->agreement);
    return why && why->code == ERROR_INVALID;
}

static void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void test_full_disk(void **state)
{
    struct agreement_wish wish;
    char text[900];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    signal(SIGXFSZ, SIG_IGN);
    w->options.proposal_ms = 400;
    agreement_world_found(w, 1);
    assert_int_equal(set(0, "before", "kept"), ERROR_NONE);
    limit_files(20 * 1024);
    struct agreement_node *node = &w->nodes[0];
    for (int i = 0; i < 100 && !has_failed(node); i++) {
        agreement_world_set(w, 0, "fill", text, &wish);
        agreement_world_run(w, agreement_wish_is_done, &wish, 2000);
    }
    assert_true(has_failed(node));
    assert_true(node->n_failed > 0);
    agreement_world_run_for(w, 200); /* it is tried again, in vain */
    assert_int_equal(node->failure.code, ERROR_IO);
    const uint32_t n_failed = node->n_failed;
    agreement_world_run_for(w, 200);
    assert_true(node->n_failed <= n_failed + 1);
    assert_string_equal(agreement_world_setting(w, 0, "before"), "kept"); /* it is still shown */
    node->n_emptied = 0;
    limit_files(RLIM_INFINITY);
    assert_true(agreement_world_run(w, takes_part, node, 5000));
    assert_int_equal(set(0, "after", "too"), ERROR_NONE);
    assert_string_equal(agreement_world_setting(w, 0, "before"), "kept");
    assert_int_equal(node->n_emptied, 0);
    for (uint32_t i = 0; i < node->n_applied; i++) { /* nothing was raised twice */
        for (uint32_t k = 0; k < i; k++)
            assert_true(node->nonces[i] != node->nonces[k]);
    }
}

/* ---- leaving ---- */

struct forgotten {
    bool is_done;
    enum error_code code;
};

static void on_forgotten(void *arg, enum error_code code, const struct error *why)
{
    *(struct forgotten *)arg = (struct forgotten){true, code};
    assert_true(!code == !why);
}

static bool is_forgotten(void *arg)
{
    return ((struct forgotten *)arg)->is_done;
}

static void forget(int node)
{
    struct forgotten forgotten = {0};
    assert_int_equal(agreement_forget(w->nodes[node].agreement, on_forgotten, &forgotten, &err),
                     ERROR_NONE);
    assert_int_equal(agreement_forget(w->nodes[node].agreement, NULL, NULL, &err), ERROR_BUSY);
    assert_null(agreement_state(w->nodes[node].agreement)->root);
    assert_true(agreement_world_run(w, is_forgotten, &forgotten, 5000));
    assert_int_equal(forgotten.code, ERROR_NONE);
}

static void test_leaving(void **state)
{
    char left[160];
    struct agreement_wish wish;
    agreement_world_found(w, 2);
    struct agreement *a = w->nodes[1].agreement;
    const uint64_t member = agreement_member(a);
    w->nodes[1].wanted = false;
    agreement_world_run_for(w, 200);
    agreement_world_set(w, 1, "never", "sent", &wish);
    w->nodes[1].cut_off = true;
    forget(1);
    assert_true(wish.is_done && wish.code == ERROR_CANCELLED);
    assert_true(agreement_member(a) != member && agreement_member(a) != 0);
    assert_int_equal(agreement_status(a).lineage.generation, 0);
    snprintf(left, sizeof left, "%s.left", w->nodes[1].path);
    assert_int_equal(access(left, F_OK), 0);
    assert_int_equal(agreement_found(a, &err), ERROR_NONE); /* it may begin one of its own, */
    assert_int_equal(set(1, "own", "cluster"), ERROR_NONE);
    forget(1); /* leave that, too, */
    assert_null(agreement_world_setting(w, 1, "own"));
    w->nodes[1].cut_off = false;
    w->nodes[1].wanted = true; /* and come back as another member */
    assert_int_equal(set(0, "come", "back"), ERROR_NONE);
    await(1, "come", "back");
}

/* The folder is gone: the node says so and takes no part, until leaving works. */
static void test_cannot_leave(void **state)
{
    char moved[80];
    struct forgotten forgotten = {0};
    agreement_world_found(w, 1);
    assert_int_equal(set(0, "a", "b"), ERROR_NONE);
    snprintf(moved, sizeof moved, "%s-moved", w->folder);
    assert_int_equal(rename(w->folder, moved), 0);
    assert_int_equal(agreement_forget(w->nodes[0].agreement, on_forgotten, &forgotten, &err),
                     ERROR_NONE);
    assert_true(agreement_world_run(w, is_forgotten, &forgotten, 5000));
    assert_int_not_equal(forgotten.code, ERROR_NONE);
    assert_true(has_failed(&w->nodes[0]) && w->nodes[0].n_failed == 1);
    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_BUSY);
    assert_int_equal(rename(moved, w->folder), 0);
    agreement_world_run_for(w, 150);
    assert_true(has_failed(&w->nodes[0]));
    forget(0);
    assert_int_equal(agreement_found(w->nodes[0].agreement, &err), ERROR_NONE);
    assert_int_equal(set(0, "a", "c"), ERROR_NONE);
}

/* What is done to the file while the node does not hold it is found out, and the file is left as it
 * is. */
static void test_damaged(void **state)
{
    struct agreement_wish wish;
    struct agreement_node *node = &w->nodes[0];
    signal(SIGXFSZ, SIG_IGN);
    w->options.proposal_ms = 200;
    agreement_world_found(w, 1);
    assert_int_equal(set(0, "a", "b"), ERROR_NONE);
    limit_files(1);
    agreement_world_set(w, 0, "a", "c", &wish);
    assert_true(agreement_world_run(w, has_failed, node, 3000));
    assert_int_equal(truncate(node->path, 100), 0);
    limit_files(RLIM_INFINITY);
    assert_true(agreement_world_run(w, is_damaged, node, 5000));
    assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 2000));
    assert_int_equal(wish.code, ERROR_BUSY);
    agreement_world_run_for(w, 200);
    assert_true(is_damaged(node) && access(node->path, F_OK) == 0);
    forget(0);
    assert_int_equal(agreement_found(node->agreement, &err), ERROR_NONE);
    assert_int_equal(set(0, "a", "d"), ERROR_NONE);
}

static void test_closed_while_busy(void **state)
{
    agreement_world_found(w, 1);
    struct agreement_wish wish;
    struct forgotten forgotten = {0};
    agreement_world_set(w, 0, "a", "b", &wish);
    agreement_world_run_for(w, 1);
    assert_int_equal(agreement_forget(w->nodes[0].agreement, on_forgotten, &forgotten, &err),
                     ERROR_NONE);
    agreement_world_close(w, 0);
    assert_true(wish.is_done && forgotten.is_done);
    assert_int_equal(agreement_world_open(w, 0, &err), ERROR_NONE);
}

/* ---- memory ---- */

static bool leads_or_failed(void *arg)
{
    const struct agreement_node *node = arg;
    return agreement_status(node->agreement).leads || agreement_failure(node->agreement);
}

/* Whichever allocation fails: nothing is lost that was said to count, and afterwards all goes
 * on. */
static void test_memory(void **state)
{
    w->options.reopen_ms = 5;
    w->options.step_ms = 10;
    w->options.proposal_ms = 3000;
    agreement_world_found(w, 1);
    char value[16] = "none";
    uint32_t n_failed = 0;
    for (unsigned nth = 1; nth < 120; nth++) {
        struct agreement_wish wish = {0};
        char next[16];
        snprintf(next, sizeof next, "%u", nth);
        assert_true(agreement_world_run(w, leads_or_failed, &w->nodes[0], 3000));
        mem_fail_nth(nth);
        agreement_world_set(w, 0, "nth", next, &wish);
        assert_true(agreement_world_run(w, agreement_wish_is_done, &wish, 5000));
        mem_fail_nth(0);
        if (!wish.code)
            memcpy(value, next, sizeof value);
        n_failed += wish.code != ERROR_NONE;
        assert_true(agreement_world_run(w, takes_part, &w->nodes[0], 3000));
        if (nth > 1 && strcmp(value, "none") != 0)
            await(0, "nth", value);
    }
    assert_true(w->nodes[0].n_failed > 5 || n_failed > 5);
}

static void test_memory_at_the_start(void **state)
{
    uint32_t n_refused = 0;
    w->options.reopen_ms = 5;
    for (unsigned nth = 1; nth < 60; nth++) {
        mem_fail_nth(nth);
        const enum error_code code = agreement_world_open(w, 0, &err);
        mem_fail_nth(0);
        if (code) {
            assert_int_equal(code, ERROR_NO_MEMORY);
            assert_null(w->nodes[0].agreement);
            n_refused++;
            continue;
        }
        const bool is_new = !agreement_status(w->nodes[0].agreement).lineage.generation;
        mem_fail_nth(nth);
        const enum error_code found = agreement_found(w->nodes[0].agreement, &err);
        mem_fail_nth(0);
        assert_int_equal(found, !is_new ? ERROR_INVALID : found ? ERROR_NO_MEMORY : ERROR_NONE);
        assert_true(agreement_world_run(w, takes_part, &w->nodes[0], 1000));
        forget(0);
        agreement_world_close(w, 0);
    }
    assert_true(n_refused > 3 && n_refused < 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        TEST(test_alone),
        TEST(test_files),
        TEST(test_refused),
        TEST(test_foreign_bytes),
        TEST(test_three),
        TEST(test_leader_is_lost),
        TEST(test_once),
        TEST(test_leader_is_removed),
        TEST(test_snapshot_in_pieces),
        TEST(test_founded_anew),
        TEST(test_full_disk),
        TEST(test_leaving),
        TEST(test_cannot_leave),
        TEST(test_damaged),
        TEST(test_closed_while_busy),
        TEST(test_memory),
        TEST(test_memory_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
