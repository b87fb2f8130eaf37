/* What goes hands its caches over to the placement that follows it (cache_wire.h). Its driver ends
 * at a token's boundary and offers what its slots hold; each part sends the layers that it has to
 * where they are from now on. */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "pipeline/microbatch.h"

#include <string.h>

enum {
    GIVE_TOKENS_MIN = 16, /* fewer are computed as quickly */
    GIVE_PATIENCE_MS = 2000,
};

static struct cache_route route_of(const struct part *part)
{
    return (struct cache_route){part->key, part->epoch, part->give.to_epoch};
}

static void be_patient(struct part *part, uint64_t ms)
{
    part->give.until_ms = uv_now(part->hosting->options.loop) + ms;
}

static void give_on_quiescent(void *arg)
{
    uv_async_send(&((struct hosting *)arg)->cache_wake);
}

static bool read_heirs(struct handover *give, const Cluster__Placement *next)
{
    if (give->to_epoch == next->epoch)
        return give->n_heirs;
    give->to_epoch = next->epoch;
    give->n_heirs = 0;
    if (give->offer &&
        give->offer->to_epoch != next->epoch) { /* of a placement that was given up */
        mem_free(give->offer);
        give->offer = NULL;
        give->stage = give->layer = give->slot = give->row = give->n_under_way = 0;
        give->is_over = false;
    }
    for (uint32_t i = 0; i < next->n_stages && i < LIMIT_STAGES; i++) {
        if (!id_parse(next->stages[i]->node, give->heirs[i].node_id, NODE_ID_BYTES))
            return false;
        give->heirs[i].first_layer = next->stages[i]->first_layer;
        give->heirs[i].n_layers = next->stages[i]->n_layers;
        give->n_heirs++;
    }
    return next->n_stages && give->n_heirs == next->n_stages;
}

void give_prepare(struct part *part, const Cluster__Placement *next)
{
    if (!part->give.n_under_way)
        read_heirs(&part->give, next);
}

