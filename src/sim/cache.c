/* Caches that go along with a move. What decides is the node's own (hosting/handover.h); made up
 * are the devices that read and write rows (cells.c), and how long they take. */
#include "sim/world.h"

#include "base/limits.h"
#include "base/mem.h"

#include <assert.h>
#include <string.h>

enum {
    LINK_BYTES_PER_MS = 110000,
    KV_BYTES = 4096, /* of a layer and token, for how long a device is busy with it */
};

struct kept_job { /* a device's */
    struct kept_job *next;
    uint64_t key;
    uint32_t instance;
    uint64_t epoch;
    struct handover_effect effect;
};

/* ---- who is who ---- */

void kept_id(uint32_t node, uint8_t out[NODE_ID_BYTES])
{
    memset(out, 0, NODE_ID_BYTES);
    out[0] = 1;
    memcpy(out + 1, &node, sizeof node);
}

uint32_t kept_index(const uint8_t id[NODE_ID_BYTES])
{
    uint32_t node;
    assert(id[0] == 1);
    memcpy(&node, id + 1, sizeof node);
    return node;
}

static void kept_read(struct world *w, const Cluster__Placement *from,
                      struct handover_placement *out)
{
    *out = (struct handover_placement){.epoch = from->epoch};
    assert(from->n_stages <= LIMIT_STAGES);
    for (uint32_t i = 0; i < from->n_stages; i++) {
        struct handover_stage *stage = &out->stages[out->n_stages++];
        kept_id(world_node(w, from->stages[i]->node)->index, stage->node_id);
        stage->first_layer = from->stages[i]->first_layer;
        stage->n_layers = from->stages[i]->n_layers;
    }
}

static void kept_sync(struct sim_part *part)
{
    struct handover_part *about = &part->about;
    about->is_loaded = part->life.state == PART_READY;
    about->is_current = part->life.is_current;
    about->is_lost = part->reach.is_waiting;
    assert(!about->is_loaded || part->give.state != GIVE_HANDING);
}

/* ---- parts that come and go ---- */

static void kept_job_free(struct kept_job *job)
{
    handover_effect_clear(&job->effect);
    mem_free(job);
}

void kept_drop_jobs(struct node *node)
{
    while (node->cache_jobs) {
        struct kept_job *job = node->cache_jobs;
        node->cache_jobs = job->next;
        kept_job_free(job);
    }
}

void kept_clear(struct sim_part *part)
{
    cache_give_clear(&part->give);
    cache_take_clear(&part->take);
}

void kept_init(struct world *w, struct node *node, struct sim_part *part,
               const Cluster__Placement *from)
{
    struct handover_part *about = &part->about;
    struct handover_placement before;
    about->instance = part->instance + UINT64_C(1);
    about->n_slots = LIMIT_SEQUENCES;
    about->context = LIMIT_CONTEXT;
    about->n_vocab = UINT32_C(1) << 31;
    about->bug = w->scenario->bug == SCENARIO_BUG_HALF_CACHE ? HANDOVER_HALF
                 : w->scenario->bug == SCENARIO_BUG_NO_LAYER ? HANDOVER_NO_LAYER
                                                             : HANDOVER_SOUND;
    kept_id(node->index, about->node_id);
    about->of.epoch = part->life.epoch;
    about->of.n_stages = part->life.n_stages;
    for (uint32_t i = 0; i < about->of.n_stages; i++) {
        const struct part_stage *stage = &part->life.stages[i];
        memcpy(about->of.stages[i].node_id, stage->node_id, NODE_ID_BYTES);
        about->of.stages[i].first_layer = stage->first_layer;
        about->of.stages[i].n_layers = stage->n_layers;
        about->row_bytes[i] = stage->here ? KEPT_ROW_BYTES : 0;
    }
    cache_give_init(&part->give, about);
    cache_take_init(&part->take, about);
    assert(handover_drives(about) == part->life.stages[0].here);
    if (!from || !state_is_ready(from))
        return;
    kept_read(w, from, &before);
    cache_take_open(&part->take, &before);
}

/* ---- a device's jobs ---- */

