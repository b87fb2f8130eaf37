/* A part that comes takes over the caches of the placement before it (handover.h). It writes the
 * rows of its layers; when all are there, lengths and tokens are set, and the driver's node is
 * told. When all nodes have said so, the driver begins with these slots. Until then it is not
 * shown; whatever goes wrong, and when it takes too long, it begins with empty ones. */
#include "hosting/handover.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct cache_early {
    struct cache_early *next;
    uint8_t node_id[NODE_ID_BYTES];
    struct buffer message;
};
enum { EARLY_MAX = 4 * CACHE_WINDOW };

static void take_check(const struct cache_take *take)
{
    assert(take->part && take->n_early <= EARLY_MAX);
    assert((take->state == TAKE_NOTHING) == !take->from.epoch);
    assert(take->state != TAKE_OFFERED || (take->offer && take->got));
    assert(take->state != TAKE_FULL || (take->offer && !take->n_settling && !take->settles));
    assert(take->state == TAKE_OPEN || !take->early);
    assert(take->begins == TAKE_BEGIN_NOT || cache_take_is_open(take));
    assert(take->begins != TAKE_BEGIN_FULL || take->state == TAKE_FULL);
}

static struct cache_route take_route(const struct cache_take *take)
{
    return (struct cache_route){take->part->instance, take->from.epoch, take->part->of.epoch};
}

void cache_take_init(struct cache_take *take, const struct handover_part *part)
{
    assert(part->of.n_stages <= LIMIT_STAGES);
    *take = (struct cache_take){.part = part};
}

static void take_free_early(struct cache_take *take)
{
    while (take->early) {
        struct cache_early *next = take->early->next;
        buffer_deinit(&take->early->message);
        mem_free(take->early);
        take->early = next;
    }
    take->n_early = 0;
}

void cache_take_clear(struct cache_take *take)
{
    take_free_early(take);
    mem_free(take->offer);
    mem_free(take->got);
    handover_effects_clear(&take->effects);
    *take = (struct cache_take){.part = take->part};
}

void cache_take_open(struct cache_take *take, const struct handover_placement *from)
{
    assert(take->state == TAKE_NOTHING);
    if (!from->epoch || !from->n_stages || from->epoch >= take->part->of.epoch)
        return;
    take->from = *from;
    take->state = TAKE_OPEN;
    take_check(take);
}

bool cache_take_is_open(const struct cache_take *take)
{
    return take->state == TAKE_OPEN || take->state == TAKE_OFFERED || take->state == TAKE_FULL;
}

