/* The requests of /v1/embeddings, /tokenize and /detokenize. */
#include "api/json_in.h"
#include "base/mem.h"

static bool read_embeddings_model(struct json_in *in, const char *name, yyjson_val *value)
{
    struct embeddings_request *request = in->out;
    return json_in_text(in, name, value, &request->model);
}

static bool request_small_read_input(struct json_in *in, const char *name, yyjson_val *value)
{
    struct embeddings_request *request = in->out;
    return json_in_prompts(in, name, value, &request->inputs, &request->n_inputs);
}

static bool read_encoding_format(struct json_in *in, const char *name, yyjson_val *value)
{
    struct embeddings_request *request = in->out;
    request->base64 = yyjson_equals_str(value, "base64");
    if (!request->base64 && !yyjson_equals_str(value, "float"))
        return api_error_field(in->err, name, "'encoding_format' must be \"float\" or \"base64\"");
    return true;
}

static bool read_dimensions(struct json_in *in, const char *name, yyjson_val *value)
{
    struct embeddings_request *request = in->out;
    return json_in_u32(in, name, value, 1, UINT32_MAX, &request->dimensions);
}

static const struct json_field embeddings_fields[] = {
    {"model", read_embeddings_model, true, 0},
    {"input", request_small_read_input, true, 0},
    {"encoding_format", read_encoding_format, false, 0},
    {"user", json_in_ignored_text, false, 0},
    {"dimensions", read_dimensions, false, 0},
    {0},
};

const struct json_field *embeddings_request_fields(void)
{
    return embeddings_fields;
}

bool embeddings_request_parse(const char *body, size_t size, struct embeddings_request *out,
                              struct api_error *err)
{
    *out = (struct embeddings_request){0};
    struct json_in in = {.err = err, .out = out};
    if (json_in_object(&in, body, size, embeddings_fields, 0, &out->doc))
        return true;
    embeddings_request_deinit(out);
    return false;
}

void embeddings_request_deinit(struct embeddings_request *request)
{
    prompt_inputs_free(request->inputs, request->n_inputs);
    yyjson_doc_free(request->doc);
    *request = (struct embeddings_request){0};
}

static bool read_tokenize_model(struct json_in *in, const char *name, yyjson_val *value)
{
    struct tokenize_request *request = in->out;
    return json_in_text(in, name, value, &request->model);
}

static bool read_content(struct json_in *in, const char *name, yyjson_val *value)
{
    struct tokenize_request *request = in->out;
    return json_in_text(in, name, value, &request->content);
}

static bool read_add_special(struct json_in *in, const char *name, yyjson_val *value)
{
    struct tokenize_request *request = in->out;
    return json_in_bool(in, name, value, &request->add_special);
}

static bool read_parse_special(struct json_in *in, const char *name, yyjson_val *value)
{
    struct tokenize_request *request = in->out;
    return json_in_bool(in, name, value, &request->parse_special);
}

static const struct json_field tokenize_fields[] = {
    {"model", read_tokenize_model, false, 0},
    {"content", read_content, true, 0},
    {"add_special", read_add_special, false, 0},
    {"parse_special", read_parse_special, false, 0},
    {0},
};

const struct json_field *tokenize_request_fields(void)
{
    return tokenize_fields;
}

bool tokenize_request_parse(const char *body, size_t size, struct tokenize_request *out,
                            struct api_error *err)
{
    *out = (struct tokenize_request){.parse_special = true};
    struct json_in in = {.err = err, .out = out};
    if (json_in_object(&in, body, size, tokenize_fields, 0, &out->doc))
        return true;
    tokenize_request_deinit(out);
    return false;
}

void tokenize_request_deinit(struct tokenize_request *request)
{
    yyjson_doc_free(request->doc);
    *request = (struct tokenize_request){0};
}

static bool read_detokenize_model(struct json_in *in, const char *name, yyjson_val *value)
{
    struct detokenize_request *request = in->out;
    return json_in_text(in, name, value, &request->model);
}

static bool request_small_read_tokens(struct json_in *in, const char *name, yyjson_val *value)
{
    struct detokenize_request *request = in->out;
    return json_in_tokens(in, name, value, &request->tokens, &request->n_tokens);
}

static const struct json_field detokenize_fields[] = {
    {"model", read_detokenize_model, false, 0},
    {"tokens", request_small_read_tokens, true, 0},
    {0},
};

const struct json_field *detokenize_request_fields(void)
{
    return detokenize_fields;
}

bool detokenize_request_parse(const char *body, size_t size, struct detokenize_request *out,
                              struct api_error *err)
{
    *out = (struct detokenize_request){0};
    struct json_in in = {.err = err, .out = out};
    if (json_in_object(&in, body, size, detokenize_fields, 0, &out->doc))
        return true;
    detokenize_request_deinit(out);
    return false;
}

void detokenize_request_deinit(struct detokenize_request *request)
{
    mem_free(request->tokens);
    yyjson_doc_free(request->doc);
    *request = (struct detokenize_request){0};
}
