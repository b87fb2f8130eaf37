#include "cluster/store.h"

#include "base/durable_file.h"
#include "base/limits.h"
#include "base/mem.h"
#include "cluster/store_aside.h"
#include "cluster/store_sums.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { APPLICATION_ID = 0x4d44634c, FORMAT = 2 }; /* "MDcL" */

enum statement {
    BEGIN,
    COMMIT,
    ROLLBACK,
    GET_STATE,
    PUT_STATE,
    GET_SNAPSHOT,
    PUT_SNAPSHOT,
    DROP_SNAPSHOT,
    GET_ENTRIES,
    PUT_ENTRY,
    SUMS_FROM,
    SUMS_BEFORE,
    DROP_FROM,
    DROP_BEFORE,
    GET_ENDS,
    STATEMENTS
};

static const char *const sql[STATEMENTS] = {
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
    [GET_STATE] = "SELECT member, generation, founder, term, vote, entries, snapshot, checksum "
                  "FROM state WHERE one = 1",
    [PUT_STATE] = "UPDATE state SET generation = ?2, founder = ?3, term = ?4, vote = ?5, entries = "
                  "?6, snapshot = ?7, "
                  "checksum = ?8"
                  " WHERE member = ?1",
    [GET_SNAPSHOT] =
        "SELECT idx, term, members_idx, members, state, checksum FROM snapshot WHERE one = 1",
    [PUT_SNAPSHOT] = "INSERT OR REPLACE INTO snapshot VALUES (1, ?1, ?2, ?3, ?4, ?5, ?6)",
    [DROP_SNAPSHOT] = "DELETE FROM snapshot",
    [GET_ENTRIES] = "SELECT idx, term, type, bytes, checksum FROM entry ORDER BY idx",
    [PUT_ENTRY] = "INSERT INTO entry VALUES (?1, ?2, ?3, ?4, ?5)",
    [SUMS_FROM] = "SELECT checksum FROM entry WHERE idx >= ?1",
    [SUMS_BEFORE] = "SELECT checksum FROM entry WHERE idx < ?1",
    [DROP_FROM] = "DELETE FROM entry WHERE idx >= ?1",
    [DROP_BEFORE] = "DELETE FROM entry WHERE idx < ?1",
    [GET_ENDS] = "SELECT min(idx), max(idx), (SELECT idx FROM snapshot) FROM entry",
};

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

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    struct store_state state;
    bool broken;
};

/* ---- errors ---- */

static enum error_code sqlite_error(sqlite3 *db, int code, const char *doing, struct error *err)
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

static enum error_code damaged(struct error *err, const char *what)
{
    return error_set(err, ERROR_INVALID, "store: the file is damaged: %s", what);
}

/* ---- statements ---- */

static uint64_t column_number(sqlite3_stmt *statement, int column)
{
    assert(column < sqlite3_column_count(statement));
    return (uint64_t)sqlite3_column_int64(statement, column);
}

static void bind_numbers(sqlite3_stmt *statement, const uint64_t *numbers, int n)
{
    assert(n <= sqlite3_bind_parameter_count(statement));
    for (int i = 0; i < n; i++)
        sqlite3_bind_int64(statement, i + 1, (sqlite3_int64)numbers[i]);
}

/* A blob of no bytes is not NULL. */
static int bind_bytes(sqlite3_stmt *statement, int at, const uint8_t *bytes, size_t size)
{
    assert(bytes || !size);
    return size ? sqlite3_bind_blob64(statement, at, bytes, size, SQLITE_STATIC)
                : sqlite3_bind_zeroblob(statement, at, 0);
}

static int store_run(struct store *s, enum statement which)
{
    assert(s->statements[which] && !sqlite3_stmt_busy(s->statements[which]));
    sqlite3_stmt *statement = s->statements[which];
    const int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    return code == SQLITE_DONE || code == SQLITE_ROW ? SQLITE_OK : code;
}

static int run_with(struct store *s, enum statement which, const uint64_t *numbers, int n)
{
    bind_numbers(s->statements[which], numbers, n);
    return store_run(s, which);
}

/* ---- reading ---- */

