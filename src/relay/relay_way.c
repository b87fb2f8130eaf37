/* Through which node a request goes, where the driver's is not reached straight: no link leads
 * there, or one that is cut and does not know it yet. */
#include "relay/relay_state.h"

#include <string.h>

static bool reaches(const struct relay *relay, const uint8_t node_id[NODE_ID_BYTES])
{
    const struct relay_options *options = &relay->options;
    return options->reaches ? options->reaches(options->self, node_id)
                            : mesh_find(options->mesh, node_id) != NULL;
}

static bool finds_third(const struct relay *relay, const uint8_t node_id[NODE_ID_BYTES],
                        uint8_t *out)
{
    const struct relay_options *options = &relay->options;
    return options->through && options->through(options->self, node_id, out);
}

struct link *relay_way(struct ask *ask, bool *onward)
{
    const struct relay *relay = ask->instance->relay;
    uint8_t third[NODE_ID_BYTES];
    *onward = !reaches(relay, ask->place.node_id) && !ask->is_guest &&
              finds_third(relay, ask->place.node_id, third);
    return mesh_find(relay->options.mesh, *onward ? third : ask->place.node_id);
}

bool relay_is_deaf(struct ask *ask, uint64_t now_ns)
{
    const struct relay *relay = ask->instance->relay;
    const bool is_heard = reaches(relay, ask->peer->node_id);
    if (is_heard)
        ask->deaf_ns = 0;
    else if (!ask->deaf_ns)
        ask->deaf_ns = now_ns;
    if (is_heard || now_ns - ask->deaf_ns < RELAY_DEAF_MS * UINT64_C(1000000))
        return false;
    return ask->is_guest || reaches(relay, ask->place.node_id) ||
           finds_third(relay, ask->place.node_id, NULL);
}
