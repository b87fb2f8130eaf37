/* Drivers. A token is a function of all tokens before it and of its position;
 * every stage keeps a hash of what it has seen of a sequence, as it would its KV cache, and what
 * comes out is right only if all of them have seen the same. What is lost on the
 * way loses the driver, which gives its sequences back to who asked: what decides that, and when it
 * serves again, is the node's own (hosting/reach.h). */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* ---- who is where ---- */

struct hosted *serve_driver(struct world *w, struct node *node, uint32_t instance)
{
    const char id[] = {'i', (char)('0' + instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    if (!is || !is->current || world_node(w, is->current->stages[0]->node) != node)
        return NULL;
    const struct sim_part *part = host_part(node, instance, is->current->epoch);
    struct hosted *h = host_find(node, instance, is->current->epoch, 0);
    const bool serves = part && part->life.state == PART_READY && !part->reach.is_waiting;
    assert(!h || !serves || h->state == WORKER_READY);
    return h && serves && !kept_waits(node, h) ? h : NULL;
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

void serve_return_all(struct world *w, struct node *node, const struct sim_part *driver,
                      const struct error *why)
{
    for (struct made_up_sequence **link = &node->sequences; *link;) {
        if ((*link)->instance != driver->instance || (*link)->epoch != driver->life.epoch)
            link = &(*link)->next;
        else
            end_sequence(link, why ? FINISH_ERROR : FINISH_CANCELLED, why);
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

static void serve_send_notice(struct world *w, struct node *node, uint32_t to, uint32_t instance,
                              uint64_t epoch)
{
    struct message *message = message_new(MESSAGE_NOTICE, node, to);
    if (message) {
        message->instance = instance;
        message->epoch = epoch;
    }
    net_send_link(w, message);
}

static void serve_cut(struct world *w, struct node *node, struct sim_part *part, uint32_t effects)
{
    struct error lost;
    error_set(&lost, ERROR_IO, "a stage is lost");
    kept_lost(w, node, part, effects & REACH_END_TAKE);
    serve_return_all(w, node, part, &lost);
    if (!(effects & REACH_WAIT) || !part->reach.was_found) /* it was only just loaded */
        return;
    world_say(w, "%s: the driver of i%u, epoch %llu, is lost", node->name, part->instance,
              (unsigned long long)part->life.epoch);
    w->result->failovers++;
}

/* What the node's own machine says (hosting/reach.h). */
static void serve_carry_out(struct world *w, struct node *node, struct sim_part *part,
                            uint32_t effects)
{
    assert(!(effects & (REACH_END_TAKE | REACH_WAIT)) || effects & REACH_CUT);
    if (effects & REACH_CUT)
        serve_cut(w, node, part, effects);
    if (effects & REACH_TELL_DRIVER)
        serve_send_notice(w, node, kept_index(part->life.stages[0].node_id), part->instance,
                          part->life.epoch);
    node->changed |= (effects & (REACH_WAIT | REACH_FOUND)) != 0; /* who waits for it looks now */
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
    for (uint32_t i = 0; i < driver->n_route; i++) {
        if (w->nodes[driver->route[i]].hostile)
            client_taint(w, s->request);
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

static void serve_take_notice(struct world *w, struct node *node, const struct message *m)
{
    struct sim_part *part = host_part(node, m->instance, m->epoch);
    if (part)
        serve_carry_out(w, node, part, reach_notice(&part->reach, w->now_ms));
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

void serve_opened(struct world *w, struct node *node, struct sim_part *part)
{
    serve_carry_out(w, node, part, reach_opened(&part->reach, w->now_ms));
}

void serve_missed(struct world *w, struct node *node, struct sim_part *part)
{
    serve_carry_out(w, node, part, reach_missed(&part->reach));
}

void serve_leave(struct world *w, struct node *node, struct sim_part *part)
{
    struct error why;
    error_set(&why, ERROR_CANCELLED, "it is being unloaded");
    w->result->failovers += part->life.has_driver && !part->reach.is_waiting;
    reach_leave(&part->reach);
    if (part->life.has_driver)
        serve_return_all(w, node, part, &why);
}

/* Who has just started knows no placement, but who has sent it something is told. */
void serve_stray(struct world *w, struct node *node, const struct message *m)
{
    assert(m->kind == MESSAGE_STEP);
    serve_send_notice(w, node, m->from, m->instance, m->epoch);
}

void serve_broken(struct world *w, struct node *node, const struct hosted *stage)
{
    struct sim_part *part = host_part(node, stage->instance, stage->epoch);
    assert(part && stage->state == WORKER_READY);
    serve_carry_out(w, node, part, reach_broken(&part->reach, w->now_ms));
}

void serve_link_down(struct world *w, struct node *node, uint32_t other)
{
    uint8_t id[NODE_ID_BYTES];
    kept_id(other, id);
    for (struct part_life *life = node->parts.first; life; life = life->next) {
        struct sim_part *part = (struct sim_part *)life;
        serve_carry_out(w, node, part, reach_link_lost(&part->reach, w->now_ms, id, false));
    }
}

struct serve_seen {
    const struct world *w;
    const struct node *node;
};

static bool serve_is_linked(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct serve_seen *seen = self;
    return net_link(seen->w, seen->node->index, kept_index(node_id));
}

void serve_turn(struct world *w, struct node *node)
{
    struct serve_seen seen = {w, node};
    for (struct part_life *life = node->parts.first; life; life = life->next) {
        struct sim_part *part = (struct sim_part *)life;
        serve_carry_out(w, node, part, reach_look_at_state(&part->reach, w->now_ms));
        if (reach_is_due(&part->reach))
            serve_carry_out(w, node, part,
                            reach_look(&part->reach, w->now_ms, life->state == PART_READY,
                                       serve_is_linked, &seen));
    }
}
