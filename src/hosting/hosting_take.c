/* What comes takes over the caches of the placement before it (cache_wire.h). Each part writes the
 * rows of its layers; when all are there, lengths and tokens are set, and the driver's node is
 * told. When all nodes have said so, the driver begins with these slots. Until then it is not shown
 * (hosting_driver()); whatever goes wrong, and when it takes too long, it begins with empty
 * ones. */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"
#include "pipeline/microbatch.h"

#include <assert.h>
#include <string.h>

struct early {
    struct early *next;
    uint8_t node_id[NODE_ID_BYTES];
    struct buffer message;
};
enum { EARLY_MAX = 4 * CACHE_WINDOW };

static struct cache_route route_of(const struct part *part)
{
    return (struct cache_route){part->key, part->take.from_epoch, part->epoch};
}

void take_begin(struct part *part, const Cluster__Placement *current)
{
    struct takeover *take = &part->take;
    if (!current || !current->n_stages || current->n_stages > LIMIT_STAGES ||
        !state_is_ready(current))
        return;
    for (uint32_t i = 0; i < current->n_stages; i++) {
        if (!id_parse(current->stages[i]->node, take->givers[i].node_id, NODE_ID_BYTES))
            return;
        take->givers[i].first_layer = current->stages[i]->first_layer;
        take->givers[i].n_layers = current->stages[i]->n_layers;
    }
    take->n_givers = (uint32_t)current->n_stages;
    take->state = TAKE_OPEN;
    take->from_epoch = current->epoch;
}

bool take_is_from(const struct part *part, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < part->take.n_givers; i++) {
        if (memcmp(part->take.givers[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

bool take_is_from_driver(const struct part *part, const uint8_t node_id[NODE_ID_BYTES])
{
    return part->take.n_givers && memcmp(part->take.givers[0].node_id, node_id, NODE_ID_BYTES) == 0;
}

/* Its rows of a layer are those of who had it. */
static bool had_layer(const struct part *part, const uint8_t node_id[NODE_ID_BYTES], uint32_t layer)
{
    for (uint32_t i = 0; i < part->take.n_givers; i++) {
        if (layer >= part->take.givers[i].first_layer &&
            layer - part->take.givers[i].first_layer < part->take.givers[i].n_layers)
            return memcmp(part->take.givers[i].node_id, node_id, NODE_ID_BYTES) == 0;
    }
    return false;
}

static void free_early(struct takeover *take)
{
    while (take->early) {
        struct early *next = take->early->next;
        buffer_deinit(&take->early->message);
        mem_free(take->early);
        take->early = next;
    }
}

void take_deinit(struct part *part)
{
    free_early(&part->take);
    mem_free(part->take.offer);
    mem_free(part->take.got);
}

static bool is_open(const struct takeover *take)
{
    return take->state == TAKE_OPEN || take->state == TAKE_OFFERED || take->state == TAKE_FULL;
}

/* ---- the end ---------------------------------------------------------------------------- */

/* What stages may hold by now nobody knows: the driver empties every slot before it uses it. */
static bool begin_empty(struct part *part)
{
    struct cached_slot slots[LIMIT_SEQUENCES];
    const uint32_t n = driver_options(part->driver)->n_slots;
    for (uint32_t i = 0; i < n; i++)
        slots[i] = (struct cached_slot){.slot = i};
    return driver_seed(part->driver, slots, n, NULL) == ERROR_NONE;
}

static void be_over(struct part *part)
{
    part->take.state = TAKE_OVER;
    part->take.until_ms = 0;
    free_early(&part->take);
    hosting_tell(part->hosting);
}

void take_end(struct part *part, const char *why)
{
    if (!is_open(&part->take))
        return;
    if (part->driver && !begin_empty(part)) {
        part->take.until_ms = 1; /* no memory now; the timer comes back to it */
        hosting_watch(part->hosting);
        return;
    }
    if (why)
        log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: begins with empty caches: %s",
                 part->instance, (unsigned long long)part->epoch, why);
    be_over(part);
}

static bool all_done(const struct part *part)
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (!part->take.done[i])
            return false;
    }
    return true;
}

/* With what is in the slots. A driver that has not yet found its stages would empty them. */
static void begin_full(struct part *part)
{
    struct takeover *take = &part->take;
    if (!part->driver || take->state != TAKE_FULL || part->lost || !part->is_current ||
        !all_done(part))
        return;
    if (driver_seed(part->driver, take->offer->slots, take->offer->n_slots, NULL)) {
        take_end(part, "no memory");
        return;
    }
    log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: has taken over %u caches",
             part->instance, (unsigned long long)part->epoch, take->offer->n_slots);
    be_over(part);
}

