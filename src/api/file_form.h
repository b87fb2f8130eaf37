/* The form that uploads a file: multipart/form-data (RFC 7578, RFC 2046 section 5.1). Pure.
 *
 * The body's first line is the delimiter: clients put nothing before it. libcurl can only write
 * such forms, and libwebsockets reads them on the loop with the connection's headers at hand, while
 * bodies are read off it. */
#pragma once

#include "api/errors.h"
#include "api/request_json.h"

#include <stdbool.h>

enum {
    FILE_FORM_PARTS = 16,
    FILE_FORM_HEAD_BYTES = 4096,    /* of one part's headers */
    FILE_FORM_DELIMITER_BYTES = 74, /* RFC 2046: "--" and at most 70, and those clients use */
    FILE_FORM_NAME_BYTES = 200,
};

/* Texts point into the body. */
struct file_form {
    struct text data; /* data NULL: no file */
    struct text purpose;
    char name[FILE_FORM_NAME_BYTES + 1]; /* of the file, without a path; "": none was given */
};

/* False: `err` names the part that is wrong. */
bool file_form_read(const char *body, size_t size, struct file_form *out, struct api_error *err);
