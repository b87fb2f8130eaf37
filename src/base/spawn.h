/* Starting a child process that shares nothing with this one but one descriptor. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

/* `program` is a path; `environment` is all that the child finds in its own. The child has a
 * process group of its own (a Ctrl-C at the terminal is not for it), no signal blocked or ignored,
 * /dev/null for its standard input and output, and for its errors unless it `tells_errors`. It
 * finds `given`, which stays the caller's, under the number `as`; all that is above that is closed
 * (glibc; elsewhere what is not close-on-exec stays). Returns 0, or errno's value. */
int spawn_child(const char *program, char *const arguments[], char *const environment[], int given,
                int as, bool tells_errors, pid_t *pid);
