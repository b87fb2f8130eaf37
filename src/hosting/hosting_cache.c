/* Carries out what the hand-overs of caches want (handover.h): messages over the carrier, jobs on
 * devices' threads, drivers that stop and begin. Where both ends are on this node, they meet here.
 */
#include "hosting/hosting_impl.h"

#include "base/log.h"
#include "base/mem.h"
#include "model/model.h"

#include <assert.h>
#include <string.h>

struct pipeline *part_pipeline(struct part *part)
{
    return part->driver   ? driver_pipeline(part->driver)
           : part->runner ? runner_pipeline(part->runner)
                          : NULL;
}

static uint64_t part_row_bytes(struct part *part, uint32_t stage)
{
    return pipeline_row_bytes(part_pipeline(part), stage);
}

static bool cache_is_own(const struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES])
{
    return memcmp(hosting->node_id, node_id, NODE_ID_BYTES) == 0;
}

/* ---- what the machines are told of their part ------------------------------------------- */

/* Of each recurrent layer of the model; they are alike. 0: there is none. */
static uint32_t part_state_rows(const struct part *part, uint64_t row_bytes)
{
    const struct hyperparameters *h = model_hyperparameters(part->model);
    uint64_t n_values = 0;
    for (uint32_t i = 0; i < h->n_layers && !n_values; i++)
        n_values = hyperparameters_state_values(h, i);
    return n_values ? (uint32_t)kv_state_rows(n_values * sizeof(float), row_bytes) : 0;
}

/* The state first: while the part loads, the rest is another thread's. */
static void part_sync(struct part *part)
{
    struct handover_part *cache = &part->cache;
    cache->is_loaded = part->life.state == PART_READY;
    cache->is_current = part->life.is_current;
    cache->is_lost = part->reach.is_waiting;
    for (uint32_t i = 0; cache->is_loaded && i < part->life.n_stages; i++) {
        assert(part->life.stages[i].here == handover_is_here(cache, i));
        if (part->life.stages[i].here && !cache->row_bytes[i])
            cache->row_bytes[i] = part_row_bytes(part, i);
        if (cache->row_bytes[i] && !cache->state_rows)
            cache->state_rows = part_state_rows(part, cache->row_bytes[i]);
    }
    if (!cache->is_loaded || cache->n_vocab)
        return;
    const struct hyperparameters *h = model_hyperparameters(part->model);
    cache->n_vocab = h->n_vocab;
    cache->window = h->window;
    for (uint32_t i = 0; i < h->n_layers; i++) {
        cache->is_windowed[i] = hyperparameters_layer_windowed(h, i);
        cache->sees[i] = h->layers[i].kv_layer != i ? h->layers[i].kv_layer + 1 : 0;
        cache->is_recurrent[i] = hyperparameters_state_values(h, i) > 0;
        /* of other models nodes of version 1.1 send and await rows of zeros for these */
        cache->is_bare[i] = hyperparameters_has_states(h) && h->layers[i].has_no_mixer;
    }
    if (part->driver) {
        cache->n_slots = driver_options(part->driver)->n_slots;
        cache->context = driver_options(part->driver)->context;
    }
}

/* False: it cannot be a placement. */
static bool placement_read(const Cluster__Placement *from, struct handover_placement *out)
{
    *out = (struct handover_placement){.epoch = from->epoch};
    if (from->n_stages > LIMIT_STAGES)
        return false;
    for (uint32_t i = 0; i < from->n_stages; i++) {
        struct handover_stage *stage = &out->stages[out->n_stages++];
        if (!id_parse(from->stages[i]->node, stage->node_id, NODE_ID_BYTES))
            return false;
        stage->first_layer = from->stages[i]->first_layer;
        stage->n_layers = from->stages[i]->n_layers;
    }
    return true;
}

