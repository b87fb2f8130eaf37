/* Regular expressions to automata; grammar.h tells the dialect. Pure. */
#pragma once

#include "grammar/dfa.h"

/* `search`: the expression may match anywhere in a string, unless it is anchored; otherwise it
 * matches the whole. ERROR_INVALID, ERROR_UNSUPPORTED: "at 17: …", counted in bytes from 0;
 * ERROR_BUSY: too many states. */
enum error_code regex_compile(const char *text, size_t size, bool search, struct dfa **out,
                              struct error *err);
