/* Agreements and what they keep: files that are damaged or foreign, a full disk, leaving, closing
 * while busy, lack of memory. */
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
    assert_int_equal(agreement_world_agree(w, 1, "a", "b", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 0, "before", "kept", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 0, "after", "too", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 1, "own", "cluster", &err), ERROR_NONE);
    forget(1); /* leave that, too, */
    assert_null(agreement_world_setting(w, 1, "own"));
    w->nodes[1].cut_off = false;
    w->nodes[1].wanted = true; /* and come back as another member */
    assert_int_equal(agreement_world_agree(w, 0, "come", "back", &err), ERROR_NONE);
    agreement_world_await(w, 1, "come", "back");
}

/* The folder is gone: the node says so and takes no part, until leaving works. */
static void test_cannot_leave(void **state)
{
    char moved[80];
    struct forgotten forgotten = {0};
    agreement_world_found(w, 1);
    assert_int_equal(agreement_world_agree(w, 0, "a", "b", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 0, "a", "c", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 0, "a", "b", &err), ERROR_NONE);
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
    assert_int_equal(agreement_world_agree(w, 0, "a", "d", &err), ERROR_NONE);
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
            agreement_world_await(w, 0, "nth", value);
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
        TEST(test_files),   TEST(test_full_disk),
        TEST(test_leaving), TEST(test_cannot_leave),
        TEST(test_damaged), TEST(test_closed_while_busy),
        TEST(test_memory),  TEST(test_memory_at_the_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
