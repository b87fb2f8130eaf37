#include "lending/lending.h"

#include "base/amount.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- settings -------------------------------------------------------------------------------- */

static enum error_code lending_wrong(struct error *err, const char *setting, const char *takes,
                                     const char *value)
{
    return error_set(err, ERROR_INVALID, "%s takes %s, not '%.64s'", setting, takes, value);
}

static enum error_code set_memory(struct lending *lending, const char *value, struct error *err)
{
    static const struct amount_rule rule = {.min = 1 << 20, .takes_all = true};
    return amount_read("memory", value, &rule, &lending->memory_bytes, err);
}

static enum error_code set_share(struct lending *lending, const char *value, struct error *err)
{
    const enum error_code code =
        amount_read_percent("share", value, true, &lending->share_percent, err);
    if (!code && lending->share_percent == 100)
        lending->share_percent = 0;
    return code;
}

static enum error_code set_devices(struct lending *lending, const char *value, struct error *err)
{
    if (strcmp(value, "all") == 0) {
        lending->devices[0] = 0;
        return ERROR_NONE;
    }
    const size_t size = strlen(value);
    bool good = size && size < sizeof lending->devices;
    for (const char *at = value; good && *at; at++)
        good = *at > ' ' && *at <= '~' && !(*at == ',' && (at == value || at[-1] == ',' || !at[1]));
    if (!good)
        return lending_wrong(err, "devices", "ids of `medley devices` with commas, or all", value);
    memcpy(lending->devices, value, size + 1);
    return ERROR_NONE;
}

/* "22:00"; NULL: it is none. */
static const char *read_minute(const char *text, uint16_t *out)
{
    unsigned hour = 0, minute = 0;
    int end = 0;
    if (text[0] < '0' || text[0] > '9' || sscanf(text, "%2u:%2u%n", &hour, &minute, &end) != 2 ||
        !end || text[end - 3] != ':' || text[end - 2] < '0' || text[end - 2] > '9' || hour > 23 ||
        minute > 59)
        return NULL;
    *out = (uint16_t)(hour * 60 + minute);
    return text + end;
}

static enum error_code set_hours(struct lending *lending, const char *value, struct error *err)
{
    uint16_t from = 0, to = 0;
    if (strcmp(value, "always") == 0) {
        lending->by_hours = false;
        return ERROR_NONE;
    }
    const char *rest = read_minute(value, &from);
    rest = rest && *rest == '-' ? read_minute(rest + 1, &to) : NULL;
    if (!rest || *rest || from == to)
        return lending_wrong(err, "hours", "two times such as 22:00-07:00, or always", value);
    lending->by_hours = true;
    lending->from_minute = from;
    lending->to_minute = to;
    return ERROR_NONE;
}

static enum error_code set_switch(bool *no, const char *setting, const char *value,
                                  struct error *err)
{
    if (strcmp(value, "yes") != 0 && strcmp(value, "no") != 0)
        return lending_wrong(err, setting, "yes or no", value);
    *no = value[0] == 'n';
    return ERROR_NONE;
}

static enum error_code set_battery(struct lending *lending, const char *value, struct error *err)
{
    return set_switch(&lending->not_on_battery, "battery", value, err);
}

static enum error_code set_used(struct lending *lending, const char *value, struct error *err)
{
    return set_switch(&lending->not_while_used, "used", value, err);
}

static enum error_code set_now(struct lending *lending, const char *value, struct error *err)
{
    return set_switch(&lending->nothing, "now", value, err);
}

static const struct {
    const char *name;
    enum error_code (*set)(struct lending *lending, const char *value, struct error *err);
} lending_settings[LENDING_SETTINGS] = {
    {"memory", set_memory},   {"share", set_share}, {"devices", set_devices}, {"hours", set_hours},
    {"battery", set_battery}, {"used", set_used},   {"now", set_now},
};

enum error_code lending_set(struct lending *lending, const char *setting, const char *value,
                            struct error *err)
{
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++) {
        if (strcmp(lending_settings[i].name, setting) == 0)
            return lending_settings[i].set(lending, value, err);
    }
    return error_set(err, ERROR_INVALID, "'%.64s' is nothing that can be set of what is lent",
                     setting);
}

const char *lending_setting(uint32_t index)
{
    assert(index < LENDING_SETTINGS);
    return lending_settings[index].name;
}

