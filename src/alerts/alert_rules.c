#include "alerts/alert_rules.h"

#include "base/limits.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct alert_rule rules[ALERT_KINDS] = {
    [ALERT_NODE_LOST] =
        {
            .name = "node_lost",
            .about = ALERT_ABOUT_NODE,
            .severity = ALERT_CRITICAL,
            .unit = ALERT_UNIT_SECONDS,
            .usual = {.raise = 1, .clear = 0.5, .raise_ms = 0, .clear_ms = 5000},
            .min = 0.1,
            .max = 86400,
            .reads = "time since the leader heard the node",
            .text = "{subject} has not been heard for {value}",
            .mend = "Look whether the machine and its network are up; start `medley up` there, or "
                    "let it go with `medley remove`.",
        },
    [ALERT_DEVICE_HOT] =
        {
            .name = "device_hot",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .usual = {.raise = 97, .clear = 90, .raise_ms = 10000, .clear_ms = 30000},
            .min = 1,
            .max = 100,
            .reads = "how far it is from the temperature around it to the one at which its work is "
                     "paused",
            .text = "{subject} has come {value} of the way to the temperature at which its work is "
                    "paused",
            .mend = "Give it air, clean its fans, or take work off it with `medley move` or "
                    "`medley drain`.",
        },
    [ALERT_DEVICE_DYING] =
        {
            .name = "device_dying",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_CRITICAL,
            .unit = ALERT_UNIT_COUNT,
            .usual = {.raise = 3, .clear = 0, .raise_ms = 0, .clear_ms = 10000},
            .min = 0,
            .max = 1000,
            .by_node = true,
            .reads = "deaths of the device's process in the last 10 minutes",
            .text = "the process of {subject} has died {value} in 10 minutes",
            .mend = "Read that node's log, update the device's driver, or leave the device out "
                    "with `medley up --backend`.",
        },
    [ALERT_MEMORY_FULL] =
        {
            .name = "memory_full",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .usual = {.raise = 97, .clear = 94, .raise_ms = 30000, .clear_ms = 30000},
            .min = 1,
            .max = 100,
            .reads = "memory of the device that is in use, by anybody",
            .text = "{value} of the memory of {subject} is in use",
            .mend = "Close what else uses it, ask for a shorter context, or unload a model with "
                    "`medley unload`.",
        },
    [ALERT_MEMORY_SHORT] =
        {
            .name = "memory_short",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_COUNT,
            .usual = {.raise = 5, .clear = 0, .raise_ms = 5000, .clear_ms = 10000},
            .min = 0,
            .max = 9,
            .by_node = true,
            .reads = "steps down the ladder that is taken where memory is short",
            .text =
                "{subject} is short of memory: it has stepped down {value}, and gave up some of "
                "its speed or precision",
            .mend = "Close what else uses its memory; `medley status` says what is given up, and "
                    "all of it comes back by itself.",
        },
    [ALERT_DISK_FULL] =
        {
            .name = "disk_full",
            .about = ALERT_ABOUT_NODE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .usual = {.raise = 95, .clear = 92, .raise_ms = 10000, .clear_ms = 10000},
            .min = 1,
            .max = 100,
            .by_node = true,
            .reads = "the disk with the node's folder that is in use",
            .text = "{value} of the disk of {subject} is in use",
            .mend = "Make room there: `medley forget` a model, or limit fetched models with "
                    "`--models-max`.",
        },
    [ALERT_INSTANCE_UNHEALTHY] =
        {
            .name = "instance_unhealthy",
            .about = ALERT_ABOUT_INSTANCE,
            .severity = ALERT_CRITICAL,
            .unit = ALERT_UNIT_NONE,
            .usual = {.raise = 1, .clear = 0, .raise_ms = 3000, .clear_ms = 3000},
            .min = 0,
            .max = 1,
            .reads = "whether it is to be loaded and cannot be, has failed, or misses a machine",
            .text = "{subject} cannot answer: it failed, could not be placed, or misses a machine",
            .mend = "`medley status` says why; free memory, bring a machine back, or place it "
                    "again with `medley place`.",
        },
    [ALERT_INSTANCE_SLOW] =
        {
            .name = "instance_slow",
            .about = ALERT_ABOUT_INSTANCE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .falls = true,
            .usual = {.raise = 50, .clear = 70, .raise_ms = 60000, .clear_ms = 30000},
            .min = 1,
            .max = 100,
            .reads = "its measured tokens a second, of those that were forecast",
            .text = "{subject} generates at {value} of its forecast",
            .mend = "Look for other work on its devices with `medley top`, and calibrate them "
                    "again with `medley devices --calibrate`.",
        },
    [ALERT_LINK_SLOW] =
        {
            .name = "link_slow",
            .about = ALERT_ABOUT_LINK,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_TIMES,
            .usual = {.raise = 4, .clear = 2, .raise_ms = 30000, .clear_ms = 30000},
            .min = 1,
            .max = 10000,
            .by_node = true,
            .reads = "the link's latency, beside its usual one",
            .text = "the latency of the link {subject} is {value} its usual one",
            .mend = "Look for other traffic, a weak Wi-Fi or a bad cable; `medley links` shows "
                    "what is measured.",
        },
    [ALERT_LINK_LOSSY] =
        {
            .name = "link_lossy",
            .about = ALERT_ABOUT_LINK,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .usual = {.raise = 2, .clear = 0.5, .raise_ms = 30000, .clear_ms = 30000},
            .min = 0,
            .max = 100,
            .by_node = true,
            .reads = "packets that the link loses, beyond those that it usually loses",
            .text = "the link {subject} loses {value} more of its packets than usual",
            .mend = "Look for a weak Wi-Fi, a bad cable or a full switch; `medley links` shows "
                    "what is measured.",
        },
    [ALERT_LINK_NARROW] =
        {
            .name = "link_narrow",
            .about = ALERT_ABOUT_LINK,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_PERCENT,
            .falls = true,
            .usual = {.raise = 30, .clear = 60, .raise_ms = 30000, .clear_ms = 30000},
            .min = 1,
            .max = 100,
            .by_node = true,
            .reads = "the link's bandwidth, of its usual one",
            .text = "the link {subject} carries {value} of its usual bandwidth",
            .mend = "Look whether a cable or port has fallen back to a slower speed, and for other "
                    "traffic.",
        },
    [ALERT_CLOCK_OFF] =
        {
            .name = "clock_off",
            .about = ALERT_ABOUT_NODE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_SECONDS,
            .usual = {.raise = 10, .clear = 5, .raise_ms = 15000, .clear_ms = 15000},
            .min = 0.1,
            .max = 86400,
            .reads = "how far its wall clock is from the leader's",
            .text = "the clock of {subject} is {value} off the leader's",
            .mend = "Set the machine's clock by the network (`timedatectl set-ntp true`): "
                    "certificates and tokens go by it.",
        },
    [ALERT_CERTIFICATE_ENDING] =
        {
            .name = "certificate_ending",
            .about = ALERT_ABOUT_NODE,
            .severity = ALERT_CRITICAL,
            .unit = ALERT_UNIT_DAYS,
            .falls = true,
            .usual = {.raise = 30, .clear = 45, .raise_ms = 60000, .clear_ms = 0},
            .min = 0,
            .max = 3650,
            .by_node = true,
            .reads = "time until its certificate as a member ends",
            .text = "the certificate of {subject} ends in {value}, and was not renewed",
            .mend = "Start an admin's machine, so that it can renew it; `medley nodes` lists the "
                    "admins.",
        },
    [ALERT_API_CERTIFICATE_ENDING] =
        {
            .name = "api_certificate_ending",
            .about = ALERT_ABOUT_NODE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_DAYS,
            .falls = true,
            .usual = {.raise = 7, .clear = 10, .raise_ms = 60000, .clear_ms = 0},
            .min = 0,
            .max = 3650,
            .by_node = true,
            .reads = "time until the certificate that its HTTP API shows ends",
            .text = "the certificate of the HTTP API of {subject} ends in {value}",
            .mend = "Renew the files of `--cert` and `--key`; one that Medley made is renewed "
                    "while an admin's machine is up.",
        },
    [ALERT_TOKEN_ENDING] =
        {
            .name = "token_ending",
            .about = ALERT_ABOUT_TOKEN,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_DAYS,
            .falls = true,
            .usual = {.raise = 7, .clear = 8, .raise_ms = 0, .clear_ms = 0},
            .min = 0,
            .max = 3650,
            .reads = "time until an access token that was made for more than 30 days ends",
            .text = "the access token {subject} ends in {value}",
            .mend = "Make its user another one with `medley token create`, then revoke this one.",
        },
    [ALERT_CALIBRATION_MISSING] =
        {
            .name = "calibration_missing",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_NONE,
            .usual = {.raise = 1, .clear = 0, .raise_ms = 600000, .clear_ms = 0},
            .min = 0,
            .max = 1,
            .reads = "whether the device has layers and its speed was never measured",
            .text = "the speed of {subject} was never measured, so forecasts go by its datasheet "
                    "or a guess",
            .mend = "Let the machine be idle for a minute: its node measures by itself. With "
                    "--no-calibrate or --in-process: `medley devices --calibrate`, then start it "
                    "again.",
        },
    [ALERT_CALIBRATION_STALE] =
        {
            .name = "calibration_stale",
            .about = ALERT_ABOUT_DEVICE,
            .severity = ALERT_WARNING,
            .unit = ALERT_UNIT_DAYS,
            .usual = {.raise = 180, .clear = 179, .raise_ms = 600000, .clear_ms = 0},
            .min = 1,
            .max = 3650,
            .by_node = true,
            .reads = "age of the measurement of its speed",
            .text = "the speed of {subject} was measured {value} ago",
            .mend = "Let the machine be idle for a minute: its node measures by itself. With "
                    "--no-calibrate or --in-process: `medley devices --calibrate`, then start it "
                    "again.",
        },
};

