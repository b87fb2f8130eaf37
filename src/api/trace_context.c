#include "api/trace_context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

/* So many lower-case hexadecimal digits; not all of them 0 where `not_zero`. */
static bool trace_hex(const char *text, size_t n, bool not_zero)
{
    bool any = false;
    for (size_t i = 0; i < n; i++) {
        const char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        any |= c != '0';
    }
    return any || !not_zero;
}

static unsigned trace_digit(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* version "-" trace-id "-" parent-id "-" trace-flags. A higher version may have more behind a '-';
 * ff is forbidden. */
bool trace_context_read(const char *text, size_t size, struct trace_context *out)
{
    *out = (struct trace_context){0};
    if (size < TRACE_PARENT_BYTES || !trace_hex(text, 2, false) || memcmp(text, "ff", 2) == 0 ||
        text[2] != '-' || text[35] != '-' || text[52] != '-' || !trace_hex(text + 3, 32, true) ||
        !trace_hex(text + 36, 16, true) || !trace_hex(text + 53, 2, false))
        return false;
    if (size > TRACE_PARENT_BYTES &&
        (memcmp(text, "00", 2) == 0 || text[TRACE_PARENT_BYTES] != '-'))
        return false;
    memcpy(out->trace_id, text + 3, 32);
    memcpy(out->parent, text + 36, 16);
    out->is_unwanted = !(trace_digit(text[54]) & 1);
    return true;
}

bool trace_context_make(struct trace_context *context)
{
    uint64_t numbers[3];
    if (getrandom(numbers, sizeof numbers, 0) != (ssize_t)sizeof numbers)
        return false;
    context->span = numbers[0] ? numbers[0] : 1;
    if (!context->trace_id[0])
        snprintf(context->trace_id, sizeof context->trace_id, "%016" PRIx64 "%016" PRIx64,
                 numbers[1] | 1, numbers[2]);
    return true;
}

void trace_span_text(uint64_t span, char out[TRACE_SPAN_TEXT])
{
    snprintf(out, TRACE_SPAN_TEXT, "%016" PRIx64, span);
}
