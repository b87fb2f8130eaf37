/* Parts of one pipeline on several nodes: their messages, and what becomes of them when some are
 * lost. */
#include "hosting/hosting_impl.h"

#include "base/log.h"

#include <assert.h>
#include <string.h>

/* On a device's or lane's thread, or the driver's. What is on this machine never gets here: the
 * pipeline takes it there itself (pipeline/pipeline.h). */
void part_send(void *arg, uint32_t stage, struct buffer *message)
{
    const struct part *part = arg;
    const struct part_stage *to = &part->life.stages[stage < part->life.n_stages ? stage : 0];
    assert(!to->here);
    carrier_send(part->hosting->options.carrier, to->node_id, message);
}

void part_halt(void *arg, uint32_t stage, uint64_t number)
{
    const struct part *part = arg;
    const struct part_stage *to = &part->life.stages[stage];
    const struct wire_route route = {part->key, part->life.epoch, number};
    for (uint32_t i = 0; i < stage; i++) { /* once to each node */
        if (memcmp(part->life.stages[i].node_id, to->node_id, sizeof to->node_id) == 0)
            return;
    }
    carrier_send_halt(part->hosting->options.carrier, to->node_id, &route);
}

/* A stage that does not know the rotations would compute something else. */
static bool part_knows_rope(const struct part *part, struct error *err)
{
    for (uint32_t i = 0; rope_stretch_is_set(&part->options.rope) && i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        if (stage->here || carrier_takes_rope(part->hosting->options.carrier, stage->node_id))
            continue;
        error_set(err, ERROR_UNSUPPORTED,
                  "stage %u is on a node with an older version of medley, which does not know "
                  "--rope-scaling: update it",
                  i);
        return false;
    }
    return true;
}

static bool part_has_room_ahead(const struct part *part)
{
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        if (!stage->here && !carrier_takes_rope(part->hosting->options.carrier, stage->node_id))
            return false;
    }
    return true;
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
        part_meet(part, reach_missed(&part->reach), NULL);
        return ERROR_NONE;
    }
    struct error why = {0};
    error_set(&why, ERROR_IO,
              "messages between other nodes were lost, or one of them has not loaded its stages");
    part_meet(part, reach_notice(&part->reach, uv_now(hosting->options.loop)), &why);
    return ERROR_NONE;
}

void hosting_halt(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                  const struct wire_route *route)
{
    struct part *part = hosting_first(hosting);
    while (part && (part->key != route->instance || part->life.epoch != route->epoch))
        part = part_next(part);
    const bool is_drivers = part && part->attached && part->runner &&
                            memcmp(part->life.stages[0].node_id, node_id, NODE_ID_BYTES) == 0;
    if (is_drivers)
        runner_halt(part->runner, route->number);
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
    assert(!part->attached && reach_is_far(&part->life));
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

void part_meet(struct part *part, uint32_t effects, const struct error *why)
{
    struct error lost = {0};
    assert(!(effects & (REACH_CUT | REACH_FOUND)) || part->driver);
    assert(!(effects & REACH_CUT) || why);
    if (effects & REACH_CUT) {
        lost = *why;
        lost.code = ERROR_IO; /* whatever it was: the request may be tried again */
        driver_lost(part->driver, &lost);
    }
    if (part->reach.is_waiting && lost.code)
        part->problem = lost;
    if (effects & REACH_END_TAKE)
        take_end(part, why->text);
    if (effects & REACH_WAIT)
        log_line(LOG_INFO, "hosting", "instance %s waits for stages elsewhere: %s",
                 part->life.instance, why->text);
    struct error old;
    if (effects & REACH_FOUND && !part_knows_rope(part, &old)) {
        part->problem = old;
        driver_lost(part->driver, &old);
    } else if (effects & REACH_FOUND) {
        driver_set_room_ahead(part->driver, part_has_room_ahead(part));
        driver_found(part->driver);
    }
    if (effects & (REACH_WAIT | REACH_FOUND))
        hosting_tell(part->hosting);
    if (effects & REACH_TELL_DRIVER)
        hosting_send_notice(part->hosting, part->life.stages[0].node_id, part->key,
                            part->life.epoch);
    if (reach_is_due(&part->reach))
        hosting_watch(part->hosting);
}

/* The state first: while a part loads, its pipeline is another thread's. */
static bool part_is_loaded(struct part *part)
{
    struct error why = {0};
    return part->life.state == PART_READY &&
           pipeline_look(part_pipeline(part), &why) == PIPELINE_LOADED;
}

void hosting_mend(struct hosting *hosting)
{
    const struct hosting_options *options = &hosting->options;
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        if (reach_is_due(&part->reach))
            part_meet(part,
                      reach_look(&part->reach, uv_now(options->loop), part_is_loaded(part),
                                 options->linked, options->self),
                      NULL);
    }
}

void hosting_lost(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                  const struct error *why)
{
    const uint64_t now_ms = uv_now(hosting->options.loop);
    const bool is_up = why->code == ERROR_BUSY || why->code == ERROR_NO_MEMORY;
    for (struct part *part = hosting_first(hosting); part; part = part_next(part))
        part_meet(part, reach_link_lost(&part->reach, now_ms, node_id, is_up), why);
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
    part_meet(part, reach_missed(&part->reach), NULL); /* its driver waits for what was under
                                                               way here */
    give_fail(part, why.text);
}

static void part_mind(struct part *part)
{
    struct pipeline *pipeline = part_pipeline(part);
    struct error why = {0};
    if (pipeline_look(pipeline, &why) == PIPELINE_GIVEN_UP) {
        part_meet(part, reach_missed(&part->reach), NULL);
        part_give_up(part, &why);
    } else if (pipeline_take_loss(pipeline, &why)) {
        give_fail(part, why.text);
        take_fail(part, why.text);
        part_meet(part, reach_broken(&part->reach, uv_now(part->hosting->options.loop)), &why);
    }
}

/* The state first: while a part loads, its pipeline is another thread's. */
void hosting_mind(struct hosting *hosting)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part)) {
        if (part_note_memory(part, uv_now(hosting->options.loop)))
            hosting_tell(hosting);
        part_draft_mind(part);
        if (part->life.state == PART_READY)
            part_mind(part);
        else if (part->life.state == PART_HANDING)
            part_mind_handing(part);
    }
}
