/* A GGUF file of any bytes: opened or refused with a text; when opened, everything the header
 * promises holds, and ggml's own reader, where it takes the file too, reads the same. */
#include "fuzz.h"

#include "gguf_oracle.h"
#include "model/gguf_file.h"
#include "model/gguf_skim.h"

#include <ggml.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned long sum; /* so that reads are not optimised away */

static void no_log(enum ggml_log_level level, const char *text, void *arg)
{
    (void)level, (void)text, (void)arg;
}

static void read_text(void *arg, uint64_t index, const char *text, size_t size)
{
    (void)arg, (void)index;
    for (size_t i = 0; i < size; i++)
        sum += (unsigned char)text[i];
}

static void read_array(const struct gguf_file *file, const char *key)
{
    uint64_t length;
    if (gguf_file_array(file, key, GGUF_ARRAY_U32, &length, NULL) == ERROR_NONE && length > 0)
        sum += gguf_file_array_u32(file, key, 0) + gguf_file_array_u32(file, key, length - 1);
    if (gguf_file_array(file, key, GGUF_ARRAY_F32, &length, NULL) == ERROR_NONE && length > 0)
        FUZZ_CHECK(gguf_file_array_f32(file, key, length - 1) ==
                   gguf_file_array_f32(file, key, length - 1));
    if (gguf_file_array(file, key, GGUF_ARRAY_BOOL, &length, NULL) == ERROR_NONE && length > 0)
        sum += gguf_file_array_bool(file, key, length - 1);
    if (gguf_file_array(file, key, GGUF_ARRAY_TEXT, &length, NULL) == ERROR_NONE)
        gguf_file_array_texts(file, key, read_text, NULL);
}

static void read_key(const struct gguf_file *file, uint64_t index)
{
    char shown[40];
    const char *key = gguf_file_key(file, index, shown, sizeof shown), *text;
    struct error err = {0};
    uint32_t number;
    float real;
    bool truth;
    size_t size;
    FUZZ_CHECK(gguf_file_has(file, key) && strlen(shown) < sizeof shown);
    FUZZ_CHECK((gguf_file_u32(file, key, &number, &err) == ERROR_NONE) == (err.text[0] == 0));
    if (gguf_file_f32(file, key, &real, NULL) == ERROR_NONE)
        FUZZ_CHECK(real - real == 0); /* finite */
    if (gguf_file_bool(file, key, &truth, NULL) == ERROR_NONE)
        sum += truth;
    if (gguf_file_text(file, key, &text, &size, NULL) == ERROR_NONE)
        FUZZ_CHECK(text[size] == 0);
    read_array(file, key);
}

static void read_tensor(const struct gguf_file *file, uint64_t index)
{
    const struct gguf_tensor *tensor = gguf_file_tensor(file, index);
    uint64_t file_size = gguf_file_size(file);
    FUZZ_CHECK(tensor->size > 0 && tensor->offset < file_size &&
               tensor->size <= file_size - tensor->offset);
    sum += gguf_file_bytes(file)[tensor->offset] +
           gguf_file_bytes(file)[tensor->offset + tensor->size - 1];
    size_t length = strlen(tensor->name);
    FUZZ_CHECK(length > 0 && length < GGML_MAX_NAME &&
               gguf_file_find_tensor(file, tensor->name) == tensor);
    FUZZ_CHECK(tensor->n_dims <= 4 &&
               tensor->ne[0] % ggml_blck_size((enum ggml_type)tensor->type) == 0);
    uint64_t size = ggml_row_size((enum ggml_type)tensor->type, tensor->ne[0]);
    for (int d = 1; d < 4; d++)
        size *= (uint64_t)tensor->ne[d];
    FUZZ_CHECK(size == tensor->size);
    for (uint64_t i = 0; i < index && i < 64; i++) {
        const struct gguf_tensor *other = gguf_file_tensor(file, i);
        FUZZ_CHECK(other->offset + other->size <= tensor->offset ||
                   tensor->offset + tensor->size <= other->offset);
    }
}

/* What a list of models reads: bounded by the file, and the same where both take it. */
static void read_listed(const uint8_t *data, size_t size, const struct gguf_file *whole)
{
    struct gguf_index index = {0};
    bool misses_keys = false;
    const bool skimmed = gguf_skim(data, size, &index, &misses_keys);
    FUZZ_CHECK(skimmed || (!index.values && !index.tensors));
    for (uint64_t i = 0; skimmed && i < index.n_tensors; i++)
        FUZZ_CHECK(index.tensors[i].size <= size &&
                   index.tensors[i].offset <= size - index.tensors[i].size);
    if (skimmed && whole)
        FUZZ_CHECK(index.n_values <= gguf_file_key_count(whole));
    gguf_index_deinit(&index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ggml_log_set(no_log, NULL);
    struct gguf_file *file = NULL;
    struct error err = {0};
    enum error_code code = gguf_file_open_memory(data, size, &file, &err);
    FUZZ_CHECK((code == ERROR_NONE) == (file != NULL) &&
               (code == ERROR_NONE) == (err.text[0] == 0));
    read_listed(data, size, file);
    if (!file)
        return 0;
    FUZZ_CHECK(gguf_file_size(file) == size && gguf_file_bytes(file) == data);
    for (uint64_t i = 0; i < gguf_file_key_count(file); i++)
        read_key(file, i);
    for (uint64_t i = 0; i < gguf_file_tensor_count(file); i++)
        read_tensor(file, i);
    gguf_oracle_agrees(file);
    gguf_file_close(file);
    return 0;
}
