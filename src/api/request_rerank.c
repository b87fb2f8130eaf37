/* The request of /v1/rerank, as Jina and Cohere have it. */
#include "api/json_in.h"
#include "base/mem.h"

static bool rerank_read_model(struct json_in *in, const char *name, yyjson_val *value)
{
    return json_in_text(in, name, value, &((struct rerank_request *)in->out)->model);
}

static bool rerank_read_query(struct json_in *in, const char *name, yyjson_val *value)
{
    return json_in_text(in, name, value, &((struct rerank_request *)in->out)->query);
}

/* A string, or an object with nothing but a "text". */
static bool rerank_read_document(struct json_in *in, const char *name, yyjson_val *value,
                                 struct text *out)
{
    yyjson_val *text = yyjson_is_obj(value) ? yyjson_obj_get(value, "text") : value;
    if (yyjson_is_obj(value) && (!text || yyjson_obj_size(value) != 1))
        return api_error_field(in->err, name,
                               "an element of '%s' must be a string or {\"text\": \"…\"}", name);
    return json_in_text(in, name, text, out);
}

static bool rerank_read_documents(struct json_in *in, const char *name, yyjson_val *value)
{
    struct rerank_request *request = in->out;
    const size_t n = yyjson_arr_size(value);
    if (!yyjson_is_arr(value) || !n || n > LIMIT_PROMPTS)
        return api_error_field(in->err, name, "'%s' must be an array of 1 to %d texts", name,
                               LIMIT_PROMPTS);
    request->documents = mem_new_array(n, sizeof *request->documents);
    if (!request->documents)
        return json_in_no_memory(in);
    request->n_documents = (uint32_t)n;
    size_t i, max;
    yyjson_val *element;
    yyjson_arr_foreach(value, i, max, element)
    {
        if (!rerank_read_document(in, name, element, &request->documents[i]))
            return false;
    }
    return true;
}

static bool rerank_read_top_n(struct json_in *in, const char *name, yyjson_val *value)
{
    struct rerank_request *request = in->out;
    return json_in_u32(in, name, value, 1, UINT32_MAX, &request->top_n);
}

static bool rerank_read_return(struct json_in *in, const char *name, yyjson_val *value)
{
    struct rerank_request *request = in->out;
    return json_in_bool(in, name, value, &request->return_documents);
}

static const struct json_field rerank_fields[] = {
    {"model", rerank_read_model, true, 0},
    {"query", rerank_read_query, true, 0},
    {"documents", rerank_read_documents, true, 0},
    {"top_n", rerank_read_top_n, false, 0},
    {"return_documents", rerank_read_return, false, 0},
    {"user", json_in_ignored_text, false, 0},
    {"rank_fields", json_in_unsupported, false, 0},
    {"max_chunks_per_doc", json_in_unsupported, false, 0},
    {"max_tokens_per_doc", json_in_unsupported, false, 0},
    {0},
};

const struct json_field *rerank_request_fields(void)
{
    return rerank_fields;
}

bool rerank_request_parse(const char *body, size_t size, struct rerank_request *out,
                          struct api_error *err)
{
    *out = (struct rerank_request){0};
    struct json_in in = {.err = err, .out = out};
    if (json_in_object(&in, body, size, rerank_fields, 0, &out->doc))
        return true;
    rerank_request_deinit(out);
    return false;
}

void rerank_request_deinit(struct rerank_request *request)
{
    mem_free(request->documents);
    yyjson_doc_free(request->doc);
    *request = (struct rerank_request){0};
}
