/* Vocabularies made for the purpose: wrong ones are refused with the reason, odd ones are read as
 * libllama reads them, and running out of memory anywhere is an error and no leak. */
#include "base/limits.h"
#include "base/log.h"
#include "base/mem.h"
#include "gguf_bytes.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"
#include "model/unicode.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { TOKENS_MAX = 400 };
enum kind { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };

/* A vocabulary being written down. Texts longer than a token's usual few bytes are given by
 * pointer. */
struct draft {
    struct gguf_bytes bytes;
    const char *texts[TOKENS_MAX];
    char own[TOKENS_MAX][16];
    int32_t kinds[TOKENS_MAX];
    float scores[TOKENS_MAX];
    uint32_t count;
};

static int32_t add(struct draft *draft, const char *text, enum kind kind, float score)
{
    assert_true(draft->count < TOKENS_MAX);
    draft->texts[draft->count] = text;
    draft->kinds[draft->count] = (int32_t)kind;
    draft->scores[draft->count] = score;
    return (int32_t)draft->count++;
}

static void add_spelled_bytes(struct draft *draft)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        char *own = draft->own[draft->count];
        own[unicode_encode(byte_alphabet_encode((uint8_t)byte), own)] = '\0';
        add(draft, own, NORMAL, 0);
    }
}

static void add_named_bytes(struct draft *draft)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        char *own = draft->own[draft->count];
        snprintf(own, sizeof draft->own[0], "<0x%02X>", byte);
        add(draft, own, BYTE, 0);
    }
}

static void write_arrays(struct draft *draft)
{
    gguf_bytes_texts(&draft->bytes, "tokenizer.ggml.tokens", draft->texts, draft->count);
    gguf_bytes_array(&draft->bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, draft->kinds,
                     draft->count, 4);
    gguf_bytes_array(&draft->bytes, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, draft->scores,
                     draft->count, 4);
}

static void write_bpe(struct draft *draft, const char *const *merges, uint64_t n_merges)
{
    gguf_bytes_text(&draft->bytes, "tokenizer.ggml.model", "gpt2");
    gguf_bytes_text(&draft->bytes, "tokenizer.ggml.pre", "gpt-2");
    gguf_bytes_texts(&draft->bytes, "tokenizer.ggml.merges", merges, n_merges);
    write_arrays(draft);
}

/* 256 bytes, "ab" (256), "abc" (257), control <s> (258), user-defined "<x>" (259). */
static void small_bpe(struct draft *draft)
{
    static const char *const merges[] = {"a b", "ab c"};
    gguf_bytes_text(&draft->bytes, "general.architecture", "llama");
    add_spelled_bytes(draft);
    add(draft, "ab", NORMAL, 0);
    add(draft, "abc", NORMAL, 0);
    add(draft, "<s>", CONTROL, 0);
    add(draft, "<x>", USER_DEFINED, 0);
    write_bpe(draft, merges, 2);
}

/* <unk>, <s>, </s>, bytes (3..258), then what the caller adds. */
static void begin_spm(struct draft *draft)
{
    gguf_bytes_text(&draft->bytes, "general.architecture", "llama");
    gguf_bytes_text(&draft->bytes, "tokenizer.ggml.model", "llama");
    add(draft, "<unk>", UNKNOWN, 0);
    add(draft, "<s>", CONTROL, 0);
    add(draft, "</s>", CONTROL, 0);
}

struct opened {
    struct gguf_file *file;
    struct tokenizer *tokenizer;
    struct error err;
};

static enum error_code open_draft(struct draft *draft, struct opened *out)
{
    const struct buffer *whole = gguf_bytes_finish(&draft->bytes);
    *out = (struct opened){0};
    if (gguf_file_open_memory(whole->data, whole->size, &out->file, &out->err))
        fail_msg("the file itself: %s", out->err.text);
    return tokenizer_open(out->file, &out->tokenizer, &out->err);
}

static void close_draft(struct draft *draft, struct opened *opened)
{
    tokenizer_close(opened->tokenizer);
    gguf_file_close(opened->file);
    gguf_bytes_deinit(&draft->bytes);
    *draft = (struct draft){0};
}

static void assert_refused(struct draft *draft, enum error_code code, const char *word)
{
    struct opened opened;
    assert_int_equal(open_draft(draft, &opened), code);
    assert_null(opened.tokenizer);
    if (!strstr(opened.err.text, word))
        fail_msg("'%s' does not say '%s'", opened.err.text, word);
    close_draft(draft, &opened);
}

