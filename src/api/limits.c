#include "api/limits.h"

#include "base/amount.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API_LIMITS_ROW(field, name, unit, standard, lowest, help)                                  \
    {name, help, API_LIMIT_##unit, standard, lowest, offsetof(struct api_limits, field)},
const struct api_limit_row api_limit_rows[] = {API_LIMITS(API_LIMITS_ROW)};
const size_t n_api_limit_rows = sizeof api_limit_rows / sizeof *api_limit_rows;

enum { VALUE_DIGITS_MAX = 15 };

static const struct limit_unit {
    enum api_limit_unit unit;
    const char *name;
    uint64_t times;
} limit_units[] = {
    {API_LIMIT_BYTES, "", 1},
    {API_LIMIT_BYTES, "KiB", UINT64_C(1) << 10},
    {API_LIMIT_BYTES, "MiB", UINT64_C(1) << 20},
    {API_LIMIT_BYTES, "GiB", UINT64_C(1) << 30},
    {API_LIMIT_MS, "ms", 1},
    {API_LIMIT_MS, "s", 1000},
    {API_LIMIT_COUNT, "", 1},
};

static uint64_t *limit_field(struct api_limits *limits, const struct api_limit_row *row)
{
    return (uint64_t *)(void *)((char *)limits + row->offset);
}

void api_limits_fill(struct api_limits *limits)
{
    for (size_t i = 0; i < n_api_limit_rows; i++) {
        uint64_t *field = limit_field(limits, &api_limit_rows[i]);
        *field = *field ? *field : api_limit_rows[i].standard;
    }
}

static enum error_code limit_unknown(const char *assignment, struct error *err)
{
    char names[256] = "";
    size_t size = 0;
    for (size_t i = 0; i < n_api_limit_rows && size < sizeof names; i++)
        size += (size_t)snprintf(names + size, sizeof names - size, "%s%s", i ? ", " : "",
                                 api_limit_rows[i].name);
    return error_set(err, ERROR_INVALID, "'%s' is not NAME=VALUE with one of the names %s",
                     assignment, names);
}

/* As other amounts are written: base/amount.h. */
static enum error_code limit_read_bytes(const struct api_limit_row *row, const char *text,
                                        uint64_t *out, struct error *err)
{
    const struct amount_rule rule = {.plain_bytes = 1, .min = row->lowest};
    char name[64];
    snprintf(name, sizeof name, "the limit %s", row->name);
    return amount_read(name, text, &rule, out, err);
}

static enum error_code limit_read(const struct api_limit_row *row, const char *text, uint64_t *out,
                                  struct error *err)
{
    const size_t digits = strspn(text, "0123456789");
    if (row->unit == API_LIMIT_BYTES)
        return limit_read_bytes(row, text, out, err);
    for (size_t i = 0; i < sizeof limit_units / sizeof *limit_units; i++) {
        const struct limit_unit *unit = &limit_units[i];
        if (!digits || digits > VALUE_DIGITS_MAX || unit->unit != row->unit ||
            strcmp(unit->name, text + digits) != 0)
            continue;
        const uint64_t value = strtoull(text, NULL, 10);
        if (value > INT64_MAX / unit->times || value * unit->times < row->lowest)
            break;
        *out = value * unit->times;
        return ERROR_NONE;
    }
    return error_set(err, ERROR_INVALID, "the limit %s takes %s, at least %s, not '%s'", row->name,
                     row->unit == API_LIMIT_MS ? "a time, as 10s or 500ms" : "a number",
                     api_limit_text(row, row->lowest).text, text);
}

enum error_code api_limits_set(struct api_limits *limits, const char *assignment, struct error *err)
{
    const char *equals = strchr(assignment, '=');
    const size_t size = equals ? (size_t)(equals - assignment) : 0;
    for (size_t i = 0; i < n_api_limit_rows && equals; i++) {
        const struct api_limit_row *row = &api_limit_rows[i];
        if (strlen(row->name) == size && memcmp(row->name, assignment, size) == 0)
            return limit_read(row, equals + 1, limit_field(limits, row), err);
    }
    return limit_unknown(assignment, err);
}

struct api_limit_text api_limit_text(const struct api_limit_row *row, uint64_t value)
{
    struct api_limit_text out;
    const struct limit_unit *best = NULL;
    for (size_t i = 0; i < sizeof limit_units / sizeof *limit_units; i++) {
        if (limit_units[i].unit == row->unit && (!best || value % limit_units[i].times == 0))
            best = &limit_units[i];
    }
    assert(best);
    snprintf(out.text, sizeof out.text, "%" PRIu64 "%s%s", value / best->times,
             best->name[0] ? " " : "", best->name);
    return out;
}

bool api_limit_error(struct api_error *err, unsigned status, const struct api_limits *limits,
                     size_t offset, const char *what)
{
    const struct api_limit_row *row = &api_limit_rows[offset / sizeof(uint64_t)];
    struct api_limits copy = *limits;
    const bool is_ours = status >= 500;
    assert(row->offset == offset);
    return api_error_set(err, status,
                         is_ours         ? "server_error"
                         : status == 429 ? "rate_limit_error"
                                         : "invalid_request_error",
                         is_ours         ? "overloaded"
                         : status == 429 ? "queue_full"
                                         : "request_too_large",
                         "%s (limit %s: %s)%s", what, row->name,
                         api_limit_text(row, *limit_field(&copy, row)).text,
                         status == 429 || is_ours ? "; try again later" : "");
}
