/* A store's file: made, opened, and checked to be one. What is in its tables is store.c's. */
#pragma once

#include "base/error.h"

#include <sqlite3.h>

/* Opened for this process alone, with the settings that a durable log needs. *out is to be closed
 * also after an error. ERROR_INVALID: not a store of this version, or a damaged one. */
enum error_code store_file_open(const char *path, sqlite3 **out, struct error *err);
/* Once its rows are known to be good: nothing of a write whose sync failed comes back. */
enum error_code store_file_settle(sqlite3 *db, const char *path, struct error *err);

/* SQLite's code in the words of a store; `db` may be NULL. */
enum error_code store_file_error(sqlite3 *db, int code, const char *doing, struct error *err);
enum error_code store_file_damaged(struct error *err, const char *what); /* ERROR_INVALID */
