/* A table with a line of titles and aligned columns, for people. Cells are taken row by row; what
 * is in them may be foreign: control characters become '?', bytes that are not UTF-8 U+FFFD. A
 * zeroed table with its titles is empty.
 *
 *     static const char *const titles[] = {"NAME", "STATE", NULL};
 *     struct table table = {titles};
 *     table_cell(&table, "%s", name);
 *     table_cell(&table, "%s", state);
 *     table_print(&table, &err);        // and frees */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

struct table {
    const char *const *titles; /* NULL after the last */
    struct buffer cells;       /* each ends with a NUL */
};

void table_cell(struct table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Rows must be whole. ERROR_NO_MEMORY prints nothing. */
enum error_code table_print(struct table *table, struct error *err);
void table_deinit(struct table *table);