bool cache_take_is_from(const struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < take->from.n_stages; i++) {
        if (memcmp(take->from.stages[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

bool cache_take_is_from_driver(const struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES])
{
    return take->from.n_stages && memcmp(take->from.stages[0].node_id, node_id, NODE_ID_BYTES) == 0;
}

/* Its rows of a layer are those of who had it. */
static bool take_is_of(const struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES],
                       uint32_t layer)
{
    for (uint32_t i = 0; i < take->from.n_stages; i++) {
        const struct handover_stage *giver = &take->from.stages[i];
        if (layer >= giver->first_layer && layer - giver->first_layer < giver->n_layers)
            return memcmp(giver->node_id, node_id, NODE_ID_BYTES) == 0;
    }
    return false;
}

/* ---- the end ---------------------------------------------------------------------------- */

static void take_over(struct cache_take *take)
{
    assert(cache_take_is_open(take));
    take->state = TAKE_OVER;
    take->until_ms = 0;
    take->begins = TAKE_BEGIN_NOT;
    take->settles = false;
    take->is_changed = true;
    take_free_early(take);
    take_check(take);
}

/* What stages may have by now nobody knows: the driver empties every slot before it uses it. */
void cache_take_end(struct cache_take *take, const char *why)
{
    if (!cache_take_is_open(take))
        return;
    assert(why);
    if (take->begins != TAKE_BEGIN_EMPTY)
        handover_note(&take->effects, "begins with empty caches: %s", why);
    if (!handover_drives(take->part)) {
        take_over(take);
        return;
    }
    take->begins = TAKE_BEGIN_EMPTY;
    take->is_begin_said = false;
    take_check(take);
}

/* Nobody tells a runner that its driver begins, full or empty: the first message does. Rows that
 * come later would overwrite what it has computed since. */
void cache_take_used(struct cache_take *take)
{
    if (cache_take_is_open(take) && !handover_drives(take->part))
        take_over(take);
}

static bool take_all_done(const struct cache_take *take)
{
    for (uint32_t i = 0; i < take->part->of.n_stages; i++) {
        if (!take->done[i])
            return false;
    }
    return true;
}

/* With what is in the slots. A driver that has not yet found its stages would empty them. */
static void take_begin_full(struct cache_take *take)
{
    const struct handover_part *part = take->part;
    if (!handover_drives(part) || take->state != TAKE_FULL || part->is_lost || !part->is_current ||
        take->begins != TAKE_BEGIN_NOT || !take_all_done(take))
        return;
    take->begins = TAKE_BEGIN_FULL;
    take->is_begin_said = false;
    take_check(take);
}

void cache_take_begun(struct cache_take *take, bool ok)
{
    assert(take->begins != TAKE_BEGIN_NOT && take->is_begin_said);
    const bool is_full = take->begins == TAKE_BEGIN_FULL;
    take->begins = TAKE_BEGIN_NOT;
    if (ok && is_full)
        handover_note(&take->effects, "has taken over %u caches", take->offer->n_slots);
    if (ok)
        take_over(take);
    else if (is_full)
        cache_take_end(take, "no memory");
    else
        take->until_ms = 1; /* there is no memory now either; the next tick comes back to it */
}

static const char *take_why_not(const struct cache_take *take, uint64_t now_ms, bool is_linked)
{
    if (now_ms >= take->until_ms)
        return take->state == TAKE_OPEN ? "nothing was offered" : "it takes too long";
    return take->state == TAKE_OPEN && !is_linked ? "there is no link to who had them" : NULL;
}

void cache_take_tick(struct cache_take *take, uint64_t now_ms, bool is_linked)
{
    const struct handover_part *part = take->part;
    take_check(take);
    if (!cache_take_is_open(take) || !part->is_loaded || !handover_drives(part) ||
        !part->is_current)
        return;
    if (!take->until_ms)
        take->until_ms = now_ms + LIMIT_CACHE_OFFER_MS;
    take_begin_full(take);
    const char *why = take->begins == TAKE_BEGIN_NOT ? take_why_not(take, now_ms, is_linked) : NULL;
    if (why)
        cache_take_end(take, why);
}

/* Tells the driver's node. */
static void take_tell_done(struct cache_take *take, bool has_all)
{
    const struct cache_route route = take_route(take);
    struct buffer message = {0};
    cache_write_done(&route, has_all, &message);
    handover_send(&take->effects, take->part->of.stages[0].node_id, &message);
}

void cache_take_fail(struct cache_take *take, const char *why)
{
    if (!cache_take_is_open(take))
        return;
    handover_note(&take->effects, "caches that do not come: %s", why);
    if (handover_drives(take->part)) {
        cache_take_end(take, why);
        return;
    }
    take_over(take);
    take_tell_done(take, false);
}

void cache_take_done(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES], bool has_all)
{
    const struct handover_part *part = take->part;
    if (!part->is_loaded || !handover_drives(part) || !cache_take_is_open(take))
        return;
    for (uint32_t i = 0; i < part->of.n_stages; i++)
        take->done[i] |= has_all && memcmp(part->of.stages[i].node_id, node_id, NODE_ID_BYTES) == 0;
    if (has_all)
        take_begin_full(take);
    else
        cache_take_end(take, "another node has not got them");
}

/* ---- rows ------------------------------------------------------------------------------- */

static uint32_t take_n_layers(const struct handover_part *part, uint32_t stage)
{
    const uint32_t n = part->of.stages[stage].n_layers;
    return part->bug == HANDOVER_NO_LAYER && n ? n - 1 : n;
}

/* Among those that are here; UINT32_MAX: it is not. */
static uint32_t take_own_layer(const struct handover_part *part, uint32_t layer, uint32_t *stage)
{
    uint32_t before = 0;
    for (*stage = 0; *stage < part->of.n_stages; (*stage)++) {
        const struct handover_stage *of = &part->of.stages[*stage];
        if (!handover_is_here(part, *stage))
            continue;
        if (layer >= of->first_layer && layer - of->first_layer < of->n_layers)
            return before + layer - of->first_layer;
        before += of->n_layers;
    }
    return UINT32_MAX;
}

static uint32_t take_count_layers(const struct handover_part *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->of.n_stages; i++) {
        if (handover_is_here(part, i))
            n += part->of.stages[i].n_layers;
    }
    return n;
}

