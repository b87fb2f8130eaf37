/* The fields of a chat that say which tools there are, how a model shall reason, and those that
 * change no answer. Readers as in json_in.h. Private to the api room. */
#pragma once

#include "api/json_in.h"

bool request_read_tools(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_tool_choice(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_parallel(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_effort(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_template_arguments(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_modalities(struct json_in *in, const char *name, yyjson_val *value);
bool request_read_verbosity(struct json_in *in, const char *name, yyjson_val *value);
bool request_ignore_metadata(struct json_in *in, const char *name, yyjson_val *value);
bool request_ignore_bool(struct json_in *in, const char *name, yyjson_val *value);
bool request_ignore_object(struct json_in *in, const char *name, yyjson_val *value);

/* What these fields must be together. False: `err` is set. */
bool request_check_tools(const struct generation_request *request, struct api_error *err);
