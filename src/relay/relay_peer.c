/* Links, and what waits to go out through them. */
#include "base/mem.h"
#include "relay/relay_state.h"

#include <assert.h>
#include <string.h>

struct relay_peer *relay_peer_find(struct relay_core *core, const void *link)
{
    struct relay_peer *peer = core->peers;
    while (peer && peer->link != link)
        peer = peer->next;
    return peer;
}

struct relay_peer *relay_peer_make(struct relay_core *core, void *link,
                                   const uint8_t node_id[NODE_ID_BYTES])
{
    assert(link);
    struct relay_peer *peer = relay_peer_find(core, link);
    if (peer)
        return peer;
    peer = mem_new(sizeof *peer);
    if (!peer)
        return NULL;
    peer->core = core;
    peer->link = link;
    peer->last_tokens = SIZE_MAX;
    memcpy(peer->node_id, node_id, NODE_ID_BYTES);
    peer->next = core->peers;
    core->peers = peer;
    return peer;
}

static void relay_peer_free(struct relay_peer *peer)
{
    assert(!peer->n_served == !peer->served);
    while (peer->served)
        relay_serve_free(peer->served);
    buffer_deinit(&peer->run);
    buffer_deinit(&peer->sending);
    mem_free(peer);
}

void relay_peers_free(struct relay_core *core)
{
    while (core->peers) {
        struct relay_peer *peer = core->peers;
        core->peers = peer->next;
        relay_peer_free(peer);
    }
}

/* ---- what waits for a link ------------------------------------------------------------------ */

bool relay_peer_has_room(struct relay_peer *peer, enum message_weight weight)
{
    uint64_t limit = peer->core->options.queue_bytes;
    limit += weight == MESSAGE_ROW ? 0 : weight == MESSAGE_TOKEN ? limit / 4 : limit / 2;
    if (peer->run.size < limit)
        return true;
    if (weight == MESSAGE_CONTROL)
        peer->is_broken = peer->core->writes = true;
    return false;
}

bool relay_peer_wrote(struct relay_peer *peer, size_t before, enum message_weight weight)
{
    assert(peer->link && before <= peer->run.size);
    peer->core->writes = true;
    if (!peer->run.failed)
        return true;
    peer->run.failed = false;
    peer->run.size = before;
    if (weight == MESSAGE_CONTROL)
        peer->is_broken = true;
    return false;
}

void relay_peer_send_cancel(struct relay_peer *peer, uint64_t id)
{
    const size_t before = peer->run.size;
    if (!peer->link || !relay_peer_has_room(peer, MESSAGE_CONTROL))
        return;
    request_write_cancel(id, &peer->run);
    relay_peer_wrote(peer, before, MESSAGE_CONTROL);
}

static bool relay_peer_abort(struct relay_peer *peer, struct relay_effect *out)
{
    peer->is_broken = false;
    if (!peer->link)
        return false;
    *out = (struct relay_effect){.type = RELAY_ABORT, .link = peer->link};
    error_set(&out->error, ERROR_BUSY, "it does not read the messages about its requests");
    return true;
}

/* What a link did not take is sent before what came after it. */
static bool relay_peer_send(struct relay_peer *peer, struct relay_effect *out)
{
    if (!peer->link || peer->is_stuck || (!peer->sending.size && !peer->run.size))
        return false;
    if (!peer->sending.size) {
        const struct buffer empty = peer->sending;
        peer->sending = peer->run;
        peer->run = empty;
        peer->last_tokens = SIZE_MAX;
    }
    assert(peer->sending.size && !peer->sending.failed);
    *out = (struct relay_effect){
        .type = RELAY_SEND, .link = peer->link, .peer = peer, .run = &peer->sending};
    return true;
}

bool relay_peer_next(struct relay_core *core, struct relay_effect *out)
{
    if (!core->writes)
        return false;
    for (struct relay_peer **at = &core->peers; *at;) {
        struct relay_peer *peer = *at;
        if (!peer->link && !peer->n_served) {
            *at = peer->next;
            relay_peer_free(peer);
            continue;
        }
        if (peer->is_broken ? relay_peer_abort(peer, out) : relay_peer_send(peer, out))
            return true;
        at = &peer->next;
    }
    core->writes = false;
    return false;
}

void relay_core_sent(struct relay_core *core, struct relay_peer *peer, enum error_code code)
{
    assert(peer->core == core && !peer->is_stuck);
    if (code == ERROR_BUSY && peer->sending.size) {
        peer->is_stuck = true;
        return;
    }
    buffer_clear(&peer->sending);
}

bool relay_peer_is_stuck(const struct relay_core *core)
{
    const struct relay_peer *peer = core->peers;
    while (peer && !(peer->link && peer->is_stuck))
        peer = peer->next;
    return peer;
}
