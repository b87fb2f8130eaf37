/* sentencepiece BPE (Kudo and Richardson 2018): merge the two neighbours whose joint text is the
 * token with the highest score until no joint text is a token; what is no token becomes bytes. */
#include "base/mem.h"
#include "model/merging.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"
#include "model/word_cache.h"

#include <string.h>

struct spm_session {
    const struct tokenizer *tokenizer;
    struct buffer escaped;
    const char *text;       /* being merged */
    struct merging merging; /* values: tokens; TOKEN_NONE: none */
    struct word_cache cache;
};

enum { CACHE_FROM_BYTES = 1024 }; /* less text is not worth the cache's memory */

enum error_code spm_session_new(const struct tokenizer *tokenizer, struct spm_session **out,
                                struct error *err)
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
    merging_deinit(&session->merging);
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

static bool spm_pair(const void *self, const struct symbol *left, const struct symbol *right,
                     struct merge_candidate *out)
{
    const struct spm_session *session = self;
    if ((size_t)left->size + right->size > session->tokenizer->longest_token)
        return false;
    int32_t token =
        tokenizer_find(session->tokenizer, session->text + left->start, left->size + right->size);
    if (token == TOKEN_NONE)
        return false;
    *out = (struct merge_candidate){
        .rank = rank_of_score(session->tokenizer->scores[token]),
        .first = (int32_t)left->size,
        .second = (int32_t)right->size,
        .result = (uint32_t)token,
    };
    return true;
}

/* Neighbours only ever grow, so their sizes tell whether they are still the ones queued. As
 * libllama: only the sum counts. A pair whose sum is the same covers the same text. */
static bool spm_is_same(const struct merge_candidate *queued, const struct symbol *left,
                        const struct symbol *right)
{
    return left->size + right->size == (uint32_t)queued->first + (uint32_t)queued->second;
}

static const struct merging_rule rule = {spm_pair, spm_is_same};

static bool spm_list_symbols(struct spm_session *session, const char *text, size_t size)
{
    if (!symbol_list_reset(&session->merging.list, size))
        return false;
    for (size_t at = 0, length; at < size; at += length) {
        length = unicode_length(text[at]);
        if (length > size - at)
            length = size - at;
        symbol_list_append(&session->merging.list,
                           tokenizer_find(session->tokenizer, text + at, length), length);
    }
    return true;
}

static enum error_code spm_emit(const struct spm_session *session, const struct symbol *symbol,
                                struct token_list *out, struct error *err)
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
static enum error_code spm_encode_word(void *self, const char *word, size_t size,
                                       struct token_list *out, struct error *err)
{
    struct spm_session *session = self;
    session->text = word;
    if (!spm_list_symbols(session, word, size) || !merging_run(&session->merging, &rule, session))
        return tokenizer_no_memory(err);
    enum error_code code = ERROR_NONE;
    for (int32_t i = 0; i >= 0 && !code; i = session->merging.list.symbols[i].next)
        code = spm_emit(session, &session->merging.list.symbols[i], out, err);
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

enum error_code spm_session_encode(struct spm_session *session, const char *text, size_t size,
                                   bool space_before, struct token_list *out, struct error *err)
{
    buffer_clear(&session->escaped);
    if (space_before)
        spaces_escape(" ", 1, &session->escaped);
    spaces_escape(text, size, &session->escaped);
    if (session->escaped.failed)
        return tokenizer_no_memory(err);
    bool apart = session->tokenizer->words_apart;
    if (apart && size >= CACHE_FROM_BYTES && !session->cache.places &&
        !word_cache_init(&session->cache))
        return tokenizer_no_memory(err);
    const char *rest = session->escaped.data;
    enum error_code code = ERROR_NONE;
    for (size_t left = session->escaped.size, word; left && !code; rest += word, left -= word) {
        word = apart ? word_size(rest, left) : left;
        code = word_cache_encode(&session->cache, rest, word, spm_encode_word, session, out, err);
    }
    return code;
}
