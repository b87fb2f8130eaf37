/* Which alerts are up: a machine that is shown readings, and says what is raised and cleared.
 *
 *     alerts_init(&alerts);
 *     alerts_adopt(&alerts, kind, subject, now_ms);      // what was up before: of the last leader
 *     n = alerts_step(&alerts, readings, n_readings, now_ms, turns, n_turns_max);
 *
 * An alert is raised when a reading has been at or beyond its line for its time, and cleared when
 * readings have been at or beyond the lower line for theirs; a single reading between the two
 * begins either time anew. So between a raise and the next clear there is at least the time to
 * clear, and between a clear and the next raise at least the time to raise, and whatever is bad (or
 * good) for so long is never missed.
 *
 * Unknown is not a value. A subject that is not among the readings, or whose reading is unknown,
 * neither raises nor clears, and its time goes on only if the next value comes within
 * LIMIT_ALERT_GAP_MS: after a longer silence that time begins anew. An alert that is up stays up
 * for LIMIT_ALERT_UNKNOWN_MS without a value; then it is cleared, since nobody knows any more. What
 * is gone for good (a node that was removed) is cleared at once.
 *
 * Pure: time comes in. One thread. At most LIMIT_ALERT_TRACKS subjects are followed at a time; one
 * that does not fit is followed as soon as there is room (`n_left_out` counts readings). */
#pragma once

#include "alerts/alert_rules.h"

#include "base/limits.h"

enum { ALERT_SUBJECT_TEXT = 256 };

enum alert_reading_state { ALERT_UNKNOWN, ALERT_KNOWN, ALERT_GONE };

struct alert_reading {
    enum alert_kind kind;
    enum alert_reading_state state;
    const char *subject; /* copied; one longer than ALERT_SUBJECT_TEXT is left out */
    double value;        /* KNOWN: finite */
};

struct alert_track {
    enum alert_kind kind;
    char subject[ALERT_SUBJECT_TEXT];
    bool is_up;
    bool is_moving;    /* readings have been beyond the line that would change is_up … */
    uint64_t since_ms; /* … since then */
    uint64_t known_ms; /* the last reading with a value, or when it was adopted */
    double value;      /* of that */
};

enum alert_turn_kind { ALERT_NO_TURN, ALERT_RAISED, ALERT_CLEARED };
enum alert_cause { ALERT_BY_READING, ALERT_BY_SILENCE, ALERT_BY_GOING };

struct alert_turn {
    enum alert_turn_kind what;
    enum alert_cause why;
    enum alert_kind kind;
    char subject[ALERT_SUBJECT_TEXT];
    double value;
};

struct alerts {
    struct alert_lines lines[ALERT_KINDS];
    uint32_t n;
    uint64_t n_left_out;
    struct alert_track tracks[LIMIT_ALERT_TRACKS];
};

/* Empty, with the usual lines. */
void alerts_init(struct alerts *alerts);
/* It is up already, whoever raised it. */
void alerts_adopt(struct alerts *alerts, enum alert_kind kind, const char *subject,
                  uint64_t now_ms);
/* NULL: all is well with it. */
const struct alert_track *alerts_find(const struct alerts *alerts, enum alert_kind kind,
                                      const char *subject);

/* Time does not go back. Several readings of one subject count in their order. At most `max` turns,
 * how many; what finds no room there happens in the next step. */
uint32_t alerts_step(struct alerts *alerts, const struct alert_reading *readings, uint32_t n,
                     uint64_t now_ms, struct alert_turn *turns, uint32_t max);
