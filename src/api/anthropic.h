/* Anthropic's Messages over the one generator: /v1/messages and /v1/messages/count_tokens.
 * Private to the api room. */
#pragma once

#include "api/dialect.h"

/* Pure: the body as a chat's. */
bool anthropic_read(struct completion *completion, const char *body, size_t size,
                    struct buffer *out, struct api_error *err);
bool anthropic_read_count(struct completion *completion, const char *body, size_t size,
                          struct buffer *out, struct api_error *err);
