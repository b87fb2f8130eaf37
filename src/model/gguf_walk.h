/* Reading forward through a GGUF file's bytes; private to gguf_check.c, gguf_check_tensors.c
 * and gguf_skim.c. */
#pragma once

#include "model/gguf_index.h"

struct gguf_cursor {
    const uint8_t *bytes;
    uint64_t size;
    uint64_t at; /* never above size */
};

/* False, and the cursor where it was or within the file, when the bytes are not there. */
bool gguf_cursor_take(struct gguf_cursor *cursor, uint64_t size, const uint8_t **out);
bool gguf_cursor_u32(struct gguf_cursor *cursor, uint32_t *out);
bool gguf_cursor_u64(struct gguf_cursor *cursor, uint64_t *out);
bool gguf_cursor_text(struct gguf_cursor *cursor, const char **text, uint64_t *size);

/* "truncated or corrupted: …" inside the index-th key or tensor. */
enum error_code gguf_truncated(const struct gguf_cursor *cursor, const char *what, uint64_t index,
                               struct error *err);

/* Reads the tensor descriptions, at which the cursor stands, and checks them against the data that
 * follows. */
enum error_code gguf_check_tensors(struct gguf_cursor *cursor, struct gguf_index *index,
                                   struct error *err);

/* Magic, version and the two counts, which it sets. */
enum error_code gguf_check_header(struct gguf_cursor *cursor, struct gguf_index *index,
                                  struct error *err);
/* The i-th key, its name and then its value. */
enum error_code gguf_check_read_key(struct gguf_cursor *cursor, uint64_t i,
                                    struct gguf_value *value, struct error *err);
enum error_code gguf_check_read_value(struct gguf_cursor *cursor, uint64_t i,
                                      struct gguf_value *value, struct error *err);
/* Once all are read: sorts them, and takes the alignment. */
enum error_code gguf_check_keys_end(struct gguf_index *index, struct error *err);
