/* Fields that say what an answer must be: response_format, guided_* and grammar. At most one. Their
 * content is compiled later (completion_prepare.c). Pure. */
#pragma once

#include "api/json_in.h"

bool request_read_response_format(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_grammar(struct json_in *in, const char *name, yyjson_val *value);