static void assert_encodes(const struct tokenizer *tokenizer, const char *text, unsigned flags,
                           const char *expected)
{
    struct token_list ids = {0};
    struct buffer is = {0};
    buffer_append(&is, "", 0);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), flags, &ids, NULL),
                     ERROR_NONE);
    for (size_t i = 0; i < ids.count; i++)
        buffer_printf(&is, i ? ",%d" : "%d", ids.ids[i]);
    assert_string_equal(is.data, expected);
    token_list_deinit(&ids);
    buffer_deinit(&is);
}

static void assert_piece(const struct tokenizer *tokenizer, int32_t id, const char *expected)
{
    struct buffer is = {0};
    buffer_append(&is, "", 0);
    tokenizer_piece(tokenizer, id, true, &is);
    assert_string_equal(is.data, expected);
    buffer_deinit(&is);
}

static struct draft draft;
static struct opened opened;

/* ---- refused ---- */

static void test_models_it_does_not_know(void **state)
{
    static const struct {
        const char *model, *word;
    } cases[] = {{"rwkv", "RWKV"}, {"plamo2", "PLaMo"}, {"new!", "'new!'"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", cases[i].model);
        assert_refused(&draft, ERROR_UNSUPPORTED, cases[i].word);
    }
    gguf_bytes_u32(&draft.bytes, "something", 1);
    assert_refused(&draft, ERROR_NOT_FOUND, "tokenizer.ggml.model");
    gguf_bytes_u32(&draft.bytes, "tokenizer.ggml.model", 1);
    assert_refused(&draft, ERROR_INVALID, "tokenizer.ggml.model");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "gpt2");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.pre", "gpt-77");
    assert_refused(&draft, ERROR_UNSUPPORTED, "'gpt-77'");
}

static void test_arrays_that_are_missing_or_wrong(void **state)
{
    static const char *const two[] = {"a", "b"};
    begin_spm(&draft);
    assert_refused(&draft, ERROR_NOT_FOUND, "tokenizer.ggml.tokens");
    begin_spm(&draft);
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", NULL, 0);
    assert_refused(&draft, ERROR_INVALID, "0 tokens");
    begin_spm(&draft);
    gguf_bytes_array(&draft.bytes, "tokenizer.ggml.tokens", GGUF_TYPE_INT32, (int32_t[]){1}, 1, 4);
    assert_refused(&draft, ERROR_INVALID, "tokenizer.ggml.tokens");
    begin_spm(&draft);
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", two, 2);
    gguf_bytes_array(&draft.bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, (int32_t[]){1}, 1,
                     4);
    assert_refused(&draft, ERROR_INVALID, "1 elements for 2 tokens");
    begin_spm(&draft);
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", two, 2);
    gguf_bytes_array(&draft.bytes, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, (float[]){1}, 1, 4);
    assert_refused(&draft, ERROR_INVALID, "1 elements for 2 tokens");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "gpt2");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.pre", "gpt-2");
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", two, 2);
    assert_refused(&draft, ERROR_NOT_FOUND, "tokenizer.ggml.merges");
}

static void test_texts_that_cannot_be(void **state)
{
    begin_spm(&draft);
    add(&draft, "twice", NORMAL, 0);
    add(&draft, "twice", NORMAL, 0);
    write_arrays(&draft);
    assert_refused(&draft, ERROR_INVALID, "tokens 3 and 4 have the same text 'twice'");
    char *endless = malloc(LIMIT_TOKEN_BYTES + 2);
    memset(endless, 'e', LIMIT_TOKEN_BYTES + 1);
    endless[LIMIT_TOKEN_BYTES + 1] = '\0';
    begin_spm(&draft);
    add(&draft, endless, NORMAL, 0);
    write_arrays(&draft);
    assert_refused(&draft, ERROR_INVALID, "the limit is 65536");
    endless[LIMIT_TOKEN_BYTES] = '\0'; /* the limit itself is reached */
    begin_spm(&draft);
    add(&draft, endless, NORMAL, 0);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    close_draft(&draft, &opened);
    free(endless);
}

static void test_special_ids_that_cannot_be(void **state)
{
    small_bpe(&draft);
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.bos_token_id", "one");
    assert_refused(&draft, ERROR_INVALID, "tokenizer.ggml.bos_token_id");
    small_bpe(&draft);
    gguf_bytes_u32(&draft.bytes, "tokenizer.ggml.bos_token_id", UINT32_MAX);
    gguf_bytes_u32(&draft.bytes, "tokenizer.ggml.eos_token_id", 260);
    gguf_bytes_u32(&draft.bytes, "tokenizer.ggml.eot_token_id", 259);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_int_equal(tokenizer_bos(opened.tokenizer), 11); /* out of range: the family's own */
    assert_int_equal(tokenizer_eos(opened.tokenizer), 11);
    assert_int_equal(tokenizer_eot(opened.tokenizer), 259);
    close_draft(&draft, &opened);
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "llama");
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", (const char *[]){"x"}, 1);
    assert_refused(&draft, ERROR_INVALID, "BOS"); /* BOS would be token 1, and is to be added */
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "llama");
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.tokens", (const char *[]){"x"}, 1);
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_bos_token", false);
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_eos_token", true);
    assert_refused(&draft, ERROR_INVALID, "EOS");
}

