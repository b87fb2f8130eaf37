#include "synth-vocab.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Token types as GGUF numbers them. */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN = 2, TYPE_CONTROL = 3, TYPE_BYTE = 6 };

enum { SYLLABLES = 100, TOKEN_MAX = 16 };

#define SPACE "\xe2\x96\x81" /* U+2581, SentencePiece's space */

struct token {
    char text[TOKEN_MAX];
    float score;
    int32_t type;
};

static void write_word(char *out, bool spaced, uint32_t index, int syllables)
{
    static const char consonants[] = "bdfghjklmnprstvwxyzc", vowels[] = "aeiou";
    char *at = out + snprintf(out, TOKEN_MAX, "%s", spaced ? SPACE : "");
    for (int i = 0; i < syllables; i++, index /= SYLLABLES) {
        *at++ = consonants[index % SYLLABLES / 5];
        *at++ = vowels[index % 5];
    }
    *at = '\0';
}

/* Piece `index` after the byte tokens. */
static void write_piece(char *out, uint32_t index)
{
    if (index < 95) { /* printable ASCII, with U+2581 for the space */
        snprintf(out, TOKEN_MAX, "%c", ' ' + (char)index);
        if (index == 0)
            strcpy(out, SPACE);
        return;
    }
    index -= 95;
    uint32_t words = SYLLABLES;
    for (int syllables = 1;; syllables++, words *= SYLLABLES) {
        for (int spaced = 0; spaced < 2; spaced++) {
            if (index < words) {
                write_word(out, spaced, index, syllables);
                return;
            }
            index -= words;
        }
    }
}

static void fill_token(struct token *token, uint32_t id)
{
    static const char *const first[] = {"<unk>", "<s>", "</s>"};
    if (id < 3) {
        strcpy(token->text, first[id]);
        token->type = id == 0 ? TYPE_UNKNOWN : TYPE_CONTROL;
    } else if (id < 3 + 256) {
        snprintf(token->text, TOKEN_MAX, "<0x%02X>", id - 3);
        token->type = TYPE_BYTE;
    } else {
        write_piece(token->text, id - 3 - 256);
        token->type = TYPE_NORMAL;
        token->score = -(float)(id - 3 - 256);
    }
}

void synth_vocab_add(struct gguf_context *gguf, uint32_t size)
{
    struct token *tokens = calloc(size, sizeof *tokens);
    const char **texts = calloc(size, sizeof *texts);
    float *scores = calloc(size, sizeof *scores);
    int32_t *types = calloc(size, sizeof *types);
    if (!tokens || !texts || !scores || !types)
        abort();
    for (uint32_t id = 0; id < size; id++) {
        fill_token(&tokens[id], id);
        texts[id] = tokens[id].text;
        scores[id] = tokens[id].score;
        types[id] = tokens[id].type;
    }
    gguf_set_val_str(gguf, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(gguf, "tokenizer.ggml.tokens", texts, size);
    gguf_set_arr_data(gguf, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, size);
    gguf_set_arr_data(gguf, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, size);
    gguf_set_val_u32(gguf, "tokenizer.ggml.unknown_token_id", 0);
    gguf_set_val_u32(gguf, "tokenizer.ggml.bos_token_id", 1);
    gguf_set_val_u32(gguf, "tokenizer.ggml.eos_token_id", 2);
    gguf_set_val_bool(gguf, "tokenizer.ggml.add_bos_token", true);
    gguf_set_val_bool(gguf, "tokenizer.ggml.add_eos_token", false);
    free(types);
    free(scores);
    free(texts);
    free(tokens);
}
