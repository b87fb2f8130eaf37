/* The store: the same as in memory whatever is written (log_saved_write() is the reference), killed
 * writers, failing writes, full disks, damaged files. */
#include "store_writes.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/replica.h"
#include "cluster/store.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64], path[128];
static struct error err;

static mode_t mode_of(const char *name)
{
    struct stat file;
    assert_int_equal(stat(name, &file), 0);
    return file.st_mode & 07777;
}

static int setup(void **state)
{
    snprintf(folder, sizeof folder, "/tmp/medley-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/log", folder);
    const mode_t before = umask(0);
    assert_int_equal(store_create(path, 77, &err), ERROR_NONE);
    assert_int_equal(umask(before), 0);
    assert_int_equal(mode_of(path), 0600);
    return 0;
}

static int teardown(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static struct store *opened(void)
{
    struct store *store;
    if (store_open(path, &store, &err))
        fail_msg("%s", err.text);
    assert_true(store_member(store) == 77);
    return store;
}

static struct log_saved loaded(struct store *store)
{
    struct log_saved saved;
    if (store_load(store, &saved, &err))
        fail_msg("%s", err.text);
    return saved;
}

static void holds(struct store *store, const struct log_saved *expected)
{
    struct log_saved found = loaded(store);
    assert_true(store_writes_same(&found, expected));
    log_saved_clear(&found);
}

/* ---- tests ---- */

static void new_store_is_empty(void **unused)
{
    struct store *store = opened();
    struct log_saved nothing = {0};
    holds(store, &nothing);
    store_close(store);
    assert_int_equal(store_create(path, 78, &err), ERROR_INVALID);
    store_close(store = opened());
    assert_int_equal(store_create("/nowhere/log", 78, &err), ERROR_IO);
}

static void is_what_memory_is(void **unused)
{
    struct log_saved reference = {0};
    struct store *store = opened();
    for (int i = 0; i < 400; i++) {
        struct log_write write = store_writes_next(&reference);
        assert_int_equal(log_saved_write(&reference, &write, &err), ERROR_NONE);
        if (store_write(store, &write, &err))
            fail_msg("%s", err.text);
        log_write_clear(&write);
        if (store_writes_draw(10) == 0) {
            store_close(store);
            store = opened();
        }
        if (store_writes_draw(4) == 0)
            holds(store, &reference);
    }
    holds(store, &reference);
    store_close(store);
    log_saved_clear(&reference);
}

static void a_gap_is_refused(void **unused)
{
    struct store *store = opened();
    struct log_write write = {.reset = true, .lineage = {1, 77}, .has_term = true, .term = 1};
    store_writes_entries(&write, 1, 3, 1);
    assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
    struct log_saved before = loaded(store);
    struct log_write gap = {0};
    store_writes_entries(&gap, 5, 1, 1);
    assert_int_equal(store_write(store, &gap, &err), ERROR_INVALID);
    assert_int_equal(store_write(store, &write, &err),
                     ERROR_IO); /* nothing more until it is opened again */
    store_close(store);
    store = opened();
    holds(store, &before);
    store_close(store);
    log_saved_clear(&before);
    log_write_clear(&write);
    log_write_clear(&gap);
}

/* The log of a lower lineage stays beside that of the higher one: the last two. */
static void what_is_replaced_is_kept_aside(void **unused)
{
    struct store *store = opened();
    struct log_saved held[4] = {0}, aside;
    assert_int_equal(store_load_aside(store, 0, &aside, &err), ERROR_NOT_FOUND);
    for (uint64_t k = 0; k < 4; k++) {
        struct log_write write = {.reset = true,
                                  .aside = k > 0,
                                  .lineage = {1 + k, 77},
                                  .has_term = true,
                                  .term = 2 + k,
                                  .vote = 5 * k};
        store_writes_entries(&write, 1, 3 + (uint32_t)k, 1 + k);
        assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
        log_write_clear(&write);
        held[k] = loaded(store);
    }
    store_close(store);
    store = opened();
    holds(store, &held[3]);
    for (uint32_t back = 0; back < 2; back++) {
        assert_int_equal(store_load_aside(store, back, &aside, &err), ERROR_NONE);
        assert_true(store_writes_same(&aside, &held[2 - back]));
        log_saved_clear(&aside);
    }
    assert_int_equal(store_load_aside(store, 2, &aside, &err), ERROR_NOT_FOUND);
    store_close(store);
    for (int k = 0; k < 4; k++)
        log_saved_clear(&held[k]);
}

/* Its life in one file: found, open, submit, write, close. */
static void a_replica_lives_in_it(void **unused)
{
    struct replica_options options = replica_options_default();
    options.id = 77;
    options.snapshot_after = 10;
    options.trailing = 3;
    struct log_write first;
    assert_int_equal(replica_found(77, &first, &err), ERROR_NONE);
    struct store *store = opened();
    assert_int_equal(store_write(store, &first, &err), ERROR_NONE);
    log_write_clear(&first);
    uint64_t expected = 1, term = 0;
    for (int life = 0; life < 5; life++) {
        struct log_saved saved = loaded(store);
        struct replica *replica;
        struct replica_effect effect;
        assert_int_equal(replica_open(&options, &saved, 1000, &replica, &err), ERROR_NONE);
        log_saved_clear(&saved);
        expected++; /* the entry that its term begins with */
        for (int i = 0; i < 8; i++) {
            while (replica_next(replica, &effect)) {
                if (effect.type == REPLICA_WRITE) {
                    assert_int_equal(store_write(store, &effect.write, &err), ERROR_NONE);
                    replica_written(replica, 1000, effect.write.sequence);
                } else if (effect.type == REPLICA_SNAPSHOT) {
                    replica_snapshot(replica, 1000, effect.index, (const uint8_t *)"state", 5);
                } else if (effect.type == REPLICA_RESTORE) {
                    assert_memory_equal(effect.bytes, "state", 5);
                }
                replica_effect_clear(&effect);
            }
            uint64_t index;
            if (i < 7) {
                assert_int_equal(
                    replica_submit(replica, 1000, (const uint8_t *)"event", 5, &index, &err),
                    ERROR_NONE);
                assert_true(index == ++expected);
            }
        }
        const struct replica_status status = replica_status(replica);
        assert_true(status.leads && status.applied == expected && status.term > term);
        term = status.term;
        replica_close(replica);
        store_close(store);
        store = opened();
    }
    struct log_saved saved = loaded(store);
    assert_true(saved.snapshot.index >= 30 && saved.log.n < 15);
    log_saved_clear(&saved);
    store_close(store);
}

/* ---- kill -9 ---- */

/* Writes one entry after the other and says so when each is acknowledged. */
static void write_for_ever(int acknowledge)
{
    struct store *store;
    struct log_saved saved;
    if (store_open(path, &store, &err) || store_load(store, &saved, &err))
        _exit(1);
    for (uint64_t i = saved.log.n ? log_last(&saved.log) + 1 : 1;; i++) {
        uint8_t bytes[3000];
        memset(bytes, (int)i, sizeof bytes);
        const struct log_entry entry = {.term = 1,
                                        .type = i == 1 ? LOG_MEMBERS : LOG_EVENT,
                                        .bytes = bytes,
                                        .size = i % sizeof bytes};
        struct log_write next = {.has_term = true, .term = 1, .vote = i};
        next.log.first = i;
        if (log_append(&next.log, &entry, &err) || store_write(store, &next, &err) ||
            write(acknowledge, &i, sizeof i) != sizeof i)
            _exit(1);
        log_write_clear(&next);
    }
}

static void survives_kill(void **unused)
{
    uint64_t acknowledged = 0;
    for (int round = 0; round < 25; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            write_for_ever(ends[1]);
        }
        close(ends[1]);
        uint64_t index, wanted = 1 + store_writes_draw(20), seen = 0;
        while (seen < wanted && read(ends[0], &index, sizeof index) == sizeof index)
            acknowledged = index, seen++;
        usleep((useconds_t)store_writes_draw(3000));
        kill(child, SIGKILL);
        while (read(ends[0], &index, sizeof index) == sizeof index)
            acknowledged = index, seen++;
        close(ends[0]);
        int status;
        waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) && seen);
        struct store *store = opened();
        struct log_saved saved = loaded(store);
        const uint64_t last = log_last(&saved.log);
        assert_true(last == acknowledged || last == acknowledged + 1);
        assert_true(saved.vote == last);
        for (uint64_t i = 1; i <= last; i++) {
            const struct log_entry *entry = log_at(&saved.log, i);
            assert_true(entry->size == i % 3000 &&
                        (entry->size == 0 || entry->bytes[entry->size - 1] == (uint8_t)i));
        }
        log_saved_clear(&saved);
        store_close(store);
    }
}