static enum error_code read_bytes(sqlite3_stmt *statement, int column, size_t max, uint8_t **bytes,
                                  size_t *size, struct error *err)
{
    const void *blob = sqlite3_column_blob(statement, column);
    *size = (size_t)sqlite3_column_bytes(statement, column);
    if (*size > max || sqlite3_column_type(statement, column) != SQLITE_BLOB)
        return damaged(err, "a value is too large, or not bytes");
    *bytes = mem_new(*size + 1);
    if (!*bytes)
        return error_set(err, ERROR_NO_MEMORY, "store: not enough memory for %zu bytes", *size);
    if (*size)
        memcpy(*bytes, blob, *size);
    return ERROR_NONE;
}

static enum error_code read_state(struct store *s, struct error *err)
{
    assert(s->db && !s->broken);
    sqlite3_stmt *statement = s->statements[GET_STATE];
    enum error_code result = ERROR_NONE;
    const int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        s->state = (struct store_state){
            .member = column_number(statement, 0),
            .lineage = {column_number(statement, 1), column_number(statement, 2)},
            .term = column_number(statement, 3),
            .vote = column_number(statement, 4),
            .entries = column_number(statement, 5),
            .snapshot = column_number(statement, 6),
        };
        if (column_number(statement, 7) != store_sum_state(&s->state) || !s->state.member)
            result = damaged(err, "term and vote do not match their checksum");
    } else {
        result = code == SQLITE_DONE ? damaged(err, "term and vote are missing")
                                     : sqlite_error(s->db, code, "reading", err);
    }
    sqlite3_reset(statement);
    return result;
}

static enum error_code read_snapshot(struct store *s, struct log_snapshot *out, struct error *err)
{
    sqlite3_stmt *statement = s->statements[GET_SNAPSHOT];
    enum error_code result = ERROR_NONE;
    uint64_t sum = 0;
    const int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        sum = column_number(statement, 5);
        out->index = column_number(statement, 0);
        out->term = column_number(statement, 1);
        out->members_index = column_number(statement, 2);
        const size_t max = LIMIT_CLUSTER_SNAPSHOT_BYTES;
        result = read_bytes(statement, 3, max, &out->members, &out->members_size, err);
        if (!result)
            result = read_bytes(statement, 4, max, &out->state, &out->state_size, err);
        if (!result && (sum != store_sum_snapshot(out) || !out->index))
            result = damaged(err, "the snapshot does not match its checksum");
    } else if (code != SQLITE_DONE) {
        result = sqlite_error(s->db, code, "reading", err);
    }
    if (!result && sum != s->state.snapshot)
        result = damaged(err, "state and snapshot are of different moments");
    sqlite3_reset(statement);
    return result;
}

static enum error_code read_entry(sqlite3_stmt *statement, struct log *log, struct error *err)
{
    assert(log->n == 0 || log->first);
    const uint64_t index = column_number(statement, 0), type = column_number(statement, 2);
    struct log_entry entry = {.term = column_number(statement, 1)};
    if (!log->n)
        log->first = index;
    if (index == 0 || index != log->first + log->n || type < LOG_EVENT || type > LOG_MEMBERS)
        return damaged(err, "an entry is missing");
    entry.type = (enum log_type)type;
    enum error_code code =
        read_bytes(statement, 3, LIMIT_CLUSTER_ENTRY_BYTES, &entry.bytes, &entry.size, err);
    if (!code && column_number(statement, 4) != store_sum_entry(index, &entry))
        code = damaged(err, "an entry does not match its checksum");
    if (!code)
        code = log_append(log, &entry, err);
    mem_free(entry.bytes);
    return code;
}

static enum error_code read_entries(struct store *s, struct log *out, struct error *err)
{
    sqlite3_stmt *statement = s->statements[GET_ENTRIES];
    enum error_code result = ERROR_NONE;
    uint64_t sums = 0;
    int code;
    while (!result && (code = sqlite3_step(statement)) == SQLITE_ROW) {
        result = read_entry(statement, out, err);
        sums ^= column_number(statement, 4);
    }
    if (!result && code != SQLITE_DONE)
        result = sqlite_error(s->db, code, "reading", err);
    else if (!result && sums != s->state.entries)
        result = damaged(err, "state and entries are of different moments");
    sqlite3_reset(statement);
    return result;
}

