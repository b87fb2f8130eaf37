/* Reading JSON objects by a table of fields. Private to the api room. */
#pragma once

#include "api/errors.h"
#include "api/request_json.h"

#include <yyjson.h>

/* What a field's reader gets. `out` is the request that is being filled. */
struct json_in {
    struct api_error *err;
    void *out;
};

/* Reads one field that is there and not null. False: the error is set. */
typedef bool (*json_field_fn)(struct json_in *in, const char *name, yyjson_val *value);

struct json_field {
    const char *name;
    json_field_fn read;
    bool required;
    unsigned kinds; /* bit of each generation_kind that has it; 0: all */
};

/* The tables of the requests, for the test that compares them with the document (openapi.h). */
const struct json_field *generation_request_fields(void);
const struct json_field *embeddings_request_fields(void);
const struct json_field *tokenize_request_fields(void);
const struct json_field *detokenize_request_fields(void);
const struct json_field *rerank_request_fields(void);
const struct json_field *batch_request_fields(void);

/* Parses the body, which must be one JSON object, and reads every field of it by the table (at most
 * 64 rows, ended by one without a name). On failure the document is freed and *doc is NULL. */
bool json_in_object(struct json_in *in, const char *body, size_t size,
                    const struct json_field *fields, unsigned kind, yyjson_doc **doc);

/* Single values; the error names the field. */
bool json_in_bool(struct json_in *in, const char *name, yyjson_val *value, bool *out);
bool json_in_text(struct json_in *in, const char *name, yyjson_val *value, struct text *out);
bool json_in_float(struct json_in *in, const char *name, yyjson_val *value, double low, double high,
                   float *out);
bool json_in_u32(struct json_in *in, const char *name, yyjson_val *value, uint32_t low,
                 uint32_t high, uint32_t *out);
bool json_in_tokens(struct json_in *in, const char *name, yyjson_val *array, int32_t **out,
                    uint32_t *count);
/* A string, an array of strings, an array of token ids or an array of such arrays. */
bool json_in_prompts(struct json_in *in, const char *name, yyjson_val *value,
                     struct prompt_input **out, uint32_t *count);
void prompt_inputs_free(struct prompt_input *inputs, uint32_t count);

/* Readers for fields that Medley knows and does not have. */
bool json_in_unsupported(struct json_in *in, const char *name, yyjson_val *value);
bool json_in_ignored_text(struct json_in *in, const char *name,
                          yyjson_val *value); /* `user`: checked, of no effect */

bool json_in_no_memory(struct json_in *in);
