/* Drivers. A token is a function of all tokens before it and of its position;
 * every stage keeps a hash of what it has seen of a sequence, as it would its KV cache, and what
 * comes out is right only if all of them have seen the same. By the rules of pipeline/driver.h and
 * hosting/hosting.h: what is lost on the way loses the driver, which gives its sequences back to
 * who asked. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <stdio.h>
#include <string.h>

/* ---- the reference ---- */

uint64_t reference_fold(uint64_t hash, uint64_t token)
{
    return random_mix(hash ^ token);
}

uint64_t reference_token(uint64_t hash, uint64_t position)
{
    return random_mix(hash ^ random_mix(~position));
}

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

static void free_sequence(struct sequence **link)
{
    struct sequence *s = *link;
    *link = s->next;
    mem_free(s->tokens);
    mem_free(s);
}

void serve_drop_all(struct node *node)
{
    while (node->sequences)
        free_sequence(&node->sequences);
}

static void give_back(struct world *w, struct node *node, uint32_t origin, uint64_t link,
                      uint64_t part)
{
    if (net_link(w, node->index, origin) != link)
        return;
    struct message *message = message_new(MESSAGE_RETURNED, node, origin);
    if (message)
        message->part = part;
    net_send_link(w, message);
}

void serve_return_all(struct world *w, struct node *node, const struct hosted *driver)
{
    for (struct sequence **link = &node->sequences; *link;) {
        struct sequence *s = *link;
        if (s->instance != driver->instance || s->epoch != driver->epoch) {
            link = &s->next;
            continue;
        }
        give_back(w, node, s->origin, s->link, s->part);
        free_sequence(link);
    }
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

static void feed(struct world *w, struct node *node, struct sequence *s)
{
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

static void begin(struct world *w, struct node *node, const struct message *m)
{
    struct hosted *driver = serve_driver(w, node, m->instance);
    struct sequence *s = driver ? mem_new(sizeof *s) : NULL;
    if (!s) {
        give_back(w, node, m->from, net_link(w, node->index, m->from), m->part);
        return;
    }
    s->capacity = m->n_tokens + (uint32_t)m->value;
    s->tokens = mem_new_array(s->capacity, sizeof *s->tokens);
    if (!s->tokens) {
        w->out_of_memory = true;
        mem_free(s);
        return;
    }
    memcpy(s->tokens, m->tokens, m->n_tokens * sizeof *s->tokens);
    s->n_tokens = m->n_tokens;
    if (!kept_slot_for(node, driver, s->tokens, s->n_tokens, &s->slot, &s->n_fed)) {
        give_back(w, node, m->from, net_link(w, node->index, m->from), m->part);
        mem_free(s->tokens);
        mem_free(s);
        return;
    }
    s->left = (uint32_t)m->value;
    s->part = m->part;
    s->request = m->request;
    s->instance = m->instance;
    s->epoch = driver->epoch;
    s->origin = m->from;
    s->link = net_link(w, node->index, m->from);
    s->next = node->sequences;
    node->sequences = s;
    w->result->handed_over += s->n_fed > 0;
    feed(w, node, s);
}

static void on_result(struct world *w, struct node *node, const struct message *m)
{
    struct sequence **link = &node->sequences;
    while (*link && ((*link)->part != m->part || (*link)->round != m->round))
        link = &(*link)->next;
    struct sequence *s = *link;
    if (!s)
        return;
    s->n_fed = s->n_tokens;
    s->round = 0;
    const uint64_t token = reference_token(m->value, s->n_tokens);
    struct message *answer = message_new(MESSAGE_TOKEN, node, s->origin);
    if (answer) {
        answer->part = s->part;
        answer->position = s->n_tokens;
        answer->value = token;
    }
    s->tokens[s->n_tokens++] = token;
    s->left--;
    const bool sent = net_link(w, node->index, s->origin) == s->link && net_send_link(w, answer);
    const bool ends_here = kept_is_handing(node, s->instance, s->epoch);
    node->changed |= ends_here;
    if (!sent || !s->left)
        free_sequence(link);
    else if (!ends_here)
        feed(w, node, s);
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
    case MESSAGE_REQUEST:
        begin(w, node, m);
        break;
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
    case MESSAGE_TOKEN:
    case MESSAGE_RETURNED:
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
    for (struct sequence **link = &node->sequences; *link;) {
        if ((*link)->origin == other)
            free_sequence(link);
        else
            link = &(*link)->next;
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
