/* Who asks for a model before this node has heard from its cluster. After its start a node learns
 * from a leader what of its log counts; until then it may lack models that all others know. Such
 * questions wait until it knows, or is LIMIT_EARLY_MS old; then they are asked anew. On the loop's
 * thread. */
#pragma once

#include "base/error.h"

#include <stdbool.h>

struct daemon;
struct daemon_text;
struct early;

struct early *early_new(struct daemon *daemon); /* NULL: no memory */
/* Answers those who wait with `why`. NULL is fine. */
void early_free(struct early *early, const struct error *why);
/* Whether this node may lack what others know. */
bool early_is(const struct daemon *daemon);
/* False: the question does not have to wait, or cannot. Else it is daemon_open_model()'s once more,
 * later. `name` is copied; NULL: none was given. */
bool early_takes(struct early *early, const char *name,
                 void (*opened)(void *arg, struct daemon_text *text, const struct error *err),
                 void *arg);
void early_step(struct early *early); /* another state or leader; or time has passed */
void early_cancel(struct early *early, void *arg);