const struct alert_rule *alert_rule(enum alert_kind kind)
{
    assert((unsigned)kind < ALERT_KINDS && rules[kind].name);
    return &rules[kind];
}

enum alert_kind alert_kind_find(const char *name, size_t size)
{
    assert(name);
    for (unsigned kind = 0; kind < ALERT_KINDS; kind++) {
        if (strlen(rules[kind].name) == size && memcmp(rules[kind].name, name, size) == 0)
            return (enum alert_kind)kind;
    }
    return ALERT_KINDS;
}

/* ---- words ---- */

const char *alert_severity_name(enum alert_severity severity)
{
    return severity == ALERT_CRITICAL ? "critical" : "warning";
}

const char *alert_about_name(enum alert_about about)
{
    static const char *const names[] = {"node", "device", "link", "instance", "token"};
    assert((size_t)about < sizeof names / sizeof *names);
    return names[about];
}

const char *alert_unit_name(enum alert_unit unit)
{
    static const char *const names[] = {"", "%", "s", "days", "times", ""};
    assert((size_t)unit < sizeof names / sizeof *names);
    return names[unit];
}

static void value_text(enum alert_unit unit, double value, char *out, size_t size)
{
    const bool few = fabs(value) < 10 && value != floor(value);
    switch (unit) {
    case ALERT_UNIT_PERCENT:
        snprintf(out, size, "%.*f %%", few, value);
        return;
    case ALERT_UNIT_SECONDS:
        snprintf(out, size, "%.*f s", few, value);
        return;
    case ALERT_UNIT_DAYS:
        snprintf(out, size, "%.0f day%s", floor(value), floor(value) == 1 ? "" : "s");
        return;
    case ALERT_UNIT_TIMES:
    case ALERT_UNIT_COUNT:
        snprintf(out, size, "%.*f times", few, value);
        return;
    case ALERT_UNIT_NONE:
        break;
    }
    snprintf(out, size, "%s", value > 0 ? "yes" : "no");
}

