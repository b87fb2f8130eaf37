#include "alerts/alerts.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void alerts_init(struct alerts *alerts)
{
    alerts->n = 0;
    alerts->n_left_out = 0;
    for (unsigned kind = 0; kind < ALERT_KINDS; kind++)
        alerts->lines[kind] = alert_rule((enum alert_kind)kind)->usual;
}

static struct alert_track *tracks_find(struct alerts *alerts, enum alert_kind kind,
                                       const char *subject)
{
    for (uint32_t i = 0; i < alerts->n; i++) {
        struct alert_track *track = &alerts->tracks[i];
        if (track->kind == kind && strcmp(track->subject, subject) == 0)
            return track;
    }
    return NULL;
}

const struct alert_track *alerts_find(const struct alerts *alerts, enum alert_kind kind,
                                      const char *subject)
{
    return tracks_find((struct alerts *)(uintptr_t)alerts, kind, subject);
}

static struct alert_track *tracks_add(struct alerts *alerts, enum alert_kind kind,
                                      const char *subject)
{
    if (alerts->n == LIMIT_ALERT_TRACKS || strlen(subject) >= ALERT_SUBJECT_TEXT) {
        alerts->n_left_out++;
        return NULL;
    }
    struct alert_track *track = &alerts->tracks[alerts->n++];
    *track = (struct alert_track){.kind = kind};
    memcpy(track->subject, subject, strlen(subject) + 1);
    return track;
}

/* The last takes its place: the order of tracks means nothing. */
static void tracks_drop(struct alerts *alerts, struct alert_track *track)
{
    const uint32_t last = --alerts->n;
    assert(track >= alerts->tracks && track <= &alerts->tracks[last]);
    if (track != &alerts->tracks[last])
        *track = alerts->tracks[last];
}

void alerts_adopt(struct alerts *alerts, enum alert_kind kind, const char *subject, uint64_t now_ms)
{
    struct alert_track *track = tracks_find(alerts, kind, subject);
    if (!track)
        track = tracks_add(alerts, kind, subject);
    if (!track)
        return;
    track->is_up = true;
    track->is_moving = false;
    track->known_ms = now_ms;
}

/* ---- a reading ---- */

static void turn_fill(struct alert_turn *turn, const struct alert_track *track,
                      enum alert_turn_kind what, enum alert_cause why)
{
    *turn =
        (struct alert_turn){.what = what, .why = why, .kind = track->kind, .value = track->value};
    memcpy(turn->subject, track->subject, sizeof turn->subject);
}

/* What a value does to a track. True: it has turned. */
static bool track_take(const struct alerts *alerts, struct alert_track *track, double value,
                       uint64_t now_ms)
{
    const struct alert_rule *rule = alert_rule(track->kind);
    const struct alert_lines *lines = &alerts->lines[track->kind];
    const bool beyond =
        track->is_up ? alert_is_good(rule, lines, value) : alert_is_bad(rule, lines, value);
    assert(now_ms >= track->known_ms);
    if (now_ms - track->known_ms > LIMIT_ALERT_GAP_MS)
        track->is_moving = false; /* nobody knows what it was meanwhile */
    track->known_ms = now_ms;
    track->value = value;
    if (!beyond) {
        track->is_moving = false;
        return false;
    }
    if (!track->is_moving) {
        track->is_moving = true;
        track->since_ms = now_ms;
    }
    if (now_ms - track->since_ms < (track->is_up ? lines->clear_ms : lines->raise_ms))
        return false;
    track->is_up = !track->is_up;
    track->is_moving = false;
    return true;
}

/* True: `turn` was filled. */
static bool take_value(struct alerts *alerts, const struct alert_reading *reading, uint64_t now_ms,
                       struct alert_turn *turn)
{
    const struct alert_rule *rule = alert_rule(reading->kind);
    struct alert_track *track = tracks_find(alerts, reading->kind, reading->subject);
    assert(isfinite(reading->value));
    if (!track && !alert_is_bad(rule, &alerts->lines[reading->kind], reading->value))
        return false;
    if (!track) {
        track = tracks_add(alerts, reading->kind, reading->subject);
        if (!track)
            return false;
        track->known_ms = now_ms;
    }
    const bool turned = track_take(alerts, track, reading->value, now_ms);
    if (turned)
        turn_fill(turn, track, track->is_up ? ALERT_RAISED : ALERT_CLEARED, ALERT_BY_READING);
    if (!track->is_up && !track->is_moving)
        tracks_drop(alerts, track);
    return turned;
}

static bool take_going(struct alerts *alerts, const struct alert_reading *reading,
                       struct alert_turn *turn)
{
    struct alert_track *track = tracks_find(alerts, reading->kind, reading->subject);
    const bool was_up = track && track->is_up;
    if (was_up)
        turn_fill(turn, track, ALERT_CLEARED, ALERT_BY_GOING);
    if (track)
        tracks_drop(alerts, track);
    return was_up;
}

/* ---- silence ---- */

static uint32_t drop_silent(struct alerts *alerts, uint64_t now_ms, struct alert_turn *turns,
                            uint32_t max)
{
    uint32_t n = 0;
    for (uint32_t i = alerts->n; i-- > 0;) {
        struct alert_track *track = &alerts->tracks[i];
        const uint64_t silent_ms = now_ms - track->known_ms;
        if (silent_ms <= (track->is_up ? LIMIT_ALERT_UNKNOWN_MS : LIMIT_ALERT_GAP_MS))
            continue;
        if (track->is_up && n == max)
            continue; /* in the next step */
        if (track->is_up)
            turn_fill(&turns[n++], track, ALERT_CLEARED, ALERT_BY_SILENCE);
        tracks_drop(alerts, track);
    }
    return n;
}

uint32_t alerts_step(struct alerts *alerts, const struct alert_reading *readings, uint32_t n,
                     uint64_t now_ms, struct alert_turn *turns, uint32_t max)
{
    uint32_t n_turns = 0;
    for (uint32_t i = 0; i < n && n_turns < max; i++) {
        const struct alert_reading *reading = &readings[i];
        assert((unsigned)reading->kind < ALERT_KINDS && reading->subject);
        if (reading->state == ALERT_KNOWN)
            n_turns += take_value(alerts, reading, now_ms, &turns[n_turns]);
        else if (reading->state == ALERT_GONE)
            n_turns += take_going(alerts, reading, &turns[n_turns]);
    }
    return n_turns + drop_silent(alerts, now_ms, turns + n_turns, max - n_turns);
}
