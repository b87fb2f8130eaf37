/* The walk over a GGUF file's structure, before anything in it is believed.
 *
 * Invariants:
 * 1. Nothing is read beyond `size`: every read goes through cursor_take().
 * 2. Nothing is allocated in proportion to a count that the bytes left in the file could not hold.
 * 3. No sum or product of numbers from the file is formed without a check for overflow.
 * 4. The work is O(n log n) in what the file holds.
 *
 * The order is the format's: header, keys, tensor descriptions (gguf_check_tensors.c), data. */
#include "base/limits.h"
#include "base/mem.h"
#include "model/gguf_walk.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    KEY_BYTES_LEAST = 8 + 1 + 4 + 1,       /* length, one character, type, value */
    TENSOR_BYTES_LEAST = 8 + 1 + 4 + 4 + 8 /* length, one character, dimensions, type, offset */
};

bool gguf_cursor_take(struct gguf_cursor *cursor, uint64_t size, const uint8_t **out)
{
    if (size > cursor->size - cursor->at)
        return false;
    *out = cursor->bytes + cursor->at;
    cursor->at += size;
    return true;
}

bool gguf_cursor_u32(struct gguf_cursor *cursor, uint32_t *out)
{
    const uint8_t *at;
    if (!gguf_cursor_take(cursor, sizeof *out, &at))
        return false;
    *out = gguf_load_u32(at);
    return true;
}

bool gguf_cursor_u64(struct gguf_cursor *cursor, uint64_t *out)
{
    const uint8_t *at;
    if (!gguf_cursor_take(cursor, sizeof *out, &at))
        return false;
    *out = gguf_load_u64(at);
    return true;
}

bool gguf_cursor_text(struct gguf_cursor *cursor, const char **text, uint64_t *size)
{
    const uint8_t *at;
    if (!gguf_cursor_u64(cursor, size) || !gguf_cursor_take(cursor, *size, &at))
        return false;
    *text = (const char *)at;
    return true;
}

enum error_code gguf_truncated(const struct gguf_cursor *cursor, const char *what, uint64_t index,
                               struct error *err)
{
    return error_set(err, ERROR_INVALID,
                     "truncated or corrupted: the file's %" PRIu64 " bytes end inside %s %" PRIu64
                     " (which goes on from byte %" PRIu64 ")",
                     cursor->size, what, index, cursor->at);
}

/* What people hand over by mistake. */
static const struct {
    const char *start;
    const char *words;
} lookalikes[] = {
    {"version https://git-lfs",
     "this is a Git LFS pointer, not the model; fetch it with `git lfs pull`"},
    {"<!DOCTYPE", "this is a web page, not a model; the download went wrong"},
    {"<html", "this is a web page, not a model; the download went wrong"},
    {"PK\x03\x04", "this is a PyTorch or zip archive; convert it to GGUF"},
    {"tjgg", "this is a GGJT file, which GGUF replaced in 2023; convert it to GGUF"},
    {"lmgg", "this is a GGML file, which GGUF replaced in 2023; convert it to GGUF"},
    {"fmgg", "this is a GGMF file, which GGUF replaced in 2023; convert it to GGUF"},
};

static enum error_code refuse_magic(const uint8_t *bytes, uint64_t size, struct error *err)
{
    for (size_t i = 0; i < sizeof lookalikes / sizeof lookalikes[0]; i++) {
        size_t length = strlen(lookalikes[i].start);
        if (size >= length && memcmp(bytes, lookalikes[i].start, length) == 0)
            return error_set(err, ERROR_INVALID, "not a GGUF file: %s", lookalikes[i].words);
    }
    if (size > 9 && bytes[8] == '{' && gguf_load_u64(bytes) < size)
        return error_set(err, ERROR_INVALID,
                         "not a GGUF file: this is a safetensors file; convert it to GGUF");
    return error_set(err, ERROR_INVALID, "not a GGUF file: it does not start with \"GGUF\"");
}

