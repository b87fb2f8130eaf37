/* Errors: one table of codes, and a text that says what happened and what to do.
 *
 * A function that can fail for a reason outside the program returns `enum error_code`
 * (ERROR_NONE is 0) and takes a `struct error *` last, owned by the caller. It fills it
 * exactly when it returns non-zero. A caller that passes the failure on may put its own
 * words in front with error_wrap(): "run: device vulkan0: out of memory (needs 5.2 GiB,
 * 3.9 GiB free)". Bugs are asserted, never returned.
 *
 * `err` may be NULL where the caller only wants the code. error_wrap() then knows none (its answer
 * is ERROR_INTERNAL), so who takes a NULL returns the code that he has and not what error_wrap()
 * says. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>

enum error_code {
    ERROR_NONE = 0,
    ERROR_INVALID,     /* the caller's input is wrong: a flag, a field, a file's content */
    ERROR_NOT_FOUND,   /* a file, device or model that is not there */
    ERROR_NO_MEMORY,   /* host or device memory */
    ERROR_UNSUPPORTED, /* understood, but not something this build or device can do */
    ERROR_IO,          /* the operating system refused */
    ERROR_DEVICE,      /* a device failed or lies */
    ERROR_BUSY,        /* a limit is reached; try again later */
    ERROR_CANCELLED,   /* somebody asked to stop */
    ERROR_INTERNAL,    /* a library answered what its documentation rules out */
};

enum { ERROR_TEXT_MAX = 512 };

struct error {
    enum error_code code;
    char text[ERROR_TEXT_MAX];
};

/* Fills *err and returns `code`, so that `return error_set(err, …)` reads well. */
enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "words: " before the text and returns the code that is there. */
enum error_code error_wrap(struct error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* A short name of the code: "invalid", "not found" … */
const char *error_name(enum error_code code);
