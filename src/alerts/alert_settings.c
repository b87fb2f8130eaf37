#include "alerts/alert_settings.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum alert_kind alert_key_kind(const char *key, const char **rest)
{
    const size_t size = strcspn(key, ".@");
    *rest = key + size;
    return alert_kind_find(key, size);
}

void alert_settings_begin(struct alerts *alerts, struct alert_mutes *mutes)
{
    for (unsigned kind = 0; kind < ALERT_KINDS; kind++)
        alerts->lines[kind] = alert_rule((enum alert_kind)kind)->usual;
    mutes->n = 0;
}

static bool take_mute(struct alert_mutes *mutes, const char *key, const char *value)
{
    const char *rest;
    const enum alert_kind kind = alert_key_kind(key, &rest);
    const bool all =
        (size_t)(rest - key) == sizeof ALERT_ALL - 1 && strncmp(key, ALERT_ALL, 3) == 0;
    if ((kind == ALERT_KINDS && !all) || (*rest && *rest != '@') || mutes->n == LIMIT_ALERT_MUTES)
        return false;
    mutes->list[mutes->n++] = (struct alert_mute){
        .kind = kind, .subject = *rest ? rest + 1 : NULL, .until_ms = strtoull(value, NULL, 10)};
    return true;
}

bool alert_settings_take(struct alerts *alerts, struct alert_mutes *mutes, const char *key,
                         const char *value)
{
    const char *rest;
    char *end;
    if (strncmp(key, ALERT_MUTE, sizeof ALERT_MUTE - 1) == 0)
        return take_mute(mutes, key + sizeof ALERT_MUTE - 1, value);
    if (strncmp(key, ALERT_SETTINGS, sizeof ALERT_SETTINGS - 1) != 0)
        return false;
    const enum alert_kind kind = alert_key_kind(key + sizeof ALERT_SETTINGS - 1, &rest);
    const double number = strtod(value, &end);
    return kind != ALERT_KINDS && *rest == '.' && end != value && !*end &&
           alert_lines_set(alert_rule(kind), &alerts->lines[kind], rest + 1, number, NULL) ==
               ERROR_NONE;
}

static bool key_is_clear(const char *key)
{
    const char *dot = strrchr(key, '.');
    return dot && strcmp(dot, ".clear") == 0;
}

void alert_settings_all(struct alerts *alerts, struct alert_mutes *mutes,
                        const struct alert_setting *settings, size_t n, uint64_t wall_ms)
{
    alert_settings_begin(alerts, mutes);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < n; i++) {
            if (key_is_clear(settings[i].key) == (pass == 1))
                alert_settings_take(alerts, mutes, settings[i].key, settings[i].value);
        }
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < mutes->n; i++) {
        if (mutes->list[i].until_ms > wall_ms)
            mutes->list[kept++] = mutes->list[i];
    }
    mutes->n = kept;
}

bool alert_is_muted(const struct alert_mutes *mutes, enum alert_kind kind, const char *subject)
{
    assert(kind < ALERT_KINDS && subject);
    for (uint32_t i = 0; i < mutes->n; i++) {
        const struct alert_mute *mute = &mutes->list[i];
        if ((mute->kind == kind || mute->kind == ALERT_KINDS) &&
            (!mute->subject || strcmp(mute->subject, subject) == 0))
            return true;
    }
    return false;
}
