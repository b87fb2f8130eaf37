/* Who is who where there are roles: real keys, and ids that are their hashes. Those are drawn so
 * that the first byte of an id is the node's index (world_index()), as others are named n0, n1 … */
#include "sim/world.h"

#include <assert.h>
#include <string.h>

enum error_code keys_make(struct node *node, struct error *err)
{
    /* The first number, from 0 on, that makes the hash begin so. */
    static const uint16_t drawn[SCENARIO_ROLES_NODES] = {703, 699, 166, 234, 47, 118, 337, 78,
                                                         76,  133, 21,  11,  33, 118, 68,  1347};
    uint8_t seed[32] = "medley sim: a simulated node";
    assert(node->index < SCENARIO_ROLES_NODES);
    seed[29] = (uint8_t)node->index;
    seed[30] = (uint8_t)drawn[node->index];
    seed[31] = (uint8_t)(drawn[node->index] >> 8);
    const enum error_code code = identity_of_seed(seed, &node->identity, err);
    if (code)
        return code;
    assert(node->identity.node_id[0] == node->index);
    id_text(node->identity.node_id, NODE_ID_BYTES, node->id);
    return ERROR_NONE;
}
