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

/* https://docs.anthropic.com/en/api/errors */
static const char *anthropic_type(unsigned status)
{
    switch (status) {
    case 401:
        return "authentication_error";
    case 403:
        return "permission_error";
    case 404:
        return "not_found_error";
    case 413:
        return "request_too_large";
    case 429:
        return "rate_limit_error";
    case 503:
        return "overloaded_error";
    default:
        return status < 500 ? "invalid_request_error" : "api_error";
    }
}

void api_error_write_as(const struct api_error *err, enum api_shape shape, struct buffer *out)
{
    switch (shape) {
    case API_SHAPE_OPENAI:
        api_error_write(err, out);
        return;
    case API_SHAPE_ANTHROPIC:
        buffer_printf(out, "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":",
                      anthropic_type(err->status));
        json_out_text(out, err->message);
        buffer_text(out, "}}");
        return;
    case API_SHAPE_OLLAMA:
        buffer_text(out, "{\"error\":");
        json_out_text(out, err->message);
        buffer_text(out, "}");
        return;
    }
}
