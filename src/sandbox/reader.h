/* A process that reads what strangers made: a file's header, a picture, a template. It is this
 * program, started anew with a private first argument and one descriptor; its main() asks
 * reader_is_asked() for that argument first of all, and enters the sandbox before it looks at a
 * foreign byte. A flaw that crafted bytes reach finds neither keys nor files nor a network there.
 *
 * Any thread; reader_enter_sandbox() as sandbox_enter(). */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { READER_DESCRIPTOR = 3 };

/* ---- the node's side --------------------------------------------------------------------- */

/* It finds `given`, which stays the caller's, as READER_DESCRIPTOR; what it says of errors goes to
 * this process's if it `tells_errors`. Returns 0, or errno's value: then `pid` is 0. */
int reader_start(const char *program, const char *argument, int given, bool tells_errors,
                 pid_t *pid);
/* The same, with one end of a new stream; the other is `socket`, which the caller closes. */
int reader_start_with_socket(const char *program, const char *argument, bool tells_errors,
                             int *socket, pid_t *pid);
/* Ends it, whatever it is doing. */
void reader_end(pid_t pid);

/* ---- its own side ------------------------------------------------------------------------ */

bool reader_is_asked(int argc, char **argv, const char *argument);
/* Without files and devices, and with so much memory for its data (none is limited where a
 * sanitizer needs its own). */
enum error_code reader_enter_sandbox(uint64_t memory_bytes, struct error *err);
