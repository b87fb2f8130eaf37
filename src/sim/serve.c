/* Drivers. A token is a function of all tokens before it and of its position;
 * every stage keeps a hash of what it has seen of a sequence, as it would its KV cache, and what
 * comes out is right only if all of them have seen the same. By the rules of pipeline/driver.h and
 * hosting/hosting.h: what is lost on the way loses the driver, which gives its sequences back to
 * who asked. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- who is where ---- */

const Cluster__Placement *serve_placement(const struct node *node, uint32_t instance,
                                          uint64_t epoch)
{
    const char id[] = {'i', (char)('0' + instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    if (is && is->current && is->current->epoch == epoch)
        return is->current;
    return is && is->next && is->next->epoch == epoch ? is->next : NULL;
}

static bool can_serve(struct world *w, const struct node *node, const Cluster__Placement *placement)
{
    for (size_t i = 0; i < placement->n_stages; i++) {
        const Cluster__Stage *stage = placement->stages[i];
        if (stage->state != CLUSTER__STAGE_STATE__READY ||
            !net_link(w, node->index, world_node(w, stage->node)->index))
            return false;
    }
    return true;
}

struct hosted *serve_driver(struct world *w, struct node *node, uint32_t instance)
{
    const char id[] = {'i', (char)('0' + instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    if (!is || !is->current || world_node(w, is->current->stages[0]->node) != node ||
        !can_serve(w, node, is->current))
        return NULL;
    struct hosted *h = host_find(node, instance, is->current->epoch, 0);
    return h && h->state == WORKER_READY && !h->lost && !kept_waits(node, h) ? h : NULL;
}

/* ---- sequences ---- */

static void free_sequence(struct made_up_sequence **link)
{
    struct made_up_sequence *s = *link;
    *link = s->next;
    mem_free(s->tokens);
    mem_free(s);
}

void serve_drop_all(struct node *node)
{
    while (node->sequences)
        free_sequence(&node->sequences);
}

/* Its handler is told, and may not begin another one in turn. */
static void end_sequence(struct made_up_sequence **link, enum finish_reason reason,
                         const struct error *why)
{
    struct made_up_sequence *s = *link;
    const struct request_usage usage = {.prompt_tokens = s->n_prompt,
                                        .cached_tokens = s->n_cached,
                                        .generated_tokens = s->n_tokens - s->n_prompt};
    assert((reason == FINISH_ERROR) == (why != NULL) && s->n_tokens >= s->n_prompt);
    *link = s->next;
    s->handlers.done(s->arg, reason, &usage, why);
    mem_free(s->tokens);
    mem_free(s);
}

void serve_return_all(struct world *w, struct node *node, const struct hosted *driver)
{
    struct error lost;
    error_set(&lost, ERROR_IO, "a stage is lost");
    for (struct made_up_sequence **link = &node->sequences; *link;) {
        if ((*link)->instance != driver->instance || (*link)->epoch != driver->epoch)
            link = &(*link)->next;
        else if (driver->lost)
            end_sequence(link, FINISH_ERROR, &lost);
        else
            end_sequence(link, FINISH_CANCELLED, NULL);
    }
    seat_carry(w, node);
}

void serve_cancel(struct world *w, struct node *node, uint64_t id)
{
    struct made_up_sequence **link = &node->sequences;
    (void)w;
    while (*link && (*link)->part != id)
        link = &(*link)->next;
    if (*link)
        end_sequence(link, FINISH_CANCELLED, NULL);
}

static void lose(struct world *w, struct node *node, struct hosted *driver)
{
    if (!driver->lost)
        world_say(w, "%s: the driver of i%u, epoch %llu, is lost", node->id, driver->instance,
                  (unsigned long long)driver->epoch);
    w->result->failovers += !driver->lost;
    driver->lost = true;
    driver->mend_ms = w->now_ms + MEND_MS;
    kept_lost(w, node, driver);
    serve_return_all(w, node, driver);
}

void serve_notice(struct world *w, struct node *node, uint32_t driver, const struct message *m)
{
    struct message *message = message_new(MESSAGE_NOTICE, node, driver);
    if (message) {
        message->instance = m->instance;
        message->epoch = m->epoch;
    }
    net_send_link(w, message);
}

static void feed(struct world *w, struct node *node, struct made_up_sequence *s)
{
    assert(!s->round && s->n_fed < s->n_tokens && s->n_tokens <= s->capacity);
    struct message *m = message_new(MESSAGE_STEP, node, node->index);
    if (m) {
        m->n_tokens = s->n_tokens - s->n_fed;
        m->tokens = mem_new_array(m->n_tokens + 1, sizeof *m->tokens);
        m->instance = s->instance;
        m->epoch = s->epoch;
        m->part = s->part;
        m->request = s->request;
        m->position = s->n_fed;
        m->slot = s->slot;
        m->round = s->round = ++w->n_keys;
    }
    if (!m || !m->tokens) {
        w->out_of_memory = true;
        message_free_one(m);
        return;
    }
    memcpy(m->tokens, s->tokens + s->n_fed, m->n_tokens * sizeof *m->tokens);
    net_send_link(w, m);
}

static struct made_up_sequence *new_sequence(struct world *w, const struct request *request)
{
    struct made_up_sequence *s = mem_new(sizeof *s);
    if (s) {
        s->capacity = request->n_prompt + request->n_predict;
        s->tokens = mem_new_array(s->capacity, sizeof *s->tokens);
    }
    if (!s || !s->tokens) {
        w->out_of_memory = true;
        mem_free(s);
        return NULL;
    }
    for (uint32_t i = 0; i < request->n_prompt; i++)
        s->tokens[i] = (uint32_t)request->prompt[i];
    s->n_tokens = s->n_prompt = request->n_prompt;
    s->left = request->n_predict;
    s->request = request->sampler.seed;
    s->handlers = request->handlers;
    s->arg = request->arg;
    return s;
}

enum error_code serve_submit(struct world *w, struct node *node, uint64_t key,
                             const struct request *request, uint64_t *id, struct error *err)
{
    struct hosted *driver = node->hosted;
    assert(request->n_prompt && request->n_predict && request->handlers.done);
    while (driver && driver->key != key)
        driver = driver->next;
    if (!driver || serve_driver(w, node, driver->instance) != driver ||
        kept_is_handing(node, driver->instance, driver->epoch))
        return error_set(err, ERROR_CANCELLED, "the driver is going");
    struct made_up_sequence *s = new_sequence(w, request);
    if (!s)
        return error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    if (!kept_slot_for(node, driver, s->tokens, s->n_tokens, &s->slot, &s->n_fed)) {
        mem_free(s->tokens);
        mem_free(s);
        return error_set(err, ERROR_CANCELLED, "no slot is free"); /* drivers have a queue */
    }
    s->n_cached = s->n_fed;
    s->part = *id = ++w->n_keys;
    s->instance = driver->instance;
    s->epoch = driver->epoch;
    s->next = node->sequences;
    node->sequences = s;
    w->result->handed_over += s->n_fed > 0;
    feed(w, node, s);
    return ERROR_NONE;
}

static void on_result(struct world *w, struct node *node, const struct message *m)
{
    struct made_up_sequence **link = &node->sequences;
    while (*link && ((*link)->part != m->part || (*link)->round != m->round))
        link = &(*link)->next;
    struct made_up_sequence *s = *link;
    if (!s)
        return;
    assert(s->n_tokens < s->capacity && s->left);
    const struct token_event event = {.token = (int32_t)reference_token(m->value, s->n_tokens),
                                      .index = s->n_tokens - s->n_prompt};
    s->n_fed = s->n_tokens;
    s->round = 0;
    s->tokens[s->n_tokens++] = (uint32_t)event.token;
    s->left--;
    const bool goes_on = s->handlers.token(s->arg, &event);
    const bool ends_here = kept_is_handing(node, s->instance, s->epoch);
    node->changed |= ends_here;
    if (!goes_on || !s->left)
        end_sequence(link, goes_on ? FINISH_LENGTH : FINISH_STOP, NULL);
    else if (!ends_here)
        feed(w, node, s);
    seat_carry(w, node);
}

/* For the driver, or for one stage of it that is asked to pass it on. */
static void serve_take_notice(struct world *w, struct node *node, const struct message *m)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (h->instance != m->instance || h->epoch != m->epoch)
            continue;
        if (h->stage == 0)
            lose(w, node, h);
        else if (h->n_route && h->route[0] != node->index)
            serve_notice(w, node, h->route[0], m);
        else
            continue;
        return;
    }
}

void serve_receive(struct world *w, struct node *node, const struct message *m)
{
    switch (m->kind) {
    case MESSAGE_STEP:
        stage_step(w, node, m);
        break;
    case MESSAGE_RESULT:
        on_result(w, node, m);
        break;
    case MESSAGE_NOTICE:
        serve_take_notice(w, node, m);
        break;
    case MESSAGE_FRAME:
    case MESSAGE_RAFT:
    case MESSAGE_PROPOSE:
    case MESSAGE_NOW:
        break;
    }
}

/* ---- what is lost ---- */

void serve_stage_gone(struct world *w, struct node *node, const struct hosted *stage)
{
    struct hosted *driver = host_find(node, stage->instance, stage->epoch, 0);
    if (driver && driver->state == WORKER_READY)
        lose(w, node, driver);
}

void serve_link_down(struct world *w, struct node *node, uint32_t other)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        bool there = false, follows = false;
        for (uint32_t i = 0; i < h->n_route; i++) {
            there |= h->route[i] == other;
            follows |= h->route[i] == other && i == h->stage + 1;
        }
        if (h->stage == 0 && h->state == WORKER_READY && there)
            lose(w, node, h);
        else if (h->stage && follows)
            serve_notice(w, node, h->route[0],
                         &(struct message){.instance = h->instance, .epoch = h->epoch});
    }
}

void serve_turn(struct world *w, struct node *node)
{
    for (struct hosted *h = node->hosted; h; h = h->next) {
        if (h->stage || h->state != WORKER_READY || kept_is_handing(node, h->instance, h->epoch))
            continue;
        const Cluster__Placement *placement = serve_placement(node, h->instance, h->epoch);
        const bool good = placement && can_serve(w, node, placement);
        if (!good && !h->lost)
            lose(w, node, h);
        else if (good && h->lost && w->now_ms >= h->mend_ms) {
            h->lost = false;
            kept_found(node, h);
            node->changed = true; /* what waits for it takes over now */
        }
    }
}