void part_caches_init(struct part *part)
{
    struct handover_part *cache = &part->cache;
    cache->instance = part->key;
    memcpy(cache->node_id, part->hosting->node_id, NODE_ID_BYTES);
    cache->of.epoch = part->life.epoch;
    cache->of.n_stages = part->life.n_stages;
    for (uint32_t i = 0; i < part->life.n_stages; i++) {
        struct handover_stage *stage = &cache->of.stages[i];
        memcpy(stage->node_id, part->life.stages[i].node_id, NODE_ID_BYTES);
        stage->first_layer = part->life.stages[i].first_layer;
        stage->n_layers = part->life.stages[i].n_layers;
    }
    cache_give_init(&part->give, cache);
    cache_take_init(&part->take, cache);
}

void part_caches_clear(struct part *part)
{
    assert(!part->n_cache_jobs);
    cache_give_clear(&part->give);
    cache_take_clear(&part->take);
}

void part_take_over_from(struct part *part, const Cluster__Placement *current)
{
    struct handover_placement from;
    if (current && state_is_ready(current) && placement_read(current, &from))
        cache_take_open(&part->take, &from);
}

/* One that is given to. */
static bool part_read_next(const struct part *part, const Cluster__Placement *next,
                           struct handover_placement *out)
{
    if (!placement_read(next, out))
        return false;
    out->n_slots = next->shares_cells ? 0 : part->n_whole;
    return true;
}

void part_expect(struct part *part, const Cluster__Placement *next)
{
    struct handover_placement to;
    if (part->give.next.epoch != next->epoch && part_read_next(part, next, &to))
        cache_give_prepare(&part->give, &to);
}

bool part_hand_over(struct part *part, const Cluster__Placement *next)
{
    struct handover_placement to;
    const bool may = part->life.state == PART_READY && !part->reach.is_waiting &&
                     part->life.has_served && state_is_ready(next);
    if (!part_read_next(part, next, &to))
        return false;
    part_sync(part);
    const bool gives = cache_give_begin(&part->give, uv_now(part->hosting->options.loop), &to, may);
    if (gives && part->life.state == PART_READY) {
        parts_hand_over(&part->hosting->parts, &part->life);
    }
    cache_pump(part->hosting);
    return gives;
}

void give_fail(struct part *part, const char *why)
{
    part_sync(part);
    cache_give_fail(&part->give, why);
    cache_pump(part->hosting);
}

void take_fail(struct part *part, const char *why)
{
    part_sync(part);
    cache_take_fail(&part->take, why);
    cache_pump(part->hosting);
}

void take_used(struct part *part)
{
    if (!cache_take_is_open(&part->take))
        return;
    part_sync(part);
    cache_take_used(&part->take);
    cache_pump(part->hosting);
    assert(part_drives(part) || !cache_take_is_open(&part->take));
}

void take_end(struct part *part, const char *why)
{
    if (!cache_take_is_open(&part->take))
        return;
    part_sync(part);
    cache_take_end(&part->take, why);
    cache_pump(part->hosting);
}

/* ---- jobs ------------------------------------------------------------------------------- */

static void cache_job_read(struct cache_job *job)
{
    const struct stage *stage = job->pipeline->stages[job->effect.stage].stage;
    const struct kv_run *run = &job->effect.run;
    void *room = buffer_extend(&job->effect.message, run->n_rows * stage_kv_row_bytes(stage));
    job->code = room ? stage_kv_read(stage, run, room, &job->error)
                     : error_set(&job->error, ERROR_NO_MEMORY, "not enough memory for %u rows",
                                 run->n_rows);
}

/* The lengths, all at once, and what the picker has to know of what stands before. */
static void cache_job_settle(struct cache_job *job)
{
    const struct offered *offer = job->part->take.offer;
    struct pipeline *pipeline = job->pipeline;
    struct pipeline_stage *stage = &pipeline->stages[job->effect.stage];
    const bool last = job->effect.stage + 1 == pipeline->n_stages;
    for (uint32_t i = 0; i < offer->n_slots && !job->code; i++) {
        const struct cached_slot *slot = &offer->slots[i];
        job->code = stage_kv_set_length(stage->stage, slot->slot, slot->n_tokens, &job->error);
        for (uint32_t k = 0; last && k < slot->n_tokens; k++)
            picker_note(pipeline->picker, slot->slot, k, slot->tokens[k]);
    }
}

