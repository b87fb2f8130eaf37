#include "relay/relay_core.h"

#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code relay_core_open(const struct relay_core_options *options, struct relay_core **out,
                                struct error *err)
{
    assert(options->find && options->reaches && options->through && options->link_to);
    assert(options->served.token && options->served.row && options->served.done);
    struct relay_core *core = mem_new(sizeof *core);
    if (!core)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the relay");
    core->options = *options;
    if (!core->options.patience_ms)
        core->options.patience_ms = LIMIT_RELAY_PATIENCE_MS;
    if (!core->options.queue_bytes)
        core->options.queue_bytes = LIMIT_RELAY_QUEUE_BYTES;
    *out = core;
    return ERROR_NONE;
}

void relay_core_close(struct relay_core *core)
{
    if (!core)
        return;
    request_message_deinit(&core->reading.message);
    while (core->asks) {
        struct relay_ask *next = core->asks->next;
        relay_ask_free(core->asks);
        core->asks = next;
    }
    relay_peers_free(core);
    while (core->instances) {
        struct relay_instance *next = core->instances->next;
        mem_free(core->instances);
        core->instances = next;
    }
    buffer_deinit(&core->values);
    mem_free(core);
}

void relay_core_stop(struct relay_core *core)
{
    core->stopped = true;
    for (struct relay_peer *peer = core->peers; peer; peer = peer->next)
        relay_serve_cancel_all(peer);
    relay_core_look(core);
}

bool relay_core_is_empty(const struct relay_core *core)
{
    assert(!core->asks == !core->n_asks);
    return !core->n_asks && !core->n_served;
}

/* ---- requests of this node ------------------------------------------------------------------- */

static void relay_link_ask(struct relay_core *core, struct relay_ask *ask)
{
    ask->previous = core->last_ask;
    if (ask->previous)
        ask->previous->next = ask;
    else
        core->asks = ask;
    core->last_ask = ask;
    core->n_asks++;
}

/* The turn's cursor steps over it: driver's threads forget asks between two effects. */
static void relay_unlink_ask(struct relay_core *core, struct relay_ask *ask)
{
    assert(core->n_asks);
    if (core->cursor == ask)
        core->cursor = ask->next;
    if (ask->next)
        ask->next->previous = ask->previous;
    else
        core->last_ask = ask->previous;
    if (ask->previous)
        ask->previous->next = ask->next;
    else
        core->asks = ask->next;
    core->n_asks--;
}

enum error_code relay_core_submit(struct relay_core *core, struct relay_ask *ask, uint64_t *id,
                                  struct error *err)
{
    assert(ask->state == ASK_NEW && ask->instance->core == core);
    if (core->stopped)
        return error_set(err, ERROR_CANCELLED, "the node is shutting down");
    if (core->n_asks >= LIMIT_RELAY_REQUESTS)
        return error_set(err, ERROR_BUSY, "%d requests are already waiting, which is the limit",
                         LIMIT_RELAY_REQUESTS);
    ask->id = ++core->last_id;
    ask->state = ASK_WAITING;
    relay_link_ask(core, ask);
    ask->instance->n_live++;
    ask->instance->stats.requests_total++;
    if (id)
        *id = ask->id;
    relay_core_look(core);
    return ERROR_NONE;
}

void relay_core_cancel(struct relay_core *core, uint64_t id)
{
    struct relay_ask *ask = core->asks;
    while (ask && ask->id != id)
        ask = ask->next;
    if (ask && !ask->cancelled) {
        ask->cancelled = true;
        relay_core_look(core);
    }
}

/* What ends here is told by the next effects; its usage is what the asker shall hear. */
void relay_end(struct relay_ask *ask, enum finish_reason reason, const struct error *why,
               uint64_t now_ns)
{
    struct relay_core *core = ask->instance->core;
    struct request_usage usage;
    assert(ask->state != ASK_NEW && ask->state != ASK_IN_DRIVER && ask->state != ASK_ENDING &&
           ask->state != ASK_FINISHING);
    relay_ask_fill_usage(ask, now_ns, &usage);
    ask->usage = usage;
    ask->reason = reason;
    if (reason == FINISH_ERROR && why != &ask->error)
        ask->error = *why;
    ask->state = ASK_ENDING;
    ask->peer = NULL;
    ask->next_ending = NULL;
    if (core->last_ending)
        core->last_ending->next_ending = ask;
    else
        core->ending = ask;
    core->last_ending = ask;
    if (core->reading.ask == ask)
        core->reading.ask = NULL;
}

static void relay_fill_done(const struct relay_ask *ask, struct relay_effect *out)
{
    *out = (struct relay_effect){.type = RELAY_DONE,
                                 .ask = (struct relay_ask *)ask,
                                 .reason = ask->reason,
                                 .usage = ask->usage,
                                 .error = ask->error};
}

