/* Values of keys, converted to what the caller wants or refused by name. */
#include "model/gguf_index.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* One number from the file: integers as int64 (u64 apart, for those that do not fit), or a
 * double. */
struct number {
    enum { NUMBER_SIGNED, NUMBER_UNSIGNED, NUMBER_FLOAT, NUMBER_NONE } kind;
    int64_t i;
    uint64_t u;
    double f;
};

static struct number gguf_keys_load(enum gguf_type type, const uint8_t *at)
{
    float f32;
    double f64;
    switch (type) {
    case GGUF_TYPE_UINT8:
        return (struct number){.kind = NUMBER_UNSIGNED, .u = *at};
    case GGUF_TYPE_INT8:
        return (struct number){.kind = NUMBER_SIGNED, .i = (int8_t)*at};
    case GGUF_TYPE_UINT16:
        return (struct number){.kind = NUMBER_UNSIGNED, .u = gguf_load_u16(at)};
    case GGUF_TYPE_INT16:
        return (struct number){.kind = NUMBER_SIGNED, .i = (int16_t)gguf_load_u16(at)};
    case GGUF_TYPE_UINT32:
        return (struct number){.kind = NUMBER_UNSIGNED, .u = gguf_load_u32(at)};
    case GGUF_TYPE_INT32:
        return (struct number){.kind = NUMBER_SIGNED, .i = (int32_t)gguf_load_u32(at)};
    case GGUF_TYPE_UINT64:
        return (struct number){.kind = NUMBER_UNSIGNED, .u = gguf_load_u64(at)};
    case GGUF_TYPE_INT64:
        return (struct number){.kind = NUMBER_SIGNED, .i = (int64_t)gguf_load_u64(at)};
    case GGUF_TYPE_FLOAT32:
        memcpy(&f32, at, sizeof f32);
        return (struct number){.kind = NUMBER_FLOAT, .f = (double)f32};
    case GGUF_TYPE_FLOAT64:
        memcpy(&f64, at, sizeof f64);
        return (struct number){.kind = NUMBER_FLOAT, .f = f64};
    case GGUF_TYPE_BOOL:
    case GGUF_TYPE_STRING:
    case GGUF_TYPE_ARRAY:
    case GGUF_TYPE_COUNT:
        break;
    }
    return (struct number){.kind = NUMBER_NONE};
}

static bool is_integer(enum gguf_type type)
{
    switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
        return true;
    case GGUF_TYPE_FLOAT32:
    case GGUF_TYPE_BOOL:
    case GGUF_TYPE_STRING:
    case GGUF_TYPE_ARRAY:
    case GGUF_TYPE_FLOAT64:
    case GGUF_TYPE_COUNT:
        break;
    }
    return false;
}

static bool is_float(enum gguf_type type)
{
    return type == GGUF_TYPE_FLOAT32 || type == GGUF_TYPE_FLOAT64;
}

static enum error_code wrong_type(const struct gguf_value *value, const char *wanted,
                                  struct error *err)
{
    return error_set(err, ERROR_INVALID, "key '%s' must be %s, but is %s%s", value->key, wanted,
                     value->is_array ? "an array of " : "", gguf_type_name(value->type));
}

/* The key's single value; arrays are refused. */
static enum error_code find_single(const struct gguf_file *file, const char *key,
                                   const char *wanted, const struct gguf_value **out,
                                   struct error *err)
{
    *out = gguf_index_find(&file->index, key);
    if (!*out)
        return error_set(err, ERROR_NOT_FOUND, "key '%s' is missing", key);
    if ((*out)->is_array)
        return wrong_type(*out, wanted, err);
    return ERROR_NONE;
}

bool gguf_file_has(const struct gguf_file *file, const char *key)
{
    return gguf_index_find(&file->index, key) != NULL;
}

enum error_code gguf_file_u32(const struct gguf_file *file, const char *key, uint32_t *out,
                              struct error *err)
{
    const struct gguf_value *value;
    enum error_code code = find_single(file, key, "an integer", &value, err);
    if (code)
        return code;
    if (!is_integer(value->type))
        return wrong_type(value, "an integer", err);
    struct number number = gguf_keys_load(value->type, value->data);
    if (number.kind == NUMBER_SIGNED && number.i < 0)
        return error_set(err, ERROR_INVALID, "key '%s' is %" PRId64 "; it must not be negative",
                         key, number.i);
    uint64_t wide = number.kind == NUMBER_SIGNED ? (uint64_t)number.i : number.u;
    if (wide > UINT32_MAX)
        return error_set(err, ERROR_INVALID, "key '%s' is %" PRIu64 "; it must fit in 32 bits", key,
                         wide);
    *out = (uint32_t)wide;
    return ERROR_NONE;
}

