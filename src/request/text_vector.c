#include "request/text_vector.h"

#include "base/buffer.h"
#include "model/gguf_file.h"

#include <math.h>
#include <string.h>

/* ---- texts ---- */

/* As a prompt: not TOKENIZE_ADD_SPECIAL, which would also end it and double a BOS. */
static enum error_code text_encode_prompt(const struct tokenizer *tokenizer, const char *text,
                                          size_t size, struct token_list *out, struct error *err)
{
    const size_t start = out->count;
    const int32_t bos = tokenizer_adds_bos(tokenizer) ? tokenizer_bos(tokenizer) : TOKEN_NONE;
    enum error_code code = bos != TOKEN_NONE ? token_list_push(out, bos, err) : ERROR_NONE;
    if (!code)
        code = tokenizer_encode(tokenizer, text, size, TOKENIZE_PARSE_SPECIAL, out, err);
    if (!code && bos != TOKEN_NONE && out->count > start + 1 && out->ids[start + 1] == bos) {
        out->count--; /* the text has it */
        memmove(out->ids + start, out->ids + start + 1, (out->count - start) * sizeof *out->ids);
    }
    return code;
}

enum error_code text_vector_encode(const struct model *model, const struct tokenizer *tokenizer,
                                   const char *text, size_t size, struct token_list *out,
                                   struct error *err)
{
    const struct hyperparameters *h = model_hyperparameters(model);
    if (h->pooling == POOLING_UNSAID && !h->reads_whole)
        return text_encode_prompt(tokenizer, text, size, out, err);
    return tokenizer_encode(tokenizer, text, size, TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL,
                            out, err);
}

enum error_code text_vector_check(const struct model *model, struct error *err)
{
    switch (model_hyperparameters(model)->pooling) {
    case POOLING_NONE:
        return error_set(err, ERROR_UNSUPPORTED,
                         "this model gives a vector for each token and none for a text (its file's "
                         "pooling_type is none)");
    case POOLING_RANK:
        return error_set(err, ERROR_UNSUPPORTED,
                         "this model ranks texts and gives no vectors: ask /v1/rerank, or `medley "
                         "rerank`");
    case POOLING_UNSAID:
    case POOLING_MEAN:
    case POOLING_FIRST:
    case POOLING_LAST:
        break;
    }
    return ERROR_NONE;
}

/* ---- pairs ---- */

enum error_code text_pair_check(const struct model *model, struct error *err)
{
    if (model_hyperparameters(model)->pooling == POOLING_RANK)
        return ERROR_NONE;
    return error_set(err, ERROR_UNSUPPORTED,
                     "this model has no head that ranks (its file's pooling_type is not rank): use "
                     "a reranker, or compare vectors (/v1/embeddings, `medley embed`)");
}

/* A text in which {query} and {document} are to be replaced; some models' files have one. */
static const char *text_pair_template(const struct model *model)
{
    static const char key[] = "tokenizer.chat_template.rerank";
    const char *text = NULL;
    size_t size;
    if (!gguf_file_has(model_file(model), key) ||
        gguf_file_text(model_file(model), key, &text, &size, NULL))
        return NULL;
    return text;
}

static void text_pair_fill(const char *template, struct text_piece query,
                           struct text_piece document, struct buffer *out)
{
    static const char query_mark[] = "{query}", document_mark[] = "{document}";
    while (*template) {
        if (strncmp(template, query_mark, sizeof query_mark - 1) == 0) {
            buffer_append(out, query.data, query.size);
            template += sizeof query_mark - 1;
        } else if (strncmp(template, document_mark, sizeof document_mark - 1) == 0) {
            buffer_append(out, document.data, document.size);
            template += sizeof document_mark - 1;
        } else {
            buffer_append(out, template ++, 1);
        }
    }
    buffer_append(out, "", 0);
}

static enum error_code text_push(struct token_list *out, int32_t token, bool wanted,
                                 struct error *err)
{
    return wanted && token != TOKEN_NONE ? token_list_push(out, token, err) : ERROR_NONE;
}

/* WordPiece has one token that is both end and separator. */
static enum error_code text_pair_join(const struct tokenizer *tokenizer, struct text_piece query,
                                      struct text_piece document, struct token_list *out,
                                      struct error *err)
{
    const bool ends = tokenizer_adds_eos(tokenizer),
               separates = tokenizer_adds_separator(tokenizer);
    const int32_t end = tokenizer_end(tokenizer), separator = tokenizer_separator(tokenizer);
    const bool is_one = strcmp(tokenizer_family(tokenizer), "wpm") == 0;
    enum error_code code =
        text_push(out, tokenizer_bos(tokenizer), tokenizer_adds_bos(tokenizer), err);
    if (!code)
        code = tokenizer_encode(tokenizer, query.data, query.size, 0, out, err);
    if (!code)
        code = text_push(out, end, ends && !(is_one && separates), err);
    if (!code)
        code = text_push(out, separator, separates, err);
    if (!code)
        code = tokenizer_encode(tokenizer, document.data, document.size, 0, out, err);
    if (!code)
        code = text_push(out, end, ends, err);
    return code;
}

enum error_code text_pair_encode(const struct model *model, const struct tokenizer *tokenizer,
                                 struct text_piece query, struct text_piece document,
                                 struct token_list *out, struct error *err)
{
    const char *template = text_pair_template(model);
    if (!template)
        return text_pair_join(tokenizer, query, document, out, err);
    struct buffer filled = {0};
    text_pair_fill(template, query, document, &filled);
    enum error_code code = filled.failed
                               ? error_set(err, ERROR_NO_MEMORY, "not enough memory for a text")
                               : tokenizer_encode(tokenizer, filled.data, filled.size,
                                                  TOKENIZE_PARSE_SPECIAL, out, err);
    buffer_deinit(&filled);
    return code;
}

/* ---- rows ---- */

void text_vector_rows(const struct hyperparameters *hyperparameters, uint32_t n_tokens,
                      uint32_t *first, uint32_t *last)
{
    const enum pooling pooling = hyperparameters->pooling;
    const bool ranks = pooling == POOLING_RANK, whole = hyperparameters->reads_whole;
    const bool is_last = pooling == POOLING_LAST || (ranks && !whole);
    const bool is_first = pooling == POOLING_FIRST || (ranks && whole);
    *first = is_last ? n_tokens - 1 : 0;
    *last = is_first ? 0 : n_tokens - 1;
}

void text_vector_scale(const float *sum, uint32_t n, float *out)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += (double)sum[i] * (double)sum[i];
    const double scale = squares > 0 ? 1 / sqrt(squares) : 0; /* a mean's divisor falls out */
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)(sum[i] * scale);
}
