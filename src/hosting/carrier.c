#include "hosting/carrier.h"

#include "base/bytes.h"
#include "base/log.h"
#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <string.h>

enum { SPARE_MAX = 16 }; /* parcels kept for reuse; those under way are as many as micro-batches */

struct parcel { /* a message on its way out or in */
    struct link_send send;
    struct parcel *next;
    struct carrier *carrier;
    uint8_t node_id[NODE_ID_BYTES];
    uint16_t type;
    struct buffer message;
};

struct carrier_end {
    uint64_t instance;
    carrier_receive_fn receive; /* NULL: free */
    void *arg;
};

struct carrier {
    uv_async_t wake; /* first: the handle is the carrier */
    struct mesh *mesh;
    struct carrier_handlers handlers;
    struct carrier_end ends[LIMIT_CARRIER_ENDS];
    bool closing, handle_closed;

    pthread_mutex_t lock;
    struct parcel *first, **last;      /* to be sent */
    bool starved;                      /* there was no memory for a message … */
    uint8_t starved_of[NODE_ID_BYTES]; /* … to this node */
    struct parcel *spare;
    uint32_t n_spare;
    uint32_t n_parcels; /* all that there are, spare ones included */
};

/* ---- parcels -------------------------------------------------------------------------- */

static struct parcel *carrier_take_parcel(struct carrier *carrier)
{
    pthread_mutex_lock(&carrier->lock);
    struct parcel *parcel = carrier->spare;
    if (parcel) {
        carrier->spare = parcel->next;
        carrier->n_spare--;
    } else if ((parcel = mem_new(sizeof *parcel)) != NULL) {
        carrier->n_parcels++;
        parcel->carrier = carrier;
    }
    pthread_mutex_unlock(&carrier->lock);
    return parcel;
}

static void carrier_free_parcel(struct parcel *parcel)
{
    buffer_deinit(&parcel->message);
    mem_free(parcel);
}

static void carrier_free_when_done(struct carrier *carrier)
{
    if (!carrier->handle_closed || carrier->n_parcels)
        return;
    pthread_mutex_destroy(&carrier->lock);
    mem_free(carrier);
}

/* On the loop's thread. */
static void carrier_give_back(struct parcel *parcel)
{
    struct carrier *carrier = parcel->carrier;
    pthread_mutex_lock(&carrier->lock);
    assert(carrier->n_parcels > carrier->n_spare); /* this one is none of the spare ones */
    bool keep = carrier->n_spare < SPARE_MAX && !carrier->closing;
    if (keep) {
        parcel->next = carrier->spare;
        carrier->spare = parcel;
        carrier->n_spare++;
    } else {
        carrier->n_parcels--;
    }
    pthread_mutex_unlock(&carrier->lock);
    if (keep)
        return;
    carrier_free_parcel(parcel);
    carrier_free_when_done(carrier);
}

/* ---- sending -------------------------------------------------------------------------- */

static void carrier_on_sent(struct link_send *send, enum error_code code)
{
    (void)code; /* a link that went down is told by its event */
    carrier_give_back(send->data);
}

/* A micro-batch says when it was sent: by the peer's clock, or not at all. */
static void carrier_fit_times(const struct link *link, struct buffer *message)
{
    int64_t ahead_ns;
    if (link_clock(link, &ahead_ns))
        wire_shift_times(message, ahead_ns);
    else
        wire_hide_times(message);
}

bool carrier_takes_rope(const struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct link *link = mesh_find(carrier->mesh, node_id);
    return link && link_version(link).minor >= 2;
}

static void carrier_send_parcel(struct carrier *carrier, struct parcel *parcel)
{
    struct error err = {0};
    struct link *link = mesh_find(carrier->mesh, parcel->node_id);
    parcel->send = (struct link_send){
        .type = parcel->type, .n_pieces = 1, .done = carrier_on_sent, .data = parcel};
    if (link && parcel->type == FRAME_PIPELINE)
        carrier_fit_times(link, &parcel->message);
    parcel->send.pieces[0] = (struct link_piece){parcel->message.data, parcel->message.size};
    const bool is_halt = parcel->type == FRAME_HALT;
    enum error_code code =
        link ? link_send(link, is_halt ? LINK_CONTROL : LINK_DATA, &parcel->send, &err)
             : error_set(&err, ERROR_IO, "there is no link to it");
    if (!code)
        return;
    uint8_t node_id[NODE_ID_BYTES];
    memcpy(node_id, parcel->node_id, sizeof node_id);
    carrier_give_back(parcel);
    if (!is_halt)
        carrier->handlers.lost(carrier->handlers.arg, node_id, &err);
}