static bool relay_next_ending(struct relay_core *core, struct relay_effect *out)
{
    struct relay_ask *ask = core->ending;
    assert(!core->ending == !core->last_ending);
    if (!ask)
        return false;
    assert(ask->state == ASK_ENDING);
    core->ending = ask->next_ending;
    if (!core->ending)
        core->last_ending = NULL;
    ask->state = ASK_FINISHING;
    relay_fill_done(ask, out);
    return true;
}

bool relay_core_driver_done(struct relay_core *core, struct relay_ask *ask,
                            enum finish_reason reason, const struct request_usage *usage,
                            const struct error *why, uint64_t now_ns, struct relay_effect *effect)
{
    assert(ask->state == ASK_IN_DRIVER && ask->instance->core == core && ask->place.driver);
    ask->usage = *usage;
    ask->reason = reason;
    ask->error = why ? *why : (struct error){0};
    if (reason == FINISH_STOP || reason == FINISH_LENGTH ||
        (reason == FINISH_CANCELLED && ask->cancelled)) {
        struct request_usage told;
        relay_ask_fill_usage(ask, now_ns, &told);
        ask->usage = told;
        ask->state = ASK_FINISHING;
        relay_fill_done(ask, effect);
        return true;
    }
    ask->state = ASK_RETURNED;
    relay_core_look(core);
    return false;
}

void relay_core_forget(struct relay_core *core, struct relay_ask *ask, uint64_t now_ns)
{
    struct relay_instance *instance = ask->instance;
    assert(ask->state == ASK_FINISHING && instance->n_live);
    relay_unlink_ask(core, ask);
    instance->n_live--;
    instance->used_ns = now_ns;
    relay_instance_count(instance, ask->usage.generated_tokens, now_ns);
    instance->stats.prompt_tokens_total += ask->usage.prompt_tokens;
    instance->stats.cached_tokens_total += ask->usage.cached_tokens;
    instance->stats.generated_tokens_total += ask->usage.generated_tokens;
    if (core->stopped)
        relay_core_look(core); /* it may be empty now */
    relay_ask_free(ask);
}

void relay_core_submitted(struct relay_core *core, const struct relay_effect *effect,
                          enum error_code code, uint64_t id, const struct error *why,
                          uint64_t now_ns)
{
    struct relay_ask *ask = effect->ask;
    assert(effect->type == RELAY_SUBMIT && !ask != !effect->served);
    if (!ask) {
        relay_serve_submitted(effect->served, code, id, why, now_ns);
        return;
    }
    relay_ask_submitted(ask, code, id, why, now_ns);
}

/* ---- links ----------------------------------------------------------------------------------- */

static void relay_break(struct relay_peer *peer, const struct error *why, struct relay_effect *out)
{
    *out = (struct relay_effect){.type = RELAY_ABORT, .link = peer->link, .error = *why};
}

/* A frame that breaks the rules costs its sender the link. */
static bool relay_refuse_frame(struct relay_core *core, const struct error *why,
                               struct relay_effect *out)
{
    struct relay_peer *peer = core->reading.peer;
    request_message_deinit(&core->reading.message);
    core->reading = (struct relay_reading){0};
    if (!peer || !peer->link)
        return false;
    relay_break(peer, why, out);
    return true;
}

bool relay_core_receive(struct relay_core *core, void *link, const uint8_t node_id[NODE_ID_BYTES],
                        const void *bytes, size_t size)
{
    struct relay_reading *reading = &core->reading;
    assert(!reading->peer && link); /* the frame before was read to its end */
    reading->peer = relay_peer_make(core, link, node_id);
    if (reading->peer)
        reading->run = (struct bytes_reader){bytes, size, false};
    return reading->peer;
}

static enum error_code relay_take_message(struct relay_core *core, const void *bytes, size_t size,
                                          uint64_t now_ns, struct relay_effect *out,
                                          bool *has_effect, struct error *err)
{
    struct relay_reading *reading = &core->reading;
    struct request_message *message = &reading->message;
    enum error_code code = request_read(bytes, size, message, err);
    if (code) {
        *message = (struct request_message){0};
        return code;
    }
    if (message->kind == REQUEST_SUBMIT) {
        code = relay_serve(reading->peer, message, now_ns, err);
    } else if (message->kind == REQUEST_CANCEL) {
        relay_serve_cancel(reading->peer, message->id);
    } else {
        *err = (struct error){0};
        *has_effect = relay_answer(reading->peer, message, now_ns, out, err);
        code = err->code;
    }
    request_message_deinit(message); /* TOKENS: it points into the frame */
    return code;
}

