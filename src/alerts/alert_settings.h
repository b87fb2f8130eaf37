/* What people set about alerts, as the cluster's settings say it:
 *     alerts/KIND.FIELD               a line or a time (alert_lines_set())
 *     alerts/mute/KIND[@SUBJECT]      until when (ms since 1970) a kind, or one subject of it, is
 *                                     muted; KIND may be "all"
 * Keys and values come from the log, so from anybody: what makes no sense is left out. Pure. */
#pragma once

#include "alerts/alerts.h"

#define ALERT_SETTINGS "alerts/"
#define ALERT_MUTE "alerts/mute/"
#define ALERT_ALL "all"

struct alert_mute {
    enum alert_kind kind; /* ALERT_KINDS: all */
    const char *subject;  /* NULL: all */
    uint64_t until_ms;
};

struct alert_mutes {
    struct alert_mute list[LIMIT_ALERT_MUTES];
    uint32_t n;
};

/* Begin: the usual lines and no mutes; then each setting. `key` outlives the mutes. False: it is
 * none of alerts', or makes no sense. Raise is to come before clear, which it moves. */
void alert_settings_begin(struct alerts *alerts, struct alert_mutes *mutes);
bool alert_settings_take(struct alerts *alerts, struct alert_mutes *mutes, const char *key,
                         const char *value);
/* The same of a list, whatever its order; what has gone by at `wall_ms` mutes nothing. */
struct alert_setting {
    const char *key, *value;
};
void alert_settings_all(struct alerts *alerts, struct alert_mutes *mutes,
                        const struct alert_setting *settings, size_t n, uint64_t wall_ms);

bool alert_is_muted(const struct alert_mutes *mutes, enum alert_kind kind, const char *subject);

/* "KIND.FIELD" or "KIND[@SUBJECT]": the kind, and what follows its name. ALERT_KINDS: there is no
 * such kind, or it is "all". */
enum alert_kind alert_key_kind(const char *key, const char **rest);
