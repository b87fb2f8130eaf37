/* The store when the power goes: whatever a disk may do to what was not synced (power_disk.h), all
 * that was acknowledged is there again, nothing that was never written is, and what was being
 * written is there as a whole or not at all; so term and vote never go back. Between losses: full
 * disks and I/O errors. And a disk that lies about its syncs: what is found then is refused, or is
 * what was there at one moment, never a mixture.
 *
 * MEDLEY_SEEDS=FROM-TO: these seeds of each test in place of the first ones. A failure names its
 * seed. */
#include "power_disk.h"
#include "power_vfs.h"
#include "store_writes.h"

#include "agreement/agreement_impl.h"
#include "base/mem.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char path[] = POWER_FOLDER "/cluster.db";
static struct error err;
static uint64_t seed_under_way;

enum { PAST = 4000, ATTEMPTS = 8, LARGE_BYTES = 200000 };

/* What was written to one disk. */
struct run {
    bool made;       /* the store is there for good */
    uint64_t member; /* its member */
    struct log_saved acknowledged;
    struct log_saved attempted[ATTEMPTS]; /* may be there instead: nothing was acknowledged since */
    uint32_t n_attempted;
    bool
        fresh; /* nothing was opened since the power was lost: what is found now is what there is */
    bool large; /* entries of 200 KB: the write-ahead log is copied into the file now and then */
    uint64_t writes, losses, failures, seen;
};

static void forget_attempts(struct run *run)
{
    while (run->n_attempted)
        log_saved_clear(&run->attempted[--run->n_attempted]);
}

static void run_clear(struct run *run)
{
    log_saved_clear(&run->acknowledged);
    forget_attempts(run);
}

static void copy(struct log_saved *to, const struct log_saved *from)
{
    log_saved_clear(to);
    assert_int_equal(log_saved_copy(to, from, &err), ERROR_NONE);
}

static void wrong(const struct run *run, const struct log_saved *found)
{
    const struct log_saved *held = &run->acknowledged;
    fail_msg("seed %llu, step %llu: entries up to %llu, snapshot %llu, term %llu, vote %llx; "
             "acknowledged were %llu, "
             "%llu, %llu, %llx",
             (unsigned long long)seed_under_way, (unsigned long long)power_steps(),
             (unsigned long long)(found->log.n ? log_last(&found->log) : 0),
             (unsigned long long)found->snapshot.index, (unsigned long long)found->term,
             (unsigned long long)found->vote,
             (unsigned long long)(held->log.n ? log_last(&held->log) : 0),
             (unsigned long long)held->snapshot.index, (unsigned long long)held->term,
             (unsigned long long)held->vote);
}

static bool was_there(const struct log_saved *past, uint32_t n, const struct log_saved *found)
{
    for (uint32_t i = 0; i < n; i++)
        if (store_writes_same(&past[i], found))
            return true;
    return false;
}

/* NULL: the power went, or a failure was planned. */
static struct store *open_and_check(struct run *run)
{
    struct store *store;
    struct log_saved found = {0};
    if (agreement_open_store(path, &store, &found, &err)) {
        if (!power_is_off() && !power_failed())
            fail_msg("seed %llu, step %llu: %s", (unsigned long long)seed_under_way,
                     (unsigned long long)power_steps(), err.text);
        return NULL;
    }
    if (run->made && store_member(store) != run->member)
        fail_msg("seed %llu: another store took its place", (unsigned long long)seed_under_way);
    run->made = true;
    run->member = store_member(store);
    const bool as_attempted = was_there(run->attempted, run->n_attempted, &found);
    if (!as_attempted && !store_writes_same(&found, &run->acknowledged))
        wrong(run, &found);
    if (as_attempted)
        copy(&run->acknowledged, &found);
    run->seen += as_attempted;
    if (as_attempted || run->fresh)
        forget_attempts(run);
    run->fresh = false;
    log_saved_clear(&found);
    return store;
}

static void add_large(struct log_write *write)
{
    static uint8_t bytes[LARGE_BYTES];
    if (!write->log.n)
        return;
    memset(bytes, (int)store_writes_draw(256), sizeof bytes);
    const struct log_entry entry = {.term = write->log.entries[write->log.n - 1].term,
                                    .type = LOG_EVENT,
                                    .bytes = bytes,
                                    .size = store_writes_draw(sizeof bytes)};
    assert_int_equal(log_append(&write->log, &entry, &err), ERROR_NONE);
}

