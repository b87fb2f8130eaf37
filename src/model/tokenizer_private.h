/* What the files of the tokenizer share; no other file includes it.
 *
 *   tokenizer.c             open, close, facts, encode
 *   tokenizer_vocabulary.c  the arrays of the file: texts, scores, kinds
 *   tokenizer_merges.c      BPE's merges
 *   tokenizer_special.c     BOS, EOS, EOT and the tokens that end generation
 *   tokenizer_partition.c   finds special tokens in a text
 *   tokenizer_bpe.c, _spm.c, _wordpiece.c, _unigram.c
 *                           the families
 *   tokenizer_decode.c      tokens back to text, whole or as a stream */
#pragma once

#include "base/buffer.h"
#include "base/error.h"
#include "model/gguf_file.h"
#include "model/pretokenizer.h"
#include "model/text_table.h"
#include "model/token_prefixes.h"
#include "model/tokenizer.h"

enum tokenizer_family_kind { FAMILY_SPM, FAMILY_BPE, FAMILY_WORDPIECE, FAMILY_UNIGRAM };

/* Bits: libllama may make a token of another kind a control token as well. */
enum token_attribute {
    ATTRIBUTE_UNKNOWN = 1,
    ATTRIBUTE_UNUSED = 2,
    ATTRIBUTE_NORMAL = 4,
    ATTRIBUTE_CONTROL = 8,
    ATTRIBUTE_USER_DEFINED = 16,
    ATTRIBUTE_BYTE = 32,
    ATTRIBUTE_LEFT_STRIP = 128,  /* eats white space before it */
    ATTRIBUTE_RIGHT_STRIP = 256, /* and after it */
    ATTRIBUTE_ENDS_GENERATION = 512,
    ATTRIBUTE_HIDDEN = ATTRIBUTE_UNKNOWN | ATTRIBUTE_CONTROL, /* decoded only on request */
    ATTRIBUTE_SPECIAL = ATTRIBUTE_HIDDEN | ATTRIBUTE_USER_DEFINED,
};

/* Merges by pair: open addressing over left << 32 | right. */
struct merge {
    uint64_t pair; /* MERGE_FREE: no entry */
    uint32_t rank, result;
};
struct merge_table {
    struct merge *slots;
    uint32_t n_slots, count; /* a power of two; 0: no table */
};
#define MERGE_FREE UINT64_MAX

/* Special tokens, for the partition of a text. */
struct special_set {
    uint32_t *by_text;   /* sorted bytewise */
    uint32_t *by_length; /* indices into by_text, longest text first: the order in which they are
                            looked for */
    uint32_t count;
    bool first_bytes[256];
};

/* What Unigram's normaliser puts in the place of what. */
struct charsmap {
    uint32_t *units; /* a double array */
    uint32_t n_units;
    char *replacements; /* each ends with a NUL */
    size_t n_replacements;
};

struct tokenizer {
    enum tokenizer_family_kind family;
    const struct pretokenizer_rule *rule; /* BPE */
    struct pretokenizer *pretokenizer;    /* BPE */
    char *pre;                            /* as the file names it; NULL when it does not */

    struct text_table
        texts; /* number < n_tokens: that token; above: what merges name but no token is */
    uint32_t n_tokens;
    size_t longest_token;           /* bytes */
    uint16_t *attributes;           /* enum token_attribute */
    float *scores;                  /* SPM, Unigram */
    float score_min;                /* Unigram: of normal tokens */
    struct token_prefixes prefixes; /* WordPiece, Unigram */
    struct charsmap charsmap;       /* Unigram */
    size_t *piece_ends;             /* piece of token i ends here in `pieces` */
    struct buffer pieces;           /* what each token decodes to */

    int32_t bos, eos, eot, unknown, separator;
    int32_t infill[TOKENIZER_INFILL_MARKS];
    bool adds_bos, adds_eos, adds_separator;
    bool merges_spaces;          /* Unigram: spaces side by side are one, at the ends none */
    bool lowers, strips_accents; /* WordPiece */
    bool add_space_prefix; /* a space goes before text at the start and after a special token */
    bool words_apart;      /* SPM: no token has a space inside, so words are merged one by one */
    bool clean_spaces;     /* decoding tidies " ." and " 's" */

    struct merge_table merges;
    int32_t byte_symbols[256]; /* number of the text that stands for the byte at the start of
                                  merging, or TEXT_NONE */
    int32_t byte_tokens[256];  /* token of a byte that became part of no token, or TOKEN_NONE */
    struct special_set specials;
};

/* A stretch of text (token == TOKEN_NONE), or a special token found in it. */
struct fragment {
    size_t start, size;
    int32_t token;
};
struct fragment_list {
    struct fragment *items;
    size_t count, capacity;
};

enum error_code tokenizer_no_memory(struct error *err);
enum error_code tokenizer_given_up(struct error *err); /* work_limit_goes_on() said no */

enum error_code vocabulary_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                                struct error *err);
enum error_code merges_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                            struct error *err);
void byte_symbols_find(struct tokenizer *tokenizer);
enum error_code special_tokens_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                                    struct error *err);
enum error_code special_set_load(struct tokenizer *tokenizer, struct error *err);
enum error_code pieces_load(struct tokenizer *tokenizer, struct error *err);
int32_t tokenizer_find(const struct tokenizer *tokenizer, const char *text,
                       size_t size); /* TOKEN_NONE */

/* The one of `tokens` (two or more) that libllama would meet first. */
enum error_code reference_order_first(const struct tokenizer *tokenizer, const int32_t *tokens,
                                      uint32_t count, int32_t *first, struct error *err);

enum error_code partition_text(const struct tokenizer *tokenizer, const char *text, size_t size,
                               bool parse_special, struct fragment_list *out, struct error *err);

/* One family's encoder over one stretch of text after another. */
struct bpe_session;
enum error_code bpe_session_new(const struct tokenizer *tokenizer, struct bpe_session **out,
                                struct error *err);
void bpe_session_free(struct bpe_session *session);
enum error_code bpe_session_encode(struct bpe_session *session, const char *text, size_t size,
                                   struct token_list *out, struct error *err);

struct spm_session;
enum error_code spm_session_new(const struct tokenizer *tokenizer, struct spm_session **out,
                                struct error *err);
void spm_session_free(struct spm_session *session);
enum error_code spm_session_encode(struct spm_session *session, const char *text, size_t size,
                                   bool space_before, struct token_list *out, struct error *err);
enum error_code wordpiece_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 struct token_list *out, struct error *err);

/* Its prefixes and normaliser, once the vocabulary and its special tokens are there. */
enum error_code unigram_load(struct tokenizer *tokenizer, const struct gguf_file *file,
                             struct error *err);
enum error_code unigram_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                               struct token_list *out, struct error *err);
/* Whether no token reaches beyond a word, so that words can be merged one by one. */
bool spm_words_are_apart(const struct tokenizer *tokenizer);

/* U+2581 for every space; the other way round. */
void spaces_escape(const char *text, size_t size, struct buffer *out);
void spaces_unescape(const char *text, size_t size, struct buffer *out);
