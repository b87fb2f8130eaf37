/* Two nodes, one link: what becomes of a connection that a peer dialled while there is a link to
 * it, or this node is dialling it. Pure.
 *
 *   A link is there
 *     the peer's process is another than the link's      it has restarted: the new one replaces the
 *                                                        old
 *     the link is being closed in order                  refused: what was sent before must be read
 *                                                        first
 *     the peer dialled the link, too                     it has lost it: replaced
 *     this node dialled it, and has the higher id        the peer would not dial if it had it:
 *                                                        replaced
 *     this node dialled it, and has the lower id         either the two crossed, then the link is
 *                                                        good; or the peer has lost it: refused,
 *                                                        and the link must prove that it lives
 *   None is there
 *     this node has sent its hello, and has the lower id refused: ours wins, and the peer has our
 *     hello
 *     else                                               accepted, and our dial is given up
 *
 * Both ends choose the same, because only who accepts decides: the lower node refuses only when the
 * higher will find (or has found) the lower one's hello, which the higher always accepts. */
#pragma once

#include <stdbool.h>

enum resolution { RESOLVE_ACCEPT, RESOLVE_REPLACE, RESOLVE_REFUSE };

struct resolve_state {
    bool has_link;
    bool link_is_ours; /* this node dialled it */
    bool link_closes;  /* in order */
    bool same_boot;    /* its peer is the process that dials now */
    bool dial_greeted; /* this node's own dial to the peer has sent its hello and waits for the
                          answer */
    bool we_are_lower; /* by node id */
};

enum resolution resolve_incoming(struct resolve_state state);
