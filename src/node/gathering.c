#include "node/gathering_impl.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cluster/event.h"
#include "mesh/frames.h"

#include <string.h>

/* ---- time ------------------------------------------------------------------------------------ */

static void gathering_reap(struct gathering *gathering)
{
    for (struct gather_share **at = &gathering->shares; *at;) {
        struct gather_share *share = *at;
        if (!gather_share_is_over(share)) {
            at = &share->next;
            continue;
        }
        *at = share->next;
        gather_share_free(share);
    }
    for (struct gather_ask **at = &gathering->asks; *at;) {
        struct gather_ask *ask = *at;
        if (ask->phase != ASK_OVER || ask->prepared) {
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        gather_ask_free(ask);
    }
}

static void gathering_on_timer(uv_timer_t *timer)
{
    struct gathering *gathering = (struct gathering *)timer;
    for (struct gather_share *share = gathering->shares; share; share = share->next)
        gather_share_step(share);
    for (struct gather_ask *ask = gathering->asks; ask; ask = ask->next)
        gather_ask_step(ask);
    gathering_reap(gathering);
    if (gathering->shares || gathering->asks)
        return;
    uv_timer_stop(&gathering->timer);
    gathering->is_ticking = false;
}

void gathering_wake(struct gathering *gathering)
{
    if (gathering->is_ticking || gathering->is_closing)
        return;
    gathering->is_ticking =
        uv_timer_start(&gathering->timer, gathering_on_timer, 1, GATHERING_MS) == 0;
}

/* ---- opening and closing --------------------------------------------------------------------- */

struct gathering *gathering_new(struct daemon *daemon)
{
    struct gathering *gathering = mem_new(sizeof *gathering);
    if (!gathering)
        return NULL;
    gathering->daemon = daemon;
    gathering->next_id = clock_now_ns(); /* other than those of an earlier run */
    uv_timer_init(daemon->loop, &gathering->timer);
    return gathering;
}

static void gathering_on_closed(uv_handle_t *timer)
{
    struct gathering *gathering = (struct gathering *)timer;
    gathering->closed(gathering->daemon);
}

void gathering_close(struct gathering *gathering, void (*closed)(struct daemon *daemon))
{
    gathering->is_closing = true;
    gathering->closed = closed;
    for (struct gather_ask **at = &gathering->asks; *at;) {
        struct gather_ask *ask = *at;
        if (ask->phase == ASK_REGISTERS) { /* it is answered when the agreement closes */
            at = &ask->next;
            continue;
        }
        *at = ask->next;
        gather_ask_free(ask);
    }
    for (struct gather_share *share = gathering->shares; share; share = share->next)
        gather_fetches_close(share); /* one that is kept is let go by weights_close() */
    uv_close((uv_handle_t *)&gathering->timer, gathering_on_closed);
}

void gathering_free(struct gathering *gathering)
{
    while (gathering && gathering->asks) {
        struct gather_ask *next = gathering->asks->next;
        gather_ask_free(gathering->asks);
        gathering->asks = next;
    }
    while (gathering && gathering->shares) {
        struct gather_share *next = gathering->shares->next;
        gather_share_free(gathering->shares);
        gathering->shares = next;
    }
    mem_free(gathering);
}

/* ---- messages -------------------------------------------------------------------------------- */

enum error_code gathering_take(struct daemon *daemon, struct peer *peer,
                               const struct frame_header *header, const uint8_t *payload,
                               struct error *err)
{
    ProtobufCMessage *message = NULL;
    const bool asks = header->type == FRAME_GATHER;
    struct gathering *gathering = daemon->gathering;
    if (!gathering || gathering->is_closing)
        return ERROR_NONE;
    const enum error_code code =
        message_decode(asks ? &node__gather__descriptor : &node__gathered__descriptor, payload,
                       header->length, &message, err);
    if (code)
        return code;
    if (asks)
        gather_share_take(gathering, peer->id, (const Node__Gather *)message);
    else
        gather_ask_take(gathering, peer->id, (const Node__Gathered *)message);
    message_free(message);
    return ERROR_NONE;
}

void gathering_down(struct daemon *daemon, const struct peer *peer)
{
    struct gathering *gathering = daemon->gathering;
    if (!gathering || gathering->is_closing)
        return;
    for (struct gather_share *share = gathering->shares; share; share = share->next) {
        if (strcmp(share->asker, peer->id) == 0)
            gather_share_leave(share);
    }
    for (struct gather_ask *ask = gathering->asks; ask; ask = ask->next)
        gather_ask_lost(ask, peer->id);
}
