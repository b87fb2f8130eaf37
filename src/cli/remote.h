/* A model that answers in the cluster: a generator (request/generator.h) over a connection to this
 * machine's node, which knows where the driver is, and goes on elsewhere when that is lost.
 *
 * Semantics are driver.h's, but for two things: what the driver would refuse in submit comes as
 * `done` with FINISH_ERROR, and a request that is cancelled is over at once, with what is known
 * here of its usage. Callbacks come on a thread of the remote.
 *
 * When the node hangs up in the middle of an answer, it may be started anew: for
 * LIMIT_CONTROL_BACK_MS it is looked for, and is given prompt and tokens so far, so the answer goes
 * on (driver.h, "Replay"). Not requests that ask for rows. Else all requests end with ERROR_IO. */
#pragma once

#include "base/error.h"

#include <yyjson.h>

struct generator;
struct remote;

/* `model`: a name that the cluster knows or an absolute path; it must have been placed
 * (placing_watch.h), or the node does that for the first request. Errors of daemon_client_open(),
 * and the node's. */
enum error_code remote_open(const char *model, struct remote **out, struct error *err);
void remote_close(struct remote *remote); /* cancels what is running; NULL is fine */

struct generator *remote_generator(struct remote *remote);
const char *
remote_where(const struct remote *remote); /* "tower cuda0 layers 0-9, laptop cpu layers 10-15" */
yyjson_val *remote_stages(const struct remote *remote); /* the same, as the node says it */