static enum error_code check_version(uint32_t version, struct error *err)
{
    if (version == 2 || version == 3)
        return ERROR_NONE;
    if (version == 1)
        return error_set(err, ERROR_UNSUPPORTED,
                         "GGUF version 1 (2023) is no longer read; convert the model again");
    uint32_t swapped = __builtin_bswap32(version);
    if (swapped >= 1 && swapped <= 3)
        return error_set(
            err, ERROR_UNSUPPORTED,
            "a big-endian GGUF file (version %u); convert it with gguf-py's gguf_convert_endian.py",
            swapped);
    return error_set(err, ERROR_UNSUPPORTED, "GGUF version %u; versions 2 and 3 are read", version);
}

enum error_code gguf_check_header(struct gguf_cursor *cursor, struct gguf_index *index,
                                  struct error *err)
{
    if (cursor->size < 4 || memcmp(cursor->bytes, GGUF_MAGIC, 4) != 0)
        return refuse_magic(cursor->bytes, cursor->size, err);
    cursor->at = 4;
    if (!gguf_cursor_u32(cursor, &index->version))
        return gguf_truncated(cursor, "the header, field", 1, err);
    enum error_code code = check_version(index->version, err);
    if (code)
        return code;
    uint64_t n_tensors, n_values;
    if (!gguf_cursor_u64(cursor, &n_tensors) || !gguf_cursor_u64(cursor, &n_values))
        return gguf_truncated(cursor, "the header, field", 2, err);
    if (n_tensors > LIMIT_MODEL_TENSORS)
        return error_set(err, ERROR_INVALID, "%" PRIu64 " tensors; at most %d are allowed",
                         n_tensors, LIMIT_MODEL_TENSORS);
    if (n_values > LIMIT_MODEL_KEYS)
        return error_set(err, ERROR_INVALID, "%" PRIu64 " keys; at most %d are allowed", n_values,
                         LIMIT_MODEL_KEYS);
    uint64_t least =
        GGUF_HEADER_BYTES + n_values * KEY_BYTES_LEAST + n_tensors * TENSOR_BYTES_LEAST;
    if (least > cursor->size)
        return error_set(err, ERROR_INVALID,
                         "truncated: %" PRIu64 " keys and %" PRIu64
                         " tensors need at least %" PRIu64 " bytes, the file has %" PRIu64,
                         n_values, n_tensors, least, cursor->size);
    index->n_tensors = n_tensors;
    index->n_values = n_values;
    return ERROR_NONE;
}

size_t gguf_element_size(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
        return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
        return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
        return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
        return 8;
    case GGUF_TYPE_STRING:
    case GGUF_TYPE_ARRAY:
    case GGUF_TYPE_COUNT:
        break;
    }
    return 0;
}

const char *gguf_printable(const char *bytes, uint64_t size, char *out, size_t out_size)
{
    bool cut = size >= out_size;
    size_t shown = cut ? out_size - 1 : (size_t)size;
    for (size_t i = 0; i < shown; i++)
        out[i] = bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '?';
    out[shown] = 0;
    if (cut && shown > 3)
        memcpy(out + shown - 3, "...", 3);
    return out;
}