static void cache_job_return(struct cache_job *job)
{
    struct hosting *hosting = job->part->hosting;
    pthread_mutex_lock(&hosting->cache_lock);
    job->next = hosting->cache_done;
    hosting->cache_done = job;
    uv_async_send(&hosting->cache_wake); /* under the lock: the part goes once the job is taken */
    pthread_mutex_unlock(&hosting->cache_lock);
}

static void cache_job_run(struct device_job *device_job)
{
    struct cache_job *job = (struct cache_job *)device_job;
    if (job->effect.type == HANDOVER_READ)
        cache_job_read(job);
    else if (job->effect.type == HANDOVER_WRITE)
        job->code = stage_kv_write(job->pipeline->stages[job->effect.stage].stage, &job->effect.run,
                                   job->effect.message.data + CACHE_ROWS_BYTES, &job->error);
    else
        cache_job_settle(job);
    cache_job_return(job);
}

/* On a lane's thread. */
static void cache_job_after_lane(void *arg, const void *rows, size_t size, const struct error *why)
{
    struct cache_job *job = arg;
    if (why)
        job->code = error_set(&job->error, why->code, "%s", why->text);
    else if (job->effect.type == HANDOVER_READ)
        buffer_append(&job->effect.message, rows, size);
    cache_job_return(job);
}

static void offered_write(const struct offered *from, struct buffer *out)
{
    struct cache_offer *offer = mem_new(sizeof *offer);
    out->failed = !offer;
    for (uint32_t i = 0; offer && i < from->n_slots; i++) {
        offer->slots[i].slot = from->slots[i].slot;
        offer->slots[i].n_tokens = from->slots[i].n_tokens;
        offer->slots[i].cache_key = from->slots[i].cache_key;
        offer->slots[i].tokens =
            (const unsigned char *)from->slots[i].tokens; /* little-endian, as all we run on */
        offer->n_slots++;
    }
    if (offer)
        cache_write_offer(&(struct cache_route){0}, offer, out);
    mem_free(offer);
}

static void cache_job_to_lane(struct cache_job *job)
{
    const uint32_t stage = job->effect.stage;
    job->lane_job = (struct lane_job){.done = cache_job_after_lane, .arg = job};
    if (job->effect.type == HANDOVER_READ) {
        lane_read(job->lane, &job->lane_job, stage, &job->effect.run);
    } else if (job->effect.type == HANDOVER_WRITE) {
        lane_write(job->lane, &job->lane_job, stage, &job->effect.message);
    } else {
        struct buffer offer = {0};
        offered_write(job->part->take.offer, &offer);
        lane_settle(job->lane, &job->lane_job, stage, &offer);
        buffer_deinit(&offer);
    }
}

static void cache_job_ended(struct part *part, struct handover_effect *effect, const char *why)
{
    part_sync(part);
    if (effect->type == HANDOVER_READ)
        cache_give_read(&part->give, effect, why);
    else if (effect->type == HANDOVER_WRITE)
        cache_take_written(&part->take, effect, why);
    else
        cache_take_settled(&part->take, why);
}

static void cache_job_begin(struct part *part, struct handover_effect *effect)
{
    struct cache_job *job = mem_new(sizeof *job);
    assert(part->life.stages[effect->stage].here);
    if (!job) {
        cache_job_ended(part, effect, "no memory");
        return;
    }
    job->part = part;
    job->pipeline = part_pipeline(part);
    job->lane = job->pipeline->stages[effect->stage].lane;
    job->effect = *effect;
    job->job.run = cache_job_run;
    *effect = (struct handover_effect){0};
    part->n_cache_jobs++;
    part_note_busy(part);
    if (job->lane)
        cache_job_to_lane(job);
    else
        device_submit(job->pipeline->stages[job->effect.stage].device, &job->job);
}