static void carrier_on_wake(uv_async_t *wake)
{
    struct carrier *carrier = (struct carrier *)wake;
    pthread_mutex_lock(&carrier->lock);
    struct parcel *parcel = carrier->first;
    carrier->first = NULL;
    carrier->last = &carrier->first;
    bool starved = carrier->starved;
    carrier->starved = false;
    uint8_t node_id[NODE_ID_BYTES];
    memcpy(node_id, carrier->starved_of, sizeof node_id);
    pthread_mutex_unlock(&carrier->lock);
    if (starved) {
        struct error err = {0};
        error_set(&err, ERROR_NO_MEMORY, "not enough memory to send it a message");
        carrier->handlers.lost(carrier->handlers.arg, node_id, &err);
    }
    while (parcel) {
        struct parcel *next = parcel->next;
        carrier_send_parcel(carrier, parcel);
        parcel = next;
    }
}

static void carrier_queue(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                          uint16_t type, struct buffer *message)
{
    struct parcel *parcel = carrier_take_parcel(carrier);
    if (!parcel && type == FRAME_HALT)
        return;
    if (!parcel) {
        pthread_mutex_lock(&carrier->lock);
        carrier->starved = true;
        memcpy(carrier->starved_of, node_id, NODE_ID_BYTES);
        pthread_mutex_unlock(&carrier->lock);
        uv_async_send(&carrier->wake);
        return;
    }
    struct buffer empty = parcel->message;
    parcel->message = *message;
    *message = empty;
    buffer_clear(message);
    memcpy(parcel->node_id, node_id, NODE_ID_BYTES);
    parcel->type = type;
    parcel->next = NULL;
    pthread_mutex_lock(&carrier->lock);
    *carrier->last = parcel;
    carrier->last = &parcel->next;
    pthread_mutex_unlock(&carrier->lock);
    uv_async_send(&carrier->wake);
}

void carrier_send(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                  struct buffer *message)
{
    carrier_queue(carrier, node_id, FRAME_PIPELINE, message);
}

void carrier_send_cache(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                        struct buffer *message)
{
    carrier_queue(carrier, node_id, FRAME_CACHE, message);
}

void carrier_send_halt(struct carrier *carrier, const uint8_t node_id[NODE_ID_BYTES],
                       const struct wire_route *route)
{
    struct buffer message = {0};
    bytes_put(&message, route->instance, 8);
    bytes_put(&message, route->epoch, 8);
    bytes_put(&message, route->number, 8);
    if (!message.failed)
        carrier_queue(carrier, node_id, FRAME_HALT, &message);
    buffer_deinit(&message);
}

/* ---- receiving ------------------------------------------------------------------------ */

static struct carrier_end *carrier_find_end(struct carrier *carrier, uint64_t instance)
{
    for (uint32_t i = 0; i < LIMIT_CARRIER_ENDS; i++) {
        if (carrier->ends[i].receive && carrier->ends[i].instance == instance)
            return &carrier->ends[i];
    }
    return NULL;
}

enum error_code carrier_attach(struct carrier *carrier, uint64_t instance,
                               carrier_receive_fn receive, void *arg, struct error *err)
{
    struct carrier_end *end = carrier_find_end(carrier, instance);
    for (uint32_t i = 0; i < LIMIT_CARRIER_ENDS && !end && receive; i++) {
        if (!carrier->ends[i].receive)
            end = &carrier->ends[i];
    }
    if (!end && receive)
        return error_set(err, ERROR_BUSY, "this node already has parts of %d instances",
                         LIMIT_CARRIER_ENDS);
    if (end)
        *end = (struct carrier_end){instance, receive, arg};
    return ERROR_NONE;
}

