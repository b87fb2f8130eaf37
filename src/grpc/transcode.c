#include "grpc/transcode.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char transcode_suffix[] = "_json";

/* How long the member's name is. */
static size_t transcode_name_size(const ProtobufCFieldDescriptor *field)
{
    const size_t size = strlen(field->name), suffix = sizeof transcode_suffix - 1;
    const bool is_json =
        size > suffix && strcmp(field->name + size - suffix, transcode_suffix) == 0;
    return is_json ? size - suffix : size;
}

static bool transcode_is_json(const ProtobufCFieldDescriptor *field)
{
    return transcode_name_size(field) != strlen(field->name);
}

/* ---- to JSON --------------------------------------------------------------------------------- */

static enum error_code transcode_text(const ProtobufCFieldDescriptor *field, const char *text,
                                      yyjson_mut_doc *doc, yyjson_mut_val **out, struct error *err)
{
    if (!transcode_is_json(field)) {
        *out = yyjson_mut_strcpy(doc, text);
        return ERROR_NONE;
    }
    yyjson_read_err problem;
    yyjson_doc *read = yyjson_read_opts((char *)(uintptr_t)text, strlen(text), 0, NULL, &problem);
    if (!read)
        return error_set(err, ERROR_INVALID, "%s is not JSON: %s at byte %zu", field->name,
                         problem.msg, problem.pos);
    *out = yyjson_val_mut_copy(doc, yyjson_doc_get_root(read));
    yyjson_doc_free(read);
    return ERROR_NONE;
}

/* One value at `at`, as protobuf-c keeps it in a message or in an array. *out NULL: no memory. */
static enum error_code transcode_value(const ProtobufCFieldDescriptor *field, const void *at,
                                       yyjson_mut_doc *doc, yyjson_mut_val **out, struct error *err)
{
    *out = NULL;
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return transcode_text(field, *(char *const *)at, doc, out, err);
    case PROTOBUF_C_TYPE_UINT32:
        *out = yyjson_mut_uint(doc, *(const uint32_t *)at);
        return ERROR_NONE;
    case PROTOBUF_C_TYPE_UINT64:
        *out = yyjson_mut_uint(doc, *(const uint64_t *)at);
        return ERROR_NONE;
    case PROTOBUF_C_TYPE_BOOL:
        *out = yyjson_mut_bool(doc, *(const protobuf_c_boolean *)at);
        return ERROR_NONE;
    case PROTOBUF_C_TYPE_DOUBLE:
        *out = yyjson_mut_real(doc, *(const double *)at);
        return ERROR_NONE;
    case PROTOBUF_C_TYPE_MESSAGE:
        *out = yyjson_mut_obj(doc);
        return *out ? transcode_to_json(*(ProtobufCMessage *const *)at, doc, *out, err)
                    : ERROR_NONE;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_BYTES:
        break;
    }
    return error_set(err, ERROR_INTERNAL, "%s is of a type that JSON requests do not have",
                     field->name);
}

static size_t transcode_size_of(const ProtobufCFieldDescriptor *field)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        return sizeof(uint32_t);
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_DOUBLE:
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE:
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_FLOAT:
    case PROTOBUF_C_TYPE_ENUM:
    case PROTOBUF_C_TYPE_BYTES:
        break;
    }
    return sizeof(void *);
}

static bool transcode_is_pointer(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;
}

static enum error_code transcode_add(const ProtobufCFieldDescriptor *field, const void *at,
                                     yyjson_mut_doc *doc, yyjson_mut_val *object, bool is_array,
                                     struct error *err)
{
    yyjson_mut_val *value;
    enum error_code code = transcode_value(field, at, doc, &value, err);
    if (code)
        return code;
    const bool added =
        is_array ? yyjson_mut_arr_append(object, value)
                 : yyjson_mut_obj_put(object,
                                      yyjson_mut_strn(doc, field->name, transcode_name_size(field)),
                                      value);
    return added ? ERROR_NONE
                 : error_set(err, ERROR_NO_MEMORY, "not enough memory for the request");
}

static enum error_code transcode_field(const ProtobufCMessage *message,
                                       const ProtobufCFieldDescriptor *field, yyjson_mut_doc *doc,
                                       yyjson_mut_val *object, struct error *err)
{
    const char *base = (const char *)message, *at = base + field->offset;
    if (field->label != PROTOBUF_C_LABEL_REPEATED) {
        const bool has = transcode_is_pointer(field)
                             ? *(void *const *)(const void *)at != NULL
                             : *(const protobuf_c_boolean *)(base + field->quantifier_offset);
        return has ? transcode_add(field, at, doc, object, false, err) : ERROR_NONE;
    }
    const size_t n = *(const size_t *)(const void *)(base + field->quantifier_offset);
    const char *items = *(char *const *)(const void *)at;
    yyjson_mut_val *array = n ? yyjson_mut_arr(doc) : NULL;
    enum error_code code = ERROR_NONE;
    for (size_t i = 0; i < n && !code; i++)
        code = transcode_add(field, items + i * transcode_size_of(field), doc, array, true, err);
    if (code || !n)
        return code;
    return yyjson_mut_obj_put(object, yyjson_mut_str(doc, field->name), array)
               ? ERROR_NONE
               : error_set(err, ERROR_NO_MEMORY, "not enough memory for the request");
}