/* Whether it was acknowledged. */
static bool write_once(struct run *run, struct store *store)
{
    struct log_write write = store_writes_next(&run->acknowledged);
    if (run->large)
        add_large(&write);
    assert_true(run->n_attempted < ATTEMPTS);
    struct log_saved *attempted = &run->attempted[run->n_attempted++];
    copy(attempted, &run->acknowledged);
    assert_int_equal(log_saved_write(attempted, &write, &err), ERROR_NONE);
    const bool good = store_write(store, &write, &err) == ERROR_NONE;
    log_write_clear(&write);
    if (good) {
        copy(&run->acknowledged, attempted);
        forget_attempts(run);
    } else if (!power_is_off() && !power_failed()) {
        fail_msg("seed %llu: %s", (unsigned long long)seed_under_way, err.text);
    }
    run->writes += good;
    return good;
}

/* Opens it and writes until something goes wrong; the power stays on, or not. */
static void live(struct run *run, uint32_t n_writes)
{
    struct store *store = open_and_check(run);
    bool good = true;
    for (uint32_t i = 0; store && i < n_writes && good; i++)
        good = write_once(run, store);
    if (!good) {
        struct log_write empty = {0};
        assert_int_equal(store_write(store, &empty, &err), ERROR_IO); /* nothing more */
    }
    store_close(store);
}

static void lose(struct run *run)
{
    power_on();
    run->fresh = true;
    run->losses++;
}

/* ---- seeds ---- */

static void each_seed(uint64_t n, void (*test)(uint64_t seed, struct run *run))
{
    unsigned long long from = 1, to = n;
    const char *chosen = getenv("MEDLEY_SEEDS");
    if (chosen && sscanf(chosen, "%llu-%llu", &from, &to) == 1)
        to = from;
    struct run sum = {0};
    for (uint64_t seed = from; seed <= to; seed++) {
        struct run run = {0};
        seed_under_way = seed;
        power_reset(seed);
        store_writes_seed(seed);
        test(seed, &run);
        sum.writes += run.writes;
        sum.losses += run.losses;
        sum.failures += run.failures;
        sum.seen += run.seen;
        run_clear(&run);
    }
    print_message(
        "# %llu seeds: %llu writes, %llu losses of power, %llu failures; %llu times what was not "
        "acknowledged was there\n",
        to - from + 1, (unsigned long long)sum.writes, (unsigned long long)sum.losses,
        (unsigned long long)sum.failures, (unsigned long long)sum.seen);
    assert_true(sum.writes > to - from);
}

/* ---- tests ---- */

static void draw_kind(struct run *run)
{
    static const uint32_t torn[] = {0, 512, 4096};
    power_tear_sectors(torn[store_writes_draw(3)]);
    run->large = store_writes_draw(20) == 0;
}

static void losses_at_random(uint64_t seed, struct run *run)
{
    (void)seed;
    draw_kind(run);
    for (int life = 0; life < 12; life++) {
        power_lose_at(1 + store_writes_draw(store_writes_draw(3) ? 200 : 30));
        live(run, 25);
        if (store_writes_draw(4))
            lose(run);
        else
            power_again();
    }
    live(run, 1);
}

static void what_was_acknowledged_is_there(void **unused)
{
    each_seed(50, losses_at_random);
}

static const int failures[] = {ENOSPC, EIO};

/* Failures do harm in the kernel's cache that a loss of power brings to light. */
static void failures_and_losses(uint64_t seed, struct run *run)
{
    (void)seed;
    draw_kind(run);
    for (int life = 0; life < 12; life++) {
        for (uint64_t n = 1 + store_writes_draw(3); n && !power_is_off(); n--) {
            power_fail_at(1 + store_writes_draw(60), failures[store_writes_draw(2)]);
            if (n == 1)
                power_lose_at(1 + store_writes_draw(120));
            live(run, 15);
            run->failures += power_failed();
        }
        lose(run);
    }
    live(run, 1);
}

static void what_was_acknowledged_survives_failures(void **unused)
{
    each_seed(40, failures_and_losses);
}

/* A sync that failed, a kill before the file was closed, a loss of power while it is opened again:
 * the one way to harm a store on an honest disk. It is found, then. */
static uint64_t n_refused;

static void three_in_a_row(uint64_t seed, struct run *run)
{
    (void)seed;
    draw_kind(run);
    run->large = false;
    for (int life = 0; life < 6; life++) {
        struct store *store = open_and_check(run);
        power_fail_at(1 + store_writes_draw(40), EIO);
        while (write_once(run, store)) {
        }
        run->failures++;
        power_off();
        store_close(store);
        power_again();
        power_lose_at(1 + store_writes_draw(12));
        store_close(open_and_check(run));
        lose(run);
        struct log_saved found = {0};
        const enum error_code code = agreement_open_store(path, &store, &found, &err);
        log_saved_clear(&found);
        store_close(store);
        if (code) {
            assert_int_equal(code, ERROR_INVALID);
            n_refused++;
            return;
        }
    }
}

static void what_cannot_be_kept_is_found_missing(void **unused)
{
    n_refused = 0;
    each_seed(40, three_in_a_row);
    print_message("# %llu stores were refused\n", (unsigned long long)n_refused);
}

