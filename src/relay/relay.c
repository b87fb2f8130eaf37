#include "relay/relay.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "pipeline/driver.h"
#include "relay/relay_shell.h"

#include <assert.h>
#include <string.h>

enum { SPARE_MAX = 8, SPARE_BYTES_MAX = 1 << 20 };

void relay_enter(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
}

/* The wake-up is under the lock: who finds that nothing is left may free the relay. */
void relay_leave(struct relay *relay)
{
    if (relay_core_is_due(relay->core))
        uv_async_send(&relay->wake);
    pthread_mutex_unlock(&relay->lock);
}

/* ---- parcels: what a link has until it is sent; the loop's ------------------------------ */

static void relay_free_parcel(struct relay_parcel *parcel)
{
    parcel->relay->n_parcels--;
    buffer_deinit(&parcel->run);
    mem_free(parcel);
}

static struct relay_parcel *relay_take_parcel(struct relay *relay)
{
    struct relay_parcel *parcel = relay->spare;
    if (parcel) {
        assert(relay->n_spare);
        relay->spare = parcel->next;
        relay->n_spare--;
    } else if ((parcel = mem_new(sizeof *parcel)) != NULL) {
        relay->n_parcels++;
        parcel->relay = relay;
    }
    return parcel;
}

/* The last thing to go: a link may have a parcel still. */
static void relay_free_when_idle(struct relay *relay)
{
    if (!relay->handles_closing)
        return;
    while (relay->spare) {
        struct relay_parcel *parcel = relay->spare;
        relay->spare = parcel->next;
        relay_free_parcel(parcel);
    }
    if (relay->n_parcels || relay->n_handles)
        return;
    pthread_mutex_destroy(&relay->lock);
    mem_free(relay);
}

static void relay_give_parcel_back(struct relay_parcel *parcel)
{
    struct relay *relay = parcel->relay;
    if (relay->n_spare < SPARE_MAX && parcel->run.capacity <= SPARE_BYTES_MAX &&
        !relay->handles_closing) {
        buffer_clear(&parcel->run);
        parcel->next = relay->spare;
        relay->spare = parcel;
        relay->n_spare++;
        return;
    }
    relay_free_parcel(parcel);
    relay_free_when_idle(relay);
}

static void on_sent(struct link_send *send, enum error_code code)
{
    (void)code; /* a link that went down is told by its event */
    relay_give_parcel_back(send->data);
}

/* ---- questions of the core: the loop's, under the lock ---------------------------------- */

static enum error_code relay_answer_find(void *self, const char *instance, struct relay_place *out,
                                         struct error *err)
{
    const struct relay_options *options = &((struct relay *)self)->options;
    struct driver *driver = NULL;
    const enum error_code code =
        options->find(options->self, instance, &driver, out->node_id, &out->epoch, err);
    out->driver = driver;
    return code;
}

static bool relay_answer_reaches(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct relay_options *options = &((struct relay *)self)->options;
    return options->reaches ? options->reaches(options->self, node_id)
                            : mesh_find(options->mesh, node_id) != NULL;
}

static bool relay_answer_through(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    const struct relay_options *options = &((struct relay *)self)->options;
    return options->through && options->through(options->self, node_id, out);
}

static void *relay_answer_link_to(void *self, const uint8_t node_id[NODE_ID_BYTES])
{
    return mesh_find(((struct relay *)self)->options.mesh, node_id);
}

/* ---- events of drivers: their threads'
 * ----------------------------------------------------------- */

/* No lock, and nobody is woken. */
static bool on_ask_token(void *arg, const struct token_event *event)
{
    struct relay_ask *ask = arg;
    const struct request *request = relay_ask_request(ask);
    const uint64_t now_ns = relay_ask_has_token(ask) ? 0 : clock_now_ns();
    struct token_event moved;
    relay_ask_take_token(ask, event, now_ns, &moved);
    return !request->handlers.token || request->handlers.token(request->arg, &moved);
}

static void on_ask_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    const struct request *request = relay_ask_request(arg);
    if (relay_ask_take_row(arg, position))
        request->handlers.row(request->arg, position, values, n_values);
}

static void relay_tell_done(struct relay *relay, const struct relay_effect *effect)
{
    const struct request *request = relay_ask_request(effect->ask);
    assert(effect->type == RELAY_DONE && request->handlers.done);
    request->handlers.done(request->arg, effect->reason, &effect->usage,
                           effect->reason == FINISH_ERROR ? &effect->error : NULL);
    relay_enter(relay);
    relay_core_forget(relay->core, effect->ask, clock_now_ns());
    relay_leave(relay);
}

static void on_ask_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                        const struct error *err)
{
    struct relay *relay = relay_ask_owner(arg);
    struct relay_effect effect;
    relay_enter(relay);
    const bool is_over =
        relay_core_driver_done(relay->core, arg, reason, usage, err, clock_now_ns(), &effect);
    relay_leave(relay);
    if (is_over)
        relay_tell_done(relay, &effect);
}

