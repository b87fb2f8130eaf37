/* The kinds of alert: what each reads, the line at which it is raised and the lower one at which it
 * is cleared, how long a reading has to be beyond a line first, and what people are told.
 * docs/alerts.md is the same table for people; a test compares the two.
 *
 * Where `falls`, small readings are the bad ones (days that are left): then clear is above raise.
 * People override lines and times by settings, "alerts/KIND.FIELD" (alert_lines_set()). Pure. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum alert_kind {
    ALERT_NODE_LOST,
    ALERT_DEVICE_HOT,
    ALERT_DEVICE_DYING,
    ALERT_MEMORY_FULL,
    ALERT_MEMORY_SHORT,
    ALERT_DISK_FULL,
    ALERT_INSTANCE_UNHEALTHY,
    ALERT_INSTANCE_SLOW,
    ALERT_LINK_SLOW,
    ALERT_LINK_LOSSY,
    ALERT_LINK_NARROW,
    ALERT_CLOCK_OFF,
    ALERT_CERTIFICATE_ENDING,
    ALERT_API_CERTIFICATE_ENDING,
    ALERT_TOKEN_ENDING,
    ALERT_CALIBRATION_MISSING,
    ALERT_CALIBRATION_STALE,
    ALERT_KINDS
};

enum alert_severity { ALERT_WARNING, ALERT_CRITICAL };

/* What an alert is about, and so what its subject's text is:
 *     NODE      NODE_ID                DEVICE    NODE_ID/DEVICE_ID      LINK  FROM_ID>TO_ID
 *     INSTANCE  its id                 TOKEN     its name */
enum alert_about {
    ALERT_ABOUT_NODE,
    ALERT_ABOUT_DEVICE,
    ALERT_ABOUT_LINK,
    ALERT_ABOUT_INSTANCE,
    ALERT_ABOUT_TOKEN
};

enum alert_unit {
    ALERT_UNIT_NONE, /* 1: so it is; 0: it is not */
    ALERT_UNIT_PERCENT,
    ALERT_UNIT_SECONDS,
    ALERT_UNIT_DAYS,
    ALERT_UNIT_TIMES,
    ALERT_UNIT_COUNT
};

struct alert_lines {
    double raise, clear;
    uint64_t raise_ms, clear_ms; /* a reading is beyond the line for so long first */
};

struct alert_rule {
    const char *name; /* "device_hot": in settings, events, metrics, JSON */
    enum alert_about about;
    enum alert_severity severity;
    enum alert_unit unit;
    bool falls;
    bool by_node; /* only the node itself sees it, and tells the leader */
    struct alert_lines usual;
    double min, max;   /* of an overridden line */
    const char *reads; /* for the table of people */
    const char *text;  /* {subject} and {value} are filled in (alert_say()) */
    const char *mend;  /* what to do */
};

const struct alert_rule *alert_rule(enum alert_kind kind); /* never NULL */
/* ALERT_KINDS: there is no such kind in this version. */
enum alert_kind alert_kind_find(const char *name, size_t size);

const char *alert_severity_name(enum alert_severity severity);
const char *alert_about_name(enum alert_about about); /* "node", "device", … */
const char *alert_unit_name(enum alert_unit unit);    /* "%", "s", "days", "times", "", "" */

/* A rule's sentence with the subject as people call it. Always ended by zero. */
void alert_say(const struct alert_rule *rule, const char *subject, double value, char *out,
               size_t size);

/* Sets one of "raise", "clear", "raise_after_s", "clear_after_s". Where only raise is given, clear
 * keeps its usual distance. ERROR_INVALID says what is possible; then nothing has changed. */
enum error_code alert_lines_set(const struct alert_rule *rule, struct alert_lines *lines,
                                const char *field, double value, struct error *err);

/* Beyond which line a reading is. */
bool alert_is_bad(const struct alert_rule *rule, const struct alert_lines *lines, double value);
bool alert_is_good(const struct alert_rule *rule, const struct alert_lines *lines, double value);