static void one_process_at_a_time(void **unused)
{
    struct store *store = opened(), *second;
    int status;
    const pid_t child = fork();
    if (child == 0)
        _exit(store_open(path, &second, &err) == ERROR_BUSY ? 0 : 1);
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    store_close(store);
}

/* ---- failing I/O: a file system between SQLite and the real one, whose Nth call fails ---- */

static sqlite3_vfs *real_vfs, shim_vfs;
static sqlite3_io_methods shim_methods[2]; /* of the main file and of the others */
static const sqlite3_io_methods *real_methods[2];
static int calls_to_failure, failure_code; /* 0: none is planned */

static bool fails_now(void)
{
    return calls_to_failure > 0 && --calls_to_failure == 0;
}

static const sqlite3_io_methods *real(const sqlite3_file *file)
{
    return real_methods[file->pMethods == &shim_methods[1]];
}

static int shim_write(sqlite3_file *file, const void *bytes, int n, sqlite3_int64 at)
{
    if (fails_now()) { /* half of it */
        real(file)->xWrite(file, bytes, n / 2, at);
        return failure_code;
    }
    return real(file)->xWrite(file, bytes, n, at);
}

static int shim_sync(sqlite3_file *file, int flags)
{
    return fails_now() ? SQLITE_IOERR_FSYNC : real(file)->xSync(file, flags);
}

