/* A part that goes hands its caches over to the placement that follows it (handover.h). Its driver
 * stops at a token's boundary and offers what its slots hold; each part sends the layers that it
 * has to where they are from now on. */
#include "hosting/handover.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum { GIVE_TOKENS_MIN = 16 /* fewer are computed as quickly */ };

static void give_check(const struct cache_give *give)
{
    assert(give->part && give->stage <= give->part->of.n_stages);
    assert(give->n_under_way <= CACHE_WINDOW);
    assert(!give->has_next || give->next.epoch > give->part->of.epoch);
    assert(give->state != GIVE_HANDING || give->has_next);
}

static struct cache_route give_route(const struct cache_give *give)
{
    return (struct cache_route){give->part->instance, give->part->of.epoch, give->next.epoch};
}

void cache_give_init(struct cache_give *give, const struct handover_part *part)
{
    assert(part->of.n_stages <= LIMIT_STAGES);
    *give = (struct cache_give){.part = part};
}

void cache_give_clear(struct cache_give *give)
{
    mem_free(give->offer);
    handover_effects_clear(&give->effects);
    *give = (struct cache_give){.part = give->part, .state = GIVE_OVER};
}

/* The driver's offer may be here before the news that another placement serves: the part is then
 * retired when that comes. */
bool cache_give_is_active(const struct cache_give *give)
{
    const bool early = give->state == GIVE_NOTHING && give->part->is_loaded &&
                       !handover_drives(give->part) && give->offer && give->has_next;
    return give->state == GIVE_HANDING || early;
}

/* ---- to whom ---------------------------------------------------------------------------- */

static void give_forget_offer(struct cache_give *give)
{
    mem_free(give->offer);
    give->offer = NULL;
    give->stage = give->layer = give->slot = give->row = give->n_under_way = 0;
    if (give->state == GIVE_OVER) /* of what it has another placement may have some use */
        give->state = GIVE_NOTHING;
}

static bool give_read_next(struct cache_give *give, const struct handover_placement *next)
{
    if (give->next.epoch == next->epoch)
        return give->has_next;
    give->next = *next;
    give->has_next = next->n_stages && next->epoch > give->part->of.epoch;
    if (give->offer && give->offer->to_epoch != next->epoch) /* that one was given up */
        give_forget_offer(give);
    return give->has_next;
}

void cache_give_prepare(struct cache_give *give, const struct handover_placement *next)
{
    assert(next->n_stages <= LIMIT_STAGES);
    if (!give->n_under_way && give->state != GIVE_HANDING)
        give_read_next(give, next);
    give_check(give);
}

