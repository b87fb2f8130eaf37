/* Text to tokens and back: the vocabulary of a GGUF model.
 *
 * Four families: WordPiece ("bert") and Unigram ("t5"), which encoders have; SPM (sentencepiece BPE
 * with byte fallback, tokenizer.ggml.model = "llama") and BPE (byte-level with merges, "gpt2"), the
 * latter with the pre-tokeniser that tokenizer.ggml.pre names. The rules follow llama.cpp's
 * libllama; tests/golden/tokenizers holds its answers. Other families (RWKV …) and pre-tokenisers
 * that are not in pretokenizer_table.c are ERROR_UNSUPPORTED by name.
 *
 * Encoding ends early, with ERROR_CANCELLED or ERROR_NO_MEMORY, where the work at hand may not go
 * on (base/work_limit.h).
 *
 * A tokenizer keeps nothing of the file it was read from. Read-only after open: any thread. */
#pragma once

#include "base/buffer.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_file;
struct tokenizer;

enum { TOKEN_NONE = -1 };

enum error_code tokenizer_open(const struct gguf_file *file, struct tokenizer **out,
                               struct error *err);
void tokenizer_close(struct tokenizer *tokenizer);

uint32_t tokenizer_size(const struct tokenizer *tokenizer);
const char *tokenizer_family(const struct tokenizer *tokenizer); /* "bpe", "spm", "wpm" or "ugm" */
const char *
tokenizer_pre(const struct tokenizer *tokenizer); /* "llama-bpe" …; "" for spm, or when not named */
int32_t tokenizer_bos(const struct tokenizer *tokenizer); /* TOKEN_NONE when there is none */
int32_t tokenizer_eos(const struct tokenizer *tokenizer);
int32_t tokenizer_eot(const struct tokenizer *tokenizer);
bool tokenizer_adds_bos(const struct tokenizer *tokenizer);
bool tokenizer_adds_eos(const struct tokenizer *tokenizer);
/* What stands between a question and a text that is ranked for it. */
int32_t tokenizer_separator(const struct tokenizer *tokenizer); /* TOKEN_NONE when there is none */
bool tokenizer_adds_separator(const struct tokenizer *tokenizer);
/* What stands behind a text where the model wants it (tokenizer_adds_eos()). */
int32_t tokenizer_end(const struct tokenizer *tokenizer);
/* Between what a text is filled in; TOKEN_NONE when there is none. */
enum tokenizer_infill_mark { INFILL_PREFIX, INFILL_SUFFIX, INFILL_MIDDLE, TOKENIZER_INFILL_MARKS };
int32_t tokenizer_infill(const struct tokenizer *tokenizer, enum tokenizer_infill_mark mark);
bool tokenizer_ends_generation(const struct tokenizer *tokenizer,
                               int32_t id); /* EOS, EOT and their like */
bool tokenizer_is_special(const struct tokenizer *tokenizer,
                          int32_t id); /* control and unknown tokens */

struct token_list { /* a zeroed list is empty and valid */
    int32_t *ids;
    size_t count;
    size_t capacity;
    size_t max; /* more are refused with ERROR_INVALID; 0: there is no bound */
};
void token_list_deinit(struct token_list *list);
enum error_code token_list_push(struct token_list *list, int32_t id, struct error *err);

enum tokenize_flags {
    TOKENIZE_ADD_SPECIAL = 1,   /* BOS and EOS where the model wants them */
    TOKENIZE_PARSE_SPECIAL = 2, /* "<|im_start|>" in the text is that token, not its characters */
};

/* Appends the tokens of `text`, any bytes (NUL and invalid UTF-8 included). */
enum error_code tokenizer_encode(const struct tokenizer *tokenizer, const char *text, size_t size,
                                 unsigned flags, struct token_list *out, struct error *err);

/* Appends the bytes of one token, which may be part of a character. Control tokens give
 * their text only when `special`. An id outside the vocabulary appends nothing. */
void tokenizer_piece(const struct tokenizer *tokenizer, int32_t id, bool special,
                     struct buffer *out);

/* Appends the text of a whole sequence, as libllama's llama_detokenize. */
void tokenizer_decode(const struct tokenizer *tokenizer, const int32_t *ids, size_t count,
                      bool remove_special, bool unparse_special, struct buffer *out);

/* Streaming: bytes come out only when they are whole UTF-8 characters; what can never
 * become one comes out as U+FFFD. A zeroed stream is fresh. `special` shows control tokens. */
struct token_stream {
    char pending[4];
    uint32_t n_pending;
};
void token_stream_push(struct token_stream *stream, const struct tokenizer *tokenizer, int32_t id,
                       bool special, struct buffer *out);
void token_stream_finish(struct token_stream *stream, struct buffer *out);
