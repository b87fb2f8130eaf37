/* A text's vector, or a pair's score, of the hidden states that a request for embeddings gives:
 * which tokens go in, which rows count, and what they become. For who asks (the API, the commands).
 * Pure; any thread. */
#pragma once

#include "model/model.h"
#include "model/tokenizer.h"

/* Appends what a model is to read of a text: one that was made for vectors gets it with all that
 * it puts around texts; a generating one as a prompt, without its end. Special tokens in the text
 * are parsed. */
enum error_code text_vector_encode(const struct model *model, const struct tokenizer *tokenizer,
                                   const char *text, size_t size, struct token_list *out,
                                   struct error *err);

/* Appends a query and a document for a model with a head that ranks: by the file's template for
 * pairs, else BOS, query, end, separator, document, end, as far as the model has them. */
struct text_piece {
    const char *data;
    size_t size;
};
enum error_code text_pair_encode(const struct model *model, const struct tokenizer *tokenizer,
                                 struct text_piece query, struct text_piece document,
                                 struct token_list *out, struct error *err);

/* What the model cannot do: ERROR_UNSUPPORTED, with what can. */
enum error_code text_vector_check(const struct model *model, struct error *err);
enum error_code text_pair_check(const struct model *model, struct error *err);

/* The sum of the rows at positions *first to *last is the vector, before it is scaled; its first
 * value the score of a pair. */
void text_vector_rows(const struct hyperparameters *hyperparameters, uint32_t n_tokens,
                      uint32_t *first, uint32_t *last);

/* To length 1; a vector of zeros stays. Squares are added in double: those of hidden states may
 * leave a float's range. `out` may be `sum`. */
void text_vector_scale(const float *sum, uint32_t n, float *out);
