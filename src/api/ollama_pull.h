/* Ollama's /api/pull: `medley pull` in a process of its own, whose progress goes on to the client,
 * and then the cluster is told of the model. On the loop's thread.
 *
 * Names are Ollama's ("llama3.2:1b"), and "hf.co/ORG/REPO:QUANT" of Hugging Face's hub; addresses
 * are not taken, so that a client cannot make the node ask other machines. Who may: a token with
 * the scope models that is not bound. When the client leaves, the process ends; what has come
 * stays, and the next pull goes on from there. */
#pragma once

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>

struct api_server;
struct exchange;

enum { OLLAMA_PULLS_MAX = 4, OLLAMA_PULL_NAME_MAX = 256 };

void ollama_pull_handle(struct exchange *exchange);
void ollama_pull_end_all(struct api_server *server); /* while the server stops */

/* Ollama's name as `medley pull` takes it. False: it is none. Pure. */
bool ollama_pull_name(const char *text, size_t size, char out[OLLAMA_PULL_NAME_MAX]);
/* A line of `medley pull --json` as Ollama writes it, into `out` (nothing: it says nothing new);
 * true: it was the last, and `path` is the file. Pure. */
bool ollama_pull_line(const char *line, size_t size, struct buffer *out, char *path,
                      size_t path_size);
