/* Requests, at the node that was asked: by the rules of relay/relay.h one goes on with prompt and
 * text so far where its driver was lost. Every token is compared with the reference. */
#include "sim/world.h"

#include "base/mem.h"
#include "base/random.h"

#include <string.h>

static struct ask **find(struct node *node, uint64_t part, uint32_t from)
{
    struct ask **link = &node->asks;
    while (*link &&
           ((*link)->state != ASK_THERE || (*link)->part != part || (*link)->where != from))
        link = &(*link)->next;
    return link;
}

static void end(struct world *w, struct ask **link, bool answered)
{
    struct ask *ask = *link;
    const struct scenario_stream *stream = &w->scenario->streams[ask->stream];
    *(answered ? &w->result->answered : &w->result->failed) += 1;
    w->open_asks--;
    if (w->stream_left[ask->stream])
        world_push(w, (struct event){.at_ms = w->now_ms + stream->pause_ms + 1,
                                     .type = EVENT_STREAM,
                                     .node = (uint32_t)stream->node,
                                     .other = ask->stream});
    *link = ask->next;
    mem_free(ask->tokens);
    mem_free(ask);
}

void ask_begin(struct world *w, struct node *node, uint32_t index)
{
    const struct scenario_stream *stream = &w->scenario->streams[index];
    struct ask *ask = mem_new(sizeof *ask);
    if (ask)
        ask->tokens = mem_new_array(stream->prompt + stream->tokens, sizeof *ask->tokens);
    if (!ask || !ask->tokens) {
        w->out_of_memory = true;
        mem_free(ask);
        return;
    }
    ask->request = ++w->n_requests;
    ask->stream = index;
    ask->instance = (uint32_t)stream->instance;
    ask->n_prompt = ask->n_tokens = (uint32_t)stream->prompt;
    ask->since_ms = ask->heard_ms = w->now_ms;
    for (uint32_t i = 0; i < ask->n_prompt; i++) {
        ask->tokens[i] = random_at(ask->request, i);
        ask->reference = reference_fold(ask->reference, ask->tokens[i]);
    }
    ask->next = node->asks;
    node->asks = ask;
    w->stream_left[index]--;
    w->open_asks++;
    w->result->requests++;
    node->changed = true;
}

static const Cluster__Placement *ready(const struct node *node, uint32_t instance)
{
    const char id[] = {'i', (char)('0' + instance), 0};
    const Cluster__Instance *is = state_instance(node_state(node), id);
    return is && state_is_ready(is->current) ? is->current : NULL;
}

static void go_on(struct world *w, struct node *node, struct ask *ask)
{
    const Cluster__Placement *placement = ready(node, ask->instance);
    const uint32_t where = placement ? world_node(w, placement->stages[0]->node)->index : 0;
    if (!placement || !net_link(w, node->index, where))
        return;
    struct message *m = message_new(MESSAGE_REQUEST, node, where);
    if (m) {
        m->tokens = mem_new_array(ask->n_tokens, sizeof *m->tokens);
        w->out_of_memory |= !m->tokens;
    }
    if (!m || !m->tokens) {
        message_free_one(m);
        return;
    }
    memcpy(m->tokens, ask->tokens, ask->n_tokens * sizeof *m->tokens);
    m->n_tokens = ask->n_tokens;
    m->value = w->scenario->streams[ask->stream].tokens - ask->got;
    m->request = ask->request;
    m->instance = ask->instance;
    m->part = ask->part = ++w->n_keys;
    ask->where = where;
    ask->epoch = placement->epoch;
    ask->state = ASK_THERE;
    w->result->replays += ask->got > 0;
    net_send_link(w, m);
}

/* It has moved while it could be heard. */
static bool runs_elsewhere(const struct node *node, const struct ask *ask)
{
    const Cluster__Placement *placement =
        ask->state == ASK_THERE ? ready(node, ask->instance) : NULL;
    return placement && placement->epoch != ask->epoch;
}

