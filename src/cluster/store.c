#include "cluster/store.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/store_aside.h"
#include "cluster/store_file.h"
#include "cluster/store_sums.h"

#include <assert.h>
#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>

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

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    struct store_state state;
    bool broken;
};

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
        return store_file_damaged(err, "a value is too large, or not bytes");
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
            result = store_file_damaged(err, "term and vote do not match their checksum");
    } else {
        result = code == SQLITE_DONE ? store_file_damaged(err, "term and vote are missing")
                                     : store_file_error(s->db, code, "reading", err);
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
            result = store_file_damaged(err, "the snapshot does not match its checksum");
    } else if (code != SQLITE_DONE) {
        result = store_file_error(s->db, code, "reading", err);
    }
    if (!result && sum != s->state.snapshot)
        result = store_file_damaged(err, "state and snapshot are of different moments");
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
        return store_file_damaged(err, "an entry is missing");
    entry.type = (enum log_type)type;
    enum error_code code =
        read_bytes(statement, 3, LIMIT_CLUSTER_ENTRY_BYTES, &entry.bytes, &entry.size, err);
    if (!code && column_number(statement, 4) != store_sum_entry(index, &entry))
        code = store_file_damaged(err, "an entry does not match its checksum");
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
        result = store_file_error(s->db, code, "reading", err);
    else if (!result && sums != s->state.entries)
        result = store_file_damaged(err, "state and entries are of different moments");
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
        code ? store_file_error(s->db, code, "writing", err)
             : error_set(err, ERROR_INVALID,
                         "store: entries from %llu on do not follow those that are there",
                         (unsigned long long)write->log.first);
    s->broken = true;
    if (!sqlite3_get_autocommit(s->db))
        store_run(s, ROLLBACK);
    return result;
}

/* ---- opening ---- */

static enum error_code prepare_all(struct store *s, struct error *err)
{
    for (int i = 0; i < STATEMENTS; i++) {
        const int code = sqlite3_prepare_v3(s->db, sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                            &s->statements[i], NULL);
        if (code)
            return (code & 0xff) == SQLITE_ERROR ? store_file_damaged(err, sqlite3_errmsg(s->db))
                                                 : store_file_error(s->db, code, "opening", err);
    }
    return ERROR_NONE;
}

static enum error_code store_open_file(struct store *s, const char *path, struct error *err)
{
    enum error_code code = store_file_open(path, &s->db, err);
    if (!code)
        code = prepare_all(s, err);
    if (!code)
        code = read_state(s, err);
    return code ? code : store_file_settle(s->db, path, err);
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
    const enum error_code code = store_open_file(s, path, err);
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
