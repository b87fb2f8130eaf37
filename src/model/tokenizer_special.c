/* Tokens with a meaning: BOS, EOS, EOT, and those that end generation. The file names some; the
 * rest are known by their texts, as in libllama's llama_vocab::impl::load. */
#include "base/log.h"
#include "base/mem.h"
#include "model/tokenizer_private.h"

#include <ctype.h>
#include <string.h>

/* Roles of which at most one token is taken, found by text when the file names none. */
enum role {
    ROLE_EOT,
    ROLE_EOM,
    ROLE_FIM_PREFIX,
    ROLE_FIM_SUFFIX,
    ROLE_FIM_MIDDLE,
    ROLE_FIM_PAD,
    ROLE_FIM_REPO,
    ROLE_FIM_FILE,
    ROLE_COUNT
};

enum { ROLE_TEXTS = 12 };
static const struct {
    const char *key, *old_key;
    bool ends_generation;
    const char *texts[ROLE_TEXTS];
} roles[ROLE_COUNT] = {
    [ROLE_EOT] = {"tokenizer.ggml.eot_token_id",
                  NULL,
                  true,
                  {"<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
                   "<|end_of_text|>", "<EOT>", "_<EOT>", "[EOT]", "<｜end▁of▁sentence｜>",
                   "<end_of_utterance>"}},
    [ROLE_EOM] = {"tokenizer.ggml.eom_token_id", NULL, true, {"<|eom_id|>"}},
    [ROLE_FIM_PREFIX] = {"tokenizer.ggml.fim_pre_token_id",
                         "tokenizer.ggml.prefix_token_id",
                         false,
                         {"<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>",
                          "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"}},
    [ROLE_FIM_SUFFIX] = {"tokenizer.ggml.fim_suf_token_id",
                         "tokenizer.ggml.suffix_token_id",
                         false,
                         {"<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",
                          "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"}},
    [ROLE_FIM_MIDDLE] = {"tokenizer.ggml.fim_mid_token_id",
                         "tokenizer.ggml.middle_token_id",
                         false,
                         {"<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",
                          "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"}},
    [ROLE_FIM_PAD] = {"tokenizer.ggml.fim_pad_token_id",
                      NULL,
                      true,
                      {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"}},
    [ROLE_FIM_REPO] = {"tokenizer.ggml.fim_rep_token_id",
                       NULL,
                       true,
                       {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"}},
    [ROLE_FIM_FILE] = {"tokenizer.ggml.fim_sep_token_id", NULL, true, {"<|file_sep|>"}},
};

/* Every one of these ends generation. */
static const char *const ending_texts[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
};

/* gpt-oss: what structures a message is shown like text. */
static const char *const shown_texts[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>"};

static int32_t tokenizer_special_find(const struct tokenizer *tokenizer, const char *text)
{
    return tokenizer_find(tokenizer, text, strlen(text));
}

static void make_control(struct tokenizer *tokenizer, int32_t token)
{
    size_t size;
    const char *text = text_table_at(&tokenizer->texts, (uint32_t)token, &size);
    if (!(tokenizer->attributes[token] & ATTRIBUTE_CONTROL))
        log_line(LOG_INFO, "tokenizer",
                 "token %d '%.*s' looks like a control token; it is taken as one", token, (int)size,
                 text);
    tokenizer->attributes[token] |= ATTRIBUTE_CONTROL;
}

/* The id a key names. Without the key, or with an id that no token has, *id stays. */
static enum error_code tokenizer_special_read_id(const struct tokenizer *tokenizer,
                                                 const struct gguf_file *file, const char *key,
                                                 int32_t *id, struct error *err)
{
    if (*id >= 0 && (uint32_t)*id >= tokenizer->n_tokens)
        *id = TOKEN_NONE;
    if (!key || !gguf_file_has(file, key))
        return ERROR_NONE;
    uint32_t named;
    enum error_code code = gguf_file_u32(file, key, &named, err);
    if (code)
        return code;
    if (named >= tokenizer->n_tokens)
        log_line(LOG_WARN, "tokenizer", "%s is %u, but there are %u tokens; it is ignored", key,
                 named, tokenizer->n_tokens);
    else
        *id = (int32_t)named;
    return ERROR_NONE;
}

static enum error_code find_by_text(struct tokenizer *tokenizer, enum role role, int32_t *id,
                                    struct error *err)
{
    int32_t found[ROLE_TEXTS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < ROLE_TEXTS && roles[role].texts[i]; i++) {
        found[count] = tokenizer_special_find(tokenizer, roles[role].texts[i]);
        count += found[count] != TOKEN_NONE;
    }
    if (!count)
        return ERROR_NONE;
    *id = found[0];
    enum error_code code =
        count > 1 ? reference_order_first(tokenizer, found, count, id, err) : ERROR_NONE;
    if (!code)
        make_control(tokenizer, *id);
    return code;
}

static enum error_code load_roles(struct tokenizer *tokenizer, const struct gguf_file *file,
                                  int32_t ids[ROLE_COUNT], struct error *err)
{
    enum error_code code = ERROR_NONE;
    for (uint32_t role = 0; role < ROLE_COUNT && !code; role++) {
        ids[role] = TOKEN_NONE;
        code = tokenizer_special_read_id(tokenizer, file, roles[role].key, &ids[role], err);
        if (!code)
            code = tokenizer_special_read_id(tokenizer, file, roles[role].old_key, &ids[role], err);
        if (!code && ids[role] == TOKEN_NONE)
            code = find_by_text(tokenizer, (enum role)role, &ids[role], err);
    }
    return code;
}

static void end_generation(struct tokenizer *tokenizer, int32_t token)
{
    if (token != TOKEN_NONE)
        tokenizer->attributes[token] |= ATTRIBUTE_ENDS_GENERATION;
}

static bool tokenizer_special_ends(const struct tokenizer *tokenizer, const char *text)
{
    int32_t token = tokenizer_special_find(tokenizer, text);
    return token != TOKEN_NONE && (tokenizer->attributes[token] & ATTRIBUTE_ENDS_GENERATION);
}

static void mark_ends(struct tokenizer *tokenizer, const int32_t ids[ROLE_COUNT])
{
    for (size_t i = 0; i < sizeof ending_texts / sizeof ending_texts[0]; i++) {
        int32_t token = tokenizer_special_find(tokenizer, ending_texts[i]);
        if (token == TOKEN_NONE)
            continue;
        make_control(tokenizer, token);
        end_generation(tokenizer, token);
    }
    for (size_t i = 0; i < sizeof shown_texts / sizeof shown_texts[0]; i++) {
        int32_t token = tokenizer_special_find(tokenizer, shown_texts[i]);
        if (token != TOKEN_NONE)
            tokenizer->attributes[token] =
                (uint16_t)((tokenizer->attributes[token] & ATTRIBUTE_ENDS_GENERATION) |
                           ATTRIBUTE_USER_DEFINED);
    }
    for (uint32_t role = 0; role < ROLE_COUNT; role++) {
        if (roles[role].ends_generation)
            end_generation(tokenizer, ids[role]);
    }
    end_generation(tokenizer, tokenizer->eos);
}

/* Vocabularies in which one of the texts above means something else. */
static void unmark_ends(struct tokenizer *tokenizer)
{
    bool harmony = tokenizer_special_ends(tokenizer, "<|return|>") &&
                   tokenizer_special_ends(tokenizer, "<|call|>");
    bool harmony_calls = tokenizer_special_ends(tokenizer, "<|return|>") &&
                         tokenizer_special_ends(tokenizer, "<|calls|>");
    bool solar = (tokenizer_special_ends(tokenizer, "<|call|>") ||
                  tokenizer_special_ends(tokenizer, "<|calls|>")) &&
                 tokenizer_special_ends(tokenizer, "<|flush|>");
    if ((harmony || harmony_calls || solar) && tokenizer_special_ends(tokenizer, "<|end|>"))
        tokenizer->attributes[tokenizer_special_find(tokenizer, "<|end|>")] =
            ATTRIBUTE_USER_DEFINED;
    if (tokenizer_special_ends(tokenizer, "<|tool_response>") &&
        tokenizer_special_ends(tokenizer, "</s>"))
        tokenizer->attributes[tokenizer_special_find(tokenizer, "</s>")] = ATTRIBUTE_NORMAL;
}

static bool tokenizer_special_contains(const char *text, size_t size, const char *word)
{
    return memmem(text, size, word, strlen(word)) != NULL;
}

static void set_strip(struct tokenizer *tokenizer, const char *text, uint16_t attribute, bool on)
{
    int32_t token = tokenizer_special_find(tokenizer, text);
    if (token == TOKEN_NONE)
        return;
    tokenizer->attributes[token] = (uint16_t)(on ? tokenizer->attributes[token] | attribute
                                                 : tokenizer->attributes[token] & ~attribute);
}

/* The format has no key for tokens that eat white space; libllama goes by names. */
static void mark_strips(struct tokenizer *tokenizer, const struct gguf_file *file)
{
    const char *name = "", *pre = "";
    size_t name_size = 0, pre_size = 0;
    if (gguf_file_has(file, "general.name"))
        gguf_file_text(file, "general.name", &name, &name_size, NULL);
    if (gguf_file_has(file, "tokenizer.ggml.pre"))
        gguf_file_text(file, "tokenizer.ggml.pre", &pre, &pre_size, NULL);
    char lower[128];
    size_t size = name_size < sizeof lower ? name_size : sizeof lower;
    for (size_t i = 0; i < size; i++)
        lower[i] = (char)tolower((unsigned char)name[i]);
    if (tokenizer_special_contains(pre, pre_size, "jina-v2-de") ||
        tokenizer_special_contains(pre, pre_size, "jina-v2-es") ||
        tokenizer_special_contains(pre, pre_size, "jina-v2-code")) {
        set_strip(tokenizer, "<mask>", ATTRIBUTE_LEFT_STRIP, true);
    } else if (tokenizer_special_contains(lower, size, "phi-3") ||
               tokenizer_special_contains(lower, size, "phi3")) {
        for (uint32_t i = 0; i < tokenizer->n_tokens; i++) {
            if (tokenizer->attributes[i] & ATTRIBUTE_SPECIAL)
                tokenizer->attributes[i] |= ATTRIBUTE_RIGHT_STRIP;
        }
        set_strip(tokenizer, "</s>", ATTRIBUTE_RIGHT_STRIP, true);
        set_strip(tokenizer, "<unk>", ATTRIBUTE_RIGHT_STRIP, false);
        set_strip(tokenizer, "<s>", ATTRIBUTE_RIGHT_STRIP, false);
        set_strip(tokenizer, "<|endoftext|>", ATTRIBUTE_RIGHT_STRIP, false);
    } else if (tokenizer_special_contains(lower, size, "modern-bert")) {
        set_strip(tokenizer, "[MASK]", ATTRIBUTE_LEFT_STRIP, true);
    }
}

static enum error_code read_flag(const struct gguf_file *file, const char *key, bool *flag,
                                 struct error *err)
{
    return gguf_file_has(file, key) ? gguf_file_bool(file, key, flag, err) : ERROR_NONE;
}

/* What encoders have: WordPiece always puts CLS before a text and SEP behind it. */
static enum error_code load_encoder_additions(struct tokenizer *tokenizer,
                                              const struct gguf_file *file, struct error *err)
{
    const bool is_wordpiece = tokenizer->family == FAMILY_WORDPIECE;
    tokenizer->adds_separator = is_wordpiece;
    enum error_code code =
        read_flag(file, "tokenizer.ggml.add_sep_token", &tokenizer->adds_separator, err);
    if (!code)
        code = read_flag(file, "tokenizer.ggml.remove_extra_whitespaces", &tokenizer->merges_spaces,
                         err);
    if (!code)
        code = read_flag(file, "tokenizer.ggml.normalizer.lowercase", &tokenizer->lowers, err);
    if (!code)
        code = read_flag(file, "tokenizer.ggml.normalizer.strip_accents",
                         &tokenizer->strips_accents, err);
    tokenizer->adds_bos |= is_wordpiece;
    tokenizer->adds_eos |= is_wordpiece;
    if (!code && is_wordpiece &&
        (tokenizer->separator == TOKEN_NONE || tokenizer->unknown == TOKEN_NONE))
        code = error_set(err, ERROR_INVALID,
                         "a WordPiece vocabulary needs a separator and an unknown token");
    return code;
}

static enum error_code load_additions(struct tokenizer *tokenizer, const struct gguf_file *file,
                                      struct error *err)
{
    enum error_code code =
        read_flag(file, "tokenizer.ggml.add_bos_token", &tokenizer->adds_bos, err);
    if (!code)
        code = read_flag(file, "tokenizer.ggml.add_eos_token", &tokenizer->adds_eos, err);
    if (!code)
        code =
            read_flag(file, "tokenizer.ggml.add_space_prefix", &tokenizer->add_space_prefix, err);
    if (code)
        return code;
    code = load_encoder_additions(tokenizer, file, err);
    if (code)
        return code;
    if (tokenizer->rule && (tokenizer->rule->flags & PRE_ALWAYS_BOS))
        tokenizer->adds_bos = true;
    if (tokenizer->adds_bos && tokenizer->bos == TOKEN_NONE)
        return error_set(err, ERROR_INVALID, "the model asks for a BOS token but has none");
    if (tokenizer->adds_eos && tokenizer_end(tokenizer) == TOKEN_NONE)
        return error_set(err, ERROR_INVALID, "the model asks for an EOS token but has none");
    return ERROR_NONE;
}

enum error_code special_tokens_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                                    struct error *err)
{
    int32_t ids[ROLE_COUNT];
    enum error_code code = tokenizer_special_read_id(tokenizer, file, "tokenizer.ggml.bos_token_id",
                                                     &tokenizer->bos, err);
    if (!code)
        code = tokenizer_special_read_id(tokenizer, file, "tokenizer.ggml.eos_token_id",
                                         &tokenizer->eos, err);
    if (!code)
        code = tokenizer_special_read_id(tokenizer, file, "tokenizer.ggml.unknown_token_id",
                                         &tokenizer->unknown, err);
    if (!code)
        code = tokenizer_special_read_id(tokenizer, file, "tokenizer.ggml.seperator_token_id",
                                         &tokenizer->separator, err);
    if (!code)
        code = load_additions(tokenizer, file, err);
    if (!code)
        code = load_roles(tokenizer, file, ids, err);
    if (code)
        return code;
    tokenizer->eot = ids[ROLE_EOT];
    tokenizer->infill[INFILL_PREFIX] = ids[ROLE_FIM_PREFIX];
    tokenizer->infill[INFILL_SUFFIX] = ids[ROLE_FIM_SUFFIX];
    tokenizer->infill[INFILL_MIDDLE] = ids[ROLE_FIM_MIDDLE];
    mark_ends(tokenizer, ids);
    unmark_ends(tokenizer);
    mark_strips(tokenizer, file);
    return ERROR_NONE;
}