/* ---- odd, and read ---- */

static void test_merges_that_do_not_parse(void **state)
{
    static const char *const merges[] = {"",      " ",         "a",   "a ",   " b",
                                         "  ",    "q",         "a b", "a b",  "ab c",
                                         "zz yy", "zzyy \xFF", "n o", "no pe"};
    gguf_bytes_text(&draft.bytes, "general.architecture", "llama");
    add_spelled_bytes(&draft);
    add(&draft, "ab", NORMAL, 0);
    add(&draft, "abc", NORMAL, 0);
    write_bpe(&draft, merges, sizeof merges / sizeof merges[0]);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "abc", 0, "257");
    assert_encodes(opened.tokenizer, "abab", 0, "256,256");
    /* "no" merges but is no token: its characters' tokens are given. */
    assert_encodes(opened.tokenizer, "no", 0, "110,111");
    close_draft(&draft, &opened);
}

static void test_tokens_that_are_no_utf8(void **state)
{
    gguf_bytes_text(&draft.bytes, "general.architecture", "llama");
    add_spelled_bytes(&draft);
    int32_t broken = add(&draft, "\xFF\xFE", NORMAL, 0);
    int32_t foreign =
        add(&draft, "\xE4\xB8\xAD", NORMAL, 0); /* no character of the byte alphabet */
    int32_t cut_off = add(&draft, "<0x", BYTE, 0);
    int32_t no_hex = add(&draft, "<0xZZ>", BYTE, 0);
    int32_t unused = add(&draft, "unused", UNUSED, 0);
    int32_t empty = add(&draft, "", CONTROL, 0);
    int32_t strange = add(&draft, "strange", (enum kind)77, 0);
    write_bpe(&draft, NULL, 0);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_piece(opened.tokenizer, broken,
                 "[UNK_BYTE_0xefbfbd\xFF\xFE][UNK_BYTE_0xefbfbd\xFF\xFE]");
    assert_piece(opened.tokenizer, foreign, "[UNK_BYTE_0xe4b8ad\xE4\xB8\xAD]");
    assert_piece(opened.tokenizer, cut_off, "");
    assert_piece(opened.tokenizer, no_hex, "");
    assert_piece(opened.tokenizer, unused, "");
    assert_piece(opened.tokenizer, empty, "[EMPTY_261]");
    assert_piece(opened.tokenizer, strange, "");
    assert_piece(opened.tokenizer, -1, "");
    assert_piece(opened.tokenizer, INT32_MAX, "");
    close_draft(&draft, &opened);
}

static void test_bytes_without_tokens(void **state)
{
    begin_spm(&draft);
    add(&draft, "a", NORMAL, -1);
    add(&draft, "\xE2\x96\x81", NORMAL, -2);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "a\xC3\xA9", 0, "4,3,0,0");
    close_draft(&draft, &opened);
    gguf_bytes_text(&draft.bytes, "general.architecture", "llama");
    add(&draft, "a", NORMAL, 0);
    write_bpe(&draft, NULL, 0);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "ab a", 0,
                   "0,0"); /* libllama leaves out what no token can spell */
    close_draft(&draft, &opened);
}

static void test_scores_without_end(void **state)
{
    begin_spm(&draft);
    add_named_bytes(&draft);
    static const char *const texts[] = {"a",
                                        "b",
                                        "ab",
                                        "ba",
                                        "aba",
                                        "\xE2\x96\x81",
                                        ("\xE2\x96\x81"
                                         "a")};
    const float scores[] = {0, -INFINITY, 0, INFINITY, -INFINITY, -0.0f, 1e30f};
    for (size_t i = 0; i < 7; i++)
        add(&draft, texts[i], NORMAL, scores[i]);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(opened.tokenizer, "abababa aabb", 12, 0, &ids, NULL),
                     ERROR_NONE);
    struct buffer back = {0};
    tokenizer_decode(opened.tokenizer, ids.ids, ids.count, false, false, &back);
    assert_string_equal(back.data, "abababa aabb");
    buffer_deinit(&back);
    token_list_deinit(&ids);
    close_draft(&draft, &opened);
}