static uint64_t kept_job_ms(const struct handover_effect *effect)
{
    const uint64_t bytes = (uint64_t)effect->run.n_rows * KV_BYTES;
    return 1 + (effect->type == HANDOVER_READ ? bytes / LINK_BYTES_PER_MS : 0);
}

static void kept_job_begin(struct world *w, struct node *node, struct sim_part *part,
                           struct handover_effect *effect)
{
    struct kept_job *job = mem_new(sizeof *job), **at = &node->cache_jobs;
    if (!job) {
        w->out_of_memory = true;
        return;
    }
    *job = (struct kept_job){.key = ++w->n_keys,
                             .instance = part->instance,
                             .epoch = part->life.epoch,
                             .effect = *effect};
    *effect = (struct handover_effect){0};
    assert(part->life.state == PART_READY || part->life.state == PART_HANDING);
    part->n_jobs++;
    part->life.is_busy = true;
    while (*at)
        at = &(*at)->next;
    *at = job;
    host_look_later(w, node, job->key, kept_job_ms(&job->effect));
}

static void kept_job_end(struct node *node, struct sim_part *part, struct kept_job *job)
{
    struct handover_effect *effect = &job->effect;
    struct hosted *h = host_find(node, part->instance, part->life.epoch, effect->stage);
    const char *why = h && h->state == WORKER_READY ? NULL : "its stage is gone";
    kept_sync(part);
    switch (effect->type) {
    case HANDOVER_READ:
        why = why ? why : kept_read_rows(h, effect);
        cache_give_read(&part->give, effect, why);
        break;
    case HANDOVER_WRITE:
        why = why ? why : kept_write_rows(h, effect);
        cache_take_written(&part->take, effect, why);
        break;
    case HANDOVER_SETTLE:
        /* A device does its jobs in order: what a step has begun since empties these slots. */
        if (!why && cache_take_is_open(&part->take) && part->take.begins == TAKE_BEGIN_NOT)
            why = kept_settle(h, part->take.offer);
        cache_take_settled(&part->take, why);
        break;
    case HANDOVER_SEND:
    case HANDOVER_QUIESCE:
    case HANDOVER_BEGIN:
    case HANDOVER_RETIRE:
    case HANDOVER_CHANGED:
    case HANDOVER_NOTE:
        assert(false); /* those are no jobs */
    }
}

/* ---- what the machines want ---- */

static void kept_carry_out(struct world *w, struct node *node, struct sim_part *part,
                           struct handover_effect *effect)
{
    switch (effect->type) {
    case HANDOVER_SEND: /* over a link that is down it is lost: both ends have their timers */
        frame_send(w, node, kept_index(effect->node_id), FRAME_CACHE, effect->message.data,
                   effect->message.size);
        break;
    case HANDOVER_QUIESCE:
        part->quiesces = true;
        node->changed = true;
        break;
    case HANDOVER_READ:
    case HANDOVER_WRITE:
    case HANDOVER_SETTLE:
        if (part->life.state == PART_READY || part->life.state == PART_HANDING)
            kept_job_begin(w, node, part, effect);
        break;
    case HANDOVER_BEGIN:
        part->is_full = effect->is_full;
        memset(part->used, 0, sizeof part->used);
        cache_take_begun(&part->take, true);
        break;
    case HANDOVER_RETIRE:
        parts_retire(&node->parts, &part->life, 0);
        node->changed = true;
        break;
    case HANDOVER_CHANGED:
        node->changed = true;
        break;
    case HANDOVER_NOTE:
        world_say(w, "%s: i%u, epoch %llu: %s", node->name, part->instance,
                  (unsigned long long)part->life.epoch, effect->text);
        break;
    }
}

static void kept_pump(struct world *w, struct node *node, struct sim_part *part)
{
    struct handover_effect effect;
    kept_sync(part);
    while (cache_give_next(&part->give, &effect) || cache_take_next(&part->take, &effect)) {
        kept_carry_out(w, node, part, &effect);
        handover_effect_clear(&effect);
        kept_sync(part);
    }
}

bool kept_job(struct world *w, struct node *node, uint64_t key)
{
    struct kept_job **at = &node->cache_jobs;
    while (*at && (*at)->key != key)
        at = &(*at)->next;
    struct kept_job *job = *at;
    if (!job)
        return false;
    *at = job->next;
    struct sim_part *part = host_part(node, job->instance, job->epoch);
    assert(part && part->n_jobs); /* a busy part is not closed */
    part->life.is_busy = --part->n_jobs;
    kept_job_end(node, part, job);
    kept_pump(w, node, part);
    kept_job_free(job);
    return true;
}

