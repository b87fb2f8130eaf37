#include "mesh/resolve.h"

enum resolution resolve_incoming(struct resolve_state state)
{
    if (state.has_link) {
        if (state.same_boot && state.link_closes)
            return RESOLVE_REFUSE;
        if (!state.same_boot || !state.link_is_ours || !state.we_are_lower)
            return RESOLVE_REPLACE;
        return RESOLVE_REFUSE;
    }
    return state.dial_greeted && state.we_are_lower ? RESOLVE_REFUSE : RESOLVE_ACCEPT;
}
