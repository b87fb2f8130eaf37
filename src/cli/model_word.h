/* What a command was given as MODEL, for this machine's node. A command that opens the model itself
 * asks model_given(). */
#pragma once

#include "base/error.h"

#include <limits.h>

/* For this machine's node, whose current folder is another: a file as its absolute path; the name
 * of a model that the cluster knows as it is; else the path of what this machine has by that name,
 * or pulls (model_given.h). A name that nobody has is given to the node, which says so. */
enum error_code model_word(const char *word, char out[PATH_MAX], struct error *err);

/* Only a file or a model on this machine, in one file by itself or named by its first. */
enum error_code model_word_file(const char *word, char out[PATH_MAX], struct error *err);
