/* The tokens' bytes as two tries: of plain tokens (whole characters of a JSON string that need no
 * escape) and of all others. Nodes stand in the order of a walk, each with the end of what lies
 * below it; tokens in the order of their nodes. A byte is calm if no mark begins with it that is
 * looked for in free text: a letter, a digit, or a part of a character that is not ASCII. */
#pragma once

#include "grammar/grammar.h"

struct token_trie {
    uint8_t *bytes, *depths;
    bool *calm;       /* all bytes below the node are */
    uint32_t *ends;   /* the node behind what lies below */
    uint32_t *tokens; /* where the node's own begin in `ids`; [n_nodes + 1] */
    int32_t *ids;
    uint32_t n_nodes, n_ids;
};

bool vocabulary_byte_is_calm(uint8_t byte);

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
