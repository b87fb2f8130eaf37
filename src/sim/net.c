/* Messages: lossy ones, and those of a link between two nodes, which come once and in order while it is up, as over
 * TCP or QUIC. A link ends at once where a process dies, and after a silence where nobody can tell. */
#include "sim/world.h"

#include "base/mem.h"

#include <string.h>

enum { RETRANSMIT_MS = 100 };

struct message *message_new(enum message_kind kind, const struct node *from, uint32_t to)
{
    struct message *message = mem_new(sizeof *message);
    if (message)
        *message = (struct message){.kind = kind, .from = from->index, .to = to};
    return message;
}

void message_free_one(struct message *message)
{
    if (!message)
        return;
    mem_free(message->tokens);
    mem_free(message->bytes);
    mem_free(message);
}

static struct end *end_of(const struct world *w, uint32_t at, uint32_t to)
{
    return &w->ends[(size_t)at * w->n + to];
}

static bool is_cut(const struct world *w, uint32_t from, uint32_t to)
{
    return w->cuts[(size_t)from * w->n + to] > 0;
}

bool net_reaches(const struct world *w, uint32_t from, uint32_t to)
{
    return !is_cut(w, from, to) && node_runs(w, &w->nodes[from]) && node_runs(w, &w->nodes[to]);
}

uint64_t net_link(const struct world *w, uint32_t at, uint32_t to)
{
    return at == to ? 1 : end_of(w, at, to)->link;
}

static uint64_t delay(struct world *w)
{
    return 1 + world_draw(w, w->scenario->delay_ms + w->slow_ms + 1);
}

/* ---- lossy ---- */

static struct message *copy_of(const struct message *message)
{
    struct message *copy = mem_new(sizeof *copy);
    if (!copy)
        return NULL;
    *copy = *message; /* lossy messages have bytes alone */
    copy->tokens = NULL;
    copy->bytes = mem_new(message->size + 1);
    if (!copy->bytes) {
        mem_free(copy);
        return NULL;
    }
    if (message->size)
        memcpy(copy->bytes, message->bytes, message->size);
    return copy;
}

void net_send(struct world *w, struct message *message)
{
    if (!message) {
        w->out_of_memory = true;
        return;
    }
    if (is_cut(w, message->from, message->to) || world_chance_ppm(w, w->loss_ppm)) {
        message_free_one(message);
        return;
    }
    const uint32_t to = message->to;
    if (world_chance_ppm(w, w->double_ppm))
        world_push(w, (struct event){.at_ms = w->now_ms + delay(w) + world_draw(w, 1000),
                                     .type = EVENT_MESSAGE,
                                     .node = to,
                                     .message = copy_of(message)});
    world_push(w, (struct event){.at_ms = w->now_ms + delay(w), .type = EVENT_MESSAGE, .node = to, .message = message});
}

/* ---- of a link ---- */

bool net_send_link(struct world *w, struct message *message)
{
    if (!message) {
        w->out_of_memory = true;
        return false;
    }
    const uint32_t from = message->from, to = message->to;
    message->link = net_link(w, from, to);
    if (!message->link) {
        message_free_one(message);
        return false;
    }
    uint64_t after = from == to ? 0 : delay(w);
    if (from == to) {
        message->number = w->nodes[from].boots;
    } else {
        message->number = ++end_of(w, from, to)->sent;
        if (world_chance_ppm(w, w->loss_ppm))
            after += RETRANSMIT_MS;
    }
    world_push(w, (struct event){.at_ms = w->now_ms + after, .type = EVENT_MESSAGE, .node = to, .message = message});
    return true;
}

static void hand_over(struct world *w, struct node *node, const struct message *m)
{
    switch (m->kind) {
    case MESSAGE_RAFT:
        log_receive(w, node, m);
        break;
    case MESSAGE_PROPOSE:
        log_receive_proposal(w, node, m);
        break;
    case MESSAGE_PULSE:
        if (node->leads) {
            node->heard_ms[m->from] = w->now_ms;
            node->wanted[m->from] = (uint32_t)m->value;
            for (uint32_t i = 0; i < w->scenario->n_instances; i++) {
                if (m->a >> i & 1)
                    node->used[i] = w->now_ms;
            }
        }
        break;
    case MESSAGE_TOKEN:
    case MESSAGE_RETURNED:
        ask_receive(w, node, m);
        break;
    case MESSAGE_REQUEST:
    case MESSAGE_STEP:
    case MESSAGE_RESULT:
    case MESSAGE_NOTICE:
        serve_receive(w, node, m);
        break;
    }
}

static bool again(struct world *w, struct event *event, uint64_t ms)
{
    struct event later = *event;
    later.at_ms = w->now_ms + ms;
    event->message = NULL;
    world_push(w, later);
    return false;
}

