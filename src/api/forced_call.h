/* A call of a tool that is wanted in any case (tool_choice "required", or a tool by name): the
 * prompt's end opens it, and a grammar holds what follows to the tools' schemas. Of one tool the
 * prompt has the name as well, and the grammar is that of its arguments; of several it is that of
 * {"name": …, "arguments": …}. Pure. Private to the api room. */
#pragma once

#include "api/request_json.h"
#include "tools/tool_format.h"

struct constraint;

/* Whether the request wants one. */
bool forced_call_is_wanted(const struct generation_request *request);

/* The grammar of the call. False: a schema cannot be honoured exactly; `err` names it. */
bool forced_call_compile(const struct generation_request *request, struct constraint **out,
                         struct api_error *err);

/* Appends what the prompt ends with to `prompt`, and what the reader of the reply gets for it to
 * `opening`. Sets the format of the reply. */
void forced_call_open(const struct generation_request *request, struct template_traits *traits,
                      struct buffer *prompt, struct buffer *opening);
