/* gguf: files cut anywhere, files with flipped bits, memory that runs out, and ggml's own reader as
 * the oracle. */
#include "base/mem.h"
#include "base/random.h"
#include "gguf_bytes.h"
#include "gguf_oracle.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static void no_log(enum ggml_log_level level, const char *text, void *arg)
{
    (void)level, (void)text, (void)arg;
}

/* A file with every kind of value. */
static void build(struct gguf_bytes *b)
{
    gguf_bytes_text(b, "general.architecture", "llama");
    gguf_bytes_u32(b, "general.alignment", 32);
    gguf_bytes_u8(b, "u8", 1);
    gguf_bytes_i16(b, "i16", -1);
    gguf_bytes_i32(b, "i32", -1);
    gguf_bytes_u64(b, "u64", 1);
    gguf_bytes_f32(b, "f32", 1);
    gguf_bytes_f64(b, "f64", 1);
    gguf_bytes_bool(b, "bool", true);
    gguf_bytes_array(b, "u32s", GGUF_TYPE_UINT32, (uint32_t[]){1, 2, 3}, 3, 4);
    gguf_bytes_array(b, "f32s", GGUF_TYPE_FLOAT32, (float[]){1, 2, 3}, 3, 4);
    gguf_bytes_array(b, "bools", GGUF_TYPE_BOOL, (uint8_t[]){0, 1}, 2, 1);
    gguf_bytes_texts(b, "texts", (const char *[]){"one", "two", ""}, 3);
    gguf_bytes_tensor(b, "f32.weight", GGML_TYPE_F32, 2, (int64_t[]){4, 3}, NULL);
    gguf_bytes_tensor(b, "q8.weight", GGML_TYPE_Q8_0, 3, (int64_t[]){32, 2, 2}, NULL);
    gguf_bytes_tensor(b, "f16.bias", GGML_TYPE_F16, 1, (int64_t[]){7}, NULL);
    gguf_bytes_finish(b);
}

/* Opens a copy that ends exactly where the allocation does, so that ASan sees a read beyond. True:
 * accepted. */
static bool try_bytes(const char *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, data, size);
    struct gguf_file *file = NULL;
    struct error err = {0};
    enum error_code code = gguf_file_open_memory(copy, size, &file, &err);
    assert_true((code == ERROR_NONE) == (file != NULL));
    assert_true((code == ERROR_NONE) == (err.text[0] == 0));
    if (file)
        gguf_oracle_agrees(file);
    gguf_file_close(file);
    free(copy);
    return code == ERROR_NONE;
}

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    build(&bytes);
    const struct buffer *whole = &bytes.whole;
    size_t end =
        whole->size - (32 - 14); /* the last tensor's bytes; then padding, which may be missing */
    for (size_t size = 0; size <= whole->size; size++)
        assert_int_equal(try_bytes(whole->data, size), size >= end);
    gguf_bytes_deinit(&bytes);
}

