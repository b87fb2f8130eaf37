/* Parts of one pipeline on several nodes: their messages, and what becomes of them when some are
 * lost. */
#include "hosting/hosting_impl.h"

#include "base/log.h"

#include <assert.h>
#include <string.h>

static bool part_stage_is_of(const struct part_stage *stage, const uint8_t node_id[NODE_ID_BYTES])
{
    return !stage->here && memcmp(stage->node_id, node_id, NODE_ID_BYTES) == 0;
}

/* On a device's or lane's thread, or the driver's. What is on this machine never gets here: the
 * pipeline takes it there itself (pipeline/pipeline.h). */
void part_send(void *arg, uint32_t stage, struct buffer *message)
{
    const struct part *part = arg;
    const struct part_stage *to = &part->life.stages[stage < part->life.n_stages ? stage : 0];
    assert(!to->here);
    carrier_send(part->hosting->options.carrier, to->node_id, message);
}

static void hosting_send_notice(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                                uint64_t key, uint64_t epoch)
{
    struct buffer message = {0};
    wire_write_notice(&(struct wire_route){.instance = key, .epoch = epoch}, &message);
    if (!message.failed) /* else its driver is told when the link ends, or never asked: memory for
                            64 bytes lacks */
        carrier_send(hosting->options.carrier, node_id, &message);
    buffer_deinit(&message);
}

void part_notify_driver(struct part *part)
{
    hosting_send_notice(part->hosting, part->life.stages[0].node_id, part->key, part->life.epoch);
}

/* ---- receiving ------------------------------------------------------------------------ */

enum error_code hosting_receive(void *arg, const void *bytes, size_t size, struct error *err)
{
    struct hosting *hosting = arg;
    struct wire_route route;
    enum error_code code = wire_read_route(bytes, size, &route, err);
    struct part *part = code ? NULL : hosting_first(hosting);
    while (part &&
           (part->key != route.instance || part->life.epoch != route.epoch || !part->attached))
        part = part_next(part);
    if (code)
        return code;
    if (!part)
        return error_set(err, ERROR_NOT_FOUND, "no part of that placement is here");
    if (!wire_is_notice(&route)) {
        take_used(part);
        code = part->driver ? driver_receive(part->driver, bytes, size, err)
                            : runner_receive(part->runner, bytes, size, err);
        if (code != ERROR_BUSY)
            return code;
        /* What a driver had under way before it was lost is still being computed here: it is to
         * wait for longer. A driver here hears of it from its lane. */
        if (!part->driver)
            part_notify_driver(part);
        return ERROR_NONE;
    }
    struct error why = {0};
    error_set(&why, ERROR_IO,
              "messages between other nodes were lost, or one of them has not loaded its stages");
    if (part->driver)
        part_lose(part, &why);
    else
        part_notify_driver(part);
    return ERROR_NONE;
}

void hosting_stray(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                   const struct wire_route *route)
{
    if (!hosting->parts.closing && !wire_is_notice(route)) /* a notice is never answered */
        hosting_send_notice(hosting, node_id, route->instance, route->epoch);
}

/* An end of the carrier is an instance; it may have parts of two placements. */
static struct part *part_other_attached(const struct part *part)
{
    struct part *other = hosting_first(part->hosting);
    while (other && (other == part || !other->attached || other->key != part->key))
        other = part_next(other);
    return other;
}

enum error_code part_attach(struct part *part, struct error *err)
{
    const struct part *other = part_other_attached(part);
    if (other && strcmp(other->life.instance, part->life.instance) != 0)
        return error_set(err, ERROR_INVALID,
                         "instances %s and %s look alike on the wire: rename one",
                         part->life.instance, other->life.instance);
    enum error_code code = other ? ERROR_NONE
                                 : carrier_attach(part->hosting->options.carrier, part->key,
                                                  hosting_receive, part->hosting, err);
    part->attached = !code;
    return code;
}

void part_detach(struct part *part)
{
    if (part->attached && !part_other_attached(part))
        carrier_attach(part->hosting->options.carrier, part->key, NULL, NULL, NULL);
    part->attached = false;
}

/* ---- losing and finding --------------------------------------------------------------- */

