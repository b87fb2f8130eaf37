#include "simdevices/sim_values.h"

#include "base/amount.h"

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

static const struct amount_unit units[][14] = {
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

static const struct amount_unit *units_of(enum sim_unit kind)
{
    return kind == SIM_BYTES ? amount_byte_units : units[kind];
}

static const struct amount_unit *find_unit(enum sim_unit kind, struct sim_text name)
{
    const struct amount_unit *unit = units_of(kind);
    while (unit->name && !sim_text_is(name, unit->name))
        unit++;
    return unit->name ? unit : NULL;
}

/* "B, KiB, …": those in ASCII. */
static void list_units(enum sim_unit kind, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const struct amount_unit *unit = units_of(kind); unit->name; unit++) {
        const char *name = unit->name;
        size_t length = strlen(name);
        if ((unsigned char)name[0] >= 0x80 || used + length + 3 > size)
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

/* Removes what it has read; false when that is no number. */
static bool take_number(struct sim_text *text, double *out)
{
    const size_t length = amount_number(text->at, text->size, out);
    text->at += length;
    text->size -= length;
    return length > 0;
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
    const struct amount_unit *found = find_unit(unit, rest);
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
