/* Tokenizers. Bytes that begin like a GGUF file are a vocabulary, which then takes and gives a few
 * texts; any other bytes are a text: for every pre-tokeniser rule, and for a BPE and an SPM
 * vocabulary of a few tokens, which must give its characters back. */
#include "base/log.h"
#include "fuzz.h"
#include "gguf_bytes.h"
#include "model/gguf_file.h"
#include "model/pretokenizer.h"
#include "model/tokenizer.h"
#include "model/unicode.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { FLAGS_ALL = TOKENIZE_ADD_SPECIAL | TOKENIZE_PARSE_SPECIAL };

static void append_pieces(const struct tokenizer *tokenizer, const struct token_list *ids,
                          struct buffer *out)
{
    buffer_append(out, "", 0);
    for (size_t i = 0; i < ids->count; i++) {
        assert(ids->ids[i] >= 0 && (uint32_t)ids->ids[i] < tokenizer_size(tokenizer));
        tokenizer_piece(tokenizer, ids->ids[i], true, out);
    }
}

/* Everything that can be asked about one text; the pieces of its tokens are left in `pieces`. */
static void use_tokenizer(const struct tokenizer *tokenizer, const char *text, size_t size,
                          unsigned flags, struct buffer *pieces)
{
    struct token_list ids = {0};
    struct buffer out = {0};
    struct token_stream stream = {0};
    if (tokenizer_encode(tokenizer, text, size, flags, &ids, NULL) == ERROR_NONE) {
        append_pieces(tokenizer, &ids, pieces);
        tokenizer_decode(tokenizer, ids.ids, ids.count, flags & 1, flags & 2, &out);
        for (size_t i = 0; i < ids.count; i++)
            token_stream_push(&stream, tokenizer, ids.ids[i], flags & 1, &out);
        token_stream_finish(&stream, &out);
    }
    token_list_deinit(&ids);
    buffer_deinit(&out);
}

static void fuzz_vocabulary(const uint8_t *data, size_t size)
{
    static const char *const texts[] = {"", "Hello, World's 12345",
                                        "ab ab\n\n\xC3\xA9\xE4\xB8\xAD\xFF<s><|im_end|>"};
    struct gguf_file *file;
    struct tokenizer *tokenizer;
    if (gguf_file_open_memory(data, size, &file, NULL))
        return;
    if (tokenizer_open(file, &tokenizer, NULL) == ERROR_NONE) {
        struct buffer pieces = {0};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
            use_tokenizer(tokenizer, texts[i], strlen(texts[i]), FLAGS_ALL, &pieces);
        use_tokenizer(tokenizer, (const char *)data, size < 512 ? size : 512, 0, &pieces);
        (void)tokenizer_ends_generation(tokenizer, tokenizer_eot(tokenizer));
        buffer_deinit(&pieces);
        tokenizer_close(tokenizer);
    }
    gguf_file_close(file);
}

/* ---- a text ---- */

enum { RULES_MAX = 64, TOKENS = 280 };
static struct pretokenizer *rules[RULES_MAX];
static struct tokenizer *bpe, *spm;

static struct tokenizer *make(struct gguf_bytes *bytes)
{
    const struct buffer *whole = gguf_bytes_finish(bytes);
    struct gguf_file *file;
    struct tokenizer *tokenizer = NULL;
    if (gguf_file_open_memory(whole->data, whole->size, &file, NULL) ||
        tokenizer_open(file, &tokenizer, NULL))
        assert(false && "the target's own vocabulary");
    gguf_file_close(file);
    gguf_bytes_deinit(bytes);
    return tokenizer;
}

static struct tokenizer *make_bpe(void)
{
    static const char *const merges[] = {"a b", "ab ab", "\xC4\xA0 a", "\xC3\x83 \xC2\xA9", "1 2"};
    static const char *const more[] = {"ab", "abab",
                                       ("\xC4\xA0"
                                        "a"),
                                       "\xC3\x83\xC2\xA9"};
    char own[256][4] = {0};
    const char *texts[TOKENS];
    uint32_t count = 0;
    for (; count < 256; count++) {
        own[count][unicode_encode(byte_alphabet_encode((uint8_t)count), own[count])] = '\0';
        texts[count] = own[count];
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++)
        texts[count++] = more[i];
    struct gguf_bytes bytes = {0};
    gguf_bytes_text(&bytes, "tokenizer.ggml.model", "gpt2");
    gguf_bytes_text(&bytes, "tokenizer.ggml.pre", "qwen35");
    gguf_bytes_texts(&bytes, "tokenizer.ggml.merges", merges, sizeof merges / sizeof merges[0]);
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, count);
    return make(&bytes);
}

static struct tokenizer *make_spm(void)
{
    static const char *const more[] = {"ab",
                                       "abab",
                                       "a",
                                       "b",
                                       "\xE2\x96\x81",
                                       ("\xE2\x96\x81"
                                        "a"),
                                       "\xC3\xA9"};
    char own[256][8];
    const char *texts[TOKENS] = {"<unk>", "<s>", "</s>"};
    int32_t kinds[TOKENS] = {2, 3, 3};
    float scores[TOKENS] = {0};
    uint32_t count = 3;
    for (uint32_t byte = 0; byte < 256; byte++, count++) {
        snprintf(own[byte], sizeof own[byte], "<0x%02X>", byte);
        texts[count] = own[byte];
        kinds[count] = 6;
    }
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++, count++) {
        texts[count] = more[i];
        kinds[count] = 1;
        scores[count] = -(float)i;
    }
    struct gguf_bytes bytes = {0};
    gguf_bytes_text(&bytes, "tokenizer.ggml.model", "llama");
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, count);
    gguf_bytes_array(&bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds, count, 4);
    gguf_bytes_array(&bytes, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, count, 4);
    return make(&bytes);
}

static void prepare(void)
{
    if (bpe)
        return;
    bpe = make_bpe();
    spm = make_spm();
    for (size_t i = 0; pretokenizer_rule_at(i); i++) {
        assert(i < RULES_MAX);
        if (pretokenizer_open(pretokenizer_rule_at(i), &rules[i], NULL))
            assert(false && "a rule that does not compile");
    }
}

static void fuzz_text(const char *text, size_t size)
{
    struct pretokenizer_scratch scratch = {0};
    struct buffer pieces = {0};
    for (size_t i = 0; rules[i]; i++) {
        if (pretokenizer_split(rules[i], text, size, &scratch, NULL))
            assert(false && "a text that is refused");
        assert((scratch.n_words > 0) == (size > 0));
        for (size_t k = 1; k < scratch.n_words; k++)
            assert(scratch.ends[k] > scratch.ends[k - 1]);
        assert(!size || scratch.ends[scratch.n_words - 1] == scratch.size);
    }
    use_tokenizer(bpe, text, size, 0, &pieces);
    assert(pieces.size == scratch.size &&
           (!size || memcmp(pieces.data, scratch.text, scratch.size) == 0));
    use_tokenizer(spm, text, size, FLAGS_ALL, &pieces);
    buffer_deinit(&pieces);
    pretokenizer_scratch_deinit(&scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_set_level(LOG_ERROR);
    prepare();
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        fuzz_vocabulary(data, size);
    else
        fuzz_text((const char *)data, size);
    return 0;
}
