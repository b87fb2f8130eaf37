/* The interface of llama.cpp's own server over the one generator. Private to the api room. */
#pragma once

#include "api/dialect.h"

/* Pure: the body of /completion, and of /infill, as a text completion's. */
bool llama_read(struct completion *completion, const char *body, size_t size, struct buffer *out,
                struct api_error *err);
bool llama_read_infill(struct completion *completion, const char *body, size_t size,
                       struct buffer *out, struct api_error *err);
