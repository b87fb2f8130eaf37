#include "relay/relay.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "relay/relay_state.h"

#include <string.h>

/* ---- the loop's step ------------------------------------------------------------------------- */

void relay_look_locked(struct relay *relay)
{
    relay->look = true;
    uv_async_send(
        &relay->wake); /* under the lock: who finds that nothing is left may free the relay */
}

static void cancel_here_locked(struct ask *ask)
{
    if (ask->cancel_sent || !(ask->cancelled || ask->instance->relay->closing))
        return;
    ask->cancelled = ask->cancel_sent = true;
    driver_cancel(ask->place.driver, ask->part_id); /* which has not ended it, and so is there */
}

/* The asks that are the loop's, as a list. */
static struct ask *todo(struct relay *relay, bool *looked)
{
    struct ask *first = NULL, **last = &first;
    pthread_mutex_lock(&relay->lock);
    *looked = relay->look;
    if (relay->look) {
        relay->look = false;
        for (struct ask *ask = relay->asks; ask; ask = ask->next) {
            if (ask->state == ASK_HERE)
                cancel_here_locked(ask);
            if (ask->state == ASK_HERE || ask->state == ASK_FINISHING)
                continue;
            *last = ask;
            last = &ask->todo;
        }
    }
    *last = NULL;
    pthread_mutex_unlock(&relay->lock);
    return first;
}

/* 0: nothing waits. */
static uint64_t waits_ms(struct relay *relay, uint64_t now_ns)
{
    uint64_t least = 0;
    pthread_mutex_lock(&relay->lock);
    for (struct ask *ask = relay->asks; ask && least != RELAY_QUICK_MS; ask = ask->next) {
        const uint64_t ms = ask_waits_ms(ask, now_ns);
        least = ms && (!least || ms < least) ? ms : least;
    }
    pthread_mutex_unlock(&relay->lock);
    return least;
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct relay *relay = handle->data;
    if (--relay->n_handles)
        return;
    while (relay->instances) {
        struct instance *next = relay->instances->next;
        mem_free(relay->instances);
        relay->instances = next;
    }
    void (*closed)(void *arg) = relay->closed;
    void *arg = relay->closed_arg;
    parcels_free(relay); /* and the relay */
    if (closed)
        closed(arg);
}

static void close_when_empty(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
    bool is_empty = relay->closing && !relay->handles_closing && !relay->n_asks && !relay->n_served;
    pthread_mutex_unlock(&relay->lock);
    if (!is_empty)
        return;
    relay->handles_closing = true;
    peers_free(relay);
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
    uint64_t now_ns = clock_now_ns();
    bool looked = false;
    struct ask *ask = todo(relay, &looked);
    while (ask) {
        struct ask *next = ask->todo;
        ask_step(ask, now_ns);
        ask = next;
    }
    serve_look(relay);
    peer_flush_all(relay);
    const uint64_t wait_ms = looked ? waits_ms(relay, now_ns) : 0;
    if (peer_is_stuck(relay))
        uv_timer_start(&relay->timer, on_timer, RELAY_STUCK_MS, 0);
    else if (wait_ms)
        uv_timer_start(&relay->timer, on_timer, wait_ms, 0);
    close_when_empty(relay);
}

void relay_changed(struct relay *relay)
{
    if (relay->handles_closing)
        return;
    pthread_mutex_lock(&relay->lock);
    relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
}

/* ---- the mesh's events ----------------------------------------------------------------------- */

static enum error_code take_message(struct peer *peer, const void *bytes, size_t size,
                                    struct error *err)
{
    struct request_message message;
    enum error_code code = request_read(bytes, size, &message, err);
    if (code)
        return code;
    if (message.kind == REQUEST_SUBMIT)
        code = serve_submit(peer, &message, err);
    else if (message.kind == REQUEST_CANCEL)
        serve_cancel(peer, message.id);
    else
        code = ask_answer(peer, &message, err);
    request_message_deinit(&message);
    return code;
}

void relay_frame(struct relay *relay, struct link *link, const struct frame_header *header,
                 const uint8_t *payload)
{
    if (relay->handles_closing)
        return;
    struct bytes_reader run = {payload, header->length, false};
    struct error err = {0};
    struct peer *peer = peer_make(relay, link);
    enum error_code code =
        peer ? ERROR_NONE : error_set(&err, ERROR_NO_MEMORY, "no memory for a peer");
    while (!code && run.left) {
        const void *message;
        size_t size;
        code = request_next(&run, &message, &size, &err);
        if (!code && !message)
            code = error_set(&err, ERROR_INVALID, "a frame of requests that ends within a message");
        if (!code)
            code = take_message(peer, message, size, &err);
    }
    if (code) {
        log_line(LOG_WARN, "relay", "a peer breaks the rules: %s", err.text);
        link_abort(link, &err);
    }
}

/* Those that were there wait for another driver. */
static struct ask *asks_of(struct peer *peer)
{
    struct ask *first = NULL, **last = &first;
    for (struct ask *ask = peer->relay->asks; ask; ask = ask->next) {
        if (ask->state != ASK_THERE || ask->peer != peer)
            continue;
        *last = ask;
        last = &ask->todo;
    }
    *last = NULL;
    return first;
}

void relay_down(struct relay *relay, struct link *link)
{
    struct peer *peer = peer_find(relay, link);
    if (!peer)
        return;
    pthread_mutex_lock(&relay->lock);
    serve_cancel_all_locked(peer);
    peer->link = NULL;
    buffer_clear(&peer->run);
    struct ask *ask = asks_of(peer);
    relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
    while (ask) {
        struct ask *next = ask->todo;
        error_set(&ask->error, ERROR_IO, "the link to its node went down");
        ask_lost(ask);
        ask = next;
    }
}

/* ---- opening and closing --------------------------------------------------------------------- */

enum error_code relay_open(const struct relay_options *options, struct relay **out,
                           struct error *err)
{
    if (!options->find)
        return error_set(err, ERROR_INVALID, "a relay needs find()");
    struct relay *relay = mem_new(sizeof *relay);
    if (!relay)
        return error_set(err, ERROR_NO_MEMORY, "no memory for the relay");
    int problem = uv_async_init(options->loop, &relay->wake, on_wake);
    if (problem) {
        mem_free(relay);
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    }
    uv_timer_init(options->loop, &relay->timer); /* never fails */
    relay->wake.data = relay->timer.data = relay;
    relay->n_handles = 2;
    relay->options = *options;
    if (!relay->options.patience_ms)
        relay->options.patience_ms = LIMIT_RELAY_PATIENCE_MS;
    if (!relay->options.queue_bytes)
        relay->options.queue_bytes = LIMIT_RELAY_QUEUE_BYTES;
    pthread_mutex_init(&relay->lock, NULL);
    *out = relay;
    return ERROR_NONE;
}

void relay_close(struct relay *relay, void (*closed)(void *arg), void *arg)
{
    relay->closed = closed;
    relay->closed_arg = arg;
    pthread_mutex_lock(&relay->lock);
    relay->closing = true;
    for (struct peer *peer = relay->peers; peer; peer = peer->next)
        serve_cancel_all_locked(peer);
    relay_look_locked(relay);
    pthread_mutex_unlock(&relay->lock);
}
