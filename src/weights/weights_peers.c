/* The links: who is there, what is said and heard. */
#include "weights/weights_state.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/log.h"

#include <string.h>

enum { LENGTH_BYTES = 4, LARGE_FRAME = 32 * 1024 };

struct weights_peer *weights_peer_find(struct weights *weights, const struct link *link)
{
    struct weights_peer *peer = weights->peers;
    while (peer && peer->link != link)
        peer = peer->next;
    return peer;
}

uint32_t weights_channel(const struct link *link)
{
    return link_channels(link) > NODE_CHANNEL_WEIGHTS ? NODE_CHANNEL_WEIGHTS : LINK_DATA;
}

/* ---- saying ---------------------------------------------------------------------------------- */

static enum error_code weights_peers_post_now(struct weights_peer *peer, const void *bytes,
                                              size_t size)
{
    const struct frame_header header = {.type = FRAME_WEIGHTS, .length = (uint32_t)size};
    return link_post(peer->link, weights_channel(peer->link), &header, bytes, NULL);
}

static void empty_outbox(struct weights_peer *peer)
{
    size_t at = 0;
    while (at < peer->outbox.size) {
        const unsigned char *message = (const unsigned char *)peer->outbox.data + at;
        size_t size = (size_t)bytes_load(message, LENGTH_BYTES);
        if (weights_peers_post_now(peer, message + LENGTH_BYTES, size) == ERROR_BUSY)
            break;
        at += LENGTH_BYTES + size;
    }
    buffer_drop_front(&peer->outbox, at);
}

void weights_post_bytes(struct weights_peer *peer, const void *bytes, size_t size)
{
    const struct error slow = {ERROR_BUSY,
                               "the other end does not take what it is told about weights"};
    empty_outbox(peer);
    /* other errors: the link ends, and all that was said on it with it */
    if (!peer->outbox.size && weights_peers_post_now(peer, bytes, size) != ERROR_BUSY)
        return;
    bytes_put(&peer->outbox, size, LENGTH_BYTES);
    buffer_append(&peer->outbox, bytes, size);
    if (peer->outbox.failed || peer->outbox.size > LIMIT_WEIGHTS_OUTBOX_BYTES)
        link_abort(peer->link, &slow);
}

static void post_buffer(struct weights_peer *peer, struct buffer *bytes)
{
    const struct error why = {ERROR_NO_MEMORY, "out of memory for a message"};
    if (bytes->failed)
        link_abort(peer->link, &why); /* what is not said would be waited for */
    else
        weights_post_bytes(peer, bytes->data, bytes->size);
    buffer_deinit(bytes);
}

void weights_post(struct weights_peer *peer, const struct fetch_message *message)
{
    struct buffer bytes = {0};
    fetch_message_write(message, &bytes);
    post_buffer(peer, &bytes);
}

void weights_ask_have(struct weights_peer *peer, const struct weights_entry *entry)
{
    weights_post(peer, &(struct fetch_message){.type = FETCH_MESSAGE_ASK_HAVE,
                                               .model = *weights_asked_id(entry)});
}

/* `entry` NULL: nothing is here of the model. */
static void tell_have(struct weights_peer *peer, const struct digest *model,
                      struct weights_entry *entry)
{
    struct buffer bytes = {0};
    const struct part_set none = {0};
    const struct weights_file *file = entry ? weights_file_of(entry) : NULL;
    if (file)
        weight_source_have(&file->source, &bytes);
    else if (entry && entry->here.shelf)
        fetch_message_write_have(model, entry->here.source.manifest_bytes.size, &entry->here.has,
                                 &bytes);
    else
        fetch_message_write_have(model, 0, &none, &bytes);
    post_buffer(peer, &bytes);
}

void weights_tell_all(struct weights_entry *entry)
{
    entry->must_tell = false;
    entry->told_ns = clock_now_ns();
    if (entry->version)
        return; /* it is nobody's to give: weights.md, "In a smaller type" */
    for (struct weights_peer *peer = entry->weights->peers; peer; peer = peer->next)
        tell_have(peer, &entry->id, entry);
}

