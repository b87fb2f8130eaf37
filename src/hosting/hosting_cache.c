/* Caches on their way from one placement to the next: messages, and jobs on devices' threads. Who
 * gives is in hosting_give.c, who takes in hosting_take.c; the two meet here, also where both are
 * on this node. */
#include "hosting/hosting_impl.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "pipeline/microbatch.h"

#include <assert.h>
#include <string.h>

bool is_own(const struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES])
{
    uint8_t own[NODE_ID_BYTES];
    return id_parse(hosting->options.node, own, NODE_ID_BYTES) &&
           memcmp(own, node_id, NODE_ID_BYTES) == 0;
}

struct pipeline *part_pipeline(struct part *part)
{
    return part->driver   ? driver_pipeline(part->driver)
           : part->runner ? runner_pipeline(part->runner)
                          : NULL;
}

uint64_t part_row_bytes(struct part *part, uint32_t stage)
{
    struct lane *lane = part->stages[stage].lane;
    return lane ? lane_row_bytes(lane, stage)
                : stage_kv_row_bytes(part_pipeline(part)->stages[stage].stage);
}

struct offered *offered_new(const struct cache_message *message)
{
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
        offered->slots[offered->n_slots++] = (struct cached_slot){offer->slots[i].slot, n, tokens};
        tokens += n;
    }
    return offered;
}

/* ---- jobs ------------------------------------------------------------------------------- */

static void read_rows(struct cache_job *job)
{
    const struct stage *stage = job->pipeline->stages[job->stage].stage;
    void *room = buffer_extend(&job->message, job->run.n_rows * stage_kv_row_bytes(stage));
    job->code =
        room ? stage_kv_read(stage, &job->run, room, &job->error)
             : error_set(&job->error, ERROR_NO_MEMORY, "no memory for %u rows", job->run.n_rows);
}

/* The lengths, all at once, and what the picker has to know of what stands before. */
static void settle(struct cache_job *job)
{
    const struct offered *offer = job->part->take.offer;
    struct pipeline *pipeline = job->pipeline;
    struct pipeline_stage *stage = &pipeline->stages[job->stage];
    const bool last = job->stage + 1 == pipeline->n_stages;
    for (uint32_t i = 0; i < offer->n_slots; i++) {
        const struct cached_slot *slot = &offer->slots[i];
        stage_kv_set_length(stage->stage, slot->slot, slot->n_tokens);
        for (uint32_t k = 0; last && k < slot->n_tokens; k++)
            picker_note(pipeline->picker, slot->slot, k, slot->tokens[k]);
    }
}

static void give_back(struct cache_job *job)
{
    struct hosting *hosting = job->part->hosting;
    pthread_mutex_lock(&hosting->cache_lock);
    job->next = hosting->cache_done;
    hosting->cache_done = job;
    uv_async_send(&hosting->cache_wake); /* under the lock: the part goes once the job is taken */
    pthread_mutex_unlock(&hosting->cache_lock);
}

static void run(struct device_job *device_job)
{
    struct cache_job *job = (struct cache_job *)device_job;
    if (job->step == CACHE_STEP_READ)
        read_rows(job);
    else if (job->step == CACHE_STEP_WRITE)
        job->code = stage_kv_write(job->pipeline->stages[job->stage].stage, &job->run,
                                   job->message.data + CACHE_ROWS_BYTES, &job->error);
    else
        settle(job);
    give_back(job);
}

/* On a lane's thread. */
static void after_lane(void *arg, const void *rows, size_t size, const struct error *why)
{
    struct cache_job *job = arg;
    if (why)
        job->code = error_set(&job->error, why->code, "%s", why->text);
    else if (job->step == CACHE_STEP_READ)
        buffer_append(&job->message, rows, size);
    give_back(job);
}

static void write_offer(const struct offered *from, struct buffer *out)
{
    struct cache_offer *offer = mem_new(sizeof *offer);
    out->failed = !offer;
    for (uint32_t i = 0; offer && i < from->n_slots; i++) {
        offer->slots[i].slot = from->slots[i].slot;
        offer->slots[i].n_tokens = from->slots[i].n_tokens;
        offer->slots[i].tokens =
            (const unsigned char *)from->slots[i].tokens; /* little-endian, as all we run on */
        offer->n_slots++;
    }
    if (offer)
        cache_write_offer(&(struct cache_route){0}, offer, out);
    mem_free(offer);
}

static void submit_to_lane(struct cache_job *job)
{
    job->lane_job = (struct lane_job){.done = after_lane, .arg = job};
    if (job->step == CACHE_STEP_READ) {
        lane_read(job->lane, &job->lane_job, job->stage, &job->run);
    } else if (job->step == CACHE_STEP_WRITE) {
        lane_write(job->lane, &job->lane_job, job->stage, &job->message);
    } else {
        struct buffer offer = {0};
        write_offer(job->part->take.offer, &offer);
        lane_settle(job->lane, &job->lane_job, job->stage, &offer);
        buffer_deinit(&offer);
    }
}

