#include "cluster/store_file.h"

#include "base/durable_file.h"
#include "cluster/store.h"
#include "cluster/store_sums.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x4d44634c, FORMAT = 2 }; /* "MDcL" */

static const char schema[] = "CREATE TABLE state (one INTEGER PRIMARY KEY CHECK (one = 1), member "
                             "INTEGER NOT NULL, generation INTEGER NOT NULL,"
                             " founder INTEGER NOT NULL, term INTEGER NOT NULL, vote INTEGER NOT "
                             "NULL, entries INTEGER NOT NULL,"
                             " snapshot INTEGER NOT NULL, checksum INTEGER NOT NULL);"
                             "CREATE TABLE snapshot (one INTEGER PRIMARY KEY CHECK (one = 1), idx "
                             "INTEGER NOT NULL, term INTEGER NOT NULL,"
                             " members_idx INTEGER NOT NULL, members BLOB NOT NULL, state BLOB NOT "
                             "NULL, checksum INTEGER NOT NULL);"
                             "CREATE TABLE entry (idx INTEGER PRIMARY KEY, term INTEGER NOT NULL, "
                             "type INTEGER NOT NULL, bytes BLOB NOT NULL,"
                             " checksum INTEGER NOT NULL);";

/* ---- errors ---- */

enum error_code store_file_error(sqlite3 *db, int code, const char *doing, struct error *err)
{
    const char *text = db ? sqlite3_errmsg(db) : sqlite3_errstr(code);
    switch (code & 0xff) {
    case SQLITE_NOMEM:
        return error_set(err, ERROR_NO_MEMORY, "store: %s: not enough memory", doing);
    case SQLITE_FULL:
        return error_set(err, ERROR_IO,
                         "store: %s: the disk is full; nothing that was acknowledged is lost",
                         doing);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return error_set(err, ERROR_BUSY, "store: %s: another process has the file open", doing);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_SCHEMA:
        return error_set(err, ERROR_INVALID, "store: %s: the file is damaged: %s", doing, text);
    default:
        return error_set(err, ERROR_IO, "store: %s: %s (%d)", doing, text, code);
    }
}

enum error_code store_file_damaged(struct error *err, const char *what)
{
    return error_set(err, ERROR_INVALID, "store: the file is damaged: %s", what);
}

/* ---- opening ---- */

static enum error_code execute(sqlite3 *db, const char *text, const char *doing, struct error *err)
{
    const int code = sqlite3_exec(db, text, NULL, NULL, NULL);
    return code ? store_file_error(db, code, doing, err) : ERROR_NONE;
}

/* A pragma's one number; -1: none. */
static int64_t pragma(sqlite3 *db, const char *text)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, text, -1, &statement, NULL))
        return -1;
    const int64_t value =
        sqlite3_step(statement) == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : -1;
    sqlite3_finalize(statement);
    return value;
}

static bool quick_check(sqlite3 *db)
{
    sqlite3_stmt *statement;
    if (sqlite3_prepare_v2(db, "PRAGMA quick_check(1)", -1, &statement, NULL))
        return false;
    const bool good = sqlite3_step(statement) == SQLITE_ROW &&
                      sqlite3_column_type(statement, 0) == SQLITE_TEXT &&
                      strcmp((const char *)sqlite3_column_text(statement, 0), "ok") == 0;
    sqlite3_finalize(statement);
    return good;
}

/* In this order: exclusive before WAL, so that there is no shared memory. */
static const char settings[] =
    "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
    "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;";

static enum error_code check_file(sqlite3 *db, struct error *err)
{
    if (pragma(db, "PRAGMA application_id") != APPLICATION_ID)
        return error_set(err, ERROR_INVALID,
                         "store: this is not a cluster's log, or it is damaged");
    const int64_t format = pragma(db, "PRAGMA user_version");
    if (format != FORMAT)
        return error_set(err, ERROR_INVALID,
                         "store: the file has format %lld; this version knows %d",
                         (long long)format, FORMAT);
    if (pragma(db, "PRAGMA synchronous") != 2)
        return error_set(err, ERROR_INTERNAL, "store: SQLite cannot promise to sync");
    return quick_check(db) ? ERROR_NONE : store_file_damaged(err, "its pages do not fit together");
}

/* All of the write-ahead log goes into the file, and none of it comes back: a write whose sync
 * failed is in the one, and may not be in what was durable of the other, which would undo it. */
