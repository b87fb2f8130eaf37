/* Byte pair encoding: in each word, merge the pair of neighbours whose merge was learned first
 * until none is left (Sennrich et al. 2016). Symbols are numbers of texts, so that a pair is one
 * integer. */
#include "base/mem.h"
#include "base/random.h"
#include "model/merging.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"
#include "model/word_cache.h"

#include <string.h>

enum { CACHE_FROM_WORDS = 128 }; /* fewer words are not worth the cache's memory */

struct bpe_session {
    const struct tokenizer *tokenizer;
    struct pretokenizer_scratch split;
    struct merging
        merging; /* values: numbers in tokenizer->texts; TEXT_NONE: a character that no text is */
    struct buffer spelled; /* a word in the byte alphabet */
    struct buffer escaped;
    struct word_cache cache;
};

enum error_code bpe_session_new(const struct tokenizer *tokenizer, struct bpe_session **out,
                                struct error *err)
{
    *out = NULL;
    struct bpe_session *session = mem_new(sizeof *session);
    if (!session)
        return tokenizer_no_memory(err);
    session->tokenizer = tokenizer;
    *out = session;
    return ERROR_NONE;
}

void bpe_session_free(struct bpe_session *session)
{
    if (!session)
        return;
    pretokenizer_scratch_deinit(&session->split);
    merging_deinit(&session->merging);
    buffer_deinit(&session->spelled);
    buffer_deinit(&session->escaped);
    word_cache_deinit(&session->cache);
    mem_free(session);
}

static const struct merge *find_merge(const struct merge_table *table, int32_t left, int32_t right)
{
    if (left < 0 || right < 0 || !table->count)
        return NULL;
    uint64_t pair = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint32_t slot = (uint32_t)random_mix(pair) & (table->n_slots - 1);
    for (; table->slots[slot].pair != MERGE_FREE; slot = (slot + 1) & (table->n_slots - 1)) {
        if (table->slots[slot].pair == pair)
            return &table->slots[slot];
    }
    return NULL;
}

static bool bpe_pair(const void *self, const struct symbol *left, const struct symbol *right,
                     struct merge_candidate *out)
{
    const struct bpe_session *session = self;
    const struct merge *merge = find_merge(&session->tokenizer->merges, left->value, right->value);
    if (merge)
        *out = (struct merge_candidate){.rank = merge->rank,
                                        .first = left->value,
                                        .second = right->value,
                                        .result = merge->result};
    return merge != NULL;
}

static bool bpe_is_same(const struct merge_candidate *queued, const struct symbol *left,
                        const struct symbol *right)
{
    return left->value == queued->first && right->value == queued->second;
}

static const struct merging_rule rule = {bpe_pair, bpe_is_same};

/* A character that ended up in no token: its bytes, as far as the vocabulary has tokens for
 * them. */
static enum error_code emit_bytes(const struct tokenizer *tokenizer, const char *word,
                                  const struct symbol *symbol, struct token_list *out,
                                  struct error *err)
{
    for (uint32_t i = 0; i < symbol->size; i++) {
        uint8_t byte = (uint8_t)word[symbol->start + i];
        char spelled[4] = {word[symbol->start + i]};
        size_t n = 1;
        if (!(tokenizer->rule->flags & PRE_RAW_UTF8))
            n = unicode_encode(byte_alphabet_encode(byte), spelled);
        for (size_t k = 0; k < n; k++) {
            int32_t token = tokenizer->byte_tokens[(uint8_t)spelled[k]];
            if (token != TOKEN_NONE && token_list_push(out, token, err))
                return ERROR_NO_MEMORY;
        }
    }
    return ERROR_NONE;
}

static bool bpe_list_symbols(struct bpe_session *session, const char *word, size_t size)
{
    const struct tokenizer *tokenizer = session->tokenizer;
    bool raw = tokenizer->rule->flags & PRE_RAW_UTF8;
    if (!symbol_list_reset(&session->merging.list, size))
        return false;
    for (size_t at = 0, length; at < size; at += length) {
        length = raw ? unicode_length(word[at]) : 1;
        if (length > size - at)
            length = size - at;
        symbol_list_append(&session->merging.list,
                           raw ? text_table_find(&tokenizer->texts, word + at, length)
                               : tokenizer->byte_symbols[(uint8_t)word[at]],
                           length);
    }
    return true;
}

/* The token that the word is as it stands, or TOKEN_NONE. */
static enum error_code whole_word(struct bpe_session *session, const char *word, size_t size,
                                  int32_t *token, struct error *err)
{
    const struct tokenizer *tokenizer = session->tokenizer;
    *token = TOKEN_NONE;
    bool newlines = (tokenizer->rule->flags & PRE_WHOLE_NEWLINES) && word[0] == '\n';
    if (!newlines && !(tokenizer->rule->flags & PRE_IGNORE_MERGES))
        return ERROR_NONE;
    if (size > tokenizer->longest_token)
        return ERROR_NONE;
    if (tokenizer->rule->flags & PRE_RAW_UTF8) {
        *token = tokenizer_find(tokenizer, word, size);
        return ERROR_NONE;
    }
    buffer_clear(&session->spelled);
    for (size_t i = 0; i < size; i++) {
        char spelled[4];
        buffer_append(&session->spelled, spelled,
                      unicode_encode(byte_alphabet_encode((uint8_t)word[i]), spelled));
    }
    if (session->spelled.failed)
        return tokenizer_no_memory(err);
    *token = tokenizer_find(tokenizer, session->spelled.data, session->spelled.size);
    return ERROR_NONE;
}

static enum error_code bpe_encode_word(void *self, const char *word, size_t size,
                                       struct token_list *out, struct error *err)
{
    struct bpe_session *session = self;
    int32_t whole;
    enum error_code code = whole_word(session, word, size, &whole, err);
    if (code || whole != TOKEN_NONE)
        return code ? code : token_list_push(out, whole, err);
    if (!bpe_list_symbols(session, word, size) || !merging_run(&session->merging, &rule, session))
        return tokenizer_no_memory(err);
    for (int32_t i = 0; i >= 0 && !code; i = session->merging.list.symbols[i].next) {
        const struct symbol *symbol = &session->merging.list.symbols[i];
        if (symbol->value >= 0 && (uint32_t)symbol->value < session->tokenizer->n_tokens)
            code = token_list_push(out, symbol->value, err);
        else
            code = emit_bytes(session->tokenizer, word, symbol, out, err);
    }
    return code;
}

enum error_code bpe_session_encode(struct bpe_session *session, const char *text, size_t size,
                                   struct token_list *out, struct error *err)
{
    if (session->tokenizer->rule->flags & PRE_RAW_UTF8) {
        buffer_clear(&session->escaped);
        spaces_escape(text, size, &session->escaped);
        if (session->escaped.failed)
            return tokenizer_no_memory(err);
        text = session->escaped.data;
        size = session->escaped.size;
    }
    enum error_code code =
        pretokenizer_split(session->tokenizer->pretokenizer, text, size, &session->split, err);
    bool worth = !code && !session->cache.places && session->split.n_words >= CACHE_FROM_WORDS;
    if (worth && !word_cache_init(&session->cache))
        return tokenizer_no_memory(err);
    for (size_t i = 0, start = 0; i < session->split.n_words && !code;
         start = session->split.ends[i++]) {
        size_t length = session->split.ends[i] - start;
        if (length)
            code = word_cache_encode(&session->cache, session->split.text + start, length,
                                     bpe_encode_word, session, out, err);
    }
    return code;
}
