/* Where a request of this node goes next: into a driver here, to another node's, or nowhere yet.
 * The loop's. */
#include "base/clock.h"
#include "base/log.h"
#include "relay/relay_state.h"
#include "trust/identity.h"

#include <string.h>

static const uint64_t MS = 1000000;

static bool same_place(const struct place *a, const struct place *b)
{
    return a->driver == b->driver && a->epoch == b->epoch &&
           (a->driver || memcmp(a->node_id, b->node_id, NODE_ID_BYTES) == 0);
}

enum error_code relay_find(struct relay *relay, const char *instance, struct place *out,
                           struct error *err)
{
    *out = (struct place){0};
    return relay->options.find(relay->options.self, instance, &out->driver, out->node_id,
                               &out->epoch, err);
}

bool relay_is_lost(struct relay *relay, const char *instance, const struct place *place,
                   enum finish_reason reason, const struct error *why)
{
    struct place now;
    struct error err = {0};
    if (reason == FINISH_CANCELLED || why->code == ERROR_IO || why->code == ERROR_CANCELLED)
        return true;
    enum error_code code = relay_find(relay, instance, &now, &err);
    return code == ERROR_BUSY || (!code && !same_place(&now, place));
}

static void set_state(struct ask *ask, enum ask_state state)
{
    struct relay *relay = ask->instance->relay;
    pthread_mutex_lock(&relay->lock);
    ask->state = state;
    pthread_mutex_unlock(&relay->lock);
}

/* Nothing is missing but the news of its end. */
static bool has_all(const struct ask *ask)
{
    const struct request *request = &ask->request;
    bool wants_rows = request->embeddings || request->want_all_logits;
    if (!ask->n_parts || ask_left(ask) || (!wants_rows && !request->n_predict))
        return false;
    return !wants_rows || ask->n_rows == request->n_prompt + ask->n_generated;
}

/* Ever longer, until it gets on. */
static void put_off(struct ask *ask, uint64_t now_ns)
{
    const bool gets_on =
        ask->n_generated != ask->waiting_generated || ask->n_rows != ask->waiting_rows;
    ask->again_ms = gets_on || !ask->again_ms ? RELAY_QUICK_MS : 2 * ask->again_ms;
    if (ask->again_ms > RELAY_AGAIN_MS)
        ask->again_ms = RELAY_AGAIN_MS;
    ask->again_ns = now_ns + ask->again_ms * MS;
}

/* The node that it came from looks for another way: for that the driver is lost. */
static void end_guest(struct ask *ask, const struct error *why)
{
    struct error err = {0};
    error_set(&err, ERROR_IO, "handed on in vain: %s", why->text);
    ask_finish(ask, FINISH_ERROR, &err);
}

void ask_lost(struct ask *ask)
{
    if (ask->n_parts == 1)
        ask->cached = ask->usage.cached_tokens;
    if (has_all(ask)) {
        ask_finish(ask, FINISH_LENGTH, NULL);
        return;
    }
    uint64_t now_ns = clock_now_ns();
    put_off(ask, now_ns);
    if (ask->n_generated != ask->waiting_generated || ask->n_rows != ask->waiting_rows)
        ask->waiting_ns = now_ns;
    ask->waiting_generated = ask->n_generated;
    ask->waiting_rows = ask->n_rows;
    ask->peer = NULL;
    ask->elsewhere_ns = 0;
    log_line(LOG_INFO, "relay", "request %llu for %s lost its driver after %u tokens: %s",
             (unsigned long long)ask->id, ask->instance->id, ask->n_generated, ask->error.text);
    set_state(ask, ASK_WAITING);
    if (ask->is_guest)
        end_guest(ask, &ask->error);
    else
        relay_changed(ask->instance->relay);
}

/* ---- going on ------------------------------------------------------------------------------- */

/* True: it is in the driver, and perhaps over and gone by now. */
static bool start_here(struct ask *ask)
{
    struct relay *relay = ask->instance->relay;
    struct request part;
    struct error err = {0};
    ask_part(ask, &part);
    pthread_mutex_lock(&relay->lock); /* so that its `done` comes after this */
    ask->state = ASK_HERE;
    ask->cancel_sent = false;
    ask->n_parts++;
    enum error_code code = driver_submit(ask->place.driver, &part, &ask->part_id, &err);
    if (code) {
        ask->state = ASK_WAITING;
        ask->n_parts--;
    }
    pthread_mutex_unlock(&relay->lock);
    if (!code)
        return true;
    bool is_replay = ask->n_parts;
    if (code != ERROR_CANCELLED && !(code == ERROR_BUSY && is_replay)) {
        ask_finish(ask, FINISH_ERROR, &err);
        return true;
    }
    ask->waits_for = ask->error = err;
    return false;
}

static bool start_there(struct ask *ask, const char *node)
{
    struct relay *relay = ask->instance->relay;
    bool onward;
    struct link *link = relay_way(ask, &onward);
    struct peer *peer = link ? peer_make(relay, link) : NULL;
    struct request part;
    if (!peer) {
        error_set(&ask->waits_for, ERROR_BUSY, "%s node %.8s, which has it",
                  link ? "no memory for requests to" : "there is no link to", node);
        return false;
    }
    pthread_mutex_lock(&relay->lock);
    size_t before = peer->run.size;
    bool written = peer_has_room(peer, MESSAGE_ROW);
    if (written) {
        ask_part(ask, &part);
        ask->part_id = ++relay->last_wire_id;
        (onward ? request_write_submit_onward
                : request_write_submit)(ask->part_id, ask->instance->id, &part, &peer->run);
        written = peer_wrote(peer, before, MESSAGE_ROW);
    }
    if (written) {
        ask->peer = peer;
        ask->state = ASK_THERE;
        ask->deaf_ns = 0;
    }
    pthread_mutex_unlock(&relay->lock);
    error_set(&ask->waits_for, ERROR_BUSY, "node %.8s, which has it, %s", node,
              written ? "does not answer" : "is sent too much");
    return written;
}