/* Words are merged one by one unless a token has a space inside, which this one has. */
static void test_a_token_across_words(void **state)
{
#define SPACE "\xE2\x96\x81"
    begin_spm(&draft);
    add_named_bytes(&draft);
    add(&draft, SPACE, NORMAL, -9);
    add(&draft, "a", NORMAL, -8);
    int32_t word = add(&draft, SPACE "a", NORMAL, -2);
    int32_t phrase = add(&draft, SPACE "a" SPACE "a", NORMAL, -1);
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_space_prefix", true);
    write_arrays(&draft);
    assert_int_equal(word, 261);
    assert_int_equal(phrase, 262);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "a", 0, "261");
    assert_encodes(opened.tokenizer, "a a", 0, "262");
    assert_encodes(opened.tokenizer, "a a a  a", 0, "262,261,259,261");
    assert_encodes(opened.tokenizer, "a a\n a a", 0, "262,13,262");
    close_draft(&draft, &opened);
#undef SPACE
}

/* ---- special tokens ---- */

static void test_longer_special_tokens_win(void **state)
{
    begin_spm(&draft);
    add_named_bytes(&draft);
    int32_t first = add(&draft, "<a>", USER_DEFINED, 0);
    add(&draft, "<a><b>", USER_DEFINED, 0);
    add(&draft, "b><c", USER_DEFINED, 0);
    add(&draft, "<b>", CONTROL, 0);
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_space_prefix", false);
    write_arrays(&draft);
    assert_int_equal(first, 259);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "<a><a><b><c>", 0, "259,260,63,102,65");
    assert_encodes(opened.tokenizer, "<b>", 0, "63,101,65"); /* control: only when asked for */
    assert_encodes(opened.tokenizer, "<b>", TOKENIZE_PARSE_SPECIAL, "262");
    assert_encodes(opened.tokenizer, "<b><c>", TOKENIZE_PARSE_SPECIAL, "63,261,65");
    assert_encodes(opened.tokenizer, "<b", TOKENIZE_PARSE_SPECIAL | TOKENIZE_ADD_SPECIAL,
                   "1,63,101");
    close_draft(&draft, &opened);
}

static void test_tokens_that_eat_white_space(void **state)
{
    begin_spm(&draft);
    add_named_bytes(&draft);
    add(&draft, "<|end|>", CONTROL, 0);
    gguf_bytes_text(&draft.bytes, "general.name", "My Phi-3 Mini");
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_space_prefix", false);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "a<|end|> \n b", TOKENIZE_PARSE_SPECIAL, "100,259,101");
    assert_encodes(opened.tokenizer, "<|end|> \t", TOKENIZE_PARSE_SPECIAL, "259");
    assert_encodes(opened.tokenizer, "<s>\n", TOKENIZE_PARSE_SPECIAL, "1,13"); /* not this one */
    close_draft(&draft, &opened);

    gguf_bytes_text(&draft.bytes, "general.architecture", "llama");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "gpt2");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.pre", "jina-v2-de");
    add_spelled_bytes(&draft);
    add(&draft, "<mask>", CONTROL, 0);
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.merges", NULL, 0);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "a \n<mask> b", TOKENIZE_PARSE_SPECIAL, "97,256,32,98");
    close_draft(&draft, &opened);
}

static void test_what_ends_generation(void **state)
{
    begin_spm(&draft);
    int32_t end = add(&draft, "<|end|>", CONTROL, 0);
    int32_t turned = add(&draft, "<|return|>", NORMAL, 0);
    int32_t call = add(&draft, "<|call|>", CONTROL, 0);
    int32_t channel = add(&draft, "<|channel|>", CONTROL, 0);
    int32_t repo = add(&draft, "<|repo_name|>", NORMAL, 0);
    int32_t prefix = add(&draft, "<|fim_prefix|>", NORMAL, 0);
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    const struct tokenizer *tokenizer = opened.tokenizer;
    assert_false(tokenizer_ends_generation(
        tokenizer, end)); /* with <|return|> and <|call|> it ends a message only */
    assert_false(tokenizer_is_special(tokenizer, end));
    assert_true(tokenizer_ends_generation(tokenizer, turned));
    assert_true(tokenizer_is_special(tokenizer, turned)); /* whatever the file says */
    assert_true(tokenizer_ends_generation(tokenizer, call));
    assert_false(tokenizer_is_special(tokenizer, channel));
    assert_true(tokenizer_ends_generation(tokenizer, repo));
    assert_false(tokenizer_ends_generation(tokenizer, prefix));
    assert_true(tokenizer_is_special(tokenizer, prefix));
    assert_true(tokenizer_ends_generation(tokenizer, tokenizer_eos(tokenizer)));
    close_draft(&draft, &opened);
}

