/* Requests of other nodes, in a driver here, or handed on to the node that has it. */
#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>
#include <string.h>

static struct relay_served *relay_find_served(const struct relay_peer *peer, uint64_t id)
{
    struct relay_served *served = peer->served;
    while (served && served->id != id)
        served = served->next;
    return served;
}

static void relay_link_served(struct relay_served *served)
{
    struct relay_peer *peer = served->peer;
    assert(peer->link && !relay_find_served(peer, served->id));
    served->next = peer->served;
    if (served->next)
        served->next->previous = served;
    peer->served = served;
    peer->n_served++;
    peer->core->n_served++;
    served->instance->n_live++;
}

void relay_serve_free(struct relay_served *served)
{
    struct relay_peer *peer = served->peer;
    assert(peer->n_served && peer->core->n_served && served->instance->n_live);
    if (served->next)
        served->next->previous = served->previous;
    if (served->previous)
        served->previous->next = served->next;
    else
        peer->served = served->next;
    peer->n_served--;
    peer->core->n_served--;
    served->instance->n_live--;
    peer->core->writes = true; /* the peer can go, or the relay is empty */
    mem_free(served->memory);
    mem_free(served);
}

void *relay_served_owner(const struct relay_served *served)
{
    return served->peer->core->options.self;
}

static void relay_serve_stop(struct relay_served *served)
{
    served->stops = true;
    served->peer->core->tends = true;
}

/* ---- its answers ------------------------------------------------------------------------ */

static bool relay_served_can_write(struct relay_served *served, enum message_weight weight)
{
    if (served->cancelled || served->is_full || !served->peer->link)
        return false;
    served->is_full = !relay_peer_has_room(served->peer, weight);
    return !served->is_full;
}

bool relay_served_token(struct relay_served *served, const struct token_event *event)
{
    struct relay_peer *peer = served->peer;
    const size_t before = peer->run.size;
    assert(served->is_in && !served->returned);
    if (!relay_served_can_write(served, MESSAGE_TOKEN))
        return false; /* it stops, and its end says why */
    request_write_token(served->id, event, &peer->last_tokens, &peer->run);
    served->is_full = !relay_peer_wrote(peer, before, MESSAGE_TOKEN);
    return !served->is_full;
}

bool relay_served_row(struct relay_served *served, uint32_t position, const float *values,
                      uint32_t n_values)
{
    struct relay_peer *peer = served->peer;
    const size_t before = peer->run.size;
    assert(served->is_in && !served->returned);
    bool can_write = relay_served_can_write(served, MESSAGE_ROW);
    if (can_write) {
        request_write_row(served->id, position, values, n_values, &peer->run);
        can_write = relay_peer_wrote(peer, before, MESSAGE_ROW);
        served->is_full = !can_write;
    }
    if (!can_write)
        relay_serve_stop(served);
    return can_write;
}

/* Tells the asker that it is over, and forgets it. */
static void relay_serve_end(struct relay_served *served, enum finish_reason reason,
                            const struct error *why, bool lost, uint64_t now_ns)
{
    struct relay_peer *peer = served->peer;
    const size_t before = peer->run.size;
    assert(!served->is_in);
    if (peer->link && relay_peer_has_room(peer, MESSAGE_CONTROL)) {
        request_write_done(served->id, reason, &served->usage, why, lost, &peer->run);
        relay_peer_wrote(peer, before, MESSAGE_CONTROL);
    }
    served->instance->used_ns = now_ns;
    relay_serve_free(served);
}

