/* Events on their way into the log: proposed again until they are applied, here or by way of the
 * leader. */
#include "sim/world.h"

#include "base/mem.h"

#include <string.h>

void proposal_free(struct proposal **link)
{
    struct proposal *p = *link;
    *link = p->next;
    buffer_deinit(&p->event);
    mem_free(p);
}

/* `key`: of what it says, so that it is not said twice at once; 0: none. */
void log_propose(struct world *w, struct node *node, Cluster__Event *event, uint64_t key,
                 bool client)
{
    struct proposal **end = &node->proposals;
    for (; *end; end = &(*end)->next) {
        if (key && (*end)->key == key)
            return;
    }
    struct proposal *p = mem_new(sizeof *p);
    if (!p) {
        w->out_of_memory = true;
        return;
    }
    *p = (struct proposal){.nonce = world_draw(w, UINT64_MAX - 1) + 1,
                           .key = key,
                           .deadline_ms = w->now_ms + PROPOSAL_MS,
                           .client = client};
    event->has_nonce = event->has_time_ms = true;
    event->nonce = p->nonce;
    event->time_ms = world_wall_ms(w, node);
    event->by = node->id;
    event_encode(event, &p->event);
    w->out_of_memory |= p->event.failed;
    *end = p;
}

static bool submit(struct world *w, struct node *node, uint64_t nonce, const struct buffer *event)
{
    uint64_t index;
    if (nonces_has(&node->nonces, nonce) || !nonces_has_room(&node->nonces) ||
        replica_submit(node->replica, w->now_ms, (const uint8_t *)event->data, event->size, &index,
                       NULL))
        return false;
    nonces_submitted(&node->nonces, nonce);
    return true;
}

static void forward(struct world *w, struct node *node, const struct proposal *p, uint64_t leader)
{
    const struct node *to = world_member(w, leader);
    if (!to || to == node)
        return;
    struct message *message = message_new(MESSAGE_PROPOSE, node, to->index);
    if (message)
        message->bytes = mem_new(p->event.size + 1);
    if (!message || !message->bytes) {
        w->out_of_memory = true;
        mem_free(message);
        return;
    }
    memcpy(message->bytes, p->event.data, p->event.size);
    message->size = p->event.size;
    net_send(w, message);
}

void log_receive_proposal(struct world *w, struct node *node, const struct message *message)
{
    struct foreign **end = &node->foreign;
    if (!node->replica || !replica_status(node->replica).leads)
        return;
    struct foreign *foreign = mem_new(sizeof *foreign);
    if (!foreign) {
        w->out_of_memory = true;
        return;
    }
    buffer_append(&foreign->event, message->bytes, message->size);
    while (*end)
        end = &(*end)->next;
    *end = foreign;
}

void propose_foreign(struct world *w, struct node *node, bool use)
{
    for (struct foreign *foreign; (foreign = node->foreign) != NULL;) {
        Cluster__Event *event = NULL;
        node->foreign = foreign->next;
        if (use &&
            !event_decode((const uint8_t *)foreign->event.data, foreign->event.size, &event, NULL))
            submit(w, node, event->nonce, &foreign->event);
        event_free(event);
        buffer_deinit(&foreign->event);
        mem_free(foreign);
    }
}

void propose_step(struct world *w, struct node *node, const struct replica_status *status)
{
    for (struct proposal **link = &node->proposals; *link;) {
        struct proposal *p = *link;
        if (w->now_ms >= p->deadline_ms) {
            proposal_free(link);
            continue;
        }
        if (w->now_ms >= p->again_ms) {
            p->again_ms = w->now_ms + PROPOSAL_AGAIN_MS;
            if (node->ready)
                submit(w, node, p->nonce, &p->event);
            else if (!status->leads && status->leader)
                forward(w, node, p, status->leader);
        }
        link = &p->next;
    }
    if (node->ready)
        propose_foreign(w, node, true);
}

void propose_applied(struct world *w, struct node *node, uint64_t nonce, uint64_t index)
{
    for (struct proposal **link = &node->proposals; *link && nonce; link = &(*link)->next) {
        if ((*link)->nonce != nonce)
            continue;
        if ((*link)->client)
            check_acknowledged(w, node, index);
        proposal_free(link);
        return;
    }
}