static bool start(struct ask *ask, const struct place *place, uint64_t now_ns)
{
    char node[NODE_ID_TEXT];
    if (ask->place_failed && now_ns < ask->again_ns && same_place(place, &ask->place)) {
        ask->waits_for = ask->error;
        return false;
    }
    if (!same_place(place, &ask->place))
        ask->again_ms = 0;
    ask->place = *place;
    ask->place_failed = false;
    if (!place->driver)
        id_text(place->node_id, NODE_ID_BYTES, node);
    if (place->driver ? start_here(ask) : start_there(ask, node))
        return true;
    if (place->driver) {
        ask->place_failed = true;
        ask->again_ns = now_ns + RELAY_TICK_MS * MS;
    }
    return false;
}

static void tell_wanted(struct instance *instance, uint64_t now_ns)
{
    const struct relay_options *options = &instance->relay->options;
    if (!options->wanted || (instance->wanted_ns && now_ns - instance->wanted_ns < 1000 * MS))
        return;
    instance->wanted_ns = now_ns;
    options->wanted(options->self, instance->id);
}

/* True: it does not wait any more, and may be gone. */
static bool go_on(struct ask *ask, uint64_t now_ns)
{
    struct place place;
    struct error err = {0};
    enum error_code code = relay_find(ask->instance->relay, ask->instance->id, &place, &err);
    if (!code)
        return start(ask, &place, now_ns);
    ask->waits_for = err;
    if (code == ERROR_BUSY) {
        tell_wanted(ask->instance, now_ns);
        return false;
    }
    ask_finish(ask, FINISH_ERROR, &err);
    return true;
}

static bool is_impatient(const struct ask *ask, uint64_t now_ns)
{
    return now_ns - ask->waiting_ns >= ask->instance->relay->options.patience_ms * MS;
}

static void give_up(struct ask *ask)
{
    struct error err = {0};
    error_set(&err, ERROR_BUSY, "the model did not become ready within %.1f s: %s",
              (double)ask->instance->relay->options.patience_ms / 1000, ask->waits_for.text);
    ask_finish(ask, FINISH_ERROR, &err);
}

/* ---- the step -------------------------------------------------------------------------------- */

uint64_t ask_waits_ms(const struct ask *ask, uint64_t now_ns)
{
    if (ask->state == ASK_WAITING)
        return now_ns - ask->waiting_ns < RELAY_AGAIN_MS * MS ? RELAY_QUICK_MS : RELAY_TICK_MS;
    return ask->state == ASK_THERE && (!ask->accepted || ask->elsewhere_ns) ? RELAY_TICK_MS : 0;
}

static bool is_unwanted(struct ask *ask)
{
    struct relay *relay = ask->instance->relay;
    pthread_mutex_lock(&relay->lock);
    bool is_unwanted = ask->cancelled || relay->closing;
    pthread_mutex_unlock(&relay->lock);
    return is_unwanted;
}

static void take_back(struct ask *ask)
{
    struct relay *relay = ask->instance->relay;
    if (relay_is_lost(relay, ask->instance->id, &ask->place, ask->reason, &ask->error)) {
        ask->place_failed = true;
        ask_lost(ask);
    } else {
        ask_finish(ask, FINISH_ERROR, &ask->error);
    }
}

/* Another node's driver serves by now: who has it would say so, unless it does not answer any more.
 * A node that has the next one, too, ends what is in the old one itself. */
static bool is_elsewhere(const struct ask *ask)
{
    struct place place;
    struct error err = {0};
    return !relay_find(ask->instance->relay, ask->instance->id, &place, &err) &&
           (place.driver || memcmp(place.node_id, ask->place.node_id, NODE_ID_BYTES) != 0);
}

/* It is elsewhere, and its old driver has had time to end it, which hands over what is in its
 * caches. */
static bool has_left(struct ask *ask, uint64_t now_ns)
{
    const bool elsewhere = is_elsewhere(ask);
    if (elsewhere && !ask->elsewhere_ns)
        ask->elsewhere_ns = now_ns;
    else if (!elsewhere)
        ask->elsewhere_ns = 0;
    return elsewhere && now_ns - ask->elsewhere_ns >= RELAY_LINGER_MS * MS;
}

void ask_step(struct ask *ask, uint64_t now_ns)
{
    if (is_unwanted(ask)) {
        if (ask->state == ASK_THERE)
            peer_send_cancel(ask->peer, ask->part_id);
        ask_finish(ask, FINISH_CANCELLED, NULL);
    } else if (ask->state == ASK_RETURNED) {
        take_back(ask); /* goes on in the next turn */
    } else if (ask->state == ASK_WAITING) {
        if (go_on(ask, now_ns))
            return;
        if (ask->is_guest)
            end_guest(ask, &ask->waits_for);
        else if (is_impatient(ask, now_ns))
            give_up(ask);
    } else if (ask->state == ASK_THERE && relay_is_deaf(ask, now_ns)) {
        peer_send_cancel(ask->peer, ask->part_id);
        error_set(&ask->error, ERROR_IO, "its node is not heard any more");
        ask_lost(ask);
    } else if (ask->state == ASK_THERE && has_left(ask, now_ns)) {
        peer_send_cancel(ask->peer, ask->part_id);
        error_set(&ask->error, ERROR_IO, "it runs elsewhere now");
        ask_lost(ask);
    } else if (ask->state == ASK_THERE && !ask->accepted && is_impatient(ask, now_ns)) {
        peer_send_cancel(ask->peer, ask->part_id);
        give_up(ask);
    }
}
