/* gguf: what is opened, and every refusal with its message. */
#include "base/limits.h"
#include "gguf_bytes.h"
#include "model/gguf_file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const int64_t shape[] = {32, 2};

/* Opens what was built, expects the code and the words in the message, and frees the bytes. */
static void refused(struct gguf_bytes *bytes, enum error_code code, const char *words)
{
    const struct buffer *whole = gguf_bytes_finish(bytes);
    struct gguf_file *file = NULL;
    struct error err = {0};
    enum error_code got = gguf_file_open_memory(whole->data, whole->size, &file, &err);
    if (got != code || !strstr(err.text, words))
        fail_msg("wanted %s with '%s', got %s: %s", error_name(code), words, error_name(got),
                 err.text);
    assert_null(file);
    assert_int_equal(err.code, code);
    gguf_bytes_deinit(bytes);
}

static void refused_raw(const void *data, size_t size, enum error_code code, const char *words)
{
    struct gguf_file *file = NULL;
    struct error err = {0};
    assert_int_equal(gguf_file_open_memory(data, size, &file, &err), code);
    if (!strstr(err.text, words))
        fail_msg("wanted '%s', got: %s", words, err.text);
    assert_null(file);
}

static void test_small_file_opens(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    float values[64];
    for (int i = 0; i < 64; i++)
        values[i] = (float)i;
    gguf_bytes_text(&bytes, "general.architecture", "llama");
    gguf_bytes_tensor(&bytes, "b", GGML_TYPE_F32, 2, shape, values);
    gguf_bytes_tensor(&bytes, "a", GGML_TYPE_Q8_0, 1, (int64_t[]){96}, NULL);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    assert_string_equal(gguf_file_path(file), "(memory)");
    assert_int_equal(gguf_file_size(file), whole->size);
    assert_int_equal(gguf_file_part_count(file), 0);
    assert_int_equal(gguf_file_version(file), 3);
    assert_int_equal(gguf_file_key_count(file), 1);
    assert_int_equal(gguf_file_tensor_count(file), 2);
    const struct gguf_tensor *b = gguf_file_tensor(file, 0), *a = gguf_file_find_tensor(file, "a");
    assert_string_equal(b->name, "b");
    assert_ptr_equal(b, gguf_file_find_tensor(file, "b"));
    assert_null(gguf_file_find_tensor(file, "c"));
    assert_null(gguf_file_find_tensor(file, ""));
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->ne[0], 32);
    assert_int_equal(b->ne[1], 2);
    assert_int_equal(b->ne[2], 1);
    assert_int_equal(b->size, sizeof values);
    assert_memory_equal(gguf_file_bytes(file) + b->offset, values, sizeof values);
    assert_int_equal(a->type, GGML_TYPE_Q8_0);
    assert_int_equal(a->size, 3 * 34);
    assert_int_equal(a->offset, b->offset + sizeof values);
    gguf_file_close(file);
    gguf_file_close(NULL);
    gguf_bytes_deinit(&bytes);
}

static void test_version_2_and_large_alignment_open(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {.version = 2, .alignment = 4096};
    gguf_bytes_u32(&bytes, "general.alignment", 4096);
    gguf_bytes_tensor(&bytes, "t", GGML_TYPE_F32, 2, shape, NULL);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    assert_int_equal(gguf_file_version(file), 2);
    assert_int_equal(gguf_file_tensor(file, 0)->offset, 4096);
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
}

static void test_file_with_nothing_in_it_opens(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    assert_int_equal(gguf_file_tensor_count(file), 0);
    assert_int_equal(gguf_file_key_count(file), 0);
    assert_false(gguf_file_has(file, "general.architecture"));
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
}