void kept_receive(struct world *w, struct node *node, const struct message *m)
{
    struct cache_message message;
    struct buffer bytes = {0}, answer = {0};
    uint8_t own[NODE_ID_BYTES], other[NODE_ID_BYTES];
    const enum error_code code = cache_read(m->bytes, m->size, &message, NULL);
    if (code) {
        assert(m->is_forged); /* nobody else here writes anything else */
        w->result->refused++;
        buffer_deinit(&bytes);
        return;
    }
    kept_id(node->index, own);
    kept_id(m->from, other);
    const uint32_t instance = (uint32_t)message.route.instance - 1;
    struct sim_part *from = host_part(node, instance, message.route.from_epoch);
    struct sim_part *to = host_part(node, instance, message.route.to_epoch);
    if (from)
        kept_sync(from);
    if (to)
        kept_sync(to);
    if (message.kind == CACHE_ROWS)
        buffer_append(&bytes, m->bytes, m->size);
    if (!handover_receive(from ? &from->give : NULL, to ? &to->take : NULL, w->now_ms, own, other,
                          &message, &bytes)) {
        handover_refusal(&message.route, &answer);
        frame_send(w, node, m->from, FRAME_CACHE, answer.data, answer.size);
    }
    if (from)
        kept_pump(w, node, from);
    if (to)
        kept_pump(w, node, to);
    buffer_deinit(&bytes);
    buffer_deinit(&answer);
}

/* ---- the driver that goes ---- */

static bool kept_is_under_way(const struct node *node, const struct sim_part *part)
{
    for (const struct made_up_sequence *s = node->sequences; s; s = s->next) {
        if (s->instance == part->instance && s->epoch == part->life.epoch && s->round)
            return true;
    }
    return false;
}

/* Tokens are below LIMIT_VOCAB. */
static int32_t kept_token(uint64_t token)
{
    return (int32_t)token;
}

static uint32_t kept_list_slots(const struct node *node, const struct sim_part *part,
                                struct cached_slot *out, int32_t **tokens)
{
    uint32_t n = 0, n_tokens = 0;
    for (const struct made_up_sequence *s = node->sequences; s; s = s->next)
        n_tokens += s->n_fed;
    int32_t *at = *tokens = mem_new_array(n_tokens + 1, sizeof *at);
    for (const struct made_up_sequence *s = node->sequences; s && at && n < LIMIT_SEQUENCES;
         s = s->next) {
        if (s->instance != part->instance || s->epoch != part->life.epoch || !s->n_fed)
            continue;
        out[n++] = (struct cached_slot){s->slot, s->n_fed, at};
        for (uint32_t i = 0; i < s->n_fed; i++)
            *at++ = kept_token(s->tokens[i]);
    }
    return n;
}

/* Its requests end when nothing of them is under way, then its slots stand still. */
static void kept_quiesced(struct world *w, struct node *node, struct sim_part *part)
{
    struct cached_slot slots[LIMIT_SEQUENCES];
    int32_t *tokens;
    const uint32_t n = kept_list_slots(node, part, slots, &tokens);
    w->out_of_memory |= !tokens;
    serve_return_all(w, node, part, NULL);
    cache_give_quiesced(&part->give, w->now_ms, slots, n, &(struct give_costs){0});
    mem_free(tokens);
}

bool kept_hand_over(struct world *w, struct node *node, struct sim_part *part,
                    const Cluster__Placement *next)
{
    struct handover_placement to;
    kept_sync(part);
    kept_read(w, next, &to);
    const bool may = part->about.is_loaded && !part->about.is_lost && part->life.has_served &&
                     state_is_ready(next);
    assert(to.epoch == next->epoch && to.n_stages);
    const bool gives = cache_give_begin(&part->give, w->now_ms, &to, may);
    if (gives && part->life.state == PART_READY)
        parts_hand_over(&node->parts, &part->life);
    kept_pump(w, node, part);
    return gives;
}

