/* Vocabularies of encoders that are damaged or out to harm. */
#include "gguf_bytes.h"
#include "model/gguf_file.h"
#include "model/tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum kind { NORMAL = 1, UNKNOWN, CONTROL };

static struct gguf_bytes bytes;
static struct gguf_file *file;
static struct tokenizer *tokenizer;
static struct error err;

static enum error_code open_it(void)
{
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    if (gguf_file_open_memory(whole->data, whole->size, &file, &err))
        fail_msg("the file itself: %s", err.text);
    return tokenizer_open(file, &tokenizer, &err);
}

static void close_it(void)
{
    tokenizer_close(tokenizer);
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
    bytes = (struct gguf_bytes){0};
    tokenizer = NULL;
}

static void assert_refused(const char *word)
{
    assert_int_equal(open_it(), ERROR_INVALID);
    if (!strstr(err.text, word))
        fail_msg("'%s' does not say '%s'", err.text, word);
    close_it();
}

static void assert_encodes(const char *text, unsigned flags, const int32_t *ids, size_t n)
{
    struct token_list got = {0};
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), flags, &got, &err),
                     ERROR_NONE);
    assert_int_equal(got.count, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got.ids[i], ids[i]);
    token_list_deinit(&got);
}
#define IDS(...) (const int32_t[]){__VA_ARGS__}, sizeof((const int32_t[]){__VA_ARGS__}) / 4

static void test_wordpiece_without_its_tokens(void **state)
{
    (void)state;
    static const char *const texts[] = {"[UNK]", "\xE2\x96\x81x"};
    gguf_bytes_text(&bytes, "tokenizer.ggml.model", "bert");
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, 2);
    assert_refused("separator");
}

/* What this leaves open is the normaliser. */
static void small_unigram(const uint8_t *charsmap, uint64_t size)
{
    static const char *const texts[] = {"</s>", "<unk>", "\xE2\x96\x81", "a", "aa"};
    static const int32_t kinds[] = {CONTROL, UNKNOWN, NORMAL, NORMAL, NORMAL};
    static const float scores[] = {0, 0, -1, -2, -2.5f};
    gguf_bytes_text(&bytes, "tokenizer.ggml.model", "t5");
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, 5);
    gguf_bytes_array(&bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, kinds, 5, 4);
    gguf_bytes_array(&bytes, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores, 5, 4);
    gguf_bytes_u32(&bytes, "tokenizer.ggml.eos_token_id", 0);
    gguf_bytes_u32(&bytes, "tokenizer.ggml.unknown_token_id", 1);
    gguf_bytes_array(&bytes, "tokenizer.ggml.precompiled_charsmap", GGUF_TYPE_UINT8, charsmap, size,
                     1);
}

static void test_charsmaps_that_are_none(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[12];
        uint64_t size;
    } bad[] = {
        {{1, 0}, 2},                        /* no size */
        {{3, 0, 0, 0, 1, 2, 3}, 7},         /* not whole units */
        {{8, 0, 0, 0, 1, 2, 3, 4}, 8},      /* fewer units than it says */
        {{4, 0, 0, 0, 1, 2, 3, 4, 'x'}, 9}, /* a replacement without end */
        {{255, 255, 255, 255, 1, 2, 3, 4}, 8},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        small_unigram(bad[i].bytes, bad[i].size);
        assert_refused("charsmap");
    }
    /* units that point out of the array match nothing */
    small_unigram((const uint8_t[]){4, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0x7F}, 8);
    assert_int_equal(open_it(), ERROR_NONE);
    assert_encodes("aaa b", 0, IDS(2, 3, 4, 2, 1));
    assert_encodes("aaaa", TOKENIZE_ADD_SPECIAL, IDS(2, 4, 4, 0));
    assert_encodes("", 0, NULL, 0);
    close_it();
}

/* 'a' stands for far more than itself: refused, not computed. */
static void test_a_charsmap_that_grows(void **state)
{
    (void)state;
    enum { UNITS = 256, LONG = 60000, A = 'a' };
    static uint8_t map[4 + 4 * UNITS + LONG];
    static uint32_t units[UNITS];
    units[0] = 1u << 10;                   /* children are at 1 ^ label */
    units[1 ^ A] = A | 1u << 8 | 2u << 10; /* a leaf; its value is 2 further */
    units[1 ^ A ^ 2] = 1u << 31;           /* offset 0 */
    map[1] = 4 * UNITS >> 8;
    memcpy(map + 4, units, sizeof units);
    memset(map + 4 + sizeof units, 'a', LONG - 1);
    small_unigram(map, sizeof map);
    assert_int_equal(open_it(), ERROR_NONE);
    struct token_list ids = {0};
    assert_int_equal(tokenizer_encode(tokenizer, "aaaa", 4, 0, &ids, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "charsmap"));
    token_list_deinit(&ids);
    close_it();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wordpiece_without_its_tokens),
        cmocka_unit_test(test_charsmaps_that_are_none),
        cmocka_unit_test(test_a_charsmap_that_grows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