struct cache_job *cache_job_new(struct part *part, enum cache_step step, uint32_t stage)
{
    struct cache_job *job = mem_new(sizeof *job);
    if (!job)
        return NULL;
    job->part = part;
    job->pipeline = part_pipeline(part);
    job->lane = part->stages[stage].lane;
    job->step = step;
    job->stage = stage;
    return job;
}

void cache_job_submit(struct cache_job *job)
{
    job->part->n_cache_jobs++;
    job->job.run = run;
    if (job->lane)
        submit_to_lane(job);
    else
        device_submit(job->pipeline->stages[job->stage].device, &job->job);
}

static void on_cache_wake(uv_async_t *wake)
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
        job->part->n_cache_jobs--;
        if (job->step == CACHE_STEP_READ)
            give_read(job->part, job);
        else
            take_returned(job->part, job);
        buffer_deinit(&job->message);
        mem_free(job);
    }
    for (struct part *part = hosting->parts; part; part = part->next)
        give_go_on(part);
    hosting_jobs(hosting); /* what waited for its jobs can be closed */
}

void cache_open(struct hosting *hosting)
{
    const int problem = uv_async_init(hosting->options.loop, &hosting->cache_wake, on_cache_wake);
    assert(problem == 0); /* only a loop's first can fail */
    (void)problem;
    hosting->n_handles++;
    hosting->cache_wake.data = hosting;
    pthread_mutex_init(&hosting->cache_lock, NULL);
}

/* ---- messages --------------------------------------------------------------------------- */

static struct part *find(const struct hosting *hosting, const struct cache_route *route,
                         uint64_t epoch)
{
    struct part *part = hosting->parts;
    while (part && (part->key != route->instance || part->epoch != epoch))
        part = part->next;
    return part;
}

static bool has_stage(const struct part *part, const uint8_t node_id[NODE_ID_BYTES])
{
    for (uint32_t i = 0; i < part->n_stages; i++) {
        if (memcmp(part->stages[i].node_id, node_id, NODE_ID_BYTES) == 0)
            return true;
    }
    return false;
}

/* Both ends of it may be here: each has its own copy. Who is not the old driver's node offers
 * nothing. */
static void take_offers(struct part *from, struct part *to, const uint8_t node_id[NODE_ID_BYTES],
                        const struct cache_message *message)
{
    if (to && take_is_from_driver(to, node_id))
        take_offer(to, offered_new(message));
    if (from && !part_drives(from) && memcmp(from->stages[0].node_id, node_id, NODE_ID_BYTES) == 0)
        give_offer(from, offered_new(message));
}

static void send_done(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                      const struct cache_route *route)
{
    struct buffer message = {0};
    cache_write_done(route, false, &message);
    cache_tell(hosting, node_id, &message);
    buffer_deinit(&message);
}

/* From who has no such rows, nothing is taken, and nothing answered. */
static void take_in(struct hosting *hosting, struct part *from, struct part *to,
                    const uint8_t node_id[NODE_ID_BYTES], const struct cache_message *message,
                    struct buffer *own)
{
    const bool is_taken = to && take_is_from(to, node_id) && take_rows(to, node_id, message, own);
    if (is_taken)
        return;
    if (!is_own(hosting, node_id)) {
        if (!to || to->take.state == TAKE_OVER)
            send_done(hosting, node_id, &message->route);
    } else if (from) {
        give_stop(from);
    }
}

/* To nobody, or from somebody who has no part of it: it came too late, and is dropped. */
static void take(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                 const struct cache_message *message, struct buffer *own)
{
    struct part *from = find(hosting, &message->route, message->route.from_epoch);
    struct part *to = find(hosting, &message->route, message->route.to_epoch);
    if (to && to->take.from_epoch != message->route.from_epoch)
        to = NULL;
    if (from && from->give.to_epoch && from->give.to_epoch != message->route.to_epoch)
        from = NULL;
    const bool is_heir = from && give_is_to(from, node_id);
    switch (message->kind) {
    case CACHE_OFFER:
        take_offers(from, to, node_id, message);
        break;
    case CACHE_ROWS:
        take_in(hosting, from, to, node_id, message, own);
        break;
    case CACHE_TAKEN:
        if (is_heir)
            give_taken(from);
        break;
    case CACHE_DONE:
        if (to && (has_stage(to, node_id) || (!message->has_all && take_is_from(to, node_id))))
            take_done(to, node_id, message->has_all);
        if (is_heir && !message->has_all)
            give_stop(from);
        break;
    }
}

enum error_code hosting_cache(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                              const void *bytes, size_t size, struct error *err)
{
    struct cache_message message;
    enum error_code code = cache_read(bytes, size, &message, err);
    if (!code)
        take(hosting, node_id, &message, NULL);
    return code;
}

void cache_tell(struct hosting *hosting, const uint8_t node_id[NODE_ID_BYTES],
                struct buffer *buffer)
{
    struct cache_message message;
    if (buffer->failed)
        return; /* who waits for it gives up in time */
    if (!is_own(hosting, node_id))
        carrier_send_cache(hosting->options.carrier, node_id, buffer);
    else if (cache_read(buffer->data, buffer->size, &message, NULL) == ERROR_NONE)
        take(hosting, node_id, &message, buffer);
}
