#include "model/draft_model.h"

#include "base/fnv.h"

#include <string.h>

static const char tokens_key[] = "tokenizer.ggml.tokens", type_key[] = "tokenizer.ggml.model";

struct draft_model_texts {
    uint64_t n, hash; /* of the first n */
};

static void draft_model_add_text(void *arg, uint64_t index, const char *text, size_t size)
{
    struct draft_model_texts *texts = arg;
    if (index >= texts->n)
        return;
    const uint64_t length = size;
    texts->hash = fnv(fnv(texts->hash, &length, sizeof length), text, size);
}

static uint64_t draft_model_hash_texts(const struct gguf_file *file, uint64_t n)
{
    struct draft_model_texts texts = {n, FNV_BASIS};
    gguf_file_array_texts(file, tokens_key, draft_model_add_text, &texts);
    return texts.hash;
}

static bool draft_model_has_same_type(const struct gguf_file *a, const struct gguf_file *b)
{
    const char *type_a, *type_b;
    size_t size_a, size_b;
    return !gguf_file_text(a, type_key, &type_a, &size_a, NULL) &&
           !gguf_file_text(b, type_key, &type_b, &size_b, NULL) && size_a == size_b &&
           memcmp(type_a, type_b, size_a) == 0;
}

/* Models of one family may have a few more tokens at the end, which no text has. */
static enum error_code draft_model_check_tokens(const struct model *draft,
                                                const struct model *model, struct error *err)
{
    const struct gguf_file *a = model_file(draft), *b = model_file(model);
    const uint32_t n_a = model_hyperparameters(draft)->n_vocab,
                   n_b = model_hyperparameters(model)->n_vocab;
    uint64_t n_texts_a = 0, n_texts_b = 0;
    const bool has_a = gguf_file_has(a, tokens_key), has_b = gguf_file_has(b, tokens_key);
    bool same = has_a == has_b && (has_a || n_a == n_b);
    if (same && has_a) {
        same = draft_model_has_same_type(a, b) &&
               !gguf_file_array(a, tokens_key, GGUF_ARRAY_TEXT, &n_texts_a, NULL) &&
               !gguf_file_array(b, tokens_key, GGUF_ARRAY_TEXT, &n_texts_b, NULL);
        const uint64_t n = n_texts_a < n_texts_b ? n_texts_a : n_texts_b;
        same = same && draft_model_hash_texts(a, n) == draft_model_hash_texts(b, n);
    }
    if (same)
        return ERROR_NONE;
    return error_set(err, ERROR_INVALID,
                     "%s has other tokens than %s: a draft model is of the same family, with the "
                     "same vocabulary",
                     model_name(draft), model_name(model));
}

enum error_code model_check_draft(const struct model *draft, const struct model *model,
                                  struct error *err)
{
    const struct hyperparameters *h = model_hyperparameters(draft);
    if (h->gives_no_logits || h->reads_whole)
        return error_set(err, ERROR_UNSUPPORTED, "%s generates no text: it cannot draft",
                         model_name(draft));
    if (hyperparameters_has_states(h))
        return error_set(err, ERROR_UNSUPPORTED,
                         "%s has recurrent layers, whose states cannot be cut back to before a "
                         "wrong guess: it cannot draft",
                         model_name(draft));
    return draft_model_check_tokens(draft, model, err);
}