static void test_flipped_bits(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    build(&bytes);
    size_t head = bytes.whole.size - bytes.data.size;
    unsigned accepted = 0, tries = 0;
    for (size_t bit = 0; bit < head * 8; bit++, tries++) { /* each bit by itself */
        bytes.whole.data[bit / 8] ^= (char)(1 << bit % 8);
        accepted += try_bytes(bytes.whole.data, bytes.whole.size);
        bytes.whole.data[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (uint64_t i = 0; i < 5000; i++, tries++) { /* two to five bytes anew */
        char kept[5];
        size_t at[5], n = 2 + random_at(i, 99) % 4;
        for (size_t k = 0; k < n; k++) {
            at[k] = random_at(i, k) % head;
            kept[k] = bytes.whole.data[at[k]];
            bytes.whole.data[at[k]] = (char)random_at(i, 10 + k);
        }
        accepted += try_bytes(bytes.whole.data, bytes.whole.size);
        for (size_t k = n; k-- > 0;)
            bytes.whole.data[at[k]] = kept[k];
    }
    assert_true(try_bytes(bytes.whole.data, bytes.whole.size));
    assert_in_range(accepted, 1,
                    tries - 1); /* values and names may change freely; structure may not */
    gguf_bytes_deinit(&bytes);
}

static void test_every_allocation_fails(void **state)
{
    (void)state;
    struct gguf_bytes bytes = {0};
    build(&bytes);
    const char *path = "gguf-test-alloc.gguf";
    gguf_bytes_save(&bytes, path);
    unsigned failures[2] = {0};
    for (int from_path = 0; from_path < 2; from_path++) {
        for (unsigned nth = 1;; nth++) {
            struct gguf_file *file = NULL;
            struct error err = {0};
            mem_fail_nth(nth);
            enum error_code code =
                from_path ? gguf_file_open(path, &file, &err)
                          : gguf_file_open_memory(bytes.whole.data, bytes.whole.size, &file, &err);
            mem_fail_nth(0);
            gguf_file_close(file);
            if (code == ERROR_NONE)
                break;
            assert_int_equal(code, ERROR_NO_MEMORY);
            assert_non_null(strstr(err.text, "out of memory"));
            assert_null(file);
            failures[from_path]++;
        }
    }
    assert_int_equal(failures[0], 1 + 2 + 13 + 1 + 3); /* file, arrays, keys, the text, tensors */
    assert_int_equal(failures[1], failures[0] + 2);    /* the path, the list of its parts */
    remove(path);
    gguf_bytes_deinit(&bytes);
}

/* Calls `each` with the path of every .gguf of a folder under the golden folder; returns how
 * many. */
static unsigned each_file(const char *folder, void (*each)(const char *path, const char *name))
{
    char path[4096];
    const char *golden = getenv("MEDLEY_GOLDEN");
    assert_non_null(golden);
    snprintf(path, sizeof path, "%s/%s", golden, folder);
    DIR *listing = opendir(path);
    assert_non_null(listing);
    unsigned count = 0;
    for (struct dirent *entry; (entry = readdir(listing));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".gguf") != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s/%s", golden, folder, entry->d_name);
        each(path, entry->d_name);
        count++;
    }
    closedir(listing);
    return count;
}

static void open_golden(const char *path, const char *name)
{
    (void)name;
    struct gguf_file *file;
    struct error err;
    if (gguf_file_open(path, &file, &err))
        fail_msg("%s", err.text);
    assert_true(gguf_file_has(file, "general.architecture"));
    assert_true(gguf_oracle_agrees(file));
    gguf_file_close(file);
}

static void test_golden_files(void **state)
{
    (void)state;
    assert_true(each_file("models", open_golden) >= 32);
    assert_true(each_file("tokenizers", open_golden) >= 18);
}

static unsigned n_good, n_evil;

static void open_corpus(const char *path, const char *name)
{
    struct gguf_file *file;
    struct error err = {0};
    bool good = strncmp(name, "good-", 5) == 0,
         opened = gguf_file_open(path, &file, &err) == ERROR_NONE;
    gguf_file_close(file);
    n_good += good;
    n_evil += strncmp(name, "evil-", 5) == 0;
    if ((good && !opened) || (strncmp(name, "evil-", 5) == 0 && opened))
        fail_msg("%s: %s", path, opened ? "was opened" : err.text);
}

/* The names in the fuzz corpus tell the truth; what libFuzzer adds has other names. */
static void test_fuzz_corpus_is_good_or_evil(void **state)
{
    (void)state;
    each_file("../fuzz/corpus/gguf", open_corpus);
    assert_true(n_good >= 5);
    assert_true(n_evil >= 14);
}

static void test_opening_is_not_quadratic(void **state)
{
    (void)state;
    enum { TENSORS = 65536, TEXTS = 200000 };
    struct gguf_bytes bytes = {0};
    const char **texts = calloc(TEXTS, sizeof *texts);
    assert_non_null(texts);
    for (int i = 0; i < TEXTS; i++)
        texts[i] = "token";
    gguf_bytes_texts(&bytes, "tokenizer.ggml.tokens", texts, TEXTS);
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "tensor.%d", i);
        gguf_bytes_tensor(&bytes, name, GGML_TYPE_F32, 1, (int64_t[]){8}, NULL);
    }
    const struct buffer *whole = gguf_bytes_finish(&bytes);
    struct gguf_file *file;
    clock_t start = clock();
    assert_int_equal(gguf_file_open_memory(whole->data, whole->size, &file, NULL), ERROR_NONE);
    for (int i = 0; i < TENSORS; i++)
        assert_non_null(gguf_file_find_tensor(file, gguf_file_tensor(file, (uint64_t)i)->name));
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    assert_true(seconds < 10); /* 2^32 comparisons of names would take longer */
    gguf_file_close(file);
    gguf_bytes_deinit(&bytes);
    free(texts);
}

int main(void)
{
    ggml_log_set(no_log, NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_flipped_bits),
        cmocka_unit_test(test_every_allocation_fails),
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_fuzz_corpus_is_good_or_evil),
        cmocka_unit_test(test_opening_is_not_quadratic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