/* One short story, with the power lost at each of its steps. */
static void losses_at_every_step(uint64_t seed, struct run *run)
{
    bool lost = true;
    for (uint64_t at = 1; lost; at++) {
        run_clear(run);
        *run = (struct run){.writes = run->writes, .losses = run->losses, .seen = run->seen};
        power_reset(seed * PAST + at);
        store_writes_seed(seed);
        draw_kind(run);
        run->large = false;
        power_lose_at(at);
        live(run, 8);
        if (!power_is_off())
            live(run, 8);
        lost = power_is_off();
        lose(run);
        live(run, 2);
    }
}

static void every_step_is_a_bad_one(void **unused)
{
    each_seed(2, losses_at_every_step);
}

/* ---- leaving a cluster: another member's store takes the place of this one ---- */

static void leaving(uint64_t seed, struct run *run)
{
    (void)seed;
    draw_kind(run);
    for (int life = 0; life < 6; life++) {
        live(run, 1 + (uint32_t)store_writes_draw(10));
        struct store *store = NULL;
        struct log_saved found = {0};
        power_lose_at(1 + store_writes_draw(60));
        const bool replaced = agreement_replace_store(path, &store, &found, &err) == ERROR_NONE;
        store_close(store);
        log_saved_clear(&found);
        lose(run);
        assert_int_equal(agreement_open_store(path, &store, &found, &err), ERROR_NONE);
        const bool is_old = store_member(store) == run->member;
        struct log_saved nothing = {0};
        if (is_old ? replaced || !store_writes_same(&found, &run->acknowledged)
                   : !store_writes_same(&found, &nothing))
            fail_msg("seed %llu: after it was left: %s, entries up to %llu",
                     (unsigned long long)seed_under_way, is_old ? "the old store" : "a new store",
                     (unsigned long long)(found.log.n ? log_last(&found.log) : 0));
        run->made = is_old;
        if (!is_old)
            log_saved_clear(&run->acknowledged);
        store_close(store);
        log_saved_clear(&found);
    }
}

static void a_store_that_was_left_stays_apart(void **unused)
{
    each_seed(40, leaving);
}

/* ---- a disk that lies ---- */

static struct {
    uint64_t refused, another, older, whole, mixed;
} lied;

/* What is found after one life on a disk that lies about a part of its syncs. */
static void judge(struct run *run, struct log_saved *past, uint32_t n)
{
    struct store *store;
    struct log_saved found = {0};
    if (agreement_open_store(path, &store, &found, &err)) {
        assert_int_equal(err.code, ERROR_INVALID);
        assert_non_null(strstr(err.text, "store: "));
        lied.refused++;
        return;
    }
    if (store_member(store) != run->member)
        lied.another++;
    else if (store_writes_same(&found, &run->acknowledged))
        lied.whole++;
    else if (was_there(past, n, &found))
        lied.older++;
    else
        lied.mixed++;
    store_close(store);
    log_saved_clear(&found);
}

static void life_on_lies(uint64_t seed, struct run *run)
{
    static struct log_saved past[PAST];
    uint32_t n = 0;
    draw_kind(run);
    live(run, 1 + (uint32_t)store_writes_draw(20));
    power_lie(store_writes_draw(2) ? 100 : 1 + (uint32_t)store_writes_draw(99));
    for (uint64_t lives = 1 + store_writes_draw(3); lives; lives--) {
        struct store *store = open_and_check(run);
        copy(&past[n++], &run->acknowledged);
        for (uint64_t i = store_writes_draw(30); i; i--) {
            assert_true(write_once(run, store));
            copy(&past[n++], &run->acknowledged);
        }
        store_close(store);
    }
    lose(run);
    judge(run, past, n);
    while (n)
        log_saved_clear(&past[--n]);
    (void)seed;
}

static void a_lying_disk_is_found_out_or_is_only_late(void **unused)
{
    memset(&lied, 0, sizeof lied);
    each_seed(40, life_on_lies);
    print_message(
        "# after lies: %llu refused, %llu new members, %llu went back, %llu whole, %llu mixed\n",
        (unsigned long long)lied.refused, (unsigned long long)lied.another,
        (unsigned long long)lied.older, (unsigned long long)lied.whole,
        (unsigned long long)lied.mixed);
    assert_true(lied.mixed == 0);
}

int main(void)
{
    power_vfs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_acknowledged_is_there),
        cmocka_unit_test(what_was_acknowledged_survives_failures),
        cmocka_unit_test(what_cannot_be_kept_is_found_missing),
        cmocka_unit_test(every_step_is_a_bad_one),
        cmocka_unit_test(a_store_that_was_left_stays_apart),
        cmocka_unit_test(a_lying_disk_is_found_out_or_is_only_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
