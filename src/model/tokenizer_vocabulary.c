/* The vocabulary's arrays: texts, kinds and scores. Hostile until checked: lengths agree, texts
 * are within limits and no two are the same. */
#include "base/limits.h"
#include "base/mem.h"
#include "model/tokenizer_private.h"
#include "model/unicode.h"

#include <stdio.h>
#include <string.h>

static const char key_texts[] = "tokenizer.ggml.tokens";
static const char key_scores[] = "tokenizer.ggml.scores";
static const char key_kinds[] = "tokenizer.ggml.token_type";

struct vocabulary_loading {
    struct tokenizer *tokenizer;
    enum error_code code;
    struct error *err;
};

static void tokenizer_vocabulary_take_token(void *arg, uint64_t index, const char *text,
                                            size_t size)
{
    struct vocabulary_loading *loading = arg;
    if (loading->code)
        return;
    if (size > LIMIT_TOKEN_BYTES) {
        loading->code =
            error_set(loading->err, ERROR_INVALID, "token %llu has %zu bytes; the limit is %d",
                      (unsigned long long)index, size, LIMIT_TOKEN_BYTES);
        return;
    }
    char name[32];
    if (!size) { /* libllama's name for a token without text */
        size = (size_t)snprintf(name, sizeof name, "[EMPTY_%llu]", (unsigned long long)index);
        text = name;
    }
    struct text_table *texts = &loading->tokenizer->texts;
    uint32_t before = texts->count, number;
    loading->code = text_table_add(texts, text, size, &number, loading->err);
    if (!loading->code && texts->count == before)
        loading->code =
            error_set(loading->err, ERROR_INVALID, "tokens %u and %llu have the same text '%.*s'",
                      number, (unsigned long long)index, size > 64 ? 64 : (int)size, text);
    if (size > loading->tokenizer->longest_token)
        loading->tokenizer->longest_token = size;
}

static enum error_code load_texts(struct tokenizer *tokenizer, const struct gguf_file *file,
                                  struct error *err)
{
    uint64_t count;
    enum error_code code = gguf_file_array(file, key_texts, GGUF_ARRAY_TEXT, &count, err);
    if (code)
        return code;
    if (count == 0 || count > LIMIT_VOCAB)
        return error_set(err, ERROR_INVALID, "%s has %llu tokens; 1 to %d are possible", key_texts,
                         (unsigned long long)count, LIMIT_VOCAB);
    tokenizer->n_tokens = (uint32_t)count;
    struct vocabulary_loading loading = {.tokenizer = tokenizer, .err = err};
    loading.code = text_table_reserve(&tokenizer->texts, tokenizer->n_tokens, err);
    gguf_file_array_texts(file, key_texts, tokenizer_vocabulary_take_token, &loading);
    return loading.code;
}

/* An optional array with one element a token, or more; *count is 0 without it. */
static enum error_code check_array(const struct tokenizer *tokenizer, const struct gguf_file *file,
                                   const char *key, enum gguf_array_kind kind, uint64_t *count,
                                   struct error *err)
{
    *count = 0;
    if (!gguf_file_has(file, key))
        return ERROR_NONE;
    enum error_code code = gguf_file_array(file, key, kind, count, err);
    if (!code && (*count < tokenizer->n_tokens || *count > LIMIT_VOCAB))
        code = error_set(err, ERROR_INVALID, "%s has %llu elements for %u tokens", key,
                         (unsigned long long)*count, tokenizer->n_tokens);
    return code;
}

static uint16_t attribute_of_kind(uint32_t kind)
{
    /* the format's token types: normal, unknown, control, user defined, unused, byte */
    static const uint16_t attributes[] = {0,
                                          ATTRIBUTE_NORMAL,
                                          ATTRIBUTE_UNKNOWN,
                                          ATTRIBUTE_CONTROL,
                                          ATTRIBUTE_USER_DEFINED,
                                          ATTRIBUTE_UNUSED,
                                          ATTRIBUTE_BYTE};
    return kind < sizeof attributes / sizeof attributes[0] ? attributes[kind] : 0;
}

static enum error_code load_kinds(struct tokenizer *tokenizer, const struct gguf_file *file,
                                  struct error *err)
{
    uint64_t count;
    enum error_code code = check_array(tokenizer, file, key_kinds, GGUF_ARRAY_U32, &count, err);
    if (code)
        return code;
    uint32_t *kinds = mem_new_array(count, sizeof *kinds);
    tokenizer->attributes = mem_new_array(tokenizer->n_tokens, sizeof *tokenizer->attributes);
    if (!kinds || !tokenizer->attributes)
        code = tokenizer_no_memory(err);
    else if (count)
        gguf_file_array_u32s(file, key_kinds, kinds);
    for (uint32_t i = 0; i < tokenizer->n_tokens && !code; i++)
        tokenizer->attributes[i] = count ? attribute_of_kind(kinds[i]) : (uint16_t)ATTRIBUTE_NORMAL;
    mem_free(kinds);
    return code;
}

static enum error_code load_scores(struct tokenizer *tokenizer, const struct gguf_file *file,
                                   struct error *err)
{
    uint64_t count;
    enum error_code code = check_array(tokenizer, file, key_scores, GGUF_ARRAY_F32, &count, err);
    if (code)
        return code;
    tokenizer->scores =
        mem_new_array(count ? count : tokenizer->n_tokens, sizeof *tokenizer->scores);
    if (!tokenizer->scores)
        return tokenizer_no_memory(err);
    if (count)
        gguf_file_array_f32s(file, key_scores, tokenizer->scores);
    return ERROR_NONE;
}

enum error_code vocabulary_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                                struct error *err)
{
    enum error_code code = load_texts(tokenizer, file, err);
    if (!code)
        code = load_kinds(tokenizer, file, err);
    if (!code && (tokenizer->family == FAMILY_SPM || tokenizer->family == FAMILY_UNIGRAM))
        code = load_scores(tokenizer, file, err);
    return code;
}

int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text, size_t size)
{
    int32_t number = text_table_find(&tokenizer->texts, text, size);
    return number >= 0 && (uint32_t)number < tokenizer->n_tokens ? number : TOKEN_NONE;
}

static int32_t find_byte_token(const struct tokenizer *tokenizer, uint8_t byte)
{
    bool spelled = tokenizer->family == FAMILY_SPM || (tokenizer->rule->flags & PRE_RAW_UTF8);
    const char plain = (char)byte;
    int32_t token = TOKEN_NONE;
    if (spelled) {
        char name[8];
        token =
            tokenizer_find(tokenizer, name, (size_t)snprintf(name, sizeof name, "<0x%02X>", byte));
    }
    if (token == TOKEN_NONE && (!spelled || tokenizer->family == FAMILY_SPM))
        token = tokenizer_find(tokenizer, &plain, 1);
    return token;
}

void byte_symbols_find(struct tokenizer *tokenizer)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        char spelled[4];
        size_t size = unicode_encode(byte_alphabet_encode((uint8_t)byte), spelled);
        tokenizer->byte_symbols[byte] = text_table_find(&tokenizer->texts, spelled, size);
        tokenizer->byte_tokens[byte] = find_byte_token(tokenizer, (uint8_t)byte);
    }
}
