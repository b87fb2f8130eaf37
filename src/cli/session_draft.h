/* A session's draft model (--draft): opened and checked, placed, and said. */
#pragma once

#include "cli/session.h"
#include "plan/selection.h"

/* Once the model is open. ERROR_INVALID, ERROR_UNSUPPORTED: it cannot draft for that. */
enum error_code session_open_draft(struct session *session, const struct session_flags *flags,
                                   struct error *err);
/* Before the model is placed, for what it takes of the devices' memory is gone then. */
enum error_code session_plan_draft(struct session *session, const struct session_flags *flags,
                                   const struct selection *selection, struct error *err);
/* What the driver is to open beside the model; points into the session. May lower the driver's
 * sequences to those that were asked for. */
struct driver_draft session_draft(const struct session *session, const struct session_flags *flags,
                                  struct driver_options *driver);
/* Where it will guess nothing, a line of the log says why. */
void session_say_draft(const struct session *session);
void session_describe_draft(const struct session *session, struct buffer *out);