/* One message after the other, and of its tokens one after the other. */
static bool relay_next_message(struct relay_core *core, uint64_t now_ns, struct relay_effect *out)
{
    struct relay_reading *reading = &core->reading;
    struct error err = {0};
    enum error_code code = ERROR_NONE;
    bool has_effect = false;
    while (reading->peer && !code && !has_effect && !core->ending) {
        if (reading->ask) {
            has_effect = relay_answer_next_token(core, out, &err);
            code = err.code;
            continue;
        }
        const void *message;
        size_t size;
        if (!reading->run.left || !reading->peer->link) {
            reading->peer = NULL;
            break;
        }
        code = request_next(&reading->run, &message, &size, &err);
        if (!code && !message)
            code = error_set(&err, ERROR_INVALID,
                             "a frame of requests ends in the middle of a message");
        if (!code)
            code = relay_take_message(core, message, size, now_ns, out, &has_effect, &err);
    }
    if (code)
        return relay_refuse_frame(core, &err, out);
    return has_effect || relay_next_ending(core, out);
}

void relay_core_token_taken(struct relay_core *core, bool goes_on, uint64_t now_ns)
{
    struct relay_ask *ask = core->reading.ask;
    if (goes_on || !ask)
        return;
    assert(ask->state == ASK_THERE);
    relay_peer_send_cancel(ask->peer, ask->part_id);
    relay_end(ask, FINISH_STOP, NULL, now_ns);
}

/* Those that were there wait for another driver. */
void relay_core_down(struct relay_core *core, void *link, uint64_t now_ns)
{
    struct relay_peer *peer = relay_peer_find(core, link);
    if (!peer)
        return;
    relay_serve_cancel_all(peer);
    peer->link = NULL;
    buffer_clear(&peer->run);
    for (struct relay_ask *ask = core->asks; ask; ask = ask->next) {
        if (ask->state != ASK_THERE || ask->peer != peer)
            continue;
        error_set(&ask->error, ERROR_IO, "the link to its node went down");
        relay_ask_lost(ask, now_ns);
    }
    core->writes = true; /* the peer may go */
    relay_core_look(core);
}

/* ---- the turn -------------------------------------------------------------------------------- */

void relay_core_look(struct relay_core *core)
{
    core->look = true;
}

bool relay_core_is_due(const struct relay_core *core)
{
    return core->look || core->writes || core->tends || core->ending;
}

void relay_core_turn(struct relay_core *core)
{
    for (struct relay_peer *peer = core->peers; peer; peer = peer->next) {
        core->writes |= peer->is_stuck;
        peer->is_stuck = false;
    }
    if (!core->look)
        return;
    core->look = false;
    core->looked = true;
    core->cursor = core->asks;
}

static bool relay_cancel_in_driver(struct relay_ask *ask, struct relay_effect *out)
{
    if (ask->cancel_sent || !(ask->cancelled || ask->instance->core->stopped))
        return false;
    ask->cancelled = ask->cancel_sent = true;
    *out = (struct relay_effect){
        .type = RELAY_CANCEL, .driver = ask->place.driver, .id = ask->part_id};
    return true;
}

static bool relay_next_looked_at(struct relay_core *core, uint64_t now_ns, struct relay_effect *out)
{
    bool has_effect = false;
    while (core->cursor && !has_effect) {
        struct relay_ask *ask = core->cursor;
        core->cursor = ask->next;
        if (ask->state == ASK_IN_DRIVER)
            has_effect = relay_cancel_in_driver(ask, out);
        else if (ask->state != ASK_FINISHING && ask->state != ASK_ENDING)
            has_effect = relay_ask_step(ask, now_ns, out);
    }
    return has_effect;
}

static bool relay_next_wanted(struct relay_core *core, struct relay_effect *out)
{
    if (!core->has_wanted)
        return false;
    for (struct relay_instance *instance = core->instances; instance; instance = instance->next) {
        if (!instance->is_wanted)
            continue;
        instance->is_wanted = false;
        *out = (struct relay_effect){.type = RELAY_WANTED, .instance = instance->id};
        return true;
    }
    core->has_wanted = false;
    return false;
}

bool relay_core_next(struct relay_core *core, uint64_t now_ns, struct relay_effect *out)
{
    return relay_next_ending(core, out) || relay_next_message(core, now_ns, out) ||
           relay_next_looked_at(core, now_ns, out) || relay_next_ending(core, out) ||
           relay_serve_next(core, now_ns, out) || relay_next_wanted(core, out) ||
           relay_peer_next(core, out);
}

uint64_t relay_core_wait_ms(struct relay_core *core, uint64_t now_ns)
{
    uint64_t least = relay_peer_is_stuck(core) ? RELAY_STUCK_MS : 0;
    assert(!core->cursor && !core->reading.peer);
    if (!core->looked)
        return least ? least : UINT64_MAX;
    core->looked = false;
    for (struct relay_ask *ask = core->asks; ask && least != RELAY_QUICK_MS; ask = ask->next) {
        const uint64_t ms = relay_ask_wait_ms(ask, now_ns);
        least = ms && (!least || ms < least) ? ms : least;
    }
    return least;
}