enum error_code gguf_file_f32(const struct gguf_file *file, const char *key, float *out,
                              struct error *err)
{
    const struct gguf_value *value;
    enum error_code code = find_single(file, key, "a float", &value, err);
    if (code)
        return code;
    if (!is_float(value->type))
        return wrong_type(value, "a float", err);
    struct number number = gguf_keys_load(value->type, value->data);
    float narrow = (float)number.f;
    if (!isfinite(narrow))
        return error_set(err, ERROR_INVALID, "key '%s' is %g; it must be a finite f32", key,
                         number.f);
    *out = narrow;
    return ERROR_NONE;
}

enum error_code gguf_file_bool(const struct gguf_file *file, const char *key, bool *out,
                               struct error *err)
{
    const struct gguf_value *value;
    enum error_code code = find_single(file, key, "a bool", &value, err);
    if (code)
        return code;
    if (value->type != GGUF_TYPE_BOOL)
        return wrong_type(value, "a bool", err);
    *out = *value->data != 0;
    return ERROR_NONE;
}

enum error_code gguf_file_text(const struct gguf_file *file, const char *key, const char **out,
                               size_t *size, struct error *err)
{
    const struct gguf_value *value;
    enum error_code code = find_single(file, key, "a text", &value, err);
    if (code)
        return code;
    if (value->type != GGUF_TYPE_STRING)
        return wrong_type(value, "a text", err);
    *out = value->text;
    *size = (size_t)value->text_size;
    return ERROR_NONE;
}

/* Every 64-bit element must fit where the caller will read it; NaN sorts nowhere. */
static enum error_code check_elements(const struct gguf_value *value, struct error *err)
{
    size_t step = gguf_element_size(value->type);
    for (uint64_t i = 0; i < value->count; i++) {
        struct number number = gguf_keys_load(value->type, value->data + i * step);
        if ((number.kind == NUMBER_UNSIGNED && number.u > UINT32_MAX) ||
            (number.kind == NUMBER_SIGNED && (number.i < INT32_MIN || number.i > UINT32_MAX)))
            return error_set(err, ERROR_INVALID,
                             "key '%s': element %" PRIu64 " does not fit in 32 bits", value->key,
                             i);
        if (number.kind == NUMBER_FLOAT && isnan(number.f))
            return error_set(err, ERROR_INVALID, "key '%s': element %" PRIu64 " is not a number",
                             value->key, i);
    }
    return ERROR_NONE;
}

enum error_code gguf_file_array(const struct gguf_file *file, const char *key,
                                enum gguf_array_kind kind, uint64_t *length, struct error *err)
{
    static const char *const wanted[] = {
        [GGUF_ARRAY_U32] = "an array of integers",
        [GGUF_ARRAY_F32] = "an array of floats",
        [GGUF_ARRAY_BOOL] = "an array of bools",
        [GGUF_ARRAY_TEXT] = "an array of texts",
    };
    const struct gguf_value *value = gguf_index_find(&file->index, key);
    if (!value)
        return error_set(err, ERROR_NOT_FOUND, "key '%s' is missing", key);
    bool fits = (kind == GGUF_ARRAY_U32 && is_integer(value->type)) ||
                (kind == GGUF_ARRAY_F32 && is_float(value->type)) ||
                (kind == GGUF_ARRAY_BOOL && value->type == GGUF_TYPE_BOOL) ||
                (kind == GGUF_ARRAY_TEXT && value->type == GGUF_TYPE_STRING);
    if (!value->is_array || !fits)
        return wrong_type(value, wanted[kind], err);
    enum error_code code =
        kind == GGUF_ARRAY_U32 || kind == GGUF_ARRAY_F32 ? check_elements(value, err) : ERROR_NONE;
    if (!code)
        *length = value->count;
    return code;
}

static const uint8_t *gguf_keys_element(const struct gguf_file *file, const char *key,
                                        uint64_t index, enum gguf_type *type)
{
    const struct gguf_value *value = gguf_index_find(&file->index, key);
    assert(value && value->is_array && value->type != GGUF_TYPE_STRING && index < value->count);
    *type = value->type;
    return value->data + index * gguf_element_size(value->type);
}

static uint32_t as_u32(enum gguf_type type, const uint8_t *at)
{
    struct number number = gguf_keys_load(type, at);
    return number.kind == NUMBER_SIGNED ? (uint32_t)number.i : (uint32_t)number.u;
}

uint32_t gguf_file_array_u32(const struct gguf_file *file, const char *key, uint64_t index)
{
    enum gguf_type type;
    const uint8_t *at = gguf_keys_element(file, key, index, &type);
    assert(is_integer(type));
    return as_u32(type, at);
}