/* Of a slot, for all layers that are here. */
static uint64_t take_count_rows(const struct handover_part *part, uint32_t n_tokens)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < part->of.n_stages; i++) {
        const uint32_t first = part->of.stages[i].first_layer;
        for (uint32_t k = 0; handover_is_here(part, i) && k < take_n_layers(part, i); k++)
            n += handover_span_rows(handover_span(part, &part->of, first + k, n_tokens));
    }
    return n;
}

/* Checked: it is what comes next of a layer that is here. */
static bool take_fits(struct cache_take *take, const struct cache_message *message, uint32_t *stage)
{
    const struct kv_run *run = &message->rows.run;
    const uint32_t layer = take_own_layer(take->part, run->layer, stage);
    uint32_t slot = 0;
    while (slot < take->offer->n_slots && take->offer->slots[slot].slot != run->slot)
        slot++;
    if (layer == UINT32_MAX || slot == take->offer->n_slots)
        return false;
    const uint32_t n_tokens = take->offer->slots[slot].n_tokens;
    const struct handover_span span =
        handover_span(take->part, &take->part->of, run->layer, n_tokens);
    uint32_t *got = &take->got[(size_t)layer * take->offer->n_slots + slot];
    assert(*got <= span.end);
    const uint32_t next = *got < span.first ? span.first : *got, left = span.end - next;
    if (run->first != next || run->n_rows > left ||
        message->rows.row_bytes != take->part->row_bytes[*stage])
        return false;
    *got = next + run->n_rows;
    return true;
}

static void take_cache_answer(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct cache_route route = take_route(take);
    struct buffer message = {0};
    cache_write_taken(&route, &message);
    handover_send(&take->effects, node_id, &message);
}

/* Planted: the layer is taken for another stage's. */
static bool take_is_forgotten(const struct handover_part *part, uint32_t stage, uint32_t layer)
{
    return layer - part->of.stages[stage].first_layer >= take_n_layers(part, stage);
}

static void take_write(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES],
                       const struct cache_message *message, struct buffer *bytes)
{
    uint32_t stage;
    if (!take_is_of(take, node_id, message->rows.run.layer) || !take_fits(take, message, &stage)) {
        cache_take_fail(take, "rows that are not those of its layers");
        return;
    }
    struct handover_effect effect = {
        .type = HANDOVER_WRITE, .stage = stage, .run = message->rows.run};
    if (take_is_forgotten(take->part, stage, effect.run.layer)) {
        take_cache_answer(take, node_id);
        return;
    }
    memcpy(effect.node_id, node_id, NODE_ID_BYTES);
    effect.message = *bytes;
    *bytes = (struct buffer){0};
    if (!handover_put(&take->effects, &effect))
        cache_take_fail(take, "no memory");
}

/* Who has a link of its own may be quicker than who offers. */
static void take_keep(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES],
                      struct buffer *bytes)
{
    const bool may = take->n_early < EARLY_MAX && !bytes->failed;
    struct cache_early *early = may ? mem_new(sizeof *early) : NULL;
    struct cache_early **at = &take->early;
    if (!early) {
        cache_take_fail(take, "too many rows before the offer");
        return;
    }
    memcpy(early->node_id, node_id, NODE_ID_BYTES);
    early->message = *bytes;
    *bytes = (struct buffer){0};
    while (*at)
        at = &(*at)->next;
    *at = early;
    take->n_early++;
}

bool cache_take_rows(struct cache_take *take, const uint8_t node_id[NODE_ID_BYTES],
                     const struct cache_message *rows, struct buffer *message)
{
    assert(rows->kind == CACHE_ROWS && (message->data || message->failed));
    if (!take->part->is_loaded || (take->state != TAKE_OPEN && take->state != TAKE_OFFERED))
        return false;
    if (take->state == TAKE_OPEN)
        take_keep(take, node_id, message);
    else
        take_write(take, node_id, rows, message);
    take_check(take);
    return true;
}

static void take_write_early(struct cache_take *take, struct cache_early *list)
{
    for (struct cache_early *early = list, *next; early; early = next) {
        struct cache_message message;
        next = early->next;
        if (take->state == TAKE_OFFERED &&
            cache_read(early->message.data, early->message.size, &message, NULL) == ERROR_NONE)
            take_write(take, early->node_id, &message, &early->message);
        buffer_deinit(&early->message);
        mem_free(early);
    }
}

/* ---- the offer -------------------------------------------------------------------------- */