enum error_code store_load(struct store *s, struct log_saved *out, struct error *err)
{
    assert(sqlite3_get_autocommit(s->db));
    *out = (struct log_saved){0};
    enum error_code code = read_state(s, err);
    if (!code)
        code = read_snapshot(s, &out->snapshot, err);
    if (!code)
        code = read_entries(s, &out->log, err);
    out->lineage = s->state.lineage;
    out->term = s->state.term;
    out->vote = s->state.vote;
    if (!code && log_saved_check(out, err))
        code = error_wrap(err, "store: the file is damaged");
    if (code)
        log_saved_clear(out);
    return code;
}

enum error_code store_load_aside(struct store *s, uint32_t back, struct log_saved *out,
                                 struct error *err)
{
    return store_aside_load(s->db, back, out, err);
}

/* ---- writing ---- */

/* Entries that are dropped; their checksums go from the seal. */
static int store_drop(struct store *s, enum statement sums, enum statement entries, uint64_t index)
{
    sqlite3_stmt *statement = s->statements[sums];
    int code;
    bind_numbers(statement, &index, 1);
    while ((code = sqlite3_step(statement)) == SQLITE_ROW)
        s->state.entries ^= column_number(statement, 0);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? run_with(s, entries, &index, 1) : code;
}

static int put_snapshot(struct store *s, const struct log_write *write)
{
    assert(write->has_snapshot && write->snapshot.index);
    const struct log_snapshot *snapshot = &write->snapshot;
    sqlite3_stmt *statement = s->statements[PUT_SNAPSHOT];
    s->state.snapshot = store_sum_snapshot(snapshot);
    bind_numbers(statement,
                 (const uint64_t[]){snapshot->index, snapshot->term, snapshot->members_index}, 3);
    bind_bytes(statement, 4, snapshot->members, snapshot->members_size);
    bind_bytes(statement, 5, snapshot->state, snapshot->state_size);
    sqlite3_bind_int64(statement, 6, (sqlite3_int64)s->state.snapshot);
    const int code = store_run(s, PUT_SNAPSHOT);
    if (code)
        return code;
    return write->clear_log ? store_drop(s, SUMS_FROM, DROP_FROM, 0)
                            : store_drop(s, SUMS_BEFORE, DROP_BEFORE, write->keep_from);
}

/* Whether entries from `first` on leave no gap. */
static int check_follows(struct store *s, uint64_t first, bool *follows)
{
    sqlite3_stmt *statement = s->statements[GET_ENDS];
    const int code = sqlite3_step(statement);
    if (code == SQLITE_ROW) {
        const bool empty = sqlite3_column_type(statement, 0) == SQLITE_NULL;
        const uint64_t low = column_number(statement, 0), high = column_number(statement, 1);
        const uint64_t snapshot = column_number(statement, 2);
        *follows = empty ? first == snapshot + 1 : first >= low && first <= high + 1;
    }
    sqlite3_reset(statement);
    return code == SQLITE_ROW ? SQLITE_OK : code;
}

static int put_entries(struct store *s, const struct log *log, bool *follows)
{
    assert(log->n && log->first);
    int code = check_follows(s, log->first, follows);
    if (!code && *follows)
        code = store_drop(s, SUMS_FROM, DROP_FROM, log->first);
    for (uint32_t i = 0; i < log->n && !code && *follows; i++) {
        const struct log_entry *entry = &log->entries[i];
        const uint64_t index = log->first + i;
        sqlite3_stmt *statement = s->statements[PUT_ENTRY];
        bind_numbers(statement, (const uint64_t[]){index, entry->term, entry->type}, 3);
        bind_bytes(statement, 4, entry->bytes, entry->size);
        const uint64_t sum = store_sum_entry(index, entry);
        sqlite3_bind_int64(statement, 5, (sqlite3_int64)sum);
        s->state.entries ^= sum;
        code = store_run(s, PUT_ENTRY);
    }
    return code;
}

/* Last, since it seals what the others have put. */
static int put_state(struct store *s)
{
    assert(s->state.member && !sqlite3_get_autocommit(s->db)); /* in the transaction */
    const struct store_state *state = &s->state;
    const uint64_t numbers[] = {
        state->member,  state->lineage.generation, state->lineage.founder, state->term, state->vote,
        state->entries, state->snapshot,           store_sum_state(state)};
    return run_with(s, PUT_STATE, numbers, 8);
}

