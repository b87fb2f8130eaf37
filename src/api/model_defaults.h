/* What a model's requests begin with where they do not say otherwise (library/defaults.h). Pure.
 * Private to the api room. */
#pragma once

#include "base/buffer.h"

struct generation_request;

/* Every field of `json` that the request did not give; what it gave, null excepted, is its own. A
 * system message is for chats that have none (chat_prompt.h). A field that no request may have, or
 * not with this value, is left out. `json` NULL: there are none. False: no memory. */
bool model_defaults_apply(struct generation_request *request, const char *json);

/* As /api/show tells them: lines of Ollama's parameters, and the system message. */
void model_defaults_show(const char *json, struct buffer *parameters, struct buffer *system);
