/* What this node is at, for those who look: what it fetches and how fast, what its drivers do. On
 * the loop's thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "node.pb-c.h"

struct daemon;

/* An encoded Node__Work. Rates are of the time since the last call. */
void working_gather(struct daemon *daemon, struct buffer *out);

/* Of another node. NULL is fine. ERROR_INVALID: more than a node can be at. */
enum error_code working_check(const Node__Work *work, struct error *err);