static void carrier_break_off(struct link *link, const struct error *why)
{
    log_line(LOG_WARN, "carrier", "a peer broke the protocol: %s", why->text);
    link_abort(link, why);
}

/* What a newer version may say behind it is passed over. */
static void carrier_take_halt(struct carrier *carrier, struct link *link, const uint8_t *payload,
                              size_t size)
{
    struct bytes_reader reader = {payload, size, false};
    const struct wire_route route = {.instance = bytes_get(&reader, 8),
                                     .epoch = bytes_get(&reader, 8),
                                     .number = bytes_get(&reader, 8)};
    struct error err = {0};
    if (reader.short_) {
        error_set(&err, ERROR_INVALID, "malformed HALT (%zu bytes)", size);
        carrier_break_off(link, &err);
    } else if (carrier->handlers.halt) {
        carrier->handlers.halt(carrier->handlers.arg, link_peer(link), &route);
    }
}

void carrier_frame(struct carrier *carrier, struct link *link, const struct frame_header *header,
                   const uint8_t *payload)
{
    struct wire_route route;
    struct error err = {0};
    if (header->type == FRAME_HALT) {
        carrier_take_halt(carrier, link, payload, header->length);
        return;
    }
    if (header->type == FRAME_CACHE) {
        if (carrier->handlers.cache &&
            carrier->handlers.cache(carrier->handlers.arg, link_peer(link), payload, header->length,
                                    &err))
            carrier_break_off(link, &err);
        return;
    }
    enum error_code code = wire_read_route(payload, header->length, &route, &err);
    struct carrier_end *end = code ? NULL : carrier_find_end(carrier, route.instance);
    if (end)
        code = end->receive(end->arg, payload, header->length, &err);
    else if (!code)
        code = ERROR_NOT_FOUND;
    if (code == ERROR_NOT_FOUND) { /* it may have ended a moment ago */
        log_line(LOG_DEBUG, "carrier",
                 "a micro-batch of instance %llu, epoch %llu, which is not here",
                 (unsigned long long)route.instance, (unsigned long long)route.epoch);
        if (carrier->handlers.stray)
            carrier->handlers.stray(carrier->handlers.arg, link_peer(link), &route);
    } else if (code) {
        carrier_break_off(link, &err);
    }
}

void carrier_down(struct carrier *carrier, struct link *link, const struct error *why)
{
    carrier->handlers.lost(carrier->handlers.arg, link_peer(link), why);
}

/* ---- opening and closing -------------------------------------------------------------- */

enum error_code carrier_open(uv_loop_t *loop, struct mesh *mesh,
                             const struct carrier_handlers *handlers, struct carrier **out,
                             struct error *err)
{
    struct carrier *carrier = mem_new(sizeof *carrier);
    if (!carrier)
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for the carrier");
    int problem = uv_async_init(loop, &carrier->wake, carrier_on_wake);
    if (problem) {
        mem_free(carrier);
        return error_set(err, ERROR_IO, "cannot wake the event loop: %s", uv_strerror(problem));
    }
    carrier->mesh = mesh;
    carrier->handlers = *handlers;
    carrier->last = &carrier->first;
    pthread_mutex_init(&carrier->lock, NULL);
    *out = carrier;
    return ERROR_NONE;
}

static void carrier_on_closed(uv_handle_t *handle)
{
    struct carrier *carrier = (struct carrier *)handle;
    carrier->handle_closed = true;
    carrier_free_when_done(carrier);
}

static uint32_t carrier_free_list(struct parcel *parcel)
{
    uint32_t n = 0;
    while (parcel) {
        struct parcel *next = parcel->next;
        carrier_free_parcel(parcel);
        parcel = next;
        n++;
    }
    return n;
}

void carrier_close(struct carrier *carrier)
{
    if (!carrier)
        return;
    assert(!carrier->closing);
    carrier->closing = true;
    carrier->n_parcels -= carrier_free_list(carrier->first) + carrier_free_list(carrier->spare);
    carrier->first = carrier->spare = NULL;
    carrier->n_spare = 0;
    uv_close((uv_handle_t *)&carrier->wake, carrier_on_closed);
}