/* With the largest unit of which it is a whole number: it reads back as the same. */
static void write_bytes(uint64_t bytes, char out[LENDING_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    uint32_t unit = 0;
    while (unit < 4 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, LENDING_TEXT, "%llu%s", (unsigned long long)bytes, units[unit]);
}

static void write_value(const struct lending *lending, uint32_t index, char out[LENDING_TEXT])
{
    const bool no[] = {lending->not_on_battery, lending->not_while_used, lending->nothing};
    switch (index) {
    case 0:
        if (lending->memory_bytes)
            write_bytes(lending->memory_bytes, out);
        break;
    case 1:
        if (lending->share_percent)
            snprintf(out, LENDING_TEXT, "%u%%", lending->share_percent);
        break;
    case 2:
        if (lending->devices[0])
            snprintf(out, LENDING_TEXT, "%s", lending->devices);
        break;
    case 3:
        snprintf(out, LENDING_TEXT, "always");
        if (lending->by_hours)
            snprintf(out, LENDING_TEXT, "%02u:%02u-%02u:%02u", lending->from_minute / 60,
                     lending->from_minute % 60, lending->to_minute / 60, lending->to_minute % 60);
        break;
    default:
        snprintf(out, LENDING_TEXT, "%s", no[index - 4] ? "no" : "yes");
    }
}

void lending_value(const struct lending *lending, uint32_t index, char out[LENDING_TEXT])
{
    assert(index < LENDING_SETTINGS);
    snprintf(out, LENDING_TEXT, "all");
    write_value(lending, index, out);
}

/* ---- the file -------------------------------------------------------------------------------- */

void lending_write(const struct lending *lending, struct buffer *out)
{
    char value[LENDING_TEXT];
    for (uint32_t i = 0; i < LENDING_SETTINGS; i++) {
        lending_value(lending, i, value);
        buffer_printf(out, "%s %s\n", lending_settings[i].name, value);
    }
}

enum error_code lending_read(const char *text, size_t size, struct lending *out, struct error *err)
{
    enum error_code code = ERROR_NONE;
    uint32_t number = 0;
    *out = (struct lending){0};
    for (size_t at = 0; at < size && !code; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        const size_t length = end ? (size_t)(end - text) - at : size - at;
        char line[LENDING_TEXT + 32];
        if (length >= sizeof line || memchr(text + at, 0, length))
            return error_set(err, ERROR_INVALID, "line %u is no setting", number + 1);
        memcpy(line, text + at, length);
        line[length] = 0;
        at += length + 1;
        char *value = strchr(line, ' ');
        if (!line[0])
            continue;
        if (!value)
            return error_set(err, ERROR_INVALID, "line %u is no setting", number + 1);
        *value++ = 0;
        code = lending_set(out, line, value, err);
    }
    return code;
}

/* ---- now ------------------------------------------------------------------------------------- */

static bool is_in_hours(const struct lending *lending, uint32_t minute)
{
    const uint32_t from = lending->from_minute, to = lending->to_minute;
    return from < to ? minute >= from && minute < to : minute >= from || minute < to;
}

enum lending_state lending_at(const struct lending *lending, const struct lending_moment *moment)
{
    assert(moment->minute < LENDING_DAY_MINUTES);
    if (lending->nothing)
        return LENDING_OFF;
    if (lending->by_hours && !is_in_hours(lending, moment->minute))
        return LENDING_HOURS;
    if (lending->not_on_battery && moment->on_battery.valid && moment->on_battery.value > 0)
        return LENDING_BATTERY;
    if (lending->not_while_used && moment->used)
        return LENDING_USED;
    return LENDING_OPEN;
}

const char *lending_state_text(enum lending_state state)
{
    static const char *const texts[] = {[LENDING_OPEN] = "",
                                        [LENDING_OFF] = "its owner lends nothing now",
                                        [LENDING_HOURS] =
                                            "it is outside the hours in which its owner lends it",
                                        [LENDING_BATTERY] = "it is on battery",
                                        [LENDING_USED] = "others use the machine"};
    return texts[state];
}

uint32_t lending_minute(int64_t seconds)
{
    const time_t at = (time_t)seconds;
    struct tm local = {0};
    localtime_r(&at, &local);
    return (uint32_t)(local.tm_hour * 60 + local.tm_min);
}

/* ---- how much -------------------------------------------------------------------------------- */

static bool lends_device(const struct lending *lending, const char *device)
{
    const size_t size = strlen(device);
    for (const char *at = lending->devices; *at;) {
        const size_t length = strcspn(at, ",");
        if (length == size && memcmp(at, device, size) == 0)
            return true;
        at += length + (at[length] == ',');
    }
    return !lending->devices[0];
}

bool lending_is_limited(const struct lending *lending)
{
    return lending->memory_bytes || lending->share_percent || lending->devices[0];
}

uint64_t lending_bytes(const struct lending *lending, const char *device, uint64_t total_bytes)
{
    uint64_t bytes = total_bytes;
    if (!lends_device(lending, device))
        return 0;
    if (lending->share_percent)
        bytes = total_bytes / 100 * lending->share_percent;
    if (lending->memory_bytes && lending->memory_bytes < bytes)
        bytes = lending->memory_bytes;
    return bytes;
}

/* ---- used by others -------------------------------------------------------------------------- */

enum { USED_MS = 10 * 1000, FREE_MS = 60 * 1000 };
static const double used_share = 0.5, free_share = 0.25;

void lending_use_step(struct lending_use *use, uint64_t now_ms, struct reading others_share)
{
    const bool beyond = others_share.valid && (use->used ? others_share.value < free_share
                                                         : others_share.value > used_share);
    if (!beyond)
        use->since_ms = 0;
    else if (!use->since_ms)
        use->since_ms = now_ms;
    else if (now_ms - use->since_ms >= (use->used ? FREE_MS : USED_MS))
        *use = (struct lending_use){.used = !use->used};
}
