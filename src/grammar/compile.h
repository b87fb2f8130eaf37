/* The compilers of the several kinds of source. Each fills an empty program up to its root, for
 * program_finish(). */
#pragma once

#include "grammar/program.h"

enum error_code schema_compile(const struct grammar_source *source, struct grammar *program,
                               struct error *err);
enum error_code gbnf_compile(const char *text, size_t size, struct grammar *program,
                             struct error *err);
