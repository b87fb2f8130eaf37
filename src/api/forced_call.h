/* A call of a tool that is wanted in any case (tool_choice "required", or a tool by name): the
 * prompt's end opens it, and a grammar holds what follows to the tools' schemas. Of one tool the
 * prompt has the name as well, and the grammar is that of its arguments; of several it is that of
 * {"name": …, "arguments": …}. Pure. Private to the api room. */
#pragma once

#include "api/request_json.h"
#include "grammar/grammar.h"
#include "tools/tool_format.h"

#include <yyjson.h>

struct constraint;
struct error;

/* Whether the request wants one. */
bool forced_call_is_wanted(const struct generation_request *request);

/* The grammar of the call. False: a schema cannot be honoured exactly; `err` names it. */
bool forced_call_compile(const struct generation_request *request, struct constraint **out,
                         struct api_error *err);

/* Of a tool, and of a call of it as {"name": …, "arguments": …}; `number` is its place. NULL or
 * incomplete when memory ran out. */
yyjson_mut_val *forced_call_arguments(yyjson_mut_doc *doc, yyjson_val *tool, size_t number);
yyjson_mut_val *forced_call_member(yyjson_mut_doc *doc, yyjson_val *tool, size_t number);
/* The grammar that `root` is the source of; NULL: memory ran out. Frees the document (NULL is
 * fine). */
enum error_code forced_call_grammar(yyjson_mut_doc *doc, const yyjson_mut_val *root,
                                    enum grammar_kind kind, struct constraint **out,
                                    struct error *err);
/* `$schema` of its parameters, or the default. */
const char *forced_call_draft_of(yyjson_val *tool);
/* Which of the tools it is that cannot be honoured; else it is all of them together: `cause`. */
bool forced_call_refuse_one(const struct generation_request *request, struct error *cause,
                            struct api_error *err);

/* Appends what the prompt ends with to `prompt`, and what the reader of the reply gets for it to
 * `opening`. Sets the format of the reply. */
void forced_call_open(const struct generation_request *request, struct template_traits *traits,
                      struct buffer *prompt, struct buffer *opening);
