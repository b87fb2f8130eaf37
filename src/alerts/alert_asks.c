#include "alerts/alert_asks.h"

#include <assert.h>
#include <string.h>

static bool agreed_has(const struct alert_agreed *agreed, uint32_t n, enum alert_kind kind,
                       const char *subject)
{
    for (uint32_t i = 0; i < n; i++) {
        if (agreed[i].kind == kind && strcmp(agreed[i].subject, subject) == 0)
            return true;
    }
    return false;
}

static bool asks_is_wanted(const struct alerts *alerts, const struct alert_mutes *mutes,
                           enum alert_kind kind, const char *subject)
{
    const struct alert_track *track = alerts_find(alerts, kind, subject);
    return track && track->is_up && !alert_is_muted(mutes, kind, subject);
}

static struct alert_ask *asks_find(struct alert_asks *asks, enum alert_kind kind,
                                   const char *subject)
{
    for (uint32_t i = 0; i < asks->n; i++) {
        if (asks->list[i].kind == kind && strcmp(asks->list[i].subject, subject) == 0)
            return &asks->list[i];
    }
    return NULL;
}

/* What is agreed on as it was asked for, or is not wanted any more, is done. */
static void asks_drop_done(struct alert_asks *asks, const struct alerts *alerts,
                           const struct alert_mutes *mutes, const struct alert_agreed *agreed,
                           uint32_t n_agreed)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < asks->n; i++) {
        const struct alert_ask *ask = &asks->list[i];
        const bool is_up = agreed_has(agreed, n_agreed, ask->kind, ask->subject);
        const bool wanted = asks_is_wanted(alerts, mutes, ask->kind, ask->subject);
        if (is_up != ask->raises && wanted == ask->raises)
            asks->list[kept++] = *ask;
    }
    asks->n = kept;
}

static void asks_refill(struct alert_asks *asks, uint64_t now_ms)
{
    const uint64_t n = (now_ms - asks->refilled_ms) / LIMIT_ALERT_REFILL_MS;
    asks->spent -= n < asks->spent ? (uint32_t)n : asks->spent;
    asks->refilled_ms = asks->spent ? asks->refilled_ms + n * LIMIT_ALERT_REFILL_MS : now_ms;
}

struct asks_round {
    struct alert_asks *asks;
    uint64_t now_ms;
    struct alert_ask *out;
    uint32_t n, max;
};

/* An ask under way goes out again after a while; a new one needs a place in the list, too. */
static void asks_put(struct asks_round *round, bool raises, enum alert_kind kind,
                     const char *subject, double value, const char *why)
{
    struct alert_asks *asks = round->asks;
    struct alert_ask *ask = asks_find(asks, kind, subject);
    assert(strlen(subject) < ALERT_SUBJECT_TEXT);
    if ((ask && round->now_ms - ask->asked_ms < ALERT_ASK_AGAIN_MS) || round->n == round->max ||
        asks->spent == LIMIT_ALERT_BURST || (!ask && asks->n == ALERT_ASKS_MAX))
        return;
    if (!ask) {
        ask = &asks->list[asks->n++];
        *ask = (struct alert_ask){.raises = raises, .kind = kind, .why = why};
        memcpy(ask->subject, subject, strlen(subject) + 1);
    }
    ask->value = value;
    ask->asked_ms = round->now_ms;
    round->out[round->n++] = *ask;
    asks->spent++;
}

static void ask_for_raises(struct asks_round *round, const struct alerts *alerts,
                           const struct alert_mutes *mutes, const struct alert_agreed *agreed,
                           uint32_t n_agreed, enum alert_severity severity)
{
    for (uint32_t i = 0; i < alerts->n; i++) {
        const struct alert_track *track = &alerts->tracks[i];
        if (track->is_up && alert_rule(track->kind)->severity == severity &&
            !alert_is_muted(mutes, track->kind, track->subject) &&
            !agreed_has(agreed, n_agreed, track->kind, track->subject))
            asks_put(round, true, track->kind, track->subject, track->value, NULL);
    }
}

static const char *why_cleared(const struct alert_mutes *mutes, const struct alert_turn *turns,
                               uint32_t n_turns, const struct alert_agreed *agreed)
{
    if (alert_is_muted(mutes, agreed->kind, agreed->subject))
        return "muted";
    for (uint32_t i = 0; i < n_turns; i++) {
        if (turns[i].kind != agreed->kind || strcmp(turns[i].subject, agreed->subject) != 0)
            continue;
        return turns[i].why == ALERT_BY_SILENCE ? "unknown for too long"
               : turns[i].why == ALERT_BY_GOING ? "it is gone"
                                                : NULL;
    }
    return NULL;
}

uint32_t alert_asks_step(struct alert_asks *asks, const struct alerts *alerts,
                         const struct alert_mutes *mutes, const struct alert_agreed *agreed,
                         uint32_t n_agreed, const struct alert_turn *turns, uint32_t n_turns,
                         uint64_t now_ms, struct alert_ask *out, uint32_t max)
{
    struct asks_round round = {.asks = asks, .now_ms = now_ms, .out = out, .max = max};
    asks_drop_done(asks, alerts, mutes, agreed, n_agreed);
    asks_refill(asks, now_ms);
    if (n_agreed < LIMIT_ALERTS)
        ask_for_raises(&round, alerts, mutes, agreed, n_agreed, ALERT_CRITICAL);
    for (uint32_t i = 0; i < n_agreed; i++) {
        if (!asks_is_wanted(alerts, mutes, agreed[i].kind, agreed[i].subject))
            asks_put(&round, false, agreed[i].kind, agreed[i].subject, 0,
                     why_cleared(mutes, turns, n_turns, &agreed[i]));
    }
    if (n_agreed < LIMIT_ALERTS)
        ask_for_raises(&round, alerts, mutes, agreed, n_agreed, ALERT_WARNING);
    assert(round.n <= max && asks->spent <= LIMIT_ALERT_BURST);
    return round.n;
}
