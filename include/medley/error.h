/* Errors of Medley's C API: a code to decide by, and a text that says what happened and what
 * to do about it. A function that can fail for a reason outside the program returns
 * `enum medley_error_code`; MEDLEY_ERROR_NONE is 0. */
#pragma once

#ifdef __cplusplus
extern "C" {
#endif

enum medley_error_code {
    MEDLEY_ERROR_NONE = 0,
    MEDLEY_ERROR_INVALID,     /* what the caller gave is wrong: a handle, a range, a name */
    MEDLEY_ERROR_NOT_FOUND,   /* a device, library or file that is not there */
    MEDLEY_ERROR_NO_MEMORY,   /* host or device memory */
    MEDLEY_ERROR_UNSUPPORTED, /* understood, but not something this build or device can do */
    MEDLEY_ERROR_IO,          /* the operating system refused */
    MEDLEY_ERROR_DEVICE,      /* a device failed or lies */
    MEDLEY_ERROR_BUSY,        /* a limit is reached, or it is too late: try again later */
    MEDLEY_ERROR_CANCELLED,   /* somebody asked to stop */
    MEDLEY_ERROR_INTERNAL,    /* a library answered what its documentation rules out */
};

enum { MEDLEY_ERROR_TEXT_MAX = 512 };

/* Zero is "no error". The text is plain ASCII or UTF-8, without a newline, "" when the code is
 * 0. */
struct medley_error {
    enum medley_error_code code;
    char text[MEDLEY_ERROR_TEXT_MAX];
};

/* A short name of the code: "invalid", "not found" … Constant, never NULL. Any thread. */
const char *medley_error_name(enum medley_error_code code);

#ifdef __cplusplus
}
#endif