static const char *why_not(struct part *part, uint64_t now_ms)
{
    const struct takeover *take = &part->take;
    const struct hosting_options *options = &part->hosting->options;
    if (now_ms >= take->until_ms)
        return take->state == TAKE_OPEN ? "nothing was offered" : "it takes too long";
    const uint8_t *driver = take->givers[0].node_id;
    const bool linked =
        is_own(part->hosting, driver) || !options->linked || options->linked(options->self, driver);
    return take->state == TAKE_OPEN && !linked ? "there is no link to who had them" : NULL;
}

void take_look(struct part *part)
{
    struct takeover *take = &part->take;
    const uint64_t now_ms = uv_now(part->hosting->options.loop);
    if (!is_open(take) || part->state != PART_READY || !part->driver || !part->is_current)
        return; /* the state first: while it loads, the rest is another thread's */
    if (!take->until_ms) {
        take->until_ms = now_ms + LIMIT_CACHE_OFFER_MS;
        hosting_watch(part->hosting);
    }
    begin_full(part);
    const char *why = is_open(take) ? why_not(part, now_ms) : NULL;
    if (why)
        take_end(part, why);
}

/* Tells the driver's node. */
static void tell_done(struct part *part, bool has_all)
{
    const struct cache_route route = route_of(part);
    struct buffer message = {0};
    cache_write_done(&route, has_all, &message);
    cache_tell(part->hosting, part->stages[0].node_id, &message);
    buffer_deinit(&message);
}

void take_fail(struct part *part, const char *why)
{
    if (!is_open(&part->take))
        return;
    log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: caches that do not come: %s",
             part->instance, (unsigned long long)part->epoch, why);
    if (!part->driver) {
        be_over(part);
        tell_done(part, false);
    } else {
        take_end(part, why);
    }
}

void take_done(struct part *part, const uint8_t node_id[NODE_ID_BYTES], bool has_all)
{
    if (part->state != PART_READY || !part->driver || !is_open(&part->take))
        return;
    for (uint32_t i = 0; i < part->n_stages; i++)
        part->take.done[i] |=
            has_all && memcmp(part->stages[i].node_id, node_id, NODE_ID_BYTES) == 0;
    if (has_all)
        begin_full(part);
    else
        take_end(part, "another node has not got them");
}

/* ---- rows ------------------------------------------------------------------------------- */

static uint32_t own_layer(const struct part *part, uint32_t layer, uint32_t *stage)
{
    uint32_t before = 0;
    for (*stage = 0; *stage < part->n_stages; (*stage)++) {
        const struct part_stage *of = &part->stages[*stage];
        if (!of->here)
            continue;
        if (layer >= of->first_layer && layer - of->first_layer < of->n_layers)
            return before + layer - of->first_layer;
        before += of->n_layers;
    }
    return UINT32_MAX;
}

static uint32_t count_layers(const struct part *part)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < part->n_stages; i++)
        n += part->stages[i].here ? part->stages[i].n_layers : 0;
    return n;
}

static void settle(struct part *part)
{
    struct takeover *take = &part->take;
    for (uint32_t i = 0; i < part->n_stages; i++) {
        struct cache_job *job =
            part->stages[i].here ? cache_job_new(part, CACHE_STEP_SETTLE, i) : NULL;
        if (!part->stages[i].here)
            continue;
        if (!job) {
            take_fail(part, "no memory");
            return;
        }
        take->n_settling++;
        cache_job_submit(job);
    }
}

/* Checked: it is what comes next of a layer that is here. */
static bool fits(struct part *part, const struct cache_message *message, uint32_t *stage)
{
    struct takeover *take = &part->take;
    const struct kv_run *run = &message->rows.run;
    const uint32_t layer = own_layer(part, run->layer, stage);
    uint32_t slot = 0;
    while (slot < take->offer->n_slots && take->offer->slots[slot].slot != run->slot)
        slot++;
    if (layer == UINT32_MAX || slot == take->offer->n_slots)
        return false;
    uint32_t *got = &take->got[(size_t)layer * take->offer->n_slots + slot];
    const uint32_t left = take->offer->slots[slot].n_tokens - *got;
    if (run->first != *got || run->n_rows > left ||
        message->rows.row_bytes != part_row_bytes(part, *stage))
        return false;
    *got += run->n_rows;
    return true;
}

static void write_rows(struct part *part, const uint8_t node_id[NODE_ID_BYTES],
                       const struct cache_message *message, struct buffer *own)
{
    uint32_t stage;
    if (!had_layer(part, node_id, message->rows.run.layer) || !fits(part, message, &stage)) {
        take_fail(part, "rows that are not those of its layers");
        return;
    }
    struct cache_job *job = cache_job_new(part, CACHE_STEP_WRITE, stage);
    if (!job) {
        take_fail(part, "no memory");
        return;
    }
    job->run = message->rows.run;
    memcpy(job->node_id, node_id, NODE_ID_BYTES);
    if (own) {
        job->message = *own;
        *own = (struct buffer){0};
    } else {
        buffer_append(&job->message, (const char *)message->rows.bytes - CACHE_ROWS_BYTES,
                      CACHE_ROWS_BYTES + message->rows.run.n_rows * message->rows.row_bytes);
    }
    if (!job->message.failed) {
        cache_job_submit(job);
        return;
    }
    buffer_deinit(&job->message);
    mem_free(job);
    take_fail(part, "no memory");
}

