/* What the walk over a GGUF file found; private to gguf_file.c, gguf_check.c and gguf_keys.c.
 *
 * Everything here is a view into the file's bytes, except names and texts, which the format
 * does not end with a NUL: those are copies that do. */
#pragma once

#include "base/error.h"
#include "model/gguf_file.h"

#include <ggml.h>
#include <gguf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "values are read from the file as they lie");

enum {
    GGUF_HEADER_BYTES = 24,     /* magic, version, two counts */
    GGUF_KEY_BYTES_MAX = 65535, /* the specification's limit */
    GGUF_TEXT_BYTES_MAX =
        64 * 1024 * 1024,   /* one text value: room for an embedded tokenizer.json */
    GGUF_ALIGNMENT_MIN = 8, /* the specification's */
    GGUF_ALIGNMENT_MAX = 1 << 20,
};

struct gguf_value {
    char *key;
    enum gguf_type type; /* of the elements, when it is an array; never GGUF_TYPE_ARRAY */
    bool is_array;
    uint64_t count;      /* elements; 1 unless it is an array */
    const uint8_t *data; /* the first element; may be unaligned */
    char *text;          /* a single text: its copy */
    uint64_t text_size;
};

struct gguf_index {
    uint32_t version;
    uint64_t keys_end; /* from the file's start, where the tensors' descriptions begin */
    uint32_t alignment;
    uint64_t n_values;
    struct gguf_value *values; /* in file order */
    uint32_t *values_by_key;   /* indices, sorted by key */
    uint64_t tensors_at;       /* bytes of the file before the tensors' descriptions */
    uint64_t n_tensors;
    struct gguf_tensor *tensors; /* in file order */
    char (*tensor_names)[GGML_MAX_NAME];
    uint32_t *tensors_by_name; /* indices, sorted by name */
};

/* One of the files that a mapping shows. */
struct gguf_part {
    int descriptor;
    uint64_t at;   /* where in the mapping … */
    uint64_t from; /* … which byte of the file is the first */
    uint64_t size; /* bytes */
};

struct gguf_file {
    char *path; /* NULL: memory */
    const uint8_t *bytes;
    uint64_t size;
    struct gguf_part *parts; /* the files; none: memory */
    uint32_t n_parts;
    bool mapped;
    uint32_t guard; /* gguf_guard.h; while it is mapped */
    struct gguf_index index;
};

/* Checks the whole structure of `bytes` and fills *index (zeroed by the caller). On failure *index
 * is empty again. */
enum error_code gguf_check(const uint8_t *bytes, uint64_t size, struct gguf_index *index,
                           struct error *err);
void gguf_index_deinit(struct gguf_index *index);

const struct gguf_value *gguf_index_find(const struct gguf_index *index,
                                         const char *key); /* NULL: none */

/* Bytes of one element; 0 for texts, whose size varies. */
size_t gguf_element_size(enum gguf_type type);

/* `size` bytes as one printable line for a message: what is not plain ASCII becomes '?', what is
 * too long ends in "...". */
const char *gguf_printable(const char *bytes, uint64_t size, char *out, size_t out_size);

static inline uint16_t gguf_load_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint32_t gguf_load_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t gguf_load_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}