/* ---- effects ---------------------------------------------------------------------------- */

static void cache_on_quiescent(void *arg)
{
    uv_async_send(&((struct hosting *)arg)->cache_wake);
}

static void part_begin_slots(struct part *part, bool is_full)
{
    struct cached_slot empty[LIMIT_SEQUENCES];
    const struct offered *offer = part->take.offer;
    uint32_t n = is_full ? offer->n_slots : driver_options(part->driver)->n_slots;
    assert(n <= LIMIT_SEQUENCES && part->driver);
    for (uint32_t i = 0; i < n && !is_full; i++)
        empty[i] = (struct cached_slot){.slot = i};
    cache_take_begun(&part->take, driver_seed(part->driver, is_full ? offer->slots : empty, n,
                                              NULL) == ERROR_NONE);
}

/* Of a part that goes only messages and notes are carried out. */
static void part_carry_out(struct part *part, struct handover_effect *effect)
{
    struct hosting *hosting = part->hosting;
    const bool is_ready = part->life.state == PART_READY;
    switch (effect->type) {
    case HANDOVER_SEND:
        cache_tell(hosting, effect->node_id, &effect->message);
        break;
    case HANDOVER_QUIESCE:
        if (part->life.state == PART_READY || part->life.state == PART_HANDING)
            driver_quiesce(part->driver, cache_on_quiescent, hosting);
        break;
    case HANDOVER_READ:
        if (is_ready || part->life.state == PART_HANDING)
            cache_job_begin(part, effect);
        break;
    case HANDOVER_WRITE:
    case HANDOVER_SETTLE:
        if (is_ready)
            cache_job_begin(part, effect);
        break;
    case HANDOVER_BEGIN:
        if (is_ready)
            part_begin_slots(part, effect->is_full);
        break;
    case HANDOVER_RETIRE:
        parts_retire(&hosting->parts, &part->life, 0);
        hosting_pump(hosting);
        break;
    case HANDOVER_CHANGED:
        hosting_tell(hosting);
        break;
    case HANDOVER_NOTE:
        log_line(LOG_INFO, "hosting", "instance %s, epoch %llu: %s", part->life.instance,
                 (unsigned long long)part->life.epoch, effect->text);
        break;
    }
}

static bool part_pump(struct part *part)
{
    struct handover_effect effect;
    bool any = false;
    part_sync(part);
    while (cache_give_next(&part->give, &effect) || cache_take_next(&part->take, &effect)) {
        part_carry_out(part, &effect);
        handover_effect_clear(&effect);
        part_sync(part);
        any = true;
    }
    return any;
}

void cache_pump(struct hosting *hosting)
{
    if (hosting->is_pumping)
        return; /* an effect led here: the loop below goes on with what it brought */
    hosting->is_pumping = true;
    for (bool any = true; any;) {
        any = false;
        for (struct part *part = hosting_first(hosting); part; part = part_next(part))
            any |= part_pump(part);
    }
    hosting->is_pumping = false;
    hosting_watch(hosting);
}

static void part_look(struct part *part)
{
    const struct hosting_options *options = &part->hosting->options;
    const uint64_t now_ms = uv_now(options->loop);
    part_sync(part);
    if (cache_give_wants_slots(&part->give) && part->life.state == PART_HANDING &&
        driver_is_quiescent(part->driver)) {
        struct cached_slot slots[LIMIT_SEQUENCES];
        const struct give_costs costs = {.prompt_row_ns = driver_prompt_row_ns(part->driver),
                                         .link_bytes_per_s = options->link_bytes_per_s,
                                         .self = options->self};
        const uint32_t n = driver_cached_slots(part->driver, slots);
        cache_give_quiesced(&part->give, now_ms, slots, n, &costs);
    }
    cache_give_tick(&part->give, now_ms);
    if (!cache_take_is_open(&part->take))
        return;
    const uint8_t *driver = part->take.from.stages[0].node_id;
    const bool linked = cache_is_own(part->hosting, driver) || !options->linked ||
                        options->linked(options->self, driver);
    cache_take_tick(&part->take, now_ms, linked);
}

