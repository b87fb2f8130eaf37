/* A chat as its model's template takes it: the messages, and what the template knows of tools and
 * reasoning. Where a template knows no tools they are described in the user's first message, calls
 * and results become texts, and calls are read as the generic format has them; where it shows the
 * calls that were made, as DeepSeek's do, the model is told its family's form
 * (tools/tool_format.h). Runs on the preparer. Private to the api room. */
#pragma once

#include "api/request_json.h"
#include "tools/tool_format.h"

struct api_model;

struct template_traits chat_prompt_traits(const struct api_model *model);
/* Appends the template's input. False: `err` is set, for memory or a field that the template cannot
 * honour. */
bool chat_prompt_write(const struct generation_request *request,
                       const struct template_traits *traits, struct buffer *out,
                       struct api_error *err);
