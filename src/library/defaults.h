/* What a model's maker wants of requests that do not say otherwise: of a model of Ollama's its
 * parameters and its system message, from Ollama's own store, or from FILE.params and FILE.system,
 * where `medley pull` puts them. Threads: any; it reads files, so not on a loop's thread.
 *
 * The result is an object of the API's fields ("temperature", "top_p", "stop", "max_tokens", …),
 * with "system" beside them, and "num_ctx", which no request has: where nobody gives a context, it
 * is the one that is tried first. Requests begin with the others (api/model_defaults.h). Source:
 * Ollama's Modelfile reference, "Valid Parameters and Values". */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdint.h>

enum { LIBRARY_UNUSED = 200 };

struct library_defaults {
    struct buffer json;          /* ends with a zero; empty: there are none */
    char unused[LIBRARY_UNUSED]; /* names of parameters that Medley does not have, or why there are
                                    no defaults; empty: none */
};

/* ERROR_NO_MEMORY alone: what cannot be read or makes no sense is as if it were not there. A file
 * that several of Ollama's names share with different values has none. */
enum error_code library_defaults_read(const char *path, struct library_defaults *out,
                                      struct error *err);
void library_defaults_deinit(struct library_defaults *defaults);

/* Pure: the texts of those two layers; NULL: there is no such layer. Appended to out->json; nothing
 * where neither says anything. */
enum error_code library_defaults_make(const struct buffer *params, const struct buffer *system,
                                      struct library_defaults *out, struct error *err);

/* Of such an object; NULL: there is none. num_ctx: 0: not said, or no length of a context. */
uint32_t library_defaults_context(const char *json);
/* "temperature 0.6, stop "<a>" "<b>", system "Be kind."": appended, a long message cut short.
 * Nothing where there is none. */
void library_defaults_say(const char *json, struct buffer *out);