void cache_look(struct hosting *hosting)
{
    for (struct part *part = hosting_first(hosting); part; part = part_next(part))
        part_look(part);
    cache_pump(hosting);
}

static void cache_on_wake(uv_async_t *wake)
{
    struct hosting *hosting = wake->data;
    pthread_mutex_lock(&hosting->cache_lock);
    struct cache_job *job = hosting->cache_done, *first = NULL;
    hosting->cache_done = NULL;
    pthread_mutex_unlock(&hosting->cache_lock);
    while (job) { /* in the order in which they ended */
        struct cache_job *next = job->next;
        job->next = first;
        first = job;
        job = next;
    }
    while ((job = first) != NULL) {
        first = job->next;
        assert(job->part->n_cache_jobs);
        job->part->n_cache_jobs--;
        part_note_busy(job->part);
        cache_job_ended(job->part, &job->effect, job->code ? job->error.text : NULL);
        handover_effect_clear(&job->effect);
        mem_free(job);
    }
    cache_look(hosting);
    parts_jobs(&hosting->parts); /* what waited for its jobs can be closed */
    hosting_pump(hosting);
}

void cache_open(struct hosting *hosting)
{
    const int problem = uv_async_init(hosting->options.loop, &hosting->cache_wake, cache_on_wake);
    assert(problem == 0); /* only a loop's first can fail */
    (void)problem;
    hosting->n_handles++;
    hosting->cache_wake.data = hosting;
    pthread_mutex_init(&hosting->cache_lock, NULL);
}

/* ---- messages --------------------------------------------------------------------------- */

static struct part *cache_find(const struct hosting *hosting, const struct cache_route *route,
                               uint64_t epoch)
{
    struct part *part = hosting_first(hosting);
    while (part && (part->key != route->instance || part->life.epoch != epoch))
        part = part_next(part);
    if (part)
        part_sync(part);
    return part;
}

static void cache_receive(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                          const struct cache_message *message, struct buffer *bytes)
{
    const struct cache_route *route = &message->route;
    struct part *from = cache_find(hosting, route, route->from_epoch);
    struct part *to = cache_find(hosting, route, route->to_epoch);
    if (!handover_receive(from ? &from->give : NULL, to ? &to->take : NULL,
                          uv_now(hosting->options.loop), hosting->node_id, node_id, message,
                          bytes)) {
        struct buffer answer = {0};
        handover_refusal(route, &answer);
        cache_tell(hosting, node_id, &answer);
        buffer_deinit(&answer);
    }
    cache_pump(hosting);
}

enum error_code hosting_cache(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                              const void *bytes, size_t size, struct error *err)
{
    struct cache_message message;
    struct buffer copy = {0};
    enum error_code code = cache_read(bytes, size, &message, err);
    if (code)
        return code;
    if (message.kind == CACHE_ROWS) /* they are written by a device's thread, later */
        buffer_append(&copy, bytes, size);
    cache_receive(hosting, node_id, &message, &copy);
    buffer_deinit(&copy);
    return ERROR_NONE;
}

void cache_tell(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                struct buffer *buffer)
{
    struct cache_message message;
    if (buffer->failed)
        return; /* who waits for it gives up in time */
    if (!cache_is_own(hosting, node_id))
        carrier_send_cache(hosting->options.carrier, node_id, buffer);
    else if (cache_read(buffer->data, buffer->size, &message, NULL) == ERROR_NONE)
        cache_receive(hosting, node_id, &message, buffer);
}
