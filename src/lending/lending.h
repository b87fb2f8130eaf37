/* What a machine's owner lends the cluster, and whether that is now. Pure.
 *
 *     struct lending lending = {0};                               everything, always
 *     lending_set(&lending, "hours", "22:00-07:00", &err);        one setting, as people write it
 *     lending_write(&lending, &text);  lending_read(&lending, …)  for a file
 *     lending_at(&lending, &moment)                               LENDING_OPEN, or why nothing is
 *                                                                 lent now
 *     lending_bytes(&lending, "gpu0", total)                      of a memory of that size at most
 *
 * Settings, each with what it takes ("all", "always" and "yes" are how it begins):
 *     memory   SIZE | all          of each device's own memory, and of the host's, at most
 *     share    PERCENT | all       the same as a part of it; where both are given the smaller
 * counts devices  LIST | all          ids of `medley devices`, with commas hours HH:MM-HH:MM|always
 * of the local day; the end belongs to it no more; across midnight where the end is before the
 * begin; equal ones are refused battery  yes | no            lends while it runs on battery used
 * yes | no            lends while others use the machine (struct lending_use) now      yes | no
 * lends at all: the owner's switch
 *
 * What is not known decides so: a machine that does not say whether it is on battery is taken to be
 * on mains, since most have none; a load that is not known changes nothing. Hours go by the local
 * clock as people read it: where it leaps, an hour is longer or shorter, or there twice. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "base/reading.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    LENDING_SETTINGS = 7,
    LENDING_TEXT = 256,      /* a setting's value */
    LENDING_FILE_MAX = 4096, /* bytes of the file */
    LENDING_DAY_MINUTES = 24 * 60,
};

struct lending {           /* zeroed: everything, always */
    uint64_t memory_bytes; /* 0: all */
    uint32_t share_percent;
    char devices[LENDING_TEXT]; /* "": all */
    bool by_hours;
    uint16_t from_minute, to_minute;
    bool not_on_battery, not_while_used, nothing;
};

/* ERROR_INVALID: no such setting, or not what it takes; the lending is as it was. */
enum error_code lending_set(struct lending *lending, const char *setting, const char *value,
                            struct error *err);
const char *lending_setting(uint32_t index); /* their names, up to LENDING_SETTINGS */
void lending_value(const struct lending *lending, uint32_t index, char out[LENDING_TEXT]);

/* Lines of "setting value". Reading begins with everything; ERROR_INVALID names the line. */
void lending_write(const struct lending *lending, struct buffer *out);
enum error_code lending_read(const char *text, size_t size, struct lending *out, struct error *err);

enum lending_state { LENDING_OPEN, LENDING_OFF, LENDING_HOURS, LENDING_BATTERY, LENDING_USED };
struct lending_moment {
    uint32_t minute;           /* of the local day */
    struct reading on_battery; /* 0 or 1 */
    bool used;                 /* by others: lending_use_step() */
};
enum lending_state lending_at(const struct lending *lending, const struct lending_moment *moment);
const char *lending_state_text(enum lending_state state); /* "on battery"; of OPEN: "" */
uint32_t lending_minute(int64_t seconds_since_1970);      /* by localtime_r() */

/* Of a memory of that size, which the device has or lives in. */
bool lending_is_limited(const struct lending *lending); /* in memory or devices */
uint64_t lending_bytes(const struct lending *lending, const char *device, uint64_t total_bytes);

/* Whether others use the machine: more than half of it for 10 s, until it is less than a quarter
 * for 60 s. A share that is not known changes nothing, and breaks a time that runs. */
struct lending_use {
    bool used;
    uint64_t since_ms; /* that the share is beyond the other line; 0: it is not */
};
void lending_use_step(struct lending_use *use, uint64_t now_ms, struct reading others_share);