void relay_served_done(struct relay_served *served, enum finish_reason reason,
                       const struct request_usage *usage, const struct error *why, uint64_t now_ns)
{
    const struct relay_core *core = served->peer->core;
    struct error full = {0};
    assert(served->is_in && !served->returned);
    served->is_in = false;
    served->usage = *usage;
    served->reason = reason;
    served->error = why ? *why : (struct error){0};
    if (reason == FINISH_ERROR && !served->error.code)
        error_set(&served->error, ERROR_INTERNAL, "the error has no reason");
    if (served->is_full) {
        error_set(&full, ERROR_BUSY,
                  "the link is too slow for the answer: more than %llu bytes wait",
                  (unsigned long long)core->options.queue_bytes);
        relay_serve_end(served, FINISH_ERROR, &full, false, now_ns);
    } else if (served->cancelled) {
        relay_serve_end(served, FINISH_CANCELLED, NULL, false, now_ns);
    } else if (reason == FINISH_STOP || reason == FINISH_LENGTH) {
        relay_serve_end(served, reason, NULL, false, now_ns);
    } else {
        served->returned = true;
        served->peer->core->tends = true;
    }
}

/* ---- its beginning ---------------------------------------------------------------------- */

/* Here, or, for one that may be handed on, at a node that is reached. */
static enum error_code relay_serve_find(struct relay_core *core, const char *id, bool onward,
                                        struct relay_place *place, struct error *err)
{
    const struct relay_core_options *options = &core->options;
    struct error why = {0};
    *place = (struct relay_place){0};
    const enum error_code code = options->find(options->self, id, place, &why);
    if (code)
        return error_set(err, ERROR_NOT_FOUND, "its driver is not here: %s", why.text);
    if (place->driver || (onward && (options->reaches(options->self, place->node_id) ||
                                     options->bug == RELAY_BUG_HANDS_ON_TWICE)))
        return ERROR_NONE;
    return error_set(err, ERROR_NOT_FOUND, "its driver is not here, but on another node");
}

static void relay_serve_accept(struct relay_served *served)
{
    struct relay_peer *peer = served->peer;
    const size_t before = peer->run.size;
    if (!peer->link || !relay_peer_has_room(peer, MESSAGE_CONTROL))
        return;
    request_write_accepted(served->id, &peer->run);
    relay_peer_wrote(peer, before, MESSAGE_CONTROL);
}

static void relay_serve_refuse(struct relay_peer *peer, uint64_t id, const struct error *why)
{
    const size_t before = peer->run.size;
    if (!peer->link || !relay_peer_has_room(peer, MESSAGE_CONTROL))
        return;
    request_write_refused(id, why, &peer->run);
    relay_peer_wrote(peer, before, MESSAGE_CONTROL);
}

/* Among this node's own, which go to other nodes. Its own node has bounded it by the context; here
 * nobody may have asked for the instance yet. */
static enum error_code relay_serve_hand_on(struct relay_served *served, uint64_t now_ns,
                                           struct error *err)
{
    struct request request = served->request;
    const uint64_t wanted = (uint64_t)request.n_prompt + request.n_predict;
    const uint32_t context = wanted < LIMIT_CONTEXT ? (uint32_t)wanted : LIMIT_CONTEXT;
    struct relay_core *core = served->peer->core;
    struct relay_ask *ask = NULL;
    request.handlers = core->options.served;
    request.arg = served;
    enum error_code code = relay_ask_new(served->instance, &request, context, now_ns, &ask, err);
    if (code)
        return code;
    ask->is_guest = true;
    code = relay_core_submit(core, ask, &served->driver_id, err);
    if (code)
        relay_ask_free(ask);
    return code;
}

void relay_serve_submitted(struct relay_served *served, enum error_code code, uint64_t id,
                           const struct error *why, uint64_t now_ns)
{
    assert(!served->is_new && !served->is_in);
    mem_free(served->memory); /* the driver has a copy */
    served->memory = NULL;
    served->request = (struct request){0};
    served->driver_id = id;
    served->is_in = !code;
    if (!code) {
        relay_serve_accept(served);
        return;
    }
    relay_serve_refuse(served->peer, served->id, why);
    served->instance->used_ns = now_ns;
    relay_serve_free(served);
}

