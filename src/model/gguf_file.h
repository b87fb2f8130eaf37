/* A GGUF file, hostile until checked.
 *
 * gguf_file_open() maps the file and walks its whole structure with every count, length,
 * type, offset and shape checked against the file's size and base/limits.h. After it returns,
 * every key and tensor that this header gives is inside the file, and no tensor overlaps another.
 * Format: the GGUF specification in ggml's docs/gguf.md (versions 2 and 3, little-endian).
 *
 * The walk keeps an index, and that is what answers: ggml's own reader would copy every text
 * again, cut those that hold a NUL, and abort on a wrong type. With 150,000 tokens and 280,000
 * merges the walk takes 1.5 ms and ggml's reader 290 ms (file in the page cache, medians of 5).
 * The tests hold the two against each other, file by file and key by key.
 *
 * A model in several files is shown as one: any part's path stands for all, and so does the path of
 * the folder in which they, or one whole file, lie alone.
 *
 * Lifetime: pointers handed out live until gguf_file_close(). Read-only: any thread. A file that is
 * shortened while it is open reads as zeros from there on: who has used its bytes asks
 * gguf_file_check_whole() before the result is used. */
#pragma once

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gguf_file;

enum error_code gguf_file_open(const char *path, struct gguf_file **out, struct error *err);
/* For a list of models: the keys without arrays of thousands of texts, which are passed over, and
 * the tensors. Their descriptions are checked as ever; a file that is then used is opened anew. Of
 * a file where that does not work, all is read. */
enum error_code gguf_file_open_listed(const char *path, struct gguf_file **out, struct error *err);
/* gguf_file_open() of files that are open already, for a process that may not open them: all of a
 * model's, in order. Takes the descriptors also when it fails. `path` is for messages. */
enum error_code gguf_file_open_descriptors(const int *descriptors, uint32_t n, const char *path,
                                           struct gguf_file **out, struct error *err);
/* One file by itself, even if it is a part of a model. */
enum error_code gguf_file_open_part(int descriptor, const char *path, struct gguf_file **out,
                                    struct error *err);
/* The same over bytes in memory, which must outlive it; for tests and fuzzing. */
enum error_code gguf_file_open_memory(const void *bytes, size_t size, struct gguf_file **out,
                                      struct error *err);
void gguf_file_close(struct gguf_file *file);

const char *gguf_file_path(const struct gguf_file *file); /* the first part's; or "(memory)" */
uint64_t gguf_file_size(const struct gguf_file *file);    /* bytes; of parts: as shown */
const uint8_t *gguf_file_bytes(const struct gguf_file *file);
/* ERROR_IO: bytes were read that the file does not have any more. */
enum error_code gguf_file_check_whole(const struct gguf_file *file, struct error *err);
bool gguf_file_is_mapped(const struct gguf_file *file); /* false for memory */
/* The files behind it: 0 for memory. */
uint32_t gguf_file_part_count(const struct gguf_file *file);
int gguf_file_part_descriptor(const struct gguf_file *file, uint32_t index);
/* Where a tensor's bytes, or others from `offset` on, lie on the disk: in which file, and where in
 * it. False: nowhere, for they were made (the header of joined parts, what is between two) or are
 * memory; they are at gguf_file_bytes() + offset. */
bool gguf_file_place(const struct gguf_file *file, uint64_t offset, uint32_t *part,
                     uint64_t *part_offset);
uint32_t gguf_file_version(const struct gguf_file *file); /* of the format: 2 or 3 */

/* ---- keys: a missing key is ERROR_NOT_FOUND, a wrong type or a value out of range is
 * ERROR_INVALID; both texts name the key. Integers of any width are taken if they fit. ---- */
bool gguf_file_has(const struct gguf_file *file, const char *key);
enum error_code gguf_file_u32(const struct gguf_file *file, const char *key, uint32_t *out,
                              struct error *err);
enum error_code gguf_file_f32(const struct gguf_file *file, const char *key, float *out,
                              struct error *err); /* finite */
enum error_code gguf_file_bool(const struct gguf_file *file, const char *key, bool *out,
                               struct error *err);
/* Not NUL-terminated by contract of the format, but ours are: *out has a NUL at *size; may hold
 * NULs before. */
enum error_code gguf_file_text(const struct gguf_file *file, const char *key, const char **out,
                               size_t *size, struct error *err);

enum gguf_array_kind { GGUF_ARRAY_U32, GGUF_ARRAY_F32, GGUF_ARRAY_BOOL, GGUF_ARRAY_TEXT };
/* Length of an array whose elements can be read as that kind (for F32: none is NaN). Reads them
 * all: call it once. */
enum error_code gguf_file_array(const struct gguf_file *file, const char *key,
                                enum gguf_array_kind kind, uint64_t *length, struct error *err);
/* Elements of an array that gguf_file_array() accepted; `index` below its length. */
uint32_t gguf_file_array_u32(const struct gguf_file *file, const char *key,
                             uint64_t index); /* negative i32: two's complement */
float gguf_file_array_f32(const struct gguf_file *file, const char *key, uint64_t index);
bool gguf_file_array_bool(const struct gguf_file *file, const char *key, uint64_t index);
/* All elements at once, for long arrays: the three above look the key up each time. */
void gguf_file_array_u32s(const struct gguf_file *file, const char *key, uint32_t *out);
void gguf_file_array_f32s(const struct gguf_file *file, const char *key, float *out);

/* All texts of an array at once, without a look-up for each: calls `each` in order. They lie in the
 * file: `size` bytes, with no NUL after them. */
typedef void (*gguf_text_fn)(void *arg, uint64_t index, const char *text, size_t size);
void gguf_file_array_texts(const struct gguf_file *file, const char *key, gguf_text_fn each,
                           void *arg);

/* Keys in file order, for `medley inspect`: a short printable value is written to `text`. */
uint64_t gguf_file_key_count(const struct gguf_file *file);
const char *gguf_file_key(const struct gguf_file *file, uint64_t index, char *text,
                          size_t text_size);

/* ---- tensors ---- */
struct gguf_tensor {
    const char *name;
    int type; /* enum ggml_type, one that this ggml knows */
    uint32_t n_dims;
    int64_t ne[4];   /* ne[i] = 1 from n_dims on; ne[0] is a multiple of the type's block */
    uint64_t offset; /* from the start of the file, in bytes */
    uint64_t size;   /* bytes */
};
const char *
gguf_tensor_type_name(const struct gguf_tensor *tensor); /* as ggml calls it: "f32", "q4_K" */
uint64_t gguf_file_tensor_count(const struct gguf_file *file);
const struct gguf_tensor *gguf_file_tensor(const struct gguf_file *file, uint64_t index);
const struct gguf_tensor *
gguf_file_find_tensor(const struct gguf_file *file,
                      const char *name); /* NULL: none; O(1) or O(log n) */