enum error_code transcode_to_json(const ProtobufCMessage *message, yyjson_mut_doc *doc,
                                  yyjson_mut_val *object, struct error *err)
{
    const ProtobufCMessageDescriptor *kind = message->descriptor;
    for (unsigned i = 0; i < kind->n_fields; i++) {
        enum error_code code = transcode_field(message, &kind->fields[i], doc, object, err);
        if (code)
            return code;
    }
    return ERROR_NONE;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

/* https://protobuf.dev/programming-guides/encoding/ */
enum { TRANSCODE_VARINT = 0, TRANSCODE_64 = 1, TRANSCODE_LENGTH = 2 };

static void transcode_put_varint(uint64_t value, struct buffer *out)
{
    uint8_t bytes[10];
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)(value & 0x7f);
        value >>= 7;
        bytes[n++] |= value ? 0x80 : 0;
    } while (value);
    buffer_append(out, bytes, n);
}

static void transcode_put_key(const ProtobufCFieldDescriptor *field, unsigned wire,
                              struct buffer *out)
{
    transcode_put_varint((uint64_t)field->id << 3 | wire, out);
}

static void transcode_put_bytes(const ProtobufCFieldDescriptor *field, const char *bytes,
                                size_t size, struct buffer *out)
{
    transcode_put_key(field, TRANSCODE_LENGTH, out);
    transcode_put_varint(size, out);
    if (size)
        buffer_append(out, bytes, size);
}

static void transcode_put_number(const ProtobufCFieldDescriptor *field, yyjson_val *value,
                                 struct buffer *out)
{
    const uint64_t number = yyjson_is_uint(value) ? yyjson_get_uint(value) : UINT64_MAX;
    if (!yyjson_is_uint(value) || (field->type == PROTOBUF_C_TYPE_UINT32 && number > UINT32_MAX))
        return;
    transcode_put_key(field, TRANSCODE_VARINT, out);
    transcode_put_varint(number, out);
}

static void transcode_put_double(const ProtobufCFieldDescriptor *field, yyjson_val *value,
                                 struct buffer *out)
{
    const double number = yyjson_get_num(value);
    uint64_t bits;
    uint8_t bytes[8];
    if (!yyjson_is_num(value))
        return;
    memcpy(&bits, &number, sizeof bits);
    for (unsigned i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(bits >> 8 * i);
    transcode_put_key(field, TRANSCODE_64, out);
    buffer_append(out, bytes, sizeof bytes);
}

static void transcode_put_json(const ProtobufCFieldDescriptor *field, yyjson_val *value,
                               struct buffer *out)
{
    size_t size;
    char *text = yyjson_val_write(value, YYJSON_WRITE_ALLOW_INVALID_UNICODE, &size);
    if (text)
        transcode_put_bytes(field, text, size, out);
    else
        out->failed = true;
    free(text);
}

static void transcode_put_message(const ProtobufCFieldDescriptor *field, yyjson_val *value,
                                  struct buffer *out)
{
    struct buffer inside = {0};
    transcode_from_json(value, field->descriptor, &inside);
    transcode_put_bytes(field, inside.data, inside.size, out);
    out->failed |= inside.failed;
    buffer_deinit(&inside);
}

static void transcode_put(const ProtobufCFieldDescriptor *field, yyjson_val *value,
                          struct buffer *out)
{
    if (transcode_is_json(field)) {
        transcode_put_json(field, value, out);
    } else if (field->type == PROTOBUF_C_TYPE_STRING) {
        if (yyjson_is_str(value))
            transcode_put_bytes(field, yyjson_get_str(value), yyjson_get_len(value), out);
    } else if (field->type == PROTOBUF_C_TYPE_BOOL) {
        if (yyjson_is_bool(value)) {
            transcode_put_key(field, TRANSCODE_VARINT, out);
            transcode_put_varint(yyjson_get_bool(value), out);
        }
    } else if (field->type == PROTOBUF_C_TYPE_DOUBLE) {
        transcode_put_double(field, value, out);
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        if (yyjson_is_obj(value))
            transcode_put_message(field, value, out);
    } else {
        transcode_put_number(field, value, out);
    }
}

void transcode_from_json(yyjson_val *object, const ProtobufCMessageDescriptor *kind,
                         struct buffer *out)
{
    for (unsigned i = 0; i < kind->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &kind->fields[i];
        const bool is_whole = strcmp(field->name, "document_json") == 0;
        yyjson_val *value =
            is_whole ? object : yyjson_obj_getn(object, field->name, transcode_name_size(field));
        yyjson_val *item;
        size_t at, n;
        if (!value || yyjson_is_null(value))
            continue;
        if (field->label != PROTOBUF_C_LABEL_REPEATED) {
            transcode_put(field, value, out);
            continue;
        }
        yyjson_arr_foreach(value, at, n, item)
        {
            transcode_put(field, item, out);
        }
    }
}

bool transcode_from_member(const char *name, yyjson_val *value,
                           const ProtobufCMessageDescriptor *kind, struct buffer *out)
{
    for (unsigned i = 0; i < kind->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &kind->fields[i];
        const size_t size = transcode_name_size(field);
        if (strlen(name) != size || strncmp(field->name, name, size) != 0)
            continue;
        transcode_put(field, value, out);
        return true;
    }
    return false;
}