static bool on_served_token(void *arg, const struct token_event *event)
{
    struct relay *relay = relay_served_owner(arg);
    relay_enter(relay);
    const bool goes_on = relay_served_token(arg, event);
    relay_leave(relay);
    return goes_on;
}

static void on_served_row(void *arg, uint32_t position, const float *values, uint32_t n_values)
{
    struct relay *relay = relay_served_owner(arg);
    relay_enter(relay);
    relay_served_row(arg, position, values, n_values);
    relay_leave(relay);
}

static void on_served_done(void *arg, enum finish_reason reason, const struct request_usage *usage,
                           const struct error *err)
{
    struct relay *relay = relay_served_owner(arg);
    relay_enter(relay);
    relay_served_done(arg, reason, usage, err, clock_now_ns());
    relay_leave(relay);
}

static const struct request_handlers ask_handlers = {on_ask_token, on_ask_row, on_ask_done};
static const struct request_handlers served_handlers = {on_served_token, on_served_row,
                                                        on_served_done};

/* ---- effects: the loop's
 * ------------------------------------------------------------------------- */

/* Under the lock, so that the first event of the request comes after this. */
static void relay_submit_to_driver(struct relay *relay, struct relay_effect *effect)
{
    struct error err = {0};
    uint64_t id = 0;
    assert(!effect->ask != !effect->served && effect->driver);
    effect->request.handlers = effect->ask ? ask_handlers : served_handlers;
    effect->request.arg = effect->ask ? (void *)effect->ask : (void *)effect->served;
    const enum error_code code = driver_submit(effect->driver, &effect->request, &id, &err);
    relay_core_submitted(relay->core, effect, code, id, &err, clock_now_ns());
}

static enum error_code relay_send_run(struct relay *relay, const struct relay_effect *effect,
                                      struct error *err)
{
    struct relay_parcel *parcel = relay_take_parcel(relay);
    if (!parcel)
        return ERROR_BUSY; /* tried again */
    assert(effect->run->size && !parcel->run.size);
    const struct buffer empty = parcel->run;
    parcel->run = *effect->run;
    *effect->run = empty;
    parcel->send =
        (struct link_send){.type = FRAME_REQUEST, .n_pieces = 1, .done = on_sent, .data = parcel};
    parcel->send.pieces[0] = (struct link_piece){parcel->run.data, parcel->run.size};
    const enum error_code code = link_send(effect->link, NODE_CHANNEL_PIPELINE, &parcel->send, err);
    if (code == ERROR_BUSY) {
        *effect->run = parcel->run;
        parcel->run = empty;
    }
    if (code)
        relay_give_parcel_back(parcel);
    return code;
}

static void relay_send(struct relay *relay, const struct relay_effect *effect)
{
    struct error err = {0};
    const enum error_code code = relay_send_run(relay, effect, &err);
    relay_enter(relay);
    relay_core_sent(relay->core, effect->peer, code);
    relay_leave(relay);
    if (code && code != ERROR_BUSY && code != ERROR_CANCELLED) /* else it is going down anyway */
        link_abort(effect->link, &err);
}

static void relay_tell_token(struct relay *relay, const struct relay_effect *effect)
{
    const struct request *request = relay_ask_request(effect->ask);
    const bool goes_on =
        !request->handlers.token || request->handlers.token(request->arg, &effect->token);
    relay_enter(relay);
    relay_core_token_taken(relay->core, goes_on, clock_now_ns());
    relay_leave(relay);
}

/* Without the lock. */
static void relay_carry_out(struct relay *relay, struct relay_effect *effect)
{
    const struct request *request;
    switch (effect->type) {
    case RELAY_TOKEN:
        relay_tell_token(relay, effect);
        break;
    case RELAY_ROW:
        request = relay_ask_request(effect->ask);
        request->handlers.row(request->arg, effect->position, effect->values, effect->n_values);
        break;
    case RELAY_DONE:
        relay_tell_done(relay, effect);
        break;
    case RELAY_WANTED:
        relay->options.wanted(relay->options.self, effect->instance);
        break;
    case RELAY_SEND:
        relay_send(relay, effect);
        break;
    case RELAY_ABORT:
        log_line(LOG_WARN, "relay", "a peer %s: %s",
                 effect->error.code == ERROR_BUSY ? "is given up" : "breaks the rules",
                 effect->error.text);
        link_abort(effect->link, &effect->error);
        break;
    case RELAY_SUBMIT:
    case RELAY_CANCEL:
        assert(false); /* those are carried out under the lock */
        break;
    }
}

/* The next that is to be carried out without the lock; the others have been. */
static bool relay_next(struct relay *relay, uint64_t now_ns, struct relay_effect *effect)
{
    bool has_effect;
    relay_enter(relay);
    while ((has_effect = relay_core_next(relay->core, now_ns, effect)) != false) {
        if (effect->type == RELAY_SUBMIT)
            relay_submit_to_driver(relay, effect);
        else if (effect->type == RELAY_CANCEL)
            driver_cancel(effect->driver, effect->id); /* which has not ended it, and so is there */
        else
            break;
    }
    pthread_mutex_unlock(&relay->lock); /* the loop is awake */
    return has_effect;
}

