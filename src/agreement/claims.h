/* What a member may say, and in whose name. A member was let in, so it is trusted with the
 * cluster's models and its work; but it speaks for itself alone, and what it says has a size.
 * Pure. */
#pragma once

#include "base/error.h"

#include "node.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

/* An event that `sender` (its id) has sent for the log: in its own name, of its own stages, links
 * and record. Where instances are placed, unless somebody asked for it by hand, and when the
 * cluster was founded anew, only the leader says, which needs not send it. */
bool claims_event(const Cluster__Event *event, const char *sender);

/* What it says of itself: such as the state would take. `size` is the message's. ERROR_INVALID. */
enum error_code claims_about(const Cluster__Node *about, size_t size, const char *sender,
                             struct error *err);

/* What it says all the time. ERROR_INVALID: more than one node can have. */
enum error_code claims_now(const Node__Now *now, struct error *err);
