#include "model/tokenizer.h"

#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "model/tokenizer_private.h"

#include <assert.h>
#include <string.h>

enum error_code tokenizer_no_memory(struct error *err)
{
    return error_set(err, ERROR_NO_MEMORY, "out of memory");
}

enum error_code tokenizer_given_up(struct error *err)
{
    return error_set(err, ERROR_CANCELLED, "given up");
}

/* ---- open ---- */

static const struct {
    const char *model, *family;
} unsupported[] = {
    {"rwkv", "RWKV trie"},
    {"plamo2", "PLaMo-2"},
    {"none", "no"},
    {"no_vocab", "no"},
    {"replit", "Unigram"},
    {"hybriddna", "DNA k-mer"},
    {"whitespace", "white-space"},
};

static enum error_code refuse_model(const char *model, size_t size, struct error *err)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++) {
        if (strlen(unsupported[i].model) == size && memcmp(unsupported[i].model, model, size) == 0)
            return error_set(err, ERROR_UNSUPPORTED,
                             "tokenizer.ggml.model is '%s' (%s vocabulary); Medley knows BPE "
                             "('gpt2', 'gemma4'), SPM ('llama'), WordPiece ('bert') and Unigram "
                             "('t5')",
                             unsupported[i].model, unsupported[i].family);
    }
    return error_set(err, ERROR_UNSUPPORTED, "unknown tokenizer.ggml.model '%.*s'",
                     size > 64 ? 64 : (int)size, model);
}

static enum error_code choose_rule(struct tokenizer *tokenizer, const struct gguf_file *file,
                                   bool gemma4, struct error *err)
{
    const char *pre = gemma4 ? "gemma4" : "";
    size_t size = strlen(pre);
    enum error_code code = ERROR_NONE;
    if (!gemma4 && gguf_file_has(file, "tokenizer.ggml.pre"))
        code = gguf_file_text(file, "tokenizer.ggml.pre", &pre, &size, err);
    if (code)
        return code;
    if (!size) {
        log_line(LOG_WARN, "tokenizer",
                 "%s names no pre-tokeniser (tokenizer.ggml.pre); 'default' is used and "
                 "answers may be worse for it",
                 gguf_file_path(file));
        pre = "default";
        size = strlen(pre);
    } else {
        tokenizer->pre = mem_copy_text(pre, size);
        if (!tokenizer->pre)
            return tokenizer_no_memory(err);
    }
    tokenizer->rule = pretokenizer_rule_find(pre, size);
    if (!tokenizer->rule)
        return error_set(err, ERROR_UNSUPPORTED,
                         "unknown pre-tokeniser '%.*s' (tokenizer.ggml.pre)",
                         size > 64 ? 64 : (int)size, pre);
    return pretokenizer_open(tokenizer->rule, &tokenizer->pretokenizer, err);
}

/* The family, and what it takes for granted before the file's keys are read. */
static enum error_code choose_family(struct tokenizer *tokenizer, const struct gguf_file *file,
                                     struct error *err)
{
    const char *model;
    size_t size;
    enum error_code code = gguf_file_text(file, "tokenizer.ggml.model", &model, &size, err);
    if (code)
        return code;
    tokenizer->bos = tokenizer->eos = tokenizer->eot = tokenizer->unknown = TOKEN_NONE;
    tokenizer->separator = TOKEN_NONE;
    if (strcmp(model, "llama") == 0) {
        tokenizer->family = FAMILY_SPM;
        tokenizer->bos = 1;
        tokenizer->eos = 2;
        tokenizer->unknown = 0;
        tokenizer->adds_bos = true;
        tokenizer->add_space_prefix = true;
        return ERROR_NONE;
    }
    if (strcmp(model, "bert") == 0) {
        tokenizer->family = FAMILY_WORDPIECE;
        tokenizer->unknown = 100;
        tokenizer->bos = 101;
        tokenizer->separator = 102;
        tokenizer->lowers = tokenizer->strips_accents = true;
        return ERROR_NONE;
    }
    if (strcmp(model, "t5") == 0) {
        tokenizer->family = FAMILY_UNIGRAM;
        tokenizer->eos = 1;
        tokenizer->unknown = 2;
        tokenizer->adds_eos = tokenizer->add_space_prefix = true;
        return ERROR_NONE;
    }
    bool gemma4 = strcmp(model, "gemma4") == 0;
    if (!gemma4 && strcmp(model, "gpt2") != 0)
        return refuse_model(model, size, err);
    tokenizer->family = FAMILY_BPE;
    code = choose_rule(tokenizer, file, gemma4, err);
    if (code)
        return code;
    unsigned flags = tokenizer->rule->flags;
    tokenizer->bos = gemma4 || (flags & PRE_NO_BOS) ? TOKEN_NONE : 11;
    tokenizer->eos = gemma4 ? TOKEN_NONE : 11;
    tokenizer->adds_bos = flags & PRE_ADD_BOS;
    tokenizer->clean_spaces = !(flags & PRE_KEEP_SPACES);
    return ERROR_NONE;
}

