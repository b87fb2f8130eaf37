/* A driver's library that is opened at run time, and the functions that are taken from it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* NULL when it cannot be opened, with the dynamic linker's reason. */
void *library_open(const char *path, char *reason, size_t size);
void library_close(void *library); /* NULL is fine */

/* One function: where its address goes, its name, and what it was called before (NULL: nothing
 * else). */
struct library_symbol {
    void *function; /* address of a function pointer, set to NULL when there is no such function */
    const char *name, *older;
};
void library_bind(void *library, const struct library_symbol *symbols, size_t n_symbols);