/* ---- hearing --------------------------------------------------------------------------------- */

static void hear_ask(struct weights_peer *peer, const struct fetch_message *message)
{
    struct weights_entry *entry = weights_find(peer->weights, &message->model);
    tell_have(peer, &message->model, entry && !entry->version ? entry : NULL);
}

static struct weights_holder *make_holder(struct weights_entry *entry,
                                          const struct weights_peer *peer)
{
    struct weights_holder *holder = entry->holders;
    while (holder && memcmp(holder->node_id, peer->node_id, NODE_ID_BYTES) != 0)
        holder = holder->next;
    if (holder || entry->n_holders == LIMIT_FETCH_PEERS)
        return holder;
    holder = mem_new(sizeof *holder);
    if (!holder)
        return NULL;
    memcpy(holder->node_id, peer->node_id, NODE_ID_BYTES);
    holder->next = entry->holders;
    entry->holders = holder;
    entry->n_holders++;
    return holder;
}

static void hear_have_of(struct weights_peer *peer, const struct fetch_message *message,
                         struct weights_entry *entry)
{
    struct part_set has;
    if ((!entry->is_wanted && !entry->problem.code) ||
        part_set_init(&has, message->have.n_parts, NULL))
        return;
    struct weights_holder *holder = make_holder(entry, peer);
    if (!holder) {
        part_set_deinit(&has);
        return;
    }
    fetch_message_parts(message, &has);
    if (holder->peer && holder->peer != peer)
        weights_fetch_away(entry, holder); /* an older link, which is about to end */
    part_set_deinit(&holder->has);
    holder->has = has;
    holder->peer = peer;
    holder->manifest_bytes = message->have.manifest_bytes;
    if (entry->problem.code && part_set_count(&has)) {
        entry->problem_ns = 0; /* worth another attempt */
        weights_raise_changed(peer->weights);
    }
    weights_fetch_have(entry, holder);
    weights_step(entry);
    weights_fetch_pump(entry);
}

/* Who has parts of a model can give them in a smaller type, too, if its version can. */
static void hear_have(struct weights_peer *peer, const struct fetch_message *message)
{
    const bool converts = link_version(peer->link).minor >= WEIGHTS_VERSION_MINOR;
    for (struct weights_entry *entry = peer->weights->entries; entry; entry = entry->next) {
        if (digest_equal(weights_asked_id(entry), &message->model) && (converts || !entry->version))
            hear_have_of(peer, message, entry);
    }
}

static void weights_peers_hear(struct weights_peer *peer, const struct fetch_message *message,
                               struct weights_write *memory)
{
    switch (message->type) {
    case FETCH_MESSAGE_ASK_HAVE:
        hear_ask(peer, message);
        break;
    case FETCH_MESSAGE_HAVE:
        hear_have(peer, message);
        break;
    case FETCH_MESSAGE_REQUEST:
    case FETCH_MESSAGE_REQUEST_CONVERTED:
        weights_serve(peer, message);
        break;
    case FETCH_MESSAGE_CHUNK:
    case FETCH_MESSAGE_CHUNK_CONVERTED:
        weights_fetch_chunk(peer, message, memory);
        return;
    case FETCH_MESSAGE_REFUSE:
        weights_fetch_refused(peer, message);
        break;
    case FETCH_MESSAGE_CANCEL:
        weights_serve_cancel(peer, message->id);
        break;
    }
    weights_memory_give(peer->weights, memory);
}

/* ---- the mesh's events ----------------------------------------------------------------------- */