static enum error_code tokenizer_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                                      struct error *err)
{
    enum error_code code = choose_family(tokenizer, file, err);
    if (!code)
        code = vocabulary_load(tokenizer, file, err);
    if (!code && tokenizer->family == FAMILY_BPE)
        code = merges_load(tokenizer, file, err);
    if (code)
        return code;
    if (tokenizer->family == FAMILY_BPE || tokenizer->family == FAMILY_SPM)
        byte_symbols_find(tokenizer);
    tokenizer->words_apart = tokenizer->family == FAMILY_SPM && spm_words_are_apart(tokenizer);
    code = special_tokens_load(tokenizer, file, err);
    if (!code)
        code = special_set_load(tokenizer, err);
    if (!code && tokenizer->family == FAMILY_UNIGRAM)
        code = unigram_load(tokenizer, file, err);
    if (!code && tokenizer->family == FAMILY_WORDPIECE &&
        !token_prefixes_init(&tokenizer->prefixes, &tokenizer->texts, tokenizer->n_tokens, NULL))
        code = tokenizer_no_memory(err);
    if (!code)
        code = pieces_load(tokenizer, err);
    return code;
}

enum error_code tokenizer_open(const struct gguf_file *file, struct tokenizer **out,
                               struct error *err)
{
    *out = NULL;
    struct tokenizer *tokenizer = mem_new(sizeof *tokenizer);
    if (!tokenizer)
        return tokenizer_no_memory(err);
    enum error_code code = tokenizer_load(tokenizer, file, err);
    if (gguf_file_check_whole(file, NULL)) /* then what it says is not the reason */
        code = gguf_file_check_whole(file, err);
    if (code) {
        tokenizer_close(tokenizer);
        error_wrap(err, "tokenizer");
        return code;
    }
    *out = tokenizer;
    return ERROR_NONE;
}

void tokenizer_close(struct tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    pretokenizer_close(tokenizer->pretokenizer);
    mem_free(tokenizer->pre);
    token_prefixes_deinit(&tokenizer->prefixes);
    mem_free(tokenizer->charsmap.units);
    mem_free(tokenizer->charsmap.replacements);
    text_table_deinit(&tokenizer->texts);
    mem_free(tokenizer->attributes);
    mem_free(tokenizer->scores);
    mem_free(tokenizer->piece_ends);
    buffer_deinit(&tokenizer->pieces);
    mem_free(tokenizer->merges.slots);
    mem_free(tokenizer->specials.by_text);
    mem_free(tokenizer->specials.by_length);
    mem_free(tokenizer);
}

/* ---- facts ---- */

uint32_t tokenizer_size(const struct tokenizer *tokenizer)
{
    return tokenizer->n_tokens;
}

const char *tokenizer_family(const struct tokenizer *tokenizer)
{
    static const char *const names[] = {[FAMILY_SPM] = "spm",
                                        [FAMILY_BPE] = "bpe",
                                        [FAMILY_WORDPIECE] = "wpm",
                                        [FAMILY_UNIGRAM] = "ugm"};
    return names[tokenizer->family];
}

const char *tokenizer_pre(const struct tokenizer *tokenizer)
{
    return tokenizer->pre ? tokenizer->pre : "";
}

int32_t tokenizer_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t tokenizer_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->eos;
}

int32_t tokenizer_end(const struct tokenizer *tokenizer)
{
    return tokenizer->family == FAMILY_WORDPIECE ? tokenizer->separator : tokenizer->eos;
}

int32_t tokenizer_separator(const struct tokenizer *tokenizer)
{
    return tokenizer->separator;
}

bool tokenizer_adds_separator(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_separator;
}

int32_t tokenizer_eot(const struct tokenizer *tokenizer)
{
    return tokenizer->eot;
}

int32_t tokenizer_infill(const struct tokenizer *tokenizer, enum tokenizer_infill_mark mark)
{
    return tokenizer->infill[mark];
}

bool tokenizer_adds_bos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_bos;
}

bool tokenizer_adds_eos(const struct tokenizer *tokenizer)
{
    return tokenizer->adds_eos;
}

static bool has_attribute(const struct tokenizer *tokenizer, int32_t id, unsigned attributes)
{
    return id >= 0 && (uint32_t)id < tokenizer->n_tokens &&
           (tokenizer->attributes[id] & attributes);
}

