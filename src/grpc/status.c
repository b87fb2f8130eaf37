#include "grpc/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void grpc_status_set(struct grpc_status *status, enum grpc_code code, const char *format, ...)
{
    va_list args;
    status->code = code;
    va_start(args, format);
    vsnprintf(status->message, sizeof status->message, format, args);
    va_end(args);
}

enum grpc_code grpc_code_of_http(unsigned status)
{
    static const struct {
        unsigned status;
        enum grpc_code code;
    } codes[] = {
        {200, GRPC_OK},
        {400, GRPC_INVALID_ARGUMENT},
        {401, GRPC_UNAUTHENTICATED},
        {403, GRPC_PERMISSION_DENIED},
        {404, GRPC_NOT_FOUND},
        {408, GRPC_DEADLINE_EXCEEDED},
        {409, GRPC_FAILED_PRECONDITION},
        {413, GRPC_RESOURCE_EXHAUSTED},
        {421, GRPC_PERMISSION_DENIED},
        {429, GRPC_RESOURCE_EXHAUSTED},
        {503, GRPC_UNAVAILABLE},
    };
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        if (codes[i].status == status)
            return codes[i].code;
    }
    return status >= 500 ? GRPC_INTERNAL : GRPC_UNKNOWN;
}

enum grpc_code grpc_code_of_name(const char *code, const char *type)
{
    static const struct {
        const char *name;
        enum grpc_code code;
    } names[] = {
        {"invalid", GRPC_INVALID_ARGUMENT},
        {"unsupported", GRPC_INVALID_ARGUMENT},
        {"not_found", GRPC_NOT_FOUND},
        {"no_memory", GRPC_RESOURCE_EXHAUSTED},
        {"busy", GRPC_FAILED_PRECONDITION},
        {"cancelled", GRPC_CANCELLED},
        {"stopping", GRPC_UNAVAILABLE},
        {"invalid_request_error", GRPC_INVALID_ARGUMENT},
        {"authentication_error", GRPC_UNAUTHENTICATED},
        {"permission_error", GRPC_PERMISSION_DENIED},
        {"rate_limit_error", GRPC_RESOURCE_EXHAUSTED},
        {"server_error", GRPC_UNAVAILABLE},
    };
    const char *const given[] = {code, type};
    for (size_t at = 0; at < 2; at++) {
        for (size_t i = 0; given[at] && i < sizeof names / sizeof *names; i++) {
            if (strcmp(names[i].name, given[at]) == 0)
                return names[i].code;
        }
    }
    return GRPC_INTERNAL;
}

void grpc_status_escape(const char *message, struct buffer *out)
{
    for (const unsigned char *at = (const unsigned char *)message; *at; at++) {
        if (*at < ' ' || *at > '~' || *at == '%')
            buffer_printf(out, "%%%02X", *at);
        else
            buffer_append(out, at, 1);
    }
}

bool grpc_timeout_parse(const char *text, size_t size, uint64_t *ns)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {
        {'H', UINT64_C(3600000000000)}, {'M', UINT64_C(60000000000)}, {'S', UINT64_C(1000000000)},
        {'m', UINT64_C(1000000)},       {'u', UINT64_C(1000)},        {'n', UINT64_C(1)},
    };
    uint64_t number = 0;
    if (size < 2 || size > 9)
        return false;
    for (size_t i = 0; i + 1 < size; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        number = number * 10 + (uint64_t)(text[i] - '0');
    }
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (units[i].unit != text[size - 1])
            continue;
        /* 8 digits of hours are 11,000 years: as long as a uint64_t of nanoseconds can tell */
        *ns = number > UINT64_MAX / units[i].ns ? UINT64_MAX : number * units[i].ns;
        return true;
    }
    return false;
}
