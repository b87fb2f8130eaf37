/* The relay of a simulated node: the product's own (relay/relay_core.h), which gets its frames from
 * simulated links and its tokens from simulated drivers (serve.c). */
#include "sim/world.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static uint64_t seat_now_ns(const struct world *w)
{
    return w->now_ms * 1000000;
}

/* ---- what the relay asks ---- */

static void seat_put_id(uint32_t index, uint8_t node_id[NODE_ID_BYTES])
{
    assert(index < SCENARIO_NODES);
    memset(node_id, 0, NODE_ID_BYTES);
    memcpy(node_id, &index, sizeof index);
}

static uint32_t seat_get_id(const uint8_t node_id[NODE_ID_BYTES])
{
    uint32_t index;
    memcpy(&index, node_id, sizeof index);
    assert(index < SCENARIO_NODES);
    return index;
}

static void *seat_link_handle(uint64_t link, uint32_t to)
{
    assert(to < SCENARIO_NODES);
    return (void *)(uintptr_t)(link * SCENARIO_NODES + to);
}

static bool seat_reaches(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct seat *seat = self;
    const uint32_t at = seat->node->index, to = seat_get_id(node_id);
    return net_link(seat->w, at, to) && (at == to || !net_silent(seat->w, at, to));
}

/* As node/daemon_way.c, but that nobody has told whom it misses: who does refuses. */
static bool seat_through(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    struct seat *seat = self;
    const uint32_t at = seat->node->index, to = seat_get_id(node_id), n = seat->w->n;
    const struct end *end = net_end(seat->w, at, to);
    if (end->link ? !end->silent : seat->w->now_ms - end->down_ms < GONE_MS)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t third = (seat->n_through + i) % n;
        if (third == at || third == to || !net_link(seat->w, at, third) ||
            net_silent(seat->w, at, third))
            continue;
        if (out) {
            seat_put_id(third, out);
            seat->n_through = third + 1;
        }
        return true;
    }
    return false;
}

static void *seat_link_to(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct seat *seat = self;
    const uint32_t to = seat_get_id(node_id);
    const uint64_t link = net_link(seat->w, seat->node->index, to);
    return link ? seat_link_handle(link, to) : NULL;
}

/* As node/daemon_models.c. */
static enum error_code seat_find(void *self, const char *instance, struct relay_place *out,
                                 struct error *err)
{
    struct seat *seat = self;
    const Cluster__Instance *is = state_instance(node_state(seat->node), instance);
    if (!is || !state_is_ready(is->current))
        return error_set(err, ERROR_BUSY, "%s is being loaded", instance);
    const struct node *first = world_node(seat->w, is->current->stages[0]->node);
    out->epoch = is->current->epoch;
    seat_put_id(first->index, out->node_id);
    if (first == seat->node) {
        const struct hosted *driver = serve_driver(seat->w, seat->node, instance_index(instance));
        out->driver = driver ? (void *)(uintptr_t)driver->key : NULL;
        return driver ? ERROR_NONE : error_set(err, ERROR_BUSY, "%s is being loaded", instance);
    }
    if (!seat_reaches(seat, out->node_id) && !seat_through(seat, out->node_id, NULL))
        return error_set(err, ERROR_BUSY, "the node that runs %s cannot be reached", instance);
    return ERROR_NONE;
}

/* ---- what drivers say ---- */

static void seat_tell_done(const struct seat *seat, const struct relay_effect *effect)
{
    const struct request *request = relay_ask_request(effect->ask);
    request->handlers.done(request->arg, effect->reason, &effect->usage,
                           effect->reason == FINISH_ERROR ? &effect->error : NULL);
    relay_core_forget(seat->node->relay, effect->ask, seat_now_ns(seat->w));
}

static bool seat_on_ask_token(void *arg, const struct token_event *event)
{
    const struct request *request = relay_ask_request(arg);
    const struct seat *seat = relay_ask_owner(arg);
    struct token_event moved;
    relay_ask_take_token(arg, event, seat_now_ns(seat->w), &moved);
    return request->handlers.token(request->arg, &moved);
}

static void seat_on_ask_done(void *arg, enum finish_reason reason,
                             const struct request_usage *usage, const struct error *err)
{
    const struct seat *seat = relay_ask_owner(arg);
    struct relay_effect effect;
    if (relay_core_driver_done(seat->node->relay, arg, reason, usage, err, seat_now_ns(seat->w),
                               &effect))
        seat_tell_done(seat, &effect);
}

