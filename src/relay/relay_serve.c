/* Requests of other nodes, in a driver here, or handed on to the node that has it. Their answers
 * are written on the driver's threads, or on the loop's, and sent by the loop. */
#include "base/clock.h"
#include "base/mem.h"
#include "relay/relay_state.h"

#include <string.h>

static void unlink_locked(struct served *served)
{
    struct peer *peer = served->peer;
    if (served->next)
        served->next->previous = served->previous;
    if (served->previous)
        served->previous->next = served->next;
    else
        peer->served = served->next;
    peer->n_served--;
    peer->relay->n_served--;
    served->instance->n_live--;
    served->instance->used_ns = clock_now_ns();
    if (!peer->link || peer->relay->closing)
        relay_look_locked(peer->relay); /* the peer can be freed, or the relay closed */
}

static void link_locked(struct served *served)
{
    struct peer *peer = served->peer;
    served->next = peer->served;
    if (served->next)
        served->next->previous = served;
    peer->served = served;
    peer->n_served++;
    peer->relay->n_served++;
    served->instance->n_live++;
}

static struct served *find_locked(struct peer *peer, uint64_t id)
{
    struct served *served = peer->served;
    while (served && served->id != id)
        served = served->next;
    return served;
}

static void stop_locked(struct served *served)
{
    if (served->place.driver)
        driver_cancel(served->place.driver, served->driver_id);
    else
        relay_cancel_locked(served->peer->relay, served->driver_id);
}

/* ---- on the driver's threads -------------------------------------------------------------- */

static bool can_write_locked(struct served *served, enum message_weight weight)
{
    if (served->cancelled || served->is_full || !served->peer->link)
        return false;
    served->is_full = !peer_has_room(served->peer, weight);
    return !served->is_full;
}

static bool on_token(void *arg, const struct token_event *event)
{
    struct served *served = arg;
    struct peer *peer = served->peer;
    pthread_mutex_lock(&peer->relay->lock);
    size_t before = peer->run.size;
    bool can_write = can_write_locked(served, MESSAGE_TOKEN);
    if (can_write) {
        request_write_token(served->id, event, &peer->last_tokens, &peer->run);
        can_write = peer_wrote(peer, before, MESSAGE_TOKEN);
        served->is_full = !can_write;
    }
    uv_async_send(&peer->relay->wake);
    pthread_mutex_unlock(&peer->relay->lock);
    return can_write; /* else it stops, and on_done says why */
}

static void on_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct served *served = arg;
    struct peer *peer = served->peer;
    pthread_mutex_lock(&peer->relay->lock);
    size_t before = peer->run.size;
    bool can_write = can_write_locked(served, MESSAGE_ROW);
    if (can_write) {
        request_write_row(served->id, position, values, n_values, &peer->run);
        can_write = peer_wrote(peer, before, MESSAGE_ROW);
        served->is_full = !can_write;
    }
    if (!can_write)
        stop_locked(served);
    uv_async_send(&peer->relay->wake);
    pthread_mutex_unlock(&peer->relay->lock);
}

/* Tells the asker that it is over, and forgets it. */
static void end_locked(struct served *served, enum finish_reason reason, const struct error *why,
                       bool lost)
{
    struct peer *peer = served->peer;
    size_t before = peer->run.size;
    if (peer->link && peer_has_room(peer, MESSAGE_CONTROL)) {
        request_write_done(served->id, reason, &served->usage, why, lost, &peer->run);
        peer_wrote(peer, before, MESSAGE_CONTROL);
    }
    unlink_locked(served);
    uv_async_send(&peer->relay->wake);
    mem_free(served);
}

static void on_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                    const struct error *err)
{
    struct served *served = arg;
    struct relay *relay = served->peer->relay;
    struct error full = {0};
    pthread_mutex_lock(&relay->lock);
    served->usage = *usage;
    served->reason = reason;
    served->error = (struct error){0};
    if (err)
        served->error = *err;
    if (reason == FINISH_ERROR && !served->error.code)
        error_set(&served->error, ERROR_INTERNAL, "an error without a reason");
    if (served->is_full) {
        error_set(&full, ERROR_BUSY,
                  "the link takes the answer too slowly: more than %llu bytes wait for it",
                  (unsigned long long)relay->options.queue_bytes);
        end_locked(served, FINISH_ERROR, &full, false);
    } else if (served->cancelled) {
        end_locked(served, FINISH_CANCELLED, NULL, false);
    } else if (reason == FINISH_STOP || reason == FINISH_LENGTH) {
        end_locked(served, reason, NULL, false);
    } else {
        served->returned = true;
        relay->n_returned++;
        relay_look_locked(relay);
    }
    pthread_mutex_unlock(&relay->lock);
}

/* ---- on the loop's ------------------------------------------------------------------------- */

static struct served *next_returned(struct relay *relay)
{
    struct served *found = NULL;
    pthread_mutex_lock(&relay->lock);
    for (struct peer *peer = relay->n_returned ? relay->peers : NULL; peer && !found;
         peer = peer->next) {
        found = peer->served;
        while (found && !found->returned)
            found = found->next;
    }
    pthread_mutex_unlock(&relay->lock);
    return found;
}

