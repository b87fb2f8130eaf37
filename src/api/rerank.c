/* /v1/rerank: how well each document answers a query, by a model with a head that ranks. Query and
 * document go through the model together. */
#include "api/embeddings.h"
#include "api/json_out.h"
#include "base/mem.h"
#include "request/generator.h"
#include "request/text_vector.h"

#include <inttypes.h>
#include <stdlib.h>

static bool rerank_parse(struct embeddings_job *job, const char *body, size_t size)
{
    if (!rerank_request_parse(body, size, &job->rerank, &job->work.err))
        return false;
    job->model = job->rerank.model;
    job->n_texts = job->rerank.n_documents;
    return true;
}

static bool rerank_encode(struct embeddings_job *job, uint32_t index)
{
    const struct api_model *model = job->use.model;
    const struct text *query = &job->rerank.query, *document = &job->rerank.documents[index];
    struct token_list *out = &job->prompts[index];
    struct error cause;
    out->max = generator_context(model->generator);
    const enum error_code code = text_pair_encode(
        model->model, model->tokenizer, (struct text_piece){query->data, query->size},
        (struct text_piece){document->data, document->size}, out, &cause);
    if (code == ERROR_INVALID && out->count == out->max)
        return embeddings_too_long(job, "documents", index);
    if (!code && !out->count)
        return api_error_field(&job->work.err, "documents",
                               "element %u of 'documents' and the query have no tokens", index);
    return !code || api_error_from(&job->work.err, &cause);
}

static bool rerank_prepare(struct embeddings_job *job)
{
    struct error cause;
    if (text_pair_check(job->use.model->model, &cause))
        return api_error_from(&job->work.err, &cause);
    for (uint32_t i = 0; i < job->n_texts; i++) {
        if (!rerank_encode(job, i))
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
