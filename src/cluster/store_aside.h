/* Logs that a higher lineage took the place of, in tables of their own in the store's file: the
 * last STORE_ASIDES, for a person to look at. Rows as they were, with their checksums. */
#pragma once

#include "cluster/log.h"

#include <sqlite3.h>

enum { STORE_ASIDES = 2 };

/* Within the transaction that replaces it: a copy of what is there. SQLite's code. */
int store_aside_keep(sqlite3 *db);
/* See store_load_aside(). */
enum error_code store_aside_load(sqlite3 *db, uint32_t back, struct log_saved *out,
                                 struct error *err);