void serve_look(struct relay *relay)
{
    struct served *served;
    while ((served = next_returned(relay)) != NULL) {
        bool lost = relay_is_lost(relay, served->instance->id, &served->place, served->reason,
                                  &served->error);
        pthread_mutex_lock(&relay->lock);
        relay->n_returned--;
        end_locked(served, served->reason, &served->error, lost);
        pthread_mutex_unlock(&relay->lock);
    }
}

/* Here, or, for one that may be handed on, at a node that is reached. */
static enum error_code find_driver(struct relay *relay, const char *id, bool onward,
                                   struct place *place, struct error *err)
{
    const struct relay_options *options = &relay->options;
    struct error why = {0};
    enum error_code code = relay_find(relay, id, place, &why);
    if (code)
        return error_set(err, ERROR_NOT_FOUND, "its driver is not here: %s", why.text);
    if (place->driver ||
        (onward && options->reaches && options->reaches(options->self, place->node_id)))
        return ERROR_NONE;
    return error_set(err, ERROR_NOT_FOUND, "its driver is not here, but on another node");
}

/* Puts it into the driver, or among this node's own, which the loop hands on later. Accepting, or
 * refusing, is written before any answer: the answers wait for the lock. */
static enum error_code submit(struct served *served, const struct request *asked, struct error *err)
{
    struct peer *peer = served->peer;
    struct relay *relay = peer->relay;
    struct request request = *asked;
    enum error_code code = ERROR_NONE;
    request.handlers = (struct request_handlers){on_token, on_row, on_done};
    request.arg = served;
    if (!served->place.driver)
        code = relay_submit_guest(served->instance, &request, &served->driver_id, err);
    pthread_mutex_lock(&relay->lock);
    size_t before = peer->run.size;
    if (served->place.driver)
        code = driver_submit(served->place.driver, &request, &served->driver_id, err);
    if (!code) {
        link_locked(served);
        if (peer_has_room(peer, MESSAGE_CONTROL)) {
            request_write_accepted(served->id, &peer->run);
            peer_wrote(peer, before, MESSAGE_CONTROL);
        }
    }
    pthread_mutex_unlock(&relay->lock);
    return code;
}

static enum error_code serve(struct peer *peer, const struct request_message *message,
                             struct error *err)
{
    struct relay *relay = peer->relay;
    struct served *served = NULL;
    struct place place = {0};
    enum error_code code =
        find_driver(relay, message->submit.instance, message->submit.onward, &place, err);
    struct instance *instance = code ? NULL : relay_instance(relay, message->submit.instance, err);
    if (!code && !instance)
        code = ERROR_BUSY;
    if (!code && !(served = mem_new(sizeof *served)))
        code = error_set(err, ERROR_NO_MEMORY, "no memory for a request");
    if (code)
        return code;
    served->peer = peer;
    served->id = message->id;
    served->instance = instance;
    served->place = place;
    code = submit(served, &message->submit.request, err);
    if (code)
        mem_free(served);
    return code;
}

static void refuse(struct peer *peer, uint64_t id, const struct error *why)
{
    struct relay *relay = peer->relay;
    pthread_mutex_lock(&relay->lock);
    size_t before = peer->run.size;
    if (peer_has_room(peer, MESSAGE_CONTROL)) {
        request_write_refused(id, why, &peer->run);
        peer_wrote(peer, before, MESSAGE_CONTROL);
    }
    pthread_mutex_unlock(&relay->lock);
}

enum error_code serve_submit(struct peer *peer, struct request_message *message, struct error *err)
{
    struct relay *relay = peer->relay;
    struct error why = {0};
    pthread_mutex_lock(&relay->lock);
    bool is_twice = find_locked(peer, message->id), is_closing = relay->closing;
    uint32_t n_served = peer->n_served;
    pthread_mutex_unlock(&relay->lock);
    enum error_code code = ERROR_NONE;
    if (is_twice)
        return error_set(err, ERROR_INVALID, "request %llu a second time",
                         (unsigned long long)message->id);
    if (is_closing)
        code = error_set(&why, ERROR_NOT_FOUND, "this node is leaving");
    else if (n_served >= LIMIT_RELAY_OF_PEER)
        code = error_set(&why, ERROR_BUSY,
                         "%u requests of one node run already, which is the limit", n_served);
    else
        code = serve(peer, message, &why);
    if (code)
        refuse(peer, message->id, &why);
    uv_async_send(&relay->wake);
    return ERROR_NONE;
}

static void cancel_locked(struct served *served)
{
    served->cancelled = true;
    if (!served->returned) /* so its driver waits for its end, and is there */
        stop_locked(served);
}

void serve_cancel(struct peer *peer, uint64_t id)
{
    pthread_mutex_lock(&peer->relay->lock);
    struct served *served = find_locked(peer, id);
    if (served)
        cancel_locked(served);
    pthread_mutex_unlock(&peer->relay->lock);
}

void serve_cancel_all_locked(struct peer *peer)
{
    for (struct served *served = peer->served; served; served = served->next)
        cancel_locked(served);
}