/* Appends at `n`, cut at the end; the new n. */
static size_t text_append(char *out, size_t size, size_t n, const char *from, size_t length)
{
    assert(n < size);
    if (length > size - n - 1)
        length = size - n - 1;
    memcpy(out + n, from, length);
    return n + length;
}

void alert_say(const struct alert_rule *rule, const char *subject, double value, char *out,
               size_t size)
{
    static const char subject_mark[] = "{subject}", value_mark[] = "{value}";
    char number[64];
    size_t n = 0;
    assert(size);
    value_text(rule->unit, value, number, sizeof number);
    for (const char *from = rule->text; *from;) {
        if (strncmp(from, subject_mark, sizeof subject_mark - 1) == 0) {
            n = text_append(out, size, n, subject, strlen(subject));
            from += sizeof subject_mark - 1;
        } else if (strncmp(from, value_mark, sizeof value_mark - 1) == 0) {
            n = text_append(out, size, n, number, strlen(number));
            from += sizeof value_mark - 1;
        } else {
            n = text_append(out, size, n, from++, 1);
        }
    }
    out[n] = 0;
}

/* ---- lines ---- */

bool alert_is_bad(const struct alert_rule *rule, const struct alert_lines *lines, double value)
{
    return rule->falls ? value <= lines->raise : value >= lines->raise;
}

