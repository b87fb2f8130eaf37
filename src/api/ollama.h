/* Ollama's interface over the one generator: /api/chat and /api/generate, and what it tells of
 * models. Private to the api room. */
#pragma once

#include "api/dialect.h"

/* Pure: the body as a chat's, or for a raw prompt as a text completion's. */
bool ollama_read_chat(struct completion *completion, const char *body, size_t size,
                      struct buffer *out, struct api_error *err);
bool ollama_read_generate(struct completion *completion, const char *body, size_t size,
                          struct buffer *out, struct api_error *err);

/* "model" of a request, which "name:latest" is another name of. */
bool ollama_write_model(struct yyjson_val *root, struct buffer *out, struct api_error *err);

enum { OLLAMA_TIME_BYTES = 40 };
/* RFC 3339, as Ollama's clients read times. */
void ollama_time(uint64_t seconds, char out[OLLAMA_TIME_BYTES]);