bool tokenizer_ends_generation(const struct tokenizer *tokenizer, int32_t id)
{
    return has_attribute(tokenizer, id, ATTRIBUTE_ENDS_GENERATION);
}

bool tokenizer_is_special(const struct tokenizer *tokenizer, int32_t id)
{
    return has_attribute(tokenizer, id, ATTRIBUTE_HIDDEN);
}

/* ---- lists ---- */

void token_list_deinit(struct token_list *list)
{
    if (!list)
        return;
    mem_free(list->ids);
    *list = (struct token_list){0};
}

enum error_code token_list_push(struct token_list *list, int32_t id, struct error *err)
{
    if (list->max && list->count == list->max)
        return error_set(err, ERROR_INVALID, "more than %zu tokens", list->max);
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? list->capacity * 2 : 64;
        int32_t *ids = mem_resize(list->ids, capacity, sizeof *ids);
        if (!ids)
            return tokenizer_no_memory(err);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->count++] = id;
    return ERROR_NONE;
}

/* ---- encode ---- */

static enum error_code encode_bpe(const struct tokenizer *tokenizer, const char *text,
                                  const struct fragment_list *fragments, struct token_list *out,
                                  struct error *err)
{
    struct bpe_session *session;
    enum error_code code = bpe_session_new(tokenizer, &session, err);
    for (size_t i = 0; i < fragments->count && !code; i++) {
        const struct fragment *fragment = &fragments->items[i];
        if (fragment->token != TOKEN_NONE)
            code = token_list_push(out, fragment->token, err);
        else
            code = bpe_session_encode(session, text + fragment->start, fragment->size, out, err);
    }
    bpe_session_free(session);
    return code;
}

static enum error_code encode_spm(const struct tokenizer *tokenizer, const char *text,
                                  const struct fragment_list *fragments, struct token_list *out,
                                  struct error *err)
{
    struct spm_session *session;
    enum error_code code = spm_session_new(tokenizer, &session, err);
    bool after_special = true;
    for (size_t i = 0; i < fragments->count && !code; i++) {
        const struct fragment *fragment = &fragments->items[i];
        bool special = fragment->token != TOKEN_NONE;
        if (special)
            code = token_list_push(out, fragment->token, err);
        else
            code = spm_session_encode(session, text + fragment->start, fragment->size,
                                      tokenizer->add_space_prefix && after_special, out, err);
        after_special = special;
    }
    spm_session_free(session);
    return code;
}

/* Words and spaces are found anew in every stretch of text. */
static enum error_code encode_stretches(const struct tokenizer *tokenizer, const char *text,
                                        const struct fragment_list *fragments,
                                        struct token_list *out, struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < fragments->count && !code; i++) {
        const struct fragment *fragment = &fragments->items[i];
        if (fragment->token != TOKEN_NONE)
            code = token_list_push(out, fragment->token, err);
        else if (tokenizer->family == FAMILY_WORDPIECE)
            code = wordpiece_encode(tokenizer, text + fragment->start, fragment->size, out, err);
        else
            code = unigram_encode(tokenizer, text + fragment->start, fragment->size, out, err);
    }
    return code;
}

static enum error_code encode_fragments(const struct tokenizer *tokenizer, const char *text,
                                        const struct fragment_list *fragments,
                                        struct token_list *out, struct error *err)
{
    switch (tokenizer->family) {
    case FAMILY_BPE:
        return encode_bpe(tokenizer, text, fragments, out, err);
    case FAMILY_SPM:
        return encode_spm(tokenizer, text, fragments, out, err);
    case FAMILY_WORDPIECE:
    case FAMILY_UNIGRAM:
        return encode_stretches(tokenizer, text, fragments, out, err);
    }
    return ERROR_NONE;
}

enum error_code tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 unsigned flags, struct token_list *out, struct error *err)
{
    assert((flags & ~(unsigned)(TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL)) == 0);
    if (size > LIMIT_TOKENIZE_BYTES)
        return error_set(err, ERROR_INVALID, "text has %zu bytes; the limit is %d", size,
                         LIMIT_TOKENIZE_BYTES);
    struct fragment_list fragments = {0};
    enum error_code code =
        partition_text(tokenizer, text, size, flags & TOKENIZE_PARSE_SPECIAL, &fragments, err);
    if (!code && (flags & TOKENIZE_ADD_SPECIAL) && tokenizer->adds_bos)
        code = token_list_push(out, tokenizer->bos, err);
    if (!code)
        code = encode_fragments(tokenizer, text, &fragments, out, err);
    if (!code && (flags & TOKENIZE_ADD_SPECIAL) && tokenizer->adds_eos)
        code = token_list_push(out, tokenizer_end(tokenizer), err);
    mem_free(fragments.items);
    return code;
}