static enum error_code relay_serve_new(struct relay_peer *peer, struct request_message *message,
                                       uint64_t now_ns, struct error *err)
{
    struct relay_core *core = peer->core;
    struct relay_served *served = NULL;
    struct relay_place place;
    enum error_code code =
        relay_serve_find(core, message->submit.instance, message->submit.onward, &place, err);
    struct relay_instance *instance =
        code ? NULL : relay_core_instance(core, message->submit.instance, err);
    if (!code && !instance)
        code = ERROR_BUSY;
    if (!code && !(served = mem_new(sizeof *served)))
        code = error_set(err, ERROR_NO_MEMORY, "not enough memory for a request");
    if (code)
        return code;
    served->peer = peer;
    served->id = message->id;
    served->instance = instance;
    served->place = place;
    served->request = message->submit.request;
    served->memory = message->memory;
    message->memory = NULL;
    relay_link_served(served);
    if (place.driver) {
        served->is_new = core->tends = true;
        return ERROR_NONE;
    }
    code = relay_serve_hand_on(served, now_ns, err);
    struct error why = code ? *err : (struct error){0};
    relay_serve_submitted(served, code, served->driver_id, &why, now_ns);
    return ERROR_NONE;
}

enum error_code relay_serve(struct relay_peer *peer, struct request_message *message,
                            uint64_t now_ns, struct error *err)
{
    struct error why = {0};
    enum error_code code = ERROR_NONE;
    if (relay_find_served(peer, message->id))
        return error_set(err, ERROR_INVALID, "request %llu came twice",
                         (unsigned long long)message->id);
    if (peer->core->stopped)
        code = error_set(&why, ERROR_NOT_FOUND, "this node is leaving");
    else if (peer->n_served >= LIMIT_RELAY_OF_PEER)
        code = error_set(&why, ERROR_BUSY,
                         "%u requests of one node are already running, which is the limit",
                         peer->n_served);
    else
        code = relay_serve_new(peer, message, now_ns, &why);
    if (code)
        relay_serve_refuse(peer, message->id, &why);
    return ERROR_NONE;
}

static void relay_serve_cancel_one(struct relay_served *served)
{
    served->cancelled = true;
    if (!served->returned)
        relay_serve_stop(served);
}

void relay_serve_cancel(struct relay_peer *peer, uint64_t id)
{
    struct relay_served *served = relay_find_served(peer, id);
    if (served)
        relay_serve_cancel_one(served);
}

void relay_serve_cancel_all(struct relay_peer *peer)
{
    for (struct relay_served *served = peer->served; served; served = served->next)
        relay_serve_cancel_one(served);
}

/* ---- the turn --------------------------------------------------------------------------- */

/* True: *out is an effect. What is in its driver still is there to be cancelled. */
static bool relay_serve_tend(struct relay_served *served, uint64_t now_ns, struct relay_effect *out)
{
    struct relay_core *core = served->peer->core;
    assert(!(served->is_new && served->is_in) && !(served->returned && served->is_in));
    if (served->is_new) {
        served->is_new = false;
        *out = (struct relay_effect){.type = RELAY_SUBMIT,
                                     .served = served,
                                     .driver = served->place.driver,
                                     .request = served->request};
        return true;
    }
    if (served->returned) {
        const bool lost = relay_is_lost(core, served->instance->id, &served->place, served->reason,
                                        &served->error);
        relay_serve_end(served, served->reason, &served->error, lost, now_ns);
        return false;
    }
    if (!served->stops || served->stop_sent || !served->is_in)
        return false;
    served->stop_sent = true;
    if (!served->place.driver) {
        relay_core_cancel(core, served->driver_id);
        return false;
    }
    *out = (struct relay_effect){
        .type = RELAY_CANCEL, .driver = served->place.driver, .id = served->driver_id};
    return true;
}

bool relay_serve_next(struct relay_core *core, uint64_t now_ns, struct relay_effect *out)
{
    if (!core->tends)
        return false;
    for (struct relay_peer *peer = core->peers; peer; peer = peer->next) {
        for (struct relay_served *served = peer->served, *next; served; served = next) {
            next = served->next;
            if (relay_serve_tend(served, now_ns, out))
                return true;
        }
    }
    core->tends = false;
    return false;
}
