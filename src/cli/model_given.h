/* What a command was given as MODEL: a path or a name that `medley models` shows
 * (library/resolve.h), or the name of a model that is somewhere else (hub/hub_name.h), which is
 * pulled where it is not here yet. */
#pragma once

#include "cli/pull_bar.h"
#include "hub/hub.h"

#include <limits.h>

/* The absolute path of a file, or of a folder where the word is one. A model that was pulled before
 * is found without the network. Says on stderr what it pulls. */
enum error_code model_given(const char *word, char out[PATH_MAX], struct error *err);

/* The same, always asking the hub, with what it does in *got. json: progress on stdout. */
enum error_code model_given_pull(const struct hub_name *name, const struct hub_settings *settings,
                                 bool json, char out[PATH_MAX], struct hub_got *got,
                                 struct error *err);

/* For commands that read no weights: of a model that is not here yet the headers alone, which say
 * what it is. Says on stderr how large it is, and how long it would take to pull as fast as its
 * headers came. path: of a file that is good until the end. */
struct model_header {
    char path[PATH_MAX];
    struct hub_headers headers; /* closed: all of the model is here */
};
enum error_code model_header_open(const char *word, struct model_header *out, struct error *err);
void model_header_close(struct model_header *header); /* a zeroed one is fine */
