/* Where a request of this node goes next: into a driver here, to another node's, or nowhere yet. */
#include "base/log.h"
#include "relay/relay_state.h"

#include <assert.h>
#include <string.h>

static const uint64_t MS = 1000000;

static bool relay_same_place(const struct relay_place *a, const struct relay_place *b)
{
    return a->driver == b->driver && a->epoch == b->epoch &&
           (a->driver || memcmp(a->node_id, b->node_id, NODE_ID_BYTES) == 0);
}

static enum error_code relay_find(struct relay_core *core, const char *instance,
                                  struct relay_place *out, struct error *err)
{
    *out = (struct relay_place){0};
    return core->options.find(core->options.self, instance, out, err);
}

bool relay_is_lost(struct relay_core *core, const char *instance, const struct relay_place *place,
                   enum finish_reason reason, const struct error *why)
{
    struct relay_place now;
    struct error err = {0};
    if (reason == FINISH_CANCELLED || why->code == ERROR_IO || why->code == ERROR_CANCELLED)
        return true;
    const enum error_code code = relay_find(core, instance, &now, &err);
    return code == ERROR_BUSY || (!code && !relay_same_place(&now, place));
}

/* Nothing is missing but the news of its end. */
static bool relay_ask_has_all(const struct relay_ask *ask)
{
    const bool wants_rows = relay_ask_wants_rows(ask);
    if (!ask->n_parts || relay_ask_left(ask) || (!wants_rows && !ask->request.n_predict))
        return false;
    return !wants_rows || ask->n_rows == ask->request.n_prompt + ask->n_generated;
}

static bool relay_ask_gets_on(const struct relay_ask *ask)
{
    assert(ask->n_generated >= ask->waiting_generated && ask->n_rows >= ask->waiting_rows);
    return ask->n_generated != ask->waiting_generated || ask->n_rows != ask->waiting_rows;
}

/* Ever longer, until it gets on. */
static void relay_ask_put_off(struct relay_ask *ask, uint64_t now_ns)
{
    ask->again_ms = relay_ask_gets_on(ask) || !ask->again_ms ? RELAY_QUICK_MS : 2 * ask->again_ms;
    if (ask->again_ms > RELAY_AGAIN_MS)
        ask->again_ms = RELAY_AGAIN_MS;
    ask->again_ns = now_ns + ask->again_ms * MS;
}

/* What would have to wait, and does not: a guest, since the node that it came from looks for
 * another way, for which the driver is lost; and what nobody wants later. False: it waits. */
static bool relay_end_unless_waits(struct relay_ask *ask, const struct error *why, uint64_t now_ns)
{
    struct error err = *why;
    if (!ask->is_guest && !ask->request.never_waits)
        return false;
    if (ask->is_guest)
        error_set(&err, ERROR_IO, "could not hand it on: %s", why->text);
    relay_end(ask, FINISH_ERROR, &err, now_ns);
    return true;
}

void relay_ask_lost(struct relay_ask *ask, uint64_t now_ns)
{
    struct relay_core *core = ask->instance->core;
    assert(ask->state == ASK_THERE || ask->state == ASK_RETURNED);
    if (core->reading.ask == ask)
        core->reading.ask = NULL;
    if (ask->n_parts == 1)
        ask->cached = ask->usage.cached_tokens;
    if (relay_ask_has_all(ask)) {
        relay_end(ask, FINISH_LENGTH, NULL, now_ns);
        return;
    }
    relay_ask_put_off(ask, now_ns);
    if (relay_ask_gets_on(ask))
        ask->waiting_ns = now_ns;
    ask->waiting_generated = ask->n_generated;
    ask->waiting_rows = ask->n_rows;
    ask->peer = NULL;
    ask->elsewhere_ns = 0;
    log_line(LOG_INFO, "relay", "request %llu for %s lost its driver after %u tokens: %s",
             (unsigned long long)ask->id, ask->instance->id, ask->n_generated, ask->error.text);
    ask->state = ASK_WAITING;
    if (!relay_end_unless_waits(ask, &ask->error, now_ns))
        relay_core_look(core);
}

/* ---- going on ------------------------------------------------------------------------------- */