static bool take_are_tokens(const struct handover_part *part, const struct cached_slot *slot)
{
    uint32_t i = 0;
    while (i < slot->n_tokens && slot->tokens[i] >= 0 && (uint32_t)slot->tokens[i] < part->n_vocab)
        i++;
    return i == slot->n_tokens;
}

static bool take_can(const struct handover_part *part, const struct offered *offer)
{
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        const struct cached_slot *slot = &offer->slots[i];
        if (!take_are_tokens(part, slot))
            return false;
        /* The driver's slots are its own to check; a runner's stages check what they are told. */
        if (handover_drives(part) &&
            (slot->slot >= part->n_slots || slot->n_tokens > part->context))
            return false;
    }
    return true;
}

static void take_settle(struct cache_take *take)
{
    assert(take->state == TAKE_OFFERED && !take->n_settling);
    take->settles = true;
    take->settle_stage = 0;
    for (uint32_t i = 0; i < take->part->of.n_stages; i++)
        take->n_settling += handover_is_here(take->part, i);
    assert(take->n_settling);
}

void cache_take_offer(struct cache_take *take, uint64_t now_ms, struct offered *offer)
{
    const struct handover_part *part = take->part;
    if (!part->is_loaded || take->state != TAKE_OPEN || take->offer) {
        mem_free(offer);
        return;
    }
    take->offer = offer;
    take->got = offer ? mem_new_array((size_t)take_count_layers(part) * offer->n_slots + 1,
                                      sizeof *take->got)
                      : NULL;
    if (!take->got || !take_can(part, offer)) {
        cache_take_fail(take, "an offer that cannot be taken");
        return;
    }
    take->state = TAKE_OFFERED;
    take->until_ms = handover_drives(part) ? now_ms + offer->patience_ms : 0;
    for (uint32_t i = 0; i < offer->n_slots; i++)
        take->n_left += take_count_rows(part, offer->slots[i].n_tokens);
    if (part->bug == HANDOVER_HALF)
        take->n_left /= 2;
    struct cache_early *early = take->early;
    take->early = NULL;
    take->n_early = 0;
    take_write_early(take, early);
    if (!take->n_left && take->state == TAKE_OFFERED)
        take_settle(take);
    take_check(take);
}

void cache_take_written(struct cache_take *take, const struct handover_effect *effect,
                        const char *why)
{
    assert(effect->type == HANDOVER_WRITE);
    if (why) {
        cache_take_fail(take, why);
        return;
    }
    const bool planted = take->part->bug == HANDOVER_HALF && take->n_left < effect->run.n_rows;
    assert(planted || take->n_left >= effect->run.n_rows);
    take->n_left -= planted ? take->n_left : effect->run.n_rows;
    if (!take->n_left && take->state == TAKE_OFFERED && !take->n_settling)
        take_settle(take);
    take_cache_answer(take, effect->node_id);
}

void cache_take_settled(struct cache_take *take, const char *why)
{
    if (why) {
        cache_take_fail(take, why);
        return;
    }
    assert(take->n_settling);
    if (--take->n_settling || take->state != TAKE_OFFERED)
        return;
    assert(!take->n_left);
    take->settles = false;
    take->state = TAKE_FULL;
    take_tell_done(take, true);
    take_check(take);
}

/* ---- what is to be done ----------------------------------------------------------------- */

static bool take_next_settle(struct cache_take *take, struct handover_effect *out)
{
    while (take->settles) {
        const uint32_t stage = take->settle_stage++;
        take->settles = take->settle_stage < take->part->of.n_stages;
        if (handover_is_here(take->part, stage)) {
            *out = (struct handover_effect){.type = HANDOVER_SETTLE, .stage = stage};
            return true;
        }
    }
    return false;
}

static bool take_next_begin(struct cache_take *take, struct handover_effect *out)
{
    if (take->begins == TAKE_BEGIN_NOT || take->is_begin_said)
        return false;
    take->is_begin_said = true;
    *out = (struct handover_effect){.type = HANDOVER_BEGIN,
                                    .is_full = take->begins == TAKE_BEGIN_FULL};
    return true;
}

bool cache_take_next(struct cache_take *take, struct handover_effect *out)
{
    take_check(take);
    if (handover_take(&take->effects, out) || take_next_settle(take, out) ||
        take_next_begin(take, out))
        return true;
    const bool is_changed = take->is_changed;
    take->is_changed = false;
    if (is_changed)
        *out = (struct handover_effect){.type = HANDOVER_CHANGED};
    return is_changed;
}