void part_lose(struct part *part, const struct error *why)
{
    const uint64_t now_ms = uv_now(part->hosting->options.loop);
    struct error lost = *why;
    lost.code = ERROR_IO; /* whatever it was: the request may be tried again */
    driver_lost(part->driver, &lost);
    if (part->life.state == PART_HANDING)
        return; /* what it has under way is over, so that it can quiesce */
    if (part->found_ms)
        take_end(part, why->text);
    if (!part->lost) {
        if (part->found_ms && now_ms - part->found_ms < HOSTING_STEADY_MS)
            part->pause_ms = part->pause_ms * 2 < HOSTING_PAUSE_MAX_MS ? part->pause_ms * 2
                                                                       : HOSTING_PAUSE_MAX_MS;
        else
            part->pause_ms = HOSTING_PAUSE_MS;
        log_line(LOG_INFO, "hosting", "instance %s waits for stages elsewhere: %s",
                 part->life.instance, why->text);
        hosting_tell(part->hosting);
    }
    part->lost = true;
    part->problem = lost;
    part->retry_ms = now_ms + part->pause_ms;
    hosting_watch(part->hosting);
}

static bool part_is_whole(const struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        if (!stage->here && options->linked && !options->linked(options->self, stage->node_id))
            return false;
    }
    struct error why = {0};
    return part->life.others_ready &&
           pipeline_look(part_pipeline((struct part *)part), &why) == PIPELINE_LOADED;
}

void hosting_mend(struct hosting *hosting)
{
    const uint64_t now_ms = uv_now(hosting->options.loop);
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        if (part->owes_notice) {
            part->owes_notice = false;
            part_notify_driver(part);
        }
        if (!part->lost || now_ms < part->retry_ms || !part_is_whole(part))
            continue;
        driver_found(part->driver);
        part->lost = false;
        part->found_ms = now_ms;
        hosting_tell(hosting);
    }
}

/* A runner's: whether it sends to that node. */
static bool part_sends_to(const struct part *part, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i + 1 < part->life.n_stages; i++) {
        if (part->life.stages[i].here && part_stage_is_of(&part->life.stages[i + 1], node_id))
            return true;
    }
    return false;
}

static void part_runner_lost(struct part *part, const uint8_t node_id[NODE_ID_BYTES],
                             const struct error *why)
{
    if (!part_stage_is_of(&part->life.stages[0], node_id)) {
        if (part_sends_to(part, node_id))
            part_notify_driver(part);
    } else if (why->code == ERROR_BUSY || why->code == ERROR_NO_MEMORY) {
        part->owes_notice = true; /* the link is still up: the driver does not know */
        hosting_watch(part->hosting);
    }
}

void hosting_lost(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                  const struct error *why)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        bool concerned = false;
        for (uint32_t i = 0; i < part->life.n_stages && part->attached; i++)
            concerned |= part_stage_is_of(&part->life.stages[i], node_id);
        if (!concerned)
            continue;
        if (part->driver)
            part_lose(part, why);
        else
            part_runner_lost(part, node_id, why);
    }
}

/* ---- lanes ------------------------------------------------------------------------------ */

/* On a thread of the children. */
void part_lanes_changed(void *arg)
{
    struct part *part = arg;
    uv_async_send(&part->hosting->wake);
}

/* One that hands over its caches has lost them. */
static void part_mind_handing(struct part *part)
{
    struct pipeline *pipeline = part_pipeline(part);
    struct error why = {0};
    if (!pipeline_take_loss(pipeline, &why) && pipeline_look(pipeline, &why) == PIPELINE_LOADED)
        return;
    if (!part->driver)
        part_notify_driver(part); /* which waits for what was under way here */
    give_fail(part, why.text);
}

static void part_mind(struct part *part)
{
    struct pipeline *pipeline = part_pipeline(part);
    struct error why = {0};
    if (pipeline_look(pipeline, &why) == PIPELINE_GIVEN_UP) {
        if (!part->driver)
            part_notify_driver(part);
        part_give_up(part, &why);
    } else if (pipeline_take_loss(pipeline, &why)) {
        give_fail(part, why.text);
        take_fail(part, why.text);
        if (part->driver)
            part_lose(part, &why);
        else
            part_notify_driver(part);
    }
}

/* The state first: while a part loads, its pipeline is another thread's. */
void hosting_mind(struct hosting *hosting)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        if (part->life.state == PART_READY)
            part_mind(part);
        else if (part->life.state == PART_HANDING)
            part_mind_handing(part);
    }
}