/* Who has a link of its own may be quicker than who offers. */
static void keep(struct part *part, const uint8_t node_id[NODE_ID_BYTES],
                 const struct cache_message *message)
{
    struct early *early = part->take.n_early < EARLY_MAX ? mem_new(sizeof *early) : NULL,
                 **at = &part->take.early;
    if (early)
        buffer_append(&early->message, (const char *)message->rows.bytes - CACHE_ROWS_BYTES,
                      CACHE_ROWS_BYTES + message->rows.run.n_rows * message->rows.row_bytes);
    if (!early || early->message.failed) {
        if (early)
            buffer_deinit(&early->message);
        mem_free(early);
        take_fail(part, "too many rows before the offer");
        return;
    }
    memcpy(early->node_id, node_id, NODE_ID_BYTES);
    while (*at)
        at = &(*at)->next;
    *at = early;
    part->take.n_early++;
}

bool take_rows(struct part *part, const uint8_t node_id[NODE_ID_BYTES],
               const struct cache_message *message, struct buffer *own)
{
    if (part->state != PART_READY ||
        (part->take.state != TAKE_OPEN && part->take.state != TAKE_OFFERED))
        return false;
    if (part->take.state == TAKE_OPEN)
        keep(part, node_id, message);
    else
        write_rows(part, node_id, message, own);
    return true;
}

static bool are_tokens(const struct part *part, const struct cached_slot *slot)
{
    const uint32_t n_vocab = model_hyperparameters(part->model)->n_vocab;
    uint32_t i = 0;
    while (i < slot->n_tokens && slot->tokens[i] >= 0 && (uint32_t)slot->tokens[i] < n_vocab)
        i++;
    return i == slot->n_tokens;
}

static bool can_take(struct part *part, const struct offered *offer)
{
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        if (!are_tokens(part, &offer->slots[i]))
            return false;
    }
    if (!part->driver)
        return true; /* its stages check slots and lengths */
    const struct driver_options *options = driver_options(part->driver);
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        if (offer->slots[i].slot >= options->n_slots || offer->slots[i].n_tokens > options->context)
            return false;
    }
    return true;
}

static void take_early(struct part *part)
{
    struct takeover *take = &part->take;
    while (take->early && take->state == TAKE_OFFERED) {
        struct early *early = take->early;
        struct cache_message message;
        take->early = early->next;
        if (cache_read(early->message.data, early->message.size, &message, NULL) == ERROR_NONE)
            write_rows(part, early->node_id, &message, &early->message);
        buffer_deinit(&early->message);
        mem_free(early);
    }
}

void take_offer(struct part *part, struct offered *offer)
{
    struct takeover *take = &part->take;
    if (part->state != PART_READY || take->state != TAKE_OPEN) {
        mem_free(offer);
        return;
    }
    take->offer = offer;
    take->state = TAKE_OFFERED;
    take->until_ms =
        part->driver && offer ? uv_now(part->hosting->options.loop) + offer->patience_ms : 0;
    take->got =
        offer ? mem_new_array((size_t)count_layers(part) * offer->n_slots + 1, sizeof *take->got)
              : NULL;
    if (!take->got || !can_take(part, offer)) {
        take_fail(part, "an offer that cannot be taken");
        return;
    }
    for (uint32_t i = 0; i < offer->n_slots; i++)
        take->n_left += (uint64_t)count_layers(part) * offer->slots[i].n_tokens;
    hosting_watch(part->hosting);
    take_early(part);
    if (!take->n_left)
        settle(part);
}

static void answer(struct part *part, const struct cache_job *job)
{
    const struct cache_route route = route_of(part);
    struct buffer message = {0};
    cache_write_taken(&route, &message);
    cache_tell(part->hosting, job->node_id, &message);
    buffer_deinit(&message);
}

void take_returned(struct part *part, struct cache_job *job)
{
    struct takeover *take = &part->take;
    if (job->code) {
        take_fail(part, job->error.text);
    } else if (job->step == CACHE_STEP_SETTLE) {
        if (--take->n_settling == 0 && take->state == TAKE_OFFERED) {
            take->state = TAKE_FULL;
            tell_done(part, true);
        }
    } else {
        take->n_left -= job->run.n_rows;
        if (!take->n_left && take->state == TAKE_OFFERED)
            settle(part);
        answer(part, job);
    }
}
