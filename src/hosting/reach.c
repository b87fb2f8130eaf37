/* What is lost on a pipeline's way, and when its driver serves again. */
#include "hosting/reach.h"

#include <assert.h>
#include <string.h>

static bool reach_is_open(const struct reach *reach)
{
    return reach->life->state == PART_READY || reach->life->state == PART_HANDING;
}

static bool reach_drives(const struct reach *reach)
{
    assert(!reach->life->has_driver || reach->life->stages[0].here);
    return reach->life->has_driver;
}

static void reach_check(const struct reach *reach)
{
    assert(reach->life->n_stages && reach->life->n_stages <= LIMIT_STAGES);
    assert(!reach->is_waiting || reach_drives(reach));
    assert(!reach->owes_notice || !reach_drives(reach));
    assert(reach->pause_ms >= REACH_PAUSE_MS && reach->pause_ms <= REACH_PAUSE_MAX_MS);
}

static bool reach_is_of(const struct part_stage *stage, const uint8_t node_id[NODE_ID_BYTES])
{
    return !stage->here && memcmp(stage->node_id, node_id, NODE_ID_BYTES) == 0;
}

bool reach_is_far(const struct part_life *life)
{
    for (uint32_t i = 0; i < life->n_stages; i++) {
        if (!life->stages[i].here)
            return true;
    }
    return false;
}

void reach_init(struct reach *reach, const struct part_life *life)
{
    assert(life->state == PART_WAITING || life->state == PART_FAILED);
    *reach = (struct reach){.life = life, .pause_ms = REACH_PAUSE_MS};
}

/* ---- losing ----------------------------------------------------------------------------- */

static uint32_t reach_lose(struct reach *reach, uint64_t now_ms)
{
    uint32_t effects = REACH_CUT;
    assert(reach_is_open(reach) && reach_drives(reach));
    assert(now_ms >= reach->found_ms);
    if (reach->life->state == PART_HANDING)
        return effects; /* what it has under way is over, so that it can come to rest */
    if (reach->was_found)
        effects |= REACH_END_TAKE;
    if (!reach->is_waiting) {
        const bool was_steady = !reach->was_found || now_ms - reach->found_ms >= REACH_STEADY_MS;
        const uint64_t twice = reach->pause_ms * 2;
        reach->pause_ms = was_steady                   ? REACH_PAUSE_MS
                          : twice < REACH_PAUSE_MAX_MS ? twice
                                                       : REACH_PAUSE_MAX_MS;
        effects |= REACH_WAIT;
    }
    reach->is_waiting = true;
    reach->retry_ms = now_ms + reach->pause_ms;
    reach_check(reach);
    return effects;
}

/* Who can end what is under way: the driver here, or the one that is told. */
static uint32_t reach_lose_or_tell(struct reach *reach, uint64_t now_ms)
{
    if (!reach_is_open(reach))
        return 0;
    return reach_drives(reach) ? reach_lose(reach, now_ms) : REACH_TELL_DRIVER;
}

uint32_t reach_opened(struct reach *reach, uint64_t now_ms)
{
    assert(reach->life->state == PART_READY && !reach->is_waiting && !reach->was_found);
    if (!reach_drives(reach) || !reach_is_far(reach->life))
        return 0;
    const uint32_t effects = reach_lose(reach, now_ms);
    reach->retry_ms = now_ms; /* as soon as they are: nothing was lost */
    return effects;
}

/* A runner's: whether it sends to that node. */
static bool reach_sends_to(const struct part_life *life, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i + 1 < life->n_stages; i++) {
        if (life->stages[i].here && reach_is_of(&life->stages[i + 1], node_id))
            return true;
    }
    return false;
}

static uint32_t reach_runner_lost(struct reach *reach, const uint8_t node_id[NODE_ID_BYTES],
                                  bool is_up)
{
    const struct part_life *life = reach->life;
    assert(!reach->is_waiting);
    if (!reach_is_of(&life->stages[0], node_id))
        return reach_sends_to(life, node_id) ? REACH_TELL_DRIVER : 0;
    reach->owes_notice |= is_up; /* else the driver knows by the link's end */
    return 0;
}

uint32_t reach_link_lost(struct reach *reach, uint64_t now_ms, const uint8_t node_id[NODE_ID_BYTES],
                         bool is_up)
{
    bool is_concerned = false;
    for (uint32_t i = 0; i < reach->life->n_stages; i++)
        is_concerned |= reach_is_of(&reach->life->stages[i], node_id);
    if (!reach_is_open(reach) || !is_concerned)
        return 0;
    return reach_drives(reach) ? reach_lose(reach, now_ms)
                               : reach_runner_lost(reach, node_id, is_up);
}

uint32_t reach_notice(struct reach *reach, uint64_t now_ms)
{
    return reach_lose_or_tell(reach, now_ms);
}

uint32_t reach_broken(struct reach *reach, uint64_t now_ms)
{
    return reach_lose_or_tell(reach, now_ms);
}

uint32_t reach_missed(struct reach *reach)
{
    return reach_is_open(reach) && !reach_drives(reach) ? REACH_TELL_DRIVER : 0;
}

/* Stages that the state forgot (is_placed) are not waited for: the part goes. */
uint32_t reach_look_at_state(struct reach *reach, uint64_t now_ms)
{
    const struct part_life *life = reach->life;
    if (life->state != PART_READY || !life->is_placed || life->others_ready || reach->is_waiting ||
        !reach_drives(reach))
        return 0;
    return reach_lose(reach, now_ms);
}

/* ---- finding ---------------------------------------------------------------------------- */

static bool reach_is_linked(const struct part_life *life, reach_linked_fn linked, void *self)
{
    for (uint32_t i = 0; i < life->n_stages; i++) {
        if (!life->stages[i].here && linked && !linked(self, life->stages[i].node_id))
            return false;
    }
    return true;
}

uint32_t reach_look(struct reach *reach, uint64_t now_ms, bool is_loaded, reach_linked_fn linked,
                    void *self)
{
    const struct part_life *life = reach->life;
    reach_check(reach);
    if (reach->owes_notice) {
        reach->owes_notice = false;
        return reach_is_open(reach) ? REACH_TELL_DRIVER : 0;
    }
    if (!reach->is_waiting || now_ms < reach->retry_ms || !is_loaded || !life->others_ready ||
        !reach_is_linked(life, linked, self))
        return 0;
    reach->is_waiting = false;
    reach->was_found = true;
    reach->found_ms = now_ms;
    return REACH_FOUND;
}

void reach_leave(struct reach *reach)
{
    assert(!reach_is_open(reach));
    reach->is_waiting = reach->owes_notice = false;
}

bool reach_is_due(const struct reach *reach)
{
    return reach->is_waiting || reach->owes_notice;
}
