#include "cli/token_text.h"

#include <stdlib.h>
#include <string.h>

/* A whole number of at most 9 digits; 0: none. */
static uint64_t token_number(const char *text, const char **end)
{
    const size_t n = strspn(text, "0123456789");
    *end = text + n;
    return n <= 9 ? strtoull(text, NULL, 10) : 0;
}

bool token_time_parse(const char *text, uint64_t *seconds)
{
    static const struct {
        const char *name;
        uint64_t seconds;
    } units[] = {{"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    const char *end;
    const uint64_t number = token_number(text, &end);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(end, units[i].name) == 0)
            *seconds = number * units[i].seconds;
        else
            continue;
        return number && *seconds <= UINT64_C(100) * 365 * 86400;
    }
    return false;
}

bool token_rate_parse(const char *text, uint64_t *per_min)
{
    const char *end;
    *per_min = token_number(text, &end);
    return *per_min && *per_min <= 1000000 && (!*end || strcmp(end, "/min") == 0);
}
