/* What a leader asks the log for, so that the agreed alerts become those that are up here.
 *
 * The agreed ones are what counts: an ask that is lost is made again, and one that was agreed on is
 * never made again, whoever led when it was. So a change of the leader neither loses nor doubles an
 * alert. Muted alerts count as not up.
 *
 * The log is not flooded: LIMIT_ALERT_BURST asks at once, then one every LIMIT_ALERT_REFILL_MS;
 * what is critical goes first. Pure. */
#pragma once

#include "alerts/alert_settings.h"

enum { ALERT_ASK_AGAIN_MS = 2000, ALERT_ASKS_MAX = 64 };

struct alert_agreed { /* one that the cluster has agreed to be up, of a kind that is known here */
    enum alert_kind kind;
    const char *subject;
};

struct alert_ask {
    bool raises;          /* else it clears */
    enum alert_kind kind; /* and subject */
    char subject[ALERT_SUBJECT_TEXT];
    double value;    /* raises: of the last reading */
    const char *why; /* clears: static; NULL: all is well */
    uint64_t asked_ms;
};

struct alert_asks {
    uint32_t n;
    struct alert_ask list[ALERT_ASKS_MAX]; /* under way: asked for, and not agreed on yet */
    uint32_t spent;                        /* of the burst */
    uint64_t refilled_ms;
};

/* `turns`: of the step before, for why something was cleared. At most `max` go to `out`; how many.
 * What finds no room comes in the next step. */
uint32_t alert_asks_step(struct alert_asks *asks, const struct alerts *alerts,
                         const struct alert_mutes *mutes, const struct alert_agreed *agreed,
                         uint32_t n_agreed, const struct alert_turn *turns, uint32_t n_turns,
                         uint64_t now_ms, struct alert_ask *out, uint32_t max);
