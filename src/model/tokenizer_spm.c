/* sentencepiece BPE (Kudo and Richardson 2018): merge the two neighbours whose joint text is the
 * token with the highest score until no joint text is a token; what is no token becomes bytes. */
#include "base/mem.h"
#include "model/merge_heap.h"
#include "model/symbol_list.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"
#include "model/word_cache.h"

#include <string.h>

struct spm_session {
    const struct tokenizer *tokenizer;
    struct buffer escaped;
    const char *text;        /* being merged */
    struct symbol_list list; /* values: tokens; TOKEN_NONE: none */
    struct merge_heap heap;
    struct word_cache cache;
};

enum { CACHE_FROM_BYTES = 1024 }; /* less text is not worth the cache's memory */

enum error_code spm_session_new(const struct tokenizer *tokenizer, struct spm_session **out, struct error *err)
{
    *out = mem_new(sizeof **out);
    if (!*out)
        return tokenizer_no_memory(err);
    (*out)->tokenizer = tokenizer;
    return ERROR_NONE;
}

void spm_session_free(struct spm_session *session)
{
    if (!session)
        return;
    buffer_deinit(&session->escaped);
    symbol_list_deinit(&session->list);
    merge_heap_deinit(&session->heap);
    word_cache_deinit(&session->cache);
    mem_free(session);
}

/* Higher scores first: IEEE floats compare like sign-magnitude integers. */
static uint32_t rank_of_score(float score)
{
    score += 0.0f; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

static bool queue_pair(struct spm_session *session, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return true;
    const struct symbol *a = &session->list.symbols[left], *b = &session->list.symbols[right];
    if ((size_t)a->size + b->size > session->tokenizer->longest_token)
        return true;
    int32_t token = tokenizer_find(session->tokenizer, session->text + a->start, a->size + b->size);
    if (token == TOKEN_NONE)
        return true;
    /* Neighbours only ever grow, so their sizes tell whether they are still the ones queued. */
    struct merge_candidate candidate = {
        .rank = rank_of_score(session->tokenizer->scores[token]),
        .left = (uint32_t)left,
        .first = (int32_t)a->size,
        .second = (int32_t)b->size,
        .result = (uint32_t)token,
    };
    return merge_heap_push(&session->heap, candidate);
}

static bool merge_symbols(struct spm_session *session)
{
    struct symbol *symbols = session->list.symbols;
    for (size_t i = 1; i < session->list.count; i++) {
        if (!queue_pair(session, (int32_t)i - 1, (int32_t)i))
            return false;
    }
    for (struct merge_candidate best; merge_heap_pop(&session->heap, &best);) {
        const struct symbol *left = &symbols[best.left];
        if (!left->size || left->next < 0)
            continue;
        /* As libllama: only the sum counts. A pair whose sum is the same covers the same text. */
        if (left->size + symbols[left->next].size != (uint32_t)best.first + (uint32_t)best.second)
            continue;
        symbol_list_join(&session->list, best.left, (int32_t)best.result);
        if (!queue_pair(session, left->previous, (int32_t)best.left) ||
            !queue_pair(session, (int32_t)best.left, left->next))
            return false;
    }
    return true;
}

static bool list_symbols(struct spm_session *session, const char *text, size_t size)
{
    if (!symbol_list_reset(&session->list, size))
        return false;
    for (size_t at = 0, length; at < size; at += length) {
        length = unicode_length(text[at]);
        if (length > size - at)
            length = size - at;
        symbol_list_append(&session->list, tokenizer_find(session->tokenizer, text + at, length), length);
    }
    return true;
}

static enum error_code emit(const struct spm_session *session, const struct symbol *symbol, struct token_list *out,
                            struct error *err)
{
    if (symbol->value != TOKEN_NONE)
        return token_list_push(out, symbol->value, err);
    enum error_code code = ERROR_NONE;
    for (uint32_t i = 0; i < symbol->size && !code; i++) {
        int32_t token = session->tokenizer->byte_tokens[(uint8_t)session->text[symbol->start + i]];
        if (token == TOKEN_NONE)
            token = session->tokenizer->unknown;
        if (token != TOKEN_NONE)
            code = token_list_push(out, token, err);
    }
    return code;
}

/* Merges one word, or a whole text. */
static enum error_code encode_word(struct spm_session *session, const char *word, size_t size, struct token_list *out,
                                   struct error *err)
{
    session->text = word;
    if (!list_symbols(session, word, size) || !merge_symbols(session))
        return tokenizer_no_memory(err);
    enum error_code code = ERROR_NONE;
    for (int32_t i = 0; i >= 0 && !code; i = session->list.symbols[i].next)
        code = emit(session, &session->list.symbols[i], out, err);
    return code;
}

/* ---- words ----
 * A word is spaces and what follows up to the next space. Where no token reaches beyond a word,
 * no merge does, and the words can be merged on their own: the result is the same. */

static bool is_escaped_space(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xE2\x96\x81", 3) == 0;
}

/* Bytes of the first word; size > 0. Walks by characters as symbols_of_text() does. */
static size_t word_size(const char *text, size_t size)
{
    bool space_before = true;
    for (size_t at = 0; at < size;) {
        bool space = is_escaped_space(text + at, size - at);
        if (space && !space_before)
            return at;
        space_before = space;
        at += unicode_length(text[at]);
    }
    return size;
}

bool spm_words_are_apart(const struct tokenizer *tokenizer)
{
    for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
        size_t size;
        const char *text = text_table_at(&tokenizer->texts, i, &size);
        if (word_size(text, size) != size)
            return false;
    }
    return true;
}

static enum error_code encode_cached(struct spm_session *session, const char *word, size_t size, struct token_list *out,
                                     struct error *err)
{
    bool found;
    size_t before = out->count;
    enum error_code code = word_cache_get(&session->cache, word, size, &found, out, err);
    if (code || found)
        return code;
    code = encode_word(session, word, size, out, err);
    if (!code)
        word_cache_put(&session->cache, word, size, out->ids + before, out->count - before);
    return code;
}

enum error_code spm_session_encode(struct spm_session *session, const char *text, size_t size, bool space_before,
                                   struct token_list *out, struct error *err)
{
    buffer_clear(&session->escaped);
    if (space_before)
        spaces_escape(" ", 1, &session->escaped);
    spaces_escape(text, size, &session->escaped);
    if (session->escaped.failed)
        return tokenizer_no_memory(err);
    bool apart = session->tokenizer->words_apart;
    if (apart && size >= CACHE_FROM_BYTES && !session->cache.places && !word_cache_init(&session->cache))
        return tokenizer_no_memory(err);
    const char *rest = session->escaped.data;
    enum error_code code = ERROR_NONE;
    for (size_t left = session->escaped.size, word; left && !code; rest += word, left -= word) {
        word = apart ? word_size(rest, left) : left;
        code = encode_cached(session, rest, word, out, err);
    }
    return code;
}