bool alert_is_good(const struct alert_rule *rule, const struct alert_lines *lines, double value)
{
    return rule->falls ? value >= lines->clear : value <= lines->clear;
}

static enum error_code set_hold(const struct alert_rule *rule, uint64_t *hold_ms, const char *field,
                                double value, struct error *err)
{
    if (!(value >= 0 && value <= (double)LIMIT_ALERT_HOLD_S))
        return error_set(err, ERROR_INVALID, "%s.%s is 0 to %d seconds", rule->name, field,
                         LIMIT_ALERT_HOLD_S);
    *hold_ms = (uint64_t)(value * 1000);
    return ERROR_NONE;
}

static enum error_code set_line(const struct alert_rule *rule, struct alert_lines *lines,
                                bool raises, double value, struct error *err)
{
    struct alert_lines new = *lines;
    if (!(value >= rule->min && value <= rule->max))
        return error_set(err, ERROR_INVALID, "%s.%s is %g to %g %s", rule->name,
                         raises ? "raise" : "clear", rule->min, rule->max,
                         alert_unit_name(rule->unit));
    if (raises) {
        new.raise = value;
        new.clear = value - rule->usual.raise + rule->usual.clear;
        /* The distance that is usual may not be there: then half of what is. */
        if (!rule->falls && new.clear < rule->min)
            new.clear = (value + rule->min) / 2;
        if (rule->falls && new.clear > rule->max)
            new.clear = (value + rule->max) / 2;
    } else {
        new.clear = value;
    }
    if (rule->falls ? new.clear <= new.raise : new.clear >= new.raise)
        return error_set(err, ERROR_INVALID,
                         "%s: the line to clear (%g) must be %s the one to raise (%g)", rule->name,
                         new.clear, rule->falls ? "above" : "below", new.raise);
    *lines = new;
    return ERROR_NONE;
}

enum error_code alert_lines_set(const struct alert_rule *rule, struct alert_lines *lines,
                                const char *field, double value, struct error *err)
{
    if (strcmp(field, "raise_after_s") == 0)
        return set_hold(rule, &lines->raise_ms, field, value, err);
    if (strcmp(field, "clear_after_s") == 0)
        return set_hold(rule, &lines->clear_ms, field, value, err);
    const bool raises = strcmp(field, "raise") == 0;
    if (!raises && strcmp(field, "clear") != 0)
        return error_set(
            err, ERROR_INVALID,
            "an alert has raise, clear, raise_after_s and clear_after_s, and no '%.32s'", field);
    return set_line(rule, lines, raises, value, err);
}