static int shim_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    return fails_now() ? SQLITE_IOERR_TRUNCATE : real(file)->xTruncate(file, size);
}

static int shim_open(sqlite3_vfs *vfs, sqlite3_filename name, sqlite3_file *file, int flags,
                     int *out)
{
    const int code = real_vfs->xOpen(real_vfs, name, file, flags, out);
    if (code == SQLITE_OK) {
        const int which = !(flags & SQLITE_OPEN_MAIN_DB);
        real_methods[which] = file->pMethods;
        shim_methods[which] = *file->pMethods;
        shim_methods[which].xWrite = shim_write;
        shim_methods[which].xSync = shim_sync;
        shim_methods[which].xTruncate = shim_truncate;
        file->pMethods = &shim_methods[which];
    }
    return code;
}

static void put_shim(void)
{
    real_vfs = sqlite3_vfs_find(NULL);
    shim_vfs = *real_vfs;
    shim_vfs.zName = "shim";
    shim_vfs.xOpen = shim_open;
    sqlite3_vfs_register(&shim_vfs, 1);
}

/* Whichever call of a write fails: it is said, the store takes no more, and what is there is as
 * before it or, should the failure have come after the commit, as after it. */
static void fail_nth(int nth, int code, const struct log_saved *before)
{
    struct log_saved after;
    assert_int_equal(log_saved_copy(&after, before, &err), ERROR_NONE);
    struct log_write write = store_writes_next(before);
    assert_int_equal(log_saved_write(&after, &write, &err), ERROR_NONE);
    struct store *store = opened();
    calls_to_failure = nth;
    failure_code = code;
    const enum error_code result = store_write(store, &write, &err);
    const bool failed = calls_to_failure == 0;
    calls_to_failure = 0;
    if (failed) {
        assert_int_equal(result, ERROR_IO);
        if (code == SQLITE_FULL && strstr(err.text, "full") == NULL)
            assert_non_null(strstr(err.text, "I/O"));
        assert_int_equal(store_write(store, &write, &err), ERROR_IO);
    } else {
        assert_int_equal(result, ERROR_NONE);
    }
    store_close(store);
    store = opened();
    struct log_saved found = loaded(store);
    assert_true(failed ? store_writes_same(&found, before) || store_writes_same(&found, &after)
                       : store_writes_same(&found, &after));
    store_close(store);
    log_write_clear(&write);
    log_saved_clear(&found);
    log_saved_clear(&after);
}

static void says_when_io_fails(void **unused)
{
    put_shim();
    struct store *store = opened();
    struct log_saved saved = {0};
    for (int i = 0; i < 20; i++) {
        struct log_write write = store_writes_next(&saved);
        assert_int_equal(log_saved_write(&saved, &write, &err), ERROR_NONE);
        assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
        log_write_clear(&write);
    }
    store_close(store);
    for (int nth = 1; nth < 60; nth++) {
        fail_nth(nth / 2 + 1, nth % 2 ? SQLITE_FULL : SQLITE_IOERR_WRITE, &saved);
        log_saved_clear(&saved);
        store = opened();
        saved = loaded(store);
        store_close(store);
    }
    log_saved_clear(&saved);
    sqlite3_vfs_unregister(&shim_vfs);
}

/* ---- damaged files ---- */

static void flip_byte(long at, uint8_t with)
{
    FILE *file = fopen(path, "r+b");
    fseek(file, at, SEEK_SET);
    const int old = fgetc(file);
    fseek(file, at, SEEK_SET);
    fputc((uint8_t)old ^ with, file);
    fclose(file);
}

