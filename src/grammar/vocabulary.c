#include "grammar/vocabulary.h"

#include "base/limits.h"
#include "base/mem.h"
#include "grammar/dfa.h"

#include <stdlib.h>
#include <string.h>

static void token_trie_deinit(struct token_trie *trie)
{
    mem_free(trie->bytes);
    mem_free(trie->depths);
    mem_free(trie->calm);
    mem_free(trie->ends);
    mem_free(trie->tokens);
    mem_free(trie->ids);
}

void grammar_vocabulary_free(struct grammar_vocabulary *vocabulary)
{
    if (!vocabulary)
        return;
    token_trie_deinit(&vocabulary->plain);
    token_trie_deinit(&vocabulary->others);
    mem_free(vocabulary->bytes);
    mem_free(vocabulary->starts);
    mem_free(vocabulary->end_tokens);
    mem_free(vocabulary->is_end);
    mem_free(vocabulary->all_plain);
    mem_free(vocabulary);
}

/* The characters of a plain token; 0: it is none. */
static uint32_t vocabulary_plain(const char *bytes, size_t size)
{
    uint32_t n = 0;
    for (const char *at = bytes, *end = bytes + size; at < end; n++) {
        const char *from = at;
        const uint32_t code_point = dfa_read_code_point(&at, end);
        const bool is_surrogate = code_point >= 0xd800 && code_point <= 0xdfff;
        const bool is_overlong =
            (at - from == 3 && code_point < 0x800) ||
            (at - from == 4 && (code_point < 0x10000 || code_point >= CODE_POINT_END));
        if (code_point < 0x20 || code_point == '"' || code_point == '\\' || is_surrogate ||
            is_overlong || (code_point >= 0x80 && at - from == 1))
            return 0;
    }
    return n;
}

struct sort_token {
    const char *bytes;
    size_t size;
    int32_t id;
};

static int sort_token_compare(const void *a, const void *b)
{
    const struct sort_token *first = a, *second = b;
    const size_t n = first->size < second->size ? first->size : second->size;
    const int order = memcmp(first->bytes, second->bytes, n);
    if (order)
        return order;
    if (first->size != second->size)
        return first->size < second->size ? -1 : 1;
    return (first->id > second->id) - (first->id < second->id);
}

bool vocabulary_byte_is_calm(uint8_t byte)
{
    return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
           (byte >= 'a' && byte <= 'z') || (byte >= 0x80 && byte != GRAMMAR_SPECIAL);
}

static void token_trie_find_calm(struct token_trie *trie)
{
    uint32_t wild = trie->n_nodes; /* the next node whose byte is not calm */
    for (uint32_t node = trie->n_nodes; node-- > 0;) {
        trie->calm[node] = wild >= trie->ends[node];
        wild = vocabulary_byte_is_calm(trie->bytes[node]) ? wild : node;
    }
}

/* Sorted tokens make the nodes in the order of a walk. Node 0 is the root. */
static bool token_trie_fill(struct token_trie *trie, struct sort_token *tokens, uint32_t n)
{
    size_t n_bytes = 1;
    for (uint32_t i = 0; i < n; i++)
        n_bytes += tokens[i].size;
    trie->bytes = mem_new_array(n_bytes, 1);
    trie->depths = mem_new_array(n_bytes, 1);
    trie->calm = mem_new_array(n_bytes, sizeof *trie->calm);
    trie->ends = mem_new_array(n_bytes, sizeof *trie->ends);
    trie->tokens = mem_new_array(n_bytes + 1, sizeof *trie->tokens);
    trie->ids = mem_new_array((size_t)n + 1, sizeof *trie->ids);
    if (!trie->bytes || !trie->depths || !trie->calm || !trie->ends || !trie->tokens || !trie->ids)
        return false;
    uint32_t open[VOCABULARY_TOKEN_MAX + 1] = {0}, depth = 0;
    if (n)
        qsort(tokens, n, sizeof *tokens, sort_token_compare);
    trie->n_nodes = 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t same = 0;
        while (i && same < depth && same < tokens[i].size &&
               trie->bytes[open[same + 1]] == (uint8_t)tokens[i].bytes[same])
            same++;
        for (; depth > same; depth--)
            trie->ends[open[depth]] = trie->n_nodes;
        while (depth < tokens[i].size) {
            const uint32_t node = trie->n_nodes++;
            trie->bytes[node] = (uint8_t)tokens[i].bytes[depth++];
            trie->depths[node] = (uint8_t)depth;
            trie->tokens[node] = i;
            open[depth] = node;
        }
        trie->ids[i] = tokens[i].id;
    }
    for (; depth; depth--)
        trie->ends[open[depth]] = trie->n_nodes;
    trie->ends[0] = trie->n_nodes;
    trie->tokens[trie->n_nodes] = n;
    trie->n_ids = n;
    token_trie_find_calm(trie);
    return true;
}