enum error_code gguf_check_read_key(struct gguf_cursor *cursor, uint64_t i,
                                    struct gguf_value *value, struct error *err)
{
    const char *key;
    uint64_t size;
    if (!gguf_cursor_u64(cursor, &size))
        return gguf_truncated(cursor, "key", i, err);
    if (size == 0 || size > GGUF_KEY_BYTES_MAX)
        return error_set(err, ERROR_INVALID,
                         "key %" PRIu64 " has a name of %" PRIu64 " bytes; 1 to %d are allowed", i,
                         size, GGUF_KEY_BYTES_MAX);
    cursor->at -= 8;
    if (!gguf_cursor_text(cursor, &key, &size))
        return gguf_truncated(cursor, "key", i, err);
    char shown[80];
    if (memchr(key, 0, (size_t)size))
        return error_set(err, ERROR_INVALID, "key %" PRIu64 " ('%s') has a NUL in its name", i,
                         gguf_printable(key, size, shown, sizeof shown));
    value->key = mem_copy_text(key, (size_t)size);
    return value->key ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

/* The elements of an array, of which the cursor stands at the first. */
static enum error_code read_elements(struct gguf_cursor *cursor, struct gguf_value *value,
                                     const char *shown, struct error *err)
{
    uint64_t left = cursor->size - cursor->at;
    uint64_t least = value->type == GGUF_TYPE_STRING ? 8 : gguf_element_size(value->type);
    if (value->count > left / least)
        return error_set(err, ERROR_INVALID,
                         "key '%s': an array of %" PRIu64 " elements of at least %" PRIu64
                         " bytes, but the file has only %" PRIu64 " bytes left",
                         shown, value->count, least, left);
    value->data = cursor->bytes + cursor->at;
    if (value->type != GGUF_TYPE_STRING) {
        cursor->at += value->count * least;
        return ERROR_NONE;
    }
    const char *text;
    uint64_t size;
    for (uint64_t i = 0; i < value->count; i++) {
        if (!gguf_cursor_text(cursor, &text, &size))
            return error_set(err, ERROR_INVALID,
                             "key '%s': text %" PRIu64 " of %" PRIu64
                             " reaches past the end of the file (%" PRIu64 " bytes)",
                             shown, i, value->count, cursor->size);
    }
    return ERROR_NONE;
}

static enum error_code read_text(struct gguf_cursor *cursor, struct gguf_value *value,
                                 const char *shown, struct error *err)
{
    const char *text;
    value->data = cursor->bytes + cursor->at;
    if (!gguf_cursor_text(cursor, &text, &value->text_size))
        return error_set(err, ERROR_INVALID,
                         "key '%s': its text reaches past the end of the file (%" PRIu64 " bytes)",
                         shown, cursor->size);
    if (value->text_size > GGUF_TEXT_BYTES_MAX)
        return error_set(err, ERROR_INVALID,
                         "key '%s': a text of %" PRIu64 " bytes; at most %d are allowed", shown,
                         value->text_size, GGUF_TEXT_BYTES_MAX);
    value->text = mem_copy_text(text, (size_t)value->text_size);
    return value->text ? ERROR_NONE : error_set(err, ERROR_NO_MEMORY, "out of memory");
}

enum error_code gguf_check_read_value(struct gguf_cursor *cursor, uint64_t i,
                                      struct gguf_value *value, struct error *err)
{
    char shown[80];
    gguf_printable(value->key, strlen(value->key), shown, sizeof shown);
    uint32_t type;
    value->count = 1;
    if (!gguf_cursor_u32(cursor, &type))
        return gguf_truncated(cursor, "key", i, err);
    value->is_array = type == GGUF_TYPE_ARRAY;
    if (value->is_array &&
        (!gguf_cursor_u32(cursor, &type) || !gguf_cursor_u64(cursor, &value->count)))
        return gguf_truncated(cursor, "key", i, err);
    if (value->is_array && type == GGUF_TYPE_ARRAY)
        return error_set(err, ERROR_UNSUPPORTED, "key '%s': arrays of arrays are not supported",
                         shown);
    if (type >= GGUF_TYPE_COUNT)
        return error_set(err, ERROR_INVALID, "key '%s': unknown value type %u", shown, type);
    value->type = (enum gguf_type)type;
    if (value->is_array)
        return read_elements(cursor, value, shown, err);
    if (value->type == GGUF_TYPE_STRING)
        return read_text(cursor, value, shown, err);
    if (!gguf_cursor_take(cursor, gguf_element_size(value->type), &value->data))
        return gguf_truncated(cursor, "key", i, err);
    return ERROR_NONE;
}

static int gguf_check_compare_keys(const void *a, const void *b, void *values)
{
    const struct gguf_value *all = values;
    return strcmp(all[*(const uint32_t *)a].key, all[*(const uint32_t *)b].key);
}

static enum error_code sort_keys(struct gguf_index *index, struct error *err)
{
    for (uint32_t i = 0; i < index->n_values; i++)
        index->values_by_key[i] = i;
    qsort_r(index->values_by_key, index->n_values, sizeof(uint32_t), gguf_check_compare_keys,
            index->values);
    for (uint64_t i = 1; i < index->n_values; i++) {
        const char *key = index->values[index->values_by_key[i]].key;
        char shown[80];
        if (strcmp(key, index->values[index->values_by_key[i - 1]].key) == 0)
            return error_set(err, ERROR_INVALID, "key '%s' appears twice",
                             gguf_printable(key, strlen(key), shown, sizeof shown));
    }
    return ERROR_NONE;
}

const struct gguf_value *gguf_index_find(const struct gguf_index *index, const char *key)
{
    uint64_t low = 0, high = index->n_values;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        const struct gguf_value *value = &index->values[index->values_by_key[middle]];
        int order = strcmp(key, value->key);
        if (order == 0)
            return value;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

static enum error_code check_keys(struct gguf_cursor *cursor, struct gguf_index *index,
                                  struct error *err)
{
    index->values = mem_new_array(index->n_values, sizeof *index->values);
    index->values_by_key = mem_new_array(index->n_values, sizeof *index->values_by_key);
    if (!index->values || !index->values_by_key)
        return error_set(err, ERROR_NO_MEMORY, "out of memory");
    for (uint64_t i = 0; i < index->n_values; i++) {
        enum error_code code = gguf_check_read_key(cursor, i, &index->values[i], err);
        if (!code)
            code = gguf_check_read_value(cursor, i, &index->values[i], err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

static enum error_code check_alignment(struct gguf_index *index, struct error *err)
{
    index->alignment = GGUF_DEFAULT_ALIGNMENT;
    const struct gguf_value *value = gguf_index_find(index, GGUF_KEY_GENERAL_ALIGNMENT);
    if (!value)
        return ERROR_NONE;
    if (value->is_array || value->type != GGUF_TYPE_UINT32)
        return error_set(err, ERROR_INVALID, "key '" GGUF_KEY_GENERAL_ALIGNMENT "' must be a u32");
    uint32_t alignment = gguf_load_u32(value->data);
    if (alignment < GGUF_ALIGNMENT_MIN || alignment > GGUF_ALIGNMENT_MAX ||
        (alignment & (alignment - 1)))
        return error_set(err, ERROR_INVALID,
                         "key '" GGUF_KEY_GENERAL_ALIGNMENT
                         "' is %u; a power of two from %d to %d is needed",
                         alignment, GGUF_ALIGNMENT_MIN, GGUF_ALIGNMENT_MAX);
    index->alignment = alignment;
    return ERROR_NONE;
}

enum error_code gguf_check_keys_end(struct gguf_index *index, struct error *err)
{
    const enum error_code code = sort_keys(index, err);
    return code ? code : check_alignment(index, err);
}

enum error_code gguf_check(const uint8_t *bytes, uint64_t size, struct gguf_index *index,
                           struct error *err)
{
    struct gguf_cursor cursor = {.bytes = bytes, .size = size};
    enum error_code code = gguf_check_header(&cursor, index, err);
    if (!code)
        code = check_keys(&cursor, index, err);
    index->keys_end = cursor.at;
    if (!code)
        code = gguf_check_keys_end(index, err);
    if (!code)
        code = gguf_check_tensors(&cursor, index, err);
    if (code)
        gguf_index_deinit(index);
    return code;
}

void gguf_index_deinit(struct gguf_index *index)
{
    for (uint64_t i = 0; index->values && i < index->n_values; i++) {
        mem_free(index->values[i].key);
        mem_free(index->values[i].text);
    }
    mem_free(index->values);
    mem_free(index->values_by_key);
    mem_free(index->tensors);
    mem_free(index->tensor_names);
    mem_free(index->tensors_by_name);
    *index = (struct gguf_index){0};
}
