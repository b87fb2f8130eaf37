/* Who may reach a node that this one does not hear. */
#include "node/daemon_state.h"

#include <string.h>

static const struct peer *daemon_way_find(const struct daemon *daemon,
                                          const uint8_t node_id[NODE_ID_BYTES])
{
    const struct peer *peer = daemon->peers;
    while (peer && memcmp(peer->node_id, node_id, NODE_ID_BYTES) != 0)
        peer = peer->next;
    return peer;
}

/* A link that broke for a moment is back before another way is worth it. */
static bool is_missed_for_long(const struct daemon *daemon, const struct peer *peer)
{
    const uint64_t since_ms = !peer ? 0 : peer->link ? peer->silent_ms : peer->down_ms;
    return daemon_now_ms(daemon) - since_ms >= THROUGH_MS;
}

/* As far as it has told: who has lost the node a moment ago refuses what is to be handed on. */
static bool may_reach(const struct daemon *daemon, const struct peer *third, const char *id)
{
    const Cluster__NodeRecord *record = state_node(daemon_state(daemon), third->id);
    if (!third->link || third->is_silent || !record || !record->admitted ||
        strcmp(third->id, id) == 0)
        return false;
    for (size_t i = 0; third->now && i < third->now->n_unreached; i++) {
        if (strcmp(third->now->unreached[i], id) == 0)
            return false;
    }
    return true;
}

/* Each time the next of them, so that one that is of no use does not stand in the way of the
 * others. */
bool daemon_through(void *self, const uint8_t node_id[NODE_ID_BYTES], uint8_t *out)
{
    struct daemon *daemon = self;
    char id[NODE_ID_TEXT];
    uint32_t n = 0, at = 0;
    id_text(node_id, NODE_ID_BYTES, id);
    if (!is_missed_for_long(daemon, daemon_way_find(daemon, node_id)))
        return false;
    for (const struct peer *peer = daemon->peers; peer; peer = peer->next)
        n += may_reach(daemon, peer, id);
    const uint32_t chosen = n && out ? daemon->n_through++ % n : 0;
    for (const struct peer *peer = daemon->peers; peer && out; peer = peer->next) {
        if (may_reach(daemon, peer, id) && at++ == chosen)
            memcpy(out, peer->node_id, NODE_ID_BYTES);
    }
    return n > 0;
}
