#include "cluster/store_aside.h"

#include "base/limits.h"
#include "base/mem.h"
#include "cluster/store_sums.h"

#include <assert.h>
#include <string.h>

/* Made when first needed: a file without them is as good, for older versions, too. */
static const char keep_sql[] =
    "CREATE TABLE IF NOT EXISTS aside (number INTEGER PRIMARY KEY, generation INTEGER NOT NULL,"
    " founder INTEGER NOT NULL, term INTEGER NOT NULL, vote INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS aside_snapshot (number INTEGER PRIMARY KEY, idx INTEGER NOT NULL,"
    " term INTEGER NOT NULL, members_idx INTEGER NOT NULL, members BLOB NOT NULL,"
    " state BLOB NOT NULL, checksum INTEGER NOT NULL);"
    "CREATE TABLE IF NOT EXISTS aside_entry (number INTEGER NOT NULL, idx INTEGER NOT NULL,"
    " term INTEGER NOT NULL, type INTEGER NOT NULL, bytes BLOB NOT NULL,"
    " checksum INTEGER NOT NULL, PRIMARY KEY (number, idx));"
    "INSERT INTO aside SELECT 1 + coalesce((SELECT max(number) FROM aside), 0),"
    " generation, founder, term, vote FROM state;"
    "INSERT INTO aside_snapshot SELECT (SELECT max(number) FROM aside),"
    " idx, term, members_idx, members, state, checksum FROM snapshot;"
    "INSERT INTO aside_entry SELECT (SELECT max(number) FROM aside),"
    " idx, term, type, bytes, checksum FROM entry;"
    "DELETE FROM aside WHERE number <= (SELECT max(number) FROM aside) - 2;" /* STORE_ASIDES */
    "DELETE FROM aside_snapshot WHERE number NOT IN (SELECT number FROM aside);"
    "DELETE FROM aside_entry WHERE number NOT IN (SELECT number FROM aside);";

int store_aside_keep(sqlite3 *db)
{
    assert(!sqlite3_get_autocommit(db)); /* in a transaction */
    return sqlite3_exec(db, keep_sql, NULL, NULL, NULL);
}

/* ---- reading ---- */

static enum error_code aside_damaged(struct error *err)
{
    return error_set(err, ERROR_INVALID, "store: a log that was set aside is damaged");
}

static enum error_code aside_bytes(sqlite3_stmt *row, int column, size_t max, uint8_t **bytes,
                                   size_t *size, struct error *err)
{
    const void *blob = sqlite3_column_blob(row, column);
    *size = (size_t)sqlite3_column_bytes(row, column);
    if (*size > max)
        return aside_damaged(err);
    *bytes = mem_new(*size + 1);
    if (!*bytes)
        return error_set(err, ERROR_NO_MEMORY, "store: not enough memory for %zu bytes", *size);
    if (*size)
        memcpy(*bytes, blob, *size);
    return ERROR_NONE;
}

static uint64_t aside_number(sqlite3_stmt *row, int column)
{
    return (uint64_t)sqlite3_column_int64(row, column);
}

static enum error_code aside_state(sqlite3_stmt *row, struct log_saved *out, struct error *err)
{
    (void)err;
    out->lineage = (struct lineage){aside_number(row, 1), aside_number(row, 2)};
    out->term = aside_number(row, 3);
    out->vote = aside_number(row, 4);
    return ERROR_NONE;
}

static enum error_code aside_snapshot(sqlite3_stmt *row, struct log_saved *out, struct error *err)
{
    const size_t max = LIMIT_CLUSTER_SNAPSHOT_BYTES;
    struct log_snapshot *snapshot = &out->snapshot;
    snapshot->index = aside_number(row, 1);
    snapshot->term = aside_number(row, 2);
    snapshot->members_index = aside_number(row, 3);
    enum error_code code =
        aside_bytes(row, 4, max, &snapshot->members, &snapshot->members_size, err);
    if (!code)
        code = aside_bytes(row, 5, max, &snapshot->state, &snapshot->state_size, err);
    if (!code && aside_number(row, 6) != store_sum_snapshot(snapshot))
        code = aside_damaged(err);
    return code;
}

static enum error_code aside_entry(sqlite3_stmt *row, struct log_saved *out, struct error *err)
{
    const uint64_t index = aside_number(row, 1);
    struct log_entry entry = {.term = aside_number(row, 2),
                              .type = (enum log_type)aside_number(row, 3)};
    if (!out->log.n)
        out->log.first = index;
    enum error_code code =
        aside_bytes(row, 4, LIMIT_CLUSTER_ENTRY_BYTES, &entry.bytes, &entry.size, err);
    if (!code && (index != out->log.first + out->log.n ||
                  aside_number(row, 5) != store_sum_entry(index, &entry)))
        code = aside_damaged(err);
    if (!code)
        code = log_append(&out->log, &entry, err);
    mem_free(entry.bytes);
    return code;
}

typedef enum error_code aside_row_fn(sqlite3_stmt *row, struct log_saved *out, struct error *err);

/* Each row of `number` in a table goes to `take`. *n: how many there were. */
static enum error_code aside_rows(sqlite3 *db, const char *sql, int64_t number, aside_row_fn *take,
                                  struct log_saved *out, uint64_t *n, struct error *err)
{
    sqlite3_stmt *rows = NULL;
    enum error_code code = ERROR_NONE;
    *n = 0;
    if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL)) /* no such table: nothing was set aside */
        return ERROR_NONE;
    sqlite3_bind_int64(rows, 1, number);
    for (; !code && sqlite3_step(rows) == SQLITE_ROW; ++*n)
        code = take(rows, out, err);
    sqlite3_finalize(rows);
    return code;
}

static int64_t last_aside(sqlite3 *db)
{
    sqlite3_stmt *row = NULL;
    int64_t number = 0;
    if (sqlite3_prepare_v2(db, "SELECT max(number) FROM aside", -1, &row, NULL))
        return 0;
    if (sqlite3_step(row) == SQLITE_ROW)
        number = sqlite3_column_int64(row, 0);
    sqlite3_finalize(row);
    return number;
}

enum error_code store_aside_load(sqlite3 *db, uint32_t back, struct log_saved *out,
                                 struct error *err)
{
    const int64_t number = last_aside(db) - (int64_t)back;
    uint64_t n, n_parts;
    *out = (struct log_saved){0};
    enum error_code code =
        aside_rows(db, "SELECT * FROM aside WHERE number = ?1", number, aside_state, out, &n, err);
    if (!code && !n)
        return error_set(err, ERROR_NOT_FOUND, "store: no log was set aside");
    if (!code)
        code = aside_rows(db, "SELECT * FROM aside_snapshot WHERE number = ?1", number,
                          aside_snapshot, out, &n_parts, err);
    if (!code)
        code = aside_rows(db, "SELECT * FROM aside_entry WHERE number = ?1 ORDER BY idx", number,
                          aside_entry, out, &n_parts, err);
    if (code)
        log_saved_clear(out);
    return code;
}
