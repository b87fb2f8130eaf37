#include "base/error.h"

#include <stdio.h>
#include <string.h>

enum error_code error_set(struct error *err, enum error_code code, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        err->code = code;
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return code;
}

enum error_code error_wrap(struct error *err, const char *format, ...)
{
    if (!err)
        return ERROR_INTERNAL;
    char inner[ERROR_TEXT_MAX];
    memcpy(inner, err->text, sizeof inner);
    va_list args;
    va_start(args, format);
    int length = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    if (length >= 0 && (size_t)length < sizeof err->text)
        snprintf(err->text + length, sizeof err->text - (size_t)length, ": %s", inner);
    return err->code;
}

const char *error_name(enum error_code code)
{
    switch (code) {
    case ERROR_NONE:
        return "none";
    case ERROR_INVALID:
        return "invalid";
    case ERROR_NOT_FOUND:
        return "not found";
    case ERROR_NO_MEMORY:
        return "not enough memory";
    case ERROR_UNSUPPORTED:
        return "unsupported";
    case ERROR_IO:
        return "input/output";
    case ERROR_DEVICE:
        return "device";
    case ERROR_BUSY:
        return "busy";
    case ERROR_CANCELLED:
        return "cancelled";
    case ERROR_INTERNAL:
        return "internal";
    }
    return "unknown";
}
