/* Frames of the mesh (mesh/frames.h) between simulated nodes: parts of the product that speak to
 * their peers in bytes run here as they are, and this is where their bytes leave and arrive. */
#include "sim/world.h"

#include "base/mem.h"

#include <assert.h>
#include <string.h>

bool frame_send(struct world *w, const struct node *node, uint32_t to, enum node_frame type,
                const void *bytes, size_t size)
{
    assert(to < w->n && (bytes || !size));
    struct message *message = message_new(MESSAGE_FRAME, node, to);
    if (message) {
        message->frame = type;
        message->size = size;
        message->bytes = mem_new(size + 1);
    }
    if (!message || !message->bytes) {
        w->out_of_memory = true;
        message_free_one(message);
        return false;
    }
    if (size)
        memcpy(message->bytes, bytes, size);
    return net_send_link(w, message);
}

void frame_receive(struct world *w, struct node *node, const struct message *message)
{
    assert(message->kind == MESSAGE_FRAME && message->to == node->index && node->up);
    switch (message->frame) {
    case FRAME_CACHE:
        kept_receive(w, node, message);
        break;
    case FRAME_REQUEST:
        seat_receive(w, node, message);
        break;
    case FRAME_RAFT:
    case FRAME_ABOUT:
    case FRAME_PROPOSE:
    case FRAME_NOW:
    case FRAME_SIGN:
    case FRAME_SIGNED:
    case FRAME_VITALS:
    case FRAME_WATCH:
    case FRAME_HISTORY_ASK:
    case FRAME_HISTORY:
    case FRAME_GATHER:
    case FRAME_GATHERED:
    case FRAME_HALT:
    case FRAME_PIPELINE:
    case FRAME_WEIGHTS:
        assert(false); /* nobody sends one yet */
        break;
    }
}
