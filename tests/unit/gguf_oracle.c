#include "gguf_oracle.h"

#include <gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Not assert(): these must hold in any build. */
#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: ggml's reader disagrees: %s\n", __FILE__, __LINE__, #what);    \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct text_check {
    const struct gguf_context *oracle;
    int64_t key;
    uint64_t seen;
};

static void check_text(void *arg, uint64_t index, const char *text, size_t size)
{
    struct text_check *check = arg;
    CHECK(index == check->seen++);
    /* ggml gives a C string: all of it that is before a NUL */
    const char *theirs = gguf_get_arr_str(check->oracle, check->key, index);
    CHECK(strlen(theirs) == strnlen(text, size) && memcmp(theirs, text, strlen(theirs)) == 0);
}

static void check_array(const struct gguf_file *file, const struct gguf_context *oracle,
                        int64_t key)
{
    const char *name = gguf_get_key(oracle, key);
    enum gguf_type type = gguf_get_arr_type(oracle, key);
    uint64_t length = gguf_get_arr_n(oracle, key), ours = 0;
    if (type == GGUF_TYPE_STRING) {
        struct text_check check = {.oracle = oracle, .key = key};
        CHECK(gguf_file_array(file, name, GGUF_ARRAY_TEXT, &ours, NULL) == ERROR_NONE &&
              ours == length);
        gguf_file_array_texts(file, name, check_text, &check);
        CHECK(check.seen == length);
    } else if (type == GGUF_TYPE_INT32 || type == GGUF_TYPE_UINT32) {
        const uint32_t *theirs = gguf_get_arr_data(oracle, key);
        CHECK(gguf_file_array(file, name, GGUF_ARRAY_U32, &ours, NULL) == ERROR_NONE &&
              ours == length);
        for (uint64_t i = 0; i < length; i++)
            CHECK(gguf_file_array_u32(file, name, i) == theirs[i]);
    } else if (type == GGUF_TYPE_FLOAT32 &&
               gguf_file_array(file, name, GGUF_ARRAY_F32, &ours, NULL) == ERROR_NONE) {
        const float *theirs = gguf_get_arr_data(oracle, key);
        CHECK(ours == length);
        for (uint64_t i = 0; i < length; i++)
            CHECK(gguf_file_array_f32(file, name, i) == theirs[i]);
    } else if (type == GGUF_TYPE_BOOL) {
        const int8_t *theirs = gguf_get_arr_data(oracle, key);
        CHECK(gguf_file_array(file, name, GGUF_ARRAY_BOOL, &ours, NULL) == ERROR_NONE &&
              ours == length);
        for (uint64_t i = 0; i < length; i++)
            CHECK(gguf_file_array_bool(file, name, i) == (theirs[i] != 0));
    }
}

static void check_single(const struct gguf_file *file, const struct gguf_context *oracle,
                         int64_t key)
{
    const char *name = gguf_get_key(oracle, key), *text;
    enum gguf_type type = gguf_get_kv_type(oracle, key);
    uint32_t number;
    float real;
    bool truth;
    size_t size;
    if (type == GGUF_TYPE_STRING) {
        CHECK(gguf_file_text(file, name, &text, &size, NULL) == ERROR_NONE);
        CHECK(strcmp(text, gguf_get_val_str(oracle, key)) == 0 && text[size] == 0);
    } else if (type == GGUF_TYPE_BOOL) {
        CHECK(gguf_file_bool(file, name, &truth, NULL) == ERROR_NONE &&
              truth == gguf_get_val_bool(oracle, key));
    } else if (type == GGUF_TYPE_UINT32) {
        CHECK(gguf_file_u32(file, name, &number, NULL) == ERROR_NONE &&
              number == gguf_get_val_u32(oracle, key));
    } else if (type == GGUF_TYPE_FLOAT32 && gguf_file_f32(file, name, &real, NULL) == ERROR_NONE) {
        CHECK(real == gguf_get_val_f32(oracle, key));
    }
}

static void check_tensor(const struct gguf_file *file, const struct gguf_context *oracle, int64_t i)
{
    const struct gguf_tensor *tensor = gguf_file_tensor(file, (uint64_t)i);
    CHECK(strcmp(tensor->name, gguf_get_tensor_name(oracle, i)) == 0);
    CHECK(gguf_file_find_tensor(file, tensor->name) == tensor);
    CHECK(tensor->type == (int)gguf_get_tensor_type(oracle, i));
    CHECK(tensor->size == gguf_get_tensor_size(oracle, i));
    CHECK(tensor->offset == gguf_get_data_offset(oracle) + gguf_get_tensor_offset(oracle, i));
    CHECK(memcmp(tensor->ne, gguf_get_tensor_ne(oracle, i), sizeof tensor->ne) == 0);
}

bool gguf_oracle_agrees(const struct gguf_file *file)
{
    struct gguf_init_params params = {.no_alloc = true};
    struct gguf_context *oracle =
        gguf_init_from_buffer(gguf_file_bytes(file), (size_t)gguf_file_size(file), params);
    if (!oracle)
        return false;
    CHECK(gguf_get_version(oracle) == gguf_file_version(file));
    CHECK((uint64_t)gguf_get_n_kv(oracle) == gguf_file_key_count(file));
    for (int64_t i = 0; i < gguf_get_n_kv(oracle); i++) {
        char shown[64];
        CHECK(strcmp(gguf_file_key(file, (uint64_t)i, shown, sizeof shown),
                     gguf_get_key(oracle, i)) == 0);
        CHECK(strlen(shown) < sizeof shown);
        if (gguf_get_kv_type(oracle, i) == GGUF_TYPE_ARRAY)
            check_array(file, oracle, i);
        else
            check_single(file, oracle, i);
    }
    CHECK((uint64_t)gguf_get_n_tensors(oracle) == gguf_file_tensor_count(file));
    for (int64_t i = 0; i < gguf_get_n_tensors(oracle); i++)
        check_tensor(file, oracle, i);
    gguf_free(oracle);
    return true;
}