/* gemma4's kind: merges over plain UTF-8, spaces escaped, newlines whole, BOS whatever the file
 * says. */
static void test_bpe_over_plain_utf8(void **state)
{
    static const char *const merges[] = {"\xE2\x96\x81 h", "\xE2\x96\x81h \xC3\xA9"};
    gguf_bytes_text(&draft.bytes, "general.architecture", "gemma4");
    gguf_bytes_text(&draft.bytes, "tokenizer.ggml.model", "gemma4");
    gguf_bytes_u32(&draft.bytes, "tokenizer.ggml.bos_token_id", 0);
    gguf_bytes_bool(&draft.bytes, "tokenizer.ggml.add_bos_token", false);
    gguf_bytes_texts(&draft.bytes, "tokenizer.ggml.merges", merges, 2);
    add(&draft, "<bos>", CONTROL, 0);
    add_named_bytes(&draft);                         /* 1..256 */
    add(&draft, "\xE2\x96\x81h\xC3\xA9", NORMAL, 0); /* 257 */
    add(&draft, "h", NORMAL, 0);                     /* 258 */
    add(&draft, "\n\n", NORMAL, 0);                  /* 259 */
    add(&draft, "\xE2\x96\x81", NORMAL, 0);          /* 260 */
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    assert_encodes(opened.tokenizer, "h h\xC3\xA9\n\n\n", TOKENIZE_ADD_SPECIAL,
                   "0,258,257,11,11,11");
    assert_encodes(opened.tokenizer, " \n\n\xE4", 0, "260,259,240,192,190");
    assert_piece(opened.tokenizer, 257, " h\xC3\xA9");
    assert_piece(opened.tokenizer, 11, "\n");
    close_draft(&draft, &opened);
}

/* ---- no memory ---- */

static void fail_everywhere(const char *text)
{
    bool done = false;
    unsigned nth = 1, refused = 0;
    for (; !done; nth++) {
        struct tokenizer *tokenizer = NULL;
        struct token_list ids = {0};
        struct error err = {0};
        mem_fail_nth(nth);
        enum error_code code = tokenizer_open(opened.file, &tokenizer, &err);
        if (!code)
            code =
                tokenizer_encode(tokenizer, text, strlen(text), TOKENIZE_PARSE_SPECIAL, &ids, &err);
        mem_fail_nth(0);
        assert_true(code == ERROR_NONE || code == ERROR_NO_MEMORY);
        assert_int_equal(err.code, code);
        refused += code != ERROR_NONE;
        token_list_deinit(&ids);
        tokenizer_close(tokenizer);
        done = nth - refused >
               40; /* JIT may fail to compile and matching still works; then no more allocations */
    }
    assert_true(refused > 15);
}

static void test_running_out_of_memory(void **state)
{
    static const char text[] = "abcabc <s>ab<x> abababababababababababc\xFF";
    small_bpe(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    fail_everywhere(text);
    close_draft(&draft, &opened);
    begin_spm(&draft);
    add_named_bytes(&draft);
    add(&draft, "ab", NORMAL, 0);
    add(&draft, "<|im_end|>", NORMAL, 0);
    add(&draft, "<|endoftext|>", NORMAL, 0); /* two that could be EOT */
    write_arrays(&draft);
    assert_int_equal(open_draft(&draft, &opened), ERROR_NONE);
    fail_everywhere(text);
    close_draft(&draft, &opened);
}

static int quieten(void **state)
{
    log_set_level(LOG_ERROR);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models_it_does_not_know),
        cmocka_unit_test(test_arrays_that_are_missing_or_wrong),
        cmocka_unit_test(test_texts_that_cannot_be),
        cmocka_unit_test(test_special_ids_that_cannot_be),
        cmocka_unit_test(test_merges_that_do_not_parse),
        cmocka_unit_test(test_tokens_that_are_no_utf8),
        cmocka_unit_test(test_bytes_without_tokens),
        cmocka_unit_test(test_scores_without_end),
        cmocka_unit_test(test_a_token_across_words),
        cmocka_unit_test(test_longer_special_tokens_win),
        cmocka_unit_test(test_tokens_that_eat_white_space),
        cmocka_unit_test(test_what_ends_generation),
        cmocka_unit_test(test_bpe_over_plain_utf8),
        cmocka_unit_test(test_running_out_of_memory),
    };
    return cmocka_run_group_tests(tests, quieten, NULL);
}
