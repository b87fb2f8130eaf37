/* Through which node a request goes, where the driver's is not reached straight: no link leads
 * there, or one that is cut and does not know it yet. */
#include "relay/relay_state.h"

#include <assert.h>
#include <string.h>

static bool relay_reaches(const struct relay_core *core, const uint8_t node_id[NODE_ID_BYTES])
{
    return core->options.reaches(core->options.self, node_id);
}

static bool relay_finds_third(const struct relay_core *core, const uint8_t node_id[NODE_ID_BYTES],
                              uint8_t *out)
{
    return core->options.through(core->options.self, node_id, out);
}

/* A guest is not handed on a second time: two nodes that each believe that the other reaches the
 * driver would pass it to and fro for ever. */
static bool relay_may_hand_on(const struct relay_ask *ask)
{
    return !ask->is_guest || ask->instance->core->options.bug == RELAY_BUG_HANDS_ON_TWICE;
}

void *relay_way(const struct relay_ask *ask, uint8_t node_id[NODE_ID_BYTES], bool *onward)
{
    const struct relay_core *core = ask->instance->core;
    assert(!ask->place.driver);
    *onward = !relay_reaches(core, ask->place.node_id) && relay_may_hand_on(ask) &&
              relay_finds_third(core, ask->place.node_id, node_id);
    if (!*onward)
        memcpy(node_id, ask->place.node_id, NODE_ID_BYTES);
    return core->options.link_to(core->options.self, node_id);
}

bool relay_is_deaf(struct relay_ask *ask, uint64_t now_ns)
{
    const struct relay_core *core = ask->instance->core;
    assert(ask->state == ASK_THERE && ask->peer);
    const bool is_heard = relay_reaches(core, ask->peer->node_id);
    if (is_heard)
        ask->deaf_ns = 0;
    else if (!ask->deaf_ns)
        ask->deaf_ns = now_ns;
    if (is_heard || now_ns - ask->deaf_ns < RELAY_DEAF_MS * UINT64_C(1000000))
        return false;
    return ask->is_guest || relay_reaches(core, ask->place.node_id) ||
           relay_finds_third(core, ask->place.node_id, NULL);
}
