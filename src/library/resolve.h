/* From what a user gives as MODEL to a file of this machine: the one place for commands and the
 * node. Threads: any; it reads folders, so not on a loop's thread. */
#pragma once

#include "base/error.h"

#include <limits.h>
#include <stdbool.h>

/* In this order:
 *   1. a path that is there (a file, or the folder of a model in several), or that can only be one
 *      (it begins with '/', './', '../'): its absolute path;
 *   2. a name that `medley models` shows (library_choose()).
 * ERROR_NOT_FOUND: neither; ERROR_INVALID: several models have that name, or it is not whole; the
 * text says what to do. */
enum error_code library_resolve(const char *word, char out[PATH_MAX], struct error *err);

/* Only the second: for words that come from elsewhere, where a path would be of another folder. */
enum error_code library_resolve_name(const char *word, char out[PATH_MAX], struct error *err);

/* Whether it can only be a path. */
bool library_word_is_path(const char *word);
