#include "api/errors.h"

#include "api/json_out.h"

#include <stdarg.h>
#include <stdio.h>

__attribute__((format(printf, 5, 0))) static void api_error_fill(struct api_error *err,
                                                                 unsigned status, const char *type,
                                                                 const char *code,
                                                                 const char *format, va_list args)
{
    *err = (struct api_error){.status = status, .type = type, .code = code};
    vsnprintf(err->message, sizeof err->message, format, args);
}

bool api_error_set(struct api_error *err, unsigned status, const char *type, const char *code,
                   const char *format, ...)
{
    va_list args;
    va_start(args, format);
    api_error_fill(err, status, type, code, format, args);
    va_end(args);
    return false;
}

bool api_error_field(struct api_error *err, const char *param, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    api_error_fill(err, 400, "invalid_request_error", NULL, format, args);
    va_end(args);
    snprintf(err->param, sizeof err->param, "%s", param);
    return false;
}

bool api_error_from(struct api_error *err, const struct error *cause)
{
    switch (cause->code) {
    case ERROR_INVALID:
    case ERROR_UNSUPPORTED:
        return api_error_set(err, 400, "invalid_request_error", NULL, "%s", cause->text);
    case ERROR_NOT_FOUND:
        return api_error_set(err, 404, "invalid_request_error", NULL, "%s", cause->text);
    case ERROR_BUSY:
        return api_error_set(err, 429, "rate_limit_error", "queue_full", "%s", cause->text);
    case ERROR_NO_MEMORY:
        return api_error_set(err, 503, "server_error", "no_memory", "%s", cause->text);
    case ERROR_CANCELLED:
        return api_error_set(err, 503, "server_error", "cancelled", "the request was cancelled");
    case ERROR_NONE:
    case ERROR_IO:
    case ERROR_DEVICE:
    case ERROR_INTERNAL:
        break;
    }
    return api_error_set(err, 500, "server_error", NULL, "%s", cause->text);
}

void api_error_write(const struct api_error *err, struct buffer *out)
{
    buffer_text(out, "{\"error\":{\"message\":");
    json_out_text(out, err->message);
    buffer_text(out, ",\"text\":"); /* as docs/control.md has it */
    json_out_text(out, err->message);
    buffer_text(out, ",\"type\":");
    json_out_text(out, err->type);
    buffer_text(out, ",\"param\":");
    json_out_text(out, err->param[0] ? err->param : NULL);
    buffer_text(out, ",\"code\":");
    json_out_text(out, err->code);
    buffer_text(out, "}}");
}