static void relay_carry(struct relay *relay, uint64_t now_ns)
{
    struct relay_effect effect;
    assert(!relay->carries);
    relay->carries = true;
    while (relay_next(relay, now_ns, &effect))
        relay_carry_out(relay, &effect);
    relay->carries = false;
}

/* ---- the loop's step
 * ----------------------------------------------------------------------------- */

static void on_handle_closed(uv_handle_t *handle)
{
    struct relay *relay = handle->data;
    if (--relay->n_handles)
        return;
    while (relay->doors) {
        struct relay_door *next = relay->doors->next;
        mem_free(relay->doors);
        relay->doors = next;
    }
    relay_core_close(relay->core);
    relay->core = NULL;
    void (*closed)(void *arg) = relay->closed;
    void *arg = relay->closed_arg;
    relay_free_when_idle(relay);
    if (closed)
        closed(arg);
}

static void relay_close_handles(struct relay *relay)
{
    assert(!relay->handles_closing);
    relay->handles_closing = true;
    uv_close((uv_handle_t *)&relay->wake, on_handle_closed);
    uv_close((uv_handle_t *)&relay->timer, on_handle_closed);
}

static void on_timer(uv_timer_t *timer)
{
    relay_changed(timer->data);
}

static void on_wake(uv_async_t *wake)
{
    struct relay *relay = wake->data;
    assert(!relay->handles_closing && !relay->carries);
    const uint64_t now_ns = clock_now_ns();
    relay_enter(relay);
    relay_core_turn(relay->core);
    pthread_mutex_unlock(&relay->lock);
    relay_carry(relay, now_ns);
    relay_enter(relay);
    const uint64_t wait_ms = relay_core_wait_ms(relay->core, now_ns);
    const bool is_over = relay->closing && relay_core_is_empty(relay->core);
    relay_leave(relay);
    if (wait_ms && wait_ms != UINT64_MAX)
        uv_timer_start(&relay->timer, on_timer, wait_ms, 0);
    if (is_over)
        relay_close_handles(relay);
}

void relay_changed(struct relay *relay)
{
    if (relay->handles_closing)
        return;
    relay_enter(relay);
    relay_core_look(relay->core);
    relay_leave(relay);
}

/* ---- the mesh's events
 * --------------------------------------------------------------------------- */

void relay_frame(struct relay *relay, struct link *link, const struct frame_header *header,
                 const uint8_t *payload)
{
    struct error err = {0};
    if (relay->handles_closing)
        return;
    relay_enter(relay);
    const bool is_read =
        relay_core_receive(relay->core, link, link_peer(link), payload, header->length);
    pthread_mutex_unlock(&relay->lock);
    if (!is_read) {
        error_set(&err, ERROR_NO_MEMORY, "not enough memory for a peer");
        link_abort(link, &err);
        return;
    }
    relay_carry(relay, clock_now_ns());
    relay_enter(relay);
    relay_leave(relay); /* what is due by now */
}

void relay_down(struct relay *relay, struct link *link)
{
    if (relay->handles_closing)
        return;
    relay_enter(relay);
    relay_core_down(relay->core, link, clock_now_ns());
    relay_leave(relay);
}

/* ---- opening and closing
 * ------------------------------------------------------------------------- */

enum error_code relay_open(const struct relay_options *options, struct relay **out,
                           struct error *err)
{
    if (!options->find)
        return error_set(err, ERROR_INVALID, "a relay needs find()");
    struct relay *relay = mem_new(sizeof *relay);
    if (!relay)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the relay");
    const struct relay_core_options of_core = {.find = relay_answer_find,
                                               .reaches = relay_answer_reaches,
                                               .through = relay_answer_through,
                                               .link_to = relay_answer_link_to,
                                               .served = served_handlers,
                                               .patience_ms = options->patience_ms,
                                               .queue_bytes = options->queue_bytes,
                                               .tells_wanted = options->wanted,
                                               .self = relay};
    enum error_code code = relay_core_open(&of_core, &relay->core, err);
    const int problem = code ? 0 : uv_async_init(options->loop, &relay->wake, on_wake);
    if (problem)
        code = error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    if (code) {
        relay_core_close(relay->core);
        mem_free(relay);
        return code;
    }
    uv_timer_init(options->loop, &relay->timer); /* never fails */
    relay->wake.data = relay->timer.data = relay;
    relay->n_handles = 2;
    relay->options = *options;
    pthread_mutex_init(&relay->lock, NULL);
    *out = relay;
    return ERROR_NONE;
}

void relay_close(struct relay *relay, void (*closed)(void *arg), void *arg)
{
    relay->closed = closed;
    relay->closed_arg = arg;
    relay_enter(relay);
    relay->closing = true;
    relay_core_stop(relay->core);
    relay_leave(relay);
}
