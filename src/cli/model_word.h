/* What a command was given as MODEL, for this machine's node, whose current folder is another. */
#pragma once

#include "base/error.h"

#include <limits.h>

/* A file as its absolute path; else the word, as the name of a model that the cluster knows.
 * ERROR_NOT_FOUND: a word that can only be a file (it has a slash, or ends with .gguf) and is
 * none. */
enum error_code model_word(const char *word, char out[PATH_MAX], struct error *err);

/* Only a file. */
enum error_code model_word_file(const char *word, char out[PATH_MAX], struct error *err);
