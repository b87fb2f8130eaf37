#include "base/amount.h"

#include "base/size_text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const struct amount_unit amount_byte_units[] = {
    {"B", 1},    {"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40},
    {"KB", 1e3}, {"kB", 1e3},     {"MB", 1e6},     {"GB", 1e9},     {"TB", 1e12},
    {0}};

static bool amount_is_digit(char c)
{
    return c >= '0' && c <= '9';
}

size_t amount_number(const char *text, size_t size, double *out)
{
    enum { DIGITS_MAX = 30 }; /* far from where a double overflows */
    double value = 0, scale = 1;
    size_t n_digits = 0, n_points = 0, i = 0;
    for (; i < size && (amount_is_digit(text[i]) || text[i] == '.'); i++) {
        if (text[i] == '.') {
            n_points++;
            continue;
        }
        value = value * 10 + (text[i] - '0');
        scale *= n_points ? 10 : 1;
        n_digits++;
    }
    if (!n_digits || n_digits > DIGITS_MAX || n_points > 1)
        return 0;
    *out = value / scale;
    return i;
}

/* 0: there is no such unit. In any case of letters: "8gb" can mean nothing else. */
static double amount_factor(const char *unit, uint64_t plain_bytes)
{
    if (!*unit)
        return (double)plain_bytes;
    for (const struct amount_unit *known = amount_byte_units; known->name; known++) {
        if (strcasecmp(known->name, unit) == 0)
            return known->factor;
    }
    return 0;
}

static enum error_code amount_wrong(const char *name, const char *text,
                                    const struct amount_rule *rule, struct error *err)
{
    const char *example = rule->plain_bytes == 0   ? "8GiB or 900MB"
                          : rule->plain_bytes == 1 ? "8GiB, 900MB or 123456"
                                                   : "8GiB, 900MB or 8 (GiB)";
    assert(rule->plain_bytes <= 1 || rule->plain_bytes == 1 << 30);
    return error_set(err, ERROR_INVALID, "%s takes an amount such as %s%s, not '%.40s'", name,
                     example, rule->takes_all ? ", or all" : "", text);
}

static enum error_code amount_out_of_range(const char *name, const char *text, uint64_t min,
                                           uint64_t max, struct error *err)
{
    return error_set(err, ERROR_INVALID, "%s takes an amount from %s to %s, not '%.40s'", name,
                     size_text(min).text, size_text(max).text, text);
}

enum error_code amount_read(const char *name, const char *text, const struct amount_rule *rule,
                            uint64_t *out, struct error *err)
{
    const uint64_t min = rule->min ? rule->min : 1, max = rule->max ? rule->max : AMOUNT_BYTES_MAX;
    double number = 0;
    assert(min <= max && max <= AMOUNT_BYTES_MAX);
    if (rule->takes_all && strcmp(text, "all") == 0) {
        *out = 0;
        return ERROR_NONE;
    }
    const size_t length = amount_number(text, strlen(text), &number);
    const char *unit = text + length + strspn(text + length, " ");
    const double factor = length ? amount_factor(unit, rule->plain_bytes) : 0;
    if (factor <= 0)
        return amount_wrong(name, text, rule, err);
    const double bytes = number * factor;
    if (bytes < (double)min || bytes > (double)max)
        return amount_out_of_range(name, text, min, max, err);
    *out = (uint64_t)bytes;
    return ERROR_NONE;
}

enum error_code amount_read_percent(const char *name, const char *text, bool takes_all,
                                    uint32_t *out, struct error *err)
{
    uint32_t percent = 0;
    size_t i = 0;
    if (takes_all && strcmp(text, "all") == 0) {
        *out = 0;
        return ERROR_NONE;
    }
    for (; i < 3 && amount_is_digit(text[i]); i++)
        percent = percent * 10 + (uint32_t)(text[i] - '0');
    if (strcmp(text + i, "%") != 0 || percent < 1 || percent > 100)
        return error_set(err, ERROR_INVALID, "%s takes 1%% to 100%%%s, not '%.64s'", name,
                         takes_all ? ", or all" : "", text);
    *out = percent;
    return ERROR_NONE;
}