static void says_when_damaged(void **unused)
{
    struct log_saved saved = {0};
    struct store *store = opened();
    for (int i = 0; i < 30; i++) {
        struct log_write write = store_writes_next(&saved);
        assert_int_equal(log_saved_write(&saved, &write, &err), ERROR_NONE);
        assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
        log_write_clear(&write);
    }
    store_close(store);
    struct stat status;
    assert_int_equal(stat(path, &status), 0);
    uint32_t refused = 0;
    for (int i = 0; i < 400; i++) {
        const long at = (long)store_writes_draw((uint64_t)status.st_size);
        const uint8_t with = (uint8_t)(1 + store_writes_draw(255));
        struct log_saved found = {0};
        flip_byte(at, with);
        if (store_open(path, &store, &err) || store_load(store, &found, &err)) {
            assert_true(err.code == ERROR_INVALID || err.code == ERROR_IO);
            assert_non_null(strstr(err.text, "store: "));
            refused++;
        } else if (!store_writes_same(&found, &saved)) {
            fail_msg("a wrong byte at %ld changes what is read", at);
        }
        log_saved_clear(&found);
        store_close(store);
        flip_byte(at, with);
    }
    print_message("# %u of 400 wrong bytes were found, the rest means nothing\n", refused);
    assert_true(refused > 20);
    log_saved_clear(&saved);
}

static void says_when_it_is_no_store(void **unused)
{
    struct store *store;
    for (long size = 0; size < 40000; size = size * 3 + 1) { /* cut off; at 0 it is empty */
        assert_int_equal(truncate(path, size), 0);
        assert_int_equal(store_open(path, &store, &err), ERROR_INVALID);
        assert_null(store);
        if (size > 8192)
            break;
    }
    FILE *file = fopen(path, "wb");
    for (int i = 0; i < 20000; i++)
        fputc((int)store_writes_draw(256), file);
    fclose(file);
    assert_int_equal(store_open(path, &store, &err), ERROR_INVALID);
    unlink(path);
    assert_int_equal(store_open(path, &store, &err), ERROR_NOT_FOUND);
    sqlite3 *db;
    sqlite3_open(path, &db);
    sqlite3_exec(db, "CREATE TABLE other (x)", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_int_equal(store_open(path, &store, &err), ERROR_INVALID);
}

static void says_when_it_is_newer(void **unused)
{
    sqlite3 *db;
    struct store *store;
    sqlite3_open(path, &db);
    sqlite3_exec(db, "PRAGMA user_version=3", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_int_equal(store_open(path, &store, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "format 3"));
}

/* ---- a disk that is really full: a file system of a few hundred kB would need root; a limit does
 * the same  */

static void says_when_the_disk_is_full(void **unused)
{
    struct store *store = opened();
    struct log_saved saved = {0};
    struct log_write write = store_writes_next(&saved);
    assert_int_equal(store_write(store, &write, &err), ERROR_NONE);
    log_write_clear(&write);
    store_close(store);
    int status;
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGXFSZ, SIG_IGN);
        const struct rlimit limit = {200 * 1024, 200 * 1024};
        if (setrlimit(RLIMIT_FSIZE, &limit) || store_open(path, &store, &err))
            _exit(2);
        for (uint64_t i = 2; i < 10000; i++) {
            struct log_write more = {0};
            uint8_t bytes[4000] = {0};
            const struct log_entry entry = {
                .term = 9, .type = LOG_EVENT, .bytes = bytes, .size = sizeof bytes};
            more.has_term = true, more.term = 9, more.vote = i;
            more.log.first = i;
            if (log_append(&more.log, &entry, &err))
                _exit(3);
            if (store_write(store, &more, &err))
                _exit(err.code == ERROR_IO && i > 10 ? 0 : 4);
            log_write_clear(&more);
        }
        _exit(5);
    }
    waitpid(child, &status, 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    store = opened();
    saved = loaded(store);
    assert_true(saved.log.n > 10 && saved.vote == log_last(&saved.log));
    log_saved_clear(&saved);
    store_close(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(new_store_is_empty, setup, teardown),
        cmocka_unit_test_setup_teardown(is_what_memory_is, setup, teardown),
        cmocka_unit_test_setup_teardown(a_gap_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_replaced_is_kept_aside, setup, teardown),
        cmocka_unit_test_setup_teardown(a_replica_lives_in_it, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_kill, setup, teardown),
        cmocka_unit_test_setup_teardown(one_process_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(says_when_io_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(says_when_the_disk_is_full, setup, teardown),
        cmocka_unit_test_setup_teardown(says_when_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(says_when_it_is_no_store, setup, teardown),
        cmocka_unit_test_setup_teardown(says_when_it_is_newer, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
