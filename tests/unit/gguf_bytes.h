/* Writes GGUF files in memory, right ones and wrong ones, for tests and corpora.
 *
 *     struct gguf_bytes bytes = {0};
 *     gguf_bytes_text(&bytes, "general.architecture", "llama");
 *     gguf_bytes_tensor(&bytes, "token_embd.weight", GGML_TYPE_F32, 2, (int64_t[]){64, 320}, NULL);
 *     const struct buffer *file = gguf_bytes_finish(&bytes);
 *     gguf_file_open_memory(file->data, file->size, …);
 *     gguf_bytes_deinit(&bytes);
 *
 * A zeroed one is empty and valid: version 3, alignment 32. Running out of memory is asserted. */
#pragma once

#include "base/buffer.h"

#include <gguf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_bytes {
    uint32_t version;   /* 0: 3 */
    uint32_t alignment; /* 0: 32; written as a key only by gguf_bytes_u32() */
    uint64_t n_keys, n_tensors;
    struct buffer keys, tensors, data, whole;
};

/* The whole file, valid until the next call with these bytes. More may be added and finished
 * again. */
const struct buffer *gguf_bytes_finish(struct gguf_bytes *bytes);
void gguf_bytes_save(struct gguf_bytes *bytes, const char *path); /* finishes and writes a file */
void gguf_bytes_deinit(struct gguf_bytes *bytes);

/* ---- keys ---- */
void gguf_bytes_u8(struct gguf_bytes *bytes, const char *key, uint8_t value);
void gguf_bytes_i8(struct gguf_bytes *bytes, const char *key, int8_t value);
void gguf_bytes_u16(struct gguf_bytes *bytes, const char *key, uint16_t value);
void gguf_bytes_i16(struct gguf_bytes *bytes, const char *key, int16_t value);
void gguf_bytes_u32(struct gguf_bytes *bytes, const char *key, uint32_t value);
void gguf_bytes_i32(struct gguf_bytes *bytes, const char *key, int32_t value);
void gguf_bytes_u64(struct gguf_bytes *bytes, const char *key, uint64_t value);
void gguf_bytes_i64(struct gguf_bytes *bytes, const char *key, int64_t value);
void gguf_bytes_f32(struct gguf_bytes *bytes, const char *key, float value);
void gguf_bytes_f64(struct gguf_bytes *bytes, const char *key, double value);
void gguf_bytes_bool(struct gguf_bytes *bytes, const char *key, bool value);
void gguf_bytes_text(struct gguf_bytes *bytes, const char *key, const char *text);
void gguf_bytes_text_sized(struct gguf_bytes *bytes, const char *key, const char *text,
                           size_t size);
/* `count` elements of any type but text. */
void gguf_bytes_array(struct gguf_bytes *bytes, const char *key, enum gguf_type type,
                      const void *elements, uint64_t count, size_t element_size);
void gguf_bytes_texts(struct gguf_bytes *bytes, const char *key, const char *const *texts,
                      uint64_t count);

/* ---- tensors: `values` may be NULL (zeros); the data follows that of the tensor before, aligned
 */
void gguf_bytes_tensor(struct gguf_bytes *bytes, const char *name, enum ggml_type type,
                       uint32_t n_dims, const int64_t *ne, const void *values);

/* ---- for wrong files: no check, no bookkeeping beyond the counts ---- */
void gguf_bytes_raw_key(struct gguf_bytes *bytes, const char *key, size_t key_size, uint32_t type,
                        const void *value, size_t value_size);
void gguf_bytes_raw_tensor(struct gguf_bytes *bytes, const char *name, size_t name_size,
                           uint32_t n_dims, const int64_t *ne, uint32_t type, uint64_t offset);