bool kept_is_handing(const struct node *node, uint32_t instance, uint64_t epoch)
{
    const struct sim_part *part = host_part(node, instance, epoch);
    return part && part->life.state == PART_HANDING;
}

/* One of its devices has lost what it had. */
void kept_fail(struct world *w, struct node *node, struct sim_part *part, const char *why)
{
    kept_sync(part);
    cache_give_fail(&part->give, why);
    cache_take_fail(&part->take, why);
    kept_pump(w, node, part);
}

void kept_leave(struct sim_part *part)
{
    cache_give_close(&part->give);
}

/* ---- the driver that comes ---- */

bool kept_waits(const struct node *node, const struct hosted *driver)
{
    const struct sim_part *part = host_part(node, driver->instance, driver->epoch);
    return part && cache_take_is_open(&part->take);
}

/* A driver that has lost its stages empties every slot before it uses it. */
void kept_lost(struct world *w, struct node *node, struct sim_part *part, bool ends_take)
{
    assert(part->life.has_driver);
    part->is_full = false;
    kept_sync(part);
    if (ends_take)
        cache_take_end(&part->take, "its driver is lost");
    kept_pump(w, node, part);
}

void kept_used(struct world *w, struct node *node, const struct hosted *stage)
{
    struct sim_part *part = host_part(node, stage->instance, stage->epoch);
    if (!part || !cache_take_is_open(&part->take))
        return;
    kept_sync(part);
    cache_take_used(&part->take);
    kept_pump(w, node, part);
}

static uint32_t kept_common(const struct cached_slot *slot, const uint64_t *tokens, uint32_t n)
{
    uint32_t common = 0;
    while (common < n && common < slot->n_tokens &&
           slot->tokens[common] == kept_token(tokens[common]))
        common++;
    return common;
}

static bool kept_is_taken(const struct node *node, const struct hosted *driver, uint32_t slot)
{
    for (const struct made_up_sequence *s = node->sequences; s; s = s->next) {
        if (s->instance == driver->instance && s->epoch == driver->epoch && s->slot == slot)
            return true;
    }
    return false;
}

bool kept_slot_for(const struct node *node, const struct hosted *driver, const uint64_t *tokens,
                   uint32_t n_tokens, uint32_t *slot, uint32_t *n_fed)
{
    struct sim_part *part = host_part(node, driver->instance, driver->epoch);
    const struct offered *offer = part && part->is_full ? part->take.offer : NULL;
    *n_fed = 0;
    for (uint32_t i = 0; offer && i < offer->n_slots; i++) {
        const uint32_t common = kept_common(&offer->slots[i], tokens, n_tokens - 1);
        if (common <= *n_fed || part->used[offer->slots[i].slot])
            continue;
        *n_fed = common;
        *slot = offer->slots[i].slot;
    }
    if (!*n_fed) {
        *slot = 0;
        while (*slot < LIMIT_SEQUENCES && kept_is_taken(node, driver, *slot))
            ++*slot;
    }
    if (*slot == LIMIT_SEQUENCES)
        return false;
    assert(!kept_is_taken(node, driver, *slot) && *n_fed < n_tokens);
    if (part)
        part->used[*slot] = true;
    return true;
}

/* ---- by and by ---- */

static void kept_look(struct world *w, struct node *node, struct sim_part *part)
{
    const Cluster__Instance *is = state_instance(node_state(node), part->life.instance);
    struct handover_placement next;
    kept_sync(part);
    if (part->life.is_current && is && is->next && part->give.next.epoch != is->next->epoch) {
        kept_read(w, is->next, &next);
        cache_give_prepare(&part->give, &next);
    }
    if (part->quiesces && cache_give_wants_slots(&part->give) && !kept_is_under_way(node, part))
        kept_quiesced(w, node, part);
    cache_give_tick(&part->give, w->now_ms);
    if (cache_take_is_open(&part->take))
        cache_take_tick(&part->take, w->now_ms,
                        net_link(w, node->index, kept_index(part->take.from.stages[0].node_id)));
    kept_pump(w, node, part);
}

void kept_turn(struct world *w, struct node *node)
{
    for (struct part_life *life = node->parts.first; life; life = life->next)
        kept_look(w, node, (struct sim_part *)life);
}
