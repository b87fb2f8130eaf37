/* The prompt of a text that is to be filled in: prefix mark, what stands before, suffix mark, what
 * stands behind, middle mark (Bavarian et al. 2022, arXiv:2207.14255, section 3), with BOS in front
 * where the model wants one. Special tokens' texts in it are text. */
#pragma once

#include "model/tokenizer.h"

struct infill {
    const char *prefix, *suffix;
    size_t prefix_size, suffix_size;
};

/* Appends its tokens. ERROR_UNSUPPORTED: the vocabulary lacks a mark; else tokenizer_encode()'s. */
enum error_code infill_encode(const struct tokenizer *tokenizer, const struct infill *infill,
                              struct token_list *out, struct error *err);
