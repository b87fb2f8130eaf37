/* sentencepiece BPE (Kudo and Richardson 2018): merge the two neighbours whose joint text is the
 * token with the highest score until no joint text is a token; what is no token becomes bytes. */
#include "base/mem.h"
#include "model/merge_heap.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"

#include <string.h>

struct symbol {
    int32_t token; /* TOKEN_NONE: none */
    size_t start;
    uint32_t size; /* bytes; 0: merged into the symbol before */
    int32_t previous, next;
};

struct session {
    const struct tokenizer *tokenizer;
    const char *text;
    struct symbol *symbols;
    struct merge_heap heap;
};

/* Higher scores first: IEEE floats compare like sign-magnitude integers. */
static uint32_t rank_of_score(float score)
{
    score += 0.0f; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    return bits & 0x80000000u ? bits : 0x7FFFFFFFu - bits;
}

static bool queue_pair(struct session *session, int32_t left, int32_t right)
{
    if (left < 0 || right < 0)
        return true;
    const struct symbol *a = &session->symbols[left], *b = &session->symbols[right];
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

static bool merge_symbols(struct session *session, size_t n_symbols)
{
    struct symbol *symbols = session->symbols;
    for (size_t i = 1; i < n_symbols; i++) {
        if (!queue_pair(session, (int32_t)i - 1, (int32_t)i))
            return false;
    }
    for (struct merge_candidate best; merge_heap_pop(&session->heap, &best);) {
        struct symbol *left = &symbols[best.left];
        if (!left->size || left->next < 0)
            continue;
        struct symbol *right = &symbols[left->next];
        /* As libllama: only the sum counts. A pair whose sum is the same covers the same text. */
        if (left->size + right->size != (uint32_t)best.first + (uint32_t)best.second)
            continue;
        left->token = (int32_t)best.result;
        left->size += right->size;
        right->size = 0;
        left->next = right->next;
        if (right->next >= 0)
            symbols[right->next].previous = (int32_t)best.left;
        if (!queue_pair(session, left->previous, (int32_t)best.left) ||
            !queue_pair(session, (int32_t)best.left, left->next))
            return false;
    }
    return true;
}

static size_t symbols_of_text(struct session *session, const char *text, size_t size)
{
    size_t n = 0;
    for (size_t at = 0; at < size; n++) {
        size_t length = unicode_length(text[at]);
        if (length > size - at)
            length = size - at;
        session->symbols[n] = (struct symbol){
            .token = tokenizer_find(session->tokenizer, text + at, length),
            .start = at,
            .size = (uint32_t)length,
            .previous = (int32_t)n - 1,
            .next = at + length == size ? -1 : (int32_t)n + 1,
        };
        at += length;
    }
    return n;
}

static enum error_code emit(const struct session *session, const struct symbol *symbol, struct token_list *out,
                            struct error *err)
{
    if (symbol->token != TOKEN_NONE)
        return token_list_push(out, symbol->token, err);
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

enum error_code spm_encode(const struct tokenizer *tokenizer, const char *text, size_t size, bool space_before,
                           struct token_list *out, struct error *err)
{
    struct buffer escaped = {0};
    struct session session = {.tokenizer = tokenizer};
    enum error_code code = ERROR_NONE;
    if (space_before)
        spaces_escape(" ", 1, &escaped);
    spaces_escape(text, size, &escaped);
    session.text = escaped.data;
    session.symbols = escaped.failed ? NULL : mem_new_array(escaped.size, sizeof *session.symbols);
    if (!session.symbols || !merge_symbols(&session, symbols_of_text(&session, escaped.data, escaped.size))) {
        code = tokenizer_no_memory(err);
        goto done;
    }
    for (int32_t i = escaped.size ? 0 : -1; i >= 0 && !code; i = session.symbols[i].next)
        code = emit(&session, &session.symbols[i], out, err);
done:
    merge_heap_deinit(&session.heap);
    mem_free(session.symbols);
    buffer_deinit(&escaped);
    return code;
}