void *weights_memory(struct weights *weights, struct link *link, uint32_t channel,
                     const struct frame_header *header)
{
    struct weights_peer *peer = weights_peer_find(weights, link);
    struct error why = {0};
    (void)channel;
    if (!peer || peer->receiving)
        return NULL; /* of two channels one is enough: the messages are the same in the link's own
                        memory */
    if (header->length > LIMIT_FETCH_CHUNK_BYTES + FETCH_CONVERTED_HEAD) {
        error_set(&why, ERROR_INVALID, "a message about weights has %u bytes", header->length);
        link_abort(link, &why);
        return NULL;
    }
    if (header->length < LARGE_FRAME || weights_is_closing(weights))
        return NULL;
    peer->receiving = weights_memory_take(weights, header->length);
    return peer->receiving ? peer->receiving->memory : NULL;
}

/* The memory that the payload lies in, else a copy of it. */
static struct weights_write *memory_of(struct weights_peer *peer, const struct frame_header *header,
                                       const uint8_t *payload)
{
    struct weights_write *memory = peer->receiving;
    if (memory && payload == memory->memory) {
        peer->receiving = NULL;
        return memory;
    }
    if (header->length > LIMIT_FETCH_CHUNK_BYTES + FETCH_CONVERTED_HEAD)
        return NULL;
    memory = weights_memory_take(peer->weights, header->length);
    if (memory && header->length)
        memcpy(memory->memory, payload, header->length);
    return memory;
}

void weights_frame(struct weights *weights, struct link *link, const struct frame_header *header,
                   const uint8_t *payload)
{
    struct weights_peer *peer = weights_peer_find(weights, link);
    struct fetch_message message;
    struct error err = {0};
    if (!peer)
        return;
    struct weights_write *memory = memory_of(peer, header, payload);
    enum error_code code =
        memory ? fetch_message_read(memory->memory, header->length, &message, &err)
               : error_set(&err, ERROR_NO_MEMORY, "out of memory for a message about weights");
    if (!code && !weights_is_closing(weights)) {
        weights_peers_hear(peer, &message, memory);
        return;
    }
    weights_memory_give(weights, memory);
    if (weights_is_closing(weights)) {
        weights_close_when_done(weights);
    } else if (code != ERROR_UNSUPPORTED) { /* that is from a newer node */
        log_line(LOG_WARN, "weights", "a link ends: %s", err.text);
        link_abort(link, &err);
    }
}

void weights_up(struct weights *weights, struct link *link)
{
    const struct error why = {ERROR_NO_MEMORY, "out of memory for another peer"};
    if (weights_is_closing(weights))
        return;
    struct weights_peer *peer = mem_new(sizeof *peer);
    if (!peer) {
        link_abort(link, &why);
        return;
    }
    peer->weights = weights;
    peer->link = link;
    memcpy(peer->node_id, link_peer(link), NODE_ID_BYTES);
    peer->next = weights->peers;
    weights->peers = peer;
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next) {
        if (entry->is_wanted || entry->problem.code)
            weights_ask_have(peer, entry);
    }
}

void weights_down(struct weights *weights, struct link *link)
{
    struct weights_peer *peer = weights_peer_find(weights, link);
    if (!peer)
        return;
    for (struct weights_peer **at = &weights->peers; *at; at = &(*at)->next) {
        if (*at == peer) {
            *at = peer->next;
            break;
        }
    }
    weights_serve_down(peer);
    for (struct weights_entry *entry = weights->entries; entry; entry = entry->next) {
        for (struct weights_holder *holder = entry->holders; holder; holder = holder->next) {
            if (holder->peer == peer)
                weights_fetch_away(entry, holder);
        }
        weights_fetch_pump(entry);
    }
    weights_memory_give(weights, peer->receiving);
    buffer_deinit(&peer->outbox);
    mem_free(peer);
    weights_close_when_done(weights);
}

void weights_drained(struct weights *weights, struct link *link, uint32_t channel)
{
    struct weights_peer *peer = weights_peer_find(weights, link);
    if (!peer || channel != weights_channel(link))
        return;
    empty_outbox(peer);
    weights_serve_go_on(weights);
}
