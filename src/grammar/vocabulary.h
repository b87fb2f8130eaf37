/* The tokens' bytes as two tries: of plain tokens (whole characters of a JSON string that need no
 * escape) and of all others. Nodes stand in the order of a walk, each with the end of what lies
 * below it; tokens in the order of their nodes. */
#pragma once

#include "grammar/grammar.h"

struct token_trie {
    uint8_t *bytes, *depths;
    uint32_t *ends;   /* the node behind what lies below */
    uint32_t *tokens; /* where the node's own begin in `ids`; [n_nodes + 1] */
    int32_t *ids;
    uint32_t n_nodes, n_ids;
};

enum { VOCABULARY_TOKEN_MAX = 255 }; /* longer tokens are never allowed */

struct grammar_vocabulary {
    uint32_t n_vocab, n_ends, longest; /* the most bytes of a token */
    uint32_t longest_plain;            /* the most characters of a plain one */
    char *bytes;
    uint64_t *starts;
    int32_t *end_tokens;
    uint64_t *is_end; /* a bit for each token */
    size_t n_mask_words;
    struct token_trie plain, others;
    uint64_t *all_plain; /* a mask of them */
};