static bool vocabulary_sort(struct grammar_vocabulary *vocabulary, struct sort_token *tokens)
{
    uint32_t n_plain = 0, n_others = 0;
    for (uint32_t id = 0; id < vocabulary->n_vocab; id++) {
        const char *bytes = vocabulary->bytes + vocabulary->starts[id];
        const size_t size = (size_t)(vocabulary->starts[id + 1] - vocabulary->starts[id]);
        if (!size || size > VOCABULARY_TOKEN_MAX || (vocabulary->is_end[id / 64] >> (id % 64) & 1))
            continue;
        const struct sort_token token = {bytes, size, (int32_t)id};
        const uint32_t n = vocabulary_plain(bytes, size);
        if (size > vocabulary->longest)
            vocabulary->longest = (uint32_t)size;
        if (n > vocabulary->longest_plain)
            vocabulary->longest_plain = n;
        if (n) {
            tokens[n_plain++] = token;
            vocabulary->all_plain[id / 64] |= UINT64_C(1) << (id % 64);
        } else {
            tokens[vocabulary->n_vocab - ++n_others] = token;
        }
    }
    return token_trie_fill(&vocabulary->plain, tokens, n_plain) &&
           token_trie_fill(&vocabulary->others, tokens + vocabulary->n_vocab - n_others, n_others);
}

static bool vocabulary_copy(struct grammar_vocabulary *vocabulary, const char *bytes,
                            const uint64_t *starts, const int32_t *ends)
{
    const uint32_t n = vocabulary->n_vocab, n_ends = vocabulary->n_ends;
    vocabulary->n_mask_words = ((size_t)n + 63) / 64;
    vocabulary->bytes = mem_new_array((size_t)starts[n] + 1, 1);
    vocabulary->starts = mem_new_array((size_t)n + 1, sizeof *starts);
    vocabulary->end_tokens = mem_new_array((size_t)n_ends + 1, sizeof *ends);
    vocabulary->is_end = mem_new_array(vocabulary->n_mask_words + 1, sizeof(uint64_t));
    vocabulary->all_plain = mem_new_array(vocabulary->n_mask_words + 1, sizeof(uint64_t));
    if (!vocabulary->bytes || !vocabulary->starts || !vocabulary->end_tokens ||
        !vocabulary->is_end || !vocabulary->all_plain)
        return false;
    memcpy(vocabulary->starts, starts, ((size_t)n + 1) * sizeof *starts);
    if (starts[n])
        memcpy(vocabulary->bytes, bytes, (size_t)starts[n]);
    for (uint32_t i = 0; i < n_ends; i++) {
        vocabulary->end_tokens[i] = ends[i];
        vocabulary->is_end[ends[i] / 64] |= UINT64_C(1) << (ends[i] % 64);
    }
    return true;
}

enum error_code grammar_vocabulary_new(const char *bytes, const uint64_t *starts, uint32_t n_vocab,
                                       const int32_t *ends, uint32_t n_ends,
                                       struct grammar_vocabulary **out, struct error *err)
{
    for (uint32_t i = 0; i < n_ends; i++) {
        if (ends[i] < 0 || (uint32_t)ends[i] >= n_vocab)
            return error_set(err, ERROR_INVALID, "token %d is not in the vocabulary", ends[i]);
    }
    struct grammar_vocabulary *vocabulary = mem_new(sizeof *vocabulary);
    struct sort_token *tokens = mem_new_array((size_t)n_vocab + 1, sizeof *tokens);
    bool is_made = false;
    if (vocabulary && tokens) {
        vocabulary->n_vocab = n_vocab;
        vocabulary->n_ends = n_ends;
        is_made =
            vocabulary_copy(vocabulary, bytes, starts, ends) && vocabulary_sort(vocabulary, tokens);
    }
    mem_free(tokens);
    if (!is_made) {
        grammar_vocabulary_free(vocabulary);
        return error_set(err, ERROR_NO_MEMORY, "not enough memory for a trie of %u tokens",
                         n_vocab);
    }
    *out = vocabulary;
    return ERROR_NONE;
}