static int reset(struct store *s, const struct lineage lineage)
{
    const int code = store_run(s, DROP_SNAPSHOT);
    s->state = (struct store_state){
        .member = s->state.member, .lineage = lineage, .entries = s->state.entries};
    return code ? code : store_drop(s, SUMS_FROM, DROP_FROM, 0);
}

static int put_all(struct store *s, const struct log_write *write, bool *follows)
{
    int code = write->reset && write->aside ? store_aside_keep(s->db) : SQLITE_OK;
    if (!code && write->reset)
        code = reset(s, write->lineage);
    if (write->has_term)
        s->state.term = write->term, s->state.vote = write->vote;
    if (!code && write->has_snapshot)
        code = put_snapshot(s, write);
    if (!code && write->log.n)
        code = put_entries(s, &write->log, follows);
    return code ? code : put_state(s);
}

enum error_code store_write(struct store *s, const struct log_write *write, struct error *err)
{
    assert(sqlite3_get_autocommit(s->db)); /* nothing of an earlier one is open */
    if (s->broken)
        return error_set(err, ERROR_IO, "store: an earlier write failed; open it again");
    bool follows = true;
    int code = store_run(s, BEGIN);
    if (!code)
        code = put_all(s, write, &follows);
    if (!code && follows)
        code = store_run(s, COMMIT);
    if (!code && follows)
        return ERROR_NONE;
    const enum error_code result =
        code ? sqlite_error(s->db, code, "writing", err)
             : error_set(err, ERROR_INVALID,
                         "store: entries from %llu on do not follow those that are there",
                         (unsigned long long)write->log.first);
    s->broken = true;
    if (!sqlite3_get_autocommit(s->db))
        store_run(s, ROLLBACK);
    return result;
}

/* ---- opening ---- */

static enum error_code execute(sqlite3 *db, const char *text, const char *doing, struct error *err)
{
    const int code = sqlite3_exec(db, text, NULL, NULL, NULL);
    return code ? sqlite_error(db, code, doing, err) : ERROR_NONE;
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
    return quick_check(db) ? ERROR_NONE : damaged(err, "its pages do not fit together");
}

static enum error_code prepare_all(struct store *s, struct error *err)
{
    for (int i = 0; i < STATEMENTS; i++) {
        const int code = sqlite3_prepare_v3(s->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &s->statements[i], NULL);
        if (code)
            return (code & 0xff) == SQLITE_ERROR ? damaged(err, sqlite3_errmsg(s->db))
                                                 : sqlite_error(s->db, code, "opening", err);
    }
    return ERROR_NONE;
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
    return code ? sqlite_error(NULL, code, "opening", err) : ERROR_NONE;
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

static enum error_code open_file(struct store *s, const char *path, struct error *err)
{
    store_make_private(path);
    const int code = sqlite3_open_v2(
        path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (code)
        return sqlite_error(s->db, code, "opening", err);
    sqlite3_extended_result_codes(s->db, 1);
    /* What a power loss interrupts may take the rest of its sector with it, which may hold what was
     * acknowledged. Else SQLite takes it for granted that it does not. */
    int spares_neighbours = 0;
    sqlite3_file_control(s->db, "main", SQLITE_FCNTL_POWERSAFE_OVERWRITE, &spares_neighbours);
    enum error_code result = execute(s->db, settings, "opening", err);
    if (!result)
        result = check_file(s->db, err);
    if (!result)
        result = prepare_all(s, err);
    if (!result)
        result = read_state(s, err);
    if (!result)
        result = empty_wal(s->db, err);
    return result ? result : sync_folder(path, err);
}

enum error_code store_open(const char *path, struct store **out, struct error *err)
{
    *out = NULL;
    if (access(path, F_OK))
        return error_set(err, errno == ENOENT ? ERROR_NOT_FOUND : ERROR_IO, "store: %s: %s", path,
                         strerror(errno));
    struct store *s = mem_new(sizeof *s);
    if (!s)
        return error_set(err, ERROR_NO_MEMORY, "store: not enough memory");
    const enum error_code code = open_file(s, path, err);
    if (code) {
        store_close(s);
        error_wrap(err, "%s", path);
        return code;
    }
    *out = s;
    return ERROR_NONE;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db);
    mem_free(s);
}

uint64_t store_member(const struct store *s)
{
    assert(s->state.member);
    return s->state.member;
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
        opened ? sqlite_error(db, opened, "creating", err) : fill_new(db, member, err);
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