static enum error_code empty_wal(sqlite3 *db, struct error *err)
{
    sqlite3_file *wal = NULL;
    enum error_code result = execute(db, "PRAGMA wal_checkpoint(TRUNCATE)", "opening", err);
    if (result)
        return result;
    int code = sqlite3_file_control(db, "main", SQLITE_FCNTL_JOURNAL_POINTER, &wal);
    if (!code && wal && wal->pMethods)
        code = wal->pMethods->xSync(wal, SQLITE_SYNC_NORMAL);
    return code ? store_file_error(NULL, code, "opening", err) : ERROR_NONE;
}

/* The write-ahead log's name must last. SQLite sees to that when it has made the file, but a
 * process that was killed may have made it, and got no further. */
static enum error_code sync_folder(const char *path, struct error *err)
{
    const int failure = durable_sync_folder_of(path);
    return failure ? error_set(err, ERROR_IO, "store: opening: its folder: %s", strerror(failure))
                   : ERROR_NONE;
}

/* Of versions that did not mind. SQLite gives its other files this one's mode when it makes them.
 */
static void store_make_private(const char *path)
{
    static const char *const ends[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        char name[PATH_MAX];
        if (snprintf(name, sizeof name, "%s%s", path, ends[i]) < (int)sizeof name)
            (void)!chmod(name, S_IRUSR | S_IWUSR); /* not there, or another's: opening says so */
    }
}

enum error_code store_file_open(const char *path, sqlite3 **out, struct error *err)
{
    store_make_private(path);
    const int code = sqlite3_open_v2(
        path, out, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (code)
        return store_file_error(*out, code, "opening", err);
    sqlite3_extended_result_codes(*out, 1);
    /* What a power loss interrupts may take the rest of its sector with it, which may hold what was
     * acknowledged. Else SQLite takes it for granted that it does not. */
    int spares_neighbours = 0;
    sqlite3_file_control(*out, "main", SQLITE_FCNTL_POWERSAFE_OVERWRITE, &spares_neighbours);
    const enum error_code result = execute(*out, settings, "opening", err);
    return result ? result : check_file(*out, err);
}

enum error_code store_file_settle(sqlite3 *db, const char *path, struct error *err)
{
    const enum error_code code = empty_wal(db, err);
    return code ? code : sync_folder(path, err);
}

/* ---- creating ---- */

static enum error_code fill_new(sqlite3 *db, uint64_t member, struct error *err)
{
    assert(member);
    const struct store_state first = {.member = member};
    char text[256];
    snprintf(text, sizeof text,
             "PRAGMA application_id=%d; PRAGMA user_version=%d; INSERT INTO state VALUES (1, %lld, "
             "0, 0, 0, 0, 0, 0, %lld);",
             APPLICATION_ID, FORMAT, (long long)member, (long long)store_sum_state(&first));
    enum error_code code = execute(db, "PRAGMA synchronous=EXTRA; BEGIN", "creating", err);
    if (!code)
        code = execute(db, schema, "creating", err);
    if (!code)
        code = execute(db, text, "creating", err);
    return code ? code : execute(db, "COMMIT", "creating", err);
}

enum error_code store_create(const char *path, uint64_t member, struct error *err)
{
    assert(member);
    char made[PATH_MAX];
    sqlite3 *db = NULL;
    if (!member || snprintf(made, sizeof made, "%s.new", path) >= (int)sizeof made)
        return error_set(err, ERROR_INVALID, "store: no member id, or the path is too long");
    if (access(path, F_OK) == 0)
        return error_set(err, ERROR_INVALID, "store: %s already exists", path);
    unlink(made);                                   /* of an earlier attempt */
    const mode_t before = umask(S_IRWXG | S_IRWXO); /* names, addresses and events are in it */
    int opened = sqlite3_open_v2(
        made, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOFOLLOW, NULL);
    umask(before);
    enum error_code code =
        opened ? store_file_error(db, opened, "creating", err) : fill_new(db, member, err);
    sqlite3_close(db);
    if (!code) {
        const bool renamed = renameat2(AT_FDCWD, made, AT_FDCWD, path, RENAME_NOREPLACE) == 0;
        const int failure = renamed ? durable_sync_folder_of(path) : errno;
        if (failure)
            code = error_set(err, ERROR_IO, "store: creating: %s", strerror(failure));
    }
    if (code) {
        unlink(made);
        error_wrap(err, "%s", path);
    }
    return code;
}