static void test_other_files_are_named(void **state)
{
    (void)state;
    refused_raw("", 0, ERROR_INVALID, "not a GGUF file");
    refused_raw("GGU", 3, ERROR_INVALID, "not a GGUF file");
    refused_raw("hello world", 11, ERROR_INVALID, "does not start with \"GGUF\"");
    refused_raw("version https://git-lfs.github.com/spec/v1\n", 43, ERROR_INVALID, "git lfs pull");
    refused_raw("<!DOCTYPE html>", 15, ERROR_INVALID, "web page");
    refused_raw("PK\x03\x04zip", 7, ERROR_INVALID, "zip archive");
    refused_raw("tjgg\x03\0\0\0", 8, ERROR_INVALID, "GGJT");
    refused_raw("\x02\0\0\0\0\0\0\0{}", 10, ERROR_INVALID, "safetensors");
}

static void test_versions(void **state)
{
    (void)state;
    refused(&(struct gguf_bytes){.version = 1}, ERROR_UNSUPPORTED, "version 1");
    refused(&(struct gguf_bytes){.version = 4}, ERROR_UNSUPPORTED, "version 4");
    refused(&(struct gguf_bytes){.version = 0x03000000}, ERROR_UNSUPPORTED,
            "big-endian GGUF file (version 3)");
    refused_raw("GGUF", 4, ERROR_INVALID, "truncated");
    refused_raw("GGUF\x03\0\0\0\0\0\0\0\0\0\0\0\0", 17, ERROR_INVALID, "truncated");
}

static void test_counts(void **state)
{
    (void)state;
    refused(&(struct gguf_bytes){.n_keys = UINT64_MAX}, ERROR_INVALID, "18446744073709551615 keys");
    refused(&(struct gguf_bytes){.n_tensors = (uint64_t)INT64_MAX}, ERROR_INVALID,
            "9223372036854775807 tensors");
    refused(&(struct gguf_bytes){.n_keys = LIMIT_MODEL_KEYS + 1}, ERROR_INVALID, "at most 65536");
    refused(&(struct gguf_bytes){.n_tensors = LIMIT_MODEL_TENSORS + 1}, ERROR_INVALID,
            "at most 65536");
    refused(&(struct gguf_bytes){.n_keys = LIMIT_MODEL_KEYS}, ERROR_INVALID, "the file has 24");
    refused(&(struct gguf_bytes){.n_tensors = 1}, ERROR_INVALID, "need at least");
}

static void test_most_keys_open(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    char name[32];
    for (int i = 0; i < LIMIT_MODEL_KEYS; i++) {
        snprintf(name, sizeof name, "key.%d", i);
        gguf_bytes_u8(&bytes, name, 1);
    }
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    assert_int_equal(gguf_file_key_count(file), LIMIT_MODEL_KEYS);
    assert_true(gguf_file_has(file, "key.65535"));
    assert_false(gguf_file_has(file, "key.65536"));
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
}

static void test_key_names(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    gguf_bytes_u32(&bytes, "same", 1);
    gguf_bytes_u32(&bytes, "other", 1);
    gguf_bytes_f32(&bytes, "same", 1);
    refused(&bytes, ERROR_INVALID, "key 'same' appears twice");
    gguf_bytes_raw_key(&bytes, "", 0, GGUF_TYPE_UINT64, "12345678", 8);
    refused(&bytes, ERROR_INVALID, "key 0 has a name of 0 bytes");
    gguf_bytes_raw_key(&bytes, "a\0b", 3, GGUF_TYPE_UINT64, "12345678", 8);
    refused(&bytes, ERROR_INVALID, "key 0 ('a?b') has a NUL");

    char *long_name = calloc(1, 65537);
    assert_non_null(long_name);
    memset(long_name, 'k', 65536);
    gguf_bytes_raw_key(&bytes, long_name, 65536, GGUF_TYPE_UINT8, "1", 1);
    refused(&bytes, ERROR_INVALID, "a name of 65536 bytes; 1 to 65535 are allowed");
    gguf_bytes_raw_key(&bytes, long_name, 65535, GGUF_TYPE_UINT8, "1", 1);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
    free(long_name);
}

/* A key whose name says that it has `size` bytes. */
static void key_name_of(struct gguf_bytes *bytes, uint64_t size)
{
    buffer_append(&bytes->keys, &size, sizeof size);
    buffer_append(&bytes->keys, "a name, a type, a value, and a little more", 42);
    bytes->n_keys++;
}

