#include "cli/table.h"

#include "cli/inspect.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { COLUMNS_MAX = 16, GAP = 2 };

void table_cell(struct table *table, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    assert(length >= 0);
    inspect_clean_text(&table->cells, text, strlen(text), true);
    buffer_append(&table->cells, "", 1);
}

/* In characters, as far as each of them is one place wide. */
static int table_width_of(const char *text)
{
    int width = 0;
    for (; *text; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void table_widen(int width[COLUMNS_MAX], int column, const char *text)
{
    const int own = table_width_of(text);
    width[column] = own > width[column] ? own : width[column];
}

static void print_cell(const char *text, int width, bool last)
{
    if (last)
        printf("%s\n", text);
    else
        printf("%s%*s", text, width - table_width_of(text) + GAP, "");
}

enum error_code table_print(struct table *table, struct error *err)
{
    int width[COLUMNS_MAX] = {0}, n_columns = 0, column = 0;
    if (table->cells.failed) {
        table_deinit(table);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the table");
    }
    for (; table->titles[n_columns]; n_columns++) {
        assert(n_columns < COLUMNS_MAX);
        table_widen(width, n_columns, table->titles[n_columns]);
    }
    const char *begin = table->cells.data, *end = begin + table->cells.size;
    for (const char *cell = begin; cell < end;
         cell += strlen(cell) + 1, column = (column + 1) % n_columns)
        table_widen(width, column, cell);
    assert(column == 0);
    for (int i = 0; i < n_columns; i++)
        print_cell(table->titles[i], width[i], i + 1 == n_columns);
    for (const char *cell = begin; cell < end;
         cell += strlen(cell) + 1, column = (column + 1) % n_columns)
        print_cell(cell, width[column], column + 1 == n_columns);
    table_deinit(table);
    return ERROR_NONE;
}

void table_deinit(struct table *table)
{
    buffer_deinit(&table->cells);
}