/* True: SUBMIT is in *out. */
static bool relay_start_here(struct relay_ask *ask, uint64_t now_ns, struct relay_effect *out)
{
    *out = (struct relay_effect){.type = RELAY_SUBMIT, .ask = ask, .driver = ask->place.driver};
    relay_ask_part(ask, now_ns, &out->request);
    ask->state = ASK_IN_DRIVER;
    ask->cancel_sent = false;
    ask->n_parts++;
    return true;
}

void relay_ask_submitted(struct relay_ask *ask, enum error_code code, uint64_t id,
                         const struct error *why, uint64_t now_ns)
{
    assert(ask->state == ASK_IN_DRIVER && ask->n_parts);
    if (!code) {
        ask->part_id = id;
        return;
    }
    ask->state = ASK_WAITING;
    ask->n_parts--;
    const bool is_replay = ask->n_parts;
    if (code != ERROR_CANCELLED && !(code == ERROR_BUSY && is_replay)) {
        relay_end(ask, FINISH_ERROR, why, now_ns);
        return;
    }
    ask->waits_for = ask->error = *why;
    ask->place_failed = true;
    ask->again_ns = now_ns + RELAY_TICK_MS * MS;
    relay_end_unless_waits(ask, why, now_ns);
}

static bool relay_start_there(struct relay_ask *ask, uint64_t now_ns)
{
    struct relay_core *core = ask->instance->core;
    char node[NODE_ID_TEXT];
    uint8_t via[NODE_ID_BYTES];
    bool onward;
    void *link = relay_way(ask, via, &onward);
    struct relay_peer *peer = link ? relay_peer_make(core, link, via) : NULL;
    struct request part;
    id_text(ask->place.node_id, NODE_ID_BYTES, node);
    if (!peer) {
        error_set(&ask->waits_for, ERROR_BUSY, "%s node %.8s, which has it",
                  link ? "not enough memory for requests to" : "there is no link to", node);
        return false;
    }
    const size_t before = peer->run.size;
    bool written = relay_peer_has_room(peer, MESSAGE_ROW);
    if (written) {
        relay_ask_part(ask, now_ns, &part);
        ask->part_id = ++core->last_wire_id;
        (onward ? request_write_submit_onward
                : request_write_submit)(ask->part_id, ask->instance->id, &part, &peer->run);
        written = relay_peer_wrote(peer, before, MESSAGE_ROW);
    }
    if (written) {
        ask->peer = peer;
        ask->state = ASK_THERE;
        ask->deaf_ns = 0;
    }
    error_set(&ask->waits_for, ERROR_BUSY, "node %.8s, which has it, %s", node,
              written ? "does not answer" : "is sent too much");
    return written;
}

/* It does not wait any more: ASK_THERE, or there is an effect. */
static bool relay_ask_start(struct relay_ask *ask, const struct relay_place *place, uint64_t now_ns,
                            struct relay_effect *out, bool *has_effect)
{
    if (ask->place_failed && now_ns < ask->again_ns && relay_same_place(place, &ask->place)) {
        ask->waits_for = ask->error;
        return false;
    }
    if (!relay_same_place(place, &ask->place))
        ask->again_ms = 0;
    ask->place = *place;
    ask->place_failed = false;
    if (!place->driver)
        return relay_start_there(ask, now_ns);
    *has_effect = relay_start_here(ask, now_ns, out);
    return true;
}

static void relay_tell_wanted(struct relay_instance *instance, uint64_t now_ns)
{
    struct relay_core *core = instance->core;
    if (!core->options.tells_wanted ||
        (instance->wanted_ns && now_ns - instance->wanted_ns < 1000 * MS))
        return;
    instance->wanted_ns = now_ns;
    instance->is_wanted = core->has_wanted = true;
}

static bool relay_is_impatient(const struct relay_ask *ask, uint64_t now_ns)
{
    return now_ns - ask->waiting_ns >= ask->instance->core->options.patience_ms * MS;
}

static void relay_give_up(struct relay_ask *ask, uint64_t now_ns)
{
    struct error err = {0};
    error_set(&err, ERROR_BUSY, "the model did not become ready within %.1f s: %s",
              (double)ask->instance->core->options.patience_ms / 1000, ask->waits_for.text);
    relay_end(ask, FINISH_ERROR, &err, now_ns);
}

