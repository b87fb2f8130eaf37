/* What both ends of a hand-over share: effects that wait, copies of offers, and who may say what.
 */
#include "hosting/handover.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "engine/batch_shape.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

bool handover_is_here(const struct handover_part *part, uint32_t stage)
{
    assert(stage < part->of.n_stages);
    return memcmp(part->of.stages[stage].node_id, part->node_id, NODE_ID_BYTES) == 0;
}

bool handover_drives(const struct handover_part *part)
{
    return part->of.n_stages && handover_is_here(part, 0);
}

static uint32_t handover_seen(const struct handover_part *part, uint32_t layer)
{
    return part->sees[layer] ? part->sees[layer] - 1 : layer;
}

/* Of the stage that it is in, a layer before it has what it sees. */
static bool handover_is_there(const struct handover_part *part, const struct handover_placement *to,
                              uint32_t layer)
{
    uint32_t first = layer;
    for (uint32_t i = 0; i < to->n_stages && part->sees[layer]; i++) {
        const struct handover_stage *stage = &to->stages[i];
        if (layer >= stage->first_layer && layer - stage->first_layer < stage->n_layers)
            first = stage->first_layer;
    }
    while (first < layer && handover_seen(part, first) != handover_seen(part, layer))
        first++;
    return first < layer;
}

struct handover_span handover_span(const struct handover_part *part,
                                   const struct handover_placement *to, uint32_t layer,
                                   uint32_t n_tokens)
{
    if (layer >= LIMIT_LAYERS)
        return (struct handover_span){0, n_tokens};
    if (part->is_recurrent[layer]) /* not known: rows that nobody has, rather than none */
        return (struct handover_span){0, part->state_rows ? part->state_rows : UINT32_MAX};
    if (part->is_bare[layer] || handover_is_there(part, to, layer))
        return (struct handover_span){0};
    const bool is_windowed = part->is_windowed[layer];
    return (struct handover_span){is_windowed ? kv_window_start(part->window, n_tokens) : 0,
                                  n_tokens};
}

struct offered *offered_new(const struct cache_message *message)
{
    assert(message->kind == CACHE_OFFER && message->offer.n_slots <= LIMIT_SEQUENCES);
    const struct cache_offer *offer = &message->offer;
    size_t n_tokens = 0;
    for (uint32_t i = 0; i < offer->n_slots; i++)
        n_tokens += offer->slots[i].n_tokens;
    struct offered *offered = mem_new(sizeof *offered + n_tokens * sizeof *offered->tokens);
    if (!offered)
        return NULL;
    int32_t *tokens = offered->tokens;
    offered->to_epoch = message->route.to_epoch;
    offered->patience_ms =
        offer->patience_ms < LIMIT_CACHE_PATIENCE_MS ? offer->patience_ms : LIMIT_CACHE_PATIENCE_MS;
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        const uint32_t n = offer->slots[i].n_tokens;
        for (uint32_t k = 0; k < n; k++)
            tokens[k] = (int32_t)bytes_load(offer->slots[i].tokens + 4 * (size_t)k, 4);
        offered->slots[offered->n_slots++] =
            (struct cached_slot){offer->slots[i].slot, n, tokens, offer->slots[i].cache_key};
        tokens += n;
    }
    assert(tokens == offered->tokens + n_tokens && offered->n_slots == offer->n_slots);
    return offered;
}

/* ---- effects ---------------------------------------------------------------------------- */

void handover_effect_clear(struct handover_effect *effect)
{
    buffer_deinit(&effect->message);
    *effect = (struct handover_effect){0};
}

bool handover_put(struct handover_effects *effects, struct handover_effect *effect)
{
    struct handover_effect *own = effect->message.failed ? NULL : mem_new(sizeof *own);
    struct handover_effect **at = &effects->first;
    if (!own) {
        handover_effect_clear(effect);
        return false;
    }
    while (*at)
        at = &(*at)->next;
    *own = *effect;
    own->next = NULL;
    *effect = (struct handover_effect){0};
    *at = own;
    return true;
}

