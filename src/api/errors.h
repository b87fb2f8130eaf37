/* Errors as the OpenAI API writes them: {"error":{"message","type","param","code"}} with an HTTP
 * status.
 *
 * An api_error is the caller's; a zeroed one (status 0) is no error. `type` and `code` are static
 * texts. The message may hold anything: the writer makes it valid UTF-8. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct api_error {
    unsigned status;
    const char *type;
    const char *code;       /* NULL: null */
    uint32_t retry_after_s; /* of 429 and 503; 0: a second */
    char param[128];        /* "": null; the field at fault, such as "messages[0].content" */
    char message[ERROR_TEXT_MAX];
};

/* All return false, so that `return api_error_field(…)` reads well. */
bool api_error_set(struct api_error *err, unsigned status, const char *type, const char *code,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));
/* 400 that names the field. */
bool api_error_field(struct api_error *err, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* What a lower room answered: ERROR_INVALID is 400, ERROR_BUSY 429, the rest 500 or 503. */
bool api_error_from(struct api_error *err, const struct error *cause);

void api_error_write(const struct api_error *err, struct buffer *out);

/* Whose clients read an answer. */
enum api_shape { API_SHAPE_OPENAI, API_SHAPE_ANTHROPIC, API_SHAPE_OLLAMA };
/* The same as those clients expect it. */
void api_error_write_as(const struct api_error *err, enum api_shape shape, struct buffer *out);