static void test_sizes_near_the_edge(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    static const uint64_t huge[] = {UINT64_MAX,     INT64_MAX,          (uint64_t)INT64_MAX + 1,
                                    UINT64_MAX - 7, UINT64_MAX / 8 + 1, UINT64_MAX / 4 + 1};
    for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
        key_name_of(&bytes, huge[i]);
        refused(&bytes, ERROR_INVALID, "key 0 has a name of");
        gguf_bytes_raw_key(&bytes, "text", 4, GGUF_TYPE_STRING, &huge[i], 8);
        refused(&bytes, ERROR_INVALID, "key 'text': its text reaches past the end");
        gguf_bytes_array(&bytes, "list", GGUF_TYPE_FLOAT64, NULL, 0, 8);
        memcpy(bytes.keys.data + bytes.keys.size - 8, &huge[i], 8);
        refused(&bytes, ERROR_INVALID, "key 'list': an array of");
        gguf_bytes_texts(&bytes, "list", (const char *[]){"one"}, 1);
        memcpy(bytes.keys.data + bytes.keys.size - 11, &huge[i], 8);
        refused(&bytes, ERROR_INVALID, "key 'list': text 0 of 1 reaches past the end");
    }
    key_name_of(&bytes, 1000);
    refused(&bytes, ERROR_INVALID, "truncated or corrupted");
}

static void test_value_types(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    gguf_bytes_raw_key(&bytes, "k", 1, GGUF_TYPE_COUNT, "12345678", 8);
    refused(&bytes, ERROR_INVALID, "key 'k': unknown value type 13");
    gguf_bytes_raw_key(&bytes, "k", 1, UINT32_MAX, "12345678", 8);
    refused(&bytes, ERROR_INVALID, "key 'k': unknown value type 4294967295");
    gguf_bytes_array(&bytes, "k", (enum gguf_type)99, "12345678", 1, 8);
    refused(&bytes, ERROR_INVALID, "key 'k': unknown value type 99");
    gguf_bytes_array(&bytes, "k", GGUF_TYPE_ARRAY, "12345678", 1, 8);
    refused(&bytes, ERROR_UNSUPPORTED, "key 'k': arrays of arrays");
    gguf_bytes_raw_key(&bytes, "\033[2Jk", 5, 99, "12345678", 8);
    refused(&bytes, ERROR_INVALID, "key '?[2Jk'");
}

static void test_alignment(void **state)
{
    (void)state;
    static const uint32_t wrong[] = {0, 1, 4, 24, 33, 1u << 21, UINT32_MAX, 1u << 31};
    struct gguf_bytes bytes = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        gguf_bytes_u32(&bytes, "general.alignment", wrong[i]);
        refused(&bytes, ERROR_INVALID, "a power of two from 8 to 1048576");
    }
    gguf_bytes_u64(&bytes, "general.alignment", 32);
    refused(&bytes, ERROR_INVALID, "'general.alignment' must be a u32");
    gguf_bytes_text(&bytes, "general.alignment", "32");
    refused(&bytes, ERROR_INVALID, "'general.alignment' must be a u32");
    gguf_bytes_array(&bytes, "general.alignment", GGUF_TYPE_UINT32, (uint32_t[]){32}, 1, 4);
    refused(&bytes, ERROR_INVALID, "'general.alignment' must be a u32");
}

static void test_split_models(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    gguf_bytes_u16(&bytes, "split.no", 0);
    gguf_bytes_u16(&bytes, "split.count", 3);
    refused(&bytes, ERROR_INVALID, "one of the 3 parts of a model, without the others");
    gguf_bytes_i64(&bytes, "split.count", 2);
    refused(&bytes, ERROR_INVALID, "one of the 2 parts");
    gguf_bytes_u32(&bytes, "split.count", 129);
    refused(&bytes, ERROR_INVALID, "one of 129 parts; at most 128 are allowed");
    gguf_bytes_u16(&bytes, "split.count", 1);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
}

