/* The words that two machines show when one lets the other in by hand (docs/SECURITY.md): a person
 * says whether they are the same on both. */
#pragma once

#include "cli/daemon.h"

/* Shows `words` and asks on the terminal whether `name` shows the same. ERROR_UNSUPPORTED: there is
 * no terminal; `otherwise` says what to do then. */
enum error_code compare_ask(const char *words, const char *name, const char *otherwise, bool *agree,
                            struct error *err);

/* The same words, however they are written: case, blanks and hyphens do not count. */
bool compare_equal(const char *a, const char *b);

/* Writes {"agree": …}. */
enum error_code compare_send(struct daemon_client *client, bool agree, struct error *err);
