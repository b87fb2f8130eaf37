/* gguf_skim: what a list of models reads of a file is what reading all of it gives. */
#include "gguf_bytes.h"
#include "model/gguf_file.h"
#include "model/gguf_skim.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

static uint32_t drawn(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* Words of 1 to `longest` letters, with a space between two where they are merges. */
static void put_texts(struct gguf_bytes *bytes, const char *key, uint32_t n, uint32_t longest,
                      bool merges)
{
    enum { SIZE = 600 };
    char *texts = calloc(n, SIZE);
    const char **list = calloc(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        char *text = texts + (size_t)i * SIZE;
        const uint32_t length = 1 + drawn(longest) + (drawn(500) ? 0 : drawn(400));
        for (uint32_t c = 0; c < length; c++)
            text[c] = (char)(drawn(20) ? 'a' + (char)drawn(26) : (char)(1 + drawn(127)));
        if (merges && length > 2)
            text[length / 2] = ' ';
        list[i] = text;
    }
    gguf_bytes_texts(bytes, key, list, n);
    free(list);
    free(texts);
}

static void put_types(struct gguf_bytes *bytes, uint32_t n)
{
    int32_t *types = calloc(n, sizeof *types);
    for (uint32_t i = 0; i < n; i++)
        types[i] = 1 + (int32_t)drawn(6);
    gguf_bytes_array(bytes, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types, n, sizeof *types);
    free(types);
}

static void put_tail(struct gguf_bytes *bytes, uint32_t kind)
{
    if (kind == 1)
        gguf_bytes_u32(bytes, "tokenizer.ggml.bos_token_id", 0);
    else if (kind == 2)
        gguf_bytes_bool(bytes, "tokenizer.ggml.add_bos_token", true);
    else if (kind == 3)
        gguf_bytes_text(bytes, "tokenizer.chat_template", "{{ messages }}");
    else if (kind == 4)
        gguf_bytes_u64(bytes, "tokenizer.ggml.some", 7);
    if (kind)
        gguf_bytes_u32(bytes, "general.file_type", 15);
}

static const struct buffer *made(struct gguf_bytes *bytes, uint32_t n_tokens, uint32_t kind)
{
    gguf_bytes_text(bytes, "general.architecture", "llama");
    gguf_bytes_u32(bytes, "llama.context_length", 4096);
    if (!kind)
        gguf_bytes_u32(bytes, "general.file_type", 15);
    put_texts(bytes, "tokenizer.ggml.tokens", n_tokens, 1 + drawn(12), false);
    put_types(bytes, n_tokens);
    put_texts(bytes, "tokenizer.ggml.merges", n_tokens * 2, 3 + drawn(12), true);
    put_tail(bytes, kind);
    for (uint32_t i = 0; i < 40; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.attn_q.weight", i);
        gguf_bytes_tensor(bytes, name, i % 2 ? GGML_TYPE_F32 : GGML_TYPE_Q8_0, 2,
                          (int64_t[]){32 * (1 + drawn(4)), 1 + drawn(9)}, NULL);
    }
    return gguf_bytes_finish(bytes);
}

static void compare_tensors(const struct gguf_file *whole, const struct gguf_index *index)
{
    assert_int_equal(gguf_file_tensor_count(whole), index->n_tensors);
    for (uint64_t i = 0; i < index->n_tensors; i++) {
        const struct gguf_tensor *a = gguf_file_tensor(whole, i), *b = &index->tensors[i];
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->offset, b->offset);
        assert_int_equal(a->size, b->size);
        assert_int_equal(a->type, b->type);
    }
}

static void test_same_as_whole(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {300, 5000, 20000, 90000};
    for (uint32_t round = 0; round < 20; round++) {
        struct gguf_bytes bytes = {0};
        struct gguf_index index = {0};
        struct gguf_file *whole;
        bool misses_keys;
        seed = round;
        const struct buffer *file = made(&bytes, sizes[round % 4], round % 5);
        assert_int_equal(gguf_file_open_memory(file->data, file->size, &whole, NULL), ERROR_NONE);
        assert_true(gguf_skim((const uint8_t *)file->data, file->size, &index, &misses_keys));
        compare_tensors(whole, &index);
        assert_non_null(gguf_index_find(&index, "llama.context_length"));
        assert_non_null(gguf_index_find(&index, "general.file_type"));
        if (sizes[round % 4] >= 4096)
            assert_null(gguf_index_find(&index, "tokenizer.ggml.merges"));
        gguf_index_deinit(&index);
        gguf_file_close(whole);
        gguf_bytes_deinit(&bytes);
    }
}

/* Wherever the file is cut, what is listed is what reading all of it says. */
static void test_cut_file_is_refused(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    char path[] = "/tmp/medley-skim-XXXXXX";
    const struct buffer *file = made(&bytes, 5000, 1);
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, file->data, file->size), file->size);
    for (int i = 0; i < 40; i++) {
        struct gguf_file *listed = NULL, *whole = NULL;
        struct error a = {0}, b = {0};
        if (ftruncate(descriptor, (off_t)(file->size - file->size / 40 * (uint64_t)i)))
            fail();
        gguf_file_open_listed(path, &listed, &a);
        gguf_file_open(path, &whole, &b);
        assert_string_equal(a.text, b.text);
        assert_int_equal(!listed, !whole);
        gguf_file_close(listed);
        gguf_file_close(whole);
    }
    close(descriptor);
    unlink(path);
    gguf_bytes_deinit(&bytes);
}

/* Texts that look like the end of a vocabulary, and a part of a model. */
static void test_what_it_leaves_to_others(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    struct gguf_index index = {0};
    bool misses_keys;
    const char *texts[6000];
    for (uint32_t i = 0; i < 6000; i++)
        texts[i] = i % 100 == 99 ? "" : "general.file_type";
    gguf_bytes_text(&bytes, "general.architecture", "llama");
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, 6000);
    gguf_bytes_tensor(&bytes, "a", GGML_TYPE_F32, 1, (int64_t[]){64}, NULL);
    const struct buffer *file = gguf_bytes_finish(&bytes);
    if (gguf_skim((const uint8_t *)file->data, file->size, &index, &misses_keys))
        assert_int_equal(index.n_tensors, 1);
    else
        assert_null(index.values);
    gguf_index_deinit(&index);
    assert_false(gguf_skim((const uint8_t *)"GGUF", 4, &index, &misses_keys));
    gguf_bytes_deinit(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_whole),
        cmocka_unit_test(test_cut_file_is_refused),
        cmocka_unit_test(test_what_it_leaves_to_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
