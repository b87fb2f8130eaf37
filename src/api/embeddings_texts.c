/* /v1/embeddings: one vector of each input's hidden states, taken as the model's file says (the
 * mean where it says nothing), scaled to length 1. */
#include "api/embeddings.h"
#include "api/response_json.h"
#include "base/mem.h"
#include "model/gguf_file.h"
#include "request/generator.h"
#include "request/text_vector.h"

#include <string.h>

bool embeddings_take_request(struct embeddings_job *job)
{
    job->model = job->request.model;
    job->n_texts = job->request.n_inputs;
    return true;
}

static bool texts_parse(struct embeddings_job *job, const char *body, size_t size)
{
    return embeddings_request_parse(body, size, &job->request, &job->work.err) &&
           embeddings_take_request(job);
}

/* A model whose vectors may be cut says so by a tag (Kusupati et al. 2022, arXiv:2205.13147). */
static void texts_take_tag(void *arg, uint64_t index, const char *text, size_t size)
{
    static const char tag[] = "matryoshka";
    (void)index;
    *(bool *)arg |= size == sizeof tag - 1 && memcmp(text, tag, size) == 0;
}

static bool texts_may_cut(const struct model *model)
{
    static const char key[] = "general.tags";
    const struct gguf_file *file = model_file(model);
    uint64_t n;
    bool may = false;
    if (gguf_file_array(file, key, GGUF_ARRAY_TEXT, &n, NULL) == ERROR_NONE)
        gguf_file_array_texts(file, key, texts_take_tag, &may);
    return may;
}

static bool texts_check_dimensions(const struct embeddings_job *job, struct api_error *err)
{
    const uint32_t wanted = job->request.dimensions,
                   n_embd = embeddings_hyperparameters(job)->n_embd;
    if (!wanted || wanted == n_embd)
        return true;
    if (wanted > n_embd)
        return api_error_field(err, "dimensions",
                               "'dimensions' is %u; this model's vectors have %u", wanted, n_embd);
    return texts_may_cut(job->use.model->model) ||
           api_error_field(err, "dimensions",
                           "'dimensions': this model does not say that its vectors of %u may be "
                           "cut (the tag matryoshka in its file); leave the field out",
                           n_embd);
}

static bool texts_encode(struct embeddings_job *job, uint32_t index)
{
    const struct api_model *model = job->use.model;
    const struct prompt_input *input = &job->request.inputs[index];
    struct token_list *out = &job->prompts[index];
    struct error cause;
    if (input->tokens)
        return server_encode_prompt(model, input, out, &job->work.err);
    out->max = generator_context(model->generator);
    const enum error_code code = text_vector_encode(
        model->model, model->tokenizer, input->text.data, input->text.size, out, &cause);
    if (code == ERROR_INVALID && out->count == out->max)
        return embeddings_too_long(job, "input", index);
    return !code || api_error_from(&job->work.err, &cause);
}

bool embeddings_texts_prepare(struct embeddings_job *job)
{
    struct api_error *err = &job->work.err;
    struct error cause;
    if (text_vector_check(job->use.model->model, &cause))
        return api_error_from(err, &cause);
    if (!texts_check_dimensions(job, err) ||
        !embeddings_request_check(&job->request, embeddings_hyperparameters(job)->n_vocab, err))
        return false;
    for (uint32_t i = 0; i < job->n_texts; i++) {
        if (!texts_encode(job, i))
            return false;
        if (job->prompts[i].count == 0)
            return api_error_field(err, "input", "element %u of 'input' has no tokens", i);
    }
    return true;
}

float *embeddings_vectors(const struct embeddings_job *job, uint32_t *n_values)
{
    const uint32_t n_embd = embeddings_hyperparameters(job)->n_embd;
    *n_values = job->request.dimensions ? job->request.dimensions : n_embd;
    float *vectors = mem_new_array((size_t)job->n_texts * *n_values, sizeof *vectors);
    for (uint32_t i = 0; i < job->n_texts && vectors; i++)
        text_vector_scale(job->embeddings[i].item.sum, *n_values, vectors + (size_t)i * *n_values);
    return vectors;
}

static void texts_write(struct embeddings_job *job)
{
    uint32_t n_values;
    float *vectors = embeddings_vectors(job, &n_values);
    if (vectors)
        response_embeddings(job->use.model->id, vectors, job->n_texts, n_values,
                            job->request.base64, job->prompt_tokens, &job->answer);
    else
        job->answer.failed = true;
    mem_free(vectors);
}

void embeddings_handle(struct exchange *exchange)
{
    static const struct embeddings_kind texts = {texts_parse, embeddings_texts_prepare,
                                                 texts_write};
    embeddings_begin(exchange, &texts);
}
