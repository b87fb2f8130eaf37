/* Free text with calls of tools in it, as a program. Private to the grammar room; the source is
 * described in grammar.h. Failures stay in the program (program.h) or are in `err`. */
#pragma once

#include "grammar/program.h"

enum error_code calls_compile(const struct grammar_source *source, struct grammar *program,
                              struct error *err);
