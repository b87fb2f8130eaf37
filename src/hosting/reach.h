/* Whether a part reaches the others of its pipeline: what becomes of it when something was lost on
 * the way, and when its driver serves again (hosting.h says why so). A machine as that of parts.h:
 * it knows no clock, link or driver. Each event answers with what is to be done now, as bits of
 * enum reach_effect, carried out in their order. hosting_far.c does so on the loop, and sim/serve.c
 * with made-up drivers.
 *
 * Events count only while the part is open: READY or HANDING. Another one has nothing to lose.
 *
 * Invariants, asserted at each event
 *  1. Only the part with the driver waits; only a runner sends notices, or owes one.
 *  2. A pause is from REACH_PAUSE_MS to REACH_PAUSE_MAX_MS.
 *  3. A driver that hands over does not begin to wait: it is cut off, so that it comes to rest, and
 *     that it is found again is nobody's wish. */
#pragma once

#include "hosting/parts.h"

enum {
    REACH_PAUSE_MS = 100, /* before a driver that has lost a stage elsewhere serves again … */
    REACH_PAUSE_MAX_MS = 5000,
    REACH_STEADY_MS = 10000, /* … and that begins anew when it has served so long */
};

enum reach_effect {
    REACH_CUT = 1,         /* driver_lost(): what is under way ends */
    REACH_END_TAKE = 2,    /* what it was taking over is void: cache_take_end() */
    REACH_WAIT = 4,        /* it serves no more for a while: tell who uses it */
    REACH_FOUND = 8,       /* driver_found(); tell who uses it */
    REACH_TELL_DRIVER = 16 /* send a notice to the node of stage 0 */
};

struct reach {
    const struct part_life *life;
    bool is_waiting; /* its driver cannot serve */
    bool was_found;  /* it has waited, and served again */
    bool owes_notice;
    uint64_t pause_ms, retry_ms, found_ms;
};

typedef bool (*reach_linked_fn)(void *self, const uint8_t node_id[NODE_ID_BYTES]);

void reach_init(struct reach *reach, const struct part_life *life); /* `life` must stay */

/* ---- events; `now_ms` from any start, but never back ---- */
/* It has become READY: a driver with stages elsewhere waits until those are known to be. */
uint32_t reach_opened(struct reach *reach, uint64_t now_ms);
/* The link to that node has ended; or, if `is_up`, it has not taken a message. */
uint32_t reach_link_lost(struct reach *reach, uint64_t now_ms, const uint8_t node_id[NODE_ID_BYTES],
                         bool is_up);
uint32_t reach_notice(struct reach *reach, uint64_t now_ms); /* one has come */
/* What the stages here had is lost: nothing that was under way can end well. */
uint32_t reach_broken(struct reach *reach, uint64_t now_ms);
/* A message was lost here, or all is; a driver here hears of that by other means. */
uint32_t reach_missed(struct reach *reach);
/* After each parts_step(). */
uint32_t reach_look_at_state(struct reach *reach, uint64_t now_ms);
/* By and by. `is_loaded`: the stages here are; asked of drivers that wait. `linked` NULL: to all
 * nodes. */
uint32_t reach_look(struct reach *reach, uint64_t now_ms, bool is_loaded, reach_linked_fn linked,
                    void *self);
void reach_leave(struct reach *reach); /* PARTS_LEAVE: it waits for nothing any more */

/* ---- questions ---- */
bool reach_is_due(const struct reach *reach);    /* reach_look() is to come soon */
bool reach_is_far(const struct part_life *life); /* some of its stages are elsewhere */