static bool seat_on_served_token(void *arg, const struct token_event *event)
{
    return relay_served_token(arg, event);
}

static void seat_on_served_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    relay_served_row(arg, position, values, n_values);
}

static void seat_on_served_done(void *arg, enum finish_reason reason,
                                const struct request_usage *usage, const struct error *err)
{
    const struct seat *seat = relay_served_owner(arg);
    relay_served_done(arg, reason, usage, err, seat_now_ns(seat->w));
}

static const struct request_handlers ask_handlers = {seat_on_ask_token, NULL, seat_on_ask_done};
static const struct request_handlers served_handlers = {seat_on_served_token, seat_on_served_row,
                                                        seat_on_served_done};

/* ---- what the relay wants ---- */

/* Only the node that was asked may wish that its request be handed on. */
static void seat_check_run(struct world *w, const struct node *node, const struct buffer *run)
{
    struct bytes_reader left = {(const uint8_t *)run->data, run->size, false};
    if (node->hostile)
        return;
    const void *bytes;
    size_t size;
    while (!request_next(&left, &bytes, &size, NULL) && bytes) {
        struct request_message message;
        if (*(const uint8_t *)bytes != REQUEST_SUBMIT)
            continue;
        if (request_read(bytes, size, &message, NULL)) {
            world_violated(w, "%s says what cannot be a request", node->name);
            return;
        }
        const struct request *request = &message.submit.request;
        const struct client *client = client_find(w, request->sampler.seed);
        if (client && client->node == node)
            w->result->replays += request->n_prompt > w->scenario->streams[client->stream].prompt;
        if (client && client->node != node && message.submit.onward)
            world_violated(w, "%s hands on request %llu, which was handed on to it", node->name,
                           (unsigned long long)client->request);
        request_message_deinit(&message);
    }
}

static void seat_send_run(struct world *w, struct node *node, const struct relay_effect *effect)
{
    const uint32_t to = (uint32_t)((uintptr_t)effect->link % SCENARIO_NODES);
    seat_check_run(w, node, effect->run);
    const bool sent = effect->link == seat_link_handle(net_link(w, node->index, to), to) &&
                      frame_send(w, node, to, FRAME_REQUEST, effect->run->data, effect->run->size);
    relay_core_sent(node->relay, effect->peer, sent ? ERROR_NONE : ERROR_CANCELLED);
}

static void seat_submit_to_driver(struct world *w, struct node *node, struct relay_effect *effect)
{
    struct error err = {0};
    uint64_t id = 0;
    effect->request.handlers = effect->ask ? ask_handlers : served_handlers;
    effect->request.arg = effect->ask ? (void *)effect->ask : (void *)effect->served;
    const struct client *client = effect->ask ? client_find(w, effect->request.sampler.seed) : NULL;
    if (client && client->node == node)
        w->result->replays += client->got > 0;
    const enum error_code code =
        serve_submit(w, node, (uintptr_t)effect->driver, &effect->request, &id, &err);
    relay_core_submitted(node->relay, effect, code, id, &err, seat_now_ns(w));
}

/* Of a hostile node it may. */
static bool seat_give_up(struct world *w, struct node *node, const struct relay_effect *effect)
{
    const uint32_t to = (uint32_t)((uintptr_t)effect->link % SCENARIO_NODES);
    if (!w->nodes[to].hostile)
        return false;
    if (effect->link == seat_link_handle(net_link(w, node->index, to), to))
        net_give_up(w, node->index, to);
    w->result->refused++;
    return true;
}

static void seat_carry_out(struct world *w, struct node *node, struct relay_effect *effect)
{
    const struct request *request;
    switch (effect->type) {
    case RELAY_SUBMIT:
        seat_submit_to_driver(w, node, effect);
        break;
    case RELAY_CANCEL:
        serve_cancel(w, node, effect->id);
        break;
    case RELAY_TOKEN:
        request = relay_ask_request(effect->ask);
        relay_core_token_taken(node->relay, request->handlers.token(request->arg, &effect->token),
                               seat_now_ns(w));
        break;
    case RELAY_DONE:
        seat_tell_done(&node->seat, effect);
        break;
    case RELAY_SEND:
        seat_send_run(w, node, effect);
        break;
    case RELAY_ABORT:
        if (seat_give_up(w, node, effect))
            break;
        world_violated(w, "%s ends a link: %s", node->name, effect->error.text);
        break;
    case RELAY_ROW:
    case RELAY_WANTED:
        assert(false); /* nobody asks for rows, and the leader is told by NOW */
        break;
    }
}