/* False: not now, or never. */
static bool arrives(struct world *w, struct event *event)
{
    const struct message *m = event->message;
    struct node *node = &w->nodes[m->to];
    if (!node->up)
        return false;
    if (node->paused_until_ms > w->now_ms)
        return again(w, event, node->paused_until_ms - w->now_ms);
    if (m->from == m->to)
        return m->number == node->boots;
    if (!m->link)
        return !is_cut(w, m->from, m->to);
    struct end *end = end_of(w, m->to, m->from);
    if (end->link != m->link)
        return false;
    if (is_cut(w, m->from, m->to))
        return again(w, event, RETRANSMIT_MS);
    if (m->number != end->received + 1)
        return again(w, event, 5);
    end->received++;
    return true;
}

void net_deliver(struct world *w, struct event *event)
{
    struct node *node = &w->nodes[event->node];
    if (!event->message) {
        w->out_of_memory = true;
        return;
    }
    if (arrives(w, event)) {
        hand_over(w, node, event->message);
        world_turn(w, node);
    }
    message_free_one(event->message);
    event->message = NULL;
}

/* ---- links come and go ---- */

/* The end of a cut tries by itself. */
static void try_later(struct world *w, uint32_t a, uint32_t b)
{
    if (w->nodes[a].up && w->nodes[b].up && !is_cut(w, a, b) && !is_cut(w, b, a))
        world_push(w, (struct event){
                          .at_ms = w->now_ms + 500 + world_draw(w, 500), .type = EVENT_LINK, .node = a, .other = b});
}

void net_try_link(struct world *w, uint32_t a, uint32_t b)
{
    struct end *one = end_of(w, a, b), *other = end_of(w, b, a);
    if (a == b || (one->link && one->link == other->link))
        return;
    if (one->link || other->link || !net_reaches(w, a, b) || !net_reaches(w, b, a)) {
        try_later(w, a, b);
        return;
    }
    one->link = other->link = ++w->n_links + 1;
    one->sent = one->received = other->sent = other->received = 0;
    w->nodes[a].changed = w->nodes[b].changed = true;
}

void net_links_soon(struct world *w, uint32_t node)
{
    for (uint32_t i = 0; i < w->n; i++) {
        if (i != node && w->nodes[i].up && !net_link(w, node, i))
            world_push(w,
                       (struct event){
                           .at_ms = w->now_ms + 20 + world_draw(w, 400), .type = EVENT_LINK, .node = node, .other = i});
    }
}

static void end_down(struct world *w, uint32_t at, uint32_t to)
{
    end_of(w, at, to)->link = 0;
    if (!w->nodes[at].up)
        return;
    serve_link_down(w, &w->nodes[at], to);
    ask_link_down(w, &w->nodes[at], to);
    w->nodes[at].changed = true;
    world_push(
        w, (struct event){.at_ms = w->now_ms + 200 + world_draw(w, 800), .type = EVENT_LINK, .node = at, .other = to});
}

void net_watch(struct world *w, uint32_t at, uint32_t to)
{
    if (at != to && net_link(w, at, to))
        world_push(w, (struct event){.at_ms = w->now_ms + SILENCE_MS + world_draw(w, 300),
                                     .type = EVENT_SILENCE,
                                     .node = at,
                                     .other = to,
                                     .a = net_link(w, at, to)});
}

/* `b`: the other end has said that it is over. */
void net_silence(struct world *w, const struct event *event)
{
    const uint32_t at = event->node, to = event->other;
    const uint64_t link = net_link(w, at, to);
    struct node *node = &w->nodes[at];
    if (!link || link != event->a || !node->up)
        return;
    if (node->paused_until_ms > w->now_ms) {
        struct event later = *event;
        later.at_ms = node->paused_until_ms;
        world_push(w, later);
        return;
    }
    if (net_link(w, to, at) == link && net_reaches(w, to, at) && net_reaches(w, at, to))
        return;
    end_down(w, at, to);
    world_turn(w, node);
    if (net_link(w, to, at) != link)
        return;
    if (net_reaches(w, at, to))
        world_push(w, (struct event){
                          .at_ms = w->now_ms + delay(w), .type = EVENT_SILENCE, .node = to, .other = at, .a = link});
    else
        net_watch(w, to, at);
}

void net_node_gone(struct world *w, uint32_t gone, bool told)
{
    for (uint32_t i = 0; i < w->n; i++) {
        const uint64_t link = net_link(w, i, gone);
        if (i == gone)
            continue;
        end_of(w, gone, i)->link = 0;
        if (!link)
            continue;
        if (told && !is_cut(w, gone, i))
            world_push(w,
                       (struct event){
                           .at_ms = w->now_ms + delay(w), .type = EVENT_SILENCE, .node = i, .other = gone, .a = link});
        else
            net_watch(w, i, gone);
    }
}

void net_cut(struct world *w, uint32_t from, uint32_t to, int by)
{
    uint16_t *cut = &w->cuts[(size_t)from * w->n + to];
    if (from == to)
        return;
    *cut = (uint16_t)(*cut + by);
    if (by > 0) {
        net_watch(w, to, from);
        net_watch(w, from, to);
    } else if (!*cut && !net_link(w, from, to)) {
        world_push(w,
                   (struct event){
                       .at_ms = w->now_ms + 50 + world_draw(w, 1000), .type = EVENT_LINK, .node = from, .other = to});
    }
}
