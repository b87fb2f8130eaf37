#include "base/log.h"
#include "base/mem.h"
#include "relay/relay_state.h"

#include <string.h>

enum { SPARE_MAX = 8, SPARE_BYTES_MAX = 1 << 20 };

/* ---- parcels ------------------------------------------------------------------------------ */

static void free_parcel(struct parcel *parcel)
{
    parcel->relay->n_parcels--;
    buffer_deinit(&parcel->run);
    mem_free(parcel);
}

static struct parcel *take_parcel(struct relay *relay)
{
    struct parcel *parcel = relay->spare;
    if (parcel) {
        relay->spare = parcel->next;
        relay->n_spare--;
    } else if ((parcel = mem_new(sizeof *parcel)) != NULL) {
        relay->n_parcels++;
        parcel->relay = relay;
    }
    return parcel;
}

static void give_back(struct parcel *parcel)
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
    free_parcel(parcel);
    parcels_free(relay);
}

void parcels_free(struct relay *relay)
{
    if (!relay->handles_closing)
        return;
    while (relay->spare) {
        struct parcel *parcel = relay->spare;
        relay->spare = parcel->next;
        free_parcel(parcel);
    }
    if (relay->n_parcels || relay->n_handles)
        return; /* a link has one still */
    pthread_mutex_destroy(&relay->lock);
    buffer_deinit(&relay->values);
    mem_free(relay);
}

static void on_sent(struct link_send *send, enum error_code code)
{
    (void)code; /* a link that went down is told by its event */
    give_back(send->data);
}

/* ---- peers -------------------------------------------------------------------------------- */

struct peer *peer_find(struct relay *relay, const struct link *link)
{
    struct peer *peer = relay->peers;
    while (peer && peer->link != link)
        peer = peer->next;
    return peer;
}

struct peer *peer_make(struct relay *relay, struct link *link)
{
    struct peer *peer = peer_find(relay, link);
    if (peer)
        return peer;
    peer = mem_new(sizeof *peer);
    if (!peer)
        return NULL;
    peer->relay = relay;
    peer->link = link;
    peer->last_tokens = SIZE_MAX;
    memcpy(peer->node_id, link_peer(link), NODE_ID_BYTES);
    peer->next = relay->peers;
    relay->peers = peer;
    return peer;
}

static void free_peer(struct peer *peer)
{
    if (peer->stuck)
        give_back(peer->stuck);
    buffer_deinit(&peer->run);
    mem_free(peer);
}

void peers_free(struct relay *relay)
{
    while (relay->peers) {
        struct peer *peer = relay->peers;
        relay->peers = peer->next;
        free_peer(peer);
    }
}

/* ---- what waits for a link ------------------------------------------------------------------ */

bool peer_has_room(struct peer *peer, enum message_weight weight)
{
    uint64_t limit = peer->relay->options.queue_bytes;
    limit += weight == MESSAGE_ROW ? 0 : weight == MESSAGE_TOKEN ? limit / 4 : limit / 2;
    if (peer->run.size < limit)
        return true;
    if (weight == MESSAGE_CONTROL)
        peer->is_broken = true;
    return false;
}

bool peer_wrote(struct peer *peer, size_t before, enum message_weight weight)
{
    if (!peer->run.failed)
        return true;
    peer->run.failed = false;
    peer->run.size = before;
    if (weight == MESSAGE_CONTROL)
        peer->is_broken = true;
    return false;
}

void peer_send_cancel(struct peer *peer, uint64_t id)
{
    pthread_mutex_lock(&peer->relay->lock);
    size_t before = peer->run.size;
    if (peer_has_room(peer, MESSAGE_CONTROL)) {
        request_write_cancel(id, &peer->run);
        peer_wrote(peer, before, MESSAGE_CONTROL);
    }
    pthread_mutex_unlock(&peer->relay->lock);
    uv_async_send(&peer->relay->wake);
}

/* The parcel that is to be sent next; NULL: none. */
static struct parcel *next_parcel(struct peer *peer)
{
    struct relay *relay = peer->relay;
    struct parcel *parcel = peer->stuck;
    peer->stuck = NULL;
    if (parcel)
        return parcel;
    pthread_mutex_lock(&relay->lock);
    if (peer->run.size && (parcel = take_parcel(relay)) != NULL) {
        struct buffer empty = parcel->run;
        parcel->run = peer->run;
        peer->run = empty;
        peer->last_tokens = SIZE_MAX;
    }
    pthread_mutex_unlock(&relay->lock);
    return parcel;
}

static void flush(struct peer *peer)
{
    struct parcel *parcel;
    while ((parcel = next_parcel(peer)) != NULL) {
        struct error err = {0};
        parcel->send = (struct link_send){
            .type = FRAME_REQUEST, .n_pieces = 1, .done = on_sent, .data = parcel};
        parcel->send.pieces[0] = (struct link_piece){parcel->run.data, parcel->run.size};
        enum error_code code = link_send(peer->link, NODE_CHANNEL_PIPELINE, &parcel->send, &err);
        if (code == ERROR_BUSY) {
            peer->stuck = parcel;
            return;
        }
        if (!code)
            continue;
        give_back(parcel);
        if (code != ERROR_CANCELLED) /* else it is going down anyway */
            link_abort(peer->link, &err);
        return;
    }
}

void peer_flush_all(struct relay *relay)
{
    struct peer **at = &relay->peers;
    while (*at) {
        struct peer *peer = *at;
        pthread_mutex_lock(&relay->lock);
        bool is_broken = peer->is_broken, is_over = !peer->link && !peer->n_served;
        peer->is_broken = false;
        pthread_mutex_unlock(&relay->lock);
        if (is_over) {
            *at = peer->next;
            free_peer(peer);
            continue;
        }
        if (is_broken && peer->link) {
            struct error why = {0};
            error_set(&why, ERROR_BUSY, "it does not take the messages about its requests");
            log_line(LOG_WARN, "relay", "a peer is given up: %s", why.text);
            link_abort(peer->link, &why);
        } else if (peer->link) {
            flush(peer);
        }
        at = &peer->next;
    }
}

bool peer_is_stuck(struct relay *relay)
{
    bool is_stuck = false;
    pthread_mutex_lock(&relay->lock);
    for (const struct peer *peer = relay->peers; peer && !is_stuck; peer = peer->next)
        is_stuck =
            peer->link && (peer->stuck || peer->run.size); /* the second for lack of memory */
    pthread_mutex_unlock(&relay->lock);
    return is_stuck;
}