bool handover_send(struct handover_effects *effects, const uint8_t node_id[NODE_ID_BYTES],
                   struct buffer *message)
{
    struct handover_effect effect = {.type = HANDOVER_SEND, .message = *message};
    memcpy(effect.node_id, node_id, NODE_ID_BYTES);
    *message = (struct buffer){0};
    return handover_put(effects, &effect);
}

/* For people: without memory they are not told. */
void handover_note(struct handover_effects *effects, const char *format, ...)
{
    struct handover_effect effect = {.type = HANDOVER_NOTE};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(effect.text, sizeof effect.text, format, arguments);
    va_end(arguments);
    handover_put(effects, &effect);
}

bool handover_take(struct handover_effects *effects, struct handover_effect *out)
{
    struct handover_effect *first = effects->first;
    if (!first)
        return false;
    effects->first = first->next;
    *out = *first;
    out->next = NULL;
    mem_free(first);
    return true;
}

void handover_effects_clear(struct handover_effects *effects)
{
    struct handover_effect effect;
    while (handover_take(effects, &effect))
        handover_effect_clear(&effect);
    assert(!effects->first);
}

/* ---- messages between parts ------------------------------------------------------------- */

void handover_refusal(const struct cache_route *route, struct buffer *out)
{
    cache_write_done(route, false, out);
}

static bool handover_has_stage(const struct handover_part *part,
                               const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < part->of.n_stages; i++) {
        if (memcmp(part->of.stages[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

/* Both ends of it may be here: each has its own copy. Only the old driver's node offers. */
static void handover_receive_offer(struct cache_give *from, struct cache_take *to, uint64_t now_ms,
                                   const uint8_t node_id[NODE_ID_BYTES],
                                   const struct cache_message *message)
{
    if (to && cache_take_is_from_driver(to, node_id))
        cache_take_offer(to, now_ms, offered_new(message));
    if (from && !handover_drives(from->part) &&
        memcmp(from->part->of.stages[0].node_id, node_id, NODE_ID_BYTES) == 0)
        cache_give_offer(from, now_ms, offered_new(message));
}

/* False: to be answered, since nobody here will ever want them. While the taker is there and full
 * they are dropped: it has said DONE, which its driver passes on to nobody. */
static bool handover_receive_rows(struct cache_give *from, struct cache_take *to, bool is_own,
                                  const uint8_t node_id[NODE_ID_BYTES],
                                  const struct cache_message *message, struct buffer *bytes)
{
    if (to && cache_take_is_from(to, node_id) && cache_take_rows(to, node_id, message, bytes))
        return true;
    if (!is_own)
        return to && to->state != TAKE_OVER;
    if (from)
        cache_give_stop(from);
    return true;
}

static void handover_receive_done(struct cache_give *from, struct cache_take *to,
                                  const uint8_t node_id[NODE_ID_BYTES], bool has_all)
{
    if (to &&
        (handover_has_stage(to->part, node_id) || (!has_all && cache_take_is_from(to, node_id))))
        cache_take_done(to, node_id, has_all);
    if (from && cache_give_is_to(from, node_id) && !has_all)
        cache_give_stop(from);
}

bool handover_receive(struct cache_give *from, struct cache_take *to, uint64_t now_ms,
                      const uint8_t own_id[NODE_ID_BYTES], const uint8_t node_id[NODE_ID_BYTES],
                      const struct cache_message *message, struct buffer *bytes)
{
    assert(!from || from->part->of.epoch == message->route.from_epoch);
    assert(!to || to->part->of.epoch == message->route.to_epoch);
    const bool is_own = memcmp(own_id, node_id, NODE_ID_BYTES) == 0;
    if (to && to->from.epoch != message->route.from_epoch)
        to = NULL; /* it takes over from another one, or from none */
    if (from && from->next.epoch && from->next.epoch != message->route.to_epoch)
        from = NULL; /* it gives to another one */
    switch (message->kind) {
    case CACHE_OFFER:
        handover_receive_offer(from, to, now_ms, node_id, message);
        break;
    case CACHE_ROWS:
        return handover_receive_rows(from, to, is_own, node_id, message, bytes);
    case CACHE_TAKEN:
        if (from && cache_give_is_to(from, node_id))
            cache_give_taken(from, now_ms);
        break;
    case CACHE_DONE:
        handover_receive_done(from, to, node_id, message->has_all);
        break;
    }
    return true;
}