static void seat_wake_at(struct world *w, struct node *node, uint64_t wait_ms)
{
    const uint64_t at_ms = w->now_ms + wait_ms;
    if (!wait_ms || wait_ms == UINT64_MAX ||
        (node->relay_ms > w->now_ms && node->relay_ms <= at_ms))
        return;
    node->relay_ms = at_ms;
    world_push(w, (struct event){
                      .at_ms = at_ms, .type = EVENT_RELAY, .node = node->index, .a = node->boots});
}

/* All that it wants now. What it carries out may lead back here. */
void seat_carry(struct world *w, struct node *node)
{
    struct relay_effect effect;
    if (!node->relay || node->seat.carries)
        return;
    node->seat.carries = true;
    while (!w->over && relay_core_next(node->relay, seat_now_ns(w), &effect))
        seat_carry_out(w, node, &effect);
    while (!w->over && relay_core_is_due(node->relay)) {
        relay_core_turn(node->relay);
        while (!w->over && relay_core_next(node->relay, seat_now_ns(w), &effect))
            seat_carry_out(w, node, &effect);
    }
    node->seat.carries = false;
    if (!w->over)
        seat_wake_at(w, node, relay_core_wait_ms(node->relay, seat_now_ns(w)));
}

/* ---- what happens ---- */

bool seat_start(struct world *w, struct node *node)
{
    static const enum relay_bug bugs[SCENARIO_BUGS] = {
        [SCENARIO_BUG_FORGETS_TEXT] = RELAY_BUG_FORGETS_TEXT,
        [SCENARIO_BUG_HANDS_ON_TWICE] = RELAY_BUG_HANDS_ON_TWICE};
    assert(!node->relay);
    node->seat = (struct seat){.w = w, .node = node};
    node->relay_ms = 0;
    const struct relay_core_options options = {.find = seat_find,
                                               .reaches = seat_reaches,
                                               .through = seat_through,
                                               .link_to = seat_link_to,
                                               .served = served_handlers,
                                               .patience_ms = w->scenario->patience_ms,
                                               .bug = bugs[w->scenario->bug],
                                               .self = &node->seat};
    return !relay_core_open(&options, &node->relay, NULL);
}

void seat_stop(struct node *node)
{
    relay_core_close(node->relay);
    node->relay = NULL;
}

bool seat_submit(struct world *w, struct node *node, uint32_t instance,
                 const struct request *request)
{
    const char id[] = {'i', (char)('0' + instance), 0};
    struct relay_instance *of = relay_core_instance(node->relay, id, NULL);
    struct relay_ask *ask = NULL;
    struct error err = {0};
    assert(node->up && node->relay && request->n_predict);
    if (!of || relay_ask_new(of, request, request->n_prompt + request->n_predict, seat_now_ns(w),
                             &ask, &err)) {
        w->out_of_memory |= !of || err.code == ERROR_NO_MEMORY;
        return false;
    }
    if (relay_core_submit(node->relay, ask, NULL, &err)) {
        relay_ask_free(ask);
        return false;
    }
    return true;
}

void seat_receive(struct world *w, struct node *node, const struct message *m)
{
    uint8_t node_id[NODE_ID_BYTES];
    assert(node->relay && !node->seat.carries && m->link && m->from != node->index);
    seat_put_id(m->from, node_id);
    w->out_of_memory |= !relay_core_receive(node->relay, seat_link_handle(m->link, m->from),
                                            node_id, m->bytes, m->size);
    seat_carry(w, node);
}

void seat_link_down(struct world *w, struct node *node, uint32_t other, uint64_t link)
{
    assert(node->relay && link && other != node->index);
    relay_core_down(node->relay, seat_link_handle(link, other), seat_now_ns(w));
    seat_carry(w, node);
}

void seat_turn(struct world *w, struct node *node)
{
    relay_core_look(node->relay);
    seat_carry(w, node);
}

void seat_say(const struct world *w, const struct node *node, struct said *out)
{
    struct relay_uses uses;
    relay_core_use(node->relay, seat_now_ns(w), &uses);
    for (uint32_t i = 0; i < uses.n; i++) {
        const struct relay_use *use = &uses.list[i];
        const uint32_t instance = instance_index(use->instance);
        out->wanted |= (uint32_t)use->waits << instance;
        out->live[instance] = use->live;
        out->used_ms[instance] = use->used_ms;
        out->tokens[instance] = use->tokens;
    }
}
