/* The projector of a session's model: given, or found beside its file; private to session.c and the
 * commands that show pictures. */
#pragma once

#include "cli/session.h"
#include "picture/sight.h"

/* Before the model is planned, so that what the encoder takes of a device is not there any more.
 * Says in one line on stderr what it found. Nothing where the command takes no pictures. */
enum error_code session_open_sight(struct session *session, const char *model_path,
                                   const struct session_flags *flags, struct error *err);
