/* Vectors as Ollama's clients ask for them: /api/embed of one text or several, and /api/embeddings,
 * which is older, of one. Both over what /v1/embeddings is. */
#include "api/embeddings.h"
#include "api/json_in.h"
#include "api/json_out.h"
#include "api/ollama.h"
#include "base/clock.h"
#include "base/mem.h"

#include <inttypes.h>

/* A translator to the request of /v1/embeddings; `input` is what the texts' member is called. */
static bool ollama_embed_translate(yyjson_val *root, const char *input, const char *const *known,
                                   struct buffer *out, struct api_error *err)
{
    static const struct dialect_field types[] = {
        {"truncate", DIALECT_FLAG}, {"options", DIALECT_OBJECT}, {"prompt", DIALECT_TEXT}, {0}};
    yyjson_val *texts = yyjson_obj_get(root, input);
    if (!dialect_check(root, "", known, err) || !dialect_check_types(root, "", types, err) ||
        !ollama_write_model(root, out, err))
        return false;
    if (!texts || yyjson_is_null(texts))
        return api_error_field(err, input, "you must provide '%s'", input);
    if (yyjson_is_arr(texts) && yyjson_arr_size(texts) &&
        !yyjson_is_str(yyjson_arr_get_first(texts)))
        return api_error_field(err, input, "'%s' must be a string or an array of strings", input);
    dialect_copy(out, "input", texts);
    dialect_copy(out, "dimensions", yyjson_obj_get(root, "dimensions"));
    return true;
}

static bool ollama_embed_read(struct embeddings_job *job, const char *body, size_t size,
                              const char *input, const char *const *known)
{
    struct buffer translated = {0};
    struct api_error *err = &job->work.err;
    yyjson_doc *doc = dialect_open(body, size, err);
    buffer_text(&translated, "{");
    bool ok =
        doc && ollama_embed_translate(yyjson_doc_get_root(doc), input, known, &translated, err);
    buffer_text(&translated, "}");
    yyjson_doc_free(doc);
    if (ok && translated.failed)
        ok = api_error_set(err, 503, "server_error", "no_memory",
                           "not enough memory for the request");
    ok = ok && embeddings_request_parse(translated.data, translated.size, &job->request, err) &&
         embeddings_take_request(job);
    buffer_deinit(&translated);
    return ok;
}

static bool ollama_embed_parse(struct embeddings_job *job, const char *body, size_t size)
{
    static const char *const known[] = {"model",   "name",       "input",      "truncate",
                                        "options", "keep_alive", "dimensions", NULL};
    return ollama_embed_read(job, body, size, "input", known);
}

static bool ollama_embeddings_parse(struct embeddings_job *job, const char *body, size_t size)
{
    static const char *const known[] = {"model", "name", "prompt", "options", "keep_alive", NULL};
    return ollama_embed_read(job, body, size, "prompt", known);
}

static void ollama_embed_write_vector(const float *vector, uint32_t n_values, struct buffer *out)
{
    for (uint32_t i = 0; i < n_values; i++) {
        buffer_text(out, i ? "," : "[");
        json_out_float(out, vector[i]);
    }
    buffer_text(out, "]");
}

static void ollama_embed_write(struct embeddings_job *job)
{
    struct buffer *out = &job->answer;
    uint32_t n_values;
    float *vectors = embeddings_vectors(job, &n_values);
    out->failed |= !vectors;
    buffer_text(out, "{\"model\":");
    json_out_text(out, job->use.model->id);
    buffer_text(out, ",\"embeddings\":[");
    for (uint32_t i = 0; vectors && i < job->n_texts; i++) {
        buffer_text(out, i ? "," : "");
        ollama_embed_write_vector(vectors + (size_t)i * n_values, n_values, out);
    }
    buffer_printf(out,
                  "],\"total_duration\":%" PRIu64
                  ",\"load_duration\":0,\"prompt_eval_count\":%" PRIu64 "}",
                  clock_now_ns() - job->begun_ns, job->prompt_tokens);
    mem_free(vectors);
}

static void ollama_embeddings_write(struct embeddings_job *job)
{
    uint32_t n_values;
    float *vectors = embeddings_vectors(job, &n_values);
    job->answer.failed |= !vectors;
    buffer_text(&job->answer, "{\"embedding\":");
    if (vectors)
        ollama_embed_write_vector(vectors, n_values, &job->answer);
    buffer_text(&job->answer, "}");
    mem_free(vectors);
}

void ollama_embed_handle(struct exchange *exchange)
{
    static const struct embeddings_kind texts = {ollama_embed_parse, embeddings_texts_prepare,
                                                 ollama_embed_write};
    embeddings_begin(exchange, &texts);
}

void ollama_embeddings_handle(struct exchange *exchange)
{
    static const struct embeddings_kind text = {ollama_embeddings_parse, embeddings_texts_prepare,
                                                ollama_embeddings_write};
    embeddings_begin(exchange, &text);
}
