/* /v1/rerank: how well each document answers a query, by a model with a head that ranks. Query and
 * document go through the model together. */
#include "api/embeddings.h"
#include "api/json_out.h"
#include "base/mem.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"
#include "request/generator.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static bool rerank_parse(struct embeddings_job *job, const char *body, size_t size)
{
    if (!rerank_request_parse(body, size, &job->rerank, &job->work.err))
        return false;
    job->model = job->rerank.model;
    job->n_texts = job->rerank.n_documents;
    return true;
}

/* ---- tokens ---- */

/* A text in which {query} and {document} are to be replaced; some models' files have one. */
static const char *rerank_template(const struct model *model)
{
    static const char key[] = "tokenizer.chat_template.rerank";
    const char *text = NULL;
    size_t size;
    if (!gguf_file_has(model_file(model), key) ||
        gguf_file_text(model_file(model), key, &text, &size, NULL))
        return NULL;
    return text;
}

static void rerank_fill(const char *template, const struct text *query, const struct text *document,
                        struct buffer *out)
{
    static const char query_mark[] = "{query}", document_mark[] = "{document}";
    while (*template) {
        if (strncmp(template, query_mark, sizeof query_mark - 1) == 0) {
            buffer_append(out, query->data, query->size);
            template += sizeof query_mark - 1;
        } else if (strncmp(template, document_mark, sizeof document_mark - 1) == 0) {
            buffer_append(out, document->data, document->size);
            template += sizeof document_mark - 1;
        } else {
            buffer_append(out, template ++, 1);
        }
    }
    buffer_append(out, "", 0);
}

static enum error_code rerank_push(struct token_list *out, int32_t token, bool wanted,
                                   struct error *err)
{
    return wanted && token != TOKEN_NONE ? token_list_push(out, token, err) : ERROR_NONE;
}

/* BOS, query, end, separator, document, end, as far as the model has them; WordPiece has one token
 * that is both end and separator. */
static enum error_code rerank_join(const struct tokenizer *tokenizer, const struct text *query,
                                   const struct text *document, struct token_list *out,
                                   struct error *err)
{
    const bool ends = tokenizer_adds_eos(tokenizer);
    const int32_t end = tokenizer_end(tokenizer);
    const bool is_one =
        strcmp(tokenizer_family(tokenizer), "wpm") == 0 && end == tokenizer_separator(tokenizer);
    enum error_code code =
        rerank_push(out, tokenizer_bos(tokenizer), tokenizer_adds_bos(tokenizer), err);
    if (!code)
        code = tokenizer_encode(tokenizer, query->data, query->size, 0, out, err);
    if (!code)
        code = rerank_push(out, end, ends && !is_one, err);
    if (!code)
        code = rerank_push(out, tokenizer_separator(tokenizer), tokenizer_adds_separator(tokenizer),
                           err);
    if (!code)
        code = tokenizer_encode(tokenizer, document->data, document->size, 0, out, err);
    if (!code)
        code = rerank_push(out, end, ends, err);
    return code;
}

static bool rerank_encode(struct embeddings_job *job, const char *template, uint32_t index)
{
    const struct api_model *model = job->use.model;
    const struct text *query = &job->rerank.query, *document = &job->rerank.documents[index];
    struct token_list *out = &job->prompts[index];
    struct buffer filled = {0};
    struct error cause;
    enum error_code code;
    out->max = generator_context(model->generator);
    if (template) {
        rerank_fill(template, query, document, &filled);
        code = filled.failed ? error_set(&cause, ERROR_NO_MEMORY, "not enough memory for a text")
                             : tokenizer_encode(model->tokenizer, filled.data, filled.size,
                                                TOKENIZE_PARSE_SPECIAL, out, &cause);
        buffer_deinit(&filled);
    } else {
        code = rerank_join(model->tokenizer, query, document, out, &cause);
    }
    if (code == ERROR_INVALID && out->count == out->max)
        return embeddings_too_long(job, "documents", index);
    if (!code && !out->count)
        return api_error_field(&job->work.err, "documents",
                               "element %u of 'documents' and the query have no tokens", index);
    return !code || api_error_from(&job->work.err, &cause);
}

static bool rerank_prepare(struct embeddings_job *job)
{
    if (embeddings_hyperparameters(job)->pooling != POOLING_RANK)
        return api_error_set(&job->work.err, 400, "invalid_request_error", NULL,
                             "this model has no head that ranks (its file's pooling_type is not "
                             "rank): ask a reranker, or compare vectors of /v1/embeddings");
    const char *template = rerank_template(job->use.model->model);
    for (uint32_t i = 0; i < job->n_texts; i++) {
        if (!rerank_encode(job, template, i))
            return false;
    }
    return true;
}

/* ---- the answer ---- */

struct rerank_result {
    uint32_t index;
    float score;
};

/* Highest first; the earlier document of two that are equal. A score that is no number is last. */
static int rerank_compare(const void *a, const void *b)
{
    const struct rerank_result *left = a, *right = b;
    if (left->score > right->score || (right->score != right->score && left->score == left->score))
        return -1;
    if (right->score > left->score || (left->score != left->score && right->score == right->score))
        return 1;
    return (left->index > right->index) - (left->index < right->index);
}

static void rerank_write_results(const struct embeddings_job *job,
                                 const struct rerank_result *results, struct buffer *out)
{
    const struct rerank_request *request = &job->rerank;
    const uint32_t n =
        request->top_n && request->top_n < job->n_texts ? request->top_n : job->n_texts;
    buffer_text(out, "{\"object\":\"list\",\"model\":");
    json_out_text(out, job->use.model->id);
    buffer_text(out, ",\"results\":[");
    for (uint32_t i = 0; i < n; i++) {
        buffer_printf(out, "%s{\"index\":%u,\"relevance_score\":", i ? "," : "", results[i].index);
        json_out_float(out, results[i].score);
        if (request->return_documents) {
            const struct text *document = &request->documents[results[i].index];
            buffer_text(out, ",\"document\":{\"text\":");
            json_out_string(out, document->data, document->size);
            buffer_text(out, "}");
        }
        buffer_text(out, "}");
    }
    buffer_printf(out, "],\"usage\":{\"prompt_tokens\":%" PRIu64 ",\"total_tokens\":%" PRIu64 "}}",
                  job->prompt_tokens, job->prompt_tokens);
}

static void rerank_write(struct embeddings_job *job)
{
    struct rerank_result *results = mem_new_array(job->n_texts, sizeof *results);
    job->answer.failed = !results;
    if (!results)
        return;
    for (uint32_t i = 0; i < job->n_texts; i++)
        results[i] = (struct rerank_result){i, job->embeddings[i].item.sum[0]};
    qsort(results, job->n_texts, sizeof *results, rerank_compare);
    rerank_write_results(job, results, &job->answer);
    mem_free(results);
}

void rerank_handle(struct exchange *exchange)
{
    static const struct embeddings_kind rerank = {rerank_parse, rerank_prepare, rerank_write};
    embeddings_begin(exchange, &rerank);
}