static bool relay_step_waiting(struct relay_ask *ask, uint64_t now_ns, struct relay_effect *out)
{
    struct relay_core *core = ask->instance->core;
    struct relay_place place;
    struct error err = {0};
    bool has_effect = false;
    const enum error_code code = relay_find(core, ask->instance->id, &place, &err);
    if (code && code != ERROR_BUSY) {
        relay_end(ask, FINISH_ERROR, &err, now_ns);
        return false;
    }
    if (code) {
        ask->waits_for = err;
        if (!ask->request.never_waits)
            relay_tell_wanted(ask->instance, now_ns);
    } else if (relay_ask_start(ask, &place, now_ns, out, &has_effect)) {
        assert(ask->state == (has_effect ? ASK_IN_DRIVER : ASK_THERE));
        return has_effect;
    }
    if (!relay_end_unless_waits(ask, &ask->waits_for, now_ns) && relay_is_impatient(ask, now_ns))
        relay_give_up(ask, now_ns);
    return false;
}

/* ---- the step -------------------------------------------------------------------------------- */

uint64_t relay_ask_wait_ms(const struct relay_ask *ask, uint64_t now_ns)
{
    if (ask->state == ASK_WAITING)
        return now_ns - ask->waiting_ns < RELAY_AGAIN_MS * MS ? RELAY_QUICK_MS : RELAY_TICK_MS;
    return ask->state == ASK_THERE && (!ask->accepted || ask->elsewhere_ns) ? RELAY_TICK_MS : 0;
}

static void relay_take_back(struct relay_ask *ask, uint64_t now_ns)
{
    if (relay_is_lost(ask->instance->core, ask->instance->id, &ask->place, ask->reason,
                      &ask->error)) {
        ask->place_failed = true;
        relay_ask_lost(ask, now_ns);
    } else {
        relay_end(ask, FINISH_ERROR, &ask->error, now_ns);
    }
}

/* Another node's driver serves by now: who has it would say so, unless it does not answer any more.
 * A node that has the next one, too, ends what is in the old one itself. */
static bool relay_is_elsewhere(const struct relay_ask *ask)
{
    struct relay_place place;
    struct error err = {0};
    return !relay_find(ask->instance->core, ask->instance->id, &place, &err) &&
           (place.driver || memcmp(place.node_id, ask->place.node_id, NODE_ID_BYTES) != 0);
}

/* It is elsewhere, and its old driver has had time to end it, which hands over what is in its
 * caches. */
static bool relay_has_left(struct relay_ask *ask, uint64_t now_ns)
{
    const bool elsewhere = relay_is_elsewhere(ask);
    if (elsewhere && !ask->elsewhere_ns)
        ask->elsewhere_ns = now_ns;
    else if (!elsewhere)
        ask->elsewhere_ns = 0;
    return elsewhere && now_ns - ask->elsewhere_ns >= RELAY_LINGER_MS * MS;
}

static void relay_step_there(struct relay_ask *ask, uint64_t now_ns)
{
    const bool is_deaf = relay_is_deaf(ask, now_ns);
    if (is_deaf || relay_has_left(ask, now_ns)) {
        relay_peer_send_cancel(ask->peer, ask->part_id);
        error_set(&ask->error, ERROR_IO, "%s",
                  is_deaf ? "its node is no longer heard" : "it now runs elsewhere");
        relay_ask_lost(ask, now_ns);
    } else if (!ask->accepted && relay_is_impatient(ask, now_ns)) {
        relay_peer_send_cancel(ask->peer, ask->part_id);
        relay_give_up(ask, now_ns);
    }
}

bool relay_ask_step(struct relay_ask *ask, uint64_t now_ns, struct relay_effect *out)
{
    assert(ask->state == ASK_WAITING || ask->state == ASK_THERE || ask->state == ASK_RETURNED);
    if (ask->cancelled || ask->instance->core->stopped) {
        if (ask->state == ASK_THERE)
            relay_peer_send_cancel(ask->peer, ask->part_id);
        relay_end(ask, FINISH_CANCELLED, NULL, now_ns);
        return false;
    }
    if (ask->state == ASK_WAITING)
        return relay_step_waiting(ask, now_ns, out);
    if (ask->state == ASK_RETURNED)
        relay_take_back(ask, now_ns); /* goes on in the next turn */
    else
        relay_step_there(ask, now_ns);
    return false;
}
