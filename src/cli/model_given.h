/* What a command was given as MODEL: a path or a name that `medley models` shows
 * (library/resolve.h), or the name of a model that is somewhere else (hub/hub_name.h), which is
 * pulled where it is not here yet. */
#pragma once

#include "cli/pull_bar.h"
#include "hub/hub.h"

#include <limits.h>

/* The absolute path of a file, or of a folder where the word is one. A model that was pulled before is found
 * without the network. Says on stderr what it pulls. */
enum error_code model_given(const char *word, char out[PATH_MAX], struct error *err);

/* The same, always asking the hub, with what it does in *got. json: progress on stdout. */
enum error_code model_given_pull(const struct hub_name *name, const struct hub_settings *settings,
                                 bool json, char out[PATH_MAX], struct hub_got *got,
                                 struct error *err);
