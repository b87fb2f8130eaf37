#include "simdevices/sim_values.h"

#include <string.h>

/* ---- pieces of text ---------------------------------------------------------------------- */

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

struct sim_text sim_text_trim(struct sim_text text)
{
    while (text.size && is_space(text.at[0])) {
        text.at++;
        text.size--;
    }
    while (text.size && is_space(text.at[text.size - 1]))
        text.size--;
    return text;
}

bool sim_text_is(struct sim_text text, const char *word)
{
    return strlen(word) == text.size && memcmp(text.at, word, text.size) == 0;
}

struct sim_shown sim_text_show(struct sim_text text)
{
    struct sim_shown shown = {0};
    const size_t room = sizeof shown.text - sizeof " …";
    size_t size = text.size < room ? text.size : room;
    for (size_t i = 0; i < size; i++)
        shown.text[i] = text.at[i] >= ' ' && text.at[i] <= '~' ? text.at[i] : '?';
    if (text.size > room)
        memcpy(shown.text + size, " …", sizeof " …");
    return shown;
}

/* ---- units --------------------------------------------------------------------------------- */

struct value_unit {
    const char *name;
    double factor;
};

enum { UNITS_MAX = 14 };

static const struct value_unit units[][UNITS_MAX] = {
    [SIM_BYTES] = {{"B", 1},
                   {"KiB", 0x1p10},
                   {"MiB", 0x1p20},
                   {"GiB", 0x1p30},
                   {"TiB", 0x1p40},
                   {"KB", 1e3},
                   {"kB", 1e3},
                   {"MB", 1e6},
                   {"GB", 1e9},
                   {"TB", 1e12}},
    [SIM_BYTES_PER_S] = {{"B/s", 1},
                         {"KB/s", 1e3},
                         {"kB/s", 1e3},
                         {"MB/s", 1e6},
                         {"GB/s", 1e9},
                         {"TB/s", 1e12},
                         {"KiB/s", 0x1p10},
                         {"MiB/s", 0x1p20},
                         {"GiB/s", 0x1p30},
                         {"TiB/s", 0x1p40},
                         {"Kb/s", 125},
                         {"Mb/s", 125e3},
                         {"Gb/s", 125e6}},
    [SIM_FLOPS] =
        {{"FLOP/s", 1}, {"MFLOP/s", 1e6}, {"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}, {"PFLOP/s", 1e15}},
    [SIM_SECONDS] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}, {"min", 60}, {"h", 3600}},
    [SIM_WATTS] = {{"mW", 1e-3}, {"W", 1}, {"kW", 1e3}},
    [SIM_JOULES_PER_K] = {{"J/K", 1}},
    [SIM_KELVIN_PER_W] = {{"K/W", 1}},
    [SIM_CELSIUS] = {{"C", 1}, {"\xc2\xb0\x43", 1}}, /* the degree sign in UTF-8 */
    [SIM_KELVIN] = {{"K", 1}},
    [SIM_SHARE] = {{"%", 0.01}},
    [SIM_MHZ] = {{"MHz", 1}, {"GHz", 1e3}},
};

static const struct value_unit *find_unit(enum sim_unit kind, struct sim_text name)
{
    for (int i = 0; i < UNITS_MAX && units[kind][i].name; i++) {
        if (sim_text_is(name, units[kind][i].name))
            return &units[kind][i];
    }
    return NULL;
}

/* "B, KiB, …": those in ASCII. */
static void list_units(enum sim_unit kind, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < UNITS_MAX && units[kind][i].name; i++) {
        const char *name = units[kind][i].name;
        size_t length = strlen(name);
        if (name[0] < 0 || used + length + 3 > size)
            continue;
        if (used) {
            memcpy(text + used, ", ", 2);
            used += 2;
        }
        memcpy(text + used, name, length + 1);
        used += length;
    }
}

/* ---- numbers ------------------------------------------------------------------------------- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Reads digits with at most one point, not through strtod(): its point depends on the locale, and
 * it takes "nan", "inf" and hexadecimal. Removes what it has read; false when that is no number. */
static bool take_number(struct sim_text *text, double *out)
{
    double value = 0, scale = 1;
    size_t n_digits = 0, n_points = 0, i = 0;
    for (; i < text->size && (is_digit(text->at[i]) || text->at[i] == '.'); i++) {
        if (text->at[i] == '.') {
            n_points++;
            continue;
        }
        value = value * 10 + (text->at[i] - '0');
        scale *= n_points ? 10 : 1;
        n_digits++;
    }
    enum { DIGITS_MAX = 30 }; /* far from where a double overflows */
    if (!n_digits || n_digits > DIGITS_MAX || n_points > 1)
        return false;
    text->at += i;
    text->size -= i;
    *out = value / scale;
    return true;
}

static enum error_code sim_values_check_range(const char *key, struct sim_text text, double value,
                                              struct sim_range range, struct error *err)
{
    if (value >= range.min && value <= range.max)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID, "%s = %s is out of range: it must be %s", key,
                     sim_text_show(text).text, range.words);
}

enum error_code sim_value_parse(const char *key, struct sim_text text, enum sim_unit unit,
                                struct sim_range range, double *out, struct error *err)
{
    struct sim_text rest = sim_text_trim(text);
    char known[96];
    list_units(unit, known, sizeof known);
    if (!rest.size)
        return error_set(err, ERROR_INVALID, "%s has no value", key);
    bool negative = rest.at[0] == '-';
    if (negative) {
        rest.at++;
        rest.size--;
    }
    double number;
    if (!take_number(&rest, &number))
        return error_set(err, ERROR_INVALID, "%s: '%s' is not a number with a unit (%s)", key,
                         sim_text_show(text).text, known);
    rest = sim_text_trim(rest);
    if (!rest.size)
        return error_set(err, ERROR_INVALID, "%s = %s has no unit; it takes %s", key,
                         sim_text_show(text).text, known);
    const struct value_unit *found = find_unit(unit, rest);
    if (!found)
        return error_set(err, ERROR_INVALID, "%s: unknown unit '%s'; it takes %s", key,
                         sim_text_show(rest).text, known);
    *out = (negative ? -number : number) * found->factor;
    return sim_values_check_range(key, text, *out, range, err);
}

enum error_code sim_count_parse(const char *key, struct sim_text text, struct sim_range range,
                                double *out, struct error *err)
{
    struct sim_text rest = sim_text_trim(text);
    for (size_t i = 0; i < rest.size; i++) {
        if (!is_digit(rest.at[i]))
            return error_set(err, ERROR_INVALID, "%s: '%s' is not a whole number", key,
                             sim_text_show(text).text);
    }
    if (!take_number(&rest, out))
        return error_set(err, ERROR_INVALID, "%s: '%s' is not a whole number", key,
                         sim_text_show(text).text);
    return sim_values_check_range(key, text, *out, range, err);
}