bool give_is_to(const struct part *part, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < part->give.n_heirs; i++) {
        if (memcmp(part->give.heirs[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

/* So that the new driver does not wait. */
static void decline(struct part *part)
{
    const struct cache_route route = route_of(part);
    struct buffer message = {0};
    cache_write_done(&route, false, &message);
    cache_tell(part->hosting, part->give.heirs[0].node_id, &message);
    buffer_deinit(&message);
}

bool part_hand_over(struct part *part, const Cluster__Placement *next)
{
    struct handover *give = &part->give;
    if (part->state == PART_HANDING && give->to_epoch == next->epoch)
        return true;
    if (next->epoch <= part->epoch || !read_heirs(give, next))
        return false;
    if (part->state != PART_READY || part->lost || !part->has_served || !state_is_ready(next) ||
        give->is_over) {
        if (!give->is_over) /* else all was given, or this was said */
            decline(part);
        give->is_over = true;
        return false;
    }
    part->state = PART_HANDING;
    be_patient(part, give->offer ? give->offer->patience_ms : LIMIT_CACHE_OFFER_MS);
    if (part->driver)
        driver_quiesce(part->driver, give_on_quiescent, part->hosting);
    hosting_tell(part->hosting);
    return true;
}

/* ---- the offer -------------------------------------------------------------------------- */

static const uint8_t *heir_of(const struct part *part, uint32_t layer)
{
    const struct handover *give = &part->give;
    for (uint32_t i = 0; i < give->n_heirs; i++) {
        if (layer >= give->heirs[i].first_layer &&
            layer - give->heirs[i].first_layer < give->heirs[i].n_layers)
            return give->heirs[i].node_id;
    }
    return NULL;
}

/* Seconds that copying takes over the slowest link from here; what other nodes exchange is taken to
 * be as slow. */
static double copy_s(struct part *part, uint64_t n_tokens)
{
    const struct hosting_options *options = &part->hosting->options;
    const uint64_t row_bytes = part_row_bytes(part, 0);
    uint64_t slowest = 0, n_rows = 0;
    for (uint32_t i = 0; i < part->n_stages; i++) {
        for (uint32_t k = 0; k < part->stages[i].n_layers; k++) {
            const uint8_t *heir = heir_of(part, part->stages[i].first_layer + k);
            if (!heir || memcmp(heir, part->stages[i].node_id, NODE_ID_BYTES) == 0)
                continue;
            const uint8_t *other = is_own(part->hosting, heir) ? part->stages[i].node_id : heir;
            const uint64_t rate =
                options->link_bytes_per_s ? options->link_bytes_per_s(options->self, other) : 0;
            slowest = rate && (!slowest || rate < slowest) ? rate : slowest;
            n_rows += n_tokens;
        }
    }
    return slowest ? (double)(n_rows * row_bytes) / (double)slowest : 0;
}

/* Slots by which computing would take longer than copying; how long there is for it. */
static void choose(struct part *part, struct cache_offer *out)
{
    struct cached_slot cached[LIMIT_SEQUENCES];
    const uint32_t n = driver_cached_slots(part->driver, cached);
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (cached[i].n_tokens < GIVE_TOKENS_MIN ||
            n_tokens + cached[i].n_tokens > LIMIT_CACHE_TOKENS)
            continue;
        n_tokens += cached[i].n_tokens;
        out->slots[out->n_slots].slot = cached[i].slot;
        out->slots[out->n_slots].n_tokens = cached[i].n_tokens;
        out->slots[out->n_slots++].tokens =
            (const unsigned char *)cached[i].tokens; /* little-endian, as all we run on */
    }
    const double replay_s = (double)n_tokens * (double)driver_prompt_row_ns(part->driver) / 1e9;
    const double wire_s = n_tokens ? copy_s(part, n_tokens) : 0;
    const double patience_ms =
        (double)GIVE_PATIENCE_MS + 2000 * (wire_s > replay_s ? wire_s : replay_s);
    const double most_ms = (double)LIMIT_CACHE_PATIENCE_MS;
    out->patience_ms = (uint32_t)(patience_ms < most_ms ? patience_ms : most_ms);
    if (replay_s > 0 && wire_s > replay_s)
        out->n_slots = 0;
    log_line(LOG_INFO, "hosting",
             "instance %s, epoch %llu: %u of %u caches, %llu tokens, go to epoch %llu%s",
             part->instance, (unsigned long long)part->epoch, out->n_slots, n,
             (unsigned long long)n_tokens, (unsigned long long)part->give.to_epoch,
             n && !out->n_slots ? ": computing them anew is quicker" : "");
}

static bool is_new(const struct part *part, const uint8_t node_id[NODE_ID_BYTES], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *other = i < part->n_stages ? part->stages[i].node_id
                                                  : part->give.heirs[i - part->n_stages].node_id;
        if (memcmp(other, node_id, NODE_ID_BYTES) == 0)
            return false;
    }
    return true;
}

/* To each node of both placements, once. */
static void tell_all(struct part *part, const struct cache_offer *offer)
{
    const struct cache_route route = route_of(part);
    for (uint32_t i = 0; i < part->n_stages + part->give.n_heirs; i++) {
        const uint8_t *node_id = i < part->n_stages ? part->stages[i].node_id
                                                    : part->give.heirs[i - part->n_stages].node_id;
        struct buffer message = {0};
        if (!is_new(part, node_id, i))
            continue;
        cache_write_offer(&route, offer, &message);
        cache_tell(part->hosting, node_id, &message);
        buffer_deinit(&message);
    }
}

static void make_offer(struct part *part)
{
    struct cache_message *message = mem_new(sizeof *message);
    struct offered *own = NULL;
    if (message) {
        message->route = route_of(part);
        choose(part, &message->offer);
        own = offered_new(message);
    }
    if (own) {
        tell_all(part, &message->offer);
        give_offer(part, own);
    } else {
        give_fail(part, "no memory");
    }
    mem_free(message);
}

void give_offer(struct part *part, struct offered *offer)
{
    struct handover *give = &part->give;
    const bool may = part->state == PART_HANDING || part->state == PART_READY;
    if (!offer || give->offer || !may || (give->to_epoch && give->to_epoch != offer->to_epoch)) {
        mem_free(offer);
        return;
    }
    give->offer = offer;
    be_patient(part, offer->patience_ms);
    give_go_on(part);
}

/* ---- sending ---------------------------------------------------------------------------- */

/* Steps over what is not here; false: all has been sent. */
static bool find_next(struct part *part, struct kv_run *out)
{
    struct handover *give = &part->give;
    for (; give->stage < part->n_stages; give->stage++, give->layer = 0) {
        const struct part_stage *stage = &part->stages[give->stage];
        for (; stage->here && give->layer < stage->n_layers; give->layer++, give->slot = 0) {
            for (; give->slot < give->offer->n_slots; give->slot++, give->row = 0) {
                const struct cached_slot *slot = &give->offer->slots[give->slot];
                if (give->row == slot->n_tokens)
                    continue;
                *out = (struct kv_run){stage->first_layer + give->layer, slot->slot, give->row,
                                       slot->n_tokens - give->row};
                return true;
            }
        }
    }
    return false;
}

/* False: it cannot be sent. */
static bool send_next(struct part *part, struct kv_run run)
{
    struct handover *give = &part->give;
    const struct cache_route route = route_of(part);
    const uint8_t *heir = heir_of(part, run.layer);
    struct cache_job *job = heir ? cache_job_new(part, CACHE_STEP_READ, give->stage) : NULL;
    if (!job)
        return false;
    const uint64_t row_bytes = part_row_bytes(part, give->stage);
    const uint64_t n_most =
        LIMIT_CACHE_ROWS_BYTES / row_bytes ? LIMIT_CACHE_ROWS_BYTES / row_bytes : 1;
    run.n_rows = run.n_rows < n_most ? run.n_rows : (uint32_t)n_most;
    job->run = run;
    memcpy(job->node_id, heir, NODE_ID_BYTES);
    cache_write_rows(&route, &run, row_bytes, &job->message);
    give->row += run.n_rows;
    give->n_under_way++;
    cache_job_submit(job);
    return true;
}

/* The driver's offer may be here before the news that another placement serves: the part is then
 * unloaded when that comes. */
static bool gives(const struct part *part)
{
    const bool early =
        part->state == PART_READY && !part->driver && part->give.offer && part->give.n_heirs;
    return !part->give.is_over && (part->state == PART_HANDING || early);
}

static void be_over(struct part *part, bool declines)
{
    part->give.is_over = true;
    if (declines)
        decline(part);
    if (part->state == PART_HANDING)
        part_retire(part, 0);
}

void give_stop(struct part *part)
{
    if (gives(part))
        be_over(part, true);
}

void give_fail(struct part *part, const char *why)
{
    if (!gives(part))
        return;
    log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: its caches are not handed over: %s",
             part->instance, (unsigned long long)part->epoch, why);
    be_over(part, true);
}

void give_go_on(struct part *part)
{
    struct handover *give = &part->give;
    struct kv_run run;
    if (!gives(part))
        return;
    if (!give->offer && part->driver && driver_is_quiescent(part->driver)) {
        make_offer(part);
        return;
    }
    if (uv_now(part->hosting->options.loop) >= give->until_ms) {
        give_fail(part, give->offer ? "it takes too long" : "its driver does not come to an end");
        return;
    }
    while (give->offer && give->n_under_way < CACHE_WINDOW && find_next(part, &run)) {
        if (!send_next(part, run)) {
            give_fail(part, "no memory, or a layer that nobody has");
            return;
        }
    }
    if (give->offer && !give->n_under_way)
        be_over(part, false);
}

void give_read(struct part *part, struct cache_job *job)
{
    if (!gives(part))
        return;
    if (job->code)
        give_fail(part, job->error.text);
    else
        cache_tell(part->hosting, job->node_id, &job->message);
}

void give_taken(struct part *part)
{
    if (!gives(part) || !part->give.n_under_way)
        return;
    part->give.n_under_way--;
    be_patient(part, GIVE_PATIENCE_MS);
    give_go_on(part);
}