float gguf_file_array_f32(const struct gguf_file *file, const char *key, uint64_t index)
{
    enum gguf_type type;
    const uint8_t *at = gguf_keys_element(file, key, index, &type);
    assert(is_float(type));
    return (float)gguf_keys_load(type, at).f;
}

bool gguf_file_array_bool(const struct gguf_file *file, const char *key, uint64_t index)
{
    enum gguf_type type;
    const uint8_t *at = gguf_keys_element(file, key, index, &type);
    assert(type == GGUF_TYPE_BOOL);
    return *at != 0;
}

void gguf_file_array_u32s(const struct gguf_file *file, const char *key, uint32_t *out)
{
    const struct gguf_value *value = gguf_index_find(&file->index, key);
    assert(value && value->is_array && is_integer(value->type));
    size_t step = gguf_element_size(value->type);
    for (uint64_t i = 0; i < value->count; i++)
        out[i] = as_u32(value->type, value->data + i * step);
}

void gguf_file_array_f32s(const struct gguf_file *file, const char *key, float *out)
{
    const struct gguf_value *value = gguf_index_find(&file->index, key);
    assert(value && value->is_array && is_float(value->type));
    size_t step = gguf_element_size(value->type);
    for (uint64_t i = 0; i < value->count; i++)
        out[i] = (float)gguf_keys_load(value->type, value->data + i * step).f;
}

void gguf_file_array_texts(const struct gguf_file *file, const char *key, gguf_text_fn each,
                           void *arg)
{
    const struct gguf_value *value = gguf_index_find(&file->index, key);
    assert(value && value->is_array && value->type == GGUF_TYPE_STRING);
    const uint8_t *at = value->data; /* the walk has seen that every length is within the file */
    for (uint64_t i = 0; i < value->count; i++) {
        uint64_t size = gguf_load_u64(at);
        each(arg, i, (const char *)at + 8, (size_t)size);
        at += 8 + size;
    }
}

uint64_t gguf_file_key_count(const struct gguf_file *file)
{
    return file->index.n_values;
}

/* With as many digits as it takes to read the same number back. */
static void print_float(enum gguf_type type, double number, char *text, size_t size)
{
    bool narrow = type == GGUF_TYPE_FLOAT32;
    for (int digits = narrow ? 6 : 15; digits <= (narrow ? 9 : 17); digits++) {
        char trial[40];
        snprintf(trial, sizeof trial, "%.*g", digits, number);
        double back = strtod(trial, NULL);
        snprintf(text, size, "%s", trial);
        if (narrow ? (float)back == (float)number : back == number)
            return;
    }
}

/* Writes one element and returns the bytes from it to the next. */
static uint64_t print_element(enum gguf_type type, const uint8_t *at, char *text, size_t size)
{
    if (type == GGUF_TYPE_STRING) {
        uint64_t length = gguf_load_u64(at);
        gguf_printable((const char *)at + 8, length, text, size);
        return 8 + length;
    }
    struct number number = gguf_keys_load(type, at);
    switch (number.kind) {
    case NUMBER_SIGNED:
        snprintf(text, size, "%" PRId64, number.i);
        break;
    case NUMBER_UNSIGNED:
        snprintf(text, size, "%" PRIu64, number.u);
        break;
    case NUMBER_FLOAT:
        print_float(type, number.f, text, size);
        break;
    case NUMBER_NONE:
        snprintf(text, size, "%s", *at ? "true" : "false");
        break;
    }
    return gguf_element_size(type);
}

const char *gguf_file_key(const struct gguf_file *file, uint64_t index, char *text,
                          size_t text_size)
{
    assert(index < file->index.n_values && text_size > 0);
    const struct gguf_value *value = &file->index.values[index];
    if (!value->is_array) {
        print_element(value->type, value->data, text, text_size);
        return value->key;
    }
    int length =
        snprintf(text, text_size, "%" PRIu64 " x %s:", value->count, gguf_type_name(value->type));
    const uint8_t *at = value->data;
    char one[32];
    for (uint64_t i = 0; i < value->count; i++) {
        at += print_element(value->type, at, one, sizeof one);
        bool last = i + 1 == value->count;
        /* 5: ", ..." must still fit after it */
        if (length < 0 || (size_t)length + strlen(one) + 2 + (last ? 0 : 5) >= text_size) {
            if (length >= 0 && (size_t)length + 5 < text_size)
                snprintf(text + length, text_size - (size_t)length, "%s", i ? ", ..." : " ...");
            break;
        }
        length += snprintf(text + length, text_size - (size_t)length, "%s%s", i ? ", " : " ", one);
    }
    return value->key;
}