static void wait_again(struct world *w, struct ask *ask)
{
    ask->state = ASK_WAITING;
    ask->since_ms = w->now_ms;
}

void ask_turn(struct world *w, struct node *node)
{
    for (struct ask **link = &node->asks; *link;) {
        struct ask *ask = *link;
        node->used_ms[ask->instance] = w->now_ms;
        if (ask->state == ASK_WAITING && w->now_ms - ask->since_ms > w->scenario->patience_ms) {
            end(w, link, false);
            continue;
        }
        if (runs_elsewhere(node, ask))
            wait_again(w, ask);
        if (ask->state == ASK_WAITING)
            go_on(w, node, ask);
        link = &ask->next;
    }
}

/* As relay_recent_tokens(), which lets them fade by an exponential. */
static double recent(const struct world *w, const struct node *node, uint32_t instance)
{
    const double age_s = (double)(w->now_ms - node->recent_ms[instance]) / 1000;
    const double span_s = (double)MASTER_RECENT_S;
    return age_s < span_s ? node->recent_tokens[instance] * (1 - age_s / span_s) : 0;
}

static void take_token(struct world *w, struct node *node, struct ask **link,
                       const struct message *m)
{
    struct ask *ask = *link;
    const uint64_t expected = reference_token(ask->reference, ask->n_tokens);
    if (m->position != ask->n_tokens) {
        world_violated(w, "%s: request %llu gets token %llu, it has %u", node->id,
                       (unsigned long long)ask->request, (unsigned long long)m->position,
                       ask->n_tokens);
        return;
    }
    if (m->value != expected) {
        world_violated(w, "%s: token %u of request %llu is not the reference's", node->id, ask->got,
                       (unsigned long long)ask->request);
        return;
    }
    const uint64_t pause = w->now_ms - ask->heard_ms;
    if (ask->got && pause > w->result->longest_pause_ms)
        w->result->longest_pause_ms = pause;
    ask->heard_ms = w->now_ms;
    ask->tokens[ask->n_tokens++] = m->value;
    ask->reference = reference_fold(ask->reference, m->value);
    w->result->tokens++;
    w->token_ms = w->now_ms;
    node->recent_tokens[ask->instance] = recent(w, node, ask->instance) + 1;
    node->recent_ms[ask->instance] = w->now_ms;
    if (++ask->got == w->scenario->streams[ask->stream].tokens)
        end(w, link, true);
}

void ask_receive(struct world *w, struct node *node, const struct message *m)
{
    struct ask **link = find(node, m->part, m->from);
    if (!*link)
        return;
    if (m->kind == MESSAGE_TOKEN)
        take_token(w, node, link, m);
    else
        wait_again(w, *link);
}

void ask_link_down(struct world *w, struct node *node, uint32_t other)
{
    for (struct ask *ask = node->asks; ask; ask = ask->next) {
        if (ask->state == ASK_THERE && ask->where == other)
            wait_again(w, ask);
    }
}

/* Who asked sees a broken connection. */
void ask_drop_all(struct world *w, struct node *node)
{
    while (node->asks)
        end(w, &node->asks, false);
}

uint32_t ask_wanted(const struct node *node)
{
    uint32_t wanted = 0;
    for (const struct ask *ask = node->asks; ask; ask = ask->next)
        wanted |= (uint32_t)(ask->state == ASK_WAITING) << ask->instance;
    return wanted;
}

void ask_say(const struct world *w, const struct node *node, struct said *out)
{
    out->wanted = ask_wanted(node);
    for (const struct ask *ask = node->asks; ask; ask = ask->next)
        out->live[ask->instance]++;
    for (uint32_t i = 0; i < w->scenario->n_instances; i++) {
        out->used_ms[i] = node->used_ms[i];
        out->tokens[i] = recent(w, node, i);
    }
}
