#include "gguf_bytes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static void put(struct buffer *buffer, const void *bytes, size_t size)
{
    buffer_append(buffer, bytes, size);
    assert(!buffer->failed);
}

static void put_u32(struct buffer *buffer, uint32_t value)
{
    put(buffer, &value, sizeof value);
}

static void put_u64(struct buffer *buffer, uint64_t value)
{
    put(buffer, &value, sizeof value);
}

static void put_text(struct buffer *buffer, const char *text, size_t size)
{
    put_u64(buffer, size);
    put(buffer, text, size);
}

static void pad(struct buffer *buffer, size_t alignment)
{
    while (buffer->size % alignment)
        put(buffer, "", 1);
}

static size_t alignment(const struct gguf_bytes *bytes)
{
    return bytes->alignment ? bytes->alignment : GGUF_DEFAULT_ALIGNMENT;
}

const struct buffer *gguf_bytes_finish(struct gguf_bytes *bytes)
{
    struct buffer *whole = &bytes->whole;
    buffer_clear(whole);
    put(whole, GGUF_MAGIC, 4);
    put_u32(whole, bytes->version ? bytes->version : GGUF_VERSION);
    put_u64(whole, bytes->n_tensors);
    put_u64(whole, bytes->n_keys);
    put(whole, bytes->keys.data, bytes->keys.size);
    put(whole, bytes->tensors.data, bytes->tensors.size);
    if (bytes->n_tensors)
        pad(whole, alignment(bytes));
    put(whole, bytes->data.data, bytes->data.size);
    return whole;
}

void gguf_bytes_save(struct gguf_bytes *bytes, const char *path)
{
    const struct buffer *whole = gguf_bytes_finish(bytes);
    FILE *file = fopen(path, "wb");
    bool written = file && fwrite(whole->data, 1, whole->size, file) == whole->size;
    bool closed = file && fclose(file) == 0;
    assert(written && closed);
    (void)(written && closed);
}

void gguf_bytes_deinit(struct gguf_bytes *bytes)
{
    buffer_deinit(&bytes->keys);
    buffer_deinit(&bytes->tensors);
    buffer_deinit(&bytes->data);
    buffer_deinit(&bytes->whole);
    *bytes = (struct gguf_bytes){0};
}

void gguf_bytes_raw_key(struct gguf_bytes *bytes, const char *key, size_t key_size, uint32_t type,
                        const void *value, size_t value_size)
{
    put_text(&bytes->keys, key, key_size);
    put_u32(&bytes->keys, type);
    put(&bytes->keys, value, value_size);
    bytes->n_keys++;
}

static void key_value(struct gguf_bytes *bytes, const char *key, enum gguf_type type,
                      const void *value, size_t size)
{
    gguf_bytes_raw_key(bytes, key, strlen(key), type, value, size);
}

void gguf_bytes_u8(struct gguf_bytes *bytes, const char *key, uint8_t value)
{
    key_value(bytes, key, GGUF_TYPE_UINT8, &value, sizeof value);
}

void gguf_bytes_i8(struct gguf_bytes *bytes, const char *key, int8_t value)
{
    key_value(bytes, key, GGUF_TYPE_INT8, &value, sizeof value);
}

void gguf_bytes_u16(struct gguf_bytes *bytes, const char *key, uint16_t value)
{
    key_value(bytes, key, GGUF_TYPE_UINT16, &value, sizeof value);
}

void gguf_bytes_i16(struct gguf_bytes *bytes, const char *key, int16_t value)
{
    key_value(bytes, key, GGUF_TYPE_INT16, &value, sizeof value);
}

void gguf_bytes_u32(struct gguf_bytes *bytes, const char *key, uint32_t value)
{
    key_value(bytes, key, GGUF_TYPE_UINT32, &value, sizeof value);
}

void gguf_bytes_i32(struct gguf_bytes *bytes, const char *key, int32_t value)
{
    key_value(bytes, key, GGUF_TYPE_INT32, &value, sizeof value);
}

void gguf_bytes_u64(struct gguf_bytes *bytes, const char *key, uint64_t value)
{
    key_value(bytes, key, GGUF_TYPE_UINT64, &value, sizeof value);
}

void gguf_bytes_i64(struct gguf_bytes *bytes, const char *key, int64_t value)
{
    key_value(bytes, key, GGUF_TYPE_INT64, &value, sizeof value);
}

void gguf_bytes_f32(struct gguf_bytes *bytes, const char *key, float value)
{
    key_value(bytes, key, GGUF_TYPE_FLOAT32, &value, sizeof value);
}

void gguf_bytes_f64(struct gguf_bytes *bytes, const char *key, double value)
{
    key_value(bytes, key, GGUF_TYPE_FLOAT64, &value, sizeof value);
}

void gguf_bytes_bool(struct gguf_bytes *bytes, const char *key, bool value)
{
    uint8_t byte = value;
    key_value(bytes, key, GGUF_TYPE_BOOL, &byte, sizeof byte);
}

void gguf_bytes_text(struct gguf_bytes *bytes, const char *key, const char *text)
{
    gguf_bytes_text_sized(bytes, key, text, strlen(text));
}

void gguf_bytes_text_sized(struct gguf_bytes *bytes, const char *key, const char *text, size_t size)
{
    key_value(bytes, key, GGUF_TYPE_STRING, NULL, 0);
    put_text(&bytes->keys, text, size);
}

static void array_head(struct gguf_bytes *bytes, const char *key, enum gguf_type type,
                       uint64_t count)
{
    key_value(bytes, key, GGUF_TYPE_ARRAY, NULL, 0);
    put_u32(&bytes->keys, type);
    put_u64(&bytes->keys, count);
}

void gguf_bytes_array(struct gguf_bytes *bytes, const char *key, enum gguf_type type,
                      const void *elements, uint64_t count, size_t element_size)
{
    array_head(bytes, key, type, count);
    put(&bytes->keys, elements, (size_t)count * element_size);
}

void gguf_bytes_texts(struct gguf_bytes *bytes, const char *key, const char *const *texts,
                      uint64_t count)
{
    array_head(bytes, key, GGUF_TYPE_STRING, count);
    for (uint64_t i = 0; i < count; i++)
        put_text(&bytes->keys, texts[i], strlen(texts[i]));
}

void gguf_bytes_raw_tensor(struct gguf_bytes *bytes, const char *name, size_t name_size,
                           uint32_t n_dims, const int64_t *ne, uint32_t type, uint64_t offset)
{
    put_text(&bytes->tensors, name, name_size);
    put_u32(&bytes->tensors, n_dims);
    put(&bytes->tensors, ne, n_dims * sizeof *ne);
    put_u32(&bytes->tensors, type);
    put_u64(&bytes->tensors, offset);
    bytes->n_tensors++;
}

void gguf_bytes_tensor(struct gguf_bytes *bytes, const char *name, enum ggml_type type,
                       uint32_t n_dims, const int64_t *ne, const void *values)
{
    pad(&bytes->data, alignment(bytes));
    gguf_bytes_raw_tensor(bytes, name, strlen(name), n_dims, ne, type, bytes->data.size);
    size_t size = ggml_row_size(type, n_dims ? ne[0] : 1);
    for (uint32_t d = 1; d < n_dims; d++)
        size *= (size_t)ne[d];
    if (values) {
        put(&bytes->data, values, size);
    } else {
        for (size_t i = 0; i < size; i++)
            put(&bytes->data, "", 1);
    }
    pad(&bytes->data, alignment(bytes));
}
