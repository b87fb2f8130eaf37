/* What a member may say, and in whose name. A member was let in, so it is trusted with the
 * cluster's models and its work; but it speaks for itself alone, and what it says has a size.
 * Pure. */
#pragma once

#include "base/error.h"
#include "cluster/state.h"

#include "node.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* An event that `sender` (its id) has sent for the log: in its own name, of its own stages, links
 * and record. Where instances are placed, unless somebody asked for it by hand, and when the
 * cluster was founded anew, only the leader says, which needs not send it. */
bool claims_event(const Cluster__Event *event, const char *sender);

/* The member id, as far as it is `sender`'s: else 0. It is not where the state has it as another
 * node's; nor where nobody has it, the sender is known by another, and the list of members has it
 * still (`agreed`, replica_has_agreed_on()). That was the id of a node which lost its disk, or was
 * removed, and whose vote may count for a moment more. An id of which nothing is known is
 * believed: a node that lost its disk has one. */
uint64_t claims_member(const struct state *state, const char *sender, uint64_t member, bool agreed);

/* What it says of itself: such as the state would take. `size` is the message's. ERROR_INVALID. */
enum error_code claims_about(const Cluster__Node *about, size_t size, const char *sender,
                             struct error *err);

/* What it says all the time. ERROR_INVALID: more than one node can have. */
enum error_code claims_now(const Node__Now *now, struct error *err);