static void test_tensor_names(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    char name[65];
    memset(name, 'n', sizeof name - 1);
    name[64] = 0;
    gguf_bytes_tensor(&bytes, name, GGML_TYPE_F32, 2, shape, NULL);
    refused(&bytes, ERROR_INVALID, "tensor 0 has a name of 64 bytes; 1 to 63 are allowed");
    gguf_bytes_tensor(&bytes, "", GGML_TYPE_F32, 2, shape, NULL);
    refused(&bytes, ERROR_INVALID, "tensor 0 has a name of 0 bytes");
    gguf_bytes_raw_tensor(&bytes, "a\0b", 3, 2, shape, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 0 ('a?b') has a NUL");
    gguf_bytes_tensor(&bytes, "t", GGML_TYPE_F32, 2, shape, NULL);
    gguf_bytes_tensor(&bytes, "u", GGML_TYPE_F32, 2, shape, NULL);
    gguf_bytes_tensor(&bytes, "t", GGML_TYPE_F32, 2, shape, NULL);
    refused(&bytes, ERROR_INVALID, "tensor 't' appears twice");
    name[63] = 0;
    gguf_bytes_tensor(&bytes, name, GGML_TYPE_F32, 2, shape, NULL);
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    assert_string_equal(gguf_file_tensor(file, 0)->name, name);
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
}

static void one_tensor(struct gguf_bytes *bytes, uint32_t n_dims, const int64_t *ne, uint32_t type,
                       uint64_t offset)
{
    gguf_bytes_raw_tensor(bytes, "t", 1, n_dims, ne, type, offset);
}

static void test_tensor_shapes(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    static const int64_t five[] = {1, 1, 1, 1, 1};
    one_tensor(&bytes, 5, five, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't' has 5 dimensions; at most 4");
    static const int64_t zero[] = {32, 0}, negative[] = {32, -1};
    one_tensor(&bytes, 2, zero, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't': dimension 1 is 0");
    one_tensor(&bytes, 2, negative, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't': dimension 1 is 18446744073709551615");
    static const int64_t product[] = {1LL << 31, 1LL << 31, 2}, bytes_too_many[] = {INT64_MAX},
                         large[] = {1LL << 30, 1LL << 30};
    one_tensor(&bytes, 3, product, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't': the product of its dimensions overflows");
    one_tensor(&bytes, 1, bytes_too_many, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't': its size in bytes overflows");
    one_tensor(&bytes, 2, large, GGML_TYPE_F64, 0);
    refused(&bytes, ERROR_INVALID, "tensor 't': its size in bytes overflows");
    one_tensor(&bytes, 2, large, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID, "truncated: 96 bytes are there, 4611686018427388000 are needed");
}

static void test_tensor_types(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    one_tensor(&bytes, 2, shape, 4, 0); /* Q4_2, removed in 2023 */
    refused(&bytes, ERROR_UNSUPPORTED, "tensor 't' has type 4, which ggml does not know any more");
    one_tensor(&bytes, 2, shape, 31, 0); /* Q4_0_4_4 */
    refused(&bytes, ERROR_UNSUPPORTED, "tensor 't' has type 31");
    one_tensor(&bytes, 2, shape, GGML_TYPE_COUNT, 0);
    refused(&bytes, ERROR_UNSUPPORTED, "which ggml does not know");
    one_tensor(&bytes, 2, shape, UINT32_MAX, 0);
    refused(&bytes, ERROR_UNSUPPORTED, "tensor 't' has type 4294967295, which ggml does not know");
    one_tensor(&bytes, 2, shape, GGML_TYPE_Q4_K, 0);
    refused(&bytes, ERROR_INVALID,
            "tensor 't': rows of 32 elements are not whole blocks of 256 (type q4_K)");
}

static void test_tensor_data(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    one_tensor(&bytes, 2, shape, GGML_TYPE_F32, 16);
    refused(&bytes, ERROR_INVALID, "tensor 't': offset 16 is not a multiple of the alignment, 32");
    one_tensor(&bytes, 2, shape, GGML_TYPE_F32, UINT64_MAX - 31);
    refused(&bytes, ERROR_INVALID, "tensor 't': offset plus size overflows");
    one_tensor(&bytes, 2, shape, GGML_TYPE_F32, (uint64_t)INT64_MAX - 31);
    refused(&bytes, ERROR_INVALID, "tensor 't': offset plus size overflows");
    one_tensor(&bytes, 2, shape, GGML_TYPE_F32, 0);
    refused(&bytes, ERROR_INVALID,
            "truncated: 96 bytes are there, 352 are needed (up to the end of tensor 't')");

    gguf_bytes_raw_tensor(&bytes, "a", 1, 2, shape, GGML_TYPE_F32, 0);
    gguf_bytes_raw_tensor(&bytes, "b", 1, 2, shape, GGML_TYPE_F32, 224);
    for (int i = 0; i < 512; i++)
        buffer_append(&bytes.data, "", 1);
    refused(&bytes, ERROR_INVALID, "tensors 'a' and 'b' overlap");
    gguf_bytes_raw_tensor(&bytes, "b", 1, 2, shape, GGML_TYPE_F32, 0);
    gguf_bytes_raw_tensor(&bytes, "a", 1, 2, shape, GGML_TYPE_F32, 0);
    for (int i = 0; i < 512; i++)
        buffer_append(&bytes.data, "", 1);
    refused(&bytes, ERROR_INVALID, "overlap");
}

static void test_paths(void **state)
{
    (void)state;
    struct gguf_file *file;
    struct error err;
    char folder[] = "gguf-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(gguf_file_open("/no/such/model.gguf", &file, &err), ERROR_NOT_FOUND);
    assert_string_equal(err.text, "/no/such/model.gguf: No such file or directory");
    assert_int_equal(gguf_file_open(folder, &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "folder"));
    assert_int_equal(gguf_file_open("/dev/null", &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "not a regular file"));
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(gguf_file_open(path, &file, &err), ERROR_INVALID); /* and does not wait */
    unlink(path);
    snprintf(path, sizeof path, "%s/model.gguf", folder);
    fclose(fopen(path, "wb"));
    assert_int_equal(gguf_file_open(path, &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "model.gguf: the file is empty"));
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) {
        assert_int_equal(gguf_file_open(path, &file, &err), ERROR_IO);
        assert_non_null(strstr(err.text, "Permission denied"));
    }
    unlink(path);

    struct gguf_bytes bytes = {0};
    gguf_bytes_tensor(&bytes, "t", GGML_TYPE_F32, 2, shape, NULL);
    gguf_bytes_save(&bytes, path);
    assert_int_equal(gguf_file_open(path, &file, &err), ERROR_NONE);
    assert_string_equal(gguf_file_path(file), path);
    assert_int_equal(gguf_file_part_count(file), 1);
    assert_true(gguf_file_part_descriptor(file, 0) >= 0);
    assert_int_equal(gguf_file_size(file), bytes.whole.size);
    assert_memory_equal(gguf_file_bytes(file), bytes.whole.data, bytes.whole.size);
    gguf_file_close(file);
    assert_int_equal(truncate(path, 40), 0);
    assert_int_equal(gguf_file_open(path, &file, &err), ERROR_INVALID);
    assert_non_null(strstr(err.text, "model.gguf: truncated"));
    assert_int_equal(gguf_file_open(path, &file, NULL), ERROR_INVALID);
    unlink(path);
    rmdir(folder);
    gguf_bytes_deinit(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_file_opens),
        cmocka_unit_test(test_version_2_and_large_alignment_open),
        cmocka_unit_test(test_file_with_nothing_in_it_opens),
        cmocka_unit_test(test_other_files_are_named),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_most_keys_open),
        cmocka_unit_test(test_key_names),
        cmocka_unit_test(test_sizes_near_the_edge),
        cmocka_unit_test(test_value_types),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_split_models),
        cmocka_unit_test(test_tensor_names),
        cmocka_unit_test(test_tensor_shapes),
        cmocka_unit_test(test_tensor_types),
        cmocka_unit_test(test_tensor_data),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
