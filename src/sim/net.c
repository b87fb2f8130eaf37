/* Messages: lossy ones, and those of a link between two nodes, which come once and in order while
 * it is up, as over TCP or QUIC. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

struct message *message_new(enum message_kind kind, const struct node *from, uint32_t to)
{
    assert(kind);
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

bool net_is_cut(const struct world *w, uint32_t from, uint32_t to)
{
    assert(from < w->n && to < w->n);
    return w->cuts[(size_t)from * w->n + to] > 0;
}

bool net_reaches(const struct world *w, uint32_t from, uint32_t to)
{
    return !net_is_cut(w, from, to) && node_runs(w, &w->nodes[from]) && node_runs(w, &w->nodes[to]);
}

uint64_t net_link(const struct world *w, uint32_t at, uint32_t to)
{
    return at == to ? 1 : net_end(w, at, to)->link;
}

static uint64_t net_delay(struct world *w)
{
    return 1 + world_draw(w, w->scenario->delay_ms + w->slow_ms + 1);
}

/* Sent again after a timeout that doubles, as by TCP. */
uint64_t net_way_ms(struct world *w)
{
    uint64_t ms = net_delay(w);
    for (uint64_t again_ms = RETRANSMIT_MS; again_ms < 60000 && world_chance_ppm(w, w->loss_ppm);
         again_ms *= 2)
        ms += again_ms;
    return ms;
}

/* ---- lossy ---- */

static struct message *copy_of(const struct message *message)
{
    assert(!message->link && !message->tokens);
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
    if (net_is_cut(w, message->from, message->to) || world_chance_ppm(w, w->loss_ppm)) {
        message_free_one(message);
        return;
    }
    const uint32_t to = message->to;
    if (world_chance_ppm(w, w->double_ppm))
        world_push(w, (struct event){.at_ms = w->now_ms + net_delay(w) + world_draw(w, 1000),
                                     .type = EVENT_MESSAGE,
                                     .node = to,
                                     .message = copy_of(message)});
    world_push(w, (struct event){.at_ms = w->now_ms + net_delay(w),
                                 .type = EVENT_MESSAGE,
                                 .node = to,
                                 .message = message});
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
    const uint64_t after = from == to ? 0 : net_way_ms(w);
    message->number = from == to ? w->nodes[from].boots : ++net_end(w, from, to)->sent;
    world_push(
        w, (struct event){
               .at_ms = w->now_ms + after, .type = EVENT_MESSAGE, .node = to, .message = message});
    return true;
}

static void net_hand_over(struct world *w, struct node *node, const struct message *m)
{
    assert(node->up && node->index == m->to);
    switch (m->kind) {
    case MESSAGE_FRAME:
        frame_receive(w, node, m);
        break;
    case MESSAGE_RAFT:
        log_receive(w, node, m);
        break;
    case MESSAGE_PROPOSE:
        log_receive_proposal(w, node, m);
        break;
    case MESSAGE_NOW:
        if (node->leads)
            memcpy(&node->said[m->from], m->bytes, sizeof *node->said);
        break;
    case MESSAGE_STEP:
    case MESSAGE_RESULT:
    case MESSAGE_NOTICE:
        serve_receive(w, node, m);
        break;
    }
}

static bool net_again(struct world *w, struct event *event, uint64_t ms)
{
    assert(ms && event->message);
    struct event later = *event;
    later.at_ms = w->now_ms + ms;
    event->message = NULL;
    world_push(w, later);
    return false;
}

/* False: not now, or never. */
static bool net_arrives(struct world *w, struct event *event)
{
    assert(event->message && event->message->to == event->node);
    const struct message *m = event->message;
    struct node *node = &w->nodes[m->to];
    if (!node->up)
        return false;
    if (node->paused_until_ms > w->now_ms)
        return net_again(w, event, node->paused_until_ms - w->now_ms);
    if (m->from == m->to)
        return m->number == node->boots;
    struct end *end = net_end(w, m->to, m->from);
    if (!m->link) {
        if (!net_is_cut(w, m->from, m->to))
            net_heard(w, node, m->from);
        return !net_is_cut(w, m->from, m->to);
    }
    if (end->link != m->link)
        return false;
    if (net_is_cut(w, m->from, m->to))
        return net_again(w, event, RETRANSMIT_MS);
    if (m->number != end->received + 1)
        return net_again(w, event, 5);
    end->received++;
    net_heard(w, node, m->from);
    return true;
}

void net_deliver(struct world *w, struct event *event)
{
    assert(event->type == EVENT_MESSAGE);
    struct node *node = &w->nodes[event->node];
    if (!event->message) {
        w->out_of_memory = true;
        return;
    }
    if (net_arrives(w, event)) {
        const enum message_kind kind = event->message->kind;
        hostile_overhear(node, event->message);
        net_hand_over(w, node, event->message);
        if (kind == MESSAGE_STEP || kind == MESSAGE_RESULT || kind == MESSAGE_FRAME)
            world_turn_beside_log(w, node);
        else
            world_turn(w, node);
    }
    message_free_one(event->message);
    event->message = NULL;
}