bool cache_give_is_to(const struct cache_give *give, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < give->next.n_stages; i++) {
        if (memcmp(give->next.stages[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

static const uint8_t *give_heir(const struct cache_give *give, uint32_t layer)
{
    for (uint32_t i = 0; i < give->next.n_stages; i++) {
        const struct handover_stage *heir = &give->next.stages[i];
        if (layer >= heir->first_layer && layer - heir->first_layer < heir->n_layers)
            return heir->node_id;
    }
    return NULL;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* So that the new driver does not wait. */
static void give_decline(struct cache_give *give)
{
    const struct cache_route route = give_route(give);
    struct buffer message = {0};
    cache_write_done(&route, false, &message);
    handover_send(&give->effects, give->next.stages[0].node_id, &message);
}

static void give_end(struct cache_give *give, bool declines)
{
    assert(give->state != GIVE_OVER && give->has_next);
    give->retires = give->state == GIVE_HANDING;
    give->state = GIVE_OVER;
    give->quiesces = false;
    if (declines)
        give_decline(give);
}

void cache_give_stop(struct cache_give *give)
{
    if (cache_give_is_active(give))
        give_end(give, true);
    give_check(give);
}

void cache_give_fail(struct cache_give *give, const char *why)
{
    if (!cache_give_is_active(give))
        return;
    handover_note(&give->effects, "its caches are not handed over: %s", why);
    give_end(give, true);
    give_check(give);
}

void cache_give_close(struct cache_give *give)
{
    give->state = GIVE_OVER;
    give->quiesces = give->retires = false;
}

bool cache_give_begin(struct cache_give *give, uint64_t now_ms,
                      const struct handover_placement *next, bool may)
{
    assert(next->n_stages <= LIMIT_STAGES);
    if (give->state == GIVE_HANDING && give->next.epoch == next->epoch)
        return true;
    if (give->state == GIVE_HANDING) { /* to one that was given up: its rows are on their way */
        give->state = GIVE_NOTHING;
        may = false;
    }
    if (next->epoch <= give->part->of.epoch || !give_read_next(give, next))
        return false;
    if (!may || give->state != GIVE_NOTHING) {
        if (give->state != GIVE_OVER) /* else all was given, or this was said */
            give_decline(give);
        give->state = GIVE_OVER;
        return false;
    }
    give->state = GIVE_HANDING;
    give->until_ms = now_ms + (give->offer ? give->offer->patience_ms : LIMIT_CACHE_OFFER_MS);
    give->quiesces = handover_drives(give->part);
    give_check(give);
    return true;
}

/* ---- the offer -------------------------------------------------------------------------- */

bool cache_give_wants_slots(const struct cache_give *give)
{
    return give->state == GIVE_HANDING && !give->offer && handover_drives(give->part);
}

/* Seconds that copying a slot takes over the slowest link from here; what other nodes exchange is
 * taken to be as slow. */
static double give_copy_s(const struct cache_give *give, const struct give_costs *costs,
                          uint32_t n_tokens)
{
    const struct handover_part *part = give->part;
    uint64_t slowest = 0, n_rows = 0;
    for (uint32_t i = 0; i < part->of.n_stages && costs->link_bytes_per_s; i++) {
        const struct handover_stage *stage = &part->of.stages[i];
        for (uint32_t k = 0; k < stage->n_layers; k++) {
            const uint8_t *heir = give_heir(give, stage->first_layer + k);
            if (!heir || memcmp(heir, stage->node_id, NODE_ID_BYTES) == 0)
                continue;
            const bool comes_here = memcmp(heir, part->node_id, NODE_ID_BYTES) == 0;
            const uint64_t rate =
                costs->link_bytes_per_s(costs->self, comes_here ? stage->node_id : heir);
            slowest = rate && (!slowest || rate < slowest) ? rate : slowest;
            n_rows += handover_span_rows(
                handover_span(part, &give->next, stage->first_layer + k, n_tokens));
        }
    }
    return slowest ? (double)(n_rows * part->row_bytes[0]) / (double)slowest : 0;
}

/* Slots by which computing would take longer than copying; how long there is for it. A state is as
 * large for a short text as for a long one, so each slot is weighed by itself. */
static void give_choose(struct cache_give *give, const struct cached_slot *slots, uint32_t n,
                        const struct give_costs *costs, struct cache_offer *out)
{
    uint64_t n_tokens = 0;
    double all_replay_s = 0, all_wire_s = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double replay_s = (double)slots[i].n_tokens * (double)costs->prompt_row_ns / 1e9;
        const double wire_s = give_copy_s(give, costs, slots[i].n_tokens);
        if (slots[i].n_tokens < GIVE_TOKENS_MIN || (replay_s > 0 && wire_s > replay_s) ||
            (give->next.n_slots && slots[i].slot >= give->next.n_slots) ||
            n_tokens + slots[i].n_tokens > LIMIT_CACHE_TOKENS)
            continue;
        n_tokens += slots[i].n_tokens;
        all_replay_s += replay_s;
        all_wire_s += wire_s;
        out->slots[out->n_slots].slot = slots[i].slot;
        out->slots[out->n_slots].n_tokens = slots[i].n_tokens;
        out->slots[out->n_slots].cache_key = slots[i].cache_key;
        out->slots[out->n_slots++].tokens =
            (const unsigned char *)slots[i].tokens; /* little-endian, as all we run on */
    }
    const double longer_s = all_wire_s > all_replay_s ? all_wire_s : all_replay_s;
    const double patience_ms = (double)GIVE_PATIENCE_MS + 2000 * longer_s;
    const double most_ms = (double)LIMIT_CACHE_PATIENCE_MS;
    out->patience_ms = (uint32_t)(patience_ms < most_ms ? patience_ms : most_ms);
    handover_note(&give->effects, "%u of %u caches, %llu tokens, go to epoch %llu%s", out->n_slots,
                  n, (unsigned long long)n_tokens, (unsigned long long)give->next.epoch,
                  n && !out->n_slots ? ": computing them anew is quicker" : "");
}

/* The nodes of both placements, in order. */
static const uint8_t *give_listener(const struct cache_give *give, uint32_t i)
{
    const uint32_t n_own = give->part->of.n_stages;
    return i < n_own ? give->part->of.stages[i].node_id : give->next.stages[i - n_own].node_id;
}

static bool give_is_told(const struct cache_give *give, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (memcmp(give_listener(give, i), give_listener(give, n), NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

/* To each node of both placements, once. */
static void give_tell_all(struct cache_give *give, const struct cache_offer *offer)
{
    const struct cache_route route = give_route(give);
    for (uint32_t i = 0; i < give->part->of.n_stages + give->next.n_stages; i++) {
        struct buffer message = {0};
        if (give_is_told(give, i))
            continue;
        cache_write_offer(&route, offer, &message);
        handover_send(&give->effects, give_listener(give, i), &message);
    }
}

void cache_give_quiesced(struct cache_give *give, uint64_t now_ms, const struct cached_slot *slots,
                         uint32_t n, const struct give_costs *costs)
{
    assert(n <= LIMIT_SEQUENCES);
    if (!cache_give_wants_slots(give))
        return;
    give->quiesces = false;
    struct cache_message *message = mem_new(sizeof *message);
    struct offered *own = NULL;
    if (message) {
        message->kind = CACHE_OFFER;
        message->route = give_route(give);
        give_choose(give, slots, n, costs, &message->offer);
        own = offered_new(message);
    }
    if (own) {
        give_tell_all(give, &message->offer);
        cache_give_offer(give, now_ms, own);
    } else {
        cache_give_fail(give, "no memory");
    }
    mem_free(message);
}

void cache_give_offer(struct cache_give *give, uint64_t now_ms, struct offered *offer)
{
    const bool may = give->part->is_loaded || give->state == GIVE_HANDING;
    if (!offer || give->offer || !may ||
        (give->next.epoch && give->next.epoch != offer->to_epoch)) {
        mem_free(offer);
        return;
    }
    assert(!give->n_under_way);
    give->offer = offer;
    give->until_ms = now_ms + offer->patience_ms;
    give_check(give);
}

/* ---- rows ------------------------------------------------------------------------------- */

/* Steps over what is not here; false: all has been sent. */
static bool give_find_rows(struct cache_give *give, struct kv_run *out)
{
    const struct handover_part *part = give->part;
    for (; give->stage < part->of.n_stages; give->stage++, give->layer = 0) {
        const struct handover_stage *stage = &part->of.stages[give->stage];
        const bool here = handover_is_here(part, give->stage);
        for (; here && give->layer < stage->n_layers; give->layer++, give->slot = 0) {
            for (; give->slot < give->offer->n_slots; give->slot++, give->row = 0) {
                const struct cached_slot *slot = &give->offer->slots[give->slot];
                const uint32_t layer = stage->first_layer + give->layer;
                const struct handover_span span =
                    handover_span(part, &give->next, layer, slot->n_tokens);
                assert(give->row <= span.end);
                give->row = give->row < span.first ? span.first : give->row;
                if (give->row == span.end)
                    continue;
                *out = (struct kv_run){layer, slot->slot, give->row, span.end - give->row};
                return true;
            }
        }
    }
    return false;
}

/* False: nobody is to have that layer. */
static bool give_read_rows(struct cache_give *give, struct kv_run run, struct handover_effect *out)
{
    const struct cache_route route = give_route(give);
    const uint64_t row_bytes = give->part->row_bytes[give->stage];
    const uint8_t *heir = give_heir(give, run.layer);
    if (!heir || !row_bytes)
        return false;
    const uint64_t n_most =
        LIMIT_CACHE_ROWS_BYTES / row_bytes ? LIMIT_CACHE_ROWS_BYTES / row_bytes : 1;
    run.n_rows = run.n_rows < n_most ? run.n_rows : (uint32_t)n_most;
    *out = (struct handover_effect){.type = HANDOVER_READ, .stage = give->stage, .run = run};
    memcpy(out->node_id, heir, NODE_ID_BYTES);
    cache_write_rows(&route, &run, row_bytes, &out->message);
    give->row += run.n_rows;
    give->n_under_way++;
    return true;
}

/* What can be read now; ends the hand-over when nothing is left. */
static bool give_next_rows(struct cache_give *give, struct handover_effect *out)
{
    struct kv_run run;
    if (!cache_give_is_active(give) || !give->offer || give->n_under_way == CACHE_WINDOW)
        return false;
    if (give_find_rows(give, &run)) {
        if (give_read_rows(give, run, out))
            return true;
        cache_give_fail(give, "a layer that nobody is to have");
    } else if (!give->n_under_way) {
        give_end(give, false);
    }
    return false;
}

void cache_give_read(struct cache_give *give, struct handover_effect *effect, const char *why)
{
    assert(effect->type == HANDOVER_READ);
    if (!cache_give_is_active(give))
        return;
    if (why)
        cache_give_fail(give, why);
    else
        handover_send(&give->effects, effect->node_id, &effect->message);
}

void cache_give_taken(struct cache_give *give, uint64_t now_ms)
{
    if (!cache_give_is_active(give) || !give->n_under_way)
        return;
    give->n_under_way--;
    give->until_ms = now_ms + GIVE_PATIENCE_MS;
}

void cache_give_tick(struct cache_give *give, uint64_t now_ms)
{
    if (cache_give_is_active(give) && now_ms >= give->until_ms)
        cache_give_fail(give,
                        give->offer ? "it takes too long" : "its driver does not come to an end");
    give_check(give);
}

/* ---- what is to be done ----------------------------------------------------------------- */

static bool give_flag(bool *flag, enum handover_effect_type type, struct handover_effect *out)
{
    if (!*flag)
        return false;
    *flag = false;
    *out = (struct handover_effect){.type = type};
    return true;
}

bool cache_give_next(struct cache_give *give, struct handover_effect *out)
{
    give_check(give);
    return give_flag(&give->quiesces, HANDOVER_QUIESCE, out) ||
           handover_take(&give->effects, out) || give_next_rows(give, out) ||
           handover_take(&give->effects, out) || /* what its end says */
           give_flag(&give->retires, HANDOVER_RETIRE, out);
}
