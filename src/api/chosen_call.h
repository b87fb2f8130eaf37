/* Calls that the model chooses to make (tool_choice "auto"): text is free until a mark begins a
 * call, which a grammar then holds to the tools' schemas. A family whose format has no such mark
 * stays free, and so does a request with a schema that cannot be honoured exactly, unless a tool is
 * `strict`: then either is refused. Pure. Private to the api room. */
#pragma once

#include "api/request_json.h"
#include "tools/tool_format.h"

struct constraint;

/* The answer's grammar; *out is NULL where it is free. `thinks`: the prompt has opened the
 * reasoning. False: `err` says which tool it is. */
bool chosen_call_compile(const struct generation_request *request,
                         const struct template_traits *traits, bool thinks, struct constraint **out,
                         struct api_error *err);
